"""The remaining budget of a call, and the operators that could exceed it.

A compiled policy is a Python function, and operations whose results cannot grow are plain Python.
All others go through here: a product of strings, a sum of lists, a comparison of two large values.
The function counts steps down in portions that `more` grants, so that an iteration costs a
subtraction and a comparison of integers. The library treats a granted portion as spent, so near its
limit a call may be stopped up to a sixteenth early, but never late.

A loop that cannot end early is charged before it begins, and costs nothing while it runs. Integers
are checked when they are made.

Lists may contain the same list many times, so a value can be far larger than its memory. Making
one is therefore cheap, and every operation that traverses one is charged for each element
(`weigh`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any, Final

from rove.policy.jobs import CompressionRequest, StopKind
from rove.policy.limits import BITS_MAX, INT_MAX
from rove.policy.messages import Message

LOWEST: Final = -(2**63)
HIGHEST: Final = 2**64 - 1
"""Of integers that are kept or sent."""
NESTING_MAX: Final = 64
"""Depth of a value that is compared, written or kept."""
PORTION_STEPS_MAX: Final = 256
"""Steps that are granted to a loop at a time, at most."""
LOOK_STEPS: Final = 2_048
"""Steps between two looks at the clock."""
BYTES_PER_STEP: Final = 64
LARGE_BYTES: Final = BYTES_PER_STEP * PORTION_STEPS_MAX
FILE: Final = "<policy>"
"""Where compiled code says that it is from."""
ELEMENTS_PER_STEP: Final = 4
"""Elements that Python itself goes through in the time of a step, as `sum` and `in` do."""
NUMBERS_PER_STEP: Final = 2
"""Elements that our own code looks at one by one in the time of a step."""
HOLDER_STEPS: Final = 2
"""What each list or mapping in a value costs, beside its elements."""
ELEMENT_BYTES: Final = 8
SPELLING_STEPS: Final = 8
"""What it costs to write a number, or an element of a list, as text."""
DEPTH_MAX: Final = 1_000
"""Depth of a message that is sent: what came may be deeper than what a policy compares."""

_TEXTS: Final[frozenset[Any]] = frozenset({str, bytes})
_HOLDERS: Final[frozenset[Any]] = frozenset({list, tuple, dict, Message})
_NUMBERS: Final[frozenset[Any]] = frozenset({int, float, bool})
_MEMBERED: Final[frozenset[Any]] = frozenset({dict, Message})
_SIGNS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Halted(Exception):
    """A limit is reached, or the policy is at fault; ends the call."""

    def __init__(self, kind: StopKind, text: str) -> None:
        super().__init__(text)
        self.kind: StopKind = kind
        self.text = text


class CompressionNeeded(Exception):
    """The call needs this first; ends it for now."""

    def __init__(self, request: CompressionRequest) -> None:
        super().__init__()
        self.request = request


def fault(text: str) -> Halted:
    """An error in the policy itself."""
    return Halted("error", text)


class Guards:
    """What one call has left, and the operators that look at it."""

    # What most calls leave as it is stands here: an object without it is made sooner.
    steps = 0
    """Paid, or granted to a loop."""
    left = 0
    """Of what was granted, when the function returned."""
    spent_bytes = 0
    _clock: Callable[[], float] | None = None
    _ends_at = 0.0
    elements = 0
    """That `weigh` met the last time."""
    _numbers: Any = None
    """A list that is known to have nothing but numbers."""

    def __init__(
        self,
        steps_max: int,
        bytes_max: int,
        clock: Callable[[], float] | None = None,
        time_ms: int = 0,
    ) -> None:
        self.steps_max = steps_max
        self.bytes_max = bytes_max
        self._alarm = min(steps_max, LOOK_STEPS)
        if clock is not None:
            self._clock = clock
            self._ends_at = clock() + time_ms / 1000

    # --- what is left ---

    def charge(self, steps: int) -> None:
        """Pay for work."""
        self.steps += steps
        if self.steps > self._alarm:
            self._look()

    def pay(self, steps: int) -> None:
        """Pay for work on one large thing, after a look at the clock."""
        self.steps += steps
        if self.steps > self.steps_max:
            raise self._too_many_steps()
        if self._clock is not None and self._clock() > self._ends_at:
            raise Halted("time", "it takes too long")
        self._alarm = min(self.steps_max, self._alarm + steps)

    def _look(self) -> None:
        if self.steps > self.steps_max:
            raise self._too_many_steps()
        if self._clock is not None and self._clock() > self._ends_at:
            raise Halted("time", "it takes too long")
        self._alarm = min(self.steps_max, self.steps + LOOK_STEPS)

    def _too_many_steps(self) -> Halted:
        return Halted("steps", f"it takes more than {self.steps_max:,} steps")

    def more(self, left: int) -> int:
        """A loop has used up its portion, `left` is below 0: another one, or the end."""
        room = self.steps_max - self.steps
        if room < -left:
            raise self._too_many_steps()
        portion = max(-left, min(PORTION_STEPS_MAX, room >> 4))
        self.charge(portion)
        return left + portion

    def spend(self, size_bytes: int) -> None:
        """Pay for making something."""
        self.spent_bytes += size_bytes
        if self.spent_bytes > self.bytes_max:
            raise Halted("memory", f"it makes more than {self.bytes_max:,} bytes")
        if size_bytes >= LARGE_BYTES:
            self.pay(size_bytes // BYTES_PER_STEP)
        elif size_bytes >= BYTES_PER_STEP:
            self.steps += size_bytes // BYTES_PER_STEP
            if self.steps > self._alarm:
                self._look()

    def pass_over(self, *texts: str | bytes) -> None:
        """Pay for reading texts from end to end."""
        for text in texts:
            if len(text) >= LARGE_BYTES:
                self.pay(len(text) // BYTES_PER_STEP)
            elif len(text) >= BYTES_PER_STEP:
                self.charge(len(text) // BYTES_PER_STEP)

    def made(self, value: Any) -> Any:
        """Pay for what an operator or a function has made."""
        kind = value.__class__
        if kind is float:
            return value
        if kind is str:
            size_bytes = len(value) if value.isascii() else 4 * len(value)
            if size_bytes < BYTES_PER_STEP:
                # Too short for a step; the round that makes it is paid for.
                self.spent_bytes += size_bytes
            else:
                self.spend(size_bytes)
        elif kind is int:
            if not -INT_MAX < value < INT_MAX:
                raise fault(f"a number has more than {BITS_MAX:,} bits")
        elif kind is bytes:
            self.spend(len(value))
        elif kind is list or kind is tuple:
            self.spend(ELEMENT_BYTES * len(value))
        return value

    def bounded(self, value: Any) -> Any:
        """A value that is no integer out of bounds."""
        if value.__class__ is int and not -INT_MAX < value < INT_MAX:
            raise fault(f"a number has more than {BITS_MAX:,} bits")
        return value

    def weigh(self, value: Any, *, leaves: bool = False, depth_max: int = NESTING_MAX) -> int:
        """Pay for going through a value to its last leaf; its size in bytes, about.

        What `leaves` is kept or sent, so it has to be something that JSON and others can read.
        Each list is paid for before it is gone through.
        """
        size_bytes = self.elements = 0
        level: Any = (value,)
        for _ in range(depth_max):
            below: list[Any] = []
            for each in level:
                kind = each.__class__
                if kind in _HOLDERS:
                    size_bytes += ELEMENT_BYTES * len(each)
                    self.elements += len(each)
                    self.steps += HOLDER_STEPS
                    if kind is list or kind is tuple:
                        if self._are_numbers(each, leaves=leaves):
                            continue
                        self.charge(1 + len(each))
                        below.extend(each)
                        continue
                    if kind is Message and leaves:
                        raise fault("a message cannot be kept inside of something else")
                    self.charge(1 + 2 * len(each))
                    below.extend(each)
                    below.extend(each.values())
                elif kind in _TEXTS:
                    length = len(each)
                    size_bytes += length
                    if length >= BYTES_PER_STEP:
                        self.pass_over(each)
                elif leaves:
                    self._readable(each)
            if not below:
                return size_bytes
            level = below
        raise fault(f"a value is nested more than {depth_max} deep")

    def weigh_output(self, message: Message) -> None:
        """Check that a message can be sent, and charge for encoding it, before it is encoded."""
        elements = 0
        value: Any
        for value in message.values():
            kind = value.__class__
            if kind is str or kind is bytes:
                # Most are short, and a call for each would cost more than the rest of this loop.
                if len(value) >= BYTES_PER_STEP:
                    self.pass_over(value)
            elif kind is int or kind is float:
                if not LOWEST <= value <= HIGHEST:
                    self._readable(value)
            elif value is not None and kind is not bool:
                self.weigh(value, leaves=True, depth_max=DEPTH_MAX)
                elements += self.elements
        if elements:
            self.charge(elements)

    def _are_numbers(self, value: Any, *, leaves: bool) -> bool:
        """Whether it is a list of nothing but numbers, and if it leaves, of such as can; paid for.

        One that is not is paid for again by who goes through it: `sum` stops at what is no number,
        so that this is little.
        """
        if not leaves:
            return self._has_numbers(value)
        if not value or value[0].__class__ not in _NUMBERS:
            return False
        self.charge(1 + len(value) // NUMBERS_PER_STEP)
        try:
            # Python's own loops: infinity and what is no number show in the sum.
            return math.isfinite(sum(value)) and min(value) >= LOWEST and max(value) <= HIGHEST
        except (TypeError, OverflowError):
            return False

    def _has_numbers(self, value: Any) -> bool:
        """Whether it is a list of numbers, which most are, paid for; none can change: one look is
        enough."""
        if value.__class__ is not list and value.__class__ is not tuple:
            return False
        if value is not self._numbers:
            if value and value[0].__class__ not in _NUMBERS:
                return False
            self.charge(1 + len(value) // ELEMENTS_PER_STEP)
            try:
                # Only numbers can be added to 0, and nothing else finds that out as quickly.
                sum(value)
            except (TypeError, OverflowError):
                return False
            self._numbers = value
        self.charge(1 + len(value) // ELEMENTS_PER_STEP)
        return True

    def _readable(self, value: Any) -> None:
        kind = value.__class__
        if kind is int:
            if not LOWEST <= value <= HIGHEST:
                raise fault("a number does not fit into 64 bits")
        elif kind is float and not math.isfinite(value):
            raise fault(f"{value} is no number that can be kept or sent")

    # --- operators ---

    def times(self, left: Any, right: Any) -> Any:
        """`left * right` of anything."""
        if right.__class__ not in _NUMBERS:
            left, right = right, left
        if left.__class__ in _NUMBERS:
            return self.made(left * right)
        if right.__class__ is not int and right.__class__ is not bool:
            return left * right
        if left.__class__ is list or left.__class__ is tuple:
            self.spend(ELEMENT_BYTES * len(left) * max(0, right))
        elif left.__class__ in _TEXTS:
            wide = 1 if left.__class__ is bytes or left.isascii() else 4
            self.spend(wide * len(left) * max(0, right))
        return left * right

    def modulo(self, left: Any, right: Any) -> Any:
        """`left % right`, of numbers: nothing is formatted."""
        if left.__class__ in _TEXTS:
            raise fault('% is for numbers; texts are put together as in f"{a} and {b}"')
        return left % right

    def power(self, base: Any, exponent: Any) -> Any:
        """`base ** exponent`, if it is no more than a number can be."""
        if base.__class__ not in _NUMBERS or exponent.__class__ not in _NUMBERS:
            raise fault("** is for numbers")
        if base.__class__ is not float and exponent.__class__ is not float:
            if abs(base) > 1 and exponent * math.log2(abs(base)) > BITS_MAX:
                raise fault(f"{_short(base)} ** {_short(exponent)} has more than {BITS_MAX:,} bits")
            return self.bounded(base**exponent)
        if base < 0 and not float(exponent).is_integer():
            raise fault("a negative number has no such power")
        return base**exponent

    def compare(self, sign: str, left: Any, right: Any) -> bool:
        """Any of the six comparisons, paid for."""
        kind, other = left.__class__, right.__class__
        if kind in _TEXTS and other in _TEXTS:
            self.charge(min(len(left), len(right)) // BYTES_PER_STEP)
        elif kind in _HOLDERS and other in _HOLDERS:
            self.weigh(left)
            self.weigh(right)
        return _SIGNS[sign](left, right)

    def inside(self, value: Any, whole: Any) -> bool:
        """`value in whole`, paid for."""
        kind = whole.__class__
        if kind in _MEMBERED:
            return value.__class__ is str and value in whole
        if kind is str or kind is bytes:
            if value.__class__ is not kind:
                raise fault(f"only a text can be in a text, not {named(value)}")
            self.search(whole, value)
            return value in whole
        if kind is not list and kind is not tuple:
            raise fault(f"nothing can be in {named(whole)}")
        if value.__class__ in _HOLDERS:
            self.weigh(whole)
            self.weigh(value)
        elif value.__class__ in _TEXTS and len(value) >= BYTES_PER_STEP:
            self._charge_for_comparing(value, whole)
        else:
            self.charge(len(whole) // ELEMENTS_PER_STEP)
        return value in whole

    def _charge_for_comparing(self, text: Any, whole: Any) -> None:
        """Pay for comparing a long text with elements: Python reads those of its length only."""
        self.charge(len(whole) // NUMBERS_PER_STEP)
        kind, length = text.__class__, len(text)
        alike = sum(each.__class__ is kind and len(each) == length for each in whole)
        self.charge(alike * (1 + length // BYTES_PER_STEP))

    def search(self, text: Any, part: Any) -> None:
        """Pay for looking for a part of a text."""
        self.charge(len(text) // BYTES_PER_STEP + len(text) * len(part) // 4096)

    def item(self, whole: Any, index: Any) -> Any:
        """`whole[index]` where the index may be anything."""
        if index.__class__ is str and (whole is None or whole.__class__ in _MEMBERED):
            # A name that is missing is None, however it is asked for.
            return None if whole is None else whole.get(index)
        if index.__class__ in _HOLDERS:
            raise fault(f"{named(index)} is no index")
        return whole[index]

    def cut(self, whole: Any, start: Any, stop: Any, step: Any) -> Any:
        """`whole[start:stop:step]`, paid for."""
        if whole.__class__ not in _TEXTS and whole.__class__ not in (list, tuple):
            raise fault(f"nothing can be cut out of {named(whole)}")
        return self.made(whole[start:stop:step])

    def walk(self, whole: Any) -> Any:
        """What `for` goes through, if every round pays for itself."""
        kind = whole.__class__
        if kind is list or kind is tuple or kind is str:
            return whole
        if kind in _MEMBERED:
            self.spend(ELEMENT_BYTES * len(whole))
            return list(whole)
        raise fault(f"`for` cannot go through {named(whole)}")

    def each(self, whole: Any, cost: int) -> Any:
        """What `for` goes through, paid for at `cost` a round."""
        if whole.__class__ is not range:
            whole = self.walk(whole)
        try:
            steps = len(whole) * cost
        except OverflowError:
            raise self._too_many_steps() from None
        if steps <= LOOK_STEPS:
            self.charge(steps)
            return whole
        if steps > self.steps_max - self.steps:
            raise self._too_many_steps()
        return self._in_portions(whole, cost)

    def _in_portions(self, whole: Any, cost: int) -> Iterator[Any]:
        size = max(1, LOOK_STEPS // cost)
        for start in range(0, len(whole), size):
            part = whole[start : start + size]
            self.charge(len(part) * cost)
            yield from part

    def member(self, whole: Any, name: str, default: Any = None) -> Any:
        """`whole.name`: None, or the default, of what has no such member."""
        if whole.__class__ in _MEMBERED and name.__class__ is str:
            found = whole.get(name)
            return default if found is None else found
        return default

    def text(self, *parts: Any) -> str:
        """The parts one after the other, as f"…" has them."""
        texts = [part if part.__class__ is str else self.spelled(part) for part in parts]
        self.spend(4 * sum(map(len, texts)))
        return "".join(texts)

    def spelled(self, value: Any) -> str:
        """A value as text."""
        self.charge(SPELLING_STEPS)
        if value.__class__ in _HOLDERS or value.__class__ is bytes:
            size_bytes = self.weigh(value)
            self.charge(SPELLING_STEPS * self.elements)
            self.spend(4 * size_bytes)
        return self.made(str(value))  # type: ignore[no-any-return]


_NAMES: Final = {
    type(None): "None",
    bool: "a truth value",
    int: "a number",
    float: "a number",
    str: "a text",
    bytes: "bytes",
    list: "a list",
    tuple: "a tuple",
    dict: "a mapping",
    Message: "a message",
}


def named(value: object) -> str:
    """What a value is, in a sentence."""
    return _NAMES.get(value.__class__, "that")


def _short(number: object) -> str:
    text = str(number)
    return text if len(text) <= 20 else f"{text[:17]}…"
