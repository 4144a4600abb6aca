"""Many string patterns at once: which of 100,000 fit a string, without trying each.

Every pattern (LIKE, contains, endswith …) has a *key*: a run of plain characters that each string
it fits must contain, together with marks for the start and the end of the string where the run is
bound to them. `contains(a, 'x')`, `endswith` and the like consist of their key alone. For other
patterns the key is the longest run, or one that fewer patterns share; a pattern whose key occurs is
then tested in full, within the steps that a publication may take (`PatternBudget`). The automata of
`rove.match.patterns.automaton_kernels` search for all keys at once. Patterns without a plain
character (`%`, `_%`, `___`) depend on the length of the string only.

Patterns are added and removed one at a time. New ones are collected in a dictionary, 64 at most,
which then becomes an automaton. Automata of similar size are merged, so that there are only a few:
small ones at once, larger ones when the caller has time for it (`merge_due`, `AutomatonMerge.run`
in any thread, `install`). Removed patterns are marked, and disappear with the next merge.

With `compiled` False nothing of Numba is touched and all patterns stay in the dictionary: the same
answers, more slowly, for the time until the kernels are compiled.

Cost, by `rove.bench.match.texts` (one core, patterns of 5 to 12 letters, strings of 40): 7 µs for a
string at 1,000 patterns and at 10,000, 18 µs at 100,000, where a loop over them takes 10,000; 12 to
30 µs for an addition with all its merges, and 23 bytes for each character of a pattern.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rove.lang.patterns import Pattern, contains
from rove.match.patterns.automaton import (
    Automaton,
    LengthPatterns,
    PatternBudget,
    PatternRows,
    PendingPatterns,
)
from rove.match.patterns.encoding import (
    Ints,
    PatternKey,
    Ragged,
    joined,
    marked,
    pattern_of,
    program_of,
    rows_of,
    runs_of,
)

AT_ONCE_CHARACTERS_MAX: Final = 16_384
"""What may be merged within one `add`: a few milliseconds."""
MERGE_RATIO: Final = 4
"""An automaton is merged with smaller ones that together have 1/MERGE_RATIO of its patterns."""
SHARED_MAX: Final = 16
"""Patterns that may share a run before others look for another one."""

_UNLIMITED: Final = 1 << 62
_FREE, _BY_LENGTH = -1, 0
"""Holders that are none: of a number that is not in use, of a pattern without a key."""


class PatternSet:
    """Patterns by number, each once, and how often each was added."""

    def __init__(self, compiled: bool = True) -> None:
        self.compiled = compiled
        """May be set to True later, after `warm_up`."""
        if compiled:
            warm_up()
        self._patterns: list[Pattern | None] = []
        self._uses: list[int] = []
        self._numbers: dict[Pattern, int] = {}
        self._free: list[int] = []
        self._holders = np.full(64, _FREE, np.int32)
        self._places = np.zeros(64, np.int32)
        self._found = np.zeros(64, np.int32)
        self._lengths = LengthPatterns()
        self._runs: dict[int, str] = {}
        self._sharing: Counter[str] = Counter()
        self._holders_made = _BY_LENGTH
        self._waiting: dict[int, PendingPatterns] = {}
        self._automata: dict[int, Automaton] = {}
        self._busy: set[int] = set()
        self._nothing_due = False
        """Nothing was worth merging, and since then nothing has become so."""
        self._open = self._opened()

    def __len__(self) -> int:
        return len(self._numbers)

    # -- changing ----------------------------------------------------------------------

    def add(self, pattern: Pattern) -> int:
        """The number of `pattern`, which is the same for an equal one."""
        number = self._numbers.get(pattern)
        if number is not None:
            self._uses[number] += 1
            return number
        number = self._new_number()
        self._patterns[number], self._uses[number] = pattern, 1
        self._numbers[pattern] = number
        self._hold(number, pattern)
        return number

    def _hold(self, number: int, pattern: Pattern) -> None:
        runs = list(runs_of(pattern))
        if not runs:
            self._holders[number] = _BY_LENGTH
            self._lengths.add(pattern, number)
            return
        self._holders[number] = self._open
        self._waiting[self._open].add(number, self._chosen_key(number, runs), pattern)
        if self.compiled and self._waiting[self._open].is_full:
            self._open = self._opened()
            while (merge := self._mergeable(AT_ONCE_CHARACTERS_MAX)) is not None:
                self.install(merge.run())

    def remove(self, number: int) -> None:
        """Take one use back; after the last the pattern is gone. KeyError if there is none."""
        pattern = self._patterns[number] if 0 <= number < len(self._patterns) else None
        if pattern is None:
            raise KeyError(number)
        self._uses[number] -= 1
        if self._uses[number]:
            return
        del self._numbers[pattern]
        self._patterns[number] = None
        holder = int(self._holders[number])
        if holder == _BY_LENGTH:
            self._lengths.remove(pattern, number)
        elif holder in self._waiting:
            self._waiting[holder].remove(number)
        else:
            self._automata[holder].remove(int(self._places[number]))
            self._nothing_due = False
        run = self._runs.pop(number, None)
        if run is not None:
            self._sharing[run] -= 1
            if not self._sharing[run]:
                del self._sharing[run]
        self._holders[number] = _FREE
        self._free.append(number)

    def _new_number(self) -> int:
        if self._free:
            return self._free.pop()
        number = len(self._patterns)
        self._patterns.append(None)
        self._uses.append(0)
        if number == len(self._holders):
            self._holders = np.concatenate([self._holders, np.full_like(self._holders, _FREE)])
            self._places = np.concatenate([self._places, np.zeros_like(self._places)])
            self._found = np.zeros(len(self._holders), np.int32)
        return number

    def _chosen_key(self, number: int, runs: list[PatternKey]) -> PatternKey:
        """The only run, or the longest that few others have for a key."""
        if runs[0].is_all:
            return runs[0]
        runs.sort(key=lambda run: -run.size)
        fewest = min(runs, key=lambda run: max(self._sharing[run.text], SHARED_MAX - 1))
        self._runs[number] = fewest.text
        self._sharing[fewest.text] += 1
        return fewest

    def _opened(self) -> int:
        """A new dictionary for patterns to wait in."""
        self._nothing_due = False
        self._holders_made += 1
        self._waiting[self._holders_made] = PendingPatterns()
        return self._holders_made

    # -- merging -----------------------------------------------------------------------

    def merge_due(self) -> AutomatonMerge | None:
        """What is worth merging now, if anything and if that is not already being done."""
        if not self.compiled or self._nothing_due:
            return None
        merge = self._mergeable(None)
        self._nothing_due = merge is None
        return merge

    def _mergeable(self, characters_max: int | None) -> AutomatonMerge | None:
        """The smallest holders, as far as the next is not much larger than those before it."""
        waiting_full = {
            id: waiting
            for id, waiting in self._waiting.items()
            if id != self._open or waiting.is_full
        }
        parts: dict[int, PendingPatterns | Automaton] = {**waiting_full, **self._automata}
        ids = sorted(parts.keys() - self._busy, key=lambda id: parts[id].alive)
        chosen: list[int] = []
        patterns = characters = 0
        for id in ids:
            characters += parts[id].characters
            too_large = chosen and parts[id].alive > MERGE_RATIO * patterns
            if too_large or (characters_max is not None and characters > characters_max):
                break
            chosen.append(id)
            patterns += parts[id].alive
        if not self._is_worth_it([parts[id] for id in chosen]):
            return None
        if self._open in chosen:
            self._open = self._opened()
        self._busy.update(chosen)
        return AutomatonMerge({id: parts[id] for id in chosen})

    @staticmethod
    def _is_worth_it(chosen: list[PendingPatterns | Automaton]) -> bool:
        if len(chosen) == 1:
            (one,) = chosen
            return isinstance(one, PendingPatterns) or 2 * one.alive < one.total
        return len(chosen) > 1

    def abandon(self, merge: AutomatonMerge) -> None:
        """A merge failed: what it was to merge may be merged again."""
        self._busy.difference_update(merge.parts)
        self._nothing_due = False

    def install(self, merge: AutomatonMerge) -> None:
        """Take over a finished merge; patterns removed while it ran stay removed."""
        automaton = merge.automaton
        assert automaton is not None, "run the merge first"
        holders = self._holders[automaton.numbers]
        kept = np.zeros(len(holders), np.bool_)
        for id in merge.parts:
            kept |= holders == id
        automaton.keep_only(kept)
        self._busy.difference_update(merge.parts)
        self._nothing_due = False
        for id in merge.parts:
            self._waiting.pop(id, None)
            self._automata.pop(id, None)
        if automaton.alive:
            self._take_over(automaton)

    def _take_over(self, automaton: Automaton) -> None:
        self._holders_made += 1
        self._automata[self._holders_made] = automaton
        places = np.flatnonzero(automaton.numbers >= 0)
        self._holders[automaton.numbers[places]] = self._holders_made
        self._places[automaton.numbers[places]] = places

    # -- asking ------------------------------------------------------------------------

    def fitting(self, text: str, budget: PatternBudget | None = None) -> Ints:
        """The numbers of all patterns that the whole of `text` fits, each once, in no order.

        With a budget, it has the numbers of those that are not decided when it is used up.
        """
        if budget is None:
            budget = PatternBudget()
            budget.left = _UNLIMITED
        else:
            budget.extend(text)
        others = self._lengths.fitting(len(text))
        for waiting in self._waiting.values():
            others += waiting.fitting(text, budget)
        count = undecided = 0
        if self._automata:
            codes = marked(text)
            for automaton in self._automata.values():
                count, more, budget.left = automaton.walk(codes, self._found, count, budget.left)
                undecided += more
        if undecided:
            found = self._found[:count]
            budget.undecided += (~found[found < 0]).tolist()
            count -= undecided
            self._found[:count] = found[found >= 0]
        if others:
            self._found[count : count + len(others)] = others
        return self._found[: count + len(others)].copy()

    @property
    def nbytes(self) -> int:
        """Bytes of the tables, without the patterns themselves and what Python keeps of them."""
        own = self._holders.nbytes + self._places.nbytes + self._found.nbytes
        waiting = sum(part.nbytes for part in self._waiting.values())
        return own + waiting + sum(part.nbytes for part in self._automata.values())

    # -- saving ------------------------------------------------------------------------

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Everything as flat arrays by name, to be written to any kind of file.

        Automata are saved as they are; what still waits, or is asked of lengths, is added anew.
        """
        numbers = sorted(self._numbers.values())
        programs = rows_of(program_of(self._pattern(number)) for number in numbers)
        arrays: dict[str, npt.NDArray[Any]] = {
            "numbers": np.array(numbers, np.int32),
            "uses": np.array([self._uses[number] for number in numbers], np.int32),
            "patterns": programs.values,
            "pattern_starts": programs.starts,
        }
        for i, automaton in enumerate(self._automata.values()):
            arrays.update({f"automaton.{i}.{name}": a for name, a in automaton.state().items()})
        return arrays

    def _pattern(self, number: int) -> Pattern:
        pattern = self._patterns[number]
        assert pattern is not None, "only numbers in use have a pattern"
        return pattern

    @classmethod
    def from_state(
        cls, arrays: Mapping[str, npt.NDArray[Any]], compiled: bool = True
    ) -> PatternSet:
        """The set that `state` was asked of, with the same numbers; arrays may be read-only."""
        found = cls(compiled)
        numbers: list[int] = arrays["numbers"].tolist()
        programs = Ragged(arrays["patterns"], arrays["pattern_starts"])
        size = max(numbers, default=-1) + 1
        for _ in range(size):
            found._new_number()
        for number, uses, program in zip(
            numbers, arrays["uses"].tolist(), programs.lists(), strict=True
        ):
            pattern = pattern_of(program)
            found._patterns[number], found._uses[number] = pattern, uses
            found._numbers[pattern] = number
        found._free = sorted(set(range(size)) - set(numbers), reverse=True)
        if compiled:
            found._load_automata(arrays)
        for number in numbers:
            if found._holders[number] == _FREE:
                found._hold(number, found._pattern(number))
        return found

    def _load_automata(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        i = 0
        while f"automaton.{i}.table" in arrays:
            names = [f"automaton.{i}.{name}" for name in Automaton.SAVED]
            self._take_over(Automaton(*(arrays[name] for name in names)))
            i += 1


@cache
def warm_up() -> None:
    """Load the kernels and run each once, so that no later call has to wait for Numba.

    Half a second, or several where Numba's cache is empty; may be done in another thread.
    """
    waiting = PendingPatterns()
    waiting.add(0, PatternKey("a", False, False, True), contains("a"))
    automaton = Automaton.built(waiting.snapshot()())
    automaton.walk(marked("a"), np.zeros(1, np.int32), 0, 1)


class AutomatonMerge:
    """Work that can be done elsewhere: several holders into one automaton."""

    def __init__(self, parts: Mapping[int, PendingPatterns | Automaton]) -> None:
        self.parts = parts
        self.automaton: Automaton | None = None
        self._snapshots = [part.snapshot() for part in parts.values()]

    def run(self) -> AutomatonMerge:
        """Build the automaton; touches nothing that the set uses."""
        contents = [snapshot() for snapshot in self._snapshots]
        self.automaton = Automaton.built(
            PatternRows(
                joined([each.keys for each in contents]),
                joined([each.programs for each in contents]),
                np.concatenate([each.numbers for each in contents]),
            )
        )
        return self
