"""Executing the decisions of policies: each in one turn, and so in one commit.

A decision consists of the messages that it sends instead of the original one, the variables that it
sets, the memory of its agent, notices to its subscriber, and the end of the pending decision. It
costs as much as delivering the messages.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from rove.broker.context import BrokerContext
from rove.broker.notifications.delivery import Delivery
from rove.broker.policies.store import PendingDecisions, PolicyStore
from rove.broker.publications.publication import Publication
from rove.broker.publications.retained_store import RetainedStore
from rove.broker.sessions.session import (
    POLICY,
    Notification,
    PendingDecision,
    PolicyInput,
    PolicySlot,
)
from rove.broker.sessions.variables import Variables
from rove.broker.storage.log import PublicationLog, why_decided
from rove.policy.agents import Notice, PolicyDecision
from rove.policy.messages import ENCODED_MAX


@dataclass(eq=False, repr=False)
class Decisions:
    """Executes decisions."""

    _context: BrokerContext
    _delivery: Delivery
    _retained: RetainedStore
    _variables: Variables
    _policies: PolicyStore
    _log: PublicationLog

    def __post_init__(self) -> None:
        self.are_logged = self._log.keeps_notifications
        """Whether every notification is logged, and what was decided on it."""
        self.pending = PendingDecisions(self._context, self._delivery)

    def happen(
        self,
        slot: PolicySlot,
        pending: PendingDecision,
        shown: PolicyInput,
        decision: PolicyDecision,
        now: float,
        *,
        is_lost: bool = False,
    ) -> None:
        """Execute a decision: everything in one turn, and so in one commit."""
        one = pending.notification
        session = slot.session
        if decision.is_unchanged:
            self.deliver(one)
        for output in decision.outputs:
            derived = self._derived(pending, shown, output.payload, output.user)
            self.deliver(msgspec.structs.replace(one, publication=derived, select=None))
        if self.are_logged:
            why = why_decided(one, slot.number, decision, is_lost=is_lost)
            self._log.notified(one, why, now)
        if decision.changes:
            self._variables.change(session, decision.changes, by="policy")
        if decision.remembers:
            self._policies.keep(slot)
        for notice in decision.notices:
            self._tell_of(slot, one, notice)
        if pending.key:
            self.pending.end(pending)

    def pass_on(self, one: Notification) -> None:
        """Deliver a notification without a policy."""
        self.deliver(one)
        self._log.notified(one, one.why, self._context.now)

    def deliver(self, one: Notification) -> None:
        """Deliver a notification, original or changed by a policy, and count the traffic."""
        session = one.session
        if session.link is not None and session.subscriber is not None:
            # Nothing is sent to a client that is away, even if it is queued.
            session.subscriber.traffic.send(self._context.now)
        self._delivery.deliver(one, self._context.now)

    def _derived(
        self,
        pending: PendingDecision,
        shown: PolicyInput,
        payload: bytes,
        user: tuple[tuple[str, str], ...],
    ) -> Publication:
        shared = shown.derived
        # Equal payloads from workers are different objects: compare them by value, share one.
        key = (id(payload) if pending.me is None else payload, user)
        found = shared.get(key)
        if found is None:
            context, origin = self._context, pending.notification.publication
            context.next_publication += 1
            found = origin.derived(context.next_publication, payload, user)
            if len(shared) < ENCODED_MAX:
                shared[key] = found
            if origin.is_named and self._retained.named(origin.name) is origin:
                self._retained.name_derived(found)
        return found

    def _tell_of(self, slot: PolicySlot, one: Notification, notice: Notice) -> None:
        context, publication = self._context, one.publication
        facts = msgspec.to_builtins(notice)
        facts["subscription"] = 0 if slot.subscription is None else slot.subscription.identifier
        facts["topic"], facts["publication"] = publication.topic, publication.id
        self._variables.tell(slot.session, POLICY, msgspec.json.encode(facts))
        if notice.event != "stopped":
            client_id = slot.session.client_id
            context.note(
                "warning" if notice.event == "suspended" else "info",
                f"policy {notice.event}",
                client=client_id,
                kind=notice.kind,
                reason=slot.agent.last_trouble,
            )
