"""A monitor as a child process, beside a broker, a demonstration or a benchmark.

The child's standard input is a pipe, and it ends when the other end is closed. So it ends even if
its parent was killed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Final, Self

from rove.base.processes import end
from rove.errors import RoveError

START_S: Final = 120.0
"""A machine that compiles the world's loops for the first time takes its time."""
END_S: Final = 10.0
_LINE: Final = re.compile(r"rove: monitor on (\S+)")


class MonitorProcessError(RoveError):
    """The monitor did not start."""


class MonitorProcess:
    """`rove monitor` in a process of its own."""

    def __init__(self, *words: str, variables: Mapping[str, str] | None = None) -> None:
        """Start it with these words; `url` waits until it listens.

        What nobody else on the machine should read goes into variables of its environment.
        """
        command = [sys.executable, "-m", "rove", "monitor", *words, "--end-with-stdin"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **(variables or {})},
        )
        self._said: list[str] = []
        self._url = ""
        self._known = threading.Event()
        self._reader = threading.Thread(target=self._read, name="rove-monitor-says", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Of the monitor."""
        return self._process.pid

    def url(self, wait_s: float = START_S) -> str:
        """Its address; BesideError if it has none in time."""
        is_known = self._known.wait(wait_s)
        if not self._url:
            why = " ".join(self._said[-3:]) if is_known else f"not within {wait_s:g} s"
            raise MonitorProcessError(
                f"the monitor did not start: {why.removeprefix('rove: error: ')}"
            )
        return self._url

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                text = line.decode("utf-8", "replace").rstrip()
                if (found := _LINE.search(text)) and not self._url:
                    self._url = found[1]
                    self._known.set()
                elif self._url:
                    print(text, file=sys.stderr, flush=True)
                else:
                    self._said.append(text)
        self._known.set()

    def wait(self) -> None:
        """Until it ends by itself."""
        self._process.wait()

    def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        end(self._process, END_S, ask=self._process.stdin.close)
        self._reader.join(END_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
