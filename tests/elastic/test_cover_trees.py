"""Where subscriptions are in the hierarchical layout: roots match whatever is below them."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.elastic.cover_trees import MOVED_MAX, TAKEN_MAX, CoverTrees, Move
from rove.lang import Subscription, matches, parse
from rove.lang.tree import And, Comparison, Condition, Literal
from rove.testing import strategies
from tests.effort import examples


class Told:
    """A covering, and the places that its moves tell of."""

    def __init__(self, children: int = 2) -> None:
        self.covering = CoverTrees(children)
        self.subscriptions: dict[int, Subscription] = {}
        self.filters: dict[int, int] = {}
        self.places: dict[int, int] = {}
        self.moved = 0

    def add(self, id: int, text: str | Subscription, filter: int = 0) -> None:
        subscription = parse(text) if isinstance(text, str) else text
        self.subscriptions[id], self.filters[id] = subscription, filter
        moves = self.covering.add(id, filter, subscription)
        assert [move.id for move in moves].count(id) == 1
        self.follow(moves)

    def remove(self, id: int) -> None:
        del self.subscriptions[id], self.filters[id]
        moves = self.covering.remove(id)
        assert Move(id, None) in moves
        self.follow(moves)

    def resize(self, children: int, hits: dict[int, int] | None = None) -> None:
        self.follow(self.covering.resize(children, hits))

    def follow(self, moves: list[Move]) -> None:
        self.moved = len(moves)
        for move in moves:
            if move.to is None:
                del self.places[move.id]
            else:
                assert self.places.get(move.id) != move.to, "a move that is none"
                self.places[move.id] = move.to

    def check(self) -> None:
        """What was told is so, and all of it fits together."""
        covering = self.covering
        assert len(covering) == len(self.subscriptions)
        assert {id: covering.place(id) for id in self.subscriptions} == self.places
        roots = set(covering.roots())
        asked = Counter[int]()
        for id in self.subscriptions:
            root = covering.root_of(id)
            assert (root is None) == (id in roots)
            if root is None:
                assert self.places[id] == 0
                continue
            asked[root] += 1
            assert covering.root_of(root) is None
            assert self.filters[root] == self.filters[id]
            assert self.places[id] == (covering.child_of(root) or 0)
            assert 0 < self.places[id] <= covering.children or covering.children == 0
        for root in roots - set(asked):
            assert covering.child_of(root) is None


def told(*texts: str, children: int = 2) -> Told:
    found = Told(children)
    for id, text in enumerate(texts):
        found.add(id, text)
        found.check()
    return found


# -- who covers whom -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("covered", "root"),
    [
        ("a > 2", "a > 1"),
        ("a > 2", "a > 2"),
        ("a = 5", "a > 1"),
        ("a = 5 AND b = 3", "a > 1"),
        ("a = 'x' AND b = 3", "a = 'x'"),
        ("a = 'x' AND b = 3", "b < 4"),
        ("a = 'x' AND b BETWEEN 1 AND 2", "a = 'x' AND b BETWEEN 1 AND 3"),
        ("a LIKE 'abc%'", "a LIKE 'ab%'"),
        ("a = 'abc'", "a LIKE 'ab%'"),
        ("a = 1", "TRUE"),
        ("a != 3 AND b = 2", "b < 3"),
        ("a IN (3, 5)", "a > 2"),
        ("a > 2 AND b < 3 + t", "a > 1"),
        ("a > 2 AND me.x > 3", "a > 1"),
        ("a > 2 AND a < b", "a > 1"),
        ("a LIKE '%x' AND a > 'b'", "a >= 'b'"),
    ],
)
def test_the_covered_is_below_its_root_in_either_order(covered: str, root: str) -> None:
    first = told(root, covered)
    assert first.covering.roots() == [0]
    assert first.places == {0: 0, 1: 1}
    assert (first.covering.child_of(0), first.covering.root_of(1)) == (1, 0)
    later = told(covered, root)
    assert covered == root or later.covering.roots() == [1]
    assert Counter(later.places.values()) == {0: 1, 1: 1}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a > 2", "b > 1"),
        ("a > 2", "a < 3"),
        ("a > 2", "a > '1'"),
        ("a = 'x' AND b > 3", "a = 'y' AND b > 3"),
        ("a > 2 OR b > 2", "a > 2"),
        ("a > 2", "a > 1 AND b > 1"),
        ("a > 1 - t", "a > 2"),
        ("a > me.x", "a > me.x"),
        ("a != 3", "a > 3 OR b = 1"),
        ("n.m > 3", "n.m > 4"),
        ("a > 1", "a > 2 OR a IS NULL"),
        ("a > 1", "a > 2 OR a = 'x'"),
        ("FALSE", "FALSE"),
    ],
)
def test_what_is_not_covered_for_certain_is_a_root(one: str, other: str) -> None:
    assert told(one, other).places == {0: 0, 1: 0}


def test_topic_filters_are_worlds_of_their_own() -> None:
    both = Told()
    both.add(1, "a > 1", filter=7)
    both.add(2, "a > 2", filter=8)
    both.check()
    assert both.places == {1: 0, 2: 0}


def test_an_id_is_used_once() -> None:
    covering = CoverTrees(1)
    covering.add(5, 0, parse("a > 1"))
    with pytest.raises(ValueError, match="already a subscription 5"):
        covering.add(5, 0, parse("a > 2"))


# -- changes ---------------------------------------------------------------------------


def test_roots_that_a_new_one_covers_go_to_its_child() -> None:
    found = told("a BETWEEN 0 AND 1", "a BETWEEN 2 AND 3", "a = 2", "b > 1", "a > -1")
    assert sorted(found.covering.roots()) == [3, 4]
    assert found.places == {0: 1, 1: 1, 2: 1, 3: 0, 4: 0}


def test_trees_of_roots_that_a_new_one_covers_are_one() -> None:
    found = told("a BETWEEN 0 AND 9", "a = 5", "a BETWEEN 20 AND 29", "a = 25", "a = 26")
    assert (found.places[1], found.places[3]) == (1, 2)
    found.add(5, "a > -1")
    found.check()
    assert found.covering.roots() == [5]
    assert found.places == {0: 2, 1: 2, 2: 2, 3: 2, 4: 2, 5: 0}, "the smaller tree moves"
    found.remove(1)
    found.remove(5)
    found.check()
    assert sorted(found.covering.roots()) == [0, 2]


def test_many_roots_become_covered_little_by_little() -> None:
    count = 4 * TAKEN_MAX
    found = told(*(f"a = {value}" for value in range(count)))
    found.add(count, "a >= 0")
    assert 1 <= found.moved <= TAKEN_MAX + 3
    for id in range(count + 1, 3 * count):
        found.add(id, f"b = {id} AND a = 'x'")
    found.check()
    assert count in found.covering.roots()
    assert all(found.covering.root_of(id) == count for id in range(count))


def test_what_a_removed_root_covered_stays_in_its_child() -> None:
    found = told(*(f"a > {value}" for value in range(40)))
    assert found.covering.roots() == [0]
    found.remove(0)
    found.check()
    assert found.covering.roots() == [1]
    assert found.moved == 2, "the one removed, and the new root"
    found.remove(17)
    assert found.moved == 1


def test_what_nothing_covers_any_more_becomes_roots() -> None:
    found = told("TRUE", *(f"a = {value}" for value in range(40)))
    found.remove(0)
    found.check()
    assert set(found.places.values()) == {0}


def test_orphans_find_another_root() -> None:
    found = told("a > 0", "a < 100", "a = 50", "a = -1")
    assert [found.covering.root_of(id) for id in (2, 3)] == [1, 1]
    found.remove(1)
    found.check()
    assert [found.covering.root_of(id) for id in (2, 3)] == [0, None]


@pytest.mark.parametrize("size", [MOVED_MAX // 2, MOVED_MAX + 10])
def test_only_a_small_tree_moves_for_one_root_fewer(size: int) -> None:
    found = Told(2)
    found.add(0, "b >= 0")
    for id in range(1, size + 2):
        found.add(id, f"a >= {id} AND b >= {id}")
    found.add(10_000, "a >= 0")
    for id in range(10_001, 10_001 + size):
        found.add(id, f"a = {id}")
    assert (found.covering.child_of(0), found.covering.child_of(10_000)) == (1, 2)
    found.remove(0)
    moved = found.moved
    found.check()
    if size <= MOVED_MAX:
        assert found.covering.roots() == [10_000]
        assert moved == size + 1
        return
    assert sorted(found.covering.roots()) == [1, 10_000]
    assert moved == 2


# -- children --------------------------------------------------------------------------


def test_trees_are_spread_over_children() -> None:
    found = Told(3)
    for id in range(600):
        found.add(id, f"gas = 'g{id % 12}' AND v > {id}")
    found.check()
    assert len(found.covering.roots()) == 12
    counts = Counter(found.places.values())
    assert all(counts[child] == (600 - 12) / 3 for child in (1, 2, 3))


@pytest.mark.parametrize("children", [0, 1, 2, 5])
def test_trees_are_dealt_out_again(children: int) -> None:
    found = Told(3)
    hits = {id: 50 for id in range(600) if id % 12 == 0}
    for id in range(600):
        found.add(id, f"gas = 'g{id % 12}' AND v > {id}")
    found.resize(children, hits)
    found.check()
    assert found.covering.children == children
    costs = Counter[int]()
    for id, place in found.places.items():
        costs[place] += hits.get(id, 0) + 1
    del costs[0]
    assert len(costs) == min(children, 12)
    hottest = 49 * 51
    fair = max(sum(costs.values()) / max(children, 1), hottest)
    assert all(cost <= fair + 49 for cost in costs.values())
    found.add(1_000, "gas = 'g1' AND v > 2000")
    found.remove(0)
    found.check()
    found.resize(3)
    found.check()


def test_trees_that_may_stay_stay() -> None:
    found = Told(2)
    for id in range(600):
        found.add(id, f"gas = 'g{id % 12}' AND v > {id}")
    found.resize(2)
    assert found.moved == 0
    found.resize(3)
    assert found.moved == (600 - 12) / 3


# -- everything ------------------------------------------------------------------------

_simple = st.builds(
    Comparison,
    strategies.comparators,
    strategies.attributes,
    st.sampled_from([Literal(value) for value in (-1, 0, 1, 2.5, 3, "a", "ab", "b")]),
)
_boxes: st.SearchStrategy[Condition] = st.lists(_simple, min_size=1, max_size=3).map(
    lambda all: all[0] if len(all) == 1 else And(tuple(all))
)
_wanted = (
    st.builds(Subscription, _boxes)
    | strategies.static_subscriptions
    | (strategies.subscriptions.map(lambda s: Subscription(s.condition)))
)
Met = tuple[Subscription, dict[str, Any], float, dict[str, Any]]


@examples(60)
@given(
    st.lists(strategies.encounters(_wanted), min_size=2, max_size=8),
    st.lists(strategies.publications, max_size=4),
    strategies.states,
    st.randoms(use_true_random=False),
)
def test_whatever_the_covered_match_their_roots_match(
    met: list[Met], publications: list[dict[str, Any]], state: dict[str, Any], random: Random
) -> None:
    found = Told(random.randrange(4))
    drawn = [subscription for subscription, *_ in met]
    drawn += [Subscription(And((a.condition, b.condition))) for a in drawn for b in drawn[:2]]
    moments = [(publication, t, me) for _, publication, t, me in met]
    moments += [(publication, 1.0, state) for publication in publications]
    for id in range(16):
        choice = random.random()
        if choice < 0.3 and found.subscriptions:
            found.remove(random.choice(list(found.subscriptions)))
        elif choice < 0.35:
            found.resize(random.randrange(4), {id: id for id in range(10)})
        else:
            found.add(id, random.choice(drawn), filter=random.randrange(2))
        found.check()
        for below in found.subscriptions:
            root = found.covering.root_of(below)
            if root is None:
                continue
            for publication, t, me in moments:
                if matches(found.subscriptions[below], publication, t, me):
                    assert matches(found.subscriptions[root], publication, 0.0, {})


def gas(random: Random) -> str:
    """A reading's gas and value with any operator, or a window of time."""
    if random.random() < 1 / 3:
        begin = random.randrange(100_000)
        return f"timestamp >= {begin * 10} AND timestamp < {begin * 10 + 10}"
    operator = random.choice([">", "<", "=", ">=", "<=", "!="])
    sensor = random.choice(["NO2", "O3", "CO", "UFP"])
    return f"sensor = '{sensor}' AND value {operator} {random.randrange(4_000) / 10}"


def test_few_gas_readings_are_roots() -> None:
    random, found = Random(1), Told(2)
    for id in range(1_500):
        found.add(id, gas(random))
    found.check()
    texts = [found.subscriptions[root] for root in found.covering.roots()]
    assert len({repr(text) for text in texts}) < 1_500 * (1 / 3 + 1 / 9) + 100
    readings = [root for root in texts if "timestamp" not in repr(root) and "!=" not in repr(root)]
    assert len(readings) <= 16, "for each gas, the greatest and the least bound"
    counts = Counter(found.places.values())
    assert counts[1] == pytest.approx(counts[2], rel=0.3)
