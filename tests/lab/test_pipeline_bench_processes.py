"""Processes answer, say why they failed, keep to their cores and end."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rove.lab import pipeline_bench_processes as processes
from rove.lab.pipeline_bench_processes import BenchError, Kernels, Process, chosen_cores
from rove.lab.pipeline_bench_work import judged, work_of


class Counter:
    """A state that remembers."""

    def __init__(self, start: int) -> None:
        self.value = start


def add(counter: Counter, number: int) -> int:
    counter.value += number
    return counter.value


def fail(counter: Counter) -> None:
    raise ValueError("on purpose")


def cores(counter: Counter) -> list[int]:
    return sorted(os.sched_getaffinity(0))


def test_a_process_keeps_its_state_and_its_core() -> None:
    core = chosen_cores(1)
    with Process(Counter, core, 5) as process:
        assert process.ask(add, 1) == 6
        assert process.ask(add, 1) == 7
        assert process.ask(cores) == core
        with pytest.raises(BenchError, match="on purpose"):
            process.ask(fail)
        pid = process._process.pid
        assert process.ask(add, 0) == 7, "it goes on"
    assert not Path(f"/proc/{pid}").exists()


def test_more_workers_than_cores_are_refused() -> None:
    with pytest.raises(BenchError, match="workers need as many cores"):
        chosen_cores(10_000)


def test_kernels_count_what_the_scan_counts(tmp_path: Path) -> None:
    work, boxes = work_of(tmp_path, "W2", 2_000, 320)
    with Kernels(1) as kernels:
        seconds, pairs = kernels.timed(work, 1)
    assert seconds > 0
    assert pairs >= len(judged(work, boxes, 40)) > 0
    with Kernels(2) as both:
        assert both.timed(work, 1)[1] == pairs


def test_all_forms_are_read_as_pairs() -> None:
    ids = pa.array([4, 9])
    lists = pa.table({"id": ids, "subscriptions": pa.array([[1, 2], [3]])})
    bytes_ = [np.array(each, "<i4").tobytes() for each in ([1, 2], [3])]
    packed = pa.table({"id": ids, "subscriptions": pa.array(bytes_)})
    for table in (lists, packed):
        assert processes._exploded(table).tolist() == [[4, 1], [4, 2], [9, 3]]


def test_memory_of_this_process_is_read() -> None:
    assert processes._bytes(os.getpid(), "status", "VmHWM") > 1 << 20
    assert processes._bytes(os.getpid(), "smaps_rollup", "Pss") > 1 << 20
    assert processes._parent(os.getpid()) == os.getppid()
