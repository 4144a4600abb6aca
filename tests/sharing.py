"""Which tests run in the same process: those that share something that takes long to start.

The tests of a module stay together, because they share its fixtures. So do those of a folder whose
servers or browser serve all of it, and all that use Spark, which takes as long to start as a
hundred other tests. What takes long comes first, so that all processes end at about the same time.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Final

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

ROOT: Final = Path(__file__).parents[1]
TOGETHER: Final = ("tests/page", "tests/metrics", "tests/monitor")
FIRST: Final = (
    "spark",
    "tests/page",
    "tests/test_docs.py",
    "tests/interop",
    "tests/metrics",
    "tests/cli",
    "tests/monitor",
    "tests/serve",
    "tests/bench",
    "tests/live",
    "tests/demo",
)


class Sharing(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out whole units."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def unit_of(test: str) -> str:
    """What a test is run together with."""
    path = test.partition("::")[0]
    if uses_spark(path):
        return "spark"
    return next((folder for folder in TOGETHER if path.startswith(f"{folder}/")), path)


@functools.cache
def uses_spark(path: str) -> bool:
    """Whether tests of a module ask for the session that tests share."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return re.search(r"def \w+\([^)]*\bspark:|usefixtures\(\"spark\"\)", text) is not None


def rank(test: str) -> tuple[int, str]:
    """Sorts tests by when their unit comes; within a unit they stay in order."""
    unit = unit_of(test)
    place = next((n for n, known in enumerate(FIRST) if unit.startswith(known)), len(FIRST))
    return place, unit


def in_order(items: list[pytest.Item]) -> None:
    """Sort tests into the order in which their units are handed out."""
    items.sort(key=lambda item: rank(item.nodeid))
