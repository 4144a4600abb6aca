"""A session: packet identifiers, and rows that say everything."""

import math

from rove.broker.access import Identity
from rove.broker.publications.publication import Publication
from rove.broker.sessions.session import PACKET_ID_MAX, Entry, Session
from rove.broker.storage.records import QueueRow, SessionRow, decoded, encoded, queue_key
from rove.lang.tree import Attribute
from rove.mqtt.packets import Publish, Will


def new_entry(number: int = 3) -> Entry:
    publication = Publication(17, Publish("a", b"1", 2), "publisher", "id", 5.0)
    return Entry(number, publication, 2, True, (4, 5))


def test_packet_identifiers_count_up_and_begin_again() -> None:
    session = Session("client", 1, 5, 60)
    assert [session.take_packet_id() for _ in range(3)] == [1, 2, 3]
    session.next_packet_id = PACKET_ID_MAX
    assert [session.take_packet_id() for _ in range(2)] == [PACKET_ID_MAX, 1]


def test_packet_identifiers_in_use_are_passed_over() -> None:
    session = Session("client", 1, 5, 60)
    session.inflight = {1: new_entry(), 2: new_entry(), PACKET_ID_MAX: new_entry()}
    assert session.take_packet_id() == 3
    session.next_packet_id = PACKET_ID_MAX
    assert session.take_packet_id() == 3


def test_a_session_that_outlives_its_connection_is_durable() -> None:
    assert Session("client", 1, 5, 60).is_durable
    assert not Session("client", 1, 5, 0).is_durable


def test_its_row_says_everything() -> None:
    session = Session("client", 9, 4, 60)
    session.identity = Identity("alice", "client", "password")
    session.will = Will("wills", b"gone", 1)
    session.away_since = 12.5
    session.me = {"x": 3}
    row = SessionRow(9, 4, 60, "alice", Will("wills", b"gone", 1), 12.5, {"x": 3})
    assert decoded(SessionRow, encoded(session.row())) == row
    assert session.will_at == math.inf


def test_the_row_of_an_entry_says_everything() -> None:
    entry = new_entry()
    entry.packet_id, entry.released, entry.queued_at = 7, True, 11.5
    entry.select = (Attribute(("x",)),)
    row = QueueRow(17, 2, True, (4, 5), 7, True, (Attribute(("x",)),), 11.5)
    assert decoded(QueueRow, encoded(entry.row())) == row


def test_entries_lie_in_order_by_session() -> None:
    one, two = Session("one", 1, 5, 60), Session("two", 2, 5, 60)
    keys = [one.key_of(new_entry(0)), one.key_of(new_entry(9)), two.key_of(new_entry(0))]
    assert keys == sorted(keys) == [queue_key(1, 0), queue_key(1, 9), queue_key(2, 0)]
