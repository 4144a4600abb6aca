"""What a policy has decided happens: all of it in one turn, and so in one commit.

That is the messages that it sends instead of the one that came, the variables that it sets, what
its agent remembers, what its subscriber is told, and the end of the case. It costs what delivering
the messages costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from rove.broker.cases import Cases
from rove.broker.holding import POLICY
from rove.broker.logbook import log_notification, why_decided
from rove.broker.publications import Publication
from rove.broker.seating import Seating
from rove.broker.seats import Case, Notification, Seat, Shown
from rove.broker.sessions import Select
from rove.broker.variables import Variables
from rove.policy.agents import Decision, Notice
from rove.policy.messages import WRITTEN_MAX

if TYPE_CHECKING:
    from rove.broker.state import State


class Decisions:
    """Lets decisions happen."""

    def __init__(self, state: State, variables: Variables, seating: Seating, cases: Cases) -> None:
        self._state = state
        self._variables = variables
        self._seating = seating
        self._cases = cases

    def happen(
        self,
        seat: Seat,
        case: Case,
        shown: Shown,
        decision: Decision,
        now: float,
        *,
        is_lost: bool = False,
    ) -> None:
        """Let it happen: everything in one turn, and so in one commit."""
        one = case.notification
        session = seat.session
        if decision.is_unchanged:
            self.deliver(one, one.publication, one.select)
        for output in decision.outputs:
            derived = self._derived(case, shown, output.payload, output.user)
            self.deliver(one, derived, None)
        if self._state.keeps_more:
            why = why_decided(one, seat.number, decision, is_lost=is_lost)
            log_notification(self._state, one, why, now)
        if decision.changes:
            self._variables.change(session, decision.changes, by="policy")
        if decision.remembers:
            self._seating.keep(seat)
        for notice in decision.notices:
            self._tell_of(seat, one, notice)
        self._cases.end(case)

    def deliver(self, one: Notification, publication: Publication, select: Select) -> None:
        """Deliver one message of a notification, as it came or as the policy made it."""
        session = one.session
        if session.link is not None and session.desk is not None:
            # To a client that is away nothing is sent, whatever waits for it.
            session.desk.traffic.send(self._state.now)
        self._state.delivery.deliver(
            session,
            publication,
            one.qos,
            one.retain,
            one.ids,
            self._state.now,
            select,
            waits=one.waits,
        )

    def _derived(
        self, case: Case, shown: Shown, payload: bytes, user: tuple[tuple[str, str], ...]
    ) -> Publication:
        shared = shown.derived
        # What workers say alike is never the same object, and is read rather than kept twice.
        key = (id(payload) if case.me is None else payload, user)
        found = shared.get(key)
        if found is None:
            state, origin = self._state, case.notification.publication
            state.next_publication += 1
            found = origin.derived(state.next_publication, payload, user)
            if len(shared) < WRITTEN_MAX:
                shared[key] = found
            if state.keeper.named(origin.name) is origin:
                state.keeper.name_derived(found)
        return found

    def _tell_of(self, seat: Seat, one: Notification, notice: Notice) -> None:
        state, publication = self._state, one.publication
        facts = msgspec.to_builtins(notice)
        facts["subscription"] = 0 if seat.subscription is None else seat.subscription.identifier
        facts["topic"], facts["publication"] = publication.topic, publication.id
        self._variables.tell(seat.session, POLICY, msgspec.json.encode(facts))
        if notice.event != "stopped":
            client_id = seat.session.client_id
            state.note(
                "warning" if notice.event == "suspended" else "info",
                f"policy {notice.event}",
                client=client_id,
                kind=notice.kind,
                reason=seat.agent.last_trouble,
            )
