"""Checks whether the pipeline can run here or on a cluster, and advises what to do.

Everything is tried: Java is started, a session is opened, an executor reports what it has, and a
job and a streaming query with state are run. Nothing is left behind but an archive of Spark's
classes, which is wanted: later sessions start sooner.

It takes as long as Spark takes to start and to run two small jobs; 40 s more when the archive has
to be made.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from rove.base.processes import cores
from rove.errors import RoveError
from rove.pipeline.spark import class_archive, executors
from rove.pipeline.spark.java import Java, JavaError, class_archive_path, find_java
from rove.pipeline.spark.session import (
    SparkSettings,
    is_running,
    machine_bytes,
    memory_bytes,
    open_session,
    reason,
    spark_home,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

State = Literal["ok", "warning", "problem"]

NEEDED: Final = ("pyspark", "pyarrow", "pandas", "protobuf", "numba", "numpy", "msgspec")
PANDAS_MAX: Final = 3
"""Spark does not support this version of pandas yet."""
GIB: Final = 1 << 30
FREE_BYTES_WARNING: Final = 2 * GIB
FREE_BYTES_PROBLEM: Final = GIB // 10
MEMORY_PART_MAX: Final = 0.75
"""Spark's share of the machine's memory; its Python workers need some too."""
JOB_ROWS: Final = 1_000_000
_INSTALL: Final = "pip install 'rove[spark]'"


class SparkFinding(msgspec.Struct, frozen=True):
    """The result of one check; `rove doctor` has the same for the broker."""

    subject: str
    state: State
    text: str
    advice: str = ""
    """What to do; empty if all is well."""


def examine(settings: SparkSettings) -> Iterator[SparkFinding]:
    """Run the checks one by one; skips those that depend on something that is missing."""
    missing = list(_missing())
    yield _packages()
    yield from missing
    java, findings = _java()
    yield from findings
    yield _memory(settings)
    yield _disk()
    if java is None or missing:
        return
    yield _spark()
    if settings.is_local:
        yield _classes(java)
    yield from _running(settings)


# --- what is installed --------------------------------------------------------------------------


def _packages() -> SparkFinding:
    versions = {name: _version(name) for name in NEEDED}
    text = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    pandas = versions["pandas"]
    if pandas and int(pandas.split(".")[0]) >= PANDAS_MAX:
        return SparkFinding("packages", "warning", text, f"pip install 'pandas<{PANDAS_MAX}'")
    return SparkFinding("packages", "ok", text)


def _missing() -> Iterator[SparkFinding]:
    for name in NEEDED:
        if _version(name) is None:
            yield SparkFinding(name, "problem", "is not installed", _INSTALL)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _java() -> tuple[Java | None, list[SparkFinding]]:
    try:
        java = find_java()
    except JavaError as error:
        return None, [SparkFinding("java", "problem", str(error), _INSTALL)]
    found = [SparkFinding("java", "warning", text, "fix or unset it") for text in java.passed_over]
    text = f"{java.full_version} from {java.source} ({java.real_home})"
    return java, [*found, SparkFinding("java", "ok", text)]


def _spark() -> SparkFinding:
    """Python and Java halves of Spark must be of one version."""
    version, home = _version("pyspark"), spark_home()
    named = os.environ.get("SPARK_HOME")
    if named and Path(named).resolve() != home.resolve():
        return SparkFinding(
            "spark",
            "warning",
            f"{version} in {home}, but SPARK_HOME is {named}, whose Java half is then used",
            f"unset SPARK_HOME unless that is Spark {version} too",
        )
    return SparkFinding("spark", "ok", f"{version} in {home}")


# --- what the machine has -----------------------------------------------------------------------


def _memory(settings: SparkSettings) -> SparkFinding:
    has_bytes, wanted_bytes = machine_bytes(), memory_bytes(settings.memory)
    if has_bytes is None:
        return SparkFinding(
            "memory", "ok", f"{settings.memory} for the driver; size not known here"
        )
    text = f"{settings.memory} of {has_bytes / GIB:.1f} GB for the driver"
    if wanted_bytes > MEMORY_PART_MAX * has_bytes:
        return SparkFinding("memory", "warning", text, "leave some for Python: a smaller --memory")
    return SparkFinding("memory", "ok", text)


def _disk() -> SparkFinding:
    """The disk to which Spark writes shuffle files and spills."""
    place = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()
    try:
        free_bytes = shutil.disk_usage(place).free
    except OSError as error:
        advice = "name a folder that exists in SPARK_LOCAL_DIRS"
        return SparkFinding("disk", "problem", f"{place}: {error.strerror}", advice)
    text = f"{place}: {free_bytes / GIB:,.1f} GB free"
    if free_bytes >= FREE_BYTES_WARNING:
        return SparkFinding("disk", "ok", text)
    state: State = "warning" if free_bytes >= FREE_BYTES_PROBLEM else "problem"
    return SparkFinding("disk", state, text, "make room, or name another disk in SPARK_LOCAL_DIRS")


def _classes(java: Java) -> SparkFinding:
    begin_s = time.perf_counter()
    archive = class_archive_path(java)
    had = archive is not None and archive.exists()
    archive = class_archive.make(java)
    if archive is None:
        return SparkFinding(
            "classes",
            "warning",
            "no archive could be made; sessions start more slowly",
            "set XDG_CACHE_HOME to a folder that can be written, with 200 MB to spare",
        )
    took = "" if had else f", made in {time.perf_counter() - begin_s:.0f} s"
    return SparkFinding("classes", "ok", f"archive of {archive.stat().st_size >> 20} MB{took}")


# --- what runs ----------------------------------------------------------------------------------


def _running(settings: SparkSettings) -> Iterator[SparkFinding]:
    was_running = is_running()
    begin_s = time.perf_counter()
    try:
        session = open_session(settings)
    except RoveError as error:
        yield SparkFinding(
            "master", "problem", f"{settings.master}: {error}", "see --master, --memory"
        )
        return
    try:
        where = f"{settings.master}: {session.sparkContext.defaultParallelism} tasks at a time"
        took_s = time.perf_counter() - begin_s
        yield SparkFinding("master", "ok", f"{where}, session after {took_s:.1f} s")
        yield from _working(session, settings)
    except Exception as error:  # Spark may raise anything
        yield SparkFinding("job", "problem", reason(error), "run it again with --debug")
    finally:
        if not was_running:
            session.stop()


def _working(session: SparkSession, settings: SparkSettings) -> Iterator[SparkFinding]:
    found = executors.probe_executor(session)
    kernels = f"{found.compiled} kernels compiled" if found.compiled else "kernels from the cache"
    text = f"Rove {found.rove} on {found.host}, Python {found.python}, {kernels}"
    yield SparkFinding("executor", "ok", f"{text}, ready after {found.took_s:.1f} s")
    begin_s = time.perf_counter()
    rows = session.range(0, JOB_ROWS, 1, cores()).mapInArrow(_same, "id long").count()
    took_s = time.perf_counter() - begin_s
    state: State = "ok" if rows == JOB_ROWS else "problem"
    yield SparkFinding("job", state, f"{rows:,} rows through Python in {took_s:.1f} s")
    if settings.is_on_loopback:  # executors elsewhere do not see the folder
        with tempfile.TemporaryDirectory() as folder:
            begin_s = time.perf_counter()
            rows = class_archive.exercise(session, Path(folder))
        took_s = time.perf_counter() - begin_s
        state = "ok" if rows == class_archive.EXERCISE_ROWS else "problem"
        yield SparkFinding(
            "stream", state, f"{rows:,} rows through Parquet and state in {took_s:.1f} s"
        )


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches
