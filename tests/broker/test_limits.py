"""The limits: their defaults are allowed, what makes no sense is not, and each is explained."""

import ast
import inspect

import msgspec
import pytest

from rove.broker import limits
from rove.broker.limits import Limits


def test_the_defaults_are_among_the_allowed() -> None:
    assert msgspec.convert(msgspec.to_builtins(Limits()), Limits) == Limits()


def test_every_limit_is_explained() -> None:
    """A text stands below every field; whoever adds one is reminded."""
    body = ast.parse(inspect.getsource(limits)).body
    (definition,) = (each for each in body if isinstance(each, ast.ClassDef))
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign):
            name = ast.unparse(statement.target)
            assert isinstance(following, ast.Expr), f"{name} is not explained"
            assert isinstance(following.value, ast.Constant), f"{name} is not explained"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("connections_max", 0),
        ("receive_max", 65_536),
        ("receive_max", 0),
        ("keep_alive_s_max", 65_536),
        ("packet_bytes_max", 268_435_461),
        ("client_id_bytes_max", 22),
        ("session_expiry_s_max", 2**32),
        ("connect_timeout_s", 0),
        ("queue_overflow", "drop"),
        ("publish_per_s_max", -1),
        ("connections_max", "many"),
        ("connexions_max", 1),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, value: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({name: value}, Limits)


def test_publishers_are_not_released_above_where_they_are_paused() -> None:
    with pytest.raises(ValueError, match="memory_bytes_low is 11; it may be at most"):
        Limits(memory_bytes_high=10, memory_bytes_low=11)
    assert Limits(memory_bytes_high=10, memory_bytes_low=10).memory_bytes_low == 10


def test_limits_do_not_change_under_a_running_broker() -> None:
    with pytest.raises(AttributeError):
        Limits().connections_max = 5  # type: ignore[misc]
