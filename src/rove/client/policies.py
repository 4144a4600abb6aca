"""Policies in the client: checked before they are sent, and notices about faults.

The broker's compiler checks a policy before it is sent, as the parser checks a filter expression:
an invalid one is refused at once, with line and caret, connected or not. Only what the broker alone
can decide (its limits, whether it runs policies at all) is left to its answer. The compiler is
imported with the first policy; a client without policies does not pay for it.
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
    from rove.policy.compiler import Policy

PROTOCOL: Final = 5
_log = logging.getLogger("rove.client")

TOPIC: Final = "$rove/policy"
PROPERTY: Final = "policy"
"""User property of a SUBSCRIBE: the policy of its subscriptions."""
TEXT_BYTES_MAX: Final = 1024 * 1024
"""The limit of the compiler here; the broker has its own."""

Runs = Literal["broker", "here"]
"""Where the policy of a subscription runs: in the broker, or here on notifications."""


class PolicyNotice(msgspec.Struct, frozen=True):
    """A notice about a policy of this subscriber."""

    event: Literal["stopped", "suspended", "resumed"]
    at: float
    """Seconds since 1970."""
    kind: str = ""
    """The limit that stopped it; `error` is an error in the policy itself."""
    text: str = ""
    """For people."""
    line: int = 0
    """The line of the policy; 0 if there is none."""
    topic: str = ""
    publication: str = ""
    """The id of the publication at which it was stopped."""
    subscription: int = 0
    """`Subscription.identifier` of the subscription with the policy; 0 for that of the session."""
    until: float | None = None
    """Of `suspended`: until when."""
    missed: int = 0
    """Stops since the last notice without a notice."""


def compiled(text: str) -> Policy:
    """Compile a policy; PolicyRefused names the fault and its place."""
    from rove.policy.compiler import compiled as compile_policy
    from rove.policy.errors import PolicyError

    try:
        return compile_policy(text, bytes_max=TEXT_BYTES_MAX)
    except PolicyError as error:
        reason = Reason.PAYLOAD_FORMAT_INVALID
        raise PolicyRefused(str(error), reason, line=error.line, column=error.column) from None


def check_carried(text: str) -> None:
    """Refuse a text that SUBSCRIBE cannot carry, now or when the subscription is made again."""
    if (fault := text_fault(text)) is not None:
        raise PolicyRefused(f"a policy of one subscription {fault}; set it for the session")


def check_runs(policy: str | None, runs: str) -> None:
    """Refuse an unknown place for a policy, and a place without a policy."""
    if runs not in get_args(Runs):
        raise PolicyRefused(f"policy_runs is {runs!r}; it may be 'broker' or 'here'")
    if runs == "here" and policy is None:
        raise PolicyRefused("policy_runs says where a policy runs, and there is none")


class SessionPolicy:
    """The policy of the session that this program has set."""

    def __init__(self) -> None:
        self.policy = ""
        """Empty for none."""


class DeviceContext:
    """The client in which a policy runs: its variables, and what the policy can change."""

    def __init__(
        self, me: Me, reports: Reports, on_policy: Callable[[PolicyNotice], object] | None
    ) -> None:
        self.connected_at = 0.0
        self.knows_me = False
        """Whether the broker keeps `me.` variables, and gets the changes of policies."""
        self._me = me
        self._reports = reports
        self._on_policy = on_policy

    @property
    def own(self) -> Mapping[str, Any]:
        """`me.` variables of this subscriber."""
        return self._me

    @property
    def automatic(self) -> dict[str, Any]:
        """Read-only variables. `network` is 1: nothing is lost between here and the program."""
        facts = {"network": 1.0, "connected": True, "protocol": PROTOCOL}
        given = {name: each for name, each in self._reports.newest.items() if each is not None}
        return {**facts, "connected_at": self.connected_at, **given}

    def change(self, changes: Mapping[str, Any]) -> None:
        """Set variables; None removes one."""
        self._me.take(changes, told=self.knows_me)

    def tell(self, notice: PolicyNotice) -> None:
        """There is a notice about a policy."""
        _log.warning("a policy that runs here was %s: %s", notice.event, notice.text or notice.kind)
        if self._on_policy is not None:
            try:
                self._on_policy(notice)
            except Exception as error:
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "on_policy failed", "exception": error}
                )
