"""An agent is the policy of one subscriber: compiled code, memory, counts and suspensions.

An agent has no side effects: it receives a message, the subscriber's variables and the time, and
returns a `PolicyDecision`. The same agent runs in the broker, in a client at the edge and in a
Spark job, with the same decisions, because all of its inputs are arguments: stops by steps, their
number within a minute and suspensions depend only on the messages and their times. Only stops by
time, by the share of a processor and by too many waiting messages depend on the machine; a replay
takes these from the log.

`decide` does everything at once, for callers without other work. The broker does the steps
separately: `begin`, `call` as often as needed, `settle`.

In addition to the call itself an agent costs about 1 µs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from rove.policy.compiler import Policy
from rove.policy.jobs import CompressionRequest, CompressionResult, Deferred, Stopped
from rove.policy.limits import PolicyLimits
from rove.policy.messages import Completed, IncomingMessage, OutputMessage
from rove.policy.runner import run
from rove.policy.view import PolicyCounts

Verdict = Literal["passed", "sent", "dropped", "stopped", "suspended"]
Event = Literal["stopped", "suspended", "resumed"]
NOTICE_S: Final = 1.0
"""The least time between two notices about stops of one policy."""
SLOW_S: Final = 0.001
"""Calls that take longer than this on average delay the broker too much, however few their
steps."""
_LATEST: Final = 16
"""About so many calls make up that average, each of which counts for `_SLOWEST_S` at most: once in
a while it is the machine that has something else to do."""
_SLOWEST_S: Final = 0.005


class Notice(msgspec.Struct, omit_defaults=True):
    """A notice to a subscriber about its policy."""

    event: Event
    at: float
    kind: str = ""
    text: str = ""
    line: int = 0
    until: float | None = None
    """Of a suspension."""
    missed: int = 0
    """Stops since the last notice that were not reported."""


class PolicyDecision(msgspec.Struct):
    """The decision on one message."""

    verdict: Verdict
    outputs: tuple[OutputMessage, ...] = ()
    """What is sent; nothing stands here for what goes on as it came."""
    is_unchanged: bool = False
    """It goes on as it came."""
    changes: Mapping[str, Any] = {}
    """`me.` variables that are set; None removes one."""
    remembers: bool = False
    """The agent has changed and has to be kept."""
    kind: str = ""
    """Which limit stopped it."""
    notices: tuple[Notice, ...] = ()

    @property
    def output_count(self) -> int:
        return 1 if self.is_unchanged else len(self.outputs)


class StoredAgent(msgspec.Struct, array_like=True):
    """An agent as it is written to disk; fields are only ever added at the end."""

    text: str
    set_at: float
    memory: dict[str, Any] = {}
    offences: tuple[float, ...] = ()
    suspended_until: float | None = None


class CpuAllowance:
    """A share of a processor: what one subscriber's policies may use on the average."""

    __slots__ = ("_at", "_clock_s", "_left_s")

    def __init__(self) -> None:
        self._left_s = 0.0
        self._at: float | None = None
        self._clock_s = 0.0

    def is_used_up(self, limits: PolicyLimits, now: float, clock_s: float = 0.0) -> bool:
        """Whether more was used than has come in since.

        A broker's time stands still when the system's is set back; `clock_s` never does.
        """
        most = limits.share * limits.share_s
        if self._at is None:
            # Something may have been used before anybody asked.
            self._left_s += most
        else:
            passed_s = max(now - self._at, clock_s - self._clock_s)
            self._left_s = min(most, self._left_s + limits.share * passed_s)
        self._at, self._clock_s = now, clock_s
        return self._left_s < 0.0

    def use(self, cpu_s: float) -> None:
        """So much was used."""
        self._left_s -= cpu_s

    @property
    def left_s(self) -> float:
        """What was left when somebody last asked, less what was used since."""
        return self._left_s

    def is_full(self, limits: PolicyLimits, now: float) -> bool:
        """Whether all that was used has come in again."""
        if self._at is None:
            return self._left_s >= 0.0
        saved_s = limits.share * (now - self._at)
        return self._left_s + saved_s >= limits.share * limits.share_s


class Agent:
    """One policy, set by one subscriber."""

    __slots__ = (
        "_mean_s",
        "_missed",
        "_offences",
        "_told_at",
        "is_long",
        "is_slow",
        "last_trouble",
        "memory",
        "policy",
        "set_at",
        "suspended_until",
        "tally",
    )

    def __init__(self, policy: Policy, set_at: float) -> None:
        self.policy = policy
        self.set_at = set_at
        self.memory: Mapping[str, Any] = {}
        """What `every`, `changed` and `summary` remember."""
        self.suspended_until: float | None = None
        self.is_slow = False
        """It has needed more steps, or more time, than a turn of the broker can spare."""
        self.is_long = policy.is_heavy
        """It has needed more than a worker does at once while others wait, or may."""
        self.tally = PolicyCounts()
        self.last_trouble = ""
        self._offences: deque[float] = deque()
        self._told_at: float | None = None
        self._missed = 0
        self._mean_s = 0.0

    # -- a message -----------------------------------------------------------------------------

    def decide(
        self,
        arrived: IncomingMessage,
        me: Mapping[str, Any],
        now: float,
        limits: PolicyLimits,
        *,
        automatic: Collection[str] = (),
        clock: Callable[[], float] | None = None,
    ) -> PolicyDecision:
        """Decide on a message, whatever that takes."""
        decision = self.begin(now, limits, size_bytes=len(arrived.payload))
        if decision is None:
            result = self.call(arrived, me, now, limits, automatic=automatic, clock=clock)
            assert not isinstance(result, Deferred), "nothing is put off without results"
            decision = self.settle(result, now, limits, size_bytes=len(arrived.payload))
        return decision

    def begin(
        self, now: float, limits: PolicyLimits, *, size_bytes: int = 0
    ) -> PolicyDecision | None:
        """A message has its turn; the decision, if the policy need not be asked."""
        until = self.suspended_until
        if until is None or now >= until:
            return None
        self.tally.calls += 1
        self.tally.bytes_in += size_bytes
        self.tally.suspended += 1
        goes_on = limits.suspended == "deliver"
        if goes_on:
            self._count(1, size_bytes)
        return PolicyDecision("suspended", is_unchanged=goes_on)

    def call(
        self,
        arrived: IncomingMessage,
        me: Mapping[str, Any],
        now: float,
        limits: PolicyLimits,
        *,
        automatic: Collection[str] = (),
        results: Mapping[CompressionRequest, CompressionResult] | None = None,
        steps_max: int | None = None,
        time_ms: int | None = None,
        clock: Callable[[], float] | None = None,
    ) -> Completed | Stopped | Deferred:
        """Ask the policy; nothing is changed by it."""
        return run(
            self.policy,
            arrived,
            me,
            self.memory,
            now,
            limits,
            automatic=automatic,
            results=results,
            steps_max=steps_max,
            time_ms=time_ms,
            clock=clock,
        )

    def took(self, seconds: float) -> None:
        """A call has taken so long within the turn of a broker."""
        self._mean_s += (min(seconds, _SLOWEST_S) - self._mean_s) / _LATEST
        if self._mean_s > SLOW_S:
            self.is_slow = True

    def settle(
        self,
        result: Completed | Stopped,
        now: float,
        limits: PolicyLimits,
        *,
        size_bytes: int = 0,
        cpu_s: float = 0.0,
    ) -> PolicyDecision:
        """Take a result: from now on it has happened. `size_bytes` is that of the message."""
        tally = self.tally
        tally.calls += 1
        tally.bytes_in += size_bytes
        tally.steps += result.steps
        tally.cpu_s += cpu_s
        notices: tuple[Notice, ...] = ()
        resumes = self.suspended_until is not None and now >= self.suspended_until
        if resumes:
            self.suspended_until = None
            notices = (Notice("resumed", now),)
        if isinstance(result, Stopped):
            told = self._offended(result, now, limits)
            return PolicyDecision(
                "stopped", kind=result.kind, notices=notices + told, remembers=True
            )
        remembers = resumes
        if result.memory is not None:
            self.memory = result.memory
            remembers = True
        if result.passes:
            tally.passed += 1
            self._count(1, len(result.outputs[0].payload))
            return PolicyDecision("passed", (), True, result.changes, remembers, notices=notices)
        if not result.outputs:
            tally.dropped += 1
            return PolicyDecision("dropped", (), False, result.changes, remembers, notices=notices)
        tally.changed += 1
        tally.outputs += len(result.outputs)
        for output in result.outputs:
            tally.bytes_out += len(output.payload)
        return PolicyDecision(
            "sent", result.outputs, False, result.changes, remembers, notices=notices
        )

    def passed(self, size_bytes: int, steps: int, cpu_s: float) -> None:
        """A message goes on as it came, and nothing else has happened: `settle` in a few words."""
        tally = self.tally
        tally.calls += 1
        tally.passed += 1
        tally.outputs += 1
        tally.bytes_in += size_bytes
        tally.bytes_out += size_bytes
        tally.steps += steps
        tally.cpu_s += cpu_s

    def _count(self, outputs: int, size_bytes: int) -> None:
        self.tally.outputs += outputs
        self.tally.bytes_out += size_bytes

    # -- patience ------------------------------------------------------------------------------

    def inherit(self, offences: Iterable[float], suspended_until: float | None) -> None:
        """Begin with what others of the same user have done (`rove.policy.accounts`)."""
        self._offences.extend(offences)
        self.suspended_until = suspended_until

    def _offended(self, stop: Stopped, now: float, limits: PolicyLimits) -> tuple[Notice, ...]:
        stopped = self.tally.stopped
        stopped[stop.kind] = stopped.get(stop.kind, 0) + 1
        self.last_trouble = f"line {stop.line}: {stop.text}" if stop.line else stop.text
        if stop.kind == "crowded":
            # It was not even asked: a burst of messages is nobody's offence.
            return self._told(stop, now)
        offences = self._offences
        offences.append(now)
        while offences[0] <= now - limits.offences_s:
            offences.popleft()
        notices = self._told(stop, now)
        if len(offences) >= limits.offences_max:
            offences.clear()
            until = self.suspended_until = now + limits.suspension_s
            text = f"stopped {limits.offences_max} times within {limits.offences_s:g} s"
            notices += (Notice("suspended", now, stop.kind, text, until=until),)
        return notices

    def _told(self, stop: Stopped, now: float) -> tuple[Notice, ...]:
        if self._told_at is not None and now - self._told_at < NOTICE_S:
            self._missed += 1
            return ()
        missed, self._missed, self._told_at = self._missed, 0, now
        return (Notice("stopped", now, stop.kind, stop.text, stop.line, missed=missed),)

    def before(self) -> tuple[Any, ...]:
        """What would undo a decision that is about to be taken: a function and its arguments."""
        kept = (self.memory, self.suspended_until, self.last_trouble, self._told_at, self._missed)
        return self._restore, kept, tuple(self._offences)

    def _restore(self, kept: tuple[Any, ...], offences: tuple[float, ...]) -> None:
        self.memory, self.suspended_until, self.last_trouble, self._told_at, self._missed = kept
        self._offences = deque(offences)

    # -- on disk -------------------------------------------------------------------------------

    def stored(self) -> StoredAgent:
        """As it is written to disk."""
        return StoredAgent(
            self.policy.text,
            self.set_at,
            dict(self.memory),
            tuple(self._offences),
            self.suspended_until,
        )

    @classmethod
    def restored(cls, policy: Policy, kept: StoredAgent) -> Agent:
        """As it was read from disk."""
        agent = cls(policy, kept.set_at)
        agent.memory = kept.memory
        agent._offences.extend(kept.offences)
        agent.suspended_until = kept.suspended_until
        return agent
