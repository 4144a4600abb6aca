"""The status of the pipeline's jobs, in files; and the lock of the process that runs a job.

    <out>/match/_status.json    replaced when the status changes, twice a second at most
    <out>/match/_lock           locked by the process that runs the job, as long as it lives
    <out>/match/_stop           a request to that process to end

Files need no server, outlive the process, and work over a shared folder. The lock is the operating
system's: it is released when the process ends, however that happens. So a status of `running`
without a lock was written by a process that was killed.

Object stores have no locks. There a status is written every few seconds, and a status that was not
updated for long is that of a killed process. Two concurrent runs are kept apart by their tables: if
both commit, one of them gets an error.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from rove.errors import RoveError
from rove.lake.storage import (
    LakeError,
    Location,
    child,
    folder_of,
    folders,
    read_bytes,
    remove,
    resolved,
    shown,
    write_whole,
)
from rove.metrics.records import Reading, labels_text

STATUS: Final = "_status.json"
LOCK: Final = "_lock"
STOP: Final = "_stop"
WRITE_EVERY_S: Final = 0.5
STORE_EVERY_S: Final = 5.0
"""How often the status is written to an object store, and the stop request polled."""
READS_MAX: Final = 3
"""Attempts: an object that is replaced while it is read may be read in part."""
SILENT_S: Final = 60.0
"""A job that has not updated its status in an object store for so long is taken for killed."""
RATE_S: Final = 30.0
"""Rates are averages over this time, or since the start."""
NOTES_MAX: Final = 5
PATIENCE_S: Final = 0.5
"""How long to wait for the lock: a process that checks it (`is_held`) has it for a moment."""

State = Literal["starting", "running", "done", "stopped", "failed", "killed"]
ALIVE: Final[frozenset[State]] = frozenset({"starting", "running"})


class StatusError(RoveError):
    """A job's folder is locked by another run, or cannot be read."""


class StepReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a job reports after each step."""

    position: int
    """The log is processed up to this position."""
    rows_in: int = 0
    """All figures are of this step."""
    rows_out: int = 0
    at: float | None = None
    """When the last row of the step was published."""
    batch: int | None = None
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


class Status(msgspec.Struct, kw_only=True):
    """The status of a job, of its running or its last process."""

    job: str
    state: State = "starting"
    pid: int
    host: str
    started_at: float
    updated_at: float
    batch: int | None = None
    batches: int = 0
    """Since the start of the process, as are the rows."""
    position: int = -1
    lake_position: int = -1
    lag_rows: int = 0
    """Positions between the job and the end of the lake; at least as many as there are rows."""
    lag_s: float = 0.0
    """Age of the last row that was processed; 0 if there are no more rows."""
    rows_in: int = 0
    rows_out: int = 0
    rows_in_per_s: float = 0.0
    rows_out_per_s: float = 0.0
    batch_s: float = 0.0
    """Duration of the last batch; `trigger_s` includes what Spark does around it."""
    trigger_s: float | None = None
    notes: list[str] = []
    """The last few notes for the operator."""
    last_error: str | None = None


class Reporter:
    """Keeps the status of one job up to date. Any thread."""

    def __init__(
        self, location: Location, job: str, record: Callable[[Status], None] = lambda status: None
    ) -> None:
        """`record` is called with every status that is written; it must not block."""
        now = time.time()
        self._record = record
        self._uri = resolved(location)
        self._is_local = folder_of(self._uri) is not None
        self._polled_s = -STORE_EVERY_S
        self._lock = threading.Lock()
        self._written_at = 0.0
        self._recent: deque[tuple[float, int, int]] = deque([(now, 0, 0)])
        """Moments, with the rows in and out up to then."""
        self._at: float | None = None
        self.status = Status(
            job=job, pid=os.getpid(), host=socket.gethostname(), started_at=now, updated_at=now
        )
        self._write(now)

    def progress(self, step: StepReport) -> None:
        """Add a finished step."""
        with self._lock:
            now, status = time.time(), self.status
            status.state = "running"
            status.position = step.position
            status.batch = step.batch
            status.batches += 1
            status.rows_in += step.rows_in
            status.rows_out += step.rows_out
            status.batch_s = step.seconds
            status.notes = [*status.notes, *step.notes][-NOTES_MAX:]
            self._at = step.at if step.at is not None else self._at
            self._recent.append((now, status.rows_in, status.rows_out))
            self._look(now)

    def look(self, lake_position: int | None = None, trigger_s: float | None = None) -> None:
        """Refresh the lake's position and the rates."""
        with self._lock:
            if lake_position is not None:
                self.status.lake_position = lake_position
            if trigger_s is not None:
                self.status.trigger_s = trigger_s
            self._look(time.time())

    def end(self, state: State, error: str | None = None) -> None:
        """Write the final status."""
        with self._lock:
            now = time.time()
            self.status.state, self.status.last_error = state, error
            self._count(now)
            self._write(now)

    def is_stop_requested(self) -> bool:
        """Whether the stop file was written."""
        now_s = time.monotonic()
        if not self._is_local and now_s - self._polled_s < STORE_EVERY_S:
            return False
        self._polled_s = now_s
        with contextlib.suppress(LakeError):
            return read_bytes(self._uri, STOP) is not None
        return False

    def _look(self, now: float) -> None:
        self._count(now)
        if now - self._written_at >= (WRITE_EVERY_S if self._is_local else STORE_EVERY_S):
            self._write(now)

    def _count(self, now: float) -> None:
        status = self.status
        while len(self._recent) > 1 and self._recent[1][0] < now - RATE_S:
            self._recent.popleft()
        begun, rows_in, rows_out = self._recent[0]
        passed_s = max(now - begun, 1e-9)
        status.rows_in_per_s = round((status.rows_in - rows_in) / passed_s, 1)
        status.rows_out_per_s = round((status.rows_out - rows_out) / passed_s, 1)
        status.lake_position = max(status.lake_position, status.position)
        status.lag_rows = status.lake_position - status.position
        is_behind = status.lag_rows > 0 and self._at is not None
        status.lag_s = round(max(0.0, now - (self._at or now)), 3) if is_behind else 0.0
        status.updated_at = now

    def _write(self, now: float) -> None:
        self._written_at = now
        with contextlib.suppress(
            LakeError
        ):  # a job must not fail because its status cannot be written
            write_whole(child(self._uri, STATUS), [msgspec.json.encode(self.status)])
        self._record(self.status)


def status_readings(status: Status) -> list[Reading]:
    """A status as readings for the metrics database."""
    labels = labels_text({"job": status.job})
    figures = {
        "rove_pipeline_running": float(status.state in ALIVE),
        "rove_pipeline_lag_rows": status.lag_rows,
        "rove_pipeline_lag_seconds": status.lag_s,
        "rove_pipeline_batch_seconds": status.batch_s,
        "rove_pipeline_batches_total": status.batches,
        "rove_pipeline_rows_in_total": status.rows_in,
        "rove_pipeline_rows_out_total": status.rows_out,
    }
    return [Reading(metric, labels, status.updated_at, value) for metric, value in figures.items()]


# --- the lock -------------------------------------------------------------------------------------


@contextlib.contextmanager
def held(location: Location, job: str) -> Iterator[None]:
    """Hold the lock of a job's folder; StatusError names the process that has it."""
    uri = resolved(location)
    if (folder := folder_of(uri)) is None:
        remove(uri, STOP)
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a+")
    except OSError as error:
        raise StatusError(f"cannot use the folder {folder}: {error.strerror}") from error
    with file:
        if not _took(file.fileno(), fcntl.LOCK_EX, patience_s=PATIENCE_S):
            other = read_status(folder)
            who = "" if other is None else f" (process {other.pid} on {other.host})"
            raise StatusError(
                f"another run{who} holds {folder}; `rove pipeline stop {job} --out "
                f"{folder.parent}` ends it, or choose another --out"
            )
        (folder / STOP).unlink(missing_ok=True)  # it was meant for an earlier run
        yield


def _runs(uri: str, status: Status) -> bool:
    """Whether the process that wrote this status is alive."""
    if (folder := folder_of(uri)) is not None:
        return is_held(folder)
    return status.state in ALIVE and time.time() - status.updated_at < SILENT_S


def is_held(folder: Path) -> bool:
    """Whether a process holds the lock of this folder."""
    try:
        file = (folder / LOCK).open()
    except OSError:
        return False
    with file:
        return not _took(file.fileno(), fcntl.LOCK_SH)


def _took(descriptor: int, kind: int, patience_s: float = 0.0) -> bool:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.05)
        else:
            return True


# --- reading a status -----------------------------------------------------------------------------


def read_status(location: Location) -> Status | None:
    """The last status in a job's folder; None if there is none."""
    uri = resolved(location)
    reads = READS_MAX if folder_of(uri) is None else 1
    while True:
        reads -= 1
        try:
            said = read_bytes(uri, STATUS)
            return None if said is None else msgspec.json.decode(said, type=Status)
        except (LakeError, msgspec.MsgspecError) as error:
            if not reads:
                raise StatusError(f"cannot read {shown(child(uri, STATUS))}: {error}") from error


def statuses(out: Location, jobs: Iterable[str] = ()) -> list[Status]:
    """The status of all or some jobs in an output folder; StatusError if there are none."""
    wanted, uri = set(jobs), resolved(out)
    found: list[Status] = []
    for name in folders(uri):
        if not wanted or name in wanted:
            status = read_status(child(uri, name))
            if status is not None:
                if status.state in ALIVE and not _runs(child(uri, name), status):
                    status.state = "killed"
                found.append(status)
    if missing := wanted - {status.job for status in found}:
        raise StatusError(f"no job {min(missing)} has run in {shown(uri)}")
    if not found:
        raise StatusError(
            f"no job has run in {shown(uri)}; is it the --out of `rove pipeline run`?"
        )
    return found


def ask_to_stop(out: Location, jobs: Iterable[str], wait_s: float) -> list[Status]:
    """Stop running jobs, and wait; StatusError if there are none, or they do not stop."""
    uri = resolved(out)
    alive = [status for status in statuses(uri, jobs) if status.state in ALIVE]
    if not alive:
        raise StatusError(f"no job is running in {shown(uri)}")
    for status in alive:
        write_whole(child(uri, status.job, STOP), [])
    deadline = time.monotonic() + wait_s
    for status in alive:
        folder = child(uri, status.job)
        while _runs(folder, read_status(folder) or status):
            if time.monotonic() > deadline:
                raise StatusError(
                    f"{status.job} (process {status.pid} on {status.host}) has not ended within "
                    f"{wait_s:g} s; it will end after its batch; or kill the process"
                )
            time.sleep(0.1)
    return statuses(uri, [status.job for status in alive])
