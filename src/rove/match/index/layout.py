"""The layout of a segment: one array of 64-bit words, with a table of sections in front.

So it can be written to a file as it is, mapped by many processes, and handed to a kernel as one
argument (every array costs 0.1 µs a call). The table says for each section at which word it
begins and how many elements it has. Nothing here needs Numba.

Rows stand in the order of the trees, block by block, so that what a search reads lies together;
blocks that are not full are filled up with empty rows, which are not alive.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Buffer: TypeAlias = npt.NDArray[np.int64]

WIDTH: Final = 64
"""Rows of a block, and children of a node."""
CODE_MAX: Final = 65_535
"""As an upper bound it excludes nothing, as a lower bound everything; no value has it."""

(
    IDS,  # by row: the subscription; ~id where it has several rows
    SHORT_IDS,  # by row: the same in 32 bits if they fit; then IDS is empty
    ALIVE,  # by block of 64 rows: which of them are to be found
    SPECIAL,  # by block: which of them need more than their box
    ONLY_MOVING,  # by block: which of them are decided by their moving bounds alone
    FLAGS,  # by row
    ACCEPTED,  # by row, or one for all: when the subscription was accepted
    SORTED_IDS,  # ascending: the subscriptions, one for each row
    SORTED_ROWS,  # in the same order: the rows
    ENTRY_STARTS,  # by row: the first of its entries
    ENTRY_SUBJECTS,  # by entry: the subject; entries of one subject are alternatives
    ENTRY_FIRSTS,
    ENTRY_LASTS,
    BOUND_STARTS,  # by row: the first of its moving bounds; empty if nothing moves
    BOUND_TESTS,  # by bound: 8 * subject + comparator
    BOUND_VALUES,  # by bound: base and slope
    BOUND_LIMITS,  # by bound: between which t it moves; empty if all are free
    DRIFTS,  # by row, if all move in the same way: four bases and four slopes (see `construction`)
    DRIFT_TESTS,  # 8 * subject + comparator of those four
    INNERS,  # by block and drift: 64 codes from which on a value is inside all the time
    MOVING_ROWS,  # rows in trees with moving bounds
    LOCALS,  # by subject of the matcher: the subject here, or -1
    SUBJECTS,  # by subject: that of the matcher
    CUT_STARTS,  # by subject: the first of its cuts
    CUTS,
    INEXACT,  # by subject: 1 if there are more bounds than cuts
    STRINGS_MATTER,  # by subject: 1 if strings are told from what is carried
    TREES,  # tree by tree: first block, number of levels, and their first nodes
    TREE_STARTS,  # by tree: where it is described
    TREE_OF_SUBJECT,  # by subject: the tree that is searched if it is present, or -1
    POSTING_STARTS,  # by subject: the first of the rows that are tried if it is present
    POSTING_ROWS,
    NODE_STARTS,  # by node: the first of its columns
    NODE_KEYS,  # by column: 2 * subject, plus 1 for upper bounds
    COLUMNS,  # by column: 64 codes
    TIMES,  # from when to when moving boxes are right; the last acceptance
    SECTIONS,
) = range(37)

CHECK, COMPUTE, MOVING, MULTIPLE = 1, 2, 4, 8
"""Flags of a row: its entries are to be looked at; it must be computed; it has moving bounds; its
subscription has several rows."""
T_MAX: Final = 1e10
"""Up to which t (in seconds; 317 years) rough lines hold; beyond, such rows are all computed."""
AT_LEAST, ABOVE, AT_MOST, BELOW, EQUAL = range(5)
"""Comparators of a moving bound."""
ANY_INEXACT, EARLY, OUT_OF_TIME, ROUNDED = 1, 2, 4, 8
"""What a publication meets: codes that stand for many keys; a subscription that was not accepted
yet; a time for which moving boxes were not made; an integer that no float can hold."""

(
    STARTS,  # by publication: the first of its slots
    SLOT_SUBJECTS,  # by slot: the matcher's number of the subject
    RAWS,  # by slot: the bits of the value
    AT,  # by publication: when it appears
    IS_ROUNDED,  # by publication: 1 if it has an integer that no float can hold
    CODES,  # by subject: all 0, and left so
    KEYS,  # by subject: all 0, and left so
    NODES,  # by block of the largest tree: room to walk
    CHILDREN,
    MASKS,
    OUT_COUNTS,  # by publication: how many ids it has
    OUT_IDS,
    OUT_DOUBTFUL,  # by publication: how many doubts it has
    OUT_DOUBTS,  # rows that must be computed
    PUBLICATION,  # the publication to begin with; afterwards the one to go on with
    ID_COUNT,  # ids written so far
    DOUBT_COUNT,
    FRAME,
) = range(18)
"""What a search works on, as a *frame*: one array in which each array has its address at 2 * i
and its size at 2 * i + 1, and each number stands at 2 * i. Handing over fifteen arrays would cost
as much as a small search."""

_LINE_WORDS: Final = 8
"""Words in a line of memory: 64 bytes."""
_TYPES: Final[dict[int, Any]] = {
    **dict.fromkeys((IDS, SORTED_IDS, TREES, NODE_STARTS, CUT_STARTS), np.int64),
    **dict.fromkeys((ALIVE, SPECIAL, ONLY_MOVING, ENTRY_FIRSTS, ENTRY_LASTS, CUTS), np.uint64),
    **dict.fromkeys((ACCEPTED, BOUND_VALUES, BOUND_LIMITS, DRIFTS, TIMES), np.float64),
    **dict.fromkeys((FLAGS, INEXACT, STRINGS_MATTER), np.uint8),
    **dict.fromkeys((COLUMNS, INNERS), np.uint16),
}
"""What is not named holds integers of 32 bits."""


def packed(sections: Mapping[int, npt.NDArray[Any]]) -> Buffer:
    """One buffer with all sections; those that are not given are empty.

    Each begins with a line of memory, so that what is kept in lines is fetched in lines.
    """
    arrays = {
        section: np.ascontiguousarray(array, _TYPES.get(section, np.int32))
        for section, array in sections.items()
    }
    table_words = _whole_lines(2 * SECTIONS)
    buffer = _aligned(
        table_words + sum(_whole_lines(-(-array.nbytes // 8)) for array in arrays.values())
    )
    first = table_words
    for section, array in arrays.items():
        buffer[2 * section : 2 * section + 2] = first, array.size
        buffer[first:].view(np.uint8)[: array.nbytes] = array.view(np.uint8)
        first += _whole_lines(-(-array.nbytes // 8))
    return buffer


def _whole_lines(words: int) -> int:
    return -(-words // _LINE_WORDS) * _LINE_WORDS


def _aligned(words: int) -> Buffer:
    """Zeros that begin with a line of memory."""
    room = np.zeros(words + _LINE_WORDS, np.int64)
    shift = -(room.__array_interface__["data"][0] // 8) % _LINE_WORDS
    return room[shift : shift + words]


def section(buffer: Buffer, number: int) -> npt.NDArray[Any]:
    """One section, as a view."""
    kind = np.dtype(_TYPES.get(number, np.int32))
    first, count = int(buffer[2 * number]), int(buffer[2 * number + 1])
    words = -(-count * kind.itemsize // 8)
    found: npt.NDArray[Any] = buffer[first : first + words].view(kind)[:count]
    return found
