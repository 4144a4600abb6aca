"""Packets that set a policy wait for its text to be compiled; only their client waits with them.

Compiling takes milliseconds, of which the broker has none to spare: a worker does it. The packet
that has the text (`$rove/policy`, or SUBSCRIBE with a user property `policy`) is held, and what its
client sends after it waits behind it, unread as far as possible. When the answer is there, the
packet is handled as if it had just come; then the text is known. A text that is known already, that
is refused for its length alone, or whose user has used up its share, is not held: that costs
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rove.broker.links import Link
from rove.broker.publications import user_property
from rove.mqtt.packets import Publish, Subscribe
from rove.policy.accounts import Account
from rove.policy.compiling import Policy, known, remember
from rove.policy.errors import PolicyError
from rove.policy.jobs import Compiled
from rove.policy.limits import PolicyLimits

if TYPE_CHECKING:
    from rove.broker.agents import Agents

POLICY: Final = "$rove/policy"


class Holding:
    """The packets that wait, each with its link."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self._texts: dict[Link, tuple[str, Account]] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether clients wait."""
        return bool(self._texts)

    @property
    def has_answers(self) -> bool:
        """Whether `take` would give anything."""
        pool = self._agents.pool
        return pool is not None and bool(pool.texts)

    def holds(self, link: Link, packet: Publish | Subscribe) -> bool:
        """Whether a packet has to wait for a worker, who has been asked."""
        agents = self._agents
        pool, limits, session = agents.pool, agents.limits, link.session
        if pool is None or limits is None or session is None:
            return False
        text = _text_in(packet)
        if not text or len(text) > limits.text_bytes_max:
            return False
        if known(text, bytes_max=limits.text_bytes_max) is not None or text in agents.made:
            return False
        account = agents.seating.account(session)
        if agents.is_over_share(account):
            return False
        self._texts[link] = text, account
        pool.compile(account.name, text, limits.text_bytes_max, link, limits.compile_ms)
        return True

    def left(self, link: Link) -> None:
        """A connection has gone; nobody waits any more."""
        self._texts.pop(link, None)

    def take(self) -> tuple[Link, Compiled]:
        """The next client whose text is compiled, and what came of it."""
        pool = self._agents.pool
        assert pool is not None, "only workers answer"
        link, answer = pool.texts.popleft()
        assert isinstance(link, Link)
        return link, answer

    @contextmanager
    def made(self, link: Link, answer: Compiled) -> Iterator[None]:
        """As long as this lasts, what came of a client's text is at hand."""
        agents = self._agents
        found, limits = self._texts.pop(link, None), agents.limits
        try:
            if found is not None and limits is not None:
                text, account = found
                account.allowance.use(answer.took_s)
                agents.seating.remember(account, limits)
                agents.made[text] = _made(text, answer, limits)
            yield
        finally:
            agents.made.clear()


def _text_in(packet: Publish | Subscribe) -> str:
    if isinstance(packet, Publish):
        return packet.payload.decode(errors="replace")
    return user_property(packet.properties, "policy") or ""


def _made(text: str, answer: Compiled, limits: PolicyLimits) -> Policy | PolicyError:
    if answer.code is not None:
        policy = Policy(text, answer.code)
        remember(policy, bytes_max=limits.text_bytes_max)
        return policy
    if answer.is_lost:
        return PolicyError(f"the policy was not compiled: {answer.what}", "try a shorter one")
    return PolicyError(answer.what, answer.hint, text=text, line=answer.line, column=answer.column)
