"""Who has a policy, and what waits for its decision: in memory and on disk.

A policy's row is written when it takes its place and whenever it remembers something else, and goes
with it. One that cannot be run after a restart, because another configuration runs no policies or
allows less, keeps its row: with the old configuration it is back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from rove.broker.context import BrokerContext
from rove.broker.notifications.delivery import Delivery
from rove.broker.sessions.session import (
    PendingDecision,
    PolicySlot,
    Session,
    Subscription,
    slot_key,
)
from rove.broker.sessions.variables import Variables
from rove.broker.storage.records import encoded, queue_key
from rove.broker.storage.subscription_log import SubscriptionLog
from rove.broker.subscriptions.router import Router
from rove.policy.accounts import Account, Accounts
from rove.policy.agents import Agent, Kept
from rove.policy.compiling import Policy
from rove.policy.errors import PolicyError
from rove.policy.limits import PolicyLimits
from rove.policy.view import Tally


class PolicyStore:
    """All policies, in their slots."""

    def __init__(
        self,
        context: BrokerContext,
        router: Router,
        variables: Variables,
        log: SubscriptionLog,
        limits: PolicyLimits | None,
        clock: Callable[[], float] | None,
    ) -> None:
        """Without limits there are no policies; without a clock, no share of a processor."""
        self.limits = limits
        self.clock = clock
        self._context = context
        self._router = router
        self._variables = variables
        self._log = log
        self.slots: dict[PolicySlot, None] = {}
        self.gone = Tally()
        """What agents did that are no more."""
        self._accounts = Accounts()
        self.unrun: set[str] = set()
        """Keys of rows of policies that are on disk and cannot be run here."""

    def account(self, session: Session) -> Account:
        """The account that a session's policies use: its user's."""
        user = session.identity.user
        name = f"client {session.client_id}" if user is None else f"user {user}"
        return self._accounts.of(name)

    def is_over_share(self, account: Account) -> bool:
        """Whether a user's policies have used more than they may."""
        if self.clock is None or self.limits is None:
            return False
        return account.allowance.is_used_up(self.limits, self._context.now, self.clock())

    def remember(self, account: Account, limits: PolicyLimits) -> None:
        """Keep what a user owes, even if no policy of it is there, or none is left."""
        self._accounts.left(account, self._context.now, limits)

    def take(self, slot: PolicySlot) -> None:
        """A policy takes its place."""
        self._save(slot)
        self.slots[slot] = None
        if slot.subscription is not None:
            slot.subscription.slot = slot
        else:
            assert slot.session.subscriber is not None
            slot.session.subscriber.slot = slot
        self._forget_routes(slot)

    def _save(self, slot: PolicySlot) -> None:
        """A policy is about to take its place, or to leave it."""
        steps = self._context.steps
        steps.undoes(self._forget_routes, slot)
        steps.saves_item(self.slots, slot)
        if slot.subscription is not None:
            steps.saves(slot.subscription, "slot")
        elif slot.session.subscriber is not None:
            steps.saves(slot.session.subscriber, "slot")

    def leave(self, slot: PolicySlot) -> None:
        """It leaves it; what waited for it is for others to see to."""
        self._save(slot)
        self._context.steps.undoes(slot.swap, slot.waiting)
        del self.slots[slot]
        slot.swap(deque())
        self.gone.add(slot.agent.tally)
        if slot.subscription is not None:
            slot.subscription.slot = None
        elif slot.session.subscriber is not None:
            slot.session.subscriber.slot = None
        self.drop_row(slot)
        self._forget_routes(slot)

    def _forget_routes(self, slot: PolicySlot) -> None:
        # The policy of a session is found by its context, so routes need not know of it.
        if slot.subscription is not None:
            self._router.forget_routes((slot.subscription,))

    def keep(self, slot: PolicySlot) -> None:
        """Have it on disk as it is now."""
        if slot.session.is_durable:
            self._context.gate.changes.put("agents", slot.key, encoded(slot.agent.kept()))

    def drop_unrun(self, session: Session, subscription: Subscription | None) -> bool:
        """Let there be no row of a policy that was not run, if there is one."""
        if not self.unrun:
            return False
        key = slot_key(session, subscription)
        if key not in self.unrun:
            return False
        self._context.steps.undoes(self.unrun.add, key)
        self.unrun.remove(key)
        self._context.gate.changes.delete("agents", key)
        self._log.unrun_dropped(session, subscription, self._context.now)
        return True

    def drop_row(self, slot: PolicySlot) -> None:
        """Have it on disk no more."""
        if slot.session.is_durable:
            self._context.gate.changes.delete("agents", slot.key)

    def restore(self, key: str, kept: Kept, compiled: Callable[[str], Policy]) -> None:
        """A policy was there before a restart."""
        number, _, client_id = key.partition("/")
        session = self._context.sessions.get(client_id)
        subscription = None
        if session is not None and number != "0":
            numbered = (one for one in session.subscriptions.values() if one.number == int(number))
            subscription = next(numbered, None)
        if session is None or (number != "0" and subscription is None):
            self._context.gate.changes.delete("agents", key)
            return
        try:
            policy = compiled(kept.text)
        except PolicyError as error:
            # Its row stays: with another configuration it may run again.
            self.unrun.add(key)
            self._context.note("warning", "policy not run", client=client_id, reason=error.what)
            return
        self._variables.restore_subscriber(session)
        slot = PolicySlot(
            Agent.restored(policy, kept), session, subscription, self.account(session)
        )
        slot.account.note_suspension(slot.agent, self._context.now)
        self.take(slot)


class PendingDecisions:
    """Notifications that wait for a policy's decision, on disk.

    One is kept as long as it waits if a queue would keep it: if its session outlives the connection
    and it has a quality of service above 0. It has a number of its session's queue, so that pending
    decisions and entries of the queue stay in one order, and holds its publication as an entry
    does. It ends in the turn in which it is decided, and so in the commit that keeps the outcome.
    """

    def __init__(self, context: BrokerContext, delivery: Delivery) -> None:
        self._context = context
        self._delivery = delivery

    def put(self, pending: PendingDecision, slot: PolicySlot) -> None:
        """Let a pending decision be kept while it waits for this policy."""
        one, session = pending.notification, slot.session
        if not (session.is_durable and min(one.qos, one.publication.qos)):
            return
        context = self._context
        if not pending.key:
            context.steps.saves(pending, "key")
            pending.key = queue_key(session.number, session.next_entry)
            session.next_entry += 1
            self._delivery.keep(one.publication)
        row = encoded(pending.row(slot.number, context.now))
        context.gate.changes.put("cases", pending.key, row)

    def end(self, pending: PendingDecision) -> None:
        """It waits no more."""
        if pending.key:
            self._context.gate.changes.delete("cases", pending.key)
            self._delivery.release(pending.notification.publication)
            self._context.steps.saves(pending, "key")
            pending.key = 0

    def give_up(self, pending: PendingDecision) -> None:
        """It was withdrawn or has expired while it waited."""
        self._context.counters.notifications_dropped_expired += 1
        self.end(pending)
