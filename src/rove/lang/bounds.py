"""How large and how small a value can become: interval arithmetic over the language.

`enclose` gives an interval that surely holds every value an expression takes while its
variables stay within given ranges, rounding included, and says whether it surely has a value
at all. `surely_at_most` compares two expressions. Both err on the safe side only, so what
`covers` and `intersects` conclude from them holds to the last bit.

Rounding: a single operation on floats never reverses an order (a <= b gives a + c <= b + c
after rounding too), so the ends of an interval computed in floats are right as they are. The
two exceptions are integers beyond 2^53 and `pow`; there the ends are moved outwards.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import product
from typing import TypeAlias

import msgspec

from rove.lang.functions import EARTH_RADIUS_M, NUMERIC
from rove.lang.tree import Arithmetic, Attribute, Call, Literal, Me, Negation, Time, ValueNode

_MAX = sys.float_info.max
_EXACT_MAX = 2.0**53
_INTEGER_END = 2.0**63
_HALF_EQUATOR_M = math.pi * EARTH_RADIUS_M * (1 + 1e-12)
_ROUNDING = 2.0**-52
_PAIRS_MAX = 64
"""Pairs of parts compared for one question; least(…) within least(…) would breed them."""

Ranges: TypeAlias = Mapping[ValueNode, tuple[float, float]]
"""For each variable that is surely a number, the least and the greatest it can be."""


class Enclosure(msgspec.Struct, frozen=True):
    """Between `low` and `high` if it has a value; `sure` if it always has one."""

    low: float
    high: float
    sure: bool = True

    @property
    def never(self) -> bool:
        """True if it surely has no value at all, as the root of a negative number."""
        return self.low > self.high


ANYTHING = Enclosure(-_MAX, _MAX, sure=False)
NEVER = Enclosure(_MAX, -_MAX, sure=False)


def enclose(node: ValueNode, ranges: Ranges) -> Enclosure:
    """An interval around every value of `node` while its variables stay within `ranges`."""
    match node:
        case Literal(value=value):
            if isinstance(value, bool | str):
                return ANYTHING
            return Enclosure(_down(value), _up(value))
        case Attribute() | Me() | Time():
            low, high = ranges.get(node, (-_MAX, _MAX))
            return Enclosure(_down(low), _up(high), sure=node in ranges)
        case Negation(operand=operand):
            inner = enclose(operand, ranges)
            return NEVER if inner.never else _safe(-inner.high, -inner.low, inner.sure)
        case Arithmetic(left=left, right=right):
            return _arithmetic(node, enclose(left, ranges), enclose(right, ranges))
        case Call(name=name, arguments=arguments):
            return _call(name, [enclose(argument, ranges) for argument in arguments])


def _arithmetic(node: Arithmetic, a: Enclosure, b: Enclosure) -> Enclosure:
    if a.never or b.never or (node.operator == "/" and b.low == b.high == 0):
        return NEVER
    sure = a.sure and b.sure
    overflow = math.inf if _is_float(node) else _INTEGER_END
    if node.operator == "+":
        return _safe(a.low + b.low, a.high + b.high, sure, overflow)
    if node.operator == "-":
        return _safe(a.low - b.high, a.high - b.low, sure, overflow)
    if node.operator == "*":
        return _corners(lambda x, y: x * y, [a, b], sure, overflow)
    if b.low <= 0 <= b.high:
        return ANYTHING
    return _corners(lambda x, y: x / y, [a, b], sure, overflow)


def _call(name: str, arguments: list[Enclosure]) -> Enclosure:
    if any(a.never for a in arguments):
        return NEVER
    sure = all(a.sure for a in arguments)
    first = arguments[0]
    if name == "abs":
        least = 0.0 if first.low <= 0 <= first.high else min(abs(first.low), abs(first.high))
        return _safe(least, max(abs(first.low), abs(first.high)), sure)
    if name in ("least", "greatest"):
        choose = min if name == "least" else max
        return Enclosure(choose(a.low for a in arguments), choose(a.high for a in arguments), sure)
    if name in ("floor", "ceil"):
        whole: Callable[[float], int] = math.floor if name == "floor" else math.ceil
        return Enclosure(float(whole(first.low)), float(whole(first.high)), sure)
    if name == "sqrt":
        if first.high < 0:
            return NEVER
        return Enclosure(
            math.sqrt(max(0.0, first.low)), math.sqrt(first.high), sure and first.low >= 0
        )
    if name == "pow":
        return _power(*arguments, sure=sure)
    if name in ("sin", "cos", "distance"):
        return _at_points(name, arguments, sure)
    return ANYTHING  # `lower`, and every function whose range is not known here


def _at_points(name: str, arguments: list[Enclosure], sure: bool) -> Enclosure:
    """sin, cos and distance: computed where all arguments are points, else their whole range."""
    if all(a.low == a.high and abs(a.low) < _EXACT_MAX for a in arguments):
        value = NUMERIC[name][0](*(a.low for a in arguments))
        return Enclosure(float(value or 0.0), float(value or 0.0), sure)
    low, high = (0.0, _HALF_EQUATOR_M) if name == "distance" else (-1.0, 1.0)
    return Enclosure(low, high, sure)


def _power(base: Enclosure, exponent: Enclosure, *, sure: bool) -> Enclosure:
    if base.low < 0 or (base.low == 0 and exponent.low < 0):
        return ANYTHING
    try:
        found = _corners(math.pow, [base, exponent], sure, math.inf)
    except OverflowError:
        return Enclosure(0.0, _MAX, sure=False)
    # pow of the C library may be off by a unit in the last place, and not monotone there.
    low, high = found.low * (1 - 4 * _ROUNDING), found.high * (1 + 4 * _ROUNDING)
    return _safe(low, high, found.sure, math.inf)


def _corners(
    function: Callable[[float, float], float],
    sides: list[Enclosure],
    sure: bool,
    overflow: float,
) -> Enclosure:
    """The extremes of a function that is monotone in each argument: they lie in corners."""
    values = [function(*corner) for corner in product(*((s.low, s.high) for s in sides))]
    values = [0.0 if math.isnan(value) else value for value in values]
    return _safe(min(values), max(values), sure, overflow)


def _safe(low: float, high: float, sure: bool, overflow: float = _INTEGER_END) -> Enclosure:
    """An enclosure that allows for integers: rounded beyond 2^53, overflowing at 2^63."""
    sure = sure and -overflow < low <= high < overflow
    low, high = _finite(low), _finite(high)
    if max(abs(low), abs(high)) >= _EXACT_MAX:
        low, high = low - abs(low) * 2 * _ROUNDING, high + abs(high) * 2 * _ROUNDING
    return Enclosure(_finite(low), _finite(high), sure)


def _finite(end: float) -> float:
    """An end of an interval, no further out than numbers go: what overflows has no value."""
    return min(max(end, -_MAX), _MAX)


def _down(value: int | float) -> float:
    rounded = float(value)
    return math.nextafter(rounded, -math.inf) if rounded > value else rounded


def _up(value: int | float) -> float:
    rounded = float(value)
    return math.nextafter(rounded, math.inf) if rounded < value else rounded


# -- comparing two expressions ----------------------------------------------------------


Lines: TypeAlias = "dict[int, _Linear | None]"
"""Values as linear functions, by identity: for several questions about the same ranges."""


def surely_at_most(a: ValueNode, b: ValueNode, ranges: Ranges, lines: Lines | None = None) -> bool:
    """True only if a <= b for certain, wherever both have a value."""
    return _at_most(a, b, ranges, {}, {} if lines is None else lines)


_Compared: TypeAlias = dict[tuple[int, int], bool]
"""The pairs of parts, by identity, that one question has led to, and what came out."""


def _at_most(a: ValueNode, b: ValueNode, ranges: Ranges, compared: _Compared, lines: Lines) -> bool:
    pair = id(a), id(b)
    if pair not in compared:
        if len(compared) >= _PAIRS_MAX:
            return False
        compared[pair] = False
        compared[pair] = (
            a == b
            or surely_less(a, b, ranges, lines, or_equal=True)
            or _by_structure(a, b, ranges, compared, lines)
            or _by_choice(a, b, ranges, compared, lines)
        )
    return compared[pair]


def _rounds(node: Arithmetic, ranges: Ranges) -> bool:
    """True if the operation is that of floats, or so small that it makes no difference."""
    parts = [enclose(part, ranges) for part in (node, node.left, node.right)]
    is_small = all(-_EXACT_MAX < part.low <= part.high < _EXACT_MAX for part in parts)
    return is_small or _is_float(node)


def _is_float(node: ValueNode) -> bool:
    """True if the value is a float wherever there is one, and never an integer."""
    match node:
        case Literal(value=value):
            return isinstance(value, float)
        case Attribute() | Me():
            return False
        case Negation(operand=operand):
            return _is_float(operand)
        case Arithmetic(operator="+" | "-" | "*", left=left, right=right):
            return _is_float(left) or _is_float(right)
        case Call(name="abs" | "least" | "greatest" | "floor" | "ceil", arguments=arguments):
            return all(map(_is_float, arguments))
    return True


def surely_less(
    a: ValueNode,
    b: ValueNode,
    ranges: Ranges,
    lines: Lines | None = None,
    *,
    or_equal: bool = False,
) -> bool:
    """True only if a < b for certain (or a <= b), wherever both have a value."""
    left, right = enclose(a, ranges), enclose(b, ranges)
    if left.high < right.low or (or_equal and left.high == right.low):
        return True
    return _by_difference(a, b, ranges, {} if lines is None else lines)


def _by_structure(
    a: ValueNode, b: ValueNode, ranges: Ranges, compared: _Compared, lines: Lines
) -> bool:
    """The same operation on ordered floats keeps the order, rounding included.

    With integers it need not: beyond 2^53, x + 3 is exact where x + 3.5 is rounded down.
    """
    if isinstance(a, Call) and isinstance(b, Call) and a.name == b.name:
        alike = a.name in ("least", "greatest") and len(a.arguments) == len(b.arguments)
        return alike and all(
            _at_most(x, y, ranges, compared, lines)
            for x, y in zip(a.arguments, b.arguments, strict=True)
        )
    if not (isinstance(a, Arithmetic) and isinstance(b, Arithmetic)):
        return False
    if a.operator == b.operator and _rounds(a, ranges) and _rounds(b, ranges):
        if a.operator == "+":
            return _at_most(a.left, b.left, ranges, compared, lines) and _at_most(
                a.right, b.right, ranges, compared, lines
            )
        if a.operator == "-":
            return _at_most(a.left, b.left, ranges, compared, lines) and _at_most(
                b.right, a.right, ranges, compared, lines
            )
        if a.operator == "*" and a.left == b.left and isinstance(a.left, Literal):
            return enclose(a.left, ranges).low >= 0 and _at_most(
                a.right, b.right, ranges, compared, lines
            )
    return False


def _by_choice(
    a: ValueNode, b: ValueNode, ranges: Ranges, compared: _Compared, lines: Lines
) -> bool:
    """least(…) is at most each argument and at least what all are; greatest(…) likewise."""
    if isinstance(b, Call) and b.name == "least":
        return all(_at_most(a, y, ranges, compared, lines) for y in b.arguments)
    if isinstance(a, Call) and a.name == "greatest":
        return all(_at_most(x, b, ranges, compared, lines) for x in a.arguments)
    if isinstance(a, Call) and a.name == "least":
        return any(_at_most(x, b, ranges, compared, lines) for x in a.arguments)
    if isinstance(b, Call) and b.name == "greatest":
        return any(_at_most(a, y, ranges, compared, lines) for y in b.arguments)
    return False


def line_in_time(node: ValueNode, t_max: float) -> tuple[float, float, float] | None:
    """(base, slope, error): for t from 0 to `t_max` the value is base + slope * t, give or take.

    None where it is no line. The error covers rounding here and wherever the line is computed.
    """
    line = _linear(node, {Time(): (0.0, t_max)})
    if line is None or any(type(variable) is not Time for variable in line.factors):
        return None
    slope = line.factors.get(Time(), Fraction())
    size = abs(line.constant) + abs(slope) * Fraction(t_max)
    error = 2 * line.error + 8 * size * Fraction(_ROUNDING)
    if size + error > Fraction(_MAX) / 4:
        return None
    return float(line.constant), float(slope), float(error)


class _Linear(msgspec.Struct, frozen=True):
    """constant + Σ factor · variable, exactly, and how far rounding may take floats from it."""

    factors: dict[ValueNode, Fraction]
    constant: Fraction
    error: Fraction


def _by_difference(a: ValueNode, b: ValueNode, ranges: Ranges, lines: Lines) -> bool:
    """True if b - a, as a linear function, stays above all rounding errors."""
    for node in (a, b):
        if id(node) not in lines:
            lines[id(node)] = _linear(node, ranges)
    left, right = lines[id(a)], lines[id(b)]
    if left is None or right is None:
        return False
    least = right.constant - left.constant
    for variable in {**left.factors, **right.factors}:
        factor = right.factors.get(variable, Fraction()) - left.factors.get(variable, Fraction())
        if factor:
            if variable not in ranges:
                return False
            low, high = ranges[variable]
            least += factor * Fraction(low if factor > 0 else high)
    return least > left.error + right.error


def _linear(node: ValueNode, ranges: Ranges) -> _Linear | None:
    match node:
        case Literal(value=bool() | str()):
            return None
        case Literal(value=value):
            return _Linear({}, Fraction(value), Fraction())
        case Attribute() | Me() | Time():
            return _Linear({node: Fraction(1)}, Fraction(), Fraction())
        case Negation(operand=operand):
            return _scaled(_linear(operand, ranges), Fraction(-1))
        case Arithmetic(operator="+" | "-", left=left, right=right):
            return _added(node, _linear(left, ranges), _linear(right, ranges), ranges)
        case Arithmetic(operator="*", left=Literal(value=int() | float() as factor), right=right):
            scaled = _scaled(_linear(right, ranges), Fraction(factor))
            return _rounded(node, scaled, ranges)
    return None


def _added(
    node: Arithmetic, left: _Linear | None, right: _Linear | None, ranges: Ranges
) -> _Linear | None:
    right = _scaled(right, Fraction(-1 if node.operator == "-" else 1))
    if left is None or right is None:
        return None
    factors = dict(left.factors)
    for variable, factor in right.factors.items():
        factors[variable] = factors.get(variable, Fraction()) + factor
    total = _Linear(factors, left.constant + right.constant, left.error + right.error)
    return _rounded(node, total, ranges)


def _scaled(linear: _Linear | None, factor: Fraction) -> _Linear | None:
    if linear is None:
        return None
    factors = {variable: factor * old for variable, old in linear.factors.items()}
    return _Linear(factors, linear.constant * factor, linear.error * abs(factor))


def _rounded(node: Arithmetic, linear: _Linear | None, ranges: Ranges) -> _Linear | None:
    """`linear` with the rounding of one more operation, whose result is the value of `node`.

    Operands count as well as the result. An integer that meets a float is rounded first, so
    that x - 1e16 can be 0.0 for an x that is not 10^16; and 0.1 * 5e-324 is lost altogether.
    """
    if linear is None:
        return None
    around = [enclose(part, ranges) for part in (node, node.left, node.right)]
    size = max(max(abs(each.low), abs(each.high)) for each in around)
    error = 3 * Fraction(size) * Fraction(_ROUNDING)
    return _Linear(linear.factors, linear.constant, linear.error + error)
