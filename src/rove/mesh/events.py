"""What a node of the network reports: what to do outside, and what happened."""

from __future__ import annotations

import msgspec


class Opened(msgspec.Struct, frozen=True, gc=False):
    """There are two new, empty streams from and to a broker."""

    name: str
    tunnel: int
    """Names this incarnation; never used again."""
    offset_s: float
    """By how much the broker's clock is ahead of ours."""
    error_s: float


class Received(msgspec.Struct, frozen=True, gc=False):
    """The next part of the stream from a broker."""

    name: str
    tunnel: int
    data: bytes


class Closed(msgspec.Struct, frozen=True, gc=False):
    """The streams from and to a broker have ended; what was under way is lost."""

    name: str
    tunnel: int
    reason: str


class NeighbourJoined(msgspec.Struct, frozen=True, gc=False):
    """A link is in use."""

    name: str
    link: int


class NeighbourLeft(msgspec.Struct, frozen=True, gc=False):
    """It is not any more."""

    name: str
    link: int
    reason: str


MeshEvent = Opened | Received | Closed | NeighbourJoined | NeighbourLeft


class LinkClosed(msgspec.Struct, frozen=True):
    """A link that the shell has to close, after it has sent what there is for it."""

    link: int
    name: str
    """Of the other side, if it said it."""
    reason: str
    """One line for people."""
    is_quiet: bool
    """There is another link to the same broker: nothing to complain of, nor to dial again for."""


class NodeOutput(msgspec.Struct, frozen=True):
    """What has to be done outside, in this order."""

    data: dict[int, bytes]
    """By link: what has to be sent."""
    closed: list[LinkClosed]
    events: list[MeshEvent]
