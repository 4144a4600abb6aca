"""Every limit of the broker, in one place.

A broker serves strangers, so whatever one of them can make grow is bounded here: each field says
what it bounds and what happens when the bound is hit. Nothing is ever dropped silently: what a
limit drops is counted, and the counters are named in the metrics.

The fields are the keys of `[limits]` in the configuration, and their texts are what `rove config`
prints: they are read from this file, so that there is one explanation and not two. Limits of the
subscription language are not here but in `rove.lang.limits`; they are part of the language and
the same in every broker.

A struct and not module constants, because a test hits a limit by making it small, and because
SIGHUP replaces the whole set at once. Reading a field costs an attribute access.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=1)]
CountOrNone = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0)]
UnsignedShort = Annotated[int, Meta(ge=1, le=65_535)]
UnsignedInt = Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)]

DAY_S: Final = 24 * 60 * 60
KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

PACKET_BYTES_LIMIT: Final = 5 + 268_435_455
"""The largest packet that MQTT can write: five bytes of header and what four bytes can count."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the broker allows; the defaults suit a machine with a few gigabytes of memory."""

    # --- connections ---

    connections_max: Count = 100_000
    """Connections open at once, of all listeners together. One more is closed at once. The
    system's limit of open files has to be higher (`rove doctor` compares them)."""

    connect_timeout_s: Seconds = 10
    """How long a new connection may take until its CONNECT is complete, TLS included. Then it is
    closed without an answer, as the specification requires. The same limit applies to the head
    of every HTTP request."""

    keep_alive_s_max: UnsignedShort = 65_535
    """The longest keep-alive. A version 5 client that requests a longer one, or none, gets this
    one in CONNACK; a 3.1.1 client keeps its own. The default allows every value, "none"
    included."""

    client_id_bytes_max: Annotated[int, Meta(ge=23, le=65_535)] = 256
    """Length of a client identifier in UTF-8. A longer one is refused with "client identifier not
    valid". The specification demands at least 23."""

    # --- packets ---

    packet_bytes_max: Annotated[int, Meta(ge=1_024, le=PACKET_BYTES_LIMIT)] = MIB
    """Size of one packet from a client, announced as maximum packet size. A larger one closes the
    connection with "packet too large" before it is read. Also bounds bodies over WebSocket."""

    topic_levels_max: Count = 128
    """Levels of a topic or topic filter, between its slashes. One with more is refused: topic name
    invalid, topic filter invalid."""

    topic_alias_max: Annotated[int, Meta(ge=0, le=65_535)] = 1_000
    """Topic aliases of one client, announced in CONNACK; 0 is none. A higher one closes the
    connection with "topic alias invalid"."""

    receive_max: UnsignedShort = 1_000
    """QoS 1 and 2 publications of one client that are not acknowledged yet, announced in
    CONNACK. One more closes a version 5 connection with "receive maximum exceeded". 3.1.1 has no
    such rule: its publishers are slowed down like all others, by `commit_backlog_bytes_max`."""

    inflight_max: UnsignedShort = 1_000
    """QoS 1 and 2 notifications under way to one client and not acknowledged by it; the client's
    own receive maximum bounds it further. The others wait in the session's queue."""

    publish_per_s_max: CountOrNone = 0
    """Publications per second of one client, averaged over a second; 0 is no limit. The broker
    reads more slowly from a faster client: its publications are delayed, not lost."""

    # --- sessions ---

    session_expiry_s_max: UnsignedInt = 30 * DAY_S
    """How long a session outlives its connection. A longer expiry is shortened, and a version 5
    client is informed in CONNACK; a persistent session of 3.1.1 has exactly this expiry. Then
    the session, its subscriptions and its queue are deleted."""

    sessions_max: Count = 1_000_000
    """Sessions, of connected and disconnected clients. A new client is refused with "quota
    exceeded"; one with a session may always reconnect."""

    subscriptions_per_session_max: Count = 10_000
    """Subscriptions of one session. One more is refused with "quota exceeded"; replacing one is
    always possible."""

    subscriptions_max: Count = 5_000_000
    """Subscriptions of all sessions together. One more is refused with "quota exceeded"."""

    text_steps_max: Count = 1_000_000
    """The cost of one filter expression for each publication of 1 KB, in steps of about a
    nanosecond (`rove check` shows it). A higher cost is refused with "quota exceeded", the
    figure and a hint."""

    session_steps_max: Count = 10_000_000
    """The total cost of all filter expressions of one session for each publication. One more is
    refused with "quota exceeded"; those that were accepted before stay."""

    session_moving_steps_max: Count = 100_000_000
    """The cost of one change of the `me.` variables of a session for all of its expressions that
    use them, in steps. One more such expression is refused with "quota exceeded"."""

    window_s_max: Seconds = 31 * DAY_S
    """The longest span of time after WITHIN. A longer one is refused with "quota exceeded",
    because a window keeps candidates for that time."""

    window_publications_max: Count = 100_000
    """The most publications after WITHIN. A larger window is refused with "quota exceeded"."""

    windows_per_session_max: Count = 1_000
    """Ranked subscriptions of one session, which have a window each. One more is refused with
    "quota exceeded"."""

    state_variables_max: Count = 256
    """`me.` variables of one session. An update that would make more is refused as a whole with
    "quota exceeded"."""

    state_bytes_max: Count = 64 * KIB
    """Size of the `me.` variables of one session, names and values as JSON. An update that would
    exceed it is refused as a whole with "quota exceeded"."""

    will_delay_s_max: UnsignedInt = DAY_S
    """The longest delay of a will after its client has disconnected. A longer one is shortened
    to this."""

    # --- queues ---

    queue_messages_max: Count = 100_000
    """Notifications that wait for one session; those in flight count towards `inflight_max`.
    `queue_overflow` chooses which one is dropped if there is one more."""

    queue_bytes_max: Count = 64 * MIB
    """Size of the notifications that wait for one session, payload and topic. `queue_overflow`
    chooses which are dropped."""

    queue_age_s_max: Annotated[float, Meta(gt=0)] = 7 * DAY_S
    """How long a notification may wait. An older one is dropped, as if its message expiry had
    passed."""

    queue_overflow: Literal["drop-oldest", "drop-newest"] = "drop-oldest"
    """What is dropped when a queue is full: the oldest notification (the subscriber gets the
    most recent ones), or the newest (it gets the first ones that it missed, with a gap after
    them). Notifications in flight are never dropped."""

    replay_messages_per_s: CountOrNone = 5_000
    """Rate at which a reconnected client is sent its queue; 0 is as fast as it reads. New
    notifications are queued, so that the order is kept."""

    # --- what is kept ---

    retained_messages_max: Count = 1_000_000
    """Topics with a retained message. A message that would retain one more is refused with "quota
    exceeded"; with QoS 0 it is delivered but not retained."""

    retained_bytes_max: Count = GIB
    """Payloads and topics of all retained messages. As `retained_messages_max`."""

    valid_publications_max: Count = 1_000_000
    """Publications with `valid-for`, which are kept for later subscriptions. One more is refused
    with "quota exceeded"; with QoS 0 it is delivered but not kept."""

    valid_bytes_max: Count = GIB
    """Payloads and topics of all valid publications. As `valid_publications_max`."""

    # --- overload ---

    unsent_bytes_max: Count = 4 * MIB
    """Bytes that wait for one connection because the client reads slowly. Beyond it QoS 0 to
    that client is dropped; QoS 1 and 2 stay in its queue. Other clients are not affected."""

    unsent_disconnect_s: Seconds = 60
    """A connection that reads nothing for this long, while something waits for it, is closed.
    Its session stays, as after any lost connection."""

    memory_bytes_high: Count = 512 * MIB
    """When more than this waits in the broker for a commit, it stops reading from publishers,
    and TCP slows them down. Subscribers are still served. Data that slow subscribers have not
    read does not count; `unsent_bytes_max` limits it."""

    memory_bytes_low: Count = 384 * MIB
    """The broker reads from publishers again when less than this waits. The distance to
    `memory_bytes_high` prevents rapid switching."""

    commit_backlog_bytes_max: Count = 64 * MIB
    """Bytes that wait for the disk. Beyond it the broker stops reading from publishers until a
    commit has caught up."""

    # --- HTTP ---

    http_body_bytes_max: Count = MIB
    """Body of one HTTP request. A larger one is answered 413 before it is read to its end."""

    http_connections_max: Count = 10_000
    """HTTP connections open at once, WebSockets and server-sent events among them. One more is
    answered 503."""

    sse_clients_max: Count = 1_000
    """Clients of `GET /subscribe` at once. One more is answered 503."""

    explain_publications_max: CountOrNone = 10_000
    """Recent publications that are kept for `/explain`, which shows why one did not reach a
    subscription; 0 keeps none. The oldest is dropped first."""

    def __post_init__(self) -> None:
        if self.memory_bytes_low > self.memory_bytes_high:
            raise ValueError(
                f"memory_bytes_low is {self.memory_bytes_low:_}; it may be at most"
                f" memory_bytes_high, {self.memory_bytes_high:_}"
            )
