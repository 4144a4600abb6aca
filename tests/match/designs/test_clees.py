"""CLEES: which versions are reused, for how long, and what is counted."""

import math
from typing import Any

import pytest

from rove.lang import normalise, parse
from rove.lang.normal_form import Conjunction
from rove.match.designs.clees import Clees
from rove.match.designs.design import OneByOne
from rove.match.designs.version_index import TRIED_MAX


def conjunctions_of(text: str) -> tuple[Conjunction, ...]:
    return normalise(parse(text)).conjunctions


def lazy(threshold_s: float, text: str = "x > t", accepted_at: float = 0.0) -> Clees:
    clees = Clees(OneByOne)
    clees.add(1, conjunctions_of(text), accepted_at, {}, threshold_s)
    return clees


def ids(clees: Clees, publication: dict[str, Any], at: float) -> list[int]:
    found: list[int] = clees.match([publication], [at]).subscriptions.tolist()
    return found


class TestCache:
    def test_nothing_is_evaluated_before_somebody_asks(self) -> None:
        clees = lazy(1.0)
        clees.advance(50.0)
        assert clees.evaluated_at(1) is None
        assert clees.counters.evaluations == 0
        assert clees.next_change_at() == math.inf

    def test_a_version_answers_until_its_threshold_and_at_it(self) -> None:
        clees = lazy(1.0)
        heard = [(ids(clees, {"x": 2.5}, at), clees.evaluated_at(1)) for at in (2.0, 2.9, 3.0)]
        assert heard == [([1], 2.0)] * 3
        assert (ids(clees, {"x": 2.5}, 3.01), clees.evaluated_at(1)) == ([], 3.01)

    def test_a_version_that_cannot_hold_is_reused_too(self) -> None:
        clees = lazy(1.0, "x > 1 / (t - 2)")
        assert ids(clees, {"x": 9}, 2.0) == []
        assert ids(clees, {"x": 9}, 2.5) == []
        assert clees.counters.evaluations == 1
        assert ids(clees, {"x": 9}, 3.5) == [1]

    def test_a_version_is_made_whatever_the_fixed_part_says(self) -> None:
        clees = lazy(1.0, "kind = 'a' AND x > t")
        assert ids(clees, {"kind": "a"}, 0.5) == [], "x is missing"
        assert clees.counters.evaluations == 0
        assert ids(clees, {"kind": "b", "x": 9}, 1.0) == []
        assert clees.evaluated_at(1) == 1.0
        assert ids(clees, {"kind": "a", "x": 1.2}, 1.5) == [1], "as it was at 1.0"
        assert (clees.counters.evaluations, clees.counters.cache_hits) == (1, 1)

    def test_without_its_attributes_even_one_without_a_fixed_part_is_left_alone(self) -> None:
        clees = lazy(1.0, "x > t AND y > t OR z > t")
        assert ids(clees, {"x": 9}, 1.0) == []
        assert clees.counters.evaluations == 0
        assert ids(clees, {"z": 9}, 1.5) == [1]

    def test_thresholds_differ_between_subscriptions(self) -> None:
        clees = Clees(OneByOne)
        for id, threshold_s in ((1, 0.5), (2, 5.0), (3, 1.0)):
            clees.add(id, conjunctions_of("x > t"), 0.0, {}, threshold_s)
        ids(clees, {"x": 9}, 1.0)
        assert [id for _, id in clees._expiries] == [1, 3, 2]
        clees.advance(1.7)
        assert [clees.evaluated_at(id) for id in (1, 2, 3)] == [None, 1.0, 1.0]
        ids(clees, {"x": 9}, 2.5)
        assert [clees.evaluated_at(id) for id in (1, 2, 3)] == [2.5, 1.0, 2.5]

    def test_a_batch_expires_on_its_way(self) -> None:
        clees = lazy(1.0)
        found = clees.match([{"x": 0.5}] * 4, [0.0, 0.9, 1.0, 1.1])
        assert found.publications.tolist() == [0, 1, 2]
        assert clees.counters.evaluations == 2

    def test_what_only_follows_never_expires(self) -> None:
        clees = lazy(0.1, "x > me.x")
        clees.set_state(1, {"x": 3})
        assert ids(clees, {"x": 4}, 1.0) == [1]
        assert ids(clees, {"x": 4}, 900.0) == [1]
        clees.set_state(1, {"x": 5})
        assert ids(clees, {"x": 4}, 900.0) == []
        counters = clees.counters
        assert (counters.evaluations, counters.cache_hits) == (2, 1)
        assert counters.stale_answers_possible == 0

    @pytest.mark.parametrize("text", ["x > t", "kind = 1 AND x > t", "kind = 1"])
    def test_what_was_accepted_later_is_not_told_of_earlier(self, text: str) -> None:
        clees = lazy(1.0, text, accepted_at=5.0)
        publication = {"x": 9, "kind": 1}
        assert ids(clees, publication, 4.0) == []
        assert clees.evaluated_at(1) is None
        assert ids(clees, publication, 5.0) == [1]
        together = lazy(1.0, text, accepted_at=5.0).match([publication] * 3, [4.0, 5.0, 5.5])
        assert together.publications.tolist() == [1, 2]


@pytest.mark.parametrize("fixed", ["", "kind = 1 AND "])
def test_the_counters_of_a_short_life(fixed: str) -> None:
    clees = lazy(1.0, f"{fixed}x > t")
    publication = {"x": 2.5, "kind": 1}
    assert ids(clees, publication, 2.0) == [1]  # miss
    assert ids(clees, publication, 2.0) == [1]  # hit, fresh
    assert ids(clees, publication, 2.5) == [1]  # hit, stale
    assert ids(clees, publication, 3.5) == []  # miss
    clees.set_state(1, {})
    assert ids(clees, publication, 3.6) == []  # miss
    assert ids(clees, publication, 3.7) == []  # hit, stale
    counters = clees.counters
    assert (counters.cache_hits, counters.cache_misses) == (3, 3)
    assert counters.evaluations == 3
    assert counters.stale_answers_possible == 2
    assert (counters.evolutions, counters.evolutions_skipped) == (0, 0)


def test_removal_leaves_nothing_behind() -> None:
    indexes: list[OneByOne] = []

    def new_index() -> OneByOne:
        indexes.append(OneByOne())
        return indexes[-1]

    clees = Clees(new_index)
    texts = ["x > t", "kind = 1 AND x > t", "x > 1 / t", "kind = 1", "x > t OR y > t", "FALSE"]
    for id in range(60):
        clees.add(id, conjunctions_of(texts[id % len(texts)]), 0.0, {}, 0.5 + id)
    ids(clees, {"x": 9, "kind": 1}, 0.0)
    clees.match([{"x": 99, "kind": 1}] * TRIED_MAX, [20.0] * TRIED_MAX)
    assert len(indexes) == 2
    assert all(index.held for index in indexes)
    assert clees._expiries == sorted(clees._expiries)
    for id in range(60):
        clees.remove(id)
        assert id not in [other for _, other in clees._expiries]
    assert [index.held for index in indexes] == [{}, {}]
    assert (len(clees), clees._expiries, clees._families) == (0, [], {})
