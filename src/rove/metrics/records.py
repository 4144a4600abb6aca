"""The records of the metrics database, and the names of series. Nothing here needs a database.

A series is a metric and its labels. Labels are one string, as Prometheus writes them but without
the braces, sorted by name: `engine="area",run="dense-1"`. One string, not a table of its own: it is
nearly always compared as a whole, is a key as it is, and is what `/metrics` writes anyway.

The metrics of counters end in `_total`; all others are gauges, which go up and down. Nothing else
says which is which.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

METRIC_CHARACTERS_MAX: Final = 200
LABELS_CHARACTERS_MAX: Final = 500
"""Together they are a key of MySQL, which may have 768 characters."""
AT_S_MAX: Final = 1e11
"""Some three thousand years around 1970; a larger number is in milliseconds by mistake."""
RESOLUTIONS_S: Final = (10, 60, 3_600)
"""The lengths of the intervals of roll-ups."""
COUNTER: Final = "_total"
_LABEL: Final = re.compile(r'([^=,"]+)="((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
_PLAIN: Final = {escaped: plain for plain, escaped in _ESCAPED.items()}

Kind = Literal["counter", "gauge"]


# --- records --------------------------------------------------------------------------------------


class Reading(msgspec.Struct, frozen=True, gc=False):
    """The value of a series at a moment."""

    metric: str
    labels: str
    """As Prometheus writes them, without the braces, by name: `channel="broker",design="lees"`."""
    at: float
    """Seconds since 1970 UTC; whole microseconds are kept."""
    value: float


class Series(msgspec.Struct, frozen=True):
    """A series that has readings or roll-ups."""

    metric: str
    labels: str
    kind: Kind


class Points(msgspec.Struct, frozen=True):
    """A series over a period, to be drawn: a counter by its rate, a gauge by its mean."""

    labels: str
    resolution_s: int
    """0 for the readings themselves."""
    at: list[float]
    """The moment of a reading, or the begin of an interval."""
    value: list[float]
    low: list[float]
    high: list[float]
    """The least and the greatest reading of a gauge; for a counter the same as `value`."""


class Total(msgspec.Struct, frozen=True):
    """A series over a whole period, as one figure."""

    metric: str
    labels: str
    value: float
    """Of a counter its rate per second, of a gauge the mean of its readings."""
    count: int
    """The number of readings."""


class RunRecord(msgspec.Struct, frozen=True):
    """One run of an experiment. Its series have its id in the label `run`."""

    id: str
    scenario: str
    title: str
    seed: int
    began: float
    ended: float | None = None
    """Seconds since 1970; None while it runs, or if it was killed."""
    facts: dict[str, object] = {}
    """What distinguishes it from other runs: players, engines, the live engine."""


class Rollup(msgspec.Struct, frozen=True):
    """The readings of a series in an interval."""

    metric: str
    labels: str
    resolution_s: int
    start: int
    """The begin of the interval, in seconds since 1970 UTC."""
    count: int
    """The number of readings; the next five are of these."""
    sum: float
    last: float
    min: float
    max: float
    mean: float
    increase: float | None = None
    """How much a counter has counted, restarts included; None if unknown."""
    rate: float | None = None
    """The increase per second of the time in which the counter was watched."""
    watched_s: float | None = None
    """That time; roll-ups are added up by it."""


class JobProgress(msgspec.Struct, frozen=True):
    """How far a job has read, and what it needs to continue."""

    position: int = -1
    """Rows of the log up to here are in the database."""
    anchor: int = -1
    """Rows from here on have to be read again to continue."""
    since: int = 0
    """The newest interval of the longest kind that is not empty, in seconds."""


# --- names of series ------------------------------------------------------------------------------


def kind_of(metric: str) -> Kind:
    """Whether a metric is a counter, which only grows, or a gauge."""
    return "counter" if metric.endswith(COUNTER) else "gauge"


def labels_text(labels: Mapping[str, str]) -> str:
    """Labels as one string, sorted by name."""
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(labels.items()))


def labels_of(text: str) -> dict[str, str]:
    """The labels in a string."""
    return {
        name: re.sub(r"\\[\\\"n]", lambda pair: _PLAIN[pair.group()], value)
        for name, value in _LABEL.findall(text)
    }


def split_series(series: str) -> tuple[str, str]:
    """Metric and labels of a name with braces: `rove_design_splits_total{design="lees"}`."""
    metric, _, rest = series.partition("{")
    return metric, rest.removesuffix("}")


def _escaped(value: str) -> str:
    return "".join(_ESCAPED.get(character, character) for character in value)


# --- validity -------------------------------------------------------------------------------------


def fault_of(reading: Reading) -> str | None:
    """Why no database can store a reading; None if it is valid."""
    if not math.isfinite(reading.value):
        return f"{reading.metric} has the value {reading.value}, which databases cannot store"
    if not abs(reading.at) < AT_S_MAX:
        return f"{reading.metric} has the time {reading.at:g}, which is not in seconds since 1970"
    return fault_of_name(reading.metric, reading.labels)


def fault_of_name(metric: str, labels: str) -> str | None:
    """Why no database can store a name; None if it is valid."""
    if not metric:
        return "a metric needs a name"
    for what, text, longest in (
        ("metric", metric, METRIC_CHARACTERS_MAX),
        ("labels", labels, LABELS_CHARACTERS_MAX),
    ):
        if len(text) > longest:
            return f"{what} {text[:40]!r}… has {len(text)} characters, and at most {longest} fit"
        if "\0" in text or (not text.isascii() and _is_broken(text)):
            return f"{what} {text[:40]!r} has characters that databases cannot store"
    return None


def _is_broken(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
