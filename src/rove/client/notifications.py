"""Notifications, with the payload decoded as the type that the subscriber has chosen.

A payload is decoded at the first use of `value`, not when it arrives: a program that only counts or
forwards does not pay for it, and an unexpected payload is an error of that one notification, raised
where it is used, and does not end the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from rove.client.errors import PayloadError
from rove.mqtt.packets import Properties, Publish

if TYPE_CHECKING:
    from rove.client.protocol import DeliveryToken

T = TypeVar("T")
ID: Final = "id"
"""The user property that names a publication."""
_SHOWN_BYTES: Final = 40
_UNREAD: Final[Any] = object()


class Notification(Generic[T]):
    """A publication that a subscription gets."""

    __slots__ = ("_delivery", "_publish", "_read", "_value", "id")

    def __init__(
        self,
        publish: Publish,
        id: str | None,
        read: Callable[[Notification[Any]], T],
        delivery: DeliveryToken | None = None,
    ) -> None:
        self.id = id
        """The id of the publication; None from clients that set none."""
        self._publish = publish
        self._read = read
        self._value: T = _UNREAD
        self._delivery = delivery

    @property
    def value(self) -> T:
        """The payload as the type `into`; PayloadError if it is not of that type."""
        if self._value is _UNREAD:
            self._value = self._read(self)
        return self._value

    @property
    def topic(self) -> str:
        return self._publish.topic

    @property
    def payload(self) -> bytes:
        """The bytes of the payload."""
        return self._publish.payload

    @property
    def user(self) -> dict[str, str]:
        """User properties without the `id`; if a name occurs twice, the last."""
        return {name: value for name, value in self._publish.properties.user if name != ID}

    @property
    def retained(self) -> bool:
        """It was published before the subscription was made, and retained."""
        return self._publish.retain

    @property
    def qos(self) -> int:
        return self._publish.qos

    @property
    def properties(self) -> Properties:
        """The other properties of MQTT 5: response topic, expiry, subscription identifiers."""
        return self._publish.properties

    def __repr__(self) -> str:
        payload = self.payload
        shown = repr(payload[:_SHOWN_BYTES]) + ("…" if len(payload) > _SHOWN_BYTES else "")
        return f"Notification({self.topic!r}, {shown}, id={self.id!r})"


def id_of(publish: Publish) -> str | None:
    """The id that the publisher or the broker has set."""
    for name, value in publish.properties.user:
        if name == ID:
            return value
    return None


def reader_into(into: Any) -> Callable[[Notification[Any]], Any]:
    """A decoder of payloads into a type: `bytes` as they are, anything else from JSON.

    An impossible type is refused here (TypeError), when the subscription is made.
    """
    if into is bytes:
        return lambda notification: notification.payload
    decode = msgspec.json.Decoder(into).decode
    name = getattr(into, "__name__", str(into))

    def read(notification: Notification[Any]) -> Any:
        try:
            return decode(notification.payload)
        except msgspec.DecodeError as error:
            advice = "read `.payload`, or subscribe with into=bytes"
            raise PayloadError(
                f"a publication on {notification.topic!r} is no {name}: {error}; {advice}"
            ) from None

    return read


class RecentIds:
    """Recent ids: at least the last `count_max`, at most twice as many.

    Two sets, of which the older is dropped as a whole. Dropping one id at a time would need a
    dictionary whose first key is deleted again and again, and finding the first key behind
    thousands of deleted ones costs microseconds.
    """

    __slots__ = ("_count_max", "_newer", "_older")

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._newer: set[Hashable] = set()
        self._older: set[Hashable] = set()

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)

    def is_new(self, id: Hashable) -> bool:
        """Add an id; False if it was there."""
        newer = self._newer
        if id in newer or id in self._older:
            return False
        if len(newer) >= self._count_max:
            self._older = newer
            newer = self._newer = set()
        newer.add(id)
        return True
