"""Skybands by hand; against the plain window they are tested together with the pruned lists."""

import math

import numpy as np
import pytest

from rove.lang import parse
from rove.match.ranks import RankedDelivery, in_order, rank_of
from rove.match.skyband import Pool, SkybandRanked

NOBODY = np.empty(0, np.int64)


def keys(deliveries: list[RankedDelivery]) -> list[object]:
    return [delivery.key for delivery in deliveries]


def sizes(ranked: SkybandRanked) -> list[int]:
    return [int(ranked._pool.rows["count"][row]) for row in ranked._row_of.values()]


def test_only_who_can_still_be_delivered_is_kept() -> None:
    ranked = SkybandRanked()
    ranked.add(1, parse("ORDER BY a LIMIT 2 WITHIN 1 HOUR"))
    for number, value in enumerate((5, 4, 3, 2, 1)):
        assert keys(ranked.publish(number, {"a": value}, float(number), NOBODY)) == [number]
    assert sizes(ranked) == [2]
    for number in range(5, 9):
        assert ranked.publish(number, {"a": number}, float(number), NOBODY) == []
    assert sizes(ranked) == [6]


def test_the_better_of_the_rest_moves_up_when_the_best_leaves() -> None:
    ranked = SkybandRanked()
    ranked.add(1, parse("ORDER BY a DESC LIMIT 1 WITHIN 10 SECONDS"))
    assert keys(ranked.publish("best", {"a": 9}, 0.0, NOBODY)) == ["best"]
    assert ranked.publish("good", {"a": 7}, 1.0, NOBODY) == []
    assert ranked.publish("late", {"a": 5.5}, 2.0, NOBODY) == []
    assert ranked.next_change_at() == 10.0
    assert ranked.advance(9.999) == []
    (up,) = ranked.advance(10.0)
    assert (up.key, up.at, up.score, up.promoted) == ("good", 10.0, 7, True)
    assert [(up.key, up.at) for up in ranked.advance(50.0)] == [("late", 11.0)]
    assert ranked.next_change_at() == math.inf


def test_a_window_of_the_last_n_counts_members_only() -> None:
    ranked = SkybandRanked()
    ranked.add(1, parse("kind = 'air' ORDER BY a LIMIT 1 WITHIN 2 PUBLICATIONS"))
    matched = np.array([1], np.int64)
    assert keys(ranked.publish("x", {"a": 1}, 0.0, matched)) == ["x"]
    assert ranked.publish("not matched", {"a": 0}, 0.0, NOBODY) == []
    assert ranked.publish("without a score", {"a": "?"}, 0.0, matched) == []
    assert ranked.publish("y", {"a": 3}, 0.0, matched) == []
    third = ranked.publish("z", {"a": 5}, 0.0, matched)
    assert [(up.key, up.promoted) for up in third] == [("y", True)]
    assert ranked.next_change_at() == math.inf


def test_the_state_of_the_moment_of_arrival_counts() -> None:
    ranked = SkybandRanked()
    ranked.add(1, parse("ORDER BY abs(a - me.x) LIMIT 1 WITHIN 10 SECONDS"), 0.0, {"x": 0})
    assert keys(ranked.publish("near 0", {"a": 1}, 0.0, NOBODY)) == ["near 0"]
    ranked.set_state(1, {"x": 100})
    assert ranked.publish("near 98", {"a": 98}, 1.0, NOBODY) == []
    ranked.set_state(1, {})
    assert ranked.publish("no state", {"a": 100}, 2.0, NOBODY) == []
    ranked.set_state(1, {"x": 100.5})
    assert keys(ranked.publish("near 100", {"a": 100}, 3.0, NOBODY)) == ["near 100"]


def test_what_matched_but_is_not_ranked_is_passed_over() -> None:
    ranked = SkybandRanked()
    ranked.add(5, parse("b = 1 ORDER BY a LIMIT 1 WITHIN 1 HOUR"))
    found = ranked.publish("x", {"a": 1, "b": 1}, 0.0, np.array([3, 5, 9], np.int64))
    assert [(one.subscription, one.score) for one in found] == [(5, 1)]


def test_deliveries_are_put_in_order_of_time_and_subscription() -> None:
    def one(id: int, at: float, score: float) -> RankedDelivery:
        return RankedDelivery(id, None, at, score, False, {})

    mixed = [one(2, 1.0, 1), one(2, 1.0, 2), one(1, 1.0, 3), one(9, 0.0, 4)]
    assert [d.score for d in in_order(mixed)] == [4, 3, 1, 2]


def test_a_pool_tidies_up_before_it_grows() -> None:
    pool = Pool()
    rank = rank_of(parse("ORDER BY a LIMIT 3 WITHIN 1 HOUR"))
    for round in range(50):
        rows = [pool.add(id, rank, 0.0, 100) for id in range(5)]
        pool.members["sequence"][pool.rows["start"][rows[2]]] = round
        pool.rows["count"][rows[2]] = 1
        for row in rows[:2] + rows[3:]:
            pool.remove(row)
        assert pool.live_sequences() == {round}
        pool.make_room(600)
        assert pool.members["sequence"][pool.rows["start"][rows[2]]] == round
        pool.remove(rows[2])
    assert pool.members.size < 5_000


@pytest.mark.parametrize("k", [1, 10, 10_000])
def test_a_large_k_has_room_to_be_told(k: int) -> None:
    ranked = SkybandRanked()
    for id in range(3):
        ranked.add(id, parse(f"ORDER BY a LIMIT {k} WITHIN 1 HOUR"))
    delivered = 0
    for number in range(50):
        delivered += len(ranked.publish(number, {"a": -number}, float(number), NOBODY))
    assert delivered == 150
