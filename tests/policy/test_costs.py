"""What a round of a loop costs, by its text."""

import ast

import pytest

from rove.policy.costs import may_end_early, round_cost


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
