"""`rove top`: rates from two looks at the metrics."""

import argparse
import json
import urllib.request
from typing import Any

import msgspec
import pytest
from rich.console import Console

from rove.cli import top
from rove.cli.top import (
    MEASURES,
    POLICY_MEASURES,
    MetricsSample,
    Screen,
    matchers_of,
    read_metrics,
    sparkline,
)
from rove.errors import UsageError
from rove.serve.metrics.readings import metrics_text, policy_metrics
from tests.effort import PATIENCE_S
from tests.serve.conftest import three_matchers, three_policies


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    top.configure(parser)
    return top.run(parser.parse_args(words))


def test_metrics_are_read() -> None:
    lines = ["# HELP rove_x_total y", "rove_x_total 3", 'rove_info{version="1"} 1', "rove_y 0.5"]
    assert read_metrics(lines) == {"x_total": 3.0, "y": 0.5}


def values(first: MetricsSample, last: MetricsSample) -> dict[str, float]:
    return {one.name: one.value(first, last) for one in MEASURES}


def test_rates_are_differences_and_gauges_are_not() -> None:
    first = MetricsSample(10.0, {"publications_received_total": 100, "queued_messages": 5})
    last = MetricsSample(12.0, {"publications_received_total": 140, "queued_messages": 7})
    found = values(first, last)
    assert (found["publications_per_s"], found["queued_messages"]) == (20.0, 7)


def test_a_broker_that_was_started_anew_has_no_negative_rates() -> None:
    first = MetricsSample(10.0, {"publications_received_total": 100})
    assert values(first, MetricsSample(11.0, {}))["publications_per_s"] == 0


def test_every_measure_is_one_of_the_broker(http_url: str) -> None:
    with urllib.request.urlopen(f"{http_url}/metrics", timeout=PATIENCE_S) as answer:
        known = read_metrics(answer.read().decode().splitlines())
    asked: set[str] = set()

    class Asked(dict[str, float]):
        def get(self, name: str, default: Any = None) -> Any:
            asked.add(name)
            return default

    values(MetricsSample(0.0, Asked()), MetricsSample(1.0, Asked()))
    assert asked
    assert asked <= known.keys()


@pytest.mark.parametrize(
    ("given", "drawn"),
    [([], ""), ([0, 0], "▁▁"), ([0, 50, 100], "▁▅█"), ([7], "█")],
)
def test_small_bars(given: list[float], drawn: str) -> None:
    assert sparkline(given) == drawn


def test_once_as_json(http_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--url", http_url, "--once", "--json", "--interval", "0.05") == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == [one.name for one in MEASURES]
    assert found["connections"] == 0


def test_once_for_people(http_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--url", http_url, "--once", "--interval", "0.05") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[0].split() == ["publications/s", "0"]


def test_the_screen() -> None:
    console = Console(width=110, record=True, color_system=None)
    screen = Screen("http://localhost:8080")
    first = MetricsSample(0.0, {})
    for second in range(1, 4):
        grown = {"publications_received_total": second * second * 10.0, "uptime_seconds": 61.0}
        last = MetricsSample(float(second), grown | {"publishers_are_paused": 1.0})
        drawn = screen.drawn(first, last)
        first = last
    with console.capture() as captured:
        console.print(drawn)
    text = captured.get()
    assert "rove  http://localhost:8080  up 1m 1s  publishers are held back" in text
    assert any(
        line.split() == ["publications/s", "50", "▂▅█", "max", "50"] for line in text.splitlines()
    )


@pytest.fixture
def matchers() -> dict[str, Any]:
    """What `/matchers` would say."""
    found: dict[str, Any] = msgspec.to_builtins(three_matchers())
    return found


def test_matchers_are_shown_once_there_are_any_or_were(matchers: dict[str, Any]) -> None:
    assert matchers_of(lambda path: {"/matchers": matchers}[path]) is matchers
    alone = {**matchers, "matchers": [{**matchers["matchers"][0], "number": 0}]}
    assert matchers_of(lambda _path: alone) is alone
    assert matchers_of(lambda _path: {**alone, "reconfigurations": []}) is None


def test_the_screen_has_matchers_and_why_they_were_rearranged(matchers: dict[str, Any]) -> None:
    console = Console(width=110, record=True, color_system=None)
    sample = MetricsSample(1.0, {}, {**matchers, "is_reconfiguring": True})
    with console.capture() as captured:
        console.print(Screen("http://localhost:8080").drawn(sample, sample))
    lines = [" ".join(line.split()) for line in captured.get().splitlines()]
    assert "matchers partitioned, at most 4 processes, being rearranged" in lines
    assert "1 member 15% 60,000 2,400" in lines
    given_up, wrapped, split, out = lines[-5:-1]
    assert "merge 1,500 ms 3 0 given up: matcher 3 has died (idle 75 % of the last" in given_up
    assert wrapped.endswith("more than 70 %)")
    assert split.endswith("split 250 ms 3 40,000 idle 11 % of the last 5,000 messages")
    assert "out 800 ms" in out


def test_once_has_matchers_too(
    matchers: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(top, "_sample", lambda _broker: MetricsSample(1.0, {}, matchers))
    assert run("--once", "--interval", "0.05") == 0
    text = capsys.readouterr().out
    assert "\nmatchers, partitioned\nmatcher  role  " in text
    assert "matcher 3 has died" in text
    assert run("--once", "--json", "--interval", "0.05") == 0
    assert json.loads(capsys.readouterr().out)["matchers"] == matchers


def test_policies_have_lines_of_their_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    view = three_policies()
    first = MetricsSample(1.0, read_metrics(metrics_text(policy_metrics(view)).splitlines()))
    view.total.calls += 100
    view.total.cpu_s += 0.5
    last = MetricsSample(3.0, read_metrics(metrics_text(policy_metrics(view)).splitlines()))
    console = Console(width=110, record=True, color_system=None)
    with console.capture() as captured:
        console.print(Screen("http://localhost:8080").drawn(first, last))
    lines = [line.split()[:-3] for line in captured.get().splitlines()]
    for words in (
        "policies 3",
        "policies suspended 1",
        "policy calls/s 50",
        "cores for policies 0.25",
    ):
        assert words.split() in lines
    samples = [last, first]
    monkeypatch.setattr(top, "_sample", lambda _broker: samples.pop())
    assert run("--once", "--json", "--interval", "0.05") == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == [one.name for one in MEASURES + POLICY_MEASURES]
    assert (found["policies"], found["policy_cores"]) == (3, 0.25)


@pytest.mark.parametrize("words", [["--interval", "0"], ["--interval", "nan"], ["--json"]])
def test_what_cannot_be(words: list[str]) -> None:
    with pytest.raises(UsageError):
        run(*words)
