"""Sets of values obey the laws of sets, seen through the membership of telling values.

The telling values are the bounds of all spans that are drawn, their direct neighbours, and
one of every other kind: so a bound that is off by one value is always noticed.
"""

import copy
import math
import pickle
import sys
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import patterns
from rove.lang import sets as sets_module
from rove.lang.limits import INTEGER_MAX, INTEGER_MIN
from rove.lang.patterns import contains, ends_with, like_pattern
from rove.lang.sets import (
    ALL_NUMBERS,
    ALL_STRINGS,
    BOOLEANS,
    EMPTY,
    EVERYTHING,
    IS_FALSE,
    IS_NULL,
    IS_OPAQUE,
    IS_TRUE,
    LOWEST,
    NULL,
    NUMBERS,
    OBJECT,
    PRESENT,
    STRINGS,
    TOP,
    Bound,
    Spans,
    ValueSet,
    after,
    complement,
    example,
    intersection,
    is_empty,
    is_point,
    is_subset,
    normal_spans,
    prefix_span,
    settled,
    spans_of,
    union,
)
from rove.lang.values import OPAQUE, next_number, previous_number
from tests.effort import examples

FLOAT_MAX = sys.float_info.max
LANDMARKS = (-FLOAT_MAX, -(2**63), -(2**53), -1, 0, 0.5, 3, 2**53, 2**63 - 1, 2.0**63, FLOAT_MAX)
NUMBER_BOUNDS = [*LANDMARKS, *map(next_number, LANDMARKS), math.inf]
TEXTS = ("", "a", "ab", "abc", "b", "ba", "~", "é", "\ud7ff", "\ue000", "𝄞", "\U0010ffff")
TEXT_BOUNDS = [*TEXTS, *(text + "\0" for text in TEXTS), *(prefix_span(t)[1] for t in TEXTS)]
PATTERNS = (contains("a"), ends_with("b"), like_pattern("_", None), like_pattern("a%b", None))
TELLING: tuple[object, ...] = (
    *LANDMARKS,
    *map(next_number, LANDMARKS[:-1]),
    *map(previous_number, LANDMARKS[1:]),
    *(bound for bound in TEXT_BOUNDS if bound is not TOP),
    *("aab", "bab", "a𝄞b", "abab"),
    True,
    False,
    None,
    OPAQUE,
)


def spans(bounds: list[Bound]) -> st.SearchStrategy[Spans]:
    """Every bit says whether the cell between two neighbouring bounds belongs to the spans."""
    cells = list(pairwise(sorted({*bounds} - {TOP}) + [TOP] * (TOP in bounds)))
    every = st.integers(0, 2 ** len(cells) - 1)
    return every.map(lambda bits: normal_spans(c for i, c in enumerate(cells) if bits >> i & 1))


SPANS_OF_NUMBERS, SPANS_OF_STRINGS = spans(NUMBER_BOUNDS), spans(TEXT_BOUNDS)
CHOICES = [frozenset(c) for n in range(3) for c in combinations(PATTERNS, n)]


@st.composite
def drawn_sets(draw: st.DrawFn) -> ValueSet:
    strings = draw(SPANS_OF_STRINGS)
    fitting, missing = draw(st.tuples(st.sampled_from(CHOICES), st.sampled_from(CHOICES)))
    numbers, facts = draw(SPANS_OF_NUMBERS), draw(st.integers(0, 15))
    return ValueSet(numbers, strings, fitting, missing, facts) if strings else ValueSet(numbers)


sets = drawn_sets()
plain_sets = sets.map(lambda a: ValueSet(a.numbers, a.strings, facts=a.facts))


def told(a: ValueSet) -> list[object]:
    """Which of the telling values belong to a set."""
    return [value for value in TELLING if value in a]


def outside(a: ValueSet) -> list[object]:
    """Which belong to its complement."""
    parts = complement(a)
    return [value for value in TELLING if any(value in part for part in parts)]


def are_normal(found: Spans) -> bool:
    """None empty, sorted, disjoint, none touching the next."""
    return all(low < high for low, high in found) and all(
        left[1] < right[0] for left, right in pairwise(found)
    )


# --- laws -------------------------------------------------------------------------------------


@examples(150)
@given(sets, sets)
def test_an_intersection_holds_what_both_hold(a: ValueSet, b: ValueSet) -> None:
    both = intersection(a, b)
    assert told(both) == [value for value in told(a) if value in b]
    assert told(both) == told(intersection(b, a))
    assert are_normal(both.numbers)
    assert are_normal(both.strings)
    assert both.strings or not both.patterned


@examples(150)
@given(sets | plain_sets, sets | plain_sets)
def test_a_union_holds_what_either_holds_unless_their_patterns_differ(
    a: ValueSet, b: ValueSet
) -> None:
    either = union(a, b)
    assert (either is None) == ((a.fitting, a.missing) != (b.fitting, b.missing))
    if either is not None:
        assert told(either) == [value for value in TELLING if value in a or value in b]
        assert are_normal(either.numbers)
        assert are_normal(either.strings)


@examples(150)
@given(sets)
def test_a_complement_holds_exactly_what_the_set_does_not(a: ValueSet) -> None:
    assert outside(a) == [value for value in TELLING if value not in a]
    for part in complement(a):
        assert is_empty(intersection(a, part))
        assert are_normal(part.numbers)
        assert are_normal(part.strings)


@examples(150)
@given(plain_sets, plain_sets)
def test_de_morgan(a: ValueSet, b: ValueSet) -> None:
    either = union(a, b)
    assert either is not None
    not_either, not_both = complement(either), complement(intersection(a, b))
    neither = [intersection(x, y) for x in complement(a) for y in complement(b)]
    assert [x for x in neither if x != EMPTY] == not_either
    one_missing = EMPTY
    for part in (*complement(a), *complement(b)):
        one_missing = union(one_missing, part) or EVERYTHING
    assert ([one_missing] if one_missing != EMPTY else []) == not_both


@examples(150)
@given(plain_sets, plain_sets, plain_sets)
def test_plain_sets_that_are_equal_look_equal(a: ValueSet, b: ValueSet, c: ValueSet) -> None:
    left = union(union(a, b) or EMPTY, c)
    right = union(a, union(b, c) or EMPTY)
    assert left == right
    assert intersection(intersection(a, b), c) == intersection(a, intersection(b, c))
    assert union(a, intersection(a, b)) == a == intersection(a, union(a, b) or EMPTY)
    assert union(a, a) == intersection(a, a) == a
    assert intersection(a, EVERYTHING) == union(a, EMPTY) == a
    assert intersection(a, EMPTY) == EMPTY
    assert union(a, EVERYTHING) == EVERYTHING


@examples(150)
@given(plain_sets)
def test_the_complement_of_the_complement_is_the_set(a: ValueSet) -> None:
    (outer,) = complement(a) or [EMPTY]
    (inner,) = complement(outer) or [EMPTY]
    assert inner == a


# --- examples and proofs --------------------------------------------------------------------------


@examples(150)
@given(sets | st.builds(intersection, sets, sets))
def test_an_example_is_a_member_and_an_empty_set_has_none(a: ValueSet) -> None:
    if is_empty(a):
        assert told(a) == []
        with pytest.raises(LookupError):
            example(a)
    else:
        assert example(a) in a


@examples(150)
@given(sets, sets)
def test_a_subset_has_no_member_outside_and_no_subset_has_one(a: ValueSet, b: ValueSet) -> None:
    if is_subset(a, b):
        assert [value for value in told(a) if value not in b] == []
    else:
        parts = [intersection(a, part) for part in complement(b)]
        witness = next(example(part) for part in parts if not is_empty(part))
        assert witness in a
        assert witness not in b


@examples(150)
@given(sets, sets)
def test_sets_lie_between_their_intersection_and_everything(a: ValueSet, b: ValueSet) -> None:
    assert is_subset(intersection(a, b), a)
    assert is_subset(a, a)
    assert is_subset(EMPTY, a)
    assert is_subset(a, EVERYTHING)


@examples(150)
@given(sets)
def test_settling_changes_no_member(a: ValueSet) -> None:
    assert told(settled(a)) == told(a)


@pytest.mark.parametrize(
    ("allowed", "value"),
    [
        (NUMBERS, 0),
        (STRINGS, ""),
        (BOOLEANS, True),
        (ValueSet(facts=IS_FALSE), False),
        (NULL, None),
        (OBJECT, OPAQUE),
        (ValueSet(((1.5, 7),)), 2),
        (ValueSet(((-7, -1.5),)), -2),
        (ValueSet(((1.25, 1.5),)), 1.25),
        (ValueSet(((LOWEST, -3),)), -4),
        (ValueSet(((2**60, math.inf),)), 2**60),
        (ValueSet(((FLOAT_MAX, math.inf),)), FLOAT_MAX),
        (ValueSet(strings=(("b", "c"),)), "b"),
        (ValueSet(strings=ALL_STRINGS, fitting=frozenset([contains("xy")])), "xy"),
        (ValueSet(strings=(("x", TOP),), fitting=frozenset([ends_with("b")])), "xb"),
    ],
)
def test_examples_are_readable(allowed: ValueSet, value: object) -> None:
    assert example(allowed) == value


def test_patterns_can_leave_a_set_empty() -> None:
    impossible = frozenset([like_pattern("_", None), like_pattern("__", None)])
    assert is_empty(ValueSet(strings=ALL_STRINGS, fitting=impossible))
    assert not is_empty(ValueSet(strings=ALL_STRINGS, fitting=impossible, facts=IS_NULL))


def test_what_nobody_knows_is_neither_empty_nor_a_subset(monkeypatch: pytest.MonkeyPatch) -> None:
    impossible = frozenset([like_pattern("_", None), like_pattern("__", None)])
    monkeypatch.setattr(patterns, "AUTOMATON_STEPS_MAX", 1)
    assert not is_empty(ValueSet(strings=ALL_STRINGS, fitting=impossible))
    assert not is_subset(
        ValueSet(strings=ALL_STRINGS, fitting=frozenset([ends_with("ab")])),
        ValueSet(strings=ALL_STRINGS, fitting=frozenset([ends_with("b")])),
    )


def test_points_settle_their_patterns() -> None:
    points = ValueSet(strings=spans_of(["ab", "b", "xb"]), fitting=frozenset([ends_with("b")]))
    assert settled(points) == ValueSet(strings=spans_of(["ab", "b", "xb"]))
    wide = ValueSet(strings=(("a", "b"),), fitting=frozenset([ends_with("b")]))
    assert intersection(points, wide) == ValueSet(strings=spans_of(["ab"]))


# --- named sets -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "members"),
    [
        (EMPTY, []),
        (NUMBERS, [1, 2.5]),
        (STRINGS, ["", "x"]),
        (BOOLEANS, [True, False]),
        (NULL, [None]),
        (OBJECT, [OPAQUE]),
        (PRESENT, [1, 2.5, "", "x", True, False, OPAQUE]),
        (EVERYTHING, [1, 2.5, "", "x", True, False, None, OPAQUE]),
        (ValueSet(facts=IS_TRUE), [True]),
        (ValueSet(facts=IS_OPAQUE | IS_FALSE), [False, OPAQUE]),
        (ValueSet(((1, 2),)), [1]),
        (ValueSet(((0, 1),)), []),
    ],
)
def test_the_named_sets_hold(allowed: ValueSet, members: list[object]) -> None:
    asked: list[object] = [1, 2.5, "", "x", True, False, None, OPAQUE]
    assert [value for value in asked if value in allowed] == members


def test_a_boolean_is_in_no_span_of_numbers() -> None:
    assert True not in NUMBERS
    assert False not in ValueSet(((0, 2),))


# --- spans ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_spans", "normal"),
    [
        ([], ()),
        ([(3, 3)], ()),
        ([(4, 3)], ()),
        ([(1, 2), (2, 3)], ((1, 3),)),
        ([(2, 3), (1, 2)], ((1, 3),)),
        ([(1, 5), (2, 3)], ((1, 5),)),
        ([(1, 2), (4, 5), (1.5, 4.5)], ((1, 5),)),
        ([(1, 2), (3, 4)], ((1, 2), (3, 4))),
        ([(1, math.inf), (LOWEST, 1)], ALL_NUMBERS),
        ([("b", TOP), ("", "b")], ALL_STRINGS),
        ([("a", "a\0"), ("a\0", "b")], (("a", "b"),)),
    ],
)
def test_any_spans_made_normal(given_spans: list[tuple[Bound, Bound]], normal: Spans) -> None:
    assert normal_spans(given_spans) == normal


@examples(150)
@given(st.lists(st.tuples(st.sampled_from(NUMBER_BOUNDS), st.sampled_from(NUMBER_BOUNDS))))
def test_normal_spans_hold_the_same_numbers(pairs: list[tuple[Bound, Bound]]) -> None:
    found = normal_spans(pairs)
    assert are_normal(found)
    assert normal_spans(reversed(found)) == found
    for value in NUMBER_BOUNDS:
        inside = any(low <= value < high for low, high in pairs)
        assert (value in ValueSet(found)) == inside


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([1, 1.0, 1], ((1, next_number(1)),)),
        ([2**53, 2**53 + 1], ((2**53, 2**53 + 2),)),
        ([0, 5e-324], ((0, 1e-323),)),
        ([INTEGER_MAX, 2.0**63], ((INTEGER_MAX, next_number(2.0**63)),)),
        (["a\0", "a"], (("a", "a\0\0"),)),
        (["b", "a"], (("a", "a\0"), ("b", "b\0"))),
        ([FLOAT_MAX], ((FLOAT_MAX, math.inf),)),
        ([], ()),
    ],
)
def test_values_that_are_neighbours_make_one_span(values: list[Bound], found: Spans) -> None:
    assert spans_of(values) == found


NEIGHBOURS = [
    0,
    5e-324,
    -5e-324,
    1,
    2**53,
    2.0**53,
    -(2**53),
    2**53 + 1,
    INTEGER_MAX,
    INTEGER_MIN,
    2.0**63,
    -(2.0**63),
    FLOAT_MAX,
    -FLOAT_MAX,
    "",
    "a",
    "\U0010ffff",
    "\ud7ff",
]


@pytest.mark.parametrize("value", NEIGHBOURS, ids=ascii)
def test_a_point_holds_itself_and_no_neighbour(value: Bound) -> None:
    low, high = value, after(value)
    assert is_point(low, high)
    assert not is_point(low, after(high) if high != math.inf else 0)
    is_text = isinstance(value, str)
    point = ValueSet(strings=((low, high),)) if is_text else ValueSet(((low, high),))
    near = [high] if is_text else [high, previous_number(low)]
    assert value in point
    assert [other for other in near if other in point] == []
    assert is_empty(intersection(point, complement(point)[0]))


def test_an_open_end_is_no_point() -> None:
    assert not is_point("\U0010ffff", TOP)
    assert is_point(FLOAT_MAX, math.inf)


@pytest.mark.parametrize(
    ("prefix", "end"),
    [
        ("a", "b"),
        ("ab", "ac"),
        ("~", "\x7f"),
        ("", TOP),
        ("\ud7ff", "\ue000"),
        ("x\ud7ff", "x\ue000"),
        ("\U0010ffff", TOP),
        ("\U0010ffff\U0010ffff", TOP),
        ("a\U0010ffff", "b"),
        ("a\ud7ff\U0010ffff\U0010ffff", "a\ue000"),
        ("\uffff", "\U00010000"),
    ],
    ids=ascii,
)
def test_the_span_of_a_prefix(prefix: str, end: Bound) -> None:
    assert prefix_span(prefix) == (prefix, end)


characters = st.sampled_from(["a", "b", "~", "\0", "\ud7ff", "\ue000", "\uffff", "\U0010ffff"])
strings = st.lists(characters, max_size=4).map("".join)


@examples(150)
@given(strings, strings)
def test_a_string_is_in_the_span_of_a_prefix_exactly_if_it_starts_with_it(
    prefix: str, text: str
) -> None:
    held = ValueSet(strings=(prefix_span(prefix),))
    assert (text in held) == text.startswith(prefix)
    assert prefix + text in held


def test_top_is_above_every_string_and_not_above_itself() -> None:
    assert TOP > "\U0010ffff" * 9
    assert not TOP < "x"
    assert not TOP < TOP
    assert not TOP > TOP
    assert TOP <= TOP
    assert TOP >= TOP
    assert TOP >= "x"
    assert not TOP <= "x"
    assert repr(TOP) == "TOP"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_there_is_one_top_after_pickling_too(protocol: int) -> None:
    """Sets are compared and ranked by what is TOP, so a second one would be a string's end."""
    assert pickle.loads(pickle.dumps(TOP, protocol)) is TOP
    arrived = pickle.loads(pickle.dumps(ValueSet(strings=(("b", TOP),)), protocol))
    assert arrived == ValueSet(strings=(("b", TOP),))
    assert arrived.strings[0][1] is TOP
    assert copy.deepcopy(TOP) is copy.copy(TOP) is TOP


def test_one_span_is_cut_out_of_many_without_looking_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = ValueSet(tuple((3 * i, 3 * i + 1) for i in range(1_000)))
    looked_at: list[int] = []
    merge = sets_module._both

    def counted(a: sets_module.Spans, b: sets_module.Spans) -> sets_module.Spans:
        looked_at.append(len(a) + len(b))
        return merge(a, b)

    monkeypatch.setattr(sets_module, "_both", counted)
    span = ValueSet(((300.5, 2_000),))
    expected = ((300.5, 301), *((3 * i, 3 * i + 1) for i in range(101, 666)), (1_998, 1_999))
    assert intersection(many, span).numbers == intersection(span, many).numbers == expected
    assert sum(looked_at) <= 16
