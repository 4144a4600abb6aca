"""Runs of an experiment as one table: how large, how sure.

One run says little: machines are busy, and figures jump. Here the lines that `rove bench --json`
writes, of several runs, or the runs that a metrics database has, become one line for each measure,
with an interval for the mean and one for the median. The table is small, so it is computed by plain
functions over arrays; for lakes of results the same functions run inside Spark, group by group.

**The mean's interval** is Student's, exact when what is measured is spread normally. The quantile
is found by bisection of the distribution's closed form for whole degrees of freedom (a finite
sum), so that no statistics package is needed for one number. **The median's** makes no assumption:
it is the percentile bootstrap, with a seed that never changes, so that the same runs always give
the same table; of few runs it cannot be wider than they are.

10,000 resamples of 30 runs take 0.1 s.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from rove.errors import RoveError
from rove.metrics.naming import COUNTER, WORLD, kind_of, labels_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from rove.metrics.database import Database, Run

CONFIDENCE: Final = 0.95
RESAMPLES: Final = 10_000
SEED: Final = 20_130_113
FREEDOM_EXACT_MAX: Final = 10_000
"""Beyond it two terms of a series around the normal distribution are right to eleven digits."""
_DRAWN_MAX: Final = 1_000_000
"""Numbers that are drawn at a time."""
_GROUP: Final = ("name", "unit", "against")
OBSERVATIONS: Final = "name string, value double, unit string, ratio double, against string"
SUMMARIES: Final = (
    "name string, unit string, against string, n long, mean double, mean_low double, "
    "mean_high double, median double, median_low double, median_high double, deviation double, "
    "ratio double, ratio_low double, ratio_high double"
)

Interval = tuple[float, float]


class SummaryError(RoveError):
    """The results of runs cannot be read."""


class Observation(msgspec.Struct, frozen=True):
    """One figure of one run, as `rove bench --json` writes it."""

    name: str
    value: float
    unit: str = ""
    ratio: float | None = None
    against: str | None = None


class Summary(msgspec.Struct, frozen=True):
    """All runs of one figure. Bounds are None where one run is all there is."""

    name: str
    unit: str
    against: str | None
    n: int
    mean: float
    mean_low: float | None
    mean_high: float | None
    median: float
    median_low: float | None
    median_high: float | None
    deviation: float | None
    """Of the sample: by n - 1."""
    ratio: float | None = None
    """The mean of what was compared in each run, and its interval."""
    ratio_low: float | None = None
    ratio_high: float | None = None


# --- reading and grouping -------------------------------------------------------------------------


def read(paths: Iterable[Path]) -> list[Observation]:
    """The lines of all files; SummaryError names the first that is none."""
    found = []
    decoder = msgspec.json.Decoder(Observation)
    for path in paths:
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise SummaryError(f"cannot read {path}: {error.strerror}") from error
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                found.append(decoder.decode(line))
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise SummaryError(
                    f"{path}, line {number} is no measure: {error}; `rove bench --json` writes them"
                ) from error
    return found


def of_runs(database: Database, scenario: str | None = None) -> list[Observation]:
    """What the runs of a metrics database came to, those of one scenario or all; oldest first.

    Counters by their rate per second of the run, others by their mean. What several engines of a
    run have is compared with the one that was live.
    """
    by_run: dict[str, list[tuple[str, dict[str, str], str]]] = {}
    for series in database.series():
        labels = labels_of(series.labels)
        if "run" in labels:
            by_run.setdefault(labels["run"], []).append((series.metric, labels, series.labels))
    found: list[Observation] = []
    for run in reversed(database.runs()):
        if scenario is None or run.scenario == scenario:
            found += _of_run(database, run, by_run.get(run.id, []))
    return found


def _of_run(
    database: Database, run: Run, series: Iterable[tuple[str, dict[str, str], str]]
) -> Iterator[Observation]:
    values = {
        (metric, *_who(labels)): total.value
        for metric, labels, text in series
        for total in database.totals(metric, text)
    }
    live = run.facts.get("live")
    for (metric, kind, name), value in values.items():
        figure = metric.removeprefix(WORLD).removesuffix(COUNTER)
        other = values.get((metric, kind, str(live)))
        is_compared = kind == "engine" and name != live and bool(other)
        yield Observation(
            ".".join(part for part in (run.scenario, name, figure) if part),
            value,
            "1/s" if kind_of(metric) == "counter" else "",
            value / other if is_compared and other else None,
            str(live) if is_compared else None,
        )


def _who(labels: Mapping[str, str]) -> tuple[str, str]:
    """Whose series it is: of which engine, or audience."""
    return next(
        ((kind, labels[kind]) for kind in ("engine", "audience") if kind in labels), ("", "")
    )


def summarise(observations: Iterable[Observation]) -> list[Summary]:
    """One for each name, unit and what it is compared with, in the order in which they came."""
    groups: dict[tuple[str, str, str | None], list[Observation]] = {}
    for one in observations:
        groups.setdefault((one.name, one.unit, one.against), []).append(one)
    return [
        summary_of(
            *key,
            np.array([one.value for one in group]),
            np.array([one.ratio for one in group if one.ratio is not None], np.float64),
        )
        for key, group in groups.items()
    ]


def summary_of(
    name: str,
    unit: str,
    against: str | None,
    values: NDArray[np.float64],
    ratios: NDArray[np.float64],
) -> Summary:
    """The summary of what was found in several runs."""
    mean_low, mean_high = mean_interval(values) or (None, None)
    median_low, median_high = median_interval(values) or (None, None)
    ratio_low, ratio_high = mean_interval(ratios) or (None, None)
    return Summary(
        name=name,
        unit=unit,
        against=against,
        n=len(values),
        mean=float(values.mean()),
        mean_low=mean_low,
        mean_high=mean_high,
        median=float(np.median(values)),
        median_low=median_low,
        median_high=median_high,
        deviation=float(values.std(ddof=1)) if len(values) > 1 else None,
        ratio=float(ratios.mean()) if len(ratios) else None,
        ratio_low=ratio_low,
        ratio_high=ratio_high,
    )


# --- intervals ------------------------------------------------------------------------------------


def mean_interval(values: NDArray[np.float64], confidence: float = CONFIDENCE) -> Interval | None:
    """Where the mean is, as sure as that; None for fewer than two values."""
    n = len(values)
    if n < 2:
        return None
    mean = float(values.mean())
    half = t_quantile(confidence, n - 1) * float(values.std(ddof=1)) / math.sqrt(n)
    return mean - half, mean + half


def median_interval(
    values: NDArray[np.float64],
    confidence: float = CONFIDENCE,
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Interval | None:
    """Where the median is, by drawing the same number of values again and again."""
    n = len(values)
    if n < 2:
        return None
    ordered = np.sort(values)  # the order of the runs shall not matter
    drawn = np.random.default_rng(seed)
    at_a_time = max(1, _DRAWN_MAX // n)
    medians = np.concatenate(
        [
            np.median(ordered[drawn.integers(0, n, (min(at_a_time, resamples - begin), n))], axis=1)
            for begin in range(0, resamples, at_a_time)
        ]
    )
    rest = (1 - confidence) / 2
    low, high = np.quantile(medians, [rest, 1 - rest])
    return float(low), float(high)


@functools.cache
def t_quantile(confidence: float, freedom: int) -> float:
    """The t with which Student's distribution has this share of its mass from -t to t."""
    if freedom > FREEDOM_EXACT_MAX:
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    low, high = 0.0, 1.0
    while t_mass(high, freedom) < confidence:
        low, high = high, 2 * high
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if t_mass(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def t_mass(t: float, freedom: int) -> float:
    """The share of Student's distribution from -t to t.

    A finite sum for whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4): each term
    is the one before it by cos² and a ratio of neighbouring numbers.
    """
    angle = math.atan2(t, math.sqrt(freedom))
    square = math.cos(angle) ** 2
    is_odd = freedom % 2 == 1
    steps = np.arange(2 if is_odd else 1, freedom - 1, 2, dtype=np.float64)
    terms = np.cumprod(np.concatenate(([1.0], steps / (steps + 1) * square)))
    if not is_odd:
        return math.sin(angle) * float(terms.sum())
    series = 0.0 if freedom == 1 else math.sin(angle) * math.cos(angle) * float(terms.sum())
    return 2 / math.pi * (angle + series)


# --- Spark ----------------------------------------------------------------------------------------


def observations(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """The lines of files or folders; reading fails at a line that is not JSON."""
    return spark.read.schema(OBSERVATIONS).option("mode", "FAILFAST").json(list(paths))


def summaries(observed: DataFrame) -> DataFrame:
    """The same as `summarise`, for observations in Spark."""
    return observed.groupBy(*_GROUP).applyInArrow(_summarised, SUMMARIES)


def _summarised(key: tuple[Any, ...], table: Any) -> Any:
    import pyarrow as pa

    name, unit, against = (each.as_py() for each in key)
    values = table["value"].to_numpy()
    ratios = table["ratio"].drop_null().to_numpy()
    row = msgspec.structs.asdict(summary_of(name, unit, against, values, ratios))
    return pa.table({column: [value] for column, value in row.items()}, _arrow_schema())


def _arrow_schema() -> Any:
    import pyarrow as pa

    types = {"string": pa.string(), "double": pa.float64(), "long": pa.int64()}
    columns = (column.split() for column in SUMMARIES.split(","))
    return pa.schema([(name, types[kind]) for name, kind in columns])
