"""Cases: drawing conclusions loses no publication, and cutting a case loses none either."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import bounds
from rove.lang.cases import (
    ProofCase,
    Requirement,
    Sets,
    Undecided,
    Witness,
    WitnessSearch,
    narrowed,
    ranges_of,
)
from rove.lang.normal_form import Conjunction, normalise
from rove.lang.oracle import compare, value_of
from rove.lang.parser import parse
from rove.lang.sets import EMPTY, NUMBERS, ValueSet
from rove.lang.tree import Attribute, Comparison, Me, Subscription, Time, ValueNode
from rove.lang.values import look_up
from rove.testing.strategies import (
    conditions,
    moving_predicates,
    publications,
    states,
    static_predicates,
    times,
)
from tests.effort import examples

X, Y, N = Attribute(("x",)), Attribute(("y",)), Attribute(("n",))


def conjunction(text: str) -> Conjunction:
    (one,) = normalise(parse(text)).conjunctions
    return one


def case(text: str, *fails: str) -> ProofCase:
    """The case in which a text holds and others, of one part each, do not."""
    found = ProofCase({Time(): ValueSet(((0.0, 10.0),))}).within(conjunction(text))
    assert found is not None
    for fail in fails:
        other = conjunction(fail)
        requirements: list[Requirement] = [*other.sets.items(), *other.atoms]
        for requirement in requirements:
            found = found.failing(requirement)
    return found


def fits(one: ProofCase, publication: dict[str, Any], t: float, me: dict[str, Any]) -> bool:
    """What a case means, said plainly."""

    def value(node: ValueNode) -> object:
        if isinstance(node, Attribute | Me):
            return look_up(publication if isinstance(node, Attribute) else me, node.path)
        return value_of(node, publication, t, me)

    def holds(atom: Comparison) -> bool:
        sides = (value_of(side, publication, t, me) for side in (atom.left, atom.right))
        return compare(atom.comparator, *sides) is True

    return (
        all(value(subject) in allowed for subject, allowed in one.sets.items())
        and all(map(holds, one.atoms))
        and not any(
            holds(fail) if isinstance(fail, Comparison) else value(fail[0]) in fail[1]
            for fail in one.fails
        )
    )


# --- nothing is lost --------------------------------------------------------------------------

moving = st.builds(Subscription, conditions(static_predicates | moving_predicates, max_leaves=3))
moments = st.lists(st.tuples(publications, times, states), min_size=5, max_size=5)
Moments = list[tuple[dict[str, Any], float, dict[str, Any]]]


@examples(250)
@given(moving, moving, moments)
def test_narrowing_loses_no_publication(
    wanted: Subscription, unwanted: Subscription, at: Moments
) -> None:
    everything = ProofCase({})
    for one in normalise(wanted).conjunctions:
        within = everything.within(one)
        for other in normalise(unwanted).conjunctions:
            for part in () if within is None else within.outside(other):
                left = narrowed(part)
                for moment in at:
                    if fits(part, *moment):
                        assert left is not None
                        assert fits(left, *moment)


@examples(250)
@given(moving, moving, moments)
def test_within_and_outside_make_up_a_case(
    wanted: Subscription, cut: Subscription, at: Moments
) -> None:
    for one in normalise(wanted).conjunctions:
        whole = ProofCase({}).within(one)
        for other in normalise(cut).conjunctions:
            if whole is None:
                continue
            inside, outside = whole.within(other), list(whole.outside(other))
            for moment in at:
                found = [part for part in outside if fits(part, *moment)]
                is_inside = inside is not None and fits(inside, *moment)
                assert is_inside != bool(found) if fits(whole, *moment) else not found
                patterned = any(len(s.fitting) + len(s.missing) > 1 for s in other.sets.values())
                assert len(found) <= 1 or patterned


# --- conclusions ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fails"),
    [
        ("x > y AND x < y", []),
        ("x > y AND x <= y", []),
        ("x = y AND x != y", []),
        ("x < x", []),
        ("x = y AND x = 3 AND y = 4", []),
        ("x = y AND x = 3 AND y = '3'", []),
        ("x > y AND x = TRUE", []),
        ("x > y AND y > 5 AND x < 5", []),
        ("x > t AND x < 0", []),
        ("x > t + 2 AND x < t + 1", []),
        ("x + 1 > 20 AND x BETWEEN 0 AND 10", []),
        ("sqrt(x) > 0 AND x < 0", []),
        ("y = 1 / x AND x = 0", []),
        ("lower(s) = 'a' AND s = 'B'", []),
        ("n.m = 3 AND n.m > y AND y > 3", []),
        ("x > y", ["x > y"]),
        ("x > y", ["x >= y"]),
        ("x > y", ["x != y"]),
        ("x + y > 3", ["x + y > 2"]),
        ("x BETWEEN 0 AND 9", ["x + 1 > 0"]),
        ("s IN ('A', 'a')", ["lower(s) = 'a'"]),
    ],
)
def test_contradictions_are_found(text: str, fails: list[str]) -> None:
    assert narrowed(case(text, *fails)) is None


@pytest.mark.parametrize(
    ("text", "fails"),
    [
        ("x >= y AND x <= y", []),
        ("x = y", ["x >= y"]),  # booleans are equal and have no order
        ("x = y", ["x <= y"]),
        ("x < y", ["x + 1 < y"]),
        ("x > t AND x < 10", []),
        ("x > 0", ["x + 1 > 0"]),  # the largest integer has no successor
        ("lower(s) = 'a'", ["s = 'a'"]),
    ],
)
def test_what_is_possible_is_kept(text: str, fails: list[str]) -> None:
    assert narrowed(case(text, *fails)) is not None


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("x > 3 AND x <= 5", 3.0000000000000004, 5),
        ("x > t + 3 AND x < 50", 3.0000000000000004, 49.99999999999999),
        ("x = y AND y BETWEEN 3 AND 4", 3, 4),
        ("x <= y AND y <= 4 AND x >= 0", 0, 4),
        ("x BETWEEN 1 AND 2 OR x BETWEEN 8 AND 9", 1, 9),
    ],
)
def test_ranges_follow(text: str, low: float, high: float) -> None:
    found = narrowed(case(text))
    assert found is not None
    assert ranges_of(found.sets)[X] == (low, high)


def test_only_what_is_surely_a_number_has_a_range() -> None:
    sets: Sets = {X: NUMBERS, Y: ValueSet(((1, 2),), (("a", "b"),)), N: ValueSet(facts=1)}
    assert ranges_of(sets).keys() == {X}


def test_types_follow_from_what_is_computed() -> None:
    found = narrowed(case("x + 1 > y AND lower(s) = 'a'"))
    assert found is not None
    assert ranges_of(found.sets).keys() == {X, Y, Time()}
    texts = found.sets[Attribute(("s",))]
    assert texts.strings
    assert (texts.numbers, texts.facts) == ((), 0)


def test_a_case_without_values_left_is_none() -> None:
    one = case("x > 3")
    assert one.with_set(X, ValueSet(((0, 3),))) is None
    assert one.with_set(X, EMPTY) is None
    assert one.within(conjunction("x < 2")) is None
    assert list(one.outside(conjunction("x > 3"))) == []


def test_atoms_keep_one_order_whatever_the_hashes() -> None:
    texts = ["x > y", "x > z", "x < w", "a > b", "c != d"]
    one, other = (" AND ".join(order) for order in (texts, texts[::-1]))
    assert case(one).atoms == case(other).atoms
    assert len(case(f"{one} AND {one}").atoms) == len(texts)


# --- the search -------------------------------------------------------------------------------


def test_a_witness_is_only_what_is_accepted() -> None:
    seen: list[Witness] = []

    def accepts(witness: Witness) -> bool:
        seen.append(witness)
        return False

    with pytest.raises(Undecided):
        WitnessSearch(accepts, 50).find([case("x > y + 1")])
    assert seen
    assert all(fits(case("x > y + 1"), w.publication, w.t, w.me) for w in seen) is False


def test_no_witness_is_sought_where_nothing_fits() -> None:
    def accepts(witness: Witness) -> bool:
        raise AssertionError("nothing to try")

    assert WitnessSearch(accepts, 50).find([case("x > y AND x < y")]) is None
    assert WitnessSearch(accepts, 50).find([]) is None


def test_the_search_ends_when_the_steps_are_used_up() -> None:
    seeker = WitnessSearch(lambda witness: False, 3)
    with pytest.raises(Undecided):
        seeker.find([case("x * y = 12345.678")])
    assert seeker.steps_left < 0


@pytest.mark.parametrize(
    "text",
    [
        "x > 3",
        "n.m.k > 3 AND n.l = 'a'",
        "n.m IS NULL AND n IS NOT NULL",
        "x > y AND y > z AND z > 100",
        "x BETWEEN t + 5 AND t + 6",
        "x = y AND contains(y, 'ab')",
        "lower(s) LIKE 'a_c%' AND s != 'abc'",
        "distance(lat, long, 45.8, 15.9) < 10",
        "x + 1 = 4",
        "2 * x = 10 AND x < 9",
        "sqrt(x) BETWEEN 3 AND 3.1",
        "me.x > x AND me.vip",
    ],
)
def test_a_witness_is_found_and_fits(text: str) -> None:
    one = case(text)
    witness = WitnessSearch(lambda w: fits(one, w.publication, w.t, w.me), 1_000).find([one])
    assert witness is not None
    assert fits(one, witness.publication, witness.t, witness.me)
    assert 0 <= witness.t < 10


def test_each_bound_is_made_a_linear_function_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    linear = bounds._linear

    def counted(node: ValueNode, ranges: bounds.Ranges) -> object:
        made.append(node)
        return linear(node, ranges)

    monkeypatch.setattr(bounds, "_linear", counted)
    text = " AND ".join(f"x > y + {i} AND x < z + {i}" for i in range(10))
    (conjunction,) = normalise(parse(text)).conjunctions
    case = ProofCase({}).within(conjunction)
    assert case is not None
    assert narrowed(case) is not None
    assert 0 < len(made) <= 3 * 20  # a sum and its two operands, not 100 pairs of them
