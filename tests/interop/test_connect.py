"""Through Spark Connect everything answers as it does without: a server of Spark's own package."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rove.pipeline.spark.java import find_java
from rove.pipeline.spark.session import LOOPBACK, home_without_zip
from tests.effort import PATIENCE_S
from tests.interop.recorded import Recording
from tests.interop.spark_answers import right
from tests.waiting import eventually

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
ROOT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """The address of a server that ends with the block."""
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        port = free.getsockname()[1]
    conf = {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.artifact.isolation.enabled": "true",
    }
    home = home_without_zip()
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]", "--class", SERVER]
    command += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYSPARK_PYTHON": sys.executable,
    }
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [*command, "spark-internal"], env=environment, stdout=log, stderr=log, cwd=folder
        )
    try:
        eventually(lambda: server.poll() is not None or _answers(port))
        assert server.poll() is None, (folder / "server.log").read_text()[-2_000:]
        yield f"sc://{LOOPBACK}:{port}"
    finally:
        server.terminate()
        server.wait(PATIENCE_S)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), 1):
        return True
    return False


@pytest.mark.soak
def test_a_program_that_has_only_connect(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "lake", 42)
    recording.play(300)
    expected = sorted([*one] for one in recording.notified())
    assert len(expected) > 100
    client = [sys.executable, "-m", "tests.interop.spark_answers"]
    with connect_server(tmp_path) as address:
        asked = [*client, address, str(tmp_path), str(recording.world.now)]
        answer = subprocess.run(
            asked, capture_output=True, cwd=ROOT, timeout=5 * PATIENCE_S, check=False
        )
        assert answer.returncode == 0, answer.stderr.decode()[-3_000:]
    assert json.loads(answer.stdout) == right(tmp_path, expected)
