"""Policies in the way of notifications: who has one, what it is shown, and what becomes of that.

A notification for a session or a subscription with a policy becomes a case (`rove.broker.seats`).
Nearly all are decided at once, within the turn. One that needs a picture made smaller waits until a
worker has done so and is then begun again; one that takes more steps than a turn can spare is done
by a worker as a whole; with `isolation = "process"`, all are. Meanwhile whatever else is for that
policy waits behind it, and nobody else does.

A call happens at the moment in which its result is taken: then its outputs, the variables that it
set, what its agent remembers and the end of the case are one change, committed as one. A case that
waits is on disk if what it is about has to survive, so a crash repeats calls, and never half of
one. If the subscriber's variables, its policy or the limits have changed while a worker was busy,
the worker's answer is not taken, and asked for again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Literal

from rove.broker.cases import Cases
from rove.broker.decisions import Decisions
from rove.broker.holding import Holding
from rove.broker.links import Link
from rove.broker.logbook import log_notification
from rove.broker.overview import overview
from rove.broker.publications import Publication
from rove.broker.records import CaseRow
from rove.broker.seating import Seating
from rove.broker.seats import Case, Desk, Notification, Seat, Shown
from rove.broker.sessions import Session
from rove.broker.subscriptions import Subscription
from rove.broker.variables import Variables
from rove.policy.accounts import Account
from rove.policy.agents import Agent, Kept
from rove.policy.compiling import Policy
from rove.policy.jobs import (
    Compiled,
    Compressed,
    Compression,
    Outcome,
    Ran,
    Sent,
    Stopped,
    Wanted,
    Workers,
)
from rove.policy.limits import PolicyLimits
from rove.policy.messages import Arrived
from rove.policy.pool import Pool, Ready
from rove.policy.view import PoliciesView

if TYPE_CHECKING:
    from rove.broker.state import State

Isolation = Literal["none", "process"]
ATTEMPTS_MAX: Final = 20
"""How often a worker is asked again because the variables have changed meanwhile."""
TURN_S: Final = 0.005
"""What policies may use of a turn; whoever comes then has its turn in a later one. Messages for
others are read and sent between the two."""
BRIEF_S: Final = 0.0002
"""A call that takes no longer does not count towards that: nearly all, however many there are."""
INLINE_MS: Final = 5
"""How long a call may take within a turn before a worker is asked, if it has taken few steps."""
LIGHT_FACTOR: Final = 4
"""A worker is first asked for so many times `inline_steps_max`, in the lane of light jobs. Few
policies need more; they get all their steps where only such as they wait."""
LIGHT_MS: Final = 10
"""Processor time after which it is begun again as a long one, however few its steps are."""
SHOWN_MAX: Final = 64
"""Publications that are remembered within a turn as policies see them."""

_LIMITED: Final = ("steps", "time")
"""What a call is stopped by, within a turn or as a light one, that is begun again with more."""

Asker = tuple[Seat, Case, Compression | None] | Link
"""A case that waits, or a client that sets a policy."""


def _passing(arrived: Arrived) -> Outcome:
    """A message goes on as it came."""
    return Outcome((Sent(arrived.payload, arrived.user),), {}, None, 0, passes=True)


class Agents:
    """All policies of a broker."""

    def __init__(
        self,
        state: State,
        variables: Variables,
        limits: PolicyLimits | None,
        workers: Workers | None,
        isolation: Isolation,
    ) -> None:
        """Without limits there are no policies."""
        self._state = state
        self._variables = variables
        self.limits = limits
        self._isolation = isolation
        self._clock = None if workers is None else workers.clock
        self.pool: Pool[Asker] | None = None if workers is None else Pool(workers)
        self._cases = Cases(state)
        self.seating = Seating(state, variables)
        self._decisions = Decisions(state, variables, self.seating, self._cases)
        self._spent_s = 0.0
        """By calls that were not brief, in this turn."""
        self.holding = Holding(state, self, self._clock)
        self._later: dict[Seat, None] = {}
        """Policies whose first message waits for a later turn, and for nothing else."""
        self._shown: OrderedDict[tuple[int, object], Shown] = OrderedDict()
        self._restored: dict[Seat, None] = {}
        """Policies for which something waited before a restart, until it is taken up."""
        self._orphans: list[Case] = []
        """What waited for policies that are not there after a restart."""

    @property
    def seats(self) -> Iterable[Seat]:
        """All policies, where they sit."""
        return self.seating.seats

    # -- setting policies ----------------------------------------------------------------------

    def set_policy(
        self, session: Session, policy: Policy, subscription: Subscription | None = None
    ) -> None:
        """Let this be the policy of a session or of one subscription, from the next message on."""
        desk = self._variables.desk(session)
        seat = desk.seat if subscription is None else subscription.seat
        inherits = False
        if seat is None:
            self.seating.drop_unrun(session, subscription)
            account = self.seating.account(session)
            seat = Seat(Agent(policy, self._state.now), session, subscription, account)
            inherits = self._begin(seat)
            self.seating.take(seat)
        elif seat.agent.policy.text != policy.text:
            inherits = self._replace(seat, policy)
        # Else a client says it again when it comes back: what it remembers must not be lost.
        self.seating.keep(seat)
        self._state.diary.policy_set(seat, self._state.now, tells=inherits)

    def _replace(self, seat: Seat, policy: Policy) -> bool:
        """Another policy takes a seat; whether it begins with offences of others."""
        self.seating.gone.add(seat.agent.tally)
        self._state.steps.saves(seat, "agent")
        seat.agent = Agent(policy, self._state.now)
        return self._begin(seat)

    def _begin(self, seat: Seat) -> bool:
        assert self.limits is not None
        return seat.account.begin(seat.agent, self._state.now, self.limits)

    def remove_policy(self, session: Session, subscription: Subscription | None = None) -> bool:
        """Let there be none; what waits for its decision goes on. False if there was none."""
        if subscription is not None:
            seat = subscription.seat
        else:
            seat = None if session.desk is None else session.desk.seat
        if seat is None:
            return self.seating.drop_unrun(session, subscription)
        waiting = list(seat.waiting)
        self.seating.leave(seat)
        self._state.diary.policy_set(seat, self._state.now, is_over=True)
        for case in waiting:
            self._go_on_without(case)
        return True

    def take_over(self, old: Subscription, new: Subscription, policy: Policy | None) -> None:
        """A subscription takes the place of another, and nothing that waits is lost by that.

        The same policy goes on with what it knows, another decides what waits for the old one.
        """
        seat = old.seat
        if seat is None:
            return
        if policy is None:
            waiting = list(seat.waiting)
            self.seating.leave(seat)
            for case in waiting:
                self._go_on_without(case)
            return
        self.seating.drop_row(seat)
        self._state.steps.saves(seat, "agent", "subscription")
        self._state.steps.saves(old, "seat")
        self._state.steps.saves(new, "seat")
        is_same = seat.agent.policy.text == policy.text
        inherits = not is_same and self._replace(seat, policy)
        old.seat, new.seat, seat.subscription = None, seat, new
        self.seating.keep(seat)
        replaces = old.number if is_same else 0
        self._state.diary.policy_set(seat, self._state.now, replaces=replaces, tells=inherits)
        for case in seat.waiting:
            self._cases.put(case, seat)

    def ended(self, subscription: Subscription) -> None:
        """A subscription is no more, and what waits for its policy is wanted no more."""
        self.seating.drop_unrun(subscription.session, subscription)
        if subscription.seat is not None:
            seat = subscription.seat
            for case in seat.waiting:
                self._cases.end(case)
            self.seating.leave(seat)

    def session_ended(self, session: Session) -> None:
        """A session is no more."""
        self.seating.drop_unrun(session, None)
        self._state.steps.saves(session, "desk")
        desk, session.desk = session.desk, None
        if desk is not None and desk.seat is not None:
            for case in desk.seat.waiting:
                self._cases.end(case)
            self._state.diary.policy_set(desk.seat, self._state.now, is_over=True)
            self.seating.leave(desk.seat)
        if desk is not None and self.limits is not None:
            self.seating.remember(self.seating.account(session), self.limits)

    # -- notifications -------------------------------------------------------------------------

    def notify(self, one: Notification, own: Seat | None = None) -> None:
        """Notify a session that has a desk, through the policy that there is for it.

        `own` is that of the subscription; the session's own comes in its place.
        """
        desk = one.session.desk
        assert desk is not None
        seat = own or desk.seat
        if seat is None or self.limits is None:
            self._decisions.deliver(one, one.publication, one.select)
            if self._state.keeps_more:
                log_notification(self._state, one, one.why, self._state.now)
            return
        shown = self._show(one)
        if seat.waiting or self._spent_s > TURN_S:
            self._queue(seat, Case(one, shown, {}), self.limits)
            return
        result: Outcome | Stopped | Wanted | None = None
        cpu_s = 0.0
        if self._is_quick(seat):
            result, cpu_s = self._call(seat, shown.arrived)
            if isinstance(result, Outcome) and self._pass(one, seat, result, cpu_s):
                return
        case = Case(one, shown, {}, cpu_s=cpu_s)
        if not self._try(seat, case, result):
            self._wait(seat, case)

    def _queue(self, seat: Seat, case: Case, limits: PolicyLimits) -> None:
        """Let a case wait behind others, or for a later turn, if there is room for it."""
        text = seat.account.full(limits)
        if len(seat.waiting) >= limits.waiting_max:
            text = f"{len(seat.waiting)} messages wait for this policy already"
        if text:
            self._settle(seat, case, Stopped("crowded", text), self._state.now)
            return
        if not seat.waiting:
            self._later[seat] = None
        # What it is shown is made again: it may be ten times as large as the message.
        case.shown = None
        self._wait(seat, case)

    def _wait(self, seat: Seat, case: Case) -> None:
        self._state.steps.undoes(seat.retract, case)
        seat.enter(case)
        self._cases.put(case, seat)

    def _is_quick(self, seat: Seat) -> bool:
        """Whether the policy can be asked without further thought."""
        agent = seat.agent
        return not (
            agent.is_slow
            or agent.suspended_until is not None
            or self._isolation == "process"
            or self.is_over_share(seat.account)
        )

    def _pass(self, one: Notification, seat: Seat, result: Outcome, cpu_s: float) -> bool:
        """Have done with a message that changes nothing: the way of nearly all."""
        if not result.passes or result.changes or result.memory is not None:
            return False
        if self._state.keeps_more:
            return False
        seat.agent.passed(len(result.outputs[0].payload), result.steps, cpu_s)
        self._decisions.deliver(one, one.publication, one.select)
        return True

    def _show(self, one: Notification) -> Shown:
        publication, select = one.publication, one.select
        key = (publication.number, select)
        shown = self._shown.get(key)
        if shown is None:
            topic, user = publication.topic, publication.properties.user
            payload = publication.payload if select is None else publication.selected(select)
            shown = self._shown[key] = Shown(Arrived(topic, payload, user))
            if len(self._shown) > SHOWN_MAX:
                self._shown.popitem(last=False)
        return shown

    def _shown_in(self, case: Case) -> Shown:
        if case.shown is None:
            case.shown = self._show(case.notification)
        return case.shown

    def _try(
        self, seat: Seat, case: Case, result: Outcome | Stopped | Wanted | None = None
    ) -> bool:
        """Decide a case now; False if that has to wait for a worker, which has been asked.

        `result` is what the policy has said already.
        """
        limits, now = self.limits, self._state.now
        assert limits is not None
        if result is None:
            shown = self._shown_in(case)
            size_bytes = len(shown.arrived.payload)
            decision = seat.agent.begin(now, limits, size_bytes=size_bytes)
            if decision is not None:
                self._decisions.happen(seat, case, shown, decision, now)
                return True
            if self.is_over_share(seat.account):
                text = f"more than {limits.share:.0%} of a processor over {limits.share_s:g} s"
                result = Stopped("share", text)
            elif self.pool is not None and (self._isolation == "process" or seat.agent.is_slow):
                self._ask(seat, case, limits, self.pool)
                return False
            else:
                result = self._called(seat, case)
        while isinstance(result, Wanted):
            if not self._has_pictures(seat, case, result, limits):
                return False
            result = self._called(seat, case)
        if self._inline_steps_max and isinstance(result, Stopped) and result.kind in _LIMITED:
            assert self.pool is not None
            # Time alone may be the machine's fault: that is for the average to say.
            seat.agent.is_slow |= result.kind == "steps"
            self._ask(seat, case, limits, self.pool)
            return False
        self._settle(seat, case, result, now)
        return True

    @property
    def _inline_steps_max(self) -> int | None:
        """Steps that a call may take here, if there is somebody who can take over."""
        limits = self.limits
        if self.pool is None or limits is None or limits.inline_steps_max >= limits.steps_max:
            return None
        return limits.inline_steps_max

    def is_over_share(self, account: Account) -> bool:
        """Whether a user's policies have used more than they may."""
        if self._clock is None:
            return False
        assert self.limits is not None
        return account.allowance.is_used_up(self.limits, self._state.now, self._clock())

    def _call(
        self,
        seat: Seat,
        arrived: Arrived,
        results: Mapping[Compression, Compressed] | None = None,
    ) -> tuple[Outcome | Stopped | Wanted, float]:
        """Ask the policy; what it says, and the time that it took."""
        clock, session = self._clock, seat.session
        assert self.limits is not None
        if not results and self.pool is not None:
            results = self.pool.compressed
        begun_s = 0.0 if clock is None else clock()
        steps_max = self._inline_steps_max
        result: Outcome | Stopped | Wanted
        try:
            result = seat.agent.call(
                arrived,
                session.me,
                self._state.now,
                self.limits,
                automatic=session.automatic,
                results=results,
                steps_max=steps_max,
                time_ms=None if steps_max is None else min(INLINE_MS, self.limits.time_ms),
                clock=clock,
            )
        except Exception as error:
            # It is neither the publisher's fault nor the policy's: the message goes on as it came.
            self._state.faults.tell(error, "call of a policy", session.client_id, session.link)
            result = _passing(arrived)
        if clock is None:
            return result, 0.0
        took_s = clock() - begun_s
        self._spend(seat, took_s)
        seat.agent.took(took_s)
        return result, took_s

    def _spend(self, seat: Seat, took_s: float) -> None:
        """Something was done for a policy within the turn."""
        seat.account.allowance.use(took_s)
        if took_s > BRIEF_S:
            self._spent_s += took_s
            if self.pool is not None:
                self.pool.charge(seat.account.name, took_s)

    def _called(self, seat: Seat, case: Case) -> Outcome | Stopped | Wanted:
        result, took_s = self._call(seat, self._shown_in(case).arrived, case.results)
        case.cpu_s += took_s
        return result

    def _has_pictures(self, seat: Seat, case: Case, wanted: Wanted, limits: PolicyLimits) -> bool:
        """Whether all pictures are there that a call wants; what is not has been asked for."""
        pool = self.pool
        assert pool is not None
        for request in wanted.requests:
            known = pool.compressed.get(request)
            if known is None:
                case.me, case.agent = None, seat.agent
                owner = seat.account.name
                pool.compress(owner, request, (seat, case, request), limits.time_ms)
                seat.agent.tally.in_workers += 1
                return False
            case.results[request] = known
        return True

    def _ask(self, seat: Seat, case: Case, limits: PolicyLimits, pool: Pool[Asker]) -> None:
        """Have a worker do the whole call, when those that the session has asked for are done.

        Policies of one session that set variables would otherwise undo each other's work.
        """
        session, arrived = seat.session, self._shown_in(case).arrived
        desk = session.desk
        assert desk is not None
        if desk.is_asking:
            self._state.steps.undoes(desk.turns.remove, (seat, case))
            desk.turns.append((seat, case))
            return
        self._state.steps.saves(desk, "is_asking")
        desk.is_asking = True
        case.me, case.agent, case.asked_at = session.me, seat.agent, self._state.now
        case.limits = limits
        light_steps = LIGHT_FACTOR * limits.inline_steps_max
        case.is_light = not seat.agent.is_long and light_steps < limits.steps_max
        light = (light_steps, min(LIGHT_MS, limits.time_ms)) if case.is_light else (0, 0)
        job = seat.job(case, arrived, limits, light)
        asker = (seat, case, None)
        pool.run(seat.account.name, job, asker, limits.time_ms, is_light=case.is_light)
        seat.agent.tally.in_workers += 1

    # -- what workers say ----------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether `work` would do anything."""
        return bool(self._restored or self._orphans or self.has_later)

    @property
    def has_later(self) -> bool:
        """Whether something waits for nothing but the next turn."""
        return bool(self._later) or (self.pool is not None and self.pool.has_ready)

    def work(self) -> None:
        """Go on with what workers have done, and after a restart with what waited.

        This ends what a turn has to do here.
        """
        if self._restored or self._orphans:
            self._take_up()
        # Whatever was spent, something is done: nobody waits for ever.
        is_first = True
        while self.pool is not None and self.pool.has_ready:
            if self._spent_s > TURN_S and not is_first:
                break
            self._take(self.pool.take())
            is_first = False
        is_first = True
        # Who has used least is first, of those who have to wait.
        for seat in sorted(self._later, key=lambda seat: -seat.account.allowance.left_s):
            if self._spent_s > TURN_S and not is_first:
                break
            # If not, it has had its turn with another of its session.
            if seat in self._later:
                del self._later[seat]
                self._go_on_alone(seat, "turn of a policy")
            is_first = False
        self._spent_s = 0.0
        # What waits holds its own; the others were told within this turn.
        self._shown.clear()

    def _take(self, ready: Ready[Asker]) -> None:
        """Go on with what a worker has done, as a step."""
        assert not isinstance(ready.asker, Link)
        seat, case, _ = ready.asker
        client = seat.session.client_id
        if self._state.faults.attempt("answer of a worker", self._answered, ready, client=client):
            return
        desk = seat.session.desk
        if isinstance(ready.answer, Ran) and desk is not None:
            self._free(desk)
        self._pass_over(seat, case)

    def _free(self, desk: Desk) -> None:
        """A worker has answered, and going on with it has failed: others may ask none the less."""
        desk.is_asking = False
        self._later.update((seat, None) for seat, _ in desk.turns)
        desk.turns.clear()

    def _pass_over(self, seat: Seat, case: Case) -> None:
        """Going on with a case has failed: have done with it, for much may wait behind it."""
        attempt, client = self._state.faults.attempt, seat.session.client_id
        if not attempt("turn of a policy", self._let_pass, seat, case, client=client):
            attempt("turn of a policy", self._drop, seat, case, client=client)
        if seat.waiting and seat.waiting[0] is not case:
            self._later[seat] = None

    def _let_pass(self, seat: Seat, case: Case) -> None:
        if seat.waiting and seat.waiting[0] is case:
            result = _passing(self._shown_in(case).arrived)
            self._settle(seat, case, result, self._state.now, is_lost=True)
            self._had_first(seat)

    def _drop(self, seat: Seat, case: Case) -> None:
        if seat.waiting and seat.waiting[0] is case:
            self._cases.give_up(case)
            self._had_first(seat)

    def _had_first(self, seat: Seat) -> None:
        """The first that waited is decided."""
        case = seat.leave()
        self._state.steps.undoes(seat.enter_first, case)

    def _answered(self, ready: Ready[Asker]) -> None:
        assert not isinstance(ready.asker, Link)
        seat, case, _ = ready.asker
        if ready.is_first:
            case.cpu_s += ready.answer.took_s
            seat.account.allowance.use(ready.answer.took_s)
        # If not, the subscription, the policy or the session have gone meanwhile.
        if seat.waiting and seat.waiting[0] is case and self._is_decided(seat, case, ready):
            self._had_first(seat)
            self._go_on(seat)
        if isinstance(ready.answer, Ran) and seat.session.desk is not None:
            self._next_turn(seat.session.desk)

    def _next_turn(self, desk: Desk) -> None:
        """A worker has done what a session asked for: the next of its policies may ask."""
        self._state.steps.saves(desk, "is_asking")
        desk.is_asking = False
        while desk.turns and not desk.is_asking:
            seat, case = desk.turns[0]
            self._state.steps.undoes(desk.turns.appendleft, (seat, case))
            desk.turns.popleft()
            if seat.waiting and seat.waiting[0] is case:
                self._go_on(seat)

    def _is_decided(self, seat: Seat, case: Case, ready: Ready[Asker]) -> bool:
        """Take what a worker says; False if another has been asked."""
        answer = ready.answer
        assert not isinstance(ready.asker, Link)
        assert not isinstance(answer, Compiled)
        request = ready.asker[2]
        if case.notification.publication.is_over(self._state.now):
            self._cases.give_up(case)
            return True
        if case.agent is not seat.agent:
            # It is about a policy that is no more; the one that there is has not been asked.
            return self._try(seat, case)
        if answer.is_lost:
            stopped = (
                answer.result if isinstance(answer, Ran) else Stopped(answer.kind, answer.text)
            )
            self._settle(seat, case, stopped, self._state.now, is_lost=True)
            return True
        if isinstance(answer, Compressed):
            assert request is not None
            case.results[request] = answer
            return self._try(seat, case)
        seat.agent.is_long |= answer.took_s > LIGHT_MS / 1000
        return self._with_result(seat, case, answer.result)

    def _with_result(self, seat: Seat, case: Case, result: Outcome | Stopped) -> bool:
        if case.is_light and isinstance(result, Stopped) and result.kind in _LIMITED:
            seat.agent.is_slow = seat.agent.is_long = True
            return self._try(seat, case)
        if case.me is seat.session.me and case.limits is self.limits:
            self._settle(seat, case, result, case.asked_at)
            return True
        case.attempts += 1
        if case.attempts <= ATTEMPTS_MAX:
            return self._try(seat, case)
        text = "the variables have changed again and again while the policy was busy"
        self._settle(seat, case, Stopped("state", text), self._state.now, is_lost=True)
        return True

    def _go_on(self, seat: Seat) -> None:
        """Decide what waits, in order, as far as that needs no worker and fits into the turn."""
        self._later.pop(seat, None)
        while seat.waiting:
            if self._spent_s > TURN_S:
                self._later[seat] = None
                return
            case = seat.waiting[0]
            if case.notification.publication.is_over(self._state.now):
                self._cases.give_up(case)
            elif not self._try(seat, case):
                return
            if seat.waiting and seat.waiting[0] is case:
                self._had_first(seat)

    def _go_on_alone(self, seat: Seat, what: str) -> None:
        """The same as a step of its own; `what` is for the log."""
        client = seat.session.client_id
        if self._state.faults.attempt(what, self._go_on, seat, client=client) or not seat.waiting:
            return
        self._pass_over(seat, seat.waiting[0])

    def _go_on_without(self, case: Case) -> None:
        """Notify of what waits for a policy that is no more."""
        if case.notification.publication.is_over(self._state.now):
            self._cases.give_up(case)
        else:
            self.notify(case.notification)
            self._cases.end(case)

    # -- decisions -----------------------------------------------------------------------------

    def _settle(
        self,
        seat: Seat,
        case: Case,
        result: Outcome | Stopped,
        now: float,
        *,
        is_lost: bool = False,
    ) -> None:
        """Take a result; one that is lost came about by the machine, not by the policy."""
        assert self.limits is not None
        begun_s = 0.0 if self._clock is None else self._clock()
        shown = self._shown_in(case)
        size_bytes = len(shown.arrived.payload)
        self._state.steps.undo.append(seat.agent.before())
        self._state.steps.undo.append(seat.account.before())
        decision = seat.agent.settle(
            result, now, self.limits, size_bytes=size_bytes, cpu_s=case.cpu_s
        )
        if decision.kind and decision.kind != "crowded":
            seat.account.offended(seat.agent, now, self.limits)
        self._decisions.happen(seat, case, shown, decision, now, is_lost=is_lost)
        if self._clock is not None:
            self._spend(seat, self._clock() - begun_s)

    # -- restarts ------------------------------------------------------------------------------

    def restore_agent(self, key: str, kept: Kept) -> None:
        """A policy was there before a restart."""
        self.seating.restore(key, kept, self.holding.compiled)

    def restore_case(
        self, key: int, row: CaseRow, session: Session, publication: Publication
    ) -> None:
        """Something waited for a policy's decision before a restart."""
        self._variables.restore_desk(session)
        assert session.desk is not None
        one = Notification.restored(row, session, publication)
        seat = session.desk.seat
        if row.subscription:
            numbered = (
                it for it in session.subscriptions.values() if it.number == row.subscription
            )
            subscription = next(numbered, None)
            seat = None if subscription is None else subscription.seat
        publication.kept += 1
        case = Case(one, None, {}, key=key)
        if seat is None:
            self._orphans.append(case)
        else:
            seat.enter(case)
            self._restored[seat] = None

    def _take_up(self) -> None:
        orphans, self._orphans = self._orphans, []
        restored, self._restored = self._restored, {}
        attempt = self._state.faults.attempt
        for case in orphans:
            # The session may have ended since, before there was a turn.
            has_desk = case.notification.session.desk is not None
            attempt("restart", self._go_on_without if has_desk else self._cases.end, case)
        for seat in restored:
            if seat in self.seating.seats:
                self._go_on_alone(seat, "restart")

    # -- for whoever wants to see --------------------------------------------------------------

    def view(self, limit: int | None = None, client_id: str | None = None) -> PoliciesView:
        """All policies, or the first so many, or those of a client."""
        return overview(
            self.seating.seats,
            self.seating.gone,
            self.pool,
            self._isolation,
            self._state.now,
            limit=limit,
            client_id=client_id,
        )
