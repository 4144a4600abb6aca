"""What an engine costs and how well it does, in numbers that grow.

The bus counts what passes through it, so that every engine is counted alike; the checker adds how
long replicas were missing or stale. Everything is a whole number until it is read: ticks, not
seconds, so that a sum does not depend on the order in which it was made.

Bytes are those of topic and payload as they travel over MQTT. What MQTT adds is not counted: it
depends on the quality of service and on topic aliases, and is about 5 bytes a message.
"""

from __future__ import annotations

import numpy as np

from rove.world.engines.messages import MessageKind
from rove.world.runs.state import Longs


class EngineCounters:
    """Of one engine, since the world began."""

    def __init__(self) -> None:
        self.subscriptions = 0
        """How many there are now."""
        self.subscribes = 0
        self.unsubscribes = 0
        """Operations; to replace a rectangle is one of each."""
        self.published: Longs = np.zeros(len(MessageKind), np.int64)
        self.delivered: Longs = np.zeros(len(MessageKind), np.int64)
        self.published_bytes: Longs = np.zeros(len(MessageKind), np.int64)
        self.delivered_bytes: Longs = np.zeros(len(MessageKind), np.int64)
        """By `MessageKind`. A message that reaches n receivers is published once and delivered n
        times.
        """
        self.matching_ns = 0
        """Time spent on finding receivers; stays 0 where nobody has a clock."""
        self.missing_ticks = 0
        self.stale_ticks = 0
        self.extra_ticks = 0
        """Replicas times ticks, as `rove.world.engines.truth` defines them."""

    def row(self, tick_s: float) -> dict[str, int | float]:
        """All figures by name, for tables and databases."""
        updates, replicas = [MessageKind.UPDATE, MessageKind.LEFT], [MessageKind.REPLICA]
        requests = [MessageKind.REQUEST, MessageKind.AREA_REQUEST]
        return {
            "subscriptions": self.subscriptions,
            "subscribes": self.subscribes,
            "unsubscribes": self.unsubscribes,
            "publications": int(self.published.sum()),
            "requests": int(self.published[requests].sum()),
            "replica_messages": int(self.delivered[replicas].sum()),
            "update_notifications": int(self.delivered[updates].sum()),
            "deliveries": int(self.delivered.sum()),
            "published_bytes": int(self.published_bytes.sum()),
            "replica_bytes": int(self.delivered_bytes[replicas].sum()),
            "update_bytes": int(self.delivered_bytes[updates].sum()),
            "delivered_bytes": int(self.delivered_bytes.sum()),
            "matching_s": self.matching_ns / 1e9,
            "missing_s": self.missing_ticks * tick_s,
            "stale_s": self.stale_ticks * tick_s,
            "extra_s": self.extra_ticks * tick_s,
        }
