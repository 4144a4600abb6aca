"""Messages between the coordinator and matchers, and the interface to matcher processes.

A cell is a state machine: only its commands, in their order, determine its answers. So a cell can
be made again anywhere from its last saved file and the commands since, and a batch that was in
flight when a process died is asked again.

One message per batch goes each way. Messages are MessagePack by msgspec: about 1 µs per publication
either way, a tenth of JSON of the same rows. Payloads are sent as the bytes that arrived, so the
broker need not read them. Matches are returned as two arrays.

The shell provides real processes (`rove.serve.workers.matchers`); tests provide simulated ones that
are slow, die or hang according to a seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec


class MatchRow(msgspec.Struct, array_like=True, gc=False):
    """A publication, with what a cell needs of it."""

    number: int
    topic: str
    payload: bytes
    user: tuple[tuple[str, str], ...]
    """Its user properties."""
    at: float
    filters: tuple[int, ...]
    """The topic filters that it fits, of subscriptions with an expression."""


class CellCommand(msgspec.Struct, tag=True, array_like=True, gc=False):
    """A command to one cell."""

    cell: int


class Open(CellCommand):
    """Make a cell, empty or from a file."""

    snapshot: str = ""


class Add(CellCommand):
    """Add a subscription."""

    id: int
    text: str
    filter: int
    """The number of its topic filter."""
    accepted_at: float
    me: dict[str, Any] | None = None
    evolve: str = ""


class Remove(CellCommand):
    """Remove subscriptions."""

    ids: list[int]


class ChangeState(CellCommand):
    """Change `me.` variables of a subscription."""

    id: int
    changes: dict[str, Any]


class Match(CellCommand):
    """Match publications, then advance windows to a moment."""

    ticket: int
    part: int
    """The number of the part, which the answer repeats."""
    rows: msgspec.Raw
    """A list of `MatchRow`; encoded once for all cells."""
    advance_to: float | None = None


class Save(CellCommand):
    """Write the cell to a file, and answer."""

    path: str


class Close(CellCommand):
    """End a cell."""


AnyCommand: TypeAlias = Open | Add | Remove | ChangeState | Match | Save | Close


class RankedMatch(msgspec.Struct, array_like=True, gc=False):
    """A publication for a ranked subscription."""

    subscription: int
    number: int
    """The number of the publication."""
    at: float
    score: float | int
    promoted: bool


class MatchReply(msgspec.Struct, tag=True, array_like=True, gc=False):
    """The matches of a cell for a part of a ticket."""

    cell: int
    part: int
    counts: bytes
    """How many of `ids` each row has, in 32 bits each; empty if there are none."""
    ids: bytes
    """Subscriptions, in 64 bits each, in the order of the rows."""
    ranked: list[RankedMatch]
    next_change_at: float
    """When a window or a design must next be advanced."""
    took_s: float
    undecided: list[int] = []
    """Subscriptions that were skipped."""


class Saved(msgspec.Struct, tag=True, array_like=True, gc=False):
    """A cell was written to a file."""

    cell: int
    path: str
    held: list[int]
    """Publications that windows in it may still deliver, by number."""


class Unsaved(msgspec.Struct, tag=True, array_like=True, gc=False):
    """A cell could not be written to a file; it works on."""

    cell: int
    path: str
    text: str


class Failed(msgspec.Struct, tag=True, array_like=True, gc=False):
    """A command has failed; the cell has ended."""

    cell: int
    text: str
    part: int = -1
    """The part that failed, if it was a `Match`."""


AnyReply: TypeAlias = MatchReply | Saved | Unsaved | Failed


class Replies(msgspec.Struct, array_like=True, gc=False):
    """A message of a matcher: replies, and how busy it was since the last message."""

    replies: list[AnyReply]
    busy_s: float
    waited_s: float
    messages: int
    """Publications since then, each counted once for all cells."""
    subscriptions: int
    """In all its cells."""


_encoder = msgspec.msgpack.Encoder()
_commands = msgspec.msgpack.Decoder(list[AnyCommand])
_replies = msgspec.msgpack.Decoder(Replies)
_rows = msgspec.msgpack.Decoder(list[MatchRow])


_Read = TypeVar("_Read")


def _decoded(decoder: msgspec.msgpack.Decoder[_Read], message: bytes | memoryview) -> _Read:
    """The contents of a message; MsgspecError if it is invalid."""
    try:
        return decoder.decode(message)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None


def encoded_rows(rows: Sequence[MatchRow]) -> msgspec.Raw:
    """Publications as `Match` carries them."""
    return msgspec.Raw(_encoder.encode(rows))


def decoded_rows(rows: msgspec.Raw) -> list[MatchRow]:
    """The publications that `Match` carries."""
    return _decoded(_rows, memoryview(rows))


def encoded_commands(commands: Sequence[AnyCommand]) -> bytes:
    """A message to a matcher."""
    return _encoder.encode(commands)


def decoded_commands(message: bytes | memoryview) -> list[AnyCommand]:
    """The contents of a message to a matcher."""
    return _decoded(_commands, message)


def encoded_replies(replies: Replies) -> bytes:
    """A message from a matcher."""
    return _encoder.encode(replies)


def decoded_replies(message: bytes | memoryview) -> Replies:
    """The contents of a message from a matcher."""
    return _decoded(_replies, message)


class MatcherListener(Protocol):
    """Is called with events of matchers; the coordinator."""

    def started(self, matcher: int, pid: int) -> None:
        """A process is ready for commands."""

    def arrived(self, matcher: int, replies: Replies) -> None:
        """A matcher has sent replies."""

    def died(self, matcher: int, why: str) -> None:
        """A process has ended, or was killed because it did not answer, or could not be started."""


class MatcherProcesses(Protocol):
    """Processes that hold cells."""

    def start(self) -> int:
        """Start another; returns its number at once, from 1 up and never reused.

        `started` or `died` follows later, never within this call.
        """
        ...

    def send(self, matcher: int, commands: Sequence[AnyCommand]) -> None:
        """Send commands, in order; never waits for the process.

        If the process has died, reported or not yet, this does nothing.
        """

    def wait(self) -> None:
        """Wait until any matcher sends something or dies, and call the listener.

        A matcher that owes an answer and is silent for too long is killed.
        """

    def stop(self, matcher: int) -> None:
        """End a matcher; it is not reported any more."""

    def clock(self) -> float:
        """A monotonic clock, in seconds."""
        ...

    def cpu_s(self) -> float:
        """Processor time that this process has used."""
        ...

    def new_path(self) -> str:
        """The path of a new file for a cell."""
        ...

    def write(self, path: str, parts: Sequence[bytes | memoryview]) -> None:
        """Save a cell that the broker holds."""

    def read(self, path: str) -> memoryview:
        """A file that a matcher has saved."""
        ...

    def forget(self, path: str) -> None:
        """Remove a file."""
