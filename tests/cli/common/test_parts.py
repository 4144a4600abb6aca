"""Commands with parts."""

import argparse

import pytest

from rove.cli.common.parts import Part, add_parts, run_part


def test_the_part_that_was_named_runs_with_its_arguments(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser = argparse.ArgumentParser()
    add_parts(
        parser,
        {
            "one": Part("do one thing", lambda child: None, lambda arguments: 1),
            "two": Part(
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
