"""JSON lines of subscriptions and publications, one record a line.

A subscription is a text, `"NO2 > 40"`, or an object with a `filter` and perhaps an `id`, the
time `at` which it was accepted (0 without one), the subscriber's `me` variables and how it is to
`evolve` (the language means the same either way, so what stands there is not looked at here).

A publication is an object of attributes, as it would be published. Its attribute `at` (in
seconds) is when it appears; without one it appears together with the one before. Its
attribute `id` names it; without one its line number does. An object with `$me` is no
publication: `{"at": 3, "$me": {"home": {"x": 5}}}` sets variables of the subscriber `home`.

Nothing here reads files: a line comes in, a record or a LanguageError goes out.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rove.lang.errors import LanguageError

STATE_KEY = "$me"


class SubscriptionRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a file of subscriptions."""

    filter: str
    id: str | int | None = None
    at: float = 0.0
    me: dict[str, object] = {}
    evolve: str | None = None


class StateRecord(msgspec.Struct, frozen=True):
    """A change of subscribers' state."""

    at: float | None
    changes: Mapping[str, Mapping[str, object]]


class PublicationRecord(msgspec.Struct, frozen=True):
    """A publication, with its name and its time if it has one."""

    id: str
    at: float | None
    attributes: Mapping[str, object]


_SUBSCRIPTION: msgspec.json.Decoder[SubscriptionRecord | str] = msgspec.json.Decoder(
    SubscriptionRecord | str
)


def read_subscription(line: bytes | str) -> SubscriptionRecord:
    """The subscription on one line."""
    try:
        found: SubscriptionRecord | str = _SUBSCRIPTION.decode(line)
        return SubscriptionRecord(found) if isinstance(found, str) else found
    except msgspec.ValidationError as error:
        hint = 'write a text in quotes, or {"id": "home", "filter": "NO2 > 40"}'
        raise LanguageError(f"not a subscription: {error}", hint) from None
    except ValueError as error:
        raise LanguageError(f"not JSON: {error}") from None
    except RecursionError:
        raise _too_deep() from None


def read_publication(
    line: bytes | str, number: int, *, time_key: str = "at", id_key: str = "id"
) -> PublicationRecord | StateRecord:
    """The publication, or the change of state, on line `number`."""
    try:
        found = msgspec.json.decode(line)
    except ValueError as error:
        raise LanguageError(f"not JSON: {error}") from None
    except RecursionError:
        raise _too_deep() from None
    if not isinstance(found, dict):
        raise LanguageError("not a publication", 'write a JSON object such as {"NO2": 41}')
    at = _seconds(found.get(time_key), time_key)
    if STATE_KEY in found:
        return StateRecord(at, _changes(found[STATE_KEY]))
    return PublicationRecord(str(found.get(id_key, number)), at, found)


def _too_deep() -> LanguageError:
    return LanguageError("nested too deep to be read", "use fewer levels of brackets")


def _seconds(found: object, time_key: str) -> float | None:
    if found is None or type(found) is float:
        return found
    try:
        if type(found) is int:
            return float(found)
    except OverflowError:
        raise LanguageError(
            f"{time_key} has {len(str(found))} digits", "no time is so large"
        ) from None
    raise LanguageError(f"{time_key} is {found!r}", "the time is a number of seconds")


def _changes(found: object) -> Mapping[str, Mapping[str, object]]:
    if not isinstance(found, dict) or not all(isinstance(c, dict) for c in found.values()):
        raise LanguageError(
            f"{STATE_KEY} must name subscriptions", 'as in {"$me": {"home": {"x": 5}}}'
        )
    return found
