"""Files that are whole: a reader, and a start after any crash, finds the old content or the new.

A file is written beside its place under a name of its own, flushed, and renamed; then the folder is
flushed, without which the rename itself may be lost with the power. Two who write the same file
at once do not mix, the later wins. A process that is killed in between leaves its unfinished
file behind: who has a folder to itself calls `remove_unfinished` when it begins.

Two flushes take some ms on a disk, and for large files as long as the disk takes to write them. So
a file that need not outlive the machine says `is_flushed=False`, and is whole for readers all the
same.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

PRIVATE: Final = 0o600
"""Nobody but the owner reads it."""

_END: Final = ".unfinished"


@contextlib.contextmanager
def replacing(
    path: Path | str, *, mode: int | None = None, is_flushed: bool = True
) -> Iterator[BinaryIO]:
    """A file to write to, which becomes the one at `path` when the block ends without an error.

    `mode` are its permissions, from the first moment on; without, they are what the system gives.
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
    """Write these parts, one after another, as a file."""
    with replacing(path, mode=mode, is_flushed=is_flushed) as file:
        file.writelines(parts)


def remove_unfinished(folder: Path, name: str = "*") -> None:
    """Remove what those have left that were killed while they wrote; `name` is a pattern.

    Nobody may be writing these files now.
    """
    for path in folder.glob(f".{name}.*{_END}"):
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Flush a file or a folder's names: only after this they survive the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
