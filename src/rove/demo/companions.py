"""What runs beside the demonstration: a monitor on a page, and the pipeline on its lake.

The demonstration in the terminal has its own time and runs as fast as it can. The page needs a
world that goes on, so the monitor plays one of its own, with a metrics database for as long as it
lasts.

`rove pipeline run match` runs as a process on the lake of the demonstration's broker. Its table of
notifications grows batch by batch and is counted by subscriber. Spark needs some seconds to start,
so it lags at first. While it is still being installed on this machine, it starts afterwards.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from rove.base.processes import Program, end
from rove.lake.delta import DeltaTable, MissingTableError
from rove.monitor.monitor_process import MonitorProcess
from rove.pipeline.jobs.notifications import found_position
from rove.pipeline.lake.log import Lake

START_S_MAX: Final = 120.0
"""Spark is given up if it has not done anything by then; a loaded machine takes its time."""
_LOOK_EVERY_S: Final = 0.1


class SparkBeside:
    """Runs the pipeline over a lake until it is closed."""

    def __init__(self, lake: Path, texts: Mapping[str, str], after: Path | None = None) -> None:
        """`texts` are what the subscribers that are counted have asked for, by name.

        `after` is where the exit code of Spark's installation will be, if it is under way.
        """
        self._lake = lake
        self._after = after
        self._names = {text: name for name, text in texts.items()}
        self._folder = tempfile.TemporaryDirectory(prefix="rove-demo-")
        self._out = Path(self._folder.name)
        self._program: Program | None = None
        self.trouble = ""
        """Why Spark does not work here; empty as long as it does."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._program is not None:
            end(self._program.process)
        self._folder.cleanup()

    def counts(self) -> dict[str, int]:
        """How many notifications Spark has found so far, by subscriber."""
        self._keep_running()
        found = dict.fromkeys(self._names.values(), 0)
        try:
            numbers = DeltaTable(self._out / "match").rows(["subscription"])["subscription"]
        except MissingTableError:
            return found
        named = self._numbers()
        for number, count in Counter(numbers.to_pylist()).items():
            if number in named:
                found[named[number]] += count
        return found

    def catch_up(self, position: int) -> Iterator[dict[str, int]]:
        """The counts again and again, until Spark has seen the lake up to a position."""
        give_up_at = time.monotonic() + START_S_MAX
        while not self.trouble and not self._has_seen(position):
            yield self.counts()
            if self.is_installing():
                give_up_at = time.monotonic() + START_S_MAX
            elif time.monotonic() > give_up_at:
                self.trouble = f"it did not catch up within {START_S_MAX:g} s"
            time.sleep(_LOOK_EVERY_S)
        yield self.counts()

    def is_installing(self) -> bool:
        """Whether Spark is still being installed; if that failed, there is trouble."""
        if self._after is None:
            return False
        # Who writes the file has opened it before.
        if not self._after.is_file() or not (code := self._after.read_text().strip()):
            return True
        if code != "0":
            self.trouble = f"its installation failed, as {self._after.parent}/setup.log tells"
            return True
        self._after = None
        return False

    def _keep_running(self) -> None:
        """Start when there is something to read; notice an end."""
        if self._program is None:
            if not self.is_installing() and Lake(self._lake).position() >= 0:
                self._program = self._start()
        elif self._program.process.poll() is not None and not self.trouble:
            self.trouble = self._program.last_line()

    def _start(self) -> Program:
        command = [sys.executable, "-m", "rove", "pipeline", "run", "match"]
        command += ["--lake", str(self._lake), "--out", str(self._out), "--memory", "1g"]
        command.append("--brief")
        # Behind what the viewer looks at.
        words = ["nice", "-n", "5", *command] if os.name == "posix" else command
        return Program("Spark", words, self._out / "log")

    def _has_seen(self, position: int) -> bool:
        return found_position(self._out / "match") >= position

    def _numbers(self) -> dict[int, str]:
        events = Lake(self._lake).events()
        return {one.number: self._names[one.text] for one in events if one.text in self._names}


SCENARIO: Final = "crowd"
PORT: Final = 8090


@contextmanager
def monitor_beside() -> Iterator[MonitorProcess]:
    """A monitor with a world, on the usual port if that is free."""
    with tempfile.TemporaryDirectory(prefix="rove-demo-") as folder:
        words = [SCENARIO, "--port", str(_free_port()), "--database", str(Path(folder) / "metrics")]
        with MonitorProcess(*words) as beside:
            yield beside


def _free_port() -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
        except OSError:
            return 0
    return PORT
