"""The oracle, which judges every matcher, is itself judged twice.

First by tables derived from the specification by hand: what is TRUE, FALSE and UNKNOWN at the
boundary of every operator. Then by a second evaluator in another style: Kleene's logic as
minimum and maximum of 0, 1/2 and 1, numbers as fractions, strings as lists of code points,
patterns as regular expressions.
"""

import math
import re
import sys
from collections.abc import Iterable, Mapping
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import functions, tree
from rove.lang.limits import INTEGER_MAX, INTEGER_MIN
from rove.lang.oracle import all_of, any_of, compare, matches, opposite, score_of, truth
from rove.lang.parser import parse
from rove.testing import strategies
from tests.effort import examples

TRUE, FALSE, UNKNOWN = True, False, None
TRUTHS = (TRUE, FALSE, UNKNOWN)
NAMES = {TRUE: "TRUE", FALSE: "FALSE", UNKNOWN: "UNKNOWN"}
FLOAT_MAX = sys.float_info.max
TINY = 5e-324
A_BIT_OVER_3, A_BIT_UNDER_3 = math.nextafter(3, 4), math.nextafter(3, 2)

Truth = bool | None
Values = dict[str, object]
Row = tuple[str, Values, Truth]


def asked(text: str, publication: Values, t: float = 0, **me: object) -> Truth:
    return truth(parse(text).condition, publication, t, me)


def rows(table: Iterable[Row]) -> pytest.MarkDecorator:
    """One test for each row, named by its text, its publication and its truth."""
    listed = list(table)
    ids = [f"{text} with {values!a} is {NAMES[expected]}" for text, values, expected in listed]
    return pytest.mark.parametrize(("text", "publication", "expected"), listed, ids=ids)


def each(text: str, expected: Mapping[Truth, Iterable[object]]) -> list[Row]:
    """Rows that ask `text` of `a` being each of the values."""
    return [
        (text, {"a": value}, verdict) for verdict, values in expected.items() for value in values
    ]


# --- comparisons ------------------------------------------------------------------------------

NO_NUMBERS: tuple[object, ...] = (
    "3",
    "",
    True,
    False,
    None,
    [],
    [3],
    {},
    {"b": 3},
    b"3",
    2**63,
    -(2**63) - 1,
)
NO_STRINGS: tuple[object, ...] = (3, 0, 3.0, True, False, None, [], ["x"], {}, b"x", 2**63)
NO_BOOLEANS: tuple[object, ...] = (
    1,
    0,
    1.0,
    0.0,
    "true",
    "TRUE",
    "",
    None,
    [],
    [True],
    {},
    b"",
    2**63,
)


@rows(
    [
        *each("a = 3", {TRUE: [3, 3.0], FALSE: [A_BIT_OVER_3, A_BIT_UNDER_3, 2, -3]}),
        *each("a != 3", {TRUE: [A_BIT_OVER_3, A_BIT_UNDER_3, 2, -3], FALSE: [3, 3.0]}),
        *each("a <> 3", {TRUE: [A_BIT_OVER_3], FALSE: [3, 3.0]}),
        *each("a < 3", {TRUE: [A_BIT_UNDER_3, 2, -FLOAT_MAX], FALSE: [3, 3.0, A_BIT_OVER_3]}),
        *each("a <= 3", {TRUE: [A_BIT_UNDER_3, 3, 3.0], FALSE: [A_BIT_OVER_3, FLOAT_MAX]}),
        *each("a > 3", {TRUE: [A_BIT_OVER_3, 4, FLOAT_MAX], FALSE: [3, 3.0, A_BIT_UNDER_3]}),
        *each("a >= 3", {TRUE: [A_BIT_OVER_3, 3, 3.0], FALSE: [A_BIT_UNDER_3, -FLOAT_MAX]}),
        *each("3 > a", {TRUE: [2], FALSE: [3, 4]}),
        *each("3.0 = a", {TRUE: [3, 3.0], FALSE: [4]}),
        *each("a = 0", {TRUE: [0, 0.0, -0.0], FALSE: [TINY, -TINY]}),
        *each("a < 0", {TRUE: [-TINY], FALSE: [0, 0.0, -0.0, TINY]}),
        *each("a >= -0.0", {TRUE: [0, 0.0, -0.0, TINY], FALSE: [-TINY]}),
        *each("a = 0.1", {TRUE: [0.1], FALSE: [math.nextafter(0.1, 1), math.nextafter(0.1, 0)]}),
        *each("a < 1.7976931348623157e308", {TRUE: [1e308], FALSE: [FLOAT_MAX]}),
        *each("a >= 5e-324", {TRUE: [TINY], FALSE: [0]}),
    ]
)
def test_numbers_at_the_bound(text: str, publication: Values, expected: Truth) -> None:
    assert asked(text, publication) is expected


@rows(
    [
        *each("a = 9007199254740993", {TRUE: [2**53 + 1], FALSE: [2.0**53, 2**53, 2.0**53 + 2]}),
        *each("a = 9007199254740992.0", {TRUE: [2**53, 2.0**53], FALSE: [2**53 + 1, 2**53 - 1]}),
        *each("a > 9007199254740992.0", {TRUE: [2**53 + 1], FALSE: [2**53, 2.0**53]}),
        *each("a < 9007199254740993", {TRUE: [2**53, 2.0**53], FALSE: [2**53 + 1]}),
        *each("a >= 9007199254740993", {TRUE: [2**53 + 1, 2.0**53 + 2], FALSE: [2.0**53]}),
        *each("a = 9223372036854775807", {TRUE: [INTEGER_MAX], FALSE: [2.0**63]}),
        *each("a < 9223372036854775808.0", {TRUE: [INTEGER_MAX], FALSE: [2.0**63]}),
        *each("a > 9223372036854775807", {TRUE: [2.0**63], FALSE: [INTEGER_MAX]}),
        *each("a = -9223372036854775808", {TRUE: [INTEGER_MIN, -(2.0**63)], FALSE: [-INTEGER_MAX]}),
        *each("a IN (9007199254740993)", {TRUE: [2**53 + 1], FALSE: [2.0**53, 2**53]}),
        ("a = b", {"a": 2**53 + 1, "b": 2.0**53}, FALSE),
        ("a > b", {"a": 2**53 + 1, "b": 2.0**53}, TRUE),
        ("a != b", {"a": 2**53 + 1, "b": 2**53}, TRUE),
        ("a < b", {"a": INTEGER_MAX, "b": 2.0**63}, TRUE),
        ("a BETWEEN b AND b", {"a": 2**53 + 1, "b": 2.0**53}, FALSE),
    ]
)
def test_integers_beyond_the_floats(text: str, publication: Values, expected: Truth) -> None:
    assert asked(text, publication) is expected


@rows(
    [
        *each("a = 'x'", {TRUE: ["x"], FALSE: ["X", "", "x ", "xx"], UNKNOWN: NO_STRINGS}),
        *each("a != 'x'", {FALSE: ["x"], TRUE: ["X", "", "x "], UNKNOWN: NO_STRINGS}),
        *each("a < 'b'", {TRUE: ["", "a", "azz", "B", "Z"], FALSE: ["b", "b\0", "ba", "é"]}),
        *each("a <= 'b'", {TRUE: ["", "azz", "b"], FALSE: ["b\0", "ba"], UNKNOWN: NO_STRINGS}),
        *each("a > 'b'", {TRUE: ["b\0", "ba", "é"], FALSE: ["", "b", "Z"], UNKNOWN: NO_STRINGS}),
        *each("a >= ''", {TRUE: ["", "\0", "x"], UNKNOWN: NO_STRINGS}),
        *each("a = 'it''s'", {TRUE: ["it's"], FALSE: ["it''s", "its"]}),
        *each("a = ''''", {TRUE: ["'"], FALSE: ["''", ""]}),
        *each("a = ''", {TRUE: [""], FALSE: ["'", " "]}),
        *each("a > '\uffff'", {TRUE: ["𝄞", "\U0010ffff"], FALSE: ["\ue000", "\uffff", "z"]}),
        *each("a < '𝄞'", {TRUE: ["\uffff", "\ue000"], FALSE: ["𝄞", "𝄟"]}),
        *each("a = 'e\u0301'", {TRUE: ["e\u0301"], FALSE: ["é", "e"]}),
        *each("lower(a) = 'abc'", {TRUE: ["ABC", "aBc"], FALSE: ["ab"], UNKNOWN: NO_STRINGS}),
        *each("lower(a) = 'ABC'", {FALSE: ["ABC", "abc"]}),
        *each("lower(a) != 'abc'", {FALSE: ["ABC"], TRUE: ["x"], UNKNOWN: NO_STRINGS}),
    ]
)
def test_strings_go_by_code_point_and_case(text: str, publication: Values, expected: Truth) -> None:
    assert asked(text, publication) is expected


@rows(
    [
        *each("a = TRUE", {TRUE: [True], FALSE: [False], UNKNOWN: NO_BOOLEANS}),
        *each("a != TRUE", {TRUE: [False], FALSE: [True], UNKNOWN: NO_BOOLEANS}),
        *each("a = FALSE", {TRUE: [False], FALSE: [True], UNKNOWN: NO_BOOLEANS}),
        *each("a", {TRUE: [True], FALSE: [False], UNKNOWN: NO_BOOLEANS}),
        *each("NOT a", {TRUE: [False], FALSE: [True], UNKNOWN: NO_BOOLEANS}),
        *each("a IN (TRUE)", {TRUE: [True], FALSE: [False], UNKNOWN: NO_BOOLEANS}),
        *each("a = 1", {TRUE: [1, 1.0], UNKNOWN: [True]}),
        *each("a = 0", {UNKNOWN: [False]}),
        ("a = b", {"a": True, "b": True}, TRUE),
        ("a != b", {"a": True, "b": False}, TRUE),
        ("a = b", {"a": True, "b": 1}, UNKNOWN),
        ("a < b", {"a": False, "b": True}, UNKNOWN),
        ("a >= b", {"a": True, "b": True}, UNKNOWN),
        ("a BETWEEN b AND b", {"a": True, "b": True}, UNKNOWN),
        ("TRUE", {}, TRUE),
        ("FALSE", {}, FALSE),
        ("NOT FALSE", {}, TRUE),
        ("TRUE = FALSE", {}, FALSE),
    ]
)
def test_booleans_are_no_numbers(text: str, publication: Values, expected: Truth) -> None:
    assert asked(text, publication) is expected


@pytest.mark.parametrize("negated", ["", "NOT "])
@pytest.mark.parametrize(
    "text",
    [
        "a = 3", "a != 3", "a < 3", "a <= 3", "a > 3", "a >= 3", "3 = a", "a BETWEEN 1 AND 5",
        "a BETWEEN 5 AND 1", "a NOT BETWEEN 1 AND 5", "4 BETWEEN a AND 5", "4 BETWEEN 1 AND a",
        "a IN (1, 3)", "a NOT IN (1, 3)", "a + 1 = 4", "-a = -3", "abs(a) = 3", "a * 0 = 0",
        "sqrt(a) >= 0", "pow(a, 0) = 1", "sin(a) < 2", "cos(a) < 2", "floor(a) < 9",
        "ceil(a) < 9", "least(a, 9) < 10", "greatest(1, a) >= 1", "distance(a, 0, 0, 0) >= 0",
        "1 / a < 9",
    ],
)  # fmt: skip
def test_what_is_no_number_is_unknown_to_every_operator(text: str, negated: str) -> None:
    found = {repr(value): asked(f"{negated}({text})", {"a": value}) for value in NO_NUMBERS}
    assert found == dict.fromkeys(map(repr, NO_NUMBERS), UNKNOWN)


@pytest.mark.parametrize("negated", ["", "NOT "])
@pytest.mark.parametrize(
    "text",
    [
        "a = 'x'", "a < 'x'", "a >= ''", "a BETWEEN '' AND 'z'", "a IN ('x', 'y')",
        "a NOT IN ('x', 'y')", "a LIKE '%'", "a NOT LIKE '%'", "startswith(a, '')",
        "endswith(a, '')", "contains(a, '')", "lower(a) = ''", "lower(a) LIKE '%'",
    ],
)  # fmt: skip
def test_what_is_no_string_is_unknown_to_every_operator(text: str, negated: str) -> None:
    found = {repr(value): asked(f"{negated}({text})", {"a": value}) for value in NO_STRINGS}
    assert found == dict.fromkeys(map(repr, NO_STRINGS), UNKNOWN)


# --- BETWEEN, IN, LIKE ------------------------------------------------------------------------


@rows(
    [
        *each("a BETWEEN 1 AND 3", {TRUE: [1, 2.5, 3.0], FALSE: [A_BIT_OVER_3, 0, 0.999]}),
        *each("a BETWEEN 3 AND 3", {TRUE: [3, 3.0], FALSE: [A_BIT_OVER_3, A_BIT_UNDER_3]}),
        *each("a BETWEEN 3 AND 1", {FALSE: [0, 1, 2, 3, 4], UNKNOWN: ["2", None]}),
        *each("a NOT BETWEEN 3 AND 1", {TRUE: [0, 1, 2, 3, 4], UNKNOWN: ["2", None, True]}),
        *each("NOT a BETWEEN 3 AND 1", {TRUE: [0, 1, 2, 3, 4], UNKNOWN: ["2", None, True]}),
        *each("a NOT BETWEEN 1 AND 3", {FALSE: [1, 2, 3], TRUE: [A_BIT_OVER_3, 0]}),
        *each("a BETWEEN 'b' AND 'd'", {TRUE: ["b", "c", "d"], FALSE: ["d\0", "a", ""]}),
        *each("a BETWEEN 'd' AND 'b'", {FALSE: ["c"]}),
        *each("2 BETWEEN 1 AND a", {TRUE: [2, 3], FALSE: [1], UNKNOWN: ["x", None]}),
        ("a BETWEEN b AND 3", {"a": 4}, FALSE),
        ("a BETWEEN b AND 3", {"a": 2}, UNKNOWN),
        ("a NOT BETWEEN b AND 3", {"a": 4}, TRUE),
        ("a NOT BETWEEN b AND 3", {"a": 2}, UNKNOWN),
        ("a BETWEEN 3 AND b", {"a": 2}, FALSE),
        ("a BETWEEN 3 AND b", {"a": 3, "b": "x"}, UNKNOWN),
        ("a BETWEEN b AND c", {"a": 2, "b": "x", "c": "y"}, UNKNOWN),
        ("a BETWEEN b AND c", {"a": 2, "b": "x", "c": 1}, FALSE),
    ]
)
def test_between_is_two_comparisons(text: str, publication: Values, expected: Truth) -> None:
    assert asked(text, publication) is expected


@rows(
    [
        *each("a IN (1, 2.5)", {TRUE: [1, 1.0, 2.5], FALSE: [2, 1.5], UNKNOWN: NO_NUMBERS}),
        *each("a NOT IN (1, 2.5)", {FALSE: [1, 1.0, 2.5], TRUE: [2], UNKNOWN: NO_NUMBERS}),
        *each("a IN ('x', 'y')", {TRUE: ["x", "y"], FALSE: ["X", ""], UNKNOWN: NO_STRINGS}),
        *each("a NOT IN ('x')", {FALSE: ["x"], TRUE: ["X", ""], UNKNOWN: NO_STRINGS}),
        *each("a IN (-0.0)", {TRUE: [0, -0.0, 0.0], FALSE: [TINY]}),
        *each("a IN (TRUE, FALSE)", {TRUE: [True, False], UNKNOWN: [1, None]}),
        *each("a NOT IN (TRUE, FALSE)", {FALSE: [True, False], UNKNOWN: [1, None]}),
        *each("a IN (1) AND a IN (2)", {FALSE: [1, 2, 3], UNKNOWN: [None, "1"]}),
        *each("a + 1 IN (3, 4)", {TRUE: [2, 3.0], FALSE: [1], UNKNOWN: ["2", None]}),
        ("2 IN (1, 2)", {}, TRUE),
        ("1 / 0 IN (1)", {}, UNKNOWN),
        ("1 / 0 NOT IN (1)", {}, UNKNOWN),
    ]
)
def test_in_is_a_row_of_equalities(text: str, publication: Values, expected: Truth) -> None:
    assert asked(text, publication) is expected


@rows(
    [
        *each("a LIKE 'a%'", {TRUE: ["a", "ab", "a\n%"], FALSE: ["", "A", "ba"]}),
        *each("a LIKE '%a'", {TRUE: ["a", "ba", "\na"], FALSE: ["", "ab"]}),
        *each("a LIKE '_'", {TRUE: ["a", "𝄞", "\n", "%"], FALSE: ["", "ab", "e\u0301"]}),
        *each("a LIKE ''", {TRUE: [""], FALSE: ["a"]}),
        *each("a LIKE '%'", {TRUE: ["", "a\nb"], UNKNOWN: [1, None]}),
        *each("a LIKE 'a_c'", {TRUE: ["abc", "a_c", "a%c"], FALSE: ["ac", "abbc"]}),
        *each("a LIKE 'a!_c' ESCAPE '!'", {TRUE: ["a_c"], FALSE: ["abc", "a!_c"]}),
        *each("a LIKE '10!%' ESCAPE '!'", {TRUE: ["10%"], FALSE: ["10", "100"]}),
        *each("a LIKE '!!%' ESCAPE '!'", {TRUE: ["!", "!x"], FALSE: ["", "x!"]}),
        *each(r"a LIKE 'a\_c'", {TRUE: ["a\\xc", "a\\_c"], FALSE: ["a_c"]}),
        *each(r"a LIKE 'a\_c' ESCAPE '\'", {TRUE: ["a_c"], FALSE: ["a\\xc"]}),
        *each("a LIKE '%''%' ESCAPE '!'", {TRUE: ["it's"], FALSE: ["its"]}),
        *each("a LIKE 'a.c'", {TRUE: ["a.c"], FALSE: ["abc"]}),
        *each("a LIKE '[a]*'", {TRUE: ["[a]*"], FALSE: ["a", "aaa"]}),
        *each("a NOT LIKE 'a%'", {FALSE: ["a", "ab"], TRUE: ["", "b"], UNKNOWN: [1, None]}),
        *each("lower(a) LIKE 'ab%'", {TRUE: ["ABC", "ab"], FALSE: ["a"]}),
        *each("startswith(a, 'ab')", {TRUE: ["ab", "abc"], FALSE: ["a", "AB", "bab"]}),
        *each("startswith(a, '%')", {TRUE: ["%x"], FALSE: ["x"]}),
        *each("endswith(a, 'ab')", {TRUE: ["ab", "cab"], FALSE: ["b", "abc"]}),
        *each("contains(a, 'ab')", {TRUE: ["ab", "cabc"], FALSE: ["a b", "ba", ""]}),
        *each("contains(a, '')", {TRUE: ["", "x"], UNKNOWN: [1]}),
        *each("contains(a, '_')", {TRUE: ["a_b"], FALSE: ["ab"]}),
        *each("NOT contains(a, 'x')", {TRUE: ["", "ab"], FALSE: ["x"], UNKNOWN: [1, None]}),
    ]
)
def test_patterns_fit_the_whole_string(text: str, publication: Values, expected: Truth) -> None:
    assert asked(text, publication) is expected


# --- names, null, nesting -----------------------------------------------------------------------


@rows(
    [
        *each("a IS NULL", {TRUE: [None], FALSE: [0, "", False, [], {}, {"b": 1}, b"", 2**63]}),
        *each("a IS NOT NULL", {FALSE: [None], TRUE: [0, "", False, [], {}, b"", -(2**63) - 1]}),
        ("a IS NULL", {}, TRUE),
        ("a IS NOT NULL", {}, FALSE),
        ("a = 1", {}, UNKNOWN),
        ("a != 1", {}, UNKNOWN),
        ("NOT a = 1", {}, UNKNOWN),
        ("a = b", {}, UNKNOWN),
        ("a", {}, UNKNOWN),
        ("a.b = 1", {"a": {"b": 1}}, TRUE),
        ("a.b.c = 1", {"a": {"b": {"c": 1}}}, TRUE),
        ("a.b = 1", {"a.b": 1}, UNKNOWN),
        ("`a.b` = 1", {"a.b": 1}, TRUE),
        ("`a.b` = 1", {"a": {"b": 1}}, UNKNOWN),
        ("a.`b.c` = 1", {"a": {"b.c": 1}}, TRUE),
        ("a.b = 1", {"a": [{"b": 1}]}, UNKNOWN),
        ("a.b IS NULL", {"a": [{"b": 1}]}, TRUE),
        ("a.`0` = 1", {"a": [1]}, UNKNOWN),
        ("a.b IS NULL", {"a": "b"}, TRUE),
        ("a.b IS NULL", {"a": 1}, TRUE),
        ("a.b IS NULL", {"a": {"b": None}}, TRUE),
        ("a.b IS NOT NULL", {"a": {"b": []}}, TRUE),
        ("a.b.c IS NULL", {"a": {"b": "c"}}, TRUE),
        ("a = 1", {"a": {"a": 1}}, UNKNOWN),
        ("A = 1", {"a": 1}, UNKNOWN),
        ("A = 1", {"A": 1, "a": 2}, TRUE),
        ("`odd name` = 1", {"odd name": 1}, TRUE),
        ("`a``b` = 1", {"a`b": 1}, TRUE),
        ("`select` = 1", {"select": 1}, TRUE),
        ("`t` = 5", {"t": 5}, TRUE),
        ("`me`.x = 5", {"me": {"x": 5}}, TRUE),
        ("`TRUE`", {"TRUE": False}, FALSE),
        ("é = 1", {"é": 1}, TRUE),
    ]
)
def test_names_nesting_and_null(text: str, publication: Values, expected: Truth) -> None:
    assert asked(text, publication) is expected


# --- t and me -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "t", "expected"),
    [
        ("t = 0", 0, TRUE),
        ("t > 2", 2.0, FALSE),
        ("t > 2", math.nextafter(2, 3), TRUE),
        ("a > 1 / t", 0, UNKNOWN),
        ("NOT a > 1 / t", 0, UNKNOWN),
        ("a > 1 / t", -0.0, UNKNOWN),
        ("a > 1 / t", TINY, UNKNOWN),
        ("a > 1 / t", 1.0, TRUE),
        ("a < 1e308 * t", 1.0, TRUE),
        ("a < 1e308 * t", 2.0, UNKNOWN),
        ("a > -1e308 * t", 2.0, UNKNOWN),
        ("a > 1 / (t - 3)", 3.0, UNKNOWN),
        ("a > 1 / (t - 3)", A_BIT_OVER_3, FALSE),
        ("a < pow(10, t)", 308.0, TRUE),
        ("a < pow(10, t)", 309.0, UNKNOWN),
        ("a > sqrt(1 - t)", 1.5, UNKNOWN),
        ("a > sqrt(1 - t)", 1.0, TRUE),
        ("a > 1 / t OR TRUE", 0, TRUE),
        ("a > 1 / t AND FALSE", 0, FALSE),
        ("a BETWEEN 1 / t AND 1", 0, FALSE),
        ("a BETWEEN 1 / t AND 5", 0, UNKNOWN),
        ("a NOT BETWEEN 1 / t AND 1", 0, TRUE),
        ("t = 5", 5, TRUE),
        ("a * 4611686018427387904 > 0", 0, UNKNOWN),
        ("a * 4611686018427387904.0 > 0", 0, TRUE),
        ("t * 4611686018427387904 > 0", 2, TRUE),
    ],
)
def test_t_at_poles_and_overflows(text: str, t: float, expected: Truth) -> None:
    assert asked(text, {"a": 2}, t) is expected


@rows(
    [
        ("a + 1 > 0", {"a": INTEGER_MAX}, UNKNOWN),
        ("a + 1.0 > 0", {"a": INTEGER_MAX}, TRUE),
        ("a + 0 > 0", {"a": INTEGER_MAX}, TRUE),
        ("a - 1 < 0", {"a": INTEGER_MIN}, UNKNOWN),
        ("-a > 0", {"a": INTEGER_MIN}, UNKNOWN),
        ("-a < 0", {"a": INTEGER_MAX}, TRUE),
        ("abs(a) > 0", {"a": INTEGER_MIN}, UNKNOWN),
        ("a * a > 0", {"a": 2**32}, UNKNOWN),
        ("a * a > 0", {"a": 2.0**32}, TRUE),
        ("a / b > 0", {"a": 1, "b": 0}, UNKNOWN),
        ("a / b > 0", {"a": 1, "b": -0.0}, UNKNOWN),
        ("a / b = 0.5", {"a": 1, "b": 2}, TRUE),
        ("a + a > 0", {"a": FLOAT_MAX}, UNKNOWN),
        ("a - b = 1", {"a": 2**53 + 1, "b": 2**53}, TRUE),
        ("a - b = 0", {"a": 2**53 + 1, "b": 2.0**53}, TRUE),
        ("a + b * 2 = 7", {"a": 1, "b": 3}, TRUE),
        ("(a + b) * 2 = 8", {"a": 1, "b": 3}, TRUE),
        ("a - b - 1 = -3", {"a": 1, "b": 3}, TRUE),
        ("a - (b - 1) = -1", {"a": 1, "b": 3}, TRUE),
        ("8 / b / 2 = 2", {"b": 2}, TRUE),
    ]
)
def test_an_overflow_is_unknown(text: str, publication: Values, expected: Truth) -> None:
    assert asked(text, publication) is expected


@pytest.mark.parametrize(
    ("text", "me", "expected"),
    [
        ("a = me.x", {"x": 2}, TRUE),
        ("a = me.x", {"x": 3}, FALSE),
        ("a = me.x", {}, UNKNOWN),
        ("a = me.x", {"x": "2"}, UNKNOWN),
        ("a = me.x", {"x": [2]}, UNKNOWN),
        ("a BETWEEN me.x - 3 AND me.x + 3", {"x": 5}, TRUE),
        ("a BETWEEN me.x - 3 AND me.x + 3", {"x": math.nextafter(5, 6)}, FALSE),
        ("me.x IS NULL", {}, TRUE),
        ("me.x IS NULL", {"x": {}}, FALSE),
        ("me.x IS NOT NULL", {"x": 0}, TRUE),
        ("me.on", {"on": True}, TRUE),
        ("NOT me.on", {"on": True}, FALSE),
        ("me.on", {"on": 1}, UNKNOWN),
        ("me.battery.level > 5", {"battery": {"level": 6}}, TRUE),
        ("me.battery.level > 5", {"battery": 6}, UNKNOWN),
        ("me.a = 2", {}, UNKNOWN),
    ],
)
def test_the_state_of_the_subscriber(text: str, me: Values, expected: Truth) -> None:
    assert asked(text, {"a": 2, "x": 2, "on": True}, 0, **me) is expected


# --- three-valued logic ---------------------------------------------------------------------------

WORDS = {TRUE: "yes", FALSE: "no", UNKNOWN: "gone"}
YES_AND_NO: Values = {"yes": True, "no": False}
AND_TABLE = {
    (TRUE, TRUE): TRUE, (TRUE, FALSE): FALSE, (TRUE, UNKNOWN): UNKNOWN,
    (FALSE, TRUE): FALSE, (FALSE, FALSE): FALSE, (FALSE, UNKNOWN): FALSE,
    (UNKNOWN, TRUE): UNKNOWN, (UNKNOWN, FALSE): FALSE, (UNKNOWN, UNKNOWN): UNKNOWN,
}  # fmt: skip
OR_TABLE = {
    (TRUE, TRUE): TRUE, (TRUE, FALSE): TRUE, (TRUE, UNKNOWN): TRUE,
    (FALSE, TRUE): TRUE, (FALSE, FALSE): FALSE, (FALSE, UNKNOWN): UNKNOWN,
    (UNKNOWN, TRUE): TRUE, (UNKNOWN, FALSE): UNKNOWN, (UNKNOWN, UNKNOWN): UNKNOWN,
}  # fmt: skip
NOT_TABLE = {TRUE: FALSE, FALSE: TRUE, UNKNOWN: UNKNOWN}


@pytest.mark.parametrize("left", TRUTHS, ids=NAMES.get)
@pytest.mark.parametrize("right", TRUTHS, ids=NAMES.get)
def test_and_or_of_two(left: Truth, right: Truth) -> None:
    a, b = WORDS[left], WORDS[right]
    assert asked(f"{a} AND {b}", YES_AND_NO) is all_of([left, right]) is AND_TABLE[left, right]
    assert asked(f"{a} OR {b}", YES_AND_NO) is any_of([left, right]) is OR_TABLE[left, right]


@pytest.mark.parametrize("one", TRUTHS, ids=NAMES.get)
def test_not_of_one(one: Truth) -> None:
    assert asked(f"NOT {WORDS[one]}", YES_AND_NO) is opposite(one) is NOT_TABLE[one]


@pytest.mark.parametrize("first", TRUTHS, ids=NAMES.get)
@pytest.mark.parametrize("second", TRUTHS, ids=NAMES.get)
@pytest.mark.parametrize("third", TRUTHS, ids=NAMES.get)
def test_three_operands_are_two_and_one(first: Truth, second: Truth, third: Truth) -> None:
    a, b, c = WORDS[first], WORDS[second], WORDS[third]
    both, either = AND_TABLE[first, second], OR_TABLE[first, second]
    assert asked(f"{a} AND {b} AND {c}", YES_AND_NO) is AND_TABLE[both, third]
    assert asked(f"{a} OR {b} OR {c}", YES_AND_NO) is OR_TABLE[either, third]
    assert asked(f"{a} AND {b} OR {c}", YES_AND_NO) is OR_TABLE[both, third]
    assert asked(f"({a} OR {b}) AND {c}", YES_AND_NO) is AND_TABLE[either, third]
    assert asked(f"NOT {a} AND {b}", YES_AND_NO) is AND_TABLE[NOT_TABLE[first], second]


@pytest.mark.parametrize("verdict", TRUTHS, ids=NAMES.get)
def test_only_true_matches(verdict: Truth) -> None:
    assert matches(parse(WORDS[verdict]), YES_AND_NO) is (verdict is TRUE)


@pytest.mark.parametrize("comparator", ["=", "!=", "<", "<=", ">", ">="])
def test_a_comparison_with_unknown_is_unknown(comparator: str) -> None:
    for other in (None, 1, 1.5, "a", True):
        assert compare(comparator, None, other) is UNKNOWN
        assert compare(comparator, other, None) is UNKNOWN


# --- scores -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        ("a", 2),
        ("a + t", 7.0),
        ("a * me.x", 6),
        ("b", None),
        ("missing", None),
        ("flag", None),
        ("1 / (a - 2)", None),
        ("3", 3),
    ],
)
def test_a_score_is_a_number_or_unknown(score: str, expected: object) -> None:
    ranked = parse(f"ORDER BY {score} LIMIT 1 WITHIN 1 DAY")
    found = score_of(ranked, {"a": 2, "b": "2", "flag": True}, 5, {"x": 3})
    assert found == expected
    assert type(found) is type(expected)


# --- the second opinion ---------------------------------------------------------------------------

HALF = Fraction(1, 2)
Tagged = tuple[str, Any] | None


class SecondOpinion:
    """Conditions as 0, 1/2 or 1; values as (kind, what to compare), None for UNKNOWN."""

    def __init__(self, publication: Any, t: float, me: Any) -> None:
        self.publication, self.t, self.me = publication, t, me

    def __call__(self, node: Any) -> Any:
        return getattr(self, f"of_{type(node).__name__.lower()}")(node)

    def holds(self, node: Any) -> Fraction:
        found = self(node)
        if isinstance(found, Fraction):
            return found
        return Fraction(found[1]) if found and found[0] == "boolean" else HALF

    # conditions

    def of_and(self, node: tree.And) -> Fraction:
        return min(self.holds(operand) for operand in node.operands)

    def of_or(self, node: tree.Or) -> Fraction:
        return max(self.holds(operand) for operand in node.operands)

    def of_not(self, node: tree.Not) -> Fraction:
        return 1 - self.holds(node.operand)

    def of_comparison(self, node: tree.Comparison) -> Fraction:
        return self.compared(self(node.left), node.comparator, self(node.right))

    def of_between(self, node: tree.Between) -> Fraction:
        value, low, high = self(node.value), self(node.low), self(node.high)
        inside = min(1 - self.compared(value, "<", low), 1 - self.compared(high, "<", value))
        return 1 - inside if node.negated else inside

    def of_in(self, node: tree.In) -> Fraction:
        value = self(node.value)
        inside = max(self.compared(value, "=", self(item)) for item in node.items)
        return 1 - inside if node.negated else inside

    def of_like(self, node: tree.Like) -> Fraction:
        escape = re.escape(node.escape) if node.escape else "(?!)"
        pieces = re.findall(f"({escape}.|.)", node.pattern, re.DOTALL)
        wild = {"%": ".*", "_": "."}
        regex = "".join(wild.get(piece, re.escape(piece[-1])) for piece in pieces)
        fits = self.text_test(self(node.value), lambda text: bool(re.fullmatch(regex, text, re.S)))
        return 1 - fits if node.negated else fits

    def of_texttest(self, node: tree.TextTest) -> Fraction:
        tests = {
            "startswith": lambda text: text[: len(node.text)] == node.text,
            "endswith": lambda text: text[max(0, len(text) - len(node.text)) :] == node.text,
            "contains": lambda text: node.text in text,
        }
        return self.text_test(self(node.value), tests[node.name])

    def of_isnull(self, node: tree.IsNull) -> Fraction:
        owner = self.publication if isinstance(node.value, tree.Attribute) else self.me
        return Fraction((self.reached(owner, node.value.path) is None) != node.negated)

    @staticmethod
    def text_test(value: Tagged, test: Any) -> Fraction:
        if value is None or value[0] != "string":
            return HALF
        return Fraction(test("".join(map(chr, value[1]))))

    @staticmethod
    def compared(left: Tagged, comparator: str, right: Tagged) -> Fraction:
        if left is None or right is None or left[0] != right[0]:
            return HALF
        if left[0] == "boolean" and comparator not in ("=", "!="):
            return HALF
        one, other = (Fraction(v[1]) if v[0] == "number" else v[1] for v in (left, right))
        order = (one > other) - (one < other)
        signs = {"=": [0], "!=": [-1, 1], "<": [-1], "<=": [-1, 0], ">": [1], ">=": [0, 1]}
        return Fraction(order in signs[comparator])

    # values

    @staticmethod
    def reached(owner: Any, path: Iterable[str]) -> Any:
        for name in path:
            owner = owner[name] if isinstance(owner, dict) and name in owner else None
        return owner

    @staticmethod
    def tagged(value: Any) -> Tagged:
        if isinstance(value, bool):
            return "boolean", int(value)
        if isinstance(value, str):
            return "string", [ord(character) for character in value]
        if isinstance(value, float) or (isinstance(value, int) and -(2**63) <= value < 2**63):
            return "number", value
        return None

    def of_literal(self, node: tree.Literal) -> Tagged:
        return self.tagged(node.value)

    def of_attribute(self, node: tree.Attribute) -> Tagged:
        return self.tagged(self.reached(self.publication, node.path))

    def of_me(self, node: tree.Me) -> Tagged:
        return self.tagged(self.reached(self.me, node.path))

    def of_time(self, node: tree.Time) -> Tagged:
        return "number", float(self.t)

    def of_negation(self, node: tree.Negation) -> Tagged:
        return self.computed("-", [("number", 0), self(node.operand)])

    def of_arithmetic(self, node: tree.Arithmetic) -> Tagged:
        return self.computed(node.operator, [self(node.left), self(node.right)])

    def of_call(self, node: tree.Call) -> Tagged:
        arguments = [self(argument) for argument in node.arguments]
        if node.name != "lower":
            return self.computed(node.name, arguments)
        if arguments[0] is None or arguments[0][0] != "string":
            return None
        return self.tagged("".join(map(chr, arguments[0][1])).lower())

    def computed(self, name: str, arguments: list[Tagged]) -> Tagged:
        operands = [argument[1] for argument in arguments if argument and argument[0] == "number"]
        if len(operands) < len(arguments):
            return None
        try:
            return self.tagged(self.result(name, operands))
        except (ArithmeticError, ValueError):
            return None

    def result(self, name: str, operands: list[Any]) -> Any:
        """The number exactly, then rounded once to the type it must have."""
        whole = all(isinstance(operand, int) for operand in operands)
        if name in ("least", "greatest"):
            return sorted(operands, key=Fraction, reverse=name == "greatest")[0]
        if name in ("sin", "cos", "pow", "distance"):  # tested elsewhere; here only passed on
            return functions.call(name, operands)
        exact = [Fraction(o if whole and name != "/" else float(o)) for o in operands]
        if name == "sqrt":
            with localcontext(prec=80, Emin=-2000, Emax=2000):
                return float(Decimal(float(operands[0])).sqrt())
        first, last = exact[0], exact[-1]
        match name:
            case "+" | "-":
                found = first + last if name == "+" else first - last
            case "*" | "/":
                found = first * last if name == "*" else first / last
            case "floor" | "ceil":
                found = Fraction(first // 1 if name == "floor" else -(-first // 1))
            case _:
                found = max(first, -first)
        return int(found) if whole and name != "/" else float(found)


def assert_agreement(subscription: tree.Subscription, publication: Any, t: float, me: Any) -> None:
    opinion = SecondOpinion(publication, t, me)
    expected = {1: TRUE, 0: FALSE, HALF: UNKNOWN}[opinion.holds(subscription.condition)]
    assert truth(subscription.condition, publication, t, me) is expected
    if subscription.rank is not None:
        score = opinion(subscription.rank.score)
        number = score[1] if score and score[0] == "number" else None
        assert score_of(subscription, publication, t, me) == number


@examples(650)
@given(strategies.encounters())
def test_a_second_opinion_agrees_on_the_bounds(encounter: Any) -> None:
    assert_agreement(*encounter)


@examples(150)
@given(strategies.subscriptions, strategies.publications, strategies.times, strategies.states)
def test_a_second_opinion_agrees_on_anything(
    subscription: tree.Subscription, publication: Any, t: float, me: Any
) -> None:
    assert_agreement(subscription, publication, t, me)


predicates = strategies.static_predicates | strategies.moving_predicates


@examples(350)
@given(strategies.encounters(st.builds(tree.Subscription, predicates)))
def test_a_second_opinion_agrees_on_single_predicates(encounter: Any) -> None:
    assert_agreement(*encounter)
