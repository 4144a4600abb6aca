"""The output of `match` for subscriptions that Spark serves, as feeds with stable sequences.

The broker recognizes a repeated notification by its sequence, so the sequence must be the same
whenever it is computed: after a restart, or after files were compacted.

The sequence of a *plain* notification (Boolean, evolving, following) comes from the position of its
publication: all matches of a publication are found in one batch, and batches are in the order of
positions. All subscriptions that a publication matches are delivered together, so that a session is
notified once. A table that is created anew has the same sequences, so nothing is delivered twice.

*Ranked* notifications are not in that order: a publication may move up long after it was published.
Their sequence is stored in the table. A new table starts counting anew, so the name of the feed
contains the id of the table.

The table does not have the payload of a publication: it is looked up in the lake by position. A
publication that several channels keep is in the lake several times, at adjacent positions; the
first one counts. This reads each file of the lake that has one of the publications.
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

from rove.lake.delta import DeltaTable, MissingTableError
from rove.lake.storage import Location, open_parquet, resolved
from rove.pipeline.jobs.notifications import RANKED, SCHEMA, WRITER
from rove.pipeline.lake import snapshots
from rove.pipeline.lake.log import NOTHING, Event, Lake
from rove.pipeline.lake.versions import Version
from rove.pipeline.ranked.ranking import is_ranked

PIECE_BITS: Final = 12
PIECE_SUBSCRIPTIONS: Final = 2_000
"""A publication with more matches is delivered in parts; 8 million subscriptions are 4,096."""
LOOK_UP_MAX: Final = 2_000
"""Publications that are looked up and held in memory at a time."""

BATCH_ROWS: Final = 1_000_000
"""Rows of the table that are held in memory at a time, about."""

_COLUMNS: Final = ("subscription", "position", "score", "promoted", "sequence")
Key = Literal["position", "sequence"]
Numbers = NDArray[np.int64]
_NOTHING_FOUND: Final = SCHEMA.empty_table().select(list(_COLUMNS))


class SparkNotification(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A publication and the subscriptions that it matches, as it is sent to the broker."""

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
    """The position of the publication, for the log."""


class FeedOffset(NamedTuple):
    """The last sequences that were read from the table."""

    plain: int = 0
    ranked: int = 0


class NotificationBatch(NamedTuple):
    """The next notifications of a feed; `end` is the offset after them."""

    found: Iterator[SparkNotification]
    is_ranked: bool
    end: FeedOffset
    position: int
    """With this batch, notifications of publications up to here are delivered."""
    rows: int
    """Rows of the table that were read."""


class FeedReader:
    """Reads the notifications of subscriptions that Spark serves."""

    def __init__(self, location: Location, lake: Lake) -> None:
        self.uri = resolved(location)
        self.lost = 0
        """Publications that are no longer in the lake."""
        self._lake = lake
        self._table: DeltaTable | None = None
        self._plain: set[int] = set()
        self._ranked: set[int] = set()
        self._read_up_to = NOTHING

    @property
    def name(self) -> str | None:
        """A unique name of this table; None if there is none yet."""
        table = self._opened()
        return None if table is None else table.id.replace("-", "")[:12]

    def has_news(self) -> bool:
        """Whether there are commits that `batches` has not read; reads the table's log."""
        is_new = self._table is None
        table = self._opened()
        return table is not None and (is_new or table.has_newer())

    def batches(self, offset: FeedOffset) -> Iterator[NotificationBatch]:
        """The notifications after an offset, in order: plain ones, then ranked ones."""
        table = self._opened()
        if table is None:
            return
        table.refresh()
        last, sequence = table.number(WRITER), table.number(RANKED) or 0
        if last is None:
            return
        self._read_subscriptions(last)
        offset_after = FeedOffset((last + 1) << PIECE_BITS, max(offset.ranked, sequence))
        if offset_after.plain > offset.plain:
            first = position_of(offset.plain) - 1
            for _, high in self._cut("position", first, last, self._plain):
                yield self._plain_batch(first, high, offset)
                first = high
        if sequence > offset.ranked:
            first = offset.ranked
            for _, high in self._cut("sequence", first, sequence, self._ranked):
                yield self._ranked_batch(first, high, offset_after, last)
                first = high

    def _opened(self) -> DeltaTable | None:
        if self._table is None:
            try:
                self._table = DeltaTable(self.uri)
            except MissingTableError:
                return None
        return self._table

    def _read_subscriptions(self, up_to: int) -> None:
        """Read which subscriptions Spark serves. The broker knows which of them have ended.

        So the snapshot that `match` has written is enough: it lacks only ended subscriptions.
        """
        made: list[Event | Version] = []
        if self._read_up_to == NOTHING:
            for engine in (None, "spark"):
                if kept := snapshots.load(self.uri, self._lake.id, engine, up_to):
                    self._read_up_to = kept.position
                    made += kept.versions
        events = self._lake.events(self._read_up_to, up_to, states_of=())
        made += (event for event in events if event.event == "made")
        for one in made:
            if one.engine == "spark":
                (self._ranked if is_ranked(one.text) else self._plain).add(one.number)
        self._read_up_to = max(self._read_up_to, up_to)

    def _plain_batch(self, after: int, up_to: int, offset: FeedOffset) -> NotificationBatch:
        table, rows = self._read("position", after, up_to, self._plain)
        table = table.filter(pc.is_null(table["sequence"]))
        found = self._plain_notifications(table, offset.plain)
        end = FeedOffset((up_to + 1) << PIECE_BITS, offset.ranked)
        return NotificationBatch(found, False, end, up_to, rows)

    def _ranked_batch(
        self, after: int, up_to: int, offset: FeedOffset, last: int
    ) -> NotificationBatch:
        table, rows = self._read("sequence", after, up_to, self._ranked)
        found = self._ranked_notifications(table.sort_by("sequence"))
        return NotificationBatch(found, True, FeedOffset(offset.plain, up_to), last, rows)

    # -- from the table ------------------------------------------------------------------------

    def _files(self, key: Key, after: int, up_to: int) -> list[dict[str, Any]]:
        """Files with rows in a range of positions or sequences, in the order of their ends."""
        assert self._table is not None, "the caller has opened it"
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
        """Rows of some subscriptions, and how many rows were read."""
        assert self._table is not None, "the caller has opened it"
        self._table.refresh()  # compacted files are deleted after a while
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

    def _plain_notifications(self, table: pa.Table, after: int) -> Iterator[SparkNotification]:
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
                    yield from _parts(position, numbers, publication, after)

    def _ranked_notifications(self, table: pa.Table) -> Iterator[SparkNotification]:
        for first in range(0, table.num_rows, LOOK_UP_MAX):
            rows = table.slice(first, LOOK_UP_MAX)
            publications = self._look_up(np.unique(rows["position"].to_numpy()))
            for row in rows.to_pylist():
                if (publication := publications.get(row["position"])) is not None:
                    yield SparkNotification(
                        sequence=row["sequence"],
                        subscriptions=[row["subscription"]],
                        score=row["score"],
                        promoted=row["promoted"],
                        position=row["position"],
                        **publication,
                    )

    # -- from the lake -------------------------------------------------------------------------

    def _look_up(self, positions: Numbers) -> dict[int, dict[str, Any]]:
        """Publications by position, without copies that other channels keep."""
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
    """The position of a plain notification's publication; NOTHING before the first."""
    return sequence - 1 >> PIECE_BITS


def _parts(
    position: int, numbers: list[int], publication: dict[str, Any], after: int
) -> Iterator[SparkNotification]:
    for piece, first in enumerate(range(0, len(numbers), PIECE_SUBSCRIPTIONS)):
        sequence = (position << PIECE_BITS) + piece + 1
        if sequence > after:
            some = numbers[first : first + PIECE_SUBSCRIPTIONS]
            yield SparkNotification(
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
