"""What all parts share: the log of channels, notes, and the closing of connections."""

from rove.broker.access import AccessRules
from rove.broker.context import EXPIRED_MAX, BrokerSettings, ExpiredSession, LakeStream
from rove.broker.limits import Limits
from rove.broker.storage.records import LogRow
from rove.mqtt.packets import Disconnect, Properties, Reason, Will
from rove.testing.mqtt import SimulatedBroker


class TestChannels:
    SETTINGS = BrokerSettings(
        channels=(
            LakeStream("air", ("air/#",), frozenset(("publications", "notifications"))),
            LakeStream("zagreb", ("+/zagreb", "air/zagreb")),
        )
    )

    def rows(self, world: SimulatedBroker) -> list[LogRow]:
        return list(world.disk.read("log", LogRow).values())

    def test_a_publication_is_logged_once_for_each_channel_that_keeps_it(self) -> None:
        world = SimulatedBroker(settings=self.SETTINGS)
        client = world.connect()
        client.publish("air/zagreb", b"1", 1, unit="ug")
        client.publish("water/split", b"2", 1)
        rows = self.rows(world)
        assert sorted(row.channel for row in rows) == ["air", "zagreb"]
        for row in rows:
            assert (row.kind, row.topic, row.payload) == ("publications", "air/zagreb", b"1")
            assert (row.client_id, row.user, row.qos) == ("client", (("unit", "ug"),), 1)
            assert row.at == world.now

    def test_positions_count_up(self) -> None:
        world = SimulatedBroker(settings=self.SETTINGS)
        client = world.connect()
        for _ in range(3):
            client.publish("air/split", b"1")
        assert sorted(world.disk.tables["log"]) == [1, 2, 3]
        world.crash()
        world.connect().publish("air/split", b"1")
        assert sorted(world.disk.tables["log"]) == [1, 2, 3, 4]

    def test_a_notification_is_logged_with_what_it_met(self) -> None:
        world = SimulatedBroker(settings=self.SETTINGS)
        client = world.connect()
        client.subscribe("air/#", filter="x > 1")
        client.publish("air/split", b'{"x": 2}', id="seven")
        (row,) = (row for row in self.rows(world) if row.kind == "notifications")
        (number,) = (
            one.number for one in world.broker.context.sessions["client"].subscriptions.values()
        )
        assert (row.client_id, row.id, row.subscriptions) == ("client", "seven", (number,))

    def test_a_notification_of_a_subscription_without_a_text_is_logged_with_it_too(self) -> None:
        world = SimulatedBroker(settings=self.SETTINGS)
        client = world.connect()
        client.subscribe("air/#")
        client.publish("air/split", b"1")
        (row,) = (row for row in self.rows(world) if row.kind == "notifications")
        (number,) = (
            one.number for one in world.broker.context.sessions["client"].subscriptions.values()
        )
        assert row.subscriptions == (number,)

    def test_a_will_is_logged_as_any_publication(self) -> None:
        world = SimulatedBroker(settings=self.SETTINGS)
        world.connect(will=Will("air/split", b"gone")).drop()
        assert [row.payload for row in self.rows(world)] == [b"gone"]

    def test_a_refused_publication_is_not_logged(self) -> None:
        rules = AccessRules.parse("allow user * publish ok/#", "rules")
        world = SimulatedBroker(settings=self.SETTINGS, rules=rules)
        world.connect().publish("air/split", b"1", 1)
        assert self.rows(world) == []


class TestClosing:
    def test_a_client_of_version_5_is_told_why(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        assert client.link is not None
        world.broker.context.close(client.link, Reason.ADMINISTRATIVE_ACTION, "because")
        world.turn()
        goodbye = Disconnect(Reason.ADMINISTRATIVE_ACTION, Properties(reason_string="because"))
        assert client.inbox == [goodbye]
        assert client.is_closed()

    def test_it_is_told_once(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        assert client.link is not None
        for reason in (Reason.ADMINISTRATIVE_ACTION, Reason.SERVER_BUSY):
            world.broker.context.close(client.link, reason, "because")
        world.turn()
        assert [packet.reason for packet in client.take(Disconnect)] == [
            Reason.ADMINISTRATIVE_ACTION
        ]

    def test_a_disconnect_too_long_for_the_client_is_shortened(self) -> None:
        world = SimulatedBroker()
        client = world.connect(properties=Properties(packet_size_max=30))
        assert client.link is not None
        world.broker.context.close(client.link, Reason.ADMINISTRATIVE_ACTION, "because " * 10)
        world.turn()
        assert client.inbox == [Disconnect(Reason.ADMINISTRATIVE_ACTION)]


def test_notes_are_handed_out_once() -> None:
    world = SimulatedBroker()
    world.broker.context.note("info", "something", where="here")
    (note,) = world.broker.end_turn(world.now).notes
    assert (note.level, note.event, note.facts) == ("info", "something", {"where": "here"})
    assert world.broker.end_turn(world.now).notes == []


def test_a_delay_of_a_will_is_bounded() -> None:
    context = SimulatedBroker(limits=Limits(will_delay_s_max=5)).broker.context
    assert context.will_delay_s(Will("a", b"")) == 0
    assert context.will_delay_s(Will("a", b"", properties=Properties(will_delay_s=3))) == 3
    assert context.will_delay_s(Will("a", b"", properties=Properties(will_delay_s=9))) == 5


class TestExpiredSessions:
    def test_what_was_lost_with_them_is_counted_and_remembered(self) -> None:
        world = SimulatedBroker()
        away = world.connect("away", expiry_s=60, user="alice")
        away.subscribe("a", qos=1)
        away.drop()
        publisher = world.connect("other")
        publisher.publish("a", b"1", 1)
        publisher.publish("a", b"2", 1)
        assert list(world.broker.view.expired) == []
        world.advance(60)
        expected = ExpiredSession("away", "alice", world.now, 60, 2)
        assert list(world.broker.view.expired) == [expected]
        counters = world.broker.counters
        assert (counters.sessions_expired, counters.notifications_dropped_session) == (1, 2)
        (note,) = [note for note in world.notes if note.event == "session expired"]
        assert (note.level, note.facts["dropped"]) == ("warning", 2)

    def test_the_last_are_remembered(self) -> None:
        world = SimulatedBroker()
        for number in range(EXPIRED_MAX + 5):
            world.connect(f"c{number}", expiry_s=1).drop()
        world.advance(1)
        assert len(world.broker.view.expired) == EXPIRED_MAX
        assert world.broker.view.expired[-1].client == f"c{EXPIRED_MAX + 4}"

    def test_a_session_that_was_ended_on_purpose_is_none(self) -> None:
        world = SimulatedBroker()
        world.connect("client", expiry_s=60).drop()
        world.connect("client", clean_start=True).disconnect()
        assert not world.broker.view.expired
