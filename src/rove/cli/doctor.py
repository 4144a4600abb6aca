"""`rove doctor`: would a broker start here and run well; if not, what to do."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

from rove.cli.common.output import show_findings
from rove.cli.config import add_options, load_for
from rove.errors import RoveError
from rove.serve.doctor import (
    DoctorFinding,
    examine_configuration,
    examine_files,
    examine_machine,
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove doctor`."""
    add_options(parser)
    parser.add_argument(
        "--deep", action="store_true", help="read every page of the database and of Parquet files"
    )
    parser.add_argument(
        "--files",
        metavar="FOLDER",
        type=Path,
        action="append",
        default=[],
        help="look at Parquet files there too, at a pipeline's tables for example; repeatable",
    )
    parser.add_argument("--json", action="store_true", help="as one line of JSON")


def run(arguments: argparse.Namespace) -> int:
    """Examine the machine and the configuration."""
    return show_findings(_examine(arguments), as_json=arguments.json)


def _examine(arguments: argparse.Namespace) -> Iterator[DoctorFinding]:
    now_s = time.time()
    yield from examine_machine(now_s)
    try:
        config = load_for(arguments).config
    except RoveError as error:
        yield DoctorFinding(
            "configuration", "problem", str(error), "`rove config` explains every key"
        )
        return
    yield from examine_configuration(config, now_s, is_deep=arguments.deep)
    for folder in arguments.files:
        if not folder.is_dir():
            yield DoctorFinding("files", "problem", f"{folder} is no folder", "see --files")
        yield from examine_files(folder, is_deep=arguments.deep)
