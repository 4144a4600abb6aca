"""Brokers run as processes, are measured from outside and end with their block."""

import mmap
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rove.testing import broker_processes
from rove.testing.broker_processes import (
    BrokerProcessError,
    allow_many_files,
    cpu_seconds,
    mosquitto,
    mosquitto_program,
    resident_bytes,
    rove,
    settle,
)
from rove.testing.ports import free_port


def accepts(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def test_rove_runs_listens_counts_and_ends(tmp_path: Path) -> None:
    with rove(tmp_path) as broker:
        assert accepts(broker.port)
        assert broker.metrics()["rove_connections_total"] == 1
        assert (tmp_path / "data" / "rove.db").exists()
        assert broker.process.poll() is None
    assert broker.process.returncode == 0
    assert not accepts(broker.port)


def test_settings_reach_rove_and_its_last_words_reach_us(tmp_path: Path) -> None:
    with (
        pytest.raises(
            BrokerProcessError, match=r"rove does not start: .*INFLIGHT_MAX.* allowed is"
        ),
        rove(tmp_path, {"ROVE_LIMITS__INFLIGHT_MAX": "many"}),
    ):
        pytest.fail("it started")


@pytest.mark.soak
def test_a_crash_leaves_nothing_running(tmp_path: Path) -> None:
    with rove(tmp_path) as broker:
        broker.kill()
    assert broker.process.returncode == -9


@pytest.mark.skipif(mosquitto_program() is None, reason="Mosquitto is not installed")
def test_mosquitto_runs_beside_it(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as broker:
        assert accepts(broker.port)
        assert broker.http_port == 0
    assert not accepts(broker.port)


def test_mosquitto_may_be_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(broker_processes, "_MOSQUITTO_PLACES", (str(tmp_path / "mosquitto"),))
    assert mosquitto_program() is None
    (tmp_path / "mosquitto").touch()
    assert mosquitto_program() == str(tmp_path / "mosquitto")


def test_cpu_time_is_that_of_the_process() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            while cpu_seconds(busy.pid) < 0.1:
                time.sleep(0.01)
        finally:
            busy.kill()
    before = cpu_seconds(os.getpid())
    time.sleep(0.05)
    assert cpu_seconds(os.getpid()) - before < 0.05


def test_memory_that_is_used_is_seen() -> None:
    """Pages of their own: an array may get memory that the process has had before."""
    size = 50_000_000
    with mmap.mmap(-1, size) as pages:
        before = resident_bytes(os.getpid())
        pages[:: mmap.PAGESIZE] = b"x" * -(-size // mmap.PAGESIZE)
        assert resident_bytes(os.getpid()) - before > 0.8 * size


def test_a_process_that_rests_has_settled() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as resting:
        settle(resting.pid)
        assert cpu_seconds(resting.pid) < 5
        resting.kill()


def test_free_ports_are_free() -> None:
    assert not accepts(free_port())


def test_as_many_files_as_allowed() -> None:
    allowed = allow_many_files()
    assert allow_many_files() == allowed > 0
