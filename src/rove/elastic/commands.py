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
    """A publication, as a cell has to know it."""

    number: int
    topic: str
    payload: bytes
    user: tuple[tuple[str, str], ...]
    """Its user properties."""
    at: float
    filters: tuple[int, ...]
    """The topic filters that it fits, of those that subscriptions with a text have."""


class CellCommand(msgspec.Struct, tag=True, array_like=True, gc=False):
    """To one cell."""

    cell: int


class Open(CellCommand):
    """Begin a cell, empty or as it was saved in a file."""

    snapshot: str = ""


class Add(CellCommand):
    """Take in a subscription."""

    id: int
    text: str
    filter: int
    """The number of its topic filter."""
    accepted_at: float
    me: dict[str, Any] | None = None
    evolve: str = ""


class Remove(CellCommand):
    """Forget subscriptions."""

    ids: list[int]


class ChangeState(CellCommand):
    """`me.` variables of a subscription have changed."""

    id: int
    changes: dict[str, Any]


class Match(CellCommand):
    """Find out whom publications meet, then let windows slide up to a moment."""

    ticket: int
    part: int
    """Which question this is; the answer says it again."""
    rows: msgspec.Raw
    """A list of `MatchRow`; written once, however many cells it goes to."""
    advance_to: float | None = None


class Save(CellCommand):
    """Write everything into a file, and say so."""

    path: str


class Close(CellCommand):
    """End a cell."""


AnyCommand: TypeAlias = Open | Add | Remove | ChangeState | Match | Save | Close


class RankedMatch(msgspec.Struct, array_like=True, gc=False):
    """A publication that a ranked subscription is given."""

    subscription: int
    number: int
    """Of the publication."""
    at: float
    score: float | int
    promoted: bool


class MatchReply(msgspec.Struct, tag=True, array_like=True, gc=False):
    """What a cell found for a ticket."""

    cell: int
    part: int
    counts: bytes
    """How many of `ids` each row has, in 32 bits each; empty if there is none at all."""
    ids: bytes
    """Subscriptions, in 64 bits each, in the order of the rows."""
    ranked: list[RankedMatch]
    next_change_at: float
    """When a window or a design has something to do."""
    took_s: float
    undecided: list[int] = []
    """Subscriptions that were passed over."""


class Saved(msgspec.Struct, tag=True, array_like=True, gc=False):
    """A cell has been written to a file."""

    cell: int
    path: str
    held: list[int]
    """Publications that windows in it may still deliver, by number."""


class Unsaved(msgspec.Struct, tag=True, array_like=True, gc=False):
    """A cell could not be written to a file, and is as it was."""

    cell: int
    path: str
    text: str


class Failed(msgspec.Struct, tag=True, array_like=True, gc=False):
    """A command could not be carried out; the cell must not be asked any more."""

    cell: int
    text: str
    part: int = -1
    """What it was asked, if it failed over that."""


AnyReply: TypeAlias = MatchReply | Saved | Unsaved | Failed


class Replies(msgspec.Struct, array_like=True, gc=False):
    """What a matcher says at once, and how busy it has been since it last said something."""

    replies: list[AnyReply]
    busy_s: float
    waited_s: float
    messages: int
    """Publications in between, each counted once however many cells were asked."""
    subscriptions: int
    """In all its cells."""


_encoder = msgspec.msgpack.Encoder()
_commands = msgspec.msgpack.Decoder(list[AnyCommand])
_replies = msgspec.msgpack.Decoder(Replies)
_rows = msgspec.msgpack.Decoder(list[MatchRow])


_Read = TypeVar("_Read")


def _decoded(decoder: msgspec.msgpack.Decoder[_Read], message: bytes | memoryview) -> _Read:
    """What a message says; MsgspecError if it makes no sense."""
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
    """What a message to a matcher says."""
    return _decoded(_commands, message)


def encoded_replies(replies: Replies) -> bytes:
    """A message from a matcher."""
    return _encoder.encode(replies)


def decoded_replies(message: bytes | memoryview) -> Replies:
    """What a message from a matcher says."""
    return _decoded(_replies, message)


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
