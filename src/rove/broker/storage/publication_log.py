"""Lines of the lake about publications and notifications, one for each channel that keeps them."""

from __future__ import annotations

from typing import Any

import msgspec

from rove.broker.context import BrokerContext
from rove.broker.notifications.delivery import Delivery
from rove.broker.publications.publication import Publication
from rove.broker.sessions.session import Notification
from rove.broker.storage.records import LogRow
from rove.policy.agents import Decision


class PublicationLog:
    """Writes publications and notifications down."""

    def __init__(self, context: BrokerContext, delivery: Delivery) -> None:
        self._context = context
        self._delivery = delivery
        streams = context.settings.channels
        self.keeps_notifications = any("notifications" in stream.keep for stream in streams)
        """Whether any notification has to be logged."""

    def taken(self, publication: Publication) -> None:
        """A publication was taken."""
        context = self._context
        channels = context.channels_of(publication.topic, "publications")
        for number, channel in enumerate(channels):
            row = _row(publication, channel)
            row.earlier = tuple(channels[:number])
            context.log(row)
            if not number:
                publication.position = context.position
                if publication.kept:
                    # What is retained or valid is on its way to the disk, without a position.
                    self._delivery.keep_again(publication)

    def forget(self, publication: Publication) -> None:
        """It was not taken after all."""
        if publication.position:
            context = self._context
            channels = context.channels_of(publication.topic, "publications")
            for position in range(publication.position, publication.position + len(channels)):
                context.gate.changes.drop_new("log", position)

    def notified(self, one: Notification, why: bytes, at: float) -> None:
        """Somebody was notified at that moment; `why` is what there is to say about it."""
        if not self.keeps_notifications:
            return
        context = self._context
        channels = context.channels_of(one.publication.topic, "notifications")
        for number, channel in enumerate(channels):
            row = _row(one.publication, channel)
            row.earlier = tuple(channels[:number])
            row.kind, row.client_id = "notifications", one.session.client_id
            row.at, row.subscriptions, row.payload = at, one.numbers, why
            context.log(row)


def why_decided(
    one: Notification, subscription: int, decision: Decision, *, is_lost: bool
) -> bytes:
    """What there is to say of what a policy decided, that of this subscription."""
    facts: dict[str, Any] = msgspec.json.decode(one.why) if one.why else {}
    facts["policy"], facts["outputs"] = decision.verdict, decision.output_count
    facts["subscription"] = subscription
    if one.publication.position:
        facts["position"] = one.publication.position
    if decision.kind:
        facts["kind"] = decision.kind
    if is_lost:
        facts["lost"] = True
    return msgspec.json.encode(facts)


def _row(publication: Publication, channel: str) -> LogRow:
    return LogRow(
        "publications",
        channel,
        publication.at,
        publication.topic,
        publication.id,
        publication.publisher,
        publication.payload,
        publication.properties.user,
        (),
        publication.qos,
    )
