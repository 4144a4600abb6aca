"""The matcher's index beside the store, so that a restart need not parse every subscription again.

A convenience, not a promise: everything in it can be made from the store, and a file that is old,
damaged or missing costs time and nothing else (`ExpressionIndex.saved` says why an old one cannot
mislead). With 100,000 subscriptions it has about 20 MB, and loading it takes a tenth of
a second where parsing takes four.
"""

from __future__ import annotations

import mmap
from pathlib import Path

from rove.base.files import PRIVATE, write_whole

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
        write_whole(self._path, [index], mode=PRIVATE)
