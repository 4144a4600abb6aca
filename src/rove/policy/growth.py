"""Which sums of integers could grow without end, and so have to be looked at when they are made.

An integer that is computed with has a bound (`rove.policy.guards.BITS_MAX`), because one of a
thousand digits makes a division take as long as a hundred steps. Products are looked at whenever
they are made. Of sums, few can grow: `total = total + x` gains a bit when the rounds of the loop
have doubled, so it is enough to look at it now and then; but `x = x + x` gains a bit in every
round, and `a, b = b, a + b` nearly so. The difference is whether both sides are made of what is
being made.

It goes by the names in the text alone, whatever the order of its statements.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable


class Growth:
    """What the variables of one policy are made of."""

    def __init__(self, body: Iterable[ast.stmt]) -> None:
        self._parts: dict[str, set[str]] = {}
        """Of each variable, the names in whatever it is given."""
        self._all: dict[str, frozenset[str]] = {}
        self._has_loops = False
        for node in (node for statement in body for node in ast.walk(statement)):
            match node:
                case ast.Assign():
                    self._give(node.targets[0], node.value)
                case ast.AugAssign():
                    self._give(node.target, node.value)
                case ast.For():
                    self._give(node.target, node.iter)
            self._has_loops |= isinstance(node, ast.For | ast.While)

    def _give(self, target: ast.expr, value: ast.expr) -> None:
        for name in names_in(target):
            self._parts.setdefault(name, set()).update(names_in(value))

    def is_steady(self, targets: frozenset[str], left: ast.expr, right: ast.expr) -> bool:
        """Whether a sum that `targets` are made of is made of them on one side at most."""
        return not (
            self._has_loops
            and targets
            and self._is_made_of(left, targets)
            and self._is_made_of(right, targets)
        )

    def _is_made_of(self, node: ast.expr, targets: frozenset[str]) -> bool:
        return any(not targets.isdisjoint(self._sources(name)) for name in names_in(node))

    def _sources(self, name: str) -> frozenset[str]:
        """A variable, and all that it is made of."""
        known = self._all.get(name)
        if known is None:
            found = {name}
            waiting = [name]
            while waiting:
                new = self._parts.get(waiting.pop(), set()) - found
                found |= new
                waiting += new
            known = self._all[name] = frozenset(found)
        return known


def names_in(node: ast.expr) -> frozenset[str]:
    """All variables that stand in an expression."""
    return frozenset(each.id for each in ast.walk(node) if isinstance(each, ast.Name))
