"""What tests take is measured with what they start, and listed."""

import subprocess
import sys
from pathlib import Path

from tests.times import LISTED, cpu_s, listing

BUSY = "import time\nwhile time.process_time() < {}: pass"


def test_what_was_started_counts_while_it_runs_and_afterwards() -> None:
    before_s = cpu_s()
    subprocess.run([sys.executable, "-c", BUSY.format(0.1)], check=True)
    after_s = cpu_s()
    assert after_s - before_s >= 0.1
    script = BUSY.format(0.1) + "\nprint(flush=True)\ninput()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe) as running:
        assert running.stdout is not None
        running.stdout.readline()
        assert not Path("/proc/self/task").exists() or cpu_s() - after_s >= 0.09
        running.communicate(b"\n")


def test_the_dearest_come_first_and_folders_are_added_up() -> None:
    taken = {f"tests/lang/test_a.py::test_{n}": [n / 10, n / 20] for n in range(2 * LISTED)}
    taken["tests/match/test_b.py::test_b"] = [1.0, 99.0]
    lines = listing(taken).splitlines()
    assert lines[1].split() == ["1.00", "99.00", "tests/match/test_b.py::test_b"]
    assert lines[LISTED].endswith("test_51")
    assert lines[-1].split() == ["496.0", "346.5", "101", "all"]
    assert [line.split()[-1] for line in lines[-3:-1]] == ["tests/match", "tests/lang"]
