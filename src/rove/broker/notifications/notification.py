"""A notification: what one session is told of one publication, and how.

Whoever finds out that somebody is to be told makes one; the way from there is the same for all:
access rules, policy, delivery, log (`rove.broker.notifications.notifying`). Making one costs 0.1
µs.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rove.broker.publications.publication import Publication
from rove.broker.sessions.session import Select, Session
from rove.broker.storage.records import PendingDecisionRow
from rove.broker.subscriptions.subscription import Subscription


class Notification(msgspec.Struct, eq=False):
    """What one session is to be told, and how."""

    session: Session
    publication: Publication
    qos: int
    """As granted; the publication's own may be less."""
    retain: bool
    ids: tuple[int, ...]
    select: Select = None
    """What of the publication is sent; None for all of it."""
    numbers: tuple[int, ...] = ()
    """Of the subscriptions, for the log."""
    why: bytes = b""
    """For the log: why it comes later than its publication."""
    waits: bool = False
    """It goes behind what waits for the commit of this turn."""

    @classmethod
    def restored(
        cls, row: PendingDecisionRow, session: Session, publication: Publication
    ) -> Notification:
        """As it was written to disk (`PendingDecision.row`)."""
        return cls(
            session,
            publication,
            row.qos,
            row.retain,
            row.ids,
            row.select,
            row.numbers,
            row.why,
            row.waits,
        )


def selection(subscriptions: Sequence[Subscription]) -> Select:
    """What of a publication is sent that meets all these: whatever one of them selects."""
    chosen: dict[object, None] = {}
    selected = []
    for one in subscriptions:
        select = None if one.interest is None else one.interest.parsed.select
        if select is None:
            return None
        for attribute in select:
            if attribute not in chosen:
                chosen[attribute] = None
                selected.append(attribute)
    return tuple(selected)
