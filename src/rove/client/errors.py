"""Every way in which the client can fail.

    RoveError
    └── ClientError                 catch this one to catch them all
        ├── AddressError            the URL, or an option beside it, cannot be used
        │   └── MissingPackage      it could be, with a package that is not installed
        ├── ConnectionFailed        no connection came about: nobody there, TLS, a time limit
        │   └── ConnectionRefused   the broker answered, and said no
        ├── ConnectionEnded         the broker ended it, and coming back would not help
        │   └── SessionTakenOver    another connection uses the same client id
        ├── ClientClosed            the client was closed, by this program
        ├── PublishRefused          the broker, or a limit it announced, refused a publication
        ├── OutboxFull              more publications wait than the outbox may hold
        ├── SubscribeRefused        the broker refused a subscription, or to end one
        ├── PolicyRefused           a text is no policy, or the broker did not take it
        ├── FilterError             a text that is not in the language (also a
        │                           `rove.lang.TextError`: it knows line and column)
        ├── SlowConsumer            a subscription with slow="error" was not read in time
        └── PayloadError            a payload is not what `into` says

A lost connection is in none of these: the client comes back by itself, and what was asked of it
meanwhile is done then. Where the broker gave a reason, `reason` has its code and the text says
it in words.
"""

from __future__ import annotations

from rove.errors import RoveError
from rove.lang.errors import TextError
from rove.mqtt.packets import Reason


class ClientError(RoveError):
    """The base of the client's errors."""


class AddressError(ClientError):
    """A URL that names no broker, or options that do not go with it."""


class MissingPackage(AddressError):
    """Something that was asked for needs a package that is not installed."""


class _WithReason(ClientError):
    """An error that the broker gave a reason code for."""

    def __init__(self, text: str, reason: int = Reason.UNSPECIFIED_ERROR) -> None:
        super().__init__(text, reason)
        self.text = text
        self.reason = reason

    def __str__(self) -> str:
        return self.text


class ConnectionFailed(ClientError):
    """There is no connection: the text says to where, and what went wrong."""


class ConnectionRefused(_WithReason, ConnectionFailed):
    """The broker did not accept the connection."""


class ConnectionEnded(_WithReason):
    """The broker ended the connection for a reason that coming back would meet again."""


class SessionTakenOver(ConnectionEnded):
    """Another connection has come with the same client id, and the session is now its own."""


class ClientClosed(ClientError):
    """The client was closed; what it had not finished stays undone."""


class PublishRefused(_WithReason):
    """A publication was refused, and nobody will get it."""


class OutboxFull(ClientError):
    """As many publications wait as the outbox may hold."""


class SubscribeRefused(_WithReason):
    """A subscription was refused, or could not be ended."""


class PolicyRefused(_WithReason):
    """A policy was refused: the text says why, with line and caret if its text is at fault."""

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
    """A text that is not in the subscription language."""


class SlowConsumer(ClientError):
    """More has come than `inbox_max` while nobody took it; what follows is missing."""


class PayloadError(ClientError):
    """The payload of a notification cannot be read as what was asked for."""


def in_words(reason: int, text: str | None) -> str:
    """A reason as people read it: the code's name, then the broker's own words if there are any."""
    try:
        name = Reason(reason).name.lower().replace("_", " ")
    except ValueError:
        name = "a reason unknown to this version"
    return f"{name} (0x{reason:02X})" + (f": {text}" if text else "")
