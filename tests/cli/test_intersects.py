"""`rove intersects`: 1 only if no publication can match both."""

import json

import pytest

from rove.cli import main


@pytest.mark.parametrize(
    ("a", "b", "code"),
    [
        ("x = 5", "x = 3", 1),
        ("startswith(a, 'abc')", "startswith(a, 'ab')", 0),
        ("x BETWEEN 1 AND 5", "x BETWEEN 5 AND 9", 0),
        ("x BETWEEN 1 AND 4", "x BETWEEN 5 AND 9", 1),
    ],
)
def test_the_exit_code_is_the_answer(a: str, b: str, code: int) -> None:
    assert main(["intersects", a, b]) == code


def test_yes_is_proved_by_a_publication(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["intersects", "x > 1", "y = 'a'", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "yes"
    assert found["witness"]["publication"]["y"] == "a"


def test_dont_know_means_that_they_may(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["intersects", "x + y = 3", "y + x = 3"]) == 0
    assert capsys.readouterr().out.startswith("don't know: they may")


def test_the_subscribers_states_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["intersects", "x > me.x", "x < me.x"]) == 0
    assert '"a"' in capsys.readouterr().out
