"""Ranked windows before and after the kernels come: one stream, no seam."""

import pickle
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from rove.lang import parse
from rove.lang.ranking import RankedWindow
from rove.match import Matcher, RankedDelivery, engine
from rove.match.windows import Windows

TEXT = "x > 0 ORDER BY x + me.x DESC LIMIT 2 WITHIN 3 SECONDS"
STREAM = [({"x": value}, at / 2) for at, value in enumerate([5, 3, 9, 1, 4, -1, 8, 2, 2, 7])]


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_kernel", None)
        yield patch


def wanted(first: int) -> list[tuple[object, float, bool]]:
    """What one subscription gets that is there from the publication `first` on."""
    window = RankedWindow(parse(TEXT))
    found = []
    for number, (publication, at) in enumerate(STREAM):
        if number >= first:
            found += window.publish(publication, at, {"x": 1}, number)
    found += window.advance(20.0)
    return [(one.key, one.at, one.promoted) for one in found]


def test_what_came_before_the_kernels_goes_on_after_them(
    without_kernels: pytest.MonkeyPatch,
) -> None:
    matcher = Matcher(compiled=False)
    matcher.add(1, parse(TEXT), me={"x": 1})
    found: list[RankedDelivery] = []
    for number, (publication, at) in enumerate(STREAM):
        if number == 4:
            without_kernels.undo()
            matcher.add(2, parse(TEXT), me={"x": 1})
        if number == 7:
            matcher = Matcher.load(b"".join(bytes(part) for part in matcher.save()))
        found += matcher.match([publication], [at], [number]).ranked
    assert matcher.next_change_at() < 20.0
    found += matcher.advance(20.0)
    assert matcher.next_change_at() == float("inf")
    for id, first in ((1, 0), (2, 4)):
        mine = [(one.key, one.at, one.promoted) for one in found if one.subscription == id]
        assert mine == wanted(first) != []
    assert [(one.at, one.subscription) for one in found] == sorted(
        (one.at, one.subscription) for one in found
    )


def test_plain_windows_follow_their_state_and_can_be_removed(
    without_kernels: pytest.MonkeyPatch,
) -> None:
    windows = Windows()
    windows.add(3, parse("ORDER BY me.x - x LIMIT 1 WITHIN 9 SECONDS"), 0.0, {"x": 1})
    none = np.empty(0, np.int64)
    assert [one.score for one in windows.publish("a", {"x": 4}, 1.0, none)] == [-3]
    windows.set_state(3, {"x": -5})
    assert [one.score for one in windows.publish("b", {"x": 4}, 2.0, none)] == [-9]
    with pytest.raises(ValueError, match="must not run back"):
        windows.publish("c", {"x": 4}, 1.0, none)
    again = Windows.from_state(pickle.loads(pickle.dumps(windows.state())))
    assert len(again) == len(windows) == 1
    again.remove(3)
    assert len(again) == 0
    for gone in (again.remove, lambda id: again.set_state(id, {})):
        with pytest.raises(KeyError):
            gone(3)


def test_nothing_is_compiled_on_the_way() -> None:
    script = """
import sys
from rove.lang import parse
from rove.match import Matcher
matcher = Matcher(compiled=False)
for id, text in enumerate([
    "x > 1", "x > t", "contains(s, 'a')", "x > me.x", "x + 1 > 2",
    "ORDER BY x LIMIT 1 WITHIN 1 SECOND", "x > 1 ORDER BY x LIMIT 1 WITHIN 2 PUBLICATIONS",
]):
    matcher.add(id, parse(text), me={"x": 0})
for _ in range(2):
    found = matcher.match([{"x": 3, "s": "cat"}], [1.0])
    matcher.merge_all()
print(sorted(found.subscriptions.tolist()), [one.subscription for one in found.ranked])
print("numba" in sys.modules)
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[0, 1, 2, 3, 4] [5, 6]", "False"]
