"""Brokers as processes of their own, to be measured from outside: Rove, and Mosquitto beside it.

Both run as their packages ship them, on loopback, in a folder that is gone afterwards. Rove's
data is flushed to disk with every commit; Mosquitto keeps nothing, which is its default.

What a broker costs is read from Linux's /proc: the CPU time of all its threads, to ten
milliseconds, and its resident memory. CPU time is what is compared, because on a machine with
other things to do it is still the broker's own.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rove.base.processes import POLL_S, Program
from rove.errors import RoveError
from rove.testing.ports import free_port

HOST: Final = "127.0.0.1"
START_S_MAX: Final = 120.0
"""The first start on a machine compiles the kernels."""
_SETTLED_LOOKS: Final = 12
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_MOSQUITTO_PLACES: Final = ("/usr/sbin/mosquitto", "/usr/local/sbin/mosquitto")
_MOSQUITTO_CONF: Final = """\
listener {port} 127.0.0.1
allow_anonymous true
max_inflight_messages 1000
max_queued_messages 100000
"""


class BrokerProcessError(RoveError):
    """The benchmark of the broker cannot go on."""


class Running(Program):
    """A broker that runs."""

    port = 0
    http_port = 0
    """0 when it has none."""

    def metrics(self) -> dict[str, float]:
        """What Rove counts, by name and without labels."""
        with urllib.request.urlopen(f"http://{HOST}:{self.http_port}/metrics", timeout=30) as page:
            lines = page.read().decode().splitlines()
        pairs = (line.split() for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}


# --- starting and stopping --------------------------------------------------------------------


@contextmanager
def rove(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Running]:
    """Rove, when it has nothing left to do but wait; its data in `data` of the folder.

    `settings` go by their names in the environment (`rove config --json` tells them).
    """
    with rove_starting(folder, 0, settings) as broker:
        await_ports(broker)
        settle(broker.pid)
        yield broker


@contextmanager
def rove_starting(
    folder: Path, port: int, settings: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """The same, as soon as its process is there."""
    words = [sys.executable, "-m", "rove", "up", "--data", str(folder / "data")]
    words += ["--mqtt-port", str(port), "--http-port", "0"]
    with _started("rove", words, folder, settings or {}) as broker:
        broker.port = port
        yield broker


def await_ports(broker: Running) -> None:
    """Wait until Rove listens, and learn where."""
    broker.port = _announced_port(broker, "mqtt")
    broker.http_port = _announced_port(broker, "http")


@contextmanager
def mosquitto(folder: Path) -> Iterator[Running]:
    """Debian's Mosquitto, with room enough in its queues for what is measured."""
    program = mosquitto_program()
    assert program is not None, "ask mosquitto_program first"
    port = free_port()
    configuration = folder / "mosquitto.conf"
    configuration.write_text(_MOSQUITTO_CONF.format(port=port), encoding="ascii")
    with _started("mosquitto", [program, "-c", str(configuration)], folder, {}) as broker:
        broker.port = port
        broker.wait_until(lambda: accepts(port), START_S_MAX, BrokerProcessError)
        yield broker


def mosquitto_program() -> str | None:
    """Where it is; servers are often not on the path of a user."""
    places = (shutil.which("mosquitto"), *_MOSQUITTO_PLACES)
    return next((place for place in places if place and Path(place).is_file()), None)


def _started(name: str, words: list[str], folder: Path, settings: Mapping[str, str]) -> Running:
    # Before it begins: Mosquitto becomes another user, whose limits are not ours to set.
    log = folder / f"{name}.log"
    return Running(name, words, log, environment=settings, before=allow_many_files)


def _announced_port(broker: Running, listener: str) -> int:
    line = re.compile(rf"^rove: {listener} on port (\d+)\n", re.MULTILINE)
    return int(broker.wait_for_line(line, START_S_MAX, BrokerProcessError))


def accepts(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


# --- what a process costs ---------------------------------------------------------------------


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, in user mode and in the system, of all its threads."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def resident_bytes(pid: int) -> int:
    """Memory of a process that is really there."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES


def family(pid: int) -> list[int]:
    """A process and all that it has started, and what these have."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += map(int, (task / "children").read_text(encoding="ascii").split())
    return found


def settle(pid: int, seconds_max: float = START_S_MAX) -> None:
    """Wait until a process has nothing left to do.

    On a busy machine a process may use no CPU for long though it would like to. So it is asked
    whether any of its threads wants to run, a few times in a row.
    """
    end = time.monotonic() + seconds_max
    at_rest = 0
    while at_rest < _SETTLED_LOOKS and time.monotonic() < end:
        time.sleep(POLL_S)
        at_rest = 0 if _is_busy(pid) else at_rest + 1


def _is_busy(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError):  # the process has just ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # or a thread has
                state = (task / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
                if state in "RD":
                    return True
    return False


def allow_many_files() -> int:
    """Let this process open as many connections as it may; how many that is."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
