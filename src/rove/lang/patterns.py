"""String patterns: LIKE, startswith, endswith and contains, as one small automaton.

Every one of them is a row of characters to be met in order (some of them "any character"),
with places where anything may be skipped. Run as a set of positions held in one integer,
such an automaton reads a string in one pass whatever the pattern: no backtracking, so no
pattern can make it slow. Because the set of positions is a state, several automata can also
be walked side by side to *find* a string that fits all of them and misses others; that is
how `covers` and `intersects` decide about strings, exactly, with an example to show.
"""

from __future__ import annotations

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


class _Automaton:
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
def _automaton(pattern: Pattern) -> _Automaton:
    return _Automaton(pattern)


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


class TooHard(Exception):
    """The search was given up; neither a string nor the absence of one was found."""


class Effort:
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
            raise TooHard


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
    effort: Effort | None = None,
) -> str | None:
    """A shortest string within `ends` that fits all of `fitting` and none of `missing`.

    None if there is none; TooHard if the automata have too many states together to tell, or
    if telling takes more than `effort`.
    """
    effort = effort or Effort()
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
            raise TooHard
    return None


def _accepts(state: _State, ends: Ends, automata: list[_Automaton], fitting: int) -> bool:
    low, _, positions = state
    if low != _DECIDED and low < len(ends.low):
        return False
    return all(
        (position & automaton.accept != 0) == (i < fitting)
        for i, (position, automaton) in enumerate(zip(positions, automata, strict=True))
    )


def _follow(
    state: _State, character: str, ends: Ends, automata: list[_Automaton], fitting: int
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
    """A character strictly between two that nobody named; '' stands for no bound."""
    first = ord(low) + 1 if low else 0
    last = ord(high) - 1 if high else 0x10FFFF
    for wished in ("a", "m", "z", "A", "0", " ", "é", "中"):
        if first <= ord(wished) <= last and wished not in named:
            return wished
    points = chain(range(first, min(last, 0xD7FF) + 1), range(max(first, 0xE000), last + 1))
    return next((chr(point) for point in points if chr(point) not in named), None)
