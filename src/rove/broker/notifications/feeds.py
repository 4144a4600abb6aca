"""Notifications that somebody else has found, each delivered once however often it is told.

A subscription with `engine: spark` takes no part in the matching of this broker. What meets it is
found in the lake, seconds later, and comes back as a publication on `$rove/deliver`: a *feed*, with
notifications that are numbered by a *sequence* which grows. The sequence of the last one is
kept, in the commit that keeps what it caused. So whatever comes again, after a crash of either
side, is known by its number and passed over; and since a packet also says after which number it
begins, one that was overtaken or is missing is noticed and asked for instead of lost.

From then on it is an ordinary notification: QoS, identifier, SELECT and queue of its subscription.
The lake does not keep everything of a publication (its expiry, content type, the flag *retain*);
where the broker still has the publication itself, that is what is sent.

Costs 8 µs of CPU for each session that is notified where many share a publication and their queues
are on disk, 20 µs where each has its own (`rove.bench.pipeline.deliver.rates`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import msgspec

from rove.broker.context import BrokerContext
from rove.broker.publications.publication import Publication
from rove.broker.publications.retained_store import RetainedStore
from rove.broker.sessions.session import Session, Subscription
from rove.broker.storage.records import encoded
from rove.broker.subscriptions.router import Router
from rove.mqtt.packets import NO_PROPERTIES, Properties, Publish
from rove.mqtt.topics import name_fault, text_fault

FEEDS_MAX: Final = 1_000
"""Names of feeds are kept for ever, so there must not be one for everything."""

Notify = Callable[[Publication, list[Subscription], bytes], None]
"""Notifies one session of what several of its subscriptions met; the log is told the bytes."""
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Sequence = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Found(msgspec.Struct, frozen=True):
    """A publication, and the subscriptions that it was found to meet."""

    sequence: Sequence
    subscriptions: tuple[int, ...]
    topic: str
    at: float
    """When the broker took it."""
    id: str
    client_id: str
    """Who published it."""
    payload: bytes = b""
    """In JSON, as base64."""
    user: tuple[tuple[str, str], ...] = ()
    qos: Annotated[int, msgspec.Meta(ge=0, le=2)] = 1
    score: float | None = None
    promoted: bool | None = None
    """Of ranked subscriptions: the rank it had, and whether it moved up later than it came."""
    position: Sequence = 0
    """Where it is in the log; 0 if that is not known."""


class Delivery(msgspec.Struct, frozen=True):
    """What is published on `$rove/deliver`."""

    feed: Name
    after: Sequence = 0
    """The sequence of what came before the first."""
    notifications: tuple[Found, ...] = ()
    """With growing sequences; without any, only the sequence is asked for."""


class FeedError(ValueError):
    """It cannot be taken, for people."""


class FeedsFull(FeedError):
    """There are too many feeds for one more."""


_read = msgspec.json.Decoder(Delivery).decode


class Feeds:
    """Takes notifications of feeds and hands them to the sessions that they are for."""

    def __init__(
        self, context: BrokerContext, router: Router, retained: RetainedStore, notify: Notify
    ) -> None:
        self._context = context
        self._router = router
        self._retained = retained
        self._notify = notify
        self.last: dict[str, int] = {}
        """By name, the sequence of the last notification that came by it."""

    def take(self, payload: bytes) -> int:
        """Deliver what is new; the last sequence of that feed. FeedError if it cannot be."""
        try:
            delivery = _read(payload)
        except (ValueError, RecursionError) as error:
            raise FeedError(str(error)) from None
        feeds = self.last
        last = feeds.get(delivery.feed, 0)
        self._check(delivery, last)
        new = last
        for found in delivery.notifications:
            if found.sequence <= new:
                self._context.counters.deliveries_repeated += 1
            else:
                self._context.counters.deliveries_taken += 1
                self._deliver(found)
                new = found.sequence
        if new > last:
            self._context.steps.saves_item(feeds, delivery.feed)
            feeds[delivery.feed] = new
            self._context.gate.changes.put("feeds", delivery.feed, encoded(new))
        return new

    def _check(self, delivery: Delivery, last: int) -> None:
        """Before any of it is delivered."""
        feed = delivery.feed
        if delivery.after > last:
            raise FeedError(
                f"the feed {feed!r} is at {last} and this begins after {delivery.after}; "
                "send first what lies between"
            )
        if feed not in self.last and len(self.last) >= FEEDS_MAX:
            raise FeedsFull(f"there are {FEEDS_MAX} feeds; {feed!r} would be one more")
        for found in delivery.notifications:
            texts = (text for pair in found.user for text in pair)
            fault = name_fault(found.topic) or next(filter(None, map(text_fault, texts)), None)
            if fault is not None:
                raise FeedError(f"notification {found.sequence}: {fault}")

    def _deliver(self, found: Found) -> None:
        by_session: dict[Session, list[Subscription]] = {}
        for number in found.subscriptions:
            one = self._router.served(number)
            if one is None:
                self._context.counters.deliveries_gone += 1
            elif not (one.no_local and found.client_id == one.session.client_id):
                by_session.setdefault(one.session, []).append(one)
        if not by_session:
            return
        publication = self._publication(found)
        if publication.is_over(self._context.now):
            self._context.counters.deliveries_gone += 1
            return
        why = _why(found)
        for subscriptions in by_session.values():
            self._notify(publication, subscriptions, why)

    def _publication(self, found: Found) -> Publication:
        """The publication as it came, if anybody still has it; or what the lake knows of it."""
        context = self._context
        living = self._retained.last_of_client(found.client_id, found.id)
        if living is not None and (living.at, living.topic) == (found.at, found.topic):
            return living
        properties = Properties(user=found.user) if found.user else NO_PROPERTIES
        publish = Publish(found.topic, found.payload, found.qos, properties=properties)
        context.next_publication += 1
        made = Publication(context.next_publication, publish, found.client_id, found.id, found.at)
        made.position = found.position
        publisher = context.sessions.get(found.client_id)
        if (
            living is None
            and ("id", found.id) in found.user
            and publisher is not None
            and publisher.began_at <= found.at
        ):
            # So that whoever published it can take it back while it waits. The lake does not
            # know the user: only a session that was there at the time says who it was.
            made.user = publisher.identity.user
            self._retained.name(made)
        return made


def _why(found: Found) -> bytes:
    """What the log says of the notification."""
    facts: dict[str, object] = {"engine": "spark"}
    if found.score is not None:
        facts["score"] = found.score
    if found.promoted is not None:
        facts["promoted"] = found.promoted
    return msgspec.json.encode(facts)
