"""How many examples a property is tried with.

`make test` draws the same ones each time, so more than it takes to meet every branch would only be
waited for again and again. `make soak` draws new ones, and many more of them.
"""

from __future__ import annotations

from typing import Final

from hypothesis import settings

SOAK_EXAMPLES: Final = 20_000
"""Of a property that says nothing about it, in `make soak`."""
SOAK_FACTOR: Final = 40
"""How many times more examples there are in `make soak` than what a property asks for."""


def examples(count: int) -> settings:
    """Try a property with so many examples in `make test`."""
    is_soak = settings().max_examples == SOAK_EXAMPLES
    return settings(max_examples=count * SOAK_FACTOR if is_soak else count)
