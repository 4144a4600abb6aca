"""Servers with the protocols of Azure's blob storage and of HDFS on loopback.

Azurite comes by npm (374 packages), Hadoop's mini cluster by Maven (92 MB), once, into the user's
cache. Where they cannot be had, tests are skipped and say so. S3 is `rove.bench.servers.s3`.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import shutil
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from rove.bench.servers.jars import JarsMissingError, fetched
from rove.pipeline.spark.java import JavaError, cache_folder, find_java
from rove.testing.broker_processes import HOST, accepts
from rove.testing.ports import free_port
from tests.effort import PATIENCE_S
from tests.waiting import eventually

AZURITE: Final = "azurite@3.35.0"
HADOOP: Final = tuple(
    f"org.apache.hadoop:hadoop-client-{each}:3.4.1" for each in ("minicluster", "runtime")
)
ACCOUNT: Final = "rovetests"
_MINI_CLUSTER: Final = "org.apache.hadoop.test.MiniDFSClusterManager"
_JAVA: Final = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
FETCH_S_MAX: Final = 300.0
_VERSION: Final = "2021-08-06"


class Store(NamedTuple):
    """A place for tables, and what has to be in the environment of whoever uses it."""

    location: str
    environment: dict[str, str]
    secret: str = ""
    """What must not be seen anywhere."""


@contextlib.contextmanager
def azure(folder: Path) -> Iterator[Store]:
    """An empty container of Azurite, with a key that nobody else has."""
    azurite = _azurite()
    port, secret = free_port(), base64.b64encode(uuid.uuid4().bytes * 4).decode()
    words = ["--blobHost", HOST, "--blobPort", str(port), "--inMemoryPersistence", "--silent"]
    command = [*azurite, *words, "--skipApiVersionCheck", "--disableTelemetry"]
    with _running(command, folder, {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{secret}"}) as server:
        eventually(lambda: _lives(server, folder) and accepts(port))
        _make_container(f"http://{HOST}:{port}/{ACCOUNT}", "tables", secret)
        environment = {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": secret,
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": f"http://{HOST}:{port}",
        }
        yield Store("abfs://tables", environment, secret)


@contextlib.contextmanager
def hdfs(folder: Path) -> Iterator[Store]:
    """A name node and a data node in one process; empty."""
    try:
        jars, java = fetched("hadoop", HADOOP), find_java().real_home / "bin" / "java"
    except (JarsMissingError, JavaError) as error:
        pytest.skip(f"HDFS: {error}")
    told = folder / "details.json"
    command = [str(java), *_JAVA, "-cp", f"{jars}/*", _MINI_CLUSTER]
    command += ["-format", "-datanodes", "1", "-writeDetails", str(told)]
    with _running(command, folder, {}) as server:
        # It is written when the data node has reported.
        eventually(lambda: _lives(server, folder) and told.exists() and told.read_text())
        port = json.loads(told.read_text())["namenode_port"]
        yield Store(f"hdfs://{HOST}:{port}", {})


@contextlib.contextmanager
def _running(
    command: Sequence[str], folder: Path, more: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=log, env={**os.environ, **more}
        )
    try:
        yield server
    finally:
        server.kill()
        server.wait()


def _lives(server: subprocess.Popen[bytes], folder: Path) -> bool:
    log = folder / "server.log"
    assert server.poll() is None, f"it does not start: {log.read_text(errors='replace')[-2_000:]}"
    return True


def _azurite() -> list[str]:
    """The command that starts it; a skip where it cannot be had."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("Azurite needs node and npm, which are not installed")
    folder = cache_folder() / "stores" / AZURITE
    folder.mkdir(parents=True, exist_ok=True)
    started = folder / "node_modules" / ".bin" / "azurite-blob"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of tests want it at once
        if not (folder / "whole").exists():
            install = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
            try:
                subprocess.run(
                    [*install, AZURITE], cwd=folder, capture_output=True, check=True,
                    timeout=FETCH_S_MAX,
                )  # fmt: skip
            except (OSError, subprocess.SubprocessError) as error:
                pytest.skip(f"Azurite cannot be fetched by npm: {error}")
            (folder / "whole").touch()
    return [node, str(started)]


def _make_container(server: str, name: str, secret: str) -> None:
    """A request that is signed with the account's key."""
    date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    told = "PUT" + 12 * "\n" + f"x-ms-date:{date}\nx-ms-version:{_VERSION}\n"
    told += f"/{ACCOUNT}/{ACCOUNT}/{name}"
    key = base64.b64decode(secret)
    digest = hmac.new(key, f"{told}\nrestype:container".encode(), hashlib.sha256).digest()
    signature = base64.b64encode(digest).decode()
    request = urllib.request.Request(
        f"{server}/{name}?restype=container",
        method="PUT",
        headers={
            "x-ms-date": date,
            "x-ms-version": _VERSION,
            "Authorization": f"SharedKey {ACCOUNT}:{signature}",
        },
    )
    urllib.request.urlopen(request, timeout=PATIENCE_S).close()
