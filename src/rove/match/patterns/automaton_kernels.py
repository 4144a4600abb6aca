"""The compiled part of text patterns: a trie with links back, built and walked in flat arrays.

This is the automaton of Aho and Corasick. A text is read once, and whatever it holds, each of its
characters moves on by one edge, after following on average at most one link to a shorter match.
Nodes stand in the order of a breadth-first walk, so that the children of a node are neighbours,
sorted: an edge is found by a binary search over them (of nearly always one), and needs neither a
hash table nor a row per character. A node is 16 bytes. Only the first nodes, the shallow ones that
every text passes all the time, have a row with the answer for each character of the alphabet.

A terminal is a node where keys end. Terminals that end at one place of the text are linked, and
each is visited once for a text: what was seen needs no second look, nor does the rest of its
chain. So the work is bounded by the length of the text and by the keys that it holds.

A pattern of which the text holds the key is then looked at in full, piece by piece, in time linear
in the text: a few steps a character, and one for every 64 characters of a piece with `_` inside.
Steps are counted, and what exceeds the limit for one publication is given back undecided.

Considered and not taken: a row for every node, which is mostly empty; edges in a hash table, which
needs as much again for its gaps; looking up every part of the text in a dictionary, which grows
with the square of the text. Figures: `rove.match.patterns.pattern_set`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from rove.match.patterns.encoding import ANY, GAP

LABEL, CHILDREN, LINK, TERMINAL = range(4)
"""Columns of a node: the character that leads to it, its first child, the node of the longest
shorter match that ends alike, and the first terminal of its chain (or -1)."""
FIRST, END, NEXT = range(3)
"""Columns of a terminal: its keys, from FIRST up to END, and the next terminal of the chain."""

ALPHABET, ROWS, NODES, TERMINALS, PROGRAMS, PROGRAM_STARTS, TABLE_END = range(7)
"""A table opens with the places where its parts begin, in this order."""
LATIN = 256
"""The alphabet opens with the letter of each of the first 256 characters, or -1."""

_UNSEEN, _LAST = -2, -1
_TRIED_MIN = 64
"""Steps at wrong places before a piece is looked for in a way that its characters cannot slow."""
_OPEN_STEPS = 8
"""What a character takes that way beside its words."""
_ROW_LETTERS_MIN = 2_048
"""What rows may take at least; more where there are many nodes, two letters for each."""

_i4, _i8 = types.int32, types.int64
_row = types.Array(_i4, 1, "C")
_table = types.Array(_i4, 2, "C")
_fixed_row = types.Array(_i4, 1, "C", readonly=True)
_fixed_table = types.Array(_i4, 2, "C", readonly=True)


@njit(types.void(_fixed_row, _fixed_row, _fixed_row, _row, _row), cache=True, nogil=True)
def gather(values: Any, starts: Any, chosen: Any, out_values: Any, out_starts: Any) -> None:
    """Copy the chosen ones of rows that stand one behind the other in `values`."""
    at = 0
    for i in range(chosen.size):
        out_starts[i] = at
        for j in range(starts[chosen[i]], starts[chosen[i] + 1]):
            out_values[at] = values[j]
            at += 1
    out_starts[chosen.size] = at


@njit(cache=True, nogil=True)
def _is_before(values: Any, starts: Any, heads: Any, a: int, b: int) -> bool:
    """Whether row `a` sorts before row `b`; of two alike neither does."""
    if heads[a] != heads[b]:
        return heads[a] < heads[b]
    i, j = starts[a], starts[b]
    while i < starts[a + 1] and j < starts[b + 1]:
        if values[i] != values[j]:
            return values[i] < values[j]
        i += 1
        j += 1
    return i == starts[a + 1] and j < starts[b + 1]


@njit(types.void(_fixed_row, _fixed_row, _row), cache=True, nogil=True)
def sort_rows(values: Any, starts: Any, order: Any) -> None:
    """Write the order of the rows into `order`, by a merge sort: no order of theirs is bad.

    Good is one of long sorted parts, as rows from older automata come in. Comparing the first two
    characters, packed in one number, settles most pairs.
    """
    count = starts.size - 1
    heads = np.zeros(count, np.int64)
    for i in range(count):
        order[i] = i
        for j in range(starts[i], starts[i] + 2):
            heads[i] <<= 31
            if j < starts[i + 1]:
                heads[i] |= values[j] + 1
    other = np.empty(count, np.int32)
    width = 1
    while width < count:
        for low in range(0, count, 2 * width):
            middle, high = min(low + width, count), min(low + 2 * width, count)
            i, j = low, middle
            if j < high and not _is_before(values, starts, heads, order[j], order[j - 1]):
                j = high  # in order already
                other[middle:high] = order[middle:high]
                high = middle
            for at in range(low, high):
                if i == middle or (
                    j < high and _is_before(values, starts, heads, order[j], order[i])
                ):
                    other[at] = order[j]
                    j += 1
                else:
                    other[at] = order[i]
                    i += 1
        order[:] = other
        width *= 2


@njit(types.UniTuple(_i8, 2)(_fixed_row, _fixed_row, _table, _table), cache=True, nogil=True)
def grow(letters: Any, starts: Any, nodes: Any, terminals: Any) -> tuple[int, int]:
    """Build the trie of sorted keys, level by level; returns the numbers of nodes and terminals.

    LINK holds the parent until `link` replaces it. One node more than there are closes the list.
    """
    firsts, ends = np.empty(len(nodes), np.int32), np.empty(len(nodes), np.int32)
    depths = np.empty(len(nodes), np.int32)
    firsts[0], ends[0], depths[0] = 0, starts.size - 1, 0
    node, count, terminal_count = 0, 1, 0
    while node < count:
        key, end, depth = firsts[node], ends[node], depths[node]
        while key < end and starts[key + 1] - starts[key] == depth:
            key += 1
        nodes[node, TERMINAL] = -1
        if key > firsts[node]:
            nodes[node, TERMINAL] = terminal_count
            terminals[terminal_count, FIRST] = firsts[node]
            terminals[terminal_count, END] = key
            terminal_count += 1
        nodes[node, CHILDREN] = count
        while key < end:
            label = letters[starts[key] + depth]
            firsts[count], depths[count] = key, depth + 1
            while key < end and letters[starts[key] + depth] == label:
                key += 1
            ends[count] = key
            nodes[count, LABEL] = label
            nodes[count, LINK] = node
            count += 1
        node += 1
    nodes[count, CHILDREN] = count
    return count, terminal_count


@njit(cache=True, nogil=True, inline="always")
def _child(nodes: Any, node: int, letter: int) -> int:
    """The child that `letter` leads to, or -1."""
    low, high = nodes[node, CHILDREN], nodes[node + 1, CHILDREN]
    while low < high:
        middle = (low + high) >> 1
        if nodes[middle, LABEL] < letter:
            low = middle + 1
        elif nodes[middle, LABEL] > letter:
            high = middle
        else:
            return middle
    return -1


@njit(cache=True, nogil=True, inline="always")
def _step(nodes: Any, rows: Any, node: int, letter: int) -> int:
    """The longest match after one more letter; 0, the root, is the empty one."""
    while node >= rows.shape[0]:
        following = _child(nodes, node, letter)
        if following >= 0:
            return following
        node = nodes[node, LINK]
    return rows[node, letter]


@njit(types.void(_table, _table, _table, _i8), cache=True, nogil=True)
def link(nodes: Any, terminals: Any, rows: Any, count: int) -> None:
    """Link every node and every terminal to the next shorter one that ends alike.

    As many nodes as there are `rows` get a row; it is that of the shorter match, but for children.
    """
    for node in range(count):
        parent, shorter = nodes[node, LINK], 0
        if node > 0 and parent > 0:
            shorter = _step(nodes, rows, nodes[parent, LINK], nodes[node, LABEL])
        nodes[node, LINK] = shorter
        if node < rows.shape[0]:
            if node > 0:
                rows[node] = rows[shorter]
            else:
                rows[node] = 0
            for child in range(nodes[node, CHILDREN], nodes[node + 1, CHILDREN]):
                rows[node, nodes[child, LABEL]] = child
        chain = nodes[shorter, TERMINAL] if node > 0 else -1
        if nodes[node, TERMINAL] >= 0:
            terminals[nodes[node, TERMINAL], NEXT] = chain
        else:
            nodes[node, TERMINAL] = chain


@njit(cache=True, nogil=True, inline="always")
def _letter(alphabet: Any, character: int) -> int:
    """The number of a character among those that keys have, or -1."""
    if character < LATIN:
        return alphabet[character]
    low, high = LATIN, alphabet.size
    while low < high:
        middle = (low + high) >> 1
        if alphabet[middle] < character:
            low = middle + 1
        elif alphabet[middle] > character:
            high = middle
        else:
            return middle - LATIN
    return -1


@njit(cache=True, nogil=True, inline="always")
def _differs(wanted: int, character: int) -> bool:
    return wanted != ANY and wanted != character


@njit(cache=True, nogil=True)
def _find_plain(
    program: Any, first: int, end: int, text: Any, low: int, high: int
) -> tuple[int, int]:
    """Where characters without any open one stand first, or -1; and the steps it took.

    Knuth, Morris and Pratt: after a mismatch, the longest shorter match goes on.
    """
    size = end - first
    shorter = np.zeros(size, np.int32)
    matched = 0
    for i in range(1, size):
        while matched > 0 and program[first + i] != program[first + matched]:
            matched = shorter[matched - 1]
        if program[first + i] == program[first + matched]:
            matched += 1
        shorter[i] = matched
    matched = 0
    for i in range(low, high):
        while matched > 0 and text[i] != program[first + matched]:
            matched = shorter[matched - 1]
        if text[i] == program[first + matched]:
            matched += 1
        if matched == size:
            return i - size + 1, 2 * (i - low + size)
    return -1, 2 * (high - low + size)


@njit(cache=True, nogil=True)
def _masks(program: Any, first: int, end: int) -> tuple[Any, Any]:
    """The different characters of a piece, sorted, and for each the bits of where it may stand.

    One more row, the last, is for all other characters: only open places take them.
    """
    characters = np.unique(program[first:end])
    if characters[0] == ANY:
        characters = characters[1:]
    masks = np.zeros((characters.size + 1, (end - first + 63) >> 6), np.uint64)
    for i in range(end - first):
        bit = np.uint64(1) << np.uint64(i & 63)
        if program[first + i] == ANY:
            masks[:, i >> 6] |= bit
        else:
            masks[np.searchsorted(characters, program[first + i]), i >> 6] |= bit
    return characters, masks


@njit(cache=True, nogil=True)
def _find_open(
    program: Any, first: int, end: int, text: Any, low: int, high: int, left: int
) -> tuple[int, int]:
    """The same for a piece with open characters inside; -2 if it took more than `left` steps.

    Bit i of the state says that the first i + 1 characters fit those just read.
    """
    characters, masks = _masks(program, first, end)
    words = masks.shape[1]
    state = np.zeros(words, np.uint64)
    last_bit = np.uint64((end - first - 1) & 63)
    one, top = np.uint64(1), np.uint64(63)
    steps = masks.size + end - first
    for i in range(low, high):
        row = np.searchsorted(characters, text[i])
        if row < characters.size and characters[row] != text[i]:
            row = characters.size
        carry = one
        for word in range(words):
            before = state[word]
            state[word] = ((before << one) | carry) & masks[row, word]
            carry = before >> top
        steps += words + _OPEN_STEPS
        if (state[words - 1] >> last_bit) & one:
            return i - (end - first) + 1, steps
        if steps > left:
            return -2, steps
    return -1, steps


@njit(cache=True, nogil=True)
def _find(
    program: Any, first: int, end: int, text: Any, low: int, high: int, left: int
) -> tuple[int, int]:
    """Where a piece stands first, its end; -1 if nowhere, -2 if that took too many steps.

    Each place is tried in turn, since most pieces differ from most places at once. Where that
    takes more than a few steps a place, a method goes on whose steps do not depend on the piece.
    """
    behind = 0
    while first < end and program[end - 1] == ANY:
        end -= 1
        behind += 1
    while first < end and program[first] == ANY:
        first += 1
        low += 1
    size = end - first
    high -= behind
    steps = 0
    for at in range(low, high - size + 1):
        i = 0
        while i < size and not _differs(program[first + i], text[at + i]):
            i += 1
        if i == size:
            return at + size + behind, steps + size + 1
        steps += i + 1
        if steps > _TRIED_MIN + 4 * (at - low + size):
            is_open = False
            for item in range(first, end):
                is_open |= program[item] == ANY
            if is_open:
                found, more = _find_open(program, first, end, text, at + 1, high, left - steps)
            else:
                found, more = _find_plain(program, first, end, text, at + 1, high)
            return found + size + behind if found >= 0 else found, steps + more
    return -1, steps


@njit(cache=True, nogil=True)
def _fits(program: Any, first: int, end: int, text: Any, left: int) -> tuple[int, int]:
    """1 if the text between its two marks fits a program, 0 if not, -1 if that took too many steps.

    What is bound to the start or the end is compared there. Each piece between two gaps is taken
    as far left as it can be: that leaves the most room for the rest, so nothing is gone back to.
    """
    low, high = 1, text.size - 1
    while first < end and program[first] != GAP:
        if low == high or _differs(program[first], text[low]):
            return 0, low
        first += 1
        low += 1
    if first == end:
        return (1 if low == high else 0), low
    while program[end - 1] != GAP:
        if low == high or _differs(program[end - 1], text[high - 1]):
            return 0, low + text.size - high
        end -= 1
        high -= 1
    steps = low + text.size - high
    while True:
        while first < end and program[first] == GAP:
            first += 1
        if first == end:
            return 1, steps
        stop = first
        while program[stop] != GAP:
            stop += 1
        if stop - first > high - low:
            return 0, steps
        low, more = _find(program, first, stop, text, low, high, left - steps)
        steps += more + stop - first
        if low < 0:
            return (0 if low == -1 else -1), steps
        first = stop


@njit(types.void(_row, _fixed_row, _row), cache=True, nogil=True)
def spell(alphabet: Any, characters: Any, letters: Any) -> None:
    """Write the letter of each of the characters."""
    for i in range(characters.size):
        letters[i] = _letter(alphabet, characters[i])


@njit(
    types.UniTuple(_i8, 3)(_fixed_row, _fixed_row, _row, _row, _fixed_row, _row, _i8, _i8),
    cache=True,
    nogil=True,
)
def walk(
    table: Any,
    sizes_min: Any,
    seen: Any,
    numbers: Any,
    text: Any,
    found: Any,
    count: int,
    left: int,
) -> tuple[int, int, int]:
    """Write the numbers of the patterns that fit behind the first `count` of `found`.

    A pattern that cannot be decided within `left` steps is written as ~number. Returns how many
    there are in `found` now, how many of these are such, and how many steps are left. `seen` links
    what was visited, and is all unseen again afterwards.
    """
    alphabet = table[table[ALPHABET] : table[ROWS]]
    rows = table[table[ROWS] : table[NODES]].reshape((-1, alphabet.size - LATIN))
    nodes = table[table[NODES] : table[TERMINALS]].reshape((-1, 4))
    terminals = table[table[TERMINALS] : table[PROGRAMS]].reshape((-1, 3))
    programs = table[table[PROGRAMS] : table[PROGRAM_STARTS]]
    starts = table[table[PROGRAM_STARTS] : table[TABLE_END]]
    node, visited, undecided = 0, _LAST, 0
    for i in range(text.size):
        letter = _letter(alphabet, text[i])
        node = _step(nodes, rows, node, letter) if letter >= 0 else 0
        terminal = nodes[node, TERMINAL]
        while terminal >= 0 and seen[terminal] == _UNSEEN:
            seen[terminal] = visited
            visited = terminal
            for key in range(terminals[terminal, FIRST], terminals[terminal, END]):
                number, first, end = numbers[key], starts[key], starts[key + 1]
                if number < 0 or sizes_min[key] > text.size - 2:
                    continue
                fits = 1
                if first < end:
                    fits = -1
                    if left > 0:
                        fits, steps = _fits(programs, first, end, text, left)
                        left -= steps
                if fits != 0:
                    found[count] = number if fits > 0 else ~number
                    count += 1
                    undecided += fits < 0
            terminal = terminals[terminal, NEXT]
    while visited != _LAST:
        before = seen[visited]
        seen[visited] = _UNSEEN
        visited = before
    return count, undecided, left


def packed(keys: Any, key_starts: Any, programs: Any, program_starts: Any) -> Any:
    """The table of an automaton over sorted keys."""
    characters = np.unique(keys)
    in_latin = characters[characters < LATIN]
    alphabet = np.concatenate([np.full(LATIN, -1, np.int32), characters])
    alphabet[in_latin] = np.arange(len(in_latin))
    letters = np.empty_like(keys)
    spell(alphabet, keys, letters)
    letters.flags.writeable = False
    nodes = np.empty((len(keys) + 2, 4), np.int32)
    terminals = np.empty((len(key_starts) - 1, 3), np.int32)
    node_count, terminal_count = grow(letters, key_starts, nodes, terminals)
    row_count = max(_ROW_LETTERS_MIN, 2 * node_count) // max(1, len(characters))
    rows = np.empty((min(max(1, row_count), node_count), len(characters)), np.int32)
    link(nodes, terminals, rows, node_count)
    parts = [
        alphabet,
        rows.ravel(),
        nodes[: node_count + 1].ravel(),
        terminals[:terminal_count].ravel(),
        programs,
        program_starts,
    ]
    places = np.cumsum([TABLE_END + 1, *map(len, parts)])
    return np.concatenate([places.astype(np.int32), *parts])


def programs_of(table: Any) -> tuple[Any, Any]:
    """The programs that a table was packed with, and where each starts."""
    _, _, _, _, programs, starts, end = table[: TABLE_END + 1]
    return table[programs:starts], table[starts:end]


def sizes_min_of(programs: Any, starts: Any) -> Any:
    """By row the characters that a text must have at least."""
    taken = np.concatenate([[0], np.cumsum(programs != GAP)])
    return np.diff(taken[starts]).astype(np.int32)


def unseen(table: Any) -> Any:
    """What `walk` wants as `seen`."""
    return np.full((table[PROGRAMS] - table[TERMINALS]) // 3, _UNSEEN, np.int32)
