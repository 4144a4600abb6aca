"""What everything that ranks has in common."""

import pytest

from rove.lang import parse
from rove.match.ranked.ranks import Clock, RankedDelivery, in_order, is_conditional, rank_of


def test_only_the_literal_true_is_no_condition() -> None:
    assert not is_conditional(parse("ORDER BY x LIMIT 1 WITHIN 1 SECOND"))
    assert not is_conditional(parse("TRUE ORDER BY x LIMIT 1 WITHIN 1 SECOND"))
    assert is_conditional(parse("x > 1 ORDER BY x LIMIT 1 WITHIN 1 SECOND"))
    assert is_conditional(parse("FALSE ORDER BY x LIMIT 1 WITHIN 1 SECOND"))


def test_time_does_not_run_back() -> None:
    clock = Clock()
    clock.move(3.0)
    clock.move(3.0)
    with pytest.raises(ValueError, match="must not run back"):
        clock.move(2.9)
    with pytest.raises(ValueError, match="must not run back"):
        clock.move(float("nan"))


def test_deliveries_go_by_time_then_by_subscription() -> None:
    drawn = [(2, "a", 1.0), (1, "b", 1.0), (2, "c", 0.5), (1, "d", 1.0)]
    deliveries = [RankedDelivery(id, key, at, 0, False, {}) for id, key, at in drawn]
    assert [one.key for one in in_order(deliveries)] == ["c", "b", "d", "a"]


def test_a_rank_is_needed() -> None:
    with pytest.raises(ValueError, match="no ORDER BY"):
        rank_of(parse("x > 1"))
