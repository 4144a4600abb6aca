"""Topic aliases towards clients: a topic in full once, then its number, when that is known."""

import random

from rove.broker.limits import Limits
from rove.broker.sessions.aliases import Aliases, Written
from rove.mqtt.packets import Properties, Puback, Publish
from rove.testing.mqtt import SimulatedBroker, SimulatedClient


def connected(
    world: SimulatedBroker, count_max: int, *, expiry_s: int = 0, packet_size_max: int | None = None
) -> SimulatedClient:
    """A client that takes so many aliases, and wants everything."""
    client = world.client()
    wishes = Properties(topic_alias_max=count_max, packet_size_max=packet_size_max)
    client.connect(expiry_s=expiry_s, properties=wishes)
    client.subscribe("#", qos=2)
    return client


def written(client: SimulatedClient) -> list[tuple[str, int | None]]:
    """How topics were written in what came."""
    return [(packet.topic, packet.properties.topic_alias) for packet in client.take(Publish)]


class TestAliases:
    def test_a_topic_is_written_in_full_until_it_was_told(self) -> None:
        aliases = Aliases(2)
        first = aliases.written("a", waits=False)
        assert first == Written("a", 1) == aliases.written("a", waits=False)
        aliases.told("a", first, waits=False)
        assert aliases.written("a", waits=False) == Written("", 1)
        assert aliases.written("b", waits=False) == Written("b", 2)

    def test_when_all_numbers_are_given_topics_stay_in_full(self) -> None:
        aliases = Aliases(1)
        aliases.told("a", aliases.written("a", waits=False), waits=False)
        assert aliases.written("b", waits=False) == Written("b", None)
        aliases.told("b", Written("b", None), waits=False)
        assert aliases.written("b", waits=False) == Written("b", None)

    def test_what_waits_is_relied_upon_only_by_what_waits_behind_it(self) -> None:
        aliases = Aliases(1)
        aliases.told("a", aliases.written("a", waits=True), waits=True)
        assert aliases.written("a", waits=True) == Written("", 1)
        assert aliases.written("a", waits=False) == Written("a", 1)


def test_a_client_that_takes_aliases_is_sent_a_topic_once() -> None:
    world = SimulatedBroker()
    client = connected(world, 1)
    for qos in (0, 1, 2):
        client.publish("a", b"", qos)
    client.publish("b", b"")
    assert written(client) == [("a", 1), ("", 1), ("", 1), ("b", None)]


def test_one_that_takes_none_is_sent_none() -> None:
    world = SimulatedBroker()
    for properties in (Properties(), Properties(topic_alias_max=0)):
        client = world.client()
        client.connect(properties=properties)
        client.subscribe("#")
        client.publish("a")
        client.publish("a")
        assert written(client) == [("a", None), ("a", None)]


def test_they_begin_anew_with_every_connection() -> None:
    world = SimulatedBroker()
    client = connected(world, 5, expiry_s=60)
    client.publish("a")
    assert written(client) == [("a", 1)]
    client.drop()
    client.connect(clean_start=False, properties=Properties(topic_alias_max=5, session_expiry_s=60))
    client.publish("a")
    assert written(client) == [("a", 1)]


def test_what_is_sent_again_has_its_topic() -> None:
    world = SimulatedBroker()
    client = connected(world, 5, expiry_s=60)
    for _ in range(2):
        client.publish("a", b"", 1)
    assert written(client) == [("a", 1), ("", 1)]
    client.drop()
    client.connect(clean_start=False, properties=Properties(topic_alias_max=5, session_expiry_s=60))
    assert written(client) == [("a", None), ("a", None)]


def test_a_packet_that_was_too_large_has_told_nothing() -> None:
    world = SimulatedBroker()
    client = connected(world, 5, packet_size_max=50)
    client.publish("a", bytes(100))
    client.publish("a", b"small")
    assert written(client) == [("a", 1)]


def test_there_are_no_more_than_the_limit_allows() -> None:
    world = SimulatedBroker(limits=Limits(topic_alias_max=1))
    client = connected(world, 65_535)
    for topic in ("a", "b", "b"):
        client.publish(topic)
    assert written(client) == [("a", 1), ("b", None), ("b", None)]


def test_no_number_is_used_before_its_topic_has_come() -> None:
    """However QoS 0 and what waits for commits overtake each other."""
    for seed in range(50):
        rng = random.Random(seed)
        world = SimulatedBroker()
        client = connected(world, 3, expiry_s=60)
        publisher = world.connect("publisher")
        publisher.publish("kept", b"kept", retain=True)
        world.holds_commits = True
        known: dict[int, str] = {}
        for number in range(1, 60):
            qos = rng.randrange(3)
            topic = rng.choice("abcd")
            publisher.say(Publish(topic, topic.encode(), qos, packet_id=number if qos else 0))
            if rng.random() < 0.05:
                client.send_subscribe("kept")
            if rng.random() < 0.7:
                world.turn()
            if rng.random() < 0.3:
                world.commit(1)
            for packet in client.take(Publish):
                if packet.topic and packet.properties.topic_alias is not None:
                    known[packet.properties.topic_alias] = packet.topic
                heard = packet.topic or known[packet.properties.topic_alias or 0]
                assert heard.encode() == packet.payload
                if packet.qos == 1:
                    client.say(Puback(packet.packet_id))
