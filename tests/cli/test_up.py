"""`rove up`: starts, serves, reads its files again, and stops in good order."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rove.client.sync import connect
from tests.effort import PATIENCE_S


class Up:
    """A broker in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self.port = int(self.wait_for(r"rove: mqtt on port (\d+)").group(1))

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first line from now on that fits."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"no {pattern} in {self.lines}")

    def stop(self, by: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(by)
        return self.process.wait(PATIENCE_S)


@contextmanager
def up(*words: str) -> Iterator[Up]:
    command = [sys.executable, "-m", "rove", "up", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Up(process)
        finally:
            process.kill()


def options(tmp_path: Path) -> list[str]:
    return ["--mqtt-port", "0", "--http-port", "off", "--data", str(tmp_path / "data")]


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_and_stops_in_good_order(tmp_path: Path, by: signal.Signals) -> None:
    with up(*options(tmp_path)) as broker:
        with connect(f"mqtt://127.0.0.1:{broker.port}") as client:
            assert client.publish("a", {"b": 1}).id
        assert broker.stop(by) == 0


def test_it_reads_its_files_again(tmp_path: Path) -> None:
    file = tmp_path / "rove.toml"
    file.write_text("[limits]\ntopic_levels_max = 8\n")
    with up("--config", str(file), *options(tmp_path)) as broker:
        file.write_text("[limits]\ntopic_levels_max = 9\n")
        broker.process.send_signal(signal.SIGHUP)
        assert "topic_levels_max" in broker.wait_for("reloaded").string
        file.write_text("[limits]\ntopic_levels_max = many\n")
        broker.process.send_signal(signal.SIGHUP)
        broker.wait_for("not reloaded")
        assert broker.stop() == 0


def test_a_mistake_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "rove.toml"
    file.write_text("[listen]\nmqtt_prot = 1\n")
    command = [sys.executable, "-m", "rove", "up", "--config", str(file)]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "mqtt_port" in done.stderr
    assert time.monotonic() - started < PATIENCE_S


def test_acknowledged_publications_never_get_lost_in_silence(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with up(*options(tmp_path)) as broker:
        with connect(f"mqtt://127.0.0.1:{broker.port}") as client:
            for number in range(20):
                client.publish(f"kept/{number}", number, qos=1, retain=True)
        broker.process.kill()
    log = data / "rove.db-wal"
    os.truncate(log, log.stat().st_size // 2)
    command = [sys.executable, "-m", "rove", "up", *options(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2
    [told] = done.stderr.splitlines()
    found = re.search(r"has lost (\d+) acknowledged groups .* --accept-loss", told)
    assert found is not None, told
    words = ["--mqtt-port", "0", "--http-port", "0", "--data", str(data), "--accept-loss"]
    with up(*words) as broker:
        port = broker.wait_for(r"rove: http on port (\d+)").group(1)
        url = f"http://127.0.0.1:{port}/metrics"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            assert f"\nrove_groups_lost_total {found.group(1)}\n".encode() in answer.read()
        assert any("acknowledged groups" in line for line in broker.lines)
        assert broker.stop() == 0


def test_a_monitor_beside_it_is_gone_when_it_is(tmp_path: Path) -> None:
    words = ["--mqtt-port", "0", "--http-port", "0", "--data", str(tmp_path / "data")]
    with up(*words, "--monitor", "0") as broker:
        url = broker.wait_for(r"rove: monitor on (\S+)").group(1)
        with urllib.request.urlopen(f"{url}/api/broker/health", timeout=PATIENCE_S) as answer:
            assert answer.read() == b'{"status":"ok"}\n'
        assert broker.stop() == 0
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(f"{url}/api/hello", timeout=PATIENCE_S)


def test_a_monitor_needs_the_http_interface(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rove", "up", *options(tmp_path), "--monitor"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2
    assert "http_port" in done.stderr
