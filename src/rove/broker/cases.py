"""Notifications that wait for a policy's decision, on disk.

One is kept as long as it waits if a queue would keep it: if its session outlives the connection and
it has a quality of service above 0. It has a number of its session's queue, so that cases and
entries of the queue stay in one order, and holds its publication as an entry does. It ends in the
turn in which it is decided, and so in the commit that keeps what was decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rove.broker.records import encoded, queue_key
from rove.broker.seats import Case, Seat

if TYPE_CHECKING:
    from rove.broker.state import State


class Cases:
    """Keeps what waits."""

    def __init__(self, state: State) -> None:
        self._state = state

    def put(self, case: Case, seat: Seat) -> None:
        """Let a case be kept while it waits for this policy."""
        one, session = case.notification, seat.session
        if not (session.is_durable and min(one.qos, one.publication.qos)):
            return
        state = self._state
        if not case.key:
            state.steps.saves(case, "key")
            case.key = queue_key(session.number, session.next_entry)
            session.next_entry += 1
            state.delivery.keep(one.publication)
        state.gate.changes.put("cases", case.key, encoded(case.row(seat.number, state.now)))

    def end(self, case: Case) -> None:
        """It waits no more."""
        if case.key:
            self._state.gate.changes.delete("cases", case.key)
            self._state.delivery.release(case.notification.publication)
            self._state.steps.saves(case, "key")
            case.key = 0

    def give_up(self, case: Case) -> None:
        """It was withdrawn or has expired while it waited."""
        self._state.counters.notifications_dropped_expired += 1
        self.end(case)
