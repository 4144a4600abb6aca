"""The door to the room: everything together in one matcher, against the oracle over a stream."""

import math
import pickle
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import LanguageError, LimitError, Subscription, matches, parse
from rove.lang.errors import PublicationError
from rove.lang.replay import RankedWindow, Replay
from rove.lang.values import change_state
from rove.match.designs.design import Evolve, parse_evolve
from rove.match.index import index as index_module
from rove.match.matcher import EXACT, Matcher, Work
from rove.testing import strategies
from tests.effort import examples

Publication = dict[str, Any]
Encounter = tuple[Subscription, Publication, float, Publication]
LEES = parse_evolve("lees")
TOO_MANY = " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(10))
NEAREST = "x > 0 ORDER BY x LIMIT 1 WITHIN 10 SECONDS"


def ids(matcher: Matcher, publication: Publication, at: float = 0.0) -> list[int]:
    found = sorted(matcher.match([publication], [at]).subscriptions.tolist())
    assert sorted(matcher.match_one(publication, at).tolist()) == found
    return found


# -- against the oracle ----------------------------------------------------------------------


@pytest.mark.parametrize("publication", [{"a": 2, "b": 2}, {"a": "x", "b": "x"}, {"a": True}])
@pytest.mark.parametrize("text", ["+a = b", "a = +b", "+a <= 2", "a = +me.x", "+me.x <= b"])
def test_a_sign_leaves_a_string_without_a_value_in_every_engine(
    text: str, publication: Publication
) -> None:
    subscription = parse(text)
    for me in ({"x": 2}, {"x": "x"}):
        expected = matches(subscription, publication, 0.0, me)
        assert expected is (type(publication["a"]) is int and not (me["x"] == "x" and "me" in text))
        for number, evolve in enumerate((EXACT, LEES, Evolve("pes", 1.0), Evolve("clees", 1.0))):
            matcher = Matcher()
            matcher.add(number, subscription, 0.0, me, evolve)
            assert ids(matcher, publication) == [number] * expected
            matcher.compact()
            assert ids(matcher, publication) == [number] * expected


class Script:
    """Random changes of a matcher and of a model beside it, and publications in order of time."""

    def __init__(self, drawn: list[Encounter], seed: int) -> None:
        self.random = Random(seed)
        self.drawn = drawn
        self.matcher = Matcher()
        self.live: dict[int, tuple[Subscription, float, Publication, RankedWindow | None]] = {}
        self.now = 0.0
        self.published = 0
        self.running: Work | None = None

    def step(self, id: int) -> None:
        what = self.random.random()
        chosen = self.random.choice(list(self.live)) if self.live else None
        if what < 0.55 or chosen is None:
            self.put(id)
        elif what < 0.65:
            self.put(chosen)
        elif what < 0.75:
            self.matcher.remove(chosen)
            del self.live[chosen]
        elif what < 0.85:
            changes = self.random.choice(self.drawn)[3]
            self.matcher.set_state(chosen, changes)
            change_state(self.live[chosen][2], changes)
        else:
            self.now += self.random.choice([0.0, 0.25, 1.0, 40.0])
            self.publish()
        self.work()

    def put(self, id: int) -> None:
        """Add a subscription, or put it in the place of another."""
        subscription, _, _, me = self.random.choice(self.drawn)
        accepted_at = self.random.choice([self.now, self.now, self.now + 0.5])
        evolve = EXACT if subscription.rank else self.random.choice([EXACT, EXACT, LEES])
        change = self.matcher.replace if id in self.live else self.matcher.add
        try:
            change(id, subscription, accepted_at, me, evolve)
        except LimitError:
            return
        window = RankedWindow(subscription, accepted_at) if subscription.rank else None
        self.live[id] = subscription, accepted_at, dict(me), window

    def publish(self) -> None:
        publications = [self.random.choice(self.drawn)[1] for _ in range(3)]
        at = [self.now, self.now, self.now + 0.25]
        self.now = at[-1]
        found = self.matcher.match(publications, at)
        assert (np.diff(found.publications) >= 0).all()
        starts = found.starts(3)
        for number, (publication, moment) in enumerate(zip(publications, at, strict=True)):
            got = sorted(found.subscriptions[starts[number] : starts[number + 1]].tolist())
            assert got == self.expected(publication, moment)
        assert told(found.ranked) == self.delivered(publications, at)
        self.published += 3

    def expected(self, publication: Publication, at: float) -> list[int]:
        return sorted(
            id
            for id, (subscription, accepted_at, me, window) in self.live.items()
            if window is None
            and at >= accepted_at
            and matches(subscription, publication, at - accepted_at, me)
        )

    def delivered(self, publications: list[Publication], at: list[float]) -> list[Any]:
        found = [
            (id, one.key, one.at, one.score, one.promoted)
            for id, (_, _, me, window) in self.live.items()
            if window is not None
            for number, publication in enumerate(publications)
            for one in window.publish(publication, at[number], me, self.published + number)
        ]
        return sorted(found, key=lambda each: each[0])

    def work(self) -> None:
        """Begin, do or install what is due."""
        if self.random.random() < 0.5:
            return
        if self.running is None:
            self.running = self.matcher.merge_due()
        else:
            self.matcher.install(self.running.run())
            self.running = None


def told(deliveries: Any) -> list[Any]:
    """By subscription; for each in the order in which it was delivered."""
    found = [(d.subscription, d.key, d.at, d.score, d.promoted) for d in deliveries]
    return sorted(found, key=lambda each: each[0])


@examples(50)
@given(st.lists(strategies.encounters(), min_size=1, max_size=10), st.integers(0, 2**32))
def test_everything_together_is_what_the_oracle_says(drawn: list[Encounter], seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_module, "FRESH_MAX", 4)
        patch.setattr(index_module, "MERGE_WIDTH", 3)
        script = Script(drawn, seed)
        for id in range(60):
            script.step(id)
        script.matcher.compact()
        script.publish()
        assert len(script.matcher) == len(script.live)
        assert all(id in script.matcher for id in script.live)


def test_a_stream_is_what_its_replay_is() -> None:
    texts = [
        "NO2 > 40",
        "x BETWEEN -3 + t AND 3 + t",
        "x > me.x",
        "NO2 > 10 ORDER BY NO2 DESC LIMIT 2 WITHIN 3 SECONDS",
        "ORDER BY abs(x - me.x) LIMIT 1 WITHIN 4 PUBLICATIONS",
    ]
    replay, matcher, random = Replay(), Matcher(), Random(3)
    for id, text in enumerate(texts):
        replay.subscribe(str(id), text, 0.0, {"x": id})
        matcher.add(id, parse(text), 0.0, {"x": id})
    for number in range(200):
        at = number * 0.37
        if number % 20 == 7:
            replay.set_state("4", {"x": number})
            matcher.set_state(4, {"x": number})
        publication = {"NO2": random.randrange(80), "x": random.randrange(-20, 80)}
        expected = [
            (each.subscription, each.publication, each.at, each.score, each.promoted)
            for each in replay.publish(str(number), publication, at)
        ]
        found = matcher.match([publication], [at], [str(number)])
        got: list[Any] = [(str(id), str(number), at, None, False) for id in found.subscriptions]
        got += [(str(d.subscription), d.key, d.at, d.score, d.promoted) for d in found.ranked]
        assert sorted(got, key=repr) == sorted(expected, key=repr)


# -- subscriptions ---------------------------------------------------------------------------


class TestChanges:
    def test_t_counts_from_acceptance(self) -> None:
        matcher = Matcher()
        matcher.add(1, parse("x > t"), accepted_at=10.0)
        assert ids(matcher, {"x": 2}, 9.0) == []
        assert ids(matcher, {"x": 2}, 11.0) == [1]
        assert ids(matcher, {"x": 2}, 12.0) == []

    @pytest.mark.parametrize("evolve", ["exact", "lees", "pes 1s", "clees 1s"])
    def test_a_state_moves_its_subscription(self, evolve: str) -> None:
        matcher = Matcher()
        matcher.add(
            1, parse("x > me.x AND y = me.y"), me={"x": 5, "y": 1}, evolve=parse_evolve(evolve)
        )
        assert ids(matcher, {"x": 4, "y": 1}) == []
        matcher.set_state(1, {"x": 3})
        assert ids(matcher, {"x": 4, "y": 1}) == [1]
        matcher.set_state(1, {"x": None})
        assert ids(matcher, {"x": 4, "y": 1}) == []

    def test_a_state_moves_a_rank(self) -> None:
        matcher = Matcher()
        matcher.add(1, parse("x > me.x ORDER BY abs(x - me.y) LIMIT 1 WITHIN 1 HOUR"), me={"y": 0})
        assert not matcher.match([{"x": 5}], [0.0]).ranked
        matcher.set_state(1, {"x": 1, "y": 7})
        (delivery,) = matcher.match([{"x": 5}], [1.0]).ranked
        assert delivery.score == 2

    @pytest.mark.parametrize("text", ["x > me.x", "x > me.x ORDER BY x LIMIT 1 WITHIN 1 HOUR"])
    def test_a_state_is_gone_with_its_subscription(self, text: str) -> None:
        matcher = Matcher()
        matcher.add(1, parse("x > me.x"), me={"x": 1})
        matcher.remove(1)
        matcher.add(1, parse(text))
        matcher.set_state(1, {"y": 1})
        found = matcher.match([{"x": 5}], [0.0])
        assert not len(found.subscriptions)
        assert not found.ranked

    def test_what_the_caller_does_with_its_state_later_changes_nothing(self) -> None:
        matcher, me = Matcher(), {"x": 1}
        matcher.add(1, parse("x + y > me.x"), me=me)
        me["x"] = 100
        assert ids(matcher, {"x": 1, "y": 1}) == [1]

    @pytest.mark.parametrize("text", ["x > 1", NEAREST, "ORDER BY x LIMIT 1 WITHIN 1 HOUR"])
    @pytest.mark.parametrize("evolve", [EXACT, LEES])
    def test_all_kinds_come_and_go(self, text: str, evolve: Evolve) -> None:
        subscription = parse(text)
        evolve = EXACT if subscription.rank else evolve
        matcher = Matcher()
        matcher.add(1, subscription, evolve=evolve)
        assert 1 in matcher
        assert len(matcher) == 1
        with pytest.raises(LanguageError, match="already a subscription 1"):
            matcher.add(1, parse("x > 2"))
        matcher.remove(1)
        assert 1 not in matcher
        assert len(matcher) == 0
        with pytest.raises(KeyError):
            matcher.remove(1)
        with pytest.raises(KeyError):
            matcher.set_state(1, {})
        found = matcher.match([{"x": 5}], [0.0])
        assert not len(found)
        assert not found.ranked

    @pytest.mark.parametrize("text", ["TRUE", "x > 1"])
    def test_a_rank_that_came_from_another_process_delivers_once(self, text: str) -> None:
        """Its TRUE is not the very object that ours is."""
        subscription = parse(f"{text} ORDER BY x LIMIT 1 WITHIN 2 PUBLICATIONS")
        matcher = Matcher()
        matcher.add(1, pickle.loads(pickle.dumps(subscription)))
        matcher.set_state(1, {"y": 1})
        assert len(matcher.match([{"x": 5}], [0.0]).ranked) == 1
        matcher.remove(1)
        assert not matcher.match([{"x": 4}], [1.0]).ranked

    def test_one_kind_takes_the_place_of_another(self) -> None:
        matcher = Matcher()
        matcher.add(1, parse("x > 1"))
        matcher.replace(1, parse("x > t"), evolve=LEES)
        assert ids(matcher, {"x": 1}) == [1]
        matcher.replace(1, parse(NEAREST))
        found = matcher.match([{"x": 1}], [0.0])
        assert not len(found)
        assert [each.subscription for each in found.ranked] == [1]
        matcher.replace(1, parse("x > 2"))
        assert ids(matcher, {"x": 3}) == [1]
        assert len(matcher) == 1


class TestRefusals:
    @pytest.mark.parametrize("id", [-1, 2**63, 2**70])
    def test_ids_are_integers_of_64_bits(self, id: int) -> None:
        matcher = Matcher()
        with pytest.raises(LanguageError, match="is no id"):
            matcher.add(id, parse("x > 1"))
        assert len(matcher) == 0

    def test_the_largest_id_is_one(self) -> None:
        matcher = Matcher()
        matcher.add(2**63 - 1, parse("x > 1 OR y > 1"))
        matcher.compact()
        assert ids(matcher, {"x": 2, "y": 2}) == [2**63 - 1]

    @pytest.mark.parametrize("accepted_at", [math.nan, math.inf])
    def test_a_subscription_is_accepted_at_some_time(self, accepted_at: float) -> None:
        with pytest.raises(LanguageError, match="finite time"):
            Matcher().add(1, parse("x > 1"), accepted_at)

    @pytest.mark.parametrize(
        ("text", "me", "evolve"),
        [
            (TOO_MANY, {}, EXACT),
            ("x > me.x", {"x": math.nan}, EXACT),
            ("x > t", {}, Evolve("pes", None)),
            ("x > t", {}, Evolve("clees", 1e-9)),
            ("x > t", {}, Evolve("pes", math.inf)),
            ("x > t", {}, Evolve("other")),  # type: ignore[arg-type]
            (NEAREST, {}, LEES),
            (NEAREST, {"x": math.inf}, EXACT),
        ],
    )
    @pytest.mark.parametrize("old", ["x > me.old", "x > me.old ORDER BY x LIMIT 1 WITHIN 1 HOUR"])
    def test_what_is_refused_leaves_everything_as_it_was(
        self, text: str, me: dict[str, object], evolve: Evolve, old: str
    ) -> None:
        matcher = Matcher()
        matcher.add(1, parse(old), me={"old": 1})
        with pytest.raises(LanguageError):
            matcher.replace(1, parse(text), 0.0, me, evolve)
        with pytest.raises(LanguageError):
            matcher.add(2, parse(text), 0.0, me, evolve)
        assert 2 not in matcher
        assert len(matcher) == 1
        matcher.set_state(1, {"other": 1})
        found = matcher.match([{"x": 2}], [0.0])
        assert len(found) + len(found.ranked) == 1

    def test_an_unknown_subscription_cannot_be_replaced(self) -> None:
        matcher = Matcher()
        with pytest.raises(KeyError):
            matcher.replace(1, parse("x > 1"))
        assert len(matcher) == 0

    def test_a_state_that_nobody_may_see_is_refused(self) -> None:
        matcher = Matcher()
        matcher.add(1, parse("x > me.x"), me={"x": 1})
        with pytest.raises(PublicationError):
            matcher.set_state(1, {"x": 9, "y": math.nan})
        assert ids(matcher, {"x": 2}) == [1]

    @pytest.mark.parametrize("at", [[], [0.0, 0.0], [math.nan], [math.inf]])
    def test_times_that_are_none_are_refused(self, at: list[float]) -> None:
        matcher = Matcher()
        matcher.add(1, parse("x > 1"))
        with pytest.raises(PublicationError):
            matcher.match([{"x": 2}], at)

    def test_nothing_is_delivered_of_a_batch_that_is_refused(self) -> None:
        matcher = Matcher()
        matcher.add(1, parse(NEAREST))
        with pytest.raises(PublicationError, match="run back"):
            matcher.match([{"x": 5}, {"x": 4}], [5.0, 3.0])
        with pytest.raises(PublicationError, match="1 keys"):
            matcher.match([{"x": 5}, {"x": 4}], [5.0, 6.0], ["only one"])
        (delivery,) = matcher.match([{"x": 5}], [3.0]).ranked
        assert (delivery.key, delivery.score) == (0, 5)

    def test_boxes_take_no_id_that_is_taken(self) -> None:
        table = np.zeros((1, 1))
        for text, evolve in (("x > 1", EXACT), ("x > t", LEES), (NEAREST, EXACT)):
            matcher = Matcher()
            matcher.add(1, parse(text), evolve=evolve)
            with pytest.raises(LanguageError, match="already a subscription 1"):
                matcher.add_boxes(np.array([1]), ["x"], table, table + 1)
            assert len(matcher) == 1


# -- time ------------------------------------------------------------------------------------


def test_time_alone_moves_publications_up() -> None:
    matcher = Matcher()
    assert matcher.next_change_at() == math.inf
    matcher.add(1, parse(NEAREST))
    matcher.add(2, parse("ORDER BY x LIMIT 1 WITHIN 30 SECONDS"))
    matcher.match([{"x": 1}, {"x": 2}], [0.0, 4.0], ["best", "second"])
    assert matcher.next_change_at() <= 10.0
    assert matcher.advance(9.9) == []
    (moved,) = matcher.advance(10.0)
    assert (moved.subscription, moved.key, moved.at, moved.promoted) == (1, "second", 10.0, True)
    assert matcher.next_change_at() <= 30.0
    (moved,) = matcher.advance(100.0)
    assert (moved.subscription, moved.key, moved.at) == (2, "second", 30.0)


def test_designs_evolve_with_time_and_count_what_they_do() -> None:
    matcher = Matcher()
    matcher.add(1, parse("x > t"), evolve=parse_evolve("pes 2s"))
    matcher.add(2, parse("x > t"), evolve=LEES)
    assert matcher.next_change_at() == 2.0
    assert matcher.advance(3.0) == []
    assert matcher.next_change_at() == 4.0
    assert ids(matcher, {"x": 2.5}, 3.0) == [1], "as of the second second"
    assert matcher.counters().keys() == {"pes", "lees"}
    assert matcher.counters()["pes"].evolutions > 0


# -- many at once ----------------------------------------------------------------------------


def test_boxes_and_columns() -> None:
    matcher = Matcher()
    lows, highs = np.array([[0.0, 5.0, -math.inf]]), np.array([[10.0, 15.0, math.inf]])
    matcher.add_boxes(np.array([4, 5, 6]), ["x"], lows, highs)
    matcher.add(7, parse("x = 7"))
    found = matcher.match_columns(["x"], np.array([[7.0], [12.0], [math.nan]]), np.zeros(3))
    ends = found.starts(3)[1:-1]
    lists = [sorted(each.tolist()) for each in np.split(found.subscriptions, ends)]
    assert lists == [[4, 5, 6, 7], [5, 6], [6]]
    assert found.ranked == ()
    assert ids(matcher, {"x": 7}) == [4, 5, 6, 7]
    matcher.remove(5)
    assert ids(matcher, {"x": 12}) == [6]


def test_work_is_done_until_none_is_left() -> None:
    matcher = Matcher()
    for id in range(3_000):
        text = (
            f"x > {id} AND s LIKE '%{id}%'"
            if id % 2
            else f"x > {id} ORDER BY x LIMIT 1 WITHIN 1 DAY"
        )
        matcher.add(id, parse(text))
    matcher.merge_all()
    assert matcher.merge_due() is None
    assert matcher.nbytes > 0
    found = matcher.match([{"x": 1e6, "s": "1234567"}], [0.0])
    expected = [id for id in range(1, 3_000, 2) if str(id) in "1234567"]
    assert sorted(found.subscriptions.tolist()) == expected
    assert len(found.ranked) == 1_500


def test_prepared_for_a_time_long_ago_the_answers_are_the_same() -> None:
    matcher = Matcher()
    for id in range(700):
        matcher.add(id, parse(f"x BETWEEN {id} - t AND {id + 2} - t"), accepted_at=id % 5)
    matcher.match([{"x": 1}], [1e6])
    matcher.compact()
    publications = [{"x": 5.5}, {"x": 650.0}, {"x": 1.0}]
    at = [10.0, 40.0, 2.0]
    wanted = matcher.match(publications, at)
    matcher.prepare(2.0, 40.0)
    (segment,) = matcher.index.segments
    assert segment.begins_at <= 2.0
    assert segment.ends_at >= 40.0
    found = matcher.match(publications, at)
    assert len(found) == len(wanted) > 5
    pairs = [
        sorted(zip(each.publications.tolist(), each.subscriptions.tolist(), strict=True))
        for each in (found, wanted)
    ]
    assert pairs[0] == pairs[1]
    matcher.prepare(5.0, 6.0)
    assert matcher.index.segments == [segment], "that was covered already"


# -- saving ----------------------------------------------------------------------------------


def test_a_loaded_matcher_goes_on_where_the_saved_one_was() -> None:
    matcher = Matcher()
    matcher.add(1, parse("x > me.x AND s LIKE '%a%'"), me={"x": 1})
    matcher.add(2, parse("x > t"), evolve=parse_evolve("pes 2s"))
    matcher.add(3, parse("x > 0 ORDER BY x LIMIT 1 WITHIN 10 SECONDS"))
    matcher.add(4, parse("x + y > 3 OR s = 'a'"))
    matcher.add(5, parse("x > 1 AND x < 0"))
    matcher.match([{"x": 2}, {"x": 3}], [0.0, 1.0])
    loaded = Matcher.load(b"".join(matcher.save()))
    assert len(loaded) == len(matcher) == 5
    for each in (matcher, loaded):
        each.set_state(1, {"x": 0})
        found = each.match([{"x": 2.5, "s": "a", "y": 9}], [5.0])
        assert sorted(found.subscriptions.tolist()) == [1, 4]
        assert not found.ranked, "the first is still the best"
        each.remove(4)
        assert [(d.key, d.at) for d in each.advance(100.0)] == [(2, 10.0)]
        assert 4 not in each
        assert ids(each, {"x": 1, "s": "a"}, 200.0) == [1]
