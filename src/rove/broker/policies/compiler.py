"""Compiling policies. The packet that sets a policy is held meanwhile, and only its client waits.

Compiling takes milliseconds, of which the broker has none to spare: a worker does it. The packet
with the text (`$rove/policy`, or SUBSCRIBE with a user property `policy`) is held, and what its
client sends after it waits behind it, unread as far as possible. When the worker has answered, the
packet is handled as if it had just come; by then the text is known. A packet is not held if its
text is known already, is refused for its length alone, or belongs to a user whose share is used up:
that costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from rove.broker.context import BrokerContext
from rove.broker.policies.store import PolicyStore
from rove.broker.sessions.session import Link, PendingDecision, PolicySlot, Session
from rove.broker.user_properties import user_property
from rove.mqtt.packets import Malformed, Packet, Publish, Subscribe
from rove.policy.accounts import Account
from rove.policy.compiler import Policy, compiled, known, remember
from rove.policy.errors import PolicyError
from rove.policy.jobs import CompileResult, CompressionRequest
from rove.policy.limits import PolicyLimits
from rove.policy.pool import Pool

JobOwner = tuple[PolicySlot, PendingDecision, CompressionRequest | None] | Link
"""What a worker's result is for: a pending decision, or a client that sets a policy."""


class PolicyCompiler:
    """Compiles policies, and holds the packets that set them."""

    def __init__(
        self,
        context: BrokerContext,
        policies: PolicyStore,
        pool: Pool[JobOwner] | None,
        is_over_share: Callable[[Account], bool],
    ) -> None:
        self._context = context
        self._policies = policies
        self._pool = pool
        self._is_over_share = is_over_share
        self._texts: dict[Link, tuple[str, Account]] = {}
        self._made: dict[str, Policy | PolicyError] = {}
        """The compiled policy of the packet that is being handled, or its error."""

    @property
    def is_waiting(self) -> bool:
        """Whether any client waits for its policy."""
        return bool(self._texts)

    def hold(self, link: Link, packet: Publish | Subscribe) -> bool:
        """Whether a packet has to wait for a worker; if so, it is held and the job started."""
        policies, pool, session = self._policies, self._pool, link.session
        limits = policies.limits
        if pool is None or limits is None or session is None:
            return False
        text = _text_in(packet)
        if not text or len(text) > limits.text_bytes_max:
            return False
        if known(text, bytes_max=limits.text_bytes_max) is not None or text in self._made:
            return False
        account = policies.account(session)
        if self._is_over_share(account):
            return False
        self._texts[link] = text, account
        pool.compile(account.name, text, limits.text_bytes_max, link, limits.compile_ms)
        link.held, link.is_paused = packet, True
        return True

    def left(self, link: Link) -> None:
        """A connection was closed: drop its job."""
        self._texts.pop(link, None)

    def go_on(
        self,
        handle: Callable[[Link, list[Packet | Malformed]], None],
        is_throttled: Callable[[Link], bool],
    ) -> None:
        """Handle the packets whose policies are compiled now, and what came after them."""
        pool, attempt = self._pool, self._context.faults.attempt
        while pool is not None and pool.texts:
            link, answer = pool.texts.popleft()
            assert isinstance(link, Link)
            attempt("policy", self._go_on_with, link, answer, handle, is_throttled, link=link)

    def _go_on_with(
        self,
        link: Link,
        answer: CompileResult,
        handle: Callable[[Link, list[Packet | Malformed]], None],
        is_throttled: Callable[[Link], bool],
    ) -> None:
        found, limits = self._texts.pop(link, None), self._policies.limits
        if found is None or limits is None:
            return
        text, account = found
        account.allowance.use(answer.took_s)
        self._policies.remember(account, limits)
        self._made[text] = _made(text, answer, limits)
        try:
            if link.held is not None and not link.closing and link in self._context.links:
                pending = [link.held, *link.pending]
                link.held, link.pending, link.is_paused = None, [], is_throttled(link)
                handle(link, pending)
        finally:
            self._made.clear()

    def compiled(self, text: str, session: Session | None = None) -> Policy:
        """Compile a policy; PolicyError if invalid. The time counts towards the user's share.

        With workers, it has been compiled already.
        """
        policies = self._policies
        limits, clock = policies.limits, policies.clock
        if limits is None:
            raise PolicyError("this broker runs no policies", "see [policies] in its configuration")
        made = self._made.get(text)
        if isinstance(made, PolicyError):
            raise made
        if made is not None:
            return made
        account = None if session is None else policies.account(session)
        if account is not None and self._is_over_share(account):
            raise PolicyError("the share of a processor is used up", "try again in some seconds")
        begun_s = 0.0 if clock is None else clock()
        try:
            return compiled(text, bytes_max=limits.text_bytes_max)
        finally:
            if account is not None and clock is not None:
                account.allowance.use(clock() - begun_s)
                policies.remember(account, limits)


def _text_in(packet: Publish | Subscribe) -> str:
    if isinstance(packet, Publish):
        return packet.payload.decode(errors="replace")
    return user_property(packet.properties, "policy") or ""


def _made(text: str, answer: CompileResult, limits: PolicyLimits) -> Policy | PolicyError:
    if answer.code is not None:
        policy = Policy(text, answer.code)
        remember(policy, bytes_max=limits.text_bytes_max)
        return policy
    if answer.is_lost:
        return PolicyError(f"the policy was not compiled: {answer.what}", "try a shorter one")
    return PolicyError(answer.what, answer.hint, text=text, line=answer.line, column=answer.column)
