"""`rove explain`: yes or no, and why, with exit codes 0, 1 and 2."""

import json
import urllib.request
from pathlib import Path

import pytest

from rove.cli import main
from tests.effort import PATIENCE_S

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


# --- a broker that runs ---------------------------------------------------------------------------


def post(url: str, body: object) -> None:
    with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=PATIENCE_S):
        pass


@pytest.fixture
def asked(http_url: str) -> list[str]:
    """A broker that has taken two publications, and how to ask it."""
    wanted = {"topic": "air/#", "filter": "NO2 > 40"}
    post(f"{http_url}/sessions/phone/subscriptions", wanted)
    post(f"{http_url}/publish?topic=air/1&id=missed", {"NO2": 39})
    post(f"{http_url}/publish?topic=air/1&id=waits", {"NO2": 41})
    return ["explain", "--live", "--url", http_url]


def test_why_a_client_was_not_reached(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*asked, "--client", "phone", "--publication", "missed"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("missed on air/1, published 0.")
    assert lines[0].endswith("ago by http; sessions notified: 0")
    assert lines[2] == "subscription 1 of phone: air/# where NO2 > 40"
    assert lines[3] == "  ✔ topic       air/# fits air/1"
    assert "      ✘ false    NO2 > 40    (NO2 is 39)" in lines
    assert lines[-1] == "  it does not reach the subscription"


def test_what_waits_is_not_known_to_have_arrived(
    asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*asked, "--subscription", "1", "--publication", "waits"]) == 3
    assert "? queue       it waits in the queue, at place 1 of 1" in capsys.readouterr().out


def test_a_publication_that_is_only_described(asked: list[str]) -> None:
    words = [*asked, "--client", "phone", "--topic", "air/7", "--publication"]
    assert main([*words, '{"NO2": 50}']) == 0
    assert main([*words, '{"NO2": 5}']) == 1


def test_live_json_is_what_the_broker_says(
    asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*asked, "--client", "phone", "--publication", "missed", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["publication"]["notified"] == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--live", "--publication", "x"], "--live needs --client or --subscription"),
        (["--live", "--publication", "{}", "--client", "c"], "needs --topic"),
        (["--live", "x > 1", "--publication", "x", "--client", "c"], "leave out the text"),
        (["--publication", "{}"], "explain what?"),
    ],
)
def test_questions_that_are_not_complete(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *words]) == 2
    assert complaint in capsys.readouterr().err
