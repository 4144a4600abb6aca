"""`rove ls`: what is inside a broker, for people, for pipes and for programs."""

import argparse
import json
import urllib.request
from typing import Any

import msgspec
import pytest

from rove.cli import ls
from tests.effort import PATIENCE_S
from tests.serve.conftest import three_policies


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    ls.configure(parser)
    return ls.run(parser.parse_args(words))


def post(url: str, body: object) -> None:
    with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=PATIENCE_S):
        pass


@pytest.fixture
def busy(http_url: str) -> str:
    """A broker with two sessions, one of which misses something."""
    wanted = {"topic": "air/#", "filter": "NO2 > 40"}
    post(f"{http_url}/sessions/phone/subscriptions", wanted)
    post(f"{http_url}/sessions/room%1B%5B31m/subscriptions", {"topic": "b"})
    post(f"{http_url}/publish?topic=air/1", {"NO2": 41})
    return http_url


def test_clients_in_columns(busy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--url", busy) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert " ".join(head.split()) == (
        "client user state for MQTT subscriptions queued in flight from"
    )
    assert [line.split()[0] for line in lines] == ["phone", "room�[31m", "http"]
    assert lines[0].split()[1:3] == ["–", "away"]
    assert lines[2].split()[2] == "connected"


def test_subscriptions_and_queues(busy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("subscriptions", "--url", busy, "--client", "phone") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "air/#  NO2 > 40  –       broker" in lines[1]
    assert run("queues", "--url", busy) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:3] == ["phone", "away", "1"]


def test_matchers(busy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("matchers", "--url", busy) == 0
    head, broker = capsys.readouterr().out.splitlines()
    assert " ".join(head.split()) == (
        "matcher role process idle subscriptions cells messages/s messages"
    )
    assert broker.split()[:3] == ["0", "broker", "–"]


def test_policies(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    view = msgspec.to_builtins(three_policies())
    asked: list[str] = []

    def ask(_broker: object, path: str) -> Any:
        asked.append(path)
        return view

    monkeypatch.setattr("rove.cli.ls.BrokerApi.ask", ask)
    assert run("policies", "--client", "a b", "--limit", "99999") == 0
    found = capsys.readouterr()
    head, phone, tablet, watch = (" ".join(line.split()) for line in found.out.splitlines())
    assert asked == ["/policies?limit=10000&client=a+b&short=true"]
    assert head == (
        "client of state for calls passed changed dropped stopped waiting in out CPU last trouble"
    )
    counted = "1,200 700 300 200 0 0 2.5 MB 640 KB 30 ms –"
    assert phone == f"phone the session at work 1m 30s {counted}"
    assert tablet.startswith("tablet icu/+ at work 1m 0s 40 0 40 0 0 4 ")
    assert watch.startswith("watch the session suspended, 3m 5")
    assert watch.endswith("60 ms line 3: more than 100000 steps")
    assert found.err == ""
    view["count"] = 4
    run("policies", "--json")
    found = capsys.readouterr()
    assert [one["text"] for one in json.loads(found.out)] == [view["policies"][0]["text"]] * 3
    assert asked[-1] == "/policies?limit=1000"
    run("policies")
    assert "there are more than 3" in capsys.readouterr().err


def test_json_is_one_list(busy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("clients", "--url", busy, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["client"] for one in found] == ["phone", "room\x1b[31m", "http"]


def test_all_pages_up_to_the_limit(
    busy: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ls, "PAGE", 1)
    run("--url", busy, "--json")
    assert len(json.loads(capsys.readouterr().out)) == 3
    run("--url", busy, "--limit", "2")
    found = capsys.readouterr()
    assert len(found.out.splitlines()) == 3
    assert found.err == "there are more than 2; --limit shows more\n"


def test_nothing_is_said_on_stderr(http_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    for what in ("clients", "subscriptions", "queues"):
        words = ls.NOTHING[what]
        assert run(what, "--url", http_url) == 0
        found = capsys.readouterr()
        assert (found.out, found.err) == ("", f"{words}\n")


def test_a_terminal_gets_a_table(
    busy: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ls, "is_terminal", lambda: True)
    assert run("subscriptions", "--url", busy) == 0
    out = capsys.readouterr().out
    assert "──" in out
    assert "NO2 > 40" in out
    assert "\x1b[31m" not in out
