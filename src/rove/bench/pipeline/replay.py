"""Replaying a lake in which subscribers move: what their changes of state cost.

Followers want what is near them, in areas of some sizes, and jump to another place again and again
between publications: the worst case for an index, since nothing stays near where it was. The lake
is written first, and does not count. Then everything is replayed, from opening the lake to throwing
away what was found (`noop`), once. Names are `pipeline.replay.FOLLOWERSxCHANGES.PUBLICATIONS`:

- the name itself: seconds for all of it; `.cpu`: what all processes took meanwhile, which says more
  on a machine that others use, too;
- `.resting`: the same publications and areas, and nobody moves.

First the notifications of the first and of the last publications are compared with a plain loop
over all followers; when they differ, the benchmark stops.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rove.bench.match.engines import WrongAnswerError
from rove.bench.measure import Measure
from rove.bench.pipeline.ranked import family_cpu_s
from rove.lake.log import SCHEMA, WRITER, open_for_writing
from rove.pipeline.lake.log import Lake
from rove.pipeline.lake.replay import replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLLOWERS: Final = 1_000
CHANGES: Final = 5_000
PUBLICATIONS: Final = 1_000_000
GOAL_S: Final = 60.0
_SIZES: Final = tuple(0.002 * (step + 1) for step in range(16))
"""Half the width of areas; the world is a square of 1."""
_WRITTEN_ROWS: Final = 500_000
_SAMPLE: Final = 200
_AT_US: Final = 1_700_000_000_000_000

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]


class _World:
    """Who moves where, and what is published: places by position in the log."""

    def __init__(self, followers: int, changes: int, publications: int) -> None:
        chance = np.random.default_rng(1)
        total = followers * changes + publications
        self.followers, self.total = followers, total
        self.mover: Longs = np.full(total, -1)
        """By position, above those of the subscriptions: who moves, or -1: it is published."""
        moves = chance.choice(total, followers * changes, replace=False)
        self.mover[moves] = chance.permutation(np.repeat(np.arange(followers), changes))
        self.x: Floats = chance.random(total)
        self.y: Floats = chance.random(total)
        self.home: Floats = chance.random((followers, 2))
        self.size: Floats = chance.choice(_SIZES, followers)

    def expected(self, first: int, last: int) -> set[tuple[int, int]]:
        """Follower and position of all notifications, by a plain loop."""
        places = self.home.copy()
        earlier = np.flatnonzero(self.mover[:first] >= 0)
        # Of several places of one mover, the last one stays.
        places[self.mover[earlier]] = np.stack([self.x[earlier], self.y[earlier]], axis=1)
        found: set[tuple[int, int]] = set()
        for at in range(first, last):
            mover, x, y = self.mover[at], self.x[at], self.y[at]
            if mover >= 0:
                places[mover] = x, y
            else:
                is_near = (x >= places[:, 0] - self.size) & (x <= places[:, 0] + self.size)
                is_near &= (y >= places[:, 1] - self.size) & (y <= places[:, 1] + self.size)
                position = self.followers + at
                found |= {(int(one), position) for one in np.flatnonzero(is_near)}
        return found


def run(
    spark: SparkSession,
    followers: int = FOLLOWERS,
    changes: int = CHANGES,
    publications: int = PUBLICATIONS,
) -> Iterator[Measure]:
    """Seconds with movement, beside seconds without."""
    name = f"pipeline.replay.{followers}x{changes}.{publications}"
    with tempfile.TemporaryDirectory(prefix="rove-bench-") as folder:
        resting = _World(followers, 0, publications)
        lake = _written(Path(folder) / "resting", resting)
        _check(spark, lake, resting)
        rest_s, _ = _timed(spark, lake)
        yield Measure(f"{name}.resting", rest_s, "s")
        moving = _World(followers, changes, publications)
        lake = _written(Path(folder) / "moving", moving)
        _check(spark, lake, moving)
        took_s, cpu_s = _timed(spark, lake)
    is_whole = (followers, changes, publications) == (FOLLOWERS, CHANGES, PUBLICATIONS)
    yield Measure(
        name,
        took_s,
        "s",
        took_s / rest_s,
        f"{name}.resting",
        goal=f"<= {GOAL_S:.0f} s" if is_whole else None,
        reached=took_s <= GOAL_S if is_whole else None,
    )
    yield Measure(f"{name}.cpu", cpu_s, "s")


def _timed(spark: SparkSession, lake: Path) -> tuple[float, float]:
    """Seconds on the clock, and of CPU in all processes."""
    start, cpu_s = time.perf_counter(), family_cpu_s()
    replay(spark, Lake(lake)).write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start, family_cpu_s() - cpu_s


def _check(spark: SparkSession, lake: Path, world: _World) -> None:
    """Compare the first and the last publications."""
    last = world.total
    for first, end in ((0, min(_SAMPLE, last)), (max(0, last - _SAMPLE), last)):
        rows = replay(
            spark, Lake(lake), after=world.followers + first - 1, up_to=world.followers + end - 1
        ).select("subscription", "position")
        found = {(row[0], row[1]) for row in rows.collect()}
        if found != world.expected(first, end):
            raise WrongAnswerError(f"replaying positions {first} to {end} differs from a loop")


# -- writing ---------------------------------------------------------------------------------------


def _written(folder: Path, world: _World) -> Path:
    """A lake as a broker would have written it, but in large commits."""
    table = open_for_writing(folder)
    made = [
        _event("made", number=number, filter="#", text=_text(size), me={"x": x, "y": y})
        for number, (size, (x, y)) in enumerate(
            zip(world.size.tolist(), world.home.tolist(), strict=True)
        )
    ]
    events = np.arange(world.followers)
    table.append(_rows("subscriptions", events, events, made), WRITER, world.followers - 1)
    for begin in range(0, world.total, _WRITTEN_ROWS):
        here = slice(begin, min(begin + _WRITTEN_ROWS, world.total))
        places = list(zip(world.x[here].tolist(), world.y[here].tolist(), strict=True))
        mover = world.mover[here]
        positions = world.followers + begin + np.arange(len(mover))
        moves, published = np.flatnonzero(mover >= 0), np.flatnonzero(mover < 0)
        changed = [
            _event("state", changes={"x": x, "y": y}) for x, y in map(places.__getitem__, moves)
        ]
        said = [
            msgspec.json.encode({"x": x, "y": y}) for x, y in map(places.__getitem__, published)
        ]
        both = [
            _rows("publications", positions[published], np.full(len(published), -1), said),
            _rows("subscriptions", positions[moves], mover[moves], changed),
        ]
        table.append(pa.concat_tables(both), WRITER, int(positions[-1]))
    return folder


def _text(size: float) -> str:
    near = (f"{axis} BETWEEN me.{axis} - {size!r} AND me.{axis} + {size!r}" for axis in "xy")
    return " AND ".join(near)


def _event(event: str, **said: object) -> bytes:
    return msgspec.json.encode({"event": event, **said})


def _rows(kind: str, positions: Longs, clients: Longs, payloads: list[bytes]) -> pa.Table:
    count = len(positions)
    is_event = kind == "subscriptions"
    at_us = pa.array(_AT_US + positions)
    columns: dict[str, Any] = {
        "kind": pa.repeat(kind, count),
        "channel": pa.nulls(count, pa.string()) if is_event else pa.repeat("world", count),
        "position": positions,
        "at": at_us.cast(SCHEMA.field("at").type),
        "day": at_us.cast(SCHEMA.field("at").type).cast(pa.date32()),
        "topic": pa.repeat("" if is_event else "world/a", count),
        "id": pa.array(positions).cast(pa.string()),
        "client_id": [f"f{one}" for one in clients.tolist()],
        "payload": pa.array(payloads, pa.binary()),
        "qos": pa.repeat(pa.scalar(0, pa.int8()), count),
    }
    nothing = {name: pa.nulls(count, SCHEMA.field(name).type) for name in SCHEMA.names}
    return pa.table(nothing | columns).select(SCHEMA.names).cast(SCHEMA)
