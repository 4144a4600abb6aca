"""What every load is made of: a process of its own, clocks around the work, and what arrived when.

A suite describes jobs and how each is done, in a module of its own; `run` gives a job to a process
that runs this module's `serve`, and waits for what it found. Broker and load are two processes on
purpose: with two cores each has one, and the CPU time of either can be told apart. Publishers and
subscribers are one process on purpose: a delay is the difference of two readings of one clock.

A `Watch` reads clocks right before the first publication and after the last notification has come,
so that setting up does not count. CPU times are read from Linux's schedstat, to the nanosecond: a
large message takes the broker a few milliseconds, and other clocks know tens of them. The time of
a thread that ends meanwhile is lost; no broker that is measured here ends threads under load.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from rove.testing.broker_processes import BrokerProcessError, allow_many_files, family

_PIECE_BYTES: Final = 32_768

Found = TypeVar("Found")


# --- the process ------------------------------------------------------------------------------


def run(module: str, job: object, found: type[Found], seconds_max: float) -> Found:
    """Give a job to a process of its own that runs a module, and wait for what it found."""
    done = subprocess.run(
        [sys.executable, "-m", module],
        input=msgspec.json.encode(job),
        capture_output=True,
        timeout=seconds_max,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise BrokerProcessError(lines[-1] if lines else f"the load ended with {done.returncode}")
    return msgspec.msgpack.decode(done.stdout, type=found)


def serve(
    kind: Any, do: Callable[[Any], Coroutine[Any, Any, object]], seconds_max: Callable[[Any], float]
) -> int:
    """In that process: do the job on standard input, and write what it found."""
    import uvloop

    job = msgspec.json.decode(sys.stdin.buffer.read(), type=kind)
    allow_many_files()
    try:
        found = uvloop.run(carried_out(do(job), seconds_max(job)))
    except BrokerProcessError as error:
        print(error, file=sys.stderr)
        return 1
    answer = memoryview(msgspec.msgpack.encode(found))
    # Piece by piece: of one large write after uvloop has run, one in fifteen was cut short here.
    for begin in range(0, len(answer), _PIECE_BYTES):
        sys.stdout.buffer.write(answer[begin : begin + _PIECE_BYTES])
        sys.stdout.buffer.flush()
    return 0


async def carried_out(job: Coroutine[Any, Any, Found], seconds_max: float) -> Found:
    """Do a job; what goes wrong in a callback ends it too."""
    faults: list[BaseException | str] = []
    task = asyncio.ensure_future(job)

    def failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        faults.append(context.get("exception") or context["message"])
        task.cancel()

    asyncio.get_running_loop().set_exception_handler(failed)
    try:
        async with asyncio.timeout(seconds_max):
            return await task
    except asyncio.CancelledError:
        raise BrokerProcessError(str(faults[0] if faults else "the load was stopped")) from None
    except TimeoutError:
        raise BrokerProcessError("the load did not come to an end in time") from None


# --- clocks -----------------------------------------------------------------------------------


def cpu_times(pid: int) -> dict[int, float]:
    """Seconds that a process and all that it has started have used so far, each."""
    found: dict[int, float] = {}
    for one in family(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            tasks = Path(f"/proc/{one}/task").iterdir()
            texts = [(task / "schedstat").read_text(encoding="ascii") for task in tasks]
            found[one] = sum(int(text.split()[0]) for text in texts) / 1e9
    return found


class Watch:
    """Reads clocks when it is made, and again when it is asked."""

    def __init__(self, pid: int) -> None:
        """`pid` is that of the broker."""
        gc.collect()
        gc.disable()  # its pauses would be measured as the broker's
        self._pid = pid
        self._before = cpu_times(pid)
        self._load_cpu_s = time.process_time()
        self.start = time.perf_counter()

    def cpu_s(self) -> tuple[float, float]:
        """What the broker has used, and what the processes that it has started have used."""
        used = {
            pid: seconds - self._before.get(pid, 0.0)
            for pid, seconds in cpu_times(self._pid).items()
        }
        return used.pop(self._pid), sum(used.values())

    def load_cpu_s(self) -> float:
        """What this process has used."""
        return time.process_time() - self._load_cpu_s


# --- what arrived -----------------------------------------------------------------------------


class Notes:
    """Which publication each notification was of, when it came, and how large all were."""

    def __init__(self) -> None:
        self.numbers = array("q")
        self.came_at = array("d")
        self.bytes = 0

    def add(self, number: int, came_at: float) -> None:
        """One more has come."""
        self.numbers.append(number)
        self.came_at.append(came_at)

    def clear(self) -> None:
        """Begin anew."""
        del self.numbers[:], self.came_at[:]
        self.bytes = 0

    def delays(self, sent_at: Sequence[float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """For each notification when its publication was sent, and its delay in milliseconds."""
        numbers = np.array(self.numbers, np.int64)
        sent = np.array(sent_at, np.float64)[numbers]
        return sent, (np.array(self.came_at, np.float64) - sent) * 1_000


def percentiles(delays: Sequence[float] | NDArray[np.float64], *which: float) -> tuple[float, ...]:
    """Those percentiles, in the unit of the delays."""
    return tuple(map(float, np.percentile(np.asarray(delays), which)))


# --- packets that are not decoded ---------------------------------------------------------------


def number_at(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends; IndexError if it has not all come."""
    value, shift = 0, 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7


def end_of_packet(data: bytes, begin: int = 0) -> int:
    """Where the packet ends that begins there; behind the data if that cannot be told yet."""
    try:
        size, at = number_at(data, begin + 1)
    except IndexError:
        return len(data) + 1
    return at + size
