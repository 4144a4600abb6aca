"""What a sink holds for subscriptions that Spark serves, in one order with numbers that stay.

Whatever is handed to the broker has a sequence by which it is known again, so the sequence must be
the same however often it is worked out: after a restart, after the sink has folded its batches.

*Plain* notifications (Boolean, evolving, following) go by the position of their publication: what a
publication meets is found in one batch, and batches follow each other in the order of positions.
All subscriptions that it meets go together, so that a session can be notified once. A sink that is
begun anew finds them under the same numbers, and adds nothing.

*Ranked* ones come when they come: something moves up long after it was published. They go by the
number of their row in the sink, which folding does not change. A sink that is begun anew counts
anew, so each sink has a name of its own (`sink_name`) that goes into the name of the feed.

The text of a publication is not in the sink: it is looked up in the lake by position. One that is
kept by several channels is there several times, side by side; the first counts. Costs a read of
each of the lake's files that has one of them.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from rove.pipeline import sink as sinks
from rove.pipeline.lake import NOTHING, Lake
from rove.pipeline.ranking import is_ranked
from rove.pipeline.sink import Manifest, Part

PIECE_BITS: Final = 12
PIECE_SUBSCRIPTIONS: Final = 2_000
"""A publication that more subscriptions meet is handed over in pieces; 8 million are 4,096."""
LOOK_UP_MAX: Final = 2_000
"""Publications that are looked up, and held, at once."""

SETTLED_NS: Final = 100_000_000

_COLUMNS: Final = ("subscription", "position", "score", "promoted")
_NAME: Final = "_feed"
Numbers = NDArray[np.int64]


class Found(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A publication and the subscriptions that it meets, as the broker is told."""

    sequence: int
    subscriptions: list[int]
    topic: str
    at: float
    id: str
    client_id: str
    payload: bytes
    user: list[tuple[str, str]] = []
    qos: int
    score: float | None = None
    promoted: bool | None = None
    position: int = 0
    """Of the publication, for the log."""


class Place(NamedTuple):
    """Up to which sequence the sink has been read."""

    plain: int = 0
    ranked: int = 0


class Stretch(NamedTuple):
    """What one manifest adds; `end` is the place after it."""

    plain: Iterator[Found]
    ranked: Iterator[Found]
    end: Place
    position: int
    rows: int


class Served:
    """Reads a sink, as far as it is about subscriptions that Spark serves."""

    def __init__(self, folder: Path, lake: Lake) -> None:
        self.folder = folder
        self.lost = 0
        """Publications that the lake has no more."""
        self._lake = lake
        self._plain: set[int] = set()
        self._ranked: set[int] = set()
        self._learnt_up_to = NOTHING
        self._seen_ns = -1

    def has_news(self) -> bool:
        """Whether manifests have come or gone since this was last asked; costs a look."""
        try:
            changed_ns = (self.folder / "_manifests").stat().st_mtime_ns
        except FileNotFoundError:
            return False
        is_news = changed_ns != self._seen_ns
        # A clock of file systems stands still for some milliseconds: so soon, more may follow.
        is_settled = time.time_ns() - changed_ns > SETTLED_NS
        self._seen_ns = changed_ns if is_settled else -1
        return is_news

    def stretches(self, place: Place) -> Iterator[Stretch]:
        """What comes after a place, in order.

        FileNotFoundError where the sink has folded batches since this began: begin again.
        """
        known = sinks.manifests(self.folder)
        if not known:
            return
        self._learn(known[-1].last)
        row = 0
        for manifest in known:
            first_row, row = row, row + manifest.rows
            end = Place((manifest.last + 1) << PIECE_BITS, row)
            if end.plain > place.plain or end.ranked > place.ranked:
                yield self._stretch(manifest, first_row, place, end)

    def _learn(self, up_to: int) -> None:
        """Which subscriptions are Spark's; what ends is the broker's to know."""
        for event in self._lake.events(self._learnt_up_to, up_to, states_of=()):
            if event.event == "made" and event.engine == "spark":
                (self._ranked if is_ranked(event.text) else self._plain).add(event.number)
        self._learnt_up_to = max(self._learnt_up_to, up_to)

    def _stretch(self, manifest: Manifest, first_row: int, place: Place, end: Place) -> Stretch:
        plain: list[tuple[Numbers, Numbers]] = []
        ranked: list[pa.Table] = []
        for part in manifest.parts:
            rows, first_row = first_row, first_row + part.rows
            if not self._concerns(part, first_row, place):
                continue
            table = pq.ParquetFile(self.folder / sinks.PARTS / part.name).read(_COLUMNS)
            subscriptions, positions = (table[name].to_numpy() for name in _COLUMNS[:2])
            is_wanted = np.isin(subscriptions, np.fromiter(self._plain, np.int64))
            is_wanted &= positions >= position_of(place.plain)
            plain.append((positions[is_wanted], subscriptions[is_wanted]))
            numbers = np.arange(rows + 1, first_row + 1)
            is_wanted = np.isin(subscriptions, np.fromiter(self._ranked, np.int64))
            is_wanted &= numbers > place.ranked
            table = table.append_column("sequence", pa.array(numbers))
            ranked.append(table.filter(pa.array(is_wanted)))
        return Stretch(
            self._plain_ones(plain, place.plain),
            self._ranked_ones(ranked),
            end,
            manifest.last,
            manifest.rows,
        )

    def _concerns(self, part: Part, last_row: int, place: Place) -> bool:
        if self._plain and part.last >= position_of(place.plain):
            return True
        return bool(self._ranked) and last_row > place.ranked

    # -- in order ------------------------------------------------------------------------------

    def _plain_ones(self, pairs: Sequence[tuple[Numbers, Numbers]], after: int) -> Iterator[Found]:
        if not pairs:
            return
        positions, subscriptions = (np.concatenate(columns) for columns in zip(*pairs, strict=True))
        order = np.lexsort((subscriptions, positions))
        positions, subscriptions = positions[order], subscriptions[order]
        distinct, begins = np.unique(positions, return_index=True)
        ends = np.append(begins[1:], len(positions))
        for first in range(0, len(distinct), LOOK_UP_MAX):
            some = slice(first, first + LOOK_UP_MAX)
            publications = self._look_up(distinct[some])
            for position, begin, end in zip(
                distinct[some].tolist(), begins[some], ends[some], strict=True
            ):
                if (publication := publications.get(position)) is not None:
                    numbers = subscriptions[begin:end].tolist()
                    yield from _pieces(position, numbers, publication, after)

    def _ranked_ones(self, tables: Sequence[pa.Table]) -> Iterator[Found]:
        for table in tables:
            for first in range(0, table.num_rows, LOOK_UP_MAX):
                rows = table.slice(first, LOOK_UP_MAX)
                publications = self._look_up(np.unique(rows["position"].to_numpy()))
                for row in rows.to_pylist():
                    if (publication := publications.get(row["position"])) is not None:
                        yield Found(
                            sequence=row["sequence"],
                            subscriptions=[row["subscription"]],
                            score=row["score"],
                            promoted=row["promoted"],
                            position=row["position"],
                            **publication,
                        )

    # -- from the lake -------------------------------------------------------------------------

    def _look_up(self, positions: Numbers) -> dict[int, dict[str, Any]]:
        """Publications by position, without those that only repeat the one before them."""
        if not len(positions):
            return {}
        wanted = np.union1d(positions, positions - 1)
        rows: dict[int, dict[str, Any]] = {}
        for file in self._lake.files("publications", int(wanted[0]) - 1, int(wanted[-1])):
            begin, end = np.searchsorted(wanted, (file.first, file.last + 1))
            if begin < end:
                low, high = int(wanted[begin]), int(wanted[end - 1])
                table = self._lake.read(file, after=low - 1, up_to=high)
                rows |= _rows_at(table, wanted[begin:end])
        found = {position: rows[position] for position in positions.tolist() if position in rows}
        self.lost += len(positions) - len(found)
        return {
            position: publication
            for position, publication in found.items()
            if rows.get(position - 1) != publication
        }


def position_of(sequence: int) -> int:
    """Where the publication of a plain notification is; NOTHING below the first."""
    return sequence - 1 >> PIECE_BITS


def _pieces(
    position: int, numbers: list[int], publication: dict[str, Any], after: int
) -> Iterator[Found]:
    for piece, first in enumerate(range(0, len(numbers), PIECE_SUBSCRIPTIONS)):
        sequence = (position << PIECE_BITS) + piece + 1
        if sequence > after:
            some = numbers[first : first + PIECE_SUBSCRIPTIONS]
            yield Found(sequence=sequence, subscriptions=some, position=position, **publication)


def _rows_at(table: pa.Table, positions: Numbers) -> dict[int, dict[str, Any]]:
    """The publications at some positions."""
    table = table.filter(pc.is_in(table["position"], pa.array(positions)))
    moments = table["at"].cast(pa.int64()).to_pylist()
    return {
        row["position"]: {
            "topic": row["topic"],
            "at": at_us / 1e6,
            "id": row["id"],
            "client_id": row["client_id"],
            "payload": row["payload"],
            "user": [(each["name"], each["value"]) for each in row["user"] or ()],
            "qos": row["qos"],
        }
        for row, at_us in zip(table.drop_columns(["at"]).to_pylist(), moments, strict=True)
    }


def sink_name(folder: Path) -> str:
    """What this sink is called; made up when it is first asked for, the same from then on."""
    path = folder / _NAME
    if not path.exists():
        unfinished = folder / f".{_NAME}.{uuid.uuid4().hex}"
        with unfinished.open("w", encoding="ascii") as file:
            file.write(uuid.uuid4().hex[:12])
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(unfinished, path)
        except FileExistsError:
            pass  # somebody else was faster
        finally:
            unfinished.unlink()
    return path.read_text(encoding="ascii")
