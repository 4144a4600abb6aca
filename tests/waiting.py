"""Waiting for what another thread or process does, by looking and not by guessing how long."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.effort import PATIENCE_S

_LOOK_EVERY_S = 0.002


def eventually(
    is_so: Callable[[], object], what: str = "it never came to be", within_s: float = PATIENCE_S
) -> None:
    """Return when it is so; a test fails if that never comes to be."""
    end = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(_LOOK_EVERY_S)
