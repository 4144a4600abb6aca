"""Arguments that several commands have, and commands with parts."""

from __future__ import annotations

import argparse

import pytest

from rove.cli.common.arguments import (
    CommandPart,
    add_parts,
    number_of,
    port_number,
    run_part,
    whole_number,
)


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


def test_the_part_that_was_named_runs_with_its_arguments(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser = argparse.ArgumentParser()
    add_parts(
        parser,
        {
            "one": CommandPart("do one thing", lambda child: None, lambda arguments: 1),
            "two": CommandPart(
                "do another",
                lambda child: child.set_defaults(number=2),
                lambda arguments: int(arguments.number),
            ),
        },
    )
    assert run_part(parser.parse_args(["one"])) == 1
    arguments = parser.parse_args(["two", "--debug"])
    assert (run_part(arguments), arguments.debug) == (2, True)
    with pytest.raises(SystemExit):
        parser.parse_args(["one", "--help"])
    assert "Do one thing." in capsys.readouterr().out
    with pytest.raises(SystemExit):
        parser.parse_args([])
