"""The covering forest: what hangs where, and that it matches what the oracle says, always."""

from itertools import pairwise, permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import LanguageError, ProofResult, Subscription, covers, matches, normalise, parse
from rove.lang.tree import And, Or
from rove.match.forest import Box, Forest, box_covers, box_of
from rove.testing import strategies
from rove.testing.boxes import Name, workload
from tests.effort import examples

State = dict[str, object]
Publication = dict[str, object]
Live = dict[int, tuple[Subscription, float, State]]


def forest_of(*texts: str) -> Forest:
    forest = Forest()
    for id, text in enumerate(texts):
        forest.insert(id, parse(text))
    return forest


def boxed(subscription: Subscription) -> Box | None:
    conjunctions = normalise(subscription).conjunctions
    return box_of(conjunctions[0]) if len(conjunctions) == 1 else None


def surely_covers(live: Live, a: int, b: int) -> bool:
    """What the forest is allowed to know: at the same `t` if both depend on it."""
    (one, accepted_at, _), (other, other_accepted_at, _) = live[a], live[b]
    if accepted_at != other_accepted_at and uses_time(one) and uses_time(other):
        return False
    return verdict(one, other) is ProofResult.YES


def uses_time(subscription: Subscription) -> bool:
    return "Time()" in repr(subscription.condition)


def verdict(a: Subscription, b: Subscription) -> ProofResult:
    return covers(Subscription(a.condition), Subscription(b.condition)).verdict


def matching(live: Live, publication: Publication, at: float) -> set[int]:
    return {
        id
        for id, (subscription, accepted_at, me) in live.items()
        if matches(subscription, publication, at - accepted_at, me)
    }


def assert_is_forest(forest: Forest, ids: set[int]) -> None:
    """Every subscription is reached from the roots, once, by links that agree."""
    assert len(forest) == len(ids)
    waiting, seen = forest.roots(), set[int]()
    assert all(forest.parent(root) is None for root in waiting)
    while waiting:
        id = waiting.pop()
        assert id not in seen
        seen.add(id)
        assert all(forest.parent(child) == id for child in forest.children(id))
        waiting += forest.children(id)
    assert seen == ids


def assert_matches(forest: Forest, live: Live, publication: Publication, at: float) -> None:
    wanted = matching(live, publication, at)
    assert forest.match(publication, at) == wanted
    if all(at >= accepted_at for _, accepted_at, _ in live.values()):
        parents = {forest.parent(id) for id in wanted} - {None}
        assert parents <= wanted


def with_relatives(bases: list[Subscription]) -> list[Subscription]:
    """The drawn ones and some that cover them or are covered by them."""
    pairs = [(a.condition, b.condition) for a, b in pairwise(bases)]
    narrower = [Subscription(And(pair)) for pair in pairs]
    wider = [Subscription(Or(pair)) for pair in pairs]
    return [*bases, *narrower, *wider]


def change(random: Random, forest: Forest, live: Live, id: int, drawn: list[Subscription]) -> None:
    """One random insertion or removal in both."""
    if live and random.random() < 0.35:
        gone = random.choice(list(live))
        forest.remove(gone)
        del live[gone]
        return
    entry = (random.choice(drawn), random.choice([0.0, 0.0, 3.0]), dict[str, object]())
    forest.insert(id, entry[0], entry[1])
    live[id] = entry


class TestBoxes:
    @pytest.mark.parametrize(
        ("text", "is_box"),
        [
            ("a > 3 AND b BETWEEN 1 AND 2", True),
            ("a = 'x' AND b < 'y'", True),
            ("a LIKE 'ab%'", True),
            ("TRUE", True),
            ("FALSE", False),
            ("a > 3 OR b > 3", False),
            ("a != 3", False),
            ("a LIKE '%ab'", False),
            ("a IS NULL", False),
            ("a", False),
            ("a.b > 3", False),
            ("a > b", False),
            ("a > t", False),
            ("abs(a) > 3", False),
            ("me.a > 3", False),
        ],
    )
    def test_a_box_has_one_span_for_each_attribute(self, text: str, is_box: bool) -> None:
        assert (boxed(parse(text)) is not None) is is_box

    @examples(150)
    @given(strategies.static_subscriptions, strategies.static_subscriptions)
    def test_boxes_cover_as_the_algebra_says(self, one: Subscription, other: Subscription) -> None:
        related = with_relatives([one, other])
        boxes = [(s, box) for s in related if (box := boxed(s)) is not None]
        for (a, box_a), (b, box_b) in permutations(boxes, 2):
            assert box_covers(box_a, box_b) is (covers(a, b).verdict is ProofResult.YES)

    @pytest.mark.parametrize("name", ["W1", "W3", "W4"])
    def test_boxes_of_workloads_cover_as_the_algebra_says(self, name: Name) -> None:
        boxes = workload(name, 40, 0)[0]
        subscriptions = [parse(boxes.text(row)) for row in range(len(boxes))]
        said = []
        for a, b in permutations(subscriptions, 2):
            box_a, box_b = boxed(a), boxed(b)
            assert box_a is not None
            assert box_b is not None
            said.append(box_covers(box_a, box_b))
            assert said[-1] is (covers(a, b).verdict is ProofResult.YES)
        assert any(said) or name == "W3"


class TestPlaces:
    def test_the_covered_hangs_below(self) -> None:
        forest = forest_of("a > 1", "a > 2", "a > 3", "b > 1")
        assert forest.roots() == [0, 3]
        assert [forest.parent(id) for id in range(4)] == [None, 0, 1, None]
        assert forest.children(0) == [1]

    def test_a_later_one_adopts_those_beside_it(self) -> None:
        forest = forest_of("a > 2", "a = 5", "b = 1", "a > 1 OR b = 1")
        assert forest.roots() == [3]
        assert forest.children(3) == [0, 2]
        assert forest.children(0) == [1]

    def test_one_comes_between_a_parent_and_its_child(self) -> None:
        forest = forest_of("a > 1", "a > 3", "a > 2")
        assert [forest.parent(id) for id in range(3)] == [None, 2, 0]

    def test_equal_ones_hang_below_the_first(self) -> None:
        forest = forest_of("a > 1", "NOT a <= 1", "a > 1 AND TRUE")
        assert forest.roots() == [0]
        assert [forest.parent(id) for id in range(3)] == [None, 0, 1]

    def test_nothing_hangs_below_what_never_matches(self) -> None:
        forest = forest_of("FALSE", "a > 1", "FALSE")
        assert forest.roots() == [1]
        assert forest.children(1) == [0]
        assert forest.match({"a": 2}) == {1}

    def test_many_equal_ones_are_no_danger(self) -> None:
        forest = forest_of(*["a > 1"] * 300)
        assert len(forest.match({"a": 2})) == 300
        for id in range(299):
            forest.remove(id)
        assert forest.roots() == [299]

    def test_only_a_sure_yes_counts(self) -> None:
        # The first covers the second, but that is more than the algebra can prove.
        texts = ("a < c", "a < b AND b < c")
        assert covers(*map(parse, texts)).verdict is ProofResult.UNKNOWN
        assert forest_of(*texts).roots() == [0, 1]


class TestRemoving:
    def test_children_of_a_root_become_roots(self) -> None:
        forest = forest_of("a > 1", "a BETWEEN 2 AND 3", "a BETWEEN 4 AND 5", "a = 5")
        forest.remove(0)
        assert forest.roots() == [1, 2]
        assert forest.children(2) == [3]

    def test_an_orphan_finds_the_deepest_that_still_covers_it(self) -> None:
        forest = forest_of("TRUE", "a > 1", "b > 1", "a > 5 AND b > 5", "b > 3")
        assert forest.parent(3) == 1
        forest.remove(1)
        assert forest.parent(3) == 4
        assert forest.match({"a": 6, "b": 6}) == {0, 2, 3, 4}

    def test_an_orphan_that_is_no_child_of_anyone_goes_to_the_grandparent(self) -> None:
        forest = forest_of("a > 1", "a > 2", "a > 3")
        forest.remove(1)
        assert forest.parent(2) == 0

    def test_an_id_can_be_used_again(self) -> None:
        forest = forest_of("a > 1")
        forest.remove(0)
        assert 0 not in forest
        forest.insert(0, parse("b > 1"))
        assert forest.match({"b": 2}) == {0}

    def test_unknown_and_used_ids_are_refused(self) -> None:
        forest = forest_of("a > 1")
        with pytest.raises(LanguageError, match="already a subscription 0"):
            forest.insert(0, parse("b > 1"))
        with pytest.raises(KeyError):
            forest.remove(7)
        assert forest.match({"b": 2}) == set()


class TestMoving:
    def test_those_accepted_together_can_cover(self) -> None:
        forest = Forest()
        forest.insert(1, parse("x > t"), accepted_at=5.0)
        forest.insert(2, parse("x > t + 1"), accepted_at=5.0)
        assert forest.roots() == [1]

    def test_travelling_areas_are_compared_where_they_start(self) -> None:
        forest = Forest()
        wide, narrow = "x BETWEEN 0 + t AND 9 + t", "x BETWEEN 3 + t AND 5 + t"
        for id, text in enumerate((wide, narrow, "x BETWEEN 4 AND 5", "x BETWEEN 6 AND 20")):
            forest.insert(id, parse(text))
        # At the start the first covers the third too, but it travels away.
        assert [forest.parent(id) for id in range(4)] == [None, 0, None, None]
        # Does 0 cover 1, does 0 cover 2? To all else the start says no.
        assert forest.counts.covers_asked == 2

    def test_those_accepted_apart_cannot(self) -> None:
        forest = Forest()
        forest.insert(1, parse("x > t"), accepted_at=0.0)
        forest.insert(2, parse("x > t + 1"), accepted_at=5.0)
        assert forest.roots() == [1, 2]
        assert forest.match({"x": 2}, at=5.0) == {2}

    def test_a_fixed_one_covers_whenever_the_other_was_accepted(self) -> None:
        forest = Forest()
        forest.insert(1, parse("x > 0"), accepted_at=0.0)
        forest.insert(2, parse("x > t + 1"), accepted_at=5.0)
        assert forest.children(1) == [2]
        assert forest.match({"x": 2}, at=5.5) == {1, 2}

    @pytest.mark.parametrize("at", [-3.0, 2.0, 1e9 + 5.5, 3e9])
    def test_outside_the_span_of_the_proof_everyone_is_asked(self, at: float) -> None:
        forest, live = Forest(), Live()
        texts = ("x > 0", "x > t", "x > greatest(t, 0)", "x < t + 9", "x < 2e9")
        for id, text in enumerate(texts):
            live[id] = (parse(text), 5.0, {})
            forest.insert(id, parse(text), accepted_at=5.0)
        assert len(forest.roots()) < len(texts)
        for x in (-7.5, -1, 0.5, 1e9 + 1, 2.5e9):
            assert forest.match({"x": x}, at) == matching(live, {"x": x}, at)

    def test_a_follower_hangs_where_its_state_does_not_matter(self) -> None:
        forest = Forest()
        forest.insert(1, parse("x > 0"))
        forest.insert(2, parse("x > 0 AND y > me.y"), me={"y": 5})
        forest.insert(3, parse("x > 0 AND y > me.y"), me={"y": 3})
        assert forest.children(1) == [2, 3]
        assert forest.match({"x": 1, "y": 4}) == {1, 3}
        forest.set_state(2, {"y": 1})
        forest.set_state(3, {"y": None})
        assert forest.match({"x": 1, "y": 4}) == {1, 2}

    def test_a_rank_is_not_looked_at(self) -> None:
        rank = "ORDER BY b LIMIT 1 WITHIN 1 DAY"
        forest = forest_of(f"a > 1 {rank}", "b IS NOT NULL", f"a > 2 {rank}", "a > 2")
        assert forest.roots() == [0, 1]
        assert forest.match({"a": 3}) == {0, 2, 3}


class TestCounting:
    def test_what_was_done_is_counted(self) -> None:
        forest = forest_of("a > 1", "a > 2", "b > 1")
        # Does 0 cover 1? Does 0 cover 2, or 2 cover 0?
        assert forest.counts.boxes_compared == 3
        assert forest.counts.covers_asked == 0
        forest.match({"b": 2})
        assert forest.counts.evaluations == 2, "below what did not match nobody is asked"
        forest.insert(3, parse("a > 2 OR b > 3"))
        assert forest.counts.covers_asked > 0


@examples(60)
@given(
    st.lists(strategies.static_subscriptions, min_size=2, max_size=4).map(with_relatives),
    st.lists(strategies.publications, min_size=4, max_size=4),
    st.randoms(use_true_random=False),
)
def test_it_stays_a_forest_of_what_covers_what(
    drawn: list[Subscription], publications: list[Publication], random: Random
) -> None:
    forest, live = Forest(), Live()
    for id in range(14):
        change(random, forest, live, id, drawn)
        assert_is_forest(forest, set(live))
        for child in live:
            parent = forest.parent(child)
            if parent is not None:
                assert verdict(live[parent][0], live[child][0]) is not ProofResult.NO
        roots = forest.roots()
        assert not any(surely_covers(live, a, b) for a, b in permutations(roots, 2))
    for publication in publications:
        assert_matches(forest, live, publication, 0.0)


@examples(120)
@given(
    st.lists(strategies.encounters(), min_size=2, max_size=3),
    st.randoms(use_true_random=False),
)
def test_it_matches_as_the_oracle_does_while_it_changes(
    encounters: list[tuple[Subscription, Publication, float, State]], random: Random
) -> None:
    drawn = with_relatives([subscription for subscription, *_ in encounters])
    forest, live = Forest(), Live()
    for id in range(8):
        change(random, forest, live, id, drawn)
        if live and random.random() < 0.5:
            following, me = random.choice(list(live)), random.choice(encounters)[3]
            forest.set_state(following, me)
            live[following][2].update(me)
        for _, publication, t, _ in encounters:
            assert_matches(forest, live, publication, t)
    assert_is_forest(forest, set(live))


@pytest.mark.parametrize("name", ["W1", "W2", "W4"])
def test_a_forest_without_it_is_a_forest_that_lost_it(name: Name) -> None:
    boxes, events = workload(name, 300, 60)
    subscriptions = [parse(boxes.text(row)) for row in range(len(boxes))]
    random = Random(3)
    gone = set(random.sample(range(len(subscriptions)), len(subscriptions) // 2))
    lost, without = Forest(), Forest()
    for id, subscription in enumerate(subscriptions):
        lost.insert(id, subscription)
        if id not in gone:
            without.insert(id, subscription)
    for id in gone:
        lost.remove(id)
    assert_is_forest(lost, set(range(len(subscriptions))) - gone)
    assert set(lost.roots()) == set(without.roots())
    for number in range(len(events)):
        publication = events.publication(number)
        found = lost.match(publication, 2.0)
        assert found == without.match(publication, 2.0)
        assert not found or found & set(lost.roots())
