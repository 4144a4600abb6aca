"""No policy gets out, gets hold of anything of the host, or uses more than it may.

Each case is one trick, with its own test. It is refused when it is set, or stopped when it runs;
what is stopped keeps its limits of steps and memory, and leaves no trace.
"""

import base64
import io
import json
import struct
import tracemalloc
import zlib

import pytest

from rove.policy.compiler import compiled
from rove.policy.errors import PolicyError
from rove.policy.jobs import Deferred, Stopped
from rove.policy.limits import PolicyLimits
from rove.policy.messages import Completed, IncomingMessage
from rove.policy.runner import run

LIMITS = PolicyLimits()
PAYLOAD = b'{"n": 7, "s": "text", "xs": [1, 2, [3]], "o": {"p": {"q": 5}}}'
PEAK_BYTES_MAX = 6 * LIMITS.memory_bytes_max
"""Python needs more than what is counted: objects have heads, and a sum is there with its parts."""


def policy_of(body: str) -> str:
    return "def arrived(m, me):\n" + "".join(f"    {line}\n" for line in body.splitlines())


def outcome(
    body: str, payload: bytes = PAYLOAD, limits: PolicyLimits = LIMITS
) -> Completed | Stopped | Deferred:
    arrived = IncomingMessage("ward/3", payload, [("from", "elsewhere")])
    before = repr(arrived.attributes)
    result = run(compiled(policy_of(body)), arrived, {"v": [1]}, {}, 1000.0, limits)
    assert repr(arrived.attributes) == before
    return result


LARGE = "x = [1]\nfor i in range(99):\n    x = [x, x]\n"
TUPLE = "x = (1,)\nfor i in range(99):\n    x = (x, x)\n"
TWINS = LARGE + "y = [1]\nfor i in range(99):\n    y = [y, y]\n"
"""Values of a hundred lists, and 2 to the 99th elements."""

REFUSED = {
    # attributes and names that begin with _
    "dunder attribute": "x = m.__class__",
    "dunder of a literal": 'x = "".__class__',
    "dunder of a number": "x = (1).__class__.__base__",
    "dunder of a list": "x = [].__class__.__subclasses__",
    "dunder called": "m.__init__()",
    "dunder of me": "x = me.__dict__",
    "dunder written": "m.__class__ = 1",
    "dunder written on me": "me.__class__ = 1",
    "dunder removed": "del m.__class__",
    "dunder in an f-string": 'x = f"{m.__class__}"',
    "dunder deep in an f-string": "x = f\"{f'{m.__class__}'}\"",
    "dunder as keyword": "message(__class__=1)",
    "dunder as keyword of me.get": 'me.get("x", __default=1)',
    "dunder name read": "x = __builtins__",
    "dunder name called": '__import__("os")',
    "dunder name assigned": "__builtins__ = 1",
    "dunder as loop variable": "for __x in m.xs:\n    pass",
    "dunder unpacked": "a, __b = m.xs",
    "dunder augmented": "__x += 1",
    "our own hidden names": "_call = 1",
    "our own call": 'x = _call.changes',
    "our own fuel": "_left = 1000000",
    "our own globals": "x = _float",
    "one underscore": "x = m._private",
    "underscore alone": "_ = 1",
    # names that are no names after normalisation
    "wide underscores": "x = m.＿＿class＿＿",
    "wide dunder name": "x = ＿＿import＿＿",
    "wide library name": "ｇet = 1",
    "italic library name": "𝑙𝑒𝑛 = 1",
    "italic m": "𝑚 = 1",
    "italic me": "x = 𝑚𝑒",
    # functions of Python
    "eval": 'eval("1")',
    "exec": 'exec("x = 1")',
    "open": 'open("/etc/passwd")',
    "getattr": 'getattr(m, "x")',
    "type": "type(m)",
    "globals": "globals()",
    "vars": "vars(m)",
    "print": "print(m)",
    "super": "super()",
    "iter": "x = iter(m.xs)",
    "next": "x = next(m.xs)",
    "map": "x = map(len, m.xs)",
    "dict": "x = dict(m)",
    "list": "x = list(m.xs)",
    "function as a value": "x = len",
    "function in a list": "x = [len, abs]",
    "function as an argument": "x = sorted(len)",
    "function compared": "x = len == abs",
    "function attribute": "x = len.__self__",
    "function called twice": "x = len(m)(1)",
    "arrived called": "arrived(m, me)",
    "arrived as a value": "x = arrived",
    "result called": "m.s()",
    "literal called": '"x"()',
    "range as a value": "x = range(10)",
    "range in a list": "x = [range(10 ** 18)]",
    "range measured": "x = len(range(10))",
    "sum of a range": "x = sum(range(10 ** 18))",
    # methods
    "format": 'x = "{0.__class__}".format(m)',
    "format_map": 'x = "{a.__class__}".format_map(m)',
    "encode": 'x = "a".encode()',
    "append": "m.xs.append(m.xs)",
    "pop": "m.pop()",
    "update": "m.update(m)",
    "clear": "m.clear()",
    "items": "x = m.items()",
    "setdefault": 'm.setdefault("a", [])',
    "me as a mapping": "me.update(m)",
    "me pop": 'me.pop("v")',
    "method chained": 'x = m.o.get("p")',
    # me and m themselves
    "me as a value": "x = me",
    "me returned": "return me",
    "me in a list": "x = [me]",
    "me passed on": 'keep(me, "v")',
    "me assigned": "me = m",
    "m assigned": "m = 1",
    "m as loop variable": "for m in m.xs:\n    pass",
    "m unpacked": "m, x = m.xs",
    "m augmented": "m += 1",
    "m deleted": "del m",
    "a local deleted": "x = 1\ndel x",
    "nested assignment": "m.o.p = 1",
    "assignment to an element": "m.xs[0] = 1",
    "assignment to a slice": "m[1:2] = 1",
    "assignment to a call": "message().x = 1",
    # automatic variables
    "automatic set": 'set("battery", 1)',
    "automatic assigned": "me.battery = 1",
    "automatic by method": 'me.set("network", 1)',
    "automatic by subscript": 'me["display"] = 1',
    "automatic removed": 'remove("connected")',
    "automatic deleted": "del me.connected_at",
    "automatic augmented": "me.protocol += 1",
    # shadowing
    "shadowed len": "len = 1",
    "shadowed get": "get = 1",
    "shadowed by for": "for set in m.xs:\n    pass",
    "shadowed by unpacking": "now, then = m.xs",
    "deleted len": "del len",
    "augmented len": "len += 1",
    # statements
    "import": "import os",
    "import from": "from os import path",
    "import star": "from os import *",
    "class": "class A:\n    pass",
    "inner function": "def inner():\n    pass",
    "recursion": "def inner():\n    inner()",
    "async": "async def inner():\n    pass",
    "lambda": "x = lambda: 1",
    "lambda that calls itself": "x = (lambda f: f(f))(lambda f: f(f))",
    "generator": "yield m",
    "generator from": "yield from m.xs",
    "await": "await m",
    "list comprehension": "x = [a for a in m.xs]",
    "set comprehension": "x = {a for a in m.xs}",
    "dict comprehension": "x = {a: a for a in m.xs}",
    "generator expression": "x = sum(a for a in m.xs)",
    "try": "try:\n    x = 1 / 0\nexcept:\n    pass",
    "try finally": "try:\n    return m\nfinally:\n    x = 1",
    "try star": "try:\n    x = 1\nexcept* ValueError:\n    pass",
    "raise": "raise m",
    "assert": "assert m",
    "with": "with m as x:\n    pass",
    "global": "global x",
    "nonlocal": "nonlocal m",
    "match": "match m:\n    case {}:\n        pass",
    "walrus": "x = (y := 1)",
    "walrus in a condition": "if (len := 1):\n    pass",
    "star argument": "message(*m.xs)",
    "double star argument": "message(**m)",
    "star target": "a, *b = m.xs",
    "star in a list": "x = [*m.xs]",
    "annotation": "x: int = 1",
    "annotation that runs": 'x: __import__("os") = 1',
    "two targets": "x = y = 1",
    "for else": "for x in m.xs:\n    pass\nelse:\n    pass",
    "while else": "while False:\n    pass\nelse:\n    pass",
    "expression alone": "m.s",
    "text alone in the middle": 'x = 1\n"text"',
    # expressions
    "set display": "x = {1, 2}",
    "dict display": 'x = {"a": 1}',
    "dict unpacked": "x = message({**m})",
    "dict with other keys": "x = message({1: 2})",
    "dict with keys worked out": "x = message({m.s: 2})",
    "complex": "x = 3j",
    "ellipsis": "x = ...",
    "huge literal": "x = " + "9" * 30,
    "literal with too many digits": "x = " + "9" * 5000,
    "is": "x = m is m",
    "is with a number": "x = m.n is 7",
    "is not": 'x = m.s is not "text"',
    "format spec": 'x = f"{m.n:1000000000}"',
    "nested format spec": 'x = f"{m.n:{m.n}}"',
    "conversion": 'x = f"{m.n!r}"',
    "debug f-string": 'x = f"{m.n=}"',
    "shift": "x = 1 << 1000000000",
    "augmented shift": "x = 1\nx <<= 1000000000",
    "bit and": "x = m.n & 1",
    "bit or": "x = m.n | 1",
    "bit xor": "x = m.n ^ 1",
    "inversion": "x = ~m.n",
    "matrix product": "x = m.n @ m.n",
    "unary plus": "x = +m.n",
    "break outside of a loop": "break",
    "continue outside of a loop": "continue",
    "keyword that does not exist": 'get("x", other=1)',
    "argument twice": 'get("x", 1, default=2)',
    "too many arguments": "len(m, m)",
    "compress without an aim": "x = compress(m.s)",
}  # fmt: skip


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_it_is_refused(body: str) -> None:
    with pytest.raises(PolicyError) as caught:
        compiled(policy_of(body))
    assert caught.value.what
    assert "\n" in str(caught.value), "it shows the place"


WHOLE = {
    "nothing": "",
    "only a comment": "# nothing",
    "no function": "x = 1",
    "another function": "def other(m, me):\n    return m",
    "two functions": "def arrived(m, me):\n    return m\ndef arrived(m, me):\n    return m",
    "other parameters": "def arrived(message, state):\n    return message",
    "parameters swapped": "def arrived(me, m):\n    return m",
    "defaults": "def arrived(m, me=1):\n    return m",
    "star parameters": "def arrived(m, me, *rest):\n    return m",
    "double star parameters": "def arrived(m, me, **rest):\n    return m",
    "keyword parameters": "def arrived(m, *, me):\n    return m",
    "positional parameters": "def arrived(m, me, /):\n    return m",
    "annotated parameters": "def arrived(m: dict, me):\n    return m",
    "annotation that runs": 'def arrived(m, me) -> __import__("os"):\n    return m',
    "decorator": "@print\ndef arrived(m, me):\n    return m",
    "async": "async def arrived(m, me):\n    return m",
    "lambda": "arrived = lambda m, me: m",
    "import before": "import os\ndef arrived(m, me):\n    return m",
    "call before": "print(1)\ndef arrived(m, me):\n    return m",
    "constant worked out": "X = 10 ** 10\ndef arrived(m, me):\n    return m",
    "constant of a call": "X = len([])\ndef arrived(m, me):\n    return m",
    "constant mapping": "X = {}\ndef arrived(m, me):\n    return m",
    "constant that is a function": "len = 1\ndef arrived(m, me):\n    return m",
    "constant that is m": "m = 1\ndef arrived(m, me):\n    return m",
    "constant with _": "_call = 1\ndef arrived(m, me):\n    return m",
    "constant twice": "X = 1\nX = 2\ndef arrived(m, me):\n    return m",
    "constant of another": "X = 1\nY = X\ndef arrived(m, me):\n    return m",
    "constant assigned inside": "X = 1\ndef arrived(m, me):\n    X = 2",
    "constant augmented": "X = 1\nX += 1\ndef arrived(m, me):\n    return m",
    "statement after": "def arrived(m, me):\n    return m\narrived(1, 2)",
    "null character": "def arrived(m, me):\n    return m\0",
    "half a surrogate pair": "def arrived(m, me):\n    return '\ud800'",
    "escaped surrogate": "def arrived(m, me):\n    return message(x='\\ud800')",
    "surrogate in an f-string": "def arrived(m, me):\n    return message(x=f'\\ud800{m.s}')",
    "mixed tabs and spaces": "def arrived(m, me):\n        if m:\n\treturn m",
    "unclosed": "def arrived(m, me):\n    return (m",
    "too long": "def arrived(m, me):\n    return m\n#" + "x" * 20_000,
    "too many statements": policy_of("\n".join(["x = 1"] * 2_400)),
    "parentheses": policy_of("x = " + "(" * 5_000 + "1" + ")" * 5_000),
    "brackets": policy_of("x = " + "[" * 190 + "]" * 190),
    "minuses": policy_of("x = " + "-" * 10_000 + "1"),
    "nots": policy_of("x = " + "not " * 3_000 + "1"),
    "a long sum": policy_of("x = " + "+".join(["m.n"] * 3_000)),
    "a long chain of members": policy_of("x = m" + ".a" * 7_000),
    "a long chain of indices": policy_of("x = m" + "[0]" * 5_000),
    "a long chain of calls": policy_of("x = " + "len(" * 3_000 + "m" + ")" * 3_000),
    "ifs in ifs": policy_of("\n".join(" " * depth + "if m:" for depth in range(120)) + "return"),
    "fors in fors": policy_of("\n".join(" " * d + f"for x{d} in m:" for d in range(25)) + "return"),
    "conditions in conditions": policy_of("x = " + "1 if m else " * 1_000 + "2"),
    "f-strings in f-strings": policy_of("x = f\"{f'{m.s}' + f'{__import__}'}\""),
}  # fmt: skip


@pytest.mark.parametrize("text", WHOLE.values(), ids=WHOLE)
def test_the_text_is_refused(text: str) -> None:
    with pytest.raises(PolicyError):
        compiled(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 500_000,
        "-" * 500_000,
        "m" + ".a" * 200_000,
        "1" + "+1" * 200_000,
        "not " * 100_000,
        "f" * 500_000,
        "'" * 500_001,
        "\n" * 500_000 + "x",
        "x" + ";x" * 50_000,
        "if m:\n" * 50_000,
        "\\\n" * 200_000,
    ],
    ids=lambda text: repr(text[:10]),
)
def test_a_huge_text_is_refused(text: str) -> None:
    with pytest.raises(PolicyError):
        compiled(text, bytes_max=10**6)


STOPPED = {
    # loops of every form
    "while True": ("while True:\n    pass", "steps"),
    "while with continue": ("while True:\n    continue", "steps"),
    "while with a break that never comes": (
        "x = 0\nwhile True:\n    x = 1 - x\n    if x > 1:\n        break", "steps"),
    "while on a text": ('while "x":\n    pass', "steps"),
    "while in while": ("while True:\n    while True:\n        break", "steps"),
    "for over a huge range": ("for i in range(10 ** 18):\n    pass", "steps"),
    "for over a range beyond 64 bits": ("for i in range(2 ** 200):\n    pass", "steps"),
    "for over a range backwards": ("for i in range(10 ** 18, 0, -1):\n    pass", "steps"),
    "for that can return": ("for i in range(10 ** 18):\n    if i < 0:\n        return m", "steps"),
    "for with continue": ("for i in range(10 ** 9):\n    continue", "steps"),
    "nested fors": (
        "for a in range(999):\n  for b in range(999):\n    for c in range(999):\n      pass",
        "steps"),
    "nested fors that break": (
        "for a in range(1000):\n    for b in range(1000):\n        if b > 998:\n            break",
        "steps"),
    "for over a range that is set in the loop": (
        "n = 10\nfor i in range(n):\n    n = n * 9\nfor j in range(n):\n    n = n + 1", "steps"),
    "loop with a long body": ("for i in range(99999):\n" + "    x = 1\n" * 400, "steps"),
    "loop over a text made long": ('s = "x" * 1000000\nfor c in s:\n    pass', "steps"),
    "loop of one long function": ('s = "x" * 100000\nwhile True:\n    t = find(s, "y")', "steps"),
    "loop of comparisons": (
        's = "x" * 1000000\nt = "x" * 1000000\nwhile not s != t:\n    pass', "steps"),
    "loop of orderings": (
        's = "x" * 1000000\nt = "x" * 1000000\nwhile s <= t:\n    pass', "steps"),
    "loop of in": ('xs = [0] * 100000\nwhile 1 not in xs:\n    pass', "steps"),
    "loop of sorting": ("xs = [3, 1, 2] * 10000\nwhile True:\n    ys = sorted(xs)", "steps"),
    "loop of sums": ("xs = [1] * 100000\nwhile True:\n    y = sum(xs)", "steps"),
    "loop of slices": ('s = "x" * 100000\nwhile True:\n    t = s[1:]', "steps"),
    "loop of upper": ('s = "x" * 100000\nwhile True:\n    t = upper(s)', "steps"),
    "loop of messages": ("while True:\n    x = message(a=1)", "steps"),
    "loop of writing": ("i = 0\nwhile True:\n    i += 1\n    m[str(i)] = i", "steps"),
    "loop of setting": ("i = 0\nwhile True:\n    i += 1\n    set(str(i), i)", "steps"),
    "loop of every": ("i = 0\nwhile True:\n    i += 1\n    x = every(10, per=i)", "steps"),
    "loop of changed": ('i = 0\nwhile True:\n    i += 1\n    x = changed("n", per=i)', "steps"),
    "loop of f-strings": ('while True:\n    x = f"{m.xs}"', "steps"),
    "loop of copies": ("while True:\n    x = keep(m)", "steps"),
    # numbers
    "tower": ("x = 9 ** 9 ** 9", "error"),
    "tower of names": ("x = 10\nx = x ** x\nx = x ** x", "error"),
    "negative tower": ("x = (-9) ** 99999", "error"),
    "squares": ("x = m.n\nfor i in range(100):\n    x = x * x", "error"),
    "squares without a loop": ("x = m.n\n" + "x = x * x\n" * 100, "error"),
    "squares by **": ("x = 7\nfor i in range(100):\n    x = x ** 2", "error"),
    "doublings": ("x = m.n\nwhile True:\n    x = x + x", "error"),
    "doublings by minus": ("x = 7\nwhile True:\n    x = x - (0 - x)", "error"),
    "fibonacci": ("a, b = 1, 1\nwhile True:\n    a, b = a + b, a", "error"),
    "factorial": ("x = 1\nfor i in range(1, 100000):\n    x = x * i", "error"),
    "factorial of small steps": ("x = 1\nwhile True:\n    x = x * 65536", "error"),
    "factorial in the state": (
        'set("x", 3)\nwhile True:\n    set("x", get("x") * get("x"))', "error"),
    "factorial in the message": ("m.x = 3\nwhile True:\n    m.x = m.x * m.x", "error"),
    "factorial in a list": ("xs = [3]\nwhile True:\n    xs = [xs[0] * xs[0]]", "error"),
    "augmented squares": ("x = 7\nwhile True:\n    x *= x", "error"),
    "augmented powers": ("x = 7\nwhile True:\n    x **= 2", "error"),
    "a large float to an integer": ("x = int(1e308)", "error"),
    "a large float rounded": ("x = round(1e308)", "error"),
    "below a large float": ("x = floor(1e308)", "error"),
    "above a large float": ("x = ceil(m.n * 1e300)", "error"),
    "a number of a text with too many digits": ('x = int("9" * 100)', "error"),
    "complex by a root": ("x = (-8) ** 0.5", "error"),
    "rounding to a billion digits": ("x = round(7, -1000000000)", "error"),
    "rounding by a name": ("d = -(10 ** 9)\nx = round(m.n, d)", "error"),
    "a number of a long text": ('x = int("9" * 100000)', "error"),
    "a float of a long text": ('x = float("9" * 100000)', "error"),
    "sum of large ones": ("x = 2 ** 255\nxs = [x] * 100\ny = sum(xs)", "error"),
    "float overflow": ("x = 10.0 ** 400", "error"),
    "zero division": ("x = 1 / 0", "error"),
    "zero modulo": ("x = m.n % 0", "error"),
    "infinity to an integer": ("x = int(1e308 * 10)", "error"),
    "no number to an integer": ("y = 1e308 * 10\nx = round(y - y)", "error"),
    "root of a negative": ("x = sqrt(-1)", "error"),
    "too large to send": ("return message(x=2 ** 64)", "error"),
    "too large to keep": ("me.x = 2 ** 64", "error"),
    "infinity to send": ("m.x = 1e308 * 10\nreturn m", "error"),
    "infinity to keep": ("me.x = 1e308 * 10", "error"),
    "infinity in a list to keep": ("me.x = [1e308 * 10]", "error"),
    # texts and bytes
    "repeated text": ('x = "ab" * 1000000000', "memory"),
    "repeated text by a name": ("x = m.s * 1000000000", "memory"),
    "repeated the other way": ("x = 1000000000 * m.s", "memory"),
    "repeated by a number of the message": ("x = m.s * (m.n * 100000000)", "memory"),
    "repeated bytes": ('x = b"ab" * 1000000000', "memory"),
    "repeated list": ("x = [0] * 1000000000", "memory"),
    "repeated tuple": ("x = (0, 1) * 1000000000", "memory"),
    "repeated empty beyond 64 bits": ('x = "a" * 2 ** 100', "memory"),
    "repeated wide": ('x = "€" * 5000000', "memory"),
    "augmented repetition": ("x = m.s\nx *= 1000000000", "memory"),
    "doubled text": ("x = m.s\n" + "x = x + x\n" * 100, "memory|steps"),
    "doubled text in a loop": ("x = m.s\nwhile True:\n    x = x + x", "memory|steps"),
    "doubled text augmented": ("x = m.s\nwhile True:\n    x += x", "memory|steps"),
    "doubled by an f-string": ('x = m.s\nwhile True:\n    x = f"{x}{x}"', "memory|steps"),
    "doubled by join": ("x = m.s\nwhile True:\n    x = join([x, x])", "memory|steps"),
    "join with a long separator": (
        's = "x" * 100000\nxs = ["a"] * 10000\nx = join(xs, s)', "memory|steps"),
    "replace with something long": ('s = "x" * 100000\nx = replace(s, "x", s)', "memory|steps"),
    "replace nothing with something long": (
        's = "x" * 100000\nx = replace(s, "", s)', "memory|steps"),
    "split into a million": ('x = split("a " * 500000)', "memory|steps"),
    "split by a letter": ('x = split("aa" * 500000, "a")', "memory|steps"),
    "doubled list": ("x = [1]\nwhile True:\n    x = x + x", "memory|steps"),
    "doubled list augmented": ("x = m.xs\nwhile True:\n    x += x", "memory|steps"),
    "doubled bytes": ('x = b"a"\nwhile True:\n    x = x + x', "memory|steps"),
    "text of a list made long": ('x = [m.s * 1000] * 10000\ny = str(x)', "memory|steps"),
    "many long texts": (
        'xs = []\nfor i in range(1000):\n    xs = xs + ["x" * 100000]', "memory|steps"),
    "percent format": ('x = "%1000000000d" % 5', "error"),
    "percent format of a name": ("x = m.s % m.n", "error"),
    "percent format of bytes": ('x = b"%1000000000d" % 5', "error"),
    "percent format of a tuple": ('x = "%s%s" % (1, 2)', "error"),
    "augmented percent format": ('x = "%1000000000d"\nx %= 5', "error"),
    # structures that are larger than they look
    "exponential list compared": (
        TWINS + "z = x == y",
        "steps"),
    "exponential list ordered": (
        TWINS + "z = x < y", "steps"),
    "exponential list as text": (LARGE + "y = str(x)", "steps"),
    "exponential list in an f-string": (
        LARGE + 'y = f"{x}"', "steps"),
    "exponential list sent": (
        LARGE + "return message(x=x)", "steps"),
    "exponential list written": (LARGE + "m.x = x", "steps"),
    "exponential list kept": (LARGE + "me.x = x", "steps"),
    "exponential list found": (
        TWINS + "z = x in [y]", "steps"),
    "exponential list sorted": (
        TWINS + "z = sorted([x, y])", "steps"),
    "exponential list by min": (
        TWINS + "z = min(x, y)", "steps"),
    "exponential tuple as an index": (
        TUPLE + "y = m[x]", "error"),
    "exponential tuple as a name": (
        TUPLE + "y = get(x)", "error"),
    "exponential tuple in a message": (
        TUPLE + "if x in m:\n    return m\nm[x] = 1", "error"),
    "exponential list as per": (
        LARGE + "y = every(5, per=x)", "steps"),
    "exponential list by data": (
        LARGE + "y = message({'x': x})", "steps"),
    "deep list compared": (
        "x = [1]\ny = [1]\nfor i in range(5000):\n    x = [x]\n    y = [y]\nz = x == y", "error"),
    "deep list as text": ("x = [1]\nfor i in range(5000):\n    x = [x]\ny = str(x)", "error"),
    "deep list sent": ("x = [1]\nfor i in range(5000):\n    x = [x]\nreturn message(x=x)", "error"),
    "a message in itself": ("m.m = m", "error"),
    "a message in a list in itself": ("m.m = [[m]]", "error"),
    "a message in another": ("x = message()\nx.m = m", "error"),
    "a message made of itself": ("x = message(m=m)", "error"),
    "a message in the state": ("me.m = m", "error"),
    "a message in a list in the state": ("me.m = [message()]", "error"),
    "a message as data": ("x = message()\nset_data(x, message(a=[1]))\nset_data(m, [x])", "error"),
    # what cannot be changed
    "element of a list": ("xs = m.xs\nxs[0] = 9", "error"),
    "member of a mapping": ("o = m.o\no.p = 9", "error"),
    "member of data": ("d = data(m)\nd.n = 9", "error"),
    "element removed": ("xs = m.xs\ndel xs[0]", "error"),
    "letter of a text": ('s = "text"\ns[0] = "x"', "error"),
    # odd values in odd places
    "unhashable name": ("m[[1]] = 1", "error"),
    "number as a name": ("m[1] = 1", "error"),
    "None as a name": ("set(None, 1)", "error"),
    "list as a variable's name": ("set([1], 1)", "error"),
    "bytes in the state": ('me.x = b"x"', "error"),
    "bytes in a list in the state": ('me.x = [b"x"]', "error"),
    "through a number": ("for x in m.n:\n    pass", "error"),
    "through None": ("for x in m.nothing:\n    pass", "error"),
    "in a number": ("x = 1 in m.n", "error"),
    "number in a text": ("x = 1 in m.s", "error"),
    "length of a number": ("x = len(m.n)", "error"),
    "index of None": ("x = m.nothing[0]", "error"),
    "index too large": ("x = m.xs[99]", "error"),
    "text as an index": ('x = m.xs["a"]', "error"),
    "float as an index": ("x = m.xs[0.5]", "error"),
    "slice by a text": ('x = m.xs["a":]', "error"),
    "slice step of zero": ("x = m.xs[::0]", "error"),
    "slice of a mapping": ("x = m[1:2]", "error"),
    "unpacking too many": ("a, b = m.xs", "error"),
    "unpacking a number": ("a, b = m.n", "error"),
    "used before it has a value": ("if m.n > 100:\n    x = 1\ny = x", "error"),
    "None compared": ("x = m.nothing < 1", "error"),
    "text compared with a number": ("x = m.s < 1", "error"),
    "chained comparison with None": ("x = 0 < m.nothing < 1", "error"),
    "message plus message": ("x = m + m", "error"),
    "minus a text": ("x = -m.s", "error"),
    "text times a float": ("x = m.s * 1.5", "error"),
    "sorted mixture": ('x = sorted([1, "a"])', "error"),
    "smallest of nothing": ("x = min([])", "error"),
    "sum of texts": ('x = sum(["a"])', "error"),
    "sum of lists": ("x = sum([[1], [2]])", "error"),
    "join of numbers": ("x = join([1])", "error"),
    "split by nothing": ('x = split("a", "")', "error"),
    "keep of no message": ('x = keep(5, "a")', "error"),
    "keep by a number": ("x = keep(m, 5)", "error"),
    "every of nothing": ("x = every(0)", "error"),
    "every of a text": ('x = every("5")', "error"),
    "every of infinity": ("x = every(1e308 * 10)", "error"),
    "hour of a text": ('x = hour("5")', "error"),
    "hour of infinity": ("x = hour(1e308 * 10)", "error"),
    # what comes out
    "number returned": ("return 5", "error"),
    "text returned": ('return "m"', "error"),
    "mapping returned": ("return m.o", "error"),
    "list of numbers returned": ("return [1]", "error"),
    "list of lists returned": ("return [[m]]", "error"),
    "None in a list returned": ("return [m, None]", "error"),
    "too many returned": ("return [m] * 17", "output"),
    "too much returned": ('return message(x="y" * 1100000)', "output"),
    "bytes beside others": ('m.payload = b"x"\nreturn m', "error"),
    "too much kept": ('me.x = "y" * 100000', "state"),
    "too much remembered": (
        'for i in range(2000):\n    x = every(10, per=f"a long name for something {i}")',
        "state|steps"),
    # pictures
    "no picture": ("x = compress(m.s, quality=50)", "error"),
    "no picture, bytes": ('x = compress(b"abc", quality=50)', "error"),
    "a number as a picture": ("x = compress(m.n, quality=50)", "error"),
    "quality of a text": ('x = compress(m.s, quality="5")', "error"),
    "quality below": ("x = compress(m.s, quality=0)", "error"),
    "size beyond": ("x = compress(m.s, bytes_max=1e308 * 10)", "error"),
}  # fmt: skip


@pytest.mark.parametrize("name", STOPPED)
def test_it_is_stopped(name: str) -> None:
    body, kind = STOPPED[name]
    policy = compiled(policy_of(body))
    arrived = IncomingMessage("ward/3", PAYLOAD)
    peak_bytes = 0
    if name.startswith(("loop", "while", "for", "nested")):  # watching memory makes these slow
        result = run(policy, arrived, {"v": [1]}, {}, 1000.0, LIMITS)
    else:
        tracemalloc.start()
        try:
            result = run(policy, arrived, {"v": [1]}, {}, 1000.0, LIMITS)
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert isinstance(result, Stopped), result
    assert result.kind in kind.split("|"), result
    assert result.steps <= LIMITS.steps_max
    assert result.text
    assert peak_bytes < PEAK_BYTES_MAX
    assert arrived.attributes == IncomingMessage("ward/3", PAYLOAD).attributes


def test_a_method_call_on_a_text_is_no_way_in() -> None:
    """Members of what has none are None, whatever Python would have there."""
    names = ("real", "imag", "denominator", "format", "encode", "append", "keys", "mro", "gi_frame")
    for owner in ("m.n", "m.s", "m.xs", "m.o", "m", "x"):
        body = (
            "x = 1.5\nreturn message(" + ", ".join(f"{name}={owner}.{name}" for name in names) + ")"
        )
        result = outcome(body)
        assert isinstance(result, Completed)
        assert result.outputs[0].payload.count(b"null") == len(names)


def test_lists_of_the_message_are_shared_and_stay_as_they_are() -> None:
    result = outcome("xs = m.xs\nxs += [9]\nys = m.xs\nys = ys + xs\nm.xs += [8]\nreturn m")
    assert isinstance(result, Completed)
    assert b"[1,2,[3],8]" in result.outputs[0].payload


def test_changing_one_message_changes_no_other() -> None:
    result = outcome("x = keep(m)\ny = drop(m)\nx.n = 1\ny.n = 2\nreturn [x, y, m]")
    assert isinstance(result, Completed)
    assert [json.loads(sent.payload)["n"] for sent in result.outputs] == [1, 2, 7]


def test_constants_stay_as_they_are() -> None:
    text = "XS = [1, 2]\n" + policy_of("xs = XS\nxs += [3]\nreturn message(a=XS, b=xs)")
    for _ in range(2):
        result = run(compiled(text), IncomingMessage("t", b"{}"), {}, {}, 0.0, LIMITS)
        assert isinstance(result, Completed)
        assert result.outputs[0].payload == b'{"a":[1,2],"b":[1,2,3]}'


# --- pictures ---------------------------------------------------------------------------------


def picture(name: str, size: tuple[int, int] = (40, 30)) -> bytes:
    image_module = pytest.importorskip("PIL.Image")
    out = io.BytesIO()
    image_module.new("RGB", size, "red").save(out, name)
    return out.getvalue()


def png_that_claims(width: int, height: int) -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(b"\0" * 1_000_000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def png_with_a_text_bomb() -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    good = picture("PNG")
    bomb = chunk(b"zTXt", b"a\0\0" + zlib.compress(b"\0" * 100_000_000, 9))
    return good[:33] + bomb + good[33:]


PICTURES = {
    "GIF": lambda: picture("GIF"),
    "TIFF": lambda: picture("TIFF"),
    "BMP": lambda: picture("BMP"),
    "WEBP": lambda: picture("WEBP"),
    "EPS": lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n",
    "SVG": lambda: b'<svg xmlns="http://www.w3.org/2000/svg"/>',
    "JPEG 2000": lambda: b"\0\0\0\x0cjP  \r\n\x87\n" + b"\0" * 100,
    "TIFF behind the beginning of a JPEG": lambda: b"\xff\xd8\xff" + picture("TIFF"),
    "GIF behind the beginning of a PNG": lambda: b"\x89PNG\r\n\x1a\n" + picture("GIF"),
    "truncated JPEG": lambda: picture("JPEG", (400, 300))[:600],
    "truncated PNG": lambda: picture("PNG")[:60],
    "head of a JPEG": lambda: b"\xff\xd8\xff",
    "head of a PNG": lambda: b"\x89PNG\r\n\x1a\n",
    "many pixels": lambda: png_that_claims(10_000, 10_000),
    "giant dimensions": lambda: png_that_claims(2**31 - 1, 2**31 - 1),
    "no dimensions": lambda: png_that_claims(0, 0),
    "text bomb": png_with_a_text_bomb,
    "zeros": lambda: b"\0" * 10_000,
    "nothing": lambda: b"",
}


@pytest.mark.parametrize("make", PICTURES.values(), ids=PICTURES)
@pytest.mark.parametrize("form", ["bytes", "base64"])
def test_a_picture_that_is_none_is_refused(make: object, form: str) -> None:
    assert callable(make)
    image = make()
    if form == "bytes":
        arrived = IncomingMessage("t", image)
        body = (
            "return message(payload=compress(m.payload, quality=10, bytes_max=100, pixels_max=20))"
        )
    else:
        arrived = IncomingMessage("t", b'{"image": "%s"}' % base64.b64encode(image))
        body = "return message(image=compress(m.image, quality=10, bytes_max=100, pixels_max=20))"
    tracemalloc.start()
    try:
        result = run(compiled(policy_of(body)), arrived, {}, {}, 0.0, LIMITS)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(result, Stopped), result
    assert result.kind == "error"
    assert peak_bytes < PEAK_BYTES_MAX


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("x = 1e200 ** 2", "error"),
        ("x = 7\n    while True:\n        x = x ** 2", "error"),
        ("x = [1] ** 2", "error"),
        ('return starts_with(m, "a")', "error"),
        ('return ends_with(5, "a")', "error"),
        ('w = "a" * 1000000\n    while True:\n        x = w in [w + "b"]', "steps"),
    ],
)
def test_shortcuts_lead_nowhere_else(body: str, kind: str) -> None:
    policy = compiled(f"def arrived(m, me):\n    {body}")
    result = run(policy, IncomingMessage("t", b"{}"), {}, {}, 0.0, PolicyLimits())
    assert isinstance(result, Stopped)
    assert result.kind in (kind, "memory")
