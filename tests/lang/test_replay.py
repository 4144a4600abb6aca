"""The oracle over a whole stream: who is notified, of what, when; and what is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import LanguageError, PublicationError, RankedWindow, TextError, matches, parse
from rove.lang.replay import Notification, Replay
from rove.testing.strategies import publications, static_subscriptions
from tests.effort import examples


def told(notifications: list[Notification]) -> list[str]:
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
        Notification(5.0, "some", "one", {"x": 3}),
        Notification(5.0, "best", "one", {"y": 4}, score=3, promoted=False),
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
