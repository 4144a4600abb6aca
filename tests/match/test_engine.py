"""Kernels are there after `warm_up`, and nobody waits for them before."""

import subprocess
import sys

from rove.match import engine
from rove.match.index.search_kernels import find


def told_by(script: str) -> list[str]:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_there_is_no_kernel_before_it_was_warmed_up() -> None:
    script = """
import sys
from rove.match import engine
print(engine.search_kernel, "numba" in sys.modules)
from rove.match import Matcher
from rove.lang import parse
matcher = Matcher(compiled=False)
for id in range(300):
    matcher.add(id, parse(f"x > {id} AND s LIKE '%a%'"))
print(len(matcher.match([{"x": 9.5, "s": "ab"}], [0.0])))
print(engine.search_kernel, "numba" in sys.modules)
engine.warm_up()
print(engine.search_kernel is sys.modules["rove.match.index.search_kernels"].find)
print(len(matcher.match([{"x": 9.5, "s": "ab"}], [0.0])))
"""
    assert told_by(script) == ["None", "False", "10", "None", "False", "True", "10"]


def test_it_is_wanted_when_there_is_something_to_find() -> None:
    script = """
import numpy as np
from rove.lang import parse
from rove.match import Matcher, engine
def plain():
    return Matcher(compiled=False)
def is_wanted():
    calls = []
    engine.when_wanted(lambda: calls.append(1))
    engine._wanted.clear()
    return bool(calls)
full = plain()
full.add(1, parse("x > 1"))
print(is_wanted())
Matcher.load(b"".join(plain().save()), compiled=False)
print(is_wanted())
Matcher.load(b"".join(full.save()), compiled=False)
print(is_wanted())
plain().add_boxes(np.array([1]), ["x"], np.array([[0.0]]), np.array([[1.0]]))
print(is_wanted())
"""
    assert told_by(script) == ["True", "False", "True", "True"]


def test_warming_up_twice_changes_nothing() -> None:
    engine.warm_up()
    first = engine.search_kernel
    engine.warm_up()
    assert engine.search_kernel is first is find
