"""`rove config`: every setting in force, where it came from and what it means."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from pathlib import Path

import msgspec

from rove.cli.common.output import emit_json
from rove.serve.config import (
    Key,
    Loaded,
    check,
    described,
    example,
    find_problems,
    keys,
    load_with_origins,
    section_explanation,
    toml_value,
    value_of,
)
from rove.serve.logs import masked

EXIT_REFUSED = 1
"""The configuration was printed, but a broker would refuse it."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove config`."""
    add_options(parser)
    parser.add_argument("--json", action="store_true", help="as one line of JSON")
    parser.add_argument("--brief", action="store_true", help="without the explanations")
    parser.add_argument(
        "--example", action="store_true", help="a file with every default, to begin with"
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that needs the broker's configuration."""
    parser.add_argument("--config", metavar="FILE", type=Path, help="TOML, see `rove config`")
    parser.add_argument("--mqtt-port", metavar="N", help="0 for any free one, or off")
    parser.add_argument("--http-port", metavar="N", help="0 for any free one, or off")
    parser.add_argument("--data", metavar="DIR", help="folder of what survives a restart")


def load_for(arguments: argparse.Namespace) -> Loaded:
    """The configuration of the file, the environment and those options."""
    overrides = {
        "listen.mqtt_port": arguments.mqtt_port,
        "listen.http_port": arguments.http_port,
        "data.folder": arguments.data,
        "mesh.name": getattr(arguments, "name", None),
        "mesh.join": getattr(arguments, "join", None),
    }
    return load_with_origins(arguments.config, os.environ, overrides)


def run(arguments: argparse.Namespace) -> int:
    """Print the configuration."""
    if arguments.example:
        sys.stdout.write(example())
        return 0
    loaded = load_for(arguments)
    problems = list(find_problems(loaded.config))
    warnings = [] if problems else check(loaded.config)
    if arguments.json:
        settings = {key.path: _as_json(key, loaded) for key in keys().values()}
        emit_json({"settings": settings, "problems": problems, "warnings": warnings})
    else:
        _print_for_people(loaded, with_explanations=not arguments.brief)
        for problem in problems:
            print(f"rove: problem: {problem}", file=sys.stderr)
        for warning in warnings:
            print(f"rove: warning: {warning}", file=sys.stderr)
    return EXIT_REFUSED if problems else 0


def _shown(loaded: Loaded, key: Key) -> object:
    """What is set, without the password of a URL."""
    value = value_of(loaded.config, key)
    return masked(value) if isinstance(value, str) and "://" in value else value


def _as_json(key: Key, loaded: Loaded) -> dict[str, object]:
    return {
        "value": msgspec.to_builtins(_shown(loaded, key)),
        "default": msgspec.to_builtins(key.default),
        "origin": loaded.origins[key.path],
        "allowed": described(key.kind),
        "environment": key.variable,
        "reloadable": key.is_reloadable,
        "explanation": key.explanation,
    }


def _print_for_people(loaded: Loaded, with_explanations: bool) -> None:
    section = ""
    for key in keys().values():
        if key.section != section:
            section = key.section
            print(f"\n[{section}]" if with_explanations else f"[{section}]")
            if with_explanations:
                print(textwrap.fill(section_explanation(section), 96))
        value = f"{key.name} = {toml_value(_shown(loaded, key))}"
        print(f"  {value:<48} {loaded.origins[key.path]}")
        if with_explanations and key.explanation:
            indent = " " * 6
            print(
                textwrap.fill(key.explanation, 96, initial_indent=indent, subsequent_indent=indent)
            )
