"""How commands write, so that all of them treat programs and people alike.

Results go to stdout, everything else to stderr; with `--json` a result is one JSON value on
one line. Kept free of rich and msgspec: a command that only prints a line should not wait for
them.
"""

import json
import sys
from typing import Any, TextIO


def emit_json(value: Any) -> None:
    """Write one value as one line of JSON.

    Escaped to ASCII, so that it survives any terminal's encoding and even half a surrogate
    pair; NaN and infinities raise ValueError, because no JSON reader would take them back.
    """
    sys.stdout.write(json.dumps(value, allow_nan=False) + "\n")


def is_terminal(stream: TextIO | None = None) -> bool:
    """Whether a person is watching the stream (stdout unless told otherwise)."""
    return (stream or sys.stdout).isatty()
