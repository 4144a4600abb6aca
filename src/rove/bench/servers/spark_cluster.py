"""A Spark cluster on this machine: a standalone master and workers as processes of ours.

For tests, measurements and the demonstration, where one process in local mode would hide what
matters: code that has to travel, executors that die. Everything is of the pip package, listens on
127.0.0.1 at ports that the system chooses, and ends with the process that started it, however that
ends: on Linux the system tells each daemon of its parent's death, and the executors follow their
worker. Up after 10 to 12 s on two busy cores.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rove.base.processes import END_S_MAX, POLL_S, Program, dying_with
from rove.errors import RoveError
from rove.pipeline.spark.java import class_archive_options, find_java
from rove.pipeline.spark.session import LOOPBACK, home_without_zip, quoted

LOST_AFTER_S: Final = 6
"""A worker that was silent for so long counts as dead; Spark's own patience is a minute."""
START_S_MAX: Final = 120.0
_MASTER_CLASS: Final = "org.apache.spark.deploy.master.Master"
_WORKER_CLASS: Final = "org.apache.spark.deploy.worker.Worker"
_MASTER_IS_UP: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER_IS_UP: Final = re.compile(r"Successfully registered with master (spark://\S+)")


class ClusterError(RoveError):
    """A daemon of the cluster does not start."""


class LocalCluster:
    """Use as a context manager; `open_session(SparkSettings(master=cluster.master))` runs on it."""

    def __init__(
        self,
        workers: int = 2,
        cores: int = 1,
        memory: str = "1g",
        *,
        worker_prefix: Sequence[str] = (),
    ) -> None:
        """`worker_prefix` is a command that becomes what follows it, such as `unshare -m`."""
        self.workers: list[Program] = []
        """In the order of their start; a killed one stays in its place."""
        self.master = ""
        """spark://…"""
        self._counts = workers, cores, memory
        self._worker_prefix = worker_prefix
        self.folder = Path(tempfile.mkdtemp(prefix="rove-cluster-"))
        """Logs and what executors write; gone with the cluster."""
        self._daemons: list[Program] = []

    def __enter__(self) -> Self:
        try:
            daemon = self._start("master", _MASTER_CLASS)
            self.master = daemon.wait_for_line(_MASTER_IS_UP, START_S_MAX, ClusterError)
            for _ in range(self._counts[0]):
                self._launch_worker()
            for worker in self.workers:
                worker.wait_for_line(_WORKER_IS_UP, START_S_MAX, ClusterError)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start_worker(self) -> int:
        """One more; its number."""
        self._launch_worker()
        self.workers[-1].wait_for_line(_WORKER_IS_UP, START_S_MAX, ClusterError)
        return len(self.workers) - 1

    def kill_worker(self, index: int) -> None:
        """As if its machine lost power: the worker, its executors and their Pythons, at once."""
        kill_session(self.workers[index].process)

    def processes(self) -> list[int]:
        """The ids of all processes of the cluster that live."""
        return [each for daemon in self._daemons for each in _session_members(daemon.pid)]

    def close(self) -> None:
        """End everything; may be called again."""
        for daemon in reversed(self._daemons):
            if daemon.process.poll() is None:
                daemon.process.terminate()
        for daemon in self._daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.process.wait(END_S_MAX)
            kill_session(daemon.process)  # what it has started and left
        shutil.rmtree(self.folder, ignore_errors=True)

    def _launch_worker(self) -> None:
        _, cores, memory = self._counts
        name = f"worker-{len(self.workers)}"
        sizes = ("--cores", str(cores), "--memory", memory)
        where = ("--work-dir", str(self.folder / name))
        words = (*sizes, *where, self.master)
        self.workers.append(self._start(name, _WORKER_CLASS, *words, prefix=self._worker_prefix))

    def _start(
        self, name: str, java_class: str, *words: str, prefix: Sequence[str] = ()
    ) -> Program:
        home = home_without_zip()
        ports = ("--host", LOOPBACK, "--port", "0", "--webui-port", "0")
        daemon = Program(
            f"the {name} of a Spark cluster",
            [*prefix, home / "bin" / "spark-class", java_class, *ports, *words],
            self.folder / f"{name}.log",
            environment=_environment(home, self.folder),
            folder=self.folder,
            is_session=True,
            before=dying_with(os.getpid(), signal.SIGTERM),
        )
        self._daemons.append(daemon)
        return daemon


def _environment(home: Path, folder: Path) -> dict[str, str]:
    java = find_java()
    options = (
        f"-Dspark.worker.timeout={LOST_AFTER_S}",
        "-Dspark.master.rest.enabled=false",  # it would take a port of its own choice
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Xlog:disable",
        "-Xlog:all=error:stderr",
        *class_archive_options(java),
    )
    return {
        "JAVA_HOME": str(java.home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(folder),
        "SPARK_DAEMON_JAVA_OPTS": " ".join(map(quoted, options)),
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_LOCAL_IP": LOOPBACK,
    }


def _session_members(leader: int) -> Iterator[int]:
    """Every process of a session: Spark's Pythons leave their parent's group, not its session."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            yield int(entry.parent.name)


def kill_session(daemon: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a session of its own, and all others of the session."""
    members = set(_session_members(daemon.pid))
    while members:
        for each in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        time.sleep(POLL_S)
        members = set(_session_members(daemon.pid))
    if daemon.poll() is None:
        daemon.kill()
    daemon.wait(END_S_MAX)
