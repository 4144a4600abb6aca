"""The oracle over a whole stream: every subscription, every publication, in order of time.

What `rove match` runs, and what a broker's record is compared with. It evaluates each
subscription for each publication, so its cost is their product: some 3 µs for a predicate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from rove.lang.errors import LanguageError, PublicationError
from rove.lang.normal import accepted_form
from rove.lang.oracle import matches
from rove.lang.parser import parse
from rove.lang.ranking import Delivery, RankedWindow
from rove.lang.selection import selected
from rove.lang.tree import Subscription
from rove.lang.values import admit, change_state


class Notification(msgspec.Struct, frozen=True, omit_defaults=True):
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
    """Subscriptions that live through a stream; time only moves forward."""

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
        """Add a subscription; a bad text or a name that is taken is refused."""
        if name in self._subscribers:
            raise LanguageError(f"there is already a subscription {name!r}")
        if not math.isfinite(accepted_at):
            raise LanguageError("a subscription must be accepted at a finite time")
        admit(me or {})
        subscription = parse(text)
        accepted_form(subscription)  # the same texts are refused here as by a broker
        window = RankedWindow(subscription, accepted_at) if subscription.rank else None
        self._subscribers[name] = _Subscriber(subscription, accepted_at, dict(me or {}), window)

    def check_state(self, name: str, changes: Mapping[str, object]) -> None:
        """Refuse what `set_state` would refuse, and change nothing."""
        if name not in self._subscribers:
            raise LanguageError(f"there is no subscription {name!r}")
        admit(changes)

    def set_state(self, name: str, changes: Mapping[str, object]) -> None:
        """Set variables of one subscriber; None removes a variable."""
        self.check_state(name, changes)
        change_state(self._subscribers[name].me, changes)

    def publish(
        self, name: str, publication: Mapping[str, object], at: float
    ) -> list[Notification]:
        """Everything that is delivered up to and because of this publication."""
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
                delivered.append(Notification(at, subscriber_name, name, chosen))
        return delivered

    def advance(self, at: float) -> list[Notification]:
        """Let time pass, so that windows slide and publications move up, in order of time."""
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

    def _notification(self, name: str, one: Delivery) -> Notification:
        chosen = selected(self._subscribers[name].subscription, one.publication)
        return Notification(one.at, name, str(one.key), chosen, one.score, one.promoted)
