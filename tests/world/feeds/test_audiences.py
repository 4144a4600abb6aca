"""Feeds and who is told of them, judged by the language's own evaluator."""

import numpy as np
import pytest

from rove.lang import TextError, matches, parse
from rove.mqtt.topics import fits
from rove.world.feeds.audiences import Audience, FeedPublication, Timetable
from rove.world.runs.state import Entities, EntityKind, WorldError


def told(audience: Audience, feeds: list[FeedPublication], at: float) -> list[tuple[int, str]]:
    return [(one.subscription, one.feed.topic) for one in audience.publish(feeds, at)]


def test_a_subscription_is_told_of_what_its_filter_and_its_text_let_through() -> None:
    audience = Audience()
    above = audience.subscribe("air/+", "NO2 > 40")
    everywhere = audience.subscribe("#", "NO2 > 40")
    feeds = [
        FeedPublication("air/a", {"NO2": 50.0}, 1.0),
        FeedPublication("air/b", {"NO2": 30.0}, 1.0),
        FeedPublication("water/c", {"NO2": 50.0}, 1.0),
    ]
    assert told(audience, feeds, 1.0) == [(above, "air/a"), (everywhere, "air/a"), (1, "water/c")]


@pytest.mark.parametrize("seed", range(4))
def test_everybody_is_told_exactly_what_the_oracle_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    audience = Audience()
    filters = ["a/#", "a/+", "a/1", "+/2", "#", "b/1"]
    texts = {
        0: "x BETWEEN {0} + t AND {0} + 3 + t",
        1: "x BETWEEN me.x - 2 AND me.x + 2",
        2: "x > {0} OR kind = 'odd'",
    }
    subscriptions = []
    for _ in range(40):
        one = str(rng.choice(filters)), texts[int(rng.integers(3))].format(int(rng.integers(10)))
        me = {"x": float(rng.integers(10))}
        at = float(rng.integers(3))
        design = str(rng.choice(["exact", "lees"]))
        audience.subscribe(*one, at, me=me, evolve=design)
        subscriptions.append((one[0], parse(one[1]), at, me))
    for tick in range(3, 9):
        for number in rng.choice(len(subscriptions), 5, replace=False).tolist():
            state = {"x": float(rng.integers(10))}
            audience.set_state(number, state)
            subscriptions[number][3].update(state)
        feeds = [
            FeedPublication(
                f"{rng.choice(['a', 'b'])}/{rng.integers(1, 3)}",
                {"x": int(rng.integers(12)), "kind": str(rng.choice(["odd", "even"]))},
                float(tick),
            )
            for _ in range(15)
        ]
        expected = [
            (number, position)
            for position, feed in enumerate(feeds)
            for number, (topic_filter, text, at, me) in enumerate(subscriptions)
            if fits(topic_filter, feed.topic)
            and matches(text, feed.attributes, t=feed.at - at, me=me)
        ]
        found = audience.publish(feeds, float(tick))
        pairs = zip(found.subscriptions.tolist(), found.positions.tolist(), strict=True)
        assert list(pairs) == expected


def test_followers_are_where_their_entity_is() -> None:
    entities = Entities()
    entities.add(EntityKind.PLAYER, ["ann", "bob"], np.array([0.0, 50.0]), np.zeros(2))
    audience = Audience()
    near = "x BETWEEN me.x - 5 AND me.x + 5 AND y BETWEEN me.y - 5 AND me.y + 5"
    for entity in range(2):
        audience.follow(audience.subscribe("#", near), entity)
    feed = FeedPublication("here", {"x": 48.0, "y": 1.0}, 1.0)
    assert told(audience, [feed], 1.0) == []
    audience.look_around(entities)
    assert told(audience, [feed], 1.0) == [(1, "here")]
    entities.x[:] = 50.0, 70.0
    assert told(audience, [feed], 1.0) == [(1, "here")]
    audience.look_around(entities)
    assert told(audience, [feed], 1.0) == [(0, "here")]


def test_followers_tell_only_of_steps_that_count() -> None:
    entities = Entities()
    entities.add(EntityKind.PLAYER, ["ann", "bob"], np.zeros(2), np.zeros(2))
    audience = Audience(step_m=2.0)
    audience.look_around(entities)
    for entity in range(2):
        audience.follow(audience.subscribe("#", "x > me.x"), entity)
    operations = []
    for step in (0.0, 1.0, 1.0, 0.5, 1.0, 1.0, 1.0):
        entities.x[0] += step
        before = audience.counts.operations
        audience.look_around(entities)
        operations.append(audience.counts.operations - before)
    assert operations == [2, 0, 0, 1, 0, 0, 1]


def test_rankings_see_only_what_their_filter_lets_through_and_move_up_in_time() -> None:
    audience = Audience()
    best = audience.subscribe("air/+", "ORDER BY NO2 DESC LIMIT 1 WITHIN 10 SECONDS")
    both = audience.subscribe("#", "ORDER BY NO2 DESC LIMIT 1 WITHIN 10 SECONDS")
    first = [
        FeedPublication("air/a", {"NO2": 50.0}, 1.0),
        FeedPublication("water/b", {"NO2": 90.0}, 1.0),
    ]
    assert told(audience, first, 1.0) == [(best, "air/a"), (both, "air/a"), (both, "water/b")]
    assert told(audience, [FeedPublication("air/c", {"NO2": 40.0}, 5.0)], 5.0) == []
    assert told(audience, [], 10.9) == []
    late = list(audience.publish([], 11.0))
    assert [(one.subscription, one.feed.topic, one.promoted) for one in late] == [
        (best, "air/c", True),
        (both, "air/c", True),
    ]


def test_what_ends_is_told_no_more() -> None:
    audience = Audience("ward")
    number = audience.subscribe("#", "x > 0")
    ranked = audience.subscribe("#", "ORDER BY x LIMIT 1 WITHIN 1 HOUR")
    assert len(audience) == 2
    audience.unsubscribe(number)
    audience.unsubscribe(ranked)
    assert len(audience) == 0
    assert told(audience, [FeedPublication("a", {"x": 1}, 1.0)], 1.0) == []
    for act in (audience.unsubscribe, lambda n: audience.follow(n, 0)):
        with pytest.raises(WorldError, match="audience ward has no subscription 0"):
            act(number)


def test_counts_are_of_publications_notifications_and_bytes() -> None:
    audience = Audience()
    for _ in range(3):
        audience.subscribe("a/+", "x > 0")
    ranked = audience.subscribe("a/+", "ORDER BY x LIMIT 1 WITHIN 1 HOUR")
    audience.set_state(ranked, {"x": 1})
    feeds = [
        FeedPublication("a/1", {"x": 1}, 1.0),
        FeedPublication("a/22", {"x": -5}, 1.0),
        FeedPublication("b", {"x": 5}, 1.0),
    ]
    sizes = [len('a/1{"x":1}'), len('a/22{"x":-5}'), len('b{"x":5}')]
    assert [feed.nbytes for feed in feeds] == sizes
    audience.publish(feeds, 1.0)
    counts = audience.counts
    assert counts.operations == 5
    assert counts.publications == 3
    assert counts.notifications == 3 + 2
    assert counts.published_bytes == sum(sizes)
    assert counts.notified_bytes == 4 * sizes[0] + sizes[1]


def test_bytes_are_carried_along_and_counted_as_text() -> None:
    picture = FeedPublication("p", {"ecg": b"\x00" * 300}, 0.0)
    assert picture.nbytes == len("p") + len('{"ecg":""}') + 400
    audience = Audience()
    audience.subscribe("#", "ecg IS NOT NULL")
    assert told(audience, [picture], 0.0) == [(0, "p")]


def test_nonsense_is_refused_and_leaves_nothing_behind() -> None:
    audience = Audience("cars")
    with pytest.raises(WorldError, match="audience cars: 'a/#/b' is no topic filter"):
        audience.subscribe("a/#/b", "x > 0")
    with pytest.raises(TextError):
        audience.subscribe("a", "x >")
    with pytest.raises(TextError):
        audience.subscribe("a", "x > t", evolve="sometimes")
    assert len(audience) == 0
    assert audience.subscribe("a", "x > 0") == 0


def test_instruments_take_turns() -> None:
    times = Timetable(4, 2.0)
    due = {tick: times.due(tick * 0.1).tolist() for tick in range(1, 61)}
    assert {tick: who for tick, who in due.items() if who} == {
        5 * (number + 1) + 20 * again: [number] for again in range(3) for number in range(4)
    }
    assert Timetable(0, 1.0).due(5.0).tolist() == []
    with pytest.raises(WorldError, match="every 0 s; give more than 0"):
        Timetable(1, 0.0)
