"""Processes for benchmarks, each bound to its cores.

A process and its children may use only the given cores (CPU affinity). To run something there, the
benchmark sends a function of its own module with arguments and gets the result or the error; the
process keeps a state between two calls. It is ended with the benchmark, however that ends.
"""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Final, Self

from rove.errors import RoveError

_SPAWN: Final = multiprocessing.get_context("spawn")
_END_S: Final = 30.0


class BenchError(RoveError):
    """A process of the benchmark failed."""


def chosen_cores(count: int) -> list[int]:
    """The first so many cores of those that may be used; none where that cannot be said."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < count:
        raise BenchError(f"{count} workers need as many cores; this process may use {len(cores)}")
    return cores[:count]


class Process:
    """A process that runs functions on a state of its own."""

    def __init__(self, start: Callable[[int], object], cores: list[int], workers: int) -> None:
        self._connection, theirs = _SPAWN.Pipe()
        arguments = (theirs, start, cores, workers)
        self._process = _SPAWN.Process(target=_serve, args=arguments)
        self._process.start()
        theirs.close()

    def send(self, function: Callable[..., object], *arguments: object) -> None:
        """Let it begin."""
        self._connection.send((function, arguments))

    def answer(self) -> Any:
        """Wait for what it found; BenchError if it failed."""
        try:
            is_fine, found = self._connection.recv()
        except EOFError:
            raise BenchError("a process of the benchmark crashed") from None
        if not is_fine:
            raise BenchError(f"a process of the benchmark failed:\n{found}")
        return found

    def ask(self, function: Callable[..., object], *arguments: object) -> Any:
        """Let it do something, and wait."""
        self.send(function, *arguments)
        return self.answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()
        self._process.join(_END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(
    connection: Connection[Any, Any],
    start: Callable[[int], object],
    cores: list[int],
    workers: int,
) -> None:
    if cores:
        os.sched_setaffinity(0, cores)
    state: object = None
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            break
        try:
            state = start(workers) if state is None else state
            connection.send((True, function(state, *arguments)))
        except Exception:
            connection.send((False, traceback.format_exc()))
    if hasattr(state, "stop"):
        state.stop()


def together(processes: Sequence[Process], asked: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Let each process do its own thing at the same time, and wait for all."""
    for process, (function, *arguments) in zip(processes, asked, strict=True):
        process.send(function, *arguments)
    return [process.answer() for process in processes]
