"""Figures of an engine."""

from rove.world.engines.counters import EngineCounters
from rove.world.engines.messages import MessageKind


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
