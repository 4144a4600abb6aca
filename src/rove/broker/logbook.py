"""Lines of the lake about publications and notifications, one for each channel that keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from rove.broker.publications import Publication
from rove.broker.records import LogRow
from rove.policy.agents import Decision

if TYPE_CHECKING:
    from rove.broker.seats import Notification
    from rove.broker.state import State


def log_publication(state: State, publication: Publication) -> None:
    """A publication was taken."""
    channels = state.channels_of(publication.topic, "publications")
    for number, channel in enumerate(channels):
        row = _row(publication, channel)
        row.earlier = tuple(channels[:number])
        state.log(row)
        if not number:
            publication.position = state.position
            if publication.kept:
                # What is retained or valid is on its way to the disk, still without a position.
                state.delivery.keep_again(publication)


def forget_publication(state: State, publication: Publication) -> None:
    """It was not taken after all."""
    if publication.position:
        channels = state.channels_of(publication.topic, "publications")
        for position in range(publication.position, publication.position + len(channels)):
            state.gate.changes.drop_new("log", position)


def log_notification(state: State, one: Notification, why: bytes, at: float) -> None:
    """Somebody was notified; `why` is what there is to say about it."""
    channels = state.channels_of(one.publication.topic, "notifications")
    for number, channel in enumerate(channels):
        row = _row(one.publication, channel)
        row.earlier = tuple(channels[:number])
        row.kind, row.client_id = "notifications", one.session.client_id
        row.at, row.subscriptions, row.payload = at, one.numbers, why
        state.log(row)


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
