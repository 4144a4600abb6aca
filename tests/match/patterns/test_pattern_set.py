"""Many patterns at once say what each says alone, while patterns come, go and are merged."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang.limits import PATTERN_STEPS_MAX, PATTERN_STEPS_PER_CHARACTER_MAX
from rove.lang.patterns import (
    Pattern,
    contains,
    ends_with,
    like_pattern,
    starts_with,
    steps_per_character,
)
from rove.match.patterns import automaton, pattern_set
from rove.match.patterns.automaton import PatternBudget
from rove.match.patterns.pattern_set import AutomatonMerge, PatternSet
from tests.effort import examples

ALPHABET = "abé𝄞\u0301"
"""Few characters, so that everything overlaps: plain, accented, beyond 16 bits, combining."""

words = st.text(ALPHABET, max_size=6)
plain = (
    st.builds(contains, words)
    | st.builds(ends_with, words)
    | st.builds(starts_with, words)
    | st.builds(lambda word: like_pattern(word, None), words)
)
likes = st.builds(lambda written: like_pattern(written, None), st.text("ab𝄞%_", max_size=8))
unusual = st.builds(
    lambda items, gaps: Pattern(tuple(items), gaps & (2 << len(items)) - 1),
    st.lists(st.sampled_from(["a", "b", None]), max_size=4),
    st.integers(0, 31),
)
"""Patterns that no text of the language leads to: gaps on both sides of `_`."""
patterns = plain | likes | unusual
texts = st.text(ALPHABET, max_size=12)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few patterns wait, and little is merged at once, so that short tests reach everything."""
    monkeypatch.setattr(automaton, "WAITING_MAX", 3)
    monkeypatch.setattr(pattern_set, "AT_ONCE_CHARACTERS_MAX", 40)
    monkeypatch.setattr(pattern_set, "SHARED_MAX", 2)


def expected(held: dict[int, Pattern], text: str) -> list[int]:
    return sorted(number for number, pattern in held.items() if pattern.matches(text))


def found(patterns: PatternSet, text: str) -> list[int]:
    return sorted(patterns.fitting(text).tolist())


def merge_all(patterns: PatternSet) -> int:
    count = 0
    while (merge := patterns.merge_due()) is not None:
        patterns.install(merge.run())
        count += 1
    return count


@pytest.mark.parametrize("compiled", [True, False])
@examples(150)
@given(st.lists(patterns, max_size=30), st.lists(texts, min_size=1, max_size=5))
def test_a_set_says_what_its_patterns_say(
    compiled: bool, drawn: list[Pattern], asked: list[str]
) -> None:
    patterns = PatternSet(compiled)
    held = {patterns.add(pattern): pattern for pattern in drawn}
    assert len(patterns) == len(held) == len(set(drawn))
    for text in (*asked, ""):
        assert found(patterns, text) == expected(held, text)
    merge_all(patterns)
    for text in (*asked, ""):
        assert found(patterns, text) == expected(held, text)


class Model:
    """The same patterns in a dict, and random changes of both."""

    def __init__(self, compiled: bool, seed: int, drawn: list[Pattern]) -> None:
        self.random = Random(seed)
        self.patterns = PatternSet(compiled)
        self.drawn = drawn
        self.held: dict[int, Pattern] = {}
        self.uses: dict[int, int] = {}
        self.merge: AutomatonMerge | None = None

    def change(self) -> None:
        what = self.random.random()
        if what < 0.6 or not self.held:
            pattern = self.random.choice(self.drawn)
            number = self.patterns.add(pattern)
            assert self.held.setdefault(number, pattern) == pattern
            self.uses[number] = self.uses.get(number, 0) + 1
        elif what < 0.85:
            number = self.random.choice(list(self.held))
            self.patterns.remove(number)
            self.uses[number] -= 1
            if not self.uses[number]:
                del self.uses[number], self.held[number]
        elif self.merge is None:
            self.merge = self.patterns.merge_due()
        else:
            self.patterns.install(self.merge.run())
            self.merge = None


@pytest.mark.parametrize("compiled", [True, False])
@examples(100)
@given(
    st.lists(patterns, min_size=1, max_size=40),
    st.lists(texts, min_size=1, max_size=4),
    st.integers(0, 2**32),
)
def test_changes_interleaved_with_merges_lose_and_invent_nothing(
    compiled: bool, drawn: list[Pattern], asked: list[str], seed: int
) -> None:
    model = Model(compiled, seed, drawn)
    for step in range(80):
        model.change()
        if step == 40:
            model.patterns.compiled = True
        text = asked[step % len(asked)]
        assert found(model.patterns, text) == expected(model.held, text)
    assert len(model.patterns) == len(model.held)


@examples(100)
@given(
    st.lists(patterns, min_size=1, max_size=40),
    st.lists(texts, min_size=1, max_size=4),
    st.integers(0, 2**32),
    st.booleans(),
)
def test_what_was_saved_goes_on_like_the_original(
    drawn: list[Pattern], asked: list[str], seed: int, compiled: bool
) -> None:
    model = Model(True, seed, drawn)
    for _ in range(40):
        model.change()
    arrays = model.patterns.state()
    for array in arrays.values():
        array.flags.writeable = False
    model.patterns, model.merge = PatternSet.from_state(arrays, compiled), None
    for step in range(40):
        text = asked[step % len(asked)]
        assert found(model.patterns, text) == expected(model.held, text)
        model.change()


def words_of(random: Random, count: int, longest: int) -> list[str]:
    return ["".join(random.choices("abcd", k=random.randint(1, longest))) for _ in range(count)]


@pytest.mark.parametrize("compiled", [True, False])
def test_five_thousand_patterns_and_three_hundred_texts(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    random = Random(1)
    kinds: list[tuple[Callable[[str], Pattern], Callable[[str, str], bool]]] = [
        (contains, lambda text, word: word in text),
        (ends_with, lambda text, word: text.endswith(word)),
        (starts_with, lambda text, word: text.startswith(word)),
        (
            lambda word: like_pattern(f"%{word}_", None),
            lambda text, word: word in text[-len(word) - 1 : -1],
        ),
        (lambda word: like_pattern(f"{word}%{word}", None), two_ends),
    ]
    patterns = PatternSet(compiled)
    held: dict[int, tuple[Callable[[str, str], bool], str]] = {}
    for i, word in enumerate(words_of(random, 5_000, 8)):
        make, fits = kinds[i % len(kinds)]
        held[patterns.add(make(word))] = fits, word
        if i % 700 == 0:
            merge_all(patterns)
    for text in words_of(random, 300, 40):
        assert found(patterns, text) == sorted(
            number for number, (fits, word) in held.items() if fits(text, word)
        )


def two_ends(text: str, word: str) -> bool:
    return len(text) >= 2 * len(word) and text.startswith(word) and text.endswith(word)


# -- numbers ------------------------------------------------------------------------------


def test_an_equal_pattern_has_the_same_number_until_its_last_use_is_gone() -> None:
    patterns = PatternSet()
    number = patterns.add(contains("a"))
    assert patterns.add(contains("a")) == number
    assert patterns.add(ends_with("a")) != number
    patterns.remove(number)
    assert number in found(patterns, "bab")
    patterns.remove(number)
    assert number not in found(patterns, "bab")
    assert len(patterns) == 1


@pytest.mark.parametrize("number", [-1, 0, 1, 99])
def test_a_number_that_is_not_in_use_cannot_be_removed(number: int) -> None:
    patterns = PatternSet()
    patterns.remove(patterns.add(contains("a")))
    with pytest.raises(KeyError):
        patterns.remove(number)


def test_a_number_may_be_used_again_while_its_pattern_is_being_merged() -> None:
    patterns = PatternSet(compiled=False)
    numbers = [patterns.add(contains(word)) for word in ("aa", "ab", "ba", "bb")]
    patterns.compiled = True
    merge = patterns.merge_due()
    assert merge is not None
    patterns.remove(numbers[0])
    assert patterns.add(contains("c")) == numbers[0]
    patterns.install(merge.run())
    assert found(patterns, "aa") == []
    assert found(patterns, "cab") == sorted([numbers[0], numbers[1]])


# -- merging ------------------------------------------------------------------------------


def test_what_is_being_merged_is_not_offered_twice() -> None:
    patterns = PatternSet(compiled=False)
    for word in ("aa", "ab", "ba", "bb"):
        patterns.add(contains(word))
    assert patterns.merge_due() is None, "without kernels there is nothing to merge into"
    patterns.compiled = True
    merge = patterns.merge_due()
    assert merge is not None
    assert patterns.merge_due() is None
    patterns.install(merge.run())
    assert patterns.merge_due() is None


def test_only_a_few_automata_are_left_after_merging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    patterns = PatternSet()
    for word in words_of(Random(2), 4_000, 12):
        patterns.add(contains(word))
    merge_all(patterns)
    sizes = sorted(automaton.alive for automaton in patterns._automata.values())
    assert 1 <= len(sizes) <= 4
    assert sum(sizes) > len(patterns) - automaton.WAITING_MAX


def test_removed_patterns_leave_no_trace_behind() -> None:
    patterns = PatternSet()
    numbers = [patterns.add(like_pattern(f"%{i}%a_b%", None)) for i in range(100)]
    merge_all(patterns)
    for number in numbers:
        patterns.remove(number)
    merge_all(patterns)
    assert (len(patterns), len(patterns._automata), patterns._runs) == (0, 0, {})
    assert not patterns._sharing
    assert sorted(patterns.add(contains(str(i))) for i in range(100)) == sorted(numbers)


def test_a_run_that_many_share_is_not_the_key_of_all() -> None:
    patterns = PatternSet()
    for i in range(50):
        patterns.add(like_pattern(f"%temperature%r{i}%", None))
    assert patterns._sharing["temperature"] == pattern_set.SHARED_MAX
    assert found(patterns, "temperature of r7") == [7]


# -- what could make it slow ----------------------------------------------------------------


def test_every_pattern_of_a_row_of_equal_characters_is_found_once() -> None:
    patterns = PatternSet()
    numbers = [patterns.add(contains("a" * size)) for size in range(1, 200)]
    merge_all(patterns)
    assert found(patterns, "a" * 500) == numbers
    assert found(patterns, "a" * 100) == numbers[:100]
    assert found(patterns, "ab" * 100) == numbers[:1]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("size", [63, 64, 65, 192])
def test_long_programs_are_run_too(size: int, compiled: bool) -> None:
    patterns = PatternSet(compiled)
    long = patterns.add(like_pattern("%b" + "_" * (size - 4) + "ab", None))
    short = patterns.add(like_pattern("%_ab", None))
    other = patterns.add(like_pattern("_" * size + "%ab", None))
    merge_all(patterns)
    assert found(patterns, "b" + "a" * (size - 3) + "b") == [long, short]
    assert found(patterns, "c" + "a" * (size - 3) + "b") == [short]
    assert found(patterns, "c" * size + "ab") == [short, other]


@pytest.fixture
def nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton, "WAITING_MAX", 1)


HOSTILE = [
    "%a" * 2_000 + "%b%",
    "%" + "a" * 700 + "b" + "a" * 700 + "%",
    "%" + "a" * 20 + "b%c%",
    "%a_b%",
    "%a" + "_" * 1_300 + "b%",
    "%" + "a_" * 600 + "b%",
    "%" + "a_" * 30 + "b%" + "%a" * 500 + "b",
    "%\ud800_\0%\0_\0%",
    "a_%" * 64 + "_a",
]


def nearly(written: str, length: int) -> Iterator[str]:
    """Texts that a pattern has a lot to do with."""
    almost = written.replace("%", "").replace("_", "a")
    yield "a" * length
    yield ("a" * 40 + "b") * (length // 41)
    yield almost[:-1] * (length // len(almost) + 1)
    yield almost + "a" * length
    yield "a" * length + "b" + almost


@pytest.mark.usefixtures("nothing_waits")
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("written", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_patterns_take_steps_linear_in_the_text(written: str, compiled: bool) -> None:
    pattern = like_pattern(written, None)
    patterns = PatternSet(compiled)
    number = patterns.add(pattern)
    merge_all(patterns)
    assert bool(patterns._automata) is compiled
    for text in nearly(written, 3_000):
        budget = PatternBudget()
        assert (number in patterns.fitting(text, budget)) is pattern.matches(text)
        spent = PATTERN_STEPS_MAX + PATTERN_STEPS_PER_CHARACTER_MAX * len(text) - budget.left
        per_character = steps_per_character(pattern)
        assert 0 <= spent <= per_character * len(text) + 80 * len(pattern.items)
        assert not budget.undecided


@pytest.mark.usefixtures("nothing_waits")
@pytest.mark.parametrize("compiled", [True, False])
def test_a_text_that_is_too_short_takes_no_steps(compiled: bool) -> None:
    patterns = PatternSet(compiled)
    patterns.add(like_pattern("%a%a%a%b%", None))
    merge_all(patterns)
    budget = PatternBudget()
    patterns.fitting("aab", budget)
    assert budget.left == PATTERN_STEPS_MAX + PATTERN_STEPS_PER_CHARACTER_MAX * 3


@pytest.mark.usefixtures("nothing_waits")
@pytest.mark.parametrize("compiled", [True, False])
def test_what_takes_too_many_steps_is_undecided(compiled: bool) -> None:
    patterns = PatternSet(compiled)
    numbers = [
        patterns.add(like_pattern("%a" + "%1" * i + "%z%" * (i % 2), None)) for i in range(1, 21)
    ]
    plain = patterns.add(contains("a"))
    merge_all(patterns)
    text = "z" + "a1" * 1_000
    budget = PatternBudget()
    budget.left = 5_000 - PATTERN_STEPS_PER_CHARACTER_MAX * len(text)
    fitting = set(patterns.fitting(text, budget).tolist())
    assert budget.undecided, "the steps were not enough for all"
    assert fitting.isdisjoint(budget.undecided)
    assert plain in fitting, "what its key decides takes no step"
    decided = set(numbers) - set(budget.undecided)
    assert fitting - {plain} == {n for n in decided if patterns._pattern(n).matches(text)}


@pytest.mark.usefixtures("nothing_waits")
def test_one_pattern_alone_can_be_too_much() -> None:
    patterns = PatternSet()
    number = patterns.add(like_pattern("%a" + "_" * 1_300 + "b%", None))
    merge_all(patterns)
    budget = PatternBudget()
    budget.left = 10_000 - PATTERN_STEPS_PER_CHARACTER_MAX * 5_001
    assert patterns.fitting("a" * 5_000 + "b", budget).tolist() == []
    assert budget.undecided == [number]
    assert -1_000_000 < budget.left <= 0


def test_a_very_long_key_does_not_wait_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    patterns = PatternSet()
    numbers = [patterns.add(contains(letter * 8_000)) for letter in "ab"]
    assert found(patterns, "a" * 9_000) == [numbers[0]]
    assert all(waiting.characters == 0 for waiting in patterns._waiting.values())


def test_half_surrogate_pairs_do_no_harm() -> None:
    patterns = PatternSet()
    numbers = [patterns.add(contains(text)) for text in ("\ud800", "\udfff", "a", "b")]
    merge_all(patterns)
    assert found(patterns, "a\udfff") == [numbers[1], numbers[2]]
    assert found(patterns, "a") == [numbers[2]]


def test_the_tables_grow_with_the_characters() -> None:
    patterns = PatternSet()
    before = patterns.nbytes
    for word in words_of(Random(3), 500, 12):
        patterns.add(contains(word))
    merge_all(patterns)
    characters = sum(len(pattern.items) for pattern in patterns._numbers)
    assert before < patterns.nbytes < before + 60 * characters


def test_without_kernels_nothing_of_numba_is_loaded_by_a_set() -> None:
    program = """
import sys
from rove.lang.patterns import contains
from rove.match.patterns.pattern_set import PatternSet
patterns = PatternSet(compiled=False)
numbers = [patterns.add(contains(str(i))) for i in range(1_000)]
assert patterns.merge_due() is None
print(len(patterns.fitting("123")), "rove.match.patterns.automaton_kernels" in sys.modules)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["6", "False"]


def test_the_answer_is_the_callers_own() -> None:
    patterns = PatternSet()
    for word in ("a", "b", "c"):
        patterns.add(contains(word))
    answer = patterns.fitting("ab")
    assert answer.dtype == np.int32
    patterns.fitting("c")
    assert sorted(answer.tolist()) == [0, 1]
