"""Parts of about equal cost, whatever the costs are."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.elastic.division import DEALT_SINGLY, divide, divided
from tests.effort import examples

MANY = 10 * DEALT_SINGLY


def costs_of(parts: Sequence[Sequence[int]], hits: Mapping[int, int], base: float) -> list[float]:
    return [sum(base + hits.get(id, 0) for id in part) for part in parts]


def skewed(count: int, seed: int) -> dict[int, int]:
    """Few are hit often, most hardly ever."""
    drawn = random.Random(seed)
    return {id: int(drawn.paretovariate(0.8)) for id in range(count) if drawn.random() < 0.5}


@pytest.mark.parametrize("parts", [2, 3, 7])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [1_000, MANY])
def test_skewed_hits_are_balanced(count: int, seed: int, parts: int) -> None:
    hits = skewed(count, seed)
    total = count + sum(hits.values())
    hottest = max(hits.values()) + 1
    costs = costs_of(divided(range(count), hits, 1.0, parts), hits, 1.0)
    fair = max(total / parts, hottest)
    assert max(costs) <= 1.001 * fair + 1
    if fair > hottest:
        assert min(costs) >= 0.999 * fair - 1


def test_one_very_hot_subscription_weighs_as_much_as_many() -> None:
    hits = {77: MANY // 2}
    one, other = divide(range(MANY), hits, 1.0)
    costs = costs_of((one, other), hits, 1.0)
    assert costs[0] == pytest.approx(costs[1], abs=1)
    assert abs(len(one) - len(other)) == pytest.approx(MANY // 2, abs=2)


def test_one_that_costs_more_than_all_others_is_alone() -> None:
    hits = {77: 3 * MANY}
    parts = divided(range(MANY), hits, 1.0, 3)
    alone = next(part for part in parts if 77 in part)
    assert alone == [77]
    rest = [len(part) for part in parts if part is not alone]
    assert rest[0] == pytest.approx(rest[1], abs=1)


@pytest.mark.parametrize("count", [0, 1, 2, 5, MANY, MANY + 1])
def test_without_hits_counts_are_equal(count: int) -> None:
    one, other = divide(range(count), {}, 1.0)
    assert abs(len(one) - len(other)) <= 1


def test_without_any_cost_nothing_is_lost() -> None:
    parts = divided(range(MANY), {}, 0.0, 3)
    assert sorted(chain(*parts)) == list(range(MANY))


@examples(60)
@given(
    st.dictionaries(st.integers(0, 2**63 - 1), st.integers(0, 2**40), max_size=50),
    st.integers(1, 6),
    st.sampled_from([0.0, 0.5, 1.0, 1e6]),
    st.randoms(use_true_random=False),
)
def test_each_id_is_in_one_part_in_the_order_given(
    hits: dict[int, int], parts: int, base: float, drawn: random.Random
) -> None:
    ids = list(hits)
    drawn.shuffle(ids)
    known = {id: hits[id] for id in ids if hits[id] % 3}
    found = divided(ids, known, base, parts)
    assert len(found) == parts
    assert sorted(chain(*found)) == sorted(ids)
    place = {id: index for index, id in enumerate(ids)}
    assert all(part == sorted(part, key=place.__getitem__) for part in found)
    assert divided(ids, dict(known), base, parts) == found
    costs = costs_of(found, known, base)
    dearest = max((base + known.get(id, 0) for id in ids), default=0.0)
    assert max(costs) - min(costs) <= dearest * (1 + 1e-9)


@pytest.mark.parametrize(("base", "parts", "words"), [(1.0, 0, "0 parts"), (-1.0, 2, "base of -1")])
def test_impossible_divisions_are_refused(base: float, parts: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        divided([1, 2], {}, base, parts)
