"""README and docs cannot go stale: every block is run as a reader would, every link exists.

`tests/pages.py` runs a page, in a process and a folder of its own. What takes long, above all what
starts Spark, is left to `make soak`, which runs every page from the top to the bottom.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from rove.cli import COMMANDS, main
from rove.demo.scenes import WIDTH, Scene, as_svg, scenes, summary
from tests import pages

ROOT = pages.ROOT
README = (ROOT / "README.md").read_text(encoding="utf-8")
RUN = [page for page in pages.PAGES if page not in pages.ELSEWHERE]
RUNNABLE = ("console", "python")


def is_left_to_soak(page: str) -> bool:
    """Whether all that a page has to run is slow."""
    texts = [
        pages.beginning(block, command)
        for block, command in pages.pieces(page)
        if block.language in RUNNABLE
    ]
    return all(
        pages.reason(pages.SLOW, page, text) is not None
        or pages.reason(pages.NOT_RUN, page, text) is not None
        for text in texts
    )


QUICK = [page for page in RUN if not is_left_to_soak(page)]
LONG = sorted({page for page, _ in pages.SLOW})


def read(page: str, folder: Path, *options: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.pages", page, *options],
        cwd=folder, env={**pages.environment(), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == pages.PORTS_TAKEN:
        pytest.skip("no network of its own can be had here, and somebody uses the ports")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", QUICK)
def test_the_quick_blocks_of_a_page_run_as_printed(page: str, tmp_path: Path) -> None:
    read(page, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("page", LONG)
def test_all_blocks_of_a_page_run_as_printed(page: str, tmp_path: Path) -> None:
    read(page, tmp_path, "--slow")


@pytest.mark.parametrize("table", [pages.NOT_RUN, pages.SLOW], ids=["not run", "slow"])
def test_the_blocks_that_are_skipped_exist(table: dict[tuple[str, str], str]) -> None:
    for page, begins in table:
        texts = [pages.beginning(block, command) for block, command in pages.pieces(page)]
        assert any(text.startswith(begins) for text in texts), f"{page} has no more: {begins}"


@pytest.mark.parametrize("page", RUN)
def test_commands_are_in_console_blocks(page: str) -> None:
    for block in pages.blocks(page):
        if block.language not in RUNNABLE:
            for line in block.text.splitlines():
                assert not re.match(r"\$ |rove [a-z]|curl |(?:\w+=\S+ )rove ", line), (page, line)


@pytest.mark.parametrize("page", pages.PAGES)
def test_every_link_has_a_target(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(
        r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"", pages.FENCE.sub("", text)
    ):
        target = "".join(link)
        if not target.startswith(("http://", "https://", "#")):
            assert (ROOT / page).parent.joinpath(target.partition("#")[0]).exists(), target


PLACES = re.findall(
    r"^\| .+ \| `([\w/]+\.py)` \| `([\w.]+)` \|$",
    (ROOT / "docs/architecture.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


def names_in(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    """Functions and methods of a module, as `Class.method`."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name
        elif isinstance(node, ast.ClassDef):
            yield from names_in(node.body, f"{prefix}{node.name}.")


def test_the_table_of_places_is_long_enough() -> None:
    assert len(PLACES) >= 25


@pytest.mark.parametrize(("path", "function"), PLACES)
def test_a_place_in_the_architecture_exists(path: str, function: str) -> None:
    file = ROOT / "src" / "rove" / path
    assert file.exists(), f"docs/architecture.md names {path}, which is not there"
    names = set(names_in(ast.parse(file.read_text(encoding="utf-8")).body))
    assert function in names, f"docs/architecture.md names {function}, which {path} has not"


# -- the runner ------------------------------------------------------------------------------------

WRONG = {
    "output": "```console\n$ rove check 'x > 1'\nsomething else\n```\n",
    "code": "```console\n$ rove check 'x >'\n```\n",
    "shell": "```console\n$ false\n```\n",
    "script": "```python\nasync with x:\n    pass\n```\n",
    "printed": "```python\nprint(1 + 1)  # 3\n```\n",
    "session": "```python\n>>> 1 + 1\n3\n\n```\n",
    "policy": "```python\ndef arrived(m, me):\n    import os\n```\n",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_page_fails(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.md").write_text(WRONG[name])
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    with pytest.raises(pages.PageError, match=r"^page\.md:\d: "):
        pages.read("page.md")


def test_output_is_compared_except_for_times() -> None:
    assert pages.is_as_printed("a  3\n…\nb 12.5 ms\n", "a 3\nx\ny\nb   1,300 ms")
    assert not pages.is_as_printed("a 3\n", "a 4\n")
    assert not pages.is_as_printed("a 3\n", "a 3\nb\n")


# -- the README ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def played() -> list[Scene]:
    """The demonstration, as long as it is by default."""
    return list(scenes(45))


def test_the_pictures_are_what_the_demonstration_draws(played: list[Scene]) -> None:
    for shade in ("light", "dark"):
        drawn = as_svg(played[29], dark=shade == "dark")
        stored = (ROOT / "docs" / f"demo-{shade}.svg").read_text()
        assert stored == drawn, f"run: rove demo --svg docs/demo-{shade}.svg [--dark]"


def table_of_the_demonstration() -> list[list[str]]:
    block = re.search(r"```\n(1,800 publications.*?)```", README, re.DOTALL)
    assert block is not None
    return [line.split() for line in block.group(1).splitlines()]


def test_the_table_is_what_the_demonstration_counts(played: list[Scene]) -> None:
    """But for what Spark finds, which is one column of it."""
    console = Console(width=WIDTH, file=StringIO(), force_terminal=False)
    console.print(summary(played[-1]))
    assert isinstance(console.file, StringIO)
    told = " ".join(console.file.getvalue().split())
    rows = [line for line in table_of_the_demonstration() if line and line[-1].endswith("%")]
    assert len(rows) == 4
    for name, kind, received, by_spark, share in rows:
        assert received == by_spark
        assert f"{name} {kind} {received} {share}" in told


@pytest.mark.soak
def test_the_table_is_what_spark_finds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    for line in table_of_the_demonstration():
        assert " ".join(line) in told


def test_every_command_named_exists_and_every_command_is_named() -> None:
    named = set(re.findall(r"rove ([a-z]+)", README))
    assert named <= COMMANDS.keys()
    assert COMMANDS.keys() - named <= {"version", "demo"}
