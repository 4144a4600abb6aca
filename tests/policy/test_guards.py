"""What a call has left, and operators that would use too much of it."""

import sys
from types import FrameType
from typing import Any, Final

import msgspec
import pytest

from rove.policy.compiler import compiled
from rove.policy.guards import FILE, NESTING_MAX, PORTION_STEPS_MAX, Guards, Halted, named
from rove.policy.limits import BITS_MAX, PolicyLimits
from rove.policy.messages import Completed, IncomingMessage, Message
from rove.policy.rewriter import VALUE
from rove.policy.runner import run
from tests.policy.test_escape import STOPPED, policy_of

MIB = 1 << 20


def guards(steps_max: int = 10_000, bytes_max: int = MIB) -> Guards:
    return Guards(steps_max, bytes_max)


def kind_of(what: Any, *arguments: Any, **named_ones: Any) -> str:
    with pytest.raises(Halted) as caught:
        what(*arguments, **named_ones)
    return caught.value.kind


def test_steps_run_out() -> None:
    some = guards(100)
    some.charge(100)
    assert some.steps == 100
    assert kind_of(some.charge, 1) == "steps"


def test_portions_are_never_more_than_what_is_left() -> None:
    some = guards(1_000)
    left = rounds = 0
    while rounds < 1_000:
        rounds += 1
        left -= 1
        if left < 0:
            left = some.more(left)
            assert 0 <= left < PORTION_STEPS_MAX
    assert left == 0
    assert some.steps == 1_000
    assert kind_of(some.more, -1) == "steps"


def test_what_is_made_is_paid_for() -> None:
    some = guards()
    assert some.made("x" * 1000) == "x" * 1000
    assert some.spent_bytes == 1000
    assert some.steps == 1000 // 64
    some.made("€" * 10)
    assert some.spent_bytes == 1040
    some.made([1, 2])
    some.made(b"abc")
    assert some.spent_bytes == 1040 + 16 + 3
    assert some.made(5.5) == 5.5
    assert kind_of(some.made, 1 << BITS_MAX) == "error"
    assert kind_of(some.spend, MIB) == "memory"


def test_weighing_goes_to_the_last_leaf() -> None:
    some = guards()
    assert some.weigh([1, [2, "abc"], {"k": "de"}, ("f",)]) == 8 * (4 + 2 + 1 + 1) + 3 + 1 + 2 + 1
    assert some.steps > 0
    deep: Any = 1
    for _ in range(NESTING_MAX + 1):
        deep = [deep]
    assert kind_of(some.weigh, deep) == "error"
    some.weigh(deep[0])


@pytest.mark.parametrize("value", [Message(), [Message()], 2**64, -(2**63) - 1, [float("inf")]])
def test_not_everything_may_leave(value: Any) -> None:
    assert kind_of(guards().weigh, value, leaves=True) == "error"
    guards().weigh(value)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (3, 4, 12),
        (2.5, 2, 5.0),
        (True, 3, 3),
        ("ab", 2, "abab"),
        (2, "ab", "abab"),
        ("ab", -5, ""),
        ("ab", True, "ab"),
        ([1], 3, [1, 1, 1]),
        (3, (1,), (1, 1, 1)),
        (b"a", 2, b"aa"),
    ],
)
def test_products(left: Any, right: Any, expected: Any) -> None:
    assert guards().times(left, right) == expected


def test_products_that_are_too_large() -> None:
    assert kind_of(guards().times, "ab", 10**9) == "memory"
    assert kind_of(guards().times, 10**9, [1]) == "memory"
    assert kind_of(guards().times, b"x", 2**200) == "memory"
    assert kind_of(guards().times, 1 << 3000, 1 << 3000) == "error"
    for left, right in (("a", "b"), ([1], [2]), ("a", 1.5), (None, 2)):
        with pytest.raises(TypeError):
            guards().times(left, right)


def test_remainders_format_nothing() -> None:
    assert guards().modulo(True, 5) == 1
    assert kind_of(guards().modulo, "%d", 5) == "error"
    assert kind_of(guards().modulo, b"%d", 5) == "error"


@pytest.mark.parametrize(
    ("base", "exponent", "expected"),
    [(2, 10, 1024), (2, BITS_MAX - 1, 2 ** (BITS_MAX - 1)), (-1, 10**18, 1), (0, 10**18, 0),
     (2, -1, 0.5), (4, 0.5, 2.0), (2.5, 2, 6.25), (-2.0, 3, -8.0), (-8, 3.0, -512.0), (True, 5, 1)],
)  # fmt: skip
def test_powers(base: Any, exponent: Any, expected: Any) -> None:
    assert guards().power(base, exponent) == expected


@pytest.mark.parametrize(
    ("base", "exponent"), [(2, BITS_MAX), (3, 10**100), ("a", 2), (2, None), (-8, 0.5), (-2.0, 1.5)]
)
def test_powers_that_are_none(base: Any, exponent: Any) -> None:
    assert kind_of(guards().power, base, exponent) == "error"


def test_comparisons_cost_what_they_look_at() -> None:
    some = guards()
    assert some.compare("==", "x" * 6400, "x" * 6400)
    assert some.steps == 100
    assert some.compare("<", [1, 2], [1, 3])
    assert some.compare("!=", "a", 5)
    assert not some.compare(">=", 1, 2)
    assert kind_of(guards(10).compare, "==", [0] * 100, [0] * 100) == "steps"


def test_being_inside_costs_what_it_looks_at() -> None:
    some = guards()
    assert some.inside("a", Message(a=1))
    assert not some.inside(5, {"a": 1})
    assert not some.inside([1], {"a": 1})
    assert some.inside("b", "abc")
    assert some.inside(3, [1, 2, 3])
    assert some.inside([3], [1, [3]])
    assert some.inside("x" * 100, ["x" * 100])
    assert kind_of(some.inside, 5, "abc") == "error"
    assert kind_of(some.inside, 5, 5) == "error"
    assert kind_of(guards(10).inside, 5, [0] * 1000) == "steps"


def test_going_through() -> None:
    some = guards()
    assert list(some.each([1, 2], 3)) == [1, 2]
    assert some.steps == 6
    assert list(some.each(Message(a=1, b=2), 1)) == ["a", "b"]
    assert list(some.each(range(1000), 2)) == list(range(1000))
    assert some.steps == 6 + 2 + 2000
    assert "".join(some.each("x" * 1000, 1)) == "x" * 1000
    assert kind_of(some.each, range(10**30), 1) == "steps"
    assert kind_of(some.each, range(10_000), 1) == "steps"
    assert kind_of(some.each, 5, 1) == "error"


def test_parts_and_members() -> None:
    some = guards()
    assert some.cut("abc", 1, None, None) == "bc"
    assert some.cut([1, 2, 3], None, None, -1) == [3, 2, 1]
    assert kind_of(some.cut, {"a": 1}, 0, 1, None) == "error"
    assert some.item([1, 2], True) == 2
    assert kind_of(some.item, {}, (1,)) == "error"
    assert some.member({"a": 1}, "a") == 1
    assert some.member({"a": None}, "a", 5) == 5
    assert some.member("text", "upper") is None
    assert some.text("a", 1, None, [1], 2.5) == "a1None[1]2.5"


def test_values_have_names() -> None:
    values: tuple[object, ...] = (None, True, 1, 1.5, "", b"", [], (), {}, Message())
    assert len({named(value) for value in values}) == len(values) - 1
    assert named(object()) == "that"


PRICES: Final[dict[str, tuple[str, float]]] = {
    "text of floats": ("x = str(m.floats)", 8),
    "text with floats in it": ('x = f"{m.floats}"', 8),
    "texts compared": ("x = min(m.words)", 1),
    "lists compared": ("x = m.nested == m.nested + []", 2),
    "variable": ("me.x = m.words", 2),
    "variable of lists": ("me.x = m.nested", 3),
    "output": ('return keep(m, "floats")', 1.5),
    "output of lists": ('return keep(m, "nested")', 3),
    "output written to": ("m.x = 1\nreturn m", 1.5),
    "remembered": ('x = changed("floats")', 1.5),
    "remembered by": ("x = every(5, per=m.words)", 2),
    "sum": ("x = sum(m.floats)", 0.25),
    "search": ("x = -1.0 in m.floats", 0.25),
}
"""What is done to a list of 500, and the steps that each element of it costs at least: measured, as
many as it takes rounds of a plain loop, give or take a factor of four."""


@pytest.mark.parametrize("name", PRICES)
def test_steps_are_in_proportion_to_the_time(name: str) -> None:
    body, steps = PRICES[name]
    payload = {
        "floats": [1.1 * number for number in range(500)],
        "words": [f"word{number}" for number in range(500)],
        "nested": [[number] for number in range(500)],
    }
    policy = compiled("def arrived(m, me):\n    " + body.replace("\n", "\n    "))
    arrived = IncomingMessage("t", msgspec.json.encode(payload))
    result = run(policy, arrived, {}, {}, 1000.0, PolicyLimits())
    assert isinstance(result, Completed), result
    assert result.steps >= 500 * steps


# --- integers stay short, so that computing with them costs what its steps say ---

FIRST = "x = m.n\ny = m.n\nz = 1\n"
GROWING = {
    "by a small number": "while True:\n    x = x * 65536",
    "by a small number before": "for i in range(999):\n    x = 65536 * x",
    "doubled": "while True:\n    x = x + x",
    "doubled in a longer way": "while True:\n    z = x\n    y = z + 1\n    x = y + z",
    "through a list": "while True:\n    z = [x, x]\n    x = z[0] + z[1]",
    "through a loop": "while True:\n    for x in [x + x]:\n        pass",
    "through a tuple": "while True:\n    x, y = y, x + y",
    "through two": "while True:\n    x, y = (x + y, x - y)",
    "by minus": "while True:\n    y = -x\n    x = x - y",
    "by minus and minus": "while True:\n    x = x - y\n    y = y - x",
    "with a condition": "while True:\n    x = x + (x if z else 0)",
    "with a function": "while True:\n    x = max(x, y) + min(x, 9)",
    "with an absolute value": "while True:\n    x = abs(x) + abs(x)",
    "and back again": "while True:\n    for i in range(300):\n        x = x + x\n    x = 1",
    "by **": "while True:\n    x = x ** 2",
    "by a sum of a list": "while True:\n    x = sum([x, x])",
    "of floats": "while True:\n    x = floor(x * 1.5)",
    "of texts": 'while True:\n    x = int(f"{x}{x}")',
    "augmented": "while True:\n    x += x",
    "in a message": "while True:\n    m.n += m.n\n    x = m.n + m.n",
    "in a variable": "me.v = 1\nwhile True:\n    me.v += me.v",
    "squared in a sum": "while True:\n    x = x * x + y",
    "added": "for i in range(999):\n    x = x + 1000000",
    "added up": "for i in range(999):\n    x = x + i\n    y = y + x\n    z = z + y",
    "taken off": "for i in range(999):\n    x = x - y",
    "as much again, of another": "for i in range(999):\n    z = y + y\n    x = x + z",
}


def longest_bits(text: str) -> int:
    """Of all integers that a policy has at any moment, the longest."""
    longest = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal longest
        if frame.f_code.co_filename != FILE:
            return None
        for name, value in frame.f_locals.items():
            # The guard has not seen that one yet.
            if value.__class__ is int and name != VALUE:
                longest = max(longest, value.bit_length())
        return trace

    policy, arrived = (
        compiled(text),
        IncomingMessage("t", b'{"n": 7, "s": "text", "xs": [1, 2, [3]]}'),
    )
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run(policy, arrived, {"v": [1]}, {}, 1000.0, PolicyLimits(steps_max=5_000))
    finally:
        sys.settrace(before)
    return longest


@pytest.mark.parametrize("name", GROWING)
def test_what_grows_is_kept_short(name: str) -> None:
    assert longest_bits(policy_of(FIRST + GROWING[name])) <= BITS_MAX


@pytest.mark.parametrize("name", STOPPED)
def test_nor_does_whatever_is_stopped_get_longer(name: str) -> None:
    assert longest_bits(policy_of(STOPPED[name][0])) <= BITS_MAX
