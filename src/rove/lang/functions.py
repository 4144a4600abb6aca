"""The one implementation of arithmetic and functions, for every runtime.

The last bit must agree at the edge, in the broker and on Spark, so nothing else in Rove
computes these: other runtimes call them, or are tested bit by bit against them.

Rules: integers stay integers under + - *, negation, abs, least and greatest; / and the rest
give floats. What cannot be computed (a division by zero, an overflow of either type, a root
of a negative number, an operand that is no number) is UNKNOWN, that is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

from rove.lang.limits import INTEGER_MAX, INTEGER_MIN
from rove.lang.values import Known, Number, is_number

EARTH_RADIUS_M = 6_371_008.8


def add(left: Number, right: Number) -> Number | None:
    return _fit(left + right)


def subtract(left: Number, right: Number) -> Number | None:
    return _fit(left - right)


def multiply(left: Number, right: Number) -> Number | None:
    return _fit(left * right)


def divide(dividend: Number, divisor: Number) -> Number | None:
    # Both become floats first: Python divides large integers exactly, hardware does not.
    return None if divisor == 0 else _fit(float(dividend) / float(divisor))


def negate(value: Known) -> Known:
    return _fit(-cast(Number, value)) if is_number(value) else None


def _abs(value: Number) -> Number | None:
    return _fit(abs(value))


def _least(*values: Number) -> Number:
    return min(values)


def _greatest(*values: Number) -> Number:
    return max(values)


def _sqrt(value: Number) -> float | None:
    return None if value < 0 else math.sqrt(value)


def _pow(base: Number, exponent: Number) -> float | None:
    try:
        return math.pow(base, exponent)
    except (ValueError, OverflowError):
        return None


def _floor(value: Number) -> Number:
    return value if isinstance(value, int) else float(math.floor(value))


def _ceil(value: Number) -> Number:
    return value if isinstance(value, int) else float(math.ceil(value))


def _distance(lat_1: Number, long_1: Number, lat_2: Number, long_2: Number) -> float:
    """Metres on the sphere between two places in degrees, by the haversine."""
    phi_1, phi_2 = math.radians(lat_1), math.radians(lat_2)
    half_phi = math.sin((phi_2 - phi_1) / 2)
    half_lambda = math.sin((math.radians(long_2) - math.radians(long_1)) / 2)
    haversine = half_phi * half_phi + math.cos(phi_1) * math.cos(phi_2) * (
        half_lambda * half_lambda
    )
    # Outside of -90..90 degrees the cosines may differ in sign; rounding may pass 1.
    return 2 * EARTH_RADIUS_M * math.asin(math.sqrt(min(1.0, max(0.0, haversine))))


ARITHMETIC: dict[str, Callable[[Number, Number], Number | None]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
}

NUMERIC: dict[str, tuple[Callable[..., Number | None], int, int | None]] = {
    "abs": (_abs, 1, 1),
    "least": (_least, 2, None),
    "greatest": (_greatest, 2, None),
    "sqrt": (_sqrt, 1, 1),
    "pow": (_pow, 2, 2),
    "sin": (math.sin, 1, 1),
    "cos": (math.cos, 1, 1),
    "floor": (_floor, 1, 1),
    "ceil": (_ceil, 1, 1),
    "distance": (_distance, 4, 4),
}
"""name: (function of numbers, fewest arguments, most arguments or None for any number)"""

NAMES = (*NUMERIC, "lower")
TEXT_TESTS = ("startswith", "endswith", "contains")


def call(name: str, arguments: list[Known]) -> Known:
    """`name(arguments)`, or None when an argument is UNKNOWN, of the wrong type or unfit."""
    if name == "lower":
        (text,) = arguments
        return text.lower() if isinstance(text, str) else None
    for each in arguments:
        if type(each) is not float and type(each) is not int:
            return None
    return _fit(NUMERIC[name][0](*arguments))


def arithmetic(operator: str, left: Known, right: Known) -> Known:
    """`left operator right`, or None when that is not a finite number."""
    if not (is_number(left) and is_number(right)):
        return None
    return ARITHMETIC[operator](cast(Number, left), cast(Number, right))


def _fit(result: Number | None) -> Number | None:
    """`result`, or None where it left the 64 bits of its type."""
    if type(result) is float:
        return result if math.isfinite(result) else None
    return result if result is not None and INTEGER_MIN <= result <= INTEGER_MAX else None
