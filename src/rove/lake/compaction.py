"""Few files of many: a commit a second makes 86,400 small files a day.

Where 64 small files lie in one partition they become one, and 32 of those again. So a row is
written three times at most, and a partition has some hundred files at most besides the large ones.
What was replaced stays as long as the table keeps it (`Table.vacuum`).
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from rove.lake.delta import Table

SMALL_BYTES: Final = 4 * 1024 * 1024
SMALL_FILES_MAX: Final = 64
LARGE_BYTES: Final = 128 * 1024 * 1024
MEDIUM_FILES_MAX: Final = 32


def compact_where_many(table: Table) -> bool:
    """Compact a table if it has many files in one partition; whether it had."""
    files = table.files()
    names = [name for name in files.column_names if name.startswith("partition.")]
    parts = files.select(names).to_pylist() if names else [{}] * files.num_rows
    small: Counter[str] = Counter()
    medium: Counter[str] = Counter()
    for part, size_bytes in zip(parts, files["size_bytes"].to_pylist(), strict=True):
        key = repr(part)
        small[key] += size_bytes < SMALL_BYTES
        medium[key] += SMALL_BYTES <= size_bytes < LARGE_BYTES
    if any(count >= MEDIUM_FILES_MAX for count in medium.values()):
        table.compact(LARGE_BYTES)
    elif any(count >= SMALL_FILES_MAX for count in small.values()):
        table.compact(SMALL_BYTES)
    else:
        return False
    return True
