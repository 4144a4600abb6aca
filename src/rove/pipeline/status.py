"""How a job of the pipeline is doing, in a file that anybody may read; and who runs it.

    <out>/match/_status.json    replaced whenever there is news, twice a second at most
    <out>/match/_lock           held by the process that runs the job, as long as it lives
    <out>/match/_stop           asks that process to end

Files, because they need no server, survive the process, and work over a shared folder. The lock is
the operating system's: it is gone with the process, however that ended, so a status that says
`running` while nobody holds the lock is the last word of a process that was killed.
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
from rove.metrics.naming import labels_text
from rove.metrics.records import Reading

STATUS: Final = "_status.json"
LOCK: Final = "_lock"
STOP: Final = "_stop"
WRITE_EVERY_S: Final = 0.5
RATE_S: Final = 30.0
"""Rates are over this time, or since the start."""
NOTES_MAX: Final = 5
PATIENCE_S: Final = 0.5
"""Somebody who only asks whether the lock is held has it for a moment himself."""

State = Literal["starting", "running", "done", "stopped", "failed", "killed"]
ALIVE: Final[frozenset[State]] = frozenset({"starting", "running"})


class StatusError(RoveError):
    """A job's folder is somebody else's, or cannot be read."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What a job says after each step."""

    position: int
    """Everything up to this position of the log is done."""
    rows_in: int = 0
    """Of this step, as are the others."""
    rows_out: int = 0
    at: float | None = None
    """When the last row of it was published."""
    batch: int | None = None
    seconds: float = 0.0
    notes: tuple[str, ...] = ()


class Status(msgspec.Struct, kw_only=True):
    """A job, as a process runs it or ran it last."""

    job: str
    state: State = "starting"
    pid: int
    host: str
    started_at: float
    updated_at: float
    batch: int | None = None
    batches: int = 0
    """Since the start, as are the rows."""
    position: int = -1
    lake_position: int = -1
    lag_rows: int = 0
    """Positions that the lake is ahead; of all kinds, so at least as many as rows."""
    lag_s: float = 0.0
    """Age of the last row that is done, while there are others."""
    rows_in: int = 0
    rows_out: int = 0
    rows_in_per_s: float = 0.0
    rows_out_per_s: float = 0.0
    batch_s: float = 0.0
    """How long the last batch took; with all that Spark does around it, `trigger_s`."""
    trigger_s: float | None = None
    notes: list[str] = []
    """The last few things that somebody should look at."""
    last_error: str | None = None


class Reporter:
    """Keeps the status of one job up to date. Any thread."""

    def __init__(
        self, folder: Path, job: str, tell: Callable[[Status], None] = lambda status: None
    ) -> None:
        """`tell` gets what is written; it must not wait."""
        now = time.time()
        self._tell = tell
        self._path = folder / STATUS
        self._lock = threading.Lock()
        self._written_at = 0.0
        self._recent: deque[tuple[float, int, int]] = deque([(now, 0, 0)])
        """When, and how many rows were in and out by then."""
        self._at: float | None = None
        self.status = Status(
            job=job, pid=os.getpid(), host=socket.gethostname(), started_at=now, updated_at=now
        )
        self._write(now)

    def progress(self, step: Progress) -> None:
        """One more step is done."""
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
        """Time has passed: say how far the lake is now, and how fast it goes."""
        with self._lock:
            if lake_position is not None:
                self.status.lake_position = lake_position
            if trigger_s is not None:
                self.status.trigger_s = trigger_s
            self._look(time.time())

    def end(self, state: State, error: str | None = None) -> None:
        """The last word."""
        with self._lock:
            now = time.time()
            self.status.state, self.status.last_error = state, error
            self._count(now)
            self._write(now)

    def _look(self, now: float) -> None:
        self._count(now)
        if now - self._written_at >= WRITE_EVERY_S:
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
        unfinished = self._path.with_name(f".{STATUS}.{os.getpid()}")
        unfinished.write_bytes(msgspec.json.encode(self.status))
        unfinished.rename(self._path)
        self._written_at = now
        self._tell(self.status)


def status_readings(status: Status) -> list[Reading]:
    """How a job is, for the metrics database."""
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


# --- who runs it ----------------------------------------------------------------------------------


@contextlib.contextmanager
def held(folder: Path, job: str) -> Iterator[None]:
    """Be the only one who runs this job there; StatusError names the other."""
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
        (folder / STOP).unlink(missing_ok=True)  # it was meant for the one before
        yield


def is_held(folder: Path) -> bool:
    """Whether a process runs the job of this folder."""
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


# --- what others see ------------------------------------------------------------------------------


def read_status(folder: Path) -> Status | None:
    """What the job of this folder said last; None if there never was one."""
    try:
        return msgspec.json.decode((folder / STATUS).read_bytes(), type=Status)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise StatusError(f"cannot read {folder / STATUS}: {error}") from error


def statuses(out: Path, jobs: Iterable[str] = ()) -> list[Status]:
    """The jobs of a folder, or some of them; StatusError if there are none."""
    wanted = set(jobs)
    found = [
        _as_it_is(status, path.parent)
        for path in sorted(out.glob(f"*/{STATUS}"))
        if not wanted or path.parent.name in wanted
        if (status := read_status(path.parent)) is not None
    ]
    if missing := wanted - {status.job for status in found}:
        raise StatusError(f"no job {min(missing)} has run in {out}")
    if not found:
        raise StatusError(f"no job has run in {out}; is it the --out of `rove pipeline run`?")
    return found


def _as_it_is(status: Status, folder: Path) -> Status:
    if status.state in ALIVE and not is_held(folder):
        status.state = "killed"
    return status


def ask_to_stop(out: Path, jobs: Iterable[str], wait_s: float) -> list[Status]:
    """Ask running jobs to end, and wait; StatusError if there are none, or they do not."""
    alive = [status for status in statuses(out, jobs) if status.state in ALIVE]
    if not alive:
        raise StatusError(f"no job is running in {out}")
    for status in alive:
        (out / status.job / STOP).touch()
    deadline = time.monotonic() + wait_s
    for status in alive:
        while is_held(out / status.job):
            if time.monotonic() > deadline:
                raise StatusError(
                    f"{status.job} (process {status.pid} on {status.host}) has not ended within "
                    f"{wait_s:g} s; it will after its batch, or end the process"
                )
            time.sleep(0.1)
    return statuses(out, [status.job for status in alive])
