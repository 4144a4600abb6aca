"""The options of `connect`, checked before the first attempt to connect.

The defaults suit a program that must not lose messages: a session that outlives a lost connection
by five minutes, publications that wait while the broker is away, and no more notifications than the
program takes.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from rove.client.addresses import Address
from rove.client.errors import AddressError, ClientError, PublishRefused
from rove.client.policies import PolicyNotice
from rove.client.protocol import ProtocolSettings
from rove.client.reports import Source
from rove.client.subscription import SLOW, Slow
from rove.mqtt.packets import Properties, Reason
from rove.mqtt.packets import Will as WillPacket
from rove.mqtt.topics import name_fault, text_fault

OutboxPolicy = Literal["wait", "error"]
_U32_MAX: Final = 0xFFFF_FFFF


class Will(msgspec.Struct, frozen=True):
    """What the broker publishes for this client if its connection is lost without DISCONNECT."""

    topic: str
    value: Any = b""
    """Bytes are sent as they are, everything else as JSON."""
    qos: int = 1
    retain: bool = False
    delay_s: int = 0
    """How long the broker waits first; it publishes nothing if the client reconnects in time."""
    user: Mapping[str, str] = {}


class Connection(msgspec.Struct, frozen=True):
    """The argument of `on_connection`: a change of the connection."""

    state: Literal["connected", "lost", "closed"]
    session_present: bool = False
    """Of `connected`: the broker has kept the session; what it queued arrives now."""
    error: ClientError | None = None
    """Of `lost` and `closed`: why, unless this program has closed it."""
    retry_in_s: float | None = None
    """Of `lost`: the time until the next attempt."""


class ClientOptions(msgspec.Struct, frozen=True):
    """All options of a client."""

    address: Address
    client_id: str | None = None
    password: str | None = None
    user_name: str | None = None
    session_expiry_s: int = 300
    clean_start: bool | None = None
    keep_alive_s: int = 30
    tls: ssl.SSLContext | bool | None = None
    will: Will | None = None
    on_connection: Callable[[Connection], object] | None = None
    on_policy: Callable[[PolicyNotice], object] | None = None
    on_slow: Slow = "wait"
    report: Source | None = None
    report_every_s: float | None = None
    receive_max: int = 1_000
    outbox_max: int = 10_000
    outbox_bytes_max: int = 16 * 1024 * 1024
    outbox_full: OutboxPolicy = "wait"
    timeout_s: float = 10.0
    retry_s_max: float = 30.0

    def check(self) -> None:
        """AddressError for the first invalid option."""
        for name, low, high in (
            ("session_expiry_s", 0, _U32_MAX),
            ("keep_alive_s", 0, 65_535),
            ("receive_max", 1, 65_535),
            ("outbox_max", 1, None),
            ("outbox_bytes_max", 1, None),
            ("report_every_s", 0.001, None),
            ("timeout_s", 0, None),
            ("retry_s_max", 0, None),
        ):
            value = getattr(self, name)
            if value is None:
                continue
            if value < low or (high is not None and value > high):
                allowed = f"at least {low}" if high is None else f"{low} to {high}"
                raise AddressError(f"{name} is {value}; it may be {allowed}")
        check_slow(self.on_slow, "on_slow")
        if self.outbox_full not in ("wait", "error"):
            raise AddressError(f"outbox_full is {self.outbox_full!r}; it may be 'wait' or 'error'")
        for name, text in (
            ("client_id", self.client_id),
            ("user_name", self.user_name),
            ("the user's name in the URL", self.address.user_name),
            ("password", self.password),
            ("the password in the URL", self.address.password),
        ):
            if text is not None and (fault := text_fault(text)) is not None:
                raise AddressError(f"{name} {fault}")
        if self.client_id == "":
            raise AddressError("client_id is empty; leave it out to be given one")
        if self.will is not None and (fault := name_fault(self.will.topic)) is not None:
            raise AddressError(f"will: {fault}")

    def settings(self) -> ProtocolSettings:
        """The options for the protocol."""
        address = self.address
        password = self.password if self.password is not None else address.password
        # Without a client id there is no session to resume.
        clean_start = self.client_id is None if self.clean_start is None else self.clean_start
        return ProtocolSettings(
            client_id=self.client_id or "",
            user_name=self.user_name if self.user_name is not None else address.user_name,
            password=None if password is None else password.encode(),
            clean_start=clean_start,
            session_expiry_s=self.session_expiry_s,
            keep_alive_s=self.keep_alive_s,
            receive_max=self.receive_max,
            will=None if self.will is None else _packet(self.will),
            answer_timeout_s=self.timeout_s,
        )


def check_slow(slow: str, name: str) -> None:
    """AddressError unless it is a choice for slow consumers."""
    if slow not in SLOW:
        raise AddressError(f"{name} is {slow!r}; it may be {', '.join(map(repr, SLOW))}")


def payload_of(value: object) -> bytes:
    """Bytes as they are, everything else as JSON."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return msgspec.json.encode(value)


def validity(valid_for: float | Literal["forever"]) -> str:
    """How long a publication is valid, as the broker reads it."""
    if valid_for == "forever":
        return "forever"
    try:
        seconds = float(valid_for)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        text = f"valid_for is {valid_for!r}; it may be a number of seconds above 0, or 'forever'"
        raise PublishRefused(text, Reason.PROTOCOL_ERROR)
    return f"{seconds:.15g}"


def _packet(will: Will) -> WillPacket:
    properties = Properties(user=tuple(will.user.items()), will_delay_s=will.delay_s or None)
    return WillPacket(will.topic, payload_of(will.value), will.qos, will.retain, properties)
