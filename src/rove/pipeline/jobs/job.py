"""What a job of the pipeline is given: its settings, its lake and folder, and where it reports.

A job is a function that takes a `JobContext` and returns when the lake is done (`once`) or when the
job is stopped; it reports each step. `rove.pipeline.jobs.registry` starts jobs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from rove.errors import UsageError
from rove.lake.delta import MissingTableError
from rove.lake.storage import Location, child, folder_of, resolved, shown
from rove.pipeline.jobs.status import ALIVE, Reporter, StepReport, statuses
from rove.pipeline.lake.log import NOTHING, Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REST_S: Final = 1.0
"""The longest pause of a periodic job between two updates of its status."""


class JobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a run; all its jobs share them."""

    lake: Location
    out: Location
    """The parent of the jobs' folders, which have the names of the jobs."""
    checkpoint: Location | None = None
    """Where Spark keeps its streaming checkpoints. By default in the folder of the job; if the
    output is no folder, in a temporary one: the output knows the position as well."""
    once: bool = False
    """Process what the lake has and end; otherwise follow it."""
    trigger_s: float | None = None
    """How often to look for new rows; None: the job's default."""
    max_rows: int | None = None
    """Rows in one step, at most."""
    engine: Literal["all", "spark"] = "all"
    """Which subscriptions are matched: all, or those that Spark serves."""
    buckets: int | None = None
    """Number of groups of ranked subscriptions; must not change for one output."""
    start: int = NOTHING
    """A job that has not run yet starts after this position."""
    database: str | None = None
    """The metrics database, a file or a URL, in which jobs record their status."""
    options: dict[str, str] = {}
    """Options of single jobs, by name."""


class JobContext:
    """What a job gets from the run that started it."""

    def __init__(
        self, name: str, spark: SparkSession | None, settings: JobSettings, reporter: Reporter
    ) -> None:
        self.name = name
        self._spark = spark
        self.settings = settings
        self.location = child(resolved(settings.out), name)
        """Where it writes."""
        self.stopping = threading.Event()
        """Set when the job should end; `wait` on it instead of sleeping."""
        self._reporter = reporter
        self.lake = open_lake(settings)
        """None if there is no lake and the job can do without."""

    @property
    def spark(self) -> SparkSession:
        assert self._spark is not None, f"{self.name} is registered as a job without Spark"
        return self._spark

    @property
    def folder(self) -> Path:
        """Where it writes, for a job that needs a folder."""
        if (folder := folder_of(self.location)) is None:
            raise UsageError(f"{self.name} needs a folder, and --out is {shown(self.location)}")
        return folder

    @property
    def once(self) -> bool:
        return self.settings.once

    def report(self, progress: StepReport) -> None:
        """Report a finished step."""
        self._reporter.progress(progress)
        self.look()

    def look(self, trigger_s: float | None = None, lake_position: int | None = None) -> None:
        """Refresh the status; the lake's position is looked up unless the caller passes it."""
        if lake_position is None:
            lake_position = NOTHING if self.lake is None else self.lake.position()
        self._reporter.look(lake_position, trigger_s)

    def runs(self, job: str | None) -> bool:
        """Whether another job with the same output is still running."""
        return any(one.job == job and one.state in ALIVE for one in statuses(self.settings.out))

    def rest(self, seconds: float) -> None:
        """Wait, but no longer than until the job has to stop."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            if self.stopping.wait(min(left_s, REST_S)):
                return
            self.look()


def repeat(
    context: JobContext, every_s: float, step: Callable[[], StepReport], after: str | None = None
) -> None:
    """Run steps periodically until the job is stopped; with `once`, until all is done.

    For results that are not worth a streaming query: each step takes a few seconds to process what
    changed since the last one. `after` names the job whose output is the input: a run with `once`
    waits for it to end.
    """
    pause_s = every_s if context.settings.trigger_s is None else context.settings.trigger_s
    while not context.stopping.is_set():
        is_last = context.once and not context.runs(after)
        begin_s = time.monotonic()
        progress = step()
        took_s = time.monotonic() - begin_s
        context.report(msgspec.structs.replace(progress, seconds=took_s))
        if is_last:
            return
        context.rest(REST_S if context.once else pause_s - took_s)


def open_lake(settings: JobSettings) -> Lake | None:
    """The lake; None if there is none yet. `run_jobs` has checked the jobs that need one."""
    try:
        return Lake(settings.lake)
    except MissingTableError:
        return None
