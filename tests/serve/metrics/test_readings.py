"""`/metrics`: a text that Prometheus reads, with every counter and what the broker holds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rove.broker.counters import BrokerCounters
from rove.elastic.view import MatcherView
from rove.policy.view import PolicyCounts
from rove.serve.metrics.readings import matcher_metrics, metrics_text, policy_metrics
from tests.serve.conftest import three_matchers, three_policies

if TYPE_CHECKING:
    from tests.serve.conftest import Running

LINE = re.compile(r'rove_[a-z_0-9]+(\{[a-z]+="[^"]*"\})? -?[0-9.e+-]+')


def values(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(LINE.fullmatch(line) for line in lines)
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_every_counter_is_there_with_its_explanation(server: Running) -> None:
    answer = server.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    for name, about in BrokerCounters.HELP.items():
        assert f"# HELP rove_{name}_total {about}\n# TYPE rove_{name}_total counter" in answer.text
    found = values(answer.text)
    assert {name.partition("{")[0] for name in found} == set(
        re.findall("^# TYPE ([a-z_0-9]+) ", answer.text, re.MULTILINE)
    )


def test_what_happens_shows(server: Running) -> None:
    server.post("/sessions/s/subscriptions", {"topic": "a"})
    server.post("/publish?topic=a", b"x" * 100)
    server.post("/publish?topic=a&retain", b"y" * 10)
    server.post("/publish?topic=a&valid-for=60", b"z")
    with server.stream("/subscribe?topic=nothing"):
        found = values(server.get("/metrics").text)
    expected = {
        "rove_publications_received_total": 3,
        "rove_sessions": 3,
        "rove_sessions_away": 1,
        "rove_subscriptions": 2,
        "rove_queued_messages": 3,
        "rove_retained_messages": 1,
        "rove_valid_publications": 1,
        "rove_event_streams_open": 1,
        "rove_connections_open": 2,
        "rove_publishers_are_paused": 0,
        "rove_held_bytes": 0,
    }
    assert {name: found[name] for name in expected} == expected
    assert found["rove_queued_bytes"] >= 111
    assert found["rove_http_connections_open"] >= 2
    assert found["rove_uptime_seconds"] > 0


def test_delays_of_publications_show(server: Running) -> None:
    server.post("/publish?topic=a", b"x")
    server.post("/publish?topic=a&valid-for=60", b"z")  # which is kept
    found = values(server.get("/metrics").text)
    assert found['rove_delayed_publications_total{until="sent"}'] == 2
    assert found['rove_delayed_publications_total{until="kept"}'] >= 1
    for until in ("sent", "kept"):
        mean, longest, total = (
            found[f'rove_delay_{name}{{until="{until}"}}']
            for name in ("mean_seconds", "max_seconds", "seconds_total")
        )
        assert 0 < mean <= longest <= total


def test_matchers_show() -> None:
    view = three_matchers()
    text = metrics_text(matcher_metrics(view))
    found = values(text)
    expected = {
        "rove_matchers": 3,
        'rove_matcher_idle_share{matcher="1"}': 0.15,
        'rove_matcher_subscriptions{matcher="2"}': 20_000,
        'rove_matcher_messages_total{matcher="4"}': 12_000,
        'rove_matcher_messages_per_second{matcher="1"}': 2_400.5,
        'rove_matcher_reconfigurations_total{kind="split"}': 1,
        'rove_matcher_reconfigurations_total{kind="merge"}': 0,
        "rove_matcher_reconfigurations_failed_total": 1,
        "rove_matcher_reconfiguration_last_seconds": 1.5,
        "rove_matcher_tickets_waiting": 3,
        'rove_matcher_layout{layout="partitioned"}': 1,
    }
    assert {name: found[name] for name in expected} == expected
    assert "# TYPE rove_matcher_messages_total counter\n" in text
    assert "# TYPE rove_matcher_idle_share gauge\n" in text
    view.reconfigurations.clear()
    view.matchers = [MatcherView(0, 0, 1, 100_000, 0.9, 0.0, 0, "broker")]
    found = values(metrics_text(matcher_metrics(view)))
    assert found["rove_matchers"] == 0
    assert found['rove_matcher_subscriptions{matcher="0"}'] == 100_000
    assert found["rove_matcher_reconfiguration_last_seconds"] == 0


def test_policies_show_from_the_first_one_on() -> None:
    view = three_policies()
    text = metrics_text(policy_metrics(view))
    found = values(text)
    expected = {
        "rove_policies": 3,
        "rove_policies_suspended": 1,
        "rove_policy_calls_total": 1_349,
        'rove_policy_verdicts_total{verdict="passed"}': 801,
        'rove_policy_verdicts_total{verdict="changed"}': 340,
        'rove_policy_verdicts_total{verdict="dropped"}': 202,
        'rove_policy_verdicts_total{verdict="stopped"}': 6,
        'rove_policy_verdicts_total{verdict="suspended"}': 7,
        'rove_policy_stops_total{kind="steps"}': 5,
        'rove_policy_stops_total{kind="time"}': 0,
        "rove_policy_outputs_total": 1_231,
        "rove_policy_bytes_in_total": 6_600_900,
        "rove_policy_bytes_out_total": 1_140_100,
        "rove_policy_steps_total": 507_400,
        "rove_policy_cpu_seconds_total": 2.6,
        "rove_policy_calls_in_workers_total": 40,
        "rove_policy_workers": 1,
        "rove_policy_jobs": 1,
        "rove_policy_jobs_waiting": 3,
        "rove_policy_jobs_done_total": 36,
        "rove_policy_jobs_lost_total": 1,
    }
    assert {name: found[name] for name in expected} == expected
    assert "# TYPE rove_policy_jobs_lost_total counter\n" in text
    assert "# TYPE rove_policy_jobs gauge\n" in text
    view.count = 0
    assert list(policy_metrics(view)), "those that have gone are still counted"
    view.total = PolicyCounts()
    assert list(policy_metrics(view)) == []
