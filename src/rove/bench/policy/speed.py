"""How fast a policy runs by itself, without broker or network: `rove bench policy --part speed`.

A call is one of `rove.policy.runner.run`, with all that it does beside the policy's own lines: a
message to change, counted steps, and an outcome. It is compared with the same text as plain Python,
call by call in turns, and of each the best round counts: the machine has other things to do. What a
case returns is what came, or nothing, since plain Python would write no JSON either; what writing,
remembering and being stopped cost is told of by `calls`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from rove.bench.measure import Measure, seconds_for
from rove.bench.policy.cases import ICU_MESSAGE, ICU_STATE, MALICIOUS, Case, cases, icu
from rove.policy.compiler import Policy, compiled
from rove.policy.jobs import Stopped
from rove.policy.limits import PolicyLimits
from rove.policy.messages import Completed, IncomingMessage
from rove.policy.runner import run

ICU_GOAL_PER_S: Final = 200_000.0
RATIO_GOAL: Final = 0.7
_AUTOMATIC: Final = frozenset({"battery", "display", "network"})
_LIMITS: Final = PolicyLimits()
_NOW: Final = 1_000_000.0
_TOPIC: Final = "ward/patient7/ecg"

_STATE: Final = """\
def arrived(m, me):
    me.seen = get("seen", 0) + 1
    return None
"""
_EVERY: Final = """\
def arrived(m, me):
    if every(300, per=m.patient):
        return m
    return None
"""
_SUMMARY: Final = """\
def arrived(m, me):
    return summary(300, "pulse", per=m.patient)
"""
_KEEP: Final = """\
def arrived(m, me):
    return keep(m, "patient", "pulse")
"""
_NOTHING: Final = """\
def arrived(m, me):
    return None
"""


class Extent(msgspec.Struct, frozen=True):
    """How long to measure."""

    calls: int = 20_000
    """Of the smallest policy, in a round; the others have fewer."""
    rounds: int = 7


def measures(extent: Extent) -> Iterator[Measure]:
    """All of the part."""
    yield from _icu(extent)
    for case in cases():
        yield from _compared(case, extent)
    yield from _compiling(extent)
    yield from _calls(extent)


def caller(
    text: str, attributes: dict[str, Any], me: dict[str, Any], steps_max: int | None = None
) -> Callable[[], object]:
    """One call of a policy, as the broker would make it."""
    policy: Policy = compiled(text)
    arrived = IncomingMessage(_TOPIC, msgspec.json.encode(attributes))
    memory: dict[str, Any] = {}

    def call() -> object:
        return run(
            policy, arrived, me, memory, _NOW, _LIMITS, automatic=_AUTOMATIC, steps_max=steps_max
        )

    return call


def _repeated(call: Callable[[], object], count: int) -> Callable[[], None]:
    def repeat() -> None:
        for _ in range(count):
            call()

    return repeat


def _icu(extent: Extent) -> Iterator[Measure]:
    call = caller(icu(), ICU_MESSAGE, ICU_STATE)
    found = call()
    assert isinstance(found, Completed)
    assert found.passes, "this one needs no picture made smaller"
    per_s = extent.calls / seconds_for(_repeated(call, extent.calls), extent.rounds)
    goal = f">= {ICU_GOAL_PER_S:,.0f}"
    reached = per_s >= ICU_GOAL_PER_S
    yield Measure("policy.speed.icu", per_s, "evaluations/s", goal=goal, reached=reached)


def _compared(case: Case, extent: Extent) -> Iterator[Measure]:
    call, plain = caller(case.text, case.attributes, case.me), case.plain()
    count = max(1, extent.calls // 10)
    rounds = [_repeated(call, count), _repeated(plain, count)]
    best = [float("inf"), float("inf")]
    for _ in range(extent.rounds):
        best = [min(had, seconds_for(work, 1)) for had, work in zip(best, rounds, strict=True)]
    policy_us, plain_us = (1e6 * seconds / count for seconds in best)
    ratio = plain_us / policy_us
    theirs = f"policy.speed.{case.name}.plain"
    yield Measure(theirs, plain_us, "µs/call")
    has_goal = case.is_demanding
    yield Measure(
        f"policy.speed.{case.name}.policy",
        policy_us,
        "µs/call",
        ratio,
        theirs,
        f">= {RATIO_GOAL:g} of its speed" if has_goal else None,
        ratio >= RATIO_GOAL if has_goal else None,
        None if has_goal else "little to compute",
    )


def _compiling(extent: Extent) -> Iterator[Measure]:
    """A comment makes it another text, which is compiled anew."""
    text, turns = icu(), 3 * extent.rounds
    texts = (f"{text}# {time.perf_counter_ns()} {turn}\n" for turn in range(turns))
    new_s = seconds_for(lambda: compiled(next(texts)), turns)
    yield Measure("policy.speed.compile.new", 1e3 * new_s, "ms")
    count = max(1, extent.calls // 10)
    compiled(text)
    again_s = seconds_for(_repeated(lambda: compiled(text), count), extent.rounds) / count
    ratio = new_s / again_s
    against = "policy.speed.compile.new"
    yield Measure("policy.speed.compile.again", 1e6 * again_s, "µs", ratio, against)


def _calls(extent: Extent) -> Iterator[Measure]:
    """What kinds of calls cost."""
    small = {**ICU_MESSAGE, "n": 1}
    kinds = {
        "passed": (icu(), small, ICU_STATE),
        "dropped": (_NOTHING, small, ICU_STATE),
        "kept": (_KEEP, small, ICU_STATE),
        "state": (_STATE, small, ICU_STATE),
        "every": (_EVERY, small, ICU_STATE),
        "summary": (_SUMMARY, small, ICU_STATE),
    }
    count = max(1, extent.calls // 10)
    for name, (text, attributes, me) in kinds.items():
        call = caller(text, attributes, me)
        assert isinstance(call(), Completed), name
        call_us = 1e6 * seconds_for(_repeated(call, count), extent.rounds) / count
        yield Measure(f"policy.speed.calls.{name}", call_us, "µs/call")
    for name, steps_max in (("inline", _LIMITS.inline_steps_max), ("stopped", _LIMITS.steps_max)):
        call = caller(MALICIOUS[0], small, ICU_STATE, steps_max)
        found = call()
        assert isinstance(found, Stopped)
        note = f"no end; {steps_max:,} steps"
        stopped_us = 1e6 * seconds_for(call, extent.rounds)
        yield Measure(f"policy.speed.calls.{name}", stopped_us, "µs/call", note=note)
