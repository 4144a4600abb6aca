"""No text does harm: whatever arrives is read or refused politely, with little work.

A subscription comes from a stranger. So for every text: either a tree, which can be printed and
read back, or a LanguageError that knows what, where and what would be right. Never another
exception, and never more memory or calls than an honest text of that length would take. (How
long it takes is the benchmark's business.)
"""

import json
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import parser
from rove.lang.errors import LanguageError, LimitError, TextError
from rove.lang.lexer import RESERVED, keyword_of
from rove.lang.limits import DEPTH_MAX, TEXT_BYTES_MAX
from rove.lang.parser import parse
from rove.lang.printer import to_text
from rove.lang.tree import Subscription
from rove.testing.strategies import subscriptions
from tests.effort import examples

TEN_MILLION = 10_000_000
BUFFER_BYTES_MAX = 200_000
BYTES_PER_CHARACTER_MAX = 200
CALLS_PER_CHARACTER_MAX = 10


def outcome(text: str) -> Subscription | TextError:
    """The tree or the refusal; any other exception fails the test."""
    try:
        return parse(text)
    except LanguageError as error:
        assert isinstance(error, TextError)  # noqa: PT017
        return error


def check_polite(error: TextError) -> None:
    assert 0 <= error.start <= error.end <= len(error.text)
    assert error.line >= 1 <= error.column
    assert 0 < len(error.what) < 200
    assert error.what.isprintable()
    assert error.hint is None or (error.hint.isprintable() and 0 < len(error.hint) < 200)
    shown = str(error).split("\n")
    assert len(shown) == (4 if error.hint else 3)
    assert "\n".join(shown).encode()
    assert json.loads(json.dumps(error.as_dict()))["error"] == error.what


def check(text: str) -> Subscription | TextError:
    """Read the text, and look at what came of it."""
    found = outcome(text)
    if isinstance(found, TextError):
        check_polite(found)
    elif len(written := to_text(found)) <= TEXT_BYTES_MAX // 4:
        assert parse(written) == found
    return found


# --- texts that are too large -----------------------------------------------------------------

HUGE: dict[str, str] = {
    "letters": "a",
    "parentheses": "(",
    "terms": "a > 5 AND ",
    "quotes": "'",
    "backticks": "`",
    "spaces": " ",
    "line ends": "\n",
    "dashes": "-",
    "digits": "9",
    "dots": ".",
    "nulls": "\x00",
    "accents": "é",
    "emoji": "🚲",
    "halves of surrogate pairs": "\ud800",
    "overrides of direction": "\u202e",
}


@pytest.mark.parametrize("piece", HUGE.values(), ids=HUGE)
def test_ten_megabytes_are_refused_without_a_copy(piece: str) -> None:
    text = (piece * (TEN_MILLION // len(piece) + 1))[:TEN_MILLION]
    outcome("a" * 9000)  # what is imported or cached at the first refusal is not counted
    tracemalloc.start()
    error = outcome(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(error, LimitError)
    assert "10,000,000 bytes" in error.what
    assert peak < BUFFER_BYTES_MAX
    check_polite(error)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000 + "a" + ")" * 100_000,
        " AND ".join(["a > 5"] * 1_000_000),
        "a IN (" + "1," * 1_000_000 + "1)",
        "a" + " + 1" * 100_000 + " > 5",
    ],
    ids=["100,000 parentheses", "a million terms", "a million literals", "100,000 additions"],
)
def test_texts_of_the_nightmares_are_refused(text: str) -> None:
    assert isinstance(check(text), LimitError)


# --- texts that fill the 8 KiB with something nasty -------------------------------------------


def filled(opening: str, middle: str = "", closing: str = "", spare: int = 16) -> str:
    """As many openings and closings as fit around the middle."""
    room = TEXT_BYTES_MAX - len(middle.encode()) - spare
    times = room // len((opening + closing).encode())
    return opening * times + middle + closing * times


REFUSED: dict[str, str] = {
    "parentheses": filled("(", "a > 5", ")"),
    "parentheses that stay open": filled("("),
    "parentheses that close what is not open": "a" + filled(")"),
    "empty parentheses": filled("()"),
    "NOT": filled("NOT ", "a"),
    "minus": filled("- ", "a > 5"),
    "plus": filled("+ ", "5 > a"),
    "plus and minus": filled("+-", "5 > a"),
    "functions": filled("abs(", "a", ")") + " > 5",
    "functions of many arguments": filled("least(1,", "a", ")") + " > 5",
    "functions of texts": "contains(" + filled("lower(", "a", ")"),
    "sums": "a" + filled("+1") + "> 5",
    "sums to the right": filled("1+(", "a", ")") + "> 5",
    "products and sums in turn": "a" + filled("*1+1") + "> 5",
    "ORs in ANDs": filled("b OR c AND (", "a", ")"),
    "NOTs in parentheses": filled("NOT(", "a", ")"),
    "predicates": filled("a OR ", "a"),
    "predicates of predicates": filled("a=a ", "= a"),
    "literals": "a IN (" + filled("1,", "1") + ")",
    "BETWEENs": "a " + filled("BETWEEN "),
    "BETWEENs in BETWEENs": filled("a BETWEEN (", "a", ")"),
    "SELECTs": filled("SELECT "),
    "a name without end": filled("a.", "a") + " > 5",
    "a variable without end": "me." + filled("a.", "a") + " > 5",
    "a selected name without end": "SELECT " + filled("a.", "a"),
    "dots": filled("."),
    "commas": filled(","),
    "quotes, an odd number": "a = " + "'" * 8001,
    "an open quote": "a = '" + filled("x"),
    "quotes and letters": "a = " + filled("'a", "'"),
    "an open backtick": "`" + filled("x"),
    "backticks, an odd number": "`" * 8001,
    "empty names": filled("`` "),
    "empty names and dots": "a" + filled(".``"),
    "escapes": "a LIKE '" + filled("!!", "!", spare=32) + "' ESCAPE '!'",
    "5,000 digits": "a > " + "9" * 5000,
    "5,000 digits before an exponent": "a > " + "9" * 5000 + "e1",
    "a number of a million digits": "a > 1e999999",
    "minus a number of a million digits": "a > -1e999999",
    "an exponent of 5,000 digits": "a > 1e" + "9" * 5000,
    "numbers without a space": "a > " + filled("1.1"),
    "a fraction without end and no more": "0." + "0" * 5000,
    "a window for ever": f"ORDER BY a LIMIT 1 WITHIN {'9' * 305}. DAYS",
    "a k without end": f"ORDER BY a LIMIT {'9' * 5000} WITHIN 1 DAY",
    "comments only": filled("--\n"),
    "dashes": "-" * 8000,
    "slashes": "/" * 8000,
    "exclamation marks": "!" * 8000,
    "no-break spaces": "a >" + filled("\u00a0", "5"),
    "zero width spaces": filled("\u200b", "a > 5"),
    "accents on nothing": filled("\u0301"),
    "a letter under a tower of accents": "a" + filled("\u0301"),
    "fullwidth digits": "a > " + filled("９"),
    "Arabic digits": "a > " + filled("٣"),
    "emoji": filled("🚲"),
    "unassigned characters": filled("\U0010ffff"),
    "private characters": filled("\ue000"),
    "overrides of direction": "a = '" + filled("\u202e") + "'",
    "halves of surrogate pairs": "a = '" + "\udcff" * 2000 + "'",
    "nulls": filled("\x00"),
    "a misspelt word without end": "a " + filled("BETWEN"),
    "a function without end": filled("abs") + "(a) > 5",
}
READ: dict[str, str] = {
    "a string without end": "a = '" + filled("x") + "'",
    "a string of quotes": "a = '" + filled("''") + "'",
    "a string of dashes": "a = '" + filled("-") + "'",
    "emoji in a string": "a = '" + filled("👩‍🚒") + "'",
    "a tower of accents in a string": "a = 'e" + filled("\u0301") + "'",
    "zero width spaces in a string": "a = '" + filled("\u200b") + "'",
    "a name without end": filled("x") + " > 5",
    "a name of backticks": "`" + filled("``") + "` > 5",
    "a name of odd digits": "a" + filled("٣") + " > 5",
    "a pattern of wildcards": "a LIKE '" + filled("%_") + "'",
    "a pattern of escapes": "a LIKE '" + filled("!%", spare=32) + "' ESCAPE '!'",
    "a fraction without end": "a > 0." + "0" * 5000 + "1",
    "zeros without end": "a > " + "0" * 5000 + "1",
    "digits of a float without end": "a > 1." + "9" * 5000,
    "a number next to nothing": "a > 1e-999999",
    "spaces without end": filled(" ", "a"),
    "line ends without end": filled("\r\n", "a"),
    "a comment without end": "a -- " + filled("'"),
    "comments without end": filled("-- `\n", "a"),
    "as deep as it goes": "(" * DEPTH_MAX + "a" + ")" * DEPTH_MAX,
    "many arguments": "least(" + filled("1,", "a") + ") > 5",
    "many selected": "SELECT " + filled("a,", "a"),
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_a_nasty_text_is_refused(text: str) -> None:
    error = check(text)
    assert isinstance(error, TextError)
    assert error.text == text


@pytest.mark.parametrize("text", READ.values(), ids=READ)
def test_a_strange_text_is_read(text: str) -> None:
    assert isinstance(check(text), Subscription)


@pytest.mark.parametrize("text", (REFUSED | READ).values(), ids=REFUSED | READ)
def test_no_text_takes_much_memory(text: str) -> None:
    outcome(text)
    tracemalloc.start()
    outcome(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < BYTES_PER_CHARACTER_MAX * TEXT_BYTES_MAX


def counted(work: Callable[[], object]) -> tuple[int, int]:
    """How many calls some work makes, and how deep they nest."""
    calls = level = deepest = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls, level, deepest
        calls += event in ("call", "c_call")
        level += {"call": 1, "return": -1}.get(event, 0)
        deepest = max(deepest, level)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls, deepest


@pytest.mark.parametrize("text", (REFUSED | READ).values(), ids=REFUSED | READ)
def test_no_text_takes_many_calls_or_much_of_the_stack(text: str) -> None:
    calls, deepest = counted(lambda: outcome(text))
    assert calls < CALLS_PER_CHARACTER_MAX * TEXT_BYTES_MAX
    assert deepest < 10 * DEPTH_MAX


def test_thousands_of_names_do_not_stay() -> None:
    for number in range(5_000):
        parse(f"hostile{number} > 5")
    for cache in (keyword_of, parser._name_node):
        assert cache.cache_info().currsize <= 1024


# --- random texts -----------------------------------------------------------------------------

WORDS = [
    *sorted(RESERVED),
    *("a", "b.c", "t", "me.x", "me", "`odd name`", "from", "abs", "lower", "contains", "least"),
    *("distance", "1", "-1", "0.5", "1e9", "9223372036854775808", "'x'", "'%'", "''", "'!'"),
    *("=", "!=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "(", ")", ",", ".", "HOURS"),
    *("publications", "-- c\n", "'", "`", '"', ";", "²", "٣", "\u200b", "é", "🚲", "%", "&&"),
]
TEMPLATES = ["{}", "a {} 5", "a = '{}'", "`{}` > 5", "a > 5{}", "a.{} > 5", "a -- {}", "a IN ({})"]


soup = st.lists(st.sampled_from(WORDS), max_size=12)
any_text = st.text(st.characters(codec=None), max_size=12)


@given(soup, st.sampled_from([" ", "", "\n"]))
@examples(1_000)
def test_a_soup_of_the_languages_own_words(words: list[str], between: str) -> None:
    check(between.join(words))


@given(soup, soup, st.sampled_from(["AND", "OR", ">", "BETWEEN 1 AND", "ORDER BY"]))
@examples(350)
def test_a_soup_around_something_right(left: list[str], right: list[str], joint: str) -> None:
    check(" ".join(["a", joint, *left, "a", joint, *right]))


@given(st.binary(max_size=60))
@examples(350)
def test_a_soup_of_bytes(junk: bytes) -> None:
    check(junk.decode("latin-1"))
    check(junk.decode("utf-8", errors="surrogateescape"))


@given(any_text, st.sampled_from(TEMPLATES))
@examples(350)
def test_a_soup_of_unicode_anywhere(text: str, template: str) -> None:
    check(template.format(text))


@given(subscriptions, st.integers(0, 400), st.integers(0, 3), st.sampled_from(WORDS) | any_text)
@examples(350)
def test_a_slip_of_the_pen(tree: Subscription, place: int, missing: int, put: str) -> None:
    text = to_text(tree)
    place %= len(text) + 1
    check(text[:place] + put + text[place + missing :])


@given(subscriptions, st.integers(0, 400))
@examples(150)
def test_a_text_cut_off(tree: Subscription, place: int) -> None:
    text = to_text(tree)
    check(text[: place % (len(text) + 1)])
