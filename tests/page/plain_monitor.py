"""A monitor with nothing beside it: no broker, no database; for tests that stop it or log in.

The monitor that all tests share cannot be taken away from them, and has no lock on its door.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from rove.testing.broker_processes import accepts
from rove.testing.ports import free_port
from tests.effort import PATIENCE_S


class PlainMonitor:
    """`rove monitor SCENARIO OPTIONS…` in a process, on a port that it keeps when started again."""

    def __init__(self, folder: Path, scenario: str, *options: str) -> None:
        self._log = folder / "monitor.log"
        self._port = free_port()
        self._command = [sys.executable, "-m", "rove", "monitor", scenario, *options]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it and wait until it listens."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, "--port", str(self._port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + PATIENCE_S
        while not accepts(self._port):
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < end, self._log.read_text()
            time.sleep(0.02)

    def stop(self) -> None:
        """End it; nothing happens to one that is not running."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(PATIENCE_S)
        finally:
            self._process.kill()
            self._process = None
