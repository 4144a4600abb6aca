"""Ingests the lake into typed tables: each row exactly once.

The work is the range between two positions: up to which the table has read the log (stored in its
commits), and up to which the lake is complete. The files of that range are divided into rounds, a
round into tasks. Spark runs the tasks, which read, type, check and write rows themselves
(`rove.pipeline.tables.writer`), and only their results are returned. Then a commit for each channel
adds the files of the round to the tables (`rove.pipeline.tables.commits`). After a crash before the
commit there are only files that no table refers to; after it, the round is complete. At the end of
a run small files are compacted.

The first round of a new table samples a few rows to guess the schema. If a task finds values
without a column, the schema is extended and the task is run again; all other rows are processed
once.

An unreadable file does not stop the run: it is listed in the report and in `quality`, and every
later run tries its positions again, in whatever file they are by then. But a file that a worker
does not find ends the run: files that retention removes stay on disk for hours, so this worker does
not see the lake, and to continue would lose rows.

The driver and all workers must see tables and lake under the same name: in an object store, or in a
shared folder. That is checked first (`rove.pipeline.spark.storage_probe`).

A publication of five numbers costs 2 to 3 µs of one core (docs/tables.md).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import numpy as np

from rove.errors import RoveError
from rove.lake.log import read_file
from rove.lake.storage import Location, MissingFileError, child, resolved
from rove.pipeline.jobs.job import repeat
from rove.pipeline.jobs.status import StepReport
from rove.pipeline.lake.log import NOTHING, Lake, LakeError, LogFile
from rove.pipeline.spark.storage_probe import probe
from rove.pipeline.spark.workers import parallelism, run_each
from rove.pipeline.tables.column_builder import ColumnBuilder
from rove.pipeline.tables.commits import ChannelTables, IngestState, SkippedFile, WriteResult
from rove.pipeline.tables.quality import (
    QualityRules,
    RuleBook,
    duplicate_positions,
    file_keys,
    read_rules,
)
from rove.pipeline.tables.table import NamePath, Sort, TableSchema
from rove.pipeline.tables.writer import TableWriter, merge_results

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rove.pipeline.jobs.job import JobContext

ROUND_BYTES: Final = 512 * 1024 * 1024
"""Bytes of the lake between two commits; some 25 million small publications."""
TASK_BYTES: Final = (1024 * 1024, 64 * 1024 * 1024)
"""The least and the most bytes of a task: files of tables should not be small."""
SAMPLE_ROWS: Final = 1_000
RUN_EVERY_S: Final = 10.0
"""The interval of the job."""

ProgressCallback: TypeAlias = Callable[[int, int], None]
"""Called with the bytes of the lake that are ingested, and all bytes to ingest."""


class IngestError(RoveError):
    """The rules do not fit the table, or need Spark."""


class IngestReport(msgspec.Struct):
    """The result of an ingestion."""

    rows_in: int = 0
    rows_out: int = 0
    rejected: dict[str, int] = {}
    """Numbers of rejected rows by reason."""
    by_channel: dict[str, int] = {}
    """Numbers of rows added to each table."""
    files_read: int = 0
    files_written: int = 0
    bytes_written: int = 0
    unreadable: list[str] = []
    """Files that could not be read, each with the reason; the next run tries them again."""
    position: int = NOTHING
    """The log is in the tables up to here."""
    seconds: float = 0.0

    def add(self, channel: str, outcome: WriteResult) -> None:
        """Add the result for a channel."""
        counts = dict(outcome.counts)
        rows_out = counts.pop("out", 0)
        self.rows_in += counts.pop("in", 0)
        self.rows_out += rows_out
        self.rejected = dict(Counter(self.rejected) + Counter(counts))
        self.by_channel[channel] = self.by_channel.get(channel, 0) + rows_out
        files = [*outcome.data, *outcome.rejected]
        self.files_written += len(files)
        self.bytes_written += sum(file.size_bytes for file in files)


class FileRange(msgspec.Struct, frozen=True):
    """The rows of a file of the lake at positions in `(after, up_to]`."""

    file: LogFile
    after: int
    up_to: int

    @property
    def size_bytes(self) -> int:
        return self.file.size_bytes


class IngestTask(msgspec.Struct):
    """The input of a task."""

    lake: str
    table: str
    schema: TableSchema
    rules: QualityRules
    ranges: list[FileRange]
    watermark_us: int | None = None
    duplicates: bytes = b""
    """Positions of duplicates, as 64-bit integers."""


class IngestResult(msgspec.Struct):
    """The output of a task."""

    outcome: WriteResult
    skipped: list[SkippedFile] = []


def ingest(
    spark: SparkSession | None,
    lake: Location,
    tables: Location,
    *,
    rules: RuleBook | None = None,
    channels: Collection[str] | None = None,
    up_to: int | None = None,
    on_progress: ProgressCallback = lambda done_bytes, total_bytes: None,
) -> IngestReport:
    """Ingest what the lake has, or up to a position; another run adds nothing.

    Without Spark the tasks are run in this process; the rule for duplicates needs Spark.
    """
    begin_s = time.monotonic()
    run = _Ingestion(spark, Lake(lake), resolved(tables), rules or RuleBook())
    report = run.run(channels, up_to, on_progress)
    report.seconds = time.monotonic() - begin_s
    return report


def run_job(context: JobContext) -> None:
    """Keep tables up to date with the lake.

    Options: `rules` (a file, docs/tables.md), `channels` (names with commas; all, if none).
    """
    options = context.settings.options
    rules = read_rules(Path(options["rules"])) if "rules" in options else None
    named = options.get("channels")
    lake = Lake(context.settings.lake)

    def step() -> StepReport:
        complete = lake.position()
        if not lake.channels() and not context.once:
            return StepReport(position=complete)  # there are no publications yet
        report = ingest(
            context.spark,
            lake.uri,
            context.location,
            rules=rules,
            channels=named.split(",") if named else None,
            up_to=complete,
        )
        notes = tuple(f"cannot read {each}" for each in report.unreadable)
        return StepReport(
            position=complete, rows_in=report.rows_in, rows_out=report.rows_out, notes=notes
        )

    repeat(context, RUN_EVERY_S, step)


class _Ingestion:
    """A single ingestion."""

    def __init__(
        self, spark: SparkSession | None, lake: Lake, tables: str, rules: RuleBook
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._tables = tables
        self._rules = rules
        self._targets: dict[str, TargetTable] = {}

    def run(
        self, channels: Collection[str] | None, up_to: int | None, on_progress: ProgressCallback
    ) -> IngestReport:
        limit = self._limit(up_to)
        ranges = list(self._ranges(self._chosen(channels), limit))
        total_bytes = sum(file_range.size_bytes for file_range in ranges)
        report = IngestReport()
        done_bytes = 0
        if ranges and self._spark is not None:
            probe(self._spark, reads=[self._lake.uri], writes=[self._tables])
        for boundary, of_round in rounds(ranges):
            on_progress(done_bytes, total_bytes)
            self._round(of_round, boundary, report)
            done_bytes += sum(file_range.size_bytes for file_range in of_round)
        if ranges:
            for target in self._targets.values():
                target.channel.maintain()
        on_progress(total_bytes, total_bytes)
        states = [target.state for target in self._targets.values()]
        report.position = min((state.position for state in states), default=NOTHING)
        report.unreadable = [
            f"{each.path}: {each.why}" for state in states for each in state.skipped
        ]
        return report

    def _limit(self, up_to: int | None) -> int | None:
        complete = self._lake.position()
        if complete == NOTHING:  # the lake has no position, so no broker is writing to it
            return up_to
        return complete if up_to is None else min(up_to, complete)

    def _chosen(self, channels: Collection[str] | None) -> list[str]:
        there = self._lake.channels()
        if not there:
            raise LakeError(f"the lake {self._lake.name} has no publications yet")
        for channel in channels or ():
            if channel not in there:
                known = ", ".join(map(repr, there))
                raise LakeError(f"the lake has no channel {channel!r}; it has {known}")
        return sorted(channels or there)

    def _ranges(self, channels: Sequence[str], limit: int | None) -> Iterator[FileRange]:
        """File ranges that are not in the tables yet, with those that could not be read before."""
        for channel in channels:
            target = self._targets[channel] = TargetTable(self._tables, channel, self._rules)
            position = target.state.position
            for file in self._lake.files("publications", position, limit, [channel]):
                last = file.last if limit is None else min(limit, file.last)
                yield FileRange(file, max(position, file.first - 1), last)
            for each in target.state.skipped:
                for file in self._lake.files("publications", each.after, each.up_to, [channel]):
                    yield FileRange(
                        file, max(each.after, file.first - 1), min(each.up_to, file.last)
                    )

    def _round(self, ranges: Sequence[FileRange], boundary: int, report: IngestReport) -> None:
        by_channel: dict[str, list[FileRange]] = {}
        for file_range in ranges:
            by_channel.setdefault(file_range.file.channel, []).append(file_range)
        works: list[tuple[str, IngestTask]] = []
        for channel, its_ranges in by_channel.items():
            target = self._targets[channel]
            target.prepare(self._lake, its_ranges)
            duplicates = self._duplicates(target, its_ranges)
            works += [
                (channel, target.task(self._lake.uri, group, duplicates))
                for group in tasks(its_ranges, parallelism(self._spark))
            ]
        done = self._done(works)
        for channel, its_ranges in by_channel.items():
            outcome = self._targets[channel].commit(its_ranges, done[channel], boundary)
            report.add(channel, outcome)
            report.files_read += len(its_ranges) - sum(len(each.skipped) for each in done[channel])

    def _duplicates(self, target: TargetTable, ranges: Sequence[FileRange]) -> Any:
        horizon_s = target.rules.duplicates_s
        if horizon_s is None:
            return np.empty(0, np.int64)
        if self._spark is None:
            raise IngestError(f"the rules of {target.name!r} have duplicates_s, which needs Spark")
        fresh = self._lake.publications(
            self._spark,
            after=min(file_range.after for file_range in ranges),
            up_to=max(file_range.up_to for file_range in ranges),
            channels=[target.name],
            columns=("position", "at", "client_id", "id"),
        )
        first_day = datetime.fromisoformat(min(file_range.file.day for file_range in ranges))
        since_us = (first_day.replace(tzinfo=UTC).timestamp() - horizon_s) * 1e6
        return duplicate_positions(fresh, target.keys(self._spark, int(since_us)), horizon_s)

    def _done(self, works: Sequence[tuple[str, IngestTask]]) -> dict[str, list[IngestResult]]:
        """Run tasks, and run those again that found values without a column."""
        found: dict[str, list[IngestResult]] = {}
        waiting = list(works)
        while waiting:
            results = run_each(self._spark, run_task, [work for _, work in waiting], IngestResult)
            again: list[tuple[str, IngestTask]] = []
            for (channel, work), done in zip(waiting, results, strict=True):
                if done.outcome.is_complete:
                    found.setdefault(channel, []).append(done)
                else:
                    self._targets[channel].add_missing(done.outcome)
                    again.append((channel, work))
            for channel, work in again:
                work.schema = self._targets[channel].extend_schema()
            waiting = again
        return found


class TargetTable:
    """A table that is being written."""

    def __init__(self, tables: str, channel: str, rules: RuleBook) -> None:
        self.name = channel
        self.rules = rules.of(channel)
        self._unmet: Counter[tuple[NamePath, Sort]] = Counter()
        self._needs_rest = False
        begin = self.rules.new_schema(channel)
        self.channel = ChannelTables(tables, begin)
        self.schema = self.channel.schema
        for name in ("lat", "long", "cell_km"):
            if getattr(begin, name) != getattr(self.schema, name):
                raise IngestError(
                    f"the rules give {channel!r} the {name} {getattr(begin, name)}, but its table "
                    f"was created with {getattr(self.schema, name)}; use that, or a new table"
                )

    @property
    def state(self) -> IngestState:
        return self.channel.state

    @property
    def uri(self) -> str:
        return self.channel.table.uri

    def keys(self, spark: SparkSession, since_us: int) -> DataFrame | None:
        """The columns that identify duplicates, of rows at or after a moment."""
        frames = [
            file_keys(spark, child(self.uri, part), paths)
            for part, paths in self.channel.files_since(since_us).items()
            if paths
        ]
        return reduce(lambda one, other: one.unionByName(other), frames) if frames else None

    def prepare(self, lake: Lake, ranges: Sequence[FileRange]) -> None:
        """Guess the schema of a new table from a few rows, so that most tasks run once."""
        if self.schema.attributes:
            return
        for file_range in dict.fromkeys((ranges[0], ranges[-1])):
            try:
                rows = lake.read(file_range.file).slice(0, SAMPLE_ROWS)
            except LakeError:  # its task reports that
                continue
            self.guess(rows)

    def guess(self, rows: Any) -> None:
        """Extend the schema by the attributes of these rows."""
        columns = (rows.column(name).combine_chunks() for name in ("payload", "user"))
        typed = ColumnBuilder(self.schema).typed(*columns)
        self.schema = self.schema.extended(typed.unmet, needs_rest=typed.needs_rest)

    def task(self, lake: str, ranges: list[FileRange], duplicates: Any) -> IngestTask:
        return IngestTask(
            lake,
            self.uri,
            self.schema,
            self.rules,
            ranges,
            self.state.newest_at_us,
            duplicates.tobytes(),
        )

    def add_missing(self, outcome: WriteResult) -> None:
        """Collect values without a column that a task has found."""
        for path, sort, rows in outcome.unmet:
            self._unmet[path, sort] += rows
        self._needs_rest |= outcome.needs_rest

    def extend_schema(self) -> TableSchema:
        """Extend the schema by the collected values; returns it."""
        self.schema = self.schema.extended(self._unmet, needs_rest=self._needs_rest)
        self._unmet.clear()
        self._needs_rest = False
        return self.schema

    def commit(
        self, ranges: Sequence[FileRange], done: Sequence[IngestResult], boundary: int
    ) -> WriteResult:
        """Commit the results of a round."""
        outcome = merge_results([each.outcome for each in done])
        kept = [
            each
            for each in self.state.skipped
            if not any(
                file_range.after < each.up_to and file_range.up_to > each.after
                for file_range in ranges
            )
        ]
        self.channel.commit(
            self.schema,
            outcome,
            position=max(boundary, self.state.position),
            skipped=(*kept, *(each for one in done for each in one.skipped)),
        )
        return outcome


# --- rounds and tasks -------------------------------------------------------------------------


def rounds(ranges: Iterable[FileRange]) -> Iterator[tuple[int, list[FileRange]]]:
    """File ranges in rounds of bounded size, each with the position up to which it is complete.

    A range that extends beyond the end of its round continues in the next one.
    """
    waiting = sorted(ranges, key=lambda file_range: (file_range.up_to, file_range.file.path))
    while waiting:
        size_bytes, boundary = 0, waiting[-1].up_to
        for file_range in waiting:
            size_bytes += file_range.size_bytes
            if size_bytes >= ROUND_BYTES:
                boundary = file_range.up_to
                break
        found = [
            msgspec.structs.replace(file_range, up_to=min(file_range.up_to, boundary))
            for file_range in waiting
            if file_range.after < boundary
        ]
        yield boundary, found
        waiting = [
            msgspec.structs.replace(file_range, after=max(file_range.after, boundary))
            for file_range in waiting
            if file_range.up_to > boundary
        ]


def tasks(ranges: Sequence[FileRange], at_once: int) -> Iterator[list[FileRange]]:
    """File ranges of one channel in order, in groups of the size of a task."""
    total_bytes = sum(file_range.size_bytes for file_range in ranges)
    least, most = TASK_BYTES
    wanted_bytes = min(max(total_bytes // at_once + 1, least), most)
    group: list[FileRange] = []
    size_bytes = 0
    for file_range in sorted(
        ranges, key=lambda file_range: (file_range.file.day, file_range.file.first)
    ):
        group.append(file_range)
        size_bytes += file_range.size_bytes
        if size_bytes >= wanted_bytes:
            yield group
            group, size_bytes = [], 0
    if group:
        yield group


# --- in a worker ------------------------------------------------------------------------------


def run_task(work: IngestTask) -> IngestResult:
    """Read, type, check and write rows; unreadable files are reported and skipped."""
    writer = TableWriter(
        work.table,
        work.schema,
        work.rules,
        watermark_us=work.watermark_us,
        duplicates=np.frombuffer(work.duplicates, np.int64),
    )
    skipped: list[SkippedFile] = []
    for file_range in work.ranges:
        file = file_range.file
        try:
            rows = read_file(work.lake, file, after=file_range.after, up_to=file_range.up_to)
        except MissingFileError:
            raise
        except LakeError as error:
            why = str(error.__cause__ or error).splitlines()[0]
            skipped.append(
                SkippedFile(
                    file.path, file.first, file.last, file_range.after, file_range.up_to, why
                )
            )
            continue
        writer.take(rows)
    return IngestResult(writer.finish(), skipped)
