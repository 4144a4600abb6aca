"""Programs that run beside us: started, waited for, and gone when we are.

What one says goes into a file, so that nobody has to read a pipe, and the error that tells why it
did not start has its last line. Whoever needs a protocol with its process builds it on
`subprocess`, and takes from here how a process is ended and how it ends with its parent.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from rove.errors import RoveError

END_S_MAX: Final = 20.0
POLL_S: Final = 0.02
_PARENT_DEATH_SIGNAL: Final = 1
"""PR_SET_PDEATHSIG of Linux."""


class Program:
    """One that runs. As a context manager it is ended with the block."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        is_session: bool = False,
        before: Callable[[], object] | None = None,
    ) -> None:
        """Start it. `name` is for errors, `environment` is beside ours, a session of its own hears
        no Ctrl-C, and `before` is called in the process between fork and exec."""
        self.name = name
        self.log = log
        with log.open("wb") as sink:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                cwd=folder,
                start_new_session=is_session,
                preexec_fn=before,  # noqa: PLW1509 (it makes a system call or two)
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> str:
        """All of it, up to now."""
        return self.log.read_text(encoding="utf-8", errors="replace").strip()

    def last_line(self) -> str:
        """What is nearly always the reason, if it has ended."""
        return (self.said().splitlines() or ["it said nothing"])[-1]

    def wait_for_line(
        self, line: re.Pattern[str], seconds_max: float, error: type[RoveError]
    ) -> str:
        """The first group of a line that it says when it is ready."""
        found: list[str] = []

        def is_said() -> bool:
            if match := line.search(self.log.read_text(encoding="utf-8", errors="replace")):
                found.append(match[1])
            return bool(found)

        self.wait_until(is_said, seconds_max, error)
        return found[0]

    def wait_until(
        self, is_ready: Callable[[], bool], seconds_max: float, error: type[RoveError]
    ) -> None:
        """Return when it is; the error has its last words if it ends or is not in time."""
        end = time.monotonic() + seconds_max
        while True:
            has_ended = self.process.poll() is not None
            if is_ready():
                return
            if has_ended:
                raise error(f"{self.name} does not start: {self.last_line()}")
            if time.monotonic() > end:
                raise error(f"{self.name} is not there after {seconds_max:g} s: {self.last_line()}")
            time.sleep(POLL_S)

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end(self.process)


def end(
    process: subprocess.Popen[bytes],
    seconds_max: float = END_S_MAX,
    ask: Callable[[], None] | None = None,
) -> None:
    """Ask it to end in a way of its own, if it has one, then by SIGTERM; then kill it."""
    for way in (ask, process.terminate, process.kill):
        if way is None:
            continue
        way()
        try:
            process.wait(seconds_max)
            return
        except subprocess.TimeoutExpired:
            pass
    process.wait()


def told_of(status: int) -> str:
    """Why a process ended."""
    return f"killed by signal {-status}" if status < 0 else f"ended with status {status}"


# --- in the process -------------------------------------------------------------------------------


def end_with(parent: int) -> None:
    """Have the system end this process when the one that started it ends; only Linux can.

    The parent is strictly the thread that started it.
    """
    dying_with(parent, signal.SIGKILL)()


def dying_with(parent: int, by: signal.Signals) -> Callable[[], None]:
    """The same for `before`: what has to be loaded for it is, before there is a process."""
    if sys.platform != "linux":
        return lambda: None
    libc = ctypes.CDLL(None)

    def ask() -> None:
        libc.prctl(_PARENT_DEATH_SIGNAL, by)
        if os.getppid() != parent:  # it ended before it was asked for
            os._exit(1)

    return ask
