"""The processes that `rove bench pipeline` measures: the plain kernel, and Spark.

Both get as many cores as they have workers and no more (`rove.bench.processes`), and so do
Spark's JVM and Python processes. So "one worker" is one core for everything, and two are what two
cores can do.
"""

from __future__ import annotations

import functools
import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rove.bench.pipeline.workload import Pairs, Work, in_order
from rove.bench.processes import BenchError, Process, chosen_cores, together
from rove.pipeline.matching.dataframes import Form, match, match_pieces
from rove.pipeline.matching.index import Index, open_index
from rove.pipeline.spark.parquet_files import ParquetFiles
from rove.pipeline.spark.session import ARROW_ROWS, SparkSettings, open_session

_ENOUGH_S: Final = 30.0
"""After so long there are no further rounds."""


# -- the kernel ------------------------------------------------------------------------------------


class Kernels:
    """The matcher in one process per core, each with its share of the files in memory."""

    def __init__(self, workers: int) -> None:
        self._stack = ExitStack()
        self._processes = [
            self._stack.enter_context(Process(_Share, [core] if core >= 0 else [], number))
            for number, core in enumerate(chosen_cores(workers) or [-1] * workers)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def timed(self, work: Work, rounds: int) -> tuple[float, int]:
        """Seconds for all publications, the best round of several; and how many pairs there are."""
        count = len(self._processes)
        together(
            self._processes,
            ((_load, work, work.files[number::count]) for number in range(count)),
        )
        runs: list[list[tuple[float, int]]] = []
        began = time.perf_counter()
        while len(runs) < rounds and (not runs or time.perf_counter() - began < _ENOUGH_S):
            runs.append(together(self._processes, [(_run,)] * count))
        best_s = min(max(seconds for seconds, _ in run) for run in runs)
        return best_s, sum(pairs for _, pairs in runs[0])


class _Share:
    """What one process matches."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.work: Work | None = None
        self.batches: list[pa.RecordBatch] = []


def _load(share: _Share, work: Work, files: list[str]) -> int:
    """Have batches in memory as Spark hands them over, and the kernels ready."""
    tables = [pq.read_table(path) for path in files]
    share.work = work
    share.batches = [batch for table in tables for batch in table.to_batches(ARROW_ROWS)]
    _run_some(share, share.batches[:1])
    return sum(batch.num_rows for batch in share.batches)


def _run(share: _Share) -> tuple[float, int]:
    start = time.perf_counter()
    pairs = _run_some(share, share.batches)
    return time.perf_counter() - start, pairs


def _run_some(share: _Share, batches: list[pa.RecordBatch]) -> int:
    assert share.work is not None, "load first"
    opened = open_index(share.work.index_file)
    found = match_pieces(share.work.job(), opened, batches)
    return sum(len(each.subscriptions) for _, each in found)


# -- Spark -----------------------------------------------------------------------------------------


def spark(workers: int) -> Process:
    """A process with a session of so many workers, on as many cores."""
    return Process(_session, chosen_cores(workers), workers)


def _session(workers: int) -> Any:
    return open_session(SparkSettings(master=f"local[{workers}]", name="rove bench"))


def matched(
    session: Any,
    work: Work,
    form: Form | Literal["rows"],
    rows: int | None = None,
    files: int | None = None,
) -> Any:
    """The DataFrame that is measured; of the first rows or files only, if told.

    `rows` is packed, too, but Spark does the reading.
    """
    df: Any = ParquetFiles(session, work.folder)
    if rows is not None or files is not None or form == "rows":
        df = session.read.parquet(*work.files[:files])
        df = df.where(f"id < {work.rows if rows is None else rows}")
    return match(
        df,
        _index(work.index),
        at=work.at,
        keep=["id"],
        attributes=list(work.attributes),
        form="packed" if form == "rows" else form,
    )


@functools.cache
def _index(path: str) -> Index:
    return Index.open(path)


def timed(session: Any, work: Work, form: Form | Literal["rows"], rounds: int) -> float:
    """Seconds for all publications, the best of several; results go to a sink that drops them."""
    return _best_s(matched(session, work, form), rounds)


def _best_s(df: Any, rounds: int) -> float:
    took_s: list[float] = []
    while len(took_s) < rounds and sum(took_s) < _ENOUGH_S:
        start = time.perf_counter()
        df.write.format("noop").mode("overwrite").save()
        took_s.append(time.perf_counter() - start)
    return min(took_s)


def pairs_total(session: Any, work: Work) -> int:
    """How many pairs Spark finds in all."""
    packed = matched(session, work, "packed").selectExpr("sum(length(subscriptions)) AS bytes")
    return int(packed.collect()[0].bytes or 0) // 4


def first_pairs(session: Any, work: Work, rows: int) -> Pairs:
    """Who wants the first publications, in order, the same in every form."""
    table = matched(session, work, "pairs", rows).toArrow()
    columns = [table.column(name).to_numpy() for name in ("id", "subscription")]
    found = in_order(np.stack(columns, axis=1))
    for form in ("grouped", "packed"):
        other = _exploded(matched(session, work, form, rows).toArrow())
        if not np.array_equal(in_order(other), found):
            raise BenchError(f"{form} and pairs differ")
    return found


def _exploded(table: pa.Table) -> Pairs:
    lists = [
        np.frombuffer(each, "<i4") if isinstance(each, bytes) else np.array(each, np.int64)
        for each in table.column("subscriptions").to_pylist()
    ]
    ids = np.repeat(table.column("id").to_numpy(), [len(each) for each in lists])
    return np.stack([ids, np.concatenate(lists).astype(np.int64)], axis=1)


# -- joins -----------------------------------------------------------------------------------------

_BETWEEN: Final = "x BETWEEN x0 AND x1 AND y BETWEEN y0 AND y1"
_CELLS: Final = "explode(sequence(floor({0}0 / {1}), floor({0}1 / {1}))) AS c{0}"


def timed_joins(
    session: Any, work: Work, areas: pa.Table, sample: int, rounds: int
) -> dict[str, tuple[float, int]]:
    """Seconds and pairs: of a join by BETWEEN (of a sample), by a grid of cells, and of `match`."""
    events = session.read.parquet(work.folder)
    boxes = session.createDataFrame(areas).cache()
    side = float(areas.column("x1")[0].as_py() - areas.column("x0")[0].as_py())
    cells = boxes.selectExpr("*", _CELLS.format("x", side)).selectExpr(
        "*", _CELLS.format("y", side)
    )
    cells = cells.cache()
    cells.count()
    placed = events.selectExpr(
        "id", "x", "y", f"floor(x / {side}) AS cx", f"floor(y / {side}) AS cy"
    )
    tasks = {
        "between": events.where(f"id < {sample}").join(boxes, on=_expression(_BETWEEN)),
        "grid": placed.join(cells, ["cx", "cy"]).where(_BETWEEN),
    }
    found = {}
    for name, joined in tasks.items():
        chosen = joined.select("id", "subscription")
        found[name] = _best_s(chosen, 1 if name == "between" else rounds), chosen.count()
    mine = matched(session, work, "pairs")
    found["match"] = _best_s(mine, rounds), mine.count()
    return found


def _expression(text: str) -> Any:
    from pyspark.sql import functions

    return functions.expr(text)


# -- memory ----------------------------------------------------------------------------------------


def worker_bytes(session: Any, work: Work, files: int) -> list[tuple[int, int]]:
    """After matching so many files, of each Python worker: the most it had, and its share now.

    The share counts a page that several have mapped in parts.
    """
    matched(session, work, "packed", files=files).write.format("noop").mode("overwrite").save()
    daemons = [pid for pid in _descendants(os.getpid()) if "pyspark.daemon" in _command(pid)]
    workers = [pid for pid in daemons if _parent(pid) in daemons]
    return [(_bytes(pid, "status", "VmHWM"), _bytes(pid, "smaps_rollup", "Pss")) for pid in workers]


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    waiting = [pid]
    while waiting:
        threads = Path(f"/proc/{waiting.pop()}/task").iterdir()
        children = [
            int(child) for thread in threads for child in (thread / "children").read_text().split()
        ]
        found += children
        waiting += children
    return found


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _bytes(pid: int, file: str, field: str) -> int:
    """One line of what the system says of a process; it speaks of kilobytes."""
    lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    line = next(line for line in lines if line.startswith(f"{field}:"))
    return 1024 * int(line.split()[1])
