"""Publications one by one, into lists and into skybands, against the window that says it plainly.

One drawn story (subscriptions come, go and change their state, publications come, time passes) is
told to three: to windows with lists, to windows that are skybands all of them, and to a
`RankedWindow` for each subscription. All three must deliver the same, in the same order. So must
what begins without kernels, and goes on with them.
"""

import math
import pickle
import subprocess
import sys
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import RankedWindow, Subscription, matches, parse
from rove.lang.replay import WindowDelivery
from rove.lang.tree import TRUE, Rank, Window, is_conditional
from rove.match import Matcher, RankedDelivery, engine
from rove.match.ranked.pool import RankedPool
from rove.match.ranked.windows import Windows
from rove.testing import strategies
from tests.effort import examples, is_soak

Told = list[tuple[int, object, float, str, bool]]


class Model:
    """A window for each subscription, asked one by one."""

    def __init__(self) -> None:
        self.windows: dict[int, tuple[Subscription, float, dict[str, Any], RankedWindow]] = {}

    def add(self, id: int, subscription: Subscription, accepted_at: float, me: Any) -> None:
        window = RankedWindow(subscription, accepted_at)
        self.windows[id] = subscription, accepted_at, me, window

    def set_state(self, id: int, me: dict[str, Any]) -> None:
        subscription, accepted_at, _, window = self.windows[id]
        self.windows[id] = subscription, accepted_at, me, window

    def matched(self, publication: dict[str, Any], at: float) -> list[int]:
        """The ids of those whose condition holds."""
        return [
            id
            for id, (subscription, accepted_at, me, _) in self.windows.items()
            if matches(subscription, publication, at - accepted_at, me)
        ]

    def publish(self, key: object, publication: dict[str, Any], at: float) -> Told:
        return self._told(
            [
                (id, found)
                for id, (_, _, me, window) in self.windows.items()
                for found in window.publish(publication, at, me, key)
            ]
        )

    def advance(self, now: float) -> Told:
        return self._told(
            [
                (id, found)
                for id, (_, _, _, window) in self.windows.items()
                for found in window.advance(now)
            ]
        )

    def next_change_at(self) -> float:
        return min((w.next_change_at() for *_, w in self.windows.values()), default=math.inf)

    @staticmethod
    def _told(found: list[tuple[int, Any]]) -> Told:
        found.sort(key=lambda pair: (pair[1].at, pair[0]))
        return [(id, one.key, one.at, repr(one.score), one.promoted) for id, one in found]


def told(deliveries: list[RankedDelivery]) -> Told:
    """Scores by their spelling: 1, 1.0 and -0.0 are not the same."""
    return [(d.subscription, d.key, d.at, repr(d.score), d.promoted) for d in deliveries]


def publish(
    windows: Windows, key: object, publication: dict[str, Any], at: float, matched: list[int]
) -> Told:
    deliveries = windows.publish(key, publication, at, np.array(matched, np.int64))
    assert all(
        delivery.publication is publication for delivery in deliveries if delivery.key == key
    )
    return told(deliveries)


@pytest.fixture(autouse=True, scope="module")
def _kernels_are_there() -> None:
    engine.warm_up()


class Story:
    """The same events for the model and for all implementations, compared at every step."""

    def __init__(self, spare: int = 0) -> None:
        self.model = Model()
        self.all = [Windows(spare=spare), Windows(shares=False)]
        self.now = 0.0
        self.delivered = 0

    def add(
        self, id: int, subscription: Subscription, accepted_at: float = 0.0, me: Any = None
    ) -> None:
        self.model.add(id, subscription, accepted_at, me or {})
        for ranked in self.all:
            ranked.add(id, subscription, accepted_at, me)

    def remove(self, id: int) -> None:
        del self.model.windows[id]
        for ranked in self.all:
            ranked.remove(id)

    def set_state(self, id: int, me: dict[str, Any]) -> None:
        self.model.set_state(id, me)
        for ranked in self.all:
            ranked.set_state(id, me)

    def publish(self, key: object, publication: dict[str, Any], after_s: float = 0.0) -> None:
        self.now += after_s
        matched = self.model.matched(publication, self.now)
        wanted = self.model.publish(key, publication, self.now)
        self.delivered += len(wanted)
        conditional = [id for id in matched if is_conditional(self.model.windows[id][0])]
        for ranked, shown in zip(self.all, (conditional, matched), strict=True):
            assert publish(ranked, key, publication, self.now, shown) == wanted, ranked

    def advance(self, after_s: float) -> None:
        self.now += after_s
        wanted = self.model.advance(self.now)
        self.delivered += len(wanted)
        for ranked in self.all:
            assert told(ranked.advance(self.now)) == wanted, ranked
            assert len(ranked) == len(self.model.windows)
            # Never too late; perhaps too early, since what will never be told is not kept.
            assert ranked.next_change_at() > self.now

    def save_and_load(self) -> None:
        self.all = [
            Windows.from_state(pickle.loads(pickle.dumps(ranked.state()))) for ranked in self.all
        ]


SCORES = (
    "a",
    "abs(a - 2)",
    "abs(a - 2.5)",
    "2 * a + 0.5 * b",
    "2 * a + 3 * b",
    "pow(a - 1, 2) + pow(b - 2, 2)",
    "(a - 0.5) * (a - 0.5) + (b - 2.5) * (b - 2.5)",
    "distance(a, b, 1, 2)",
    "a / b",
    "sqrt(a - 1)",
    "least(a, 2.5)",
    "greatest(a, b)",
    "floor(a) + ceil(b)",
    "sin(a)",
    "-a",
    "a * 0",
    "t",
    "a - t",
    "abs(a - me.x)",
    "me.x",
    "a + 9007199254740993",
    "7",
    "1 / 0",
    "a + 1 / 0",
    "a + -9223372036854775808",
    "- -9223372036854775808",
)
CONDITIONS = ("", "a > 1", "b <= me.x OR a = 2", "TRUE AND b < 3")
WINDOWS = ("1 SECOND", "2.5 SECONDS", "500 MILLISECONDS", "3 PUBLICATIONS", "1 PUBLICATION")


@st.composite
def ranked_texts(draw: st.DrawFn) -> Subscription:
    condition = draw(st.sampled_from(CONDITIONS))
    order = draw(st.sampled_from(["", " DESC"]))
    score, window = draw(st.sampled_from(SCORES)), draw(st.sampled_from(WINDOWS))
    text = f"{condition} ORDER BY {score}{order} LIMIT {draw(st.integers(1, 3))} WITHIN {window}"
    return parse(text)


small = st.sampled_from([0, 1, 2, 3, 0.0, -0.0, 0.5, 1.0, 1.5, 2.0, 2.5, -1])
odd = st.sampled_from([None, "a", True, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 1e308, [1]])
drawn_values = small | small | small | odd
drawn_publications = st.fixed_dictionaries({}, optional={"a": drawn_values, "b": drawn_values})
drawn_states = st.fixed_dictionaries({}, optional={"x": drawn_values})
delays_s = st.sampled_from([0.0, 0.0, 0.1, 0.5, 1.0, 3.0])

_publishing = st.tuples(st.just("publish"), drawn_publications, delays_s)
actions = st.one_of(
    _publishing,
    _publishing,
    _publishing,
    _publishing,
    st.tuples(st.just("advance"), st.none(), delays_s),
    st.tuples(st.just("add"), ranked_texts(), st.sampled_from([-1.0, 0.0, 0.0, 1.0])),
    st.tuples(st.just("remove"), st.integers(0, 20), st.none()),
    st.tuples(st.just("state"), drawn_states, st.integers(0, 20)),
    st.tuples(st.just("save"), st.none(), st.none()),
)


def tell(story: Story, number: int, action: tuple[Any, Any, Any]) -> None:
    what, first, second = action
    live = sorted(story.model.windows)
    if what == "publish":
        story.publish(number, first, second)
    elif what == "advance":
        story.advance(second)
    elif what == "add":
        story.add(100 + number, first, story.now + second)
    elif what == "save":
        story.save_and_load()
    elif live and what == "remove":
        story.remove(live[first % len(live)])
    elif live:
        story.set_state(live[second % len(live)], first)


@examples(150)
@given(
    st.lists(ranked_texts(), min_size=1, max_size=6),
    drawn_states,
    st.lists(actions, max_size=40),
    st.sampled_from([0, 6]),
)
def test_every_story_ends_alike(
    subscriptions: list[Subscription],
    me: dict[str, Any],
    actions: list[tuple[Any, Any, Any]],
    spare: int,
) -> None:
    story = Story(spare)
    for id, subscription in enumerate(subscriptions):
        story.add(id, subscription, 0.0, me)
    for number, action in enumerate(actions):
        tell(story, number, action)
    story.advance(10.0)


any_rank = st.builds(
    Rank,
    strategies.number_values,
    st.booleans(),
    st.integers(1, 3),
    st.builds(Window, st.integers(1, 3), st.sampled_from(["SECONDS", "PUBLICATIONS"])),
)
any_ranked = st.builds(
    Subscription,
    st.just(TRUE) | strategies.conditions(strategies.static_predicates, 2),
    st.none(),
    any_rank,
)


@examples(150)
@given(
    st.lists(any_ranked, min_size=1, max_size=5),
    strategies.states,
    st.lists(st.tuples(strategies.publications, delays_s), max_size=15),
)
def test_any_score_over_any_values(
    subscriptions: list[Subscription],
    me: dict[str, Any],
    stream: list[tuple[dict[str, Any], float]],
) -> None:
    story = Story()
    for id, subscription in enumerate(subscriptions):
        story.add(id, subscription, 0.0, me)
    for number, (publication, after_s) in enumerate(stream):
        story.publish(number, publication, after_s)
    story.advance(10.0)


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
    story.add(1, parse(text), 0.0, {"x": 2**53 + 1})
    story.add(2, parse(text.replace("4 SECONDS", "4 PUBLICATIONS")), 0.5, {"x": 2.0})
    for number, (a, b) in enumerate(stream):
        story.publish(number, {"a": a, "b": b}, 0.25 * (number % 3))
    story.advance(10.0)


# --- larger, with many refills ------------------------------------------------------------------


def drifting(random: Random, number: int) -> dict[str, Any]:
    """Scores that get worse for a while and better for a while, so that lists run dry."""
    wave = 3 * math.sin(number / 40)
    return {"a": random.gauss(wave, 1), "b": random.randrange(-5, 5) + wave}


def many(random: Random, count: int) -> list[Subscription]:
    shapes = (
        "abs(a - {0})",
        "{0} * a + {1} * b",
        "pow(a - {0}, 2) + pow(b - {1}, 2)",
        "(a - {0}) * (a - {0}) + (b - {1}) * (b - {1})",
        "distance(a, b, {0}, {1})",
        "a - {0} * t",
    )
    texts = []
    for _ in range(count):
        constants = round(random.uniform(-3, 3), 3), round(random.uniform(-3, 3), 3)
        score = random.choice(shapes).format(*constants).replace("- -", "+ ")
        order, k = random.choice(("", " DESC")), random.choice((1, 2, 5))
        window = random.choice(("2 SECONDS", "1.5 SECONDS", "40 PUBLICATIONS"))
        condition = random.choice(("", "", "", "b > 0"))
        texts.append(f"{condition} ORDER BY {score}{order} LIMIT {k} WITHIN {window}")
    return [parse(text) for text in texts]


def test_many_of_them_over_a_long_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rove.match.ranked.pool._LOOSE_MIN", 20)
    refills: list[int] = []
    refill = RankedPool._refill

    def counted(pool: RankedPool, row: int) -> None:
        refills.append(row)
        refill(pool, row)

    monkeypatch.setattr(RankedPool, "_refill", counted)
    random = Random(5)
    pruned, strict = Windows(spare=0), Windows(shares=False)
    subscriptions = many(random, 300)
    conditional = [id for id, each in enumerate(subscriptions) if is_conditional(each)]
    for id, subscription in enumerate(subscriptions):
        pruned.add(id, subscription)
        strict.add(id, subscription)
    deliveries = 0
    for number in range(1_500 if is_soak() else 500):
        publication, at = drifting(random, number), number / 100
        is_met = publication["b"] > 0
        matched = [id for id in range(300) if is_met or id not in conditional]
        wanted = publish(strict, number, publication, at, matched)
        assert publish(pruned, number, publication, at, conditional if is_met else []) == wanted
        deliveries += len(wanted)
        if number % 5 == 0:
            id = random.randrange(300)
            for ranked in (pruned, strict):
                if id not in conditional:
                    ranked.remove(id)
                    ranked.add(id, subscriptions[id], at)
    assert told(pruned.advance(30.0)) == told(strict.advance(30.0))
    assert deliveries > 3_000
    assert len(refills) > 100


def test_scores_that_get_worse_and_worse_are_not_refilled_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refills: list[int] = []
    refill = RankedPool._refill

    def counted(pool: RankedPool, row: int) -> None:
        refills.append(row)
        refill(pool, row)

    monkeypatch.setattr(RankedPool, "_refill", counted)
    story = one("ORDER BY a LIMIT 2 WITHIN 100 SECONDS")
    for number in range(600):
        story.publish(number, {"a": float(number)}, 1.0)
    worse = len(refills)
    assert 1 < worse < 10
    for number in range(600):
        story.publish(number, {"a": -float(number)}, 1.0)
    assert len(refills) == worse
    (pruned, _) = story.all
    pool = pruned._pool
    assert pool is not None
    assert pool._members.rows["target"][pool._row_of[1]] == 4


def test_a_few_of_them_over_a_long_stream_and_the_plain_window() -> None:
    story, random = Story(), Random(7)
    for id, subscription in enumerate(many(random, 30)):
        story.add(id, subscription)
    for number in range(400):
        story.publish(number, drifting(random, number), 0.01 * random.choice((0, 1, 1, 5)))
    story.advance(5.0)
    assert story.delivered > 1_000


# --- by hand --------------------------------------------------------------------------------


def one(text: str) -> Story:
    story = Story()
    story.add(1, parse(text))
    return story


def test_what_leaves_makes_room_for_what_was_better_than_nothing() -> None:
    pruned = Windows()
    pruned.add(7, parse("ORDER BY a LIMIT 1 WITHIN 2 SECONDS"))
    nobody: list[int] = []
    assert publish(pruned, "x", {"a": 1}, 0.0, nobody) == [(7, "x", 0.0, "1", False)]
    assert publish(pruned, "y", {"a": 5.0}, 1.0, nobody) == []
    assert pruned.next_change_at() == 2.0
    assert told(pruned.advance(2.0)) == [(7, "y", 2.0, "5.0", True)]
    assert pruned.next_change_at() == 3.0
    assert told(pruned.advance(3.0)) == []
    assert pruned.next_change_at() == math.inf


def test_those_that_leave_in_one_moment_do_not_succeed_each_other() -> None:
    story = one("ORDER BY a LIMIT 1 WITHIN 2 SECONDS")
    for key, value in enumerate((1, 2, 3)):
        story.publish(key, {"a": value})
    story.publish("later", {"a": 9}, 1.0)
    story.advance(1.0)
    assert story.delivered == 2


def test_integers_that_no_float_holds_are_ranked_exactly() -> None:
    pruned = Windows()
    pruned.add(1, parse("ORDER BY a DESC LIMIT 1 WITHIN 1 MINUTE"))
    nobody: list[int] = []
    assert len(publish(pruned, 0, {"a": 2**53 + 1}, 0.0, nobody)) == 1
    assert publish(pruned, 1, {"a": float(2**53)}, 0.0, nobody) == []
    assert publish(pruned, 2, {"a": 2**53 + 2}, 0.0, nobody) == [
        (1, 2, 0.0, repr(2**53 + 2), False)
    ]
    assert publish(pruned, 3, {"a": 2**53 + 1}, 0.0, nobody) == []


@pytest.mark.parametrize("score", ["a", "a DESC", "t", "distance(a, b, a, b)", "7"])
def test_scores_without_a_constant_may_have_any_number_of_subscribers(score: str) -> None:
    story = Story()
    for id in range(150):
        story.add(id, parse(f"ORDER BY {score} LIMIT 2 WITHIN 5 SECONDS"))
        if id % 10 == 0:
            story.publish(id, {"a": id % 7, "b": 1.0}, after_s=0.5)
    story.save_and_load()
    story.publish("last", {"a": -1, "b": 2.0})
    story.advance(20.0)
    assert story.delivered > 150


def test_a_subscription_can_be_replaced_and_forgotten() -> None:
    for ranked in (Windows(), Windows(shares=False)):
        for text in ("ORDER BY a LIMIT 1 WITHIN 1 HOUR", "a > 0 ORDER BY a LIMIT 1 WITHIN 1 HOUR"):
            ranked.add(1, parse(text))
            with pytest.raises(ValueError, match="1 is there already"):
                ranked.add(1, parse(text))
            assert len(ranked) == 1
            ranked.remove(1)
            assert len(ranked) == 0
            with pytest.raises(KeyError):
                ranked.remove(1)
            with pytest.raises(KeyError):
                ranked.set_state(1, {})


def test_what_is_not_ranked_and_time_that_runs_back_are_refused() -> None:
    for ranked in (Windows(), Windows(shares=False)):
        with pytest.raises(ValueError, match="no ORDER BY"):
            ranked.add(1, parse("a > 1"))
        ranked.advance(5.0)
        with pytest.raises(ValueError, match="run back"):
            ranked.advance(4.0)
        with pytest.raises(ValueError, match="run back"):
            publish(ranked, 1, {}, 4.0, [])


def test_publications_are_not_kept_longer_than_somebody_may_want_them() -> None:
    for windows in (Windows(), Windows(shares=False)):
        windows.add(1, parse("ORDER BY a LIMIT 2 WITHIN 1 SECOND"))
        for number in range(5_000):
            publish(windows, number, {"a": number % 7}, number / 100, [1])
        assert len(windows._entries) < 2_500
        assert windows._pool is not None
        history = windows._pool._history
        assert len(history) in (100, 0)
        assert history.ats.size < 2_500


def test_what_may_still_be_delivered_is_known_by_its_key() -> None:
    index = Windows()
    index.add(1, parse("ORDER BY a LIMIT 1 WITHIN 5 SECONDS"))
    index.add(2, parse("b = 1 ORDER BY a LIMIT 1 WITHIN 9 SECONDS"))
    for number in range(4):
        index.publish(number, {"a": number, "b": 1}, 2.0 * number, np.array([2]))
    index.advance(7.0)
    assert set(index.live_keys()) == {0, 1, 2, 3}
    index.advance(9.5)
    assert set(index.live_keys()) == {1, 2, 3}
    index.advance(20.0)
    assert index.live_keys() == []


# --- before the kernels, and after ---------------------------------------------------------------

TEXT = "x > 0 ORDER BY x + me.x DESC LIMIT 2 WITHIN 3 SECONDS"
STREAM = [({"x": value}, at / 2) for at, value in enumerate([5, 3, 9, 1, 4, -1, 8, 2, 2, 7])]


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    with monkeypatch.context() as patch:
        patch.setattr(engine, "search_kernel", None)
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


def many_publications(random: Random, count: int) -> list[tuple[dict[str, object], float]]:
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
    for number, (publication, at) in enumerate(many_publications(random, 25)):
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


def told_of(
    id: int, deliveries: list[WindowDelivery]
) -> list[tuple[int, object, float, object, bool]]:
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


def test_time_does_not_run_back() -> None:
    windows = Windows()
    windows.advance(3.0)
    windows.advance(3.0)
    for earlier in (2.9, math.nan):
        with pytest.raises(ValueError, match="must not run back"):
            windows.advance(earlier)
