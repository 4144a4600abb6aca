"""A file of the driver that tasks open, wherever they run.

What is small travels with the task, so that nothing has to be cleaned up. A larger file is opened
where it lies if tasks run on this machine, and is sent to executors once by Spark otherwise. No
part of this needs Spark's context, so it works through Spark Connect as well.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from rove.pipeline.shipping import check_executors, runs_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_BYTES: Final = 2**20
"""Beyond this, Spark would make a broadcast of every task's code."""


class TaskFile(msgspec.Struct, frozen=True):
    """What a task is told of a file."""

    name: str
    """Different for different contents."""
    path: str = ""
    """Where it lies, for tasks on the driver's machine."""
    content: bytes = b""
    """All of it, if it is small."""

    def mapped(self) -> memoryview:
        """What is in it; changes of it stay with this process."""
        if self.content:
            return memoryview(bytearray(self.content))
        with Path(self.local_path()).open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))

    def local_path(self) -> str:
        """Where a task finds it, if it is not small."""
        if self.path:
            return self.path
        from pyspark import SparkFiles

        return str(SparkFiles.get(self.name))


def task_file(session: SparkSession, path: str | Path) -> TaskFile:
    """Make a file known to the tasks of a session. Its name must be unique."""
    path = Path(path)
    check_executors(session)
    if path.stat().st_size <= SMALL_BYTES:
        return TaskFile(path.name, content=path.read_bytes())
    return large_task_file(session, path)


def large_task_file(session: SparkSession, path: Path) -> TaskFile:
    """The same for one that tasks need as a file, or that is large."""
    check_executors(session)
    if runs_here(session):
        return TaskFile(path.name, str(path))
    session.addArtifacts(str(path), file=True)
    return TaskFile(path.name)
