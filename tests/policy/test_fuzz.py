"""Programs that nobody wrote: whatever they do, they are refused, stopped or come to an end.

One generator makes programs of the grammar that do nasty things, another breaks texts at random. Of
every run: no exception, no more steps than allowed, nothing but plain values in the result, what
was given is as it was, and a second run says the same. A third generator makes tame programs, which
have to come to the same result in plain Python. `make soak` tries a hundred times as many.
"""

import copy
import math
import random
import time
import tracemalloc
import warnings
from typing import Any

import msgspec
import pytest

from rove.policy.compiler import compiled
from rove.policy.errors import PolicyError
from rove.policy.jobs import Deferred, Stopped
from rove.policy.limits import PolicyLimits
from rove.policy.messages import Completed, IncomingMessage, Message
from rove.policy.runner import run

PROGRAMS = 200
SOAK_PROGRAMS = 120_000
LIMITS = PolicyLimits(
    steps_max=3_000,
    memory_bytes_max=400_000,
    variables_bytes_max=4_000,
    output_bytes_max=20_000,
    text_bytes_max=40_000,
)
PEAK_BYTES_MAX = 8_000_000
SECONDS_MAX = 20.0
"""Of one program, on a machine that is busy with others."""
PAYLOADS = (
    b'{"n": 7, "f": 2.5, "s": "some text", "xs": [3, 1.5, "a", [2]], "o": {"p": {"q": 5}}}',
    b'{"n": 184467440737095516150, "f": -1e300, "s": "", "xs": [], "o": {}, "z": null}',
    b"\x00\x01 no JSON",
    b"{}",
)
LIMITED = ("bits", "kept or sent")
"""Of errors that are limits: integers that are too long, and infinities in a message."""
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
ODD = (
    "m", "None", "True", '"a"', "[1, 2]", "(1, 2)", 'b"xy"', "m.new", "m.z", "m.o", "m.payload",
    "data(m)", "1e308", "0", "get(a)", "m[c]", "m.topic", "me.v", "me.w", "x", 'm.get("n", c)',
    "message(x=d)",
)  # fmt: skip
PIECES = (
    "", "__class__", "\n", "    ", "(", ")", "\t", "\0", "lambda: ", "\ufeff", ":=", "\\", '"',
    "import os\n", "\r\n", "yield ", "\ud800", "𝑚", "x" * 99, "#", ";", "@", "=", "a.b.c", "**",
)  # fmt: skip


class Nasty:
    """Makes programs at random. `a` and `b` are mostly numbers, `c` is a text, `d` a list."""

    odd = 0.02
    """How often something stands where it does not fit."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.pick = self.random.choice

    def program(self) -> str:
        lines = [*self.beginning(), "    x = message(a=a)", *self.block(3, 1)]
        end = self.pick(
            ("m", "x", "[m, x]", "message(a=a, b=b, c=c)", "[keep(m), x]", "None", "[]")
        )
        return "def arrived(m, me):\n" + "\n".join([*lines, f"    return {end}"]) + "\n"

    def beginning(self) -> list[str]:
        numbers = ("0", "1", "7", "2.5", "-3", "1e10", 'm["n"]', 'm["f"]')
        return [
            f"    a = {self.pick(numbers)}",
            f"    b = {self.pick(numbers)}",
            "    c = " + self.pick(('""', '"abc"', 'm["s"]')),
            "    d = " + self.pick(("[]", "[1, 2.5]", 'm["xs"]')),
        ]

    def block(self, depth: int, level: int) -> list[str]:
        found: list[str] = []
        for _ in range(self.random.randint(1, 4)):
            found += self.statement(depth, level)
        return found

    def statement(self, depth: int, level: int) -> list[str]:
        indent = "    " * level
        if not depth or self.random.random() > 0.4:
            return [indent + self.simple()]
        head = self.pick((
            f"if {self.condition(2)}:",
            f"if {self.condition(2)}:",
            f"while {self.condition(1)}:",
            "while True:",
            f"for b in {self.list(1)}:",
            f"for c in {self.text(1)}:",
            f"for a in range({self.number(1)}):",
            f"for a in range({self.random.randint(1, 300)}):",
            "for c in m:",
        ))  # fmt: skip
        body = self.block(depth - 1, level + 1)
        if head[0] != "i" and self.random.random() < 0.4:
            body.append(f"{indent}    {self.pick(('break', 'continue', 'return x', 'return m'))}")
        if head[0] == "i" and self.random.random() < 0.3:
            body += [f"{indent}else:", *self.block(depth - 1, level + 1)]
        return [indent + head, *body]

    def simple(self) -> str:
        makes = (
            lambda: f"{self.pick('ab')} = {self.number(3)}",
            lambda: f"{self.pick('ab')} {self.pick(('+', '-', '*', '//', '**'))}= {self.number(2)}",
            lambda: f"c = {self.text(3)}",
            lambda: f"c += {self.text(2)}",
            lambda: f"d = {self.list(3)}",
            lambda: f"d += {self.list(2)}",
            lambda: "d = [d, d]",
            lambda: "c = c + c",
            lambda: "a = a * a",
            lambda: f"m.{self.pick(('n', 's', 'new'))} = {self.anything(2)}",
            lambda: f"m[{self.text(1)}] = {self.anything(2)}",
            lambda: f"x.{self.pick('abc')} = {self.anything(2)}",
            lambda: f"me.{self.pick('vxy')} = {self.anything(2)}",
            lambda: f"set({self.text(1)}, {self.anything(1)})",
            lambda: f"m.n += {self.number(1)}",
            lambda: f"del m.{self.pick(('n', 's', 'topic'))}",
            lambda: "del me.v",
            lambda: "remove(c)",
            lambda: f"a, b = {self.number(2)}, {self.number(2)}",
            lambda: f"x = message({{'x': {self.anything(2)}, 'y': {{'z': {self.anything(1)}}}}})",
            lambda: f"x = {self.pick(('keep', 'drop'))}(m, {self.text(1)})",
            lambda: f"set_data(x, {self.pick(('data(m)', 'x', 'm.o', 'data(x)'))})",
            lambda: (
                f"a = {self.pick(('every', 'changed'))}({self.pick('5c')}, per={self.anything(1)})"
            ),
            lambda: f"a = changed('n', by={self.number(1)})",
            lambda: f'x = summary(5, "n", per={self.anything(1)}) or x',
        )
        return self.pick(makes)()

    def anything(self, depth: int) -> str:
        return self.pick((self.number, self.number, self.text, self.list, self.condition))(depth)

    def _is_odd(self) -> bool:
        return self.random.random() < self.odd

    def number(self, depth: int) -> str:
        if self._is_odd():
            return self.pick(ODD)
        if depth <= 0:
            return self.pick(
                (
                    "a",
                    "b",
                    "1",
                    "2",
                    "0.5",
                    "-3",
                    "65536",
                    "m.n",
                    "m.f",
                    "2 ** 62",
                    'get("v", 1)',
                    "7",
                )
            )
        inner = self.number
        makes = (
            lambda: f"({inner(depth - 1)} {self.pick('+-*+-*/%')} {inner(depth - 1)})",
            lambda: f"({inner(depth - 1)} {self.pick('+-*')} {inner(0)})",
            lambda: f"({inner(depth - 1)} {self.pick(('//', '**'))} {self.pick('123')})",
            lambda: f"(-{inner(depth - 1)})",
            lambda: f"{self.pick(('abs', 'floor', 'round', 'int', 'float'))}({inner(depth - 1)})",
            lambda: f"{self.pick(('min', 'max'))}({inner(depth - 1)}, {inner(depth - 1)})",
            lambda: f"clamp({inner(depth - 1)}, 0, {inner(0)})",
            lambda: f"len({self.pick((self.text, self.list))(depth - 1)})",
            lambda: f"sum([{inner(depth - 1)}, {inner(0)}])",
            lambda: f"find({self.text(depth - 1)}, {self.text(0)})",
            lambda: f"({inner(depth - 1)} if {self.condition(depth - 1)} else {inner(0)})",
            lambda: f"round({inner(depth - 1)}, {self.pick('012')})",
            lambda: f"hour({inner(0)})",
        )
        return self.pick(makes)()

    def text(self, depth: int) -> str:
        if self._is_odd():
            return self.pick(ODD)
        if depth <= 0:
            return self.pick(("c", "c", '"ab"', '"€ß"', "m.s", "m.topic", '""'))
        inner = self.text
        makes = (
            lambda: f"({inner(depth - 1)} + {inner(depth - 1)})",
            lambda: f"({inner(depth - 1)} * {self.pick('123a')})",
            lambda: f"str({self.anything(depth - 1)})",
            lambda: f"{self.pick(('lower', 'upper', 'strip'))}({inner(depth - 1)})",
            lambda: f"replace({inner(depth - 1)}, {inner(0)}, {inner(0)})",
            lambda: f"join(split({inner(depth - 1)}), {inner(0)})",
            lambda: f"{inner(0)}[{self.pick(('1:', ':5', '::2', '-3:', 'a:b'))}]",
            lambda: 'f"{a} {c} {d} {m.n}"',
            lambda: f"({inner(depth - 1)} or {inner(0)})",
        )
        return self.pick(makes)()

    def list(self, depth: int) -> str:
        if self._is_odd():
            return self.pick(ODD)
        if depth <= 0:
            return self.pick(("d", "d", "[1, 2, 3]", "[]", "m.xs", "(1, 2.5)", "[a, b, c]"))
        inner = self.list
        makes = (
            lambda: f"({inner(depth - 1)} + {inner(depth - 1)})",
            lambda: f"({inner(depth - 1)} * {self.pick('0123')})",
            lambda: f"[{self.anything(depth - 1)}, {self.anything(depth - 1)}]",
            lambda: f"split({self.text(depth - 1)}, {self.text(0)})",
            lambda: f"sorted([{self.number(0)}, {self.number(depth - 1)}])",
            lambda: f"{inner(0)}[{self.pick(('1:', ':5', '::2', '-3:', '::-1'))}]",
            lambda: f"({inner(depth - 1)}, {inner(0)})",
        )
        return self.pick(makes)()

    def condition(self, depth: int) -> str:
        if depth <= 0:
            return self.pick(("a > 1", "b", "c == m.s", "d", "m.z is None", '"n" in m', "a in d"))
        side = self.pick((self.number, self.number, self.text, self.list))
        signs = self.random.choices(COMPARISONS, k=2)
        makes = (
            lambda: f"({side(depth - 1)} {signs[0]} {side(depth - 1)})",
            lambda: f"({side(depth - 1)} {signs[0]} {side(depth - 1)} {signs[1]} {side(0)})",
            lambda: f"(not {self.anything(depth - 1)})",
            lambda: f"({self.anything(depth - 1)} in {self.list(depth - 1)})",
            lambda: f"({self.text(depth - 1)} in {self.text(depth - 1)})",
            lambda: f"({self.condition(depth - 1)} and {self.condition(depth - 1)})",
            lambda: f"starts_with({self.text(depth - 1)}, {self.text(0)})",
        )
        return self.pick(makes)()

    def broken(self) -> str:
        """A text that was a program."""
        text = self.program()
        for _ in range(self.random.randint(1, 4)):
            at, to = sorted(self.random.choices(range(len(text) + 1), k=2))
            piece = self.pick((*PIECES, text[at:to]))
            text = text[:at] + piece + text[min(to, at + 9) :]
        return text


def is_plain(value: object) -> bool:
    """Made of what JSON knows, nothing else."""
    if type(value) is list:
        return all(map(is_plain, value))
    if type(value) is dict:
        return all(type(name) is str and is_plain(each) for name, each in value.items())
    return value is None or type(value) in (bool, int, float, str)


def checked(text: str, seed: int) -> Completed | Stopped | None:
    """Run a text as the broker would, and look at everything."""
    try:
        policy = compiled(text, bytes_max=LIMITS.text_bytes_max)
    except PolicyError as error:
        assert len(str(error)) > len("line 1: ")  # noqa: PT017
        return None
    payload = PAYLOADS[seed % len(PAYLOADS)]
    given: tuple[Any, ...] = ({"v": 3, "w": [1, "x"]}, {"5:9": 900.0})
    before = copy.deepcopy(given)
    arrived = IncomingMessage("ward/3", payload, (("u", "property"),))
    began_s = time.process_time()
    results = [
        run(policy, where, given[0], given[1], 1000.0, LIMITS, automatic=("w",))
        for where in (arrived, IncomingMessage("ward/3", payload, (("u", "property"),)))
    ]
    assert time.process_time() - began_s < SECONDS_MAX
    first, second = results
    assert not isinstance(first, Deferred)
    assert first == second, "two runs differ"
    assert given == before
    assert arrived.attributes == IncomingMessage("ward/3", payload, (("u", "property"),)).attributes
    assert first.steps <= LIMITS.steps_max
    if isinstance(first, Completed):
        assert len(first.outputs) <= LIMITS.outputs_max
        assert all(type(sent.payload) is bytes for sent in first.outputs)
        assert is_plain(first.changes)
        assert "w" not in first.changes
        assert first.memory is None or is_plain(first.memory)
        msgspec.json.decode(msgspec.json.encode(first))
    return first


def explore(seeds: range) -> dict[str, int]:
    """How programs ended, by kind."""
    ends: dict[str, int] = {}
    for seed in seeds:
        maker = Nasty(seed)
        text = maker.broken() if seed % 4 == 3 else maker.program()
        try:
            result = checked(text, seed)
        except BaseException:
            print(f"seed {seed}\n{text}")
            raise
        kind = "refused" if result is None else getattr(result, "kind", "ended")
        ends[kind] = ends.get(kind, 0) + 1
    return ends


def test_programs_are_refused_or_stopped_or_end() -> None:
    ends = explore(range(PROGRAMS))
    assert {"refused", "ended", "error", "steps"} <= ends.keys(), ends
    assert ends["ended"] > PROGRAMS // 50, "a generator of errors finds little"


@pytest.mark.soak
def test_many_more_programs() -> None:
    begin = random.SystemRandom().randrange(10**9)
    explore(range(begin, begin + SOAK_PROGRAMS))


def test_programs_stay_within_their_memory() -> None:
    for seed in range(10_000, 10_000 + PROGRAMS // 4):
        text = Nasty(seed).program()
        compiled(text, bytes_max=LIMITS.text_bytes_max)  # is kept, and not what is measured
        tracemalloc.start()
        try:
            checked(text, seed)
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak_bytes < PEAK_BYTES_MAX, text


# --- against plain Python ---------------------------------------------------------------------


class Tame(Nasty):
    """Makes programs that are Python too, and that Python can be trusted with."""

    odd = 0.005

    def program(self) -> str:
        lines = [*self.beginning(), *self.block(3, 1)]
        end = self.pick(("m", "None", *("message(a=a, b=b, c=c, d=d)",) * 4))
        return "def arrived(m, me):\n" + "\n".join([*lines, f"    return {end}"])

    def statement(self, depth: int, level: int) -> list[str]:
        indent = "    " * level
        if not depth or self.random.random() > 0.4:
            return [indent + self.simple()]
        head = self.pick((
            f"if {self.condition(1)}:",
            f"for a in range({self.random.randint(0, 6)}):",
            'for b in m["xs"]:',
            "for c in c[:5]:",
            "while len(str(a)) < 3:",
        ))  # fmt: skip
        body = self.block(depth - 1, level + 1)
        if head[0] == "w":
            body.append(f"{indent}    break")
        elif head[0] == "f" and self.random.random() < 0.3:
            body.append(f"{indent}    {self.pick(('break', 'continue'))}")
        return [indent + head, *body]

    def simple(self) -> str:
        makes = (
            lambda: f"{self.pick('ab')} = {self.number(3)}",
            lambda: f"{self.pick('ab')} = {self.number(3)}",
            lambda: f"{self.pick('ab')} {self.pick('+-*/')}= {self.number(2)}",
            lambda: f"c = {self.text(2)}",
            lambda: f"c = c + {self.text(1)}",
            lambda: f"d = {self.list(2)}",
            lambda: f"d = d + {self.list(1)}",  # += of lists is another thing in Python
            lambda: f"a, b = b, {self.number(2)}",
            lambda: f'm["{self.pick("nfk")}"] = {self.number(2)}',
            lambda: f'm["s"] = {self.text(1)}',
        )
        return self.pick(makes)()

    def number(self, depth: int) -> str:
        if self._is_odd():
            return self.pick(("None", '"a"', "c", 'm["z"]'))
        if depth <= 0:
            return self.pick(
                ("a", "b", "1", "2", "0.5", "-3", "True", 'm["n"]', 'm["f"]', "0", "7.5")
            )
        inner = self.number
        makes = (
            lambda: f"({inner(depth - 1)} {self.pick('+-*/%')} {inner(depth - 1)})",
            lambda: f"({inner(depth - 1)} {self.pick('+-*')} {inner(0)})",
            lambda: f"({self.pick('ab')} {self.pick('+-*%')} {self.pick('ab')})",
            lambda: f"({inner(depth - 1)} ** 2)",
            lambda: f"(-{inner(depth - 1)})",
            lambda: f"{self.pick(('abs', 'round', 'int', 'float', 'bool'))}({inner(depth - 1)})",
            lambda: f"{self.pick(('min', 'max'))}({inner(depth - 1)}, {inner(depth - 1)})",
            lambda: f"{self.pick(('min', 'max'))}([{inner(depth - 1)}, {inner(0)}, {inner(0)}])",
            lambda: f"len({self.pick((self.text, self.list))(depth - 1)})",
            lambda: f"sum([{inner(depth - 1)}, {inner(0)}])",
            lambda: f"({inner(depth - 1)} if {self.condition(depth - 1)} else {inner(0)})",
            lambda: f"({inner(depth - 1)} {self.pick(('or', 'and'))} {inner(0)})",
        )
        return self.pick(makes)()

    def text(self, depth: int) -> str:
        if self._is_odd():
            return self.pick(("None", "1", "[1]", "a", "d"))
        if depth <= 0:
            return self.pick(("c", '"ab"', '"€ß"', 'm["s"]', '""'))
        inner = self.text
        makes = (
            lambda: f"({inner(depth - 1)} + {inner(depth - 1)})",
            lambda: f"({inner(depth - 1)} * {self.pick('123')})",
            lambda: f"str({self.anything(depth - 1)})",
            lambda: f"{inner(0)}[{self.pick(('1:', ':5', '::2', '-3:'))}]",
            lambda: 'f"<{a}> {d}"',
            lambda: f"({inner(depth - 1)} or {inner(0)})",
        )
        return self.pick(makes)()

    def list(self, depth: int) -> str:
        if self._is_odd():
            return self.pick(("None", "1", "a", "c"))
        if depth <= 0:
            return self.pick(("d", "[1, 2, 3]", "[]", 'm["xs"]', "[a, b, c]"))
        inner = self.list
        makes = (
            lambda: f"({inner(depth - 1)} + {inner(depth - 1)})",
            lambda: f"({inner(depth - 1)} * {self.pick('012')})",
            lambda: f"[{self.number(depth - 1)}, {self.text(depth - 1)}]",
            lambda: f"sorted([{self.number(0)}, {self.number(depth - 1)}])",
            lambda: f"{inner(0)}[{self.pick(('1:', ':5', '::2', '-3:', '::-1'))}]",
        )
        return self.pick(makes)()

    def condition(self, depth: int) -> str:
        if depth <= 0:
            return self.pick(("a > 1", "b", 'c == m["s"]', "d", 'm["z"] is None', "a in d"))
        side = self.pick((self.number, self.number, self.text, self.list))
        signs = self.random.choices(COMPARISONS, k=2)
        makes = (
            lambda: f"({side(depth - 1)} {signs[0]} {side(depth - 1)})",
            lambda: f"({side(depth - 1)} {signs[0]} {side(depth - 1)} {signs[1]} {side(0)})",
            lambda: f"({self.pick('abcd')} {signs[0]} {self.pick('abcd')})",
            lambda: f"(not {self.anything(depth - 1)})",
            lambda: (
                f"({self.number(depth - 1)} {self.pick(('in', 'not in'))} {self.list(depth - 1)})"
            ),
            lambda: f"({self.text(depth - 1)} in {self.text(depth - 1)})",
        )
        return self.pick(makes)()


def in_python(text: str, attributes: dict[str, object]) -> bytes | None:
    """What plain Python makes of it, as it would be sent; None for an error."""
    m = Message(attributes)
    names: dict[str, Any] = {"message": lambda **given: Message(given)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(text, names)
    try:
        returned = names["arrived"](m, {})
    except Exception:
        return None
    if returned is None:
        return b""
    members = {name: value for name, value in returned.items() if name != "topic"}
    if not all(map(can_leave, members.values())):
        return None
    return msgspec.json.encode(members)


def can_leave(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -(2**63) <= value < 2**64
    if isinstance(value, list | tuple):
        return all(map(can_leave, value))
    return True


def compare_with_python(seeds: range) -> int:
    """How many programs came to a result, the same in both."""
    payload = b'{"n": 6, "f": 1.25, "s": "xyz", "xs": [3, 0.5, "a"]}'
    same = 0
    for seed in seeds:
        text = Tame(seed).program()
        arrived = IncomingMessage("ward/3", payload)
        result = run(compiled(text), arrived, {}, {}, 0.0, PolicyLimits())
        if isinstance(result, Stopped) and (
            result.kind != "error" or any(words in result.text for words in LIMITED)
        ):
            continue  # Python has no limits
        expected = in_python(text, dict(arrived.attributes))
        if isinstance(result, Stopped):
            assert expected is None, (seed, text, result)
        else:
            assert isinstance(result, Completed)
            got = result.outputs[0].payload if result.outputs else b""
            if result.passes:
                got = msgspec.json.encode(msgspec.json.decode(got))
            assert got == expected, (seed, text)
            same += 1
    return same


def test_tame_programs_do_what_python_does() -> None:
    assert compare_with_python(range(PROGRAMS)) > PROGRAMS // 3


@pytest.mark.soak
def test_many_more_tame_programs() -> None:
    begin = random.SystemRandom().randrange(10**9)
    compare_with_python(range(begin, begin + SOAK_PROGRAMS))
