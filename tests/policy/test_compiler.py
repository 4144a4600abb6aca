"""Texts become functions once, and keep their own lines and columns."""

import dis
import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Final

import msgspec
import pytest

from rove.bench.policy.cases import icu
from rove.policy import compiler
from rove.policy.compiler import (
    Policy,
    compile_text,
    compiled,
    known,
    named_instructions,
    verify,
)
from rove.policy.errors import PolicyError
from rove.policy.limits import PolicyLimits
from rove.policy.messages import Completed, IncomingMessage
from rove.policy.runner import run

AUTOMATIC = "line 2: battery is an automatic variable; it can be read; choose another name"
METHOD = (
    "line 2: only functions of the library can be called; methods are get, set and remove of me"
    " and get of messages; else write f(x)"
)
PASS = "def arrived(m, me):\n    return m\n"


def test_the_same_source_is_compiled_once() -> None:
    assert compiled(PASS) is compiled(PASS)
    assert compiled(PASS) is not compiled(PASS + "\n")
    assert compiled(PASS).text == PASS


def test_not_more_are_kept_than_that() -> None:
    for number in range(compiler.KEPT_MAX + 50):
        compiled(f"# {number}\n{PASS}")
    gc.collect()
    assert len(compiler._known) == compiler.KEPT_MAX


def test_what_a_policy_uses_is_known() -> None:
    light = compiled('def arrived(m, me):\n    if len(m.s) > get("n", 1):\n        return m')
    assert light.uses == {"len", "get"}
    assert not light.is_heavy
    assert not light.changes_state
    assert not light.writes
    heavy = compiled("def arrived(m, me):\n    m.x = compress(m.x, quality=5)\n    return m")
    assert heavy.is_heavy
    assert heavy.writes
    for body in ('set("a", 1)', 'remove("a")', "me.a = 1", "me.a += 1", "del me.a", 'me["a"] = 1'):
        assert compiled(f"def arrived(m, me):\n    {body}").changes_state
    for body in ("m.a = 1", "del m.a", "set_data(m, m)", "x = m\n    x.a = 1"):
        assert compiled(f"def arrived(m, me):\n    {body}").writes
    assert compiled('def arrived(m, me):\n    me.set("a", 1)').uses == {"set"}
    assert "arrived" in repr(light)


@pytest.mark.parametrize(
    "text",
    [
        PASS,
        '"""Why."""\n\nLOW, HIGH = -0.5, 3\nNAMES = ("a", ["b"], None)\n\n' + PASS,
        "def arrived(m, me):\n    '''Only a docstring.'''",
        "def arrived(m, me):\n    pass",
        "def arrived(m, me): return m",
        "def arrived(m, me):\r\n    return m\r\n",
        "def arrived(m, me):\n\treturn m",
        "\ufeff" + PASS,
        "# -*- coding: latin-1 -*-\n" + PASS,
        "def arrived(m, me):\n    x = (1 +\n        2)\n    return m if \\\n        x else None",
        "def arrived(m, me):\n    größe = m.größe\n    return message(größe=größe)",
        "def arrived(m, me):\n    x = '\\d'\n    return m",
        "def arrived(m, me):\n    return m if 5 is None else None",
        "def arrived(m, me):\n    x = 1; y = 2; return m",
        "def arrived(m, me,):\n    return [m,]",
        "def arrived(m, me):\n" + "".join(f"    x{n} = {n}\n" for n in range(400)) + "    return m",
        "def arrived(m, me):\n    if m.a == 0:\n        return m\n"
        + "".join(f"    elif m.a == {n}:\n        return m\n" for n in range(60)),
    ],
    ids=lambda text: repr(text[-30:]),
)
def test_all_of_this_is_a_policy(text: str) -> None:
    result = run(compiled(text), IncomingMessage("t", b'{"a": 5}'), {}, {}, 0.0, PolicyLimits())
    assert isinstance(result, Completed)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "x = 1\n    import os",
            "line 3: there is nothing to import; all functions are there already|import os|^",
        ),
        (
            "return lenght(m.xs)",
            "line 2: there is no function lenght; did you mean len?|return lenght(m.xs)|       ^",
        ),
        (
            "'é' == 'é'",
            "line 2: this does nothing; call a function, or give it a name|'é' == 'é'|^",
        ),
        (
            "person = 1\n    x = 'é' == persno",
            "line 3: nothing is called persno; did you mean person?|x = 'é' == persno|           ^",
        ),
        ("x = (1", "line 2: this is no Python: '(' was never closed|x = (1|    ^"),
        ("me.battery = 1", f"{AUTOMATIC}|me.battery = 1|^"),
        ("x = m.s.upper()", f"{METHOD}|x = m.s.upper()|    ^"),
    ],
)
def test_refusals_say_where_and_what_would_be_right(body: str, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        compiled(f"def arrived(m, me):\n    {body}")
    assert str(caught.value) == message.replace("|", "\n      ")


def test_a_text_may_be_just_as_long_as_allowed() -> None:
    assert isinstance(compiled(PASS, bytes_max=len(PASS)), Policy)
    with pytest.raises(PolicyError, match="at most"):
        compiled(PASS, bytes_max=len(PASS) - 1)
    with pytest.raises(PolicyError, match="at most"):
        compiled(PASS + "#é", bytes_max=len(PASS) + 2)


def test_the_code_knows_no_builtins() -> None:
    for text in (PASS, "def arrived(m, me):\n    return message(x=len(m.s) * 2)"):
        place = compiled(text).function.__globals__
        assert place["__builtins__"] == {}
        assert sys.modules not in place.values()


def _reversed(count: int) -> list[str]:
    """Each variable gets its value from one that gets its own later."""
    return ["x0 = 1.5", *(f"x{n} = x{n + 1}" for n in range(count)), f"x{count} = x0 + 1"]


SHAPES: Final[dict[str, tuple[Callable[[int], list[str]], int]]] = {
    "reversed assignments": (_reversed, 140),
    "reversed in a loop": (
        lambda count: ["while True:", *(f"    {line} + x1" for line in _reversed(count))],
        90,
    ),
    "sums of everything": (
        lambda count: [
            *(f"v{n} = 1" for n in range(count // 8)),
            "while True:",
            *(
                f"    v{n} = {' + '.join(f'v{k}' for k in range(count // 8))}"
                for n in range(count // 40)
            ),
        ],
        120,
    ),
    "products": (lambda count: ["x = m.a", *["x = x * x * x * x"] * count], 40),
    "comparisons": (lambda count: ["x = " + " < ".join(["m.a"] * count)], 200),
    "named arguments": (
        lambda count: ["x = message(" + ", ".join(f"a{n}=1" for n in range(count)) + ")"],
        240,
    ),
    "branches": (lambda count: [f"if m.x > {n}: y{n} = m.x - 1" for n in range(count)], 50),
}
"""Lines of a policy by how many there are of them, and so many that twice as many are allowed."""


@pytest.mark.parametrize("shape", SHAPES)
def test_compiling_is_linear_in_the_text(shape: str) -> None:
    lines, count = SHAPES[shape]
    texts = ["def arrived(m, me):\n    " + "\n    ".join(lines(n)) for n in (count, 2 * count)]
    short, long = map(_calls_to_compile, texts)
    growth = len(texts[1]) / len(texts[0])
    assert long <= 1.25 * growth * short, (short, long)


def _calls_to_compile(text: str) -> int:
    """Calls of Python's functions and of C's: work, whatever the machine does meanwhile."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        compile_text(text, 8192)
    finally:
        sys.setprofile(before)
    return calls


def test_what_a_worker_compiled_is_read_when_it_first_runs() -> None:
    text = PASS + "# by a worker"
    assert known(text) is None
    policy = compiled(text, code=compile_text(text, 8192))
    assert known(text) is policy
    result = run(policy, IncomingMessage("t", b"{}"), {}, {}, 0.0, PolicyLimits())
    assert isinstance(result, Completed)
    assert result.passes
    # Where it is never run, as in a broker with workers for all calls, it may be anything.
    broken = Policy(text, msgspec.structs.replace(policy.code, program=b"no program"))
    assert (broken.uses, broken.is_heavy) == (frozenset(), False)
    with pytest.raises((ValueError, EOFError, TypeError)):
        broken.read()


# -- verification ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["m.__dict__", "m.changes", "open", "lambda: m", "[x for x in m]", "__import__('os')"],
)
def test_foreign_code_is_refused(text: str) -> None:
    names: dict[str, object] = {}
    exec(f"def arrived(m, me, _call):\n    return {text}", names)
    with pytest.raises(AssertionError):
        verify(names["arrived"].__code__, frozenset({"m"}))  # type: ignore[attr-defined]


def test_instructions_are_those_of_dis() -> None:
    code = compiled(icu()).function.__code__
    told = {
        (one.opname, one.argval) for one in dis.get_instructions(code) if one.opcode in dis.hasname
    }
    assert set(named_instructions(code)) == told
    assert len(told) > 10


def test_names_beyond_the_256th_are_read_too() -> None:
    names: dict[str, object] = {}
    exec(f"def f():\n    return [{', '.join(f'n{n}, n{n}.a{n}' for n in range(600))}]", names)
    code = names["f"].__code__  # type: ignore[attr-defined]
    found = {name for _, name in named_instructions(code)}
    assert found == {f"{letter}{n}" for letter in "na" for n in range(600)}
