"""Jobs by name: run once or until stopped, together, and ended with one line when they fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rove.bench.pipeline.feed import Feed, publish_some
from rove.errors import UsageError
from rove.lake.delta import DeltaTable
from rove.lake.log import open_for_writing
from rove.metrics.database import Database, DatabaseError
from rove.pipeline.jobs import registry as jobs
from rove.pipeline.jobs.job import JobContext, JobSettings, repeat
from rove.pipeline.jobs.registry import JOBS, JobError, RegisteredJob, one_line, run_jobs
from rove.pipeline.jobs.status import (
    STOP,
    Reporter,
    Status,
    StatusError,
    StepReport,
    held,
    read_status,
    statuses,
)
from rove.pipeline.lake.log import LakeError
from rove.pipeline.spark.session import SparkError, SparkSettings
from rove.pipeline.tables.table import Table, channels
from tests.effort import PATIENCE_S

LOCAL = SparkSettings(master="local[2]", memory="1g")
"""As in the session of all tests."""


def filled(folder: Path) -> Feed:
    feed = Feed(folder / "lake")
    feed.subscribe(1, "NO2 > 50", 0.0)
    publish_some(feed, 40, 1.0)
    feed.write()
    return feed


def settings_of(folder: Path, **changes: Any) -> JobSettings:
    return JobSettings(**{"lake": folder / "lake", "out": folder / "out", **changes})


def test_jobs_run_side_by_side_until_they_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    meeting = threading.Barrier(2, timeout=PATIENCE_S)

    def work(context: JobContext) -> None:
        meeting.wait()
        assert context.once
        assert context.folder == tmp_path / "out" / context.name
        context.report(StepReport(position=40, rows_in=40, rows_out=2))

    for name in ("a", "b"):
        monkeypatch.setitem(JOBS, name, RegisteredJob(work, needs_spark=False))
    ended = run_jobs(["a", "b"], settings_of(tmp_path, once=True))
    assert [(one.job, one.state, one.rows_in) for one in ended] == [
        ("a", "done", 40), ("b", "done", 40),
    ]  # fmt: skip
    assert [one.state for one in statuses(tmp_path / "out")] == ["done", "done"]


def test_how_jobs_are_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)

    def work(context: JobContext) -> None:
        context.report(StepReport(position=40, rows_in=40, rows_out=2))

    monkeypatch.setitem(JOBS, "a", RegisteredJob(work, needs_spark=False))
    place = str(tmp_path / "metrics.db")
    run_jobs(["a"], settings_of(tmp_path, once=True, database=place))
    with Database(place) as database:
        rows = database.readings("rove_pipeline_rows_in_total")
        assert (rows[-1].labels, rows[-1].value) == ('job="a"', 40)
        running = database.readings("rove_pipeline_running")
        assert (running[0].value, running[-1].value) == (1, 0)
    with pytest.raises(DatabaseError, match="cannot use no://where"):
        run_jobs(["a"], settings_of(tmp_path, once=True, database="no://where"))


def test_the_error_of_one_ends_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)

    def fails(_context: JobContext) -> None:
        raise LakeError("it is\nbroken")

    def waits(context: JobContext) -> None:
        assert context.stopping.wait(PATIENCE_S)

    monkeypatch.setitem(JOBS, "fails", RegisteredJob(fails, needs_spark=False))
    monkeypatch.setitem(JOBS, "waits", RegisteredJob(waits, needs_spark=False))
    with pytest.raises(JobError, match=r"^fails: it is broken$"):
        run_jobs(["waits", "fails"], settings_of(tmp_path))
    found = {one.job: one for one in statuses(tmp_path / "out")}
    assert found["fails"].state == "failed"
    assert found["fails"].last_error == "it is broken"
    assert found["waits"].state == "stopped"


def test_a_machine_that_was_too_busy_for_spark_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    tried: list[str] = []

    def busy(context: JobContext) -> None:
        tried.append(context.name)
        if context.name == "always" or len(tried) < 3:
            raise RuntimeError("[STREAM_FAILED] Python worker failed to connect back. SQLSTATE: X")

    for name in ("at first", "always"):
        monkeypatch.setitem(JOBS, name, RegisteredJob(busy, needs_spark=False))
    [done] = run_jobs(["at first"], settings_of(tmp_path, once=True))
    assert (done.state, len(tried)) == ("done", 3)
    with pytest.raises(JobError, match=r"^always: .*failed to connect back"):
        run_jobs(["always"], settings_of(tmp_path, once=True))
    assert tried.count("always") == 5


def test_one_job_is_stopped_by_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)

    def waits(context: JobContext) -> None:
        (context.folder / STOP).touch()
        assert context.stopping.wait(PATIENCE_S)

    monkeypatch.setitem(JOBS, "waits", RegisteredJob(waits, needs_spark=False))
    (ended,) = run_jobs(["waits"], settings_of(tmp_path))
    assert ended.state == "stopped"


def test_a_signal_stops_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)

    def waits(context: JobContext) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        assert context.stopping.wait(PATIENCE_S)

    monkeypatch.setitem(JOBS, "waits", RegisteredJob(waits, needs_spark=False))
    before = signal.getsignal(signal.SIGTERM)
    (ended,) = run_jobs(["waits"], settings_of(tmp_path))
    assert ended.state == "stopped"
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_cannot_be_run_is_told_before_spark_starts(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, once=True)
    with pytest.raises(UsageError, match="there is no job 'mach'; there are match"):
        run_jobs(["mach"], settings)
    with pytest.raises(LakeError, match="there is no lake at"):
        run_jobs(["match"], settings)
    open_for_writing(tmp_path / "lake")
    with pytest.raises(LakeError, match="is empty, so a run with `once` has nothing to do"):
        run_jobs(["match"], settings)
    filled(tmp_path)
    with pytest.raises(
        UsageError, match="jobs need a driver of their own and cannot run through sc://x:1; give"
    ):
        run_jobs(["match"], settings, SparkSettings(master="sc://x:1"))
    with held(tmp_path / "out" / "match", "match"), pytest.raises(StatusError, match="holds"):
        run_jobs(["match"], settings)


def test_a_spark_that_does_not_start_is_in_the_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)

    def refuse(_settings: object) -> None:
        raise SparkError("no Java")

    monkeypatch.setattr(jobs, "open_session", refuse)
    with pytest.raises(SparkError):
        run_jobs(["match"], settings_of(tmp_path))
    (status,) = statuses(tmp_path / "out")
    assert (status.state, status.last_error) == ("failed", "no Java")


def test_errors_from_tasks_become_one_line() -> None:
    told = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "source.py", line 250, in read_slice
    raise SourceError(f"cannot")
{kind}: cannot read /lake/x of the lake: it is no Parquet file

JVM stacktrace: ...
"""
    own = RuntimeError(told.format(kind="rove.pipeline.lake.log.LakeError"))
    assert one_line(own) == "cannot read /lake/x of the lake: it is no Parquet file"
    other = RuntimeError(told.format(kind="ZeroDivisionError"))
    assert one_line(other).startswith("ZeroDivisionError: cannot read")
    assert one_line(RuntimeError("plain\nand more")) == "plain"


@pytest.mark.soak
def test_the_match_job_in_spark(spark: Any, tmp_path: Path) -> None:
    feed = filled(tmp_path)
    (ended,) = run_jobs(["match"], settings_of(tmp_path, once=True), LOCAL)
    assert (ended.state, ended.rows_in, ended.lag_rows) == ("done", 40, 0)
    assert ended.position == feed.position
    found = DeltaTable(tmp_path / "out" / "match").rows()
    assert found.num_rows == ended.rows_out > 5
    (again,) = run_jobs(["match"], settings_of(tmp_path, once=True), LOCAL)
    assert (again.state, again.rows_out) == ("done", 0)
    assert spark.range(1).count() == 1, "a session that was there before goes on"


def test_a_lake_that_cannot_be_read_ends_the_job(spark: Any, tmp_path: Path) -> None:
    filled(tmp_path)
    broken = next((tmp_path / "lake" / "kind=publications").glob("*/*/*.parquet"))
    broken.write_bytes(b"not at all")
    with pytest.raises(JobError, match=rf"^match: cannot read {broken}: Parquet"):
        run_jobs(["match"], settings_of(tmp_path, once=True), LOCAL)
    status = read_status(tmp_path / "out" / "match")
    assert status is not None
    assert status.state == "failed"
    assert spark.range(1).count() == 1


FOLLOW = """
import sys
from pathlib import Path
from rove.pipeline.jobs.job import JobSettings
from rove.pipeline.jobs.registry import run_jobs
from rove.pipeline.spark.session import SparkSettings
folder = Path(sys.argv[1])
settings = JobSettings(lake=folder / "lake", out=folder / "out", trigger_s=0.05)
run_jobs(["match"], settings, SparkSettings(master="local[1]", memory="1g"))
"""


@pytest.mark.soak
def test_a_run_follows_and_ends_on_a_signal(tmp_path: Path) -> None:
    feed = filled(tmp_path)
    process = subprocess.Popen([sys.executable, "-c", FOLLOW, str(tmp_path)])
    try:
        wait_for(tmp_path, lambda one: one.position == feed.position)
        feed.publish("air/1", {"NO2": 99}, 100.0)
        feed.write()
        wait_for(tmp_path, lambda one: one.position == feed.position)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    assert process.returncode == 0
    (status,) = statuses(tmp_path / "out")
    assert status.state == "stopped"
    assert status.batches == 2
    assert status.trigger_s is not None
    found = DeltaTable(tmp_path / "out" / "match").rows()["position"].to_pylist()
    assert max(found) == feed.position


def wait_for(folder: Path, is_there: Any) -> Status:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        status = read_status(folder / "out" / "match")
        if status is not None and is_there(status):
            return status
        time.sleep(0.1)
    raise AssertionError(f"in vain: {read_status(folder / 'out' / 'match')}")


@pytest.mark.usefixtures("spark")
@pytest.mark.soak
def test_tables_and_sensors_are_made_by_one_run(tmp_path: Path) -> None:
    feed = filled(tmp_path)
    feed.publish("air/1", {"NO2": 41.5, "lat": 45.81, "long": 15.97}, 100.0)
    feed.write()
    ended = run_jobs(["ingest", "sensors"], settings_of(tmp_path, once=True), LOCAL)
    assert [(one.job, one.state, one.last_error) for one in ended] == [
        ("ingest", "done", None), ("sensors", "done", None),
    ]  # fmt: skip
    tables = tmp_path / "out" / "ingest"
    assert sum(Table(tables, channel).read().num_rows for channel in channels(tables)) == 41
    again = run_jobs(["ingest"], settings_of(tmp_path, once=True), LOCAL)
    assert again[0].rows_in == 0


# --- jobs that repeat themselves -----------------------------------------------------------------


def context_of(tmp_path: Path, **settings: Any) -> tuple[JobContext, Reporter]:
    """A job as `rove pipeline run` gives it, but for Spark, which the loop has no use for."""
    (tmp_path / "lake").mkdir()
    (tmp_path / "out" / "job").mkdir(parents=True)
    given = JobSettings(lake=tmp_path / "lake", out=tmp_path / "out", **settings)
    reporter = Reporter(tmp_path / "out" / "job", "job")
    return JobContext("job", None, given, reporter), reporter


def test_once_is_one_step(tmp_path: Path) -> None:
    context, reporter = context_of(tmp_path, once=True)
    steps = iter([StepReport(position=7, rows_in=3, rows_out=2)])
    repeat(context, 3_600.0, lambda: next(steps))
    status = reporter.status
    assert (status.position, status.rows_in, status.rows_out, status.batches) == (7, 3, 2, 1)
    assert list(steps) == []


def test_it_goes_on_until_it_is_stopped(tmp_path: Path) -> None:
    context, _ = context_of(tmp_path, trigger_s=0.01)
    steps: list[int] = []

    def step() -> StepReport:
        steps.append(len(steps))
        if len(steps) == 3:
            context.stopping.set()
        return StepReport(position=len(steps))

    repeat(context, 3_600.0, step)
    assert steps == [0, 1, 2]


def test_a_long_pause_ends_when_it_is_stopped(tmp_path: Path) -> None:
    context, _ = context_of(tmp_path)
    rested = threading.Event()

    def step() -> StepReport:
        rested.set()
        return StepReport(position=1)

    job = threading.Thread(target=repeat, args=(context, 3_600.0, step))
    job.start()
    assert rested.wait(PATIENCE_S)
    context.stopping.set()
    job.join(PATIENCE_S)
    assert not job.is_alive()


def test_once_waits_for_the_job_before_it(tmp_path: Path) -> None:
    context, reporter = context_of(tmp_path, once=True)
    before = tmp_path / "out" / "before"
    before.mkdir()
    with held(before, "before"):
        other = Reporter(before, "before")

        def steps() -> Iterator[StepReport]:
            yield StepReport(position=1)
            other.end("done")
            # This step may have missed what the other did last, so there is one more.
            yield StepReport(position=2)
            yield StepReport(position=3)

        going = steps()
        repeat(context, 3_600.0, lambda: next(going), after="before")
    assert reporter.status.position == 3


def test_an_error_ends_the_loop(tmp_path: Path) -> None:
    def step() -> StepReport:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        repeat(context_of(tmp_path)[0], 1.0, step)
