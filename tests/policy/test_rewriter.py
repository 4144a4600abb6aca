"""What is written in a policy, and what runs."""

import ast
import json
from typing import Any

import pytest

from rove.policy.compiler import Policy, compile_text, compiled
from rove.policy.jobs import Deferred, Stopped
from rove.policy.library import PolicyCall
from rove.policy.limits import PolicyLimits
from rove.policy.messages import Completed, IncomingMessage
from rove.policy.rewriter import METHODS, PLAIN, RENAMED, Rewriter
from rove.policy.runner import run
from rove.policy.signatures import FUNCTIONS
from rove.policy.syntax import DIRECT
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
    assert lines[1] == "for x in _call.each(m['xs'], 4):"
    assert lines[2] == "for y in _call.walk(m['ys']):"


def test_every_function_is_somewhere() -> None:
    for name in FUNCTIONS:
        assert name in DIRECT or name in PLAIN or RENAMED.get(name, name) in METHODS, name
    for name in METHODS:
        assert callable(getattr(PolicyCall, name)), name


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
    return len(Policy(text, compile_text(text, 10_000)).function.__code__.co_code)


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


# --- what runs ---


def shown(body: str, **attributes: object) -> Completed | Stopped | Deferred:
    text = "def arrived(m, me):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    payload = json.dumps(attributes).encode()
    return run(compiled(text), IncomingMessage("t", payload), {}, {}, 0.0, PolicyLimits())


def sent(body: str, **attributes: object) -> Any:
    result = shown(body, **attributes)
    assert isinstance(result, Completed), result
    return json.loads(result.outputs[0].payload)


BLOW = "z = x * 5000000"

UNCERTAIN = {
    "given another value": f"x = m.n\ny = x - 1\nx = m.s\n{BLOW}",
    "unpacked into": f"x = m.n\ny = x - 1\nx, y = m.s, 1\n{BLOW}",
    "in the next round of for": f"x = m.n\ny = x - 1\nfor i in range(2):\n    {BLOW}\n    x = m.s",
    "in the next round that can end": (
        f"x = m.n\ny = x - 1\nfor i in range(2):\n    {BLOW}\n    x = m.s\n    if m.z:\n      break"
    ),
    "in the next round of while": (
        f"x = m.n\ny = x - 1\ni = 0\nwhile i < 2:\n    i += 1\n    {BLOW}\n    x = m.s"
    ),
    "in the test of while": f"x = m.n\nwhile x - x == 0:\n    x = m.s\n    break\n{BLOW}",
    "loop variable": f"x = m.n\ny = x - 1\nfor x in [m.s]:\n    {BLOW}",
    "loop variable afterwards": f"x = m.n\ny = x - 1\nfor x in [m.s]:\n    pass\n{BLOW}",
    "loop that is never entered": f"x = m.s\nfor i in []:\n    y = x - 1\n{BLOW}",
    "while that is never entered": f"x = m.s\nwhile m.z:\n    y = x - 1\n{BLOW}",
    "only if": f"x = m.s\nif m.n > 100:\n    y = x - 1\n{BLOW}",
    "only else": f"x = m.s\nif m.n < 100:\n    pass\nelse:\n    y = x - 1\n{BLOW}",
    "only elif": f"x = m.s\nif m.n < 100:\n    pass\nelif x > 1:\n    pass\n{BLOW}",
    "given in a branch": f"x = m.n\ny = x - 1\nif m.n < 100:\n    x = m.s\n{BLOW}",
    "branch that returns": f"x = m.s\nif m.z:\n    y = x - 1\n    return m\n{BLOW}",
    "second of and": f"x = m.s\nif m.z and x > 1:\n    pass\n{BLOW}",
    "second of or": f"x = m.s\nif m.n or x > 1:\n    {BLOW}",
    "not of and": f"x = m.s\nif not (m.z and x > 1):\n    {BLOW}",
    "else of and": f"x = m.s\nif m.z and x > 1:\n    pass\nelse:\n    {BLOW}",
    "conditional expression": f"x = m.s\ny = x - 1 if m.n > 100 else 0\n{BLOW}",
    "end of a chain": f"x = m.s\ny = 100 < m.n < x\n{BLOW}",
    "equal to a number": f"x = m.s\ny = x == 1\n{BLOW}",
    "in a list of numbers": f"x = m.s\ny = x in [1, 2]\n{BLOW}",
    "multiplied": f"x = m.s\ny = x * 2\n{BLOW}",
    "added to a text": f"x = m.s\ny = x + m.s\n{BLOW}",
    "compared with a text": f"x = m.s\ny = x < m.t\n{BLOW}",
    "broken off before": (
        f"x = m.s\nfor i in range(3):\n    if i == 0:\n        break\n    y = x - 1\n{BLOW}"
    ),
    "continued before": (
        f"x = m.s\nfor i in range(2):\n    if i == 0:\n        continue\n    {BLOW}\n    y = x - 1"
    ),
    "smallest with a text": f"x = m.s\ny = min(x, m.t)\n{BLOW}",
    "product of a None": 'x = m.s\ny = m.z or "5"\n' + BLOW,
    "a product that is bound": "x = m.n\nz = m.s * (x * 1000000)",
    "a product bound on the left": "x = m.n\nz = (x * 1000000) * m.s",
    "a product of two members": "z = m.s * m.k",
    "a product the other way": "z = m.k * m.s",
}  # fmt: skip


@pytest.mark.parametrize("body", UNCERTAIN.values(), ids=UNCERTAIN)
def test_the_guard_is_there(body: str) -> None:
    """Where `x` is a text by then, though it was a number, or beside one, before."""
    result = shown(body, n=7, s="text", t="u", k=5_000_000)
    assert isinstance(result, Stopped), result
    assert result.kind == "memory", result


def test_a_change_is_seen() -> None:
    assert sent("m.a = m.a + 1\nreturn message(b=m.a + m.a)", a=1) == {"b": 4}


def test_what_is_known_of_a_variable_is_known_of_an_attribute() -> None:
    assert sent("if m.a > 1:\n    return message(b=m.a % 7)", a=20) == {"b": 6}
    result = shown("x = m.a == 1\nreturn message(b=m.a * 5000000)", a="text")
    assert isinstance(result, Stopped)
    assert result.kind == "memory", "it is no number because it was compared with one"


def test_an_error_is_told_with_its_own_line() -> None:
    result = shown("x = m.a\ny = m.a\nreturn message(b=m.a - 1)", a="text")
    assert isinstance(result, Stopped)
    assert (result.kind, result.line) == ("error", 4)
    assert result.text == "a text - a number cannot be worked out"


SEARCH = """\
xs = m.xs
found = 0
for x in m.wanted:
    if x in xs:
        found += 1
return message(found=found)
"""


@pytest.mark.parametrize(
    ("xs", "wanted"),
    [
        (["a", "b"], ["a", "c", 1, None, ["a"], {"a": 1}]),
        ([1, 2.5, True], [1.0, 2.5, "1", False, None, [1]]),
        (["a" * 100, "b"], ["a" * 100, "b", "a"]),
        ([["a"], None], [["a"], None, "a"]),
        ([str(n) for n in range(100)], ["7", "100", 7]),
        ([], ["a"]),
        ({"a": 1, "b": 2}, ["a", "c"]),
        ("a text", ["a", "tex", "x"]),
    ],
)
def test_what_is_found_is_what_python_finds(xs: Any, wanted: list[Any]) -> None:
    assert sent(SEARCH, xs=xs, wanted=wanted) == {"found": sum(x in xs for x in wanted)}


def test_searching_long_texts_is_paid_for() -> None:
    alike = [f"{'a' * 10_000}{n}" for n in range(20)]
    result = shown(SEARCH, xs=alike, wanted=alike * 4)
    assert isinstance(result, Stopped)
    assert result.kind == "steps"
    cheap = shown(SEARCH, xs=["b"] * 20, wanted=alike * 4)
    assert isinstance(cheap, Completed)
    assert cheap.steps < 1_000
