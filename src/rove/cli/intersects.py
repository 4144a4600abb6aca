"""`rove intersects A B`: does some publication match both?"""

from __future__ import annotations

import argparse

from rove.cli.common.output import EXIT_NO, EXIT_YES
from rove.cli.common.relations import ask, configure_relation, show
from rove.lang import Verdict, intersects

_SAYS = {
    Verdict.YES: "this publication matches both",
    Verdict.NO: "no publication matches both",
    Verdict.UNKNOWN: "they may intersect; no example was found, and no proof that there is none",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove intersects`."""
    configure_relation(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the verdict; exit 1 only if they surely do not intersect."""
    answer = ask(intersects, arguments)
    show(answer, _SAYS, arguments.json)
    return EXIT_NO if answer.verdict is Verdict.NO else EXIT_YES
