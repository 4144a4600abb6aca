"""SELECT: the chosen attributes that are there, nested as they were, and nothing else."""

from types import MappingProxyType
from typing import Any

import pytest

from rove.lang import parse, selected

READING: dict[str, Any] = {
    "x": 1,
    "y": None,
    "n": {"m": 2, "k": {"j": 3, "i": [4]}, "e": {}},
    "odd name": 5,
    "n.m": 6,
}


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        ("x", {"x": 1}),
        ("x, x", {"x": 1}),
        ("y", {"y": None}),
        ("missing", {}),
        ("x, missing", {"x": 1}),
        ("n.m", {"n": {"m": 2}}),
        ("`n.m`", {"n.m": 6}),
        ("`odd name`", {"odd name": 5}),
        ("n.m, n.k.j", {"n": {"m": 2, "k": {"j": 3}}}),
        ("n.k.j, n.k.i", {"n": {"k": {"j": 3, "i": [4]}}}),
        ("n.k", {"n": {"k": {"j": 3, "i": [4]}}}),
        ("n.k.j, n.k", {"n": {"k": {"j": 3, "i": [4]}}}),
        ("n.k.j, n", {"n": READING["n"]}),
        ("n, n.m", {"n": READING["n"]}),
        ("n.missing", {}),
        ("n.missing, n.m", {"n": {"m": 2}}),
        ("n.m, n.missing", {"n": {"m": 2}}),
        ("n.k.missing", {}),
        ("n.e", {"n": {"e": {}}}),
        ("n.e.f", {}),
        ("n.e, n.e.f", {"n": {"e": {}}}),
        ("n.e.f, n.e", {"n": {"e": {}}}),
        ("x.m", {}),
        ("x, x.m", {"x": 1}),
        ("y.m", {}),
    ],
)
def test_what_is_chosen(choice: str, chosen: dict[str, Any]) -> None:
    before = repr(READING)
    assert selected(parse(f"SELECT {choice}"), READING) == chosen
    assert repr(READING) == before


def test_the_order_is_that_of_the_choice() -> None:
    chosen = selected(parse("SELECT n.m, y, x"), READING)
    assert list(chosen) == ["n", "y", "x"]


@pytest.mark.parametrize("text", ["x > 0", "SELECT *", "ORDER BY x LIMIT 1 WITHIN 1 HOUR"])
def test_without_a_choice_everything_is_carried(text: str) -> None:
    assert selected(parse(text), READING) is READING


def test_a_choice_is_no_window_into_the_publication() -> None:
    """What is put together anew can be changed without changing the publication."""
    chosen: Any = selected(parse("SELECT n.m"), READING)
    chosen["n"]["m"] = "changed"
    assert READING["n"]["m"] == 2


def test_objects_may_be_any_mapping() -> None:
    reading = {"n": MappingProxyType({"m": MappingProxyType({"k": 1})})}
    assert selected(parse("SELECT n.m.k"), reading) == {"n": {"m": {"k": 1}}}
    assert selected(parse("SELECT n, n.m.k"), reading) == reading
