"""A long log in segments, so that a publication meets only versions that held at about that time.

Subscriptions come and go: a log of months has far more versions than ever held at one time. With
one index of all of them, each publication would find hundreds of versions that had ended or not yet
begun, and the index would be too large. So the log is cut wherever as many versions have begun as
there were at the last cut, and each segment gets an index of the versions that hold somewhere in
it. Then at most about half of what a publication finds does not hold, and all indexes together have
at most some three times as many entries as there are versions.

The driver writes only lists of versions, 1 µs each. The first worker that has a publication of a
segment writes its index (`rove.pipeline.matching.index_files`, 0.1 to 0.2 ms a version) beside the
lists; the other workers of that machine wait for it and map the same file. So indexes are built on
all cores, and only where they are needed. Building all of them in the driver was slower with many
segments; building one in every worker would be slow and large with a million subscriptions.
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

from rove.pipeline.lake.version_index import IndexFileSpec, IndexSpec, VersionIndex, opened
from rove.pipeline.lake.versions import Version
from rove.pipeline.matching import index_files
from rove.pipeline.matching.index_files import packed, write_index, write_packed
from rove.pipeline.matching.topic_filters import Longs

BEGUN_MIN: Final = 256
"""Versions that begin in a segment, at least: more cuts would cost more than they save."""
_OPEN_MAX: Final = 4
_ENCODER: Final = msgspec.msgpack.Encoder()
_VERSIONS: Final = msgspec.msgpack.Decoder(list[Version])


def cuts_of(since: Longs, until: Longs, begun_min: int = BEGUN_MIN) -> list[int]:
    """The positions after which a segment ends, ascending; one more segment follows the last.

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


def write_segments(versions: Sequence[Version], path: Path, begun_min: int = BEGUN_MIN) -> int:
    """Write the versions of each segment into a file; returns the number of segments."""
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
    write_packed(path, packed("segments", cuts, lists))
    return len(held)


class Segments:
    """The indexes of all segments, in a worker."""

    def __init__(self, path: str, following: str = "") -> None:
        """Of versions; `following` is the file of those whose state changes."""
        self._path = path
        self._following = following
        cuts, self._lists = index_files.opened(path, "segments", list[int])
        self._cuts = np.array(cuts, np.int64)

    def __len__(self) -> int:
        return len(self._lists)

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[VersionIndex, pa.RecordBatch]]:
        """The publications of a batch by segment, each with the segment's index."""
        numbers = self.numbers(batch)
        distinct = np.unique(numbers).tolist()
        for number in distinct:
            here = batch if len(distinct) == 1 else batch.filter(pa.array(numbers == number))
            yield self.index(number), here

    def numbers(self, batch: pa.RecordBatch) -> Longs:
        """The segment of each publication."""
        return np.searchsorted(self._cuts, np.asarray(batch["position"]), "left")

    def index(self, number: int) -> VersionIndex:
        """The index of a segment; built now if this machine does not have it yet."""
        path = Path(f"{self._path}.{number}.index")
        if not path.exists():
            with Path(f"{path}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not path.exists():
                    write_index(self.versions(number), path)
        return opened(IndexSpec((IndexFileSpec(str(path)),), self._following))

    def versions(self, number: int) -> list[Version]:
        """The versions that hold somewhere in a segment."""
        return _VERSIONS.decode(self._lists[number])


@functools.lru_cache(maxsize=_OPEN_MAX)
def open_segments(path: str, following: str = "") -> Segments:
    """The segments in a file; one object per process."""
    return Segments(path, following)
