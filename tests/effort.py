"""How much a test tries: a share in `make test`, all of it and more in `make soak`.

`make test` draws the same examples each time, so more than it takes to meet every branch would only
be waited for again and again. `make soak` draws new ones, and many more of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pytest
from hypothesis import settings

TEST_EXAMPLES: Final = 12
"""Of a property that says nothing about it, in `make test`."""
SOAK_EXAMPLES: Final = 20_000
"""The same in `make soak`."""
SOAK_FACTOR: Final = 40
"""How many times more examples there are in `make soak` than what a property asks for."""
TEST_DIVISOR: Final = 15
"""How many times fewer there are in `make test`."""
FEW: Final = 12
"""So few are never made fewer."""

PATIENCE_S: Final = 240.0
"""How long anything that has to happen may take; only a failure waits for so long. A machine with
a dozen other things to do needs a minute for what takes seconds."""


def is_soak() -> bool:
    """Whether this is `make soak`."""
    return settings().max_examples == SOAK_EXAMPLES


def share(count: int) -> int:
    """So many seeds, steps or rows in `make soak`, a share of them in `make test`."""
    return count if is_soak() else max(min(count, FEW), count // TEST_DIVISOR)


def some(values: Iterable[Any], few: int = 1) -> list[Any]:
    """What a test is parametrised with: the first few in `make test`, all of it in `make soak`."""
    return [
        value if number < few else pytest.param(*_several(value), marks=pytest.mark.soak)
        for number, value in enumerate(values)
    ]


def _several(value: Any) -> tuple[Any, ...]:
    """The arguments of one case: a tuple holds one for each name."""
    return value if isinstance(value, tuple) else (value,)


def examples(count: int) -> settings:
    """Try a property with so many examples: a share of them in `make test`."""
    return settings(max_examples=count * SOAK_FACTOR if is_soak() else share(count))
