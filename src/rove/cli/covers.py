"""`rove covers A B`: does every publication that matches B match A?"""

from __future__ import annotations

import argparse

from rove.cli.common.output import EXIT_DONT_KNOW, EXIT_NO, EXIT_YES
from rove.cli.common.relations import ask, configure_relation, show
from rove.lang import ProofResult, covers

_SAYS = {
    ProofResult.YES: "every publication that matches B matches A",
    ProofResult.NO: "this one matches B and not A",
    ProofResult.UNKNOWN: "neither a proof nor a counterexample was found",
}
_EXITS = {ProofResult.YES: EXIT_YES, ProofResult.NO: EXIT_NO, ProofResult.UNKNOWN: EXIT_DONT_KNOW}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove covers`."""
    configure_relation(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the verdict; exit 0 for yes, 1 for no, 3 for "don't know"."""
    answer = ask(covers, arguments)
    show(answer, _SAYS, arguments.json)
    return _EXITS[answer.verdict]
