"""What is read once instead of over and over, and what has to be read again."""

import ast
import json
from typing import Any

import pytest

from rove.policy.compiling import compiled
from rove.policy.hoisting import hoisted, lists_searched_in_loops
from rove.policy.jobs import Outcome, Stopped, Wanted
from rove.policy.limits import PolicyLimits
from rove.policy.messages import Arrived
from rove.policy.running import run


def body_of(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def lines(text: str) -> list[str]:
    return ast.unparse(ast.Module(hoisted(body_of(text)), [])).splitlines()


def shown(body: str, **attributes: object) -> Outcome | Stopped | Wanted:
    text = "def arrived(m, me):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    payload = json.dumps(attributes).encode()
    return run(compiled(text), Arrived("t", payload), {}, {}, 0.0, PolicyLimits())


def sent(body: str, **attributes: object) -> Any:
    result = shown(body, **attributes)
    assert isinstance(result, Outcome), result
    return json.loads(result.outputs[0].payload)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = m.a + m.a", ["_m0 = m['a']", "x = _m0 + _m0"]),
        ("x = m.a + m['a']", ["_m0 = m['a']", "x = _m0 + _m0"]),
        ("x = m.a + m.b", ["x = m.a + m.b"]),
        ("for i in xs:\n    x = m.a", ["_m0 = m['a']", "for i in xs:", "    x = _m0"]),
        ("while m.a:\n    pass", ["_m0 = m['a']", "while _m0:", "    pass"]),
        ("for i in m.a:\n    pass", ["for i in m.a:", "    pass"]),
        ("x = m.get(m.a, m.a)", ["_m0 = m['a']", "x = m.get(_m0, _m0)"]),
        ("x = m.get + m.get", ["_m0 = m['get']", "x = _m0 + _m0"]),
        ("x = keep(m, m.a, m.a)", ["_m0 = m['a']", "x = keep(m, _m0, _m0)"]),
        ("x = f(by=m.a, per=m.a)", ["_m0 = m['a']", "x = f(by=_m0, per=_m0)"]),
        ("x = m.a.b + m.a.c", ["_m0 = m['a']", "x = _m0.b + _m0.c"]),
        ("x = me.a + me.a", ["x = me.a + me.a"]),
        ("x = m[i] + m[i]", ["x = m[i] + m[i]"]),
    ],
)
def test_what_is_read_often_is_read_once(text: str, expected: list[str]) -> None:
    assert lines(text) == expected


def test_it_is_read_where_it_is_first_needed() -> None:
    text = "if m.a:\n    return None\nx = m.b\nif m.a or m.b:\n    return m.c"
    assert lines(text)[:4] == ["_m0 = m['a']", "if _m0:", "    return None", "_m1 = m['b']"]


@pytest.mark.parametrize(
    "change",
    ["m.a = 2", "m['a'] = 2", "del m.a", "m.b = 2", "x = keep(m)\nx.a = 5", "set_data(m, m.o)"],
)
def test_who_changes_a_message_looks_again(change: str) -> None:
    text = f"x = m.a + m.a\n{change}\ny = m.a"
    assert lines(text) == ast.unparse(ast.parse(text)).splitlines()


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


# --- lists that are searched ------------------------------------------------------------------

LOOP = "for x in y:\n    z = x in xs"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"xs = m.xs\n{LOOP}", {"xs"}),
        ("xs = m.xs\nwhile y:\n    z = y not in xs", {"xs"}),
        ("xs = m.xs\nz = 1 in xs", set()),
        (f"xs = m.xs\n{LOOP}\nxs = m.ys", set()),
        (f"xs = m.xs\nxs += m.ys\n{LOOP}", set()),
        (f"{LOOP}\nxs = m.xs", set()),
        (f"if y:\n    xs = m.xs\n{LOOP}", set()),
        (f"xs, ys = m.xs, m.ys\n{LOOP}", set()),
        ("for xs in m.xs:\n    z = 1 in xs", set()),
        ("xs = m.xs\nfor x in y:\n    z = x in m.ys", set()),
    ],
)
def test_only_lists_that_stay_what_they_are(text: str, found: set[str]) -> None:
    assert lists_searched_in_loops(body_of(text)) == found


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
    assert isinstance(cheap, Outcome)
    assert cheap.steps < 1_000
