"""`/metrics`: what the broker counts and holds, as Prometheus reads it.

Counters are the broker's own; gauges are taken when asked. What is queued is summed over all
sessions, about 0.3 µs each. Names carry the unit last and begin with `rove_`; counters end in
`_total`, as is the custom there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

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


def metrics_text(broker: Broker, http_connections: int, event_streams: int, started: float) -> str:
    """All of it."""
    lines: list[str] = []
    for name, value in broker.counters.as_dict().items():
        full = f"rove_{name}_total"
        about = broker.counters.HELP[name]
        lines += (f"# HELP {full} {about}", f"# TYPE {full} counter", f"{full} {value}")
    for gauge in gauges(broker, http_connections, event_streams, started):
        full = f"rove_{gauge.name}"
        lines += (f"# HELP {full} {gauge.about}", f"# TYPE {full} gauge", f"{full} {gauge.value}")
    lines += _design_lines(broker)
    lines += (
        "# HELP rove_build_info which Rove this is",
        "# TYPE rove_build_info gauge",
        f'rove_build_info{{version="{__version__}"}} 1',
    )
    return "\n".join(lines) + "\n"


def _design_lines(broker: Broker) -> Iterator[str]:
    """What each design for evolving subscriptions has done; nothing while none is in use."""
    by_design = broker.state.interests.counters()
    if not by_design:
        return
    for field in msgspec.structs.fields(Counters):
        full = f"rove_design_{field.name}_total"
        yield f"# HELP {full} of the designs for evolving subscriptions"
        yield f"# TYPE {full} counter"
        for design, counters in by_design.items():
            yield f'{full}{{design="{design}"}} {getattr(counters, field.name)}'


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
