"""`rove bench SUITE`: measure this machine; a table for people, `--json` for programs."""

from __future__ import annotations

import argparse

from rove.lab import language_bench
from rove.lab.measure import show

_SUITES = {"language": language_bench.run}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove bench`."""
    parser.add_argument("suite", choices=sorted(_SUITES), help="what to measure")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(arguments: argparse.Namespace) -> int:
    """Run one suite and print its measures."""
    show(_SUITES[arguments.suite](), as_json=arguments.json)
    return 0
