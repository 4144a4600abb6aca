"""The pipeline's jobs by name, and the process that runs them together.

What a job has written to its folder `<out>/<job>` must be enough to resume after any end, even
SIGKILL. Each job guarantees exactly-once output itself, by the numbers in the commits of its table.
All jobs of a run share one Spark session. Each has a thread: Spark does the work outside of Python,
so threads are enough.

If a job fails, the others are stopped and the run ends with its error. A process supervisor can
then restart the run, and each job resumes where it was. Only one failure is retried here: Spark
gives its Python workers ten seconds to start, which may be too short on a busy machine.
"""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rove.errors import RoveError, UsageError
from rove.lake.storage import child, resolved
from rove.pipeline.jobs.job import JobContext, JobSettings
from rove.pipeline.jobs.status import Reporter, Status, held, status_readings
from rove.pipeline.lake.log import NOTHING, Lake, LakeError
from rove.pipeline.spark.session import SparkSettings, is_running, open_session, reason
from rove.pipeline.spark.storage_probe import probe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_EVERY_S: Final = 0.2
"""How often to check for a request to stop."""
_BUSY: Final = "Python worker failed to connect back"
_TRIES_MAX: Final = 5
_TASK_ERROR: Final = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)


class JobError(RoveError):
    """A job has failed."""


class RegisteredJob(NamedTuple):
    """A job that can be run by name."""

    run: Callable[[JobContext], None]
    needs_spark: bool = True


def _job(name: str, *, needs_spark: bool = True) -> RegisteredJob:
    """A job whose module is imported when it runs."""

    def run(context: JobContext) -> None:
        match name:
            case "match":
                from rove.pipeline.jobs.stream import run_job
            case "deliver":
                from rove.pipeline.jobs.delivery import run_job
            case "ingest":
                from rove.pipeline.tables.ingest import run_job
            case "sensors":
                from rove.pipeline.tables.sensors import run_job
            case _:
                from rove.pipeline.jobs.metrics import run_job
        run_job(context)

    return RegisteredJob(run, needs_spark)


JOBS: Final[dict[str, RegisteredJob]] = {
    "match": _job("match"),
    "deliver": _job("deliver", needs_spark=False),
    "ingest": _job("ingest"),
    "sensors": _job("sensors"),
    "metrics": _job("metrics", needs_spark=False),
}


def run_jobs(
    names: Sequence[str], settings: JobSettings, spark_settings: SparkSettings | None = None
) -> list[Status]:
    """Run jobs until they are done or stopped; the first error stops all of them."""
    for name in names:
        if name not in JOBS:
            raise UsageError(f"there is no job {name!r}; there are {', '.join(JOBS)}")
    _check_lake(names, settings)
    out = resolved(settings.out)
    with contextlib.ExitStack() as stack:
        for name in dict.fromkeys(names):
            stack.enter_context(held(child(out, name), name))
        record = stack.enter_context(_recorded(settings.database))
        reporters = {
            name: Reporter(child(out, name), name, record) for name in dict.fromkeys(names)
        }
        try:
            spark = stack.enter_context(_session(names, spark_settings))
            if spark is not None:
                probe(spark, reads=[resolved(settings.lake)], writes=[out])
        except BaseException as error:
            for reporter in reporters.values():
                reporter.end("failed", one_line(error))
            raise
        runs = [
            _JobThread(JobContext(name, spark, settings, reporter), JOBS[name].run, reporter)
            for name, reporter in reporters.items()
        ]
        with _signals_stop(runs):
            _watch(runs)
    if failed := next((run for run in runs if run.error is not None), None):
        raise JobError(f"{failed.context.name}: {one_line(failed.error)}") from failed.error
    return [run.reporter.status for run in runs]


@contextlib.contextmanager
def _session(
    names: Sequence[str], spark_settings: SparkSettings | None
) -> Iterator[SparkSession | None]:
    """The Spark session that these jobs share; None if no job needs one."""
    if not any(JOBS[name].needs_spark for name in names):
        yield None
        return
    if spark_settings is not None and spark_settings.is_connect:
        raise UsageError(
            "jobs need a driver of their own and cannot run through "
            f"{spark_settings.master}; give the cluster itself: spark://host:port, yarn, k8s://…, "
            "local[n]"
        )
    is_ours = not is_running()
    spark = open_session(spark_settings)
    try:
        yield spark
    finally:
        if is_ours:
            spark.stop()


@contextlib.contextmanager
def _recorded(place: str | None) -> Iterator[Callable[[Status], None]]:
    """A function that records the status of jobs in the metrics database."""
    if place is None:
        yield lambda status: None
        return
    from rove.metrics.database import url_of
    from rove.metrics.recorder import Recorder

    url_of(place)  # raises at once for an invalid URL
    recorder = Recorder(place)
    try:
        yield lambda status: recorder.put(status_readings(status))
    finally:
        recorder.close()


def _check_lake(names: Sequence[str], settings: JobSettings) -> None:
    if set(names) == {"metrics"} and settings.database is not None:
        return  # rolls up the readings of the database, with or without a lake
    lake = Lake(settings.lake)
    if settings.once and lake.position() == NOTHING:
        raise LakeError(f"the lake {lake.name} is empty, so a run with `once` has nothing to do")


class _JobThread:
    """A job and its thread."""

    def __init__(
        self, context: JobContext, function: Callable[[JobContext], None], reporter: Reporter
    ) -> None:
        self.context = context
        self.reporter = reporter
        self.error: BaseException | None = None
        self._function = function
        self.thread = threading.Thread(target=self._run, name=f"job {context.name}", daemon=True)

    def _run(self) -> None:
        try:
            for left in reversed(range(_TRIES_MAX)):
                try:
                    self.context.look()
                    self._function(self.context)
                    break
                except Exception as error:
                    if not left or _BUSY not in str(error) or self.context.stopping.is_set():
                        raise
        except BaseException as error:
            self.error = error
            self.reporter.end("failed", one_line(error))
        else:
            self.reporter.end("stopped" if self.context.stopping.is_set() else "done")


def _watch(runs: Sequence[_JobThread]) -> None:
    """Wait for all jobs; stop those whose stop file was written."""
    for run in runs:
        run.thread.start()
    while any(run.thread.is_alive() for run in runs):
        for run in runs:
            if run.reporter.is_stop_requested():
                run.context.stopping.set()
            run.reporter.look()
        if any(run.error is not None for run in runs):
            for run in runs:
                run.context.stopping.set()
        time.sleep(LOOK_EVERY_S)


@contextlib.contextmanager
def _signals_stop(runs: Sequence[_JobThread]) -> Iterator[None]:
    """Ctrl-C and SIGTERM stop every job after its step, if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: Any) -> None:
        for run in runs:
            run.context.stopping.set()

    before = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def one_line(error: BaseException | None) -> str:
    """An error message in one line; of an error that Spark wraps, the line that a task raised."""
    if isinstance(error, RoveError):
        return " ".join(str(error).split())
    text = str(error)
    if raised := _TASK_ERROR.findall(text):
        kind, message = raised[-1]
        return message if kind in _own_errors() else f"{kind}: {message}"
    return reason(error) if error is not None else ""


def _own_errors() -> set[str]:
    """The class names of Rove's errors; their messages are shown without the class name."""
    found, waiting = set(), [RoveError]
    while waiting:
        kind = waiting.pop()
        found.add(kind.__name__)
        waiting += kind.__subclasses__()
    return found
