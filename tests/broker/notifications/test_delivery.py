"""Getting notifications to clients: windows, resends, queues, pace, and what is given up."""

import pytest

from rove.broker.limits import Limits
from rove.broker.storage.records import PublicationRow, QueueRow
from rove.mqtt.packets import (
    V311,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
)
from rove.testing.mqtt import SimulatedBroker, SimulatedClient


def publish(world: SimulatedBroker, *payloads: bytes, qos: int = 1) -> None:
    """Somebody publishes on `a`."""
    publisher = world.connect("publisher")
    for payload in payloads:
        publisher.publish("a", payload, qos)


def subscribed(
    world: SimulatedBroker, qos: int = 1, version: int = 5, receive_max: int | None = None
) -> SimulatedClient:
    """A client with a session that stays, subscribed to `a`."""
    client = world.client(version=version)
    if version == V311:
        client.connect(clean_start=False)
    else:
        client.connect(expiry_s=1_000_000, properties=Properties(receive_max=receive_max))
    client.subscribe("a", qos=qos)
    return client


class TestWindow:
    @pytest.mark.parametrize("qos", [1, 2])
    def test_no_more_is_under_way_than_the_client_wants(self, qos: int) -> None:
        world = SimulatedBroker()
        client = subscribed(world, qos, receive_max=2)
        publish(world, b"1", b"2", b"3", b"4", qos=qos)
        assert len(client.inbox) == 2
        assert [packet.payload for packet in client.take_all()] == [b"1", b"2", b"3", b"4"]

    def test_no_more_is_under_way_than_the_limit_allows(self) -> None:
        world = SimulatedBroker(limits=Limits(inflight_max=3))
        client = subscribed(world, version=V311)
        publish(world, b"1", b"2", b"3", b"4")
        assert client.payloads() == [b"1", b"2", b"3"]

    def test_qos_2_takes_room_until_it_is_complete(self) -> None:
        world = SimulatedBroker()
        client = subscribed(world, 2, receive_max=1)
        publish(world, b"1", b"2", qos=2)
        packet_id = client.only(Publish).packet_id
        client.send(Pubrec(packet_id))
        assert client.inbox == [Pubrel(packet_id)]
        client.inbox.clear()
        client.send(Pubcomp(packet_id))
        assert client.payloads() == [b"2"]

    def test_a_refused_qos_2_makes_room_at_once_and_is_not_released(self) -> None:
        world = SimulatedBroker()
        client = subscribed(world, 2, receive_max=1)
        publish(world, b"1", b"2", qos=2)
        client.send(Pubrec(client.only(Publish).packet_id, Reason.QUOTA_EXCEEDED))
        assert [type(packet) for packet in client.inbox] == [Publish]
        assert client.payloads() == [b"2"]

    def test_a_refused_qos_1_is_not_sent_again(self) -> None:
        world = SimulatedBroker()
        client = subscribed(world)
        publish(world, b"1")
        client.send(Puback(client.only(Publish).packet_id, Reason.UNSPECIFIED_ERROR))
        client.drop()
        client.come_back()
        assert client.inbox == []

    def test_qos_0_does_not_wait_for_room(self) -> None:
        world = SimulatedBroker()
        client = subscribed(world, receive_max=1)
        publish(world, b"1", b"2")
        publish(world, b"3", qos=0)
        assert client.payloads() == [b"1", b"3"]

    def test_packet_identifiers_under_way_differ(self) -> None:
        world = SimulatedBroker()
        client = subscribed(world)
        publish(world, *(b"%d" % n for n in range(100)))
        ids = [packet.packet_id for packet in client.take(Publish)]
        assert len(set(ids)) == 100
        assert 0 not in ids

    def test_an_answer_to_nothing_is_ignored(self) -> None:
        client = SimulatedBroker().connect()
        client.send(Puback(7), Pubcomp(7))
        assert client.inbox == []
        client.send(Pubrec(7))
        assert client.inbox == [Pubrel(7, Reason.PACKET_ID_NOT_FOUND)]

    def test_an_answer_of_the_wrong_quality_is_ignored(self) -> None:
        world = SimulatedBroker()
        client = subscribed(world, 2)
        publish(world, b"1", qos=2)
        packet_id = client.only(Publish).packet_id
        client.send(Puback(packet_id))
        client.drop()
        client.come_back()
        assert client.only(Publish).packet_id == packet_id


class TestPacketSize:
    @pytest.mark.parametrize("qos", [0, 1, 2])
    def test_what_is_too_large_for_the_client_is_left_out(self, qos: int) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=60, properties=Properties(packet_size_max=60))
        client.subscribe("a", qos=qos)
        publish(world, b"small", bytes(100), b"after", qos=qos)
        assert [packet.payload for packet in client.take_all()] == [b"small", b"after"]
        assert world.broker.counters.notifications_dropped_size == 1
        assert not {"queue", "publications"} & world.disk.sizes().keys()

    def test_exactly_what_it_takes_is_sent(self) -> None:
        for qos, overhead in ((0, 6), (1, 8)):
            world = SimulatedBroker()
            client = world.connect(properties=Properties(packet_size_max=50))
            client.subscribe("a", qos=qos)
            publish(world, bytes(50 - overhead), bytes(51 - overhead), qos=qos)
            assert [len(payload) for payload in client.payloads()] == [50 - overhead]

    def test_a_client_that_comes_back_smaller_is_not_sent_what_was_in_flight(self) -> None:
        world = SimulatedBroker()
        client = subscribed(world)
        publish(world, b"small", bytes(1_000))
        client.drop()
        small = Properties(packet_size_max=100, session_expiry_s=60)
        client.connect(clean_start=False, properties=small)
        assert [packet.payload for packet in client.take_all()] == [b"small"]
        assert world.broker.counters.notifications_dropped_size == 1
        assert not {"queue", "publications"} & world.disk.sizes().keys()


class TestResends:
    @pytest.mark.parametrize("qos", [1, 2])
    @pytest.mark.parametrize("version", [5, V311])
    @pytest.mark.parametrize("crashes", [False, True])
    def test_what_was_not_acknowledged_comes_again_in_order(
        self, qos: int, version: int, crashes: bool
    ) -> None:
        world = SimulatedBroker()
        client = subscribed(world, qos, version)
        publish(world, b"1", b"2", b"3", qos=qos)
        first = client.take(Publish)
        assert not any(packet.dup for packet in first)
        if crashes:
            world.crash()
        else:
            client.drop()
        client.come_back()
        again = client.take(Publish)
        assert all(packet.dup for packet in again)
        assert [(packet.packet_id, packet.payload) for packet in again] == [
            (packet.packet_id, packet.payload) for packet in first
        ]

    @pytest.mark.parametrize("crashes", [False, True])
    def test_what_was_received_is_released_again_and_not_sent_again(self, crashes: bool) -> None:
        world = SimulatedBroker()
        client = subscribed(world, 2)
        publish(world, b"1", b"2", qos=2)
        ids = [packet.packet_id for packet in client.take(Publish)]
        client.send(Pubrec(ids[0]))
        client.inbox.clear()
        if crashes:
            world.crash()
        else:
            client.drop()
        client.come_back()
        assert client.take(Pubrel) == [Pubrel(ids[0])]
        assert [packet.packet_id for packet in client.take(Publish)] == [ids[1]]
        client.send(Pubcomp(ids[0]))
        client.drop()
        client.come_back()
        assert client.take(Pubrel) == []

    def test_what_is_acknowledged_never_comes_again(self) -> None:
        world = SimulatedBroker()
        client = subscribed(world)
        publish(world, b"1", b"2")
        client.send(Puback(client.take(Publish)[0].packet_id))
        client.drop()
        client.come_back()
        assert client.payloads() == [b"2"]

    def test_nothing_is_sent_again_within_a_connection(self) -> None:
        world = SimulatedBroker()
        client = subscribed(world)
        publish(world, b"1")
        client.inbox.clear()
        world.advance(3_600)
        assert client.inbox == []

    @pytest.mark.parametrize("crashes", [False, True])
    def test_resends_keep_to_the_window_of_the_new_connection(self, crashes: bool) -> None:
        world = SimulatedBroker()
        client = subscribed(world)
        publish(world, *(b"%d" % n for n in range(5)))
        ids = [packet.packet_id for packet in client.take(Publish)]
        if crashes:
            world.crash()
        else:
            client.drop()
        narrow = Properties(receive_max=2, session_expiry_s=60)
        client.connect(clean_start=False, properties=narrow)
        came = []
        for _ in range(5):
            assert len(client.inbox) <= 2
            packet = client.inbox.pop(0)
            assert isinstance(packet, Publish)
            came.append(packet.packet_id)
            client.send(Puback(packet.packet_id))
        assert came == ids
        assert client.inbox == []

    def test_a_second_interruption_loses_no_resend(self) -> None:
        world = SimulatedBroker()
        client = subscribed(world)
        publish(world, b"1", b"2", b"3")
        client.drop()
        for _ in range(3):
            client.connect(
                clean_start=False, properties=Properties(receive_max=1, session_expiry_s=60)
            )
            assert client.payloads() == [b"1"]
            client.drop()
        client.come_back()
        assert [packet.payload for packet in client.take_all()] == [b"1", b"2", b"3"]

    def test_what_is_acknowledged_before_it_comes_again_does_not_come_again(self) -> None:
        world = SimulatedBroker()
        client = subscribed(world)
        publish(world, b"1", b"2", b"3")
        ids = [packet.packet_id for packet in client.take(Publish)]
        client.drop()
        narrow = Properties(receive_max=1, session_expiry_s=60)
        client.connect(clean_start=False, properties=narrow)
        client.send(Puback(ids[1]))
        assert client.payloads() == [b"1"]
        client.send(Puback(ids[0]))
        assert client.payloads() == [b"3"]

    def test_new_ones_come_after_those_that_come_again(self) -> None:
        world = SimulatedBroker()
        client = subscribed(world)
        publish(world, b"1", b"2")
        client.drop()
        publish(world, b"3")
        client.come_back()
        publish(world, b"4")
        assert [packet.payload for packet in client.take_all()] == [b"1", b"2", b"3", b"4"]

    def test_what_was_withdrawn_in_flight_is_still_finished_after_a_crash(self) -> None:
        """Otherwise the client would take a new publication for the old one's repetition."""
        world = SimulatedBroker()
        client = subscribed(world, 2)
        publisher = world.connect("publisher", expiry_s=60)
        publisher.publish("a", b"1", 2, id="one")
        packet_id = client.only(Publish).packet_id
        publisher.publish("$rove/unpublish", b"one", 1)
        client.send(Pubrec(packet_id))
        world.crash()
        client.come_back()
        assert client.only(Pubrel).packet_id == packet_id
        client.send(Pubcomp(packet_id))
        assert not {"queue", "publications"} & world.disk.sizes().keys()


class TestQueues:
    def test_what_comes_while_the_client_is_away_waits_in_order(self) -> None:
        world = SimulatedBroker()
        client = subscribed(world, 2)
        client.drop()
        publisher = world.connect("publisher")
        for n in range(10):
            publisher.publish("a", b"%d" % n, n % 2 + 1)
        world.crash()
        client.come_back()
        assert [packet.payload for packet in client.take_all()] == [b"%d" % n for n in range(10)]
        assert world.broker.counters.notifications_sent == 10

    def test_qos_0_does_not_wait_and_is_counted(self) -> None:
        world = SimulatedBroker()
        client = subscribed(world)
        client.drop()
        publish(world, b"1", qos=0)
        client.come_back()
        assert client.payloads() == []
        assert world.broker.counters.notifications_dropped_away == 1

    def test_drop_oldest_keeps_what_is_recent(self) -> None:
        world = SimulatedBroker(limits=Limits(queue_messages_max=3))
        client = subscribed(world)
        client.drop()
        publish(world, b"1", b"2", b"3", b"4", b"5")
        assert world.broker.counters.notifications_dropped_overflow == 2
        assert len(world.disk.read("queue", QueueRow)) == 3
        assert len(world.disk.read("publications", PublicationRow)) == 3
        client.come_back()
        assert [packet.payload for packet in client.take_all()] == [b"3", b"4", b"5"]

    def test_drop_newest_keeps_what_was_missed_first(self) -> None:
        limits = Limits(queue_messages_max=3, queue_overflow="drop-newest")
        world = SimulatedBroker(limits=limits)
        client = subscribed(world)
        client.drop()
        publish(world, b"1", b"2", b"3", b"4", b"5")
        assert world.broker.counters.notifications_dropped_overflow == 2
        client.come_back()
        assert [packet.payload for packet in client.take_all()] == [b"1", b"2", b"3"]

    @pytest.mark.parametrize(
        ("policy", "left"), [("drop-oldest", [b"33", b"44"]), ("drop-newest", [b"11", b"22"])]
    )
    def test_bytes_are_bounded_too(self, policy: str, left: list[bytes]) -> None:
        limits = Limits(queue_bytes_max=6, queue_overflow=policy)  # type: ignore[arg-type]
        world = SimulatedBroker(limits=limits)
        client = subscribed(world)
        client.drop()
        publish(world, b"11", b"22", b"33", b"44")
        assert world.broker.counters.notifications_dropped_overflow == 2
        client.come_back()
        assert [packet.payload for packet in client.take_all()] == left

    def test_what_is_in_flight_is_never_taken_back(self) -> None:
        world = SimulatedBroker(limits=Limits(queue_messages_max=1))
        client = subscribed(world, receive_max=2)
        publish(world, b"1", b"2", b"3", b"4")
        assert [packet.payload for packet in client.take_all()] == [b"1", b"2", b"4"]

    def test_overflow_of_one_queue_is_nothing_to_another(self) -> None:
        world = SimulatedBroker(limits=Limits(queue_messages_max=1))
        client = subscribed(world)
        client.drop()
        other = world.connect("other")
        other.subscribe("a", qos=1)
        publish(world, b"1", b"2", b"3")
        assert other.payloads() == [b"1", b"2", b"3"]

    def test_what_waited_for_too_long_is_dropped_and_counted(self) -> None:
        world = SimulatedBroker(limits=Limits(queue_age_s_max=100))
        client = subscribed(world)
        client.drop()
        publish(world, b"1")
        world.advance(50)
        publish(world, b"2")
        world.advance(60)
        client.come_back()
        assert [packet.payload for packet in client.take_all()] == [b"2"]
        assert world.broker.counters.notifications_dropped_expired == 1
        assert not {"queue", "publications"} & world.disk.sizes().keys()

    def test_what_is_too_old_makes_room_before_anything_else_does(self) -> None:
        world = SimulatedBroker(limits=Limits(queue_age_s_max=100, queue_messages_max=2))
        client = subscribed(world)
        client.drop()
        publish(world, b"1")
        world.advance(101)
        publish(world, b"2", b"3")
        assert world.broker.counters.notifications_dropped_overflow == 0
        client.come_back()
        assert [packet.payload for packet in client.take_all()] == [b"2", b"3"]

    @pytest.mark.parametrize("crashes", [False, True])
    def test_waiting_begins_when_it_is_queued_not_when_it_was_published(
        self, crashes: bool
    ) -> None:
        world = SimulatedBroker(limits=Limits(queue_age_s_max=100))
        world.connect("publisher").publish("a", b"old", 1, retain=True)
        world.advance(1_000)
        client = world.client()
        client.connect(expiry_s=60, properties=Properties(receive_max=1))
        client.subscribe("b", qos=1)
        client.publish("b", b"in the way", 1)
        client.subscribe("a", qos=1)
        if crashes:
            world.crash()
        else:
            client.drop()
        publish(world, b"new")
        client.come_back()
        came = [packet.payload for packet in client.take_all()]
        assert came == [b"in the way", b"old", b"new"]

    def test_a_withdrawn_copy_is_not_delivered(self) -> None:
        world = SimulatedBroker()
        client = subscribed(world)
        client.drop()
        publisher = world.connect("publisher")
        publisher.publish("a", b"1", 1, id="one")
        publisher.publish("a", b"2", 1, id="two")
        publisher.publish("$rove/unpublish", b"one", 1)
        world.crash()
        client.come_back()
        assert [packet.payload for packet in client.take_all()] == [b"2"]
        assert not {"queue", "publications"} & world.disk.sizes().keys()


class TestPace:
    def test_a_returning_client_is_not_flooded(self) -> None:
        world = SimulatedBroker(limits=Limits(replay_messages_per_s=100))
        client = subscribed(world)
        client.drop()
        publish(world, *(b"%d" % n for n in range(100)))
        client.come_back()
        came = [packet.payload for packet in client.take_all()]
        assert len(came) == 10
        world.advance(0.5)
        came += [packet.payload for packet in client.take_all()]
        assert 50 <= len(came) <= 65
        world.advance(1)
        came += [packet.payload for packet in client.take_all()]
        assert came == [b"%d" % n for n in range(100)]

    def test_what_is_new_queues_behind(self) -> None:
        world = SimulatedBroker(limits=Limits(replay_messages_per_s=100))
        client = subscribed(world)
        client.drop()
        publish(world, *(b"%d" % n for n in range(20)))
        client.come_back()
        publish(world, b"new")
        came = [packet.payload for packet in client.take_all()]
        assert b"new" not in came
        world.advance(1)
        came += [packet.payload for packet in client.take_all()]
        assert came == [b"%d" % n for n in range(20)] + [b"new"]

    def test_once_it_has_caught_up_nothing_is_paced(self) -> None:
        world = SimulatedBroker(limits=Limits(replay_messages_per_s=100))
        client = subscribed(world)
        client.drop()
        publish(world, b"1")
        client.come_back()
        publish(world, *(b"%d" % n for n in range(100)))
        assert len(client.payloads()) == 101

    def test_a_slow_pace_still_gets_there(self) -> None:
        world = SimulatedBroker(limits=Limits(replay_messages_per_s=1))
        client = subscribed(world)
        client.drop()
        publish(world, b"1", b"2", b"3")
        client.come_back()
        world.advance(3.5)
        assert [packet.payload for packet in client.take_all()] == [b"1", b"2", b"3"]

    def test_zero_is_as_fast_as_it_reads(self) -> None:
        world = SimulatedBroker(limits=Limits(replay_messages_per_s=0))
        client = subscribed(world)
        client.drop()
        publish(world, *(b"%d" % n for n in range(500)))
        client.come_back()
        assert len(client.payloads()) == 500

    def test_leaving_in_between_loses_nothing(self) -> None:
        world = SimulatedBroker(limits=Limits(replay_messages_per_s=100))
        client = subscribed(world)
        client.drop()
        publish(world, *(b"%d" % n for n in range(30)))
        came = []
        for _ in range(5):
            client.come_back()
            came += [packet.payload for packet in client.take_all()]
            client.drop()
        assert came == [b"%d" % n for n in range(30)]


class TestSlowConsumers:
    def test_qos_0_is_dropped_for_one_that_does_not_read_and_for_no_other(self) -> None:
        world = SimulatedBroker(limits=Limits(unsent_bytes_max=1_000))
        slow, quick = world.connect("slow"), world.connect("quick")
        for client in (slow, quick):
            client.subscribe("a", qos=1)
        assert slow.link is not None
        slow.link.buffered_bytes = 1_001
        publish(world, b"0", qos=0)
        publish(world, b"1", qos=1)
        assert slow.payloads() == [b"1"]
        assert quick.payloads() == [b"0", b"1"]
        assert world.broker.counters.notifications_dropped_slow == 1
        slow.link.buffered_bytes = 0
        publish(world, b"2", qos=0)
        assert slow.payloads() == [b"2"]

    def test_texts_make_no_difference(self) -> None:
        world = SimulatedBroker(limits=Limits(unsent_bytes_max=1_000))
        slow = world.connect("slow")
        slow.subscribe("a", filter="topic = 'a'")
        assert slow.link is not None
        slow.link.buffered_bytes = 1_001
        publish(world, b"0", qos=0)
        assert slow.payloads() == []
        assert world.broker.counters.notifications_dropped_slow == 1


class TestDisk:
    def test_what_is_acknowledged_leaves_nothing_behind(self) -> None:
        world = SimulatedBroker()
        client = subscribed(world, 2)
        publish(world, b"1", b"2", qos=2)
        publish(world, b"3", qos=1)
        assert world.disk.sizes()["queue"] == 3
        client.take_all()
        assert world.disk.sizes() == {"sessions": 1, "subscriptions": 1}

    def test_one_publication_for_many_is_kept_once(self) -> None:
        world = SimulatedBroker()
        for n in range(5):
            client = world.connect(f"client{n}", expiry_s=60)
            client.subscribe("a", qos=1)
            client.drop()
        publish(world, b"1")
        assert world.disk.sizes()["publications"] == 1
        assert world.disk.sizes()["queue"] == 5

    def test_sessions_that_end_with_their_connection_are_never_written(self) -> None:
        world = SimulatedBroker()
        client = world.connect(properties=Properties(receive_max=1))
        client.subscribe("a", qos=2)
        publish(world, b"1", b"2", qos=2)
        assert world.disk.sizes() == {}
        assert len(client.take_all()) == 2

    def test_nobody_hears_of_what_is_not_on_disk(self) -> None:
        world = SimulatedBroker()
        client = subscribed(world)
        world.holds_commits = True
        publish(world, b"1")
        assert client.payloads() == []
        world.commit()
        assert client.payloads() == [b"1"]

    def test_the_end_of_a_session_frees_what_waited_for_it(self) -> None:
        world = SimulatedBroker()
        client = subscribed(world, 2)
        publish(world, b"1", qos=2)
        client.publish("x", b"", 2)
        client.drop()
        publish(world, b"2", qos=2)
        client.connect(clean_start=True)
        assert world.disk.sizes() == {}
