"""Restoring the broker's state from the rows of the journal.

After a restart no client is connected: those that were count as disconnected by it. An entry of a
queue without its publication is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

import msgspec

from rove.broker.access import Identity
from rove.broker.context import BrokerContext
from rove.broker.notifications.feeds import Feeds
from rove.broker.policies.agents import Agents
from rove.broker.publications.publication import Publication
from rove.broker.publications.retained_store import RetainedStore
from rove.broker.sessions.session import Entry, Session, Subscription
from rove.broker.sessions.variables import Variables
from rove.broker.storage.journal import Key
from rove.broker.storage.records import (
    QUEUE_ENTRY_BITS,
    USER_UNKNOWN,
    PendingDecisionRow,
    PublicationRow,
    QueueRow,
    SessionRow,
    SubscriptionRow,
    decoded,
    decoded_number,
    encoded,
)
from rove.broker.subscriptions.interest import Interest, engine_of
from rove.broker.subscriptions.router import Router
from rove.lang.costs import Cost
from rove.lang.errors import LanguageError
from rove.mqtt.packets import Filter
from rove.policy.agents import StoredAgent


class RestorableParts(Protocol):
    """The parts of a broker whose state is restored."""

    context: BrokerContext
    router: Router
    retained: RetainedStore
    variables: Variables
    agents: Agents
    feeds: Feeds


Rows = Iterable[tuple[Key, bytes]]
ENTRY_MASK = (1 << QUEUE_ENTRY_BITS) - 1


def restore(parts: RestorableParts, tables: Mapping[str, Rows]) -> Iterator[Session]:
    """Restore the state from the tables; returns the sessions."""
    context = parts.context
    sessions = _sessions(context, tables.get("sessions", ()))
    _subscriptions(parts, tables.get("subscriptions", ()))
    parts.router.expressions.end_restoring()
    publications = _publications(parts, tables.get("publications", ()))
    _queues(context, sessions, publications, tables.get("queue", ()))
    _policies(parts, sessions, publications, tables)
    for key, _ in tables.get("received", ()):
        assert isinstance(key, int)
        if (owner := sessions.get(key >> 16)) is not None:
            owner.received.add(key & 0xFFFF)
        else:
            context.gate.changes.delete("received", key)
    for _, row in tables.get("retained", ()):
        if (publication := publications.get(decoded_number(row))) is not None:
            parts.retained.restore_retained(publication)
    for valid_key, row in tables.get("valid", ()):
        if (publication := publications.get(decoded_number(row))) is not None:
            parts.retained.restore_valid(publication, valid_key)
    for number, publication in publications.items():
        if not publication.kept:
            context.gate.changes.delete("publications", number)
    for feed, row in tables.get("feeds", ()):
        assert isinstance(feed, str)
        parts.feeds.last[feed] = decoded_number(row)
    for key, _ in tables.get("log", ()):
        assert isinstance(key, int)
        context.position = max(context.position, key)
    yield from sessions.values()


def _sessions(context: BrokerContext, rows: Rows) -> dict[int, Session]:
    sessions: dict[int, Session] = {}
    for client_id, row in rows:
        assert isinstance(client_id, str)
        kept = decoded(SessionRow, row)
        session = Session(client_id, kept.number, kept.version, kept.expiry_s)
        session.is_durable = True
        session.began_at = kept.began_at
        session.identity = Identity(
            kept.user, client_id, "anonymous" if kept.user is None else "password"
        )
        session.me, session.automatic = kept.me, frozenset(kept.automatic)
        session.will = kept.will
        session.away_since = context.now if kept.away_since is None else kept.away_since
        if session.will is not None:
            session.will_at = session.away_since + context.will_delay_s(session.will)
        if kept.away_since is None:
            context.gate.changes.put("sessions", client_id, encoded(session.row()))
        sessions[kept.number] = context.sessions[client_id] = session
        context.next_session = max(context.next_session, kept.number + 1)
    return sessions


def _subscriptions(parts: RestorableParts, rows: Rows) -> None:
    context = parts.context
    for number, row in rows:
        assert isinstance(number, int)
        kept = decoded(SubscriptionRow, row)
        context.next_subscription = max(context.next_subscription, number + 1)
        session = context.sessions.get(kept.client_id)
        if session is None:
            context.gate.changes.delete("subscriptions", number)
            continue
        asked = Filter(kept.topic_filter, kept.qos, kept.no_local, kept.retain_as_published)
        try:
            made = Subscription(
                number, session, asked, kept.identifier, _interest(kept), kept.accepted_at
            )
            made.filter_number = kept.filter_number
            parts.router.add(made)
        except LanguageError as error:
            # Written by a version with another language: restore the others nevertheless.
            context.note("warning", "subscription lost", client=kept.client_id, reason=str(error))
            continue
        session.subscriptions[made.key] = made


def _interest(kept: SubscriptionRow) -> Interest | None:
    if not kept.text:
        return None
    return Interest(
        kept.text,
        kept.evolve,
        uses_me=kept.uses_me,
        is_ranked=kept.is_ranked,
        engine=engine_of(kept.engine),
        # The length of its window was checked when it was accepted.
        cost=Cost(kept.matching_steps, kept.moving_steps, 0.0 if kept.is_ranked else None),
    )


def _publications(parts: RestorableParts, rows: Rows) -> dict[int, Publication]:
    context = parts.context
    publications: dict[int, Publication] = {}
    for number, row in rows:
        assert isinstance(number, int)
        publication = Publication.restored(number, decoded(PublicationRow, row))
        publications[number] = publication
        if publication.user == USER_UNKNOWN:
            _find_owner(context, publication)
        if publication.is_derived:
            parts.retained.name_derived(publication)
        else:
            parts.retained.name(publication)
        context.next_publication = max(context.next_publication, number)
    return publications


def _find_owner(context: BrokerContext, publication: Publication) -> None:
    """Determine the owner of an old publication by its publisher's session, if there is one."""
    session = context.sessions.get(publication.publisher)
    if session is not None:
        publication.user = session.identity.user
        changes = context.gate.changes
        # Delete first: if it is dropped before this is committed, it must not stay on disk.
        changes.delete("publications", publication.number)
        changes.put("publications", publication.number, encoded(publication.row()))


def _queues(
    context: BrokerContext,
    sessions: Mapping[int, Session],
    publications: Mapping[int, Publication],
    rows: Rows,
) -> None:
    decode = msgspec.msgpack.Decoder(QueueRow).decode
    for key, row in rows:
        assert isinstance(key, int)
        kept = decode(row)
        session = sessions.get(key >> QUEUE_ENTRY_BITS)
        publication = publications.get(kept.publication)
        if session is None or publication is None:
            context.gate.changes.delete("queue", key)
            continue
        number = key & ENTRY_MASK
        entry = Entry(
            number,
            publication,
            kept.qos,
            kept.retain,
            kept.subscription_ids,
            kept.select,
            packet_id=kept.packet_id,
            released=kept.released,
            # More than once, so that removing it deletes the row instead of dropping a put.
            times_kept=2,
            queued_at=kept.queued_at,
        )
        publication.kept += 1
        # Rows are read in the order of their keys.
        session.next_entry = number + 1
        if entry.packet_id:
            session.inflight[entry.packet_id] = entry
        else:
            session.queue.append(entry)
            session.queue_bytes += publication.size_bytes


def _policies(
    parts: RestorableParts,
    sessions: Mapping[int, Session],
    publications: Mapping[int, Publication],
    tables: Mapping[str, Rows],
) -> None:
    for session in sessions.values():
        if session.automatic:
            parts.variables.restore_subscriber(session)
    for key, row in tables.get("agents", ()):
        assert isinstance(key, str)
        parts.agents.restore_agent(key, decoded(StoredAgent, row))
    for number, row in tables.get("cases", ()):
        assert isinstance(number, int)
        waiting = decoded(PendingDecisionRow, row)
        owner = sessions.get(number >> QUEUE_ENTRY_BITS)
        publication = publications.get(waiting.publication)
        if owner is None or publication is None:
            parts.context.gate.changes.delete("cases", number)
            continue
        owner.next_entry = max(owner.next_entry, (number & ENTRY_MASK) + 1)
        parts.agents.restore_pending(number, waiting, owner, publication)
