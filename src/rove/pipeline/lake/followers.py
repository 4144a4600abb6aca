"""Subscribers' states as data: `me.` at every position, joined to publications on demand.

A change of a subscriber's state does not make a new version of its subscriptions. It is a row of a
table, by client, variable and position. Subscriptions whose variables change while they hold are
*followers*. A worker cuts the log into blocks of some hundred thousand changes, and builds an index
of a block (`rove.match.index.followers`) for its first publication. So the memory is that of a
block, and the work grows with the changes of variables that subscriptions use.

Events become columns at some 2 µs a change; many events are read on all cores.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rove.base.paged import packed
from rove.lang.normal_form import normalise
from rove.lang.parser import parse
from rove.lang.tree import Subscription as Text
from rove.match.index.followers import Follower, FollowingIndex, States
from rove.match.index.subjects import Subjects
from rove.pipeline.lake.log import NOTHING, STATE, Lake
from rove.pipeline.lake.versions import ANY_TOPIC, Version, state_variables
from rove.pipeline.matching.index_files import (
    IndexSide,
    SideName,
    has_filter,
    opened,
    shares_of,
    write_packed,
)
from rove.pipeline.matching.topic_filters import Filters, Longs
from rove.pipeline.spark.workers import in_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BLOCK_CHANGES: Final = 524_288
"""Changes in a block, about; more with many followers. Each expression costs some 0.5 ms a block,
each change 100 bytes."""
CHANGES: Final = pa.schema(
    [
        ("variable", pa.int32()),  # a number of `Variables`
        ("position", pa.int64()),
        ("number", pa.float64()),  # NaN if it is no number, or an integer from 2^53 on
        ("value", pa.binary()),  # as JSON; null for floats and removed variables
    ]
)
_PACKED_SQL: Final = "changes binary"
_READ: Final = ("position", "client_id", "payload")
_BLOCKS_KEPT: Final = 2
_OPEN_MAX: Final = 4
_IN_DRIVER_MAX: Final = 100_000
"""With no more events, the driver reads them itself instead of starting a Spark job."""
_EXACT: Final = 2**53
_NOTHING: Final = np.empty(0, np.int64)

Variables = Mapping[str, Mapping[str, int]]
"""The variables that subscriptions use, numbered from 0; by client and name."""


class _StateEvent(msgspec.Struct, frozen=True):
    changes: dict[str, object] = {}


_DECODER: Final = msgspec.json.Decoder(_StateEvent)


# -- variables ----------------------------------------------------------------------------------


def variables_of(versions: Iterable[Version]) -> Variables:
    """The variables that the versions use."""
    found: dict[str, dict[str, int]] = {}
    count = 0
    for one in versions:
        for name in sorted(state_variables(one.text)):
            of_client = found.setdefault(one.client_id, {})
            if name not in of_client:
                of_client[name] = count
                count += 1
    return found


def followers_of(
    versions: Sequence[Version], variables: Variables, changes: pa.Table
) -> tuple[list[Version], list[Version]]:
    """Split versions into those whose state changes while they hold, and all others."""
    series = _Series(variables, changes)
    following: list[Version] = []
    others: list[Version] = []
    for one in versions:
        (following if state_variables(one.text) else others).append(one)
    changes_by_name = {
        name: _changes_while_held(following, name, series)
        for name in {name for one in following for name in state_variables(one.text)}
    }
    moves = [
        any(changes_by_name[name][place] for name in state_variables(one.text))
        for place, one in enumerate(following)
    ]
    others += [one for one, does in zip(following, moves, strict=True) if not does]
    return [one for one, does in zip(following, moves, strict=True) if does], others


def _changes_while_held(versions: Sequence[Version], name: str, series: _Series) -> list[bool]:
    """For each version, whether a variable changes while it holds."""
    variables = series.variables((one.client_id for one in versions), name)
    since = np.array([one.since for one in versions], np.int64)
    until = np.array([one.until for one in versions], np.int64)
    first, end = series.place(variables, since, "right"), series.place(variables, until, "left")
    return (end > first).tolist()  # type: ignore[no-any-return]


# -- changes as columns --------------------------------------------------------------------------


def changes_of(
    events: Iterable[tuple[int, str, Mapping[str, object]]],
    variables: Variables,
    after: int = NOTHING,
) -> pa.Table:
    """Changes (position, client, changes; in order) as columns, by variable and position.

    Up to `after`, only the last change of each variable is kept.
    """
    nothing: Mapping[str, int] = {}
    before: dict[int, tuple[int, int, float, bytes | None]] = {}
    rows: list[tuple[int, int, float, bytes | None]] = []
    for position, client_id, changes in events:
        of_client = variables.get(client_id, nothing)
        for name, value in changes.items():
            variable = of_client.get(name)
            if variable is None:
                continue
            row = (variable, position, *_stored(value))
            if position > after:
                rows.append(row)
            else:
                before[variable] = row
    rows += before.values()
    columns = list(zip(*rows, strict=True)) or [()] * len(CHANGES)
    arrays = map(pa.array, columns, CHANGES.types)
    return _sorted([pa.table(list(arrays), schema=CHANGES)], NOTHING)


def _stored(value: object) -> tuple[float, bytes | None]:
    """The columns `number` and `value` of a change."""
    kind = type(value)
    if kind is float:
        return value, None  # type: ignore[return-value]
    if value is None:
        return math.nan, None
    is_plain = kind is int and -_EXACT < value < _EXACT  # type: ignore[operator]
    return float(value) if is_plain else math.nan, msgspec.json.encode(value)  # type: ignore[arg-type]


def _sorted(tables: Sequence[pa.Table], after: int) -> pa.Table:
    """Sort by variable and position; up to `after`, keep only the last change."""
    changes = pa.concat_tables(tables).combine_chunks()
    variables, positions = changes["variable"].to_numpy(), changes["position"].to_numpy()
    order = np.lexsort((positions, variables))
    if after != NOTHING and len(order):
        variables, positions = variables[order], positions[order]
        is_replaced = np.append((variables[1:] == variables[:-1]) & (positions[1:] <= after), False)
        order = order[~is_replaced]
    return changes.take(pa.array(order)).combine_chunks()


def changes_in(
    spark: SparkSession, lake: Lake, variables: Variables, after: int, up_to: int
) -> pa.Table:
    """The changes of these variables in a lake, up to a position."""
    if not variables:
        return CHANGES.empty_table()
    files = lake.files("subscriptions", up_to=up_to)
    if sum(file.rows for file in files) <= _IN_DRIVER_MAX:
        tables = (lake.read(file, _READ, up_to=up_to) for file in files)
        every = (change for table in tables for change in _read(table, variables))
        return changes_of(every, variables, after)
    rows = lake.event_rows(spark, up_to, _READ, content="slices")
    packed = rows.mapInArrow(functools.partial(_packed, variables, after), _PACKED_SQL).collect()
    found = [pa.ipc.open_stream(row["changes"]).read_all() for row in packed]
    return _sorted([CHANGES.empty_table(), *found], after)


@in_worker
def _packed(
    variables: Variables, after: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The changes of a slice as one value, which the JVM does not split into rows."""
    from rove.pipeline.lake.data_source import rows_of

    for batch in rows_of(batches, _READ):
        changes = changes_of(_read(pa.Table.from_batches([batch]), variables), variables, after)
        stream = _streamed(changes).to_pybytes()
        yield pa.record_batch({"changes": pa.array([stream], pa.binary())})


def _read(rows: pa.Table, variables: Variables) -> Iterator[tuple[int, str, Mapping[str, object]]]:
    """The changes of some clients, out of rows of events."""
    is_wanted = pc.and_(
        pc.is_in(rows["client_id"], pa.array(list(variables), pa.string())),
        pc.match_substring(rows["payload"], STATE),
    )
    rows = rows.filter(is_wanted)
    decode = _DECODER.decode
    columns = (rows[name].to_pylist() for name in _READ)
    for position, client_id, payload in zip(*columns, strict=True):
        yield position, client_id, decode(payload).changes


class LatestStates:
    """The latest changes of subscribers' variables, up to a position of the log."""

    def __init__(self) -> None:
        self._last: dict[str, dict[str, tuple[int, object]]] = {}
        """Position and value (None: removed) by client and variable."""

    def take(self, changes: Iterable[tuple[int, str, Mapping[str, object]]]) -> None:
        """Apply changes (position, client, changes), in order."""
        for position, client_id, changed in changes:
            last = self._last.setdefault(client_id, {})
            for name, value in changed.items():
                last[name] = (position, value)

    def since(self, version: Version, after: int) -> Version:
        """A version with the latest state, which holds from `after` on."""
        me = dict(version.me)
        for name, (position, value) in self._last.get(version.client_id, {}).items():
            if position > version.since:  # the version began with earlier changes
                me[name] = value
        me = {name: value for name, value in me.items() if value is not None}
        return msgspec.structs.replace(version, me=me, since=max(version.since, after))

    def forget(self, client_id: str) -> None:
        """Drop the state of a client that no subscription uses any more."""
        self._last.pop(client_id, None)


# -- the file ------------------------------------------------------------------------------------


class _FollowersHead(msgspec.Struct, frozen=True):
    cuts: list[int]
    """The last positions of the blocks."""
    variables: Variables
    followers: list[Version]


def write_followers(
    followers: Sequence[Version],
    variables: Variables,
    changes: pa.Table,
    location: str | Path,
    block_changes: int = BLOCK_CHANGES,
) -> None:
    """Write followers and the changes of their variables."""
    step = max(block_changes, 4 * len(followers))
    positions = np.sort(changes["position"].to_numpy()) if len(changes) > step else _NOTHING
    cuts = np.unique(positions[step::step]).tolist()
    head = _FollowersHead(cuts, variables, list(followers))
    write_packed(location, packed("followers", head, [[_streamed(changes)]]))


def _streamed(changes: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, CHANGES) as writer:
        writer.write_table(changes)
    return sink.getvalue()


class _Series:
    """Changes by variable, to look up many values at positions at a time."""

    def __init__(self, variables: Variables, changes: pa.Table) -> None:
        changes = changes.combine_chunks()
        self._variables = variables
        self._none = sum(map(len, variables.values()))
        self.positions: Longs = changes["position"].to_numpy()
        self.numbers: npt.NDArray[np.float64] = changes["number"].to_numpy()
        self._values = changes["value"]
        self._first = int(self.positions.min(initial=0)) - 1
        self._last = int(self.positions.max(initial=0)) + 1
        self._bits = (self._last - self._first).bit_length()
        of_variable = changes["variable"].to_numpy().astype(np.int64)
        self._keys: Longs = (of_variable << self._bits) + (self.positions - self._first)
        """The variable and the position of each change as one number, ascending."""

    def variables(self, client_ids: Iterable[str], name: str) -> Longs:
        """The number of a variable of each client; greater than all if it is not used."""
        nothing: Mapping[str, int] = {}
        return np.array(
            [self._variables.get(one, nothing).get(name, self._none) for one in client_ids],
            np.int64,
        )

    def place(self, variables: Longs, positions: Longs, side: Literal["left", "right"]) -> Longs:
        """The index of a change at a position, or where it would be inserted."""
        within = np.clip(positions, self._first, self._last) - self._first
        return np.searchsorted(self._keys, (variables << self._bits) + within, side)

    def value(self, place: int) -> object:
        """The new value of a change; None if the variable was removed."""
        stored = self._values[place].as_py()
        if stored is not None:
            return msgspec.json.decode(stored)
        number = float(self.numbers[place])
        return None if np.isnan(number) else number


class Followers:
    """Followers and their subscribers' states, as a worker reads them from a file."""

    def __init__(self, path: str) -> None:
        known, (stream,) = opened(path, "followers", _FollowersHead)
        table = pa.ipc.open_stream(pa.py_buffer(stream)).read_all()
        self._cuts = np.array(known.cuts, np.int64)
        self._series = _Series(known.variables, table)
        self._sides: dict[SideName, _FollowerGroup] = {
            "plain": _FollowerGroup(),
            "ranked": _FollowerGroup(),
        }
        for one in known.followers:
            is_ranked = parse(one.text, accepted=True).rank is not None
            self._sides["ranked" if is_ranked else "plain"].add(one)
        self._blocks: dict[tuple[SideName, int], IndexSide] = {}

    def sides(self, name: SideName, positions: Longs) -> Iterator[tuple[IndexSide, Longs]]:
        """The index of each block that has some of the publications, and which these are."""
        if not len(self._sides[name]):
            return
        numbers = np.searchsorted(self._cuts, positions, "left")
        for number in np.unique(numbers).tolist():
            side = self._block(name, number)
            if not side.is_empty:
                yield side, np.flatnonzero(numbers == number)

    def _block(self, name: SideName, number: int) -> IndexSide:
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


class _FollowerGroup:
    """The followers that are ranked, or those that are not."""

    def __init__(self) -> None:
        self._subjects = Subjects()
        self._filters = Filters()
        self._alike: dict[tuple[str, str], list[Version]] = {}
        """By expression and topic filter."""
        self._known: dict[tuple[str, str], Follower] = {}

    def __len__(self) -> int:
        return len(self._alike)

    def add(self, version: Version) -> None:
        self._alike.setdefault((version.text, version.filter), []).append(version)
        self._filters.add(version.filter)

    def block(self, series: _Series, after: int, up_to: int, *, is_ranked: bool) -> IndexSide:
        """An index of the states of all followers that hold somewhere in `(after, up_to]`."""
        index = FollowingIndex(self._subjects)
        versions: list[Version] = []
        places, states = [_NOTHING], []
        for key, alike in self._alike.items():
            held = [one for one in alike if one.since < up_to and one.until > after]
            if held:
                place, some = _states(held, series, after, up_to)
                index.add_states(self._follower(*key), some)
                places.append(place + len(versions))
                states.append(some)
                versions += held
        index.settle_fresh()
        version_of = np.concatenate(places)
        own, shared = shares_of(() if is_ranked else versions)
        any_topic = [place for place, one in enumerate(versions) if one.filter == ANY_TOPIC]
        unfiltered = np.flatnonzero(np.isin(version_of, any_topic)).tolist()
        is_own = np.flatnonzero(np.isin(version_of, list(own))).tolist()
        return IndexSide(
            index,
            np.array([one.number for one in versions], np.int64)[version_of],
            np.concatenate([_NOTHING, *(some.since for some in states)]),
            np.concatenate([_NOTHING, *(some.until for some in states)]),
            self._filters,
            has_filter(len(version_of), unfiltered),
            {id: own[int(version_of[id])] for id in is_own},
            {int(np.argmax(version_of == place)): group for place, group in shared.items()},
        )

    def _follower(self, text: str, topic_filter: str) -> Follower:
        found = self._known.get((text, topic_filter))
        if found is None:
            condition = parse(text, accepted=True).condition
            text_here = Text(self._filters.condition(topic_filter, condition))
            conjunctions = normalise(text_here).conjunctions
            found = self._known[text, topic_filter] = Follower(conjunctions, self._subjects)
        return found


def _states(
    versions: Sequence[Version], series: _Series, after: int, up_to: int
) -> tuple[Longs, States]:
    """The states of versions with the same expression, with the version of each state."""
    made = np.array([one.since for one in versions], np.int64)
    begins = np.maximum(made, after)
    ends = np.minimum(np.array([one.until for one in versions], np.int64), up_to)
    client_ids = [one.client_id for one in versions]
    names = sorted(state_variables(versions[0].text))
    variables = {name: series.variables(client_ids, name) for name in names}
    of_version, since = _state_begins(begins, ends, list(variables.values()), series)
    until = np.append(since[1:], NOTHING)
    is_last = np.append(np.diff(of_version) != 0, True)
    until[is_last] = ends[of_version[is_last]]
    places: dict[str, Longs] = {}
    numbers: dict[str, npt.NDArray[np.float64]] = {}
    for name, variable in variables.items():
        found = series.place(variable[of_version], since, "right") - 1
        # The version began with earlier changes.
        is_changed = found >= series.place(variable, made, "right")[of_version]
        places[name] = np.where(is_changed, found, -1)
        first = np.array([_stored(one.me.get(name))[0] for one in versions])
        numbers[name] = first[of_version]
        numbers[name][is_changed] = series.numbers[found[is_changed]]

    def at(state: int) -> dict[str, object]:
        me: dict[str, object] = {}
        version = versions[of_version[state]]
        for name, of_name in places.items():
            place = int(of_name[state])
            value = version.me.get(name) if place < 0 else series.value(place)
            if value is not None:
                me[name] = value
        return me

    accepted_at = np.array([one.accepted_at for one in versions])[of_version]
    return of_version, States(accepted_at, since, until, numbers, at)


def _state_begins(
    begins: Longs, ends: Longs, variables: Sequence[Longs], series: _Series
) -> tuple[Longs, Longs]:
    """Where states begin, by version and position: with the version and at each change."""
    every = np.arange(len(begins))
    of_version, since = [every], [begins]
    for variable in variables:
        firsts = series.place(variable, begins, "right")
        counts = np.maximum(series.place(variable, ends, "left") - firsts, 0)
        shifts = np.repeat(firsts - (np.cumsum(counts) - counts), counts)
        of_version.append(np.repeat(every, counts))
        since.append(series.positions[shifts + np.arange(counts.sum())])
    owners, positions = np.concatenate(of_version), np.concatenate(since)
    order = np.lexsort((positions, owners))
    owners, positions = owners[order], positions[order]
    is_new = np.append(True, (np.diff(owners) != 0) | (np.diff(positions) != 0))
    return owners[is_new], positions[is_new]


@functools.lru_cache(maxsize=_OPEN_MAX)
def open_followers(path: str) -> Followers:
    """The followers in a file; one object per process."""
    return Followers(path)
