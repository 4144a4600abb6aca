"""An object store with the protocol of S3 on loopback, for tests and benchmarks.

It is `moto`, a package of those who develop Rove, in a process of its own: reading goes through
threads of Rust that call back into Python, so a server in the same process would wait for itself.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import tempfile
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rove.base.processes import Program
from rove.errors import RoveError
from rove.testing.broker_processes import HOST, accepts
from rove.testing.ports import free_port

START_S_MAX: Final = 60.0


class S3ServerError(RoveError):
    """There is no such server here."""


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """A server that is empty; its address."""
    if importlib.util.find_spec("moto") is None:
        raise S3ServerError("an object store needs the package moto; `make setup` installs it")
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)]
    with (
        tempfile.TemporaryDirectory() as folder,
        Program("the object store", command, Path(folder) / "log") as server,
    ):
        server.wait_until(lambda: accepts(port), START_S_MAX, S3ServerError)
        yield f"http://{HOST}:{port}"


def new_bucket(server: str) -> str:
    """A bucket of its own, as a location."""
    name = f"b{uuid.uuid4().hex}"
    request = urllib.request.Request(f"{server}/{name}", method="PUT")
    urllib.request.urlopen(request).close()
    return f"s3://{name}"


def environment(server: str) -> dict[str, str]:
    """What whoever uses it has in the environment, as people have it."""
    return {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": server,
        "AWS_ALLOW_HTTP": "true",
    }
