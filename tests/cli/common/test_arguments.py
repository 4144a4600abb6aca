"""What options take, and what they say of anything else."""

from __future__ import annotations

import argparse

import pytest

from rove.cli.common.arguments import number_of, port_number, whole_number


@pytest.mark.parametrize(("written", "number"), [("1", 1), ("007", 7), ("1000", 1000)])
def test_whole_numbers(written: str, number: int) -> None:
    assert whole_number(1, 1000)(written) == number


@pytest.mark.parametrize("written", ["0", "1001", "-1", "1.0", "1_000", "", "x", " 1", "\u0661"])
def test_what_is_none_is_told_with_what_would_be(written: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a whole number from 1 to 1,000"):
        whole_number(1, 1000)(written)
    with pytest.raises(argparse.ArgumentTypeError, match="is not a whole number, 9999 or more"):
        whole_number(9999)(written)


def test_amounts() -> None:
    assert number_of("seconds", 10)("2.5") == 2.5
    for written in ("0", "-1", "nan", "inf", "10.1", "x"):
        with pytest.raises(argparse.ArgumentTypeError, match=f"{written} is not a number of s"):
            number_of("seconds", 10)(written)


def test_ports() -> None:
    assert [port_number("0"), port_number("65535")] == [0, 65535]
    with pytest.raises(argparse.ArgumentTypeError, match="65536 is not a whole number from 0 to"):
        port_number("65536")
