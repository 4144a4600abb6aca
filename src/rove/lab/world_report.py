"""What a run of a world gives, for analysis and for the metrics database.

Analysis gets Parquet: a row for each engine (or audience) and sample, a column for each figure.
The metrics database gets roll-ups of the same shape as those of a broker:
`rove_world_subscriptions` with `engine="area",run="…",scenario="dense"`, so whatever draws the one
draws the other. The seconds of the world count from the moment when the run began.

A virtual minute has sixty samples of four engines: 28 KB of Parquet, or 4,400 roll-ups, which
SQLite takes in 0.3 s.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rove.errors import UsageError
from rove.world.results import Result, Sample

if TYPE_CHECKING:
    from rove.pipeline.database import Database, Rollup

RESOLUTIONS_S: Final = (1, 10, 60)
_NOW: Final = frozenset(("subscriptions", "subscribers"))
"""Figures that say how many there are; all others are totals that grow."""

# --- Parquet ----------------------------------------------------------------------------------


def write_parquet(result: Result, folder: Path) -> list[Path]:
    """`engines.parquet` and, where there are any, `audiences.parquet`; their paths."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise UsageError(
            f"Parquet needs pyarrow ({error}); install it with `pip install rove[world]`"
        ) from None
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for kind, samples in (("engine", result.samples), ("audience", result.heard)):
        if not samples:
            continue
        rows = [
            {
                "scenario": result.scenario,
                "seed": result.seed,
                "players": result.players,
                kind: sample.source,
                **({"live": sample.live} if kind == "engine" else {}),
                "at_s": sample.at,
                **sample.figures,
            }
            for sample in samples
        ]
        path = folder / f"{kind}s.parquet"
        about = {b"trace_hash": result.trace_hash.encode(), b"title": result.title.encode()}
        pq.write_table(pa.Table.from_pylist(rows).replace_schema_metadata(about), path)
        written.append(path)
    return written


# --- the metrics database ---------------------------------------------------------------------


def open_database(place: str) -> Database:
    """The metrics database at a path or a URL."""
    try:
        from rove.pipeline.database import Database
    except ImportError as error:
        raise UsageError(
            f"the metrics database needs SQLAlchemy ({error}); "
            "install it with `pip install rove[spark]`"
        ) from None
    return Database(place)


def write_metrics(result: Result, database: Database, run: str, began: int) -> int:
    """Put the samples of a run into the metrics database; how many roll-ups they are.

    `began` is when, in seconds since 1970.
    """
    return database.put(rollups(result, run, began))


def rollups(
    result: Result, run: str, began: int, resolutions_s: Sequence[int] = RESOLUTIONS_S
) -> Iterator[Rollup]:
    """The samples by metric, labels and interval."""
    for kind, samples in (("engine", result.samples), ("audience", result.heard)):
        by_source = sorted(samples, key=lambda sample: (sample.source, sample.at))
        for source, of in groupby(by_source, key=lambda sample: sample.source):
            named = {kind: source, "run": run, "scenario": result.scenario}
            labels = ",".join(f'{name}="{_escaped(text)}"' for name, text in sorted(named.items()))
            yield from _of_series(list(of), labels, began, resolutions_s)


def _of_series(
    samples: list[Sample], labels: str, began: int, resolutions_s: Sequence[int]
) -> Iterator[Rollup]:
    for name in samples[0].figures:
        readings = [(sample.at, sample.figures[name]) for sample in samples]
        for resolution_s in resolutions_s:
            yield from _by_interval(name, labels, readings, began, resolution_s)


def _by_interval(
    name: str, labels: str, readings: Iterable[tuple[float, float]], began: int, resolution_s: int
) -> Iterator[Rollup]:
    from rove.pipeline.database import Rollup

    counts = name not in _NOW
    metric = f"rove_world_{name}_total" if counts else f"rove_world_{name}"
    before, before_at = 0.0, 0.0

    def interval(reading: tuple[float, float]) -> int:
        return math.floor((began + reading[0]) / resolution_s) * resolution_s

    for start, found in groupby(readings, key=interval):
        inside = list(found)
        values = [value for _, value in inside]
        last_at = inside[-1][0]
        increase = values[-1] - before
        watched_s = last_at - before_at
        yield Rollup(
            metric,
            labels,
            resolution_s,
            start,
            count=len(values),
            sum=math.fsum(values),
            last=values[-1],
            min=min(values),
            max=max(values),
            mean=math.fsum(values) / len(values),
            increase=increase if counts else None,
            rate=increase / watched_s if counts and watched_s > 0 else None,
        )
        before, before_at = values[-1], last_at


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
