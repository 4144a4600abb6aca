"""Processes answer, say why they failed, keep to their cores and end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rove.bench.processes import BenchError, Process, chosen_cores, together


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


def test_several_work_at_the_same_time() -> None:
    with Process(Counter, [], 1) as one, Process(Counter, [], 2) as two:
        assert together([one, two], [(add, 10), (add, 20)]) == [11, 22]
