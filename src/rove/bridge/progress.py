"""How a route is doing, in numbers."""

from __future__ import annotations

import msgspec


class Progress(msgspec.Struct):
    """Of one route, since it was started."""

    route: str
    read: int = 0
    """Publications or records that were looked at."""
    sent: int = 0
    """Of these, those that the other side has on disk."""
    left: int = 0
    """Those that do not meet the filter, or came from there."""
    refused: int = 0
    """Those that the other side cannot have, where the route says skip."""
    position: int = -1
    """Of the lake; or the sum of the next offsets."""
    is_at_end: bool = False
    """There was nothing more when it last looked."""
    troubles: int = 0
    """How often it had to begin again."""
    trouble: str = ""
    """The last of them, until it has gone on."""


def line(now: Progress, before: Progress | None, seconds: float) -> str:
    """One line for people."""
    per_s = (now.sent - (before.sent if before else 0)) / seconds if seconds > 0 else 0.0
    parts = [f"{now.sent:,} sent ({per_s:,.0f}/s)"]
    parts += [f"{now.left:,} left"] * bool(now.left)
    parts += [f"{now.refused:,} refused"] * bool(now.refused)
    parts.append("at the end" if now.is_at_end else f"position {now.position:,}")
    parts += [f"waiting: {now.trouble}"] * bool(now.trouble)
    return f"{now.route}: {', '.join(parts)}"
