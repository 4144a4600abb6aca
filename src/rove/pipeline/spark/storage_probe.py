"""Checks that executors see the same storage as the driver, before a job starts.

A folder may have the same name on every machine and be a different one on each; an object store
needs credentials on every machine. Both would make a job fail half-way or, worse, let tasks write
to the wrong place. So a task for each core of the cluster reads files that the driver has read and
written, and writes files that the driver must find. An executor that starts later is not checked
here, but a file that it does not find is an error.

One Spark job of 0.1 s; nothing if everything runs on one machine.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from rove.errors import RoveError
from rove.lake.delta import LOG_FOLDER
from rove.lake.storage import (
    LakeError,
    child,
    filesystem,
    folder_of,
    lake_errors,
    read_bytes,
    remove,
    shown,
    write_whole,
)
from rove.pipeline.spark.executors import runs_here
from rove.pipeline.spark.workers import run_each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ADVICE: Final = (
    "a folder must be the same one on every machine, an object store needs its credentials in the "
    "environment of each"
)


class ProbeError(RoveError):
    """An executor does not see what the driver sees."""


class Probe(msgspec.Struct, frozen=True):
    """What a task has to read and write: names below locations."""

    number: int
    reads: tuple[tuple[str, str], ...]
    writes: tuple[tuple[str, str], ...]

    @property
    def answers(self) -> list[tuple[str, str]]:
        """The files that it writes."""
        return [(uri, f"{name}-{self.number}") for uri, name in self.writes]


class ProbeResult(msgspec.Struct, frozen=True):
    """What a task has found."""

    host: str
    problem: str = ""


def probe(spark: SparkSession, *, reads: Sequence[str] = (), writes: Sequence[str] = ()) -> None:
    """Let executors read tables and write below locations; ProbeError names one that cannot.

    Locations are those of `rove.lake.storage.resolved`.
    """
    if not runs_here(spark):
        probe_with(spark, spark.sparkContext.defaultParallelism, reads, writes)


def probe_with(
    spark: SparkSession | None, tasks: int, reads: Sequence[str], writes: Sequence[str]
) -> None:
    """The same with a number of tasks; without Spark, in this process."""
    there = tuple((uri, _newest_commit(uri)) for uri in reads)
    marks = tuple((uri, f"_probe-{uuid.uuid4().hex}") for uri in writes)
    probes = [Probe(number, there, marks) for number in range(tasks)]
    try:
        for uri, name in marks:
            write_whole(child(uri, name), [name.encode()])
        found = run_each(spark, run_probe, probes, ProbeResult)
        for one, seen in zip(probes, found, strict=True):
            if seen.problem:
                raise ProbeError(f"on the executor {seen.host}: {seen.problem}; {_ADVICE}")
            for uri, name in one.answers:
                if read_bytes(uri, name) is None:
                    raise ProbeError(
                        f"the driver does not find what the executor {seen.host} writes to "
                        f"{shown(uri)}; {_ADVICE}"
                    )
    finally:
        for uri, name in {*marks, *(answer for one in probes for answer in one.answers)}:
            with contextlib.suppress(LakeError):
                remove(uri, name)


def run_probe(one: Probe) -> ProbeResult:
    """The check on an executor."""
    seen = functools.partial(ProbeResult, socket.gethostname())
    try:
        for uri, name in (*one.reads, *one.writes):
            if not _is_there(uri, name):
                return seen(f"{shown(child(uri, name) if name else uri)} was not found")
        for uri, name in one.answers:
            write_whole(child(uri, name), [])
    except LakeError as error:
        return seen(str(error))
    return seen()


def _is_there(uri: str, name: str) -> bool:
    if name:
        return read_bytes(uri, name) is not None
    folder = folder_of(uri)
    return folder is None or folder.is_dir()


def _newest_commit(uri: str) -> str:
    """A file that every reader of a table must see; empty for a folder of tables."""
    import pyarrow.fs as pa_fs

    with lake_errors(f"cannot read {shown(uri)}"):
        selector = pa_fs.FileSelector(LOG_FOLDER, allow_not_found=True)
        names = [each.path for each in filesystem(uri).get_file_info(selector)]
    return max((name for name in names if name.endswith(".json")), default="")
