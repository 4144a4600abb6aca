"""What an engine needs of a publish/subscribe system, and nothing else: the interface `Bus`.

An engine is written once. In process its bus is `rove.world.engines.array_bus`, all arrays; over
MQTT each role has a real client of a real broker, and the texts and topics of this module. So the
interface speaks of batches: a thousand subscriptions or publications are one call.

**Numbers.** Subscribers are numbers of 32 bits, 0 or more. Clients, servers and services of one
engine share them as the engine likes (clients first, then servers, say). Subscriptions stand in
*tables*, which have names; a publication in one table never reaches subscribers of another. There
are two kinds:

- a *topic table* has numbered topics, 0 or more (one for each tile, say). A subscriber joins and
  leaves topics, or joins all of them, which is one wildcard subscription (`world/object/+`);
- an *area table* has one topic, and numbered rectangles as content subscriptions. A rectangle has
  one receiver: the subscriber of the same number unless another is named, so that a server can have
  one for each of its objects. Rectangles are closed: what is published exactly on a border is in.

**When.** Calls take effect in the order in which they are made. A join, leave, place or lift
counts from the next publication on: it changes nothing about what was published before it, not
even when that has not been delivered yet. `turn(at)` hands out everything published since the last
turn, in the order of publication (by call, then by line of the batch), and for each message by
ascending receiver, then by ascending number of what it was found by. Times never go back.

**Retained.** A table can keep the last message of each topic. A subscriber that joins a topic gets
it at the next turn, in the place of its join among the publications of that turn (those of one
call by ascending topic, then subscriber). It counts as delivered, not as published. Joining all
topics gives nothing, as if retained messages were refused.

**No subscribers.** A publication without subscribers counts as published, is kept if the table
retains, and is delivered to none.

**Repetitions.** Joining again, or leaving or lifting what does not exist, does nothing and counts
as nothing. To place a rectangle where there is one replaces it: one unsubscribe and one subscribe.
A subscriber that joined a topic and all topics gets one delivery. A receiver with several matching
rectangles gets one delivery, as from brokers, and is counted once, but appears in `Deliveries` once
for each rectangle, because engines need to know which.

**Moving.** A rectangle with a velocity is around (x + vx * t, y + vy * t), where t are the seconds
since it was submitted, `since`. Its sides are computed as `area_text` writes them: low + v * t,
rounded after each operation. Before its submission it matches nothing. At which moment it is
evaluated for a publication at a time T is up to the table's design, and the answers are those of
`rove.match` for the same texts:

- `exact`, `lees`: at T;
- `pes`: at the last moment `since + k * interval` that is not after T;
- `clees`: at the moment M of its cached version. A rectangle without one gets it for M = T, whether
  or not it matches, by the first publication in its table; it serves up to and including
  M + threshold. To replace a rectangle discards its version.

Rectangles at rest are the same in all four.

**Counted.** The bus counts everything that passes through it, so all engines are counted alike; the
checker adds how long replicas were missing or stale. Counts are whole numbers until they are read
(ticks, not seconds), so a sum does not depend on the order of its parts. Bytes are those of topic
and payload over MQTT, without MQTT's own: these depend on the quality of service and on topic
aliases, and are about 5 bytes a message.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from rove.match.designs.design import Evolve
from rove.world.engines.messages import MessageKind, Messages
from rove.world.runs.state import Flags, Floats, Ints, Longs, WorldError


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


EXACT = Evolve()


class Deliveries:
    """Who gets what at a turn: three columns of equal length over the messages of the turn."""

    __slots__ = ("at", "message", "messages", "receiver", "subscription")

    def __init__(
        self, at: float, messages: Messages, message: Ints, receiver: Ints, subscription: Ints
    ) -> None:
        self.at = at
        self.messages = messages
        """Everything published since the last turn, and what retained topics gave."""
        self.message = message
        """The line of each delivery in `messages`, ascending."""
        self.receiver = receiver
        self.subscription = subscription
        """The rectangle, or the topic, by which the receiver was found."""

    def __len__(self) -> int:
        return len(self.message)

    def only(self, *whats: MessageKind) -> Deliveries:
        """The deliveries of some kinds, over the same messages."""
        is_wanted = np.zeros(len(MessageKind), np.bool_)
        is_wanted[list(whats)] = True
        wanted = is_wanted[self.messages.what]
        return self if wanted.all() else self.where(wanted[self.message])

    def where(self, wanted: Flags) -> Deliveries:
        """The deliveries whose flag is set, over the same messages."""
        return Deliveries(
            self.at,
            self.messages,
            self.message[wanted],
            self.receiver[wanted],
            self.subscription[wanted],
        )


class Rectangles(NamedTuple):
    """Rectangles of an area table, in columns."""

    number: Ints
    receiver: Ints
    x: Floats
    y: Floats
    reach_x: Floats
    reach_y: Floats
    vx: Floats
    vy: Floats
    since: Floats


class Bus(Protocol):
    """Subscriptions and publications of one engine, and how many of them there were."""

    counters: EngineCounters

    def topics(self, table: str, form: str, *, retained: bool = False) -> None:
        """Make a topic table; `form` is its topic over MQTT, {} the number: world/tile/{}/update.

        WorldError if there is a table of that name. All other calls raise one if there is none, or
        if it is of the other kind.
        """

    def areas(self, table: str, form: str, evolve: Evolve = EXACT) -> None:
        """Make an area table; `form` is its only topic over MQTT: world/area/update."""

    def join(self, table: str, subscribers: Ints, topics: Ints) -> None:
        """Subscribers join topics, pair by pair."""

    def leave(self, table: str, subscribers: Ints, topics: Ints) -> None:
        """Subscribers leave topics, pair by pair."""

    def join_all(self, table: str, subscriber: int) -> None:
        """One subscriber gets everything in a topic table: one wildcard subscription."""

    def place(
        self,
        table: str,
        numbers: Ints,
        x: Floats,
        y: Floats,
        reach_x: float | Floats,
        reach_y: float | Floats,
        *,
        vx: float | Floats = 0.0,
        vy: float | Floats = 0.0,
        since: float | Floats = 0.0,
        receivers: Ints | None = None,
    ) -> None:
        """Put rectangles around (x, y), or replace those of these numbers; each number once.

        The reaches are half the sides; `since` is when it was around (x, y), and is submitted.
        """

    def lift(self, table: str, numbers: Ints) -> None:
        """Take rectangles away; each number once."""

    def publish(self, table: str, topics: Ints, messages: Messages) -> None:
        """Publish each message under a topic of a topic table."""

    def publish_at(self, table: str, messages: Messages, at: float) -> None:
        """Publish each message at its (x, y) in an area table, at a time."""

    def turn(self, at: float) -> Deliveries:
        """Hand out everything that was published since the last turn."""

    def joined(self, table: str) -> tuple[Ints, Ints]:
        """(topics, subscribers) of a topic table, ascending; without those that joined all."""

    def placed(self, table: str) -> Rectangles:
        """The rectangles of an area table as they were placed, by ascending number."""


def topic_text(form: str, topic: int) -> str:
    """A topic as it is over MQTT."""
    return form.replace("{}", str(topic))


def area_text(
    x: float, y: float, reach_x: float, reach_y: float, vx: float = 0.0, vy: float = 0.0
) -> str:
    """A rectangle as a content subscription in Rove's language, exact to the last bit."""
    for value in (x, y, reach_x, reach_y, vx, vy):
        if not np.isfinite(value):
            raise WorldError(f"a rectangle has the number {value}; all have to be finite")
    return f"{_side('x', x, reach_x, vx, vy)} AND {_side('y', y, reach_y, vy, vx)}"


def _side(name: str, centre: float, reach: float, speed: float, other_speed: float) -> str:
    low, high = float(centre - reach), float(centre + reach)
    if not speed and not other_speed:
        return f"{name} BETWEEN {low!r} AND {high!r}"
    # A side that rests while the other moves is written with t all the same: the designs then take
    # the rectangle as one thing that evolves, and so does `ArrayBus`.
    moved = f"{float(speed)!r} * t"
    return f"{name} BETWEEN {low!r} + {moved} AND {high!r} + {moved}"
