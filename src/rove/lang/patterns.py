"""String patterns: LIKE, startswith, endswith and contains, as one small automaton.

Each is a sequence of characters to match in order (some of them "any character"), with gaps
where anything may be skipped. Run as a set of positions held in one integer, such an automaton
reads a string in one pass, whatever the pattern: there is no backtracking, so no pattern can
make it slow. Because the set of positions is a state, several automata can also run side by
side to *find* a string that fits all of some patterns and none of others; that is how `covers`
and `intersects` decide about strings, exactly and with an example.

`Pattern.matches` runs the automaton and defines what a pattern means. `fits` gives the same
answer faster, and is what matchers use.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final, TypeAlias

import msgspec

from rove.lang.limits import AUTOMATON_STATES_MAX, AUTOMATON_STEPS_MAX

_ESCAPE = "\\"


class Pattern(msgspec.Struct, frozen=True):
    """`items[i]` is a character to meet, or None for any; bit i of `gaps`: skip at will before it.

    The last gap, bit len(items), is the one after all items. Of several gaps in one run of
    None only the last is kept, so that two spellings of one pattern are equal.
    """

    items: tuple[str | None, ...]
    gaps: int

    def matches(self, text: str) -> bool:
        """True if the whole of `text` fits."""
        automaton = _automaton(self)
        state = automaton.start
        for character in text:
            state = automaton.step(state, character)
            if state == 0:
                return False
        return state & automaton.accept != 0

    def example(self, filling: str) -> str:
        """A string that fits: the characters to meet, with `filling` wherever any may be skipped.

        `filling` also stands for a character that is left open, or `a` does if it is empty.
        """
        found = "".join(
            (filling if self.gaps >> i & 1 else "") + (filling or "a" if item is None else item)
            for i, item in enumerate(self.items)
        )
        return found + (filling if self.gaps >> len(self.items) else "")

    @property
    def text(self) -> str:
        """The characters to meet, where there is no None among them."""
        return "".join(item or "" for item in self.items)

    @property
    def name(self) -> str | None:
        """Which plain test this is: equals, startswith, endswith, contains; None for others."""
        end = 1 << len(self.items)
        if None in self.items:
            return None
        tests = (("equals", 0), ("startswith", end), ("endswith", 1), ("contains", 1 | end))
        return next((name for name, gaps in tests if gaps == self.gaps), None)


class _PatternAutomaton:
    """A pattern made ready to run: which positions each character advances."""

    __slots__ = ("accept", "advancing", "any", "gaps", "sink", "start")

    def __init__(self, pattern: Pattern) -> None:
        self.start = 1
        self.accept = 1 << len(pattern.items)
        self.gaps = pattern.gaps
        self.sink = self.accept & self.gaps
        """The accepting position, if it is never left again."""
        self.any = sum(1 << i for i, item in enumerate(pattern.items) if item is None)
        self.advancing: dict[str, int] = {}
        for i, item in enumerate(pattern.items):
            if item is not None:
                self.advancing[item] = self.advancing.get(item, self.any) | 1 << i

    def step(self, state: int, character: str) -> int:
        advanced = (state & self.advancing.get(character, self.any)) << 1
        return advanced | (state & self.gaps)


@lru_cache(maxsize=256)
def _automaton(pattern: Pattern) -> _PatternAutomaton:
    return _PatternAutomaton(pattern)


def like_pattern(written: str, escape: str | None) -> Pattern:
    """The pattern of LIKE 'written' ESCAPE 'escape'; `pattern_fault` has approved of it."""
    items: list[str | None] = []
    gaps = 0
    characters = iter(written)
    for character in characters:
        if character == escape:
            items.append(next(characters))
        elif character == "%":
            gaps |= 1 << len(items)
        else:
            items.append(None if character == "_" else character)
    return Pattern(tuple(items), _gaps_at_ends_of_runs(items, gaps))


def _gaps_at_ends_of_runs(items: Sequence[str | None], gaps: int) -> int:
    """Move each gap behind the Nones that follow it: `%_` and `_%` skip the same strings."""
    for i, item in enumerate(items):
        if item is None and gaps >> i & 1:
            gaps = gaps & ~(1 << i) | 1 << (i + 1)
    return gaps


def pattern_fault(written: str, escape: str | None) -> str | None:
    """What is wrong with LIKE 'written' ESCAPE 'escape', or None."""
    if escape is None:
        return None
    characters = iter(written)
    for character in characters:
        if character == escape and next(characters, "") not in ("%", "_", escape):
            return f"after {escape} in the pattern comes %, _ or {escape} itself"
    return None


def starts_with(text: str) -> Pattern:
    return Pattern(tuple(text), 1 << len(text))


def ends_with(text: str) -> Pattern:
    return Pattern(tuple(text), 1)


def contains(text: str) -> Pattern:
    return Pattern(tuple(text), 1 | 1 << len(text))


TEXT_TESTS: Final[dict[str, Callable[[str], Pattern]]] = {
    "startswith": starts_with,
    "endswith": ends_with,
    "contains": contains,
}
"""What the tests of the language that are written as functions ask for."""


def like_text(pattern: Pattern) -> tuple[str, str | None]:
    """The canonical spelling of `pattern`: what to write after LIKE and after ESCAPE."""
    escape = _ESCAPE if any(item and item in "%_" for item in pattern.items) else None
    written: list[str] = []
    for i, item in enumerate((*pattern.items, "")):
        if pattern.gaps >> i & 1:
            written.append("%")
        if escape and item and item in f"%_{escape}":
            written.append(escape)
        written.append("_" if item is None else item)
    return "".join(written), escape


# -- finding a string -------------------------------------------------------------------


class StepBudgetSpent(Exception):
    """The search was given up; neither a string nor the absence of one was found."""


class StepBudget:
    """How many steps one search may still take, or several searches together."""

    __slots__ = ("left",)

    def __init__(self, steps: int | None = None) -> None:
        self.left = AUTOMATON_STEPS_MAX if steps is None else steps

    @property
    def is_spent(self) -> bool:
        return self.left < 0

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise StepBudgetSpent


class Ends(msgspec.Struct, frozen=True):
    """A span of strings in code-point order: from `low` on, and before `high` (None: no end)."""

    low: str
    high: str | None


_State: TypeAlias = tuple[int, int, tuple[int, ...]]
"""How many characters equal low's, high's (-1: decided), and the state of every automaton."""
_DECIDED = -1


def find_string(
    ends: Ends,
    fitting: Sequence[Pattern],
    missing: Sequence[Pattern],
    effort: StepBudget | None = None,
) -> str | None:
    """A shortest string within `ends` that fits all of `fitting` and none of `missing`.

    None if there is none; TooHard if the automata have too many states together to tell, or
    if telling takes more than `effort`.
    """
    effort = effort or StepBudget()
    effort.spend(1)
    automata = [_automaton(p) for p in (*fitting, *missing)]
    start: _State = (
        0 if ends.low else _DECIDED,
        0 if ends.high is not None else _DECIDED,
        tuple(a.start for a in automata),
    )
    if ends.high == "":
        return None
    alphabet = _alphabet(ends, (*fitting, *missing))
    seen = {start}
    waiting: deque[tuple[_State, str]] = deque([(start, "")])
    while waiting:
        state, text = waiting.popleft()
        if _accepts(state, ends, automata, len(fitting)):
            return text
        effort.spend(len(alphabet) * len(automata))
        for character in alphabet:
            following = _follow(state, character, ends, automata, len(fitting))
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append((following, text + character))
        if len(seen) > AUTOMATON_STATES_MAX:
            raise StepBudgetSpent
    return None


def _accepts(state: _State, ends: Ends, automata: list[_PatternAutomaton], fitting: int) -> bool:
    low, _, positions = state
    if low != _DECIDED and low < len(ends.low):
        return False
    return all(
        (position & automaton.accept != 0) == (i < fitting)
        for i, (position, automaton) in enumerate(zip(positions, automata, strict=True))
    )


def _follow(
    state: _State, character: str, ends: Ends, automata: list[_PatternAutomaton], fitting: int
) -> _State | None:
    """The state after `character`, or None where no accepted string can go on from there."""
    low, high, positions = state
    if low != _DECIDED:
        bound = ends.low[low : low + 1]
        if character < bound:
            return None
        low = low + 1 if character == bound else _DECIDED
    if high != _DECIDED and ends.high is not None:
        bound = ends.high[high]
        if character > bound or (character == bound and high + 1 == len(ends.high)):
            return None
        high = high + 1 if character == bound else _DECIDED
    after = tuple(a.step(p, character) for a, p in zip(automata, positions, strict=True))
    for i, (position, automaton) in enumerate(zip(after, automata, strict=True)):
        if (position == 0) if i < fitting else (position & automaton.sink):
            return None
    return low, high, after


def _alphabet(ends: Ends, patterns: Sequence[Pattern]) -> list[str]:
    """One character for each way in which characters can differ here, readable ones first."""
    edges = sorted(set(ends.low + (ends.high or "")))
    named = {item for pattern in patterns for item in pattern.items if item is not None}
    named.update(edges)
    pairs = zip(["", *edges], [*edges, ""], strict=True)
    others = [_between(low, high, named) for low, high in pairs]
    found = named.union(c for c in others if c is not None)
    return sorted(found, key=lambda c: (not c.isalnum(), not c.isprintable(), c))


def _between(low: str, high: str, named: set[str]) -> str | None:
    """An unused character strictly between two others; '' means no bound."""
    first = ord(low) + 1 if low else 0
    last = ord(high) - 1 if high else 0x10FFFF
    for wished in ("a", "m", "z", "A", "0", " ", "é", "中"):
        if first <= ord(wished) <= last and wished not in named:
            return wished
    points = chain(range(first, min(last, 0xD7FF) + 1), range(max(first, 0xE000), last + 1))
    return next((chr(point) for point in points if chr(point) not in named), None)


# -- matching in segments ---------------------------------------------------------------

# `Pattern.matches` reads a string character by character. It defines what a pattern means, but it
# costs 150 ns a character. Here a pattern is a row of *segments*: one bound to the start, one bound
# to the end, and between them segments that only have to come one after another. The leftmost place
# of a segment leaves the most room for the rest, so no backtracking is needed, and segments are
# found by `str.find`, which is compiled and linear in the string.
#
# Only a segment with `_` inside cannot be found that way. A short one becomes a regular expression
# without any repetition, which cannot backtrack either. In a long one the longest run of plain
# characters is searched for, and the rest compared. After too many false places, the segment is
# tried at all places at once: a place is a bit of an integer, and each character of the segment
# clears the bits where it does not fit. That takes a 64th of a step for each character of the
# segment and each place, whatever the two are.
#
# Cost: 0.2 to 1 µs for a pattern of a few segments. The worst strings take 5 ns a character, 10 to
# 80 with a short segment that has `_` inside, 600 with one of 8,000 characters.

_WORD: Final = 64
_TRIED_MIN: Final = 64
"""Comparisons at wrong places before the bits are used; more in a long string."""
_CHUNK: Final = 1 << 15
"""Places that are bits of one integer: small enough to stay in a processor's cache."""


class PatternSegment(msgspec.Struct, frozen=True):
    """Adjacent characters: plain runs, and any characters between and around them."""

    size: int
    runs: tuple[tuple[int, str], ...]
    """Plain characters, each run with its distance from the segment's start."""

    @property
    def is_plain(self) -> bool:
        """Whether no character between plain ones is left open."""
        return len(self.runs) <= 1

    def is_at(self, text: str, start: int) -> bool:
        """Whether the segment, which the text has room for, stands at `start`."""
        if len(self.runs) == 1:
            ((offset, run),) = self.runs
            return text.startswith(run, start + offset)
        return all(text.startswith(run, start + offset) for offset, run in self.runs)

    def find(self, text: str, start: int, end: int) -> int:
        """The first place between `start` and `end` that has the whole segment, or -1."""
        if len(self.runs) == 1:
            ((offset, run),) = self.runs
            found = text.find(run, start + offset, end - self.size + offset + len(run))
            return found - offset if found >= 0 else -1
        if not self.runs:
            return start if start + self.size <= end else -1
        if self.size <= _WORD:
            match = _expression(self).search(text, start, end)
            return -1 if match is None else match.start()
        return self._find_among(text, start, end)

    def _find_among(self, text: str, start: int, end: int) -> int:
        offset, longest = max(self.runs, key=lambda run: len(run[1]))
        last = end - self.size + offset + len(longest)
        tries = _TRIED_MIN + (end - start) // (_WORD * len(self.runs))
        found = start + offset - 1
        for _ in range(tries):
            found = text.find(longest, found + 1, last)
            if found < 0:
                return -1
            if self.is_at(text, found - offset):
                return found - offset
        return self._find_by_bits(text, found - offset + 1, end)

    def _find_by_bits(self, text: str, start: int, end: int) -> int:
        while start + self.size <= end:
            places = min(_CHUNK, end - self.size - start + 1)
            where = self._where(text[start : start + places + self.size - 1])
            fitting = (1 << places) - 1
            for offset, run in self.runs:
                for i, character in enumerate(run, offset):
                    fitting &= where.get(character, 0) >> i
                if not fitting:
                    break
            if fitting:
                return start + (fitting & -fitting).bit_length() - 1
            start += places
        return -1

    def _where(self, text: str) -> dict[str, int]:
        """Where each character of the segment stands in `text`: an integer with a bit for each."""
        size = (len(text) + 7) // 8
        bits = {character: bytearray(size) for _, run in self.runs for character in run}
        for i, character in enumerate(text):
            if character in bits:
                bits[character][i >> 3] |= 1 << (i & 7)
        return {character: int.from_bytes(found, "little") for character, found in bits.items()}


@lru_cache(maxsize=1024)
def _expression(segment: PatternSegment) -> re.Pattern[str]:
    """A short segment as a regular expression."""
    written, at = "", 0
    for offset, run in segment.runs:
        written += "." * (offset - at) + re.escape(run)
        at = offset + len(run)
    return re.compile(written + "." * (segment.size - at), re.DOTALL)


class SegmentedPattern(msgspec.Struct, frozen=True):
    """A pattern that is cut at its gaps."""

    size_min: int
    """A shorter string does not fit."""
    head: PatternSegment
    """What the string starts with; if there is no gap at all, what it is."""
    middle: tuple[PatternSegment, ...]
    """What comes in between, in this order."""
    tail: PatternSegment | None
    """What it ends with; None if there is no gap."""

    def fit(self, text: str) -> bool:
        """Whether the whole of `text` fits: what `Pattern.matches` says."""
        size = len(text)
        if size < self.size_min or (self.head.runs and not self.head.is_at(text, 0)):
            return False
        if self.tail is None:
            return size == self.size_min
        end = size - self.tail.size
        if self.tail.runs and not self.tail.is_at(text, end):
            return False
        start = self.head.size
        for segment in self.middle:
            start = segment.find(text, start, end)
            if start < 0:
                return False
            start += segment.size
        return True


@lru_cache(maxsize=4096)
def segmented(pattern: Pattern) -> SegmentedPattern:
    """The segments of a pattern."""
    items, gaps = pattern.items, pattern.gaps
    cuts = [i for i in range(len(items) + 1) if gaps >> i & 1]
    parts = [_segment(items[a:b]) for a, b in zip([0, *cuts], [*cuts, len(items)], strict=True)]
    if len(parts) == 1:
        return SegmentedPattern(len(items), parts[0], (), None)
    return SegmentedPattern(len(items), parts[0], tuple(parts[1:-1]), parts[-1])


def _segment(items: tuple[str | None, ...]) -> PatternSegment:
    runs: list[tuple[int, str]] = []
    run: list[str] = []
    for i, item in enumerate((*items, None)):
        if item is not None:
            run.append(item)
        elif run:
            runs.append((i - len(run), "".join(run)))
            run = []
    return PatternSegment(len(items), tuple(runs))


def fits(pattern: Pattern, text: str) -> bool:
    """Whether the whole of `text` fits: what `Pattern.matches` says, quickly."""
    return segmented(pattern).fit(text)


def steps_per_character(pattern: Pattern) -> int:
    """How many steps a pattern may take for each character of a string, at most.

    A step is about a nanosecond of compiled code. It depends on the pattern alone, so it is known
    when a text is accepted.
    """
    sizes = [segment.size for segment in segmented(pattern).middle if not segment.is_plain]
    return _OPEN_STEPS + max(sizes) // _WORD if sizes else _PLAIN_STEPS


_PLAIN_STEPS: Final = 4
_OPEN_STEPS: Final = 16
"""With `_` inside of a segment; and another step for every 64 characters of it."""
