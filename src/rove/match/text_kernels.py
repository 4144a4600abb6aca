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

Considered and not taken: a row for every node, which is mostly empty; edges in a hash table, which
needs as much again for its gaps; looking up every part of the text in a dictionary, which grows
with the square of the text. Figures: `rove.match.texts`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from rove.match.text_holders import ANY, GAP, PROGRAM_MAX

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


@njit(cache=True, nogil=True)
def _fits(program: Any, first: int, end: int, text: Any) -> bool:
    """Whether the text between its two marks fits a program.

    After a gap the rest is tried at each place in turn, and only the last gap has to be gone
    back to: what came before it fits as far left as it can.
    """
    at, i = first, 1
    gap, retry = -1, 0
    while i < text.size - 1:
        if at < end and program[at] == GAP:
            gap, retry = at, i
            at += 1
        elif at < end and (program[at] == ANY or program[at] == text[i]):
            at += 1
            i += 1
        elif gap >= 0:
            retry += 1
            at, i = gap + 1, retry
        else:
            return False
    while at < end and program[at] == GAP:
        at += 1
    return at == end


@njit(types.void(_row, _fixed_row, _row), cache=True, nogil=True)
def spell(alphabet: Any, characters: Any, letters: Any) -> None:
    """Write the letter of each of the characters."""
    for i in range(characters.size):
        letters[i] = _letter(alphabet, characters[i])


@njit(
    types.UniTuple(_i8, 2)(_fixed_row, _row, _row, _fixed_row, _row, _i8),
    cache=True,
    nogil=True,
)
def walk(table: Any, seen: Any, numbers: Any, text: Any, found: Any, count: int) -> tuple[int, int]:
    """Write the numbers of the patterns that fit behind the first `count` of `found`.

    A pattern with a long program is written as ~number: the caller has to look at it. Returns
    how many there are in `found` now, and how many of these are such. `seen` links what was
    visited, and is all unseen again afterwards.
    """
    alphabet = table[table[ALPHABET] : table[ROWS]]
    rows = table[table[ROWS] : table[NODES]].reshape((-1, alphabet.size - LATIN))
    nodes = table[table[NODES] : table[TERMINALS]].reshape((-1, 4))
    terminals = table[table[TERMINALS] : table[PROGRAMS]].reshape((-1, 3))
    programs = table[table[PROGRAMS] : table[PROGRAM_STARTS]]
    starts = table[table[PROGRAM_STARTS] : table[TABLE_END]]
    node, visited, doubtful = 0, _LAST, 0
    for i in range(text.size):
        letter = _letter(alphabet, text[i])
        node = _step(nodes, rows, node, letter) if letter >= 0 else 0
        terminal = nodes[node, TERMINAL]
        while terminal >= 0 and seen[terminal] == _UNSEEN:
            seen[terminal] = visited
            visited = terminal
            for key in range(terminals[terminal, FIRST], terminals[terminal, END]):
                number, first, end = numbers[key], starts[key], starts[key + 1]
                if number < 0:
                    continue
                if end - first > PROGRAM_MAX:
                    found[count] = ~number
                    count += 1
                    doubtful += 1
                elif first == end or _fits(programs, first, end, text):
                    found[count] = number
                    count += 1
            terminal = terminals[terminal, NEXT]
    while visited != _LAST:
        before = seen[visited]
        seen[visited] = _UNSEEN
        visited = before
    return count, doubtful


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


def unseen(table: Any) -> Any:
    """What `walk` wants as `seen`."""
    return np.full((table[PROGRAMS] - table[TERMINALS]) // 3, _UNSEEN, np.int32)
