"""Running policies on notifications, within the turn or in workers.

A notification for a session with a policy becomes a `PendingDecision`. Nearly all are decided at
once, within the turn. One that needs a picture made smaller waits until a worker has done so and is
then started again; one that takes more steps than a turn can spare is run by a worker as a whole;
with `isolation = "process"`, all are. Meanwhile other notifications for that policy wait behind it,
and no other client is held up.

A call takes effect when its result is accepted: then its outputs, the variables that it set, the
memory of its agent and the end of the pending decision are one change, committed as one. A pending
decision is on disk if its notification has to survive, so a crash repeats whole calls, never half
of one. If the subscriber's variables, its policy or the limits have changed while a worker was
busy, the worker's result is discarded and the call repeated.
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
    PolicyInput,
    PolicySlot,
    Session,
    SubscriberContext,
    Subscription,
)
from rove.broker.sessions.variables import Variables
from rove.broker.storage.log import SubscriptionLog
from rove.broker.storage.records import PendingDecisionRow
from rove.policy.accounts import Account
from rove.policy.agents import Agent, StoredAgent
from rove.policy.compiler import Policy
from rove.policy.jobs import (
    CallResult,
    CompileResult,
    CompressionRequest,
    CompressionResult,
    Deferred,
    Stopped,
    Workers,
)
from rove.policy.limits import PolicyLimits
from rove.policy.messages import Completed, IncomingMessage, OutputMessage
from rove.policy.pool import FinishedJob, Pool

Isolation = Literal["none", "process"]
ATTEMPTS_MAX: Final = 20
"""How often a call is repeated because the variables have changed meanwhile."""
TURN_S: Final = 0.005
"""The time that policies may use of a turn; the rest is decided in later turns. Packets of other
clients are read and sent in between."""
BRIEF_S: Final = 0.0002
"""Calls that take no longer do not count towards that: nearly all, however many there are."""
INLINE_MS: Final = 5
"""How long a call with few steps may take within a turn before a worker takes over."""
LIGHT_FACTOR: Final = 4
"""A worker first runs so many times `inline_steps_max`, in the lane of light jobs. Few policies
need more; these get all their steps in the lane of long jobs."""
LIGHT_MS: Final = 10
"""Processor time after which a job is restarted as a long one, however few its steps are."""
SHOWN_MAX: Final = 64
"""Publications whose form for policies is cached within a turn."""

_LIMITED: Final = ("steps", "time")
"""Limits that stop a call, within a turn or as a light job, that is restarted with more."""


def _passing(arrived: IncomingMessage) -> Completed:
    """The outcome that passes a message on unchanged."""
    return Completed((OutputMessage(arrived.payload, arrived.user),), {}, None, 0, passes=True)


class Agents:
    """Runs the policies of a broker."""

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
        """The time of calls that were not brief, in this turn."""
        self.compiler = PolicyCompiler(context, policies, self.pool, self._is_over_share)
        self.has_turn = False
        """Whether `work` has to be called in this turn; also for results of workers."""
        self._later: dict[PolicySlot, None] = {}
        """Policies whose first pending decision waits only for a later turn."""
        self._shown: OrderedDict[tuple[int, object], PolicyInput] = OrderedDict()
        self._restored: dict[PolicySlot, None] = {}
        """Policies with pending decisions from before a restart, until these are resumed."""
        self._orphans: list[PendingDecision] = []
        """Pending decisions of policies that cannot be run after a restart."""

    # -- setting policies ----------------------------------------------------------------------

    def set_policy(
        self, session: Session, policy: Policy, subscription: Subscription | None = None
    ) -> None:
        """Set the policy of a session or of one subscription, from the next message on."""
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
        # Else the client only repeats it after reconnecting: the agent's memory must stay.
        self.policies.keep(slot)
        self._log.policy_set(slot, self._context.now, tells=inherits)

    def _replace(self, slot: PolicySlot, policy: Policy) -> bool:
        """Replace the policy of a slot; returns whether it inherits offences of others."""
        self.policies.gone.add(slot.agent.tally)
        self._context.steps.saves(slot, "agent")
        slot.agent = Agent(policy, self._context.now)
        return self._begin(slot)

    def _begin(self, slot: PolicySlot) -> bool:
        assert self.policies.limits is not None
        return slot.account.begin(slot.agent, self._context.now, self.policies.limits)

    def remove_policy(self, session: Session, subscription: Subscription | None = None) -> bool:
        """Remove a policy and deliver what waits for it. False if there was none."""
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
        """A subscription replaces another, and inherits its pending decisions.

        The same policy keeps its memory; another one decides what waits for the old one.
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
        """A subscription has ended: remove its policy and drop what waits for it."""
        self.policies.drop_unrun(subscription.session, subscription)
        if subscription.slot is not None:
            slot = subscription.slot
            for pending in slot.waiting:
                self._pending.end(pending)
            self.policies.leave(slot)

    def session_ended(self, session: Session) -> None:
        """A session has ended: remove its policy and drop what waits for it."""
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

        `own` is the policy of the subscription; without it, the session's is used.
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
        result: Completed | Stopped | Deferred | None = None
        cpu_s = 0.0
        agent = slot.agent
        if not (
            agent.is_slow
            or agent.suspended_until is not None
            or self.isolation == "process"
            or self._is_over_share(slot.account)
        ):
            result, cpu_s = self._call(slot, shown.arrived)
        pending = PendingDecision(one, shown, {}, cpu_s=cpu_s)
        if isinstance(result, Completed):
            if not (result.passes and self._pass(one, slot, result, cpu_s)):
                self._settle(slot, pending, result, self._context.now, called_s=cpu_s)
            return
        self._spend(slot, cpu_s)
        if not self._try(slot, pending, result):
            self._wait(slot, pending)

    def _queue(self, slot: PolicySlot, pending: PendingDecision, limits: PolicyLimits) -> None:
        """Queue a decision behind others, or for a later turn, if there is room for it."""
        text = slot.account.full(limits)
        if len(slot.waiting) >= limits.waiting_max:
            text = f"{len(slot.waiting)} messages wait for this policy already"
        if text:
            self._settle(slot, pending, Stopped("crowded", text), self._context.now)
            return
        if not slot.waiting:
            self._later[slot] = None
        # The policy's form of the message is made again: it may be ten times as large.
        pending.shown = None
        self._wait(slot, pending)

    def _wait(self, slot: PolicySlot, pending: PendingDecision) -> None:
        self._context.steps.undoes(slot.retract, pending)
        slot.enter(pending)
        self._pending.put(pending, slot)

    def _is_over_share(self, account: Account) -> bool:
        """Whether a user's policies have used more than they may; never without a clock."""
        limits, clock = self.policies.limits, self._clock
        if clock is None or limits is None:
            return False
        return account.allowance.is_used_up(limits, self._context.now, clock())

    def _pass(self, one: Notification, slot: PolicySlot, result: Completed, cpu_s: float) -> bool:
        """Finish a call whose message passes, if nothing else happens. Nearly all are like this."""
        if result.changes or result.memory is not None or self._decisions.are_logged:
            return False
        self._spend(slot, cpu_s)
        slot.agent.passed(len(result.outputs[0].payload), result.steps, cpu_s)
        self._decisions.deliver(one)
        return True

    def _show(self, one: Notification) -> PolicyInput:
        publication, select = one.publication, one.select
        key = (publication.number, select)
        shown = self._shown.get(key)
        if shown is None:
            topic, user = publication.topic, publication.properties.user
            if select is None:
                arrived = IncomingMessage(topic, publication.payload, user, publication.members)
            else:
                arrived = IncomingMessage(topic, publication.selected(select), user)
            shown = self._shown[key] = PolicyInput(arrived)
            if len(self._shown) > SHOWN_MAX:
                self._shown.popitem(last=False)
        return shown

    def _shown_in(self, pending: PendingDecision) -> PolicyInput:
        if pending.shown is None:
            pending.shown = self._show(pending.notification)
        return pending.shown

    def _try(
        self,
        slot: PolicySlot,
        pending: PendingDecision,
        result: Completed | Stopped | Deferred | None = None,
    ) -> bool:
        """Decide now; False if a worker has to do it, which has been given the job.

        `result` is the result of a call that was made already.
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
            if self._is_over_share(slot.account):
                text = f"more than {limits.share:.0%} of a processor over {limits.share_s:g} s"
                result = Stopped("share", text)
            elif self.pool is not None and (self.isolation == "process" or slot.agent.is_slow):
                self._ask(slot, pending, limits, self.pool)
                return False
            else:
                result = self._called(slot, pending)
        while isinstance(result, Deferred):
            if not self._has_pictures(slot, pending, result, limits):
                return False
            result = self._called(slot, pending)
        if isinstance(result, Stopped) and result.kind in _LIMITED and self._inline_steps_max:
            assert self.pool is not None
            # Too much time alone may be the machine's fault: the average decides about that.
            slot.agent.is_slow |= result.kind == "steps"
            self._ask(slot, pending, limits, self.pool)
            return False
        self._settle(slot, pending, result, now)
        return True

    @property
    def _inline_steps_max(self) -> int | None:
        """Steps that a call may take here; None if no worker could take over."""
        limits = self.policies.limits
        if self.pool is None or limits is None or limits.inline_steps_max >= limits.steps_max:
            return None
        return limits.inline_steps_max

    def _call(
        self,
        slot: PolicySlot,
        arrived: IncomingMessage,
        results: Mapping[CompressionRequest, CompressionResult] | None = None,
    ) -> tuple[Completed | Stopped | Deferred, float]:
        """Call the policy; returns its result, and the time that it took, for `_spend`."""
        clock, session = self._clock, slot.session
        assert self.policies.limits is not None
        if not results and self.pool is not None:
            results = self.pool.compressed
        begun_s = 0.0 if clock is None else clock()
        steps_max = self._inline_steps_max
        result: Completed | Stopped | Deferred
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
        slot.agent.took(took_s)
        return result, took_s

    def _spend(self, slot: PolicySlot, took_s: float) -> None:
        """Account for time that was spent on a policy within the turn."""
        slot.account.allowance.use(took_s)
        if took_s > BRIEF_S:
            self._spent_s += took_s
            if self.pool is not None:
                self.pool.charge(slot.account.name, took_s)

    def _called(self, slot: PolicySlot, pending: PendingDecision) -> Completed | Stopped | Deferred:
        result, took_s = self._call(slot, self._shown_in(pending).arrived, pending.results)
        self._spend(slot, took_s)
        pending.cpu_s += took_s
        return result

    def _has_pictures(
        self, slot: PolicySlot, pending: PendingDecision, wanted: Deferred, limits: PolicyLimits
    ) -> bool:
        """Whether all pictures that a call requests are there; a missing one is requested."""
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
        """Have a worker run the whole call, after the other calls of the session.

        Policies of one session that set variables would otherwise invalidate each other's calls.
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
        waiter = (slot, pending, None)
        pool.run(slot.account.name, job, waiter, limits.time_ms, is_light=pending.is_light)
        slot.agent.tally.in_workers += 1

    # -- results of workers --------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether `work` would do anything."""
        return bool(self._restored or self._orphans or self.has_later)

    @property
    def has_later(self) -> bool:
        """Whether anything waits only for the next turn."""
        return bool(self._later or (self.pool is not None and self.pool.ready))

    def work(self) -> None:
        """Continue with results of workers, and after a restart with what waited.

        This ends the work of a turn here.
        """
        if self._restored or self._orphans:
            self._take_up()
        # Whatever was spent, one is decided: no policy waits for ever.
        is_first = True
        while self.pool is not None and self.pool.ready:
            if self._spent_s > TURN_S and not is_first:
                break
            self._take(self.pool.take())
            is_first = False
        is_first = True
        # Of those that have to wait, the account that has used least is first.
        for slot in sorted(self._later, key=lambda slot: -slot.account.allowance.left_s):
            if self._spent_s > TURN_S and not is_first:
                break
            # If not, it was decided together with another of its session.
            if slot in self._later:
                del self._later[slot]
                self._go_on_alone(slot, "turn of a policy")
            is_first = False
        self._spent_s = 0.0
        # Pending decisions hold their own; the cache is for this turn only.
        self._shown.clear()
        self.has_turn = bool(self._later)

    def _take(self, ready: FinishedJob[JobOwner]) -> None:
        """Continue with the result of a worker, as a step."""
        assert not isinstance(ready.waiter, Link)
        slot, pending, _ = ready.waiter
        client = slot.session.client_id
        if self._context.faults.attempt("answer of a worker", self._answered, ready, client=client):
            return
        subscriber = slot.session.subscriber
        if isinstance(ready.answer, CallResult) and subscriber is not None:
            self._free(subscriber)
        self._pass_over(slot, pending)

    def _free(self, subscriber: SubscriberContext) -> None:
        """Handling a worker's result has failed: the session's next call starts nevertheless."""
        subscriber.is_asking = False
        self._later.update((slot, None) for slot, _ in subscriber.turns)
        subscriber.turns.clear()

    def _pass_over(self, slot: PolicySlot, pending: PendingDecision) -> None:
        """Deciding has failed: drop the decision, because many may wait behind it."""
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

    def _answered(self, ready: FinishedJob[JobOwner]) -> None:
        assert not isinstance(ready.waiter, Link)
        slot, pending, _ = ready.waiter
        if ready.is_first:
            pending.cpu_s += ready.answer.took_s
            slot.account.allowance.use(ready.answer.took_s)
        # If not, the subscription, the policy or the session has ended meanwhile.
        if slot.waiting and slot.waiting[0] is pending and self._is_decided(slot, pending, ready):
            self._had_first(slot)
            self._go_on(slot)
        if isinstance(ready.answer, CallResult) and slot.session.subscriber is not None:
            self._next_turn(slot.session.subscriber)

    def _next_turn(self, subscriber: SubscriberContext) -> None:
        """A worker has finished a call of a session: start the next one."""
        self._context.steps.saves(subscriber, "is_asking")
        subscriber.is_asking = False
        while subscriber.turns and not subscriber.is_asking:
            slot, pending = subscriber.turns[0]
            self._context.steps.undoes(subscriber.turns.appendleft, (slot, pending))
            subscriber.turns.popleft()
            if slot.waiting and slot.waiting[0] is pending:
                self._go_on(slot)

    def _is_decided(
        self, slot: PolicySlot, pending: PendingDecision, ready: FinishedJob[JobOwner]
    ) -> bool:
        """Accept the result of a worker; False if another job was started instead."""
        answer = ready.answer
        assert not isinstance(ready.waiter, Link)
        assert not isinstance(answer, CompileResult)
        request = ready.waiter[2]
        if pending.notification.publication.is_over(self._context.now):
            self._pending.give_up(pending)
            return True
        if pending.agent is not slot.agent:
            # It is of a policy that was replaced; the present one has not been called.
            return self._try(slot, pending)
        if answer.is_lost:
            stopped = (
                answer.result
                if isinstance(answer, CallResult)
                else Stopped(answer.kind, answer.text)
            )
            self._settle(slot, pending, stopped, self._context.now, is_lost=True)
            return True
        if isinstance(answer, CompressionResult):
            assert request is not None
            pending.results[request] = answer
            return self._try(slot, pending)
        slot.agent.is_long |= answer.took_s > LIGHT_MS / 1000
        return self._with_result(slot, pending, answer.result)

    def _with_result(
        self, slot: PolicySlot, pending: PendingDecision, result: Completed | Stopped
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
        """Decide what waits, in order, as far as no worker is needed and the turn has time."""
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
        """Notify of what waits for a policy that was removed."""
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
        result: Completed | Stopped,
        now: float,
        *,
        is_lost: bool = False,
        called_s: float = 0.0,
    ) -> None:
        """Accept a result, which is lost if the machine failed; `called_s` is still to be spent."""
        assert self.policies.limits is not None
        begun_s = 0.0 if self._clock is None else self._clock()
        shown = pending.shown or self._shown_in(pending)
        size_bytes = len(shown.arrived.payload)
        undo = self._context.steps.undo
        undo.append(slot.agent.before())
        decision = slot.agent.settle(
            result, now, self.policies.limits, size_bytes=size_bytes, cpu_s=pending.cpu_s
        )
        if decision.kind and decision.kind != "crowded":
            undo.append(slot.account.before())
            slot.account.offended(slot.agent, now, self.policies.limits)
        self._decisions.happen(slot, pending, shown, decision, now, is_lost=is_lost)
        if self._clock is not None:
            self._spend(slot, called_s + self._clock() - begun_s)

    # -- restarts ------------------------------------------------------------------------------

    def restore_agent(self, key: str, kept: StoredAgent) -> None:
        """Restore a policy after a restart."""
        self.policies.restore(key, kept, self.compiler.compiled)

    def restore_pending(
        self, key: int, row: PendingDecisionRow, session: Session, publication: Publication
    ) -> None:
        """Restore a pending decision after a restart."""
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
