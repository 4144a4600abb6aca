"""A long log in stretches, so that a publication meets only versions that held about then.

Subscriptions come and go; a log of months has far more versions than ever held
at one time. One index of all of them would be asked for each publication, would find hundreds of
versions that were gone or not yet there, and would be too large. So the log is cut where as many
versions have begun as there were at the last cut, and each stretch gets an index of those that
hold somewhere in it. Then at most about half of what a publication meets is not there, and all
indexes together have at most some three times as many entries as there are versions.

The driver writes only lists of versions, 1 µs each. A worker that meets the first publication of a
stretch writes its index (`rove.pipeline.matching.index_files`, 0.1 to 0.2 ms a version) beside the
lists; the others of that machine wait for it and map the same file. So indexes are built on all
cores, and only where they are needed. That the driver builds them all was slower with many
stretches, and that every worker builds its own would be slow and large with a million
subscriptions.
"""

from __future__ import annotations

import fcntl
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from rove.base.paged import packed
from rove.pipeline.lake.version_index import IndexSpec, PartSpec, VersionIndex, opened
from rove.pipeline.lake.versions import Version
from rove.pipeline.matching import index_files
from rove.pipeline.matching.index_files import write_index, write_packed
from rove.pipeline.matching.topics import Longs

BEGUN_MIN: Final = 256
"""Versions that begin in a stretch: below that, more cuts would cost more than they save."""
_OPEN_MAX: Final = 4
_ENCODER: Final = msgspec.msgpack.Encoder()
_VERSIONS: Final = msgspec.msgpack.Decoder(list[Version])


def cuts_of(since: Longs, until: Longs, begun_min: int = BEGUN_MIN) -> list[int]:
    """The positions after which a stretch ends, ascending; behind the last one there is another.

    For versions that hold above a position and up to another.
    """
    begins, ends = np.sort(since), np.sort(until)
    cuts: list[int] = []
    first = live = 0
    while (following := first + max(begun_min, live)) < begins.size:
        cut = begins[following]
        if cut == begins[first]:  # all of these begin together
            following = int(np.searchsorted(begins, cut, "right"))
            if following == begins.size:
                break
            cut = begins[following]
        cuts.append(int(cut))
        first = int(np.searchsorted(begins, cut, "left"))
        live = first - int(np.searchsorted(ends, cut, "right"))
    return cuts


def write_stretches(versions: Sequence[Version], path: Path, begun_min: int = BEGUN_MIN) -> int:
    """Write the versions of each stretch into a file; gives how many stretches there are."""
    since = np.array([one.since for one in versions], np.int64)
    until = np.array([one.until for one in versions], np.int64)
    cuts = cuts_of(since, until, begun_min)
    firsts = np.searchsorted(cuts, since, "right").tolist()
    lasts = np.searchsorted(cuts, until, "left").tolist()
    held: list[list[Version]] = [[] for _ in range(len(cuts) + 1)]
    for version, first, last in zip(versions, firsts, lasts, strict=True):
        for number in range(first, last + 1):
            held[number].append(version)
    lists = ([_ENCODER.encode(some)] for some in held)
    write_packed(path, packed("stretches", cuts, lists))
    return len(held)


class Stretches:
    """The indexes of all stretches, in a worker."""

    def __init__(self, path: str, following: str = "") -> None:
        """Of versions; `following` is the file of those whose state changes."""
        self._path = path
        self._following = following
        cuts, self._lists = index_files.opened(path, "stretches", list[int])
        self._cuts = np.array(cuts, np.int64)

    def __len__(self) -> int:
        return len(self._lists)

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[VersionIndex, pa.RecordBatch]]:
        """The publications of each stretch that a batch has some of, and who may get them."""
        numbers = self.numbers(batch)
        distinct = np.unique(numbers).tolist()
        for number in distinct:
            here = batch if len(distinct) == 1 else batch.filter(pa.array(numbers == number))
            yield self.index(number), here

    def numbers(self, batch: pa.RecordBatch) -> Longs:
        """In which stretch each publication lies."""
        return np.searchsorted(self._cuts, np.asarray(batch["position"]), "left")

    def index(self, number: int) -> VersionIndex:
        """The index of a stretch; built now, if nobody has asked for it on this machine."""
        path = Path(f"{self._path}.{number}.index")
        if not path.exists():
            with Path(f"{path}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not path.exists():
                    write_index(self.versions(number), path)
        return opened(IndexSpec((PartSpec(str(path)),), self._following))

    def versions(self, number: int) -> list[Version]:
        """Those that hold somewhere in a stretch."""
        return _VERSIONS.decode(self._lists[number])


@functools.lru_cache(maxsize=_OPEN_MAX)
def open_stretches(path: str, following: str = "") -> Stretches:
    """What was written; the same object whenever this process asks again."""
    return Stretches(path, following)
