"""Status files: what a job says, who runs it, and how it is asked to end."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from rove.lake.storage import LakeError
from rove.pipeline.jobs import status as module
from rove.pipeline.jobs.status import (
    LOCK,
    READS_MAX,
    STATUS,
    STOP,
    Reporter,
    Status,
    StatusError,
    StepReport,
    ask_to_stop,
    held,
    is_held,
    read_status,
    status_readings,
    statuses,
)


def folder_of(out: Path, job: str = "match") -> Path:
    (out / job).mkdir(parents=True)
    return out / job


def test_a_listener_can_record_the_status(tmp_path: Path) -> None:
    told: list[dict[str, float]] = []

    def tell(status: module.Status) -> None:
        readings = status_readings(status)
        assert {one.labels for one in readings} == {'job="match"'}
        assert {one.at for one in readings} == {status.updated_at}
        told.append({one.metric.removeprefix("rove_pipeline_"): one.value for one in readings})

    reporter = Reporter(folder_of(tmp_path), "match", tell)
    reporter.progress(StepReport(position=9, rows_in=10, rows_out=3, seconds=0.25))
    reporter.look(lake_position=30)
    reporter.end("done")
    assert told[0]["running"] == 1.0
    assert told[-1] == {
        "running": 0.0,
        "lag_rows": 21,
        "lag_seconds": 0.0,
        "batch_seconds": 0.25,
        "batches_total": 1,
        "rows_in_total": 10,
        "rows_out_total": 3,
    }


def test_steps_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WRITE_EVERY_S", 0.0)
    folder = folder_of(tmp_path)
    reporter = Reporter(folder, "match")
    started = read_status(folder)
    assert started is not None
    assert (started.state, started.batches, started.lag_rows) == ("starting", 0, 0)
    reporter.look(lake_position=30)
    at = time.time() - 5
    reporter.progress(StepReport(position=9, rows_in=10, rows_out=3, at=at, batch=0, seconds=0.25))
    reporter.progress(StepReport(position=19, rows_in=10, rows_out=4, at=at, batch=1, notes=("n",)))
    reporter.look(trigger_s=0.4)
    told = read_status(folder)
    assert told is not None
    assert (told.state, told.batch, told.batches) == ("running", 1, 2)
    assert (told.rows_in, told.rows_out, told.position, told.lag_rows) == (20, 7, 19, 11)
    assert 5 <= told.lag_s < 60
    assert told.rows_in_per_s > told.rows_out_per_s > 0
    assert told.trigger_s == 0.4
    assert told.notes == ["n"]
    reporter.progress(StepReport(position=30, batch=2))
    reporter.end("failed", "the disk is full")
    told = read_status(folder)
    assert told is not None
    assert (told.lag_rows, told.lag_s) == (0, 0.0)
    assert (told.state, told.last_error) == ("failed", "the disk is full")


def test_rates_forget_what_is_long_ago(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RATE_S", 0.0)
    reporter = Reporter(folder_of(tmp_path), "match")
    reporter.progress(StepReport(position=1, rows_in=100))
    reporter.progress(StepReport(position=2))
    reporter.look()
    assert reporter.status.rows_in == 100
    assert reporter.status.rows_in_per_s == 0.0


def test_it_is_written_twice_a_second_at_most(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    reporter = Reporter(folder, "match")
    reporter.progress(StepReport(position=5))
    seen = read_status(folder)
    assert seen is not None
    assert seen.position == -1
    reporter.end("done")
    seen = read_status(folder)
    assert seen is not None
    assert seen.position == 5


def test_a_folder_is_held_by_one(tmp_path: Path) -> None:
    folder = tmp_path / "match"
    assert not is_held(folder)
    with held(folder, "match"):
        Reporter(folder, "match")
        assert is_held(folder)
        with pytest.raises(StatusError, match=r"another run \(process \d+ on .*\) holds .*match"):
            held(folder, "match").__enter__()
    assert not is_held(folder)
    (folder / STOP).touch()
    with held(folder, "match"):
        assert not (folder / STOP).exists()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StatusError, match="cannot use the folder"):
        held(tmp_path / "file" / "match", "match").__enter__()


def test_a_killed_process_is_seen(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from rove.pipeline.jobs.status import *\n"
        "folder = Path(sys.argv[1])\n"
        "with held(folder, 'match'):\n"
        "    Reporter(folder, 'match').progress(StepReport(position=1))\n"
        "    print('here', flush=True)\n"
        "    time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "match")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    assert {each.state for each in statuses(tmp_path)} <= module.ALIVE
    process.kill()
    process.communicate()
    assert [each.state for each in statuses(tmp_path)] == ["killed"]


def test_what_there_is_not_is_told(tmp_path: Path) -> None:
    with pytest.raises(StatusError, match="no job has run in"):
        statuses(tmp_path)
    folder = folder_of(tmp_path)
    Reporter(folder, "match").end("done")
    with pytest.raises(StatusError, match="no job ingest has run in"):
        statuses(tmp_path, ["match", "ingest"])
    with pytest.raises(StatusError, match="no job is running in"):
        ask_to_stop(tmp_path, [], 1.0)
    (folder / STATUS).write_text("{}")
    with pytest.raises(StatusError, match="cannot read"):
        statuses(tmp_path)


def test_a_job_is_asked_and_waited_for(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    ready = threading.Event()

    def job() -> None:
        with held(folder, "match"):
            reporter = Reporter(folder, "match")
            ready.set()
            while not (folder / STOP).exists():
                time.sleep(0.01)
            reporter.end("stopped")

    thread = threading.Thread(target=job)
    thread.start()
    ready.wait()
    assert [each.state for each in ask_to_stop(tmp_path, [], 30.0)] == ["stopped"]
    thread.join()


def test_a_job_that_does_not_end_is_told(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    with held(folder, "match"):
        Reporter(folder, "match")
        with pytest.raises(StatusError, match=r"has not ended within 0.1 s"):
            ask_to_stop(tmp_path, ["match"], 0.1)
    assert (folder / LOCK).exists()


def test_a_status_that_is_replaced_while_it_is_read_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    status = Status(job="match", state="running", pid=1, host="h", started_at=1.0, updated_at=2.0)
    whole = msgspec.json.encode(status)
    said: list[bytes | LakeError] = [whole[:9], LakeError("Input data was truncated"), whole]

    def read(uri: str, path: str) -> bytes:
        one = said.pop(0)
        if isinstance(one, LakeError):
            raise one
        return one

    monkeypatch.setattr(module, "read_bytes", read)
    found = read_status("s3://bucket/out/match")
    assert found is not None
    assert found.state == "running"
    said = [whole[:9]] * READS_MAX
    with pytest.raises(StatusError, match="cannot read s3://bucket/out/match/_status"):
        read_status("s3://bucket/out/match")
