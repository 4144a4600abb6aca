"""How many steps a round of a loop costs, by how much is written in it.

Steps are the same on every machine, so they are counted by the text and not by a clock.
"""

from __future__ import annotations

import ast
from typing import Final

from rove.policy.trees import is_call_of

NODES_PER_STEP: Final = 40
"""Pieces of syntax in the body of a loop that one step pays for."""
NODES_PER_CALL: Final = 150
"""Pieces of syntax that a function of the library is as dear as, however short its texts are."""

DIRECT: Final = frozenset({"len", "abs", "floor", "ceil", "sqrt", "bool", "range"})
"""Functions that take what they take and cost next to nothing, whatever they are given."""


def may_end_early(node: ast.For) -> bool:
    """Something in the loop can end it before its last round."""
    waiting: list[ast.AST] = list(node.body)
    while waiting:
        each = waiting.pop()
        if isinstance(each, ast.Return | ast.Break):
            return True
        if isinstance(each, ast.For | ast.While):
            # A break in there ends only that one.
            waiting.extend(child for child in ast.walk(each) if isinstance(child, ast.Return))
        else:
            waiting.extend(ast.iter_child_nodes(each))
    return False


def round_cost(node: ast.For | ast.While) -> int:
    """Steps of one round."""
    return 1 + _size(node) // NODES_PER_STEP


def _is_dear(node: ast.AST) -> bool:
    """It becomes a call of something of ours."""
    match node:
        case ast.Call():
            return not is_call_of(node, *DIRECT)
        case ast.Attribute() | ast.Subscript():
            return isinstance(node.ctx, ast.Store | ast.Del)
        case ast.BinOp():
            return isinstance(node.op, ast.Pow)
    return isinstance(node, ast.JoinedStr | ast.Slice | ast.For)


def _size(node: ast.For | ast.While) -> int:
    """Pieces of syntax in the body of a loop; loops in it count for themselves."""
    count = 0
    waiting: list[ast.AST] = list(node.body)
    if isinstance(node, ast.While):
        waiting.append(node.test)
    while waiting:
        each = waiting.pop()
        count += NODES_PER_CALL if _is_dear(each) else 1
        if isinstance(each, ast.For):
            waiting.append(each.iter)
        elif not isinstance(each, ast.While):
            waiting.extend(
                child
                for child in ast.iter_child_nodes(each)
                if not isinstance(child, ast.expr_context | ast.operator | ast.cmpop)
            )
    return count
