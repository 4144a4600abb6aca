"""Policies as a client knows them: checked before they are sent, told of when they go wrong.

A policy is looked at by the broker's own compiler before it leaves, as a text of the language is by
its parser: what cannot be is refused at once, with line and caret, connected or not. Only what the
broker alone can know (its limits, whether it runs policies at all) is left to its answer. The
compiler is imported when the first policy is there; a client without one does not pay for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import msgspec

from rove.client.errors import PolicyRefused
from rove.client.me import Me
from rove.client.reports import Reports
from rove.mqtt.packets import Reason
from rove.mqtt.topics import text_fault

if TYPE_CHECKING:
    from rove.policy.compiling import Policy

PROTOCOL: Final = 5
_log = logging.getLogger("rove.client")

TOPIC: Final = "$rove/policy"
PROPERTY: Final = "policy"
"""Of a SUBSCRIBE: the policy of the subscriptions that it makes."""
TEXT_BYTES_MAX: Final = 1024 * 1024
"""What the compiler takes here; how much the broker takes is its own affair."""

Runs = Literal["broker", "here"]
"""Where the policy of a subscription runs: in the broker, or in this process, on what has come."""


class PolicyNotice(msgspec.Struct, frozen=True):
    """What became of a policy of this subscriber."""

    event: Literal["stopped", "suspended", "resumed"]
    at: float
    """Seconds since 1970."""
    kind: str = ""
    """Which limit stopped it; `error` is an error in the policy itself."""
    text: str = ""
    """For people."""
    line: int = 0
    """Of the policy; 0 is nowhere in particular."""
    topic: str = ""
    publication: str = ""
    """The id of the publication that it was stopped at."""
    subscription: int = 0
    """`Subscription.identifier` of the one whose policy it is; 0 is the whole session's."""
    until: float | None = None
    """Of `suspended`: until when."""
    missed: int = 0
    """Stops since the last notice that were not told."""


def compiled(text: str) -> Policy:
    """The policy; PolicyRefused says what is wrong with it, and where."""
    from rove.policy.compiling import compiled as compile_policy
    from rove.policy.errors import PolicyError

    try:
        return compile_policy(text, bytes_max=TEXT_BYTES_MAX)
    except PolicyError as error:
        reason = Reason.PAYLOAD_FORMAT_INVALID
        raise PolicyRefused(str(error), reason, line=error.line, column=error.column) from None


def check_carried(text: str) -> None:
    """Refuse what SUBSCRIBE cannot carry, now or when the subscription has to be made again."""
    if (fault := text_fault(text)) is not None:
        raise PolicyRefused(f"a policy of one subscription {fault}; set it for the session")


def check_runs(policy: str | None, runs: str) -> None:
    """Refuse what is no place for a policy, and a place without one."""
    if runs not in get_args(Runs):
        raise PolicyRefused(f"policy_runs is {runs!r}; it may be 'broker' or 'here'")
    if runs == "here" and policy is None:
        raise PolicyRefused("policy_runs says where a policy runs, and there is none")


class SessionPolicy:
    """The policy of the whole session, as this program has set it."""

    def __init__(self) -> None:
        self.policy = ""
        """Empty for none."""


class DeviceContext:
    """What a policy sees of the client that it runs in, and can do to it."""

    def __init__(
        self, me: Me, reports: Reports, on_policy: Callable[[PolicyNotice], object] | None
    ) -> None:
        self.connected_at = 0.0
        self.knows_me = False
        """Whether the broker keeps `me.` variables, and is told what policies change."""
        self._me = me
        self._reports = reports
        self._on_policy = on_policy

    @property
    def own(self) -> Mapping[str, Any]:
        """`me.` variables of this subscriber."""
        return self._me

    @property
    def automatic(self) -> dict[str, Any]:
        """Those that it can only read. Between here and the program nothing is lost."""
        facts = {"network": 1.0, "connected": True, "protocol": PROTOCOL}
        given = {name: each for name, each in self._reports.newest.items() if each is not None}
        return {**facts, "connected_at": self.connected_at, **given}

    def change(self, changes: Mapping[str, Any]) -> None:
        """Set variables; None removes one."""
        self._me.take(changes, told=self.knows_me)

    def tell(self, notice: PolicyNotice) -> None:
        """Something has become of a policy."""
        _log.warning("a policy that runs here was %s: %s", notice.event, notice.text or notice.kind)
        if self._on_policy is not None:
            try:
                self._on_policy(notice)
            except Exception as error:
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "on_policy failed", "exception": error}
                )
