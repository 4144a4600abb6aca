"""What a doctor found: lines for people as soon as they are known, or one for programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from rove.cli.common.output import emit_json

EXIT_PROBLEM = 1


class Finding(Protocol):
    """One thing that was looked at."""

    @property
    def state(self) -> str:
        """`ok`, `warning` or `problem`."""

    @property
    def subject(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def advice(self) -> str: ...


def show(findings: Iterable[Finding], *, as_json: bool) -> int:
    """Print findings; the exit code says whether there are problems."""
    found = []
    for finding in findings:
        found.append(finding)
        if not as_json:
            _print_for_people(finding)
    problems = sum(finding.state == "problem" for finding in found)
    if as_json:
        emit_json({"ok": not problems, "findings": msgspec.to_builtins(found)})
    else:
        warnings = sum(finding.state == "warning" for finding in found)
        print(f"\n{problems} problems, {warnings} warnings")
    return EXIT_PROBLEM if problems else 0


def _print_for_people(finding: Finding) -> None:
    print(f"{finding.state:<8} {finding.subject:<14} {finding.text}", flush=True)
    if finding.advice:
        print(f"{'':<8} {'':<14} → {finding.advice}", flush=True)
