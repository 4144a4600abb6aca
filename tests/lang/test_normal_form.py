"""The normal form means what the oracle says, is as small as it should be, and stays bounded."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rove.lang import normal_form
from rove.lang.canonical_form import as_condition
from rove.lang.errors import LimitError
from rove.lang.limits import (
    CONJUNCTIONS_MAX,
    CONJUNCTIONS_WHILE_NORMALISING_MAX,
    NORMALISING_STEPS_MAX,
    PARTS_MAX,
)
from rove.lang.normal_form import (
    Conjunction,
    NormalForm,
    holds,
    meet,
    negated_comparator,
    normalise,
)
from rove.lang.oracle import matches
from rove.lang.parser import parse
from rove.lang.patterns import StepBudget
from rove.lang.printer import to_text
from rove.lang.sets import EMPTY, EVERYTHING, NULL, OBJECT, is_empty
from rove.lang.tree import And, Attribute, Me, Not, Or, Subscription, Time, walk
from rove.testing import strategies
from tests.effort import examples

Encounter = tuple[Subscription, dict[str, Any], float, dict[str, Any]]


def form(text: str) -> NormalForm:
    return normalise(parse(text))


def written(text: str) -> str:
    """The normal form of a text, as a person would write it."""
    return to_text(as_condition(form(text)))


# --- the same meaning ---------------------------------------------------------------------------


@examples(500)
@given(strategies.encounters())
def test_the_normal_form_matches_what_the_text_matches(encounter: Encounter) -> None:
    subscription, publication, t, me = encounter
    found = normalise(subscription)
    assert holds(found, publication, t, me) == matches(subscription, publication, t, me)


@examples(350)
@given(strategies.encounters(strategies.static_subscriptions))
def test_the_normal_form_of_sets_matches_what_the_text_matches(encounter: Encounter) -> None:
    subscription, publication, t, me = encounter
    found = normalise(subscription)
    assert holds(found, publication, t, me) == matches(subscription, publication, t, me)
    opposite = Subscription(Not(subscription.condition))
    assert holds(normalise(opposite), publication, t, me) == matches(opposite, publication, t, me)


@examples(150)
@given(strategies.subscriptions, st.lists(strategies.publications, min_size=3, max_size=3))
def test_the_normal_form_matches_on_any_publication(
    subscription: Subscription, publications: list[Any]
) -> None:
    found = normalise(subscription)
    for publication in publications:
        assert holds(found, publication, 1.0) == matches(subscription, publication, 1.0)


one_attribute = st.builds(
    Subscription,
    strategies.conditions(
        st.one_of(
            [
                st.just(parse(text).condition)
                for text in (
                    "a = 1", "a > 1", "a <= 3", "a BETWEEN 1 AND 3", "a IN (1, 2)", "a = 'a'",
                    "a LIKE '%a'", "contains(a, 'ab')", "a LIKE '_'", "a IS NULL", "a", "a = FALSE",
                    "a IS NOT NULL", "a.b = 1", "a.b IS NULL", "a.b.c > 1", "a >= 'ab'",
                    "startswith(a, 'a')", "a.b IS NOT NULL", "lower(a) = 'a'", "me.a IS NULL",
                    "me.a.b = 1",
                )
            ]
        ),
        max_leaves=8,
    ),
)  # fmt: skip
TELLING_VALUES: tuple[Any, ...] = (
    None, 1, 1.5, 2, 3, 4, "", "a", "A", "b", "ab", "aba", "xab", True, False, [], {"b": 1},
    {"b": None}, {"b": {"c": 2}}, {"b": {}}, {"b": "a"},
)  # fmt: skip


@examples(350)
@given(one_attribute)
def test_merging_and_nesting_keep_the_meaning_for_every_kind_of_value(
    subscription: Subscription,
) -> None:
    found = normalise(subscription)
    for value in TELLING_VALUES:
        for me in ({}, {"a": value}):
            expected = matches(subscription, {"a": value}, 0.0, me)
            assert holds(found, {"a": value}, 0.0, me) == expected, value


def test_sets_with_the_same_hash_are_not_taken_for_each_other() -> None:
    one = 2**53 + 5
    other = one + 2**61 - 1  # Python's hash of an integer is its remainder by 2^61 - 1
    (first,), (second,) = (form(f"b = {number}").conjunctions for number in (one, other))
    assert hash(first.sets[Attribute(("b",))]) == hash(second.sets[Attribute(("b",))])
    found = form(f"a = 1 AND b = {one} OR a = 2 AND b = {other}")
    asked = [(a, b) for a in (1, 2) for b in (one, other) if holds(found, {"a": a, "b": b})]
    assert asked == [(1, one), (2, other)]
    assert (
        written(f"a = 1 AND b = {one} OR a = 1 AND b = {other}")
        == f"a = 1 AND b IN ({one}, {other})"
    )


# --- its shape ------------------------------------------------------------------------------------


@examples(150)
@given(strategies.subscriptions | one_attribute)
def test_nothing_in_a_normal_form_could_be_left_out(
    subscription: Subscription,
) -> None:
    conjunctions = normalise(subscription).conjunctions
    for conjunction in conjunctions:
        for allowed in conjunction.sets.values():
            assert allowed not in (EMPTY, EVERYTHING)
            assert not is_empty(allowed)
        for side in (side for atom in conjunction.atoms for side in (atom.left, atom.right)):
            assert any(isinstance(part, Attribute | Me | Time) for part in walk(side))
    for i, one in enumerate(conjunctions):
        for other in conjunctions[:i]:
            assert not normal_form.includes(one, other, StepBudget())
            assert not normal_form.includes(other, one, StepBudget())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("NOT a < 3", "a >= 3", id="of a comparison"),
        pytest.param("NOT a = 3", "a != 3", id="of an equality"),
        pytest.param("NOT NOT a = 3", "a = 3", id="twice"),
        pytest.param("NOT (a = 1 OR b = 2)", "a != 1 AND b != 2", id="of OR"),
        pytest.param("NOT (a = 1 AND b = 2)", "a != 1 OR b != 2", id="of AND"),
        pytest.param("NOT (a = 1 AND NOT b = 2)", "a != 1 OR b = 2", id="of NOT inside"),
        pytest.param("NOT a BETWEEN 1 AND 3", "a < 1 OR a > 3", id="of BETWEEN"),
        pytest.param("NOT a NOT BETWEEN 1 AND 3", "a BETWEEN 1 AND 3", id="of NOT BETWEEN"),
        pytest.param("NOT a IN (1, 2)", "a NOT IN (1, 2)", id="of IN"),
        pytest.param("NOT a NOT IN (1, 2)", "a IN (1, 2)", id="of NOT IN"),
        pytest.param("NOT a LIKE '%x_'", "a NOT LIKE '%x_'", id="of LIKE"),
        pytest.param("NOT a NOT LIKE '%x_'", "a LIKE '%x_'", id="of NOT LIKE"),
        pytest.param("NOT contains(a, 'x')", "NOT contains(a, 'x')", id="of contains"),
        pytest.param("NOT a IS NULL", "a IS NOT NULL", id="of IS NULL"),
        pytest.param("NOT a IS NOT NULL", "a IS NULL", id="of IS NOT NULL"),
        pytest.param("NOT a", "NOT a", id="of a boolean"),
        pytest.param("NOT a = TRUE", "NOT a", id="of TRUE"),
        pytest.param("NOT TRUE", "FALSE", id="of the constant TRUE"),
        pytest.param("NOT x < t", "x >= t", id="of what moves"),
        pytest.param("NOT x BETWEEN t AND t + 1", "x < t OR x > t + 1", id="of a moving BETWEEN"),
    ],
)
def test_not_is_pushed_down_to_the_predicates(text: str, expected: str) -> None:
    assert written(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a >= 1 AND a <= 3", "a BETWEEN 1 AND 3"),
        ("a BETWEEN 1 AND 5 AND a BETWEEN 3 AND 9", "a BETWEEN 3 AND 5"),
        ("a BETWEEN 1 AND 3 OR a BETWEEN 2 AND 5", "a BETWEEN 1 AND 5"),
        ("a = 2 OR a = 1", "a IN (1, 2)"),
        ("a IN (1, 2, 3) AND a IN (2, 3, 4)", "a IN (2, 3)"),
        ("a IN (1, 2) AND a NOT IN (1)", "a = 2"),
        ("a < 3 OR a >= 3", "a < 0 OR a >= 0"),
        ("a = 1 AND b = 1 OR a = 2 AND b = 1", "a IN (1, 2) AND b = 1"),
        (
            "a = 1 AND b = 1 OR a = 2 AND b = 1 OR a = 1 AND b = 2 OR a = 2 AND b = 2",
            "a IN (1, 2) AND b IN (1, 2)",
        ),
        ("a < 5 AND (a < 9 OR b = 1)", "a < 5"),
        ("a = 1 OR a = 1 AND b = 2", "a = 1"),
        ("a = 1 AND b = 2 OR a = 1", "a = 1"),
        ("x < t OR x < t AND a = 1", "x < t"),
        ("a = 1 OR a = 1", "a = 1"),
        ("x < t OR x < t", "x < t"),
        ("a IS NULL OR a IS NOT NULL", "TRUE"),
        ("(a IS NULL OR a IS NOT NULL) AND b = 1", "b = 1"),
        ("startswith(a, 'ab') OR startswith(a, 'a')", "startswith(a, 'a')"),
        ("contains(a, 'b') OR startswith(a, 'ab')", "contains(a, 'b')"),
        ("a LIKE '%b' AND a IN ('ab', 'ba')", "a = 'ab'"),
        ("a = 1 OR a = 'x' OR a OR a IS NULL", "a = 1 OR a = 'x' OR a OR a IS NULL"),
        ("TRUE AND a = 1", "a = 1"),
        ("TRUE OR a = 1", "TRUE"),
        ("1 < 2", "TRUE"),
        ("a > 1 + 1", "a > 2"),
        ("3 IN (1, 3)", "TRUE"),
        ("a = 1 AND x < t", "a = 1 AND x < t"),
    ],
)
def test_predicates_of_one_attribute_merge(text: str, expected: str) -> None:
    assert written(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "FALSE",
        "a = 1 AND a = 2",
        "a = 1 AND a = 'x'",
        "a = 1 AND a",
        "a AND NOT a",
        "a = 1 AND a IS NULL",
        "a IN (1, 2) AND a IN (3, 4)",
        "a IN (1, 2) AND a NOT IN (2, 1)",
        "a BETWEEN 3 AND 1",
        "a BETWEEN 'b' AND 'a'",
        "a BETWEEN 1 AND 3 AND a BETWEEN 3.0000000000000004 AND 5",
        "a > 1.7976931348623157e308",
        "a < -1.7976931348623157e308",
        "a > 9007199254740992 AND a < 9007199254740993",
        "a > 9223372036854775807 AND a < 9223372036854775808.0",
        "a > 0 AND a < 5e-324",
        "a < ''",
        "a LIKE '_' AND a LIKE '__'",
        "startswith(a, 'x') AND startswith(a, 'y')",
        "startswith(a, 'x') AND a < 'x'",
        "endswith(a, 'x') AND endswith(a, 'y')",
        "contains(a, 'ab') AND NOT contains(a, 'b')",
        "a LIKE '_%' AND a = ''",
        "a LIKE 'a%b' AND a LIKE '_'",
        "a NOT IN (TRUE, FALSE)",
        "a = 1/0",
        "NOT a = 1/0",
        "a NOT IN (1) AND a + 1/0 > 2",
        "1 / 0 IN (1)",
        "1 > 2",
        "a = 1 AND a.b = 2",
        "a = 1 AND a.b IS NOT NULL",
        "a IS NULL AND a.b.c = 2",
        "a.b = 1 AND a.b.c = 2",
        "a = 'x' AND a.b.c",
        "me.a = 1 AND me.a.b = 2",
        "(a = 1 OR a = 2) AND (a = 3 OR a = 4)",
    ],
)
def test_what_can_never_match_has_no_conjunction(text: str) -> None:
    assert form(text) == NormalForm(())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a IS NOT NULL AND a.b = 2", "a.b = 2", id="implied by what lies inside"),
        pytest.param("a = 1 AND a.b IS NULL", "a = 1", id="implied by what lies around"),
        pytest.param("a IS NULL AND a.b IS NULL", "a IS NULL", id="nothing in nothing"),
        pytest.param("a.b IS NULL", "a.b IS NULL", id="alone"),
        pytest.param("a.b.c = 1 AND a.b IS NOT NULL", "a.b.c = 1", id="deeper"),
        pytest.param("(a = 1 OR a IS NOT NULL) AND a.b = 1", "a.b = 1", id="any value around"),
        pytest.param("a = 1 OR a.b = 2", "a = 1 OR a.b = 2", id="either"),
        pytest.param("a = 1 AND ab.b = 2", "a = 1 AND ab.b = 2", id="no prefix by letters"),
        pytest.param("a = 1 AND me.a.b = 2", "a = 1 AND me.a.b = 2", id="not of one owner"),
        pytest.param("`a.b` = 1 AND a = 2", "`a.b` = 1 AND a = 2", id="a dot inside a name"),
    ],
)
def test_an_attribute_inside_another(text: str, expected: str) -> None:
    assert written(text) == expected


def test_settled_nesting_says_what_each_may_be() -> None:
    a, b = Attribute(("a",)), Attribute(("a", "b"))
    present = form("a IS NOT NULL").conjunctions[0].sets[a]
    number = form("a.b = 2").conjunctions[0].sets[b]
    assert normal_form.settle_nesting({a: present, b: number}) == {a: OBJECT, b: number}
    assert normal_form.settle_nesting({a: NULL, b: NULL}) == {a: NULL, b: NULL}
    assert normal_form.settle_nesting({a: NULL, b: number}) is None
    me = Me(("a",))
    assert normal_form.settle_nesting({me: NULL, b: number}) == {me: NULL, b: number}


@pytest.mark.parametrize(
    ("text", "atom"),
    [
        ("x > t", "x > t"),
        ("t < x", "x > t"),
        ("t <= x", "x >= t"),
        ("t != x", "x != t"),
        ("me.x >= x", "x <= me.x"),
        ("t > me.x", "me.x < t"),
        ("b < a", "a > b"),
        ("b = a", "a = b"),
        ("a + 1 > b", "b < a + 1"),
        ("3 + t < x", "x > t + 3"),
    ],
)
def test_atoms_look_one_way(text: str, atom: str) -> None:
    (conjunction,) = form(text).conjunctions
    assert conjunction.sets == {}
    assert [to_text(found) for found in conjunction.atoms] == [atom]


@pytest.mark.parametrize("comparator", ["=", "!=", "<", "<=", ">", ">="])
def test_negating_twice_is_the_same_comparator(comparator: Any) -> None:
    assert negated_comparator(comparator) != comparator
    assert negated_comparator(negated_comparator(comparator)) == comparator


def test_two_conjunctions_meet_or_exclude_each_other() -> None:
    (one,), (two,), (three,) = (
        form(text).conjunctions for text in ("a < 5 AND x < t", "a > 3 AND b", "a = 9")
    )
    both = meet(one, two)
    assert both is not None
    assert NormalForm((both,)) == form("a > 3 AND a < 5 AND b AND x < t")
    assert meet(one, three) is None
    assert meet(one, Conjunction()) == one


# --- limits ---------------------------------------------------------------------------------------


def either_or(pairs: int) -> str:
    """A product of 2^pairs conjunctions, none of which merge."""
    return " AND ".join(f"(p{i} = 1 OR q{i} = 1)" for i in range(pairs))


def alternatives(count: int) -> str:
    return " OR ".join(f"a{i} = 1" for i in range(count))


def test_64_conjunctions_are_accepted() -> None:
    assert CONJUNCTIONS_MAX == 64
    assert len(form(alternatives(64)).conjunctions) == 64
    assert len(form(either_or(6)).conjunctions) == 64


@pytest.mark.parametrize("text", [alternatives(65), f"{either_or(6)} OR z = 1", either_or(7)])
def test_65_conjunctions_are_refused(text: str) -> None:
    with pytest.raises(LimitError, match="64 are kept") as refusal:
        form(text)
    assert refusal.value.hint


def test_what_merges_does_not_count() -> None:
    assert len(form(" OR ".join(f"a = {i}" for i in range(200))).conjunctions) == 1
    assert len(form(f"({alternatives(65)}) AND FALSE").conjunctions) == 0
    absorbed = " OR ".join(f"a{i} = 1 AND b = 1" for i in range(100))
    assert len(form(f"{absorbed} OR b = 1").conjunctions) == 1


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every intersection of two conjunctions and every comparison of two from now on."""
    done: list[str] = []

    def counted(name: str) -> None:
        original = getattr(normal_form, name)

        def counting(*arguments: Any) -> Any:
            done.append(name)
            return original(*arguments)

        monkeypatch.setattr(normal_form, name, counting)

    counted("meet")
    counted("is_subset")
    return done


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(either_or(120), id="pairs"),
        pytest.param(
            " AND ".join(f"({alternatives(10)})".replace("a", f"n{i}_") for i in range(20)),
            id="tens",
        ),
        pytest.param(
            "NOT (" + " OR ".join(f"(p{i} = 1 AND q{i} = 1)" for i in range(120)) + ")", id="NOT"
        ),
        pytest.param(
            " AND ".join(f"x{i} NOT BETWEEN t AND t + 1" for i in range(100)), id="moving"
        ),
    ],
)
def test_a_hostile_product_is_refused_before_it_is_multiplied_out(
    text: str, work: list[str]
) -> None:
    with pytest.raises(LimitError):
        form(text)
    assert len(work) <= 2 * CONJUNCTIONS_WHILE_NORMALISING_MAX


def test_telling_large_conjunctions_apart_looks_at_few_sets(work: list[str]) -> None:
    base = " AND ".join(f"x{i} = 1" for i in range(PARTS_MAX // 64 - 6))
    assert len(form(f"{base} AND {either_or(6)}").conjunctions) == 64
    assert work.count("is_subset") < 64 * 64


def test_patterns_cost_no_more_together_than_one_search_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    efforts: list[StepBudget] = []

    class Counted(StepBudget):
        def __init__(self, steps: int) -> None:
            super().__init__(steps)
            efforts.append(self)

    monkeypatch.setattr(normal_form, "StepBudget", Counted)
    spent: list[int] = []
    spend = StepBudget.spend

    def counted(self: StepBudget, steps: int) -> None:
        spend(self, steps)
        spent.append(steps)

    monkeypatch.setattr(StepBudget, "spend", counted)
    text = " OR ".join(
        f"(a LIKE '%{i:03}%z' AND a LIKE '%{i:04}%y%' AND a NOT LIKE '%{i:02}%x_')"
        for i in range(64)
    )
    assert len(form(text).conjunctions) == 64
    assert len(efforts) == 1
    assert sum(spent) <= NORMALISING_STEPS_MAX


@pytest.mark.parametrize("join", [And, Or])
@pytest.mark.parametrize(
    "texts",
    [
        ("a = 1", "b = 2 OR c = 3", "NOT (d OR x < t)"),
        ("a = 1", "a LIKE '%a'", "a >= 'ab'", "a IS NULL"),
        ("a = 1", "contains(a, 'x')", "contains(a, 'y')", "a"),
    ],
)
def test_operands_may_stand_in_any_order(join: Any, texts: tuple[str, ...]) -> None:
    operands = [parse(text).condition for text in texts]
    forms = [normalise(Subscription(join(order))) for order in permutations(operands)]
    assert len({to_text(as_condition(form)) for form in forms}) == 1


@examples(150)
@given(strategies.subscriptions | one_attribute)
@example(parse("a = 1 OR (a LIKE '%a' OR a >= 'ab')"))
def test_the_normal_form_is_a_normal_form(subscription: Subscription) -> None:
    """Written as a condition and normalised again, it stays what it is."""
    found = normalise(subscription)
    again = normalise(Subscription(as_condition(found)))
    assert len(again.conjunctions) == len(found.conjunctions)
    assert all(conjunction in again.conjunctions for conjunction in found.conjunctions)
