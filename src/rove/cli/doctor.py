"""`rove doctor`: would a broker start here and run well; if not, what to do."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import msgspec

from rove.cli.config import add_options, load_for
from rove.cli.output import emit_json
from rove.errors import RoveError
from rove.serve.doctor import Finding, examine_configuration, examine_machine

EXIT_PROBLEM = 1


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove doctor`."""
    add_options(parser)
    parser.add_argument("--json", action="store_true", help="as one line of JSON")


def run(arguments: argparse.Namespace) -> int:
    """Examine the machine and the configuration."""
    findings = []
    for finding in _examine(arguments):
        findings.append(finding)
        if not arguments.json:
            _print_for_people(finding)
    problems = sum(finding.state == "problem" for finding in findings)
    if arguments.json:
        emit_json({"ok": not problems, "findings": msgspec.to_builtins(findings)})
    else:
        warnings = sum(finding.state == "warning" for finding in findings)
        print(f"\n{problems} problems, {warnings} warnings")
    return EXIT_PROBLEM if problems else 0


def _examine(arguments: argparse.Namespace) -> Iterator[Finding]:
    now_s = time.time()
    yield from examine_machine(now_s)
    try:
        config = load_for(arguments).config
    except RoveError as error:
        yield Finding("configuration", "problem", str(error), "`rove config` explains every key")
        return
    yield from examine_configuration(config, now_s)


def _print_for_people(finding: Finding) -> None:
    print(f"{finding.state:<8} {finding.subject:<14} {finding.text}", flush=True)
    if finding.advice:
        print(f"{'':<8} {'':<14} → {finding.advice}", flush=True)
