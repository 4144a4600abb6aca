"""Few files and no old ones, in a Delta table that grows by small commits.

What is partitioned by day is put together while the newest day grows, up to a few megabytes, and
once more when the day is over; a row is written some four times. A commit replaces files, so a
reader sees each row once, before or after. Replaced files stay for readers that have begun.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import pyarrow.compute as pc

from rove.lake import delta

KEPT_HOURS: Final = 2
"""So long files that were replaced stay, and earlier versions."""
SMALL_BYTES: Final = 4 * 1024 * 1024
LARGE_BYTES: Final = 64 * 1024 * 1024
SMALL_FILES_MAX: Final = 8
"""Of one partition of the newest day, before they are put together."""
CONFIGURATION: Final = {
    # All columns: those of the place may have come late, and files are left out by them.
    "delta.dataSkippingNumIndexedCols": "-1",
    "delta.deletedFileRetentionDuration": f"interval {KEPT_HOURS} hours",
    "delta.logRetentionDuration": f"interval {KEPT_HOURS} hours",
}


def maintain(opened: delta.Table, by: Sequence[str], begun_at: int, *, grows: bool = True) -> None:
    """Make few files of many, and remove those that nobody needs.

    `by` are the partitions, a day first; of the newest one files are put together only if it
    `grows` by files that are added. `begun_at` is the version before what was committed last.
    """
    _compact(opened, by, grows)
    if opened.version // delta.CHECKPOINT_COMMITS != begun_at // delta.CHECKPOINT_COMMITS:
        opened.vacuum(orphans=True)


def _compact(opened: delta.Table, by: Sequence[str], grows: bool) -> None:
    listed = opened.files()
    small = listed.filter(pc.less(listed["size_bytes"], SMALL_BYTES))
    if not by:
        if small.num_rows > SMALL_FILES_MAX:
            opened.compact(SMALL_BYTES)
            opened.vacuum()
        return
    newest = pc.max(listed["partition.day"]).as_py()
    places = (small[f"partition.{name}"].to_pylist() for name in by)
    counts = Counter(zip(*places, strict=True))
    many = {day for (day, *_), count in counts.items() if count > SMALL_FILES_MAX}
    over = {day for (day, *_), count in counts.items() if count > 1} - {newest}
    for days, bytes_max in (
        (many & {newest} if grows else set(), SMALL_BYTES),
        (over, LARGE_BYTES),
    ):
        if days:
            opened.compact(bytes_max, [("day", "in", sorted(map(str, days)))])
            opened.vacuum()
