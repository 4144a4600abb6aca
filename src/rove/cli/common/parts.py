"""Commands that have parts: `rove pipeline PART`, `rove world PART`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import NamedTuple


class Part(NamedTuple):
    """One of the words after a command."""

    summary: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def add_parts(parser: argparse.ArgumentParser, parts: Mapping[str, Part]) -> None:
    """Let a command have these parts."""
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
