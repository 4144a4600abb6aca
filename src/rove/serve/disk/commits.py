"""How far the database had come: a small file beside it, so that a start notices what is missing.

SQLite's write-ahead log is a chain of checksums. A log that was cut or damaged in the middle is
read up to the first bad frame, and what follows is dropped without a word: for SQLite that is how
every crash looks. The same holds for an old copy of the database that was put in place of the
newer one. So each commit is numbered. The number is in the database, in the same transaction as
the rows, and after the commit and before its acknowledgements it is written here. A database
that has group N has all groups before it; a start compares the two numbers:

    database ahead    a crash came between the two: nothing that was acknowledged is missing
    the same          nothing is missing
    database behind   acknowledged groups are gone: the start is refused, unless told to go on

A history is a random name. Another one begins with a new database and with each accepted loss:
equal numbers of two different histories say nothing.

The record is never ahead of what is on disk, so no crash gives a false alarm. It is handed to the
system and not flushed at once: that survives the death of the process, and costs some µs where a
second flush of the disk would halve the rate of lone commits. It is flushed once a second
(`rove.serve.disk.store`). So what goes unnoticed is a loss within the last second before a power
failure, if the log is damaged on top of that; the rows themselves are flushed as ever.

There are two slots, on pages of their own, written in turn: a slot that was torn by a crash had not
been promised to anybody, and the other one has the group before it.
"""

from __future__ import annotations

import os
import secrets
import struct
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from rove.base.files import PRIVATE, write_whole
from rove.errors import RoveError

FILE_NAME: Final = "rove.commits"
SLOT_BYTES: Final = 4096
SLOTS: Final = 2
HISTORY_BYTES: Final = 16

_MAGIC: Final = b"rovecom1"
_FIELDS: Final = struct.Struct(f"<{len(_MAGIC)}s{HISTORY_BYTES}sqqqqB16s")
_CHECKSUM: Final = struct.Struct("<I")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_NO_BOOT_ID: Final = bytes(16)


class Mark(NamedTuple):
    """A committed group: the last one, in the database as in the file."""

    history: bytes
    number: int
    at_us: int
    """When it was committed, by the system's clock."""
    losses: int = 0
    """How often somebody accepted that groups were missing,"""
    groups_lost: int = 0
    """and how many were, as far as that is known."""

    def next(self, at_us: int) -> Mark:
        """The group after this one."""
        return Mark(self.history, self.number + 1, at_us, self.losses, self.groups_lost)

    @property
    def at(self) -> str:
        """For people."""
        return f"{datetime.fromtimestamp(self.at_us / 1e6, UTC):%Y-%m-%d %H:%M:%S}Z"


class Recorded(NamedTuple):
    """What the file says."""

    mark: Mark
    is_flushed: bool
    """Whether commits were flushed before they were acknowledged, as durability `full` has it."""
    boot: bytes
    """Of the system that wrote it (`boot_id`)."""


class CommitsError(RoveError):
    """The file holds no valid record."""


class CommitCheck(NamedTuple):
    """What the two numbers say of each other."""

    fault: str = ""
    """What is wrong, for people; empty if nothing is."""
    groups_lost: int = 0
    is_expected: bool = False
    """The durability that was chosen does not promise otherwise."""


def new_history() -> Mark:
    """A history in which nothing has been committed."""
    return Mark(secrets.token_bytes(HISTORY_BYTES), 0, 0)


def recorded(folder: Path) -> Recorded | None:
    """What the file of a data folder says, None if there is none; CommitsError if it is damaged."""
    path = folder / FILE_NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    slots = [_read(data, number) for number in range(SLOTS)]
    found = [slot for slot in slots if slot is not None]
    if not found:
        raise CommitsError(f"{path} is damaged: it holds no valid record")
    return max(found, key=lambda slot: slot.mark.number)


def check_commits(folder: Path, kept: Mark | None) -> CommitCheck:
    """Whether the database, whose last group is `kept`, has all that was acknowledged.

    A database without a mark is new, or was written by a Rove that kept none.
    """
    unknown = "whether the database has all that was acknowledged cannot be told"
    try:
        told = recorded(folder)
    except CommitsError as error:
        return CommitCheck(f"{error}; {unknown}")
    if told is None:
        if kept is None:
            return CommitCheck()
        return CommitCheck(f"{folder / FILE_NAME} is missing; {unknown}")
    mark = told.mark
    if kept is None:
        return (
            CommitCheck(_behind(folder, kept, mark), mark.number) if mark.number else CommitCheck()
        )
    if kept.history != mark.history:
        return CommitCheck(
            f"the database in {folder} and {FILE_NAME} are not of one history"
            f" (group {kept.number:,} of {kept.at}, and group {mark.number:,} of {mark.at});"
            f" {unknown}"
        )
    if kept.number >= mark.number:
        return CommitCheck()
    is_expected = not told.is_flushed and told.boot != boot_id()
    return CommitCheck(_behind(folder, kept, mark), mark.number - kept.number, is_expected)


def _behind(folder: Path, kept: Mark | None, mark: Mark) -> str:
    lost = mark.number - (kept.number if kept else 0)
    end = f"ends with group {kept.number:,} of {kept.at}" if kept else "knows of no groups"
    return (
        f"the database in {folder} has lost {lost:,} acknowledged groups of changes:"
        f" it {end}, but group {mark.number:,} was committed at {mark.at}"
    )


def boot_id() -> bytes:
    """Tells one start of the system from another; zeros where that is not known."""
    try:
        return bytes.fromhex(_BOOT_ID.read_text(encoding="utf-8").replace("-", ""))
    except (OSError, ValueError):
        return _NO_BOOT_ID


class Commits:
    """The file of a data folder, open for writing. One thread at a time, but for `flush`."""

    def __init__(self, folder: Path, mark: Mark, *, is_flushed: bool) -> None:
        """Let the file say this. It is made anew, on disk, unless it is of the same history."""
        self._is_flushed = is_flushed
        self._boot = boot_id()
        self._is_dirty = False
        path = folder / FILE_NAME
        if not _is_of(folder, mark.history):
            _make(path, Recorded(mark, is_flushed, self._boot))
        self._file = os.open(path, os.O_WRONLY)
        self.write(mark)

    def write(self, mark: Mark) -> None:
        """This was committed."""
        slot = _slot(Recorded(mark, self._is_flushed, self._boot))
        os.pwrite(self._file, slot, SLOT_BYTES * (mark.number % SLOTS))
        self._is_dirty = True

    def flush(self) -> None:
        """Have what was written survive the loss of power too."""
        if self._is_dirty and self._is_flushed:
            self._is_dirty = False
            os.fsync(self._file)

    def close(self) -> None:
        """Flush it and let it go."""
        self.flush()
        os.close(self._file)


def _is_of(folder: Path, history: bytes) -> bool:
    try:
        told = recorded(folder)
    except CommitsError:
        return False
    return told is not None and told.mark.history == history


def _make(path: Path, record: Recorded) -> None:
    """A file whose slots all say this, whole or not at all."""
    slots = [_slot(record).ljust(SLOT_BYTES, b"\0")] * SLOTS
    write_whole(path, slots, mode=PRIVATE, is_flushed=record.is_flushed)


def _slot(record: Recorded) -> bytes:
    mark = record.mark
    fields = _FIELDS.pack(
        _MAGIC,
        mark.history,
        mark.number,
        mark.at_us,
        mark.losses,
        mark.groups_lost,
        record.is_flushed,
        record.boot,
    )
    return fields + _CHECKSUM.pack(zlib.crc32(fields))


def _read(data: bytes, number: int) -> Recorded | None:
    """A slot; None if it is not whole."""
    slot = data[SLOT_BYTES * number :][: _FIELDS.size + _CHECKSUM.size]
    if len(slot) < _FIELDS.size + _CHECKSUM.size:
        return None
    fields, checksum = slot[: _FIELDS.size], slot[_FIELDS.size :]
    if _CHECKSUM.unpack(checksum) != (zlib.crc32(fields),):
        return None
    magic, history, group, at_us, losses, groups_lost, is_flushed, boot = _FIELDS.unpack(fields)
    if magic != _MAGIC:
        return None
    mark = Mark(history, group, at_us, losses, groups_lost)
    return Recorded(mark, bool(is_flushed), boot)
