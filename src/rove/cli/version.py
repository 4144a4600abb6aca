"""`rove version`: what is running here, in the form a bug report needs."""

import argparse
import platform

from rove import __version__
from rove.cli.common.output import emit_json, emit_rows


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove version`."""
    parser.add_argument("--json", action="store_true", help="as one line of JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the versions."""
    versions = _versions()
    if arguments.json:
        emit_json(versions)
    else:
        emit_rows(versions.items())
    return 0


def _versions() -> dict[str, str]:
    return {
        "rove": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
    }
