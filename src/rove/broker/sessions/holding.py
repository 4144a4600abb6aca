"""Packets that set a policy wait for its text to be compiled; only their client waits with them.

Compiling takes milliseconds, of which the broker has none to spare: a worker does it. The packet
that has the text (`$rove/policy`, or SUBSCRIBE with a user property `policy`) is held, and what its
client sends after it waits behind it, unread as far as possible. When the answer is there, the
packet is handled as if it had just come; then the text is known. A text that is known already, that
is refused for its length alone, or whose user has used up its share, is not held: that costs
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rove.broker.publications.publication import user_property
from rove.broker.sessions.links import Link
from rove.broker.sessions.session import Session
from rove.mqtt.packets import Malformed, Packet, Publish, Subscribe
from rove.policy.accounts import Account
from rove.policy.compiling import Policy, compiled, known, remember
from rove.policy.errors import PolicyError
from rove.policy.jobs import Compiled
from rove.policy.limits import PolicyLimits

if TYPE_CHECKING:
    from rove.broker.context import BrokerContext
    from rove.broker.policies.agents import Agents


class Holding:
    """The packets that wait, each with its link."""

    def __init__(
        self, context: BrokerContext, agents: Agents, clock: Callable[[], float] | None
    ) -> None:
        self._context = context
        self._agents = agents
        self._clock = clock
        self._texts: dict[Link, tuple[str, Account]] = {}
        self._made: dict[str, Policy | PolicyError] = {}
        """What workers have made of the text that is being set."""

    @property
    def is_waiting(self) -> bool:
        """Whether clients wait."""
        return bool(self._texts)

    def hold(self, link: Link, packet: Publish | Subscribe) -> bool:
        """Whether a packet has to wait for a worker; then it is held, and the worker is asked."""
        agents = self._agents
        pool, limits, session = agents.pool, agents.limits, link.session
        if pool is None or limits is None or session is None:
            return False
        text = _text_in(packet)
        if not text or len(text) > limits.text_bytes_max:
            return False
        if known(text, bytes_max=limits.text_bytes_max) is not None or text in self._made:
            return False
        account = agents.policies.account(session)
        if agents.is_over_share(account):
            return False
        self._texts[link] = text, account
        pool.compile(account.name, text, limits.text_bytes_max, link, limits.compile_ms)
        link.held, link.is_paused = packet, True
        return True

    def left(self, link: Link) -> None:
        """A connection has gone; nobody waits any more."""
        self._texts.pop(link, None)

    def go_on(
        self,
        handle: Callable[[Link, list[Packet | Malformed]], None],
        is_throttled: Callable[[Link], bool],
    ) -> None:
        """Have handled what waited for a text that is compiled now, and what came after it."""
        pool, attempt = self._agents.pool, self._context.faults.attempt
        while pool is not None and pool.texts:
            link, answer = pool.texts.popleft()
            assert isinstance(link, Link)
            attempt("policy", self._go_on_with, link, answer, handle, is_throttled, link=link)

    def _go_on_with(
        self,
        link: Link,
        answer: Compiled,
        handle: Callable[[Link, list[Packet | Malformed]], None],
        is_throttled: Callable[[Link], bool],
    ) -> None:
        agents = self._agents
        found, limits = self._texts.pop(link, None), agents.limits
        if found is None or limits is None:
            return
        text, account = found
        account.allowance.use(answer.took_s)
        agents.policies.remember(account, limits)
        self._made[text] = _made(text, answer, limits)
        try:
            if link.held is not None and not link.closing and link in self._context.links:
                pending = [link.held, *link.pending]
                link.held, link.pending, link.is_paused = None, [], is_throttled(link)
                handle(link, pending)
        finally:
            self._made.clear()

    def compiled(self, text: str, session: Session | None = None) -> Policy:
        """A text as a policy; PolicyError if not. What compiling takes counts towards the share.

        Where there are workers, they have compiled it already.
        """
        agents = self._agents
        if agents.limits is None:
            raise PolicyError("this broker runs no policies", "see [policies] in its configuration")
        made = self._made.get(text)
        if isinstance(made, PolicyError):
            raise made
        if made is not None:
            return made
        account = None if session is None else agents.policies.account(session)
        if account is not None and agents.is_over_share(account):
            raise PolicyError("the share of a processor is used up", "try again in some seconds")
        begun_s = 0.0 if self._clock is None else self._clock()
        try:
            return compiled(text, bytes_max=agents.limits.text_bytes_max)
        finally:
            if account is not None and self._clock is not None:
                account.allowance.use(self._clock() - begun_s)
                agents.policies.remember(account, agents.limits)


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
