"""The broker's notifications, computed anew from its lake.

The log has everything that the broker's decisions depend on, in the order in which it happened. So
the same kernels compute the same notifications for any range of the log; the tests compare them one
by one. That answers two questions: did all subscribers get what they should have got, and what
would another subscription have got?

Not included: publications that a new subscription got from the past (retained and valid ones), the
effect of access rules, and which member of a group got a publication of a shared subscription (the
lowest number stands for all). Evolving subscriptions are matched exactly, whatever their design
(PES, LEES, CLEES).

Publications are matched in any order, except for ranked subscriptions: their candidates are
collected by bucket and sorted (see `rove.pipeline.ranked.ranking`).

**Segments.** Subscriptions come and go: a log of months has far more versions than ever held at one
time. With one index of all of them, each publication would find hundreds of versions that had ended
or not yet begun, and the index would be too large. So the log is cut wherever as many versions have
begun as there were at the last cut, and each segment gets an index of the versions that hold
somewhere in it. Then at most about half of what a publication finds does not hold, and all indexes
together have at most some three times as many entries as there are versions.

The driver writes only lists of versions, 1 µs each. The first worker that has a publication of a
segment writes its index (`rove.pipeline.matching.index_files`, 0.1 to 0.2 ms a version) beside the
lists; the other workers of that machine wait for it and map the same file. So indexes are built on
all cores, and only where they are needed. Building all of them in the driver was slower with many
segments; building one in every worker would be slow and large with a million subscriptions.
"""

from __future__ import annotations

import fcntl
import functools
import uuid
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa

from rove.base.paged import packed
from rove.base.processes import cores
from rove.pipeline.lake.data_source import rows_of
from rove.pipeline.lake.followers import changes_in, followers_of, variables_of, write_followers
from rove.pipeline.lake.log import NOTHING, Event, Lake
from rove.pipeline.lake.version_index import (
    PAIRS,
    RANKED_ROWS,
    IndexFileSpec,
    IndexSpec,
    VersionIndex,
    opened,
)
from rove.pipeline.lake.versions import Version, versions_of
from rove.pipeline.matching import index_files
from rove.pipeline.matching.index_files import write_index, write_packed
from rove.pipeline.matching.topic_filters import Longs
from rove.pipeline.ranked.ranking import is_ranked, rank_rows
from rove.pipeline.spark.dialect import ddl
from rove.pipeline.spark.executors import TaskFile, folder_of_process, task_file
from rove.pipeline.spark.workers import in_worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEGUN_MIN: Final = 256
"""Versions that begin in a segment, at least: more cuts would cost more than they save."""
_OPEN_MAX: Final = 4
_ENCODER: Final = msgspec.msgpack.Encoder()
_VERSIONS: Final = msgspec.msgpack.Decoder(list[Version])
_READ: Final = ("position", "at", "id", "client_id", "topic", "payload", "user")


def replay(
    spark: SparkSession,
    lake: Lake,
    *,
    after: int = NOTHING,
    up_to: int | None = None,
    channels: Collection[str] | None = None,
    days: tuple[str, str] | None = None,
    engine: str | None = None,
    buckets: int | None = None,
    until: float | None = None,
    begun_min: int = BEGUN_MIN,
) -> DataFrame:
    """All notifications of a range of the log (`rove.pipeline.ranked.buckets.NOTIFICATIONS`).

    The range is `(after, up_to]`, by default as far as the lake is complete. Ranked windows start
    empty at `after`, and slide up to `until`, or else to the last moment in the lake. With an
    engine, only the subscriptions that it serves. At least `begun_min` versions begin in a segment
    (see above); the result does not depend on it.
    """
    last = lake.position() if up_to is None else min(up_to, lake.position())
    publications = lake.publications(
        spark, after=after, up_to=last, channels=channels, days=days, content="slices"
    )
    events = [one for one in lake.events(up_to=last, states_of=()) if _serves(engine, one)]
    versions = [one for one in versions_of(events) if one.until > after]
    notifications, candidates = _matched(
        spark, lake, publications, versions, after, last, buckets or cores(), begun_min
    )
    if not any(is_ranked(text) for text in {one.text for one in versions}):
        return notifications
    if scored := _clients_with_scored_states(events):
        every = lake.events(up_to=last, states_of=scored)
        events = [one for one in every if _serves(engine, one)]
    moment = lake.last_moment(last) if until is None else until
    ranked = rank_rows(candidates, events, buckets=buckets or cores(), until=moment)
    return notifications.unionByName(ranked)


def _serves(engine: str | None, event: Event) -> bool:
    return event.event != "made" or engine in (None, event.engine)


def _clients_with_scored_states(events: Sequence[Event]) -> set[str]:
    """The clients whose state the score of a ranked subscription uses."""
    made = (one for one in events if one.event == "made" and is_ranked(one.text))
    return {one.client_id for one in made if "me" in one.text}


def _matched(
    spark: SparkSession,
    lake: Lake,
    publications: DataFrame,
    versions: Sequence[Version],
    after: int,
    up_to: int,
    buckets: int,
    begun_min: int,
) -> tuple[DataFrame, DataFrame]:
    """Notifications for slices of publications, and candidates for ranked subscriptions."""
    from pyspark.sql import functions as f

    path = folder_of_process("replay") / f"{uuid.uuid4().hex}.versions"
    variables = variables_of(versions)
    changes = changes_in(spark, lake, variables, after, up_to)
    following, others = followers_of(versions, variables, changes)
    write_segments(others, path, begun_min)
    shipped = [task_file(spark, path, small_bytes=0)]
    if following:
        path = path.with_suffix(".following")
        write_followers(following, variables, changes, path)
        shipped.append(task_file(spark, path, small_bytes=0))
    found = publications.mapInArrow(functools.partial(_match, shipped, 0), ddl(PAIRS))
    notifications = found.withColumns(
        {"score": f.lit(None).cast("double"), "promoted": f.lit(False)}
    )
    candidates = functools.partial(_match, shipped, buckets)
    return notifications, publications.mapInArrow(candidates, ddl(RANKED_ROWS))


@in_worker
def _match(
    versions: Sequence[TaskFile], buckets: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Notifications; or, if there are buckets, candidates for ranked subscriptions."""
    segments = open_segments(*(one.local_path() for one in versions))
    for batch in rows_of(batches, _READ):
        for index, here in segments.split(batch):
            yield index.ranked_rows(here, buckets) if buckets else index.match_lake(here)


# --- segments -------------------------------------------------------------------------------------


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
