"""What is read out of an allowed text; what is refused is in test_escape."""

import ast

import pytest

from rove.policy.errors import PolicyError
from rove.policy.whitelist import DEPTH_MAX, NODES_MAX, parsed


def test_constants_names_and_functions_are_known() -> None:
    text = (
        '"""Why."""\n'
        "LOW, HIGH = -0.5, 3\n"
        'NAMES = ["a", ("b", None)]\n'
        "def arrived(m, me):\n"
        '    """How."""\n'
        "    a, b = m.xs\n"
        "    for c in m.ys:\n"
        "        d = len(c)\n"
        "    return me.get(lower(m.s))\n"
    )
    found = parsed(text, 10_000)
    assert found.constants == {"LOW": -0.5, "HIGH": 3, "NAMES": ["a", ("b", None)]}
    assert found.uses == {"len", "get", "lower"}
    assert found.line == 4
    assert [type(each) for each in found.body] == [ast.Assign, ast.For, ast.Return]


def test_so_much_syntax_is_allowed() -> None:
    def text(count: int) -> str:
        return "def arrived(m, me):\n" + "    x = 1\n" * count

    most = (NODES_MAX - 8) // 3
    parsed(text(most), 10**6)
    with pytest.raises(PolicyError, match="1,500 pieces"):
        parsed(text(most + 5), 10**6)


def test_so_deep_is_allowed() -> None:
    def text(depth: int) -> str:
        return "def arrived(m, me):\n    x = " + "-" * depth + "1"

    parsed(text(DEPTH_MAX - 5), 10_000)
    with pytest.raises(PolicyError, match="nested too deep"):
        parsed(text(DEPTH_MAX + 5), 10_000)


def test_the_place_of_what_is_refused_is_counted_in_letters() -> None:
    with pytest.raises(PolicyError) as caught:
        parsed("def arrived(m, me):\n    x = 'äöü€𝑚' + y", 10_000)
    assert (caught.value.line, caught.value.column) == (2, 19)
