"""What everything that writes needs: errors as a line for people, a passing folder."""

from __future__ import annotations

import atexit
import contextlib
import functools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rove.errors import RoveError


@contextlib.contextmanager
def told(what: str, error_type: type[RoveError]) -> Iterator[None]:
    """Errors of the disk as one line for people."""
    try:
        yield
    except OSError as error:
        raise error_type(f"{what}: {error.strerror or error}") from error


@functools.cache
def folder_of_process(name: str) -> Path:
    """A folder that is gone when this process ends, the same for the same name.

    For what Spark may ask for at any time until then.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"rove-{name}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
