"""`rove check TEXT`: what a subscription means, or what is wrong with it."""

from __future__ import annotations

import argparse

import msgspec

from rove.broker.limits import Limits
from rove.broker.subscriptions.interest import expression_fault
from rove.cli.common.arguments import add_json_flag
from rove.cli.common.input import read_expression, read_object
from rove.cli.common.output import emit_json, emit_rows
from rove.lang import Description, check_schema, describe, parse
from rove.lang.costs import Cost, cost_of


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove check`."""
    parser.add_argument("text", help="a subscription, or - to read one from standard input")
    parser.add_argument(
        "--schema",
        metavar="JSON|@FILE",
        help='known attributes and their types, as {"lat": "number", "kind": "string"}',
    )
    add_json_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the description of the text."""
    text = read_expression(arguments.text)
    subscription = parse(text)
    if arguments.schema is not None:
        check_schema(subscription, read_object(arguments.schema, "--schema"), text)
    description = describe(subscription)
    cost = cost_of(subscription)
    fault = expression_fault(cost, Limits())
    if arguments.json:
        summary = {
            "matches": description.matches,
            "indexed": description.indexed,
            "cost": msgspec.to_builtins(cost),
            "refused": fault,
        }
        emit_json(msgspec.to_builtins(description) | summary)
    else:
        emit_rows(_rows(description) + _cost_rows(cost, fault))
    return 0


def _rows(description: Description) -> list[tuple[str, str]]:
    rows = [
        ("canonical", description.canonical),
        ("kind", ", ".join(description.kinds)),
        (
            "attributes",
            ", ".join(f"{name} ({' or '.join(k)})" for name, k in description.attributes.items()),
        ),
        ("state", ", ".join(description.variables)),
        ("normal form", _size(description)),
        ("index", _index(description)),
    ]
    return [(name, value) for name, value in rows if value] + _index_rows(description)


def _cost_rows(cost: Cost, fault: str | None) -> list[tuple[str, str]]:
    limits = Limits()
    share = f"{cost.peak_steps / limits.text_steps_max:.1%} of what a text may cost"
    at_first = f" ({cost.first_steps:,} at first)" if cost.first_steps else ""
    rows = [("cost", f"{cost.matching_steps:,} steps a publication of 1 KB{at_first}, {share}")]
    if cost.moving_steps:
        rows.append(("", f"{cost.moving_steps:,} steps a change of me."))
    if fault is not None:
        rows.append(("", f"a broker refuses it: {fault}"))
    return rows


def _size(description: Description) -> str:
    conjunctions = f"{description.conjunctions} conjunction{'s' * (description.conjunctions != 1)}"
    parts = f"{description.parts} part{'s' * (description.parts != 1)}"
    return f"{conjunctions}, {parts}; matches {description.matches}"


def _index(description: Description) -> str:
    if description.matches != "something":
        return f"not needed: {description.matches} matches"
    if description.indexed:
        return "yes"
    return "no: some conjunction has no part that an index can find; every publication is checked"


def _index_rows(description: Description) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for number, conjunction in enumerate(description.index, start=1):
        width = max((len(part.part) for part in conjunction), default=0)
        label = f"  {number}." if len(description.index) > 1 else "  "
        for part in conjunction:
            rows.append((label, f"{part.part:<{width}}  {part.how}"))
            label = "  "
    return rows
