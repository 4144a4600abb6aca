"""Policies in the way of notifications: who has one, what it is shown, and what becomes of that.

A notification for a session with a policy becomes a `PendingDecision`. Nearly all are decided at
once, within the turn. One that needs a picture made smaller waits until a worker has done so and is
then started again; one that takes more steps than a turn can spare is run by a worker as a whole;
with `isolation = "process"`, all are. Meanwhile other notifications for that policy wait behind it,
and no other client is held up.

A call happens at the moment in which its result is taken: then its outputs, the variables that it
set, what its agent remembers and the end of the pending decision are one change, committed as one.
What waits is on disk if what it is about has to survive, so a crash repeats calls, and never half
of one. If the subscriber's variables, its policy or the limits have changed while a worker was
busy, the worker's answer is not taken, and asked for again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, Literal

from rove.broker.context import BrokerContext
from rove.broker.policies.compiler import JobOwner, PolicyCompiler
from rove.broker.policies.decisions import Decisions
from rove.broker.policies.store import PolicyStore
from rove.broker.publications.publication import Publication
from rove.broker.sessions.session import (
    Link,
    Notification,
    PendingDecision,
    PolicySlot,
    Session,
    Shown,
    SubscriberContext,
    Subscription,
)
from rove.broker.sessions.variables import Variables
from rove.broker.storage.records import PendingDecisionRow
from rove.broker.storage.subscription_log import SubscriptionLog
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


def _passing(arrived: Arrived) -> Outcome:
    """A message goes on as it came."""
    return Outcome((Sent(arrived.payload, arrived.user),), {}, None, 0, passes=True)


class Agents:
    """All policies of a broker."""

    def __init__(
        self,
        context: BrokerContext,
        variables: Variables,
        policies: PolicyStore,
        decisions: Decisions,
        log: SubscriptionLog,
        workers: Workers | None,
        isolation: Isolation,
    ) -> None:
        self._context = context
        self._variables = variables
        self.isolation = isolation
        self._clock = policies.clock
        self.pool: Pool[JobOwner] | None = None if workers is None else Pool(workers)
        self.policies = policies
        self._decisions = decisions
        self._pending = decisions.pending
        self._log = log
        self._spent_s = 0.0
        """By calls that were not brief, in this turn."""
        self.compiler = PolicyCompiler(context, policies, self.pool)
        self.has_turn = False
        """Whether `work` has to be called in this turn; also for what workers have done."""
        self._later: dict[PolicySlot, None] = {}
        """Policies whose first message waits for a later turn, and for nothing else."""
        self._shown: OrderedDict[tuple[int, object], Shown] = OrderedDict()
        self._restored: dict[PolicySlot, None] = {}
        """Policies for which something waited before a restart, until it is taken up."""
        self._orphans: list[PendingDecision] = []
        """What waited for policies that are not there after a restart."""

    # -- setting policies ----------------------------------------------------------------------

    def set_policy(
        self, session: Session, policy: Policy, subscription: Subscription | None = None
    ) -> None:
        """Let this be the policy of a session or of one subscription, from the next message on."""
        subscriber = self._variables.subscriber(session)
        slot = subscriber.slot if subscription is None else subscription.slot
        inherits = False
        if slot is None:
            self.policies.drop_unrun(session, subscription)
            account = self.policies.account(session)
            slot = PolicySlot(Agent(policy, self._context.now), session, subscription, account)
            inherits = self._begin(slot)
            self.policies.take(slot)
        elif slot.agent.policy.text != policy.text:
            inherits = self._replace(slot, policy)
        # Else a client says it again when it comes back: what it remembers must not be lost.
        self.policies.keep(slot)
        self._log.policy_set(slot, self._context.now, tells=inherits)

    def _replace(self, slot: PolicySlot, policy: Policy) -> bool:
        """Another policy takes a slot; whether it begins with offences of others."""
        self.policies.gone.add(slot.agent.tally)
        self._context.steps.saves(slot, "agent")
        slot.agent = Agent(policy, self._context.now)
        return self._begin(slot)

    def _begin(self, slot: PolicySlot) -> bool:
        assert self.policies.limits is not None
        return slot.account.begin(slot.agent, self._context.now, self.policies.limits)

    def remove_policy(self, session: Session, subscription: Subscription | None = None) -> bool:
        """Let there be none; what waits for its decision goes on. False if there was none."""
        if subscription is not None:
            slot = subscription.slot
        else:
            slot = None if session.subscriber is None else session.subscriber.slot
        if slot is None:
            return self.policies.drop_unrun(session, subscription)
        waiting = list(slot.waiting)
        self.policies.leave(slot)
        self._log.policy_set(slot, self._context.now, is_over=True)
        for pending in waiting:
            self._go_on_without(pending)
        return True

    def take_over(self, old: Subscription, new: Subscription, policy: Policy | None) -> None:
        """A subscription takes the place of another, and nothing that waits is lost by that.

        The same policy goes on with what it knows, another decides what waits for the old one.
        """
        slot = old.slot
        if slot is None:
            return
        if policy is None:
            waiting = list(slot.waiting)
            self.policies.leave(slot)
            for pending in waiting:
                self._go_on_without(pending)
            return
        self.policies.drop_row(slot)
        self._context.steps.saves(slot, "agent", "subscription")
        self._context.steps.saves(old, "slot")
        self._context.steps.saves(new, "slot")
        is_same = slot.agent.policy.text == policy.text
        inherits = not is_same and self._replace(slot, policy)
        old.slot, new.slot, slot.subscription = None, slot, new
        self.policies.keep(slot)
        replaces = old.number if is_same else 0
        self._log.policy_set(slot, self._context.now, replaces=replaces, tells=inherits)
        for pending in slot.waiting:
            self._pending.put(pending, slot)

    def ended(self, subscription: Subscription) -> None:
        """A subscription is no more, and what waits for its policy is wanted no more."""
        self.policies.drop_unrun(subscription.session, subscription)
        if subscription.slot is not None:
            slot = subscription.slot
            for pending in slot.waiting:
                self._pending.end(pending)
            self.policies.leave(slot)

    def session_ended(self, session: Session) -> None:
        """A session is no more."""
        self.policies.drop_unrun(session, None)
        self._context.steps.saves(session, "subscriber")
        subscriber, session.subscriber = session.subscriber, None
        if subscriber is not None and subscriber.slot is not None:
            for pending in subscriber.slot.waiting:
                self._pending.end(pending)
            self._log.policy_set(subscriber.slot, self._context.now, is_over=True)
            self.policies.leave(subscriber.slot)
        if subscriber is not None and self.policies.limits is not None:
            self.policies.remember(self.policies.account(session), self.policies.limits)

    # -- notifications -------------------------------------------------------------------------

    def notify(self, one: Notification, own: PolicySlot | None = None) -> None:
        """Notify a session that has a subscriber context, through its policy if there is one.

        `own` is that of the subscription; the session's own comes in its place.
        """
        subscriber = one.session.subscriber
        assert subscriber is not None
        slot = own or subscriber.slot
        if slot is None or self.policies.limits is None:
            self._decisions.pass_on(one)
            return
        self.has_turn = True
        shown = self._show(one)
        if slot.waiting or self._spent_s > TURN_S:
            self._queue(slot, PendingDecision(one, shown, {}), self.policies.limits)
            return
        result: Outcome | Stopped | Wanted | None = None
        cpu_s = 0.0
        if self._is_quick(slot):
            result, cpu_s = self._call(slot, shown.arrived)
            if isinstance(result, Outcome) and self._pass(one, slot, result, cpu_s):
                return
        pending = PendingDecision(one, shown, {}, cpu_s=cpu_s)
        if not self._try(slot, pending, result):
            self._wait(slot, pending)

    def _queue(self, slot: PolicySlot, pending: PendingDecision, limits: PolicyLimits) -> None:
        """Let a decision wait behind others, or for a later turn, if there is room for it."""
        text = slot.account.full(limits)
        if len(slot.waiting) >= limits.waiting_max:
            text = f"{len(slot.waiting)} messages wait for this policy already"
        if text:
            self._settle(slot, pending, Stopped("crowded", text), self._context.now)
            return
        if not slot.waiting:
            self._later[slot] = None
        # What it is shown is made again: it may be ten times as large as the message.
        pending.shown = None
        self._wait(slot, pending)

    def _wait(self, slot: PolicySlot, pending: PendingDecision) -> None:
        self._context.steps.undoes(slot.retract, pending)
        slot.enter(pending)
        self._pending.put(pending, slot)

    def _is_quick(self, slot: PolicySlot) -> bool:
        """Whether the policy can be asked without further thought."""
        agent = slot.agent
        return not (
            agent.is_slow
            or agent.suspended_until is not None
            or self.isolation == "process"
            or self.policies.is_over_share(slot.account)
        )

    def _pass(self, one: Notification, slot: PolicySlot, result: Outcome, cpu_s: float) -> bool:
        """Have done with a message that changes nothing: the way of nearly all."""
        if not result.passes or result.changes or result.memory is not None:
            return False
        if self._decisions.are_logged:
            return False
        slot.agent.passed(len(result.outputs[0].payload), result.steps, cpu_s)
        self._decisions.deliver(one)
        return True

    def _show(self, one: Notification) -> Shown:
        publication, select = one.publication, one.select
        key = (publication.number, select)
        shown = self._shown.get(key)
        if shown is None:
            topic, user = publication.topic, publication.properties.user
            if select is None:
                arrived = Arrived(topic, publication.payload, user, publication.members)
            else:
                arrived = Arrived(topic, publication.selected(select), user)
            shown = self._shown[key] = Shown(arrived)
            if len(self._shown) > SHOWN_MAX:
                self._shown.popitem(last=False)
        return shown

    def _shown_in(self, pending: PendingDecision) -> Shown:
        if pending.shown is None:
            pending.shown = self._show(pending.notification)
        return pending.shown

    def _try(
        self,
        slot: PolicySlot,
        pending: PendingDecision,
        result: Outcome | Stopped | Wanted | None = None,
    ) -> bool:
        """Decide now; False if that has to wait for a worker, which has been asked.

        `result` is what the policy has said already.
        """
        limits, now = self.policies.limits, self._context.now
        assert limits is not None
        if result is None:
            shown = self._shown_in(pending)
            size_bytes = len(shown.arrived.payload)
            decision = slot.agent.begin(now, limits, size_bytes=size_bytes)
            if decision is not None:
                self._decisions.happen(slot, pending, shown, decision, now)
                return True
            if self.policies.is_over_share(slot.account):
                text = f"more than {limits.share:.0%} of a processor over {limits.share_s:g} s"
                result = Stopped("share", text)
            elif self.pool is not None and (self.isolation == "process" or slot.agent.is_slow):
                self._ask(slot, pending, limits, self.pool)
                return False
            else:
                result = self._called(slot, pending)
        while isinstance(result, Wanted):
            if not self._has_pictures(slot, pending, result, limits):
                return False
            result = self._called(slot, pending)
        if self._inline_steps_max and isinstance(result, Stopped) and result.kind in _LIMITED:
            assert self.pool is not None
            # Time alone may be the machine's fault: that is for the average to say.
            slot.agent.is_slow |= result.kind == "steps"
            self._ask(slot, pending, limits, self.pool)
            return False
        self._settle(slot, pending, result, now)
        return True

    @property
    def _inline_steps_max(self) -> int | None:
        """Steps that a call may take here, if there is somebody who can take over."""
        limits = self.policies.limits
        if self.pool is None or limits is None or limits.inline_steps_max >= limits.steps_max:
            return None
        return limits.inline_steps_max

    def _call(
        self,
        slot: PolicySlot,
        arrived: Arrived,
        results: Mapping[Compression, Compressed] | None = None,
    ) -> tuple[Outcome | Stopped | Wanted, float]:
        """Ask the policy; what it says, and the time that it took."""
        clock, session = self._clock, slot.session
        assert self.policies.limits is not None
        if not results and self.pool is not None:
            results = self.pool.compressed
        begun_s = 0.0 if clock is None else clock()
        steps_max = self._inline_steps_max
        result: Outcome | Stopped | Wanted
        try:
            result = slot.agent.call(
                arrived,
                session.me,
                self._context.now,
                self.policies.limits,
                automatic=session.automatic,
                results=results,
                steps_max=steps_max,
                time_ms=None if steps_max is None else min(INLINE_MS, self.policies.limits.time_ms),
                clock=clock,
            )
        except Exception as error:
            # It is neither the publisher's fault nor the policy's: the message goes on as it came.
            self._context.faults.tell(error, "call of a policy", session.client_id, session.link)
            result = _passing(arrived)
        if clock is None:
            return result, 0.0
        took_s = clock() - begun_s
        self._spend(slot, took_s)
        slot.agent.took(took_s)
        return result, took_s

    def _spend(self, slot: PolicySlot, took_s: float) -> None:
        """Something was done for a policy within the turn."""
        slot.account.allowance.use(took_s)
        if took_s > BRIEF_S:
            self._spent_s += took_s
            if self.pool is not None:
                self.pool.charge(slot.account.name, took_s)

    def _called(self, slot: PolicySlot, pending: PendingDecision) -> Outcome | Stopped | Wanted:
        result, took_s = self._call(slot, self._shown_in(pending).arrived, pending.results)
        pending.cpu_s += took_s
        return result

    def _has_pictures(
        self, slot: PolicySlot, pending: PendingDecision, wanted: Wanted, limits: PolicyLimits
    ) -> bool:
        """Whether all pictures are there that a call wants; what is not has been asked for."""
        pool = self.pool
        assert pool is not None
        for request in wanted.requests:
            known = pool.compressed.get(request)
            if known is None:
                pending.me, pending.agent = None, slot.agent
                owner = slot.account.name
                pool.compress(owner, request, (slot, pending, request), limits.time_ms)
                slot.agent.tally.in_workers += 1
                return False
            pending.results[request] = known
        return True

    def _ask(
        self, slot: PolicySlot, pending: PendingDecision, limits: PolicyLimits, pool: Pool[JobOwner]
    ) -> None:
        """Have a worker do the whole call, when those that the session has asked for are done.

        Policies of one session that set variables would otherwise undo each other's work.
        """
        session, arrived = slot.session, self._shown_in(pending).arrived
        subscriber = session.subscriber
        assert subscriber is not None
        if subscriber.is_asking:
            self._context.steps.undoes(subscriber.turns.remove, (slot, pending))
            subscriber.turns.append((slot, pending))
            return
        self._context.steps.saves(subscriber, "is_asking")
        subscriber.is_asking = True
        pending.me, pending.agent, pending.asked_at = session.me, slot.agent, self._context.now
        pending.limits = limits
        light_steps = LIGHT_FACTOR * limits.inline_steps_max
        pending.is_light = not slot.agent.is_long and light_steps < limits.steps_max
        light = (light_steps, min(LIGHT_MS, limits.time_ms)) if pending.is_light else (0, 0)
        job = slot.job(pending, arrived, limits, light)
        asker = (slot, pending, None)
        pool.run(slot.account.name, job, asker, limits.time_ms, is_light=pending.is_light)
        slot.agent.tally.in_workers += 1

    # -- what workers say ----------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether `work` would do anything."""
        return bool(self._restored or self._orphans or self.has_later)

    @property
    def has_later(self) -> bool:
        """Whether something waits for nothing but the next turn."""
        return bool(self._later or (self.pool is not None and self.pool.ready))

    def work(self) -> None:
        """Go on with what workers have done, and after a restart with what waited.

        This ends what a turn has to do here.
        """
        if self._restored or self._orphans:
            self._take_up()
        # Whatever was spent, something is done: nobody waits for ever.
        is_first = True
        while self.pool is not None and self.pool.ready:
            if self._spent_s > TURN_S and not is_first:
                break
            self._take(self.pool.take())
            is_first = False
        is_first = True
        # Who has used least is first, of those who have to wait.
        for slot in sorted(self._later, key=lambda slot: -slot.account.allowance.left_s):
            if self._spent_s > TURN_S and not is_first:
                break
            # If not, it has had its turn with another of its session.
            if slot in self._later:
                del self._later[slot]
                self._go_on_alone(slot, "turn of a policy")
            is_first = False
        self._spent_s = 0.0
        # What waits holds its own; the others were told within this turn.
        self._shown.clear()
        self.has_turn = bool(self._later)

    def _take(self, ready: Ready[JobOwner]) -> None:
        """Go on with what a worker has done, as a step."""
        assert not isinstance(ready.asker, Link)
        slot, pending, _ = ready.asker
        client = slot.session.client_id
        if self._context.faults.attempt("answer of a worker", self._answered, ready, client=client):
            return
        subscriber = slot.session.subscriber
        if isinstance(ready.answer, Ran) and subscriber is not None:
            self._free(subscriber)
        self._pass_over(slot, pending)

    def _free(self, subscriber: SubscriberContext) -> None:
        """A worker has answered, and going on with it has failed: others may ask none the less."""
        subscriber.is_asking = False
        self._later.update((slot, None) for slot, _ in subscriber.turns)
        subscriber.turns.clear()

    def _pass_over(self, slot: PolicySlot, pending: PendingDecision) -> None:
        """Going on with a decision has failed: have done with it, for much may wait behind it."""
        attempt, client = self._context.faults.attempt, slot.session.client_id
        if not attempt("turn of a policy", self._let_pass, slot, pending, client=client):
            attempt("turn of a policy", self._drop, slot, pending, client=client)
        if slot.waiting and slot.waiting[0] is not pending:
            self._later[slot] = None

    def _let_pass(self, slot: PolicySlot, pending: PendingDecision) -> None:
        if slot.waiting and slot.waiting[0] is pending:
            result = _passing(self._shown_in(pending).arrived)
            self._settle(slot, pending, result, self._context.now, is_lost=True)
            self._had_first(slot)

    def _drop(self, slot: PolicySlot, pending: PendingDecision) -> None:
        if slot.waiting and slot.waiting[0] is pending:
            self._pending.give_up(pending)
            self._had_first(slot)

    def _had_first(self, slot: PolicySlot) -> None:
        """The first that waited is decided."""
        pending = slot.leave()
        self._context.steps.undoes(slot.enter_first, pending)

    def _answered(self, ready: Ready[JobOwner]) -> None:
        assert not isinstance(ready.asker, Link)
        slot, pending, _ = ready.asker
        if ready.is_first:
            pending.cpu_s += ready.answer.took_s
            slot.account.allowance.use(ready.answer.took_s)
        # If not, the subscription, the policy or the session have gone meanwhile.
        if slot.waiting and slot.waiting[0] is pending and self._is_decided(slot, pending, ready):
            self._had_first(slot)
            self._go_on(slot)
        if isinstance(ready.answer, Ran) and slot.session.subscriber is not None:
            self._next_turn(slot.session.subscriber)

    def _next_turn(self, subscriber: SubscriberContext) -> None:
        """A worker has done what a session asked for: the next of its policies may ask."""
        self._context.steps.saves(subscriber, "is_asking")
        subscriber.is_asking = False
        while subscriber.turns and not subscriber.is_asking:
            slot, pending = subscriber.turns[0]
            self._context.steps.undoes(subscriber.turns.appendleft, (slot, pending))
            subscriber.turns.popleft()
            if slot.waiting and slot.waiting[0] is pending:
                self._go_on(slot)

    def _is_decided(
        self, slot: PolicySlot, pending: PendingDecision, ready: Ready[JobOwner]
    ) -> bool:
        """Take what a worker says; False if another has been asked."""
        answer = ready.answer
        assert not isinstance(ready.asker, Link)
        assert not isinstance(answer, Compiled)
        request = ready.asker[2]
        if pending.notification.publication.is_over(self._context.now):
            self._pending.give_up(pending)
            return True
        if pending.agent is not slot.agent:
            # It is about a policy that is no more; the one that there is has not been asked.
            return self._try(slot, pending)
        if answer.is_lost:
            stopped = (
                answer.result if isinstance(answer, Ran) else Stopped(answer.kind, answer.text)
            )
            self._settle(slot, pending, stopped, self._context.now, is_lost=True)
            return True
        if isinstance(answer, Compressed):
            assert request is not None
            pending.results[request] = answer
            return self._try(slot, pending)
        slot.agent.is_long |= answer.took_s > LIGHT_MS / 1000
        return self._with_result(slot, pending, answer.result)

    def _with_result(
        self, slot: PolicySlot, pending: PendingDecision, result: Outcome | Stopped
    ) -> bool:
        if pending.is_light and isinstance(result, Stopped) and result.kind in _LIMITED:
            slot.agent.is_slow = slot.agent.is_long = True
            return self._try(slot, pending)
        if pending.me is slot.session.me and pending.limits is self.policies.limits:
            self._settle(slot, pending, result, pending.asked_at)
            return True
        pending.attempts += 1
        if pending.attempts <= ATTEMPTS_MAX:
            return self._try(slot, pending)
        text = "the variables have changed again and again while the policy was busy"
        self._settle(slot, pending, Stopped("state", text), self._context.now, is_lost=True)
        return True

    def _go_on(self, slot: PolicySlot) -> None:
        """Decide what waits, in order, as far as that needs no worker and fits into the turn."""
        self._later.pop(slot, None)
        while slot.waiting:
            if self._spent_s > TURN_S:
                self._later[slot] = None
                return
            pending = slot.waiting[0]
            if pending.notification.publication.is_over(self._context.now):
                self._pending.give_up(pending)
            elif not self._try(slot, pending):
                return
            if slot.waiting and slot.waiting[0] is pending:
                self._had_first(slot)

    def _go_on_alone(self, slot: PolicySlot, what: str) -> None:
        """The same as a step of its own; `what` is for the log."""
        client = slot.session.client_id
        if self._context.faults.attempt(what, self._go_on, slot, client=client) or not slot.waiting:
            return
        self._pass_over(slot, slot.waiting[0])

    def _go_on_without(self, pending: PendingDecision) -> None:
        """Notify of what waits for a policy that is no more."""
        if pending.notification.publication.is_over(self._context.now):
            self._pending.give_up(pending)
        else:
            self.notify(pending.notification)
            self._pending.end(pending)

    # -- decisions -----------------------------------------------------------------------------

    def _settle(
        self,
        slot: PolicySlot,
        pending: PendingDecision,
        result: Outcome | Stopped,
        now: float,
        *,
        is_lost: bool = False,
    ) -> None:
        """Take a result; one that is lost came about by the machine, not by the policy."""
        assert self.policies.limits is not None
        begun_s = 0.0 if self._clock is None else self._clock()
        shown = self._shown_in(pending)
        size_bytes = len(shown.arrived.payload)
        self._context.steps.undo.append(slot.agent.before())
        self._context.steps.undo.append(slot.account.before())
        decision = slot.agent.settle(
            result, now, self.policies.limits, size_bytes=size_bytes, cpu_s=pending.cpu_s
        )
        if decision.kind and decision.kind != "crowded":
            slot.account.offended(slot.agent, now, self.policies.limits)
        self._decisions.happen(slot, pending, shown, decision, now, is_lost=is_lost)
        if self._clock is not None:
            self._spend(slot, self._clock() - begun_s)

    # -- restarts ------------------------------------------------------------------------------

    def restore_agent(self, key: str, kept: Kept) -> None:
        """A policy was there before a restart."""
        self.policies.restore(key, kept, self.compiler.compiled)

    def restore_pending(
        self, key: int, row: PendingDecisionRow, session: Session, publication: Publication
    ) -> None:
        """Something waited for a policy's decision before a restart."""
        self._variables.restore_subscriber(session)
        assert session.subscriber is not None
        one = Notification.restored(row, session, publication)
        slot = session.subscriber.slot
        if row.subscription:
            numbered = (
                it for it in session.subscriptions.values() if it.number == row.subscription
            )
            subscription = next(numbered, None)
            slot = None if subscription is None else subscription.slot
        publication.kept += 1
        self.has_turn = True
        pending = PendingDecision(one, None, {}, key=key)
        if slot is None:
            self._orphans.append(pending)
        else:
            slot.enter(pending)
            self._restored[slot] = None

    def _take_up(self) -> None:
        orphans, self._orphans = self._orphans, []
        restored, self._restored = self._restored, {}
        attempt = self._context.faults.attempt
        for pending in orphans:
            # The session may have ended since, before there was a turn.
            has_policy = pending.notification.session.subscriber is not None
            attempt("restart", self._go_on_without if has_policy else self._pending.end, pending)
        for slot in restored:
            if slot in self.policies.slots:
                self._go_on_alone(slot, "restart")
