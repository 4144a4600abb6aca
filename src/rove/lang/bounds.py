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
from rove.lang.tree import Arithmetic, Attribute, Call, Literal, Me, Negation, Time, ValueNode, walk

_MAX = sys.float_info.max
_EXACT_MAX = 2.0**53
_INTEGER_END = 2.0**63
_HALF_EQUATOR_M = math.pi * EARTH_RADIUS_M * (1 + 1e-12)
_ROUNDING = 2.0**-52

Variable: TypeAlias = Attribute | Me | Time
Ranges: TypeAlias = Mapping[ValueNode, tuple[float, float]]
"""For each variable that is surely a number, the least and the greatest it can be."""


class Enclosure(msgspec.Struct, frozen=True):
    """Between `low` and `high` if it has a value; `sure` if it always has one."""

    low: float
    high: float
    sure: bool = True


ANYTHING = Enclosure(-_MAX, _MAX, sure=False)


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
            return _safe(-inner.high, -inner.low, inner.sure)
        case Arithmetic(operator=operator, left=left, right=right):
            return _arithmetic(operator, enclose(left, ranges), enclose(right, ranges))
        case Call(name=name, arguments=arguments):
            return _call(name, [enclose(argument, ranges) for argument in arguments])


def _arithmetic(operator: str, a: Enclosure, b: Enclosure) -> Enclosure:
    sure = a.sure and b.sure
    if operator == "+":
        return _safe(a.low + b.low, a.high + b.high, sure)
    if operator == "-":
        return _safe(a.low - b.high, a.high - b.low, sure)
    if operator == "*":
        return _corners(lambda x, y: x * y, [a, b], sure)
    if b.low <= 0 <= b.high:
        return ANYTHING
    return _corners(lambda x, y: x / y, [a, b], sure)


def _call(name: str, arguments: list[Enclosure]) -> Enclosure:
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
        low, high = max(0.0, first.low), max(0.0, first.high)
        return Enclosure(math.sqrt(low), math.sqrt(high), sure and first.low >= 0)
    if name == "pow":
        return _power(*arguments, sure=sure)
    if name == "lower":
        return ANYTHING
    return _at_points(name, arguments, sure)


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
        found = _corners(math.pow, [base, exponent], sure)
    except OverflowError:
        return Enclosure(0.0, _MAX, sure=False)
    # pow of the C library may be off by a unit in the last place, and not monotone there.
    return _safe(found.low * (1 - 4 * _ROUNDING), found.high * (1 + 4 * _ROUNDING), found.sure)


def _corners(
    function: Callable[[float, float], float], sides: list[Enclosure], sure: bool
) -> Enclosure:
    """The extremes of a function that is monotone in each argument: they lie in corners."""
    values = [function(*corner) for corner in product(*((s.low, s.high) for s in sides))]
    values = [0.0 if math.isnan(value) else value for value in values]
    return _safe(min(values), max(values), sure)


def _safe(low: float, high: float, sure: bool) -> Enclosure:
    """An enclosure that allows for integers: rounded beyond 2^53, overflowing at 2^63."""
    low, high = max(low, -_MAX), min(high, _MAX)
    if max(abs(low), abs(high)) >= _EXACT_MAX:
        sure = sure and max(abs(low), abs(high)) < _INTEGER_END
        low, high = low - abs(low) * 2 * _ROUNDING, high + abs(high) * 2 * _ROUNDING
    return Enclosure(max(low, -_MAX), min(high, _MAX), sure)


def _down(value: int | float) -> float:
    rounded = float(value)
    return math.nextafter(rounded, -math.inf) if rounded > value else rounded


def _up(value: int | float) -> float:
    rounded = float(value)
    return math.nextafter(rounded, math.inf) if rounded < value else rounded


# -- comparing two expressions ----------------------------------------------------------


def surely_at_most(a: ValueNode, b: ValueNode, ranges: Ranges) -> bool:
    """True only if a <= b for certain, wherever both have a value."""
    if a == b or surely_less(a, b, ranges, or_equal=True):
        return True
    return _is_float(a) and _is_float(b) and _by_structure(a, b, ranges)


def _is_float(node: ValueNode) -> bool:
    """True if no attribute or state variable, which may be an integer, has a part in `node`."""
    return not any(isinstance(part, Attribute | Me) for part in walk(node))


def surely_less(a: ValueNode, b: ValueNode, ranges: Ranges, *, or_equal: bool = False) -> bool:
    """True only if a < b for certain (or a <= b), wherever both have a value."""
    left, right = enclose(a, ranges), enclose(b, ranges)
    if left.high < right.low or (or_equal and left.high == right.low):
        return True
    return _by_difference(a, b, ranges)


def _by_structure(a: ValueNode, b: ValueNode, ranges: Ranges) -> bool:
    """The same operation on ordered floats keeps the order, rounding included.

    With integers it need not: beyond 2^53, x + 3 is exact where x + 3.5 is rounded down.
    """
    if isinstance(a, Arithmetic) and isinstance(b, Arithmetic) and a.operator == b.operator:
        if a.operator == "+":
            return surely_at_most(a.left, b.left, ranges) and surely_at_most(
                a.right, b.right, ranges
            )
        if a.operator == "-":
            return surely_at_most(a.left, b.left, ranges) and surely_at_most(
                b.right, a.right, ranges
            )
        if a.operator == "*" and a.left == b.left and isinstance(a.left, Literal):
            return enclose(a.left, ranges).low >= 0 and surely_at_most(a.right, b.right, ranges)
    if isinstance(a, Call) and isinstance(b, Call) and a.name == b.name:
        alike = a.name in ("least", "greatest") and len(a.arguments) == len(b.arguments)
        return alike and all(
            surely_at_most(x, y, ranges) for x, y in zip(a.arguments, b.arguments, strict=True)
        )
    return _by_choice(a, b, ranges)


def _by_choice(a: ValueNode, b: ValueNode, ranges: Ranges) -> bool:
    """least(…) is at most each argument, greatest(…) at least each."""
    if isinstance(a, Call) and a.name == "least":
        return any(surely_at_most(x, b, ranges) for x in a.arguments)
    if isinstance(b, Call) and b.name == "greatest":
        return any(surely_at_most(a, y, ranges) for y in b.arguments)
    return False


class _Linear(msgspec.Struct, frozen=True):
    """constant + Σ factor · variable, exactly, and how far rounding may take floats from it."""

    factors: dict[ValueNode, Fraction]
    constant: Fraction
    error: Fraction


def _by_difference(a: ValueNode, b: ValueNode, ranges: Ranges) -> bool:
    """True if b - a, as a linear function, stays above all rounding errors."""
    left, right = _linear(a, ranges), _linear(b, ranges)
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
        case Arithmetic(operator="+" | "-" as operator, left=left, right=right):
            return _added(node, operator, _linear(left, ranges), _linear(right, ranges), ranges)
        case Arithmetic(operator="*", left=Literal(value=int() | float() as factor), right=right):
            scaled = _scaled(_linear(right, ranges), Fraction(factor))
            return _rounded(node, scaled, ranges)
    return None


def _added(
    node: ValueNode, operator: str, left: _Linear | None, right: _Linear | None, ranges: Ranges
) -> _Linear | None:
    right = _scaled(right, Fraction(-1 if operator == "-" else 1))
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


def _rounded(node: ValueNode, linear: _Linear | None, ranges: Ranges) -> _Linear | None:
    """`linear` with the rounding of one more operation, whose result is the value of `node`."""
    if linear is None:
        return None
    around = enclose(node, ranges)
    size = Fraction(max(abs(around.low), abs(around.high)))
    return _Linear(linear.factors, linear.constant, linear.error + size * Fraction(_ROUNDING))
