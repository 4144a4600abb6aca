"""Trees back to texts: the text means the tree, and holds no parenthesis too many."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang.lexer import RESERVED, forbidden_in
from rove.lang.parser import parse
from rove.lang.printer import literal_text, name_text, string_text, to_text
from rove.lang.tree import (
    TRUE,
    And,
    Arithmetic,
    Attribute,
    Call,
    Comparison,
    Literal,
    Me,
    Negation,
    Not,
    Or,
    Rank,
    Subscription,
    Time,
    ValueNode,
    Window,
)
from rove.lang.values import Value
from rove.testing.strategies import subscriptions
from tests.effort import examples

A, B, C = (Attribute((name,)) for name in "abc")


@given(subscriptions)
@examples(650)
def test_every_tree_is_read_back_as_itself(tree: Subscription) -> None:
    again = parse(to_text(tree))
    assert again == tree
    assert repr(again) == repr(tree)  # -0.0 and 0.0, 1 and TRUE: equal, and not the same


@given(subscriptions)
def test_a_printed_text_is_printed_the_same_again(tree: Subscription) -> None:
    assert to_text(parse(to_text(tree))) == to_text(tree)


# --- texts that are already as short as they can be -------------------------------------------

PLAIN = [
    "a",
    "TRUE",
    "a = 5",
    "a != 5",
    "a <= 'it''s'",
    "NOT a",
    "NOT NOT a",
    "NOT a = 5",
    "NOT (a AND b)",
    "NOT a AND b",
    "a AND b AND c",
    "a AND (b AND c)",
    "(a AND b) AND c",
    "a OR b AND c",
    "(a OR b) AND c",
    "a OR (b OR c)",
    "a + b * c > 5",
    "(a + b) * c > 5",
    "a - b - c > 5",
    "a - (b - c) > 5",
    "a + (b + c) > 5",
    "a / (b * c) > 5",
    "a * b / c > 5",
    "-a > 5",
    "- -a > 5",
    "-(a + b) > 5",
    "-a * b > 5",
    "-(a * b) > 5",
    "-(5) > 5",
    "-(-5) > 5",
    "a - -5 > 5",
    "a - -b > 5",
    "-5 > a",
    "abs(a + b) > 5",
    "a + 1 BETWEEN b - 1 AND -c",
    "a NOT BETWEEN 1 AND 2",
    "a * 2 IN (1, -2)",
    "a NOT IN ('x', '')",
    "lower(a) LIKE 'x%'",
    "a NOT LIKE 'x!%' ESCAPE '!'",
    "a LIKE '''''' ESCAPE ''''",
    "NOT contains(a, 'x')",
    "a IS NOT NULL AND me.x IS NULL",
    "t > 5 AND `t` > 5",
    "SELECT a",
    "SELECT a, b.c, `odd name` WHERE a > 5",
    "ORDER BY a LIMIT 3 WITHIN 1 HOUR",
    "a > 5 ORDER BY a + b DESC LIMIT 3 WITHIN 2 HOURS",
    "SELECT a ORDER BY a LIMIT 3 WITHIN 0.5 DAYS",
    "SELECT a WHERE b ORDER BY -a LIMIT 3 WITHIN 500 PUBLICATIONS",
    "FALSE ORDER BY a LIMIT 1 WITHIN 1 PUBLICATION",
]


@pytest.mark.parametrize("text", PLAIN)
def test_a_plain_text_stays_as_it_is(text: str) -> None:
    assert to_text(parse(text)) == text


TIDIED = {
    "  a\t>\n5 -- high": "a > 5",
    "WHERE (((a)))": "a",
    "(a > 5) AND (b OR (c))": "a > 5 AND (b OR c)",
    "a <> 5": "a != 5",
    "((a) + (b)) + c > (5)": "a + b + c > 5",
    "(a * b) + c > 5": "a * b + c > 5",
    "+a > +5": "0 + a > 5",
    "`a` > 5": "a > 5",
    "ABS(a) > 5 and CONTAINS(a, 'x')": "abs(a) > 5 AND contains(a, 'x')",
    "a > 007.50": "a > 7.5",
    "SELECT * WHERE a": "a",
    "SELECT *": "TRUE",
    "SELECT a WHERE TRUE": "SELECT a",
    "TRUE ORDER BY a ASC LIMIT 3 WITHIN 1 HOURS": "ORDER BY a LIMIT 3 WITHIN 1 HOUR",
    "order by a limit 3 within 1.0 hour": "ORDER BY a LIMIT 3 WITHIN 1.0 HOUR",
}


@pytest.mark.parametrize(("text", "tidy"), TIDIED.items(), ids=TIDIED)
def test_a_text_is_tidied(text: str, tidy: str) -> None:
    assert to_text(parse(text)) == tidy


# --- names, strings, numbers ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("a",), "a"),
        (("a", "b"), "a.b"),
        (("größe",), "größe"),
        (("²",), "²"),
        (("odd name",), "`odd name`"),
        (("a.b",), "`a.b`"),
        (("5",), "`5`"),
        (("٣",), "`٣`"),
        (("a-b",), "`a-b`"),
        (("`",), "````"),
        (("a", "x`y", "b"), "a.`x``y`.b"),
        (("t",), "`t`"),
        (("t", "x"), "t.x"),
        (("me",), "`me`"),
        (("me", "x"), "`me`.x"),
        (("x", "me", "t"), "x.me.t"),
        (("select",), "`select`"),
        (("a", "Order"), "a.`Order`"),
        (("cafe\u0301",), "`cafe\u0301`"),
        (("ın",), "ın"),
    ],
)
def test_a_name_is_quoted_where_it_must_be(path: tuple[str, ...], text: str) -> None:
    assert name_text(path) == text
    assert parse(f"{text} > 5") == Subscription(Comparison(">", Attribute(path), Literal(5)))


@pytest.mark.parametrize("word", sorted(RESERVED))
def test_every_reserved_word_can_name_an_attribute(word: str) -> None:
    for written in (word, word.lower(), word.title()):
        assert name_text((written,)) == f"`{written}`"
        assert parse(f"`{written}`").condition == Attribute((written,))


segments = st.text(min_size=1, max_size=6).filter(lambda name: not forbidden_in(name))


@given(st.lists(segments, min_size=1, max_size=4).map(tuple))
def test_any_name_is_read_back(path: tuple[str, ...]) -> None:
    assert parse(to_text(Attribute(path))).condition == Attribute(path)
    assert parse(to_text(Me(path))).condition == Me(path)


@given(st.text(max_size=20).filter(lambda text: not forbidden_in(text)))
def test_any_string_is_read_back(text: str) -> None:
    assert parse(f"a = {string_text(text)}").condition == Comparison("=", A, Literal(text))


@given(
    st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans()
)
def test_any_number_is_read_back_to_the_last_bit(value: Value) -> None:
    again = parse(f"a = {literal_text(value)}").condition
    assert repr(again) == repr(Comparison("=", A, Literal(value)))


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "TRUE"), (False, "FALSE"), (1, "1"), (1.0, "1.0"), (-0.0, "-0.0"), ("", "''")],
)
def test_a_literal_shows_its_type(value: Value, text: str) -> None:
    assert literal_text(value) == text


# --- parts of a subscription ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (Or((A, And((B, Not(C))))), "a OR b AND NOT c"),
        (Arithmetic("*", Negation(A), Call("pow", (Time(), Literal(2)))), "-a * pow(t, 2)"),
        (Me(("battery", "odd name")), "me.battery.`odd name`"),
        (TRUE, "TRUE"),
    ],
)
def test_a_part_can_be_printed_alone(part: ValueNode, text: str) -> None:
    assert to_text(part) == text


def test_a_condition_that_says_nothing_is_left_out_only_where_something_else_is_said() -> None:
    rank = Rank(A, False, 1, Window(1, "DAYS"))
    assert to_text(Subscription(TRUE)) == "TRUE"
    assert to_text(Subscription(TRUE, (A,))) == "SELECT a"
    assert to_text(Subscription(TRUE, None, rank)) == "ORDER BY a LIMIT 1 WITHIN 1 DAY"
    assert to_text(Subscription(Comparison("=", TRUE, TRUE), (A,))) == "SELECT a WHERE TRUE = TRUE"


def test_many_signs_in_a_row_can_be_read_back() -> None:
    tree = parse("- " * 20 + "a > 1")
    assert parse(to_text(tree)) == tree
    assert to_text(parse("- -a > -(-5)")) == "- -a > -(-5)"


def test_a_list_close_to_the_limit_of_a_text_can_be_read_back() -> None:
    lists = " OR ".join(f"`a, {i}` IN ({','.join(['1'] * 1_000)})" for i in range(4))
    tree = parse(lists)
    assert parse(to_text(tree)) == tree
    assert "`a, 3`" in to_text(tree)
