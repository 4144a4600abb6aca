"""One tunnel: how far its two streams are, and where it is between closed and open.

`rove.mesh.tunnels` decides what happens to it.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

from rove.mesh.graph import Way

START, GAP, WAY, STALL, FULL, PROBE, ENDED = range(7)
REASONS: Final = (
    "it is new",
    "a part of the stream was lost",
    "the way between the two changed",
    "nothing was acknowledged for too long",
    "too much waited for it",
    "",
    "a session that used it was closed",
)
"""Why an end opens a tunnel, as OPEN says it; PROBE only asks what has arrived."""


class Tunnel:
    """The two streams between this broker and another, through all incarnations."""

    def __init__(self, node: int, name: str, way: Way, mine: int, now_s: float) -> None:
        self.node = node
        self.name = name
        self.way = way
        self.next_way: Way | None = None
        """A better one, taken when everything that is under way has arrived."""
        self.mine = mine
        self.theirs = 0
        """The other end's number; 0 if nothing has come from it yet."""
        self.number = 0
        """What the caller knows this incarnation by; 0 while it is not open."""
        self.reason = START
        self.is_told = False
        """Whether the present number was sent to the other end."""
        self.opened_count = 0
        self.sent_total = self.received_total = 0
        self.fails = 0
        """Incarnations in sequence that carried nothing."""
        self.reset_at_s = -math.inf
        self.retry_at_s = now_s
        self.retry_s = 0.0
        self.clear(now_s)

    def clear(self, now_s: float) -> None:
        """Begin with empty streams."""
        self.sent = self.acked = self.received = self.told = 0
        self.pending: list[bytes] = []
        self.pending_bytes = 0
        self.queue: deque[bytes] = deque()
        self.queued_bytes = 0
        self.progressed(now_s)
        self.switch_by_s = math.inf

    def progressed(self, now_s: float) -> None:
        """Something was acknowledged, or is the first to wait for that."""
        self.progress_at_s = now_s
        self.probes = 0

    @property
    def round_trip_s(self) -> float:
        return 2e-6 * self.way.delay_us + 0.002 * len(self.way.numbers)

    @property
    def incoming(self) -> int:
        """The incarnation, as frames from the other end carry it."""
        return self.theirs << 32 | self.mine

    @property
    def outgoing(self) -> int:
        return self.mine << 32 | self.theirs
