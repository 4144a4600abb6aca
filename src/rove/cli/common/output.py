"""How commands write, so that all of them treat programs and people alike.

Results go to stdout, everything else to stderr; with `--json` a result is one JSON value on
one line. Kept free of rich and msgspec: a command that only prints a line should not wait for
them.
"""

import json
import sys
from collections.abc import Iterable
from typing import Any, TextIO

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
