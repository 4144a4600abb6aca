"""What all parts of the broker share: limits, rules, who is there, what is kept.

No part owns another; each has this and its own duty. `Broker` makes it and lends it out.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from rove.broker.access import Rules
from rove.broker.agents import Agents, Isolation
from rove.broker.counters import Counters
from rove.broker.delivery import Delivery
from rove.broker.diary import Diary
from rove.broker.faults import Faults, Level, Note
from rove.broker.gate import Gate
from rove.broker.interests import Interests
from rove.broker.journal import Changes
from rove.broker.keeping import Keeper
from rove.broker.limits import Limits
from rove.broker.links import Link
from rove.broker.recent import Recent
from rove.broker.records import LogRow, encoded
from rove.broker.sessions import Session
from rove.broker.steps import Steps
from rove.broker.variables import Variables
from rove.mqtt.packets import Connect, Disconnect, Will
from rove.mqtt.trees import FilterTree
from rove.policy.jobs import Workers
from rove.policy.limits import PolicyLimits

EXPIRED_MAX = 100
"""Expired sessions that are remembered for whoever looks for them."""


class Channel(msgspec.Struct, frozen=True):
    """Topics whose stream goes to the lake, and what of it."""

    name: str
    topics: tuple[str, ...]
    keep: frozenset[str] = frozenset(("publications",))
    """Of `publications`, `notifications` and `states`."""


class Settings(msgspec.Struct, frozen=True):
    """What the broker is told besides its limits."""

    is_guarded: bool = False
    """Whether access rules may keep anything from a subscriber; without, nobody asks them."""
    channels: tuple[Channel, ...] = ()
    keeps_subscriptions: bool = False
    """Whether the log also tells who subscribed to what and when."""
    version: str = ""
    """What CONNACK says of the broker, so that a client can tell that texts are understood."""
    topic_text: bool = False
    """Whether `topic?text` of 3.1.1 clients is a topic and a text."""
    report_s: float = 30.0
    """How often devices are asked to report."""


class Output(msgspec.Struct):
    """What a turn wants to be done."""

    ready: list[Link]
    """Send what is in `out` of each, then close those that are `closing`."""
    changes: Changes | None
    """Commit this, then say `commit_done(commit)`."""
    commit: int
    authentications: list[tuple[Link, Connect]]
    """Find out who these are, then say `identified`."""
    notes: list[Note]
    routed: list[tuple[float, int]]
    """Batches whose notifications are among this: when the first came, and how many it had."""


class ExpiredSession(msgspec.Struct, frozen=True):
    """A session that ended because its client did not come back in time."""

    client: str
    user: str | None
    at: float
    expiry_s: int
    dropped: int
    """Notifications that waited for it."""


class State:
    """Shared by the parts of one broker."""

    def __init__(
        self,
        limits: Limits,
        rules: Rules,
        settings: Settings,
        *,
        new_name: Callable[[], str],
        compiled: bool = True,
        position: int = 0,
        policies: PolicyLimits | None = None,
        workers: Workers | None = None,
        isolation: Isolation = "none",
    ) -> None:
        self.now = -math.inf
        self.new_name = new_name
        """Makes a name that nobody else has, for clients that come without one."""
        self.limits = limits
        self.rules = rules
        self.is_guarded = settings.is_guarded
        self.settings = settings
        self.counters = Counters()
        self.steps = Steps()
        self.faults = Faults(self)
        self.gate = Gate(self.steps)
        self.delivery = Delivery(self.gate, limits, self.counters)
        self.keeper = Keeper(self.gate, self.delivery, limits, self.counters)
        self.interests = Interests(self.steps, compiled=compiled)
        self.variables = Variables(self)
        self.agents = Agents(self, self.variables, policies, workers, isolation)
        self.sessions: dict[str, Session] = {}
        self.expired: deque[ExpiredSession] = deque(maxlen=EXPIRED_MAX)
        """The last sessions that expired, oldest first."""
        self.feeds: dict[str, int] = {}
        """By name, the sequence of the last notification that came by it (`rove.broker.feeds`)."""
        self.links: dict[Link, None] = {}
        self.recent = Recent(limits.explain_publications_max)
        self.notes: list[Note] = []
        self.routed: list[tuple[float, int]] = []
        """Batches whose notifications were decided: when the first came, and how many it had."""
        self.authentications: list[tuple[Link, Connect]] = []
        """Clients of whom the shell has to find out who they are."""
        self.next_session = 1
        self.next_subscription = 1
        self.next_publication = 1
        self.position = position
        """The last position of the log that was given away."""
        self.keeps_more = any("notifications" in channel.keep for channel in settings.channels)
        """Whether any notification has to be logged."""
        self.diary = Diary(self.log, is_kept=settings.keeps_subscriptions)
        self.channels: FilterTree[Channel] = FilterTree()
        for channel in settings.channels:
            for topic_filter in channel.topics:
                self.channels.put(topic_filter, channel.name, channel)

    def note(self, level: Level, event: str, **facts: object) -> None:
        """Leave something for the log."""
        self.notes.append(Note(level, event, facts))

    def log(self, row: LogRow) -> None:
        """Put a line on its way to the lake."""
        self.steps.saves(self, "position")
        self.position += 1
        self.gate.changes.put("log", self.position, encoded(row))

    def channels_of(self, topic: str, kind: str) -> Sequence[str]:
        """The channels that keep this kind of thing of a topic, each once."""
        if not self.settings.channels:
            return ()
        found = self.channels.find(topic)
        return list({channel.name: None for channel in found if kind in channel.keep})

    def will_delay_s(self, will: Will) -> int:
        """How long a will waits after its client has gone."""
        return min(will.properties.will_delay_s or 0, self.limits.will_delay_s_max)

    # -- connections ---------------------------------------------------------------------------

    def close(self, link: Link, reason: int, text: str) -> None:
        """End a connection from our side; clients of version 5 are told why.

        Before CONNACK they must not be told: [MQTT-3.14.0-1].
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
        """Close when everything is sent, without another word."""
        self.steps.saves(link, "closing")
        link.closing = True
        if not link.out:
            self.steps.undoes(self.gate.ready.pop)
            self.gate.ready.append(link)
