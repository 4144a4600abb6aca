"""Processes answer, say why they failed, keep to their cores and end."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rove.bench.pipeline import processes
from rove.bench.pipeline.processes import Kernels
from rove.bench.pipeline.workload import judged, work_of


@pytest.mark.soak
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
