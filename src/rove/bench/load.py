"""Load for brokers: a process that publishes and subscribes, and what it measures.

A suite describes its load as *jobs* and declares one `Load` with a coroutine for each kind of job.
`Load.run` starts a process, gives it the job, and waits for the outcome. Broker and load are two
processes on purpose: with two cores each has one, and their CPU times can be told apart. Publishers
and subscribers share a process on purpose: a delay is the difference of two readings of one clock.

A `Watch` reads clocks right before the first publication and after the last notification, so that
setting up does not count. It reads CPU times from Linux's schedstat, to the nanosecond: a large
message takes the broker a few milliseconds, and other clocks have a resolution of ten. The CPU time
of a thread that ends meanwhile is lost; no broker that is measured here ends threads under load.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, Union

import msgspec
import numpy as np
from numpy.typing import NDArray

from rove.testing.broker_processes import BrokerProcessError, allow_many_files, family

_PIECE_BYTES: Final = 32_768

Found = TypeVar("Found")


# --- the process ------------------------------------------------------------------------------


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What every load needs to know of its broker."""

    port: int
    pid: int


class Outcome(msgspec.Struct, kw_only=True):
    """What every load finds."""

    sent: int = 0
    """Publications."""
    expected: int = 0
    """Notifications."""
    received: int = 0
    seconds: float = 0.0
    """From the first publication to the last notification."""
    broker_cpu_s: float = 0.0
    children_cpu_s: float = 0.0
    """The CPU time of the processes that the broker has started: matchers and workers."""
    load_cpu_s: float = 0.0


class Load(Generic[Found]):
    """The load of one suite, in a process that `run` starts for each job."""

    def __init__(
        self,
        module: str,
        jobs: Mapping[type, Callable[[Any], Coroutine[Any, Any, Found]]],
        found: type[Found],
        seconds_max: Callable[[Any], float],
    ) -> None:
        """`module` must hold this object under the name `LOAD`."""
        self._module = module
        self._jobs = jobs
        self._found = found
        self._seconds_max = seconds_max

    def run(self, job: object) -> Found:
        """Do a job in a new process; BrokerProcessError if it fails."""
        done = subprocess.run(
            [sys.executable, "-m", "rove.bench.load", self._module],
            input=msgspec.json.encode(job),
            capture_output=True,
            timeout=2 * self._seconds_max(job),
            check=False,
        )
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            reason = lines[-1] if lines else f"the load ended with {done.returncode}"
            raise BrokerProcessError(reason)
        return msgspec.msgpack.decode(done.stdout, type=self._found)

    def serve(self) -> int:
        """In that process: do the job on standard input, and write the outcome."""
        import uvloop

        kinds: Any = Union[tuple(self._jobs)]  # noqa: UP007 - of a tuple
        job = msgspec.json.decode(sys.stdin.buffer.read(), type=kinds)
        allow_many_files()
        keep_freed_memory()
        try:
            found = uvloop.run(carried_out(self._jobs[type(job)](job), self._seconds_max(job)))
        except BrokerProcessError as error:
            print(error, file=sys.stderr)
            return 1
        answer = memoryview(msgspec.msgpack.encode(found))
        # After uvloop has run, one large write in fifteen was cut short here; pieces never were.
        for begin in range(0, len(answer), _PIECE_BYTES):
            sys.stdout.buffer.write(answer[begin : begin + _PIECE_BYTES])
            sys.stdout.buffer.flush()
        return 0


def keep_freed_memory() -> None:
    """Have the C library keep what this process frees, instead of returning it to the system.

    glibc learns from the first large block that is freed. Without one, each read of 200 KB may get
    fresh pages: three times the CPU time of this process, and a slower broker beside it.
    """
    bytes(24 * 1024 * 1024)


async def carried_out(job: Coroutine[Any, Any, Found], seconds_max: float) -> Found:
    """Do a job; an exception in a callback ends it too."""
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
        raise BrokerProcessError("the load did not end in time") from None


# --- clocks -----------------------------------------------------------------------------------


def cpu_times(pid: int) -> dict[int, float]:
    """The CPU seconds of a process and of each process that it has started, by process id."""
    found: dict[int, float] = {}
    for one in family(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            tasks = Path(f"/proc/{one}/task").iterdir()
            lines = [(task / "schedstat").read_text(encoding="ascii") for task in tasks]
            found[one] = sum(int(line.split()[0]) for line in lines) / 1e9
    return found


class Watch:
    """Reads clocks at its start, and again in each of its methods."""

    def __init__(self, pid: int) -> None:
        """`pid` is that of the broker."""
        gc.collect()
        gc.disable()  # its pauses would be measured as the broker's
        self._pid = pid
        self._before = cpu_times(pid)
        self._load_cpu_s = time.process_time()
        self.start = time.perf_counter()

    def cpu_s(self) -> tuple[float, float]:
        """The CPU time of the broker, and that of the processes that it has started."""
        used = {
            pid: seconds - self._before.get(pid, 0.0)
            for pid, seconds in cpu_times(self._pid).items()
        }
        return used.pop(self._pid), sum(used.values())

    def load_cpu_s(self) -> float:
        """The CPU time of this process."""
        return time.process_time() - self._load_cpu_s


# --- what arrived -----------------------------------------------------------------------------


class Notes:
    """The publication and the time of each notification, and the size of all of them."""

    def __init__(self) -> None:
        self.numbers = array("q")
        self.came_at = array("d")
        self.bytes = 0

    def add(self, number: int, came_at: float) -> None:
        """Record one notification."""
        self.numbers.append(number)
        self.came_at.append(came_at)

    def clear(self) -> None:
        """Forget all notifications."""
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
    """Where the packet ends that begins there; behind the data if its length is incomplete."""
    try:
        size, at = number_at(data, begin + 1)
    except IndexError:
        return len(data) + 1
    return at + size


if __name__ == "__main__":
    sys.exit(importlib.import_module(sys.argv[1]).LOAD.serve())
