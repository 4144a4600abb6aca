"""Arguments that several commands have: numbers within limits, `--json`, and parts of a command."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

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


def add_json_flag(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="as one line of JSON")


# --- parts ----------------------------------------------------------------------------------------


class CommandPart(NamedTuple):
    """A part of a command, as `ingest` in `rove pipeline ingest`."""

    summary: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def add_parts(parser: argparse.ArgumentParser, parts: Mapping[str, CommandPart]) -> None:
    """Give these parts to a command."""
    chosen = parser.add_subparsers(metavar="PART", required=True, title="parts")
    for name, part in parts.items():
        summary = f"{part.summary[0].upper()}{part.summary[1:]}."
        child = chosen.add_parser(name, help=part.summary, description=summary)
        part.configure(child)
        # Every command has it; after the part it would otherwise be unknown.
        child.add_argument(
            "--debug",
            action="store_true",
            default=argparse.SUPPRESS,
            help="show where in the code an error came from",
        )
        child.set_defaults(run_part=part.run)


def run_part(arguments: argparse.Namespace) -> int:
    """Run the part that was named."""
    code: int = arguments.run_part(arguments)
    return code
