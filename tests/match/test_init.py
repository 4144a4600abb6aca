"""The public names of the room."""

import subprocess
import sys

import rove.match


def test_the_public_names_are_these() -> None:
    assert sorted(rove.match.__all__) == ["Matcher", "Matches", "Merge"]


def test_the_language_does_not_wait_for_numba() -> None:
    script = "import sys, rove.lang; print('numba' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]
