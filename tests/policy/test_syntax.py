"""Pieces of syntax, as Python reads them."""

import ast

import pytest

from rove.policy.syntax import (
    assign,
    at,
    choice,
    is_class,
    is_short_text,
    may_end_early,
    name_of,
    round_cost,
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


def loop(text: str) -> ast.For | ast.While:
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.For | ast.While)
    return node


@pytest.mark.parametrize(
    ("body", "cost"),
    [
        ("pass", 1),
        ("x = 1", 1),
        ("x = y + 1\n" * 6, 1),
        ("x = y + 1\n" * 8, 2),
        ("x = len(y)", 1),
        ("x = upper(y)", 4),
        ("m.x = 1", 4),
        ("x = f'{y}'", 4),
        ("x = y[1:2]", 4),
        ("for z in ys:\n    x = upper(z)", 4),
        ("while z:\n    x = upper(z)", 1),
    ],
)
def test_a_round_costs_what_is_written_in_it(body: str, cost: int) -> None:
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    assert round_cost(loop(f"for x in xs:\n{indented}")) == cost


def test_the_test_of_a_while_is_a_part_of_its_rounds() -> None:
    assert round_cost(loop("while upper(x) == y:\n    pass")) == 4
    assert round_cost(loop("for x in upper(y):\n    pass")) == 1


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("for x in xs:\n    y = x", False),
        ("for x in xs:\n    continue", False),
        ("for x in xs:\n    if x:\n        break", True),
        ("for x in xs:\n    return x", True),
        ("for x in xs:\n    for y in ys:\n        break", False),
        ("for x in xs:\n    while x:\n        return y", True),
    ],
)
def test_what_can_end_a_loop_early(text: str, may: bool) -> None:
    node = loop(text)
    assert isinstance(node, ast.For)
    assert may_end_early(node) is may
