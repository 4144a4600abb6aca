"""What every part of the broker shares: time, limits, rules, steps, the gate and the sessions.

Parts that do something for others are not here: each gets those that it needs (`Broker`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from rove.broker.access import AccessRules
from rove.broker.counters import BrokerCounters
from rove.broker.faults import Faults, Level, Note
from rove.broker.gate import Gate
from rove.broker.limits import Limits
from rove.broker.sessions.session import Link, Session
from rove.broker.steps import Steps
from rove.broker.storage.journal import Changes
from rove.broker.storage.records import LogRow, encoded
from rove.mqtt.packets import Connect, Disconnect, Will
from rove.mqtt.topic_trees import FilterTree

EXPIRED_MAX = 100
"""Expired sessions that are kept for the HTTP interface."""


class LakeStream(msgspec.Struct, frozen=True):
    """Topics that are logged to the lake, and what of them."""

    name: str
    topics: tuple[str, ...]
    keep: frozenset[str] = frozenset(("publications",))
    """Of `publications`, `notifications` and `states`."""


class BrokerSettings(msgspec.Struct, frozen=True):
    """The broker's configuration besides its limits."""

    is_guarded: bool = False
    """Whether access rules may keep anything from a subscriber; if not, they are not checked."""
    channels: tuple[LakeStream, ...] = ()
    keeps_subscriptions: bool = False
    """Whether the log also has the events of subscriptions."""
    version: str = ""
    """Announced in CONNACK, so that a client knows that the broker has filter expressions."""
    topic_text: bool = False
    """Whether `topic?text` of 3.1.1 clients is a topic filter and a filter expression."""
    report_s: float = 30.0
    """How often devices are to report."""
    name: str = ""
    """Of this broker in its network; empty: it is in none, and no other broker may join."""


class TurnOutput(msgspec.Struct):
    """What the shell has to do after a turn."""

    ready: list[Link]
    """Send what is in `out` of each, then close those that are `closing`."""
    changes: Changes | None
    """Commit this, then call `commit_done(commit)`."""
    commit: int
    authentications: list[tuple[Link, Connect]]
    """Authenticate these, then call `identified`."""
    upgrades: list[Link]
    """Brokers that have joined: after what is in `out`, their connections are links of the network.
    """
    notes: list[Note]
    routed: list[tuple[float, int]]
    """Batches that were routed in this turn: when the first publication came, and their number."""


class ExpiredSession(msgspec.Struct, frozen=True):
    """A session that ended because its client did not come back in time."""

    client: str
    user: str | None
    at: float
    expiry_s: int
    dropped: int
    """Notifications that waited for it."""


class BrokerContext:
    """Shared by all parts of one broker."""

    def __init__(
        self,
        limits: Limits,
        rules: AccessRules,
        settings: BrokerSettings,
        *,
        now: float,
        new_name: Callable[[], str],
        position: int = 0,
    ) -> None:
        self.now = now
        self.new_name = new_name
        """Makes a unique client id, for clients that connect without one."""
        self.limits = limits
        self.rules = rules
        self.is_guarded = settings.is_guarded
        self.settings = settings
        self.counters = BrokerCounters()
        self.steps = Steps()
        self.gate = Gate(self.steps)
        self.faults = Faults(self.gate, self.counters, settings.version)
        self.sessions: dict[str, Session] = {}
        self.brokers: dict[str, Session] = {}
        """Sessions of other brokers, by name."""
        self.forwards: dict[str, tuple[int, int]] = {}
        """By broker: publications that came from it, and how many of them matched nothing here."""
        self.links: dict[Link, None] = {}
        self.next_session = 1
        self.next_subscription = 1
        self.next_publication = 1
        self.position = position
        """The last position of the log that was assigned."""
        self.channels: FilterTree[LakeStream] = FilterTree()
        for channel in settings.channels:
            for topic_filter in channel.topics:
                self.channels.put(topic_filter, channel.name, channel)

    def note(self, level: Level, event: str, **facts: object) -> None:
        """Write to the log, with the end of the turn."""
        self.faults.notes.append(Note(level, event, facts))

    def log(self, row: LogRow) -> None:
        """Log a row to the lake."""
        self.steps.saves(self, "position")
        self.position += 1
        self.gate.changes.put("log", self.position, encoded(row))

    def channels_of(self, topic: str, kind: str) -> Sequence[str]:
        """The channels that keep this kind of row of a topic, each once."""
        if not self.settings.channels:
            return ()
        found = self.channels.find(topic)
        return list({channel.name: None for channel in found if kind in channel.keep})

    def will_delay_s(self, will: Will) -> int:
        """How long a will waits after its client was disconnected."""
        return min(will.properties.will_delay_s or 0, self.limits.will_delay_s_max)

    def count_forward(self, origin: str, received: int, unmatched: int) -> None:
        """Count publications that came from another broker."""
        before = self.forwards.get(origin, (0, 0))
        self.forwards[origin] = before[0] + received, before[1] + unmatched

    # -- connections ---------------------------------------------------------------------------

    def close(self, link: Link, reason: int, text: str) -> None:
        """End a connection from our side; clients of version 5 get a DISCONNECT with the reason.

        Not before CONNACK: [MQTT-3.14.0-1].
        """
        if link.closing:
            return
        if link.is_v5 and link.session is not None and self.gate.is_welcomed(link):
            goodbye = Disconnect(reason, link.explained(text))
            data = link.encoded(goodbye)
            if data is not None:
                self.gate.send_at_once(link, data)
        self.hang_up(link)

    def hang_up(self, link: Link) -> None:
        """Close when everything is sent, without DISCONNECT."""
        self.steps.saves(link, "closing")
        link.closing = True
        if not link.out:
            self.steps.undoes(self.gate.ready.pop)
            self.gate.ready.append(link)
