"""A package that is missing is named, with the extra that brings it, by every command."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import textwrap
from importlib import metadata
from pathlib import Path

import pytest

from rove.cli import COMMANDS
from rove.cli.common.extras import PACKAGES, advice, packages_by_extra
from rove.lake.log import open_for_writing

CLOSED = "127.0.0.1:1"
"""Nobody listens there."""
TEXT = "x > 1"
COMMAND_LINES: dict[str, str] = {
    # command line: the extra that it says it needs; empty if it works, or fails for its arguments
    f"check|{TEXT}": "",
    f'explain|{TEXT}|--publication|{{"x": 2}}': "",
    f"covers|{TEXT}|x > 2": "",
    f"intersects|{TEXT}|x > 2": "",
    "match|--subscriptions|texts.jsonl|--publications|publications.jsonl": "",
    "up|--data|texts.jsonl": "",
    f"pub|a|1|--url|mqtt://{CLOSED}": "",
    f"sub|a|--url|mqtt://{CLOSED}": "",
    "policy|check|policy.py": "",
    "policy|test|policy.py|--messages|publications.jsonl": "",
    f"policy|set|policy.py|--client-id|a|--url|mqtt://{CLOSED}": "",
    f"policy|remove|--client-id|a|--url|mqtt://{CLOSED}": "",
    f"policy|show|--url|http://{CLOSED}": "",
    f"ls|--url|http://{CLOSED}": "",
    f"top|--once|--url|http://{CLOSED}": "",
    f"mesh|--url|http://{CLOSED}": "",
    "passwd|users|ana|--delete": "",
    "config|--brief": "",
    "doctor|--mqtt-port|0|--http-port|0|--data|data": "",
    "demo|--seconds|1|--no-spark|--monitor": "monitor",
    "lake|migrate|lake": "",
    "pipeline|ingest|--tables|tables|--lake|lake": "spark",
    "pipeline|status|--out|out": "",
    "pipeline|stop|--out|out": "",
    "pipeline|export|--lake|lake|--kafka|h:1|--kafka-topic|t|--checkpoint|c": "spark",
    "bridge|kafka|--kafka|h:1|--lake|lake|--route|mqtt:a|kafka:b|--once": "kafka",
    "pipeline|run|--lake|lake|--out|out": "spark",
    "pipeline|policy|lake|policy.py": "spark",
    "pipeline|summary|run.json": "",
    "pipeline|cluster": "spark",
    "pipeline|package|--out|texts.jsonl": "",
    "pipeline|doctor": "spark",
    f"backtest|{TEXT}|--lake|lake": "spark",
    "world|run|town|--seconds|1": "world",
    "world|list": "world",
    "world|map|town": "world",
    "world|picture|town|--out|town.png": "world",
    f"world|play|--broker|mqtt://{CLOSED}": "world",
    "world|generate|town": "world",
    "monitor|--port|0": "monitor",
    "monitor|export|1|--database|runs.db|--out|run.html": "monitor",
    "bench|match|--plots|plots": "plots",
    "bench|pipeline|--quick": "spark",
    "bench|world|--part|size": "world",
    "version": "",
}
GOES_ON = "demo"
"""What it shows needs no extra; that there is no page beside it is only said."""
BLOCKER = """
    import os, sys

    BLOCKED = set(os.environ["BLOCKED"].split())

    class Missing:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name.partition(".")[0] in BLOCKED:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    sys.meta_path.insert(0, Missing)
"""
"""As `sitecustomize`, so that processes that a command starts have it too."""
CHILD = """
    import contextlib, io, json, sys
    from rove.cli import main

    for words in json.loads(sys.argv[1]):
        said = io.BytesIO()
        out = io.TextIOWrapper(said, encoding="utf-8", write_through=True)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = main(words)
        print(json.dumps([code, said.getvalue().decode()]), flush=True)
"""


def modules_of(packages: set[str]) -> list[str]:
    names = {package: module for module, package in PACKAGES.items()}
    return sorted(names.get(package, package) for package in packages)


def run_without(modules: list[str], folder: Path, lines: list[list[str]]) -> list[tuple[int, str]]:
    """What each command line ends with, in an interpreter that has not these modules."""
    (folder / "texts.jsonl").write_text('"x > 1"\n')
    (folder / "publications.jsonl").write_text('{"x": 2}\n')
    (folder / "policy.py").write_text("def arrived(m, me):\n    return m\n")
    (folder / "run.json").write_text('{"name": "a", "value": 1, "unit": "s"}\n')
    open_for_writing(folder / "lake")
    (folder / "sitecustomize.py").write_text(textwrap.dedent(BLOCKER))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD), json.dumps(lines)],
        env={
            **os.environ,
            "BLOCKED": " ".join(modules),
            "PYTHONPATH": str(folder),
            "ROVE_POLICIES__ENABLED": "false",  # trying a worker takes the doctor its time
        },
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def parts_of(command: str) -> set[str]:
    parser = argparse.ArgumentParser()
    importlib.import_module(COMMANDS[command].module).configure(parser)
    actions = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    return {name for one in actions for name in one.choices}


def test_every_command_and_part_is_tried() -> None:
    words = [line.split("|") for line in COMMAND_LINES]
    assert {first for first, *_ in words} == set(COMMANDS)
    for command in COMMANDS:
        assert parts_of(command) <= {line[1] for line in words if line[0] == command and line[1:]}


def test_without_extras_every_command_works_or_names_the_extra(tmp_path: Path) -> None:
    brought = packages_by_extra(metadata.requires("rove") or ())
    base = brought.pop("")
    missing = set().union(*brought.values()) - base
    lines = [line.split("|") for line in COMMAND_LINES]
    ends = run_without(modules_of(missing), tmp_path, lines)
    for (line, extra), (code, said) in zip(COMMAND_LINES.items(), ends, strict=True):
        assert "a bug in rove" not in said, line
        assert "Traceback" not in said, line
        if extra:
            assert (code == 0) == line.startswith(GOES_ON), line
            assert f"pip install 'rove[{extra}]'" in said, (line, said)
        else:
            assert "pip install" not in said, (line, said)


def test_what_rove_itself_brings_is_named_without_an_extra(tmp_path: Path) -> None:
    [(code, said)] = run_without(["msgspec"], tmp_path, [["up"]])
    assert code == 2
    assert said == (
        "rove: error: rove needs msgspec, which is not installed; `pip install rove` brings it\n"
    )


@pytest.mark.parametrize(
    ("module", "command", "extra"),
    [
        ("pyspark.sql", "pipeline", "spark"),
        ("sqlalchemy", "monitor", "monitor"),
        ("sqlalchemy.orm", "pipeline", "spark"),
        ("sqlalchemy", "up", "databases"),
        ("google.protobuf", "pipeline", "spark"),
        ("shapely", "bench", "world"),
    ],
)
def test_the_extra_of_a_command_comes_first(module: str, command: str, extra: str) -> None:
    assert f"`pip install 'rove[{extra}]'`" in str(advice(module, command))


def test_what_nothing_asks_for_is_a_bug_of_ours() -> None:
    assert advice("rove.nonsense", "up") is None


def test_extras_that_include_others() -> None:
    requirements = [
        "numpy>=2",
        "uvloop; sys_platform != 'win32'",
        'rove[a,b]; extra == "all"',
        "shapely >=2 ; python_version > '3' and extra == 'a'",
        'rove[a]; extra == "b"',
        'psycopg[binary]>=3; extra == "b"',
    ]
    assert packages_by_extra(requirements) == {
        "": {"numpy", "uvloop"},
        "a": {"shapely"},
        "b": {"psycopg", "shapely"},
        "all": {"psycopg", "shapely"},
    }
