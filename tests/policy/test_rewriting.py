"""What is written in a policy, and what runs."""

import ast

import pytest

from rove.policy.compiling import Policy, translated
from rove.policy.costs import DIRECT
from rove.policy.functions import FUNCTIONS
from rove.policy.library import Call
from rove.policy.rewriting import METHODS, PLAIN, RENAMED, Rewriter
from rove.policy.whitelist import parsed


def rewritten(body: str) -> list[str]:
    text = "LOW = 0.25\nCALM = (50, 120)\ndef arrived(m, me):\n" + "".join(
        f"    {line}\n" for line in body.splitlines()
    )
    return [
        line.strip()
        for line in ast.unparse(Rewriter(parsed(text, 10_000)).module()).splitlines()[1:]
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return m.pulse", "return m['pulse']"),
        ("return me.battery", "return me.get('battery')"),
        ('return get("x", 5)', "return me.get('x', 5)"),
        ("return m.o.p", "return _call.member(m['o'], 'p')"),
        ("return LOW", "return 0.25"),
        ("return CALM[1]", "return 120"),
        ("return m.a - m.b", "return m['a'] - m['b']"),
        ("return m.a + 1", "return m['a'] + 1"),
        ("return m.a * 0.5", "return m['a'] * 0.5"),
        ("return m.a < 5", "return m['a'] < 5"),
        ("return 5 < m.a < LOW", "return 5 < m['a'] < 0.25"),
        ('return m.s in ("a", "b")', "return m['s'] in ('a', 'b')"),
        ("m.x = 1", "_call.store(m, 'x', 1)"),
        ("me.x = 1", "_call.put('x', 1)"),
        ("del m.x", "_call.forget(m, 'x')"),
        ("del me.x", "_call.remove('x')"),
        ("m.x += 1", "_call.store(m, 'x', m['x'] + 1)"),
        ("return abs(m.a)", "return _abs(m['a'])"),
        ("return every(5, per=m.p)", "return _call.every('4:12', 5, per=m['p'])"),
        ("return m.a ** 5", "return _call.power(m['a'], 5)"),
        ("return m.s[1:]", "return _call.cut(m['s'], 1, None, None)"),
    ],
)
def test_lines(body: str, expected: str) -> None:
    assert rewritten(body) == [expected]


def test_loops_that_run_to_their_end_are_paid_for_before() -> None:
    assert rewritten("for x in m.xs:\n    y = x") == ["for x in _call.each(m['xs'], 1):", "y = x"]


@pytest.mark.parametrize(
    "body",
    [
        "while m.n:\n    y = 1",
        "for x in m.xs:\n    break",
        "for x in m.xs:\n    if x:\n        return m",
        "for x in m.xs:\n    for y in m.xs:\n        return m",
    ],
)
def test_others_count_every_round(body: str) -> None:
    assert "_left = _left - 1" in rewritten(body)


def test_a_break_inside_ends_only_that_loop() -> None:
    lines = rewritten("for x in m.xs:\n    for y in m.ys:\n        break")
    assert lines[2] == "for x in _call.each(m['xs'], 4):"
    assert lines[3] == "for y in _call.walk(_m0):"


def test_every_function_is_somewhere() -> None:
    for name in FUNCTIONS:
        assert name in DIRECT or name in PLAIN or RENAMED.get(name, name) in METHODS, name
    for name in METHODS:
        assert callable(getattr(Call, name)), name


def test_a_small_power_of_a_float_needs_no_guard() -> None:
    line = rewritten("return m.a ** 2")[0]
    assert "__class__ is _float" in line
    assert "_call.power" in line


def test_a_place_that_is_changed_is_worked_out_once() -> None:
    assert rewritten('m["a" if every(5) else "b"] += 1') == [
        "_index1 = 'a' if _call.every('4:14', 5) else 'b'",
        "_call.store(m, _index1, _call.item(m, _index1) + 1)",
    ]


HOLDERS = (
    "({}) + m.x", "m.x + ({})", "({}) * m.x", "m.x * ({})", "({}) * 2", "({}) - m.x", "m.x - ({})",
    "({}) / m.x", "({}) // m.x", "({}) % m.x", "m.x % ({})", "({}) ** 2", "({}) ** m.x",
    "m.x ** ({})", "-({})", "not ({})", "({}) < m.x", "m.x < ({})", "m.x < ({}) < m.y",
    "({}) == m.x", "({}) in m.x", "m.x in ({})", "({}) in s", "'a' in ({})", "({}) is None",
    "({}) and m.x", "m.x or ({})", "({}) if m.x else 1", "1 if ({}) else 2", "m.x if m.y else ({})",
    "m.x[({})]", "s[({})]", "({})[0]", "({})['a']", "({}).a", "({})[1:]", "s[:({})]", "[({})]",
    "(({}), 1)", "m[({})]", "me[({})]", "CALM[({})]", "int(s[({})])",
    "lower(s[({})])", "m.get('a', ({}))", "me.get('a', ({}))", "message({{'a': ({})}})",
    "message(a=({}))", "starts_with(({}), 'ab')", "compress(({}), quality=5)", "min(1.5, ({}))",
)  # fmt: skip
"""Whatever an expression can stand in."""


def holders() -> list[str]:
    """The same, and the functions with each of their arguments."""
    found = list(HOLDERS)
    for name, function in FUNCTIONS.items():
        count = max(1, function.least)
        for place in range(min(function.most, count + 1)):
            arguments = ["m.x"] * max(count, place + 1)
            arguments[place] = "({})"
            found.append(f"{name}({', '.join(arguments)})")
    return [each for each in found if not each.startswith(("range(", "compress(({}))"))]


def compiled_bytes(outer: str, inner: str, depth: int) -> int:
    expression = "m.z"
    for level in range(depth):
        expression = (outer if level % 2 else inner).format(expression)
    text = f"CALM = (50, 120)\ndef arrived(m, me):\n    s = m.s\n    return [{expression}]\n"
    return len(Policy(text, translated(text, 10_000)).function.__code__.co_code)


def check_growth(outer: str, inner: str) -> None:
    """Whoever could have the code double with every level would stop the broker by a short text."""
    sizes = [compiled_bytes(outer, inner, depth) for depth in (2, 4, 8)]
    assert sizes[2] - sizes[1] < 3 * (sizes[1] - sizes[0]) + 200, sizes


@pytest.mark.parametrize("holder", holders())
def test_code_is_as_long_as_its_text(holder: str) -> None:
    check_growth(holder, holder)


@pytest.mark.soak
@pytest.mark.parametrize("outer", holders())
def test_code_of_two_in_turns_is_as_long_as_its_text(outer: str) -> None:
    for inner in holders():
        check_growth(outer, inner)
