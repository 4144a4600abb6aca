"""Backtests: the notifications that a subscription would have had in a period of the past.

A backtest counts the notifications of an expression by hour, publisher and topic, gives some
examples, and estimates the bandwidth. With a second expression it compares the two: notifications
only by the first, only by the second, and by both. The result is exact: rows are matched by the
broker's own matcher, and ranked expressions go through its own windows. The expression only
determines which rows are read (`rove.pipeline.matching.pruning`).

By default the expression counts as accepted when the period begins; `me.` does not change. Tables
have the rows that passed the quality rules; the lake has all rows.

Measured by `rove bench pipeline --part backtest` (docs/backtest.md). The driver holds one entry for
each hour, publisher and topic with a match.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from rove.errors import RoveError
from rove.lang.attributes import selected
from rove.lang.oracle import matches
from rove.lang.parser import parse
from rove.lang.tree import Subscription
from rove.mqtt.encoder import encode
from rove.mqtt.packets import Publish
from rove.pipeline.matching.pruning import PrunedExpression
from rove.pipeline.spark.dialect import ddl
from rove.pipeline.tables.backtest_sources import BacktestSource, ChannelInput, TimeRange
from rove.pipeline.tables.backtest_tasks import (
    BOTH,
    CANDIDATES,
    FIRST,
    HITS,
    PARTIALS,
    SECOND,
    BacktestExpression,
    Example,
    HitCounts,
    candidates,
    count_hits,
    count_matches,
    merge_counts,
    rank_candidates,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOP_MAX: Final = 10
"""Publishers and topics that a report lists."""
SAMPLE: Final = 10
"""Examples to estimate the size of a notification from."""
_POLL_S: Final = 0.2
_HOUR_S: Final = 3_600
_DAY_S: Final = 86_400

ProgressCallback: TypeAlias = Callable[[int, int], None]
"""Called with the number of finished Spark tasks, and of all tasks."""


class BacktestError(RoveError):
    """A backtest without any publications, or with an invalid period."""


class BacktestQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a backtest; moments in seconds since 1970."""

    text: str
    against: str | None = None
    """Another expression, to compare with."""
    since: float
    until: float
    accepted_at: float | None = None
    """When the expressions were accepted, for `t`; by default when the period begins."""
    me: dict[str, object] = {}
    topic_filter: str = ""
    examples: int = 5


class CountByBits(msgspec.Struct, frozen=True):
    """The notifications of an hour, publisher or topic."""

    name: str
    first: int
    """Only by the first expression."""
    second: int
    """Only by the second one."""
    both: int
    """By both."""

    @property
    def total(self) -> int:
        return self.first + self.second + self.both


class ExampleNotification(msgspec.Struct, frozen=True):
    """A notification, as the subscriber would see it."""

    at: float
    """When it was published."""
    due: float
    """When the notification would have been sent."""
    id: str
    client_id: str
    topic: str
    attributes: Mapping[str, object]


class BacktestCost(msgspec.Struct, frozen=True):
    """The cost of a backtest."""

    rows_read: int
    """Rows that Spark read from files, without the row groups and pages that it skipped."""
    bytes_read: int
    """Bytes of these rows, and of the examples."""
    bytes_all: int
    """The size of the channels, over all time."""
    files_read: int
    files_all: int
    seconds: float
    cpu_s: float
    """CPU time of Java and Python in Spark's tasks."""


class BacktestReport(msgspec.Struct, frozen=True):
    """The result of a backtest."""

    text: str
    against: str | None
    since: float
    until: float
    source: str
    channels: Sequence[str]
    publications: int
    """All publications of the period, matching or not."""
    only_first: int
    only_second: int
    both: int
    hours: Sequence[CountByBits]
    """Named by the begin of the hour in seconds; without empty hours."""
    publishers: Sequence[CountByBits]
    """Those with the most notifications."""
    publishers_all: int
    """The number of all publishers with notifications."""
    topics: Sequence[CountByBits]
    topics_all: int
    examples: Mapping[str, Sequence[ExampleNotification]]
    """`first`, `second` and `both`."""
    notification_bytes: float
    """The size of an MQTT packet of the first expression, estimated from examples."""
    cost: BacktestCost

    @property
    def notifications(self) -> int:
        """Notifications of the first expression."""
        return self.only_first + self.both

    @property
    def notifications_against(self) -> int:
        """Notifications of the second expression."""
        return self.only_second + self.both

    @property
    def share(self) -> float:
        """The share of publications that match."""
        return self.notifications / self.publications

    @property
    def per_day(self) -> float:
        return self.notifications / (self.until - self.since) * _DAY_S

    @property
    def bytes_per_day(self) -> float:
        return self.per_day * self.notification_bytes

    def days(self) -> list[CountByBits]:
        """Notifications by day (UTC), for all days of the period."""
        first, last = int(self.since // _DAY_S), int(-(-self.until // _DAY_S))
        sums = {day: [0, 0, 0] for day in range(first, last)}
        for hour in self.hours:
            for place, count in enumerate((hour.first, hour.second, hour.both)):
                # Notifications of sliding windows may be due just after the end of the period.
                sums.setdefault(int(hour.name) // _DAY_S, [0, 0, 0])[place] += count
        return [CountByBits(str(day * _DAY_S), *counts) for day, counts in sorted(sums.items())]


def backtest(
    spark: SparkSession,
    source: BacktestSource,
    query: BacktestQuery,
    on_progress: ProgressCallback = lambda done, tasks: None,
) -> BacktestReport:
    """Run a backtest; LanguageError for an invalid expression, BacktestError if it is empty."""
    begun_s = time.perf_counter()
    period = _period(query)
    texts = [query.text, *([query.against] if query.against is not None else [])]
    trees = [parse(text) for text in texts]
    expressions = _expressions(query, texts, trees)
    parts = source.inputs(spark, period, expressions, query.topic_filter)
    sample = max(SAMPLE, query.examples)
    with _monitored(spark, on_progress) as monitor:
        partials = _partials(parts, [one for one, _ in expressions], trees, query.until, sample)
        found = merge_counts(partials, sample)
        publications = sum(_publications(part, found, trees) for part in parts)
    if not publications:
        first, last = source.span()
        raise BacktestError(
            f"nothing was published from {_moment(query.since)} to {_moment(query.until)}; "
            f"the {source.name} goes from {first} to {last}"
        )
    return _report(query, source, trees, parts, found, publications, monitor, begun_s)


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(at))


def _period(query: BacktestQuery) -> TimeRange:
    if not query.since < query.until:
        raise BacktestError(
            f"the period from {_moment(query.since)} to {_moment(query.until)} is empty; "
            "--since must lie before --until"
        )
    return TimeRange(round(query.since * 1e6), round(query.until * 1e6))


def _expressions(
    query: BacktestQuery, texts: Sequence[str], trees: Sequence[Subscription]
) -> list[tuple[BacktestExpression, PrunedExpression]]:
    accepted_at = _accepted_at(query)
    t = (max(0.0, query.since - accepted_at), max(0.0, query.until - accepted_at))
    return [
        (BacktestExpression(text, accepted_at, query.me), PrunedExpression(tree, t, query.me))
        for text, tree in zip(texts, trees, strict=True)
    ]


def _accepted_at(query: BacktestQuery) -> float:
    return query.since if query.accepted_at is None else query.accepted_at


# -- by Spark ------------------------------------------------------------------------------------


def _partials(
    parts: Sequence[ChannelInput],
    expressions: Sequence[BacktestExpression],
    trees: Sequence[Subscription],
    until: float,
    sample: int,
) -> pa.Table:
    """The partial counts of all workers."""
    there = [part for part in parts if part.rows is not None]
    if not there:
        return PARTIALS.empty_table()
    if all(tree.rank is None for tree in trees):
        works = [msgspec.structs.replace(part.work, examples=sample) for part in there]
        counts = _together(
            part.rows.mapInArrow(partial(count_matches, work), ddl(PARTIALS))
            for part, work in zip(there, works, strict=True)
        )
    else:
        hits = _ranked_hits(there, expressions, trees, until)
        counts = hits.mapInArrow(partial(count_hits, sample), ddl(PARTIALS))
    return counts.toArrow()


def _publications(part: ChannelInput, found: HitCounts, trees: Sequence[Subscription]) -> int:
    """The number of publications in the period."""
    if part.publications is not None or part.rows is None:
        return part.publications or 0
    # The lake must be read to count them. That was done, unless an expression is ranked.
    is_ranked = any(tree.rank is not None for tree in trees)
    return int(part.rows.count()) if is_ranked else found.total("judged")


def _together(frames: Iterable[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionAll(other), frames)


def _ranked_hits(
    parts: Sequence[ChannelInput],
    expressions: Sequence[BacktestExpression],
    trees: Sequence[Subscription],
    until: float,
) -> DataFrame:
    """Hits if an expression is ranked: its candidates go through its window in order."""
    from pyspark.sql import functions as f

    every = _together(
        part.rows.mapInArrow(partial(candidates, part.work), ddl(CANDIDATES)) for part in parts
    )
    found = []
    for number, tree in enumerate(trees):
        own = every.where(f.col("bits").bitwiseAND(1 << number) != 0)
        if tree.rank is None:
            alone = f.lit(1 << number).alias("bits")
            found.append(own.select(alone, *HITS.names[1:]))
            continue
        in_order = own.repartition(1).sortWithinPartitions("at", "position", "id", "client_id")
        run = partial(rank_candidates, expressions[number], number, until)
        found.append(in_order.mapInArrow(run, ddl(HITS)))
    if len(found) == 1:
        return found[0]
    keys = ("position", "at", "id", "client_id", "topic", "cell")
    grouped = _together(found).groupBy(*keys)
    both = grouped.agg(f.bit_or("bits").alias("bits"), f.min("due").alias("due"))
    return both.select(*HITS.names)


class _JobMonitor:
    """Reports the progress of Spark's tasks, and in the end what they read and used."""

    def __init__(self, spark: SparkSession, on_progress: ProgressCallback) -> None:
        self._context: Any = spark.sparkContext
        self._on_progress = on_progress
        self._group = f"rove-backtest-{uuid.uuid4().hex}"
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="backtest-progress")

    def start(self) -> None:
        self._context.setJobGroup(self._group, "rove backtest")
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._context.setLocalProperty("spark.jobGroup.id", None)

    def _follow(self) -> None:
        tracker = self._context.statusTracker()
        while not self._is_over.wait(_POLL_S):
            stages = [tracker.getStageInfo(stage) for stage in self._stages()]
            known = [stage for stage in stages if stage is not None]
            if known:
                done = sum(stage.numCompletedTasks for stage in known)
                self._on_progress(done, sum(stage.numTasks for stage in known))

    def _stages(self) -> Iterator[int]:
        tracker = self._context.statusTracker()
        for job in tracker.getJobIdsForGroup(self._group):
            info = tracker.getJobInfo(job)
            yield from info.stageIds if info is not None else ()

    def used(self) -> tuple[int, int, float]:
        """Rows and bytes that were read, and CPU seconds of Java."""
        store = self._context._jsc.sc().statusStore()
        stages = [store.lastStageAttempt(stage) for stage in sorted(set(self._stages()))]
        return (
            sum(stage.inputRecords() for stage in stages),
            sum(stage.inputBytes() for stage in stages),
            sum(stage.executorCpuTime() for stage in stages) / 1e9,
        )


@contextmanager
def _monitored(spark: SparkSession, on_progress: ProgressCallback) -> Iterator[_JobMonitor]:
    monitor = _JobMonitor(spark, on_progress)
    monitor.start()
    try:
        yield monitor
    finally:
        monitor.stop()


# -- the report ----------------------------------------------------------------------------------


def _report(
    query: BacktestQuery,
    source: BacktestSource,
    trees: Sequence[Subscription],
    parts: Sequence[ChannelInput],
    found: HitCounts,
    publications: int,
    monitor: _JobMonitor,
    begun_s: float,
) -> BacktestReport:
    hours = _counts(found.of("hour"))
    rows_read, bytes_read, java_s = monitor.used()
    examples = _Examples(source, query, trees)
    shown = examples.shown(found)
    publishers, topics = (_most(found.of(what)) for what in ("publisher", "topic"))
    return BacktestReport(
        text=query.text,
        against=query.against,
        since=query.since,
        until=query.until,
        source=source.name,
        channels=source.channels,
        publications=publications,
        only_first=sum(hour.first for hour in hours),
        only_second=sum(hour.second for hour in hours),
        both=sum(hour.both for hour in hours),
        hours=sorted(
            (
                CountByBits(str(int(one.name) * _HOUR_S), one.first, one.second, one.both)
                for one in hours
            ),
            key=lambda one: int(one.name),
        ),
        publishers=publishers,
        publishers_all=len(found.of("publisher")),
        topics=topics,
        topics_all=len(found.of("topic")),
        examples=shown,
        notification_bytes=examples.notification_bytes,
        cost=BacktestCost(
            rows_read=rows_read,
            bytes_read=bytes_read + examples.bytes_read,
            bytes_all=sum(part.bytes_all for part in parts),
            files_read=sum(part.files for part in parts),
            files_all=sum(part.files_all for part in parts),
            seconds=time.perf_counter() - begun_s,
            cpu_s=java_s + found.total("cpu_ns") / 1e9,
        ),
    )


def _counts(by: Mapping[str, Sequence[int]]) -> list[CountByBits]:
    return [CountByBits(name, *counts) for name, counts in by.items()]


def _most(by: Mapping[str, Sequence[int]]) -> list[CountByBits]:
    return sorted(_counts(by), key=lambda one: (-one.total, one.name))[:TOP_MAX]


class _Examples:
    """Looks up example publications, and shows them as the subscriber would get them."""

    def __init__(
        self, source: BacktestSource, query: BacktestQuery, trees: Sequence[Subscription]
    ) -> None:
        self._source = source
        self._query = query
        self._trees = trees
        self._sizes: list[int] = []
        self.bytes_read = 0

    def shown(self, found: HitCounts) -> dict[str, list[ExampleNotification]]:
        """Examples of each kind, in order of time."""
        shown: dict[str, list[ExampleNotification]] = {}
        for name, kind in (("first", FIRST), ("second", SECOND), ("both", BOTH)):
            tree = self._trees[-1] if kind == SECOND else self._trees[0]
            known = [self._seen(tree, one) for one in found.examples[kind]]
            if kind != SECOND:
                self._sizes += map(_packet_bytes, known)
            shown[name] = sorted(known[: self._query.examples], key=lambda one: one.at)
        return shown

    @property
    def notification_bytes(self) -> float:
        """The mean size of a notification of the first expression."""
        return sum(self._sizes) / len(self._sizes) if self._sizes else 0.0

    def _seen(self, tree: Subscription, one: Example) -> ExampleNotification:
        t = one.at_us / 1e6 - _accepted_at(self._query)
        me = self._query.me
        found = self._source.find(one, lambda said: matches(tree, said, t, me))
        self.bytes_read += found.bytes_read
        said = {name: value for name, value in found.attributes.items() if name != "topic"}
        seen = dict(selected(tree, said))
        return ExampleNotification(
            one.at_us / 1e6, one.due_us / 1e6, found.id, one.client_id, one.topic, seen
        )


def _packet_bytes(one: ExampleNotification) -> int:
    return len(encode(Publish(one.topic, msgspec.json.encode(one.attributes))))
