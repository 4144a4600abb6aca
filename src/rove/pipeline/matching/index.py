"""Subscriptions that are ready to be matched: built once, used by any number of tables.

    with Index.build(["NO2 > 40", "battery < 0.2"]) as index:
        match(df, index)
        index.add([("night", "NO2 > 20")])
        index.save("s3://bucket/interests.index")
    index = Index.open("s3://bucket/interests.index")

An index is a plain matcher (`rove.match`), saved as it is searched, with the names of the
subscriptions in front of it (`rove.pipeline.matching.index_files`). Tasks get it as a file
(`rove.pipeline.spark.executors`); the workers of one machine map it and share its pages, each opens
it once. The file changes when the index does, and is gone when the index is closed, at the latest
when the process ends: a DataFrame may be computed at any time until then.

Adding a text takes 0.1 ms, whether the index is large or not; saving 100,000 of them 0.1 s; opening
a saved matcher of a million boxes 0.02 s.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeAlias, Union

import msgspec
import pyarrow as pa

from rove.lake.storage import Location, resolved, write_whole
from rove.lang.errors import LanguageError
from rove.lang.limits import INTEGER_MAX
from rove.lang.parser import parse
from rove.lang.tree import Subscription, Time, walk
from rove.match.matcher import Matcher
from rove.match.saving import SavedError
from rove.pipeline.lake.versions import ANY_TOPIC, Version, from_broker, from_file, from_table
from rove.pipeline.matching.index_files import (
    IndexFileError,
    has_filter,
    opened,
    packed,
    write_packed,
)
from rove.pipeline.matching.table_check import ColumnUse, ColumnUses, MatchingError
from rove.pipeline.matching.topic_filters import Filters
from rove.pipeline.spark.executors import TaskFile, folder_of_process, task_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GivenSubscription: TypeAlias = str | Version | tuple[int | str, str]
"""One subscription: a text, perhaps with an id."""
Subscriptions: TypeAlias = Union[str, Path, "DataFrame", Sequence[GivenSubscription]]
"""A file of JSON lines as `rove match` takes them, the address of a broker (`http://…`), a table
with a column `text`, or single ones."""

_OPEN_MAX: Final = 16
"""Indexes that a worker keeps open,"""
_BUILT_MAX: Final = 16
"""and that a driver keeps of those that `match` made of texts."""


class _IndexRow(msgspec.Struct, array_like=True):
    """One subscription; by its number in the matcher."""

    id: int | str
    text: str
    filter: str
    is_evolving: bool


class _IndexHead(msgspec.Struct):
    """What stands before the matcher in a file."""

    rows: list[_IndexRow | None]
    """None where one was removed."""
    latest_s: float
    """When the last of them was accepted."""
    filters: list[str]
    """By their numbers in the matcher."""
    uses: list[tuple[ColumnUse, list[int]]] | None
    """What they ask of a table, and who does; None if that is not known."""


class Index:
    """Some subscriptions. One thread at a time."""

    def __init__(self, head: _IndexHead, matcher: Matcher) -> None:
        self._rows = head.rows
        self._latest_s = head.latest_s
        self._matcher = matcher
        self._uses = None if head.uses is None else ColumnUses(dict(head.uses))
        self._numbers: dict[int | str, int] = {}
        # In the order in which they came; sets would name another one each time.
        self._evolving: dict[int, None] = {}
        self._filtered: dict[int, None] = {}
        for number, row in enumerate(self._rows):
            if row is not None:
                self._note(number, row)
        self._files: list[Path] = []
        """Of all states that tasks were given; the last is that of now, unless it was changed."""
        self._filters = Filters(head.filters)
        self._is_changed = True
        self._is_closed = False

    @classmethod
    def build(cls, subscriptions: Subscriptions = ()) -> Self:
        """An index of some subscriptions; MatchingError names one that is refused."""
        index = cls(_IndexHead([], 0.0, [], []), Matcher())
        index.add(subscriptions)
        return index

    @classmethod
    def of_trees(
        cls, subscriptions: Iterable[tuple[Subscription, float, Mapping[str, object]]]
    ) -> Self:
        """Of some that were read before, with their times and states, numbered from 0."""
        index = cls(_IndexHead([], 0.0, [], []), Matcher())
        for number, (subscription, accepted_at, me) in enumerate(subscriptions):
            version = Version(number=number, text="", accepted_at=accepted_at, me=dict(me))
            index._add(number, subscription, version)
        return index

    @classmethod
    def of_matcher(cls, matcher: Matcher) -> Self:
        """Of a matcher that somebody else has filled; nothing can be added to it."""
        return cls(_IndexHead([], 0.0, [], None), matcher)

    @classmethod
    def open(cls, location: Location) -> Self:
        """One that was saved."""
        return cls(*_read(resolved(location), _IndexHead))

    def save(self, location: Location) -> None:
        """Keep it; what was there before is replaced."""
        write_whole(resolved(location), self._parts())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove its files. What was matched with it and is not computed yet cannot be any more."""
        self._is_closed = True
        for path in self._files:
            path.unlink(missing_ok=True)
        self._files.clear()

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, id: object) -> bool:
        return id in self._numbers

    @property
    def has_names(self) -> bool:
        """Whether subscriptions are called by texts, not by numbers."""
        # Either all are, or none is.
        return isinstance(next(iter(self._numbers), 0), str)

    @property
    def evolving(self) -> str:
        """One of those that change with time, to be named in an error; empty if none does."""
        return self._shown(self._evolving, "text")

    @property
    def filtered(self) -> str:
        """One of those that have a topic filter, likewise."""
        return self._shown(self._filtered, "filter")

    def _shown(self, numbers: Iterable[int], field: str) -> str:
        rows = (self._rows[number] for number in numbers)
        return next((f"{row.id} ({getattr(row, field)})" for row in rows if row is not None), "")

    @property
    def attributes(self) -> frozenset[str] | None:
        """What they look at: first parts of the names. None if that is not known."""
        return None if self._uses is None else self._uses.heads

    def check_table(
        self, df: Any, attributes: Sequence[str] | None = None, topic: str | None = None
    ) -> None:
        """MatchingError unless a table has all that is asked for, by name and type."""
        if self._uses is not None:
            self._uses.check_table(df, attributes, topic, named=self._named)

    def check_columns(self, columns: Mapping[str, pa.DataType]) -> None:
        """The same for columns of Arrow."""
        if self._uses is not None:
            self._uses.check(columns, named=self._named)

    # -- changes -----------------------------------------------------------------------------------

    def add(self, subscriptions: Subscriptions) -> None:
        """Add some; all of them, or none if one is refused."""
        self.addidentified(list(identified(subscriptions, len(self._rows))))

    def addidentified(self, given: Sequence[tuple[int | str, Version]]) -> None:
        """Add some that have ids."""
        self._refuse_ids([id for id, _ in given])
        first = len(self._rows)
        try:
            for id, version in given:
                self._add(id, _parsed(id, version), version)
        except MatchingError:
            for number in range(first, len(self._rows)):
                self._remove(number)
            del self._rows[first:]
            raise
        self._is_changed = True

    def remove(self, ids: Iterable[int | str]) -> None:
        """Remove some, called by their ids."""
        wanted = list(ids)
        for id in wanted:
            if id not in self._numbers:
                raise MatchingError(f"there is no subscription {id} in the index")
        for id in wanted:
            self._remove(self._numbers[id])
        self._is_changed = True

    def _add(self, id: int | str, subscription: Subscription, version: Version) -> None:
        assert self._uses is not None, "a matcher of somebody else"
        number = len(self._rows)
        here = Subscription(self._filters.condition(version.filter, subscription.condition))
        try:
            self._matcher.add(number, here, version.accepted_at, version.me)
        except LanguageError as error:
            raise MatchingError(f"subscription {id}: {error}") from error
        is_evolving = any(type(node) is Time for node in walk(subscription.condition))
        row = _IndexRow(id, version.text, version.filter, is_evolving)
        self._rows.append(row)
        self._note(number, row)
        self._uses.add(subscription, number)
        self._latest_s = max(self._latest_s, version.accepted_at)

    def _remove(self, number: int) -> None:
        row = self._rows[number]
        assert row is not None
        assert self._uses is not None
        self._matcher.remove(number)
        self._uses.remove(_tree(row.text), number)
        del self._numbers[row.id]
        self._evolving.pop(number, None)
        self._filtered.pop(number, None)
        self._rows[number] = None

    def _note(self, number: int, row: _IndexRow) -> None:
        self._numbers[row.id] = number
        if row.is_evolving:
            self._evolving[number] = None
        if row.filter != ANY_TOPIC:
            self._filtered[number] = None

    def _refuse_ids(self, ids: Sequence[int | str]) -> None:
        kinds = {type(id) for id in (*ids, *itertools.islice(self._numbers, 1))}
        if len(kinds) > 1:
            raise MatchingError("some subscriptions have names and some have numbers; choose one")
        seen: set[int | str] = set()
        for id in ids:
            if id in seen or id in self._numbers:
                raise MatchingError(f"two subscriptions are called {id}; each needs its own id")
            if isinstance(id, int) and not 0 <= id <= INTEGER_MAX:
                raise MatchingError(
                    f"{id} is no id; ids are texts, or integers of 64 bits from 0 on"
                )
            seen.add(id)

    def _named(self, number: Any) -> str:
        row = self._rows[number]
        assert row is not None
        return f"subscription {row.id} ({row.text})"

    # -- files -------------------------------------------------------------------------------------

    def task_file(self, session: SparkSession) -> TaskFile:
        """It as the tasks of a session open it."""
        if self._is_closed:
            raise MatchingError("the index is closed; build or open another one")
        if self._is_changed:
            path = folder_of_process("indexes") / f"index-{uuid.uuid4().hex}"
            write_packed(path, self._parts())
            self._files.append(path)
            self._is_changed = False
        return task_file(session, self._files[-1])

    def _parts(self) -> Iterator[bytes | memoryview]:
        self._matcher.compact()
        uses = None if self._uses is None else self._uses.as_lists()
        head = _IndexHead(self._rows, self._latest_s, list(self._filters), uses)
        return packed("subscriptions", head, [self._matcher.save()])


def index_of(subscriptions: Index | Subscriptions) -> Index:
    """An index as it is; of anything else the one that was made of the same before, or a new one.

    So a `match` of the same texts in every batch of a stream builds nothing and leaves nothing.
    """
    if isinstance(subscriptions, Index):
        return subscriptions
    given = list(identified(subscriptions))
    digest = hashlib.sha256(msgspec.msgpack.encode(given)).digest()
    if digest in _built:
        _built.move_to_end(digest)
        return _built[digest]
    if not given:
        raise MatchingError("there are no subscriptions; give at least one text")
    made = Index.build()
    made.addidentified(given)
    _built[digest] = made
    if len(_built) > _BUILT_MAX:
        _built.popitem(last=False)  # its file stays: something may be computed yet
    return made


_built: Final[OrderedDict[bytes, Index]] = OrderedDict()


def identified(subscriptions: Subscriptions, first: int = 0) -> Iterator[tuple[int | str, Version]]:
    """Each with its id: its own, or its number."""
    if isinstance(subscriptions, str) and subscriptions.startswith(("http://", "https://")):
        versions = from_broker(subscriptions)
        yield from ((one.number, one) for one in versions)
    elif isinstance(subscriptions, str | Path):
        versions, names = from_file(Path(subscriptions))
        yield from zip(names, versions, strict=True)
    elif hasattr(subscriptions, "columns"):
        yield from ((one.number, one) for one in from_table(subscriptions))
    else:
        pairs = [_pair(number, one) for number, one in enumerate(subscriptions, first)]
        are_named = any(isinstance(id, str) for id, _ in pairs)
        yield from ((str(id) if are_named else id, version) for id, version in pairs)


def _pair(number: int, given: GivenSubscription) -> tuple[int | str, Version]:
    if isinstance(given, Version):
        return given.number, given
    id, text = (number, given) if isinstance(given, str) else given
    return id, Version(number=number, text=text)


def _tree(text: str) -> Subscription:
    return parse(text or "TRUE", accepted=True)


def _parsed(id: int | str, version: Version) -> Subscription:
    try:
        subscription = _tree(version.text)
    except LanguageError as error:
        raise MatchingError(f"subscription {id}: {error}") from error
    if subscription.rank is not None:
        _refuse_rank(f"subscription {id}")
    return subscription


def _refuse_rank(what: str) -> NoReturn:
    raise MatchingError(
        f"{what} is ranked, so what it gets depends on all publications in their order; "
        "a table is matched row by row: leave ORDER BY out, or use rove.pipeline.rank"
    )


def plain_subscription(text: str) -> Subscription:
    """The subscription of a text that is no ranked one."""
    subscription = parse(text)
    if subscription.rank is not None:
        _refuse_rank(f"the text {text!r}")
    return subscription


# -- in a worker -----------------------------------------------------------------------------------


class _TaskHead(msgspec.Struct):
    """What a task reads of the head."""

    rows: list[_IndexRow | None]
    latest_s: float
    filters: list[str]


class OpenIndex:
    """An index as tasks see it."""

    def __init__(self, matcher: Matcher, head: _TaskHead) -> None:
        self.matcher = matcher
        self.latest_s = head.latest_s
        """When the last of its subscriptions was accepted."""
        self.filters = Filters(head.filters)
        rows = head.rows
        unfiltered = [n for n, row in enumerate(rows) if row is None or row.filter == ANY_TOPIC]
        self.has_filter = has_filter(len(rows), unfiltered)
        self.ids = _ids(rows)
        """By number; None if they are called by their numbers."""


def _ids(rows: Sequence[_IndexRow | None]) -> pa.Array | None:
    ids = [None if row is None else row.id for row in rows]
    if all(id is None or id == number for number, id in enumerate(ids)):
        return None
    has_names = any(isinstance(id, str) for id in ids)
    return pa.array(ids, pa.string() if has_names else pa.int64())


@functools.lru_cache(maxsize=_OPEN_MAX)
def open_index(file: TaskFile) -> OpenIndex:
    """The index in a file; the same object whenever this process asks again."""
    head, matcher = _read(file, _TaskHead)
    return OpenIndex(matcher, head)


def _read(location: str | TaskFile, kind: Any) -> tuple[Any, Matcher]:
    try:
        head, (matcher,) = opened(location, "subscriptions", kind)
        return head, Matcher.load(matcher)
    except IndexFileError as error:
        raise MatchingError(str(error)) from error
    except SavedError as error:
        raise MatchingError(f"cannot open the index {location}: {error}") from error
