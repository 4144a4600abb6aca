"""A cluster on this machine: loses a worker and no rows, and never outlives who started it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rove.bench.servers.spark_cluster import ClusterError, LocalCluster
from tests.effort import PATIENCE_S

STORY = """
import json, sys, threading, time
from pathlib import Path
from rove.bench.servers.spark_cluster import LocalCluster
from rove.pipeline.spark.session import SparkSettings, open_session

def slow(number):
    import time
    time.sleep(0.1)
    return number

with LocalCluster(workers=2) as cluster:
    conf = {"spark.executor.memory": "512m"}
    settings = SparkSettings(master=cluster.master, memory="1g", brief=True, conf=conf)
    session = open_session(settings)
    busy = session.sparkContext.parallelize(range(20), 20).map(slow)
    threading.Timer(0.5, cluster.kill_worker, [0]).start()
    rows = busy.collect()
    killed = cluster.workers[0].process.poll()
    added = cluster.start_worker()
    again = busy.count()
    gateway = session.sparkContext._gateway.proc.pid
    print(json.dumps({"rows": sorted(rows), "again": again, "killed": killed, "added": added,
                      "processes": cluster.processes() + [gateway]}), flush=True)
    time.sleep(600)
"""


def alive(process: int) -> bool:
    try:
        status = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return status != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.soak
def test_a_worker_is_killed_and_then_the_driver(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}  # a killed driver leaves its folders
    with subprocess.Popen(
        [sys.executable, "-c", STORY], stdout=subprocess.PIPE, text=True, env=environment
    ) as story:
        assert story.stdout is not None
        told = json.loads(story.stdout.readline())
        assert told["rows"] == list(range(20))
        assert told["again"] == 20
        assert told["killed"] == -signal.SIGKILL
        assert told["added"] == 2
        processes = told["processes"]
        # A master, two workers, an executor with its Python, the driver's Java.
        assert len([each for each in processes if alive(each)]) >= 6
        os.kill(story.pid, signal.SIGKILL)
    end_s = time.monotonic() + PATIENCE_S
    while (left := [each for each in processes if alive(each)]) and time.monotonic() < end_s:
        time.sleep(0.1)
    assert left == []


@pytest.mark.soak
def test_a_worker_that_does_not_start_is_told_and_nothing_stays() -> None:
    cluster = LocalCluster(workers=1, memory="nonsense")
    with pytest.raises(ClusterError, match="worker-0 of a Spark cluster does not start") as caught:
        cluster.__enter__()
    assert "\n" not in str(caught.value)
    assert cluster.processes() == []
    assert not cluster.folder.exists()
