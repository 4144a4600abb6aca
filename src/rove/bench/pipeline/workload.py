"""What `rove bench pipeline` works on: publications in Parquet files, subscriptions in an index.

The workloads are those of `rove bench match` (`rove.testing.boxes`), and so is the judge, the full
scan. Publications lie in several files, so that each worker has its own; their times are spread
over some seconds, for subscriptions that travel. The index is the file of a saved matcher, which
processes and Spark's workers map alike.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from rove.bench.match.engines import scan_of
from rove.match import Matcher
from rove.pipeline.matching.dataframes import Form, MatchJob
from rove.pipeline.matching.index import Index
from rove.pipeline.spark.executors import TaskFile
from rove.testing.boxes import Boxes, Name, workload

FILES: Final = 8
LASTING_S: Final = 4.0
"""Of the event time that the publications are spread over."""
_EVENTS_MIN: Final = 1

Pairs = npt.NDArray[np.int64]
"""A line each: publication and subscription."""


class Work(msgspec.Struct, frozen=True):
    """Publications in a folder, and subscriptions in a file."""

    folder: str
    index: str
    attributes: tuple[str, ...]
    rows: int
    is_timed: bool = False
    """Whether publications are matched at their own times, or all at 0."""

    @property
    def files(self) -> list[str]:
        return [str(path) for path in sorted(Path(self.folder).glob("*.parquet"))]

    @property
    def at(self) -> str | None:
        return "at" if self.is_timed else None

    @property
    def index_file(self) -> TaskFile:
        return TaskFile(self.index, self.index)

    def job(self, form: Form = "packed") -> MatchJob:
        """What a worker is told."""
        hidden = ["id", "at"]
        return MatchJob(self.index_file, ["id"], self.at, None, hidden, form)


def write_events(folder: Path, name: Name, rows: int) -> str:
    """The publications of a workload, once for all numbers of subscriptions."""
    place = folder / f"{name}-{rows}"
    if not place.exists():
        place.mkdir(parents=True)
        _, events = workload(name, 1, rows)
        columns = {
            attribute: np.ascontiguousarray(events.values[:, number])
            for number, attribute in enumerate(events.attributes)
        }
        times = np.linspace(0.0, LASTING_S, rows)
        table = pa.table({"id": np.arange(rows), "at": times, **columns})
        step = -(-rows // FILES)
        for number in range(FILES):
            part = table.slice(number * step, step)
            pq.write_table(part, place / f"{number}.parquet")
    return str(place)


def write_index(folder: Path, boxes: Boxes, label: str) -> str:
    """The subscriptions that are boxes, as workers map them."""
    matcher = Matcher()
    numbers = np.arange(len(boxes))
    matcher.add_boxes(numbers, boxes.attributes, boxes.lows, boxes.highs, boxes.speeds)
    path = folder / f"{label}.index"
    Index.of_matcher(matcher).save(path)
    return str(path)


def work_of(
    folder: Path, name: Name, size: int, rows: int, *, moving: bool = False, timed: bool = False
) -> tuple[Work, Boxes]:
    """A workload on disk, and its boxes; those of W2 travel if asked to."""
    boxes, _ = workload(name, size, _EVENTS_MIN)
    boxes = boxes if moving else boxes.at_rest()
    index = write_index(folder, boxes, f"{name}-{size}-{'moving' if moving else 'resting'}")
    work = Work(write_events(folder, name, rows), index, boxes.attributes, rows, timed)
    return work, boxes


def judged(work: Work, boxes: Boxes, rows: int) -> Pairs:
    """What the full scan says of the first publications, in order."""
    table = pq.read_table(work.files[0]).slice(0, rows)
    values = np.stack([table.column(name).to_numpy() for name in work.attributes], axis=1)
    times = table.column("at").to_numpy() if work.is_timed else np.zeros(len(values))
    scan = scan_of(boxes)
    found = [
        scan.match(np.ascontiguousarray(line), float(at))
        for line, at in zip(values, times, strict=True)
    ]
    ids = np.repeat(table.column("id").to_numpy(), [len(each) for each in found])
    return in_order(np.stack([ids, np.concatenate(found)], axis=1))


def in_order(pairs: Pairs) -> Pairs:
    """Equal for equal answers in whatever order."""
    found: Pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    return found
