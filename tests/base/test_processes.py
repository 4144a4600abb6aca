"""Programs beside us: they are waited for, say why they do not start, and end."""

import asyncio
import functools
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rove.base.processes import END_S_MAX, Program, Reaper, dying_with, end, exit_reason
from rove.errors import RoveError
from tests.effort import PATIENCE_S
from tests.waiting import eventually

READY = re.compile(r"^ready at (\d+)\n", re.MULTILINE)
WAITING = "import time; print('ready at 7', flush=True); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITING}"


class NoStartError(RoveError):
    pass


def program(folder: Path, code: str, name: str = "it") -> Program:
    return Program(name, [sys.executable, "-c", code], folder / name)


def test_it_is_there_when_it_says_so_and_gone_with_the_block(tmp_path: Path) -> None:
    with program(tmp_path, WAITING) as one:
        assert one.wait_for_line(READY, PATIENCE_S, NoStartError) == "7"
        assert one.process.poll() is None
    assert one.process.returncode == -signal.SIGTERM


def test_why_it_does_not_start_is_told_with_its_last_line(tmp_path: Path) -> None:
    talking = (
        "import sys; print('one', flush=True); print('two', file=sys.stderr); raise SystemExit(3)"
    )
    for code, why in ((talking, "two"), ("", "it wrote nothing")):
        with (
            program(tmp_path, code, "the server") as one,
            pytest.raises(NoStartError, match=f"^the server does not start: .*{why}"),
        ):
            one.wait_for_line(READY, PATIENCE_S, NoStartError)
    with (
        program(tmp_path, "import time; time.sleep(600)") as one,
        pytest.raises(NoStartError, match=r"^it is not ready after 0\.01 s: it wrote nothing"),
    ):
        one.wait_for_line(READY, 0.01, NoStartError)


def test_what_it_said_before_it_ended_counts(tmp_path: Path) -> None:
    with program(tmp_path, "print('ready at 9')") as one:
        one.process.wait(PATIENCE_S)
        assert one.wait_for_line(READY, PATIENCE_S, NoStartError) == "9"


def test_who_does_not_hear_is_killed(tmp_path: Path) -> None:
    one = program(tmp_path, STUBBORN)
    one.wait_for_line(READY, PATIENCE_S, NoStartError)
    end(one.process, 0.05)
    assert one.process.returncode == -signal.SIGKILL


def test_another_way_to_ask_comes_first() -> None:
    command = [sys.executable, "-c", "import sys; sys.stdin.read(); raise SystemExit(5)"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert process.stdin is not None
    end(process, PATIENCE_S, ask=process.stdin.close)
    assert process.returncode == 5


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can")
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_it_dies_with_who_started_it(tmp_path: Path, by: signal.Signals) -> None:
    starter = (
        "import os, signal, sys, time\n"
        "from pathlib import Path\n"
        "from rove.base.processes import Program, dying_with\n"
        f"before = dying_with(os.getpid(), signal.Signals({int(by)}))\n"
        f"one = Program('it', [sys.executable, '-c', {WAITING!r}], Path('log'), before=before)\n"
        "Path('pid').write_text(f'{one.pid}\\n')\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", starter], cwd=tmp_path)
    said = tmp_path / "pid"
    eventually(lambda: said.exists() and said.read_text().endswith("\n"))
    child = int(said.read_text())
    parent.kill()
    parent.wait()

    def is_gone() -> bool:
        try:
            state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        return state == "Z"

    eventually(is_gone, "it has outlived its parent")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can")
def test_whose_parent_was_gone_already_does_not_begin(tmp_path: Path) -> None:
    nobody = 2**22 + 1
    with Program(
        "it",
        [sys.executable, "-c", WAITING],
        tmp_path / "log",
        before=dying_with(nobody, signal.SIGTERM),
    ) as one:
        assert one.process.wait(PATIENCE_S) == 1


def test_why_a_process_ended() -> None:
    assert exit_reason(3) == "ended with status 3"
    assert exit_reason(-signal.SIGKILL) == "killed by signal 9"


def test_a_reaper_reports_how_children_end_and_kills_slow_ones() -> None:
    async def reap() -> dict[str, int]:
        reaper, statuses = Reaper(asyncio.get_running_loop()), dict[str, int]()
        for name, code, wait_s in (
            ("quick", "exit(3)", END_S_MAX),
            ("slow", "import time; time.sleep(99)", 0.2),
            ("killed", "import time; time.sleep(99)", 0.0),
        ):
            process = subprocess.Popen([sys.executable, "-c", code])
            reaper.add(process, wait_s, functools.partial(statuses.__setitem__, name))
        end_s = time.monotonic() + PATIENCE_S
        while len(statuses) < 3 and time.monotonic() < end_s:
            await asyncio.sleep(0.01)
        return statuses

    expected = {"quick": 3, "slow": -signal.SIGKILL, "killed": -signal.SIGKILL}
    assert asyncio.run(reap()) == expected


def test_a_closed_reaper_has_ended_all_and_reports_none() -> None:
    async def close() -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(99)"])
        reaper = Reaper(asyncio.get_running_loop())
        reaper.add(process, END_S_MAX, lambda _: pytest.fail("reported"))
        reaper.close()
        return process

    assert asyncio.run(close()).returncode == -signal.SIGKILL
