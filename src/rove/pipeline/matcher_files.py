"""Subscriptions, from wherever they come, as one file that Spark's workers map into their memory.

`rove.pipeline.index_files` holds the history of a broker's subscriptions: versions, positions,
topic filters. A table has none of that; who matches one has texts. Here they become a plain
matcher, saved as it is searched, with the names of the subscriptions in front of it. The driver
writes the file once; the workers of one machine map it and share its pages, each opens it once.

The folder of these files goes when the driver ends, since a DataFrame may be computed at any time
until then. Adding a text takes 0.1 ms; opening a saved matcher of a million boxes 0.02 s.
"""

from __future__ import annotations

import functools
import mmap
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias, Union

import msgspec
import pyarrow as pa

from rove.lang.errors import LanguageError
from rove.lang.limits import INTEGER_MAX
from rove.lang.parser import parse
from rove.lang.tree import Subscription, Time, walk
from rove.match.matcher import Matcher
from rove.match.saving import SavedError
from rove.pipeline.disk import folder_of_process
from rove.pipeline.table_check import MatchingError, Uses
from rove.pipeline.versions import ANY_TOPIC, Version, from_file, from_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Given: TypeAlias = str | Version | tuple[int | str, str]
"""One subscription: a text, perhaps with an id."""
Subscriptions: TypeAlias = Union[str, Path, "DataFrame", Sequence[Given]]
"""A path (JSON lines as `rove match` takes them, or what `Matcher.save` gives), a table with a
column `text`, or single ones."""

_MAGIC: Final = b"rove texts\x00\x00\x00\x00\x00\x01"
_MATCHER_MAGIC: Final = b"rove matcher"
_PAGE: Final = 4096
_OPEN_MAX: Final = 16
"""Files that a worker keeps open."""


class Asked(msgspec.Struct, frozen=True):
    """What is known of the subscriptions in a file."""

    path: str
    has_names: bool = False
    """Whether subscriptions are named by texts, not by numbers."""
    uses: Uses | None = None
    """What they ask of a table; None if that is not known."""
    evolving: str = ""
    """One of those that change with time, to be named in an error; empty if none does."""
    filtered: str = ""
    """One of those that have a topic filter, likewise."""


class _Head(msgspec.Struct, frozen=True):
    ids: list[int | str]
    """All are numbers, or all are texts."""
    filters: list[str]
    """Of each subscription; empty if none has any."""


class OpenMatcher:
    """A matcher in a file, and what its subscriptions are called."""

    def __init__(self, matcher: Matcher, head: _Head | None) -> None:
        self.matcher = matcher
        self.filters: Sequence[str] = head.filters if head is not None else ()
        self.ids: pa.Array | None = None
        """By number; None if they are called by their numbers."""
        if head is not None and head.ids != list(range(len(head.ids))):
            kind = pa.string() if isinstance(head.ids[0], str) else pa.int64()
            self.ids = pa.array(head.ids, kind)


# -- in the driver -------------------------------------------------------------------------------


def asked_in(subscriptions: Subscriptions, *, timed: bool = True) -> Asked:
    """The file of some subscriptions; MatchingError names the one that is refused.

    Unless it is `timed`, it does not matter when they were accepted.
    """
    if isinstance(subscriptions, str | Path):
        path = Path(subscriptions)
        if _is_matcher(path):
            return Asked(str(path.resolve()))
        return _written(*from_file(path), timed=timed)
    if hasattr(subscriptions, "columns"):
        versions = from_table(subscriptions)
        return _written(versions, [one.number for one in versions], timed=timed)
    return _written(*_of_texts(subscriptions), timed=timed)


def _is_matcher(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_MATCHER_MAGIC)) == _MATCHER_MAGIC
    except OSError as error:
        raise MatchingError(f"cannot read {path}: {error.strerror}") from error


def _of_texts(subscriptions: Iterable[Given]) -> tuple[list[Version], list[int | str]]:
    """Subscriptions and their ids, which are texts if one of them is."""
    versions: list[Version] = []
    ids: list[int | str] = []
    for number, given in enumerate(subscriptions):
        if isinstance(given, Version):
            id: int | str = given.number
            versions.append(given)
        else:
            id, text = (number, given) if isinstance(given, str) else given
            versions.append(Version(number=number, text=text))
        ids.append(id)
    if any(isinstance(id, str) for id in ids):
        return versions, [str(id) for id in ids]
    return versions, ids


def _written(versions: Sequence[Version], ids: Sequence[int | str], *, timed: bool) -> Asked:
    """Put subscriptions into a new file."""
    _refuse_ids(ids)
    matcher = Matcher()
    uses = Uses()
    evolving = filtered = ""
    for number, (id, version) in enumerate(zip(ids, versions, strict=True)):
        subscription = _added(matcher, number, id, version, timed)
        name = f"{id} ({version.text})"
        uses.add(subscription, f"subscription {name}")
        if not evolving and any(type(node) is Time for node in walk(subscription.condition)):
            evolving = name
        if version.filter != ANY_TOPIC:
            filtered = filtered or f"{id} ({version.filter})"
    head = _Head(list(ids), [one.filter for one in versions] if filtered else [])
    has_names = isinstance(ids[0], str)
    return Asked(_saved(head, matcher), has_names, uses, evolving, filtered)


def file_of(subscriptions: Iterable[tuple[Subscription, float, Mapping[str, object]]]) -> str:
    """The file of some that were read before, with their times and states, numbered from 0."""
    matcher = Matcher()
    count = 0
    for subscription, accepted_at, me in subscriptions:
        matcher.add(count, subscription, accepted_at, me)
        count += 1
    return _saved(_Head(list(range(count)), []), matcher)


def _saved(head: _Head, matcher: Matcher) -> str:
    matcher.compact()
    path = folder_of_process("matching") / f"subscriptions-{uuid.uuid4().hex}"
    with path.open("wb") as file:
        file.writelines(_parts(head, matcher))
    return str(path)


def _refuse_ids(ids: Sequence[int | str]) -> None:
    if not ids:
        raise MatchingError("there are no subscriptions; give at least one text")
    seen: set[int | str] = set()
    for id in ids:
        if id in seen:
            raise MatchingError(f"two subscriptions are called {id}; each needs its own id")
        if isinstance(id, int) and not 0 <= id <= INTEGER_MAX:
            raise MatchingError(f"{id} is no id; ids are texts, or integers of 64 bits from 0 on")
        seen.add(id)


def _added(
    matcher: Matcher, number: int, id: object, version: Version, timed: bool
) -> Subscription:
    try:
        subscription = parse(version.text or "TRUE", accepted=True)
        if subscription.rank is not None:
            _refuse_rank(f"subscription {id}")
        matcher.add(number, subscription, version.accepted_at if timed else 0.0, version.me)
    except LanguageError as error:
        raise MatchingError(f"subscription {id}: {error}") from error
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


def _parts(head: _Head, matcher: Matcher) -> Iterator[bytes | memoryview]:
    encoded = msgspec.msgpack.encode(head)
    begin = _MAGIC + len(encoded).to_bytes(8, "little") + encoded
    yield begin + bytes(-len(begin) % _PAGE)
    yield from matcher.save()


class Shipped(msgspec.Struct, frozen=True):
    """Where workers find a file."""

    path: str
    is_local: bool

    def local_path(self) -> str:
        """Its path on this machine, asked by a worker."""
        if self.is_local:
            return self.path
        from pyspark import SparkFiles

        return str(SparkFiles.get(Path(self.path).name))


def ship(session: SparkSession, path: str) -> Shipped:
    """Make a file known to the workers of a session."""
    context = session.sparkContext
    if context.master.startswith("local"):
        return Shipped(path, is_local=True)
    context.addFile(path)
    return Shipped(path, is_local=False)


# -- in a worker ---------------------------------------------------------------------------------


@functools.lru_cache(maxsize=_OPEN_MAX)
def open_matcher(path: str) -> OpenMatcher:
    """The matcher in a file, mapped; the same object whenever this process asks again."""
    try:
        with Path(path).open("rb") as file:
            # Private: what a matcher changes of itself stays with this process.
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        if bytes(view[: len(_MAGIC)]) != _MAGIC:
            return OpenMatcher(Matcher.load(view), None)
        begin = len(_MAGIC) + 8
        end = begin + int.from_bytes(view[len(_MAGIC) : begin], "little")
        head = msgspec.msgpack.decode(view[begin:end], type=_Head)
        return OpenMatcher(Matcher.load(view[end + -end % _PAGE :]), head)
    except (OSError, ValueError, SavedError, msgspec.DecodeError) as error:
        raise MatchingError(f"cannot open the subscriptions in {path}: {error}") from error
