"""Which sums of integers could grow without end, and so have to be looked at when they are made.

An integer that is computed with has a bound (`rove.policy.guards.BITS_MAX`), because one of a
thousand digits makes a division take as long as a hundred steps. Products are looked at whenever
they are made. Of sums, few can grow: `total = total + x` gains a bit when the rounds of the loop
have doubled, so it is enough to look at it now and then; but `x = x + x` gains a bit in every
round, and `a, b = b, a + b` nearly so. The difference is whether both sides are made of what is
being made.

It goes by the names in the text alone, whatever the order of its statements. Two variables are made
of each other if they are in one component of the graph that their assignments make (Tarjan), so
all of it takes a time that is linear in the text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator


class Growth:
    """What the variables of one policy are made of."""

    def __init__(self, body: Iterable[ast.stmt]) -> None:
        self._parts: dict[str, set[str]] = {}
        """Of each variable, the names in whatever it is given."""
        self._has_loops = False
        self._targets: frozenset[str] = frozenset()
        self._known: dict[ast.AST, bool] = {}
        """Of the expressions that were asked about, whether they are made of `_targets`."""
        for node in (node for statement in body for node in ast.walk(statement)):
            match node:
                case ast.Assign():
                    self._give(node.targets[0], node.value)
                case ast.AugAssign():
                    self._give(node.target, node.value)
                case ast.For():
                    self._give(node.target, node.iter)
            self._has_loops |= isinstance(node, ast.For | ast.While)
        self._component = _components(self._parts) if self._has_loops else {}

    def _give(self, target: ast.expr, value: ast.expr) -> None:
        for name in names_in(target):
            self._parts.setdefault(name, set()).update(names_in(value))

    def is_steady(self, targets: frozenset[str], left: ast.expr, right: ast.expr) -> bool:
        """Whether a sum that `targets` are made of is made of them on one side at most."""
        if not self._has_loops or not targets:
            return True
        if targets is not self._targets:
            self._targets = targets
            self._known.clear()
            self._growing = {self._component.get(name, name) for name in targets}
        return not (self._is_made_of(left) and self._is_made_of(right))

    def _is_made_of(self, node: ast.AST) -> bool:
        """Whether the targets are in it; what is in it, they are made of."""
        known = self._known.get(node)
        if known is None:
            if isinstance(node, ast.Name):
                known = self._component.get(node.id, node.id) in self._growing
            else:
                known = any(map(self._is_made_of, ast.iter_child_nodes(node)))
            self._known[node] = known
        return known


def _components(parts: dict[str, set[str]]) -> dict[str, str]:
    """Of each variable, one that stands for all that it is made of and that are made of it."""
    found: dict[str, str] = {}
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_names: list[str] = []
    for first in parts:
        if first in order:
            continue
        way: list[tuple[str, Iterator[str]]] = []
        _enter(first, parts, order, lowest, open_names, way)
        while way:
            name, rest = way[-1]
            for part in rest:
                if part not in order:
                    _enter(part, parts, order, lowest, open_names, way)
                    break
                if part not in found:
                    lowest[name] = min(lowest[name], order[part])
            else:
                way.pop()
                if way:
                    lowest[way[-1][0]] = min(lowest[way[-1][0]], lowest[name])
                if lowest[name] == order[name]:
                    while name not in found:
                        found[open_names.pop()] = name
    return found


def _enter(
    name: str,
    parts: dict[str, set[str]],
    order: dict[str, int],
    lowest: dict[str, int],
    open_names: list[str],
    way: list[tuple[str, Iterator[str]]],
) -> None:
    order[name] = lowest[name] = len(order)
    open_names.append(name)
    way.append((name, iter(parts.get(name, ()))))


def names_in(node: ast.expr) -> frozenset[str]:
    """All variables that stand in an expression."""
    return frozenset(each.id for each in ast.walk(node) if isinstance(each, ast.Name))
