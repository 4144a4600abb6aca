"""The store of policies and of pending decisions, in memory and on disk.

A policy's row is written when the policy is set and whenever its memory changes, and is deleted
with it. If a policy cannot be run after a restart, because the new configuration runs no policies
or has lower limits, its row stays: with the old configuration the policy is back.
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
from rove.broker.storage.log import SubscriptionLog
from rove.broker.storage.records import encoded, queue_key
from rove.broker.subscriptions.router import Router
from rove.policy.accounts import Account, Accounts
from rove.policy.agents import Agent, StoredAgent
from rove.policy.compiler import Policy
from rove.policy.errors import PolicyError
from rove.policy.limits import PolicyLimits
from rove.policy.view import PolicyCounts


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
        self.gone = PolicyCounts()
        """The tally of agents that have ended."""
        self._accounts = Accounts()
        self.unrun: set[str] = set()
        """Keys of policies that are on disk and cannot be run with this configuration."""

    def account(self, session: Session) -> Account:
        """The account of a session's policies: its user's, or its client's if anonymous."""
        user = session.identity.user
        name = f"client {session.client_id}" if user is None else f"user {user}"
        return self._accounts.of(name)

    def remember(self, account: Account, limits: PolicyLimits) -> None:
        """Keep a user's account, even without a policy."""
        self._accounts.left(account, self._context.now, limits)

    def take(self, slot: PolicySlot) -> None:
        """Put a policy into its slot."""
        self._save(slot)
        self.slots[slot] = None
        if slot.subscription is not None:
            slot.subscription.slot = slot
        else:
            assert slot.session.subscriber is not None
            slot.session.subscriber.slot = slot
        self._forget_routes(slot)

    def _save(self, slot: PolicySlot) -> None:
        """Before a policy is put into its slot or removed: save the state for undoing that."""
        steps = self._context.steps
        steps.undoes(self._forget_routes, slot)
        steps.saves_item(self.slots, slot)
        if slot.subscription is not None:
            steps.saves(slot.subscription, "slot")
        elif slot.session.subscriber is not None:
            steps.saves(slot.session.subscriber, "slot")

    def leave(self, slot: PolicySlot) -> None:
        """Remove a policy from its slot; the caller handles its pending decisions."""
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
        # The policy of a session is found by its context, so routes do not contain it.
        if slot.subscription is not None:
            self._router.forget_routes((slot.subscription,))

    def keep(self, slot: PolicySlot) -> None:
        """Write the policy's row."""
        if slot.session.is_durable:
            self._context.gate.changes.put("agents", slot.key, encoded(slot.agent.stored()))

    def drop_unrun(self, session: Session, subscription: Subscription | None) -> bool:
        """Delete the row of a policy that could not be run, if there is one."""
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
        """Delete the policy's row."""
        if slot.session.is_durable:
            self._context.gate.changes.delete("agents", slot.key)

    def restore(self, key: str, kept: StoredAgent, compiled: Callable[[str], Policy]) -> None:
        """Restore a policy after a restart."""
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

    One is stored while it waits if a queue would store it: if its session is durable and its QoS is
    above 0. It has a number of its session's queue, so that pending decisions and entries of the
    queue stay in one order, and it holds its publication as an entry does. It is deleted in the
    turn in which it is decided, and so in the commit of the outcome.
    """

    def __init__(self, context: BrokerContext, delivery: Delivery) -> None:
        self._context = context
        self._delivery = delivery

    def put(self, pending: PendingDecision, slot: PolicySlot) -> None:
        """Store a pending decision while it waits for this policy."""
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
        """Delete a pending decision."""
        if pending.key:
            self._context.gate.changes.delete("cases", pending.key)
            self._delivery.release(pending.notification.publication)
            self._context.steps.saves(pending, "key")
            pending.key = 0

    def give_up(self, pending: PendingDecision) -> None:
        """It was withdrawn or has expired while it waited."""
        self._context.counters.notifications_dropped_expired += 1
        self.end(pending)
