"""`rove explain`: yes or no, and why, with exit codes 0, 1 and 2."""

import json
from pathlib import Path

import pytest

from rove.cli import main

AREA = "x BETWEEN -3 + t AND 3 + t AND kind = 'apple'"


def test_a_match_exits_0_and_shows_the_values(capsys: pytest.CaptureFixture[str]) -> None:
    publication = '{"x": 4, "kind": "apple"}'
    assert main(["explain", AREA, "--publication", publication, "--at", "1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("it matches\n")
    assert "x is 4, -3 + t is -2.0, t is 1.0, 3 + t is 4.0" in out


def test_a_miss_exits_1_and_says_which_predicate(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", AREA, "--publication", '{"x": 4}', "--at", "1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "it does not match"
    assert any("? unknown" in line and "kind is missing or null" in line for line in lines)
    assert any("✔ true" in line and "x BETWEEN" in line for line in lines)


def test_the_subscribers_state_counts(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["explain", "x > me.x", "--publication", '{"x": 4}', "--me"]
    assert main([*words, '{"x": 3}']) == 0
    assert main([*words, '{"x": 4}']) == 1
    assert "me.x is 4" in capsys.readouterr().out


def test_json_holds_the_whole_tree(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "a = 1 OR b = 2", "--publication", '{"a": 1}', "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["matches"] is True
    assert [part["truth"] for part in found["parts"][0]["parts"]] == [True, None]


def test_a_publication_may_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "publication.json"
    file.write_text('{"x": 4}')
    assert main(["explain", "x = 4", "--publication", f"@{file}"]) == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--publication", "{"], "--publication is not JSON"),
        (["--publication", "[1]"], "--publication must be a JSON object"),
        (["--publication", '{"x": NaN}'], "attribute x is nan"),
        (["--publication", "{}", "--me", "3"], "--me must be a JSON object"),
        (["--publication", "{}", "--at", "-1"], "--at takes seconds"),
        (["--publication", "{}", "--at", "nan"], "--at takes seconds"),
        (["--publication", "@/nowhere.json"], "No such file"),
        ([], "--publication"),
    ],
)
def test_bad_arguments_are_one_line_and_exit_2(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "x > 1", *words]) == 2
    err = capsys.readouterr().err
    assert complaint in err
    assert err.count("\n") == 1
