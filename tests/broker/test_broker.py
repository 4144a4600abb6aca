"""The broker as a whole: turns, time, pressure and the end."""

import math
import random
import sys
from collections.abc import Callable
from types import FrameType

import pytest

from rove.broker.access import Rules
from rove.broker.context import LakeStream, Settings
from rove.broker.limits import Limits
from rove.broker.sessions.pressure import STUCK_LATELY_S, STUCK_S
from rove.mqtt.encoder import encode
from rove.mqtt.packets import (
    V5,
    V311,
    Connect,
    Disconnect,
    Filter,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
    Subscribe,
    Unsubscribe,
    Will,
)
from rove.testing.mqtt import START, SimulatedBroker, SimulatedClient
from tests.effort import some


def is_paused(client: SimulatedClient) -> bool:
    """Whether the broker wants nothing to be read from it."""
    assert client.link is not None
    return client.link.is_paused


class TestThrottling:
    def test_a_client_that_is_too_fast_is_not_read_from_for_a_while(self) -> None:
        world = SimulatedBroker(limits=Limits(publish_per_s_max=10))
        client = world.connect()
        client.send(*(Publish("a", b"") for _ in range(10)))
        assert not is_paused(client)
        client.send(*(Publish("a", b"") for _ in range(5)))
        assert is_paused(client)
        world.advance(0.4)
        assert is_paused(client)
        world.advance(0.2)
        assert not is_paused(client)

    def test_a_client_that_keeps_to_its_rate_is_never_paused(self) -> None:
        world = SimulatedBroker(limits=Limits(publish_per_s_max=10))
        client = world.connect()
        for _ in range(50):
            client.publish("a", b"")
            assert not is_paused(client)
            world.advance(0.11)

    def test_nothing_is_lost(self) -> None:
        world = SimulatedBroker(limits=Limits(publish_per_s_max=1))
        client = world.connect()
        client.subscribe("a")
        client.send(*(Publish("a", b"%d" % n) for n in range(30)))
        assert client.payloads() == [b"%d" % n for n in range(30)]

    def test_others_are_not_held_up(self) -> None:
        world = SimulatedBroker(limits=Limits(publish_per_s_max=1))
        fast, other = world.connect("fast"), world.connect("other")
        fast.send(*(Publish("a", b"") for _ in range(5)))
        assert is_paused(fast)
        assert not is_paused(other)


def goodbye(client: SimulatedClient) -> Disconnect:
    """What the broker said last, before it closed the connection."""
    assert client.is_closed()
    last = client.inbox[-1]
    assert isinstance(last, Disconnect)
    return last


class TestKeepAlive:
    def test_silence_for_one_and_a_half_times_the_keep_alive_closes(self) -> None:
        world = SimulatedBroker()
        client = world.connect(keep_alive_s=10)
        world.advance(14.9)
        assert not client.is_closed()
        world.advance(0.2)
        assert goodbye(client).reason == Reason.KEEP_ALIVE_TIMEOUT
        assert world.broker.counters.keep_alive_timeouts == 1

    @pytest.mark.parametrize("keep_alive_s", [1, 2, 60])
    def test_a_keep_alive_holds_whether_short_or_long(self, keep_alive_s: int) -> None:
        world = SimulatedBroker()
        client = world.connect(keep_alive_s=keep_alive_s)
        world.advance(keep_alive_s * 1.5 - 0.1)
        assert not client.is_closed()
        world.advance(0.2)
        assert client.is_closed()

    def test_whatever_is_heard_counts_as_a_sign_of_life(self) -> None:
        world = SimulatedBroker()
        client = world.connect(keep_alive_s=10)
        for _ in range(5):
            world.advance(9)
            client.publish("a")
        assert not client.is_closed()

    def test_a_ping_is_answered(self) -> None:
        for version in (V311, V5):
            client = SimulatedBroker().connect(version=version)
            client.send(Pingreq())
            assert client.inbox == [Pingresp()]

    def test_zero_turns_it_off(self) -> None:
        world = SimulatedBroker()
        client = world.connect(keep_alive_s=0)
        world.advance(1_000_000)
        assert not client.is_closed()

    def test_a_longer_one_than_allowed_is_told_and_held_to(self) -> None:
        world = SimulatedBroker(limits=Limits(keep_alive_s_max=100))
        client = world.client()
        assert client.connect(keep_alive_s=500).properties.server_keep_alive_s == 100
        world.advance(151)
        assert client.is_closed()

    def test_none_at_all_is_longer_than_allowed(self) -> None:
        world = SimulatedBroker(limits=Limits(keep_alive_s_max=100))
        client = world.client()
        assert client.connect(keep_alive_s=0).properties.server_keep_alive_s == 100
        world.advance(151)
        assert client.is_closed()

    def test_an_allowed_one_is_not_repeated(self) -> None:
        world = SimulatedBroker(limits=Limits(keep_alive_s_max=100))
        assert world.client().connect(keep_alive_s=100).properties.server_keep_alive_s is None

    def test_a_3_1_1_client_cannot_be_told_and_keeps_its_own(self) -> None:
        world = SimulatedBroker(limits=Limits(keep_alive_s_max=100))
        client = world.connect(keep_alive_s=500, version=V311)
        world.advance(700)
        assert not client.is_closed()
        world.advance(51)
        assert client.is_closed()

    def test_a_3_1_1_client_is_closed_without_a_word(self) -> None:
        world = SimulatedBroker()
        client = world.connect(keep_alive_s=10, version=V311)
        world.advance(15.1)
        assert client.is_closed()
        assert client.inbox == []


class TestPressure:
    def test_a_backlog_of_the_disk_pauses_publishers_until_it_has_gone(self) -> None:
        world = SimulatedBroker(limits=Limits(commit_backlog_bytes_max=1_000))
        world.broker.backlog_bytes = 1_001
        world.turn()
        assert world.broker.is_paused
        assert world.broker.counters.publishers_paused == 1
        world.broker.backlog_bytes = 900
        world.turn()
        assert world.broker.is_paused, "it must not flicker"
        world.broker.backlog_bytes = 400
        world.turn()
        assert not world.broker.is_paused

    def test_memory_pauses_publishers_too(self) -> None:
        limits = Limits(memory_bytes_high=1_000, memory_bytes_low=800)
        world = SimulatedBroker(limits=limits)
        world.broker.backlog_bytes = 1_001
        world.turn()
        assert world.broker.is_paused
        world.broker.backlog_bytes = 400
        world.turn()
        assert not world.broker.is_paused

    def test_what_waits_for_a_commit_counts(self) -> None:
        world = SimulatedBroker(limits=Limits(commit_backlog_bytes_max=1_000))
        client = world.connect(expiry_s=60)
        client.subscribe("a", qos=1)
        world.holds_commits = True
        client.publish("a", bytes(2_000), 1)
        world.turn()
        assert world.broker.is_paused
        world.commit()
        assert not world.broker.is_paused

    def test_one_slow_receiver_of_many_pauses_nobody(self) -> None:
        world = SimulatedBroker()
        slow, *_ = (world.connect(f"client{n}") for n in range(5))
        assert slow.link is not None
        world.broker.stuck(slow.link, world.now)
        world.turn()
        assert not world.broker.is_paused

    def test_if_most_receivers_are_slow_publishers_wait_but_not_for_long(self) -> None:
        world = SimulatedBroker()
        links = [world.connect(f"client{n}").link for n in range(4)]
        for link in links[:2]:
            assert link is not None
            world.broker.stuck(link, world.now)
        world.turn()
        assert world.broker.is_paused
        world.advance(STUCK_S + 0.1)
        assert not world.broker.is_paused

    def test_several_that_get_stuck_at_once_pause_publishers_for_a_moment(self) -> None:
        world = SimulatedBroker()
        links = [world.connect(f"client{n}").link for n in range(40)]
        for link in links[:2]:
            assert link is not None
            world.broker.stuck(link, world.now)
        world.turn()
        assert world.broker.is_paused
        world.advance(STUCK_LATELY_S + 0.01)
        assert not world.broker.is_paused

    def test_it_can_be_judged_between_turns(self) -> None:
        world = SimulatedBroker()
        link = world.connect().link
        assert link is not None
        world.broker.stuck(link, world.now)
        world.broker.judge_pressure()
        assert world.broker.is_paused

    def test_they_go_on_as_soon_as_the_receivers_do(self) -> None:
        world = SimulatedBroker()
        link = world.connect().link
        assert link is not None
        world.broker.stuck(link, world.now)
        world.turn()
        assert world.broker.is_paused
        world.broker.unstuck(link, world.now)
        world.turn()
        assert not world.broker.is_paused

    def test_one_that_takes_nothing_for_too_long_is_given_up_and_its_session_stays(self) -> None:
        world = SimulatedBroker(limits=Limits(unsent_disconnect_s=10))
        client = world.connect(expiry_s=60)
        link = client.link
        assert link is not None
        link.buffered_bytes = 100
        world.broker.stuck(link, world.now)
        world.advance(9.9)
        assert not client.is_closed()
        world.broker.tick(world.now + 0.2)
        assert world.broker.is_given_up(link)
        world.turn()
        assert client.is_closed()
        assert world.broker.counters.slow_disconnected == 1
        assert client.come_back().session_present

    def test_one_that_takes_a_little_is_not_given_up(self) -> None:
        world = SimulatedBroker(limits=Limits(unsent_disconnect_s=10))
        client = world.connect()
        link = client.link
        assert link is not None
        link.buffered_bytes = 100
        world.broker.stuck(link, world.now)
        for left in (90, 80, 70):
            world.advance(8)
            link.buffered_bytes = left
        world.advance(5)
        assert not client.is_closed()


class TestTurns:
    def test_a_turn_without_anything_has_nothing_to_do(self) -> None:
        world = SimulatedBroker()
        assert not world.broker.has_work
        output = world.broker.end_turn(world.now)
        assert (output.ready, output.changes, output.authentications) == ([], None, [])

    def test_there_is_work_when_something_came(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        assert not world.broker.has_work
        client.say(Publish("a", b""))
        assert world.broker.has_work

    def test_bytes_may_come_in_any_pieces(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("a")
        for byte in encode(Publish("a", b"payload", 1, packet_id=3)):
            client.send_bytes(bytes((byte,)))
        assert client.payloads() == [b"payload"]
        assert client.only(Puback).packet_id == 3
        assert world.broker.counters.bytes_received > 0

    def test_nothing_is_heard_of_one_who_has_gone(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.drop()
        assert client.link is not None
        world.broker.closed(client.link, world.now)
        client.say(Publish("a", b""))
        world.turn()
        assert world.broker.counters.publications_received == 0

    def test_a_broken_packet_is_counted_and_told(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.send_bytes(b"\x00\x00")
        assert client.only(Disconnect).reason == Reason.MALFORMED_PACKET
        assert world.broker.counters.packets_malformed == 1
        assert "malformed packet" in [note.event for note in world.notes]


class TestTime:
    def test_it_never_runs_back(self) -> None:
        world = SimulatedBroker()
        world.advance(10)
        world.broker.tick(world.now - 5)
        assert world.broker.context.now == world.now

    def test_without_anything_to_wait_for_no_tick_is_needed(self) -> None:
        assert SimulatedBroker().broker.next_tick_at() == math.inf

    def test_the_next_tick_is_when_something_is_due(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=60, keep_alive_s=100)
        world.advance(11)
        assert world.broker.next_tick_at() == START + 150
        client.publish("a", b"1", 1, valid_for="5")
        assert world.broker.next_tick_at() == START + 16
        world.advance(6)
        client.disconnect()
        world.advance(0)
        assert START + 17 < world.broker.next_tick_at() <= START + 17 + 60

    def test_ticks_of_connections_that_came_and_went_do_not_pile_up(self) -> None:
        world = SimulatedBroker(limits=Limits(connect_timeout_s=10))
        for _ in range(50):
            client = world.connect(keep_alive_s=60)
            client.drop()
        world.advance(100)
        assert world.broker.next_tick_at() == math.inf


class TestShutDown:
    def test_everybody_is_told_and_sessions_stay(self) -> None:
        world = SimulatedBroker()
        stays = world.connect("stays", expiry_s=60)
        goes = world.connect("goes")
        old = world.connect("old", version=V311)
        nobody = world.client("nobody")
        nobody.open()
        world.broker.shut_down(world.now)
        world.turn()
        for client in (stays, goes):
            assert client.only(Disconnect).reason == Reason.SERVER_SHUTTING_DOWN
        assert old.inbox == nobody.inbox == []
        assert all(client.is_closed() for client in (stays, goes, old, nobody))
        assert set(world.broker.context.sessions) == {"stays"}
        world.crash()
        assert stays.come_back().session_present


class TestReconfiguration:
    def test_other_limits_hold_at_once(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("a")
        limits = Limits(subscriptions_per_session_max=1, retained_messages_max=1)
        world.broker.reconfigure(limits, Rules.without_file(), False)
        assert client.subscribe("b").reasons == (Reason.QUOTA_EXCEEDED,)
        client.publish("r/1", b"1", 1, retain=True)
        client.publish("r/2", b"2", 1, retain=True)
        assert [packet.reason for packet in client.take(Puback)][1] == Reason.QUOTA_EXCEEDED

    def test_other_rules_hold_for_subscriptions_that_are_there(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("#")
        rules = Rules.parse("allow user * publish #\nallow user * subscribe open/#", "rules")
        world.broker.reconfigure(Limits(), rules, True)
        client.publish("secret", b"1")
        client.publish("open/a", b"2")
        assert client.payloads() == [b"2"]


class TestIndex:
    def test_a_saved_index_gives_the_same_broker(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=60)
        client.subscribe("a", qos=1, identifier=1, filter="x > 1")
        client.subscribe("a", qos=1, identifier=2, filter="x > me.x")
        client.publish("$rove/me", b'{"x": 5}', 1)
        index = world.broker.saved_index()
        client.subscribe("a", qos=1, identifier=3, filter="x > 3")
        client.unsubscribe("a", identifier=1)
        client.publish("$rove/me", b'{"x": 3}', 1)
        world.crash(index)
        client.come_back()
        client.publish("a", b'{"x": 4}', 1)
        assert set(client.only(Publish).properties.subscription_ids) == {2, 3}

    def test_what_is_no_index_is_named_and_built_anew(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=60)
        client.subscribe("a", qos=1, filter="x > 1")
        saved = world.broker.saved_index()
        assert saved is not None
        for index in (b"", b"nonsense" * 1_000, saved[:5_000]):
            world.crash(index)
            assert world.notes[-1].event == "index built anew"
            client.come_back()
            client.publish("a", b'{"x": 2}', 1)
            assert [packet.payload for packet in client.take_all()] == [b'{"x": 2}']

    def test_merging_beside_changes_nothing(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        for number in range(1, 300):
            client.subscribe("a", identifier=number, filter=f"x = {number}")
        while (work := world.broker.merge_due()) is not None:
            finished = work.run()
            world.broker.install(finished)
        client.publish("a", b'{"x": 123}')
        assert client.only(Publish).properties.subscription_ids == (123,)


class Nonsense:
    """Clients that send anything at all, in any order, to a broker with small limits."""

    LIMITS = Limits(
        receive_max=3, inflight_max=2, queue_messages_max=5, retained_messages_max=3,
        valid_publications_max=3, sessions_max=6, connections_max=8, topic_alias_max=2,
        subscriptions_per_session_max=5, state_variables_max=2, keep_alive_s_max=100,
        session_expiry_s_max=30, packet_bytes_max=1_024, replay_messages_per_s=50,
        publish_per_s_max=20, queue_age_s_max=10,
    )  # fmt: skip
    TOPICS = ("a",) * 20 + ("a/b",) * 10 + ("$rove/me", "$rove/unpublish", "$SYS/x", "/", "")
    FILTERS = ("a", "a/#", "+", "#", "$share/g/a", "$share/g/#", "a/#/b", "$share//x", "a?x > 1")
    TEXTS = (
        "x >= 1", "x >", "x > me.x - t", "SELECT x", "ORDER BY x LIMIT 1 WITHIN 1 SECOND",
        "x = 1 ORDER BY me.x - x LIMIT 2 WITHIN 3 PUBLICATIONS", "t > 3",
    )  # fmt: skip
    PAYLOADS = (b"", b"1", b"{}", b'{"x": 1}', b'{"x": 5, "id": "1"}', b'{"x": null}', b"\xff")

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        settings = Settings(
            topic_text=True,
            channels=(
                LakeStream("c", ("#", "$rove/#"), frozenset(("publications", "notifications"))),
            ),
        )
        self.world = SimulatedBroker(limits=self.LIMITS, settings=settings)
        self.clients = [
            self.world.client(f"client{n % 5}", self.rng.choice((V311, V5))) for n in range(6)
        ]

    def step(self) -> None:
        rng, world = self.rng, self.world
        client = rng.choice(self.clients)
        what = rng.random()
        if client.is_closed():
            self.connect(client)
        elif what < 0.85:
            data = encode(self.packet(), client.version)
            if rng.random() < 0.01:
                at = rng.randrange(len(data))
                data = data[:at] + bytes((rng.randrange(256),)) + data[at + 1 :]
            client.say(data)
        elif what < 0.89:
            client.drop()
        elif what < 0.95:
            world.advance(rng.choice((0.01, 0.1, 0.5, 5, 5, 40)))
        elif what < 0.96:
            world.crash()
        else:
            world.holds_commits = not world.holds_commits
            world.commit()
        if rng.random() < 0.5:
            world.turn()

    def connect(self, client: SimulatedClient) -> None:
        rng = self.rng
        will = None
        if rng.random() < 0.3:
            delay = Properties(will_delay_s=rng.choice((None, 0, 3)))
            will = Will(rng.choice(("a", "$x")), b"{}", rng.randrange(3), properties=delay)
        properties = Properties(
            receive_max=rng.choice((None, 1, 2)),
            packet_size_max=rng.choice((None, None, None, 25)),
            session_expiry_s=rng.choice((None, 5, 1_000)),
            request_problem_information=rng.choice((None, 0, 1)),
            authentication_method=rng.choice((None,) * 30 + ("x",)),
        )
        client.send_connect(
            clean_start=rng.random() < 0.5,
            keep_alive_s=rng.choice((0, 20)),
            will=will,
            properties=properties,
        )

    def packet(self) -> Packet:
        rng = self.rng
        packet_id = rng.randrange(1, 5)
        reason = rng.choice((0, 0, 0, Reason.UNSPECIFIED_ERROR))
        makers: tuple[Callable[[], Packet], ...] = (
            self.publication,
            self.publication,
            self.publication,
            self.subscription,
            lambda: Unsubscribe(packet_id, (rng.choice(self.FILTERS),)),
            lambda: Puback(packet_id, reason),
            lambda: Pubrec(packet_id, reason),
            lambda: Pubrel(packet_id),
            lambda: Pubcomp(packet_id),
            Pingreq,
            lambda: Disconnect(
                rng.choice((0, 4)), Properties(session_expiry_s=rng.choice((None, 0, 9)))
            ),
            lambda: Connect("client0"),
        )
        weights = [40] * (len(makers) - 2) + [3, 1]
        return rng.choices(makers, weights)[0]()

    def publication(self) -> Publish:
        rng = self.rng
        qos = rng.randrange(3)
        user = [("id", str(rng.randrange(3)))] * rng.randrange(2)
        if rng.random() < 0.3:
            user.append(("valid-for", rng.choice(("1", "forever", "x"))))
        properties = Properties(
            user=tuple(user),
            message_expiry_s=rng.choice((None, None, 0, 1, 20)),
            topic_alias=rng.choice((None,) * 30 + (1, 2, 3)),
        )
        topic = rng.choice(self.TOPICS)
        return Publish(
            topic, rng.choice(self.PAYLOADS), qos, rng.random() < 0.3,
            bool(qos) and rng.random() < 0.3, rng.randrange(1, 6) if qos else 0, properties,
        )  # fmt: skip

    def subscription(self) -> Subscribe:
        rng = self.rng
        user = []
        if rng.random() < 0.6:
            user.append(("filter", rng.choice(self.TEXTS)))
        if rng.random() < 0.2:
            user.append(("evolve", rng.choice(("exact", "lees", "pes 1s", "clees 1s", "x"))))
        ids = (rng.randrange(1, 4),) * rng.randrange(2)
        topic_filter = rng.choice(self.FILTERS)
        no_local = not topic_filter.startswith("$share") and rng.random() < 0.3
        asked = Filter(topic_filter, rng.randrange(3), no_local, False, rng.randrange(3))
        return Subscribe(
            rng.randrange(1, 5), (asked,), Properties(tuple(user), subscription_ids=ids)
        )


@pytest.mark.parametrize("part", some(range(5), 2))
def test_nobody_can_upset_the_broker(part: int) -> None:
    """No exception, no session of a closed connection, and others are served as ever."""
    for seed in range(part, 100, 5):
        nonsense = Nonsense(seed)
        world = nonsense.world
        for _ in range(150):
            nonsense.step()
            for session in world.broker.context.sessions.values():
                assert session.link is None or not session.link.closing
        world.holds_commits = False
        world.commit()
        for client in nonsense.clients:
            if not client.is_closed():
                client.drop()
        world.advance(1_000)
        assert world.broker.context.sessions == {}
        assert len(world.broker.router) == 0
        assert not {"sessions", "subscriptions", "queue", "received"} & world.disk.sizes().keys()
        client = world.connect("sane")
        client.subscribe(Filter("a/#", retain_handling=2), filter="sane = 1")
        client.publish("a", b'{"sane": 1}')
        assert client.take(Publish)[-1].payload == b'{"sane": 1}'


@pytest.mark.parametrize(
    "body",
    [
        b"\0\x04MQTT\x04",
        b"\0\x04MQTT\x04\x02\0",
        b"\0\x04MQTT\x04\x02\0\0",
        b"\0\x04MQTT\x04\x02\0\0\0\x09abc",
        b"\0\x04MQTT\x04\x02\0\0\0\x03abcd",
        b"\0\x04MQTT\x04\x02\0\0\0\x02\xff\xfe",
        b"\0\x04MQTT\x04\x02\0\0\0\x01\0",
        b"\0\x04MQTT\x04\x03\0\0\0\x03abc",
        b"\0\x04MQTT\x04\x0a\0\0\0\x03abc",
        b"\0\x04MQTT\x04\x22\0\0\0\x03abc",
        b"\0\x04MQTT\x04\x1e\0\0\0\x03abc\0\x01t\0\x01p",
        b"\0\x04MQTT\x04\x06\0\0\0\x03abc\0\x01t",
        b"\0\x04MQTT\x04\x06\0\0\0\x03abc\0\x01#\0\x01p",
        b"\0\x04MQTT\x04\x42\0\0\0\x03abc\0\x01p",
        b"\0\x04MQTT\x04\x82\0\0\0\x03abc",
    ],
)
def test_a_connect_of_3_1_1_that_cannot_be_read_is_closed_without_an_answer(body: bytes) -> None:
    client = SimulatedBroker().client(version=V311)
    client.open()
    client.send_bytes(b"\x10" + bytes([len(body)]) + body)
    assert client.is_closed()
    assert client.inbox == []


def calls_per_publication(count: int, qos: int) -> float:
    """How many functions the broker calls for each of so many publications in one turn."""
    world = SimulatedBroker()
    publisher, subscriber = world.connect("publisher"), world.connect("subscriber")
    subscriber.subscribe("a", qos=qos)
    broker, link, calls = world.broker, publisher.link, 0
    assert link is not None

    def counted(_frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call"

    for _ in range(2):
        # The last time counts: who wants the topic is known then.
        ids = range(1, count + 1) if qos else [0] * count
        data = b"".join(encode(Publish("a", b"x", qos, packet_id=id)) for id in ids)
        calls = 0
        sys.setprofile(counted)
        try:
            broker.received(link, data, world.now)
            assert broker.has_work
            output = broker.end_turn(world.now)
            broker.next_tick_at()
        finally:
            sys.setprofile(None)
        assert subscriber.link in output.ready
        for one in output.ready:
            one.out.clear()
    return calls / count


@pytest.mark.parametrize(
    ("qos", "count", "calls_max"), [(0, 1, 63), (0, 50, 18), (1, 1, 74), (1, 50, 28)]
)
def test_a_publication_takes_few_calls(qos: int, count: int, calls_max: int) -> None:
    """Each call takes 50 to 100 ns, and every publication pays for it."""
    assert calls_per_publication(count, qos) <= calls_max
