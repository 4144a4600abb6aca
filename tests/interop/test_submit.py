"""Jobs as teams start them: by `spark-submit` on a cluster, with a Python that has no Rove."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rove.bench.pipeline.feed import Feed, publish_some
from rove.bench.servers.spark_cluster import LocalCluster
from rove.pipeline.spark.java import find_java
from rove.pipeline.spark.packages import Packages, write_packages
from rove.pipeline.spark.session import LOOPBACK, home_without_zip
from tests.effort import PATIENCE_S

pytestmark = pytest.mark.soak
JOB = Path(__file__).resolve().parents[2] / "docs" / "examples" / "submit_job.py"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    return write_packages(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(workers=1) as started:
        yield started


@pytest.fixture(scope="module")
def python_without_rove(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All other packages of this environment; what is added to a path by name is not searched for
    editable packages, which Rove is here."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


def submit(
    cluster: LocalCluster, driver: Path, executors: Path, *words: str
) -> subprocess.CompletedProcess[str]:
    conf = {
        "spark.pyspark.driver.python": driver,
        "spark.pyspark.python": executors,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
    }
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")
    }
    environment |= {
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(home_without_zip()),
        "SPARK_LOCAL_IP": LOOPBACK,
    }
    command = [str(home_without_zip() / "bin" / "spark-submit"), "--master", cluster.master]
    command += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    return subprocess.run(
        [*command, *words],
        env=environment,
        capture_output=True,
        text=True,
        cwd=cluster.folder,
        timeout=3 * PATIENCE_S,
        check=False,
    )


def test_a_job_over_files_with_the_archive(
    cluster: LocalCluster, packages: Packages, python_without_rove: Path, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"id": [1, 2, 3], "NO2": [50.0, 3.0, 41.0]}), tmp_path / "in.parquet")
    (tmp_path / "texts").write_text("NO2 > 40\nNO2 > 45\n")
    bare = python_without_rove
    archive = ("--archives", f"{packages.archive}#rove")
    files = ("--readings", str(tmp_path / "in.parquet"), "--texts", str(tmp_path / "texts"))
    words = (*archive, str(JOB), *files, "--out", str(tmp_path / "out"))
    done = submit(cluster, bare, bare, *words)
    assert done.returncode == 0, done.stderr[-3_000:]
    found = pq.read_table(tmp_path / "out").to_pylist()
    assert sorted((row["id"], row["subscription"]) for row in found) == [(1, 0), (1, 1), (3, 0)]


def test_a_job_over_a_lake_with_the_archive(
    cluster: LocalCluster, packages: Packages, python_without_rove: Path, tmp_path: Path
) -> None:
    feed = Feed(tmp_path / "lake")
    publish_some(feed, 50, 0.0, seed=1)
    feed.write()
    (tmp_path / "texts").write_text("NO2 IS NULL\nNO2 IS NOT NULL\n")
    archive = ("--archives", f"{packages.archive}#rove")
    words = ("--lake", str(tmp_path / "lake"), "--texts", str(tmp_path / "texts"))
    out = ("--out", str(tmp_path / "out"))
    bare = python_without_rove
    done = submit(cluster, bare, bare, *archive, str(JOB), *words, *out)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert pq.read_table(tmp_path / "out").num_rows == 50


def test_executors_without_rove_are_told_in_one_line(
    cluster: LocalCluster, python_without_rove: Path, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"id": [1], "NO2": [50.0]}), tmp_path / "in.parquet")
    (tmp_path / "texts").write_text("NO2 > 40\n")
    words = ("--readings", str(tmp_path / "in.parquet"), "--texts", str(tmp_path / "texts"))
    out = ("--out", str(tmp_path / "out"))
    ours = Path(sys.executable)
    done = submit(cluster, ours, python_without_rove, str(JOB), *words, *out)
    assert done.returncode == 1
    # What a Python driver writes to stderr, spark-submit writes to stdout.
    (told,) = [line for line in done.stdout.splitlines() if "ShippingError: " in line]
    assert "No module named 'rove'" in told
    assert "rove.pipeline.ship(spark)" in told


SHIPPED = """
import sys
from pyspark.sql import SparkSession
from rove.pipeline import match, ship

spark = SparkSession.builder.getOrCreate()
ship(spark)
table = spark.createDataFrame([(1, 50.0), (2, 3.0)], "id int, NO2 double")
print("found", match(table, ["NO2 > 40"], keep=["id"]).collect())
spark.stop()
"""


def test_rove_is_shipped_in_a_session_of_somebody_else(
    cluster: LocalCluster, python_without_rove: Path, tmp_path: Path
) -> None:
    (tmp_path / "job.py").write_text(SHIPPED)
    done = submit(cluster, Path(sys.executable), python_without_rove, str(tmp_path / "job.py"))
    assert done.returncode == 0, done.stderr[-3_000:]
    assert "found [Row(id=1, subscription=0)]" in done.stdout
