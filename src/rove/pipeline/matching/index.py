"""An index of subscriptions: built once, used to match any number of tables.

    with Index.build(["NO2 > 40", "battery < 0.2"]) as index:
        match(df, index)
        index.add([("night", "NO2 > 20")])
        index.save("s3://bucket/interests.index")
    index = Index.open("s3://bucket/interests.index")

An index is a matcher (`rove.match`), saved in the form in which it is searched, with the names of
the subscriptions in front of it (`rove.pipeline.matching.index_files`). Tasks get it as a file
(`rove.pipeline.spark.executors`); the workers of one machine map it and share its pages. A changed
index is written to a new file. The files are deleted when the index is closed, or else when the
process ends: until then Spark may compute a DataFrame that uses them.

Adding an expression takes 0.1 ms, whatever the size of the index; saving 100,000 of them 0.1 s;
opening a saved matcher of a million boxes 0.02 s.
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

from rove.base.paged import Part, packed
from rove.lake.storage import Location, resolved, write_whole
from rove.lang.errors import LanguageError
from rove.lang.limits import INTEGER_MAX
from rove.lang.parser import parse
from rove.lang.tree import Subscription, Time, walk
from rove.match.matcher import Matcher
from rove.match.saved import SavedError
from rove.pipeline.lake.versions import ANY_TOPIC, Version, from_broker, from_file, from_table
from rove.pipeline.matching.index_files import (
    IndexFileError,
    has_filter,
    opened,
    write_packed,
)
from rove.pipeline.matching.table_check import ColumnUse, ColumnUses, MatchingError
from rove.pipeline.matching.topic_filters import Filters
from rove.pipeline.spark.executors import TaskFile, folder_of_process, task_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GivenSubscription: TypeAlias = str | Version | tuple[int | str, str]
"""One subscription: an expression, perhaps with an id."""
Subscriptions: TypeAlias = Union[str, Path, "DataFrame", Sequence[GivenSubscription]]
"""A file of JSON lines as for `rove match`, the address of a broker (`http://…`), a table with a
column `text`, or a list."""

_OPEN_MAX: Final = 16
"""Indexes that a worker keeps open."""
_BUILT_MAX: Final = 16
"""Indexes that `match` has built from lists and the driver keeps."""


class _IndexRow(msgspec.Struct, array_like=True):
    """A subscription of the index."""

    id: int | str
    text: str
    filter: str
    is_evolving: bool


class _IndexHead(msgspec.Struct):
    """The head of an index file, before the matcher."""

    rows: list[_IndexRow | None]
    """By number in the matcher; None for removed subscriptions."""
    latest_s: float
    """When the last subscription was accepted."""
    filters: list[str]
    """Topic filters, by their numbers in the matcher."""
    uses: list[tuple[ColumnUse, list[int]]] | None
    """The columns that they use, each with its subscriptions; None if unknown."""


class Index:
    """An index of subscriptions. Not thread-safe."""

    def __init__(self, head: _IndexHead, matcher: Matcher) -> None:
        self._rows = head.rows
        self._latest_s = head.latest_s
        self._matcher = matcher
        self._uses = None if head.uses is None else ColumnUses(dict(head.uses))
        self._numbers: dict[int | str, int] = {}
        # Dictionaries, since errors name the first one; a set would have no order.
        self._evolving: dict[int, None] = {}
        self._filtered: dict[int, None] = {}
        for number, row in enumerate(self._rows):
            if row is not None:
                self._note(number, row)
        self._files: list[Path] = []
        """Files that tasks were given; the last is current unless `_is_changed`."""
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
        """An index of parsed subscriptions with their times and states, numbered from 0."""
        index = cls(_IndexHead([], 0.0, [], []), Matcher())
        for number, (subscription, accepted_at, me) in enumerate(subscriptions):
            version = Version(number=number, text="", accepted_at=accepted_at, me=dict(me))
            index._add(number, subscription, version)
        return index

    @classmethod
    def of_matcher(cls, matcher: Matcher) -> Self:
        """An index of a given matcher; nothing can be added to it."""
        return cls(_IndexHead([], 0.0, [], None), matcher)

    @classmethod
    def open(cls, location: Location) -> Self:
        """Open a saved index."""
        return cls(*_read(resolved(location), _IndexHead))

    def save(self, location: Location) -> None:
        """Save the index, replacing what is at the location."""
        write_whole(resolved(location), self._parts())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Delete its files. DataFrames that use them can no longer be computed."""
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
        """Whether the ids are strings, not numbers."""
        # All ids have the same type.
        return isinstance(next(iter(self._numbers), 0), str)

    @property
    def evolving(self) -> str:
        """An evolving subscription, to be named in an error; empty if there is none."""
        return self._shown(self._evolving, "text")

    @property
    def filtered(self) -> str:
        """A subscription with a topic filter; empty if there is none."""
        return self._shown(self._filtered, "filter")

    def _shown(self, numbers: Iterable[int], field: str) -> str:
        rows = (self._rows[number] for number in numbers)
        return next((f"{row.id} ({getattr(row, field)})" for row in rows if row is not None), "")

    @property
    def attributes(self) -> frozenset[str] | None:
        """The attributes in use, without members; None if unknown."""
        return None if self._uses is None else self._uses.heads

    def check_table(
        self, df: Any, attributes: Sequence[str] | None = None, topic: str | None = None
    ) -> None:
        """MatchingError unless a table has all columns in use, with the right types."""
        if self._uses is not None:
            self._uses.check_table(df, attributes, topic, named=self._named)

    def check_columns(self, columns: Mapping[str, pa.DataType]) -> None:
        """The same for Arrow columns."""
        if self._uses is not None:
            self._uses.check(columns, named=self._named)

    # -- changes -----------------------------------------------------------------------------------

    def add(self, subscriptions: Subscriptions) -> None:
        """Add subscriptions: all of them, or none if one is refused."""
        self.add_identified(list(identified(subscriptions, len(self._rows))))

    def add_identified(self, given: Sequence[tuple[int | str, Version]]) -> None:
        """Add subscriptions that have ids."""
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
        """Remove subscriptions by their ids."""
        wanted = list(ids)
        for id in wanted:
            if id not in self._numbers:
                raise MatchingError(f"there is no subscription {id} in the index")
        for id in wanted:
            self._remove(self._numbers[id])
        self._is_changed = True

    def _add(self, id: int | str, subscription: Subscription, version: Version) -> None:
        assert self._uses is not None, "the index was made of a given matcher"
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
            raise MatchingError("some ids are strings and some are numbers; use one type")
        seen: set[int | str] = set()
        for id in ids:
            if id in seen or id in self._numbers:
                raise MatchingError(f"two subscriptions have the id {id}; ids must be unique")
            if isinstance(id, int) and not 0 <= id <= INTEGER_MAX:
                raise MatchingError(
                    f"{id} is no id; ids are strings, or integers from 0 to 2^63 - 1"
                )
            seen.add(id)

    def _named(self, number: Any) -> str:
        row = self._rows[number]
        assert row is not None
        return f"subscription {row.id} ({row.text})"

    # -- files -------------------------------------------------------------------------------------

    def task_file(self, session: SparkSession) -> TaskFile:
        """The index as a file for the tasks of a session."""
        if self._is_closed:
            raise MatchingError("the index is closed; build or open another one")
        if self._is_changed:
            path = folder_of_process("indexes") / f"index-{uuid.uuid4().hex}"
            write_packed(path, self._parts())
            self._files.append(path)
            self._is_changed = False
        return task_file(session, self._files[-1])

    def _parts(self) -> list[Part]:
        self._matcher.compact()
        uses = None if self._uses is None else self._uses.as_lists()
        head = _IndexHead(self._rows, self._latest_s, list(self._filters), uses)
        return packed("subscriptions", head, [self._matcher.save()])


def index_of(subscriptions: Index | Subscriptions) -> Index:
    """An index as it is; for anything else a new index, or the cached index of the same.

    So a `match` with the same list in every batch of a stream builds only one index and one file.
    """
    if isinstance(subscriptions, Index):
        return subscriptions
    given = list(identified(subscriptions))
    digest = hashlib.sha256(msgspec.msgpack.encode(given)).digest()
    if digest in _built:
        _built.move_to_end(digest)
        return _built[digest]
    if not given:
        raise MatchingError("there are no subscriptions; give at least one expression")
    made = Index.build()
    made.add_identified(given)
    _built[digest] = made
    if len(_built) > _BUILT_MAX:
        _built.popitem(last=False)  # its file stays: a DataFrame may need it
    return made


_built: Final[OrderedDict[bytes, Index]] = OrderedDict()


def identified(subscriptions: Subscriptions, first: int = 0) -> Iterator[tuple[int | str, Version]]:
    """Subscriptions with their ids, or else their numbers."""
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
        f"{what} is ranked, so its matches depend on the order of all publications; a table is "
        "matched row by row: leave out ORDER BY, or use rove.pipeline.rank"
    )


def plain_subscription(text: str) -> Subscription:
    """The parsed expression; MatchingError if it is ranked."""
    subscription = parse(text)
    if subscription.rank is not None:
        _refuse_rank(f"the expression {text!r}")
    return subscription


# -- in a worker -----------------------------------------------------------------------------------


class _TaskHead(msgspec.Struct):
    """The part of the head that a task needs."""

    rows: list[_IndexRow | None]
    latest_s: float
    filters: list[str]


class OpenIndex:
    """An index that is open in a worker."""

    def __init__(self, matcher: Matcher, head: _TaskHead) -> None:
        self.matcher = matcher
        self.latest_s = head.latest_s
        """When the last subscription was accepted."""
        self.filters = Filters(head.filters)
        rows = head.rows
        unfiltered = [n for n, row in enumerate(rows) if row is None or row.filter == ANY_TOPIC]
        self.has_filter = has_filter(len(rows), unfiltered)
        self.ids = _ids(rows)
        """Ids by number; None if they are the numbers."""


def _ids(rows: Sequence[_IndexRow | None]) -> pa.Array | None:
    ids = [None if row is None else row.id for row in rows]
    if all(id is None or id == number for number, id in enumerate(ids)):
        return None
    has_names = any(isinstance(id, str) for id in ids)
    return pa.array(ids, pa.string() if has_names else pa.int64())


@functools.lru_cache(maxsize=_OPEN_MAX)
def open_index(file: TaskFile) -> OpenIndex:
    """The index in a file; one object per process."""
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
