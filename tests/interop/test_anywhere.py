"""A recorded life is replayed wherever the lake lies, by executors that share no disk with it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rove.bench.servers.spark_cluster import LocalCluster
from rove.pipeline.tables.table import Table, channels
from tests.effort import PATIENCE_S
from tests.interop.recorded import Recording

pytestmark = pytest.mark.soak
ROOT = Path(__file__).resolve().parents[2]
HIDE = 'mount -t tmpfs none "$0" && exec "$@"'
REPLAYED = """
import json, sys
from rove.pipeline import SparkSettings, open_session, replay
from rove.pipeline.lake.log import Lake

master, lake, until = sys.argv[1:]
conf = {"spark.executor.memory": "512m"}
session = open_session(SparkSettings(master=master, memory="1g", brief=True, conf=conf))
frame = replay(session, Lake(lake), until=float(until), buckets=3, begun_min=5)
print(json.dumps([list(row) for row in frame.select("subscription", "id", "promoted").collect()]))
session.stop()
"""


@pytest.fixture(scope="module")
def recording(module_bucket: str) -> Recording:
    """A life whose lake is in an object store."""
    made = Recording(f"{module_bucket}/lake", 42)
    made.play(300)
    return made


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the driver that executors see empty."""
    return tmp_path_factory.mktemp("driver")


@pytest.fixture(scope="module")
def cluster(module_bucket: str, hidden: Path) -> Iterator[LocalCluster]:
    """Its workers have the credentials of the store, and nothing of the driver's folder."""
    prefix = ["unshare", "-m", "sh", "-c", HIDE, str(hidden)]
    can = (
        shutil.which("unshare")
        and subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0
    )
    if not can:
        pytest.skip(
            "executors with a disk of their own need `unshare -m`, which is not allowed here"
        )
    with LocalCluster(workers=2, worker_prefix=prefix) as started:
        yield started


def as_driver(hidden: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A process that keeps all that it writes in its folder."""
    environment = {**os.environ, "TMPDIR": str(hidden), "SPARK_LOCAL_DIRS": str(hidden)}
    return subprocess.run(
        [sys.executable, *words],
        env=environment, capture_output=True, text=True, cwd=ROOT, timeout=5 * PATIENCE_S,
        check=False,
    )  # fmt: skip


def check_replay(recording: Recording, hidden: Path, master: str) -> None:
    expected = sorted([*one] for one in recording.notified())
    assert len(expected) > 100
    assert any(promoted for _, _, promoted in expected)
    until = str(recording.world.now)
    done = as_driver(hidden, "-c", REPLAYED, master, str(recording.location), until)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert sorted(json.loads(done.stdout)) == expected


def test_a_life_in_a_store_is_replayed(recording: Recording, hidden: Path) -> None:
    check_replay(recording, hidden, "local[2]")


def test_a_life_is_replayed_by_executors_that_share_no_disk(
    recording: Recording, hidden: Path, cluster: LocalCluster
) -> None:
    check_replay(recording, hidden, cluster.master)


def test_ingesting_what_executors_do_not_see_fails_and_leaves_nothing_out(
    module_bucket: str, hidden: Path, cluster: LocalCluster
) -> None:
    """The lake is a folder of the driver; then it is ingested where it is seen."""
    local = Recording(hidden / "lake", 43)
    local.play(100)
    out = f"{module_bucket}/out"
    words = ["-m", "rove", "pipeline", "run", "ingest", "--once", "--brief", "--memory", "1g"]
    words += ["--lake", str(local.folder), "--out", out, "--conf", "spark.executor.memory=512m"]
    failed = as_driver(hidden, *words, "--master", cluster.master)
    assert failed.returncode != 0
    assert f"{local.folder}/_delta_log/" in failed.stderr
    assert "was not found; a folder must be the same one on every machine" in failed.stderr
    assert channels(f"{out}/ingest") == []
    done = as_driver(hidden, *words, "--master", "local[2]")
    assert done.returncode == 0, done.stderr[-3_000:]
    found = [
        position
        for channel in channels(f"{out}/ingest")
        for position in Table(f"{out}/ingest", channel)
        .read(columns=["position"])["position"]
        .to_pylist()
    ]
    # What two channels keep has a row in the table of each.
    expected = [
        position
        for file in local.read.files("publications")
        for position in local.read.read(file, ["position"])["position"].to_pylist()
    ]
    assert sorted(found) == sorted(expected)
