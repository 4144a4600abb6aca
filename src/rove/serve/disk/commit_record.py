"""A record of the last commit beside the database, so that a start notices lost commits.

SQLite's write-ahead log is a chain of checksums. A log that was cut or damaged in the middle is
read up to the first bad frame, and the rest is dropped silently: for SQLite every crash looks like
that. An old copy of the database that replaces the newer one is not noticed either. So each commit
is numbered. The number is in the database, in the same transaction as the rows. After the commit
and before its acknowledgements it is written here. A database that has group N has all groups
before it; a start compares the two numbers:

    database ahead    a crash came between the two: nothing that was acknowledged is missing
    equal             nothing is missing
    database behind   acknowledged groups are lost: the start is refused, unless that is accepted

A history is a random name. A new one begins with a new database and with each accepted loss: equal
numbers of two histories mean nothing.

The record is never ahead of the disk, so no crash causes a false alarm. It is written without a
flush, which survives a crash of the process and costs some µs; a second flush would halve the rate
of single commits. It is flushed once a second (`rove.serve.disk.store`). So only a loss within the
last second before a power failure goes unnoticed, if the log is damaged in addition; the rows
themselves are always flushed.

There are two slots, on separate pages, written in turn: if a crash tears a slot, its group was not
acknowledged yet, and the other slot has the group before it.
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
    """How often lost groups were accepted,"""
    groups_lost: int = 0
    """and how many there were, as far as that is known."""

    def next(self, at_us: int) -> Mark:
        """The group after this one."""
        return Mark(self.history, self.number + 1, at_us, self.losses, self.groups_lost)

    @property
    def at(self) -> str:
        """For people."""
        return f"{datetime.fromtimestamp(self.at_us / 1e6, UTC):%Y-%m-%d %H:%M:%S}Z"


class Recorded(NamedTuple):
    """The contents of the file."""

    mark: Mark
    is_flushed: bool
    """Whether commits were flushed before they were acknowledged, as durability `full` has it."""
    boot: bytes
    """The boot of the system that wrote it (`boot_id`)."""


class CommitsError(RoveError):
    """The file holds no valid record."""


class CommitCheck(NamedTuple):
    """The result of comparing the two numbers."""

    fault: str = ""
    """The fault, for people; empty if there is none."""
    groups_lost: int = 0
    is_expected: bool = False
    """Whether the chosen durability allows it."""


def new_history() -> Mark:
    """A history in which nothing has been committed."""
    return Mark(secrets.token_bytes(HISTORY_BYTES), 0, 0)


def recorded(folder: Path) -> Recorded | None:
    """The record in a data folder, None if there is none; CommitsError if it is damaged."""
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
    """Whether the database, whose last group is `kept`, has all acknowledged changes.

    A database without a mark is new, or was written by an older Rove.
    """
    unknown = "whether the database has all acknowledged changes is unknown"
    try:
        found = recorded(folder)
    except CommitsError as error:
        return CommitCheck(f"{error}; {unknown}")
    if found is None:
        if kept is None:
            return CommitCheck()
        return CommitCheck(f"{folder / FILE_NAME} is missing; {unknown}")
    mark = found.mark
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
    is_expected = not found.is_flushed and found.boot != boot_id()
    return CommitCheck(_behind(folder, kept, mark), mark.number - kept.number, is_expected)


def _behind(folder: Path, kept: Mark | None, mark: Mark) -> str:
    lost = mark.number - (kept.number if kept else 0)
    end = f"ends with group {kept.number:,} of {kept.at}" if kept else "has no groups"
    return (
        f"the database in {folder} has lost {lost:,} acknowledged groups of changes:"
        f" it {end}, but group {mark.number:,} was committed at {mark.at}"
    )


def boot_id() -> bytes:
    """Identifies a boot of the system; zeros if that is not known."""
    try:
        return bytes.fromhex(_BOOT_ID.read_text(encoding="utf-8").replace("-", ""))
    except (OSError, ValueError):
        return _NO_BOOT_ID


class Commits:
    """The record of a data folder, open for writing. One thread at a time, except for `flush`."""

    def __init__(self, folder: Path, mark: Mark, *, is_flushed: bool) -> None:
        """Write a mark. The file is made anew, flushed, unless it is of the same history."""
        self._is_flushed = is_flushed
        self._boot = boot_id()
        self._is_dirty = False
        path = folder / FILE_NAME
        if not _is_of(folder, mark.history):
            _make(path, Recorded(mark, is_flushed, self._boot))
        self._file = os.open(path, os.O_WRONLY)
        self.write(mark)

    def write(self, mark: Mark) -> None:
        """Record a commit."""
        slot = _slot(Recorded(mark, self._is_flushed, self._boot))
        os.pwrite(self._file, slot, SLOT_BYTES * (mark.number % SLOTS))
        self._is_dirty = True

    def flush(self) -> None:
        """Flush the record, so that it survives a power failure too."""
        if self._is_dirty and self._is_flushed:
            self._is_dirty = False
            os.fsync(self._file)

    def close(self) -> None:
        """Flush and close it."""
        self.flush()
        os.close(self._file)


def _is_of(folder: Path, history: bytes) -> bool:
    try:
        found = recorded(folder)
    except CommitsError:
        return False
    return found is not None and found.mark.history == history


def _make(path: Path, record: Recorded) -> None:
    """Make a file with this record in all slots."""
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
    """A slot; None if it is damaged."""
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
