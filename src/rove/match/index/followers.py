"""Following subscriptions over a part of the history: each state of a subscriber is a row.

A broker gets the states of a subscriber one after the other, and moves its subscriptions each time.
A history has all states at once, as columns. So the bounds of an expression are computed for all
states together, and every state becomes a row that holds for publications between two positions;
the position is one more subject. The index then finds, in one search, the subscriptions whose state
at the position of a publication matches it.

What decides a row:

- conditions without `me.` are the same in all rows, as any other subscription has them;
- `attribute comparator value`, where the value is computed from `me.` alone, is a bound of its own
  in each row; sums, differences, products and quotients of numbers are computed by NumPy as the
  evaluator would, to the last bit, all else by the evaluator;
- conditions on `me.` alone decide whether there is a row at all;
- what mixes `me.` with `t`, or with several attributes, is computed for the pairs that are left.

A state costs some 5 µs with the building of its row, where NumPy computes its bounds; several times
that where strings or functions are compared.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from rove.lang.normal_form import Conjunction, compared_conjunction, mirrored_comparator
from rove.lang.oracle import value_of
from rove.lang.sets import ValueSet
from rove.lang.tree import (
    Arithmetic,
    Attribute,
    Comparator,
    Comparison,
    Literal,
    Me,
    Negation,
    Node,
    Time,
    ValueNode,
    walk,
)
from rove.match.conditions.programs import compiled_conjunction
from rove.match.conditions.residual import ResidualConditions, State
from rove.match.conditions.row_compiler import rows_of
from rove.match.index.index import ExactIndex
from rove.match.index.keys import FIRST_NUMBER, LAST_NUMBER, Keys, are_exact, float_keys
from rove.match.index.layout import COMPUTE, MULTIPLE
from rove.match.index.rows import Floats, IndexRow, Positions, Rows, from_rows, merged
from rove.match.index.subjects import Subjects

POSITION: Final = "$position"
"""The attribute with the position of a publication. No name of an expression begins like this."""
_EXACT: Final = 2.0**53
"""Below, integers and floats compute alike."""

_KEPT_MAX: Final = 65_536
"""States that are kept as objects, to be computed."""

Flags = npt.NDArray[np.bool_]


class States(NamedTuple):
    """States of subscribers, in any order."""

    accepted_at: Floats
    """When the subscription of each was accepted."""
    since: Positions
    """Each holds for publications above this position,"""
    until: Positions
    """and up to this one."""
    numbers: Mapping[str, Floats]
    """Variables by state; NaN where one is no number below 2^53, or not there."""
    at: Callable[[int], State]
    """All variables of a state."""


class _Bound(NamedTuple):
    """A comparison of an attribute with what is computed from `me.`"""

    subject: int
    attribute: Attribute
    comparator: Comparator
    function: ValueNode


class _SplitConjunction(NamedTuple):
    """A conjunction, taken apart."""

    static: IndexRow
    gate: Callable[..., bool] | None
    """Whether a state lets anything through."""
    bounds: tuple[_Bound, ...]
    is_computed: bool
    """Whether something of it is decided by no row."""


class Follower:
    """An expression that uses `me.`: what is the same in all states of all subscribers."""

    def __init__(self, conjunctions: Sequence[Conjunction], subjects: Subjects) -> None:
        self.kept = ResidualConditions(tuple(conjunctions), 0.0, {}, True)
        several = MULTIPLE if len(conjunctions) > 1 else 0
        found = (_part(one, several, subjects) for one in conjunctions)
        self._parts = [part for part in found if part is not None]
        self._position = subjects.attribute(POSITION)
        self.kept.ask((part.static for part in self._parts), subjects)

    def rows(self, first_id: int, states: States) -> list[Rows]:
        """A row for each state in which something may match; its id says which state it is."""
        return [self._rows(part, first_id, states) for part in self._parts]

    def _rows(self, part: _SplitConjunction, first_id: int, states: States) -> Rows:
        boxes = _StateRows(len(states.since), part)
        if part.gate is not None:
            boxes.lives &= [part.gate({}, 0.0, states.at(i)) for i in range(len(boxes.lives))]
        for bound in part.bounds:
            boxes.restrict(bound, states)
        return boxes.rows(first_id, self._position, states)


def _part(conjunction: Conjunction, flags: int, subjects: Subjects) -> _SplitConjunction | None:
    """None if it never holds."""
    static: dict[ValueNode, ValueSet] = {}
    gates: dict[ValueNode, ValueSet] = {}
    static_atoms: list[Comparison] = []
    gate_atoms: list[Comparison] = []
    bounds: list[_Bound] = []
    is_computed = False
    for subject, allowed in conjunction.sets.items():
        kinds = _kinds(subject)
        if Me not in kinds:
            static[subject] = allowed
        elif kinds == {Me}:
            gates[subject] = allowed
        else:
            is_computed = True
    for atom in conjunction.atoms:
        kinds = _kinds(atom)
        if Me not in kinds:
            static_atoms.append(atom)
        elif kinds == {Me}:
            gate_atoms.append(atom)
        elif (bound := _bound(atom, subjects)) is not None:
            bounds.append(bound)
        else:
            is_computed = True
    found = rows_of(0, [Conjunction(static, frozenset(static_atoms))], 0.0, subjects)
    if not found:
        return None
    (row,) = found
    row = msgspec.structs.replace(row, flags=row.flags | flags)
    gate = Conjunction(gates, frozenset(gate_atoms)) if gates or gate_atoms else None
    program = None if gate is None else compiled_conjunction(gate)
    return _SplitConjunction(row, program, tuple(bounds), is_computed)


def _kinds(node: Node) -> set[type]:
    """What a condition depends on: the publication, the subscriber, the time."""
    return {type(part) for part in walk(node)} & {Attribute, Me, Time}


def _bound(atom: Comparison, subjects: Subjects) -> _Bound | None:
    """An attribute beside what is computed from `me.` alone, if it is that."""
    comparator, attribute, function = atom.comparator, atom.left, atom.right
    if type(attribute) is not Attribute:
        attribute, function = function, attribute
        comparator = mirrored_comparator(comparator)
    if type(attribute) is not Attribute or _kinds(function) != {Me} or comparator == "!=":
        return None
    return _Bound(subjects.number(attribute), attribute, comparator, function)


class _StateRows:
    """The rows of one conjunction in the making: what each state lets through."""

    def __init__(self, count: int, part: _SplitConjunction) -> None:
        self._part = part
        self.lives: Flags = np.ones(count, bool)
        self._is_computed: Flags = np.full(count, part.is_computed)
        self._spans: dict[int, tuple[Keys, Keys]] = {}
        """By subject the first and the last key, by state."""
        self._sets: list[tuple[int, npt.NDArray[np.int64], ValueSet]] = []
        """Sets that are no plain numbers: the subject, the states, what is allowed."""

    def restrict(self, bound: _Bound, states: States) -> None:
        """Compare an attribute with what each state makes of `me.`"""
        count = len(self.lives)
        values, is_known = _computed(bound.function, states.numbers, count)
        others: dict[tuple[type, object], list[int]] = {}
        for i in np.flatnonzero(self.lives & ~is_known).tolist():
            found = value_of(bound.function, {}, 0.0, states.at(i))
            if found is None:
                self.lives[i] = False
            elif type(found) in (int, float) and abs(found) < _EXACT:  # type: ignore[arg-type]
                values[i], is_known[i] = found, True
            else:
                others.setdefault((type(found), found), []).append(i)
        firsts, lasts = _span(bound.comparator, values)
        for (_, value), those in others.items():
            self._restrict_some(bound, value, np.array(those, np.int64))
        firsts[~is_known], lasts[~is_known] = 0, np.iinfo(np.uint64).max
        self._meet(bound.subject, firsts, lasts)

    def _restrict_some(self, bound: _Bound, value: object, those: npt.NDArray[np.int64]) -> None:
        """The same for states in which the value is no plain number."""
        assert isinstance(value, str | bool | int | float)
        known = Comparison(bound.comparator, bound.attribute, Literal(value))
        found = compared_conjunction(known)
        if found is None:
            self.lives[those] = False
            return
        ((_, allowed),) = found.sets.items()
        if not are_exact(allowed):
            self._is_computed[those] = True
        self._sets.append((bound.subject, those, allowed))

    def _meet(self, subject: int, firsts: Keys, lasts: Keys) -> None:
        before = self._spans.get(subject)
        if before is not None:
            firsts, lasts = np.maximum(firsts, before[0]), np.minimum(lasts, before[1])
        self._spans[subject] = firsts, lasts

    def rows(self, first_id: int, position: int, states: States) -> Rows:
        """The rows of the states that let something through."""
        # The strings of all rows are ranked together.
        alone = [IndexRow(0, 0.0, 0, ((subject, allowed),)) for subject, _, allowed in self._sets]
        drafts = from_rows([self._part.static, *alone])
        for draft, (subject, those, _) in enumerate(self._sets, 1):
            first, last, several = _hull(drafts, draft, subject)
            firsts, lasts = self._spans[subject]
            firsts[those] = np.maximum(firsts[those], first)
            lasts[those] = np.minimum(lasts[those], last)
            self._is_computed[those] |= several
        begin, end = drafts.entry_starts[0], drafts.entry_starts[1]
        static = drafts.entry_subjects[begin:end]
        for subject in set(static.tolist()) & set(self._spans):
            first, last, several = _hull(drafts, 0, subject)
            self._meet(subject, np.uint64(first), np.uint64(last))  # type: ignore[arg-type]
            self._is_computed |= several
        for firsts, lasts in self._spans.values():
            self.lives &= firsts <= lasts
        kept = np.flatnonzero(self.lives)
        stays = ~np.isin(static, list(self._spans))
        spans = [(firsts[kept], lasts[kept]) for firsts, lasts in self._spans.values()]
        spans.append((_keys(states.since[kept] + 1), _keys(states.until[kept])))
        return _put_together(
            drafts,
            kept + first_id,
            states.accepted_at[kept],
            drafts.flags[0] | np.where(self._is_computed[kept], COMPUTE, 0),
            static[stays],
            drafts.entry_firsts[begin:end][stays],
            drafts.entry_lasts[begin:end][stays],
            [*self._spans, position],
            spans,
        )


def _keys(positions: Positions) -> Keys:
    return float_keys(positions.astype(np.float64))


def _put_together(
    drafts: Rows,
    ids: Positions,
    accepted: Floats,
    flags: npt.NDArray[Any],
    static: npt.NDArray[np.int32],
    static_firsts: Keys,
    static_lasts: Keys,
    subjects: Sequence[int],
    spans: Sequence[tuple[Keys, Keys]],
) -> Rows:
    """Rows with the same entries in front, and spans of their own behind them."""
    count, width = len(ids), len(static) + len(subjects)
    firsts = np.empty((count, width), np.uint64)
    lasts = np.empty((count, width), np.uint64)
    firsts[:, : len(static)], lasts[:, : len(static)] = static_firsts, static_lasts
    for place, (first, last) in enumerate(spans, len(static)):
        firsts[:, place], lasts[:, place] = first, last
    moving = int(drafts.bound_starts[1])
    return Rows(
        ids,
        accepted,
        flags.astype(np.uint8),
        np.arange(count + 1) * width,
        np.tile(np.append(static, np.array(subjects, np.int32)).astype(np.int32), count),
        firsts.ravel(),
        lasts.ravel(),
        np.arange(count + 1) * moving,
        np.tile(drafts.bound_tests[:moving], count),
        np.tile(drafts.bound_values[: 4 * moving], count),
        drafts.strings,
    )


def _hull(drafts: Rows, row: int, subject: int) -> tuple[int, int, bool]:
    """First and last key that a row allows a subject, and whether there are gaps between."""
    begin, end = drafts.entry_starts[row], drafts.entry_starts[row + 1]
    here = np.flatnonzero(drafts.entry_subjects[begin:end] == subject) + begin
    firsts, lasts = drafts.entry_firsts[here], drafts.entry_lasts[here]
    return int(firsts.min()), int(lasts.max()), len(here) > 1


def _span(comparator: Comparator, values: Floats) -> tuple[Keys, Keys]:
    """The keys of all that compares so with each number, which is below 2^53."""
    keys = float_keys(values)
    firsts = np.full(len(values), FIRST_NUMBER, np.uint64)
    lasts = np.full(len(values), LAST_NUMBER, np.uint64)
    one = np.uint64(1)
    if comparator in (">=", "="):
        firsts = keys.copy()
    if comparator in ("<=", "="):
        lasts = keys
    if comparator == ">":
        firsts = keys + one
    if comparator == "<":
        lasts = keys - one
    return firsts, lasts


def _computed(node: ValueNode, numbers: Mapping[str, Floats], count: int) -> tuple[Floats, Flags]:
    """What the evaluator makes of a node in each state, and where that is certain.

    It is where everything on the way is a number below 2^53: there a float says the same as an
    integer, and NumPy rounds as Python does.
    """
    match node:
        case Me(path=(name,)) if name in numbers:
            values = numbers[name].copy()
        case Literal(value=value) if type(value) in (int, float):
            values = np.full(count, float(value))
        case Negation(operand=operand):
            inner, is_known = _computed(operand, numbers, count)
            return -inner, is_known
        case Arithmetic(operator=operator, left=left, right=right):
            a, a_known = _computed(left, numbers, count)
            b, b_known = _computed(right, numbers, count)
            with np.errstate(all="ignore"):
                values = _OPERATIONS[operator](a, b)
            values[~(a_known & b_known)] = np.nan
        case _:
            values = np.full(count, np.nan)
    with np.errstate(invalid="ignore"):
        return values, np.abs(values) < _EXACT


_OPERATIONS: Final[dict[str, Callable[[Floats, Floats], Floats]]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
}


class FollowingIndex(ExactIndex):
    """Finds the states of followers that a publication matches."""

    def __init__(self, subjects: Subjects) -> None:
        super().__init__(subjects)
        self._waiting: list[Rows] = []
        self._followers: list[tuple[Follower, States]] = []
        self._first_ids: list[int] = []
        self.states = 0
        """So many were added; the next one has this id."""

    def add_states(self, follower: Follower, states: States) -> None:
        """Add a text for subscribers in all these states."""
        self._waiting += follower.rows(self.states, states)
        self._followers.append((follower, states))
        self._first_ids.append(self.states)
        self.states += len(states.since)

    def settle_fresh(self) -> None:
        """Make a segment of what was added."""
        if self._waiting:
            rows = merged(self._waiting)
            self._waiting = []
            if len(rows):
                self._segments.append(self._segment(rows))

    def _kept_of(self, id: int) -> ResidualConditions | None:
        """The follower as it was in a state, which publications often meet one after the other."""
        found = self._kept.get(id)
        if found is None:
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
            found = self._kept[id] = self._in_state(id)
        return found

    def _in_state(self, id: int) -> ResidualConditions:
        number = bisect_right(self._first_ids, id) - 1
        follower, states = self._followers[number]
        if follower.kept.tests is None:
            follower.kept.prepare(self.subjects)
        state = id - self._first_ids[number]
        accepted_at = float(states.accepted_at[state])
        return msgspec.structs.replace(follower.kept, accepted_at=accepted_at, me=states.at(state))
