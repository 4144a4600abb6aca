"""Versions of subscriptions: how they are stored, when PES and CLEES make them, what is counted."""

import math
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import normalise, parse
from rove.lang.normal_form import Conjunction
from rove.match.designs.design import Evolving, OneByOne
from rove.match.designs.versioned import (
    INDEXED_AT_ONCE_MAX,
    TRIED_MAX,
    Clees,
    EvolutionQueue,
    Pes,
    VersionStore,
)


def conjunctions_of(text: str) -> tuple[Conjunction, ...]:
    return normalise(parse(text)).conjunctions


def moving(interval_s: float, accepted_at: float = 0.0, text: str = "x > t") -> Pes:
    pes = Pes(OneByOne)
    pes.add(1, conjunctions_of(text), accepted_at, {}, interval_s)
    return pes


def ids(design: Pes | Clees, publication: dict[str, Any], at: float) -> list[int]:
    found: list[int] = design.match([publication], [at]).subscriptions.tolist()
    return found


class TestQueue:
    @given(
        st.lists(
            st.tuples(st.sampled_from(["put", "drop", "take"]), st.integers(0, 9), st.floats(0, 9))
        )
    )
    def test_it_is_a_sorted_list_of_pairs(self, steps: list[tuple[str, int, float]]) -> None:
        queue, model = EvolutionQueue(), dict[int, float]()
        for step, id, due_at in steps:
            if step == "put":
                queue.put(id, due_at)
                model[id] = due_at
            elif step == "drop" and id in model:
                queue.drop(id)
                del model[id]
            elif step == "take" and model:
                first = min(model, key=lambda id: (model[id], id))
                assert queue.take() == first
                del model[first]
            assert len(queue) == len(model)
            assert queue.head_at() == min(model.values(), default=math.inf)
            assert all(id in queue for id in model)

    def test_what_is_due_first_comes_first(self) -> None:
        queue, random = EvolutionQueue(), Random(1)
        due = {id: random.random() for id in range(200)}
        for id, due_at in due.items():
            queue.put(id, due_at)
        assert [queue.take() for _ in due] == sorted(due, key=due.__getitem__)

    def test_an_unknown_id_cannot_be_dropped(self) -> None:
        with pytest.raises(KeyError):
            EvolutionQueue().drop(1)


class TestEvolving:
    @pytest.mark.parametrize("interval_s", [1.0, 0.1, 0.3])
    @pytest.mark.parametrize("accepted_at", [0.0, 0.7, 1e6 + 0.1])
    def test_once_per_interval_and_the_queue_does_not_drift(
        self, interval_s: float, accepted_at: float
    ) -> None:
        pes = moving(interval_s, accepted_at)
        for turn in range(1, 1_001):
            due_at = pes.next_change_at()
            assert due_at == accepted_at + turn * interval_s
            pes.advance(due_at)
            assert pes.evaluated_at(1) == due_at
        assert pes.counters.evolutions == 1_000
        assert pes.counters.evolutions_skipped == 0

    def test_ten_seconds_are_ten_evolutions(self) -> None:
        pes = moving(1.0)
        for tenth in range(1, 101):
            pes.advance(tenth / 10)
        assert pes.counters.evolutions == 10

    def test_what_nobody_could_see_is_left_out(self) -> None:
        pes = moving(1.0)
        pes.advance(10.5)
        assert pes.evaluated_at(1) == 10.0
        assert pes.next_change_at() == 11.0
        assert (pes.counters.evolutions, pes.counters.evolutions_skipped) == (1, 9)

    @given(
        st.floats(0, 1e12),
        st.sampled_from([0.001, 0.1, 1 / 3, 1.0, 17.0, 1e9]),
        st.lists(st.floats(0, 1e12), max_size=20),
    )
    def test_a_version_is_never_older_than_the_interval_whenever_asked(
        self, accepted_at: float, interval_s: float, times: list[float]
    ) -> None:
        pes = moving(interval_s, accepted_at)
        for now in sorted(max(time, accepted_at) for time in times):
            pes.advance(now)
            moment = pes.evaluated_at(1)
            assert moment is not None
            assert moment <= now < pes.next_change_at()
            # One rounding of times as large as these may come on top.
            assert now - moment <= interval_s + math.ulp(now)

    def test_answers_depend_on_the_time_alone(self) -> None:
        often, seldom = moving(0.7), moving(0.7)
        for hundredth in range(1, 485):
            often.advance(hundredth / 100)
        for x in (4.1, 4.19, 4.21, 4.9):
            assert ids(often, {"x": x}, 4.85) == ids(seldom, {"x": x}, 4.85) == ([1] * (x > 4.2))

    def test_several_evolve_in_the_order_that_they_are_due(self) -> None:
        pes = Pes(OneByOne)
        for id, interval_s in ((1, 0.5), (2, 0.3), (3, 0.4)):
            pes.add(id, conjunctions_of("x > t"), 0.0, {}, interval_s)
        for now, order in ((0.35, [1, 3, 2]), (0.55, [2, 3, 1])):
            pes.advance(now)
            assert list(pes._index.tried) == order, "the latest version last"

    def test_a_batch_that_spans_an_evolution_sees_both_versions(self) -> None:
        found = moving(1.0).match([{"x": 0.5}] * 4, [0.0, 0.9, 1.0, 1.1])
        assert found.publications.tolist() == [0, 1]

    def test_what_only_follows_does_not_wait_in_the_queue(self) -> None:
        pes = moving(1.0, text="x > me.x")
        assert pes.next_change_at() == math.inf
        pes.set_state(1, {"x": 3})
        assert ids(pes, {"x": 4}, 50.0) == [1]
        assert pes.counters.stale_answers_possible == 0

    def test_intervals_too_fine_for_the_clock_still_move_on(self) -> None:
        pes = moving(0.001, accepted_at=1e15)
        now = 1e15
        for _ in range(5):
            now = pes.next_change_at()
            pes.advance(now)
            assert pes.next_change_at() > now
        assert now > 1e15

    def test_what_was_accepted_later_is_not_told_of_earlier(self) -> None:
        pes = moving(1.0, accepted_at=5.0, text="x > t")
        pes.add(2, conjunctions_of("x > 1"), 0.0, {}, 1.0)
        found = pes.match([{"x": 9}, {"x": 9}], [4.0, 5.0])
        assert found.publications.tolist() == [0, 1, 1]
        assert found.subscriptions.tolist() == [2, 1, 2]


def test_the_counters_of_a_short_life_of_pes() -> None:
    pes = moving(1.0)  # evaluated at 0
    assert ids(pes, {"x": 0.5}, 0.0) == [1]  # fresh
    assert ids(pes, {"x": 0.5}, 0.5) == [1]  # stale
    assert ids(pes, {"x": 0.5}, 0.9) == [1]  # stale, and wrong by now
    assert ids(pes, {"x": 1.5}, 2.0) == []  # evaluated at 2, one evolution skipped, fresh
    pes.set_state(1, {"y": 1})  # evaluated
    assert ids(pes, {"x": 2.5}, 2.5) == [1]  # stale
    counters = pes.counters
    assert counters.evaluations == 3
    assert (counters.evolutions, counters.evolutions_skipped) == (1, 1)
    assert counters.stale_answers_possible == 3
    assert (counters.cache_hits, counters.cache_misses) == (0, 0)


def test_removal_leaves_nothing_behind_of_pes() -> None:
    index = OneByOne()
    pes = Pes(lambda: index)
    for id in range(50):
        pes.add(id, conjunctions_of(f"x > {id} + t OR y = {id}"), 0.0, {}, 0.1 + id / 10)
    pes.match([{"x": 30}] * TRIED_MAX, [2.0] * TRIED_MAX)
    assert len(index.held) == 50
    for id in range(50):
        pes.remove(id)
        assert id not in pes._queue
        assert id not in pes._index
        assert id not in index.held
    assert (len(pes), len(pes._queue), index.held) == (0, 0, {})
    assert pes._versions.count == 0
    assert pes.next_change_at() == math.inf


def test_a_version_that_cannot_hold_matches_nothing() -> None:
    pes = moving(1.0, text="x > 1 / (t - 1)")
    assert ids(pes, {"x": 5}, 0.0) == [1]
    assert ids(pes, {"x": 5}, 1.0) == []
    assert ids(pes, {"x": 5}, 2.0) == [1]


def test_versions_that_nothing_lasts_for_are_never_indexed() -> None:
    """The work for a publication is one evaluation, however short the interval."""
    added: list[int] = []

    class Watched(OneByOne):
        def add(self, id: int, conjunctions: Sequence[Conjunction]) -> None:
            added.append(id)
            super().add(id, conjunctions)

    pes = Pes(Watched)
    for id in range(100):
        pes.add(id, conjunctions_of(f"x > {id} + t"), 0.0, {}, 0.001)
    for number in range(50):
        assert len(ids(pes, {"x": 60.0}, number / 100)) == 60
    assert added == []
    assert pes.counters.evaluations == 100 + 100 * 49


# -- CLEES -----------------------------------------------------------------------------


def lazy(threshold_s: float, text: str = "x > t", accepted_at: float = 0.0) -> Clees:
    clees = Clees(OneByOne)
    clees.add(1, conjunctions_of(text), accepted_at, {}, threshold_s)
    return clees


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
def test_the_counters_of_a_short_life_of_clees(fixed: str) -> None:
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


def test_removal_leaves_nothing_behind_of_clees() -> None:
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


# -- the store -------------------------------------------------------------------------


def evolving(id: int, text: str) -> Evolving:
    return Evolving.of(id, normalise(parse(text)).conjunctions, 10.0, {"y": 3}, None)


def store_ids(versions: VersionStore, x: float) -> list[int]:
    return sorted(versions.match([{"x": x}]).subscriptions.tolist())


def test_answers_are_the_same_before_and_after_indexing() -> None:
    index = OneByOne()
    versions = VersionStore(lambda: index)
    for id in range(5):
        versions.put(evolving(id, f"x > {id} + t + me.y OR x = -{id}"), 12.0)
    for number in range(2 * TRIED_MAX):
        assert store_ids(versions, 7.5) == [0, 1, 2]
        assert store_ids(versions, -4.0) == [4]
        assert bool(index.held) == (2 * (number + 1) >= TRIED_MAX)
    assert not versions.tried


def test_few_are_indexed_for_one_publication() -> None:
    index = OneByOne()
    versions = VersionStore(lambda: index)
    for id in range(3 * INDEXED_AT_ONCE_MAX):
        versions.put(evolving(id, "x > t"), 12.0)
    for _ in range(TRIED_MAX - 1):
        store_ids(versions, 0.0)
    for rounds in (0, 1, 2, 3, 3):
        assert len(index.held) == rounds * INDEXED_AT_ONCE_MAX
        assert len(store_ids(versions, 5.0)) == 3 * INDEXED_AT_ONCE_MAX


def test_a_new_version_takes_the_place_of_the_old_one() -> None:
    index = OneByOne()
    versions = VersionStore(lambda: index)
    one = evolving(1, "x > t")
    versions.put(one, 12.0)
    for _ in range(TRIED_MAX):
        assert store_ids(versions, 3.0) == [1]
    assert list(index.held) == [1]
    versions.put(one, 14.0)
    assert (index.held, 1 in versions) == ({}, True)
    assert store_ids(versions, 3.0) == []
    versions.drop(1)
    versions.drop(1)
    assert 1 not in versions
    assert store_ids(versions, 9.0) == []


def test_a_version_that_cannot_hold_stays_out_of_the_index() -> None:
    index = OneByOne()
    versions = VersionStore(lambda: index)
    versions.put(evolving(1, "x > 1 / (t - 2)"), 12.0)
    for _ in range(2 * TRIED_MAX):
        assert store_ids(versions, 3.0) == []
    assert index.held == {}
