"""What goes into the metrics database and what comes out of it. Nothing here needs a database."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from rove.metrics.naming import Kind

METRIC_CHARACTERS_MAX: Final = 200
LABELS_CHARACTERS_MAX: Final = 500
"""Together they are a key of MySQL, which may have 768 characters."""
AT_S_MAX: Final = 1e11
"""Some three thousand years from 1970, either way; whoever is beyond has given milliseconds."""


class Reading(msgspec.Struct, frozen=True, gc=False):
    """What a series was at a moment."""

    metric: str
    labels: str
    """As Prometheus writes them, without the braces, by name: `channel="broker",design="lees"`."""
    at: float
    """Seconds since 1970 UTC; whole microseconds are kept."""
    value: float


class Series(msgspec.Struct, frozen=True):
    """Something that was read again and again."""

    metric: str
    labels: str
    kind: Kind


class Points(msgspec.Struct, frozen=True):
    """A series over a period, as it is to be drawn: a counter by its rate, a gauge by its mean."""

    labels: str
    resolution_s: int
    """0 for the readings themselves."""
    at: list[float]
    """Of a reading when it was taken, of an interval when it began."""
    value: list[float]
    low: list[float]
    high: list[float]
    """Of a gauge, the least and the greatest reading; of a counter, as `value`."""


class Total(msgspec.Struct, frozen=True):
    """A series over a whole period, as one figure."""

    metric: str
    labels: str
    value: float
    """Of a counter its rate per second, of a gauge the mean of its readings."""
    count: int
    """How many readings there were."""


class Run(msgspec.Struct, frozen=True):
    """One run of an experiment. Its series have its id in the label `run`."""

    id: str
    scenario: str
    title: str
    seed: int
    began: float
    ended: float | None = None
    """Seconds since 1970; None while it runs, or if it was killed."""
    facts: dict[str, object] = {}
    """Whatever tells it from others: players, engines, the live engine."""


class Rollup(msgspec.Struct, frozen=True):
    """What a series was in an interval."""

    metric: str
    labels: str
    resolution_s: int
    start: int
    """Of the interval, in seconds since 1970 UTC."""
    count: int
    """How many readings there were; the next five are of these."""
    sum: float
    last: float
    min: float
    max: float
    mean: float
    increase: float | None = None
    """Of a counter: how much was counted, restarts allowed for; None if unknown."""
    rate: float | None = None
    """Of a counter: increase per second of the time in which it was watched."""
    watched_s: float | None = None
    """Of a counter: that time; roll-ups are added up by it."""


class Progress(msgspec.Struct, frozen=True):
    """How far a job has read, and what it needs to go on."""

    position: int = -1
    """Rows of the log up to here are in the database."""
    anchor: int = -1
    """Rows from here on have to be read again to go on."""
    since: int = 0
    """The newest interval of the longest kind that has anything in it, in seconds."""


def fault_of(reading: Reading) -> str | None:
    """Why no database could keep this; None if it is as it should be."""
    if not math.isfinite(reading.value):
        return f"{reading.value} of {reading.metric} is no number that databases know"
    if not abs(reading.at) < AT_S_MAX:
        return f"{reading.at:g} of {reading.metric} are no seconds since 1970"
    return fault_of_name(reading.metric, reading.labels)


def fault_of_name(metric: str, labels: str) -> str | None:
    """The same, of a name."""
    if not metric:
        return "a metric has to have a name"
    for what, text, longest in (
        ("metric", metric, METRIC_CHARACTERS_MAX),
        ("labels", labels, LABELS_CHARACTERS_MAX),
    ):
        if len(text) > longest:
            return f"{what} {text[:40]!r}… has {len(text)} characters, allowed are {longest}"
        if "\0" in text or (not text.isascii() and _is_broken(text)):
            return f"{what} {text[:40]!r} is no text that databases know"
    return None


def _is_broken(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
