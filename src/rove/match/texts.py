"""Many text patterns over one string at once: which of 100,000 fit, without trying them all.

Every pattern (LIKE, contains, endswith …) has a *key*: a run of plain characters that each text
it fits must hold, together with the marks of the text's start and end where the run is bound to
them. `contains(a, 'x')`, `endswith` and the like are nothing but their key; of others the key is
the longest run, or one that fewer patterns share, and what has the key is looked at again. The
keys are searched all at once, by the automata of `rove.match.text_kernels`. Patterns without any
plain character (`%`, `_%`, `___`) ask for a length and nothing else.

Patterns come and go one at a time. New ones wait in a dictionary, 64 at most; then they become an
automaton, and automata of like size become one, so that there are only a few: small ones at once,
larger ones when somebody has time for it (`merge_due`, `Merge.run`, `install`, as in
`rove.match.matcher`). Removed patterns are marked, and are gone with the next merge.

With `compiled` False nothing of Numba is touched and all patterns stay in the dictionary: the
same answers, more slowly, for the time until the kernels are there.

Cost, by `rove.lab.texts_bench` (one core, patterns of 5 to 12 letters, texts of 40): 7 µs for a
text at 1,000 patterns, 10 µs at 10,000, 15 to 25 µs at 100,000, where a loop takes 10,000; 20 to
30 µs for an addition with all its merges, and 23 bytes for each character of a pattern.
"""

from __future__ import annotations

import sys
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rove.lang.patterns import Pattern, contains

ANY: Final = -1
GAP: Final = -2
"""In a program, among the characters to meet: any character; any number of them."""
PROGRAM_MAX: Final = 64
"""Longer programs are run by the pattern itself, whose time does not grow with their length."""
_START: Final = 0x110000
_END: Final = 0x110001
"""The marks around a text; no character has these numbers."""

WAITING_MAX: Final = 64
WAITING_CHARACTERS_MAX: Final = 4_096
"""How many patterns wait in a dictionary, and how many characters their keys may have."""
AT_ONCE_CHARACTERS_MAX: Final = 16_384
"""What may be merged within one `add`: a few milliseconds."""
MERGE_RATIO: Final = 4
"""An automaton is merged with smaller ones that together have 1/MERGE_RATIO of its patterns."""
SHARED_MAX: Final = 16
"""Patterns that may share a run before others look for another one."""

Ints: TypeAlias = npt.NDArray[np.int32]

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
        self._lengths = _Lengths()
        self._runs: dict[int, str] = {}
        self._sharing: Counter[str] = Counter()
        self._holders_made = _BY_LENGTH
        self._waiting: dict[int, _Waiting] = {}
        self._automata: dict[int, _Automaton] = {}
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
        runs = list(_runs(pattern))
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

    def _chosen_key(self, number: int, runs: list[_Key]) -> _Key:
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
        self._waiting[self._holders_made] = _Waiting()
        return self._holders_made

    # -- merging -----------------------------------------------------------------------

    def merge_due(self) -> Merge | None:
        """What is worth merging now, if anything and if that is not already being done."""
        if not self.compiled or self._nothing_due:
            return None
        merge = self._mergeable(None)
        self._nothing_due = merge is None
        return merge

    def _mergeable(self, characters_max: int | None) -> Merge | None:
        """The smallest holders, as far as the next is not much larger than those before it."""
        waiting_full = {
            id: waiting
            for id, waiting in self._waiting.items()
            if id != self._open or waiting.is_full
        }
        parts: dict[int, _Waiting | _Automaton] = {**waiting_full, **self._automata}
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
        return Merge({id: parts[id] for id in chosen})

    @staticmethod
    def _is_worth_it(chosen: list[_Waiting | _Automaton]) -> bool:
        if len(chosen) == 1:
            (one,) = chosen
            return isinstance(one, _Waiting) or 2 * one.alive < one.total
        return len(chosen) > 1

    def install(self, merge: Merge) -> None:
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
        if automaton.alive == 0:
            return
        self._holders_made += 1
        self._automata[self._holders_made] = automaton
        self._holders[automaton.numbers[kept]] = self._holders_made
        self._places[automaton.numbers[kept]] = np.flatnonzero(kept)

    # -- asking ------------------------------------------------------------------------

    def fitting(self, text: str) -> Ints:
        """The numbers of all patterns that the whole of `text` fits, each once, in no order."""
        others = self._lengths.fitting(len(text))
        for waiting in self._waiting.values():
            others += waiting.fitting(text)
        count = doubtful = 0
        if self._automata:
            marked = _marked(text)
            for automaton in self._automata.values():
                count, long = automaton.walk(marked, self._found, count)
                doubtful += long
        if doubtful:
            count = self._settle(count, text)
        if others:
            self._found[count : count + len(others)] = others
        return self._found[: count + len(others)].copy()

    def _settle(self, count: int, text: str) -> int:
        """Leave out what does not fit after all; returns how many are left of `count`."""
        kept = [
            ~number if number < 0 else number
            for number in self._found[:count].tolist()
            if number >= 0 or self._pattern(~number).matches(text)
        ]
        self._found[: len(kept)] = kept
        return len(kept)

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
        programs = _rows_of(_program(self._pattern(number)) for number in numbers)
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
        programs = _Rows(arrays["patterns"], arrays["pattern_starts"])
        size = max(numbers, default=-1) + 1
        for _ in range(size):
            found._new_number()
        for number, uses, program in zip(
            numbers, arrays["uses"].tolist(), programs.lists(), strict=True
        ):
            pattern = _pattern(program)
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
            names = _Automaton.SAVED
            automaton = _Automaton(*(arrays[f"automaton.{i}.{name}"] for name in names))
            self._holders_made += 1
            self._automata[self._holders_made] = automaton
            kept = automaton.numbers >= 0
            self._holders[automaton.numbers[kept]] = self._holders_made
            self._places[automaton.numbers[kept]] = np.flatnonzero(kept)
            i += 1


@cache
def warm_up() -> None:
    """Load the kernels and run each once, so that no later call has to wait for Numba.

    Half a second, or several where Numba's cache is empty; may be done in another thread.
    """
    waiting = _Waiting()
    waiting.add(0, _Key("a", False, False, True), contains("a"))
    automaton = _Automaton.built(waiting.snapshot()())
    automaton.walk(_marked("a"), np.zeros(1, np.int32), 0)


class Merge:
    """Work that can be done elsewhere: several holders into one automaton."""

    def __init__(self, parts: Mapping[int, _Waiting | _Automaton]) -> None:
        self.parts = parts
        self.automaton: _Automaton | None = None
        self._snapshots = [part.snapshot() for part in parts.values()]

    def run(self) -> Merge:
        """Build the automaton; touches nothing that the set uses."""
        contents = [snapshot() for snapshot in self._snapshots]
        self.automaton = _Automaton.built(
            _Contents(
                _joined([each.keys for each in contents]),
                _joined([each.programs for each in contents]),
                np.concatenate([each.numbers for each in contents]),
            )
        )
        return self


class _Contents(NamedTuple):
    """What a holder holds, row by row; the number of a removed pattern is -1."""

    keys: _Rows
    programs: _Rows
    """Empty for a pattern that is nothing but its key."""
    numbers: Ints


class _Automaton:
    """An automaton over sorted keys, which never changes but for marks of removed patterns."""

    SAVED: Final = ("table", "keys", "key_starts", "numbers")

    def __init__(self, table: Ints, keys: Ints, key_starts: Ints, numbers: Ints) -> None:
        from rove.match import text_kernels

        self._walk = text_kernels.walk
        self._table = _fixed(table)
        self._keys = _Rows(_fixed(keys), _fixed(key_starts))
        self._programs = _Rows(*text_kernels.programs_of(self._table))
        self._seen = text_kernels.unseen(self._table)
        self.numbers = np.array(numbers, np.int32)
        """By row; -1 marks a removed pattern."""
        self.alive = int(np.count_nonzero(self.numbers >= 0))

    @classmethod
    def built(cls, contents: _Contents) -> _Automaton:
        """The automaton of all patterns that were not removed."""
        from rove.match.text_kernels import packed, sort_rows

        kept = np.flatnonzero(contents.numbers >= 0).astype(np.int32)
        keys = contents.keys.taken(kept)
        order = np.empty(len(kept), np.int32)
        sort_rows(*keys.fixed(), order)
        keys, programs = keys.taken(order), contents.programs.taken(kept[order])
        table = packed(*keys.fixed(), *programs)
        return cls(table, *keys, contents.numbers[kept[order]])

    @property
    def total(self) -> int:
        """Patterns, the removed ones included."""
        return len(self.numbers)

    @property
    def characters(self) -> int:
        return len(self._keys.values)

    @property
    def nbytes(self) -> int:
        return int(self._seen.nbytes) + sum(array.nbytes for array in self.state().values())

    def remove(self, place: int) -> None:
        self.numbers[place] = -1
        self.alive -= 1

    def keep_only(self, kept: npt.NDArray[np.bool_]) -> None:
        """Remove all patterns but some."""
        self.numbers[~kept] = -1
        self.alive = int(np.count_nonzero(kept))

    def walk(self, marked: Ints, found: Ints, count: int) -> tuple[int, int]:
        """See `rove.match.text_kernels.walk`."""
        following: tuple[int, int] = self._walk(
            self._table, self._seen, self.numbers, marked, found, count
        )
        return following

    def snapshot(self) -> Callable[[], _Contents]:
        contents = _Contents(self._keys, self._programs, self.numbers.copy())
        return lambda: contents

    def state(self) -> dict[str, Ints]:
        return dict(zip(self.SAVED, (self._table, *self._keys, self.numbers), strict=True))


class _Waiting:
    """A few patterns (or, without kernels, all) by key, in dictionaries."""

    def __init__(self) -> None:
        self._patterns: dict[int, tuple[_Key, Pattern]] = {}
        self._by_text: dict[str, list[int]] = {}
        self._by_size: Counter[int] = Counter()
        self.characters = 0

    @property
    def alive(self) -> int:
        return len(self._patterns)

    @property
    def is_full(self) -> bool:
        return self.alive >= WAITING_MAX or self.characters >= WAITING_CHARACTERS_MAX

    @property
    def nbytes(self) -> int:
        return 4 * self.characters

    def add(self, number: int, key: _Key, pattern: Pattern) -> None:
        self._patterns[number] = key, pattern
        self._by_text.setdefault(key.text, []).append(number)
        self._by_size[len(key.text)] += 1
        self.characters += key.size

    def remove(self, number: int) -> None:
        key, _ = self._patterns.pop(number)
        self._by_text[key.text].remove(number)
        if not self._by_text[key.text]:
            del self._by_text[key.text]
        self._by_size -= Counter([len(key.text)])
        self.characters -= key.size

    def fitting(self, text: str) -> list[int]:
        """The numbers of the patterns that fit, each once."""
        return [
            number
            for held in self._held_in(text)
            for number in self._by_text[held]
            if _fits(*self._patterns[number], text)
        ]

    def _held_in(self, text: str) -> Iterable[str]:
        """The keys that `text` holds: one by one, or every part of it that has a key's size."""
        if len(self._by_text) <= len(self._by_size) * len(text):
            return [key for key in self._by_text if key in text]
        parts = {text[i : i + size] for size in self._by_size for i in range(len(text) - size + 1)}
        return parts & self._by_text.keys()

    def snapshot(self) -> Callable[[], _Contents]:
        held = dict(self._patterns)

        def contents() -> _Contents:
            programs = _rows_of(
                [] if key.is_all else _program(pattern) for key, pattern in held.values()
            )
            keys = _rows_of_bytes([key.encoded() for key, _ in held.values()])
            return _Contents(keys, programs, np.array(list(held), np.int32))

        return contents


class _Lengths:
    """Patterns that ask for nothing but a length: exactly so long, or at least."""

    def __init__(self) -> None:
        self._exactly: dict[int, list[int]] = {}
        self._at_least: list[tuple[int, int]] = []
        """(length, number), sorted."""

    def add(self, pattern: Pattern, number: int) -> None:
        length = len(pattern.items)
        if pattern.gaps:
            insort(self._at_least, (length, number))
        else:
            self._exactly.setdefault(length, []).append(number)

    def remove(self, pattern: Pattern, number: int) -> None:
        length = len(pattern.items)
        if pattern.gaps:
            self._at_least.remove((length, number))
        else:
            self._exactly[length].remove(number)

    def fitting(self, length: int) -> list[int]:
        if not self._at_least and not self._exactly:
            return []
        end = bisect_right(self._at_least, length, key=lambda pair: pair[0])
        return [number for _, number in self._at_least[:end]] + self._exactly.get(length, [])


# -- keys and programs --------------------------------------------------------------------


class _Key(NamedTuple):
    """Characters that every text of a pattern holds side by side, perhaps at its very ends."""

    text: str
    at_start: bool
    at_end: bool
    is_all: bool
    """The pattern asks for nothing else."""

    @property
    def size(self) -> int:
        return len(self.text) + self.at_start + self.at_end

    def encoded(self) -> bytes:
        return _START_BYTES * self.at_start + _encoded(self.text) + _END_BYTES * self.at_end


def _runs(pattern: Pattern) -> Iterator[_Key]:
    """Every run of plain characters, as long as it can be."""
    items, gaps = pattern.items, pattern.gaps
    total = len(items)
    first = 0
    while first < total:
        end = first
        while end < total and items[end] is not None and (end == first or not gaps >> end & 1):
            end += 1
        if end > first:
            at_start, at_end = first == 0 and not gaps & 1, end == total and not gaps >> total & 1
            text = "".join(item or "" for item in items[first:end])
            yield _Key(text, at_start, at_end, end - first == total)
        first = max(end, first + 1)


def _fits(key: _Key, pattern: Pattern, text: str) -> bool:
    """Whether the whole of a text that holds the key fits the pattern."""
    if not key.is_all:
        return pattern.matches(text)
    if key.at_start:
        return text == key.text if key.at_end else text.startswith(key.text)
    return text.endswith(key.text) if key.at_end else True


def _program(pattern: Pattern) -> list[int]:
    """The pattern as numbers: characters to meet, ANY and GAP."""
    found: list[int] = []
    for i, item in enumerate(pattern.items):
        if pattern.gaps >> i & 1:
            found.append(GAP)
        found.append(ANY if item is None else ord(item))
    if pattern.gaps >> len(pattern.items) & 1:
        found.append(GAP)
    return found


def _pattern(program: list[int]) -> Pattern:
    """The pattern of a program."""
    items: list[str | None] = []
    gaps = 0
    for step in program:
        if step == GAP:
            gaps |= 1 << len(items)
        else:
            items.append(None if step == ANY else chr(step))
    return Pattern(tuple(items), gaps)


# -- rows ---------------------------------------------------------------------------------


class _Rows(NamedTuple):
    """Rows of different lengths in one array; row i is values[starts[i]:starts[i + 1]]."""

    values: Ints
    starts: Ints

    def taken(self, chosen: Ints) -> _Rows:
        """Some of the rows, in the order in which they are named."""
        from rove.match.text_kernels import gather

        sizes = np.diff(self.starts)[chosen]
        values = np.empty(int(sizes.sum()), np.int32)
        starts = np.empty(len(chosen) + 1, np.int32)
        gather(*self.fixed(), _fixed(chosen), values, starts)
        return _Rows(values, starts)

    def fixed(self) -> tuple[Ints, Ints]:
        return _fixed(self.values), _fixed(self.starts)

    def lists(self) -> Iterator[list[int]]:
        for first, end in zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True):
            yield self.values[first:end].tolist()


def _rows_of(lists: Iterable[list[int]]) -> _Rows:
    values: list[int] = []
    starts = [0]
    for each in lists:
        values += each
        starts.append(len(values))
    return _Rows(np.array(values, np.int32), np.array(starts, np.int32))


def _rows_of_bytes(encoded: list[bytes]) -> _Rows:
    starts = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(each) // 4 for each in encoded], out=starts[1:])
    return _Rows(np.frombuffer(b"".join(encoded), np.int32), starts)


def _joined(parts: list[_Rows]) -> _Rows:
    starts = [np.zeros(1, np.int32)]
    for part in parts:
        starts.append(part.starts[1:] + starts[-1][-1])
    return _Rows(np.concatenate([part.values for part in parts]), np.concatenate(starts))


def _fixed(array: Ints) -> Ints:
    """A view of `array` through which nothing can be written: what the kernels promise."""
    view = np.ascontiguousarray(array, np.int32).view()
    view.flags.writeable = False
    return view


def _marked(text: str) -> Ints:
    """The characters of a text between its marks."""
    return np.frombuffer(_START_BYTES + _encoded(text) + _END_BYTES, np.int32)


def _encoded(text: str) -> bytes:
    """Four bytes a character; half surrogate pairs, which no text should hold, are kept."""
    return text.encode(_ENCODING, "surrogatepass")


_ENCODING: Final = f"utf-32-{'le' if sys.byteorder == 'little' else 'be'}"
_START_BYTES: Final = _START.to_bytes(4, sys.byteorder)
_END_BYTES: Final = _END.to_bytes(4, sys.byteorder)
