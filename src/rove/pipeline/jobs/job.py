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
from rove.pipeline.jobs.status import ALIVE, Progress, Reporter, statuses
from rove.pipeline.lake.log import NOTHING, Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REST_S: Final = 1.0
"""How long a job that repeats itself rests before it looks at how things are."""


class JobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What all jobs of a run are told."""

    lake: Location
    out: Location
    """Each job has a folder of its name in there."""
    checkpoint: Location | None = None
    """Spark's own notes of streaming jobs. By default in the folder of the job; if that is none, in
    a folder that passes: the output knows as well how far it is."""
    once: bool = False
    """Take what the lake has and end; otherwise follow it."""
    trigger_s: float | None = None
    """How often is looked whether there is something new; None leaves it to the job."""
    max_rows: int | None = None
    """Rows in one step."""
    engine: Literal["all", "spark"] = "all"
    """Whether all subscriptions are matched, or those that only Spark serves."""
    buckets: int | None = None
    """Groups of ranked subscriptions; must stay the same for one output."""
    start: int = NOTHING
    """A job that has not run yet begins after this position."""
    database: str | None = None
    """The metrics database, a file or a URL: jobs record there how they are."""
    options: dict[str, str] = {}
    """What only one job knows, by name."""


class JobContext:
    """What a job is given."""

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
        """None where the job has something to do without one."""

    @property
    def spark(self) -> SparkSession:
        assert self._spark is not None, f"{self.name} has said that it needs no Spark"
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

    def report(self, progress: Progress) -> None:
        """A step is done."""
        self._reporter.progress(progress)
        self.look()

    def look(self, trigger_s: float | None = None, lake_position: int | None = None) -> None:
        """Time has passed, with or without something done; where the lake is now is looked up,
        unless somebody knows."""
        if lake_position is None:
            lake_position = NOTHING if self.lake is None else self.lake.position()
        self._reporter.look(lake_position, trigger_s)

    def runs(self, job: str | None) -> bool:
        """Whether another job of the same run has not ended."""
        return any(one.job == job and one.state in ALIVE for one in statuses(self.settings.out))

    def rest(self, seconds: float) -> None:
        """Wait, unless the job should end."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            if self.stopping.wait(min(left_s, REST_S)):
                return
            self.look()


def repeat(
    context: JobContext, every_s: float, step: Callable[[], Progress], after: str | None = None
) -> None:
    """Take steps until the job is stopped; once, until all is done.

    For results that are not worth a streaming query: they are computed from what changed since the
    last time, in a few seconds, every so often. `after` names the job whose results are taken up: a
    run that is to end waits for it.
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
    """None if there is none yet; `_check_lake` has seen to those who need it."""
    try:
        return Lake(settings.lake)
    except MissingTableError:
        return None
