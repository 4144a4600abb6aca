"""The *attributes* of a publication: what subscriptions see, and what SELECT chooses from them.

They are the members of the payload, if that is a JSON object (nested ones by dots), the user
properties (strings) and the `topic`. If names collide, a member of the payload takes precedence
over a user property, and the topic over both. The broker and Spark share these functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from rove.lang.tree import Subscription

_MEMBERS: Final = msgspec.json.Decoder(dict[str, object])
_OBJECT_STARTS: Final = (b"{", b" ", b"\n", b"\t", b"\r")


def attributes_of(
    topic: str, payload: bytes, user: Iterable[tuple[str, str]] = ()
) -> dict[str, object]:
    """The attributes of a publication; a payload that is not a JSON object has none."""
    return merged(topic, members_of(payload), user)


def merged(
    topic: str, members: dict[str, object] | None, user: Iterable[tuple[str, str]] = ()
) -> dict[str, object]:
    """The same, given the members of the payload (`members_of`)."""
    attributes: dict[str, object] = dict(user)
    if members:
        attributes.update(members)
    attributes["topic"] = topic
    return attributes


def members_of(payload: bytes) -> dict[str, object] | None:
    """The members of a payload that is a JSON object; None for any other payload."""
    if not payload.startswith(_OBJECT_STARTS):
        return None
    try:
        # msgspec rejects what `admit` would refuse: NaN, infinity, half a surrogate pair.
        return _MEMBERS.decode(payload)
    except (ValueError, RecursionError):
        return None


def selected(subscription: Subscription, publication: Mapping[str, object]) -> Mapping[str, object]:
    """The selected attributes that exist, in the order of SELECT, nested; all without a SELECT."""
    if subscription.select is None:
        return publication
    chosen: dict[str, object] = {}
    for attribute in subscription.select:
        _copy(publication, chosen, attribute.path)
    return chosen


def _copy(source: Mapping[str, object], target: dict[str, object], path: tuple[str, ...]) -> None:
    name, *rest = path
    if name not in source:
        return
    found = source[name]
    if not rest:
        target[name] = found
    elif isinstance(found, Mapping):
        inner = target.setdefault(name, {})
        # Otherwise a shorter name has already selected the whole object, which is not a copy.
        if isinstance(inner, dict) and inner is not found:
            _copy(found, inner, tuple(rest))
            if not inner:
                del target[name]
