"""A Delta table with atomic commits, each carrying a number up to which it has a writer's rows.

A writer has a name, and gives a number with each append (Delta calls this a transaction). The
number is part of the commit. So after a crash, or an answer that was lost, the table itself says
what is in it: `append` checks first, and appends nothing twice.

**Flushed before it is acknowledged.** The library does not flush. So in a folder of this machine,
every commit here flushes what was written: files, the commit, their folders. Until then, a power
cut may leave the newest commit torn, and only that one. Opening a table for writing checks it, and
removes it if it is torn: its writer has not been told yet that it is done. The file `_flushed` says
which commits are on disk. Those are never removed: if one is damaged, a power cut is not the cause,
and readers and `rove doctor` report it.

**A short log.** The library reads every file of the log whenever it commits. So commits that a
checkpoint replaces are removed as soon as the table's configuration allows.

Costs, on two cores with a virtual disk: 30 to 40 ms of CPU for appending 1 or 1,000 rows, 5 ms for
listing 300 files, 12 ms for opening a table with 300 commits.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from rove.base.files import sync
from rove.lake.files import NewFile, add_action
from rove.lake.storage import (
    OPTIONS,
    LakeError,
    Location,
    folder_of,
    lake_errors,
    open_parquet,
    resolved,
    shown,
)

if TYPE_CHECKING:
    import deltalake

LOG_FOLDER: Final = "_delta_log"
_FLUSHED: Final = "_flushed"
CHECKPOINT_COMMITS: Final = 100
"""The most commits that a reader opens after the last checkpoint."""
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_log = logging.getLogger(__name__)


class MissingTableError(LakeError):
    """There is no table at a location."""


class DeltaTable:
    """A Delta table in the version that was read last. One thread at a time."""

    def __init__(self, location: Location) -> None:
        """Open an existing table; MissingTableError if there is none."""
        import deltalake
        from deltalake.exceptions import TableNotFoundError

        self.uri = resolved(location)
        self._folder = folder_of(self.uri)
        self._flushed = -1
        """The newest version that is certainly on disk."""
        self._modes: tuple[int, int] | None = None
        self._is_current = True
        """False after a commit that has failed, since it may have been made all the same."""
        if self._folder is not None and not (self._folder / LOG_FOLDER).is_dir():
            raise MissingTableError(f"there is no table at {shown(self.uri)}")
        with lake_errors(f"cannot open the table {shown(self.uri)}"):
            try:
                self._table: deltalake.DeltaTable = deltalake.DeltaTable(
                    self.uri, storage_options=dict(OPTIONS)
                )
            except TableNotFoundError as error:
                raise MissingTableError(f"there is no table at {shown(self.uri)}") from error

    @classmethod
    def for_writing(
        cls,
        location: Location,
        schema: pa.Schema,
        partition_by: Sequence[str],
        configuration: Mapping[str, str],
        modes: tuple[int, int] | None = None,
    ) -> DeltaTable:
        """Open or create a table; a commit that a power cut has torn is removed.

        `modes` are the permissions of its files and of its folders, if they are not to depend on
        the umask of the process.
        """
        import deltalake

        uri = resolved(location)
        if (folder := folder_of(uri)) is not None:
            with lake_errors(f"cannot use the table {shown(uri)}"):
                (folder / LOG_FOLDER).mkdir(parents=True, exist_ok=True)
                _remove_torn(folder)
        with lake_errors(f"cannot create the table {shown(uri)}"):
            deltalake.DeltaTable.create(
                uri,
                schema,
                mode="ignore",
                partition_by=list(partition_by),
                configuration={
                    "delta.checkpointInterval": str(CHECKPOINT_COMMITS),
                    **configuration,
                },
                storage_options=dict(OPTIONS),
            )
        table = cls(uri)
        table._modes = modes
        table._flush()
        return table

    @property
    def version(self) -> int:
        return int(self._table.version())

    @property
    def id(self) -> str:
        """The unique id that it got when it was created."""
        return str(self._table.metadata().id)

    def has_newer(self) -> bool:
        """Whether there is a newer commit than the last one read; in a folder this costs µs."""
        if self._folder is not None:
            return (self._folder / LOG_FOLDER / f"{self.version + 1:020d}.json").exists()
        before = self.version
        self.refresh()
        return self.version > before

    @property
    def fields(self) -> list[pa.Field]:
        """Its columns, with their metadata."""
        return list(pa.schema(self._table.schema().to_arrow()))

    def refresh(self) -> None:
        """Read the newest version."""
        with lake_errors(f"cannot read the table {shown(self.uri)}"):
            self._table.update_incremental()
        self._is_current = True

    def refresh_after_failure(self) -> None:
        """Read the newest version if a commit has failed: it may have been made all the same."""
        if not self._is_current:
            self.refresh()

    def number(self, writer: str) -> int | None:
        """The number up to which it has a writer's rows; None if it has none."""
        found = self._table.transaction_version(writer)
        return None if found is None else int(found)

    def last_info(self, name: str) -> str | None:
        """The value of a name in the `info` of the newest commit that has it."""
        with lake_errors(f"cannot read the table {shown(self.uri)}"):
            found = (commit[name] for commit in self._table.history() if name in commit)
            return next(found, None)

    def files(self) -> pa.Table:
        """One row for each file: path, size_bytes, num_records, min.X, max.X and partition.X."""
        with lake_errors(f"cannot read the table {shown(self.uri)}"):
            return pa.table(self._table.get_add_actions(flatten=True))

    def rows(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows in no order, without partition columns."""
        schema = pa.schema(self._table.schema())
        names = schema.names if columns is None else list(columns)
        wanted = pa.schema([schema.field(name) for name in names])
        found = [wanted.empty_table()]
        for path in self.files()["path"].to_pylist():
            with open_parquet(self.uri, unquote(path)) as file:
                found.append(file.read(names).cast(wanted))
        return pa.concat_tables(found)

    # -- writing -----------------------------------------------------------------------------------

    def append(self, rows: pa.Table, writer: str, number: int) -> bool:
        """Append rows, unless it has them already; returns whether it did.

        The library sorts them into partitions. Files that exist already are added by `commit`.

        An error may be raised although the commit was made: append again, which is safe.
        """
        from deltalake import CommitProperties, Transaction, WriterProperties, write_deltalake

        if self._has(writer, number):
            return False
        with self._committing("write to"):
            write_deltalake(
                self._table,
                rows,
                mode="append",
                writer_properties=WriterProperties(compression="ZSTD"),
                commit_properties=CommitProperties(app_transactions=[Transaction(writer, number)]),
                post_commithook_properties=_hooks(),
            )
        return True

    def commit(
        self,
        writer: str,
        number: int,
        add: Sequence[NewFile] = (),
        remove: Sequence[str] = (),
        info: Mapping[str, str] = {},
        numbers: Mapping[str, int] = {},
    ) -> bool:
        """Add files and remove others in one commit, unless it exists; returns whether it did not.

        If two processes commit with the same writer's name at the same time, one gets an error; and
        so does one that removes a file that is removed already. `info` is for readers of the
        table's history; `numbers` are those of other writers, by name.
        """
        from deltalake import CommitProperties, Transaction

        if self._has(writer, number):
            return False
        with self._committing("write to"):
            self._table.create_write_transaction(
                [*map(add_action, add), *self._removals(remove)],
                "append",
                self._table.schema(),
                list(self._table.metadata().partition_columns),
                commit_properties=CommitProperties(
                    app_transactions=[
                        Transaction(name, up_to)
                        for name, up_to in {**numbers, writer: number}.items()
                    ],
                    custom_metadata=dict(info),
                ),
                post_commithook_properties=_hooks(),
            )
            self._table.update_incremental()
        return True

    def _has(self, writer: str, number: int) -> bool:
        """Whether it has a writer's rows up to a number; then they are also on disk."""
        self.refresh_after_failure()
        there = self.number(writer)
        if there is None or there < number:
            return False
        self._flush()
        return True

    def _removals(self, paths: Sequence[str]) -> list[Any]:
        from deltalake.transaction import RemoveAction

        now_ms = int(time.time() * 1_000)
        return [RemoveAction(path, True, now_ms) for path in paths]

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        """Add columns, which are null in all rows so far."""
        from deltalake import Field

        with self._committing("change"):
            self._table.alter.add_columns(
                [Field.from_arrow(each) for each in fields], post_commithook_properties=_hooks()
            )
            self._table.update_incremental()

    def delete(self, predicate: str) -> None:
        """Remove rows; a reader that has listed their files can read them until `vacuum`."""
        with self._committing("remove from"):
            self._table.delete(predicate, post_commithook_properties=_hooks())

    def compact(self, target_bytes: int, where: Sequence[tuple[str, str, Any]] = ()) -> None:
        """Merge files smaller than `target_bytes`, in the partitions of `where`: name, `=` or `in`,
        value or values."""
        from deltalake import WriterProperties

        with self._committing("compact"):
            self._table.optimize.compact(
                partition_filters=list(where) or None,
                target_size=target_bytes,
                writer_properties=WriterProperties(compression="ZSTD"),
                post_commithook_properties=_hooks(),
            )

    def vacuum(self, *, orphans: bool = False) -> int:
        """Delete files that were removed longer ago than the table keeps them; returns how many.

        With `orphans`, also files of that age that no commit has named, which tasks leave when they
        are killed. For that, all existing files are listed.
        """
        with self._committing("clean up"):
            removed = self._table.vacuum(
                dry_run=False,
                enforce_retention_duration=False,
                full=orphans,
                post_commithook_properties=_hooks(),
            )
            return len(removed)

    @contextlib.contextmanager
    def _committing(self, verb: str) -> Iterator[None]:
        is_current, self._is_current = self._is_current, False
        with lake_errors(f"cannot {verb} the table {shown(self.uri)}"):
            if not is_current:
                self._table.update_incremental()
            yield
            self._flush()
        self._is_current = True

    def _flush(self) -> None:
        """Flush what commits have written since the last time, and remove old commits."""
        version = self.version
        if self._folder is not None:
            first = self._flushed + 1 if self._flushed >= 0 else version
            self._flush_commits(self._folder, range(first, version + 1))
        is_checkpoint_due = version // CHECKPOINT_COMMITS != self._flushed // CHECKPOINT_COMMITS
        if is_checkpoint_due or self._modes is not None:
            self._flush_checkpoints()
        if is_checkpoint_due:
            self._table.cleanup_metadata()
        self._flushed = version

    def _flush_commits(self, folder: Path, versions: range) -> None:
        touched: set[Path] = set()
        for each in versions:
            commit = folder / LOG_FOLDER / f"{each:020d}.json"
            for path, _ in _added(commit):
                self._sync(folder / path)
                touched.update(_between(folder, folder / path))
            self._sync(commit)
        for each_folder in sorted(touched, reverse=True):
            self._sync(each_folder)
        self._sync(folder / LOG_FOLDER)
        if versions:
            # Not flushed itself: after a power cut it may name an older commit, never a newer one.
            (folder / _FLUSHED).write_text(f"{versions[-1]}\n", encoding="ascii")

    def _flush_checkpoints(self) -> None:
        """Flush checkpoints, before the commits that they replace are removed."""
        if self._folder is not None:
            log = self._folder / LOG_FOLDER
            for path in (*log.glob("*.checkpoint*.parquet"), *log.glob("_last_checkpoint"), log):
                self._sync(path)

    def _sync(self, path: Path) -> None:
        if self._modes is not None:
            path.chmod(self._modes[path.is_dir()])
        sync(path)


def exists(location: Location) -> bool:
    """Whether there is a table, perhaps with a torn commit."""
    import deltalake

    uri = resolved(location)
    if (folder := folder_of(uri)) is not None:
        return (folder / LOG_FOLDER).is_dir()
    with lake_errors(f"cannot look for the table {shown(uri)}"):
        return bool(deltalake.DeltaTable.is_deltatable(uri, dict(OPTIONS)))


def _hooks() -> deltalake.PostCommitHookProperties:
    """Let the library write checkpoints; we remove old commits after those are on disk."""
    from deltalake import PostCommitHookProperties

    return PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)


def _between(top: Path, path: Path) -> Iterator[Path]:
    """The folders of a file, up to the topmost one."""
    for folder in path.parents:
        yield folder
        if folder == top:
            return


def _added(commit: Path) -> Iterator[tuple[str, int]]:
    """The files that a commit adds, with their sizes."""
    try:
        lines = commit.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:  # part of a checkpoint already
        return
    for line in lines:
        if (added := json.loads(line).get("add")) is not None:
            yield unquote(added["path"]), added["size"]


def _remove_torn(folder: Path) -> None:
    """Remove the newest commit, and the newest checkpoint, if they are torn."""
    log = folder / LOG_FOLDER
    commits = sorted(path for path in log.iterdir() if _COMMIT.fullmatch(path.name))
    is_flushed = commits and int(commits[-1].stem) <= _flushed_version(folder)
    if commits and not is_flushed and not _is_whole(folder, commits[-1]):
        _log.warning("the last commit of %s is torn and was removed", folder)
        commits[-1].unlink()
    for checkpoint in sorted(log.glob("*.checkpoint*.parquet"))[-1:]:
        if not _is_readable(checkpoint):
            checkpoint.unlink()
            (log / "_last_checkpoint").unlink(missing_ok=True)
    sync(log)


def _flushed_version(folder: Path) -> int:
    try:
        return int((folder / _FLUSHED).read_text(encoding="ascii"))
    except (OSError, ValueError):  # none yet, or torn itself: then the newest commit is checked
        return -1


def _is_whole(folder: Path, commit: Path) -> bool:
    try:
        return all(
            (folder / path).stat().st_size == size and _is_readable(folder / path)
            for path, size in _added(commit)
        )
    except (OSError, ValueError, KeyError):
        return False


def _is_readable(path: Path) -> bool:
    """Whether every page of a Parquet file can be read; after a power cut some may be zeros."""
    try:
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                file.read_row_group(group)
    except (OSError, pa.ArrowException):
        return False
    return True
