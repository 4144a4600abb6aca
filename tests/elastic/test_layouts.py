"""Who has which subscriptions, and who is asked about a publication."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.elastic.commands import decoded_rows
from rove.elastic.layouts import (
    DEALT_SINGLY,
    CellLayout,
    Hierarchical,
    Partitioned,
    Replicated,
    SubscriptionSource,
    divide,
    divided,
)
from rove.elastic.records import CellRecord, Ticket
from tests.effort import examples
from tests.elastic.conftest import row, source

PART_ROWS_MIN = 16


def cells(count: int) -> list[CellRecord]:
    return [CellRecord(number + 1, number + 1, is_stateful=False) for number in range(count)]


def filled(arrangement: CellLayout, *texts: str) -> None:
    for id, text in enumerate(texts):
        arrangement.add(source(id + 1, text))


def asked(arrangement: CellLayout, rows: int = 3) -> dict[int, list[int]]:
    """The numbers of the publications that each cell is asked about."""
    ticket = Ticket(1, [row(number) for number in range(rows)], None, PART_ROWS_MIN)
    commands = arrangement.ask(ticket)
    assert len(ticket.waiting) == len(commands)
    for command in commands:
        positions = ticket.waiting[command.part].positions
        assert [one.number for one in decoded_rows(command.rows)] == list(positions)
        assert command.advance_to is None
    return {one.cell: [each.number for each in decoded_rows(one.rows)] for one in commands}


def test_a_subscription_as_a_command() -> None:
    one = SubscriptionSource(
        7, "x > me.x", source(7, "x > 1").parsed, 3, 1.5, {"x": 1}, "lees", True
    )
    command = one.command(9)
    assert (command.cell, command.id, command.text, command.filter) == (9, 7, "x > me.x", 3)
    assert (command.accepted_at, command.me, command.evolve) == (1.5, {"x": 1}, "lees")


class TestPartitioned:
    def test_each_is_in_one_cell(self) -> None:
        arrangement = Partitioned(cells(3))
        filled(arrangement, *["x > 1"] * 9)
        assert [len(cell.ids) for cell in arrangement.cells] == [3, 3, 3]
        assert Counter(id for cell in arrangement.cells for id in cell.ids) == Counter(range(1, 10))
        for id in range(1, 10):
            [holder] = arrangement.holders(id)
            assert id in holder.ids

    def test_some_are_meant_for_a_cell(self) -> None:
        arrangement = Partitioned(cells(2), {1: 1, 2: 1, 3: 1})
        filled(arrangement, *["x > 1"] * 5)
        assert [cell.ids for cell in arrangement.cells] == [{4, 5}, {1, 2, 3}]

    def test_cells_that_have_some_already(self) -> None:
        two = cells(2)
        two[1].ids = {5}
        arrangement = Partitioned(two)
        assert 5 in arrangement
        assert arrangement.holders(5) == (two[1],)

    def test_everybody_is_asked_who_has_anything(self) -> None:
        arrangement = Partitioned(cells(3))
        filled(arrangement, "x > 1", "x > 1")
        assert asked(arrangement) == {1: [0, 1, 2], 2: [0, 1, 2]}

    def test_one_that_goes(self) -> None:
        arrangement = Partitioned(cells(2))
        filled(arrangement, "x > 1", "x > 1")
        [placed] = arrangement.remove(1)
        assert (placed.cell.number, placed.id, placed.is_there) == (1, 1, False)
        assert 1 not in arrangement
        assert asked(arrangement) == {2: [0, 1, 2]}

    def test_nobody_is_asked_because_of_an_answer(self) -> None:
        ticket = Ticket(1, [row(0)], None)
        assert Partitioned(cells(2)).follow(ticket, 1, [(0, [1])]) == []
        assert Replicated(cells(2)).follow(ticket, 1, [(0, [1])]) == []


class TestReplicated:
    def test_everybody_has_everything(self) -> None:
        arrangement = Replicated(cells(3))
        placed = arrangement.add(source(1, "x > 1"))
        assert [(one.cell.number, one.is_there) for one in placed] == [
            (1, True),
            (2, True),
            (3, True),
        ]
        assert [cell.ids for cell in arrangement.cells] == [{1}] * 3
        assert list(arrangement.holders(1)) == arrangement.cells
        placed = arrangement.remove(1)
        assert [(one.cell.number, one.is_there) for one in placed] == [
            (number, False) for number in (1, 2, 3)
        ]
        assert 1 not in arrangement

    def test_small_batches_take_turns(self) -> None:
        arrangement = Replicated(cells(3))
        filled(arrangement, "x > 1")
        turns = [next(iter(asked(arrangement, 2 * PART_ROWS_MIN - 1))) for _ in range(6)]
        assert Counter(turns) == {1: 2, 2: 2, 3: 2}

    @pytest.mark.parametrize("rows", [1, 31, 32, 33, 47, 48, 100, 1001])
    @pytest.mark.parametrize("count", [1, 2, 3, 4])
    def test_every_row_is_asked_about_once(self, rows: int, count: int) -> None:
        arrangement = Replicated(cells(count))
        filled(arrangement, "x > 1")
        shares = asked(arrangement, rows)
        assert sorted(number for share in shares.values() for number in share) == list(range(rows))
        assert len(shares) == max(1, min(count, rows // PART_ROWS_MIN))
        sizes = [len(share) for share in shares.values()]
        assert max(sizes) - min(sizes) <= 1

    def test_nobody_is_asked_for_nobody(self) -> None:
        assert asked(Replicated(cells(2))) == {}


class TestHierarchical:
    def test_the_parent_has_what_nobody_covers(self) -> None:
        arrangement = Hierarchical(cells(3))
        filled(arrangement, "x > 1", "x > 3", "x > 5", "y > 1")
        parent, *children = arrangement.cells
        assert parent.ids == {1, 4}
        assert set.union(*(child.ids for child in children)) == {2, 3}
        for id in range(1, 5):
            [holder] = arrangement.holders(id)
            assert id in holder.ids

    def test_what_moves_is_told(self) -> None:
        """One that covers another comes later: the other goes from the parent to a child."""
        arrangement = Hierarchical(cells(2))
        arrangement.add(source(1, "x > 3"))
        placed = arrangement.add(source(2, "x > 1"))
        assert {(one.cell.number, one.id, one.is_there) for one in placed} == {
            (1, 1, False),
            (2, 1, True),
            (1, 2, True),
        }
        placed = arrangement.remove(2)
        assert {(one.cell.number, one.id, one.is_there) for one in placed} == {
            (1, 2, False),
            (2, 1, False),
            (1, 1, True),
        }
        assert [cell.ids for cell in arrangement.cells] == [{1}, set()]
        assert 2 not in arrangement

    def test_the_parent_is_asked_first(self) -> None:
        arrangement = Hierarchical(cells(3))
        assert asked(arrangement) == {}
        filled(arrangement, "x > 1", "x > 3")
        assert asked(arrangement) == {1: [0, 1, 2]}

    def test_a_child_is_asked_about_what_a_root_matched(self) -> None:
        arrangement = Hierarchical(cells(3))
        filled(arrangement, "x > 1", "x > 3", "y > 1", "y > 3", "z > 1")
        [of_x], [of_y] = arrangement.holders(2), arrangement.holders(4)
        assert of_x is not of_y
        ticket = Ticket(1, [row(number) for number in range(5)], None)
        followed = arrangement.follow(ticket, 1, [(0, [1]), (2, [1, 3]), (3, [5]), (4, [3])])
        positions = {one.cell: list(ticket.waiting[one.part].positions) for one in followed}
        assert positions == {of_x.number: [0, 2], of_y.number: [2, 4]}
        for command in followed:
            numbers = [one.number for one in decoded_rows(command.rows)]
            assert numbers == positions[command.cell]

    def test_nobody_follows_a_child(self) -> None:
        arrangement = Hierarchical(cells(2))
        filled(arrangement, "x > 1", "x > 3")
        ticket = Ticket(1, [row(0)], None)
        assert arrangement.follow(ticket, 2, [(0, [2])]) == []
        assert arrangement.follow(ticket, 1, []) == []


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
