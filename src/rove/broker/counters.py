"""The broker's counters, for `/metrics` and `rove top`.

Plain integers that only grow. Everything that is dropped or refused is counted here.
"""

from __future__ import annotations

from typing import ClassVar


class BrokerCounters:
    """Counts since the broker started; `HELP` has the descriptions for `/metrics`."""

    HELP: ClassVar[dict[str, str]] = {
        "bytes_received": "bytes that clients sent",
        "bytes_sent": "bytes handed to clients' connections",
        "connections": "connections that were opened",
        "connections_refused": "CONNECT packets that were refused",
        "packets_malformed": "connections closed because of a malformed packet",
        "publications_received": "publications received from clients",
        "forwards_received": "publications received from other brokers",
        "forwards_unmatched": "publications of other brokers without a match here",
        "publications_refused": "publications refused (access, quota, size)",
        "publications_unmatched": "publications without a matching subscription",
        "publications_repeated": "repeated publications, which were accepted once",
        "publications_withdrawn": "publications withdrawn by their publishers",
        "matches_undecided": "subscriptions skipped because their patterns took too many steps",
        "notifications_sent": "notifications sent",
        "notifications_queued": "notifications that had to wait in a queue",
        "notifications_dropped_slow": "QoS 0 notifications dropped for a slow consumer",
        "notifications_dropped_overflow": "queued notifications dropped because a queue was full",
        "notifications_dropped_expired": "queued notifications dropped because they expired",
        "notifications_dropped_size": "notifications dropped as too large for their client",
        "notifications_dropped_away": "QoS 0 notifications dropped for disconnected clients",
        "notifications_dropped_session": "queued notifications of sessions that expired",
        "deliveries_taken": "notifications received from Spark",
        "deliveries_repeated": "notifications received from Spark a second time",
        "deliveries_gone": "notifications from Spark whose subscription or publication had ended",
        "subscriptions_made": "subscriptions made or replaced",
        "subscriptions_refused": "subscriptions refused (expression, access, quota)",
        "sessions_expired": "sessions that expired while their clients were disconnected",
        "sessions_taken_over": "connections closed because their client connected again",
        "wills_published": "wills published",
        "publishers_paused": "times that publishers were paused because of backpressure",
        "slow_disconnected": "connections closed because the client did not read for too long",
        "keep_alive_timeouts": "connections closed because of a keep-alive timeout",
        "faults": "internal errors; each ended one connection or one step, see the log",
        "quota_hits": "times that another limit was hit",
        "groups_lost": "committed groups that were lost, as found at starts",
    }
    __slots__ = tuple(HELP)

    bytes_received: int
    bytes_sent: int
    connections: int
    connections_refused: int
    packets_malformed: int
    publications_received: int
    forwards_received: int
    forwards_unmatched: int
    publications_refused: int
    publications_unmatched: int
    publications_repeated: int
    publications_withdrawn: int
    matches_undecided: int
    notifications_sent: int
    notifications_queued: int
    notifications_dropped_slow: int
    notifications_dropped_overflow: int
    notifications_dropped_expired: int
    notifications_dropped_size: int
    notifications_dropped_away: int
    notifications_dropped_session: int
    deliveries_taken: int
    deliveries_repeated: int
    deliveries_gone: int
    subscriptions_made: int
    subscriptions_refused: int
    sessions_expired: int
    sessions_taken_over: int
    wills_published: int
    publishers_paused: int
    slow_disconnected: int
    keep_alive_timeouts: int
    faults: int
    quota_hits: int
    groups_lost: int

    def __init__(self) -> None:
        for name in self.HELP:
            setattr(self, name, 0)

    def as_dict(self) -> dict[str, int]:
        """All of them, by name."""
        return {name: getattr(self, name) for name in self.HELP}
