"""A conjunction at one moment: `t` and `me.` replaced by what they are, the rest as it was.

What evolves or follows becomes fixed for as long as its `t` or its state stays: an area that
travels is a plain box at t = 3, and an index for plain boxes can hold it. Nothing is rounded
that the evaluator would not round, since constants are folded by the evaluator itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from rove.lang.constant_folding import Unknown
from rove.lang.normal_form import (
    Conjunction,
    compared_conjunction,
    restrict,
    restricted_conjunction,
)
from rove.lang.oracle import State
from rove.lang.sets import ValueSet
from rove.lang.tree import (
    Comparison,
    Literal,
    Me,
    Node,
    Time,
    ValueNode,
    rebuilt,
    walk,
)
from rove.lang.values import OPAQUE, Value, look_up


def at_moment(
    conjunction: Conjunction, t: float | None = None, me: State | None = None
) -> Conjunction | None:
    """`conjunction` with `t` and `me.` known (None leaves one open); None if it cannot hold."""
    return at_moments((conjunction,), t, me)[0]


def at_moments(
    conjunctions: Iterable[Conjunction], t: float | None = None, me: State | None = None
) -> list[Conjunction | None]:
    """The same for the conjunctions of one normal form; what they share is computed once."""
    known: dict[int, Conjunction | None] = {}

    def atom_known(atom: Comparison) -> Conjunction | None:
        if id(atom) not in known:
            known[id(atom)] = _compared(atom, t, me)
        return known[id(atom)]

    return [
        _all_of(
            chain(
                (_restricted(subject, allowed, t, me) for subject, allowed in one.sets.items()),
                map(atom_known, one.atoms),
            )
        )
        for one in conjunctions
    ]


def _all_of(parts: Iterable[Conjunction | None]) -> Conjunction | None:
    """All of `parts` at once; None if one of them, or all together, cannot hold."""
    sets: dict[ValueNode, ValueSet] = {}
    atoms: set[Comparison] = set()
    for part in parts:
        if part is None or not restrict(sets, part):
            return None
        atoms |= part.atoms
    return Conjunction(sets, frozenset(atoms))


def is_fixed(conjunction: Conjunction) -> bool:
    """True if neither `t` nor `me.` occurs: it means the same at every moment."""
    return not any(
        type(part) in (Time, Me)
        for node in (*conjunction.sets, *conjunction.atoms)
        for part in walk(node)
    )


def _restricted(
    subject: ValueNode, allowed: ValueSet, t: float | None, me: State | None
) -> Conjunction | None:
    if type(subject) is Me and me is not None:
        return Conjunction() if look_up(me, subject.path) in allowed else None
    try:
        known = _known(subject, t, me)
    except Unknown:
        return None
    return restricted_conjunction(known, allowed)


def _compared(atom: Comparison, t: float | None, me: State | None) -> Conjunction | None:
    try:
        known = Comparison(atom.comparator, _known(atom.left, t, me), _known(atom.right, t, me))
    except Unknown:
        return None
    return compared_conjunction(known)


def _known(node: ValueNode, t: float | None, me: State | None) -> ValueNode:
    """`node` with what is known put in; constants are folded where a conjunction is made of it."""

    def change(part: Node) -> Node:
        if type(part) is Time and t is not None:
            return Literal(float(t))
        if type(part) is Me and me is not None:
            return Literal(_value(me, part))
        return part

    return rebuilt(node, change)


def _value(me: State, variable: Me) -> Value:
    found = look_up(me, variable.path)
    if found is None or found is OPAQUE:
        raise Unknown
    assert isinstance(found, int | float | str | bool)
    return found
