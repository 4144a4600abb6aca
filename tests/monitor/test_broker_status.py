"""What is made of a broker's and a pipeline's own words."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rove.monitor import broker_status
from rove.monitor.broker_client import BrokerAnswer
from rove.monitor.broker_status import WELL, fault_of, health_of, jobs, metrics_json, why_slow
from rove.pipeline.jobs.status import Reporter
from rove.serve.settings import Channel, LakeSettings, MatcherSettings, PolicySettings
from tests.effort import PATIENCE_S
from tests.monitor.conftest import Running
from tests.serve.conftest import Running as RunningBroker

StartMonitor = Callable[..., Running]


WINDOW = (
    "its window is full: 20 are sent and not acknowledged for 30 s, so 70 more wait, "
    "2 more every second"
)


def queue(**changes: Any) -> dict[str, Any]:
    return {
        "client": "phone",
        "connected": True,
        "queue_messages": 0,
        "inflight": 0,
        "oldest_s": 0.0,
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "grows", "away_since", "why"),
    [
        ({"inflight": 5, "oldest_s": 0.1}, 0.0, None, None),
        ({"connected": False}, 0.0, 900.0, None),
        ({"connected": False, "queue_messages": 3, "oldest_s": 1.0}, 0.0, 900.0, None),
        (
            {"connected": False, "queue_messages": 3, "oldest_s": 60.0},
            0.0,
            400.0,
            "it is away for 10 min; 3 notifications wait",
        ),
        (
            {"connected": False, "queue_messages": 1, "oldest_s": 1.0},
            5.0,
            None,
            "it is away; 1 notification waits, 5 more every second",
        ),
        (
            {"queue_messages": 70, "inflight": 20, "oldest_s": 30.0},
            2.0,
            None,
            WINDOW,
        ),
        (
            {"inflight": 1, "oldest_s": 9_000.0},
            0.0,
            None,
            "1 notification is sent and not acknowledged for 2 h",
        ),
        (
            {"queue_messages": 8, "oldest_s": 6.0},
            0.0,
            None,
            "its connection takes less than comes: 8 wait for 6 s",
        ),
    ],
)
def test_why_a_consumer_is_slow(
    changes: dict[str, Any], grows: float, away_since: float | None, why: str | None
) -> None:
    assert why_slow(queue(**changes), grows, away_since, 1000.0) == why


def test_a_client_that_is_away_is_found_with_its_reason(
    broker: RunningBroker, start_monitor: StartMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_status, "OLD_S", 0.0)
    monitor = start_monitor(broker=broker.url(""))
    assert monitor.get("/api/broker/slow").json == []
    assert broker.post("/sessions/phone/subscriptions", {"topic": "air/#"}).status == 201
    assert broker.post("/publish?topic=air/1", b"{}").status == 200
    monkeypatch.setattr("rove.monitor.broker_client.FRESH_S", 0.0)
    found: list[Any] = []
    while not found:
        found = monitor.get("/api/broker/slow").json
    [slow] = found
    assert (slow["client"], slow["queued"], slow["connected"]) == ("phone", 1, False)
    assert "away" in slow["why"]
    assert monitor.get("/api/broker/queues").json["items"][0]["client"] == "phone"
    [one] = monitor.get("/api/broker/subscriptions?client=phone").json["items"]
    assert one["topic"] == "air/#"


def test_the_broker_is_passed_on(broker: RunningBroker, start_monitor: StartMonitor) -> None:
    monitor = start_monitor(broker=broker.url(""))
    metrics = monitor.get("/api/broker/metrics").json
    assert metrics["rove_sessions"] == 0
    assert monitor.get("/api/broker/health").json == {"status": "ok"}
    assert monitor.get("/api/broker/nothing").status == 404
    wrong = monitor.get("/api/broker/clients?limit=many")
    assert wrong.status == 400
    assert "limit" in wrong.json["error"]
    assert monitor.get("/api/broker/clients?secret=1").status == 400
    question = {"publication": {"a": 1}, "topic": "t", "subscription": {"topic": "t"}}
    answer = monitor.post("/api/broker/explain", question)
    assert answer.json["subscriptions"][0]["reaches"] is True
    assert monitor.post("/api/broker/explain", b"{").status == 400


def test_channels_are_there_if_the_broker_has_any(
    start_broker: Callable[..., RunningBroker], start_monitor: StartMonitor
) -> None:
    broker = start_broker(lake=LakeSettings(channels=(Channel("city", ("air/#",)),)))
    monitor = start_monitor(broker=broker.url(""))
    assert monitor.get("/api/hello").json["parts"]["channels"] is True
    [channel] = monitor.get("/api/broker/channels").json["items"]
    assert (channel["name"], channel["topics"]) == ("city", ["air/#"])
    assert "publications" in channel["keeps"]


def test_matchers_are_there_if_the_broker_may_have_any(
    start_broker: Callable[..., RunningBroker], start_monitor: StartMonitor
) -> None:
    monitor = start_monitor(broker=start_broker(matchers=MatcherSettings(max=1)).url(""))
    assert monitor.get("/api/hello").json["parts"]["matchers"] is True
    assert monitor.get("/api/broker/matchers").json["layout"] == "replicated"
    begun = monitor.post("/api/broker/matchers/layout", {"layout": "partitioned"})
    assert (begun.status, begun.json) == (202, {"asked": "layout"})
    end = time.monotonic() + PATIENCE_S
    while monitor.get("/api/broker/matchers").json["layout"] != "partitioned":
        assert time.monotonic() < end
    refused = monitor.post("/api/broker/matchers/merge")
    assert (refused.status, "fewer are not allowed" in refused.json["error"]) == (409, True)
    assert monitor.post("/api/broker/matchers/forget").status == 404
    assert monitor.post("/api/broker/matchers").status == 405


def test_policies_are_there_if_the_broker_runs_any(
    start_broker: Callable[..., RunningBroker], start_monitor: StartMonitor
) -> None:
    broker = start_broker()
    monitor = start_monitor(broker=broker.url(""))
    assert monitor.get("/api/hello").json["parts"]["policies"] is True
    text = b"def arrived(m, me):\n    return m\n"
    assert broker.ask("PUT", "/sessions/room%2F1%20b/policy", text).status == 200
    view = monitor.get("/api/broker/policies?limit=5&short=true").json
    assert [(one["client_id"], one["text"]) for one in view["policies"]] == [("room/1 b", "")]
    [one] = monitor.get("/api/broker/policies?client=room%2F1+b").json["policies"]
    assert one["text"] == text.decode()
    found = monitor.get("/api/broker/variables?client=room%2F1+b").json
    assert (found["manual"], "connected" in found["automatic"]) == ({}, True)
    assert monitor.get("/api/broker/variables?client=nobody").status == 404
    assert monitor.get("/api/broker/variables").json["error"] == "whose variables?"
    without = start_monitor(broker=start_broker(policies=PolicySettings(enabled=False)).url(""))
    assert without.get("/api/hello").json["parts"]["policies"] is False


def test_metrics_are_read_by_series() -> None:
    text = b'# HELP a b\n# TYPE a counter\na 1\nb_total{design="lees"} 2.5\n'
    assert metrics_json(BrokerAnswer(200, "text/plain", text)) == {
        "a": 1.0,
        'b_total{design="lees"}': 2.5,
    }


@pytest.mark.parametrize("body", [b"oops", b"[]", b'{"other": 1}', b"\xff"])
def test_a_refusal_that_cannot_be_read_is_still_one(body: bytes) -> None:
    assert fault_of(BrokerAnswer(500, "text/plain", body)).status == 502


def test_jobs_are_as_their_files_say(tmp_path: Path, start_monitor: StartMonitor) -> None:
    assert jobs(tmp_path) == []
    (tmp_path / "match").mkdir()
    reporter = Reporter(tmp_path / "match", "match")
    [started] = jobs(tmp_path)
    assert (started["job"], started["state"]) == ("match", "killed"), "nobody holds its lock"
    reporter.look(lake_position=7)
    reporter.end("done")
    monitor = start_monitor(pipeline=tmp_path)
    [job] = monitor.get("/api/jobs").json
    assert (job["state"], job["lake_position"]) == ("done", 7)
    assert monitor.get("/api/hello").json["parts"]["pipeline"] is True


def test_a_broker_that_goes_away_is_a_note(
    broker: RunningBroker, start_monitor: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rove.monitor.broker_status.HEALTH_EVERY_S", 0.05)
    monkeypatch.setattr("rove.monitor.broker_client.FRESH_S", 0.0)
    monitor = start_monitor(broker=broker.url(""))
    with monitor.live() as page:
        assert page.message("hello")
        broker.stop()
        assert "does not answer" in page.message("note", kind="broker")["text"]


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (200, b'{"status":"ok"}', WELL),
        (
            503,
            b'{"status":"ill","reasons":["the disk is full","no lake"]}',
            "the broker is ill: the disk is full, no lake",
        ),
        (502, b"oops", "the broker is ill: it answers 502"),
        (503, b"{}", "the broker is ill: it answers 503"),
    ],
)
def test_what_it_says_of_itself(status: int, body: bytes, told: str) -> None:
    assert health_of(BrokerAnswer(status, "application/json", body)) == told
