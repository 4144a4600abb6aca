"""What one packet passes inside the broker does not grow unnoticed."""

import pytest

from tests.broker.walks import WALKS

MOST = {"plain": (33, 10), "text": (54, 16), "policy": (92, 24), "subscription": (320, 36)}
"""Calls and files; `python -m tests.broker.walks NAME` shows which."""


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_is_no_longer_than_it_was(name: str) -> None:
    walk = WALKS[name]()
    calls_max, files_max = MOST[name]
    assert 0 < len(walk.calls) <= calls_max, "\n".join(walk.lines())
    assert 0 < len(walk.files) <= files_max, sorted(walk.files)
