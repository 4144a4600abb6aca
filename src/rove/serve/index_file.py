"""The matcher's index beside the store, so that a restart need not parse every subscription again.

A convenience, not a promise: everything in it can be made from the store, and a file that is old,
damaged or missing costs time and nothing else (`rove.broker.router` says why an old one cannot
mislead). It is written aside and renamed; with 100,000 subscriptions it has about 20 MB, and
loading it takes a tenth of a second where parsing takes four.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path

from rove.serve.privacy import private_opener

NAME = "index.rove"


class IndexFile:
    """The file of one data folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def load(self) -> memoryview | None:
        """What is there, mapped privately; None if nothing is."""
        try:
            with self._path.open("rb") as file:
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        except (OSError, ValueError):  # an empty file cannot be mapped
            return None

    def save(self, index: bytes) -> None:
        """Put another in its place, whole or not at all."""
        aside = self._path.with_suffix(".new")
        try:
            with open(aside, "wb", opener=private_opener) as file:
                file.write(index)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(self._path)
        except OSError:
            with contextlib.suppress(OSError):
                aside.unlink()
            raise
