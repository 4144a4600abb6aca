"""Which variables are numbers at a place of the text, by what has been done to them before.

`x - 1` ends the call unless `x` is a number, so behind it `x` is one and needs no guard. What
stands in a loop or in one branch of a condition holds only there. This is what lets a loop over the
numbers of a message, of which nothing is known before it runs, come close to Python's own speed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from rove.policy.kinds import CERTAIN, Sorts

_NUMERIC: Final = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
_ORDERED: Final = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_OF_NUMBERS: Final = frozenset({"abs", "ceil", "clamp", "floor", "round", "sqrt"})
"""Functions whose first argument is a number."""


def learnt(node: ast.expr, sorts: Sorts, *, is_true: bool = False) -> Iterator[str]:
    """Variables that are numbers once an expression has been worked out, or has proved true."""
    for each in _worked_out(node, is_true=is_true):
        yield from _learnt_of(each, sorts)


def _worked_out(node: ast.expr, *, is_true: bool) -> Iterator[ast.expr]:
    """Every part of an expression that is worked out in any case."""
    waiting: list[ast.expr] = [node]
    if is_true and isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        waiting = list(node.values)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.BoolOp):
            waiting.append(node.values[0])
        elif isinstance(node, ast.IfExp):
            waiting.append(node.test)
        elif isinstance(node, ast.Compare):
            waiting += (node.left, node.comparators[0])
        else:
            waiting += (each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr))
            if isinstance(node, ast.Call):
                waiting += (keyword.value for keyword in node.keywords)


def _learnt_of(node: ast.expr, sorts: Sorts) -> Iterator[str]:
    match node:
        case ast.BinOp(op=ast.Add()):
            yield from _beside_a_number(node.left, node.right, sorts)
        case ast.BinOp() if isinstance(node.op, _NUMERIC):
            yield from _names((node.left, node.right))
        case ast.UnaryOp(op=ast.USub()):
            yield from _names((node.operand,))
        case ast.Compare() if isinstance(node.ops[0], _ORDERED):
            yield from _beside_a_number(node.left, node.comparators[0], sorts)
        case ast.Call(func=ast.Name(id=name)) if name in _OF_NUMBERS:
            yield from _names(node.args[:1])


def _beside_a_number(left: ast.expr, right: ast.expr, sorts: Sorts) -> Iterator[str]:
    if sorts.of(left) in CERTAIN or sorts.of(right) in CERTAIN:
        yield from _names((left, right))


def _names(nodes: Iterable[ast.expr]) -> Iterator[str]:
    """Variables that are numbers if these are; a product is one only of numbers."""
    for node in nodes:
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            yield from _names((node.left, node.right))


def given(nodes: Iterable[ast.AST]) -> set[str]:
    """Variables that get a value somewhere in there."""
    return {
        node.id
        for each in nodes
        for node in ast.walk(each)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def ends(body: list[ast.stmt]) -> bool:
    """Nothing behind these statements is reached from them."""
    return bool(body) and isinstance(body[-1], ast.Return | ast.Break | ast.Continue)
