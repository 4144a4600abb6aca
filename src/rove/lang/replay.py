"""The oracle over a whole stream: every subscription, every publication, in order of time.

`RankedWindow` is top-k over a sliding window, in the plainest way: the reference for every faster
implementation. `Replay` adds subscriptions and time: `rove match` runs it, and the log of a broker
is compared with it. It evaluates each subscription for each publication, so its cost is their
product: some 3 µs for a predicate. Both take what `read_subscription` and `read_publication` read
from JSON lines.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from rove.lang.attributes import selected
from rove.lang.errors import LanguageError, PublicationError
from rove.lang.normal_form import accepted_form
from rove.lang.oracle import NO_STATE, Publication, State, matches, score_of
from rove.lang.parser import parse
from rove.lang.tree import Subscription
from rove.lang.values import admit, change_state

# -- ranked windows ---------------------------------------------------------------------

# A window holds the publications that matched, have a score and are young enough (or are among the
# last n). A publication is delivered once, when it first belongs to the k best: on arrival, or
# later, when better ones have left. The score is computed once, with the `t` and the `me.` of the
# arrival; so what happens next depends on time alone, and a timer can be set for it. Everything is
# sorted anew at every step: n log n, and obvious.


class WindowDelivery(msgspec.Struct, frozen=True):
    """One publication delivered to a ranked subscription."""

    at: float
    publication: Mapping[str, object]
    score: int | float
    promoted: bool
    """False on arrival; True if it moved up because others left."""
    key: object = None
    """The caller's name for the publication."""


class Member(msgspec.Struct):
    """A publication in a window."""

    at: float
    leaves_at: float
    arrival: int
    score: int | float
    publication: Mapping[str, object]
    key: object
    delivered: bool = False


class RankedWindow:
    """The window of one ranked subscription, accepted at `accepted_at` seconds."""

    def __init__(
        self, subscription: Subscription, accepted_at: float = 0.0, members: Iterable[Member] = ()
    ) -> None:
        """A window that is empty, or that has members, in the order of their arrival."""
        assert subscription.rank is not None, "only a ranked subscription has a window"
        self.subscription = subscription
        self._rank = subscription.rank
        self.accepted_at = accepted_at
        self._members = list(members)
        self._arrivals = self._members[-1].arrival if self._members else 0

    def publish(
        self, publication: Publication, at: float, me: State = NO_STATE, key: object = None
    ) -> list[WindowDelivery]:
        """Advance to `at`, then add `publication` if it matches and has a score."""
        delivered = self.advance(at)
        t = at - self.accepted_at
        if at < self.accepted_at or not matches(self.subscription, publication, t, me):
            return delivered
        score = score_of(self.subscription, publication, t, me)
        if score is None:
            return delivered
        self._arrivals += 1
        leaves_at = at + self._rank.window.seconds
        self._members.append(Member(at, leaves_at, self._arrivals, score, publication, key))
        if self._rank.window.publications is not None:
            del self._members[: -self._rank.window.publications]
        return delivered + self._deliver(at, self._arrivals)

    def advance(self, now: float) -> list[WindowDelivery]:
        """Advance to `now`: old members leave, others move up."""
        delivered: list[WindowDelivery] = []
        while (moment := self.next_change_at()) <= now:
            self._members = [member for member in self._members if member.leaves_at > moment]
            delivered += self._deliver(moment, None)
        return delivered

    def next_change_at(self) -> float:
        """When the next member leaves by age; infinity if none will."""
        return min((member.leaves_at for member in self._members), default=math.inf)

    def members(self) -> Sequence[Member]:
        """Its members in order of arrival."""
        return self._members

    def _deliver(self, at: float, arrival: int | None) -> list[WindowDelivery]:
        """Deliver those of the k best that have not been delivered, best first."""
        delivered: list[WindowDelivery] = []
        for member in sorted(self._members, key=self._place)[: self._rank.k]:
            if not member.delivered:
                member.delivered = True
                promoted = member.arrival != arrival
                delivered.append(
                    WindowDelivery(at, member.publication, member.score, promoted, member.key)
                )
        return delivered

    def _place(self, member: Member) -> tuple[int | float, int]:
        """Lower is better unless DESC; of equal scores the newer is better."""
        return (-member.score if self._rank.descending else member.score, -member.arrival)


# -- subscriptions ----------------------------------------------------------------------


class ReplayedNotification(msgspec.Struct, frozen=True, omit_defaults=True):
    """One publication delivered for one subscription."""

    at: float
    subscription: str
    publication: str
    attributes: Mapping[str, object]
    score: int | float | None = None
    promoted: bool = False


class _Subscriber(msgspec.Struct):
    subscription: Subscription
    accepted_at: float
    me: dict[str, object]
    window: RankedWindow | None


class Replay:
    """Subscriptions over a stream; time only moves forward."""

    def __init__(self) -> None:
        self._subscribers: dict[str, _Subscriber] = {}
        self.now = -math.inf

    def subscribe(
        self,
        name: str,
        text: str,
        accepted_at: float = 0.0,
        me: Mapping[str, object] | None = None,
    ) -> None:
        """Add a subscription; LanguageError for a bad expression or a name that is taken."""
        if name in self._subscribers:
            raise LanguageError(f"there is already a subscription {name!r}")
        if not math.isfinite(accepted_at):
            raise LanguageError("a subscription must be accepted at a finite time")
        admit(me or {})
        subscription = parse(text)
        accepted_form(subscription)  # refuses the same expressions as a broker
        window = RankedWindow(subscription, accepted_at) if subscription.rank else None
        self._subscribers[name] = _Subscriber(subscription, accepted_at, dict(me or {}), window)

    def check_state(self, name: str, changes: Mapping[str, object]) -> None:
        """Refuse what `set_state` would refuse, without changing anything."""
        if name not in self._subscribers:
            raise LanguageError(f"there is no subscription {name!r}")
        admit(changes)

    def set_state(self, name: str, changes: Mapping[str, object]) -> None:
        """Set variables of one subscriber; None removes a variable."""
        self.check_state(name, changes)
        change_state(self._subscribers[name].me, changes)

    def publish(
        self, name: str, publication: Mapping[str, object], at: float
    ) -> list[ReplayedNotification]:
        """Everything that is delivered up to `at`, and because of this publication."""
        admit(publication)
        delivered = self.advance(at)
        for subscriber_name, subscriber in self._subscribers.items():
            if at < subscriber.accepted_at:
                continue
            if subscriber.window is not None:
                found = subscriber.window.publish(publication, at, subscriber.me, name)
                delivered += [self._notification(subscriber_name, one) for one in found]
            elif matches(
                subscriber.subscription, publication, at - subscriber.accepted_at, subscriber.me
            ):
                chosen = selected(subscriber.subscription, publication)
                delivered.append(ReplayedNotification(at, subscriber_name, name, chosen))
        return delivered

    def advance(self, at: float) -> list[ReplayedNotification]:
        """Advance to `at`: windows slide and publications move up, in order of time."""
        if not math.isfinite(at) or at < self.now:
            raise PublicationError(
                f"time cannot go from {self.now:g} s to {at:g} s", "sort publications by time"
            )
        self.now = at
        delivered = [
            self._notification(name, one)
            for name, subscriber in self._subscribers.items()
            if subscriber.window is not None
            for one in subscriber.window.advance(at)
        ]
        return sorted(delivered, key=lambda notification: notification.at)

    def _notification(self, name: str, one: WindowDelivery) -> ReplayedNotification:
        chosen = selected(self._subscribers[name].subscription, one.publication)
        return ReplayedNotification(one.at, name, str(one.key), chosen, one.score, one.promoted)


# -- JSON lines -------------------------------------------------------------------------

# One record a line. A subscription is an expression, `"NO2 > 40"`, or an object with a `filter` and
# perhaps an `id`, the time `at` which it was accepted (0 by default), the subscriber's `me`
# variables and how it is to `evolve` (which does not change its meaning, so it is ignored here).
#
# A publication is an object of attributes, as it would be published. Its attribute `at` (in
# seconds) is its time; without one it has the time of the previous publication. Its attribute `id`
# names it; the default is its line number. An object with `$me` is not a publication:
# `{"at": 3, "$me": {"home": {"x": 5}}}` sets variables of the subscriber `home`.

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
    """A publication, with its name, and with its time if it has one."""

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
