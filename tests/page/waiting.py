"""Waiting for something in a page to be true.

Playwright's own `wait_for_function` evaluates a text inside of the page, which the page's content
security policy forbids; this asks from outside, again and again.
"""

from __future__ import annotations

import time
from typing import Any

from tests.effort import PATIENCE_S


def until(page: Any, expression: str) -> None:
    """Come back when an expression is true in the page; an AssertionError if it never is."""
    end = time.monotonic() + PATIENCE_S
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"never true: {expression}"
        page.wait_for_timeout(50)
