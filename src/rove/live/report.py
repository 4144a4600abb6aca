"""Results of a run of a world, for analysis and for the metrics database.

For analysis they are Parquet: a row for each engine (or audience) and sample, a column for each
figure. The metrics database gets the run, and readings of the same shape as those of a broker:
`rove_world_subscriptions` with `engine="area",run="…",scenario="dense"`, so the same charts draw
both. The seconds of the world count from the moment when the run began.

A virtual minute has sixty samples of four engines: 28 KB of Parquet, or 3,900 readings and 600
roll-ups, which SQLite takes in 0.1 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rove.errors import UsageError
from rove.metrics.records import Reading, RunRecord
from rove.metrics.world_readings import Who, initial_readings, world_readings
from rove.world.runs.scenario_run import RunSample, ScenarioResult

if TYPE_CHECKING:
    from rove.metrics.database import Database

READINGS_AT_ONCE: Final = 50_000
"""In one transaction."""

# --- Parquet ----------------------------------------------------------------------------------


def write_parquet(result: ScenarioResult, folder: Path) -> list[Path]:
    """`engines.parquet` and, where there are any, `audiences.parquet`; their paths."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise UsageError(
            f"Parquet needs pyarrow ({error}); install it with `pip install rove`"
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
        from rove.metrics.database import Database
    except ImportError as error:
        raise UsageError(
            f"the metrics database needs SQLAlchemy ({error}); "
            "install it with `pip install rove[databases]`"
        ) from None
    return Database(place)


def write_metrics(result: ScenarioResult, database: Database, run: str, began: int) -> int:
    """Put a run and its samples into the metrics database; how many readings they are.

    `began` is in seconds since 1970. The roll-ups of the samples are written as well, so that they
    can be drawn after the readings were removed, with or without a pipeline.
    """
    from rove.metrics.rollups import roll_up

    found = readings(result, run, began)
    for begin in range(0, len(found), READINGS_AT_ONCE):
        database.put_readings(found[begin : begin + READINGS_AT_ONCE])
    database.put(roll_up(found))
    database.put_run(run_of(result, run, began))
    return len(found)


def run_of(result: ScenarioResult, run: str, began: int) -> RunRecord:
    """What a run was, for the list of runs."""
    return RunRecord(
        run,
        result.scenario,
        result.title,
        result.seed,
        float(began),
        began + result.seconds,
        {
            "players": result.players,
            "entities": result.entities,
            "servers": result.servers,
            "engines": [engine.name for engine in result.engines],
            "live": next((engine.name for engine in result.engines if engine.live), None),
            "trace_hash": result.trace_hash,
        },
    )


def readings(result: ScenarioResult, run: str, began: int) -> list[Reading]:
    """The samples as readings; counters begin at nothing when the run does."""
    found: list[Reading] = []
    seen: set[tuple[str, str]] = set()
    kinds: tuple[tuple[Who, Sequence[RunSample]], ...] = (
        ("engine", result.samples),
        ("audience", result.heard),
    )
    for who, samples in kinds:
        for sample in samples:
            if (who, sample.source) not in seen:
                seen.add((who, sample.source))
                found += initial_readings(sample, run, result.scenario, began, who)
            found += world_readings(sample, run, result.scenario, began, who)
    return found
