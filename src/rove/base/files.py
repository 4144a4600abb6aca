"""Files that are whole after any crash, and their permissions.

A file is written beside its place under a temporary name, flushed, and renamed; then the folder is
flushed, without which the rename itself may be lost with the power. So a reader, and a start after
any crash, finds the old content or the new. Two processes that write the same file at once do not
mix; the later one wins. A process that is killed meanwhile leaves its unfinished file behind: the
owner of a folder calls `remove_unfinished` when it starts.

Two flushes take some ms on a disk, and for large files as long as the disk takes to write them. A
file that need not survive a crash of the machine is written with `is_flushed=False`, and is whole
for readers all the same.

Files get their permissions when they are made, so that others cannot open them even for a moment.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, Literal

Readers = Literal["owner", "group", "everybody"]

FILE_MODES: Final[dict[Readers, int]] = {"owner": 0o600, "group": 0o640, "everybody": 0o644}
FOLDER_MODES: Final[dict[Readers, int]] = {"owner": 0o700, "group": 0o750, "everybody": 0o755}
PASSAGE_MODES: Final[dict[Readers, int]] = {"owner": 0o700, "group": 0o710, "everybody": 0o711}
"""Of a folder that others may only pass through, to one that they may read."""
PRIVATE: Final = FILE_MODES["owner"]

_END: Final = ".unfinished"


@contextlib.contextmanager
def replacing(
    path: Path | str, *, mode: int | None = None, is_flushed: bool = True
) -> Iterator[BinaryIO]:
    """A file to write to, which replaces the one at `path` if the block ends without an error.

    `mode` are its permissions from the first moment on; by default the system chooses them.
    """
    path = Path(path)
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_END}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(unfinished, flags, 0o666 if mode is None else PRIVATE)
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                unfinished.chmod(mode)
            yield file
            file.flush()
            if is_flushed:
                os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise
    if is_flushed:
        sync(path.parent)


def write_whole(
    path: Path | str,
    parts: Iterable[bytes | memoryview],
    *,
    mode: int | None = None,
    is_flushed: bool = True,
) -> None:
    """Write these parts one after another as a file."""
    with replacing(path, mode=mode, is_flushed=is_flushed) as file:
        file.writelines(parts)


def remove_unfinished(folder: Path, name: str = "*") -> None:
    """Remove files that were not finished because their writers were killed; `name` is a pattern.

    No process may be writing these files now.
    """
    for path in folder.glob(f".{name}.*{_END}"):
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder: only then do they survive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- permissions ----------------------------------------------------------------------------------


def private_opener(path: str, flags: int) -> int:
    """An `opener` for `open` that makes files private from the start."""
    return os.open(path, flags, FILE_MODES["owner"])


def set_mode(path: Path, mode: int) -> bool:
    """Set the permissions of a file or folder; whether that changed anything.

    Other bits, such as setgid, stay. What belongs to another user cannot be changed and stays.
    """
    if os.name != "posix":
        return False
    before = stat.S_IMODE(path.stat().st_mode)
    if before & 0o777 == mode:
        return False
    try:
        path.chmod(before & ~0o777 | mode)
    except PermissionError:
        return False
    return True


def make_folder(folder: Path, mode: int) -> None:
    """Make a folder and its missing parents, with these permissions for the new ones."""
    if folder.is_dir():
        return
    if not folder.parent.exists():
        make_folder(folder.parent, mode)
    folder.mkdir(mode=mode, exist_ok=True)
    set_mode(folder, mode)  # whatever the umask of the process is
