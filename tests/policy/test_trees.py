"""Pieces of syntax, as Python reads them."""

import ast

import pytest

from rove.policy.trees import (
    assign,
    at,
    choice,
    is_class,
    is_short_text,
    name_of,
    with_binding,
)

PLAIN, GUARDED = name_of("plain"), name_of("guarded")


def bound(name: str) -> list[ast.expr]:
    taken = ast.NamedExpr(ast.Name(name, ast.Store()), name_of("made"))
    return [ast.Compare(taken, [ast.Is()], [ast.Constant(None)])]


def worked_out(node: ast.expr, **names: object) -> object:
    code = compile(ast.fix_missing_locations(ast.Expression(node)), "", "eval")
    return eval(code, {"_str": str, "_int": int, "_len": len, **names})


@pytest.mark.parametrize(("made", "expected"), [("a", 1), ("a" * 64, 2), (5, 2), (None, 2)])
def test_a_choice_looks_at_what_it_has_bound(made: object, expected: int) -> None:
    for test in (is_short_text(name_of("x")), is_class(name_of("x"), "_str")):
        node = choice(bound("x"), [test], PLAIN, GUARDED)
        text = ast.unparse(node)
        assert text.startswith("plain if (x := made).__class__ is _str"), "it binds in its test"
        wanted = 1 if isinstance(made, str) and "_len" not in text else expected
        assert worked_out(node, made=made, plain=1, guarded=2) == wanted


def test_a_choice_binds_before_a_test_that_looks_at_something_else() -> None:
    node = choice(bound("x"), [is_class(name_of("y"), "_str")], PLAIN, GUARDED)
    assert worked_out(node, made=5, y="a", plain=name_of, guarded=2) is name_of
    assert "False or" in ast.unparse(node)


def test_a_value_after_a_binding_is_that_value() -> None:
    for value in (0, None, "", 7):
        assert worked_out(with_binding(bound("x"), name_of("v")), made=None, v=value) == value
    assert with_binding([], PLAIN) is PLAIN


def test_what_is_made_stands_where_its_origin_stood() -> None:
    origin = ast.parse("\n\n  (a\n+ b)".strip(), mode="eval").body
    made = at(assign("x", ast.BinOp(name_of("a"), ast.Add(), origin)), origin)
    assert {node.lineno for node in ast.walk(made) if hasattr(node, "lineno")} >= {origin.lineno}
    assert made.end_lineno == origin.lineno, "an error names the first line of several"
