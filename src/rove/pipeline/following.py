"""The states of subscribers as data: what `me.` was at every position, joined when it is asked for.

A change of a subscriber's state is no new version of its subscriptions. It is a row of a table, by
client, variable and position. Subscriptions that it concerns while they hold are *followers*. A
worker cuts the log into blocks of some ten thousand changes, and makes an index of each block
(`rove.match.following`) when it meets the first publication of it. So memory is that of a block,
and what is built grows with the changes that somebody asks for.

Events become columns at some 2 µs a change, on all cores where there are many.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rove.lang.normal import Conjunction, normalise
from rove.lang.parser import parse
from rove.lang.tree import Subscription as Text
from rove.match.following import Follower, FollowingIndex, States
from rove.match.subjects import Subjects
from rove.pipeline.index_files import (
    Filters,
    IndexFileError,
    Longs,
    Side,
    SideName,
    filtered,
    shares_of,
)
from rove.pipeline.lake import NOTHING, STATE, Lake
from rove.pipeline.versions import Version, asked_of
from rove.pipeline.workers import in_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BLOCK_STATES: Final = 65_536
"""Changes of one block, about; more if there are many followers."""
CHANGES: Final = pa.schema(
    [
        ("client_id", pa.string()),
        ("name", pa.string()),
        ("position", pa.int64()),
        ("number", pa.float64()),  # if it is one below 2^53
        ("value", pa.binary()),  # as JSON, if it is no float; null in both if it was removed
    ]
)
_CHANGES_SQL: Final = "client_id string, name string, position long, number double, value binary"
_READ: Final = ("position", "client_id", "payload")
_BLOCKS_KEPT: Final = 2
_OPEN_MAX: Final = 4
_IN_DRIVER_MAX: Final = 100_000
"""Events that are not worth a job of Spark."""
_EXACT: Final = 2**53
_HEAD: Final = b"rove followers 1"

Wanted = Mapping[str, frozenset[str]]
"""By client the variables that somebody asks for."""


class _Change(msgspec.Struct, frozen=True):
    changes: dict[str, object] = {}


_DECODER: Final = msgspec.json.Decoder(_Change)


# -- which, and of whom --------------------------------------------------------------------------


def wanted_of(versions: Iterable[Version]) -> dict[str, frozenset[str]]:
    """Whose variables are asked for."""
    wanted: dict[str, frozenset[str]] = {}
    for one in versions:
        if names := asked_of(one.text):
            wanted[one.client_id] = wanted.get(one.client_id, frozenset()) | names
    return wanted


def followers_of(
    versions: Sequence[Version], changes: pa.Table
) -> tuple[list[Version], list[Version]]:
    """Those whose state changes while they hold, and all others."""
    series = _Series(changes)
    following: list[Version] = []
    others: list[Version] = []
    for one in versions:
        is_following = any(
            series.changes_within(one.client_id, name, one.since, one.until)
            for name in asked_of(one.text)
        )
        (following if is_following else others).append(one)
    return following, others


# -- changes as columns --------------------------------------------------------------------------


def changes_of(
    events: Iterable[tuple[int, str, Mapping[str, object]]], wanted: Wanted, after: int = NOTHING
) -> pa.Table:
    """Changes (position, client, changes; in order) as columns, by client, variable and position.

    Of what lies at `after` or before, only the last of each variable.
    """
    nobody: frozenset[str] = frozenset()
    before: dict[tuple[str, str], tuple[int, float | None, bytes | None]] = {}
    columns: tuple[list[Any], ...] = ([], [], [], [], [])
    add_client, add_name, add_position, add_number, add_value = (one.append for one in columns)
    for position, client_id, changes in events:
        asked = wanted.get(client_id, nobody)
        for name, value in changes.items():
            if name not in asked:
                continue
            number, other = _stored(value)
            if position <= after:
                before[client_id, name] = position, number, other
                continue
            add_client(client_id)
            add_name(name)
            add_position(position)
            add_number(number)
            add_value(other)
    for (client_id, name), (position, number, other) in before.items():
        add_client(client_id)
        add_name(name)
        add_position(position)
        add_number(number)
        add_value(other)
    return _sorted(pa.table(list(columns), schema=CHANGES))


def _stored(value: object) -> tuple[float | None, bytes | None]:
    kind = type(value)
    if kind is float:
        return value, None  # type: ignore[return-value]
    if value is None:
        return None, None
    if kind is int and -_EXACT < value < _EXACT:  # type: ignore[operator]
        return float(value), msgspec.json.encode(value)  # type: ignore[arg-type]
    return None, msgspec.json.encode(value)


def _sorted(changes: pa.Table) -> pa.Table:
    return changes.sort_by([(name, "ascending") for name in ("client_id", "name", "position")])


def changes_in(spark: SparkSession, lake: Lake, wanted: Wanted, after: int, up_to: int) -> pa.Table:
    """What a lake tells of these variables up to a position."""
    if not wanted:
        return CHANGES.empty_table()
    files = lake.files("subscriptions", up_to=up_to)
    if sum(file.rows for file in files) <= _IN_DRIVER_MAX:
        tables = (lake.read(file, _READ, up_to=up_to) for file in files)
        every = (change for table in tables for change in _read(table, wanted))
        return changes_of(every, wanted, after)
    found = lake.event_rows(spark, up_to, _READ, content="slices").mapInArrow(
        functools.partial(_parsed, dict(wanted), after), _CHANGES_SQL
    )
    return _latest(_sorted(found.toArrow().cast(CHANGES)), after)


@in_worker
def _parsed(
    wanted: Wanted, after: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    from rove.pipeline.source import rows_of

    for batch in rows_of(batches, _READ):
        found = changes_of(_read(pa.Table.from_batches([batch]), wanted), wanted, after)
        yield from found.combine_chunks().to_batches()


def _read(rows: pa.Table, wanted: Wanted) -> Iterator[tuple[int, str, Mapping[str, object]]]:
    """The changes of some clients among the rows of events."""
    is_wanted = pc.and_(
        pc.is_in(rows["client_id"], pa.array(list(wanted), pa.string())),
        pc.match_substring(rows["payload"], STATE),
    )
    rows = rows.filter(is_wanted)
    decode = _DECODER.decode
    for position, client_id, payload in zip(
        rows["position"].to_pylist(),
        rows["client_id"].to_pylist(),
        rows["payload"].to_pylist(),
        strict=True,
    ):
        yield position, client_id, decode(payload).changes


def _latest(changes: pa.Table, after: int) -> pa.Table:
    """Without what was changed again at `after` or before."""
    positions = changes["position"].to_numpy()
    if after == NOTHING or not len(positions):
        return changes
    same = np.ones(len(positions), bool)
    for name in ("client_id", "name"):
        column = changes[name].combine_chunks()
        same[:-1] &= pc.equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    same[-1] = False
    is_replaced = same & (np.append(positions[1:], after + 1) <= after)
    return changes.filter(pa.array(~is_replaced))


class LatestStates:
    """What subscribers' variables were last changed to, as far as the log was taken."""

    def __init__(self) -> None:
        self._last: dict[str, dict[str, tuple[int, object]]] = {}
        """By client and variable: at which position, and to what (None: removed)."""

    def take(self, changes: Iterable[tuple[int, str, Mapping[str, object]]]) -> None:
        """Go on with changes (position, client, changes), in order."""
        for position, client_id, changed in changes:
            last = self._last.setdefault(client_id, {})
            for name, value in changed.items():
                last[name] = (position, value)

    def since(self, version: Version, after: int) -> Version:
        """A version as it goes on from where the log was taken to, at `after` or before."""
        me = dict(version.me)
        for name, (position, value) in self._last.get(version.client_id, {}).items():
            if position > version.since:  # what was before, it was made with
                me[name] = value
        me = {name: value for name, value in me.items() if value is not None}
        return msgspec.structs.replace(version, me=me, since=max(version.since, after))

    def forget(self, client_id: str) -> None:
        """Nobody asks for the state of a client any more."""
        self._last.pop(client_id, None)


# -- the file ------------------------------------------------------------------------------------


def write_following(
    followers: Sequence[Version],
    changes: pa.Table,
    path: Path,
    block_states: int = BLOCK_STATES,
) -> None:
    """Write followers and the changes of what they ask for."""
    positions = np.sort(changes["position"].to_numpy())
    step = max(block_states, 4 * len(followers))
    cuts = np.unique(positions[step::step]).tolist()
    head = msgspec.msgpack.encode((cuts, list(followers)))
    schema = CHANGES.with_metadata({_HEAD: head})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_table(changes.cast(schema).combine_chunks())


class _Series:
    """Changes by client and variable."""

    def __init__(self, changes: pa.Table) -> None:
        changes = changes.combine_chunks()
        self.positions: Longs = changes["position"].to_numpy()
        self.numbers: npt.NDArray[np.float64] = changes["number"].to_numpy()
        self._values = changes["value"]
        self._spans: dict[tuple[str, str], tuple[int, int]] = {}
        grouped = changes.select(["client_id", "name"]).append_column(
            "row", pa.array(np.arange(len(changes)))
        )
        found = grouped.group_by(["client_id", "name"], use_threads=False).aggregate(
            [("row", "min"), ("row", "max")]
        )
        for client_id, name, first, last in zip(
            *(found[name].to_pylist() for name in ("client_id", "name", "row_min", "row_max")),
            strict=True,
        ):
            self._spans[client_id, name] = first, last + 1

    def span(self, client_id: str, name: str) -> tuple[int, int]:
        """Where the changes of a variable stand."""
        return self._spans.get((client_id, name), (0, 0))

    def changes_within(self, client_id: str, name: str, since: int, until: int) -> bool:
        """Whether a variable changes above a position and below another."""
        begin, end = self.span(client_id, name)
        here = self.positions[begin:end]
        at = int(np.searchsorted(here, since, "right"))
        return at < len(here) and bool(here[at] < until)

    def value(self, change: int) -> object:
        """What a variable was changed to; None if it was removed."""
        stored = self._values[change].as_py()
        if stored is not None:
            return msgspec.json.decode(stored)
        number = float(self.numbers[change])
        return None if np.isnan(number) else number


class Following:
    """Followers and their subscribers' states, in a worker."""

    def __init__(self, path: str) -> None:
        try:
            with pa.memory_map(path) as file:
                table = pa.ipc.open_file(file).read_all()
            head = table.schema.metadata[_HEAD]
        except (OSError, KeyError, TypeError, pa.ArrowInvalid) as error:
            raise IndexFileError(f"cannot open the followers in {path}: {error}") from error
        cuts, followers = msgspec.msgpack.decode(head, type=tuple[list[int], list[Version]])
        self._cuts = np.array(cuts, np.int64)
        self._series = _Series(table)
        self._sides: dict[SideName, _Followers] = {"plain": _Followers(), "ranked": _Followers()}
        for one in followers:
            is_ranked = parse(one.text, accepted=True).rank is not None
            self._sides["ranked" if is_ranked else "plain"].add(one)
        self._blocks: dict[tuple[SideName, int], Side] = {}

    def sides(self, name: SideName, positions: Longs) -> Iterator[tuple[Side, Longs]]:
        """Who may get publications, and which of these: block by block."""
        if not len(self._sides[name]):
            return
        numbers = np.searchsorted(self._cuts, positions, "left")
        for number in np.unique(numbers).tolist():
            side = self._block(name, number)
            if not side.is_empty:
                yield side, np.flatnonzero(numbers == number)

    def _block(self, name: SideName, number: int) -> Side:
        found = self._blocks.pop((name, number), None)
        if found is None:
            ends = [NOTHING, *self._cuts.tolist(), np.iinfo(np.int64).max]
            found = self._sides[name].block(
                self._series, ends[number], ends[number + 1], is_ranked=name == "ranked"
            )
        self._blocks[name, number] = found
        while len(self._blocks) > _BLOCKS_KEPT:
            del self._blocks[next(iter(self._blocks))]
        return found


class _Followers:
    """The followers of one side."""

    def __init__(self) -> None:
        self._versions: list[Version] = []
        self._subjects = Subjects()
        self._filters = Filters()
        self._known: dict[int, Follower] = {}

    def __len__(self) -> int:
        return len(self._versions)

    def add(self, version: Version) -> None:
        self._versions.append(version)
        self._filters.add(version.filter)

    def block(self, series: _Series, after: int, up_to: int, *, is_ranked: bool) -> Side:
        """The states of all followers that hold somewhere above a position and up to another."""
        index = FollowingIndex(self._subjects)
        since, until = self._ends
        held = np.flatnonzero((since < up_to) & (until > after)).tolist()
        versions = [self._versions[place] for place in held]
        states = [_states(one, series, after, up_to) for one in versions]
        for place, some in zip(held, states, strict=True):
            index.add_states(self._follower(place), some)
        index.settle_fresh()
        counts = [len(some.since) for some in states]
        firsts = np.cumsum([0, *counts]).tolist()
        own, shared = shares_of(() if is_ranked else versions)
        nothing = np.empty(0, np.int64)
        return Side(
            index,
            np.repeat(np.array([one.number for one in versions], np.int64), counts),
            np.concatenate([nothing, *(some.since for some in states)]),
            np.concatenate([nothing, *(some.until for some in states)]),
            np.repeat(np.array([one.accepted_at for one in versions]), counts),
            self._filters,
            {
                id: client_id
                for place, client_id in own.items()
                for id in range(firsts[place], firsts[place + 1])
            },
            {firsts[place]: group for place, group in shared.items()},
        )

    @functools.cached_property
    def _ends(self) -> tuple[Longs, Longs]:
        since = np.array([one.since for one in self._versions], np.int64)
        return since, np.array([one.until for one in self._versions], np.int64)

    def _follower(self, place: int) -> Follower:
        found = self._known.get(place)
        if found is None:
            version = self._versions[place]
            conjunctions = _conjunctions(version.text, self._filters.add(version.filter))
            found = Follower(conjunctions, version.accepted_at, self._subjects)
            self._known[place] = found
        return found


@functools.lru_cache(maxsize=4_096)
def _conjunctions(text: str, number: int) -> tuple[Conjunction, ...]:
    condition = parse(text, accepted=True).condition
    return normalise(Text(filtered(number, condition))).conjunctions


def _states(version: Version, series: _Series, after: int, up_to: int) -> States:
    """What a follower's subscriber was, one state after the other."""
    begin, end = max(version.since, after), min(version.until, up_to)
    names = sorted(asked_of(version.text))
    borders = [np.array([begin], np.int64)]
    spans: dict[str, tuple[int, Longs]] = {}
    for name in names:
        first, last = series.span(version.client_id, name)
        here = series.positions[first:last]
        # What was changed before it was made, it was made with.
        skipped = int(np.searchsorted(here, version.since, "right"))
        here = here[skipped:]
        spans[name] = first + skipped, here
        borders.append(here[np.searchsorted(here, begin, "right") : np.searchsorted(here, end)])
    since = np.unique(np.concatenate(borders))
    places: dict[str, Longs] = {}
    numbers: dict[str, npt.NDArray[np.float64]] = {}
    for name, (first, here) in spans.items():
        found = np.searchsorted(here, since, "right") - 1
        at_first = _stored(version.me.get(name))[0]
        initial = np.nan if at_first is None else at_first
        changed = series.numbers[np.maximum(found, 0) + first] if len(here) else initial
        numbers[name] = np.where(found >= 0, changed, initial)
        places[name] = np.where(found >= 0, found + first, -1)

    def at(state: int) -> dict[str, object]:
        me: dict[str, object] = {}
        for name, of_name in places.items():
            place = int(of_name[state])
            value = version.me.get(name) if place < 0 else series.value(place)
            if value is not None:
                me[name] = value
        return me

    return States(since, np.append(since[1:], end), numbers, at)


@functools.lru_cache(maxsize=_OPEN_MAX)
def open_following(path: str) -> Following:
    """What was written; the same object whenever this process asks again."""
    return Following(path)
