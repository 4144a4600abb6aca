"""Feeds: notifications that Spark has found, each delivered exactly once even if sent repeatedly.

A subscription with `engine: spark` takes no part in the matching of this broker. Its matches are
found in the lake, seconds later, and come back as publications on `$rove/deliver`: a *feed* of
notifications with growing *sequence* numbers. The sequence of the last one is stored in the same
commit as its effects. So a repeated notification, after a crash of either side, is recognised by
its sequence and skipped. A packet also says which sequence it follows, so a missing or overtaken
packet is detected and requested again instead of lost.

From then on it is an ordinary notification: QoS, identifier, SELECT and queue of its subscription.
The lake does not keep everything of a publication (its expiry, content type, the flag *retain*);
if the broker still has the publication itself, it sends that.

Costs 8 µs of CPU for each notified session if many share a publication and their queues are on
disk, 20 µs if each has its own (`rove.bench.pipeline.deliver.rates`).
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
"""Names of feeds are stored for ever, so their number is bounded."""

Notify = Callable[[Publication, list[Subscription], bytes], None]
"""Notifies one session for several of its subscriptions; the bytes are for the log."""
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Sequence = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class FeedNotification(msgspec.Struct, frozen=True):
    """A publication, and the subscriptions that it matches."""

    sequence: Sequence
    subscriptions: tuple[int, ...]
    topic: str
    at: float
    """When the broker accepted it."""
    id: str
    client_id: str
    """Of the publisher."""
    payload: bytes = b""
    """In JSON, as base64."""
    user: tuple[tuple[str, str], ...] = ()
    qos: Annotated[int, msgspec.Meta(ge=0, le=2)] = 1
    score: float | None = None
    promoted: bool | None = None
    """For ranked subscriptions: its score, and whether it was promoted after it came."""
    position: Sequence = 0
    """Its position in the log; 0 if unknown."""


class FeedBatch(msgspec.Struct, frozen=True):
    """The payload of a publication on `$rove/deliver`."""

    feed: Name
    after: Sequence = 0
    """The sequence of the notification before the first."""
    notifications: tuple[FeedNotification, ...] = ()
    """With growing sequences; if empty, this only queries the last sequence."""


class FeedError(ValueError):
    """A feed is refused; the text is for people."""


class FeedsFull(FeedError):
    """There are too many feeds."""


_read = msgspec.json.Decoder(FeedBatch).decode


class Feeds:
    """Delivers the notifications of feeds to their sessions."""

    def __init__(
        self, context: BrokerContext, router: Router, retained: RetainedStore, notify: Notify
    ) -> None:
        self._context = context
        self._router = router
        self._retained = retained
        self._notify = notify
        self.last: dict[str, int] = {}
        """The sequence of the last notification, by feed."""

    def take(self, payload: bytes) -> int:
        """Deliver what is new; returns the last sequence of that feed. FeedError if refused."""
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

    def _check(self, delivery: FeedBatch, last: int) -> None:
        """FeedError if it has to be refused, before any of it is delivered."""
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

    def _deliver(self, found: FeedNotification) -> None:
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

    def _publication(self, found: FeedNotification) -> Publication:
        """The original publication, if it is still referenced; or what the lake has of it."""
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
            # So that its publisher can withdraw it while it waits. The lake does not have the
            # user, but a session that existed at the time does.
            made.user = publisher.identity.user
            self._retained.name(made)
        return made


def _why(found: FeedNotification) -> bytes:
    """What the log has about the notification."""
    facts: dict[str, object] = {"engine": "spark"}
    if found.score is not None:
        facts["score"] = found.score
    if found.promoted is not None:
        facts["promoted"] = found.promoted
    return msgspec.json.encode(facts)
