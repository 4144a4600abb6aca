"""`rove demo`: told in a pipe, played on a terminal, drawn for the README."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rove.cli import main
from tests.effort import PATIENCE_S


def test_a_pipe_gets_every_notification_and_the_summary(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo", "--seconds", "5", "--no-spark"]) == 0
    out = capsys.readouterr().out
    assert "200 publications in 5 s" in out
    told = [line for line in out.splitlines() if " s  home" in line]
    received = next(line.split()[2] for line in out.splitlines() if line.startswith("home"))
    assert len(told) == int(received) > 0


def test_it_is_the_same_every_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--seconds", "3", "--no-spark"]) == 0
    first = capsys.readouterr().out
    assert main(["demo", "--seconds", "3", "--no-spark"]) == 0
    assert capsys.readouterr().out == first


@pytest.mark.soak
def test_a_picture_is_written(tmp_path: Path) -> None:
    assert main(["demo", "--svg", str(tmp_path / "demo.svg")]) == 0
    assert (tmp_path / "demo.svg").read_text().startswith("<svg")


@pytest.mark.parametrize("written", ["0", "-1", "soon"])
def test_a_nonsensical_length_is_refused(written: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--seconds", written]) == 2
    assert "--seconds" in capsys.readouterr().err


@contextmanager
def on_terminal(*words: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """`rove demo` with a terminal of its own, and the end from which to read what it shows."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "rove", "demo", *words],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"},
        # A test run in the background ignores Ctrl-C, and so would what it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    os.close(terminal)
    try:
        yield process, controller
    finally:
        process.kill()
        process.wait()
        os.close(controller)


def read_until(controller: int, wanted: bytes, timeout_s: float = 30.0) -> bytes:
    shown = b""
    end = time.monotonic() + timeout_s
    while wanted not in shown and time.monotonic() < end:
        try:
            shown += os.read(controller, 65536)
        except OSError:  # the process has closed the terminal
            break
    return shown


@pytest.mark.soak
def test_a_terminal_gets_a_moving_picture_and_the_summary() -> None:
    with on_terminal("--seconds", "2", "--no-spark") as (process, controller):
        shown = read_until(controller, b"rove check").decode()
        assert process.wait(timeout=PATIENCE_S) == 0
    assert "who gets what" in shown
    assert "80 publications" in shown


def test_ctrl_c_ends_it_without_a_traceback() -> None:
    with on_terminal("--seconds", "600") as (process, controller):
        read_until(controller, b"who gets what")
        process.send_signal(signal.SIGINT)
        rest = read_until(controller, b"\0never\0", timeout_s=5.0)
        assert process.wait(timeout=PATIENCE_S) == 130
    assert b"Traceback" not in rest


@pytest.mark.soak
def test_a_page_that_does_not_come_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rove.demo.companions.SCENARIO", "nowhere")
    assert main(["demo", "--seconds", "1", "--no-spark", "--monitor"]) == 0
    said = capsys.readouterr()
    assert "40 publications in 1 s" in said.out
    assert "There is no page: the monitor did not start" in said.err
