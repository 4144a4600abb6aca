"""What the broker counts and holds: for `/metrics`, as Prometheus reads it, and for the lake.

Counters are the broker's own; gauges are taken when asked. What is queued is summed over all
sessions, about 0.3 µs each. Names carry the unit last and begin with `rove_`; counters end in
`_total`, as is the custom there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

import msgspec

from rove import __version__
from rove.broker.broker import Broker
from rove.match.designs import Counters

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Gauge(NamedTuple):
    """Something that goes up and down."""

    name: str
    about: str
    value: float


class Metric(NamedTuple):
    """A name, and what it says at this moment."""

    name: str
    about: str
    kind: Literal["counter", "gauge"]
    series: Mapping[str, float]
    """By name with labels: `rove_design_splits_total{design="lees"}`."""


def metrics_text(metrics: Iterable[Metric]) -> str:
    """As Prometheus reads it."""
    lines: list[str] = []
    for one in metrics:
        lines += (f"# HELP {one.name} {one.about}", f"# TYPE {one.name} {one.kind}")
        lines += (f"{series} {value}" for series, value in one.series.items())
    return "\n".join(lines) + "\n"


def metric_values(metrics: Iterable[Metric]) -> dict[str, float]:
    """By series."""
    return {series: value for one in metrics for series, value in one.series.items()}


def metrics_of(
    broker: Broker, http_connections: int, event_streams: int, started: float
) -> Iterator[Metric]:
    """All of it, now."""
    for name, value in broker.counters.as_dict().items():
        full = f"rove_{name}_total"
        yield Metric(full, broker.counters.HELP[name], "counter", {full: value})
    for gauge in gauges(broker, http_connections, event_streams, started):
        full = f"rove_{gauge.name}"
        yield Metric(full, gauge.about, "gauge", {full: gauge.value})
    yield from _designs(broker)
    version = f'rove_build_info{{version="{__version__}"}}'
    yield Metric("rove_build_info", "which Rove this is", "gauge", {version: 1})


def _designs(broker: Broker) -> Iterator[Metric]:
    """What each design for evolving subscriptions has done; nothing while none is in use."""
    by_design = broker.state.interests.counters()
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
    """What the broker holds at this moment."""
    state = broker.state
    sessions = state.sessions.values()
    away = sum(session.link is None for session in sessions)
    yield Gauge("connections_open", "connections, MQTT and in-process", len(state.links))
    yield Gauge("http_connections_open", "HTTP connections and WebSockets", http_connections)
    yield Gauge("event_streams_open", "clients of /subscribe", event_streams)
    yield Gauge("sessions", "sessions, of clients here and away", len(sessions))
    yield Gauge("sessions_away", "sessions of clients that are away", away)
    yield Gauge("subscriptions", "subscriptions", len(state.interests))
    yield Gauge(
        "queued_messages",
        "notifications that wait in queues, not sent yet",
        sum(len(session.queue) for session in sessions),
    )
    yield Gauge(
        "queued_bytes",
        "payloads of notifications that wait in queues",
        sum(session.queue_bytes for session in sessions),
    )
    yield Gauge(
        "inflight_messages",
        "notifications sent and not acknowledged",
        sum(len(session.inflight) for session in sessions),
    )
    yield Gauge("retained_messages", "retained publications", state.keeper.retained_count)
    yield Gauge("retained_bytes", "payloads of retained publications", state.keeper.retained_bytes)
    yield Gauge("valid_publications", "valid publications", state.keeper.valid_count)
    yield Gauge("valid_bytes", "payloads of valid publications", state.keeper.valid_bytes)
    yield Gauge("held_bytes", "packets that wait for a commit", state.gate.held_bytes)
    yield Gauge("commit_backlog_bytes", "changes that wait for the disk", broker.backlog_bytes)
    yield Gauge("publishers_are_paused", "1 while they are pushed back", int(broker.is_paused))
    yield Gauge("uptime_seconds", "since the broker started", time.monotonic() - started)
