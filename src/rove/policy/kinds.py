"""What is certain of a value before a policy runs: that it is a number, a float, a text.

A float that is added to anything is a float or an error, whatever the other one is; it can never
grow. So where one side is certain, the operator needs no guard, and most arithmetic of policies
runs at Python's own speed. Variables are judged by everything that they are ever given, not by
where: it takes a few passes over the text and misses little. A text that needs more than
`PASSES_MAX`, as one does that gives variables their values in the reverse order, gets guards all
over: what compiling takes must not grow with the square of the text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from rove.policy.functions import FUNCTIONS

Sort = Literal["nothing", "float", "number", "text", "message", "any"]
"""`nothing` is not known yet; a number is an integer, a float or a truth value."""

CERTAIN: Final = ("float", "number")
PASSES_MAX: Final = 6


def joined(left: Sort, right: Sort) -> Sort:
    """What is certain of a value that is one or the other."""
    if left == right or right == "nothing":
        return left
    if left == "nothing":
        return right
    return "number" if {left, right} == {"float", "number"} else "any"


def sort_of_value(value: object) -> Sort:
    if isinstance(value, float):
        return "float"
    if isinstance(value, int):
        return "number"
    return "text" if isinstance(value, str) else "any"


class Sorts:
    """What is certain of every expression of one policy."""

    def __init__(self, body: Iterable[ast.stmt], constants: Mapping[str, object]) -> None:
        self._constants = constants
        self._variables: dict[str, Sort] = {"m": "message"}
        self._found: dict[ast.expr, Sort] = {}
        self.numbers: set[str] = set()
        """Variables that are numbers just here, whatever they are elsewhere."""
        statements = [node for each in body for node in ast.walk(each)]
        for _ in range(PASSES_MAX):
            if not self._pass(statements):
                break
            self._found.clear()
        else:
            for name in self._variables.keys() - {"m"}:
                self._variables[name] = "any"

    def _pass(self, statements: Iterable[ast.AST]) -> bool:
        before = dict(self._variables)
        for node in statements:
            if isinstance(node, ast.Assign):
                self._give(node.targets[0], self.of(node.value))
            elif isinstance(node, ast.AugAssign):
                self._give(node.target, self._operation(node.op, node.target, node.value))
            elif isinstance(node, ast.For):
                self._give(node.target, self._element(node.iter))
            self._found.clear()
        return self._variables != before

    def _give(self, target: ast.expr, sort: Sort) -> None:
        if isinstance(target, ast.Name):
            self._variables[target.id] = joined(self._variables.get(target.id, "nothing"), sort)
        elif isinstance(target, ast.Tuple):
            for each in target.elts:
                self._give(each, "any")

    def _element(self, node: ast.expr) -> Sort:
        """What is certain of each that a loop goes through."""
        match node:
            case ast.Call(func=ast.Name(id="range")):
                return "number"
            case ast.Call(func=ast.Name(id="split")):
                return "text"
        return "text" if self.of(node) == "text" else "any"

    def of(self, node: ast.expr) -> Sort:
        """What is certain of an expression."""
        found = self._found.get(node)
        if found is None:
            found = self._found[node] = self._judge(node)
        return found

    def _judge(self, node: ast.expr) -> Sort:
        match node:
            case ast.Constant():
                return sort_of_value(node.value)
            case ast.Name():
                if node.id in self._constants:
                    return sort_of_value(self._constants[node.id])
                sort = self._variables.get(node.id, "nothing")
                return "number" if sort == "any" and node.id in self.numbers else sort
            case ast.BinOp():
                return self._operation(node.op, node.left, node.right)
            case ast.UnaryOp():
                is_float = isinstance(node.op, ast.USub) and self.of(node.operand) == "float"
                return "float" if is_float else "number"
            case ast.Compare():
                return "number"
            case ast.BoolOp():
                return self._any_of(node.values)
            case ast.IfExp():
                return self._any_of((node.body, node.orelse))
            case ast.JoinedStr():
                return "text"
            case ast.Call():
                return self._call(node)
        return "any"

    def _any_of(self, nodes: Iterable[ast.expr]) -> Sort:
        sort: Sort = "nothing"
        for each in nodes:
            sort = joined(sort, self.of(each))
        return sort

    def _operation(self, operator: ast.operator, left: ast.expr, right: ast.expr) -> Sort:
        sorts = self.of(left), self.of(right)
        if "nothing" in sorts:
            return "nothing"
        if isinstance(operator, ast.Div) or "float" in sorts:
            # A float to an odd power is no longer certain.
            return "number" if isinstance(operator, ast.Pow) else "float"
        if isinstance(operator, ast.Add):
            if "number" in sorts:
                return "number"
            return "text" if "text" in sorts else "any"
        if isinstance(operator, ast.Mult) and sorts != ("number", "number"):
            return "any"
        return "number"

    def _call(self, node: ast.Call) -> Sort:
        name = _called(node)
        if name is None:
            return "any"
        if name in ("min", "max") and len(node.args) > 1:
            return self._extreme(node.args)
        gives = FUNCTIONS[name].gives
        if gives == "same":
            return "float" if self.of(node.args[0]) == "float" else "number"
        return gives

    def _extreme(self, nodes: Iterable[ast.expr]) -> Sort:
        """What is compared with a number is a number itself, or an error."""
        sorts = {self.of(each) for each in nodes}
        if "nothing" in sorts:
            return "nothing"
        if sorts == {"float"}:
            return "float"
        return "number" if sorts & {"float", "number"} else "any"


def _called(node: ast.Call) -> str | None:
    return node.func.id if isinstance(node.func, ast.Name) else None
