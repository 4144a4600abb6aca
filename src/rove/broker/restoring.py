"""From the rows of the journal back to a broker that knows everything.

Clients are all away after a restart, whatever they were before: those that were connected left
when the broker did. A queue whose publication is no longer there was withdrawn, and is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from rove.broker.access import Identity
from rove.broker.journal import Key
from rove.broker.publications import Publication
from rove.broker.records import (
    QUEUE_ENTRY_BITS,
    USER_UNKNOWN,
    CaseRow,
    PublicationRow,
    QueueRow,
    SessionRow,
    SubscriptionRow,
    decoded,
    decoded_number,
    encoded,
)
from rove.broker.sessions import Entry, Session
from rove.broker.state import State
from rove.broker.subscriptions import Interest, Subscription, engine_of
from rove.lang.costs import Cost
from rove.lang.errors import LanguageError
from rove.mqtt.packets import Filter
from rove.policy.agents import Kept

Rows = Iterable[tuple[Key, bytes]]
ENTRY_MASK = (1 << QUEUE_ENTRY_BITS) - 1


def restore(state: State, tables: Mapping[str, Rows]) -> Iterator[Session]:
    """Fill the state from the tables; gives the sessions."""
    sessions = _sessions(state, tables.get("sessions", ()))
    _subscriptions(state, tables.get("subscriptions", ()))
    state.interests.end_restoring()
    publications = _publications(state, tables.get("publications", ()))
    _queues(state, sessions, publications, tables.get("queue", ()))
    _policies(state, sessions, publications, tables)
    for key, _ in tables.get("received", ()):
        assert isinstance(key, int)
        if (owner := sessions.get(key >> 16)) is not None:
            owner.received.add(key & 0xFFFF)
        else:
            state.gate.changes.delete("received", key)
    for _, row in tables.get("retained", ()):
        if (publication := publications.get(decoded_number(row))) is not None:
            state.keeper.restore_retained(publication)
    for valid_key, row in tables.get("valid", ()):
        if (publication := publications.get(decoded_number(row))) is not None:
            state.keeper.restore_valid(publication, valid_key)
    for number, publication in publications.items():
        if not publication.kept:
            state.gate.changes.delete("publications", number)
    for feed, row in tables.get("feeds", ()):
        assert isinstance(feed, str)
        state.feeds[feed] = decoded_number(row)
    for key, _ in tables.get("log", ()):
        assert isinstance(key, int)
        state.position = max(state.position, key)
    yield from sessions.values()


def _sessions(state: State, rows: Rows) -> dict[int, Session]:
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
        session.away_since = state.now if kept.away_since is None else kept.away_since
        if session.will is not None:
            session.will_at = session.away_since + state.will_delay_s(session.will)
        if kept.away_since is None:
            state.gate.changes.put("sessions", client_id, encoded(session.row()))
        sessions[kept.number] = state.sessions[client_id] = session
        state.next_session = max(state.next_session, kept.number + 1)
    return sessions


def _subscriptions(state: State, rows: Rows) -> None:
    for number, row in rows:
        assert isinstance(number, int)
        kept = decoded(SubscriptionRow, row)
        state.next_subscription = max(state.next_subscription, number + 1)
        session = state.sessions.get(kept.client_id)
        if session is None:
            state.gate.changes.delete("subscriptions", number)
            continue
        asked = Filter(kept.topic_filter, kept.qos, kept.no_local, kept.retain_as_published)
        try:
            made = Subscription(
                number, session, asked, kept.identifier, _interest(kept), kept.accepted_at
            )
            made.filter_number = kept.filter_number
            state.interests.add(made)
        except LanguageError as error:
            # Written by a version with another language: the rest must not suffer.
            state.note("warning", "subscription lost", client=kept.client_id, reason=str(error))
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
        # How long its window is, is no question any more.
        cost=Cost(kept.matching_steps, kept.moving_steps, 0.0 if kept.is_ranked else None),
    )


def _publications(state: State, rows: Rows) -> dict[int, Publication]:
    publications: dict[int, Publication] = {}
    for number, row in rows:
        assert isinstance(number, int)
        publication = Publication.restored(number, decoded(PublicationRow, row))
        publications[number] = publication
        if publication.user == USER_UNKNOWN:
            _find_owner(state, publication)
        if publication.is_derived:
            state.keeper.name_derived(publication)
        else:
            state.keeper.name(publication)
        state.next_publication = max(state.next_publication, number)
    return publications


def _find_owner(state: State, publication: Publication) -> None:
    """Ask the publisher's session, if there is one, whose a publication is that does not say."""
    session = state.sessions.get(publication.publisher)
    if session is not None:
        publication.user = session.identity.user
        changes = state.gate.changes
        # Deleted first: what is dropped before this is committed must not stay on disk.
        changes.delete("publications", publication.number)
        changes.put("publications", publication.number, encoded(publication.row()))


def _queues(
    state: State,
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
            state.gate.changes.delete("queue", key)
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
            # It may be on disk more than once as far as we know: deleting it must delete.
            times_kept=2,
            queued_at=kept.queued_at,
        )
        publication.kept += 1
        # Rows come in the order of their keys.
        session.next_entry = number + 1
        if entry.packet_id:
            session.inflight[entry.packet_id] = entry
        else:
            session.queue.append(entry)
            session.queue_bytes += publication.size_bytes


def _policies(
    state: State,
    sessions: Mapping[int, Session],
    publications: Mapping[int, Publication],
    tables: Mapping[str, Rows],
) -> None:
    for session in sessions.values():
        if session.automatic:
            state.variables.restore_desk(session)
    for key, row in tables.get("agents", ()):
        assert isinstance(key, str)
        state.agents.restore_agent(key, decoded(Kept, row))
    for number, row in tables.get("cases", ()):
        assert isinstance(number, int)
        waiting = decoded(CaseRow, row)
        owner = sessions.get(number >> QUEUE_ENTRY_BITS)
        publication = publications.get(waiting.publication)
        if owner is None or publication is None:
            state.gate.changes.delete("cases", number)
            continue
        owner.next_entry = max(owner.next_entry, (number & ENTRY_MASK) + 1)
        state.agents.restore_case(number, waiting, owner, publication)
