"""A connection, as the broker sees it: bytes come in, bytes wait to go out.

The shell makes a link per connection (TCP, TLS, WebSocket, or the HTTP interface inside the same
process), hands it what arrives, and after every turn sends what is in `out`. What the broker
decides about the connection itself it leaves here as a flag: `closing`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rove.broker.access import Identity
from rove.broker.sessions.aliases import Aliases
from rove.lang.errors import visible
from rove.mqtt.decoder import PacketDecoder
from rove.mqtt.encoder import encode_within
from rove.mqtt.packets import V5, V311, Connect, Malformed, Packet, Properties

if TYPE_CHECKING:
    from rove.broker.sessions.session import Session

ALIASES_NONE: dict[int, str] = {}


class Link:
    """One connection; the fields above the line are the shell's to read or write."""

    __slots__ = (
        "aliases",
        "authenticating",
        "buffered_bytes",
        "closing",
        "connected_at",
        "deadline",
        "heard_at",
        "held",
        "identity",
        "inflight_max",
        "is_http_publisher",
        "is_paused",
        "is_publisher",
        "keep_alive_s",
        "moved_at",
        "name",
        "needs_care",
        "open_publishes",
        "out",
        "packet_bytes_max",
        "peer",
        "pending",
        "reader",
        "seen_bytes",
        "sent_aliases",
        "session",
        "stuck_at",
        "takes_lines",
        "version",
        "waits_for",
        "wants_problems",
        "welcomed_by",
    )

    def __init__(self, name: str, now: float, packet_bytes_max: int) -> None:
        self.name = name
        """Where it comes from, for logs."""
        self.out: list[bytes] = []
        """To be sent, in order. The shell empties it."""
        self.buffered_bytes = 0
        """What the shell was given and the system has not taken yet; the shell keeps it true."""
        self.closing = False
        """Send what is in `out`, then close."""
        self.identity: Identity | None = None
        """Set by the shell where it is known before CONNECT (the HTTP interface)."""
        self.is_http_publisher = False
        """Set by the shell where its HTTP interface publishes: nobody else may have its ids."""
        self.is_paused = False
        """Read nothing from it for the moment."""
        self.takes_lines = False
        """Reason strings may have several lines; set by the shell where people read them."""
        self.peer: Any = None
        """Whatever the shell sends through; the broker never looks at it."""
        # ------------------------------------------------------------------------------------
        self.reader = PacketDecoder(packet_bytes_max=packet_bytes_max)
        self.session: Session | None = None
        self.authenticating: Connect | None = None
        self.held: Packet | None = None
        """A packet that waits for a worker (`rove.broker.sessions.holding`)."""
        self.pending: list[Packet | Malformed] = []
        """Packets that came while it was being found out who it is, or behind one that is held."""
        self.connected_at = self.heard_at = now
        self.deadline = math.inf
        self.keep_alive_s = 0
        self.version: int = V5
        self.packet_bytes_max: int | None = None
        """What the client is ready to receive."""
        self.sent_aliases: Aliases | None = None
        """Numbers for topics that we send; None if the client takes none."""
        self.needs_care = False
        """What it is sent has to be made for it: its size or its topics matter."""
        self.inflight_max = 0
        self.open_publishes = 0
        """QoS 1 and 2 from it that are not acknowledged yet."""
        self.aliases = ALIASES_NONE
        self.is_publisher = False
        self.stuck_at = now
        """When it last ceased to take what it is sent."""
        self.moved_at = now
        """While it is stuck: when it last took something of what waits for it."""
        self.seen_bytes = 0
        """What waited for it when it was last looked at."""
        self.waits_for = 0
        """The commit that QoS 0 waits for, so that nothing new overtakes what is kept."""
        self.welcomed_by = 0
        """The commit that CONNACK waits for: nothing may be sent before it."""
        self.wants_problems = True
        """Whether reason strings may be sent where they are no error of the connection."""

    def encoded(self, packet: Packet) -> bytes | None:
        """A packet in the client's version, without what is too much for it."""
        return encode_within(packet, self.version, self.packet_bytes_max)

    def explained(self, text: str) -> Properties:
        """A reason string as the client takes it.

        That is, in one line: Mosquitto's library closes the connection over a control character
        (the specification advises against them).
        """
        return Properties(reason_string=text if self.takes_lines else in_one_line(text))

    @property
    def is_v5(self) -> bool:
        return self.version == V5

    @property
    def is_v311(self) -> bool:
        return self.version == V311


def in_one_line(text: str) -> str:
    """A text without control characters, and without the line of carets of a diagnostic."""
    lines = [line.strip() for line in text.split("\n")]
    return visible("; ".join(line for line in lines if line.strip("^")))
