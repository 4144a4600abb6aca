"""The data folder: made, locked, checked, and explained to people when it cannot be used.

One process at a time has a folder. Its contents are private to the user of the broker. Nothing is
changed before everything was checked: what is refused stays as it was. `rove.serve.disk.store`
works on the folder; `rove doctor` examines it with the same functions.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import mmap
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rove.base.files import (
    FILE_MODES,
    FOLDER_MODES,
    PRIVATE,
    private_opener,
    set_mode,
    sync,
    write_whole,
)
from rove.broker.storage.journal import INTEGER_TABLES, TABLES, Key
from rove.errors import RoveError
from rove.serve.disk.commit_record import FILE_NAME as COMMITS_NAME
from rove.serve.disk.commit_record import CommitCheck, Mark, check_commits, new_history

SCHEMA_VERSION: Final = 2
FILE_NAME: Final = "rove.db"
INDEX_NAME: Final = "index.rove"
FOREIGN_WAIT_S: Final = 1.0
"""How long a commit waits for another program that has locked the file, a backup for example."""

_FETCH_ROWS: Final = 10_000
_FREE_BYTES_MIN: Final = 64 * 1024
"""With less, the smallest of SQLite's files cannot be made."""
_PRIVATE_FILES: Final = {
    *(FILE_NAME + end for end in ("", "-wal", "-shm")),
    COMMITS_NAME,
    INDEX_NAME,
    "lock",
    "lock-journal",
    "lock.pid",
}
_OWN: Final = _PRIVATE_FILES | {"lake", "matchers"}
"""Everything that a data folder contains."""

_log = logging.getLogger(__name__)


class StoreError(RoveError):
    """The data folder cannot be used, or not now."""


class LossError(StoreError):
    """The database has lost acknowledged changes, or may have."""


def make_folder(folder: Path) -> None:
    """Make sure that there is a usable folder; StoreError says why not."""
    try:
        folder.mkdir(mode=FOLDER_MODES["owner"], parents=True, exist_ok=True)
    except FileExistsError:
        raise StoreError(f"{folder} is a file, but a folder is needed there; {_ANOTHER}") from None
    except OSError as error:
        raise StoreError(
            f"cannot make the data folder {folder}: {error.strerror}; {_ANOTHER}"
        ) from error
    if reason := refusal(folder):
        raise StoreError(f"cannot use the data folder {folder}: {reason}")


def refusal(folder: Path) -> str:
    """Why an existing folder cannot be read and written; empty if it can."""
    by_effective = os.access in os.supports_effective_ids
    if os.access(folder, os.R_OK | os.W_OK | os.X_OK, effective_ids=by_effective):
        return ""
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        return f"it is on a read-only file system; {_ANOTHER}"
    return f"the broker's user may not read and write it; give it the right to, or {_ANOTHER}"


def make_private(folder: Path, mode: int) -> None:
    """Make existing files private, and log which others could read before.

    A folder with other contents too, a home for example, keeps its permissions.
    """
    files = [path for path in folder.iterdir() if path.name in _PRIVATE_FILES]
    changed = [path.name for path in files if set_mode(path, FILE_MODES["owner"])]
    if {path.name for path in folder.iterdir()} <= _OWN and set_mode(folder, mode):
        changed.insert(0, "the folder itself")
    if changed:
        _log.warning(
            "others could read what is in the data folder %s; now they cannot (changed: %s)",
            folder,
            ", ".join(changed),
        )


def locked(folder: Path) -> sqlite3.Connection:
    """The folder's lock, held until it is closed or the process ends, however it ends.

    The lock is SQLite's own, of an empty file beside the data: the same on every system, and
    nothing is left behind that a crash could leave locked.
    """
    holder, file = folder / "lock.pid", folder / "lock"
    try:
        os.close(private_opener(str(file), os.O_RDWR | os.O_CREAT))
        lock = connect(file, wait_s=0)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(unusable(folder, error)) from error
    try:
        lock.execute("BEGIN EXCLUSIVE")
        with open(holder, "w", encoding="utf-8", opener=private_opener) as pid_file:
            pid_file.write(f"{os.getpid()}\n")
    except sqlite3.Error as error:
        lock.close()
        if _code(error) == sqlite3.SQLITE_BUSY:
            raise StoreError(_held(folder, holder)) from error
        raise StoreError(f"cannot lock the data folder {folder}: {error}") from error
    except OSError as error:
        lock.close()
        raise StoreError(unusable(folder, error)) from error
    return lock


def _held(folder: Path, holder: Path) -> str:
    try:
        process = f"process {int(holder.read_text(encoding='utf-8'))}"
    except (OSError, ValueError):  # it is just being written
        process = "another process"
    return f"the data folder {folder} is in use by {process}; stop that one or name another folder"


def make_file(file: Path) -> None:
    """Make sure that there is a database with our tables.

    It is renamed when it is complete, so an empty file, or one without a header, is always damage.
    """
    if file.exists():
        return
    unfinished = file.with_suffix(".new")
    for leftover in file.parent.glob(f"{unfinished.name}*"):
        leftover.unlink()
    os.close(private_opener(str(unfinished), os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    with contextlib.closing(connect(unfinished)) as connection:
        connection.execute("PRAGMA synchronous = OFF")  # one flush for all of it, below
        connection.execute("PRAGMA journal_mode = WAL")
        make_tables(connection)
    sync(unfinished)
    unfinished.rename(file)
    sync(file.parent)
    sync(file.parent.parent)


def checked_mark(file: Path, accept_loss: bool) -> Mark:
    """The last group of a database, if it may be used; nothing is changed."""
    kept = read_mark(file) if file.exists() else None
    verdict = check_commits(file.parent, kept)
    if verdict.fault:
        if not accept_loss and not verdict.is_expected:
            raise LossError(f"{verdict.fault}; {_ACCEPT}")
        _log.warning("%s; going on without them", verdict.fault)
        return _accepted(kept, verdict)
    if kept is None:
        if file.exists():
            _log.info("%s is of a Rove that did not record its commits; now they are", file)
        return new_history()
    return kept


def _accepted(kept: Mark | None, verdict: CommitCheck) -> Mark:
    """The beginning of another history, which records the loss."""
    begin = new_history()
    if kept is not None:
        begin = kept._replace(history=begin.history)
    return begin._replace(
        losses=begin.losses + 1, groups_lost=begin.groups_lost + verdict.groups_lost
    )


def read_mark(file: Path) -> Mark | None:
    """The last group in a database; None if it is from a version that did not count them.

    A file of another program, or of a newer Rove, is refused. It is opened for reading only: a
    connection that may write would empty the write-ahead log when it is closed, with all that
    could still be saved behind a damaged frame.
    """
    if file.stat().st_size == 0:
        raise StoreError(f"{file} is damaged: it is empty; {_REPAIR}")
    with contextlib.closing(_connect_read_only(file)) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if "schema" not in names:
            raise StoreError(f"{file} holds data of another program; name another folder")
        [(version,)] = connection.execute("SELECT max(version) FROM schema").fetchall()
        if version is None or version > SCHEMA_VERSION:
            raise StoreError(
                f"{file} was written by a newer Rove: its schema has version {version}, this Rove "
                f"knows up to {SCHEMA_VERSION}; use the newer Rove, or name another folder"
            )
        return mark_in(connection) if "last_commit" in names else None


def mark_in(connection: sqlite3.Connection) -> Mark | None:
    rows = connection.execute(f"SELECT {', '.join(Mark._fields)} FROM last_commit").fetchall()
    return Mark(*rows[0]) if rows else None


PUT_MARK: Final = f"INSERT OR REPLACE INTO last_commit VALUES (0{',?' * len(Mark._fields)})"


def make_tables(connection: sqlite3.Connection) -> None:
    """Make missing tables, in one commit. From then on an older Rove refuses the file."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("CREATE TABLE IF NOT EXISTS schema (version INTEGER NOT NULL)")
    connection.execute(
        "INSERT INTO schema SELECT ?1 WHERE ?1 > (SELECT coalesce(max(version), 0) FROM schema)",
        (SCHEMA_VERSION,),
    )
    connection.execute(
        "CREATE TABLE IF NOT EXISTS last_commit (id INTEGER PRIMARY KEY, history BLOB NOT NULL, "
        "number INTEGER NOT NULL, at_us INTEGER NOT NULL, losses INTEGER NOT NULL, "
        "groups_lost INTEGER NOT NULL)"
    )
    for name in TABLES:
        kind, options = ("INTEGER", "") if name in INTEGER_TABLES else ("TEXT", " WITHOUT ROWID")
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {name} "
            f"(key {kind} PRIMARY KEY NOT NULL, row BLOB NOT NULL){options}"
        )
    connection.execute("COMMIT")


def connect(file: Path | str, wait_s: float = FOREIGN_WAIT_S) -> sqlite3.Connection:
    return sqlite3.connect(
        file,
        timeout=wait_s,
        isolation_level=None,  # we begin and end transactions
        check_same_thread=False,  # our locks take care of that
        uri=isinstance(file, str),
        cached_statements=32,  # one per group size, and some are long
    )


def _connect_read_only(file: Path) -> sqlite3.Connection:
    return connect(f"{file.absolute().as_uri()}?mode=ro")


# --- what went wrong, for people --------------------------------------------------------------

_REPAIR: Final = "restore it from a backup, or move it away to begin with nothing"
_ANOTHER: Final = "name another folder: `--data`, or `folder` of [data]"
_ACCEPT: Final = (
    "restore a newer copy of the whole folder, or go on without them: `rove up --accept-loss`"
)


def unusable(folder: Path, error: OSError | sqlite3.Error) -> str:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"cannot write to the data folder {folder}: the disk is full; make room on it"
    reason = error.strerror if isinstance(error, OSError) else error
    return f"cannot use the data folder {folder}: {reason}; {_ANOTHER}"


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary code, without the bits for details."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _is_full(file: Path, error: sqlite3.Error) -> bool:
    """Whether the disk is full: in some places SQLite reports only an I/O error."""
    if _code(error) == sqlite3.SQLITE_IOERR:
        with contextlib.suppress(OSError):
            return shutil.disk_usage(file.parent).free < _FREE_BYTES_MIN
    return _code(error) == sqlite3.SQLITE_FULL


def unreadable(file: Path, error: sqlite3.Error) -> str:
    if _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return f"{file} is damaged: {error}; {_REPAIR}"
    if _is_full(file, error):
        return unwritable(file, error)
    return f"cannot use {file}: {error}; check who may read and write it and its folder"


def unwritable(file: Path, error: sqlite3.Error) -> str:
    if _is_full(file, error):
        return f"cannot write to {file}: the disk is full; make room on it"
    if _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return unreadable(file, error)
    return f"cannot write to {file}: {error}; see to its disk"


# --- examining a database -----------------------------------------------------------------------


class DatabaseReader:
    """A database opened for reading only, in the state that a start would load."""

    def __init__(self, file: Path, mark: Mark, connection: sqlite3.Connection) -> None:
        """Use `opened_to_read`."""
        self.file = file
        self.mark = mark
        self._connection = connection
        names = connection.execute("SELECT name FROM sqlite_master")
        self._tables = {name for (name,) in names}

    def load(self, table: str) -> Iterator[tuple[Key, bytes]]:
        """All rows of a table; none if it is missing, where a store would make it."""
        return rows_in(self._connection, self.file, table) if table in self._tables else iter(())

    def damage(self, *, is_thorough: bool) -> str | None:
        """The damage that SQLite finds in its pages; if thorough, also in the order of all rows."""
        check = "integrity_check" if is_thorough else "quick_check"
        try:
            [(found,)] = self._connection.execute(f"PRAGMA {check}(1)").fetchall()
        except sqlite3.Error as error:
            return unreadable(self.file, error)
        return None if found == "ok" else f"{self.file} is damaged: {found}; {_REPAIR}"


@contextlib.contextmanager
def opened_to_read(folder: Path) -> Iterator[DatabaseReader]:
    """Open a database as a start does, but change nothing; StoreError if a start would fail."""
    if reason := refusal(folder):
        raise StoreError(f"cannot use the data folder {folder}: {reason}")
    file = folder / FILE_NAME
    with contextlib.closing(locked(folder)):
        try:
            mark = checked_mark(file, accept_loss=False)
            with contextlib.closing(_connect_read_only(file)) as connection:
                yield DatabaseReader(file, mark, connection)
        except sqlite3.Error as error:
            raise StoreError(unreadable(file, error)) from error


def rows_in(connection: sqlite3.Connection, file: Path, table: str) -> Iterator[tuple[Key, bytes]]:
    """All rows of a table in the order of their keys."""
    cursor = connection.cursor()
    try:
        cursor.execute(f"SELECT key, row FROM {table} ORDER BY key")
        while rows := cursor.fetchmany(_FETCH_ROWS):
            yield from rows
    except sqlite3.Error as error:
        raise StoreError(unreadable(file, error)) from error
    finally:
        with contextlib.suppress(sqlite3.Error):  # its connection may be closed already
            cursor.close()


# --- the index of the subscriptions ------------------------------------------------------------


class IndexFile:
    """The index of the subscriptions with expressions, so that a restart need not parse them.

    It only saves time: everything in it can be made from the database, and a file that is old,
    damaged or missing does no harm (`rove.broker.subscriptions.router` says why an old one cannot
    mislead). With 100,000 subscriptions it has about 20 MB; loading it takes a tenth of a second,
    parsing four.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / INDEX_NAME

    def load(self) -> memoryview | None:
        """The file, as a private mapping; None if there is none."""
        try:
            with self._path.open("rb") as file:
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        except (OSError, ValueError):  # an empty file cannot be mapped
            return None

    def save(self, index: bytes) -> None:
        """Replace the file."""
        write_whole(self._path, [index], mode=PRIVATE)
