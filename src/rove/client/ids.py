"""Names for publications: unique without asking anybody, and in the order of their making.

Twenty-eight hexadecimal digits: the milliseconds since 1970 (twelve), the maker (ten, drawn when
the client begins) and a count (six). The texts sort as they were made, which keeps a database's
index of them compact. A random UUID says as much and does not sort, and drawing new bits for
every publication is a system call each. About half a microsecond.
"""

from __future__ import annotations

from typing import Final

MAKER_DIGITS: Final = 10
_COUNT_MAX: Final = (1 << 24) - 1


class IdGenerator:
    """Makes ids; `maker` are ten hexadecimal digits that no other maker has."""

    def __init__(self, maker: str) -> None:
        self._maker = maker
        self._now_ms = 0
        self._count = 0

    def make(self, now_ms: int) -> str:
        """The next id. A clock that goes back does not make ids go back."""
        if now_ms > self._now_ms:
            self._now_ms, self._count = now_ms, 0
        elif self._count < _COUNT_MAX:
            self._count += 1
        else:  # faster than the clock: borrow the next millisecond
            self._now_ms, self._count = self._now_ms + 1, 0
        return f"{self._now_ms:012x}{self._maker}{self._count:06x}"
