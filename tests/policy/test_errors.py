"""Refusals show what, where, and what would be right."""

from rove.errors import RoveError
from rove.policy.errors import PolicyError


def test_the_place_is_shown() -> None:
    error = PolicyError("there is no x", "write y", text="a = 1\nb = x\n", line=2, column=5)
    assert isinstance(error, RoveError)
    assert str(error) == "line 2: there is no x; write y\n  b = x\n      ^"
    assert (error.what, error.hint, error.line, error.column) == ("there is no x", "write y", 2, 5)


def test_a_place_that_is_nowhere_is_left_out() -> None:
    assert str(PolicyError("too long")) == "too long"
    assert str(PolicyError("too long", text="a", line=7)) == "line 7: too long"


def test_tabs_do_not_move_the_caret() -> None:
    shown = str(PolicyError("no", text="\tx = y", line=1, column=6)).splitlines()
    assert shown[1].index("y") == shown[2].index("^")
