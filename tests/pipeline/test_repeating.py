"""The loop around jobs that bring something up to date: once, after another job, until stopped."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rove.pipeline.jobs import Context, JobSettings
from rove.pipeline.repeating import repeat
from rove.pipeline.status import Progress, Reporter, held
from tests.effort import PATIENCE_S


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lake").mkdir()
    return tmp_path


def context_of(folder: Path, **settings: Any) -> tuple[Context, Reporter]:
    """A job as `rove pipeline run` gives it, but for Spark, which the loop has no use for."""
    (folder / "out" / "job").mkdir(parents=True)
    given = JobSettings(lake=folder / "lake", out=folder / "out", **settings)
    reporter = Reporter(folder / "out" / "job", "job")
    return Context("job", None, given, reporter), reporter


def test_once_is_one_step(folder: Path) -> None:
    context, reporter = context_of(folder, once=True)
    steps = iter([Progress(position=7, rows_in=3, rows_out=2)])
    repeat(context, 3_600.0, lambda: next(steps))
    status = reporter.status
    assert (status.position, status.rows_in, status.rows_out, status.batches) == (7, 3, 2, 1)
    assert list(steps) == []


def test_it_goes_on_until_it_is_stopped(folder: Path) -> None:
    context, _ = context_of(folder, trigger_s=0.01)
    steps: list[int] = []

    def step() -> Progress:
        steps.append(len(steps))
        if len(steps) == 3:
            context.stopping.set()
        return Progress(position=len(steps))

    repeat(context, 3_600.0, step)
    assert steps == [0, 1, 2]


def test_a_long_pause_ends_when_it_is_stopped(folder: Path) -> None:
    context, _ = context_of(folder)
    rested = threading.Event()

    def step() -> Progress:
        rested.set()
        return Progress(position=1)

    job = threading.Thread(target=repeat, args=(context, 3_600.0, step))
    job.start()
    assert rested.wait(PATIENCE_S)
    context.stopping.set()
    job.join(PATIENCE_S)
    assert not job.is_alive()


def test_once_waits_for_the_job_before_it(folder: Path) -> None:
    context, reporter = context_of(folder, once=True)
    before = folder / "out" / "before"
    before.mkdir()
    with held(before, "before"):
        other = Reporter(before, "before")

        def steps() -> Iterator[Progress]:
            yield Progress(position=1)
            other.end("done")
            # This step may have missed what the other did last, so there is one more.
            yield Progress(position=2)
            yield Progress(position=3)

        going = steps()
        repeat(context, 3_600.0, lambda: next(going), after="before")
    assert reporter.status.position == 3


def test_an_error_ends_it(folder: Path) -> None:
    def step() -> Progress:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        repeat(context_of(folder)[0], 1.0, step)
