"""`rove lake PART`: what can be done with a lake while no broker writes to it."""

from __future__ import annotations

import argparse
from pathlib import Path

from rove.cli.common.arguments import CommandPart, add_json_flag, add_parts, run_part
from rove.cli.common.output import count_text, emit_json, emit_rows
from rove.cli.common.progress import progress_bar


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the parts."""
    add_parts(parser, PARTS)


def run(arguments: argparse.Namespace) -> int:
    """Run the part that was named."""
    return run_part(arguments)


def _configure_migrate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="of the lake")
    add_json_flag(parser)


def _migrate(arguments: argparse.Namespace) -> int:
    from rove.lake.migration import migrate

    folder = arguments.folder.resolve()
    with progress_bar("migrating", "bytes", as_json=arguments.json) as tell:
        rows = migrate(folder, tell)
    if arguments.json:
        emit_json({"rows": rows, "old_files": f"{folder}.old"})
    else:
        emit_rows([("migrated", f"{count_text(rows)} rows"), ("old files", f"{folder}.old")])
    return 0


PARTS: dict[str, CommandPart] = {
    "migrate": CommandPart(
        "make a Delta table of a lake that an earlier Rove wrote", _configure_migrate, _migrate
    )
}
