"""Integers stay short, so that computing with them costs what its steps say."""

import ast
import sys
from types import FrameType
from typing import Any

import pytest

from rove.policy.compiling import compiled
from rove.policy.growth import Growth
from rove.policy.guards import FILE
from rove.policy.limits import BITS_MAX, PolicyLimits
from rove.policy.messages import Arrived
from rove.policy.rewriting import VALUE
from rove.policy.running import run
from tests.policy.test_escape import STOPPED, policy_of

SLACK_BITS = 64
"""What sums that hardly grow may have more."""
LIMITS = PolicyLimits(steps_max=5_000)
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
}
STEADY = {
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

    policy, arrived = compiled(text), Arrived("t", b'{"n": 7, "s": "text", "xs": [1, 2, [3]]}')
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run(policy, arrived, {"v": [1]}, {}, 1000.0, LIMITS)
    finally:
        sys.settrace(before)
    return longest


@pytest.mark.parametrize("name", GROWING)
def test_what_grows_is_kept_short(name: str) -> None:
    assert longest_bits(policy_of(FIRST + GROWING[name])) <= BITS_MAX + SLACK_BITS


@pytest.mark.parametrize("name", STOPPED)
def test_nor_does_whatever_is_stopped_get_longer(name: str) -> None:
    assert longest_bits(policy_of(STOPPED[name][0])) <= BITS_MAX + SLACK_BITS


@pytest.mark.parametrize("name", STEADY)
def test_what_hardly_grows_needs_no_look(name: str) -> None:
    text = policy_of(FIRST + STEADY[name])
    assert longest_bits(text) < 64
    assert not compiled(text).function.__code__.co_consts.count(1 << 30)


@pytest.mark.parametrize(
    ("body", "target", "left", "right", "expected"),
    [
        ("while m:\n    x = x + 1", "x", "x", "1", True),
        ("while m:\n    x = x + x", "x", "x", "x", False),
        ("x = x + x", "x", "x", "x", True),  # once
        ("while m:\n    x = x + y\n    y = 1", "x", "x", "y", True),
        ("while m:\n    x = x + y\n    y = z\n    z = x", "x", "x", "y", False),
        ("while m:\n    z = x + x", "z", "x", "x", True),
        ("for x in y:\n    y = [x]", "y", "x", "x", False),
        ("while m:\n    x += y\n    y += x", "x", "x", "y", False),
        ("while m:\n    a, b = b, a", "a", "b", "1 + b", False),
    ],
)
def test_both_sides(body: str, target: str, left: str, right: str, expected: bool) -> None:
    growth = Growth(ast.parse(body).body)
    sides = [ast.parse(each, mode="eval").body for each in (left, right)]
    assert growth.is_steady(frozenset({target}), *sides) is expected
    assert growth.is_steady(frozenset(), *sides)


def test_a_message_with_a_longer_one_is_a_payload() -> None:
    for digits, is_fine in ((77, True), (78, False), (4_000, False)):
        for form in (b'{"n": %s}', b'{"a": {"b": [[1.5], [-%s]]}}'):
            payload = form % (b"9" * digits)
            attributes = Arrived("t", payload).attributes
            assert (attributes["payload"] is None) is is_fine
            assert is_fine or attributes["payload"] == payload
