"""Batches against the window that says it plainly, however they are cut; skybands by hand."""

import math
import pickle
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import RankedWindow, matches, parse
from rove.match import engine
from rove.match.ranked.inputs import Inputs
from rove.match.ranked.members import Records
from rove.match.ranked.pool import RankedPool
from rove.match.ranked.windows import Windows
from rove.match.results import RankedDelivery
from rove.testing import strategies
from tests.effort import examples

ALL, NOBODY = np.array([1], np.int64), np.empty(0, np.int64)
Told = tuple[float, int, int, str, bool]

SCORES = (
    "a",
    "abs(a - 2)",
    "2 * a + 3 * b",
    "(a - 0.5) * (a - 0.5) + (b - 2.5) * (b - 2.5)",
    "distance(a, b, 1, 2)",
    "a / b",
    "least(a, 2.5)",
    "a * 0",
    "a - t",
    "abs(a - me.x)",
    "me.x",
    "a + 9007199254740993",
    "7",
    "1 / 0",
)
CONDITIONS = ("", "a > 1", "b <= me.x OR a = 2")
WINDOWS = ("1 SECOND", "2.5 SECONDS", "9 SECONDS", "3 PUBLICATIONS", "9 PUBLICATIONS")


@pytest.fixture(autouse=True, scope="module")
def _windows_are_soon_full() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        engine.warm_up()
        patch.setattr("rove.match.ranked.pool._SKYBAND_ROOM", 1)
        patch.setattr("rove.match.ranked.members._SCRATCH_MIN", 1)
        yield


def told(records: Records) -> list[Told]:
    """Scores by their spelling: 1, 1.0 and -0.0 are not the same."""
    found = []
    for one in records:
        score = int(one["score"]) + int(one["tail"]) if one["whole"] else float(one["score"])
        id, sequence = int(one["id"]), int(one["sequence"])
        found.append((float(one["at"]), id, sequence, repr(score), bool(one["promoted"])))
    return found


class Model:
    """A window for each subscription, asked one by one."""

    def __init__(self) -> None:
        self.texts: dict[int, tuple[str, float, dict[str, Any]]] = {}
        self.windows: dict[int, RankedWindow] = {}
        self.told: list[Told] = []

    def add(self, id: int, text: str, accepted_at: float, me: dict[str, Any]) -> None:
        self.texts[id] = text, accepted_at, me
        self.windows[id] = RankedWindow(parse(text), accepted_at)

    def matched(self, publication: dict[str, Any], at: float) -> list[int]:
        return [
            id
            for id, (text, accepted_at, me) in self.texts.items()
            if matches(parse(text), publication, at - accepted_at, me)
        ]

    def publish(self, number: int, publication: dict[str, Any], at: float) -> None:
        for id, window in self.windows.items():
            self._tell(id, window.publish(publication, at, self.texts[id][2], number))

    def advance(self, now: float) -> None:
        for id, window in self.windows.items():
            self._tell(id, window.advance(now))

    def _tell(self, id: int, found: list[Any]) -> None:
        self.told += [(one.at, id, one.key, repr(one.score), one.promoted) for one in found]

    def in_order(self) -> list[Told]:
        return sorted(self.told, key=lambda one: one[:2])


class Story:
    """The same events for the model and for batches, which end where the story says so."""

    def __init__(self) -> None:
        self.model = Model()
        self.pool = RankedPool(shares=False)
        self.now = 0.0
        self.told: list[Told] = []
        self._batch: list[tuple[dict[str, Any], float]] = []
        self._pairs: list[tuple[int, int]] = []
        self._first = 0

    def add(self, id: int, text: str, accepted_at: float, me: dict[str, Any]) -> None:
        self.model.add(id, text, accepted_at, me)
        self.pool.add(id, text, accepted_at, me)

    def remove(self, id: int) -> None:
        self.model.advance(self.now)
        del self.model.texts[id], self.model.windows[id]
        self.pool.end(id, self.now, len(self._batch))
        assert id not in self.pool
        assert len(self.pool) == len(self.model.windows)

    def set_state(self, id: int, me: dict[str, Any]) -> None:
        text, accepted_at, _ = self.model.texts[id]
        self.model.texts[id] = text, accepted_at, me
        self.pool.set_state(id, me, len(self._batch))

    def empty(self) -> None:
        self.model.advance(self.now)
        for id, (text, accepted_at, _) in self.model.texts.items():
            self.model.windows[id] = RankedWindow(parse(text), accepted_at)
        self.pool.empty(len(self._batch), self.now)

    def publish(self, publication: dict[str, Any], after_s: float) -> None:
        self.now += after_s
        number = len(self._batch)
        self._pairs += [(number, id) for id in self.model.matched(publication, self.now)]
        self._batch.append((publication, self.now))
        self.model.publish(self._first + number, publication, self.now)

    def cut(self) -> None:
        publications = [publication for publication, _ in self._batch]
        at = np.array([at for _, at in self._batch], np.float64)
        pairs = np.array(self._pairs, np.int64).reshape(-1, 2)
        sequences = self._first + np.arange(len(publications))
        inputs = Inputs(publications, at)
        numbers, ids = np.ascontiguousarray(pairs.T)
        self.told += told(self.pool.run(inputs, sequences, numbers, ids))
        self._first += len(publications)
        self._batch, self._pairs = [], []

    def save_and_load(self) -> None:
        self.cut()
        state = pickle.loads(pickle.dumps(self.pool.state()))
        self.pool = RankedPool.from_state(state)

    def end(self) -> None:
        self.cut()
        self.told += told(self.pool.advance(self.now + 10.0))
        self.model.advance(self.now + 10.0)
        assert sorted(self.told, key=lambda one: one[:2]) == self.model.in_order()


@st.composite
def ranked_texts(draw: st.DrawFn) -> str:
    condition = draw(st.sampled_from(CONDITIONS))
    order = draw(st.sampled_from(["", " DESC"]))
    score, window = draw(st.sampled_from(SCORES)), draw(st.sampled_from(WINDOWS))
    return f"{condition} ORDER BY {score}{order} LIMIT {draw(st.integers(1, 3))} WITHIN {window}"


small = st.sampled_from([0, 1, 2, 3, 0.0, -0.0, 0.5, 1.0, 1.5, 2.0, 2.5, -1])
odd = st.sampled_from([None, "a", True, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 1e308, [1]])
drawn_values = small | small | small | odd
drawn_publications = st.fixed_dictionaries({}, optional={"a": drawn_values, "b": drawn_values})
drawn_states = st.fixed_dictionaries({}, optional={"x": drawn_values})
delays_s = st.sampled_from([0.0, 0.0, 0.1, 0.5, 1.0, 3.0])
_publishing = st.tuples(st.just("publish"), drawn_publications, delays_s)
actions = st.one_of(
    *[_publishing] * 5,
    st.tuples(st.just("cut"), st.none(), st.none()),
    st.tuples(st.just("add"), ranked_texts(), st.sampled_from([-1.0, 0.0, 0.0, 1.0])),
    st.tuples(st.just("remove"), st.integers(0, 20), st.none()),
    st.tuples(st.just("state"), drawn_states, st.integers(0, 20)),
    st.tuples(st.just("empty"), st.none(), st.none()),
    st.tuples(st.just("save"), st.none(), st.none()),
)


def tell(story: Story, number: int, action: tuple[str, Any, Any]) -> None:
    what, first, second = action
    live = sorted(story.model.windows)
    if what == "publish":
        story.publish(first, second)
    elif what == "cut":
        story.cut()
    elif what == "add":
        story.add(100 + number, first, story.now + second, {"x": 1})
    elif what == "save":
        story.save_and_load()
    elif what == "empty":
        story.empty()
    elif live and what == "remove":
        story.remove(live[first % len(live)])
    elif live:
        story.set_state(live[second % len(live)], first)


@examples(150)
@given(
    st.lists(ranked_texts(), min_size=1, max_size=6),
    drawn_states,
    st.lists(actions, max_size=40),
)
def test_every_story_ends_alike(
    texts: list[str], me: dict[str, Any], actions: list[tuple[str, Any, Any]]
) -> None:
    story = Story()
    for id, text in enumerate(texts):
        story.add(id, text, 0.0, me)
    for number, action in enumerate(actions):
        tell(story, number, action)
    story.end()


@examples(60)
@given(
    st.sampled_from(SCORES),
    st.booleans(),
    st.lists(st.tuples(strategies.numbers, strategies.numbers), min_size=1, max_size=25),
)
def test_edges_of_numbers(
    score: str, descending: bool, stream: list[tuple[int | float, int | float]]
) -> None:
    story = Story()
    order = "DESC" if descending else "ASC"
    text = f"ORDER BY {score} {order} LIMIT 2 WITHIN 4 SECONDS"
    story.add(1, text, 0.0, {"x": 2**53 + 1})
    story.add(2, text.replace("4 SECONDS", "4 PUBLICATIONS"), 0.5, {"x": 2.0})
    for number, (a, b) in enumerate(stream):
        story.publish({"a": a, "b": b}, 0.25 * (number % 3))
    story.end()


@pytest.mark.parametrize("seed", range(3))
def test_long_stories(seed: int) -> None:
    random, story = Random(seed), Story()
    for id in range(30):
        score = random.choice(("a", "b DESC", "a + b", "abs(a - me.x)", "a * 0.5 - t DESC"))
        window = random.choice(("0.4 SECONDS", "2 SECONDS", "5 PUBLICATIONS", "30 PUBLICATIONS"))
        k = random.randrange(1, 5)
        story.add(id, f"a > 1 ORDER BY {score} LIMIT {k} WITHIN {window}", 0.0, {"x": 5})
    for _ in range(300):
        said = {"a": random.randrange(12), "b": random.choice((random.random(), 3, 0))}
        story.publish(said, random.choice((0.0, 0.01, 0.05)))
        if random.random() < 0.1:
            story.set_state(random.randrange(30), {"x": random.randrange(10)})
        if random.random() < 0.02:
            story.cut()
    story.end()
    assert len(story.told) > 2_000


def test_many_members_and_many_told_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rove.match.ranked.members._DELIVERY_ROOM", 500)
    story = Story()
    for id in range(10):
        story.add(id, f"a > {id % 3} ORDER BY a LIMIT 200 WITHIN 3 SECONDS", 0.0, {})
    for number in range(400):
        story.publish({"a": number * 7_919 % 1_000}, 0.01)
    story.end()
    assert len(story.told) > 3_000


def test_a_start_anew_without_a_moment_tells_nothing_more() -> None:
    pool = RankedPool(shares=False)
    pool.add(1, "ORDER BY a LIMIT 1 WITHIN 1 SECOND")
    inputs = Inputs([{"a": 1}, {"a": 2}, {"a": 3}], np.array([0.0, 0.5, 9.0]))
    pool.empty(2)
    every = np.arange(3), np.ones(3, np.int64)
    assert [one[2] for one in told(pool.run(inputs, np.arange(3), *every))] == [0, 2]
    assert pool.live_sequences().tolist() == [2]


def test_what_is_unknown_is_told() -> None:
    pool = RankedPool(shares=False)
    with pytest.raises(KeyError):
        pool.end(1, 0.0)
    pool.add(1, "ORDER BY a LIMIT 1 WITHIN 1 SECOND")
    with pytest.raises(ValueError, match="1 is there already"):
        pool.add(1, "ORDER BY b LIMIT 1 WITHIN 1 SECOND")
    with pytest.raises(KeyError, match="2"):
        pool.run(Inputs([{}], np.zeros(1)), np.zeros(1, int), np.zeros(1, int), np.array([2]))
    pool.end(1, 0.0)
    with pytest.raises(KeyError):
        pool.end(1, 0.0)


# --- one by one, by hand --------------------------------------------------------------------------


def keys(deliveries: list[RankedDelivery]) -> list[object]:
    return [delivery.key for delivery in deliveries]


def test_who_can_never_be_delivered_is_dropped() -> None:
    pool = RankedPool(shares=False)
    pool.add(1, parse("ORDER BY a LIMIT 2 WITHIN 1 HOUR"))
    for number in range(2_000):
        pool.enter({"a": -number}, number / 10, ALL)
        assert len(pool.take_deliveries()) == 1
    assert pool.live_sequences().size <= 8
    assert pool.live_sequences()[-2:].tolist() == [1_998, 1_999]
    for number in range(2_000, 2_100):
        pool.enter({"a": number}, number / 10, ALL)
        assert len(pool.take_deliveries()) == 0
    assert pool.live_sequences().size >= 102


def test_the_better_of_the_rest_moves_up_when_the_best_leaves() -> None:
    ranked = Windows(shares=False)
    ranked.add(1, parse("ORDER BY a DESC LIMIT 1 WITHIN 10 SECONDS"))
    assert keys(ranked.publish("best", {"a": 9}, 0.0, ALL)) == ["best"]
    assert ranked.publish("good", {"a": 7}, 1.0, ALL) == []
    assert ranked.publish("late", {"a": 5.5}, 2.0, ALL) == []
    assert ranked.next_change_at() == 10.0
    assert ranked.advance(9.999) == []
    (up,) = ranked.advance(10.0)
    assert (up.key, up.at, up.score, up.promoted) == ("good", 10.0, 7, True)
    assert [(up.key, up.at) for up in ranked.advance(50.0)] == [("late", 11.0)]
    assert ranked.next_change_at() == math.inf


def test_a_window_of_the_last_n_counts_members_only() -> None:
    ranked = Windows(shares=False)
    ranked.add(1, parse("kind = 'air' ORDER BY a LIMIT 1 WITHIN 2 PUBLICATIONS"))
    assert keys(ranked.publish("x", {"a": 1}, 0.0, ALL)) == ["x"]
    assert ranked.publish("not matched", {"a": 0}, 0.0, NOBODY) == []
    assert ranked.publish("without a score", {"a": "?"}, 0.0, ALL) == []
    assert ranked.publish("y", {"a": 3}, 0.0, ALL) == []
    third = ranked.publish("z", {"a": 5}, 0.0, ALL)
    assert [(up.key, up.promoted) for up in third] == [("y", True)]
    assert ranked.next_change_at() == math.inf


def test_the_state_of_the_moment_of_arrival_counts() -> None:
    ranked = Windows(shares=False)
    ranked.add(1, parse("ORDER BY abs(a - me.x) LIMIT 1 WITHIN 10 SECONDS"), 0.0, {"x": 0})
    assert keys(ranked.publish("near 0", {"a": 1}, 0.0, ALL)) == ["near 0"]
    ranked.set_state(1, {"x": 100})
    assert ranked.publish("near 98", {"a": 98}, 1.0, ALL) == []
    ranked.set_state(1, {})
    assert ranked.publish("no state", {"a": 100}, 2.0, ALL) == []
    ranked.set_state(1, {"x": 100.5})
    assert keys(ranked.publish("near 100", {"a": 100}, 3.0, ALL)) == ["near 100"]


def test_what_matched_but_is_not_ranked_is_passed_over() -> None:
    ranked = Windows(shares=False)
    ranked.add(5, parse("b = 1 ORDER BY a LIMIT 1 WITHIN 1 HOUR"))
    found = ranked.publish("x", {"a": 1, "b": 1}, 0.0, np.array([3, 5, 9], np.int64))
    assert [(one.subscription, one.score) for one in found] == [(5, 1)]


@pytest.mark.parametrize("k", [1, 10, 10_000])
def test_a_large_k_has_room_to_be_told(k: int) -> None:
    ranked = Windows(shares=False)
    for id in range(3):
        ranked.add(id, parse(f"ORDER BY a LIMIT {k} WITHIN 1 HOUR"))
    delivered = 0
    for number in range(50):
        delivered += len(ranked.publish(number, {"a": -number}, float(number), np.arange(3)))
    assert delivered == 150
