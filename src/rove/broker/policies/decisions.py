"""What a policy has decided happens: all of it in one turn, and so in one commit.

That is the messages that it sends instead of the one that came, the variables that it sets, what
its agent remembers, what its subscriber is told, and the end of the pending decision. It costs what
delivering the messages costs.
"""

from __future__ import annotations

import msgspec

from rove.broker.context import BrokerContext
from rove.broker.notifications.delivery import Delivery
from rove.broker.policies.store import PendingDecisions, PolicyStore
from rove.broker.publications.publication import Publication
from rove.broker.publications.retained_store import RetainedStore
from rove.broker.sessions.session import POLICY, Notification, PendingDecision, PolicySlot, Shown
from rove.broker.sessions.variables import Variables
from rove.broker.storage.publication_log import PublicationLog, why_decided
from rove.policy.agents import Decision, Notice
from rove.policy.messages import WRITTEN_MAX


class Decisions:
    """Lets decisions happen."""

    def __init__(
        self,
        context: BrokerContext,
        delivery: Delivery,
        retained: RetainedStore,
        variables: Variables,
        policies: PolicyStore,
        log: PublicationLog,
    ) -> None:
        self._context = context
        self._delivery = delivery
        self._retained = retained
        self._variables = variables
        self._policies = policies
        self._log = log
        self.pending = PendingDecisions(context, delivery)

    @property
    def are_logged(self) -> bool:
        """Whether the log is told of every notification, and of what was decided on it."""
        return self._log.keeps_notifications

    def happen(
        self,
        slot: PolicySlot,
        pending: PendingDecision,
        shown: Shown,
        decision: Decision,
        now: float,
        *,
        is_lost: bool = False,
    ) -> None:
        """Let it happen: everything in one turn, and so in one commit."""
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
        self.pending.end(pending)

    def pass_on(self, one: Notification) -> None:
        """Deliver what no policy decides on."""
        self.deliver(one)
        self._log.notified(one, one.why, self._context.now)

    def deliver(self, one: Notification) -> None:
        """Deliver a notification, as it came or as the policy made it, to a client that reports."""
        session = one.session
        if session.link is not None and session.subscriber is not None:
            # To a client that is away nothing is sent, whatever waits for it.
            session.subscriber.traffic.send(self._context.now)
        self._delivery.deliver(one, self._context.now)

    def _derived(
        self,
        pending: PendingDecision,
        shown: Shown,
        payload: bytes,
        user: tuple[tuple[str, str], ...],
    ) -> Publication:
        shared = shown.derived
        # What workers say alike is never the same object, and is read rather than kept twice.
        key = (id(payload) if pending.me is None else payload, user)
        found = shared.get(key)
        if found is None:
            context, origin = self._context, pending.notification.publication
            context.next_publication += 1
            found = origin.derived(context.next_publication, payload, user)
            if len(shared) < WRITTEN_MAX:
                shared[key] = found
            if self._retained.named(origin.name) is origin:
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
