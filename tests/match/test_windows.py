"""Ranked windows before and after the kernels come: one stream, no seam."""

import pickle
import subprocess
import sys
from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from rove.lang import parse
from rove.lang.ranking import Delivery, RankedWindow
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


TEXTS = [
    "ORDER BY x DESC LIMIT 2 WITHIN 4 SECONDS",
    "ORDER BY x + 1 LIMIT 1 WITHIN 2.5 SECONDS",
    "x > 2 ORDER BY x LIMIT 2 WITHIN 3 SECONDS",
    "ORDER BY x - me.x DESC LIMIT 2 WITHIN 3 SECONDS",
    "ORDER BY x * t LIMIT 2 WITHIN 6 SECONDS",
    "ORDER BY x DESC LIMIT 2 WITHIN 3 PUBLICATIONS",
    "x > me.x ORDER BY y LIMIT 1 WITHIN 2 PUBLICATIONS",
    "ORDER BY abs(x - 4) LIMIT 3 WITHIN 8 SECONDS",
]


def drawn_publications(random: Random, count: int) -> list[tuple[dict[str, object], float]]:
    at = 0.0
    found: list[tuple[dict[str, object], float]] = []
    for _ in range(count):
        at += random.choice([0.0, 0.25, 0.5, 1.0])
        x = random.choice([random.randint(0, 9), random.random() * 9, 2**60 + random.randint(0, 3)])
        found.append(({"x": x, "y": random.randint(0, 3)} if random.random() < 0.9 else {}, at))
    return found


@pytest.mark.parametrize("come_at", range(0, 25, 2))
def test_every_window_moves_to_the_kernels_with_all_it_holds(
    come_at: int, without_kernels: pytest.MonkeyPatch
) -> None:
    random = Random(come_at)
    matcher = Matcher(compiled=False)
    judges = {id: RankedWindow(parse(text)) for id, text in enumerate(TEXTS * 2)}
    states: list[dict[str, object]] = [{"x": 1} for _ in judges]
    for id, text in enumerate(TEXTS * 2):
        matcher.add(id, parse(text), me=states[id])
    found: list[RankedDelivery] = []
    expected: list[tuple[int, object, float, object, bool]] = []
    for number, (publication, at) in enumerate(drawn_publications(random, 25)):
        if number == come_at:
            without_kernels.undo()
        if number % 3 == 1:
            states[number % len(states)] = {"x": random.randint(0, 5)}
            matcher.set_state(number % len(states), states[number % len(states)])
        found += matcher.match([publication], [at], [number]).ranked
        for id, judge in judges.items():
            expected += told_of(id, judge.publish(publication, at, states[id], number))
    found += matcher.advance(100.0)
    for id, judge in judges.items():
        expected += told_of(id, judge.advance(100.0))
    told = [(one.subscription, one.key, one.at, one.score, one.promoted) for one in found]
    assert sorted(told, key=str) == sorted(expected, key=str)
    assert matcher.merge_due() is None


def told_of(id: int, deliveries: list[Delivery]) -> list[tuple[int, object, float, object, bool]]:
    return [(id, one.key, one.at, one.score, one.promoted) for one in deliveries]


def test_empty_windows_move_a_few_at_a_time_without_a_publication(
    without_kernels: pytest.MonkeyPatch,
) -> None:
    windows = Windows()
    for id in range(600):
        windows.add(id, parse("ORDER BY x DESC LIMIT 1 WITHIN 9 SECONDS"))
    assert windows.merge_due() is None
    without_kernels.undo()
    pieces = 0
    while (work := windows.merge_due()) is not None:
        work.run().install()
        pieces += 1
    assert pieces == 5
    assert len(windows) == 600
    windows.remove(599)
    found = windows.publish("a", {"x": 4}, 1.0, np.empty(0, np.int64))
    assert [one.subscription for one in found] == list(range(599))


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
