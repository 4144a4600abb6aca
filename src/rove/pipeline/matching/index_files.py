"""Index files: subscriptions in a form that Spark's workers map into memory.

The driver builds an index once and writes it; workers open the file by its name, and the workers of
one machine share its pages. Only the name, and the versions that ended since, are sent with a task.

All such files are paged files (`rove.base.paged`), so that a matcher is searched where it lies.
`contents` says what a file holds, and a file with other contents is refused:

- `subscriptions`: to be matched with tables (`rove.pipeline.matching.index`),
- `versions`: of a broker's log, between the positions where they hold (in this module): a matcher
  for plain versions, one for the conditions of ranked versions, and columns by version,
- `segments`: the same versions, by segment of the log, before their index is built
  (`rove.pipeline.lake.replay`),
- `followers`: versions and the states of their subscribers (`rove.pipeline.lake.followers`).

Topic filters are part of the conditions (`rove.pipeline.matching.topic_filters`). Adding an
expression costs 0.1 to 0.2 ms; opening a file of a million some 0.1 s.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from errno import ENOENT
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from rove.base import files
from rove.base.paged import Block, PagedFileError, packed, unpacked
from rove.errors import RoveError
from rove.lake.storage import folder_of, read_bytes, shown, write_whole
from rove.lang.errors import LanguageError
from rove.lang.parser import parse
from rove.lang.tree import Condition
from rove.lang.tree import Literal as Constant
from rove.lang.tree import Subscription as Text
from rove.match.matcher import Matcher
from rove.pipeline.lake.versions import ANY_TOPIC, Version
from rove.pipeline.matching.topic_filters import Filters, Longs, TableMatcher
from rove.pipeline.spark.executors import TaskFile

_OPEN_MAX: Final = 64
"""Index files that a worker keeps open."""


class IndexFileError(RoveError):
    """A file that is no index, or a subscription that cannot be added to one."""


# -- files ---------------------------------------------------------------------------------------

Contents = Literal["subscriptions", "versions", "segments", "followers"]
HeadType = TypeVar("HeadType")


def write_packed(location: str | Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write a file atomically; it is not flushed, since it can be made again."""
    path = folder_of(str(location))
    if path is None:
        write_whole(str(location), parts)
    else:
        files.write_whole(path, parts, is_flushed=False)


def opened(
    location: str | TaskFile, contents: Contents, head_type: type[HeadType]
) -> tuple[HeadType, list[memoryview]]:
    """Head and blocks of a mapped file; changes of the mapping stay with this process."""
    name = shown(location) if isinstance(location, str) else location.name
    try:
        return unpacked(_mapped(location), contents, head_type)
    except (OSError, ValueError, PagedFileError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise IndexFileError(f"cannot open the index {name}: {why}") from error


def _mapped(location: str | TaskFile) -> memoryview:
    """The content of a file; an object of a store is read into memory."""
    if isinstance(location, TaskFile):
        return location.mapped()
    if "://" not in location:
        return TaskFile(location, location).mapped()
    uri, _, name = location.rpartition("/")
    if (content := read_bytes(uri, name)) is None:
        raise FileNotFoundError(ENOENT, "it is not there")
    return memoryview(bytearray(content))


# -- versions ------------------------------------------------------------------------------------


class _SideHead(msgspec.Struct, frozen=True):
    filters: list[str]
    unfiltered: list[int]
    """The ids of versions without a topic filter."""
    own: dict[int, str]
    shared: dict[int, tuple[str, str]]


class _VersionsHead(msgspec.Struct, frozen=True):
    plain: _SideHead
    ranked: _SideHead


class IndexSide(NamedTuple):
    """The plain versions of an index, or the ranked ones, by their ids in a matcher."""

    matcher: TableMatcher
    numbers: Longs
    since: Longs
    until: Longs
    filters: Filters
    has_filter: npt.NDArray[np.bool_] | None
    """By id; None if all have a topic filter, as those of a broker do."""
    own: Mapping[int, str]
    """The clients of versions with `no_local`, by id; never of ranked ones."""
    shared: Mapping[int, tuple[str, str]]
    """Group and topic filter of shared subscriptions, by id; never of ranked ones."""

    @property
    def is_empty(self) -> bool:
        return len(self.numbers) == 0


SideName = Literal["plain", "ranked"]


class VersionIndexFile(NamedTuple):
    """An open index file."""

    plain: IndexSide
    ranked: IndexSide


# -- writing -------------------------------------------------------------------------------------


class _Builder:
    """Collects plain or ranked versions."""

    def __init__(self) -> None:
        self.matcher = Matcher()
        self.versions: list[Version] = []
        self.filters = Filters()

    def add(self, version: Version, condition: Condition) -> int:
        id = len(self.versions)
        here = Text(self.filters.condition(version.filter, condition))
        self.matcher.add(id, here, version.accepted_at, version.me)
        self.versions.append(version)
        return id

    def blocks(self, *, is_ranked: bool) -> tuple[_SideHead, list[Block]]:
        """The head and the blocks to write.

        Ranked versions have neither `own` nor `shared`: a window also holds publications of its own
        client, and each member of a group has a window. `no_local` is applied after the windows.
        """
        self.matcher.compact()
        versions = self.versions
        own, shared = shares_of(() if is_ranked else versions)
        columns = [
            np.array([one.number for one in versions], np.int64),
            np.array([one.since for one in versions], np.int64),
            np.array([one.until for one in versions], np.int64),
        ]
        arrays = [column.tobytes() for column in columns]
        unfiltered = [id for id, one in enumerate(versions) if one.filter == ANY_TOPIC]
        head = _SideHead(list(self.filters), unfiltered, own, shared)
        return head, [arrays, self.matcher.save()]


def shares_of(
    versions: Iterable[Version],
) -> tuple[dict[int, str], dict[int, tuple[str, str]]]:
    """The clients of versions with `no_local`, and groups of shared ones, by index."""
    own: dict[int, str] = {}
    shared: dict[int, tuple[str, str]] = {}
    for id, one in enumerate(versions):
        if one.no_local:
            own[id] = one.client_id
        if one.share is not None:
            shared[id] = (one.share, one.filter)
    return own, shared


VersionPlace = tuple[SideName, int]
"""Where a version is in a file: its side, and its id there."""


def write_index(versions: Iterable[Version], location: str | Path) -> list[VersionPlace]:
    """Write an index of versions; returns where each of them is.

    The file is written atomically. IndexFileError names an invalid expression.
    """
    sides: dict[SideName, _Builder] = {"plain": _Builder(), "ranked": _Builder()}
    places: list[VersionPlace] = []
    for version in versions:
        try:
            text = Text(Constant(True))
            if version.text:
                text = parse(version.text, accepted=True)
            side: SideName = "plain" if text.rank is None else "ranked"
            places.append((side, sides[side].add(version, text.condition)))
        except LanguageError as error:
            raise IndexFileError(f"subscription {version.number}: {error}") from error
    plain, plain_blocks = sides["plain"].blocks(is_ranked=False)
    ranked, ranked_blocks = sides["ranked"].blocks(is_ranked=True)
    write_packed(
        location, packed("versions", _VersionsHead(plain, ranked), [*plain_blocks, *ranked_blocks])
    )
    return places


@functools.lru_cache(maxsize=_OPEN_MAX)
def open_index(path: str) -> VersionIndexFile:
    """The mapped index of a file; one object per process."""
    head, blocks = opened(path, "versions", _VersionsHead)
    return VersionIndexFile(_side(head.plain, *blocks[:2]), _side(head.ranked, *blocks[2:]))


def _side(head: _SideHead, arrays: memoryview, matcher: memoryview) -> IndexSide:
    numbers, since, until = np.frombuffer(arrays, np.int64).reshape(3, -1)
    return IndexSide(
        Matcher.load(matcher),
        numbers,
        since,
        until,
        Filters(head.filters),
        has_filter(len(numbers), head.unfiltered),
        head.own,
        head.shared,
    )


def has_filter(count: int, unfiltered: Sequence[int]) -> npt.NDArray[np.bool_] | None:
    """Which subscriptions have a topic filter; None if all have one."""
    if not unfiltered:
        return None
    found = np.ones(count, np.bool_)
    found[unfiltered] = False
    return found
