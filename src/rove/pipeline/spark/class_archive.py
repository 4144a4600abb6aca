"""An archive of Spark's classes, so that Java starts Spark sooner.

Java reads and verifies Spark's classes one by one at every start. It can write the classes that it
has loaded to a file, and map that file the next time: application class data sharing, and from Java
25 on the ahead-of-time cache. A few runs of `open_session` with `local[2]` and Java 17, on two busy
cores: 7.5 to 7.6 s without, 3.9 and 5.8 s with. (`rove pipeline doctor` shows how long it takes on
your machine.)

An archive has 190 MB, took 40 s to make there, and is in the user's cache. It is valid for one Java
and one installation of Spark; Java checks that itself and ignores an archive that does not match.
So no error here is fatal: without an archive Spark starts as well, only more slowly. Only `rove
pipeline doctor` and the tests make an archive, since other commands should not take 40 s longer.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rove.pipeline.spark.java import AHEAD_OF_TIME_MIN, Java, class_archive_path
from rove.pipeline.spark.session import SparkSettings, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS_MAX: Final = 300
EXERCISE_ROWS: Final = 1000
UNUSED_S_MAX: Final = 30 * 24 * 3600
"""An archive that was not used for so long is deleted when another one is made."""
_TRAINING: Final = (
    "from rove.pipeline.spark.class_archive import train; import sys; train(sys.argv[1])"
)


def make(java: Java, seconds_max: float = SECONDS_MAX) -> Path | None:
    """Make the archive if there is none; None if that fails or another process is making it."""
    archive = class_archive_path(java)
    if archive is None or archive.exists():
        return archive
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with _locked(archive.with_suffix(".lock")) as is_ours:
            if not is_ours or archive.exists():
                return archive if archive.exists() else None
            _remove_unused(archive.parent)
            return _made(java, archive, seconds_max)
    except (OSError, subprocess.SubprocessError):
        return None


def _made(java: Java, archive: Path, seconds_max: float) -> Path | None:
    unfinished = archive.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    name = "AOTCacheOutput" if java.version >= AHEAD_OF_TIME_MIN else "ArchiveClassesAtExit"
    # Java writes the archive when it ends, after its parent: the output is read to its end,
    # which is when Java has closed it.
    done = subprocess.run(
        [sys.executable, "-c", _TRAINING, f"-XX:{name}={unfinished}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "JAVA_HOME": str(java.home)},
        timeout=seconds_max,
        check=False,
    )
    if done.returncode or not unfinished.exists():
        unfinished.unlink(missing_ok=True)
        return None
    unfinished.rename(archive)
    return archive


def train(option: str) -> None:
    """Run a little of everything that our jobs do, in a Java that records the classes it loads."""
    settings = SparkSettings(
        master="local[2]", memory="1g", conf={"spark.driver.extraJavaOptions": f'"{option}"'}
    )
    session = open_session(settings)
    with tempfile.TemporaryDirectory() as folder:
        exercise(session, Path(folder))
    session.stop()


def exercise(session: SparkSession, folder: Path) -> int:
    """Run SQL, Arrow, Parquet and a streaming query with state; returns the number of rows."""
    rows = session.range(0, EXERCISE_ROWS, 1, 2).selectExpr(
        "id", "cast(id % 7 as string) day", "id / 3 x"
    )
    table, output = str(folder / "table"), str(folder / "output")
    rows.mapInArrow(_same, rows.schema).write.partitionBy("day").parquet(table)
    stream = session.readStream.schema(rows.schema).parquet(table).where("x >= 0")
    query = (
        stream.dropDuplicates(["id"])
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(output)
    )
    query.awaitTermination()
    found = session.read.parquet(output).groupBy("day").count().toPandas()
    return int(found["count"].sum())


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def _remove_unused(folder: Path) -> None:
    for other in folder.glob("*.archive"):
        if other.stat().st_mtime < time.time() - UNUSED_S_MAX:
            other.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Yield whether we got the lock; the system releases it when its process ends."""
    import fcntl

    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
