"""What `rove covers` and `rove intersects` share: two texts in, a verdict and a witness out."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable

from rove.cli.common.arguments import add_json_flag
from rove.cli.common.input import read_subscription
from rove.cli.common.output import emit_json, emit_rows
from rove.errors import UsageError
from rove.lang import Answer, ProofResult, Witness
from rove.lang.algebra import FOREVER_S


def configure_relation(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a question about two subscriptions."""
    parser.add_argument("a", help="a subscription, or - to read it from standard input")
    parser.add_argument("b", help="another subscription")
    parser.add_argument(
        "--during",
        nargs=2,
        type=float,
        metavar=("FROM", "TO"),
        default=(0.0, FOREVER_S),
        help="the seconds of t that are asked about (default: from 0 to a billion)",
    )
    parser.add_argument(
        "--same-subscriber", action="store_true", help="me. means the same subscriber in both"
    )
    add_json_flag(parser)


def ask(relation: Callable[..., Answer], arguments: argparse.Namespace) -> Answer:
    """The answer to the question that the arguments put."""
    start_s, end_s = arguments.during
    if not (0 <= start_s <= end_s < math.inf):
        raise UsageError("--during takes two finite numbers of seconds, 0 <= FROM <= TO")
    return relation(
        read_subscription(arguments.a),
        read_subscription(arguments.b),
        during=(start_s, end_s),
        same_subscriber=arguments.same_subscriber,
    )


def show(answer: Answer, says: dict[ProofResult, str], as_json: bool) -> None:
    """Print the verdict, what it says, and the witness if there is one."""
    if as_json:
        found = {"verdict": answer.verdict.value, "witness": _witness(answer.witness)}
        emit_json(found | ({"reason": answer.reason} if answer.reason else {}))
        return
    because = f" ({answer.reason})" if answer.reason else ""
    print(f"{answer.verdict.value}: {says[answer.verdict]}{because}")
    if answer.witness is not None:
        emit_rows(
            (f"  {name}", json.dumps(value, ensure_ascii=False))
            for name, value in (_witness(answer.witness) or {}).items()
        )


def _witness(witness: Witness | None) -> dict[str, object] | None:
    if witness is None:
        return None
    found: dict[str, object] = {"publication": witness.publication, "t": witness.t}
    return found | ({"me": witness.me} if witness.me else {})
