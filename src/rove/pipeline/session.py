"""A Spark session that is tuned for us: in this process by default, on any cluster when asked.

What is set here was measured. The page of Spark and its progress line are off unless asked for;
there are as few shuffle partitions as cores, since our shuffles are small; everything listens on
loopback where the master is local; file checkpoints go past the layer that starts a process for
every `chmod`, which makes a micro-batch up to twice as fast; state lives in RocksDB.

Starting takes some 6 s, the first job 3 s more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from rove.errors import RoveError
from rove.pipeline.java import find_java

LOOPBACK: Final = "127.0.0.1"
ARROW_ROWS: Final = 100_000
"""Rows in one batch between the JVM and Python."""

_ALWAYS: Final[Mapping[str, str]] = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.driver.extraJavaOptions": "-Djdk.lang.Process.launchMechanism=VFORK",
}
_LOCAL: Final[Mapping[str, str]] = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
}


class SparkError(RoveError):
    """Spark is missing, or does not start."""


class SparkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how Spark runs."""

    master: str = "local[*]"
    """`local[n]`, `spark://host:port`, `yarn`, `k8s://…`, or `sc://…` for Spark Connect."""
    name: str = "rove"
    ui: bool = False
    """Whether Spark's own page is served."""
    memory: str = "2g"
    """Of the driver, which in local mode is everything."""
    shuffle_partitions: int = 0
    """0 is one per core."""
    conf: dict[str, str] = {}
    """Anything else, as Spark calls it; it wins over what is set here."""

    @property
    def is_local(self) -> bool:
        return self.master.startswith("local")


def open_session(settings: SparkSettings | None = None) -> Any:
    """A session with these settings, or the one that runs; SparkError says why there is none."""
    settings = settings or SparkSettings()
    builder = _builder().appName(settings.name).master(settings.master)
    for name, value in configuration(settings).items():
        builder = builder.config(name, value)
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if settings.is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise SparkError(
            f"Spark does not start with Java {java.version}: {_first(error)}"
        ) from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def configuration(settings: SparkSettings) -> dict[str, str]:
    """What Spark is told."""
    found = dict(_ALWAYS)
    found["spark.ui.enabled"] = "true" if settings.ui else "false"
    found["spark.driver.memory"] = settings.memory
    found["spark.sql.shuffle.partitions"] = str(settings.shuffle_partitions or cores())
    if settings.is_local:
        found |= _LOCAL
    return found | settings.conf


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _builder() -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise SparkError("Spark is not installed; pip install 'rove[spark]' brings it") from None
    return SparkSession.builder


def _first(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0].strip() if lines else type(error).__name__
