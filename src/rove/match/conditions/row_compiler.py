"""From a conjunction to a row: what an index can decide, and what is left to compute.

Sets of attributes become sets of subjects. Of comparisons with `t`, those of the form

    attribute comparator a + b * t          (with t perhaps held within least and greatest)

are decided by the index in the evaluator's own operations. Other sums of `t` are linear too, but
round more than once; the index then uses the line with a margin for rounding, and what it leaves
over is computed. Of everything else in `t`, such as `50 + 10 * sin(t)`, the interval that it can
never leave is used in the same way. What depends on several attributes has no part in the index.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from rove.lang.bounds import enclose, line_in_time
from rove.lang.normal_form import Conjunction, mirrored_comparator
from rove.lang.sets import EMPTY, IS_TRUE, NULL, NUMBERS, ValueSet, intersection
from rove.lang.tree import (
    Arithmetic,
    Attribute,
    Call,
    Comparator,
    Comparison,
    Literal,
    Negation,
    Time,
    ValueNode,
    walk,
)
from rove.match.index.keys import are_exact, is_exact
from rove.match.index.layout import ABOVE, AT_LEAST, AT_MOST, BELOW, COMPUTE, EQUAL, MULTIPLE, T_MAX
from rove.match.index.rows import Bound, IndexRow
from rove.match.index.subjects import Subjects, is_subject

_FITS: Final = ValueSet(facts=IS_TRUE)
_COMPARATORS: Final[dict[Comparator, int]] = {
    ">=": AT_LEAST,
    ">": ABOVE,
    "<=": AT_MOST,
    "<": BELOW,
    "=": EQUAL,
}
_LIMIT: Final = math.nextafter(math.inf, 0)
_EXACT_MAX: Final = 2.0**53


def rows_of(
    id: int, conjunctions: Sequence[Conjunction], accepted_at: float, subjects: Subjects
) -> list[IndexRow]:
    """The rows of a subscription, in which `me.` is known already."""
    several = MULTIPLE if len(conjunctions) > 1 else 0
    rows = (_RowCompiler(subjects).row(id, one, accepted_at, several) for one in conjunctions)
    return [row for row in rows if all(allowed != EMPTY for _, allowed in row.sets)]


class _RowCompiler:
    """One row in the making."""

    def __init__(self, subjects: Subjects) -> None:
        self._subjects = subjects
        self._sets: dict[int, ValueSet] = {}
        self._bounds: list[Bound] = []
        self._flags = 0

    def row(self, id: int, conjunction: Conjunction, accepted_at: float, flags: int) -> IndexRow:
        self._flags = flags
        for subject, allowed in conjunction.sets.items():
            if is_subject(subject):
                self._restrict(subject, allowed)
            else:
                self._flags |= COMPUTE
        for atom in conjunction.atoms:
            self._compare(atom)
        # In one order, whatever that of the atoms: rows that move alike are to look alike.
        sets, bounds = tuple(self._sets.items()), tuple(sorted(self._bounds))
        return IndexRow(id, accepted_at, self._flags, sets, bounds)

    def _restrict(self, subject: ValueNode, allowed: ValueSet) -> None:
        if allowed.patterned:
            self._ask_patterns(subject, allowed)
            allowed = ValueSet(allowed.numbers, allowed.strings, facts=allowed.facts)
        if not are_exact(allowed):
            self._flags |= COMPUTE
        self._allow(self._subjects.number(subject), allowed)

    def _allow(self, subject: int, allowed: ValueSet) -> None:
        before = self._sets.get(subject)
        self._sets[subject] = allowed if before is None else intersection(before, allowed)

    def _ask_patterns(self, subject: ValueNode, allowed: ValueSet) -> None:
        """Patterns as separate subjects; a number cannot fit a pattern."""
        if allowed.fitting and (allowed.numbers or allowed.facts):
            self._flags |= COMPUTE
        else:
            for pattern in allowed.fitting:
                self._allow(self._subjects.pattern(subject, pattern), _FITS)
        for pattern in allowed.missing:
            self._allow(self._subjects.pattern(subject, pattern), NULL)

    def _compare(self, atom: Comparison) -> None:
        comparator = atom.comparator
        attribute, function = atom.left, atom.right
        if type(attribute) is not Attribute:
            attribute, function = function, attribute
            comparator = mirrored_comparator(comparator)
        moves = all(type(part) is not Attribute for part in walk(function))
        if type(attribute) is not Attribute or not moves or comparator == "!=":
            self._flags |= COMPUTE
            return
        subject = self._subjects.number(attribute)
        line = _line(function)
        if line is not None:
            self._bounds.append(Bound(subject, _COMPARATORS[comparator], *line))
            return
        self._flags |= COMPUTE
        self._bound_roughly(subject, comparator, function)

    def _bound_roughly(self, subject: int, comparator: Comparator, function: ValueNode) -> None:
        """Bounds that what satisfies the comparison never leaves."""
        rough = line_in_time(function, T_MAX)
        if rough is not None:
            base, slope, error = rough
            if comparator in (">=", ">", "="):
                self._bounds.append(Bound(subject, AT_LEAST, base - error, slope))
            if comparator in ("<=", "<", "="):
                self._bounds.append(Bound(subject, AT_MOST, base + error, slope))
            return
        hull = enclose(function, {Time(): (0.0, _LIMIT)})
        if hull.never:
            self._allow(subject, EMPTY)
            return
        low = hull.low if comparator in (">=", ">", "=") else NUMBERS.numbers[0][0]
        high = math.inf
        if comparator in ("<=", "<", "=") and hull.high < _LIMIT:
            high = math.nextafter(hull.high, math.inf)
        self._allow(subject, ValueSet(((low, high),)))


def _line(node: ValueNode) -> tuple[float, float, float, float] | None:
    """(base, slope, t_from, t_to) if that gives the node's value to the last bit."""
    match node:
        case Arithmetic(operator="+", left=left, right=right):
            return _shifted(left, right, 1.0, 1.0) or _shifted(right, left, 1.0, 1.0)
        case Arithmetic(operator="-", left=left, right=right):
            return _shifted(left, right, 1.0, -1.0) or _shifted(right, left, -1.0, 1.0)
    return _shifted(node, Literal(0), 1.0, 1.0)


def _shifted(
    moving: ValueNode, fixed: ValueNode, moving_sign: float, fixed_sign: float
) -> tuple[float, float, float, float] | None:
    base, scaled = _constant(fixed), _scaled(moving)
    if base is None or scaled is None:
        return None
    slope, t_from, t_to = scaled
    # Where t stands at a limit that is an integer, the evaluator computes with integers.
    held_max = max((abs(limit) for limit in (t_from, t_to) if math.isfinite(limit)), default=0.0)
    if held_max and abs(base) + abs(slope) * held_max >= _EXACT_MAX:
        return None
    return fixed_sign * base, moving_sign * slope, t_from, t_to


def _scaled(node: ValueNode) -> tuple[float, float, float] | None:
    """(slope, t_from, t_to) of a product with t, or of t alone."""
    match node:
        case Negation(operand=operand):
            inner = _scaled(operand)
            return None if inner is None else (-inner[0], inner[1], inner[2])
        case Arithmetic(operator="*", left=left, right=right):
            for factor, time in ((left, right), (right, left)):
                slope, held = _constant(factor), _held(time)
                if slope is not None and held is not None:
                    return slope, *held
            return None
    held = _held(node)
    return None if held is None else (1.0, *held)


def _held(node: ValueNode) -> tuple[float, float] | None:
    """Between which bounds least and greatest hold t."""
    if type(node) is Time:
        return -math.inf, math.inf
    if type(node) is not Call or node.name not in ("least", "greatest"):
        return None
    inner = [held for argument in node.arguments if (held := _held(argument)) is not None]
    limits = [limit for argument in node.arguments if (limit := _constant(argument)) is not None]
    if len(inner) != 1 or len(limits) != len(node.arguments) - 1:
        return None
    ((t_from, t_to),) = inner
    if node.name == "least":
        limit = min(limits)
        return min(t_from, limit), min(t_to, limit)
    limit = max(limits)
    return max(t_from, limit), max(t_to, limit)


def _constant(node: ValueNode) -> float | None:
    if type(node) is not Literal or type(node.value) not in (int, float):
        return None
    number = node.value
    assert isinstance(number, int | float)
    return float(number) if is_exact(number) else None
