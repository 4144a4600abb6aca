"""Evolving bounds, widened by how far two clocks may differ.

A broker that evaluates `x >= 3 + 2 * t` for another one has a `t` that is wrong by up to the error
of the measured offset. If the bound only rises with `t`, then `x >= 3 + 2 * (t - error)` holds
wherever the exact one may: each operation of floats keeps the order of its operands, so this is
true to the last bit, however large the numbers are. Bounds that rise and fall, or that may have no
value, are left out, which is sound too.
"""

from __future__ import annotations

from rove.lang.algebra import FOREVER_S
from rove.lang.bounds import enclose
from rove.lang.normal_form import Conjunction
from rove.lang.tree import (
    Arithmetic,
    Attribute,
    Call,
    Comparison,
    Literal,
    Negation,
    Node,
    Time,
    ValueNode,
    rebuilt,
    walk,
)

_KEEP_ORDER = ("floor", "ceil", "sqrt", "least", "greatest")


def with_time_error(
    conjunctions: tuple[Conjunction, ...], error_s: float
) -> tuple[Conjunction, ...]:
    """Conjunctions that hold at `t` wherever these hold within `error_s` of it."""
    if error_s <= 0:
        return conjunctions
    return tuple(_widened(conjunction, error_s) for conjunction in conjunctions)


def _widened(conjunction: Conjunction, error_s: float) -> Conjunction:
    sets = {s: allowed for s, allowed in conjunction.sets.items() if not _uses_time(s)}
    atoms = (_atom(atom, error_s) for atom in conjunction.atoms)
    return Conjunction(sets, frozenset(atom for atom in atoms if atom is not None))


def _atom(atom: Comparison, error_s: float) -> Comparison | None:
    """The comparison with a later or an earlier `t`; None if neither is certain to be wider."""
    if not (_uses_time(atom.left) or _uses_time(atom.right)):
        return atom
    if _uses_time(atom.left) or atom.comparator in ("=", "!="):
        return None
    direction = _direction(atom.right)
    if not direction:
        return None
    if any(type(part) is Attribute for part in walk(atom.right)):
        return None
    if not enclose(atom.right, {Time(): (-4 * error_s, FOREVER_S + 4 * error_s)}).sure:
        return None  # it could have a value now and none a moment later
    lowers = atom.comparator in (">", ">=")
    earlier = lowers is (direction > 0)
    shifted = Arithmetic("-" if earlier else "+", Time(), Literal(float(error_s)))

    def change(part: Node) -> Node:
        return shifted if type(part) is Time else part

    return Comparison(atom.comparator, atom.left, rebuilt(atom.right, change))


def _uses_time(node: ValueNode) -> bool:
    return any(type(part) is Time for part in walk(node))


def _direction(node: ValueNode) -> int | None:
    """1 if the value rises with `t` or stays, -1 if it falls or stays, 0 if it has no `t`, or None.

    A rising value never falls by rounding: rounding keeps the order.
    """
    if isinstance(node, Time):
        return 1
    if not _uses_time(node):
        return 0
    if isinstance(node, Negation):
        return _times(_direction(node.operand), -1)
    if isinstance(node, Call) and node.name in _KEEP_ORDER:
        return _together([_direction(argument) for argument in node.arguments])
    if not isinstance(node, Arithmetic):
        return None
    left, right = _direction(node.left), _direction(node.right)
    if node.operator == "+":
        return _together([left, right])
    if node.operator == "-":
        return _together([left, _times(right, -1)])
    if node.operator == "/":
        return _times(left, _sign(node.right)) if right == 0 else None
    return _times(left, _sign(node.right)) if right == 0 else _times(right, _sign(node.left))


def _together(directions: list[int | None]) -> int | None:
    known = {direction for direction in directions if direction != 0}
    return known.pop() if len(known) == 1 else None


def _times(direction: int | None, sign: int | None) -> int | None:
    return None if direction is None or sign is None else direction * sign


def _sign(node: ValueNode) -> int | None:
    """The sign of a number that is written; None for anything else, and for 0."""
    if isinstance(node, Negation):
        return _times(_sign(node.operand), -1)
    if not isinstance(node, Literal) or isinstance(node.value, bool | str) or node.value == 0:
        return None
    return 1 if node.value > 0 else -1
