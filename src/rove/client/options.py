"""What `connect` can be told, checked before anything is tried.

All of it has a default that suits a program which wants its messages: a session that outlives a
broken connection by five minutes, publications that wait while the broker is away, and subscribers
that are sent no more than they take.
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
    """What the broker publishes for this client when it goes without saying so."""

    topic: str
    value: Any = b""
    """Bytes are sent as they are, everything else as JSON."""
    qos: int = 1
    retain: bool = False
    delay_s: int = 0
    """How long the client may be away before; coming back in time, it has not gone."""
    user: Mapping[str, str] = {}


class Connection(msgspec.Struct, frozen=True):
    """What `on_connection` is told."""

    state: Literal["connected", "lost", "closed"]
    session_present: bool = False
    """Of `connected`: the broker knew the session; what was queued for it comes now."""
    error: ClientError | None = None
    """Of `lost` and `closed`: why, if it was not this program's wish."""
    retry_in_s: float | None = None
    """Of `lost`: when the next attempt is made."""


class ClientOptions(msgspec.Struct, frozen=True):
    """Everything that a client was told."""

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
        """AddressError for the first thing that cannot be."""
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
        """The part of them that the protocol needs."""
        address = self.address
        password = self.password if self.password is not None else address.password
        # A client that was given no name is nobody's heir: there is no session to come back to.
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
    """Refuse what is no choice for slow consumers."""
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
