"""Runs of an experiment as one table: how large, how sure.

One run says little: machines are busy, and figures jump. Here the lines that `rove bench --json`
writes, of several runs, or the runs that a metrics database has, become one line for each measure,
with an interval for the mean and one for the median. The table is small, so it is computed by plain
functions over arrays; for lakes of results the same functions run inside Spark, group by group.

`rove.base.intervals` says what intervals these are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from rove.base.intervals import mean_interval, median_interval
from rove.errors import RoveError
from rove.metrics.records import COUNTER, kind_of, labels_of
from rove.metrics.world_readings import WORLD

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from rove.metrics.database import Database, RunRecord

_GROUP: Final = ("name", "unit", "against")
OBSERVATIONS: Final = "name string, value double, unit string, ratio double, against string"
SUMMARIES: Final = (
    "name string, unit string, against string, n long, mean double, mean_low double, "
    "mean_high double, median double, median_low double, median_high double, deviation double, "
    "ratio double, ratio_low double, ratio_high double"
)


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
    database: Database, run: RunRecord, series: Iterable[tuple[str, dict[str, str], str]]
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
