"""The public names of the room, and what it costs to import them."""

import subprocess
import sys

import rove.match


def test_the_public_names_are_these() -> None:
    assert sorted(rove.match.__all__) == [
        "Counters",
        "Evolve",
        "Matcher",
        "Matches",
        "RankedDelivery",
        "SavedError",
        "Work",
        "parse_evolve",
        "warm_up",
    ]
    assert all(hasattr(rove.match, name) for name in rove.match.__all__)


def test_nobody_waits_for_numba_before_it_is_needed() -> None:
    script = """
import sys
import rove.lang
print("numba" in sys.modules, "numpy" in sys.modules)
import rove.match
print("numba" in sys.modules, "numpy" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False", "False", "True"]
