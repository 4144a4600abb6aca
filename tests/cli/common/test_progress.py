"""A person who watches sees how far it is; a program sees nothing."""

import io
import sys
from pathlib import Path

import pytest

from rove.cli.common.input import STDIN
from rove.cli.common.progress import Counted, progress_bar, watched_lines


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """For stderr. No fixture: before a test begins, pytest puts its own there."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", made := Terminal())
    return made


@pytest.mark.parametrize(
    ("counted", "shown"),
    [("bytes", "3/4 bytes"), ("seconds", "3 of 4 s"), ("parts", "3/4"), ("nothing", "0:00:00")],
)
def test_a_person_sees_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, counted: Counted, shown: str
) -> None:
    watched = terminal(monkeypatch)
    with progress_bar("starting", counted) as tell:
        tell(3, 4, "the full scan")
    assert "the full scan" in watched.getvalue()
    assert shown in watched.getvalue()


@pytest.mark.parametrize("counted", ["bytes", "seconds", "parts", "nothing"])
def test_before_anything_is_known_the_title_is_there(
    monkeypatch: pytest.MonkeyPatch, counted: Counted
) -> None:
    watched = terminal(monkeypatch)
    with progress_bar("starting", counted):
        pass
    assert "starting" in watched.getvalue()


def test_a_terminal_full_of_json_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = terminal(monkeypatch)
    monkeypatch.setattr(sys, "stdout", Terminal())
    with progress_bar("starting", "parts", as_json=True) as tell:
        tell(3, 4)
    assert watched.getvalue() == ""


def test_a_program_sees_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("starting", "parts") as tell:
        tell(3, 4)
    assert capsys.readouterr().err == ""


def test_all_lines_of_a_file_come_with_a_rate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    watched = terminal(monkeypatch)
    path = tmp_path / "lines"
    path.write_bytes(b"one\n" * 600)
    with path.open("rb") as lines:
        assert list(watched_lines(lines, str(path), "reading")) == [b"one\n"] * 600
    assert "reading, " in watched.getvalue()
    assert "/s" in watched.getvalue()


def test_of_a_pipe_nobody_knows_how_long_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = terminal(monkeypatch)
    lines = io.BytesIO(b"one\n")
    assert watched_lines(lines, STDIN, "reading") is lines
    assert watched.getvalue() == ""
