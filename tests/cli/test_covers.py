"""`rove covers`: 0 for yes, 1 for no, 3 for "don't know", 2 for an error."""

import json

import pytest

from rove.cli import main


@pytest.mark.parametrize(
    ("a", "b", "code", "verdict"),
    [
        ("x > 3", "x > 5", 0, "yes"),
        ("x > 5", "x > 3", 1, "no"),
        ("x > 5 ORDER BY x LIMIT 1 WITHIN 1 HOUR", "x > 6", 3, "don't know"),
    ],
)
def test_the_exit_code_is_the_answer(
    a: str, b: str, code: int, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["covers", a, b]) == code
    assert capsys.readouterr().out.startswith(f"{verdict}: ")


def test_no_is_proved_by_a_publication(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["covers", "x > 5", "x > 3", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "no"
    assert 3 < found["witness"]["publication"]["x"] <= 5


def test_a_person_sees_the_publication_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["covers", "a = 'x'", "a = 'y'"]) == 1
    assert '{"a": "y"}' in capsys.readouterr().out


def test_during_limits_t() -> None:
    assert main(["covers", "x > 2", "x > t", "--during", "3", "9"]) == 0
    assert main(["covers", "x > 2", "x > t", "--during", "0", "9"]) == 1


def test_same_subscriber_ties_the_states() -> None:
    assert main(["covers", "x > me.x", "x > me.x", "--same-subscriber"]) == 0
    assert main(["covers", "x > me.x", "x > me.x"]) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["covers", "x > 1"],
        ["covers", "x >", "x > 1"],
        ["covers", "x > 1", "x > 1", "--during", "5", "3"],
        ["covers", "x > 1", "x > 1", "--during", "0", "inf"],
    ],
)
def test_errors_exit_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("rove: error: ")
