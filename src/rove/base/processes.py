"""Child processes: started, waited for, and ended at the latest with their parent.

`Program` runs another program. Its output goes to a file, so that nobody has to read a pipe, and
the error for a program that does not start quotes the last line. A child that speaks a protocol
with its parent is started with `subprocess`; it is ended by `end` or by a `Reaper`, and the
functions in the last part are for the child itself. Polling for a line costs a look at the file
every `POLL_S`.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from rove.errors import RoveError

if TYPE_CHECKING:
    import asyncio  # not at run time: a child that needs little should not load it

END_S_MAX: Final = 20.0
POLL_S: Final = 0.02
REAP_S: Final = 0.01
NICE: Final = 5
"""How far children that compute stand back: a quarter of a core where the parent wants all of
it."""
_PARENT_DEATH_SIGNAL: Final = 1
"""PR_SET_PDEATHSIG of Linux."""


class Program:
    """A running program. As a context manager it is ended with the block."""

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
        """Start it. `name` is for errors, `environment` is added to ours, a new session does not
        receive Ctrl-C, and `before` is called in the child between fork and exec."""
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
        """Its output so far."""
        return self.log.read_text(encoding="utf-8", errors="replace").strip()

    def last_line(self) -> str:
        """If it has ended, this is nearly always the reason."""
        return (self.said().splitlines() or ["it wrote nothing"])[-1]

    def wait_for_line(
        self, line: re.Pattern[str], seconds_max: float, error: type[RoveError]
    ) -> str:
        """The first group of the line that it writes when it is ready."""
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
        """Wait until it is ready; the error quotes its last line if it ends or takes too long."""
        end = time.monotonic() + seconds_max
        while True:
            has_ended = self.process.poll() is not None
            if is_ready():
                return
            if has_ended:
                raise error(f"{self.name} does not start: {self.last_line()}")
            if time.monotonic() > end:
                raise error(f"{self.name} is not ready after {seconds_max:g} s: {self.last_line()}")
            time.sleep(POLL_S)

    def kill(self) -> None:
        """Kill it, as a crash would."""
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
    """End a process: by `ask` if that is given, else or then by SIGTERM, in the end by SIGKILL."""
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


class Reaper:
    """Reaps children of an event loop without waiting for them, and kills those that take too
    long to end. It polls, only while a child is ending: a signal for dead children belongs to
    whatever runs the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ending: list[_Ending] = []
        self._poll: asyncio.Handle | None = None

    def add(
        self,
        process: subprocess.Popen[bytes],
        wait_s: float,
        then: Callable[[int], None] | None = None,
    ) -> None:
        """Reap a process that should end within this time, or is killed now if that is 0; `then`
        receives its status."""
        if wait_s <= 0.0:
            process.kill()
        self._ending.append(_Ending(process, time.monotonic() + wait_s, then))
        if self._poll is None:
            self._poll = self._loop.call_soon(self._reap)

    def _reap(self) -> None:
        ending, self._ending = self._ending, []
        for each in ending:
            status = each.process.poll()
            if status is None:
                if time.monotonic() >= each.kill_at:
                    each.process.kill()
                self._ending.append(each)
            elif each.then is not None:
                each.then(status)
        self._poll = self._loop.call_later(REAP_S, self._reap) if self._ending else None

    def close(self) -> None:
        """Kill the rest and wait for it; no status is reported any more."""
        if self._poll is not None:
            self._poll.cancel()
        for each in self._ending:
            each.process.kill()
        for each in self._ending:
            each.process.wait()
        self._ending.clear()


class _Ending(NamedTuple):
    process: subprocess.Popen[bytes]
    kill_at: float
    then: Callable[[int], None] | None


def exit_reason(status: int) -> str:
    """Why a process ended."""
    return f"killed by signal {-status}" if status < 0 else f"ended with status {status}"


def cores() -> int:
    """How many cores this process and its children may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# --- in the child ---------------------------------------------------------------------------------


def end_with(parent: int) -> None:
    """Have the system kill this process when its parent ends; only Linux can.

    Strictly, the parent is the thread that started it.
    """
    dying_with(parent, signal.SIGKILL)()


def dying_with(parent: int, by: signal.Signals) -> Callable[[], None]:
    """The same for `before` of `Program`: loads what it needs here, before the fork."""
    if sys.platform != "linux":
        return lambda: None
    libc = ctypes.CDLL(None)

    def ask() -> None:
        libc.prctl(_PARENT_DEATH_SIGNAL, by)
        if os.getppid() != parent:  # it ended before this call
            os._exit(1)

    return ask


def lower_priority(nice: int) -> None:
    """Give this thread, and those that it starts, a lower priority; for good, for priority cannot
    be raised again. Where threads have none, which is everywhere but on Linux, the process."""
    here = threading.get_native_id() if sys.platform == "linux" else 0
    if os.getpriority(os.PRIO_PROCESS, here) < nice:
        os.setpriority(os.PRIO_PROCESS, here, nice)
