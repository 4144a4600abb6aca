"""The broker's metrics, for `/metrics` in Prometheus' format and for recording.

Counters belong to the broker; gauges are computed on request. Queues are summed over all sessions,
about 0.1 µs each, and figures of policies over all policies, about 1.4 µs each. Names begin with
`rove_` and end with the unit; those of counters end in `_total`, as Prometheus recommends.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, get_args

import msgspec

from rove import __version__
from rove.broker.broker import Broker
from rove.broker.sessions.session import Session
from rove.elastic.view import Kind, MatchersView
from rove.match.designs.design import Counters
from rove.metrics.recorder import RecorderState
from rove.metrics.records import kind_of
from rove.policy.jobs import StopKind
from rove.policy.view import PoliciesView
from rove.serve.mesh_view import MeshStatus
from rove.serve.metrics.delays import Delays

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Gauge(NamedTuple):
    """A value that goes up and down."""

    name: str
    about: str
    value: float


class Metric(NamedTuple):
    """A metric and its present values."""

    name: str
    about: str
    kind: Literal["counter", "gauge"]
    series: Mapping[str, float]
    """By name with labels: `rove_design_splits_total{design="lees"}`."""


def metrics_text(metrics: Iterable[Metric]) -> str:
    """Metrics in Prometheus' format."""
    lines: list[str] = []
    for one in metrics:
        lines += (f"# HELP {one.name} {one.about}", f"# TYPE {one.name} {one.kind}")
        lines += (f"{series} {value}" for series, value in one.series.items())
    return "\n".join(lines) + "\n"


def metric_values(metrics: Iterable[Metric]) -> dict[str, float]:
    """Values by series."""
    return {series: value for one in metrics for series, value in one.series.items()}


def metrics_of(
    broker: Broker,
    now: float,
    delays: Delays,
    http_connections: int,
    event_streams: int,
    started: float,
) -> Iterator[Metric]:
    """Metrics of the broker itself."""
    for name, value in broker.counters.as_dict().items():
        full = f"rove_{name}_total"
        yield Metric(full, broker.counters.HELP[name], "counter", {full: value})
    for gauge in gauges(broker, http_connections, event_streams, started):
        full = f"rove_{gauge.name}"
        yield Metric(full, gauge.about, "gauge", {full: gauge.value})
    yield from _delays(delays, now)
    yield from _designs(broker)
    version = f'rove_build_info{{version="{__version__}"}}'
    yield Metric("rove_build_info", "the version of Rove", "gauge", {version: 1})


def recorder_metrics(state: RecorderState) -> Iterator[Metric]:
    """Metrics of the recording."""
    for name, about, value in (
        ("rove_metrics_written_total", "readings written to the metrics database", state.written),
        ("rove_metrics_dropped_total", "readings for which there was no room", state.dropped),
    ):
        yield Metric(name, about, "counter", {name: value})
    waiting = "rove_metrics_waiting"
    yield Metric(waiting, "readings that wait for the database", "gauge", {waiting: state.waiting})


def matcher_metrics(view: MatchersView) -> Iterator[Metric]:
    """Metrics of matchers and their reconfigurations."""
    past = view.reconfigurations
    processes = sum(one.number > 0 for one in view.matchers)
    for name, about, value in (
        ("rove_matchers", "processes that match for the broker", processes),
        ("rove_matcher_tickets_waiting", "batches not answered yet", view.tickets_waiting),
        ("rove_matcher_reconfigurations_failed_total", "reconfigurations given up", view.failed),
        (
            "rove_matcher_reconfiguration_last_seconds",
            "how long the last reconfiguration took",
            past[-1].duration_s if past else 0.0,
        ),
    ):
        yield Metric(name, about, kind_of(name), {name: value})
    for name, about, values in (
        (
            "rove_matcher_idle_share",
            "of the time of its last messages, from 0 to 1; matcher 0 is the broker itself",
            {one.number: one.idle_share for one in view.matchers},
        ),
        (
            "rove_matcher_subscriptions",
            "subscriptions that it holds",
            {one.number: one.subscriptions for one in view.matchers},
        ),
        (
            "rove_matcher_messages_total",
            "publications that it has matched",
            {one.number: one.messages for one in view.matchers},
        ),
        (
            "rove_matcher_messages_per_second",
            "publications per second, recently",
            {one.number: one.messages_per_s for one in view.matchers},
        ),
    ):
        series = {f'{name}{{matcher="{number}"}}': value for number, value in values.items()}
        yield Metric(name, about, kind_of(name), series)
    done = "rove_matcher_reconfigurations_total"
    by_kind = {f'{done}{{kind="{kind}"}}': view.done.get(kind, 0) for kind in get_args(Kind)}
    yield Metric(done, "reconfigurations of the matchers", "counter", by_kind)
    layout = "rove_matcher_layout"
    named = {f'{layout}{{layout="{view.layout}"}}': 1}
    yield Metric(layout, "how subscriptions are distributed over the matchers", "gauge", named)


def policy_metrics(view: PoliciesView) -> Iterator[Metric]:
    """Metrics of policies; none until there is one."""
    total = view.total
    if not view.count and not total.calls:
        return
    for name, about, value in (
        ("rove_policies", "policies of subscribers at work", view.count),
        ("rove_policies_suspended", "those that are suspended for now", view.suspended),
        ("rove_policy_calls_total", "messages that came to policies", total.calls),
        ("rove_policy_outputs_total", "messages that policies sent", total.outputs),
        (
            "rove_policy_bytes_in_total",
            "payloads of messages that came to policies",
            total.bytes_in,
        ),
        ("rove_policy_bytes_out_total", "payloads of messages that policies sent", total.bytes_out),
        ("rove_policy_steps_total", "steps that policies took", total.steps),
        ("rove_policy_cpu_seconds_total", "in the broker and in workers", total.cpu_s),
        ("rove_policy_calls_in_workers_total", "calls that needed a worker", total.in_workers),
        ("rove_policy_workers", "processes for policies at most", view.workers),
        ("rove_policy_jobs", "jobs under way in workers", view.jobs),
        ("rove_policy_jobs_waiting", "jobs that wait for a worker", view.jobs_waiting),
        ("rove_policy_jobs_done_total", "jobs that workers have done", view.jobs_done),
        ("rove_policy_jobs_lost_total", "jobs killed, or lost with a worker", view.jobs_lost),
    ):
        yield Metric(name, about, kind_of(name), {name: value})
    verdicts = {
        "passed": total.passed,
        "changed": total.changed,
        "dropped": total.dropped,
        "stopped": sum(total.stopped.values()),
        "suspended": total.suspended,
    }
    stops = {kind: total.stopped.get(kind, 0) for kind in get_args(StopKind)}
    for name, label, about, values in (
        ("rove_policy_verdicts_total", "verdict", "what became of messages", verdicts),
        ("rove_policy_stops_total", "kind", "calls that were stopped, and by what", stops),
    ):
        series = {f'{name}{{{label}="{which}"}}': value for which, value in values.items()}
        yield Metric(name, about, "counter", series)


def mesh_metrics(status: MeshStatus) -> Iterator[Metric]:
    """Metrics of the network of brokers."""
    joined = [link for link in status.links if link.state == "joined"]
    reachable = sum(one.is_reachable for one in status.brokers)
    for name, about, value in (
        ("rove_mesh_brokers", "other brokers that can be reached", reachable),
        ("rove_mesh_links", "links to other brokers", len(joined)),
        ("rove_mesh_entries", "what this broker asks each other one for", status.asks_for),
        ("rove_mesh_entries_bytes", "the size of that", status.asks_for_bytes),
    ):
        yield Metric(name, about, "gauge", {name: value})
    brokers = [(one.name, one) for one in status.brokers]
    links = [(one.name, one) for one in joined]
    for name, about, values in (
        ("sent_total", "publications sent to a broker", {n: b.sent for n, b in brokers}),
        ("received_total", "publications received", {n: b.received for n, b in brokers}),
        (
            "received_in_vain_total",
            "those of them that matched nothing here",
            {n: b.received_in_vain for n, b in brokers},
        ),
        ("queued_messages", "publications that wait", {n: b.queued for n, b in brokers}),
        ("asked_entries", "what it asks this broker for", {n: b.asks_for for n, b in brokers}),
        ("link_sent_bytes_total", "sent over the link", {n: e.sent_bytes for n, e in links}),
        ("link_received_bytes_total", "received", {n: e.received_bytes for n, e in links}),
        ("link_queued_bytes", "what waits for the link", {n: e.queued_bytes for n, e in links}),
        ("link_delay_seconds", "there and back", {n: e.delay_s or 0.0 for n, e in links}),
        (
            "link_offset_seconds",
            "how far its clock is ahead",
            {n: e.offset_s or 0.0 for n, e in links},
        ),
    ):
        full = f"rove_mesh_{name}"
        series = {f'{full}{{peer="{peer}"}}': float(value) for peer, value in values.items()}
        yield Metric(full, about, kind_of(full), series)


def _delays(delays: Delays, now: float) -> Iterator[Metric]:
    """Delays of publications in the broker."""
    both = {"sent": delays.sent, "kept": delays.kept}
    for name, about, values in (
        (
            "rove_delayed_publications_total",
            "publications whose delay in the broker was measured",
            {until: float(delay.count) for until, delay in both.items()},
        ),
        (
            "rove_delay_seconds_total",
            "their delays, from receipt until all was sent, or kept and acknowledged",
            {until: delay.seconds for until, delay in both.items()},
        ),
        (
            "rove_delay_mean_seconds",
            "recent mean delay",
            {until: delay.mean_s(now) for until, delay in both.items()},
        ),
        (
            "rove_delay_max_seconds",
            "recent longest delay",
            {until: delay.longest_s(now) for until, delay in both.items()},
        ),
    ):
        series = {f'{name}{{until="{until}"}}': value for until, value in values.items()}
        yield Metric(name, about, kind_of(name), series)


def _designs(broker: Broker) -> Iterator[Metric]:
    """Metrics of designs for evolving subscriptions; none while no design is in use."""
    by_design = broker.view.designs()
    if not by_design:
        return
    for field in msgspec.structs.fields(Counters):
        full = f"rove_design_{field.name}_total"
        series = {
            f'{full}{{design="{design}"}}': getattr(counters, field.name)
            for design, counters in by_design.items()
        }
        yield Metric(full, "of the designs for evolving subscriptions", "counter", series)


def gauges(
    broker: Broker, http_connections: int, event_streams: int, started: float
) -> Iterator[Gauge]:
    """The present values of gauges."""
    view, pressure = broker.view, broker.backpressure
    held = _session_sums(view.sessions.values())
    yield Gauge("connections_open", "connections, MQTT and in-process", len(view.links))
    yield Gauge("http_connections_open", "HTTP connections and WebSockets", http_connections)
    yield Gauge("event_streams_open", "clients of /subscribe", event_streams)
    yield Gauge("sessions", "sessions, of connected clients and others", len(view.sessions))
    yield Gauge("sessions_away", "sessions of clients that are not connected", held.away)
    yield Gauge("subscriptions", "subscriptions", view.subscription_count)
    yield Gauge("queued_messages", "notifications that wait in queues, not sent yet", held.queued)
    yield Gauge("queued_bytes", "payloads of notifications that wait in queues", held.bytes)
    yield Gauge("inflight_messages", "notifications sent and not acknowledged", held.inflight)
    yield Gauge("retained_messages", "retained publications", view.retained.retained_count)
    yield Gauge("retained_bytes", "payloads of retained publications", view.retained.retained_bytes)
    yield Gauge("valid_publications", "valid publications", view.retained.valid_count)
    yield Gauge("valid_bytes", "payloads of valid publications", view.retained.valid_bytes)
    yield Gauge("held_bytes", "packets that wait for a commit", view.held_bytes)
    yield Gauge("commit_backlog_bytes", "changes that wait for the disk", pressure.backlog_bytes)
    yield Gauge("publishers_are_paused", "1 while publishers are paused", int(pressure.is_paused))
    yield Gauge("uptime_seconds", "since the broker started", time.monotonic() - started)


class _SessionSums(NamedTuple):
    away: int
    queued: int
    bytes: int
    inflight: int


def _session_sums(sessions: Iterable[Session]) -> _SessionSums:
    """Sums over all sessions in one pass: there may be many, and the broker waits for it."""
    away = queued = queued_bytes = inflight = 0
    for session in sessions:
        if session.link is None:
            away += 1
        if session.queue:
            queued += len(session.queue)
            queued_bytes += session.queue_bytes
        if session.inflight:
            inflight += len(session.inflight)
    return _SessionSums(away, queued, queued_bytes, inflight)
