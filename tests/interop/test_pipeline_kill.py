"""A real cluster, and everything in it killed at some time: each notification is there once.

A standalone master and two workers, a process that writes the lake, and a driver that matches it.
With -9 and at random moments die workers (with their executors and Pythons, as if a machine lost
power), single executors, and the driver (with its Java). A dead driver is started again, and where
many workers die they are replaced, as whoever watches over a cluster would do it; executors are
Spark's own business. In the end the table must have what matching the whole lake in one process
gives, and nothing twice.

For `make soak`: five Javas start, for minutes. In `make test`,
tests/pipeline/jobs/test_notifications.py and test_stream.py kill what decides whether a row is
there once.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from rove.bench.pipeline.feed import Feed
from rove.bench.pipeline.stream import check
from rove.bench.servers.spark_cluster import LocalCluster, kill_session
from rove.pipeline.jobs.status import Status, read_status
from rove.pipeline.lake.log import Lake
from tests.effort import PATIENCE_S
from tests.waiting import eventually

RANKED = "ORDER BY NO2 DESC LIMIT 3 WITHIN 1 SECONDS"
DRIVER = """
import sys
from pathlib import Path
from rove.pipeline.jobs.job import JobSettings
from rove.pipeline.jobs.registry import run_jobs
from rove.pipeline.spark.session import SparkSettings
folder = Path(sys.argv[1])
settings = JobSettings(
    lake=folder / "lake", out=folder / "out", trigger_s=0.1, buckets=2, max_rows=2000
)
conf = {"spark.executor.memory": "512m"}
run_jobs(
    ["match"], settings, SparkSettings(master=sys.argv[2], memory="512m", brief=True, conf=conf)
)
"""


class Trial:
    """The cluster, the writer of the lake and the driver."""

    def __init__(self, folder: Path, cluster: LocalCluster) -> None:
        self.folder = folder
        self.cluster = cluster
        self._log = (folder / "driver.log").open("ab")
        self._lives = [0, 1]
        """Workers that live."""
        words = [str(folder / "lake"), "400", "3600"]
        self._writer = subprocess.Popen([sys.executable, "-m", "rove.bench.pipeline.feed", *words])
        self.driver = self._start_driver()

    def _start_driver(self) -> subprocess.Popen[bytes]:
        words = [str(self.folder), self.cluster.master]
        # A session of its own, so that its Java can be killed with it.
        return subprocess.Popen(
            [sys.executable, "-c", DRIVER, *words],
            start_new_session=True,
            stdout=self._log,
            stderr=self._log,
        )

    def status(self) -> Status | None:
        return read_status(self.folder / "out" / "match")

    def wait_for(self, is_there: Callable[[Status], bool]) -> None:
        """Patience begins anew with each batch and each executor that comes or goes."""
        seen: object = None
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            status = self.status()
            if status is not None and status.pid == self.driver.pid and is_there(status):
                return
            assert self.driver.poll() is None, f"the driver ended: {self.said()}"
            if (now := self._happened(status)) != seen:
                seen, deadline = now, time.monotonic() + PATIENCE_S
            time.sleep(0.1)
        raise AssertionError(f"no progress: {self.status()}; {self.said()}")

    def _happened(self, status: Status | None) -> object:
        """What is done, and which executors there are."""
        done = None if status is None else (status.pid, status.state, status.position)
        executors = frozenset(filter(is_executor, self.cluster.processes()))
        return done, executors

    def said(self) -> str:
        return (self.folder / "driver.log").read_text(errors="replace")[-3000:]

    def wait_for_progress(self) -> None:
        """Until something that is written after this moment is done."""
        now = Lake(self.folder / "lake").position()
        self.wait_for(lambda status: status.position > now)

    def kill_worker(self) -> None:
        self.cluster.kill_worker(self._lives.pop(0))

    def replace_worker(self) -> None:
        self.kill_worker()
        self._lives.append(self.cluster.start_worker())

    def kill_executor(self) -> None:
        """One that is there at some time: after another kill it takes a while to come."""
        found: list[int] = []

        def is_there() -> bool:
            found[:] = [pid for pid in self.cluster.processes() if is_executor(pid)]
            return bool(found)

        eventually(is_there, "there is no executor")
        os.kill(found[0], signal.SIGKILL)

    def kill_driver(self) -> None:
        kill_session(self.driver)
        self.driver = self._start_driver()

    def finish(self) -> None:
        """No more publications; the driver gets to the end of the lake, and is asked to stop."""
        self._writer.kill()
        self._writer.wait()
        # The writer may have died between its files and saying so.
        feed = Feed(self.folder / "lake")
        feed.publish("air/last", {"NO2": 100}, time.time())
        last = feed.write()
        self.wait_for(lambda status: status.position == last)
        self.driver.send_signal(signal.SIGTERM)
        assert self.driver.wait(PATIENCE_S) == 0, self.said()

    def close(self) -> None:
        self._writer.kill()
        self._writer.wait()
        kill_session(self.driver)
        self._log.close()


def is_executor(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


@contextlib.contextmanager
def trial(folder: Path) -> Iterator[Trial]:
    feed = Feed(folder / "lake")
    for number in range(10):
        feed.subscribe(10**9 + number, f"NO2 > {90 + number}", time.time())
        feed.subscribe(10**9 + 100 + number, f"NO2 > {number} {RANKED}", time.time())
    feed.write()
    with LocalCluster(workers=2, cores=1, memory="600m") as cluster:
        begun = Trial(folder, cluster)
        try:
            yield begun
        finally:
            begun.close()


def kill_and_compare(folder: Path, kinds: Iterable[str], seed: int) -> None:
    chance = random.Random(seed)
    with trial(folder) as running:
        for kind in kinds:
            running.wait_for_progress()
            time.sleep(chance.random())
            getattr(running, kind)()
        running.wait_for_progress()
        running.finish()
        assert check(folder / "lake", folder / "out" / "match", folder / "work") > 100


@pytest.mark.soak
def test_three_kills_lose_and_repeat_nothing(tmp_path: Path) -> None:
    kill_and_compare(tmp_path, ["kill_executor", "kill_worker", "kill_driver"], seed=1)


@pytest.mark.soak
def test_twenty_kills_lose_and_repeat_nothing(tmp_path: Path) -> None:
    kinds = itertools.cycle(["kill_executor", "replace_worker", "kill_driver"])
    kill_and_compare(tmp_path, itertools.islice(kinds, 20), seed=2)
