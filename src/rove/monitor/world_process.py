"""Starts the process that plays the world and exchanges messages with it.

The process is spawned, not forked, because the monitor has threads and an event loop. One thread
reads its messages and passes them to the loop, another writes requests, so the loop never waits for
a busy world. If too many requests wait (making a large world takes seconds), further ones are
refused; there is no unbounded queue.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import queue
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Final

import msgspec

from rove.monitor.world_worker import WorkerRequest, play
from rove.world.runs.scenarios import Scenario

WAITING_MAX: Final = 1_000
END_S: Final = 5.0


class WorldProcess:
    """A process on which a world is played."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._asks: queue.Queue[bytes | None] = queue.Queue(WAITING_MAX)
        self._process: BaseProcess | None = None

    @property
    def pid(self) -> int | None:
        """Of the process."""
        return None if self._process is None else self._process.pid

    def start(self, hear: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        """Begin; both are called in the running loop, the second when the process is gone."""
        loop = asyncio.get_running_loop()
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        self._process = context.Process(
            target=play, args=(there, self._scenario), name="rove-world", daemon=True
        )
        # Ctrl-C at a terminal reaches all processes. This one learns to ignore it when it has been
        # loaded, which takes seconds; until then, and after, it does not see it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        there.close()

        def read() -> None:
            try:
                while True:
                    loop.call_soon_threadsafe(hear, here.recv_bytes())
            except (EOFError, OSError):
                self._later(loop, ended)
            except RuntimeError:  # the loop is closed: nobody listens any more
                return

        for name, work in (("hears", read), ("asks", lambda: self._write(here))):
            threading.Thread(target=work, name=f"rove-world-{name}", daemon=True).start()

    @staticmethod
    def _later(loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
        try:
            loop.call_soon_threadsafe(ended)
        except RuntimeError:
            return

    def _write(self, pipe: Connection) -> None:
        try:
            while (asked := self._asks.get()) is not None:
                pipe.send_bytes(asked)
        except OSError:
            pass  # the reader says that it has ended
        finally:
            pipe.close()

    def ask(self, what: WorkerRequest) -> bool:
        """Have something asked; False if too much waits already."""
        try:
            self._asks.put_nowait(msgspec.json.encode(what))
        except queue.Full:
            return False
        return True

    def stop(self) -> None:
        """End the process."""
        process = self._process
        if process is None:
            return
        process.terminate()
        process.join(END_S)
        if process.is_alive():
            process.kill()
            process.join()
        try:
            self._asks.put_nowait(None)
        except queue.Full:
            return
