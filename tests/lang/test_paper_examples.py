"""The examples by which the ideas are known, each told from the text to the notification.

A player in a game world sees a 6-by-4 area around itself; an apple is picked up nearby. A
citizen wants to know of bad air in some streets, and of the readings nearest to home.
"""

from rove.lang import matches, parse
from rove.lang.replay import Replay

AROUND_THE_ORIGIN = "x >= -3 AND x <= 3 AND y >= -2 AND y <= 2"
MOVING_UP_AND_RIGHT = "x >= -3 + t AND x <= 3 + t AND y >= -2 + t AND y <= 2 + t"
APPLE = {"x": 4, "y": 3}


def test_the_static_area_around_the_player_misses_the_apple() -> None:
    area = parse(AROUND_THE_ORIGIN)
    assert not any(matches(area, APPLE, t) for t in (0.0, 1.0, 2.0, 8.0))
    assert matches(area, {"x": 3, "y": -2}), "the edge belongs to it"


def test_the_area_that_moves_meets_the_apple_on_its_way() -> None:
    area = parse(MOVING_UP_AND_RIGHT)
    met = {t: matches(area, APPLE, t) for t in (0.0, 0.5, 1.0, 2.0, 5.0, 5.5, 8.0)}
    assert [t for t, is_met in met.items() if is_met] == [1.0, 2.0, 5.0]


def test_the_area_may_be_written_with_between() -> None:
    area = parse("x BETWEEN -3 + t AND 3 + t AND y BETWEEN -2 + t AND 2 + t")
    written_out = parse(MOVING_UP_AND_RIGHT)
    for t in (0.0, 0.5, 1.0, 2.0, 5.0, 5.5, 8.0):
        assert matches(area, APPLE, t) == matches(written_out, APPLE, t)


def test_the_area_that_follows_the_player_needs_no_new_subscription() -> None:
    replay = Replay()
    replay.subscribe(
        "player",
        "x BETWEEN me.x - 3 AND me.x + 3 AND y BETWEEN me.y - 2 AND me.y + 2",
        me={"x": 0, "y": 0},
    )
    assert replay.publish("apple", APPLE, 0.0) == []
    replay.set_state("player", {"x": 1, "y": 1})
    assert [one.publication for one in replay.publish("apple", APPLE, 1.0)] == ["apple"]
    replay.set_state("player", {"x": 8, "y": 8})
    assert replay.publish("apple", APPLE, 8.0) == []


def test_a_bound_that_grows_with_time() -> None:
    growing = parse("x < 1 + 0.5 * t")
    assert not matches(growing, {"x": 2}, 0.0)
    assert not matches(growing, {"x": 2}, 2.0), "1 + 0.5 * 2 is 2, and 2 < 2 is not true"
    assert matches(growing, {"x": 2}, 2.1)
    assert matches(growing, {"x": 2}, 100.0)


def test_a_value_below_a_constant_bound() -> None:
    assert matches(parse("x < 3"), {"x": 2})
    assert not matches(parse("x < 1"), {"x": 2})


def test_bad_air_in_a_few_streets() -> None:
    streets = parse("NO2 > 40 AND lat BETWEEN 45.81 AND 45.82 AND long BETWEEN 15.96 AND 15.98")
    reading = {"NO2": 41.5, "lat": 45.815, "long": 15.97}
    assert matches(streets, reading)
    assert not matches(streets, {**reading, "NO2": 40})
    assert not matches(streets, {**reading, "lat": 45.8201})
    assert not matches(streets, {**reading, "long": 15.9599})
    assert matches(streets, {**reading, "lat": 45.82, "long": 15.96}), "corners belong to it"
    assert not matches(streets, {"CO": 41.5, "lat": 45.815, "long": 15.97})


def test_the_ten_readings_nearest_to_home_in_a_day() -> None:
    """One reading an hour for thirty hours, each 0.001 degrees further north than the last."""
    replay = Replay()
    replay.subscribe(
        "home",
        "kind = 'air' ORDER BY distance(lat, long, 45.815, 15.977) LIMIT 10 WITHIN 24 HOURS",
    )
    heard = []
    for hour in range(30):
        reading = {"kind": "air", "lat": 45.815 + hour / 1000, "long": 15.977}
        heard += replay.publish(f"reading {hour}", reading, hour * 3600.0)
    on_arrival = [one for one in heard if not one.promoted]
    moved_up = [one for one in heard if one.promoted]
    # The first ten are the nearest of their day. From hour 24 on one of them leaves each hour,
    # and the nearest of those that waited takes its place.
    assert [one.publication for one in on_arrival] == [f"reading {i}" for i in range(10)]
    assert [(one.at, one.publication) for one in moved_up] == [
        ((24 + i) * 3600.0, f"reading {10 + i}") for i in range(6)
    ]
    assert all(one.score is not None and 1_111 < one.score < 1_670 for one in moved_up)


def test_a_reading_nearer_than_all_others_is_heard_at_once() -> None:
    replay = Replay()
    replay.subscribe(
        "home", "ORDER BY distance(lat, long, 45.815, 15.977) LIMIT 10 WITHIN 24 HOURS"
    )
    for number in range(20):
        replay.publish(f"far {number}", {"lat": 46 + number, "long": 15.977}, float(number))
    (one,) = replay.publish("at home", {"lat": 45.815, "long": 15.977}, 100.0)
    assert (one.publication, one.score, one.promoted) == ("at home", 0.0, False)
    assert replay.publish("without a place", {"kind": "air"}, 101.0) == []
