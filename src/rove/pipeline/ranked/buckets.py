"""Ranked subscriptions over the log: the broker's windows, run by bucket.

A window needs its publications in order. So candidates are found in any order and then collected by
bucket: subscription n belongs to bucket n % buckets, and one task runs a bucket, in the order of
positions. Between two batches the state of a bucket is one value of bytes, so a run can stop after
any row and continue elsewhere: the notifications do not depend on how rows are divided into
batches. Memory is that of the windows and one batch, never of the whole log.

Windows slide by the times of the publications. If a publication moves up because another left the
window, its notification has the time when that happened, as in the broker. Members of shared
subscriptions are ranked separately: the member that the broker would have chosen is not known.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rove.errors import RoveError
from rove.lang.tree import Me, rank_of, walk
from rove.lang.values import change_state
from rove.match.ranked.inputs import Inputs
from rove.match.ranked.members import Records
from rove.match.ranked.pool import RankedPool, parsed
from rove.match.ranked.scores import Floats, Integers
from rove.match.saved import PoolState, SavedError, load, save
from rove.pipeline.lake.log import NOTHING, Event
from rove.pipeline.lake.version_index import AT_TYPE, RANKED_ROWS, Publications
from rove.pipeline.ranked.row_store import RowStore

NOTIFICATIONS: Final = pa.schema(
    [
        ("subscription", pa.int64()),
        ("position", pa.int64()),
        ("id", pa.string()),
        ("at", AT_TYPE),
        ("score", pa.float64()),
        ("promoted", pa.bool_()),
    ]
)
_ROWS_MAX: Final = 100_000
_PAIRS_MAX: Final = 2_000_000
"""Pairs in a batch for the windows; a pair takes some 100 bytes."""


class RankingError(RoveError):
    """Rows, events and state that do not fit together."""


def run_bucket(
    bucket: int,
    buckets: int,
    state: bytes | None,
    events: Sequence[Event],
    rows: pa.Table,
    until: float | None = None,
) -> tuple[pa.Table, bytes]:
    """The notifications of one bucket's ranked subscriptions, and the new state.

    `rows` are publications from `VersionIndex.ranked_rows`, `events` those of ranked subscriptions,
    states and starts; both only above the position of the state. Events of other buckets and of
    plain subscriptions are ignored. With `until`, windows slide to that moment in the end.
    """
    run = Bucket(bucket, buckets) if state is None else Bucket.load(bucket, buckets, state)
    run.expect(events)
    tables = [*run.run(rows), *run.finish()]
    if until is not None:
        tables.append(run.advance(until))
    return pa.concat_tables([NOTIFICATIONS.empty_table(), *tables]), run.save()


def is_ranked(text: str) -> bool:
    """Whether an expression is ranked; most are not, and need not be parsed."""
    return "order" in text.lower() and parsed(text).rank is not None


class _Subscription(msgspec.Struct, array_like=True):
    """What is needed of a subscription besides its window."""

    client_id: str
    no_local: bool
    durable: bool
    me: dict[str, object] | None
    """The state of the subscriber; None if the score does not use it."""


class _Saved(msgspec.Struct, array_like=True):
    """The saved state of a bucket, without its windows."""

    bucket: int
    buckets: int
    now: float
    entered_at: float
    position: int
    subscriptions: dict[int, _Subscription]


class _BucketState(msgspec.Struct):
    """A bucket as it is saved."""

    bucket: _Saved
    names: bytes
    windows: PoolState


_NAMES: Final = pa.schema(
    [("position", pa.int64()), ("id", pa.string()), ("client_id", pa.string())]
)


class Bucket:
    """The windows of one bucket, and their subscriptions."""

    def __init__(self, bucket: int, buckets: int) -> None:
        self._bucket = bucket
        self._buckets = buckets
        self._windows = RankedPool(shares=False)
        self._names = RowStore("position", _NAMES)
        self._subscriptions: dict[int, _Subscription] = {}
        self._ended: list[int] = []
        """Subscriptions that end in the next batch."""
        self._of_client: dict[str, dict[int, None]] = {}
        """Subscriptions whose scores use the state of a client."""
        self._now = self._entered_at = -math.inf
        """The last moment of rows and events, and that of the last row."""
        self._position = NOTHING
        self._waiting: deque[Event] = deque()

    # -- running -------------------------------------------------------------------------------

    def expect(self, events: Iterable[Event]) -> None:
        """Add events between or after the next rows."""
        here = filter(self._concerns, events)
        self._waiting.extend(sorted(here, key=lambda one: one.position))

    def run(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Process rows, and events up to them, in the order of positions; yields notifications."""
        for piece in _pieces(rows):
            batch = _Batch(piece)
            self._check(batch)
            self._names.add(piece)
            first = 0
            while self._waiting and self._waiting[0].position < batch.positions[-1]:
                event = self._waiting.popleft()
                number = int(np.searchsorted(batch.positions, event.position))
                if self._cuts(event):
                    yield self._tell(self._enter(batch, first, number))
                    first = number
                self._now = max([self._now, *batch.at[first:number][-1:].tolist()])
                self._take(event, number - first)
            yield self._tell(self._enter(batch, first, len(batch)))
            self._names.keep(self._windows.live_sequences)

    def finish(self) -> Iterator[pa.Table]:
        """Process the events after the last row."""
        while self._waiting:
            event = self._waiting.popleft()
            if self._cuts(event):
                yield self._tell(self._windows.run_changes())
            self._take(event, 0)
        yield self._tell(self._windows.run_changes())

    def _cuts(self, event: Event) -> bool:
        """Whether earlier rows must be run first, since clocks or numbers may start anew."""
        if event.event == "started":
            return True
        return event.event == "made" and self._windows.is_ending(event.number)

    def _enter(self, batch: _Batch, first: int, end: int) -> Records:
        if first == end:
            return self._windows.run_changes()
        at = batch.at[first:end]
        if at[0] < self._entered_at or (np.diff(at) < 0).any():
            raise RankingError(
                f"times decrease in the rows from position {batch.positions[first]} to "
                f"{batch.positions[end - 1]}; they may do so only at a start of the broker"
            )
        self._entered_at = self._now = float(at[-1])
        self._position = int(batch.positions[end - 1])
        return batch.run(self._windows, first, end)

    def advance(self, now: float) -> pa.Table:
        """Let windows slide to a moment."""
        self._now = max(self._now, now)
        return self._tell(self._windows.advance(now))

    def _tell(self, records: Records) -> pa.Table:
        """Notifications from the output of windows, with `no_local` applied."""
        names = self._names.find(records["sequence"])
        found = pa.table(
            [
                pa.array(records["id"]),
                pa.array(records["sequence"]),
                names["id"],
                pa.array(np.rint(records["at"] * 1e6).astype(np.int64)).cast(AT_TYPE),
                pa.array(records["score"]),
                pa.array(records["promoted"].astype(bool)),
            ],
            schema=NOTIFICATIONS,
        )
        keeps = np.ones(len(found), bool)
        own = {id: one.client_id for id, one in self._subscriptions.items() if one.no_local}
        for i in np.flatnonzero(np.isin(records["id"], list(own))).tolist() if own else ():
            keeps[i] = names["client_id"][i].as_py() != own[int(records["id"][i])]
        while self._ended:
            del self._subscriptions[self._ended.pop()]
        return found.filter(pa.array(keeps))

    def _check(self, batch: _Batch) -> None:
        if batch.positions[0] <= self._position:
            raise RankingError(
                f"the windows of bucket {self._bucket} are at position {self._position}, and a row "
                f"is at {batch.positions[0]}; give rows above the state's position, each once"
            )

    # -- changing ------------------------------------------------------------------------------

    def _concerns(self, event: Event) -> bool:
        if event.event in ("state", "started"):
            return True
        if event.number % self._buckets != self._bucket:
            return False
        return event.event == "ended" or is_ranked(event.text)

    def _take(self, event: Event, number: int) -> None:
        """Apply an event before publication `number` of the next batch."""
        match event.event:
            case "made":
                self._make(event)
            case "ended" if event.number in self._windows:
                self._windows.end(event.number, event.at, number)
                self._forget(event.number)
            case "state":
                self._change(event, number)
            case "started":
                self._start(event, number)
        self._now = max(self._now, event.at)

    def _make(self, event: Event) -> None:
        # A log may have it twice: when it was made, and when a new log was started.
        if event.number in self._windows:
            return
        self._windows.add(event.number, event.text, event.accepted_at, event.me)
        nodes = walk(rank_of(parsed(event.text)).score)
        me = dict(event.me) if any(type(node) is Me for node in nodes) else None
        new = _Subscription(event.client_id, event.no_local, event.durable, me)
        self._subscriptions[event.number] = new
        self._follow(event.number, new)

    def _follow(self, number: int, one: _Subscription) -> None:
        if one.me is not None:
            self._of_client.setdefault(one.client_id, {})[number] = None

    def _forget(self, number: int) -> None:
        one = self._subscriptions[number]
        if one.me is not None:
            del self._of_client[one.client_id][number]
        # Its notifications up to then are still to be sent.
        self._ended.append(number)

    def _change(self, event: Event, number: int) -> None:
        for id in self._of_client.get(event.client_id, ()):
            me = self._subscriptions[id].me
            assert me is not None, "_of_client has only subscriptions that use a state"
            change_state(me, event.changes)
            self._windows.set_state(id, me, number)

    def _start(self, event: Event, number: int) -> None:
        """The broker was started, with empty windows and only durable subscriptions.

        Before, windows slid as long as it was running: up to the last moment in its log.
        """
        self._now = max(self._now, event.lived_until)
        for id in [id for id, one in self._subscriptions.items() if not one.durable]:
            self._windows.end(id, self._now, number)
            self._forget(id)
        self._windows.empty(number, self._now)
        self._now = self._entered_at = -math.inf

    # -- saving --------------------------------------------------------------------------------

    def save(self) -> bytes:
        """The state as bytes."""
        self._names.keep(self._windows.live_sequences, at_once=True)
        saved = _Saved(
            self._bucket,
            self._buckets,
            self._now,
            self._entered_at,
            self._position,
            self._subscriptions,
        )
        state = _BucketState(saved, self._names.save(), self._windows.state())
        return b"".join(save("bucket", state))

    @classmethod
    def load(cls, bucket: int, buckets: int, state: bytes) -> Bucket:
        """What was saved; RankingError if it is another bucket's, or none."""
        try:
            head, _ = load(state, "bucket", _BucketState)
        except SavedError as error:
            raise RankingError(
                f"the state of bucket {bucket} cannot be read: {error} (beside a table of "
                "notifications, states are in the folder _states)"
            ) from error
        saved = head.bucket
        if (saved.bucket, saved.buckets) != (bucket, buckets):
            raise RankingError(
                f"the state is that of bucket {saved.bucket} of {saved.buckets}, "
                f"not of {bucket} of {buckets}; use a new output to change the number of buckets"
            )
        run = cls(bucket, buckets)
        run._now, run._entered_at, run._position = saved.now, saved.entered_at, saved.position
        run._subscriptions = saved.subscriptions
        for id, one in run._subscriptions.items():
            run._follow(id, one)
        run._names = RowStore.load("position", head.names)
        run._windows = RankedPool.from_state(head.windows)
        return run


class _Batch:
    """Rows in the order of positions, for windows."""

    def __init__(self, rows: pa.Table) -> None:
        (batch,) = rows.combine_chunks().to_batches()
        self._publications = Publications(batch)
        self.positions = self._publications.positions
        self.at: Floats = self._publications.at
        matched = batch["matched"]
        self._starts = np.asarray(matched.offsets)
        self._ids: Integers = np.asarray(matched.values)

    def __len__(self) -> int:
        return len(self.positions)

    def run(self, windows: RankedPool, first: int, end: int) -> Records:
        """Add the rows from `first` to `end` to windows."""
        inputs = Inputs(self._publications.attributes[first:end], self.at[first:end])
        starts = self._starts[first : end + 1]
        numbers = np.repeat(np.arange(end - first), np.diff(starts))
        ids = self._ids[starts[0] : starts[-1]]
        try:
            return windows.run(inputs, self.positions[first:end], numbers, ids)
        except KeyError as error:
            raise RankingError(
                f"a publication between positions {self.positions[first]} and "
                f"{self.positions[end - 1]} matched subscription {error}, which has no event"
            ) from None


def _pieces(rows: pa.Table) -> Iterator[pa.Table]:
    """Rows in the order of positions, in parts of limited size."""
    if not len(rows):
        return
    rows = rows.cast(RANKED_ROWS)
    positions = np.asarray(rows["position"])
    if (np.diff(positions) <= 0).any():
        rows = rows.sort_by("position")
    pairs = np.cumsum(np.asarray(pc.list_value_length(rows["matched"])))
    first = 0
    while first < len(rows):
        before = pairs[first - 1] if first else 0
        end = int(np.searchsorted(pairs, before + _PAIRS_MAX, "right"))
        end = min(max(end, first + 1), first + _ROWS_MAX)
        yield rows.slice(first, end - first)
        first = end
