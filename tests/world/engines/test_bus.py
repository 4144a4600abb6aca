"""What every bus shares: deliveries, topics and texts."""

import math

import numpy as np
import pytest

from rove.lang import parse
from rove.lang.oracle import matches
from rove.world.engines.bus import Deliveries, EngineCounters, area_text, topic_text
from rove.world.engines.messages import MessageKind, Messages
from rove.world.runs.state import WorldError


def deliveries() -> Deliveries:
    whats = np.array([MessageKind.UPDATE, MessageKind.REPLICA, MessageKind.LEFT], np.int8)
    return Deliveries(
        1.5,
        Messages(whats, 3, entity=np.array([10, 11, 12])),
        np.array([0, 0, 1, 2], np.int32),
        np.array([5, 6, 5, 7], np.int32),
        np.array([1, 2, 3, 4], np.int32),
    )


def test_deliveries_of_some_kinds() -> None:
    found = deliveries().only(MessageKind.UPDATE, MessageKind.LEFT)
    assert found.message.tolist() == [0, 0, 2]
    assert found.receiver.tolist() == [5, 6, 7]
    assert found.subscription.tolist() == [1, 2, 4]
    assert found.messages.entity[found.message].tolist() == [10, 10, 12]
    assert found.at == 1.5
    assert len(found) == 3
    assert len(deliveries().only(MessageKind.REQUEST)) == 0
    assert len(deliveries().only(MessageKind.UPDATE, MessageKind.REPLICA, MessageKind.LEFT)) == 4


def test_deliveries_by_flags() -> None:
    found = deliveries().where(np.array([False, True, False, True]))
    assert found.receiver.tolist() == [6, 7]


def test_a_topic_is_its_form_with_the_number() -> None:
    assert topic_text("world/tile/{}/update", 812) == "world/tile/812/update"


def holds(text: str, x: float, y: float, t: float) -> bool:
    return matches(parse(text), {"x": x, "y": y}, t)


def test_a_rectangle_at_rest_is_a_plain_text() -> None:
    assert area_text(10, -5, 2, 3) == "x BETWEEN 8.0 AND 12.0 AND y BETWEEN -8.0 AND -2.0"


def test_a_moving_rectangle_evolves_on_both_sides() -> None:
    text = area_text(10, 5, 2, 3, vx=1e-7)
    assert text == (
        "x BETWEEN 8.0 + 1e-07 * t AND 12.0 + 1e-07 * t"
        " AND y BETWEEN 2.0 + 0.0 * t AND 8.0 + 0.0 * t"
    )


def test_texts_mean_the_closed_rectangle_to_the_last_bit() -> None:
    rng = np.random.default_rng(2)
    for _ in range(100):
        x, y, vx, vy = (rng.normal(0, 30, 4) * rng.integers(0, 2, 4)).tolist()
        t = float(rng.uniform(0, 100))
        text = area_text(x, y, 30.0, 20.0, vx, vy)
        low, high = (x - 30.0) + vx * t, (x + 30.0) + vx * t
        middle = y + vy * t
        assert holds(text, low, middle, t)
        assert holds(text, high, middle, t)
        assert not holds(text, math.nextafter(low, -math.inf), middle, t)
        assert not holds(text, math.nextafter(high, math.inf), middle, t)


def test_a_rectangle_without_an_end_is_refused() -> None:
    with pytest.raises(WorldError, match="the number inf; all have to be finite"):
        area_text(0.0, math.inf, 1.0, 1.0)


def test_a_row_has_the_figures_by_name() -> None:
    counters = EngineCounters()
    counters.subscriptions, counters.subscribes, counters.unsubscribes = 3, 5, 2
    for what in MessageKind:
        counters.published[what] = 10**what
        counters.delivered[what] = 2 * 10**what
        counters.published_bytes[what] = 3 * 10**what
        counters.delivered_bytes[what] = 4 * 10**what
    counters.matching_ns = 1_500_000_000
    counters.missing_ticks, counters.stale_ticks, counters.extra_ticks = 4, 8, 16
    assert [what.name for what in MessageKind] == [
        "UPDATE",
        "REPLICA",
        "LEFT",
        "REQUEST",
        "AREA_REQUEST",
    ]
    assert counters.row(0.25) == {
        "subscriptions": 3,
        "subscribes": 5,
        "unsubscribes": 2,
        "publications": 11111,
        "requests": 11000,
        "replica_messages": 20,
        "update_notifications": 202,
        "deliveries": 22222,
        "published_bytes": 33333,
        "replica_bytes": 40,
        "update_bytes": 404,
        "delivered_bytes": 44444,
        "matching_s": 1.5,
        "missing_s": 1.0,
        "stale_s": 2.0,
        "extra_s": 4.0,
    }


def test_everything_begins_with_nothing() -> None:
    assert set(EngineCounters().row(0.1).values()) == {0}
