"""Sessions, connections, subscriptions and policy slots: what they hold and write to disk."""

from __future__ import annotations

import math

import pytest

from rove.broker.access import Identity
from rove.broker.publications.publication import Publication
from rove.broker.sessions.session import (
    PACKET_ID_MAX,
    Entry,
    Link,
    Notification,
    PendingDecision,
    PolicySlot,
    Session,
    Shown,
    Subscription,
    in_one_line,
)
from rove.broker.storage.records import (
    PendingDecisionRow,
    QueueRow,
    SessionRow,
    decoded,
    encoded,
    queue_key,
)
from rove.broker.subscriptions.interest import interest_in
from rove.lang.tree import Attribute
from rove.mqtt.packets import (
    V5,
    V311,
    Connack,
    Disconnect,
    Filter,
    Properties,
    Puback,
    Publish,
    Reason,
    Will,
)
from rove.policy.accounts import Accounts
from rove.policy.agents import Agent
from rove.policy.compiling import compiled
from rove.policy.messages import Arrived
from rove.testing.mqtt import SimulatedBroker
from rove.testing.policies import SimulatedWorkers
from tests.broker.test_faults import POLICY, decode, fail_once


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


def test_the_row_of_a_session_says_everything() -> None:
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


def test_groups_and_texts_are_not_part_of_the_topic_filter() -> None:
    interest = interest_in("x > 1")
    made = Subscription(
        5, Session("client", 1, 5, 60), Filter("$share/g/a/+?x > 1", 1), 0, interest, 7.0
    )
    assert (made.group, made.topic_filter) == ("g", "a/+")
    assert made.key == ("$share/g/a/+?x > 1", 0)


def test_the_row_of_a_subscription_says_everything() -> None:
    interest = interest_in("x > 1", "lees")
    made = Subscription(
        5, Session("client", 1, 5, 60), Filter("a", 1, True, True), 9, interest, 7.0
    )
    row = made.row()
    assert (row.client_id, row.topic_filter, row.qos) == ("client", "a", 1)
    assert (row.no_local, row.retain_as_published, row.identifier) == (True, True, 9)
    assert (row.text, row.evolve, row.accepted_at) == ("x > 1", "lees", 7.0)
    assert row.engine == "broker"
    served = Subscription(
        5, Session("client", 1, 5, 60), Filter("a"), 9, interest_in("x > 1", engine="spark"), 7.0
    )
    assert served.row().engine == "spark"


def test_a_packet_is_written_in_the_clients_version() -> None:
    link = Link("here", 0.0, 1_000)
    answer = Puback(7, Reason.QUOTA_EXCEEDED)
    link.version = V5
    assert link.encoded(answer) == b"\x40\x03\x00\x07\x97"
    assert (link.is_v5, link.is_v311) == (True, False)
    link.version = V311
    assert link.encoded(answer) == b"\x40\x02\x00\x07"
    assert (link.is_v5, link.is_v311) == (False, True)


def test_what_is_too_large_for_the_client_loses_its_reason_string() -> None:
    link = Link("here", 0.0, 1_000)
    link.packet_bytes_max = 10
    goodbye = Disconnect(Reason.PROTOCOL_ERROR, Properties(reason_string="a long explanation"))
    assert link.encoded(goodbye) == b"\xe0\x01\x82"


def test_what_cannot_be_made_to_fit_is_nothing() -> None:
    link = Link("here", 0.0, 1_000)
    link.packet_bytes_max = 10
    assert link.encoded(Publish("topic", bytes(100))) is None


def test_no_two_links_share_their_aliases() -> None:
    one, two = Link("one", 0.0, 1_000), Link("two", 0.0, 1_000)
    one.aliases = {1: "a"}
    assert two.aliases == {}


def test_a_reason_string_is_one_line_unless_people_read_it() -> None:
    diagnostic = "column 6: expected a value\n  NO2 >\n       ^\n  something must follow >"
    link = Link("here", 0.0, 1_000)
    said = "column 6: expected a value; NO2 >; something must follow >"
    assert link.explained(diagnostic).reason_string == said
    link.takes_lines = True
    assert link.explained(diagnostic).reason_string == diagnostic


def test_no_control_character_is_left_in_one_line() -> None:
    assert in_one_line("a topic \x01\tof\x7f theirs") == "a topic ⟨U+0001⟩ of⟨U+007F⟩ theirs"


class TestIdsOfTheBroker:
    @pytest.mark.parametrize("client_id", ["http", "http:", "http:alice"])
    @pytest.mark.parametrize("user", [None, "alice", "bob"])
    def test_nobody_else_can_have_them(self, client_id: str, user: str | None) -> None:
        client = SimulatedBroker().client(client_id)
        client.send_connect(user=user)
        assert client.only(Connack).reason == Reason.CLIENT_ID_NOT_VALID
        assert client.is_closed()

    def test_others_that_look_like_them_are_free(self) -> None:
        world = SimulatedBroker()
        for client_id in ("http2", "https:alice", "HTTP:alice", "my-http:x"):
            world.connect(client_id)


TEXT = "def arrived(m, me): return m"


def test_a_case_is_written_with_all_that_is_needed_to_go_on() -> None:
    publication = Publication(7, Publish("t", b"1", 2), "bob", "id", 1.0)
    select = (Attribute(("a",)),)
    one = Notification(
        Session("ann", 1, 5, 9), publication, 2, True, (3, 4), select, (5,), b"{}", waits=True
    )
    pending = PendingDecision(one, Shown(Arrived("t", b"1")), {})
    row = pending.row(5, 12.5)
    assert row == PendingDecisionRow(7, 5, 2, True, (3, 4), select, (5,), b"{}", True, 12.5)
    assert decoded(PendingDecisionRow, encoded(row)) == row


def test_what_is_shared_of_one_is_not_of_another() -> None:
    one, other = Shown(Arrived("t", b"1")), Shown(Arrived("t", b"1"))
    assert one.derived is not other.derived


def test_a_seat_is_a_sessions_or_a_subscriptions() -> None:
    session = Session("a/n", 1, 5, 9)
    subscription = Subscription(8, session, Filter("t/#", 1), 3, None, 0.0)
    agent = Agent(compiled(TEXT, bytes_max=100), 4.0)
    account = Accounts().of("user ann")
    whole, part = (PolicySlot(agent, session, place, account) for place in (None, subscription))
    assert (whole.number, whole.key) == (0, "0/a/n")
    assert (part.number, part.key) == (8, "8/a/n")
    view = part.view()
    assert (view.client_id, view.subscription, view.identifier) == ("a/n", 8, 3)
    assert (view.topic_filter, view.text, view.set_at, view.waiting) == ("t/#", TEXT, 4.0, 0)
    assert (whole.view().identifier, whole.view().topic_filter) == (0, "")


@pytest.mark.parametrize("method", ["_answered", "_go_on", "_had_first", "_next_turn"])
def test_policies_go_on_when_an_answer_fails(method: str) -> None:
    """Nothing waits for ever behind a message whose turn has failed."""
    workers = SimulatedWorkers()
    workers.holds_jobs = True
    world = SimulatedBroker(workers=workers, isolation="process")
    near, other = world.connect("near", expiry_s=100), world.connect("other")
    near.subscribe("a", qos=1, policy=POLICY)
    near.subscribe("b", qos=1, identifier=2, policy=POLICY)
    for number in range(1, 4):
        for topic in "ab":
            other.publish(topic, b'{"x": %d}' % number, 1)
    agents = world.broker.agents
    fail_once(agents, method)
    workers.holds_jobs = False
    world.work()
    world.advance(1.0)
    heard = {topic: [] for topic in "ab"}  # type: dict[str, list[bytes]]
    for packet in near.take_all():
        heard[packet.topic].append(decode(packet.payload).encode())
    assert all(list(dict.fromkeys(each))[-1] == b'{"x":3}' for each in heard.values()), heard
    check_nothing_waits(world)


def test_policies_go_on_when_a_later_turn_fails() -> None:
    world = SimulatedBroker()
    near, other = world.connect("near", expiry_s=100), world.connect("other")
    near.subscribe("a", qos=1, policy=POLICY)
    agents = world.broker.agents
    # Policies have used up what they may of this turn.
    agents._spent_s = 1.0
    for number in range(1, 4):
        other.say(Publish("a", b'{"x": %d}' % number, 1, packet_id=number))
    fail_once(agents, "_try")
    world.turn()
    world.advance(1.0)
    heard = [decode(packet.payload) for packet in near.take_all()]
    assert list(dict.fromkeys(heard)) == ['{"x":1}', '{"x":2}', '{"x":3}']
    check_nothing_waits(world)


def check_nothing_waits(world: SimulatedBroker) -> None:
    """No policy has anything to decide, and that one fault was told of."""
    for slot in world.broker.agents.policies.slots:
        assert (len(slot.waiting), slot.account.waiting_bytes) == (0, 0)
    assert world.broker.counters.faults == 1
