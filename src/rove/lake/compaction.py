"""Compaction: many small files of a Delta table become few large ones.

A commit a second makes 86,400 small files a day. There are two rules, for two kinds of tables:

- `compact_where_many`, for tables that grow all the time: 64 small files of a partition are merged,
  and 32 of the results again. A row is written three times at most, and a partition has some
  hundred files at most, besides the large ones.
- `maintain`, for tables that grow by jobs and are partitioned by day: files of the newest day are
  merged up to a few megabytes, and once more when the day is over; a row is written some four
  times.

A commit replaces files, so a reader finds each row once, before or after it. Replaced files stay
for readers that have listed them, as long as the table keeps them (`DeltaTable.vacuum`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import pyarrow.compute as pc

from rove.lake import delta
from rove.lake.delta import DeltaTable

SMALL_BYTES: Final = 4 * 1024 * 1024
SMALL_FILES_MAX: Final = 64
LARGE_BYTES: Final = 128 * 1024 * 1024
MEDIUM_FILES_MAX: Final = 32

KEPT_HOURS: Final = 2
"""How long `maintain` keeps replaced files and earlier versions."""
DAY_BYTES: Final = 64 * 1024 * 1024
"""The size of files of a day that is over."""
NEWEST_FILES_MAX: Final = 8
"""Small files in a partition of the newest day, or in a table without partitions."""
CONFIGURATION: Final = {
    # Statistics of all columns: readers skip files by place, whose columns may be late ones.
    "delta.dataSkippingNumIndexedCols": "-1",
    "delta.deletedFileRetentionDuration": f"interval {KEPT_HOURS} hours",
    "delta.logRetentionDuration": f"interval {KEPT_HOURS} hours",
}
"""The configuration of tables that `maintain` compacts."""


def compact_where_many(table: DeltaTable) -> bool:
    """Compact a table if a partition has many files; returns whether it did."""
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


def maintain(table: DeltaTable, by: Sequence[str], begun_at: int, *, grows: bool = True) -> None:
    """Compact a table after a job, and now and then delete files that no commit names.

    `by` are the partition columns, of which `day` is the first. The newest day is compacted only if
    it `grows` by new files. `begun_at` is the version before the commits of the job.
    """
    _compact_days(table, by, grows)
    if table.version // delta.CHECKPOINT_COMMITS != begun_at // delta.CHECKPOINT_COMMITS:
        table.vacuum(orphans=True)


def _compact_days(table: DeltaTable, by: Sequence[str], grows: bool) -> None:
    listed = table.files()
    small = listed.filter(pc.less(listed["size_bytes"], SMALL_BYTES))
    if not by:
        if small.num_rows > NEWEST_FILES_MAX:
            table.compact(SMALL_BYTES)
            table.vacuum()
        return
    newest = pc.max(listed["partition.day"]).as_py()
    places = (small[f"partition.{name}"].to_pylist() for name in by)
    counts = Counter(zip(*places, strict=True))
    many = {day for (day, *_), count in counts.items() if count > NEWEST_FILES_MAX}
    over = {day for (day, *_), count in counts.items() if count > 1} - {newest}
    for days, bytes_max in (
        (many & {newest} if grows else set(), SMALL_BYTES),
        (over, DAY_BYTES),
    ):
        if days:
            table.compact(bytes_max, [("day", "in", sorted(map(str, days)))])
            table.vacuum()
