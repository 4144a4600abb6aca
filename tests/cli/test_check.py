"""`rove check`: what a text means, for people and programs, or what is wrong with it."""

import io
import json

import pytest

from rove.cli import main

BOX = "lat BETWEEN 45.81 AND 45.82 AND NOT (40 >= NO2)"


def test_prints_the_canonical_text_and_how_it_is_indexed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check", BOX]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split(maxsplit=1) == [
        "canonical",
        "NO2 > 40 AND lat BETWEEN 45.81 AND 45.82",
    ]
    assert "kind         Boolean" in lines
    assert "attributes   NO2 (number), lat (number)" in lines
    assert "normal form  1 conjunction, 2 parts; matches something" in lines
    assert "index        yes" in lines
    assert any(line.split(maxsplit=3)[-1] == "range of numbers" for line in lines)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x > 1", "Boolean"),
        ("x > t", "evolving"),
        ("x > me.x", "following"),
        ("ORDER BY x LIMIT 1 WITHIN 1 HOUR", "ranked"),
        ("x > me.x + t ORDER BY x LIMIT 1 WITHIN 1 HOUR", "evolving, following, ranked"),
    ],
)
def test_names_every_kind(text: str, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", text]) == 0
    assert f"kind         {kind}\n" in capsys.readouterr().out


def test_says_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", BOX, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["attributes"] == {"NO2": ["number"], "lat": ["number"]}
    assert found["conjunctions"] == 1
    assert found["indexed"] is True
    assert found["matches"] == "something"


@pytest.mark.parametrize(
    ("text", "verdict"),
    [("x > 2 AND x < 1", "not needed: nothing matches"), ("TRUE", "not needed: everything")],
)
def test_says_when_there_is_nothing_to_index(
    text: str, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", text]) == 0
    assert verdict in capsys.readouterr().out


def test_warns_of_what_no_index_can_find(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "a + b > 3"]) == 0
    assert "index        no" in capsys.readouterr().out


def test_a_bad_text_is_an_error_with_a_caret(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "lat BETWEN 1 AND 2"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "rove: error: column 5: expected AND, OR or the end, found BETWEN",
        "  lat BETWEN 1 AND 2",
        "      ^^^^^^",
        "  did you mean BETWEEN?",
    ]


def test_a_bad_text_is_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--json", "lat >"]) == 2
    captured = capsys.readouterr()
    assert captured.err == ""
    assert json.loads(captured.out)["column"] == 6


def test_reads_a_text_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("x > 1\n"))
    assert main(["check", "-"]) == 0
    assert "x > 1" in capsys.readouterr().out


def test_refuses_an_endless_text_without_reading_it_all(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = io.StringIO("x > 1 AND " * 1_000_000)
    monkeypatch.setattr("sys.stdin", endless)
    assert main(["check", "-"]) == 2
    assert "at most 8,192" in capsys.readouterr().err
    assert endless.tell() < 10_000


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ('{"lat": "number"}', "did you mean lat?"),
        ('{"latt": "string"}', "latt is a string, and used as a number"),
        ('{"latt": "decimal"}', "kinds are number, string, boolean, any"),
        ("[1]", "--schema must be a JSON object"),
        ("{", "--schema is not JSON"),
    ],
)
def test_a_schema_catches_what_would_never_match(
    schema: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "latt > 3", "--schema", schema]) == 2
    assert complaint in capsys.readouterr().err


def test_a_schema_that_fits_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["check", "SELECT n.m WHERE lat > 3", "--schema", '{"lat": "number", "n.m": "any"}'])
        == 0
    )
    assert "SELECT n.m WHERE lat > 3" in capsys.readouterr().out


def test_shows_what_it_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "x > me.x"]) == 0
    out = capsys.readouterr().out
    assert "cost         340 steps a publication of 1 KB, 0.0% of what a text may cost" in out
    assert "20,000 steps a change of me." in out
    assert main(["check", "x > me.x", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cost"]["matching_steps"] == 340
    assert found["refused"] is None


def test_says_what_a_broker_would_refuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "ORDER BY x LIMIT 1 WITHIN 1e300 DAYS"]) == 0
    assert "a broker refuses it: the window lasts 8.64e+304 s" in capsys.readouterr().out
