"""`rove covers A B`: does every publication that matches B match A?"""

from __future__ import annotations

import argparse

from rove.cli.common.output import EXIT_DONT_KNOW, EXIT_NO, EXIT_YES
from rove.cli.common.relations import ask, configure_relation, show
from rove.lang import Verdict, covers

_SAYS = {
    Verdict.YES: "every publication that matches B matches A",
    Verdict.NO: "this one matches B and not A",
    Verdict.UNKNOWN: "neither a proof nor a counterexample was found",
}
_EXITS = {Verdict.YES: EXIT_YES, Verdict.NO: EXIT_NO, Verdict.UNKNOWN: EXIT_DONT_KNOW}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove covers`."""
    configure_relation(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the verdict; exit 0 for yes, 1 for no, 3 for "don't know"."""
    answer = ask(covers, arguments)
    show(answer, _SAYS, arguments.json)
    return _EXITS[answer.verdict]
