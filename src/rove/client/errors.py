"""Every way in which the client can fail.

    RoveError
    └── ClientError                 catch this one to catch them all
        ├── AddressError            the URL, or an option beside it, cannot be used
        │   └── MissingPackage      it needs a package that is not installed
        ├── ConnectionFailed        no connection: no broker there, TLS, a time limit
        │   └── ConnectionRefused   the broker answered, and refused
        ├── ConnectionEnded         the broker ended it, and reconnecting would not help
        │   └── SessionTakenOver    another connection uses the same client id
        ├── ClientClosed            this program has closed the client
        ├── PublishRefused          the broker, or a limit it announced, refused a publication
        ├── OutboxFull              more publications wait than the outbox may hold
        ├── SubscribeRefused        the broker refused a subscription, or to end one
        ├── PolicyRefused           a policy is invalid, or the broker refused it
        ├── FilterError             a filter expression is invalid (also a
        │                           `rove.lang.TextError`, with line and column)
        ├── SlowConsumer            a subscription with slow="error" was not read in time
        └── PayloadError            a payload is not of the type `into`

A lost connection is none of these: the client reconnects by itself, and then does what was asked
of it meanwhile. If the broker gave a reason, `reason` is its code and the text has it in words.
"""

from __future__ import annotations

from rove.errors import RoveError
from rove.lang.errors import TextError
from rove.mqtt.packets import Reason


class ClientError(RoveError):
    """The base of the client's errors."""


class AddressError(ClientError):
    """A URL that names no broker, or options that contradict it."""


class MissingPackage(AddressError):
    """A URL or option needs a package that is not installed."""


class _WithReason(ClientError):
    """An error that the broker gave a reason code for."""

    def __init__(self, text: str, reason: int = Reason.UNSPECIFIED_ERROR) -> None:
        super().__init__(text, reason)
        self.text = text
        self.reason = reason

    def __str__(self) -> str:
        return self.text


class ConnectionFailed(ClientError):
    """The client cannot connect: the text names the address and the fault."""


class ConnectionRefused(_WithReason, ConnectionFailed):
    """The broker did not accept the connection."""


class ConnectionEnded(_WithReason):
    """The broker ended the connection for a reason that reconnecting would meet again."""


class SessionTakenOver(ConnectionEnded):
    """Another connection with the same client id has taken the session over."""


class ClientClosed(ClientError):
    """The client was closed; unfinished requests stay undone."""


class PublishRefused(_WithReason):
    """A publication was refused and will not be delivered."""


class OutboxFull(ClientError):
    """The outbox is full."""


class SubscribeRefused(_WithReason):
    """A subscription was refused, or could not be ended."""


class PolicyRefused(_WithReason):
    """A policy was refused: the text says why, with line and caret if its code is at fault."""

    def __init__(
        self,
        text: str,
        reason: int = Reason.UNSPECIFIED_ERROR,
        *,
        line: int = 0,
        column: int = 0,
    ) -> None:
        super().__init__(text, reason)
        self.line, self.column = line, column


class FilterError(TextError, ClientError):
    """A filter expression is invalid."""


class SlowConsumer(ClientError):
    """More than `inbox_max` notifications have arrived and were not taken; later ones are
    missing."""


class PayloadError(ClientError):
    """The payload of a notification cannot be read as the type `into`."""


def in_words(reason: int, text: str | None) -> str:
    """A reason for people: the name of the code, then the broker's text if there is one."""
    try:
        name = Reason(reason).name.lower().replace("_", " ")
    except ValueError:
        name = "a reason unknown to this version"
    return f"{name} (0x{reason:02X})" + (f": {text}" if text else "")
