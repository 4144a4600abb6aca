"""What the table of `match` holds for subscriptions that Spark serves, in one order with numbers
that stay.

Whatever is handed to the broker has a sequence by which it is known again, so the sequence must be
the same however often it is worked out: after a restart, after files were put together.

*Plain* notifications (Boolean, evolving, following) go by the position of their publication: what a
publication meets is found in one batch, and batches follow each other in the order of positions.
All subscriptions that it meets go together, so that a session can be notified once. A table that is
begun anew has them under the same numbers, and adds nothing.

*Ranked* ones come when they come: something moves up long after it was published. They have a
sequence in the table. One that is begun anew counts anew, so its id goes into the name of the feed.

The text of a publication is not in the table: it is looked up in the lake by position. One that is
kept by several channels is there several times, side by side; the first counts. Costs a read of
each of the lake's files that has one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import unquote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rove.lake.delta import MissingTableError, Table
from rove.lake.storage import Location, open_parquet, resolved
from rove.pipeline.jobs.notifications import RANKED, SCHEMA, WRITER
from rove.pipeline.lake import snapshots
from rove.pipeline.lake.log import NOTHING, Event, Lake
from rove.pipeline.lake.versions import Version
from rove.pipeline.ranked.ranking import is_ranked

PIECE_BITS: Final = 12
PIECE_SUBSCRIPTIONS: Final = 2_000
"""A publication that more subscriptions meet is handed over in pieces; 8 million are 4,096."""
LOOK_UP_MAX: Final = 2_000
"""Publications that are looked up, and held, at once."""

BATCH_ROWS: Final = 1_000_000
"""Rows of the table that are held at once, about."""

_COLUMNS: Final = ("subscription", "position", "score", "promoted", "sequence")
Key = Literal["position", "sequence"]
Numbers = NDArray[np.int64]
_NOTHING_FOUND: Final = SCHEMA.empty_table().select(list(_COLUMNS))


class FeedNotification(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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


class FeedOffset(NamedTuple):
    """Up to which sequence the table has been read."""

    plain: int = 0
    ranked: int = 0


class FeedBatch(NamedTuple):
    """What is next; `end` is the place after it."""

    found: Iterator[FeedNotification]
    is_ranked: bool
    end: FeedOffset
    position: int
    """Notifications of publications up to here are done with it."""
    rows: int
    """Of the table that were looked at."""


class FeedReader:
    """Reads the table, as far as it is about subscriptions that Spark serves."""

    def __init__(self, location: Location, lake: Lake) -> None:
        self.uri = resolved(location)
        self.lost = 0
        """Publications that the lake has no more."""
        self._lake = lake
        self._table: Table | None = None
        self._plain: set[int] = set()
        self._ranked: set[int] = set()
        self._learnt_up_to = NOTHING

    @property
    def name(self) -> str | None:
        """What this table is called and no other; None if there is none yet."""
        table = self._opened()
        return None if table is None else table.id.replace("-", "")[:12]

    def has_news(self) -> bool:
        """Whether there are commits that `batches` has not seen; costs a look."""
        is_new = self._table is None
        table = self._opened()
        return table is not None and (is_new or table.has_newer())

    def batches(self, place: FeedOffset) -> Iterator[FeedBatch]:
        """What comes after a place, in order: plain ones, then ranked ones."""
        table = self._opened()
        if table is None:
            return
        table.refresh()
        last, sequence = table.number(WRITER), table.number(RANKED) or 0
        if last is None:
            return
        self._learn(last)
        place_after = FeedOffset((last + 1) << PIECE_BITS, max(place.ranked, sequence))
        if place_after.plain > place.plain:
            first = position_of(place.plain) - 1
            for _, high in self._cut("position", first, last, self._plain):
                yield self._plain_batch(first, high, place)
                first = high
        if sequence > place.ranked:
            first = place.ranked
            for _, high in self._cut("sequence", first, sequence, self._ranked):
                yield self._ranked_batch(first, high, place_after, last)
                first = high

    def _opened(self) -> Table | None:
        if self._table is None:
            try:
                self._table = Table(self.uri)
            except MissingTableError:
                return None
        return self._table

    def _learn(self, up_to: int) -> None:
        """Which subscriptions are Spark's; what ends is the broker's to know.

        So those that had ended when `match` kept who is subscribed are not asked for.
        """
        made: list[Event | Version] = []
        if self._learnt_up_to == NOTHING:
            for engine in (None, "spark"):
                if kept := snapshots.load(self.uri, self._lake.id, engine, up_to):
                    self._learnt_up_to = kept.position
                    made += kept.versions
        events = self._lake.events(self._learnt_up_to, up_to, states_of=())
        made += (event for event in events if event.event == "made")
        for one in made:
            if one.engine == "spark":
                (self._ranked if is_ranked(one.text) else self._plain).add(one.number)
        self._learnt_up_to = max(self._learnt_up_to, up_to)

    def _plain_batch(self, after: int, up_to: int, place: FeedOffset) -> FeedBatch:
        table, rows = self._read("position", after, up_to, self._plain)
        table = table.filter(pc.is_null(table["sequence"]))
        found = self._plain_ones(table, place.plain)
        end = FeedOffset((up_to + 1) << PIECE_BITS, place.ranked)
        return FeedBatch(found, False, end, up_to, rows)

    def _ranked_batch(self, after: int, up_to: int, place: FeedOffset, last: int) -> FeedBatch:
        table, rows = self._read("sequence", after, up_to, self._ranked)
        found = self._ranked_ones(table.sort_by("sequence"))
        return FeedBatch(found, True, FeedOffset(place.plain, up_to), last, rows)

    # -- from the table ------------------------------------------------------------------------

    def _files(self, key: Key, after: int, up_to: int) -> list[dict[str, Any]]:
        """Files with rows above and up to a position or a sequence, by where they end."""
        assert self._table is not None, "whoever asks has found one"
        names = ["path", "num_records", f"min.{key}", f"max.{key}"]
        listed = self._table.files()
        if not set(names) <= set(listed.column_names):  # no file has any
            return []
        files = listed.select(names).rename_columns(["path", "rows", "low", "high"]).to_pylist()
        here = [one for one in files if one["high"] is not None]
        here = [one for one in here if one["low"] <= up_to and one["high"] > after]
        return sorted(here, key=lambda one: one["high"])

    def _cut(
        self, key: Key, after: int, up_to: int, numbers: set[int]
    ) -> Iterator[tuple[int, int]]:
        """Ranges that fit into memory; one range if there are no subscriptions."""
        rows = 0
        for file in self._files(key, after, up_to) if numbers else ():
            rows += file["rows"]
            if rows >= BATCH_ROWS and after < file["high"] < up_to:
                yield after, file["high"]
                after, rows = file["high"], 0
        yield after, up_to

    def _read(self, key: Key, after: int, up_to: int, numbers: set[int]) -> tuple[pa.Table, int]:
        """Rows of some subscriptions, and how many were looked at."""
        assert self._table is not None, "whoever asks has found one"
        self._table.refresh()  # files that were put together since go in a while
        wanted = pa.array(sorted(numbers), pa.int64())
        found: list[pa.Table] = []
        rows = 0
        for file in self._files(key, after, up_to) if numbers else ():
            with open_parquet(self.uri, unquote(file["path"])) as opened:
                table = opened.read(list(_COLUMNS))
            is_here = pc.and_(pc.greater(table[key], after), pc.less_equal(table[key], up_to))
            table = table.filter(is_here)
            rows += table.num_rows
            found.append(table.filter(pc.is_in(table["subscription"], wanted)))
        return pa.concat_tables(found) if found else _NOTHING_FOUND, rows

    # -- in order ------------------------------------------------------------------------------

    def _plain_ones(self, table: pa.Table, after: int) -> Iterator[FeedNotification]:
        subscriptions, positions = (table[name].to_numpy() for name in _COLUMNS[:2])
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

    def _ranked_ones(self, table: pa.Table) -> Iterator[FeedNotification]:
        for first in range(0, table.num_rows, LOOK_UP_MAX):
            rows = table.slice(first, LOOK_UP_MAX)
            publications = self._look_up(np.unique(rows["position"].to_numpy()))
            for row in rows.to_pylist():
                if (publication := publications.get(row["position"])) is not None:
                    yield FeedNotification(
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
) -> Iterator[FeedNotification]:
    for piece, first in enumerate(range(0, len(numbers), PIECE_SUBSCRIPTIONS)):
        sequence = (position << PIECE_BITS) + piece + 1
        if sequence > after:
            some = numbers[first : first + PIECE_SUBSCRIPTIONS]
            yield FeedNotification(
                sequence=sequence, subscriptions=some, position=position, **publication
            )


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
