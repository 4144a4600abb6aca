"""Spellings of one meaning print alike, and what is printed is read, means the same and stays."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rove.lang.canonical_form import canonical, canonical_text
from rove.lang.errors import LimitError
from rove.lang.limits import DEPTH_MAX, PREDICATES_MAX, TEXT_BYTES_MAX
from rove.lang.oracle import matches, score_of
from rove.lang.parser import parse
from rove.lang.printer import to_text
from rove.lang.tree import Attribute, Comparison, Literal, Subscription, TextTest, Window, depth
from rove.testing import strategies
from tests.effort import examples

Encounter = tuple[Subscription, dict[str, Any], float, dict[str, Any]]


def printed(text: str) -> str:
    return canonical_text(parse(text))


# --- spellings ------------------------------------------------------------------------------------

GROUPS = {
    "a > 3": ["3 < a", "NOT a <= 3", "NOT (3 >= a)", "a > 1 + 2", "a >= 3.0000000000000004"],
    "a >= 3": ["a >= 3.0", "NOT a < 3", "a > 3 OR a = 3", "(a >= 3)", "NOT NOT a >= 3"],
    "a = 3": ["3 = a", "a IN (3)", "a IN (3, 3.0)", "a BETWEEN 3 AND 3.0", "a >= 3 AND a <= 3"],
    "a != 3": ["a <> 3", "NOT a = 3", "a NOT IN (3)", "a < 3 OR a > 3", "a NOT BETWEEN 3 AND 3"],
    "a IN (1, 2)": ["a = 2 OR a = 1", "a IN (2, 1, 2)", "a IN (1) OR a IN (2.0)"],
    "a NOT IN (1, 2)": ["NOT a IN (2, 1)", "a != 1 AND a != 2", "NOT (a = 1 OR a = 2)"],
    "a BETWEEN 1 AND 3": ["a >= 1 AND a <= 3", "a BETWEEN 0 AND 3 AND a BETWEEN 1 AND 4"],
    "a > 1 AND a < 3": ["a < 3 AND a > 1", "NOT (a <= 1 OR a >= 3)"],
    "a < 1 OR a > 3": ["a NOT BETWEEN 1 AND 3", "NOT a BETWEEN 1 AND 3", "a > 3 OR a < 1"],
    "a < 0 OR a >= 0": ["a NOT BETWEEN 3 AND 1", "a < 5 OR a >= 5", "a >= -1.7976931348623157e308"],
    "a >= -1e+305": ["NOT a < -1e305", "-1e305 <= a"],
    "a = 0": ["a = -0.0", "a = 0.0", "a = -(0)"],
    "a = 0.5": ["a = 1 / 2", "a = .5", "a = 5e-1"],
    "a <= 9007199254740992": ["a < 9007199254740993", "a <= 9007199254740992.0"],
    "a = 'x'": ["a LIKE 'x'", "a IN ('x')", "a BETWEEN 'x' AND 'x'", "'x' = a"],
    "a != 'x'": ["a NOT LIKE 'x'", "a < 'x' OR a > 'x'"],
    "a >= ''": ["a LIKE '%'", "contains(a, '')", "startswith(a, '')", "endswith(a, '')"],
    "a > ''": ["a != ''", "NOT a = ''", "a NOT IN ('')"],
    "startswith(a, 'ab')": ["a LIKE 'ab%'", "a >= 'ab' AND a < 'ac'", "a LIKE 'ab%%'"],
    "NOT startswith(a, 'ab')": ["a NOT LIKE 'ab%'", "a < 'ab' OR a >= 'ac'"],
    "startswith(a, '~')": ["a LIKE '~%'"],
    "NOT startswith(a, '~')": ["a NOT LIKE '~%'"],
    "a > '~' AND NOT startswith(a, '~')": ["a >= '~' AND a NOT LIKE '~%'"],
    "a < '~' OR startswith(a, '~')": ["startswith(a, '~') OR a <= '~'"],
    "a > 'x' AND (a < '~' OR startswith(a, '~'))": [
        "a > 'x' AND NOT (a > '~' AND a NOT LIKE '~%')"
    ],
    "endswith(a, 'ab')": ["a LIKE '%ab'", "a LIKE '%%ab'"],
    "contains(a, 'ab')": ["a LIKE '%ab%'"],
    "contains(a, '%')": ["a LIKE '%!%%' ESCAPE '!'", "a LIKE '%x%%' ESCAPE 'x'"],
    "a LIKE '_%b'": ["a LIKE '%_b'", "a LIKE '_%%b'"],
    "a NOT LIKE 'a_'": ["NOT a LIKE 'a_'"],
    "a LIKE 'a\\_%b' ESCAPE '\\'": ["a LIKE 'a!_%b' ESCAPE '!'"],
    "a": ["a = TRUE", "NOT NOT a", "a != FALSE", "a IN (TRUE)", "NOT a = FALSE"],
    "NOT a": ["a = FALSE", "a != TRUE", "a NOT IN (TRUE)"],
    "a OR NOT a": ["a IN (TRUE, FALSE)", "NOT a OR a", "a = TRUE OR a = FALSE"],
    "a IS NULL": ["NOT a IS NOT NULL", "a IS NULL AND a IS NULL"],
    "a IS NOT NULL": ["NOT a IS NULL", "a IS NOT NULL OR a = 1"],
    "TRUE": ["a IS NULL OR a IS NOT NULL", "1 < 2", "NOT FALSE", "TRUE OR a = 1"],
    "FALSE": ["a = 1 AND a = 2", "a BETWEEN 2 AND 1", "a > 1/0", "a AND NOT a", "a = 1 AND a.b"],
    "a = 1 AND b = 2": ["b = 2 AND a = 1", "NOT (a != 1 OR b != 2)", "(b = 2) AND (a = 1)"],
    "a = 1 OR b = 2": ["b = 2 OR a = 1", "NOT (a != 1 AND b != 2)", "b = 2 OR a = 1 OR a = 1"],
    "a = 1 AND (b = 1 OR b = 'x')": ["a = 1 AND b = 'x' OR a = 1 AND b = 1"],
    "x BETWEEN t - 3 AND t + 3": ["x >= -3 + t AND x <= 3 + t", "t + 3 >= x AND t - 3 <= x"],
    "x > 2 * t": ["t * 2 < x", "x > t * 2"],
    "a < b": ["b > a", "NOT a >= b"],
    "x < me.x + 1": ["me.x + 1 > x", "x < 1 + me.x"],
    "a.b = 2": ["a IS NOT NULL AND a.b = 2", "`a`.`b` = 2", "2 = a.b"],
    "lower(a) = 'x'": ["LOWER(a) = 'x'", "lower(a) LIKE 'x'"],
}
SPELLINGS = [(text, spelling) for text, others in GROUPS.items() for spelling in [text, *others]]


@pytest.mark.parametrize(
    ("text", "spelling"), SPELLINGS, ids=[f"{s} is {text}" for text, s in SPELLINGS]
)
def test_spellings_of_one_meaning_print_alike(text: str, spelling: str) -> None:
    assert printed(spelling) == text


@pytest.mark.parametrize(
    "texts",
    [
        ("a = 1", "a = '1'", "a", "NOT a", "a IS NOT NULL", "a > 1", "a >= 1", "b = 1", "A = 1"),
        ("x > (t + 1) + 2", "x > t + 3", "x > t + 3.0", "x >= t + 3"),
        ("a LIKE 'a%b'", "a LIKE 'a_%b'", "a LIKE 'a%_%b_'", "contains(a, 'ab')"),
        ("a = 9007199254740993", "a = 9007199254740992", "a = 9007199254740994"),
        ("a.b = 1", "`a.b` = 1", "a.B = 1", "me.a.b = 1", "`me`.a.b = 1"),
        ("least(a, b) > 1", "least(b, a) > 1"),
    ],
)
def test_different_meanings_print_differently(texts: tuple[str, ...]) -> None:
    assert len({printed(text) for text in texts}) == len(texts)


def test_patterns_that_are_spelled_alike_but_for_their_escape_can_be_sorted() -> None:
    text = r"contains(a, '\') AND endswith(a, '%')"
    assert printed(text) == text
    assert printed(r"endswith(a, '%') AND a LIKE '%\%'") == text


# --- select and rank ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "window"),
    [
        ("24 HOURS", "1 DAY"),
        ("1 DAY", "1 DAY"),
        ("86400 SECONDS", "1 DAY"),
        ("1440 MINUTES", "1 DAY"),
        ("86400000 MILLISECONDS", "1 DAY"),
        ("48 HOURS", "2 DAYS"),
        ("25 HOURS", "25 HOURS"),
        ("60 SECONDS", "1 MINUTE"),
        ("60 MINUTES", "1 HOUR"),
        ("0.5 DAYS", "12 HOURS"),
        ("1.5 HOURS", "90 MINUTES"),
        ("1000 MILLISECONDS", "1 SECOND"),
        ("1500 MILLISECONDS", "1500 MILLISECONDS"),
        ("1.5 SECONDS", "1500 MILLISECONDS"),
        ("0.3 SECONDS", "300 MILLISECONDS"),
        ("300 MILLISECONDS", "300 MILLISECONDS"),
        ("0.25 MILLISECONDS", "0.00025 SECONDS"),
        ("1e-9 SECONDS", "1e-09 SECONDS"),
        ("1 PUBLICATION", "1 PUBLICATION"),
        ("500 PUBLICATIONS", "500 PUBLICATIONS"),
        ("86400 PUBLICATIONS", "86400 PUBLICATIONS"),
        ("9007199254740993 SECONDS", "9007199254740993 SECONDS"),
        ("9223372036854775807 DAYS", "9223372036854775807 DAYS"),
        ("9223372036854775800 HOURS", "384307168202282325 DAYS"),
        ("1e300 HOURS", "3.6e+303 SECONDS"),
        ("1e18 DAYS", "1000000000000000000 DAYS"),
    ],
)
def test_a_window_stands_in_its_largest_whole_unit(written: str, window: str) -> None:
    text = f"ORDER BY a LIMIT 1 WITHIN {written}"
    assert printed(text) == f"ORDER BY a LIMIT 1 WITHIN {window}"
    before, after = parse(text).rank, parse(printed(text)).rank
    assert before is not None
    assert after is not None
    assert before.window.seconds == after.window.seconds


amounts = st.integers(1, 2**63 - 1) | st.integers(1, 10**6) | st.floats(1e-6, 1e12)
units: Any = st.sampled_from(["MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS"])


@examples(150)
@given(amounts, units)
def test_the_canonical_window_is_as_long(amount: float, unit: Any) -> None:
    ranked = parse("ORDER BY a LIMIT 1 WITHIN 1 DAY")
    assert ranked.rank is not None
    rank = type(ranked.rank)(ranked.rank.score, False, 1, Window(amount, unit))
    found = canonical(Subscription(ranked.condition, None, rank))
    assert found.rank is not None
    assert found.rank.window.seconds == rank.window.seconds
    assert parse(to_text(found)) == found
    assert canonical(found) == found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT b, a, b WHERE a = 1", "SELECT b, a WHERE a = 1"),
        ("SELECT a", "SELECT a"),
        ("SELECT a WHERE TRUE", "SELECT a"),
        ("SELECT * WHERE a = 1", "a = 1"),
        ("WHERE a = 1", "a = 1"),
        ("ORDER BY 1 + a ASC LIMIT 3 WITHIN 1 DAY", "ORDER BY a + 1 LIMIT 3 WITHIN 1 DAY"),
        (
            "TRUE ORDER BY a * 2 DESC LIMIT 3 WITHIN 2 DAYS",
            "ORDER BY 2 * a DESC LIMIT 3 WITHIN 2 DAYS",
        ),
        ("ORDER BY a / 0 LIMIT 1 WITHIN 1 DAY", "ORDER BY a / 0 LIMIT 1 WITHIN 1 DAY"),
        ("ORDER BY a + 1 / 0 LIMIT 1 WITHIN 1 DAY", "ORDER BY a + 1 / 0 LIMIT 1 WITHIN 1 DAY"),
    ],
)
def test_select_and_rank(text: str, expected: str) -> None:
    assert printed(text) == expected


# --- read, meant, kept ----------------------------------------------------------------------


@examples(350)
@given(strategies.encounters())
@example((parse("NOT startswith(a, '~') AND a > 'a'"), {"a": "\x7f"}, 0.0, {}))
def test_the_canonical_text_is_read_and_means_the_same(encounter: Encounter) -> None:
    subscription, publication, t, me = encounter
    text = canonical_text(subscription)
    found = parse(text)
    assert found == canonical(subscription)
    assert matches(found, publication, t, me) == matches(subscription, publication, t, me)
    assert canonical_text(found) == text
    if subscription.rank is not None:
        score = score_of(subscription, publication, t, me)
        assert repr(score_of(found, publication, t, me)) == repr(score)


EDGES: tuple[str, ...] = (
    "a",
    "a~",
    "~",
    "é",
    "\t",
    "\n",
    "\r",
    "a\r",
    "\u2029",
    "\u2065",
    "\u202f",
    "\u206a",
)
EDGES = (*EDGES, "\xa0", "\ud7ff", "\ue000", "\U0010ffff", "a\U0010ffff")
A = Attribute(("a",))
string_predicates = st.builds(
    Subscription,
    strategies.conditions(
        st.builds(
            Comparison, strategies.comparators, st.just(A), st.sampled_from(EDGES).map(Literal)
        )
        | st.sampled_from([TextTest("startswith", A, edge) for edge in EDGES]),
        max_leaves=5,
    ),
)
BETWEEN_EDGES = (
    "",
    "\0",
    "\x08",
    "\x0b",
    "\x0e",
    "\x7f",
    "\xa0",
    "\u202a",
    "\u2066",
    "\U0010ffffa",
)


@examples(150)
@given(string_predicates)
def test_bounds_that_cannot_be_written_are_said_otherwise(subscription: Subscription) -> None:
    text = canonical_text(subscription)
    found = parse(text)
    assert canonical_text(found) == text
    for prefix in ("", "a", "~", "\ud7ff"):
        for value in (prefix + edge for edge in BETWEEN_EDGES):
            publication = {"a": value}
            assert matches(found, publication) == matches(subscription, publication), value


# --- limits -----------------------------------------------------------------------------------


def test_as_many_predicates_as_a_text_may_hold_are_put_in_order() -> None:
    predicates = [f"a{i} = 1" for i in range(PREDICATES_MAX)]
    forwards, backwards = " AND ".join(predicates), " AND ".join(reversed(predicates))
    assert printed(forwards) == printed(backwards)
    booleans = [f"b{i}" for i in range(PREDICATES_MAX)]
    assert printed(" AND ".join(booleans)) == printed(" AND ".join(reversed(booleans)))


def test_a_text_with_too_many_canonical_predicates_keeps_its_shape() -> None:
    alternatives = " OR ".join(f"z{i} = 1" for i in range(60))
    common = " AND ".join(f"y{i} = 1" for i in range(5))
    text = f"({alternatives}) AND {common}"  # multiplied out: 60 conjunctions of six
    assert printed(text) == text
    assert printed(printed(text)) == text


def test_a_text_whose_canonical_form_is_too_long_keeps_its_shape() -> None:
    name = "n" * 500
    alternatives = " OR ".join(f"z{i} = 1" for i in range(20))
    text = f"({alternatives}) AND {name} = 1"
    assert printed(text) == text
    parse(printed(text))


def test_the_length_of_a_text_includes_select_and_rank() -> None:
    name = "n" * 45
    alternatives = " OR ".join(f"z{i} = 1" for i in range(60))
    condition = f"({alternatives}) AND {name} = 1 AND {name}2 = 1"
    alone = printed(condition)
    room = TEXT_BYTES_MAX - len(alone)
    assert alone != condition
    assert 0 < room < 8000 - len(condition)
    text = f"SELECT {'s' * room} WHERE {condition}"
    assert len(text) <= TEXT_BYTES_MAX
    assert printed(text) == text


def test_a_text_whose_canonical_form_is_too_deep_keeps_its_shape() -> None:
    deep = "abs(" * (DEPTH_MAX - 2) + "a" + ")" * (DEPTH_MAX - 2)
    text = f"{deep} NOT BETWEEN 1 AND 5"  # canonical: an OR of two comparisons, one level more
    assert depth(parse(text).condition) == DEPTH_MAX
    assert printed(text) == text
    parse(printed(text))


def test_a_score_whose_canonical_form_is_too_long_keeps_its_shape() -> None:
    score = "least(" + ", ".join(["1 / 3"] * 500) + ", a)"
    text = f"ORDER BY {score} LIMIT 1 WITHIN 24 HOURS"
    assert len(text) <= TEXT_BYTES_MAX
    assert printed(text) == text


def test_a_text_without_a_normal_form_has_no_canonical_text() -> None:
    with pytest.raises(LimitError):
        printed(" OR ".join(f"a{i} = 1" for i in range(65)))


def test_more_points_than_one_in_may_hold_become_several() -> None:
    halves = [", ".join(str(i) for i in range(start, 1100, 2)) for start in (0, 1)]
    text = " OR ".join(f"a IN ({half})" for half in halves)
    found = printed(text)
    assert found.count(" IN (") == 2
    assert printed(found) == found
    for value, expected in ((0, True), (1023, True), (1024, True), (1099, True), (1100, False)):
        assert matches(parse(found), {"a": value}) is expected
