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
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from rove.base.processes import cores
from rove.pipeline.lake.data_source import rows_of
from rove.pipeline.lake.followers import changes_in, followers_of, variables_of, write_followers
from rove.pipeline.lake.log import NOTHING, Event, Lake
from rove.pipeline.lake.segments import BEGUN_MIN, open_segments, write_segments
from rove.pipeline.lake.version_index import PAIRS, RANKED_ROWS
from rove.pipeline.lake.versions import Version, versions_of
from rove.pipeline.ranked.ranking import is_ranked, rank_rows
from rove.pipeline.spark.executors import TaskFile, folder_of_process, task_file
from rove.pipeline.spark.sql import ddl
from rove.pipeline.spark.workers import in_worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    (see `rove.pipeline.lake.segments`); the result does not depend on it.
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
