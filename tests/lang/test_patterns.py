"""Patterns against two other ways to read them, and the search for strings against brute force.

The alphabets are tiny and the enumerations complete: every pattern over {a, b, %, _} up to
length five is tried on every string over {a, b} up to length five. Matching in segments must give
the same answers as the automaton, however hostile the pattern and the string are.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import patterns
from rove.lang.limits import AUTOMATON_STEPS_MAX
from rove.lang.patterns import (
    Ends,
    Pattern,
    PatternSegment,
    StepBudget,
    StepBudgetSpent,
    contains,
    ends_with,
    find_string,
    fits,
    like_pattern,
    like_text,
    pattern_fault,
    segmented,
    starts_with,
    steps_per_character,
)
from tests.effort import examples


def words(alphabet: str, longest: int) -> list[str]:
    return ["".join(w) for n in range(longest + 1) for w in product(alphabet, repeat=n)]


STRINGS = words("ab", 5)


def naive(pattern: str, text: str) -> bool:
    """LIKE by the book: % takes nothing, or a character and tries again."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return naive(pattern[1:], text) or (text != "" and naive(pattern, text[1:]))
    return text != "" and pattern[0] in ("_", text[0]) and naive(pattern[1:], text[1:])


def regular(pattern: str, escape: str | None = None) -> re.Pattern[str]:
    found, characters = "", iter(pattern)
    for character in characters:
        if character == escape:
            found += re.escape(next(characters))
        else:
            found += {"%": ".*", "_": "."}.get(character, re.escape(character))
    return re.compile(found, re.DOTALL)


# --- LIKE -------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", range(6))
def test_every_small_pattern_on_every_small_string(length: int) -> None:
    for written in map("".join, product("ab%_", repeat=length)):
        pattern = like_pattern(written, None)
        expected = regular(written)
        found = [text for text in STRINGS if pattern.matches(text)]
        assert found == [text for text in STRINGS if expected.fullmatch(text)], written


@pytest.mark.parametrize("length", range(5))
def test_every_small_pattern_as_the_book_has_it(length: int) -> None:
    short = words("ab", 4)
    for written in map("".join, product("ab%_", repeat=length)):
        pattern = like_pattern(written, None)
        assert [pattern.matches(text) for text in short] == [naive(written, t) for t in short]


@pytest.mark.parametrize("length", range(5))
def test_every_small_pattern_with_escapes(length: int) -> None:
    strings = words("a%_!", 3)
    for written in map("".join, product("a%_!", repeat=length)):
        if pattern_fault(written, "!") is None:
            pattern, expected = like_pattern(written, "!"), regular(written, "!")
            found = [text for text in strings if pattern.matches(text)]
            assert found == [text for text in strings if expected.fullmatch(text)], written


@pytest.mark.parametrize(
    ("written", "escape", "is_sound"),
    [
        ("a%", None, True),
        ("\\", None, True),
        ("!%", "!", True),
        ("!_", "!", True),
        ("!!", "!", True),
        ("!!!%", "!", True),
        ("!", "!", False),
        ("a!", "!", False),
        ("!a", "!", False),
        ("!!!", "!", False),
        ("a", "a", False),
        ("aa", "a", True),
        ("", "!", True),
    ],
)
def test_an_escape_must_escape_something(written: str, escape: str | None, is_sound: bool) -> None:
    assert (pattern_fault(written, escape) is None) is is_sound


ODD = "aé𝄞\n\\.*[%_'"


@examples(350)
@given(st.text(ODD, max_size=8), st.text(ODD, max_size=8))
def test_odd_characters_mean_themselves(written: str, text: str) -> None:
    assert like_pattern(written, None).matches(text) == bool(regular(written).fullmatch(text))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (starts_with, str.startswith),
        (ends_with, str.endswith),
        (contains, str.__contains__),
    ],
    ids=["startswith", "endswith", "contains"],
)
def test_the_plain_tests_are_those_of_python(
    make: Callable[[str], Pattern], expected: Callable[[str, str], bool]
) -> None:
    for wanted in (*words("ab", 3), "%", "_"):
        pattern = make(wanted)
        found = [pattern.matches(text) for text in (*STRINGS, "a%b", "_")]
        assert found == [expected(text, wanted) for text in (*STRINGS, "a%b", "_")], wanted


# --- cost -------------------------------------------------------------------------------------


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every character that any automaton reads from now on."""
    read: list[str] = []
    step = patterns._PatternAutomaton.step

    def counted(self: Any, state: int, character: str) -> int:
        read.append(character)
        return step(self, state, character)

    monkeypatch.setattr(patterns._PatternAutomaton, "step", counted)
    return read


@pytest.mark.parametrize(
    "written", ["%a" * 30 + "%b", "%a_" * 30 + "b", "%" * 500 + "b", "_%" * 60 + "b"]
)
def test_a_hostile_pattern_reads_each_character_once(written: str, steps: list[str]) -> None:
    assert not like_pattern(written, None).matches("a" * 2000)
    assert len(steps) == 2000


def test_a_mismatch_ends_the_reading(steps: list[str]) -> None:
    assert not starts_with("b").matches("a" * 2000)
    assert len(steps) == 1


# --- spelling ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("%_", "_%"),
        ("%%", "%"),
        ("%_%", "_%"),
        ("a%__b", "a__%b"),
        ("a_%_b", "a__%b"),
        ("%_%_%", "__%"),
        ("_%a%_", "%_a_%"),
        ("a%%b%%", "a%b%"),
    ],
)
def test_two_spellings_are_one_pattern(one: str, other: str) -> None:
    assert like_pattern(one, None) == like_pattern(other, None)


@pytest.mark.parametrize("length", range(5))
def test_two_patterns_are_equal_exactly_if_they_mean_the_same(length: int) -> None:
    strings = words("abc", length + 2)
    meanings: dict[tuple[bool, ...], set[Pattern]] = {}
    for written in map("".join, product("ab%_", repeat=length)):
        pattern = like_pattern(written, None)
        meaning = tuple(pattern.matches(text) for text in strings)
        meanings.setdefault(meaning, set()).add(pattern)
    assert all(len(alike) == 1 for alike in meanings.values())


@examples(350)
@given(st.text("ab%_!\\é", max_size=8), st.sampled_from([None, "!", "\\"]))
def test_the_canonical_spelling_is_read_back(written: str, escape: str | None) -> None:
    if pattern_fault(written, escape) is not None:
        return
    pattern = like_pattern(written, escape)
    canonical = like_text(pattern)
    assert pattern_fault(*canonical) is None
    assert like_pattern(*canonical) == pattern
    assert like_text(like_pattern(*canonical)) == canonical


@pytest.mark.parametrize(
    ("pattern", "spelling"),
    [
        (like_pattern("%_a", None), ("_%a", None)),
        (like_pattern("a!%b", "!"), ("a\\%b", "\\")),
        (contains("100%"), ("%100\\%%", "\\")),
        (contains("\\"), ("%\\%", None)),
        (contains("\\_"), ("%\\\\\\_%", "\\")),
        (starts_with(""), ("%", None)),
    ],
)
def test_the_canonical_spelling(pattern: Pattern, spelling: tuple[str, str | None]) -> None:
    assert like_text(pattern) == spelling


@pytest.mark.parametrize(
    ("written", "name", "text"),
    [
        ("abc", "equals", "abc"),
        ("", "equals", ""),
        ("abc%", "startswith", "abc"),
        ("%", "startswith", ""),
        ("%abc", "endswith", "abc"),
        ("%abc%", "contains", "abc"),
        ("a%c", None, "ac"),
        ("a_", None, "a"),
        ("_%", None, ""),
        ("%a%c%", None, "ac"),
    ],
)
def test_plain_patterns_have_a_name(written: str, name: str | None, text: str) -> None:
    pattern = like_pattern(written, None)
    assert (pattern.name, pattern.text) == (name, text)


# --- finding a string ---------------------------------------------------------------------------

SMALL = [like_pattern("".join(w), None) for n in range(4) for w in product("ab%_", repeat=n)]
BOUNDS = ("", "a", "ab", "b", "ba", "c")
LETTERS = "Aabcz"  # all that patterns and bounds name, something below, something above
LONGEST = 5  # no two patterns of three items need a longer string


@cache
def short_strings() -> list[str]:
    return words(LETTERS, LONGEST)


@cache
def meaning(pattern: Pattern) -> frozenset[str]:
    return frozenset(text for text in short_strings() if pattern.matches(text))


def lies_in(text: str, ends: Ends, fitting: Sequence[Pattern], missing: Sequence[Pattern]) -> bool:
    return (
        ends.low <= text
        and (ends.high is None or text < ends.high)
        and all(pattern.matches(text) for pattern in fitting)
        and not any(pattern.matches(text) for pattern in missing)
    )


def brute_force(
    ends: Ends, fitting: Sequence[Pattern], missing: Sequence[Pattern]
) -> Iterator[str]:
    found = (
        set(short_strings()).intersection(*map(meaning, fitting)).difference(*map(meaning, missing))
    )
    return (t for t in found if ends.low <= t and (ends.high is None or t < ends.high))


def check(ends: Ends, fitting: Sequence[Pattern], missing: Sequence[Pattern]) -> None:
    found = find_string(ends, fitting, missing)
    expected = min(brute_force(ends, fitting, missing), key=len, default=None)
    if found is None or expected is None:
        assert found == expected, (ends, fitting, missing)
    else:
        assert lies_in(found, ends, fitting, missing)
        assert len(found) == len(expected), (ends, fitting, missing)


ANYWHERE = Ends("", None)


def test_a_shortest_string_for_every_small_pattern_and_against_it() -> None:
    for pattern in SMALL:
        check(ANYWHERE, [pattern], [])
        check(ANYWHERE, [], [pattern])


@pytest.mark.parametrize("first", ["%a", "a%", "%a%", "_%", "_", "a", "%a_", "b%a", "%", "__%"])
def test_a_shortest_string_that_fits_one_pattern_and_misses_another(first: str) -> None:
    pattern = like_pattern(first, None)
    for other in SMALL:
        check(ANYWHERE, [pattern], [other])
        check(ANYWHERE, [pattern, other], [])


@pytest.mark.parametrize("high", [*BOUNDS, None])
@pytest.mark.parametrize("low", BOUNDS)
def test_a_shortest_string_within_every_small_span(low: str, high: str | None) -> None:
    ends = Ends(low, high)
    check(ends, [], [])
    for pattern in SMALL[:21]:
        check(ends, [pattern], [])
        check(ends, [], [pattern])
        check(ends, [like_pattern("%a%", None)], [pattern])


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ("a", "a\0"),
        ("a\0", "a\0\0"),
        ("a\0", "a\x01"),
        ("\U0010ffff", None),
        ("\ud7ff", "\ue000"),
        ("\ud7ff\0", "\ue000"),
        ("z", "{"),
        ("é", "ê"),
    ],
)
def test_spans_between_odd_neighbours_hold_a_string(low: str, high: str | None) -> None:
    found = find_string(Ends(low, high), [], [])
    assert found is not None
    assert lies_in(found, Ends(low, high), [], [])
    found.encode()


@pytest.mark.parametrize(
    ("low", "high"), [("a", "a"), ("b", "a"), ("a\0", "a"), ("", ""), ("ab", "a"), ("é", "e")]
)
def test_spans_that_hold_nothing(low: str, high: str) -> None:
    assert find_string(Ends(low, high), [], []) is None


@examples(150)
@given(
    st.sampled_from(BOUNDS),
    st.sampled_from([*BOUNDS, None]),
    st.lists(st.sampled_from(SMALL), max_size=2),
    st.lists(st.sampled_from(SMALL), max_size=2),
)
def test_what_is_found_fits_and_what_is_not_found_is_not_there(
    low: str, high: str | None, fitting: list[Pattern], missing: list[Pattern]
) -> None:
    ends = Ends(low, high)
    found = find_string(ends, fitting, missing)
    if found is None:
        assert next(brute_force(ends, fitting, missing), None) is None
    else:
        assert lies_in(found, ends, fitting, missing)


def test_every_named_character_may_be_needed() -> None:
    every = [like_pattern(f"%{character}%", None) for character in "fbecad"]
    assert sorted(find_string(ANYWHERE, every, []) or "") == list("abcdef")


def test_a_character_that_nobody_names_is_found() -> None:
    named = [contains(chr(point)) for point in range(0x20, 0x7F)]
    found = find_string(Ends("", None), [like_pattern("_", None)], named)
    assert found is not None
    assert lies_in(found, ANYWHERE, [like_pattern("_", None)], named)


# --- giving up ------------------------------------------------------------------------------------

HARD = [contains("aaaaaab"), contains("bbbbbba"), contains("abaabab"), ends_with("bab")]


def test_too_many_states_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_string(ANYWHERE, HARD, []) is not None
    monkeypatch.setattr(patterns, "AUTOMATON_STATES_MAX", 50)
    with pytest.raises(StepBudgetSpent):
        find_string(ANYWHERE, HARD, [])


def test_too_many_steps_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "AUTOMATON_STEPS_MAX", 100)
    with pytest.raises(StepBudgetSpent):
        find_string(ANYWHERE, HARD, [])
    assert find_string(ANYWHERE, [contains("a")], []) == "a"


def test_an_effort_is_shared_by_the_searches_that_are_given_it() -> None:
    effort = StepBudget(20)
    assert find_string(ANYWHERE, [contains("abc")], [], effort) == "abc"
    assert 0 < effort.left < 20
    with pytest.raises(StepBudgetSpent):
        find_string(ANYWHERE, [contains("abc")], [], effort)


def test_a_search_over_many_characters_stays_within_its_steps(steps: list[str]) -> None:
    many = "".join(map(chr, range(0x100, 0x700)))
    with pytest.raises(StepBudgetSpent):
        find_string(ANYWHERE, [ends_with(many)], [])
    assert len(steps) <= AUTOMATON_STEPS_MAX


# --- in segments ------------------------------------------------------------------------------

SPECIAL = "aé𝄞\0\ud800.*\n"
"""What is special elsewhere: beyond 16 bits, NUL, half a surrogate pair, regular expressions."""


def like(written: str) -> Pattern:
    return like_pattern(written, None)


@pytest.mark.parametrize("length", range(6))
def test_segments_match_every_small_string_as_the_automaton_does(length: int) -> None:
    strings = ["".join(word) for n in range(6) for word in product("ab", repeat=n)]
    for written in map("".join, product("ab%_", repeat=length)):
        pattern = like(written)
        assert [fits(pattern, s) for s in strings] == [pattern.matches(s) for s in strings], written


@examples(300)
@given(st.text(SPECIAL + "%_", max_size=12), st.text(SPECIAL, max_size=16))
def test_special_characters_mean_themselves_in_segments(written: str, text: str) -> None:
    pattern = like(written)
    assert fits(pattern, text) == pattern.matches(text)


@examples(100)
@given(
    st.lists(st.sampled_from(["a", "b", None]), max_size=6),
    st.integers(0, 127),
    st.text("ab", max_size=10),
)
def test_patterns_that_no_text_can_produce(items: list[str | None], gaps: int, text: str) -> None:
    pattern = Pattern(tuple(items), gaps & (2 << len(items)) - 1)
    assert fits(pattern, text) == pattern.matches(text)


@examples(200)
@given(st.text("ab_", min_size=1, max_size=90), st.text("ab", max_size=60), st.randoms())
def test_long_segments_with_open_characters(written: str, text: str, random: Random) -> None:
    """The string is made from the segment itself, so it almost fits at many places."""
    nearly = "".join(random.choice("ab") if c == "_" else c for c in written)
    for candidate in (text, nearly, nearly[1:] + nearly + text, nearly[:-1] + text + nearly[:-1]):
        pattern = like(f"%{written}%")
        assert fits(pattern, candidate) == pattern.matches(candidate)


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 500, 2000])
def test_many_segments(count: int) -> None:
    random = Random(count)
    drawn = ["".join(random.choices("ab_", k=random.randint(1, 3))) for _ in range(count)]
    for written in ("%".join(drawn), "%" + "%".join(drawn) + "%", "%a" * count + "%b"):
        pattern = like(written)
        random_text = "".join(random.choices("ab", k=6 * count))
        for text in (written.replace("%", "").replace("_", "a"), random_text, "a" * 6 * count):
            for candidate in (text, text + "b", text[:-1]):
                assert fits(pattern, candidate) == pattern.matches(candidate)


# --- cost -------------------------------------------------------------------------------------


def test_a_string_that_is_too_short_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> bool:
        raise AssertionError("the length is enough")

    pattern = like("%a%a%a%")
    segmented(pattern)
    monkeypatch.setattr(PatternSegment, "is_at", read)
    monkeypatch.setattr(PatternSegment, "find", read)
    assert not fits(pattern, "aa")


def test_there_is_no_backtracking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the string, each segment is searched for once, after the previous one."""
    looked_for: list[int] = []
    find = PatternSegment.find

    def counted(self: PatternSegment, text: str, start: int, end: int) -> int:
        looked_for.append(start)
        return find(self, text, start, end)

    monkeypatch.setattr(PatternSegment, "find", counted)
    assert not fits(like("%a" * 500 + "%ba%"), "a" * 100_000)
    assert looked_for == list(range(501))


@pytest.mark.parametrize("written", ["a" + "_" * 100 + "b", "a_" * 50 + "b", "_".join("abcd" * 20)])
def test_a_long_open_segment_is_tried_at_few_places(
    written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trying it at each place would take a step for each of its characters and each place."""
    tried: list[int] = []
    is_at = PatternSegment.is_at

    def counted(self: PatternSegment, text: str, start: int) -> bool:
        tried.append(start)
        return is_at(self, text, start)

    monkeypatch.setattr(PatternSegment, "is_at", counted)
    monkeypatch.setattr(patterns, "_CHUNK", 1000)
    assert not fits(like(f"%{written}%"), "ab"[: len(written) % 2 + 1] * 3000)
    assert len(tried) <= 64 + 6000 // 64 + 2


@pytest.mark.parametrize(
    ("pattern", "steps"),
    [
        (contains("abc"), 4),
        (like("a_b%c_d"), 4),
        (like("%a__%b_%"), 4),
        (like("%a_b%"), 16),
        (like("%a" + "_" * 640 + "b%"), 26),
    ],
)
def test_what_a_pattern_costs_depends_on_its_longest_open_segment(
    pattern: Pattern, steps: int
) -> None:
    assert steps_per_character(pattern) == steps
