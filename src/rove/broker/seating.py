"""Who has a policy: where each sits, in memory and on disk.

A policy's row is written when it takes its place and whenever it remembers something else, and goes
with it. One that cannot be run after a restart, because another configuration runs no policies or
allows less, keeps its row: with the old configuration it is back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from rove.broker.records import encoded
from rove.broker.seats import Seat, seat_key
from rove.broker.sessions import Session
from rove.broker.subscriptions import Subscription
from rove.broker.variables import Variables
from rove.policy.accounts import Account, Accounts
from rove.policy.agents import Agent, Kept
from rove.policy.compiling import Policy
from rove.policy.errors import PolicyError
from rove.policy.limits import PolicyLimits
from rove.policy.view import Tally

if TYPE_CHECKING:
    from rove.broker.state import State


class Seating:
    """The places of all policies."""

    def __init__(self, state: State, variables: Variables) -> None:
        self._state = state
        self._variables = variables
        self.seats: dict[Seat, None] = {}
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

    def remember(self, account: Account, limits: PolicyLimits) -> None:
        """Keep what a user owes, even if no policy of it is there, or none is left."""
        self._accounts.left(account, self._state.now, limits)

    def take(self, seat: Seat) -> None:
        """A policy takes its place."""
        self._save(seat)
        self.seats[seat] = None
        if seat.subscription is not None:
            seat.subscription.seat = seat
        else:
            assert seat.session.desk is not None
            seat.session.desk.seat = seat
        self._forget_routes(seat)

    def _save(self, seat: Seat) -> None:
        """A policy is about to take its place, or to leave it."""
        steps = self._state.steps
        steps.undoes(self._forget_routes, seat)
        steps.saves_item(self.seats, seat)
        if seat.subscription is not None:
            steps.saves(seat.subscription, "seat")
        elif seat.session.desk is not None:
            steps.saves(seat.session.desk, "seat")

    def leave(self, seat: Seat) -> None:
        """It leaves it; what waited for it is for others to see to."""
        self._save(seat)
        self._state.steps.undoes(seat.swap, seat.waiting)
        del self.seats[seat]
        seat.swap(deque())
        self.gone.add(seat.agent.tally)
        if seat.subscription is not None:
            seat.subscription.seat = None
        elif seat.session.desk is not None:
            seat.session.desk.seat = None
        self.drop_row(seat)
        self._forget_routes(seat)

    def _forget_routes(self, seat: Seat) -> None:
        # The policy of a session is found by its desk, so routes need not know of it.
        if seat.subscription is not None:
            self._state.interests.forget_routes((seat.subscription,))

    def keep(self, seat: Seat) -> None:
        """Have it on disk as it is now."""
        if seat.session.is_durable:
            self._state.gate.changes.put("agents", seat.key, encoded(seat.agent.kept()))

    def drop_unrun(self, session: Session, subscription: Subscription | None) -> bool:
        """Let there be no row of a policy that was not run, if there is one."""
        if not self.unrun:
            return False
        key = seat_key(session, subscription)
        if key not in self.unrun:
            return False
        self._state.steps.undoes(self.unrun.add, key)
        self.unrun.remove(key)
        self._state.gate.changes.delete("agents", key)
        self._state.diary.unrun_dropped(session, subscription, self._state.now)
        return True

    def drop_row(self, seat: Seat) -> None:
        """Have it on disk no more."""
        if seat.session.is_durable:
            self._state.gate.changes.delete("agents", seat.key)

    def restore(self, key: str, kept: Kept, compiled: Callable[[str], Policy]) -> None:
        """A policy was there before a restart."""
        number, _, client_id = key.partition("/")
        session = self._state.sessions.get(client_id)
        subscription = None
        if session is not None and number != "0":
            numbered = (one for one in session.subscriptions.values() if one.number == int(number))
            subscription = next(numbered, None)
        if session is None or (number != "0" and subscription is None):
            self._state.gate.changes.delete("agents", key)
            return
        try:
            policy = compiled(kept.text)
        except PolicyError as error:
            # Its row stays: with another configuration it may run again.
            self.unrun.add(key)
            self._state.note("warning", "policy not run", client=client_id, reason=error.what)
            return
        self._variables.restore_desk(session)
        seat = Seat(Agent.restored(policy, kept), session, subscription, self.account(session))
        seat.account.note_suspension(seat.agent, self._state.now)
        self.take(seat)
