"""What commands read from users: bounded, and refused in words."""

import pytest

from rove.cli.common.input import read_expression, read_object, read_subscription
from rove.errors import UsageError


def test_an_argument_is_taken_as_it_is() -> None:
    assert read_expression("x > 1\n") == "x > 1\n"
    assert read_subscription("x > 1") == read_subscription("x>1")


@pytest.mark.parametrize("written", ["", "null", "3", '"x"', "[{}]"])
def test_only_objects_are_objects(written: str) -> None:
    with pytest.raises(UsageError, match="--publication"):
        read_object(written, "--publication")


def test_values_that_no_runtime_may_see_are_refused_at_any_depth() -> None:
    with pytest.raises(UsageError, match=r"--me: attribute a\.0\.b is inf"):
        read_object('{"a": [{"b": Infinity}]}', "--me")
