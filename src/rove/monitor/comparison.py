"""Two engines, or two runs, over the same period: how much they differ, and how certain that is.

Time counts from the beginning of each run. The period that both have is cut into equal batches, and
each batch gives one mean for either side. Consecutive readings are correlated, so they are no
independent measurements; means of long batches nearly are. The interval is Student's, of the
differences batch by batch: two engines in one history meet the same events in the same second, and
pairing removes their effect. The interval of a ratio is that of the classical ratio estimator. With
fewer than `BATCHES_MIN` batches there is a difference without an interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from rove.base.http import HttpError
from rove.base.intervals import half_width
from rove.metrics.database import Database, Points, RunRecord
from rove.metrics.records import kind_of, labels_of
from rove.metrics.world_readings import WORLD
from rove.monitor.metrics_history import POINTS, MetricsHistory

BATCHES_MAX: Final = 20
BATCHES_MIN: Final = 3
READINGS_PER_BATCH: Final = 3


class ComparedRun(NamedTuple):
    """A run, and an engine in it."""

    run: RunRecord
    engine: str


class MetricLine(NamedTuple):
    """A metric over the seconds of a run."""

    at: list[float]
    value: list[float]


async def compare(history: MetricsHistory, query: Mapping[str, str]) -> dict[str, Any]:
    """What `/api/compare` answers."""
    runs = {one.id: one for one in await history.ask("runs", lambda database: database.runs())}
    left, right = (_side(query.get(name, ""), name, runs) for name in ("left", "right"))
    since, until = _seconds(query, "since"), _seconds(query, "until")
    wanted = [name for name in query.get("metrics", "").split(",") if name]
    question = f"compare {sorted(query.items())}"
    found = await history.ask(
        question, lambda database: _compared(database, left, right, wanted, (since, until))
    )
    return {"left": _view(left), "right": _view(right), "metrics": found}


def _side(written: str, name: str, runs: Mapping[str, RunRecord]) -> ComparedRun:
    run, slash, engine = written.rpartition("/")
    if not slash or not engine:
        raise HttpError(400, f"{name} is {written[:100]!r}", "a run and an engine: RUN/ENGINE")
    if run not in runs:
        raise HttpError(404, f"there is no run {run[:100]}", "/api/runs has all there are")
    return ComparedRun(runs[run], engine)


def _seconds(query: Mapping[str, str], name: str) -> float | None:
    written = query.get(name)
    if not written:
        return None
    try:
        number = float(written)
    except ValueError:
        number = math.nan
    if not 0 <= number < 1e9:
        raise HttpError(
            400, f"{name} is {written[:50]!r}", "seconds since the beginning of the runs"
        )
    return number


def _view(side: ComparedRun) -> dict[str, Any]:
    return {**msgspec.structs.asdict(side.run), "engine": side.engine}


def _compared(
    database: Database,
    left: ComparedRun,
    right: ComparedRun,
    wanted: Sequence[str],
    period: tuple[float | None, float | None],
) -> list[dict[str, Any]]:
    metrics = wanted or _metrics_of(database, left, right)
    found = []
    for metric in metrics:
        lines = [_line(database, metric, side, period) for side in (left, right)]
        if not wanted and not all(line.at for line in lines):
            continue
        found.append(
            {
                "metric": metric,
                "unit": unit_of(metric),
                "left": lines[0]._asdict(),
                "right": lines[1]._asdict(),
                **differences(*lines),
            }
        )
    return found


def _metrics_of(database: Database, *sides: ComparedRun) -> list[str]:
    """What was recorded of both."""
    of: list[set[str]] = [set() for _ in sides]
    for one in database.series():
        if one.metric.startswith(WORLD):
            labels = labels_of(one.labels)
            for names, side in zip(of, sides, strict=True):
                if (labels.get("run"), labels.get("engine")) == (side.run.id, side.engine):
                    names.add(one.metric)
    return sorted(set.intersection(*of))


def _line(
    database: Database, metric: str, side: ComparedRun, period: tuple[float | None, float | None]
) -> MetricLine:
    began = side.run.began
    since, until = (None if each is None else began + each for each in period)
    labels = {"run": side.run.id, "engine": side.engine}
    found: list[Points] = database.points(metric, labels, since or began, until, POINTS)
    if not found:
        return MetricLine([], [])
    return MetricLine([round(at - began, 3) for at in found[0].at], found[0].value)


def unit_of(metric: str) -> str:
    """What a metric is counted in, as it is drawn."""
    name = metric.removesuffix("_total")
    per_s = "/s" if kind_of(metric) == "counter" else ""
    for ending, unit in (("_bytes", "B"), ("_s", "s"), ("_seconds", "s"), ("_ms", "ms")):
        if name.endswith(ending):
            return unit + per_s
    return f"1{per_s}" if per_s else ""


# --- how sure it is -------------------------------------------------------------------------------


def differences(left: MetricLine, right: MetricLine) -> dict[str, Any]:
    """Left less right, and left by right, each with an interval of 95 %."""
    pairs = batch_means(left, right)
    if not pairs:
        return {"difference": None, "ratio": None}
    count = len(pairs)
    means = [math.fsum(side) / count for side in zip(*pairs, strict=True)]
    difference = means[0] - means[1]
    spread = _half_width([a - b for a, b in pairs])
    ratio = None
    if means[1] != 0:
        by = means[0] / means[1]
        half = _half_width([a - by * b for a, b in pairs])
        ratio = _interval(by, None if half is None else half / abs(means[1]), count)
    return {"difference": _interval(difference, spread, count), "ratio": ratio}


def batch_means(left: MetricLine, right: MetricLine) -> list[tuple[float, float]]:
    """Means of both over equal parts of the time that both have."""
    if not left.at or not right.at:
        return []
    begin, end = max(left.at[0], right.at[0]), min(left.at[-1], right.at[-1])
    inside = [[at for at in line.at if begin <= at <= end] for line in (left, right)]
    fewest = min(map(len, inside))
    if not fewest:
        return []
    count = max(1, min(BATCHES_MAX, fewest // READINGS_PER_BATCH))
    length = (end - begin) / count or 1.0
    sides = []
    for line in (left, right):
        parts: list[list[float]] = [[] for _ in range(count)]
        for at, value in zip(line.at, line.value, strict=True):
            if begin <= at <= end:
                parts[min(int((at - begin) / length), count - 1)].append(value)
        sides.append(parts)
    return [
        (math.fsum(a) / len(a), math.fsum(b) / len(b))
        for a, b in zip(*sides, strict=True)
        if a and b
    ]


def _half_width(values: Sequence[float]) -> float | None:
    """Of the interval around a mean; None for too few."""
    return None if len(values) < BATCHES_MIN else half_width(np.array(values))


def _interval(mean: float, half: float | None, batches: int) -> dict[str, Any]:
    low, high = (None, None) if half is None else (mean - half, mean + half)
    return {"mean": mean, "low": low, "high": high, "batches": batches}
