"""What all parts share: the log of channels, notes, and the closing of connections."""

from rove.broker.access import Rules
from rove.broker.records import LogRow
from rove.broker.state import Channel, Settings
from rove.mqtt.packets import (
    Will,
)
from rove.testing.mqtt import World


class TestChannels:
    SETTINGS = Settings(
        channels=(
            Channel("air", ("air/#",), frozenset(("publications", "notifications"))),
            Channel("zagreb", ("+/zagreb", "air/zagreb")),
        )
    )

    def rows(self, world: World) -> list[LogRow]:
        return list(world.disk.read("log", LogRow).values())

    def test_a_publication_is_logged_once_for_each_channel_that_keeps_it(self) -> None:
        world = World(settings=self.SETTINGS)
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
        world = World(settings=self.SETTINGS)
        client = world.connect()
        for _ in range(3):
            client.publish("air/split", b"1")
        assert sorted(world.disk.tables["log"]) == [1, 2, 3]
        world.crash()
        world.connect().publish("air/split", b"1")
        assert sorted(world.disk.tables["log"]) == [1, 2, 3, 4]

    def test_a_notification_is_logged_with_what_it_met(self) -> None:
        world = World(settings=self.SETTINGS)
        client = world.connect()
        client.subscribe("air/#", filter="x > 1")
        client.publish("air/split", b'{"x": 2}', id="seven")
        (row,) = (row for row in self.rows(world) if row.kind == "notifications")
        (number,) = (
            one.number for one in world.broker.state.sessions["client"].subscriptions.values()
        )
        assert (row.client_id, row.id, row.subscriptions) == ("client", "seven", (number,))

    def test_a_notification_of_a_subscription_without_a_text_is_logged_with_it_too(self) -> None:
        world = World(settings=self.SETTINGS)
        client = world.connect()
        client.subscribe("air/#")
        client.publish("air/split", b"1")
        (row,) = (row for row in self.rows(world) if row.kind == "notifications")
        (number,) = (
            one.number for one in world.broker.state.sessions["client"].subscriptions.values()
        )
        assert row.subscriptions == (number,)

    def test_a_will_is_logged_as_any_publication(self) -> None:
        world = World(settings=self.SETTINGS)
        world.connect(will=Will("air/split", b"gone")).drop()
        assert [row.payload for row in self.rows(world)] == [b"gone"]

    def test_a_refused_publication_is_not_logged(self) -> None:
        rules = Rules.parse("allow user * publish ok/#", "rules")
        world = World(settings=self.SETTINGS, rules=rules)
        world.connect().publish("air/split", b"1", 1)
        assert self.rows(world) == []
