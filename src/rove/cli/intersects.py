"""`rove intersects A B`: does some publication match both?"""

from __future__ import annotations

import argparse

from rove.cli.common.output import EXIT_NO, EXIT_YES
from rove.cli.common.relations import ask, configure_relation, show
from rove.lang import ProofResult, intersects

_SAYS = {
    ProofResult.YES: "this publication matches both",
    ProofResult.NO: "no publication matches both",
    ProofResult.UNKNOWN: "they may: neither an example nor a proof that there is none was found",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove intersects`."""
    configure_relation(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the verdict; exit 1 only if they surely do not intersect."""
    answer = ask(intersects, arguments)
    show(answer, _SAYS, arguments.json)
    return EXIT_NO if answer.verdict is ProofResult.NO else EXIT_YES
