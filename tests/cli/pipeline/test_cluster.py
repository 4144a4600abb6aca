"""`rove pipeline cluster` is up until it is ended, and leaves nothing behind."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.effort import PATIENCE_S


@pytest.mark.soak
def test_it_says_where_it_is_and_ends_when_told() -> None:
    command = [sys.executable, "-m", "rove", "pipeline", "cluster", "--workers", "1"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        # Where the tests themselves run in the background, their children ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("spark://127.0.0.1:")
            daemons = children(process.pid)
            assert daemons
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    deadline = time.monotonic() + PATIENCE_S
    while any(Path(f"/proc/{pid}").exists() for pid in daemons):
        assert time.monotonic() < deadline, "a daemon is left"
        time.sleep(0.1)


def children(pid: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if int(parent) == pid:
            found.append(int(folder.name))
    return found
