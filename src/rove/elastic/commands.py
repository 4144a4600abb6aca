"""What the coordinator says to matchers, and what they answer: one message per batch, both ways.

A cell is a machine: its commands in their order, and nothing else, decide what it answers. So a
cell can be made again anywhere from what it saved last and the commands since, and a batch that
was on its way when a process died is asked again.

Messages are MessagePack by msgspec: about 1 µs for a publication either way, a tenth of what JSON
of the same rows took, and payloads go as the bytes that they came as, so that the broker need not
read them. Matches come back as two arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

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
