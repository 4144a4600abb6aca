"""`rove sub`: what it prints for people and for programs, and how it ends."""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from rove.cli import sub
from rove.client import FilterError, SubscribeRefused, sync
from tests.effort import PATIENCE_S

COMMAND = [sys.executable, "-m", "rove", "sub"]


def run(broker_url: str, *words: str) -> int:
    parser = argparse.ArgumentParser()
    sub.configure(parser)
    return sub.run(parser.parse_args([*words, "--url", broker_url]))


def keep(
    broker_url: str, *values: Any, topic: str = "t", user: dict[str, str] | None = None
) -> None:
    """Publish so that a later subscription gets it."""
    with sync.connect(broker_url) as client:
        for value in values:
            client.publish(topic, value, valid_for="forever", user=user)


def test_people_get_columns(broker_url: str, capfd: pytest.CaptureFixture[str]) -> None:
    keep(broker_url, {"NO2": 41.5, "place": "Zagreb"}, {"NO2": 7, "place": "Rab"}, topic="air/z")
    assert run(broker_url, "air/#", "--count", "2") == 0
    captured = capfd.readouterr()
    first, second = captured.out.splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}  air/z  NO2 41\.5  place Zagreb", first)
    assert second[12:] == "  air/z  NO2 7     place Rab"
    assert re.search(r"2 notifications in \d+\.\d s", captured.err)


def test_programs_get_objects(broker_url: str, capfd: pytest.CaptureFixture[str]) -> None:
    keep(broker_url, {"x": 1}, b"\xff", b"no JSON", user={"unit": "ppb"})
    assert run(broker_url, "t", "--count", "3", "--json") == 0
    captured = capfd.readouterr()
    found = [json.loads(line) for line in captured.out.splitlines()]
    assert found[0]["value"] == {"x": 1}
    assert found[0]["user"]["unit"] == "ppb"
    assert abs(found[0]["at"] - time.time()) < 600
    assert len(found[0]["id"]) == 28
    assert found[1]["base64"] == "/w=="
    assert found[2]["text"] == "no JSON"


def test_what_is_no_object_is_shown_as_it_is(
    broker_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    keep(broker_url, [1, 2], b"bell\x07", b"")
    assert run(broker_url, "t", "--count", "3") == 0
    rows = [line[12:] for line in capfd.readouterr().out.splitlines()]
    assert rows == ["  t  [1,2]", "  t  bell·", "  t"]


def test_a_filter_chooses_and_may_name_me(
    broker_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    keep(broker_url, {"x": 1}, {"x": 5, "who": "ann"}, {"x": 5, "who": "bob"})
    words = ("x > me.x AND who = me.who", "--me", "x=3", "--me", "who=bob", "--evolve", "exact")
    assert run(broker_url, "t", *words, "--count", "1", "--json") == 0
    assert json.loads(capfd.readouterr().out)["value"] == {"x": 5, "who": "bob"}


def test_it_can_end_by_itself(broker_url: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(broker_url, "t", "--for", "0.05") == 0
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "0 notifications in" in captured.err


def test_a_session_with_a_name_is_found_again(
    broker_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("t", "x > 1", "--client-id", "me", "--json")
    assert run(broker_url, *words, "--for", "0.05") == 0
    with sync.connect(broker_url) as client:
        for number in range(4):
            client.publish("t", {"x": number})
    assert run(broker_url, *words, "--count", "2") == 0
    found = [json.loads(line)["value"]["x"] for line in capfd.readouterr().out.splitlines()]
    assert found == [2, 3]


def test_bad_texts_and_refusals_are_errors(
    broker_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(FilterError, match="column 4"):
        run(broker_url, "t", "x >")
    with pytest.raises(SubscribeRefused, match="no design magic"):
        run(broker_url, "t", "x > t", "--evolve", "magic")
    with pytest.raises(SubscribeRefused, match="needs a lake with subscriptions"):
        run(broker_url, "t", "x > 1", "--engine", "spark")
    assert "notifications" not in capfd.readouterr().err


def test_ctrl_c_ends_it_with_a_summary(broker_url: str) -> None:
    keep(broker_url, {"x": 1})
    process = subprocess.Popen(
        [*COMMAND, "t", "--url", broker_url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Where the tests themselves run in the background, their children ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    assert process.stdout is not None
    assert "x 1" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert "1 notification in" in err
    assert process.returncode == 130


def test_a_reader_that_goes_away_ends_it(broker_url: str) -> None:
    keep(broker_url, *({"x": number} for number in range(5)))
    process = subprocess.Popen(
        [*COMMAND, "t", "--url", broker_url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    keep(broker_url, *({"x": number} for number in range(5)))
    assert process.wait(timeout=PATIENCE_S) == 141
    assert process.stderr is not None
    assert "notifications in" in process.stderr.read()
    process.stderr.close()
