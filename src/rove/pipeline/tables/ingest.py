"""The lake into typed tables: each row once, whatever happens on the way.

What there is to do follows from two numbers: how far a table has read the log (its own commits say)
and how far the lake is complete. The files between them are cut into rounds, a round
into tasks; Spark runs the tasks, which read, type, judge and write by themselves
(`rove.pipeline.tables.writer`), and only what they have done comes back. Then one commit for each
channel makes the round count (`rove.pipeline.tables.commits`). Killed before it, nothing has
happened but files that nobody names; after it, everything has. At the end of a run small files are
put together.

The first round of a new table looks at a few rows to guess its schema. Whenever a task finds
values without a column, the schema is extended and that task is done again; everything else goes
through once.

A file that cannot be read holds up nobody: it is named in the report and in `quality`, and its
positions are tried again by every later run, in whatever file they are by then. A file that a
worker does not find ends the run: what retention removes stays on disk for hours, so that worker
does not see the lake, and going on would leave rows out for good.

Tables and lake must lie where the driver and all workers see them under one name: in an object
store, or in a folder that they share. That is tried first (`rove.pipeline.spark.storage_probe`).

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
from rove.pipeline.jobs.status import Progress
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
"""Of the lake, between two commits; some 25 million small publications."""
TASK_BYTES: Final = (1024 * 1024, 64 * 1024 * 1024)
"""A task has at least and at most so much to read: files of tables should not be small."""
SAMPLE_ROWS: Final = 1_000
RUN_EVERY_S: Final = 10.0
"""As a job."""

ProgressCallback: TypeAlias = Callable[[int, int], None]
"""Told how many bytes of the lake are done, of how many."""


class IngestError(RoveError):
    """There is nothing that could be ingested, or the rules do not fit to the table."""


class IngestReport(msgspec.Struct):
    """What an ingestion has done."""

    rows_in: int = 0
    rows_out: int = 0
    rejected: dict[str, int] = {}
    """Rows by reason."""
    by_channel: dict[str, int] = {}
    """Rows that went into each table."""
    files_read: int = 0
    files_written: int = 0
    bytes_written: int = 0
    unreadable: list[str] = []
    """Files that could not be read, each with the reason; they will be tried again."""
    position: int = NOTHING
    """The log is in the tables up to here."""
    seconds: float = 0.0

    def add(self, channel: str, outcome: WriteResult) -> None:
        """Count what was done for a channel."""
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
    """What a task has to do, and all that it has to know."""

    lake: str
    table: str
    schema: TableSchema
    rules: QualityRules
    pieces: list[FileRange]
    watermark_us: int | None = None
    duplicates: bytes = b""
    """Positions, as 64-bit integers."""


class IngestResult(msgspec.Struct):
    """What a task has done."""

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
    tell: ProgressCallback = lambda done_bytes, total_bytes: None,
) -> IngestReport:
    """Bring tables up to what the lake has, or up to a position; running it again adds nothing.

    Without Spark the work is done in this process, but for the rule of duplicates.
    """
    begin_s = time.monotonic()
    run = _Ingestion(spark, Lake(lake), resolved(tables), rules or RuleBook())
    report = run.run(channels, up_to, tell)
    report.seconds = time.monotonic() - begin_s
    return report


def run_job(context: JobContext) -> None:
    """Keep tables up with the lake.

    Options: `rules` (a file, docs/tables.md), `channels` (names with commas; all, if none).
    """
    options = context.settings.options
    rules = read_rules(Path(options["rules"])) if "rules" in options else None
    named = options.get("channels")
    lake = Lake(context.settings.lake)

    def step() -> Progress:
        complete = lake.position()
        if not lake.channels() and not context.once:
            return Progress(position=complete)  # a broker that nobody has published to yet
        report = ingest(
            context.spark,
            lake.uri,
            context.location,
            rules=rules,
            channels=named.split(",") if named else None,
            up_to=complete,
        )
        notes = tuple(f"cannot read {each}" for each in report.unreadable)
        return Progress(
            position=complete, rows_in=report.rows_in, rows_out=report.rows_out, notes=notes
        )

    repeat(context, RUN_EVERY_S, step)


class _Ingestion:
    """One ingestion."""

    def __init__(
        self, spark: SparkSession | None, lake: Lake, tables: str, rules: RuleBook
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._tables = tables
        self._rules = rules
        self._targets: dict[str, TargetTable] = {}

    def run(
        self, channels: Collection[str] | None, up_to: int | None, tell: ProgressCallback
    ) -> IngestReport:
        limit = self._limit(up_to)
        pieces = list(self._pieces(self._chosen(channels), limit))
        total_bytes = sum(piece.size_bytes for piece in pieces)
        report = IngestReport()
        done_bytes = 0
        if pieces and self._spark is not None:
            probe(self._spark, reads=[self._lake.uri], writes=[self._tables])
        for boundary, of_round in rounds(pieces):
            tell(done_bytes, total_bytes)
            self._round(of_round, boundary, report)
            done_bytes += sum(piece.size_bytes for piece in of_round)
        if pieces:
            for target in self._targets.values():
                target.channel.maintain()
        tell(total_bytes, total_bytes)
        states = [target.state for target in self._targets.values()]
        report.position = min((state.position for state in states), default=NOTHING)
        report.unreadable = [
            f"{each.path}: {each.why}" for state in states for each in state.skipped
        ]
        return report

    def _limit(self, up_to: int | None) -> int | None:
        complete = self._lake.position()
        if complete == NOTHING:  # nobody has said how far it is, so nobody is writing
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

    def _pieces(self, channels: Sequence[str], limit: int | None) -> Iterator[FileRange]:
        """What no table has yet, with what could not be read before."""
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

    def _round(self, pieces: Sequence[FileRange], boundary: int, report: IngestReport) -> None:
        by_channel: dict[str, list[FileRange]] = {}
        for piece in pieces:
            by_channel.setdefault(piece.file.channel, []).append(piece)
        works: list[tuple[str, IngestTask]] = []
        for channel, its_pieces in by_channel.items():
            target = self._targets[channel]
            target.prepare(self._lake, its_pieces)
            duplicates = self._duplicates(target, its_pieces)
            works += [
                (channel, target.work(self._lake.uri, group, duplicates))
                for group in tasks(its_pieces, parallelism(self._spark))
            ]
        done = self._done(works)
        for channel, its_pieces in by_channel.items():
            outcome = self._targets[channel].commit(its_pieces, done[channel], boundary)
            report.add(channel, outcome)
            report.files_read += len(its_pieces) - sum(len(each.skipped) for each in done[channel])

    def _duplicates(self, target: TargetTable, pieces: Sequence[FileRange]) -> Any:
        horizon_s = target.rules.duplicates_s
        if horizon_s is None:
            return np.empty(0, np.int64)
        if self._spark is None:
            raise IngestError(f"the rules of {target.name!r} have duplicates_s, which takes Spark")
        fresh = self._lake.publications(
            self._spark,
            after=min(piece.after for piece in pieces),
            up_to=max(piece.up_to for piece in pieces),
            channels=[target.name],
            columns=("position", "at", "client_id", "id"),
        )
        first_day = datetime.fromisoformat(min(piece.file.day for piece in pieces))
        since_us = (first_day.replace(tzinfo=UTC).timestamp() - horizon_s) * 1e6
        return duplicate_positions(fresh, target.keys(self._spark, int(since_us)), horizon_s)

    def _done(self, works: Sequence[tuple[str, IngestTask]]) -> dict[str, list[IngestResult]]:
        """The tasks' work, done again by those that found values without a column."""
        found: dict[str, list[IngestResult]] = {}
        waiting = list(works)
        while waiting:
            results = run_each(self._spark, run_task, [work for _, work in waiting], IngestResult)
            again: list[tuple[str, IngestTask]] = []
            for (channel, work), done in zip(waiting, results, strict=True):
                if done.outcome.is_complete:
                    found.setdefault(channel, []).append(done)
                else:
                    self._targets[channel].lacks(done.outcome)
                    again.append((channel, work))
            for channel, work in again:
                work.schema = self._targets[channel].extended()
            waiting = again
        return found


class TargetTable:
    """A table that is being written, and what is known of it."""

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
                    f"was begun with {getattr(self.schema, name)}; write that, or a new table"
                )

    @property
    def state(self) -> IngestState:
        return self.channel.state

    @property
    def uri(self) -> str:
        return self.channel.table.uri

    def keys(self, spark: SparkSession, since_us: int) -> DataFrame | None:
        """What finds duplicates of new rows, among rows of this moment and later."""
        frames = [
            file_keys(spark, child(self.uri, part), paths)
            for part, paths in self.channel.files_since(since_us).items()
            if paths
        ]
        return reduce(lambda one, other: one.unionByName(other), frames) if frames else None

    def prepare(self, lake: Lake, pieces: Sequence[FileRange]) -> None:
        """Guess the schema of a new table from a few rows, so that most tasks run once."""
        if self.schema.attributes:
            return
        for piece in dict.fromkeys((pieces[0], pieces[-1])):
            try:
                rows = lake.read(piece.file).slice(0, SAMPLE_ROWS)
            except LakeError:  # the task that meets it says so
                continue
            self.guess(rows)

    def guess(self, rows: Any) -> None:
        """Extend the schema by what these rows have."""
        columns = (rows.column(name).combine_chunks() for name in ("payload", "user"))
        typed = ColumnBuilder(self.schema).typed(*columns)
        self.schema = self.schema.extended(typed.unmet, needs_rest=typed.needs_rest)

    def work(self, lake: str, pieces: list[FileRange], duplicates: Any) -> IngestTask:
        return IngestTask(
            lake,
            self.uri,
            self.schema,
            self.rules,
            pieces,
            self.state.newest_at_us,
            duplicates.tobytes(),
        )

    def lacks(self, outcome: WriteResult) -> None:
        """Remember what a task found no column for."""
        for path, sort, rows in outcome.unmet:
            self._unmet[path, sort] += rows
        self._needs_rest |= outcome.needs_rest

    def extended(self) -> TableSchema:
        """The schema with all that was lacking."""
        self.schema = self.schema.extended(self._unmet, needs_rest=self._needs_rest)
        self._unmet.clear()
        self._needs_rest = False
        return self.schema

    def commit(
        self, pieces: Sequence[FileRange], done: Sequence[IngestResult], boundary: int
    ) -> WriteResult:
        """Let the round count for this table."""
        outcome = merge_results([each.outcome for each in done])
        kept = [
            each
            for each in self.state.skipped
            if not any(piece.after < each.up_to and piece.up_to > each.after for piece in pieces)
        ]
        self.channel.commit(
            self.schema,
            outcome,
            position=max(boundary, self.state.position),
            skipped=(*kept, *(each for one in done for each in one.skipped)),
        )
        return outcome


# --- cutting it up ----------------------------------------------------------------------------


def rounds(pieces: Iterable[FileRange]) -> Iterator[tuple[int, list[FileRange]]]:
    """Pieces in groups of bounded size, each with the position up to which it is complete.

    A piece that reaches beyond the boundary of its round goes on in the next.
    """
    waiting = sorted(pieces, key=lambda piece: (piece.up_to, piece.file.path))
    while waiting:
        size_bytes, boundary = 0, waiting[-1].up_to
        for piece in waiting:
            size_bytes += piece.size_bytes
            if size_bytes >= ROUND_BYTES:
                boundary = piece.up_to
                break
        found = [
            msgspec.structs.replace(piece, up_to=min(piece.up_to, boundary))
            for piece in waiting
            if piece.after < boundary
        ]
        yield boundary, found
        waiting = [
            msgspec.structs.replace(piece, after=max(piece.after, boundary))
            for piece in waiting
            if piece.up_to > boundary
        ]


def tasks(pieces: Sequence[FileRange], at_once: int) -> Iterator[list[FileRange]]:
    """Pieces of one channel in order, in groups that are worth a task."""
    total_bytes = sum(piece.size_bytes for piece in pieces)
    least, most = TASK_BYTES
    wanted_bytes = min(max(total_bytes // at_once + 1, least), most)
    group: list[FileRange] = []
    size_bytes = 0
    for piece in sorted(pieces, key=lambda piece: (piece.file.day, piece.file.first)):
        group.append(piece)
        size_bytes += piece.size_bytes
        if size_bytes >= wanted_bytes:
            yield group
            group, size_bytes = [], 0
    if group:
        yield group


# --- what runs on the workers -----------------------------------------------------------------


def run_task(work: IngestTask) -> IngestResult:
    """Read, type, judge and write; what cannot be read is told and not fatal."""
    writer = TableWriter(
        work.table,
        work.schema,
        work.rules,
        watermark_us=work.watermark_us,
        duplicates=np.frombuffer(work.duplicates, np.int64),
    )
    skipped: list[SkippedFile] = []
    for piece in work.pieces:
        file = piece.file
        try:
            rows = read_file(work.lake, file, after=piece.after, up_to=piece.up_to)
        except MissingFileError:
            raise
        except LakeError as error:
            why = str(error.__cause__ or error).splitlines()[0]
            skipped.append(
                SkippedFile(file.path, file.first, file.last, piece.after, piece.up_to, why)
            )
            continue
        writer.take(rows)
    return IngestResult(writer.finish(), skipped)
