"""What is certain of values before a policy runs."""

import ast

import pytest

from rove.policy.kinds import Sort, Sorts, joined


def sort_of(expression: str, before: str = "") -> Sort:
    body = ast.parse(f"{before}\nlast = {expression}").body
    last = body[-1]
    assert isinstance(last, ast.Assign)
    return Sorts(body, {"LOW": 0.5, "COUNT": 3, "WARD": "a", "XS": [1]}).of(last.value)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1", "number"),
        ("True", "number"),
        ("1.5", "float"),
        ("'a'", "text"),
        ("None", "any"),
        ("[1]", "any"),
        ("m", "message"),
        ("m.x", "any"),
        ("LOW", "float"),
        ("COUNT", "number"),
        ("WARD", "text"),
        ("XS", "any"),
        ("m.x + m.y", "any"),
        ("m.x + 1", "number"),
        ("m.x + 1.5", "float"),
        ("m.x + 'a'", "text"),
        ("m.x - m.y", "number"),
        ("m.x / m.y", "float"),
        ("m.x // 2", "number"),
        ("m.x % 2", "number"),
        ("m.x * 2", "any"),
        ("m.x * 2.0", "float"),
        ("2 * 3", "number"),
        ("'a' * 3", "any"),
        ("2.0 ** m.x", "number"),
        ("-m.x", "number"),
        ("-LOW", "float"),
        ("not m.x", "number"),
        ("m.x < 1", "number"),
        ("1 if m.x else 2.5", "number"),
        ("1.5 if m.x else 2.5", "float"),
        ("1 if m.x else 'a'", "any"),
        ("1 or m.x", "any"),
        ("f'{m.x}'", "text"),
        ("len(m.x)", "number"),
        ("now()", "float"),
        ("abs(m.x)", "number"),
        ("abs(1.5)", "float"),
        ("min(m.x, 1)", "number"),
        ("min(m.x, m.y)", "any"),
        ("max(1.5, 2.5)", "float"),
        ("keep(m)", "message"),
        ("m.get('x')", "any"),
    ],
)
def test_expressions(expression: str, expected: Sort) -> None:
    assert sort_of(expression) == expected


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("x = 1", "number"),
        ("x = 1\nx = 2.5", "number"),
        ("x = 1\nx = m.y", "any"),
        ("x = 0\nwhile m:\n    x = x + 1", "number"),
        ("x = 0.0\nwhile m:\n    x = x + m.y", "float"),
        ("x = 0\nwhile m:\n    x += m.y", "number"),
        ("x = m.y\nx += m.y", "any"),
        ("for x in range(5):\n    pass", "number"),
        ("for x in m.xs:\n    pass", "any"),
        ("x, y = 1, 2", "any"),
        ("x = message()\nx = keep(m)", "message"),
        ("x = message()\nx = None", "any"),
        ("y = 1\nx = y\ny = 'a'", "any"),
    ],
)
def test_variables_are_everything_that_they_are_given(before: str, expected: Sort) -> None:
    assert sort_of("x", before) == expected


def test_joining_is_the_least_that_is_certain_of_both() -> None:
    sorts: tuple[Sort, ...] = ("nothing", "float", "number", "text", "message", "any")
    for left in sorts:
        assert joined(left, left) == left
        assert joined(left, "nothing") == joined("nothing", left) == left
        assert joined(left, "any") == "any"
        for right in sorts:
            assert joined(left, right) == joined(right, left)
    assert joined("float", "number") == "number"
    assert joined("text", "number") == "any"
