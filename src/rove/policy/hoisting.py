"""Reads what a policy asks of its message over and over only once.

`m.pulse` is a search in a mapping each time. A policy that changes no message finds the same there
wherever it looks, so what it reads more than once, or in a loop, becomes a variable, just before
the first statement of the function that reads it. That costs nothing where the function has ended
by then, and what is known of a variable (`rove.policy.facts`) is known of the attribute too.

Lists never change either. Whether one is short enough to be searched without a guard is found out
where its variable gets its value, if that is outside of the loop that searches it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from rove.policy.trees import assign, at, name_of
from rove.policy.whitelist import ME, M

OFTEN: Final = 2
"""How often an attribute has to be read for it to become a variable."""
PREFIX: Final = "_m"
"""Of these variables; no policy can write such a name."""


def hoisted(body: list[ast.stmt]) -> list[ast.stmt]:
    """The body of a function, with variables for attributes of the message."""
    if _may_change_messages(body):
        return body
    readings = _Readings()
    for statement in body:
        readings.visit(statement)
    often = (name for name, count in readings.counts.items() if count >= OFTEN)
    replacer = _Replacer({name: f"{PREFIX}{number}" for number, name in enumerate(often)})
    made: list[ast.stmt] = []
    for statement in body:
        changed: ast.stmt = replacer.visit(statement)
        made += (at(each, statement) for each in replacer.new_variables())
        made.append(changed)
    return made


def _may_change_messages(body: list[ast.stmt]) -> bool:
    for node in (node for statement in body for node in ast.walk(statement)):
        match node:
            case ast.Attribute(value=ast.Name(id=owner)) | ast.Subscript(value=ast.Name(id=owner)):
                if owner != ME and not isinstance(node.ctx, ast.Load):
                    return True
            case ast.Call(func=ast.Name(id="set_data")):
                return True
    return False


def attribute_of(node: ast.AST) -> str | None:
    """Which attribute of `m` is read here, if one is."""
    match node:
        case ast.Attribute(value=ast.Name(id="m"), attr=name, ctx=ast.Load()):
            return name
        case ast.Subscript(
            value=ast.Name(id="m"), slice=ast.Constant(value=str(name)), ctx=ast.Load()
        ):
            return name
    return None


class _Readings(ast.NodeVisitor):
    """Counts how often each attribute is read."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._times = 1

    def generic_visit(self, node: ast.AST) -> None:
        name = attribute_of(node)
        if name is not None:
            self.counts[name] += self._times
        super().generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        for each in (*node.args, *node.keywords):
            self.visit(each)  # and not the function: `m.get` is no attribute of the message

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self._loop(node.body)

    def visit_While(self, node: ast.While) -> None:
        self._loop([node.test, *node.body])

    def _loop(self, parts: Sequence[ast.AST]) -> None:
        before, self._times = self._times, OFTEN
        for each in parts:
            self.visit(each)
        self._times = before


class _Replacer(ast.NodeTransformer):
    """Puts variables where attributes were."""

    def __init__(self, variables: dict[str, str]) -> None:
        self._variables = variables
        self._needed: dict[str, bool] = {}
        """Attributes that were met, and whether their variables have been given a value."""

    def visit(self, node: ast.AST) -> Any:
        name = attribute_of(node)
        if name is None or name not in self._variables:
            return super().visit(node)
        self._needed.setdefault(name, False)
        return at(name_of(self._variables[name]), node)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        node.args = [self.visit(each) for each in node.args]
        node.keywords = [self.visit(each) for each in node.keywords]
        return node

    def new_variables(self) -> Iterator[ast.stmt]:
        """Give those a value that were met for the first time."""
        for name, has_value in self._needed.items():
            if not has_value:
                self._needed[name] = True
                read = ast.Subscript(name_of(M), ast.Constant(name), ast.Load())
                yield assign(self._variables[name], read)


def lists_searched_in_loops(body: list[ast.stmt]) -> frozenset[str]:
    """Variables that have one value all through the function, given before loops that look for
    something in it."""
    times = Counter(
        node.id
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    known: set[str] = set()
    found: set[str] = set()
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) if times[name] == 1:
                known.add(name)
            case ast.For() | ast.While():
                found |= known & _searched(statement)
    return frozenset(found)


def _searched(loop: ast.For | ast.While) -> set[str]:
    return {
        right.id
        for node in ast.walk(loop)
        if isinstance(node, ast.Compare)
        for sign, right in zip(node.ops, node.comparators, strict=True)
        if isinstance(sign, ast.In | ast.NotIn) and isinstance(right, ast.Name)
    }
