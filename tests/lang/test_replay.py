"""The oracle over a whole stream: notifications and refusals, windows, and JSON lines.

The windows are compared with a second reference that was written differently. `RankedWindow` keeps
members and a flag for what was delivered; the reference below keeps nothing: whenever something
happens it goes through the whole history again, for the k best that never were among them before.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import (
    LanguageError,
    PublicationError,
    RankedWindow,
    TextError,
    WindowDelivery,
    matches,
    parse,
    score_of,
)
from rove.lang.replay import (
    PublicationRecord,
    Replay,
    ReplayedNotification,
    StateRecord,
    SubscriptionRecord,
    read_publication,
    read_subscription,
)
from rove.lang.tree import Subscription
from rove.lang.values import admit
from rove.testing.strategies import publications, static_subscriptions
from tests.effort import examples


def told(notifications: list[ReplayedNotification]) -> list[str]:
    return [
        f"{one.at:g} {one.subscription} {one.publication}{' +' if one.promoted else ''}"
        for one in notifications
    ]


def test_every_subscription_hears_what_it_asked_for() -> None:
    replay = Replay()
    replay.subscribe("all", "TRUE")
    replay.subscribe("warm", "x > 20")
    replay.subscribe("cold", "x < 0")
    assert told(replay.publish("one", {"x": 25}, 1.0)) == ["1 all one", "1 warm one"]
    assert told(replay.publish("two", {"x": -5}, 1.0)) == ["1 all two", "1 cold two"]
    assert told(replay.publish("three", {}, 2.0)) == ["2 all three"]


def test_a_notification_carries_what_was_selected() -> None:
    replay = Replay()
    replay.subscribe("some", "SELECT x WHERE x > 0")
    replay.subscribe("best", "SELECT y ORDER BY x LIMIT 1 WITHIN 1 HOUR")
    assert replay.publish("one", {"x": 3, "y": 4}, 5.0) == [
        ReplayedNotification(5.0, "some", "one", {"x": 3}),
        ReplayedNotification(5.0, "best", "one", {"y": 4}, score=3, promoted=False),
    ]


def test_t_counts_from_each_acceptance() -> None:
    replay = Replay()
    replay.subscribe("early", "x < t")
    replay.subscribe("late", "x < t", accepted_at=10.0)
    assert told(replay.publish("one", {"x": 5}, 12.0)) == ["12 early one"]
    assert told(replay.publish("two", {"x": 5}, 16.0)) == ["16 early two", "16 late two"]


def test_nothing_is_heard_before_the_acceptance() -> None:
    replay = Replay()
    replay.subscribe("later", "TRUE", accepted_at=10.0)
    replay.subscribe("later best", "ORDER BY x LIMIT 1 WITHIN 1 HOUR", accepted_at=10.0)
    assert replay.publish("one", {"x": 1}, 9.0) == []
    assert told(replay.publish("two", {"x": 2}, 10.0)) == ["10 later two", "10 later best two"]


def test_state_moves_a_subscription() -> None:
    replay = Replay()
    replay.subscribe("here", "x BETWEEN me.x - 3 AND me.x + 3", me={"x": 0})
    assert told(replay.publish("one", {"x": 5}, 1.0)) == []
    replay.set_state("here", {"x": 4, "mood": "good"})
    assert told(replay.publish("two", {"x": 5}, 2.0)) == ["2 here two"]
    replay.set_state("here", {"mood": None})
    assert told(replay.publish("three", {"x": 5}, 3.0)) == ["3 here three"]
    replay.set_state("here", {"x": None})
    assert told(replay.publish("four", {"x": 5}, 4.0)) == []


def test_state_belongs_to_one_subscription_and_is_copied() -> None:
    replay = Replay()
    state: dict[str, object] = {"x": 1}
    for name in ("a", "b"):
        replay.subscribe(name, "me.x = 1", me=state)
    replay.set_state("a", {"x": 2})
    assert state == {"x": 1}
    assert told(replay.publish("one", {}, 1.0)) == ["1 b one"]


def test_windows_slide_in_order_of_time() -> None:
    replay = Replay()
    replay.subscribe("slow", "ORDER BY x LIMIT 1 WITHIN 10 SECONDS")
    replay.subscribe("fast", "ORDER BY x LIMIT 1 WITHIN 5 SECONDS")
    assert told(replay.publish("best", {"x": 1}, 0.0)) == ["0 slow best", "0 fast best"]
    assert told(replay.publish("next", {"x": 2}, 4.0)) == []
    assert told(replay.advance(4.9)) == []
    assert told(replay.advance(20.0)) == ["5 fast next +", "10 slow next +"]


def test_what_moves_up_comes_before_what_arrives() -> None:
    replay = Replay()
    replay.subscribe("all", "TRUE")
    replay.subscribe("best", "ORDER BY x LIMIT 1 WITHIN 10 SECONDS")
    replay.publish("one", {"x": 1}, 0.0)
    replay.publish("two", {"x": 2}, 5.0)
    heard = told(replay.publish("three", {"x": 0}, 10.0))
    assert heard == ["10 best two +", "10 all three", "10 best three"]


@examples(150)
@given(
    st.lists(static_subscriptions, min_size=1, max_size=3),
    st.lists(publications, max_size=4),
)
def test_a_replay_is_the_oracle_asked_again_and_again(texts: list[Any], stream: list[Any]) -> None:
    replay = Replay()
    for number, subscription in enumerate(texts):
        # Not through its text, which another test is about.
        replay.subscribe(str(number), "TRUE")
        replay._subscribers[str(number)].subscription = subscription
    for at, publication in enumerate(stream):
        heard = [one.subscription for one in replay.publish("p", publication, float(at))]
        expected = [str(i) for i, one in enumerate(texts) if matches(one, publication, float(at))]
        assert heard == expected


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3)), max_size=12))
def test_a_ranked_subscription_is_its_window(steps: list[tuple[int, int]]) -> None:
    text = "ORDER BY x LIMIT 2 WITHIN 4 SECONDS"
    replay, window, now = Replay(), RankedWindow(parse(text)), 0.0
    replay.subscribe("best", text)
    for step, x in steps:
        now += step
        heard = replay.publish("p", {"x": x}, now)
        assert [(one.at, one.score, one.promoted) for one in heard] == [
            (one.at, one.score, one.promoted) for one in window.publish({"x": x}, now)
        ]


# --- refusals ---------------------------------------------------------------------------------


def test_a_name_is_taken_once() -> None:
    replay = Replay()
    replay.subscribe("one", "TRUE")
    with pytest.raises(LanguageError, match="already a subscription 'one'"):
        replay.subscribe("one", "FALSE")


def test_a_refused_subscription_leaves_its_name_free() -> None:
    replay = Replay()
    with pytest.raises(TextError):
        replay.subscribe("one", "x >")
    many = " AND ".join(f"(x{i} = 1 OR y{i} = 1)" for i in range(8))
    with pytest.raises(LanguageError, match="conjunctions"):
        replay.subscribe("one", many)
    with pytest.raises(PublicationError):
        replay.subscribe("one", "TRUE", me={"x": float("nan")})
    for never in (float("inf"), float("nan")):
        with pytest.raises(LanguageError, match="finite"):
            replay.subscribe("one", "TRUE", accepted_at=never)
    replay.subscribe("one", "TRUE")


def test_state_of_nobody_is_refused() -> None:
    with pytest.raises(LanguageError, match="no subscription 'one'"):
        Replay().set_state("one", {"x": 1})


def test_state_that_no_runtime_may_see_is_refused() -> None:
    replay = Replay()
    replay.subscribe("one", "me.x = 1", me={"x": 1})
    with pytest.raises(PublicationError):
        replay.set_state("one", {"x": float("inf")})
    assert told(replay.publish("p", {}, 0.0)) == ["0 one p"]


def test_time_does_not_go_back() -> None:
    replay = Replay()
    replay.publish("one", {}, 5.0)
    replay.publish("two", {}, 5.0)
    with pytest.raises(PublicationError, match="time cannot go from 5 s to 4 s"):
        replay.publish("three", {}, 4.0)
    for never in (float("inf"), float("nan")):
        with pytest.raises(PublicationError, match="time cannot go"):
            replay.advance(never)
    assert replay.now == 5.0


def test_a_refused_publication_reaches_nobody() -> None:
    replay = Replay()
    replay.subscribe("best", "ORDER BY x LIMIT 1 WITHIN 10 SECONDS")
    with pytest.raises(PublicationError):
        replay.publish("bad", {"x": 1, "deep": [{"y": float("nan")}]}, 1.0)
    assert told(replay.publish("good", {"x": 2}, 0.5)) == ["0.5 best good"]


# --- the second judge -------------------------------------------------------------------------


class Arrival(NamedTuple):
    """A publication and when it came."""

    at: float
    publication: dict[str, Any]
    me: dict[str, Any]


def scored(
    subscription: Subscription, history: list[Arrival], accepted_at: float
) -> dict[int, Any]:
    """Index in the history to score, for what may enter the window."""
    found = {}
    for index, (at, publication, me) in enumerate(history):
        t = at - accepted_at
        if at >= accepted_at and matches(subscription, publication, t, me):
            score = score_of(subscription, publication, t, me)
            if score is not None:
                found[index] = score
    return found


def best_at(
    subscription: Subscription,
    history: list[Arrival],
    scores: dict[int, Any],
    now: float,
    seen: int,
) -> list[int]:
    """The k best at `now`, the best first, when `seen` publications of the history have come."""
    rank = subscription.rank
    assert rank is not None
    present = [index for index in scores if index < seen]
    if rank.window.publications is not None:
        present = present[-rank.window.publications :]
    else:
        present = [i for i in present if now < history[i].at + rank.window.seconds]
    present.sort(reverse=True)  # newer first; sorting again is stable
    present.sort(key=lambda i: scores[i], reverse=rank.descending)
    return present[: rank.k]


def expected(
    text: str, history: list[Arrival], accepted_at: float, end: float
) -> list[tuple[float, int, bool]]:
    """(moment, index in the history, promoted) of every delivery until `end`."""
    subscription = parse(text)
    assert subscription.rank is not None
    scores = scored(subscription, history, accepted_at)
    span = subscription.rank.window.seconds
    # At equal moments: first what leaves, then what arrives, in the order of arrival.
    moments = [(history[i].at + span, -1) for i in scores if math.isfinite(span)]
    moments += [(arrival.at, index) for index, arrival in enumerate(history)]
    found: list[tuple[float, int, bool]] = []
    done: set[int] = set()
    for now, arriving in sorted(moments):
        if now > end:
            break
        seen = arriving + 1 if arriving >= 0 else sum(arrival.at < now for arrival in history)
        for index in best_at(subscription, history, scores, now, seen):
            if index not in done:
                done.add(index)
                found.append((now, index, index != arriving))
    return found


def observed(
    text: str, history: list[Arrival], accepted_at: float, end: float
) -> list[tuple[float, int, bool]]:
    window = RankedWindow(parse(text), accepted_at)
    found: list[WindowDelivery] = []
    for index, (at, publication, me) in enumerate(history):
        found += window.publish(publication, at, me, key=index)
    found += window.advance(end)
    return [(one.at, int(str(one.key)), one.promoted) for one in found]


# --- both judges agree ------------------------------------------------------------------------

scores = st.sampled_from([-5, -1, -0.5, 0, 0.0, 1, 1.0, 2, 2**53, 2**53 + 1, "no number", None])
steps = st.sampled_from([0, 0, 0.25, 0.5, 1, 1, 2, 3, 7])
publications = st.fixed_dictionaries({"x": scores}, optional={"y": st.sampled_from([0, 1, 9])})
texts = st.builds(
    "{} ORDER BY {} {} LIMIT {} WITHIN {}".format,
    st.sampled_from(["x > -3", "TRUE", "y > 0 OR x < 1", "t < 9"]),
    st.sampled_from(["x", "-x", "x + t", "abs(x - me.x)", "y", "1"]),
    st.sampled_from(["", "DESC"]),
    st.sampled_from([1, 2, 3, 50]),
    st.sampled_from(["1 SECOND", "2 SECONDS", "2.5 SECONDS", "1 MINUTE", "1 PUBLICATION",
                     "3 PUBLICATIONS", "9 PUBLICATIONS"]),
)  # fmt: skip
states = st.fixed_dictionaries({}, optional={"x": st.sampled_from([-1, 0, 2])})


@st.composite
def histories(draw: st.DrawFn) -> list[Arrival]:
    now = draw(st.sampled_from([-2.0, 0.0]))
    found = []
    for publication in draw(st.lists(publications, max_size=12)):
        now += draw(steps)
        found.append(Arrival(now, publication, draw(states)))
    return found


@examples(650)
@given(texts, histories(), st.sampled_from([-2.0, 0.0, 1.5]))
def test_both_judges_agree(text: str, history: list[Arrival], accepted_at: float) -> None:
    found = observed(text, history, accepted_at, end=100.0)
    assert found == expected(text, history, accepted_at, end=100.0)
    assert len({index for _, index, _ in found}) == len(found), "delivered twice"
    assert [at for at, _, _ in found] == sorted(at for at, _, _ in found)


@examples(150)
@given(texts, histories(), st.lists(st.integers(0, 40), max_size=5))
def test_it_does_not_matter_how_often_time_is_told(
    text: str, history: list[Arrival], ticks: list[int]
) -> None:
    window = RankedWindow(parse(text))
    found: list[WindowDelivery] = []
    for arrival in history:
        for tick in sorted(ticks):
            if tick <= arrival.at:
                found += window.advance(tick)
        found += window.publish(arrival.publication, arrival.at, arrival.me)
    found += window.advance(100)
    told_once = observed(text, history, 0.0, end=100.0)
    assert [(one.at, one.promoted) for one in found] == [(at, up) for at, _, up in told_once]


# --- by hand ----------------------------------------------------------------------------------


class Story(NamedTuple):
    """Scores that arrive at moments, and what is delivered: `at: score`, + if it moved up."""

    name: str
    rank: str
    arrivals: list[tuple[float, Any]]
    delivered: list[str]


STORIES = [
    Story("the best come through, the rest waits", "ORDER BY x LIMIT 1 WITHIN 1 MINUTE",
          [(0, 5), (1, 7), (2, 3)], ["0: 5", "2: 3"]),
    Story("what waited moves up when a better one leaves", "ORDER BY x LIMIT 1 WITHIN 10 SECONDS",
          [(0, 1), (4, 7), (30, 9)], ["0: 1", "10: 7 +", "30: 9"]),
    Story("moving up happens in order of time", "ORDER BY x LIMIT 1 WITHIN 10 SECONDS",
          [(0, 1), (1, 2), (2, 3), (50, 9)], ["0: 1", "10: 2 +", "11: 3 +", "50: 9"]),
    Story("what leaves before its turn is never delivered", "ORDER BY x LIMIT 1 WITHIN 10 SECONDS",
          [(0, 7), (1, 9), (2, 1), (50, 5)], ["0: 7", "2: 1", "50: 5"]),
    Story("descending: higher is better", "ORDER BY x DESC LIMIT 1 WITHIN 1 MINUTE",
          [(0, 5), (1, 3), (2, 7)], ["0: 5", "2: 7"]),
    Story("ascending may be said", "ORDER BY x ASC LIMIT 1 WITHIN 1 MINUTE",
          [(0, 5), (1, 7), (2, 3)], ["0: 5", "2: 3"]),
    Story("negative scores count like others", "ORDER BY x DESC LIMIT 1 WITHIN 5 SECONDS",
          [(0, -5), (1, -9), (2, -3), (20, -50)], ["0: -5", "2: -3", "20: -50"]),
    Story("a window that emptied forgets its old bar", "ORDER BY x DESC LIMIT 2 WITHIN 1 SECOND",
          [(0, 100), (10, -1), (20, -7.5)], ["0: 100", "10: -1", "20: -7.5"]),
    Story("of equal scores the newer is better", "ORDER BY x LIMIT 1 WITHIN 1 MINUTE",
          [(0, 5), (1, 5), (2, 5.0)], ["0: 5", "1: 5", "2: 5.0"]),
    Story("without a score nothing is delivered", "ORDER BY x LIMIT 5 WITHIN 1 MINUTE",
          [(0, None), (1, "5"), (2, True), (3, [5]), (4, 5)], ["4: 5"]),
    Story("what has no score does not push others out", "ORDER BY x LIMIT 1 WITHIN 2 PUBLICATIONS",
          [(0, 1), (1, 7), (2, None), (3, "a"), (4, None)], ["0: 1"]),
    Story("k larger than the window", "ORDER BY x LIMIT 9 WITHIN 2 PUBLICATIONS",
          [(0, 5), (1, 7), (2, 9), (3, 1)], ["0: 5", "1: 7", "2: 9", "3: 1"]),
    Story("counting: one in, one out, one moves up", "ORDER BY x LIMIT 1 WITHIN 2 PUBLICATIONS",
          [(0, 1), (1, 7), (2, 9)], ["0: 1", "2: 7 +"]),
    Story("counting does not mind the time", "ORDER BY x LIMIT 1 WITHIN 2 PUBLICATIONS",
          [(0, 1), (1e6, 7), (1e9, 9)], ["0: 1", "1e+09: 7 +"]),
    Story("the arrival and the one that moves up, the better first",
          "ORDER BY x LIMIT 2 WITHIN 3 PUBLICATIONS",
          [(0, 1), (1, 2), (2, 5), (3, 4)], ["0: 1", "1: 2", "3: 4"]),
    Story("equal moments of leaving", "ORDER BY x LIMIT 2 WITHIN 10 SECONDS",
          [(0, 1), (0, 2), (5, 8), (5, 7), (20, 0)],
          ["0: 1", "0: 2", "10: 7 +", "10: 8 +", "20: 0"]),
    Story("arriving at the moment another leaves", "ORDER BY x LIMIT 1 WITHIN 10 SECONDS",
          [(0, 1), (10, 5)], ["0: 1", "10: 5"]),
    Story("... what waited moves up first", "ORDER BY x LIMIT 1 WITHIN 10 SECONDS",
          [(0, 1), (5, 7), (10, 5)], ["0: 1", "10: 7 +", "10: 5"]),
    Story("... and just before, it is too early", "ORDER BY x LIMIT 1 WITHIN 10 SECONDS",
          [(0, 1), (9.999, 5), (19.5, 6)], ["0: 1", "10: 5 +"]),
    Story("the condition decides who enters", "x != 1 ORDER BY x LIMIT 1 WITHIN 1 MINUTE",
          [(0, 1), (1, 7), (2, 1), (3, 8)], ["1: 7"]),
    Story("the score may use t", "ORDER BY x - t LIMIT 1 WITHIN 1 MINUTE",
          [(0, 5), (1, 5), (2, 9), (9, 12)], ["0: 5", "1: 5", "9: 12"]),
    Story("integers beyond 2^53 are told apart", "ORDER BY x LIMIT 1 WITHIN 1 MINUTE",
          [(0, 2**53 + 1), (1, 2**53 + 2), (2, 2**53)],
          ["0: 9007199254740993", "2: 9007199254740992"]),
]  # fmt: skip


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_story(story: Story) -> None:
    window = RankedWindow(parse(story.rank))
    found: list[WindowDelivery] = []
    for at, x in story.arrivals:
        found += window.publish({"x": x}, at)
    told = [
        f"{one.at:g}: {one.publication['x']}{' +' if one.promoted else ''}" for one in found
    ]  # fmt: skip
    assert told == story.delivered


def test_nothing_from_before_the_acceptance_enters() -> None:
    window = RankedWindow(parse("ORDER BY x LIMIT 1 WITHIN 10 SECONDS"), accepted_at=100.0)
    assert window.publish({"x": 1}, 99.9) == []
    assert window.next_change_at() == math.inf
    assert [one.at for one in window.publish({"x": 5}, 100.0)] == [100.0]


def test_t_counts_from_the_acceptance() -> None:
    window = RankedWindow(parse("t >= 5 ORDER BY x + t LIMIT 9 WITHIN 1 HOUR"), accepted_at=100.0)
    assert window.publish({"x": 1}, 104.0) == []
    assert [one.score for one in window.publish({"x": 1}, 106.0)] == [7.0]


def test_the_score_is_that_of_the_arrival() -> None:
    """The subscriber moves on; what waits keeps the score that it came with."""
    window = RankedWindow(parse("ORDER BY abs(x - me.x) LIMIT 1 WITHIN 10 SECONDS"))
    assert [one.score for one in window.publish({"x": 1}, 0.0, {"x": 0})] == [1]
    assert window.publish({"x": 9}, 1.0, {"x": 0}) == []
    assert window.publish({"x": 7}, 2.0, {"x": 0}) == []
    assert window.publish({"x": 9}, 3.0, {}) == []
    moved_up = window.advance(10.0)
    assert [(one.score, one.publication["x"], one.promoted) for one in moved_up] == [(7, 7, True)]


def test_the_next_change_is_when_the_first_leaves() -> None:
    window = RankedWindow(parse("ORDER BY x LIMIT 1 WITHIN 1500 MILLISECONDS"))
    assert window.next_change_at() == math.inf
    window.publish({"x": 1}, 2.0)
    window.publish({"x": 0}, 3.0)
    assert window.next_change_at() == 3.5
    assert window.advance(3.4999) == []
    assert window.next_change_at() == 3.5
    window.advance(3.5)
    assert window.next_change_at() == 4.5


def test_a_window_of_publications_never_changes_by_time() -> None:
    window = RankedWindow(parse("ORDER BY x LIMIT 1 WITHIN 3 PUBLICATIONS"))
    window.publish({"x": 1}, 0.0)
    assert window.next_change_at() == math.inf
    assert window.advance(1e12) == []


def test_a_delivery_says_what_it_is() -> None:
    window = RankedWindow(parse("ORDER BY x DESC LIMIT 1 WITHIN 1 HOUR"))
    publication = {"x": -2.5, "y": [1]}
    (one,) = window.publish(publication, 3.0, key="reading 7")
    assert one == WindowDelivery(3.0, publication, -2.5, promoted=False, key="reading 7")


def test_only_a_ranked_subscription_has_a_window() -> None:
    with pytest.raises(AssertionError, match="only a ranked subscription has a window"):
        RankedWindow(parse("x > 3"))


class TestSubscriptions:
    def test_a_text_alone_will_do(self) -> None:
        assert read_subscription(b'"x > 1"') == SubscriptionRecord("x > 1")

    def test_an_object_says_more(self) -> None:
        line = b'{"id": 7, "filter": "x > me.x", "at": 2, "me": {"x": 1}, "evolve": "lees"}'
        assert read_subscription(line) == SubscriptionRecord("x > me.x", 7, 2.0, {"x": 1}, "lees")

    @pytest.mark.parametrize(
        ("line", "complaint"),
        [
            ("x > 1", "not JSON"),
            ("17", "not a subscription"),
            ("{}", "missing required field `filter`"),
            ('{"filter": 3}', "not a subscription"),
            ('{"filter": "x > 1", "when": 3}', "unknown field `when`"),
            ('{"filter": "x > 1", "at": "noon"}', "not a subscription"),
            ('{"filter": "x > 1", "evolve": 3}', "not a subscription"),
            ('{"filter": "x > 1", "me": {"x": ' + "[" * 5_000 + "]" * 5_000 + "}}", "too deep"),
            ("", "not JSON"),
        ],
    )
    def test_others_are_refused(self, line: str, complaint: str) -> None:
        with pytest.raises(LanguageError, match=complaint):
            read_subscription(line)


class TestPublications:
    def test_the_object_is_the_publication(self) -> None:
        record = read_publication('{"id": "p", "at": 1.5, "NO2": 41}', 3)
        assert record == PublicationRecord("p", 1.5, {"id": "p", "at": 1.5, "NO2": 41})

    def test_without_name_and_time_the_line_number_names_it(self) -> None:
        assert read_publication('{"NO2": 41}', 3) == PublicationRecord("3", None, {"NO2": 41})

    def test_the_keys_can_be_chosen(self) -> None:
        record = read_publication('{"n": 5, "w": 2}', 1, time_key="w", id_key="n")
        assert (record.at, isinstance(record, PublicationRecord) and record.id) == (2, "5")

    @pytest.mark.parametrize("line", ['{"at": 2}', '{"at": 2, "$me": {}}', '{"at": 2.0}'])
    def test_a_time_is_a_float_however_it_was_written(self, line: str) -> None:
        at = read_publication(line, 1).at
        assert (type(at), at) == (float, 2.0)

    def test_me_changes_state(self) -> None:
        record = read_publication('{"at": 3, "$me": {"home": {"x": 5}}}', 1)
        assert record == StateRecord(3, {"home": {"x": 5}})

    @pytest.mark.parametrize(
        ("line", "complaint"),
        [
            ("nonsense", "not JSON"),
            ("[]", "not a publication"),
            ('{"at": "noon"}', "a number of seconds"),
            ('{"at": true}', "a number of seconds"),
            ('{"at": 1' + "0" * 400 + "}", "at has 401 digits"),
            ('{"x": ' + "[" * 5_000 + "]" * 5_000 + "}", "too deep"),
            ('{"$me": 3}', "must name subscriptions"),
            ('{"$me": {"home": 3}}', "must name subscriptions"),
            ('{"x": 1e999}', "not JSON"),
            ('{"x": NaN}', "not JSON"),
        ],
    )
    def test_others_are_refused(self, line: str, complaint: str) -> None:
        with pytest.raises(LanguageError, match=complaint):
            read_publication(line, 1)


@given(st.text('ab"\\\\ud8cef0123456789-.E', max_size=30), st.binary(max_size=8))
def test_what_is_read_is_what_every_runtime_may_see(text: str, end: bytes) -> None:
    for line in (f'{{"x": {text}}}'.encode(), f'{{"{text}": "'.encode() + end + b'"}'):
        try:
            record = read_publication(line, 1)
        except LanguageError:
            continue
        assert isinstance(record, PublicationRecord)
        admit(record.attributes)


def refusal_of(read: Callable[[bytes | str], object], line: bytes | str) -> str | None:
    try:
        read(line)
    except LanguageError as error:
        return error.what
    return None


@given(st.binary(max_size=40) | st.text('{}[]":,$me0159.eatu \n', max_size=40))
def test_any_line_is_read_or_refused_in_words(line: bytes | str) -> None:
    for read in (read_subscription, lambda line: read_publication(line, 1)):
        assert refusal_of(read, line) != ""
