"""The README cannot go stale: its snippet runs, its pictures are drawn anew, its links exist."""

import doctest
import re
import shlex
from pathlib import Path

import pytest

from rove.cli import COMMANDS, main
from rove.lab.demo import as_svg, scenes

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def test_the_snippet_does_what_it_says() -> None:
    result = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert result.attempted >= 5
    assert result.failed == 0


@pytest.mark.parametrize("shade", ["light", "dark"])
def test_the_picture_is_what_the_demonstration_draws(shade: str) -> None:
    *_, scene = scenes(30)
    drawn = as_svg(scene, dark=shade == "dark")
    stored = (ROOT / "docs" / f"demo-{shade}.svg").read_text()
    assert stored == drawn, f"run: rove demo --svg docs/demo-{shade}.svg [--dark]"


def test_the_table_is_what_the_demonstration_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    told = capsys.readouterr().out
    block = re.search(r"```\n(1,800 publications.*?)```", README, re.DOTALL)
    assert block is not None
    for line in block.group(1).splitlines():
        assert " ".join(line.split()) in " ".join(told.split()), line


def test_the_explanation_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    block = re.search(r"\$ rove explain (.*?)\n(.*?)```", README, re.DOTALL)
    assert block is not None
    assert main(["explain", *shlex.split(block.group(1))]) == 1
    assert capsys.readouterr().out == block.group(2)


def test_every_command_named_exists_and_every_command_is_named() -> None:
    named = set(re.findall(r"rove ([a-z]+)", README))
    assert named <= COMMANDS.keys()
    assert COMMANDS.keys() - named <= {"version", "demo"}


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)|(?:src|srcset)=\"([^\"]+)\"", README):
        assert (ROOT / "".join(target)).exists(), target
