"""What the coordinator needs of the world outside: processes to send to, and files to save in.

The shell provides real ones (`rove.serve.workers.matchers`); tests provide simulated ones that are
slow, die or hang according to a seed. What they answer goes to the coordinator (`MatcherListener`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rove.elastic.commands import AnyCommand, Replies


class MatcherListener(Protocol):
    """Hears of matchers; the coordinator."""

    def started(self, matcher: int, pid: int) -> None:
        """A process is there and takes commands."""

    def arrived(self, matcher: int, replies: Replies) -> None:
        """A matcher has said something."""

    def died(self, matcher: int, why: str) -> None:
        """A process is gone, or was killed because it did not answer; also one that never came."""


class MatcherProcesses(Protocol):
    """Processes that hold cells."""

    def start(self) -> int:
        """Begin another; gives its number at once, from 1 up and never used again.

        `started` or `died` follows later, never from within this call.
        """
        ...

    def send(self, matcher: int, commands: Sequence[AnyCommand]) -> None:
        """Send commands, behind what was sent before; never waits for the process.

        To one that has died, whether or not that is known yet, this does nothing.
        """

    def wait(self) -> None:
        """Wait until some matcher says something or dies, and hand all of it to the listener.

        One that says nothing for too long although it owes an answer is killed, and has died.
        """

    def stop(self, matcher: int) -> None:
        """End one; of it nothing more is heard."""

    def clock(self) -> float:
        """Seconds that only ever go on, to measure by."""
        ...

    def cpu_s(self) -> float:
        """Processor time that this process has used."""
        ...

    def new_path(self) -> str:
        """A file that no cell was saved in yet."""
        ...

    def write(self, path: str, parts: Sequence[bytes | memoryview]) -> None:
        """Save a cell of the broker's own."""

    def read(self, path: str) -> memoryview:
        """What a matcher saved."""
        ...

    def forget(self, path: str) -> None:
        """Nobody needs this file any more."""
