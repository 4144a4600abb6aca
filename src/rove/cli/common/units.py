"""Numbers as people read them: short, with a unit, always as wide as they need to be."""

from __future__ import annotations

BYTE_UNITS = ("B", "KB", "MB", "GB", "TB")
DURATIONS = ((86_400, "d"), (3_600, "h"), (60, "m"))


def count_text(count: float) -> str:
    """1,234 or 0.5."""
    return f"{count:,.0f}" if count == round(count) or count >= 100 else f"{count:,.1f}"


def bytes_text(size: float) -> str:
    """1.2 MB; powers of 1,000, as disks and networks are sold."""
    for unit in BYTE_UNITS:
        if abs(size) < 999.5 or unit == BYTE_UNITS[-1]:
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or size >= 99.95 else f"{size:.1f} {unit}"


def duration_text(seconds: float) -> str:
    """3d 4h, 12m 5s, 7s or 0.3s: the two largest units."""
    if seconds < 10:
        return f"{seconds:.1f}s" if seconds else "0s"
    left = int(seconds)
    parts: list[str] = []
    for size, unit in DURATIONS:
        if left >= size or parts:
            parts.append(f"{left // size}{unit}")
            left %= size
    parts.append(f"{left}s")
    return " ".join(parts[:2])
