"""What subscriptions see of a publication: its *attributes*.

They are the members of its payload, if that is a JSON object (nested ones by dots), its user
properties (texts) and its `topic`. Where names collide, a member of the payload wins over a user
property, and the topic over both. One function decides it, for the broker and for Spark.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

_MEMBERS: Final = msgspec.json.Decoder(dict[str, object])
_OBJECT_STARTS: Final = (b"{", b" ", b"\n", b"\t", b"\r")


def attributes_of(
    topic: str, payload: bytes, user: Iterable[tuple[str, str]] = ()
) -> dict[str, object]:
    """The attributes of a publication; a payload that is no JSON object says nothing."""
    return merged(topic, members_of(payload), user)


def merged(
    topic: str, members: dict[str, object] | None, user: Iterable[tuple[str, str]] = ()
) -> dict[str, object]:
    """The same where the members of the payload are known (`members_of`)."""
    attributes: dict[str, object] = dict(user)
    if members:
        attributes.update(members)
    attributes["topic"] = topic
    return attributes


def members_of(payload: bytes) -> dict[str, object] | None:
    """The members of a payload that is a JSON object; None if it is none."""
    if not payload.startswith(_OBJECT_STARTS):
        return None
    try:
        # What `admit` would refuse (NaN, infinity, half a surrogate pair) is no JSON to msgspec.
        return _MEMBERS.decode(payload)
    except (ValueError, RecursionError):
        return None
