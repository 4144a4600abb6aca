"""A session that wants everything on a topic.

What several subscriptions of one session say about a topic comes to one notification: the best
QoS of them, and all their identifiers. That is worked out once per topic and session, and kept in
the route of the topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rove.broker.subscriptions import Subscription


class Target:
    """One session that wants everything on a topic, by one subscription or several."""

    __slots__ = (
        "_of_its_own",
        "hears_itself",
        "ids",
        "keeps_retain",
        "numbers",
        "qos",
        "seat",
        "session",
    )

    def __init__(self, subscriptions: Sequence[Subscription]) -> None:
        self.session = subscriptions[0].session
        self.seat = subscriptions[0].seat
        """The policy that all these have of their own."""
        self.qos = max(one.qos for one in subscriptions)
        self.ids = tuple(one.identifier for one in subscriptions if one.identifier)
        self.numbers = tuple(one.number for one in subscriptions)
        self.keeps_retain = any(one.retain_as_published for one in subscriptions)
        heard = [one for one in subscriptions if not one.no_local]
        self.hears_itself = len(heard) == len(subscriptions)
        """False if what the session publishes itself is not for all of these subscriptions."""
        self._of_its_own = Target(heard) if heard and not self.hears_itself else None

    def heard_from(self, publisher: str) -> Target | None:
        """The same for what that client publishes; None if it is not to be heard."""
        if self.hears_itself or publisher != self.session.client_id:
            return self
        return self._of_its_own
