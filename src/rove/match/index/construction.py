"""Construction of a segment: rows are put in order, and trees of blocks are packed over them.

Neighbouring rows should be similar, so the rows are halved again and again along the subject in
which they differ most (`rove.match.index.construction_kernels`). Where they ask for many different
subjects, rows with a rare subject get a tree (or a short list) of their own, which is searched only
if the publication has that subject. So an attribute costs nothing to publications without it.

Boxes whose bounds move are built for a time span, the *horizon*: large enough to contain every
position until its end. Rows found in them are checked again with their bounds at that moment.

If all boxes move in the same way, that check is made fast. Areas that travel have the same few
bounds, so the numbers of a row fit one cache line (its *drift*) and are checked by four comparisons
without a branch. Most boxes that are found contain the publication for the whole horizon anyway:
*inner* columns hold the bounds at their tightest, so only rows between the inner and the outer box
need their cache line at all. (Reading a line that is not cached costs as much as ten comparisons of
64 codes.)

A million rows take seconds, most of it in NumPy and kernels, which let other threads run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from rove.match.index import layout
from rove.match.index.horizon import Times, extremes, horizon_of
from rove.match.index.keys import (
    FIRST_NUMBER,
    FIRST_STRING,
    LAST,
    LAST_NUMBER,
    OPAQUE,
    Keys,
    float_keys,
)
from rove.match.index.layout import (
    AT_LEAST,
    AT_MOST,
    CHECK,
    CODE_MAX,
    COMPUTE,
    MOVING,
    MULTIPLE,
    WIDTH,
    Buffer,
)
from rove.match.index.rows import Floats, Integers, Positions, Rows

_CUTS_MAX: Final = 65_534
_SUBJECTS_OF_ONE_TREE_MAX: Final = 32
_ROWS_OF_A_TREE_MIN: Final = 64
_DRIFTS_MAX: Final = 4


class _Boxes(NamedTuple):
    """What rows ask of subjects, one part for every (row, subject): first and last key."""

    rows: Positions
    subjects: Positions
    firsts: Keys
    lasts: Keys


class _BlockTree(NamedTuple):
    """The rows of one tree by place, its levels (leaves first) and their columns."""

    order: Positions
    levels: list[int]
    node_starts: Positions
    node_keys: Integers
    columns: npt.NDArray[np.uint16]


# -- building --------------------------------------------------------------------------------


def built(rows: Rows, now: float, *, indexed: bool, until: float = -np.inf) -> Buffer:
    """The segment of `rows`, whose horizon begins `now`, and lasts until then or longer.

    Without an index it is only scanned.
    """
    used = np.unique(np.concatenate([rows.entry_subjects, rows.bound_tests >> 3]))
    rows = _renumbered(rows, used)
    locals_ = np.full(int(used[-1]) + 1 if len(used) else 0, -1, np.int32)
    locals_[used] = np.arange(len(used))
    times = horizon_of(rows, now, until)
    boxes = _boxes(rows, times)
    strings_matter = _strings_matter(len(used), rows)
    _open_ends(boxes, strings_matter)
    flags = rows.flags.copy()
    index = _IndexSections(np.arange(len(rows)), {})
    if indexed:
        index = _index(len(rows), len(used), boxes, flags)
    latest = rows.accepted.max(initial=-np.inf)
    any_inexact = bool(np.any(index.sections.get(layout.INEXACT, False)))
    order = _in_blocks(index.order)
    taken = order >= 0
    rows = msgspec.structs.replace(rows, flags=flags).taken(order)
    return layout.packed(
        {
            layout.LOCALS: locals_,
            layout.SUBJECTS: used,
            layout.STRINGS_MATTER: strings_matter,
            layout.TIMES: np.array([*times, latest, any_inexact], np.float64),
            **index.sections,
            **_by_row(rows, taken, any_inexact),
            **drift_sections(rows, taken, times, index.sections),
        }
    )


def _renumbered(rows: Rows, used: Integers) -> Rows:
    """The same rows with their subjects numbered as in `used`."""
    tests = 8 * np.searchsorted(used, rows.bound_tests >> 3) + (rows.bound_tests & 7)
    subjects = np.searchsorted(used, rows.entry_subjects)
    return msgspec.structs.replace(
        rows, entry_subjects=subjects.astype(np.int32), bound_tests=tests.astype(np.int32)
    )


def _by_row(
    rows: Rows, taken: npt.NDArray[np.bool_], any_inexact: bool
) -> dict[int, npt.NDArray[Any]]:
    """The sections that go by row; those that are not taken are empty."""
    flags = np.where(taken, rows.flags, 0)
    special = taken & ((flags & (CHECK | COMPUTE | MOVING)) != 0)
    only_moving = (flags & (CHECK | COMPUTE | MOVING)) == MOVING
    if any_inexact:
        only_moving &= np.diff(rows.entry_starts) == 0
    by_id = np.flatnonzero(taken)[np.argsort(rows.ids[taken], kind="stable")]
    values = rows.bound_values.reshape(-1, 4)
    limits = values[:, 2:].ravel()
    moves = len(rows.bound_tests) > 0
    ids = np.where(taken, np.where(flags & MULTIPLE, ~rows.ids, rows.ids), -1)
    is_short = bool(((ids >= -(2**31)) & (ids < 2**31)).all())
    return {
        layout.SHORT_IDS if is_short else layout.IDS: ids,
        layout.ALIVE: np.packbits(taken, bitorder="little").view(np.uint64),
        layout.SPECIAL: np.packbits(special, bitorder="little").view(np.uint64),
        layout.ONLY_MOVING: np.packbits(only_moving, bitorder="little").view(np.uint64),
        layout.FLAGS: flags,
        layout.ACCEPTED: _shortened(rows.accepted, taken),
        layout.SORTED_IDS: rows.ids[by_id],
        layout.SORTED_ROWS: by_id,
        layout.ENTRY_STARTS: rows.entry_starts,
        layout.ENTRY_SUBJECTS: rows.entry_subjects,
        layout.ENTRY_FIRSTS: rows.entry_firsts,
        layout.ENTRY_LASTS: rows.entry_lasts,
        layout.BOUND_STARTS: rows.bound_starts if moves else rows.bound_starts[:0],
        layout.BOUND_TESTS: rows.bound_tests,
        layout.BOUND_VALUES: values[:, :2].ravel(),
        layout.BOUND_LIMITS: limits if np.isfinite(limits).any() else limits[:0],
    }


def _shortened(accepted: Floats, taken: npt.NDArray[np.bool_]) -> Floats:
    """One for all where all are the same."""
    same = accepted[taken]
    return same[:1] if len(same) and (same == same[0]).all() else accepted


def _distinct(values: Keys) -> Keys:
    """Each once, ascending: by sorting, a hundred times as quick as NumPy's hashing of many."""
    ordered = np.sort(values)
    is_new = np.ones(len(ordered), np.bool_)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_new]


def _numbered(values: Positions) -> tuple[Positions, int]:
    """A number from 0 for each distinct value, and how many there are."""
    found, numbers = np.unique(values, return_inverse=True)
    return numbers, len(found)


def _boxes(rows: Rows, times: Times) -> _Boxes:
    """The hull of every row's entries for a subject, and of its moving bounds for the horizon."""
    entry_rows = rows.entry_rows
    begins = np.ones(len(entry_rows), np.bool_)
    begins[1:] = (np.diff(entry_rows) != 0) | (np.diff(rows.entry_subjects) != 0)
    at = np.flatnonzero(begins)
    ends = np.append(at[1:], len(begins)) - 1 if len(at) else at
    firsts, lasts = _moving_hulls(rows, times)
    return _Boxes(
        np.concatenate([entry_rows[at], rows.bound_rows]),
        np.concatenate([rows.entry_subjects[at], rows.bound_tests >> 3]).astype(np.int64),
        np.concatenate([rows.entry_firsts[at], firsts]),
        np.concatenate([rows.entry_lasts[ends], lasts]),
    )


def _moving_hulls(rows: Rows, times: Times) -> tuple[Keys, Keys]:
    """The keys that moving bounds allow at some time of the horizon."""
    least, most = extremes(rows, times)
    rough = (rows.flags[rows.bound_rows] & COMPUTE) != 0
    unknown = np.isnan(least)
    unknown |= rough & (times.ends_at - rows.accepted[rows.bound_rows] > layout.T_MAX)
    limit = np.finfo(np.float64).max
    comparators = rows.bound_tests & 7
    firsts = float_keys(np.where(unknown, -limit, least))
    lasts = float_keys(np.where(unknown, limit, most))
    firsts[(comparators == layout.AT_MOST) | (comparators == layout.BELOW)] = FIRST_NUMBER
    lasts[(comparators == layout.AT_LEAST) | (comparators == layout.ABOVE)] = LAST_NUMBER
    return firsts, lasts


def _strings_matter(subjects: int, rows: Rows) -> npt.NDArray[np.uint8]:
    """By subject, 1 unless its sets hold all strings where they hold what is carried, else none.

    Where they do not matter, a string counts as carried, and `a > 5` needs no upper bound.
    """
    firsts, lasts = rows.entry_firsts, rows.entry_lasts
    holds_opaque = (firsts <= OPAQUE) & (lasts >= OPAQUE)
    holds_all = (firsts <= np.uint64(FIRST_STRING)) & (lasts == np.uint64(LAST))
    holds_some = lasts >= np.uint64(FIRST_STRING)
    matter = np.zeros(subjects, np.uint8)
    matter[rows.entry_subjects[(holds_opaque != holds_all) | (holds_some != holds_all)]] = 1
    return matter


def _open_ends(boxes: _Boxes, strings_matter: npt.NDArray[np.uint8]) -> None:
    """Where strings do not matter, what ends with the last number excludes nothing above."""
    free = (boxes.lasts >= np.uint64(LAST_NUMBER)) & (strings_matter[boxes.subjects] == 0)
    boxes.lasts[free] = LAST


# -- trees -----------------------------------------------------------------------------------


class _IndexSections(NamedTuple):
    """In which order rows stand (-1 for an empty one), and the sections of the trees."""

    order: Positions
    sections: dict[int, npt.NDArray[Any]]


def _index(
    count: int, subjects: int, boxes: _Boxes, flags: npt.NDArray[np.uint8]
) -> _IndexSections:
    """Trees and lists over all rows; flags those that their tree cannot decide."""
    cuts = [_cuts_of(boxes, part) for part in _by_subject(boxes, subjects)]
    lows, highs = _codes(boxes, [found for found, _ in cuts])
    partition = _partition(count, subjects, boxes)
    general = np.flatnonzero(partition < 0)
    trees = [_tree(general, boxes, lows, highs, cuts, flags) if len(general) else None]
    tree_of_subject = np.full(subjects, -1, np.int32)
    lists: list[Positions] = []
    list_sizes = np.zeros(subjects + 1, np.int64)
    for subject, members in _groups(partition):
        if len(members) >= _ROWS_OF_A_TREE_MIN:
            tree_of_subject[subject] = len(trees)
            trees.append(_tree(members, boxes, lows, highs, cuts, flags))
        else:
            list_sizes[subject + 1] = len(members)
            lists.append(members)
    places = [_in_blocks(tree.order) for tree in trees if tree is not None]
    in_trees = np.concatenate([*places, np.empty(0, np.int64)])
    moving = np.flatnonzero((flags[in_trees] & MOVING != 0) & (in_trees >= 0))
    listed = np.concatenate([*lists, np.empty(0, np.int64)])
    sections = {
        layout.CUT_STARTS: np.cumsum([0, *(len(found) for found, _ in cuts)]),
        layout.CUTS: np.concatenate([*(found for found, _ in cuts), np.empty(0, np.uint64)]),
        layout.INEXACT: np.array([not exact for _, exact in cuts], np.uint8),
        layout.TREE_OF_SUBJECT: tree_of_subject,
        layout.POSTING_STARTS: np.cumsum(list_sizes),
        layout.POSTING_ROWS: len(in_trees) + np.arange(len(listed)),
        layout.MOVING_ROWS: moving,
        **_together(trees),
    }
    return _IndexSections(np.concatenate([in_trees, listed]), sections)


def _by_subject(boxes: _Boxes, subjects: int) -> list[Positions]:
    """The boxes of each subject."""
    order = np.argsort(boxes.subjects, kind="stable")
    return np.split(order, np.searchsorted(boxes.subjects[order], np.arange(1, subjects)))


def _cuts_of(boxes: _Boxes, part: Positions) -> tuple[Keys, bool]:
    """The cuts of one subject, and whether they are all of its bounds."""
    firsts, lasts = boxes.firsts[part], boxes.lasts[part]
    bounds = [firsts[firsts > 0], lasts[lasts != np.uint64(LAST)] + np.uint64(1)]
    found = _distinct(np.concatenate(bounds))
    if len(found) <= _CUTS_MAX:
        return found, True
    return found[np.linspace(0, len(found) - 1, _CUTS_MAX).astype(np.int64)], False


def _codes(
    boxes: _Boxes, cuts: list[Keys]
) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint16]]:
    """First and last key of every box as codes; what excludes nothing above as CODE_MAX."""
    from rove.match.index.construction_kernels import code_all

    lows = np.empty(len(boxes.firsts), np.uint16)
    highs = np.empty(len(boxes.lasts), np.uint16)
    for found, part in zip(cuts, _by_subject(boxes, len(cuts)), strict=True):
        for keys, codes in ((boxes.firsts, lows), (boxes.lasts, highs)):
            coded = np.empty(len(part), np.uint16)
            code_all(keys[part], found, coded)
            codes[part] = coded
    highs[boxes.lasts == np.uint64(LAST)] = CODE_MAX
    return lows, highs


def _partition(count: int, subjects: int, boxes: _Boxes) -> Positions:
    """By row the rarest subject that it needs to be present; -1 for the tree of all others."""
    partition = np.full(count, -1, np.int64)
    if subjects <= _SUBJECTS_OF_ONE_TREE_MAX:
        return partition
    frequency = np.bincount(boxes.subjects, minlength=subjects)
    needed = np.flatnonzero(boxes.firsts > 0)
    order = needed[np.argsort(-frequency[boxes.subjects[needed]], kind="stable")]
    partition[boxes.rows[order]] = boxes.subjects[order]  # the last, and rarest, stays
    return partition


def _groups(partition: Positions) -> list[tuple[int, Positions]]:
    """The rows of each subject of a partition, in order of subjects."""
    order = np.argsort(partition, kind="stable")
    order = order[partition[order] >= 0]
    if not len(order):
        return []
    begins = np.flatnonzero(np.diff(partition[order], prepend=-1))
    return [(int(partition[part[0]]), part) for part in np.split(order, begins[1:])]


def _tree(
    members: Positions,
    boxes: _Boxes,
    lows: npt.NDArray[np.uint16],
    highs: npt.NDArray[np.uint16],
    cuts: list[tuple[Keys, bool]],
    flags: npt.NDArray[np.uint8],
) -> _BlockTree:
    """Put some rows in order and pack the levels over them."""
    from rove.match.index.construction_kernels import put_in_order

    numbers = np.full(len(flags), -1, np.int64)
    numbers[members] = np.arange(len(members))
    mine = np.flatnonzero(numbers[boxes.rows] >= 0)
    subjects, counts = np.unique(boxes.subjects[mine], return_counts=True)
    if len(subjects) > _SUBJECTS_OF_ONE_TREE_MAX:
        chosen = np.sort(np.argsort(-counts, kind="stable")[:_SUBJECTS_OF_ONE_TREE_MAX])
        left_out = ~np.isin(boxes.subjects[mine], subjects[chosen])
        flags[boxes.rows[mine[left_out]]] |= CHECK
        mine, subjects = mine[~left_out], subjects[chosen]
    at = np.searchsorted(subjects, boxes.subjects[mine]), numbers[boxes.rows[mine]]
    dense_lows = np.zeros((len(subjects), len(members)), np.uint16)
    dense_highs = np.full((len(subjects), len(members)), CODE_MAX, np.uint16)
    np.maximum.at(dense_lows, at, lows[mine])
    np.minimum.at(dense_highs, at, highs[mine])
    order = np.arange(len(members), dtype=np.int32)
    shares = _shares(dense_lows, dense_highs, [len(cuts[subject][0]) for subject in subjects])
    put_in_order(dense_lows, dense_highs, shares, order)
    packing = _Packing(subjects.astype(np.int32), shares)
    levels = packing.levels(
        _padded(dense_lows[:, order], CODE_MAX), _padded(dense_highs[:, order], 0)
    )
    return _BlockTree(members[order], *levels)


def _shares(
    lows: npt.NDArray[np.uint16], highs: npt.NDArray[np.uint16], cuts: list[int]
) -> npt.NDArray[np.float32]:
    """By subject and code the share of typical values with a lower code.

    Values are taken to lie where the bounds lie.
    """
    shares = np.ones((len(cuts), max(cuts, default=0) + 3), np.float32)
    for i, count in enumerate(cuts):
        bounds = np.concatenate([lows[i][lows[i] > 0], highs[i][highs[i] != CODE_MAX]])
        below = np.cumsum(np.bincount(bounds, minlength=count + 1))
        shares[i, 0] = 0.0
        shares[i, 1 : len(below) + 1] = below / max(len(bounds), 1)
    return shares


class _Packing(NamedTuple):
    """What packing has to know of a tree's subjects: numbers, and shares of values."""

    subjects: Integers
    shares: npt.NDArray[np.float32]

    def levels(
        self, lows: npt.NDArray[np.uint16], highs: npt.NDArray[np.uint16]
    ) -> tuple[list[int], Positions, Integers, npt.NDArray[np.uint16]]:
        """Every level of a tree, leaves first, in one set of arrays."""
        levels, starts, keys, columns = [0], [np.zeros(1, np.int64)], [], []
        while True:
            level_starts, level_keys, level_columns = self._level(lows, highs)
            starts.append(level_starts[1:] + starts[-1][-1])
            keys.append(level_keys)
            columns.append(level_columns)
            levels.append(levels[-1] + lows.shape[1] // WIDTH)
            if lows.shape[1] == WIDTH:
                break
            groups = (lows.shape[0], lows.shape[1] // WIDTH, WIDTH)
            lows = _padded(lows.reshape(groups).min(axis=2), CODE_MAX)
            highs = _padded(highs.reshape(groups).max(axis=2), 0)
        return levels, np.concatenate(starts), np.concatenate(keys), np.concatenate(columns)

    def _level(
        self, lows: npt.NDArray[np.uint16], highs: npt.NDArray[np.uint16]
    ) -> tuple[Positions, Integers, npt.NDArray[np.uint16]]:
        """One level: counted first, then written."""
        from rove.match.index.construction_kernels import pack

        starts = np.empty(lows.shape[1] // WIDTH + 1, np.int64)
        count = 0
        for _ in range(2):
            keys, columns = np.empty(count, np.int32), np.empty(count * WIDTH, np.uint16)
            count = pack(lows, highs, self.subjects, self.shares, starts, keys, columns)
        return starts, keys, columns


def _padded(table: npt.NDArray[np.uint16], filling: int) -> npt.NDArray[np.uint16]:
    """`table` with columns added until their number is a multiple of 64."""
    missing = -table.shape[1] % WIDTH
    padded = np.pad(table, ((0, 0), (0, missing)), constant_values=filling)
    return np.ascontiguousarray(padded)  # np.pad keeps the order of what it was given


def _together(trees: list[_BlockTree | None]) -> dict[int, npt.NDArray[Any]]:
    """The nodes of all trees in one set of arrays."""
    described: list[int] = []
    tree_starts = []
    starts, keys, columns = [np.zeros(1, np.int64)], [], []
    first_block = first_node = 0
    for tree in trees:
        tree_starts.append(len(described))
        if tree is None:
            described += [-1, 0]
            continue
        described += [first_block, len(tree.levels) - 1]
        described += [first_node + level for level in tree.levels]
        starts.append(tree.node_starts[1:] + starts[-1][-1])
        keys.append(tree.node_keys)
        columns.append(tree.columns)
        first_block += tree.levels[1]
        first_node += tree.levels[-1]
    return {
        layout.TREES: np.array(described, np.int64),
        layout.TREE_STARTS: np.array(tree_starts, np.int32),
        layout.NODE_STARTS: np.concatenate(starts),
        layout.NODE_KEYS: np.concatenate([*keys, np.empty(0, np.int32)]),
        layout.COLUMNS: np.concatenate([*columns, np.empty(0, np.uint16)]),
    }


def _in_blocks(rows: Positions) -> Positions:
    """Rows filled up with -1 to whole blocks."""
    return np.pad(rows, (0, -len(rows) % WIDTH), constant_values=-1)


# -- boxes that all move in the same way --------------------------------------------------------


def drift_sections(
    rows: Rows,
    taken: npt.NDArray[np.bool_],
    times: Times,
    index: Mapping[int, npt.NDArray[Any]],
) -> dict[int, npt.NDArray[Any]]:
    """Lines and inner columns of rows in their final order, if all that are taken move alike."""
    counts = np.diff(rows.bound_starts)[taken]
    count = int(counts[0]) if len(counts) else 0
    values = rows.bound_values.reshape(-1, 4)
    if not 0 < count <= _DRIFTS_MAX or (counts != count).any() or np.isfinite(values[:, 2:]).any():
        return {}
    tests = rows.bound_tests.reshape(-1, count)
    comparators = tests[0] & 7
    if (tests != tests[0]).any() or not np.isin(comparators, (AT_LEAST, AT_MOST)).all():
        return {}
    # Both sides are negated for upper bounds, so that one comparison does for all.
    signs = np.where(comparators == AT_MOST, -1.0, 1.0)
    drifts = np.zeros((len(taken), 2, _DRIFTS_MAX))
    drifts[:, 0] = -np.finfo(np.float64).max  # what excludes nothing, where there are fewer
    drifts[taken, 0, :count] = signs * values[:, 0].reshape(-1, count)
    drifts[taken, 1, :count] = signs * values[:, 1].reshape(-1, count)
    sections = {layout.DRIFTS: drifts.ravel(), layout.DRIFT_TESTS: tests[0]}
    if index:
        least, most = (ends.reshape(-1, count) for ends in extremes(rows, times))
        tightest = np.where(comparators == AT_MOST, least, most)
        sections[layout.INNERS] = _inner_columns(tightest, tests[0], taken, index)
    return sections


def _inner_columns(
    tightest: Floats,
    tests: npt.NDArray[np.int32],
    taken: npt.NDArray[np.bool_],
    index: Mapping[int, npt.NDArray[Any]],
) -> npt.NDArray[np.uint16]:
    """By block and drift, 64 codes that a value passes only if it is inside all the time."""
    from rove.match.index.construction_kernels import code_all

    columns = np.full((len(taken) // WIDTH, len(tests), WIDTH), CODE_MAX, np.uint16)
    for i, test in enumerate(tests.tolist()):
        starts = index[layout.CUT_STARTS]
        cuts: Keys = index[layout.CUTS][starts[test >> 3] : starts[(test >> 3) + 1]]
        codes = np.empty(len(tightest), np.uint16)
        code_all(float_keys(tightest[:, i]), cuts, codes)
        # One beyond, since a code may stand for many keys; upper bounds are turned over.
        whole = codes.astype(np.int64)
        passing = whole + 1 if test & 7 == AT_LEAST else CODE_MAX - whole + 1
        column = np.full(len(taken), CODE_MAX, np.int64)
        column[taken] = np.where(np.isnan(tightest[:, i]), CODE_MAX, np.minimum(passing, CODE_MAX))
        columns[:, i, :] = column.reshape(-1, WIDTH)
    return columns.ravel()
