"""The state of the matchers for people: which there are, how busy, and past reconfigurations.

Plain values, so that metrics, the HTTP interface, `rove top` and the monitor all show the same.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Layout: TypeAlias = Literal["partitioned", "replicated", "hierarchical"]
LAYOUTS: tuple[Layout, ...] = ("partitioned", "replicated", "hierarchical")
Kind: TypeAlias = Literal["out", "in", "split", "merge", "layout", "recovery"]
"""`out`: the first matcher takes over from the broker; `in`: the broker takes over again."""


class MatcherView(msgspec.Struct):
    """One matcher."""

    number: int
    """0 is the broker itself."""
    pid: int
    cells: int
    subscriptions: int
    idle_share: float
    """Of the time of its last messages, from 0 to 1."""
    messages_per_s: float
    messages: int
    """Since it started."""
    role: str
    """`broker`, `member` (partitioned, replicated), `parent` or `child` (hierarchical)."""


class Reconfiguration(msgspec.Struct):
    """One reconfiguration, done or given up."""

    kind: Kind
    reason: str
    at: float
    """When it began, in seconds since 1970."""
    duration_s: float
    matchers: int
    """Processes afterwards."""
    moved: int
    """Subscriptions that were moved."""
    failure: str = ""
    """Why it was given up; empty if it was done."""

    def facts(self) -> dict[str, object]:
        """For the log."""
        return {
            "kind": self.kind,
            "reason": self.reason,
            "matchers": self.matchers,
            "moved": self.moved,
            "took_ms": round(self.duration_s * 1000),
        }


class MatchersView(msgspec.Struct):
    """All matchers."""

    layout: Layout
    matchers: list[MatcherView]
    matchers_min: int
    matchers_max: int
    reconfigurations: list[Reconfiguration]
    """The last hundred, the oldest first."""
    done: dict[Kind, int]
    """How many of each kind were done since the broker started."""
    failed: int
    tickets_waiting: int
    """Batches that matchers have not answered yet."""
    is_reconfiguring: bool
