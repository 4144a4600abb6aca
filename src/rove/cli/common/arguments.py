"""What options take, checked while the command line is read: numbers, and who may be so large."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Final

_PORT_MAX: Final = 65_535


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of an option that takes a whole number, both ends included."""
    allowed = f", {least} or more" if most is None else f" from {least} to {most:,}"

    def read(written: str) -> int:
        number = int(written) if written.isascii() and written.isdecimal() else -1
        if number < least or (most is not None and number > most):
            raise argparse.ArgumentTypeError(f"{written} is not a whole number{allowed}")
        return number

    return read


def number_of(unit: str, most: float) -> Callable[[str], float]:
    """The type of an option that takes an amount: more than nothing."""

    def read(written: str) -> float:
        try:
            number = float(written)
        except ValueError:
            number = math.nan
        if not 0 < number <= most:
            raise argparse.ArgumentTypeError(
                f"{written} is not a number of {unit} above 0 and up to {most:,.0f}"
            )
        return number

    return read


port_number: Final = whole_number(0, _PORT_MAX)
"""A port, 0 for any that is free."""
