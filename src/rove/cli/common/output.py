"""How commands write: results as rows or JSON, numbers with units, the findings of a doctor.

Results go to stdout, everything else to stderr; with `--json` a result is one JSON value on one
line. The module imports neither rich nor msgspec at the top, because a command that prints one line
should not wait for them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any, Final, Protocol, TextIO

# Commands that answer a question say so with their exit code; 2 is an error, as everywhere.
EXIT_YES = 0
EXIT_NO = 1
EXIT_DONT_KNOW = 3


def emit_json(value: Any) -> None:
    """Write one value as one line of JSON.

    Escaped to ASCII, so that it survives any terminal's encoding and even half a surrogate
    pair; NaN and infinities raise ValueError, because no JSON reader would take them back.
    """
    sys.stdout.write(json.dumps(value, allow_nan=False) + "\n")


def emit_rows(rows: Iterable[tuple[str, str]]) -> None:
    """Write names and values in two columns."""
    rows = list(rows)
    width = max((len(name) for name, _ in rows), default=0)
    sys.stdout.writelines(f"{name:<{width}}  {value}\n" for name, value in rows)


def is_terminal(stream: TextIO | None = None) -> bool:
    """Whether a person is watching the stream (stdout unless told otherwise)."""
    return (stream or sys.stdout).isatty()


# --- numbers --------------------------------------------------------------------------------------

_BYTE_UNITS: Final = ("B", "KB", "MB", "GB", "TB")
_DURATIONS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"))


def count_text(count: float) -> str:
    """1,234 or 0.5."""
    return f"{count:,.0f}" if count == round(count) or count >= 100 else f"{count:,.1f}"


def bytes_text(size: float) -> str:
    """1.2 MB; powers of 1,000, as disks and networks are sold."""
    for unit in _BYTE_UNITS:
        if abs(size) < 999.5 or unit == _BYTE_UNITS[-1]:
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or size >= 99.95 else f"{size:.1f} {unit}"


def duration_text(seconds: float) -> str:
    """3d 4h, 12m 5s, 7s or 0.3s: the two largest units."""
    if seconds < 10:
        return f"{seconds:.1f}s" if seconds else "0s"
    left = int(seconds)
    parts: list[str] = []
    for size, unit in _DURATIONS:
        if left >= size or parts:
            parts.append(f"{left // size}{unit}")
            left %= size
    parts.append(f"{left}s")
    return " ".join(parts[:2])


# --- doctors --------------------------------------------------------------------------------------

EXIT_PROBLEM = 1


class AnyFinding(Protocol):
    """The result of one check, by a doctor of any room."""

    @property
    def state(self) -> str:
        """`ok`, `warning` or `problem`."""

    @property
    def subject(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def advice(self) -> str: ...


def show_findings(findings: Iterable[AnyFinding], *, as_json: bool) -> int:
    """Print findings; the exit code says whether there are problems."""
    import msgspec  # not for commands that print one line

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


def _print_for_people(finding: AnyFinding) -> None:
    print(f"{finding.state:<8} {finding.subject:<14} {finding.text}", flush=True)
    if finding.advice:
        print(f"{'':<8} {'':<14} → {finding.advice}", flush=True)
