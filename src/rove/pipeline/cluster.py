"""A Spark cluster on this machine: a standalone master and workers as processes of ours.

For tests, measurements and the demonstration, where one process in local mode would hide what
matters: code that has to travel, executors that die. Everything is of the pip package, listens on
127.0.0.1 at ports that the system chooses, and ends with the process that started it, however that
ends: on Linux the system tells each daemon of its parent's death, and the executors follow their
worker. Up after 10 to 12 s on two busy cores.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rove.errors import RoveError
from rove.pipeline.class_archive import options as archive_options
from rove.pipeline.java import find_java
from rove.pipeline.session import LOOPBACK, home_without_zip, quoted

LOST_AFTER_S: Final = 6
"""A worker that was silent for so long counts as dead; Spark's own patience is a minute."""
START_S_MAX: Final = 120.0
END_S_MAX: Final = 20.0
_POLL_S: Final = 0.05
_MASTER_CLASS: Final = "org.apache.spark.deploy.master.Master"
_WORKER_CLASS: Final = "org.apache.spark.deploy.worker.Worker"
_MASTER_IS_UP: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER_IS_UP: Final = re.compile(r"Successfully registered with master (spark://\S+)")
_PARENT_DEATH_SIGNAL: Final = 1
"""PR_SET_PDEATHSIG of Linux."""


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
        self.workers: list[subprocess.Popen[bytes]] = []
        """In the order of their start; a killed one stays in its place."""
        self.master = ""
        """spark://…"""
        self._counts = workers, cores, memory
        self._worker_prefix = worker_prefix
        self.folder = Path(tempfile.mkdtemp(prefix="rove-cluster-"))
        """Logs and what executors write; gone with the cluster."""
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            daemon = self._start("master", _MASTER_CLASS)
            self.master = self._wait_for(_MASTER_IS_UP, "master", daemon)
            for _ in range(self._counts[0]):
                self._launch_worker()
            for index, worker in enumerate(self.workers):
                self._wait_for(_WORKER_IS_UP, f"worker-{index}", worker)
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
        index = len(self.workers) - 1
        self._wait_for(_WORKER_IS_UP, f"worker-{index}", self.workers[index])
        return index

    def kill_worker(self, index: int) -> None:
        """As if its machine lost power: the worker, its executors and their Pythons, at once."""
        kill_session(self.workers[index])

    def processes(self) -> list[int]:
        """The ids of all processes of the cluster that live."""
        return [each for daemon in self._daemons for each in _session_members(daemon.pid)]

    def close(self) -> None:
        """End everything; may be called again."""
        for daemon in reversed(self._daemons):
            if daemon.poll() is None:
                daemon.terminate()
        for daemon in self._daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(END_S_MAX)
            kill_session(daemon)  # what it has started and left
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
    ) -> subprocess.Popen[bytes]:
        home = home_without_zip()
        ports = ("--host", LOOPBACK, "--port", "0", "--webui-port", "0")
        with self._log(name).open("wb") as log:
            daemon = subprocess.Popen(
                [*prefix, home / "bin" / "spark-class", java_class, *ports, *words],
                env=_environment(home, self.folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                preexec_fn=_dies_with(os.getpid()),  # noqa: PLW1509 (it makes one system call)
            )
        self._daemons.append(daemon)
        return daemon

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _wait_for(self, line: re.Pattern[str], name: str, daemon: subprocess.Popen[bytes]) -> str:
        """What a daemon's log says when it is ready."""
        end_s = time.monotonic() + START_S_MAX
        while time.monotonic() < end_s:
            has_ended = daemon.poll() is not None
            text = self._log(name).read_text(errors="replace")
            if found := line.search(text):
                return found[1]
            if has_ended:
                break
            time.sleep(_POLL_S)
        last = (text.strip().splitlines() or ["it said nothing"])[-1]
        raise ClusterError(f"the {name} of a Spark cluster does not start: {last}")


def _environment(home: Path, folder: Path) -> dict[str, str]:
    java = find_java()
    options = (
        f"-Dspark.worker.timeout={LOST_AFTER_S}",
        "-Dspark.master.rest.enabled=false",  # it would take a port of its own choice
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Xlog:disable",
        "-Xlog:all=error:stderr",
        *archive_options(java),
    )
    ours = {
        "JAVA_HOME": str(java.home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(folder),
        "SPARK_DAEMON_JAVA_OPTS": " ".join(map(quoted, options)),
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_LOCAL_IP": LOOPBACK,
    }
    return {**os.environ, **ours}


def _dies_with(parent: int) -> Callable[[], None] | None:
    """For between fork and exec: the system shall end this process when its parent ends.

    The parent is strictly the thread that started it, so a cluster is opened where it is used.
    """
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)

    def ask() -> None:
        libc.prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)
        if os.getppid() != parent:  # it ended before it was asked for
            os._exit(1)

    return ask


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
        time.sleep(_POLL_S)
        members = set(_session_members(daemon.pid))
    if daemon.poll() is None:
        daemon.kill()
    daemon.wait(END_S_MAX)
