"""What everything that keeps something on disk needs: flushing, and errors as a line for people."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from rove.errors import RoveError


def sync(path: Path) -> None:
    """Flush a file or a folder's names to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def told(what: str, error_type: type[RoveError]) -> Iterator[None]:
    """Errors of the disk as one line for people."""
    try:
        yield
    except OSError as error:
        raise error_type(f"{what}: {error.strerror or error}") from error
