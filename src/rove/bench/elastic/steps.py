"""What a load that changes in steps did to delays and matchers: the sums behind experiment 3.

Pure functions over a trace of notifications and a list of rearrangements, so that they can be tried
on traces that are made up. A second belongs to the publications that were sent in it. The worst
second around a rearrangement is sought over windows that begin every tenth of a second: whole
seconds of the clock would cut a peak in two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rove.elastic.view import Reconfiguration

Numbers = NDArray[np.float64]

_WINDOW_S: Final = 1.0
_STRIDE_S: Final = 0.1


class Step(msgspec.Struct, frozen=True):
    """A time of equal load, in seconds since the load began."""

    label: str
    per_s: float
    """Publications per second that were to be sent."""
    begin_s: float
    end_s: float


class Second(msgspec.Struct, frozen=True):
    """The notifications of the publications of one second."""

    begin_s: float
    mean_ms: float
    p50_ms: float
    p99_ms: float


class Change(msgspec.Struct, frozen=True):
    """A rearrangement, and the worst second around it."""

    begin_s: float
    end_s: float
    kind: str
    reason: str
    matchers: int
    failure: str
    before_p99_ms: float
    """Of the second before it began; 0 if nothing was sent then."""
    p99_ms: float


class Elasticity(msgspec.Struct, frozen=True):
    """All that is told of a load that changed in steps."""

    steps: Sequence[Step]
    seconds: Sequence[Second]
    changes: Sequence[Change]
    matchers: Sequence[tuple[float, int]]
    """How many there were at which second of the load, wherever that was seen."""


def steps_of(paces: Sequence[tuple[float, float]], labels: Sequence[str]) -> list[Step]:
    """The steps of a load, given its paces and how long each was kept."""
    found, begin_s = [], 0.0
    for (per_s, seconds), label in zip(paces, labels, strict=True):
        found.append(Step(label, per_s, begin_s, begin_s + seconds))
        begin_s += seconds
    return found


def seconds_of(sent_s: Numbers, delays_ms: Numbers) -> list[Second]:
    """Second by second; those in which nothing was sent are left out."""
    whole = np.floor(sent_s).astype(np.int64)
    found = []
    for second in np.unique(whole):
        mean, p50, p99 = stats(delays_ms[whole == second])
        found.append(Second(float(second), mean, p50, p99))
    return found


def stats(delays_ms: Numbers) -> tuple[float, float, float]:
    """Mean, median and what 99 % are below; zeros where there was nothing."""
    if not len(delays_ms):
        return 0.0, 0.0, 0.0
    p50, p99 = np.percentile(delays_ms, (50, 99))
    return float(delays_ms.mean()), float(p50), float(p99)


def within(step: Step, sent_s: Numbers, delays_ms: Numbers) -> Numbers:
    """The delays of a step."""
    return delays_ms[(sent_s >= step.begin_s) & (sent_s < step.end_s)]


def worst_p99_ms(begin_s: float, end_s: float, sent_s: Numbers, delays_ms: Numbers) -> float:
    """The highest p99 of any second that touches a time; 0 if nothing was sent then."""
    starts = np.arange(begin_s - _WINDOW_S + _STRIDE_S, end_s + _STRIDE_S, _STRIDE_S)
    return max(_p99_ms(start, sent_s, delays_ms) for start in starts.tolist())


def _p99_ms(start_s: float, sent_s: Numbers, delays_ms: Numbers) -> float:
    inside = delays_ms[(sent_s >= start_s) & (sent_s < start_s + _WINDOW_S)]
    return float(np.percentile(inside, 99)) if len(inside) else 0.0


def changes_of(
    reconfigurations: Sequence[Reconfiguration],
    began_at: float,
    sent_s: Numbers,
    delays_ms: Numbers,
) -> list[Change]:
    """The rearrangements since the load began, each with the worst second around it."""
    found = []
    for one in reconfigurations:
        begin_s = one.at - began_at
        end_s = begin_s + one.duration_s
        if end_s >= 0:
            found.append(
                Change(
                    begin_s,
                    end_s,
                    one.kind,
                    one.reason,
                    one.matchers,
                    one.failure,
                    _p99_ms(begin_s - _WINDOW_S, sent_s, delays_ms),
                    worst_p99_ms(begin_s, end_s, sent_s, delays_ms),
                )
            )
    return found


def changes_in(step: Step, changes: Sequence[Change], is_last: bool) -> int:
    """How many rearrangements began in a step; what came after the end belongs to the last."""
    end_s = np.inf if is_last else step.end_s
    return sum(step.begin_s <= change.begin_s < end_s for change in changes)
