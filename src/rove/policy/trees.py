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
