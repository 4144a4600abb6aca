"""Small pieces of syntax that compiled policies are put together from."""

from __future__ import annotations

import ast
from typing import Any, Final

SHORT_MAX: Final = 64
"""A list or text with fewer elements is looked through in no time."""
INT: Final = "_int"
STR: Final = "_str"
FLOAT: Final = "_float"
LIST: Final = "_list"
LEN: Final = "_len"


def at(made: Any, node: ast.AST) -> Any:
    """Give what was made the place in the text of what it was made from."""
    if "lineno" in made._attributes and not hasattr(made, "lineno"):
        # Of one line: of a call over several, Python would name the last.
        made.lineno = made.end_lineno = node.lineno  # type: ignore[attr-defined]
        made.col_offset = made.end_col_offset = node.col_offset  # type: ignore[attr-defined]
        for child in ast.iter_child_nodes(made):
            at(child, node)
    return made


def name_of(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def constant_of(value: Any) -> ast.expr:
    return ast.Constant(value)


def assign(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def call_of(function: ast.expr, *arguments: ast.expr) -> ast.expr:
    return ast.Call(function, list(arguments), [])


def is_short(node: ast.expr) -> ast.expr:
    length = call_of(name_of(LEN), node)
    return ast.Compare(length, [ast.Lt()], [ast.Constant(SHORT_MAX)])


def is_class(node: ast.expr, name: str) -> ast.expr:
    return ast.Compare(ast.Attribute(node, "__class__", ast.Load()), [ast.Is()], [name_of(name)])


def is_short_text(node: ast.expr) -> ast.expr:
    return all_true([is_class(node, STR), is_short(node)])


def is_number(node: ast.expr) -> list[ast.expr]:
    return [is_class(node, INT), is_class(node, FLOAT)]


def with_binding(binding: list[ast.expr], value: ast.expr) -> ast.expr:
    """A value after a binding that tells nothing."""
    if not binding:
        return value
    unused = ast.BoolOp(ast.And(), [binding[0], ast.Constant(False)])
    return ast.BoolOp(ast.Or(), [unused, value])


def choice(
    binding: list[ast.expr], tests: list[ast.expr], plain: ast.expr, guarded: ast.expr
) -> ast.expr:
    """`plain` if one of the tests holds, else `guarded`; after a binding, or with it in a test."""
    test = any_true(tests)
    if binding and _absorbed(binding[0], test):
        binding = []
    return with_binding(binding, ast.IfExp(test, plain, guarded))


def _absorbed(binding: ast.expr, test: ast.expr) -> bool:
    """Have a test bind what it is the first to look at, if it does."""
    while isinstance(test, ast.BoolOp):
        test = test.values[0]
    match binding, test:
        case (
            ast.Compare(left=ast.NamedExpr(target=ast.Name(id=name)) as taken),
            ast.Compare(left=ast.Attribute(value=ast.Name(id=tested)) as looked_at),
        ) if name == tested:
            looked_at.value = taken
            return True
    return False


def any_true(tests: list[ast.expr]) -> ast.expr:
    return tests[0] if len(tests) == 1 else ast.BoolOp(ast.Or(), tests)


def all_true(tests: list[ast.expr]) -> ast.expr:
    return tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)


def is_simple(node: ast.expr) -> bool:
    return isinstance(node, ast.Name | ast.Constant)


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def is_call_of(node: ast.Call, *names: str) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id in names


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
