"""Networks of whole brokers: any client at any broker, as if there were one."""

from __future__ import annotations

import json
import random
from typing import cast

import pytest

from rove.mesh.interest.summary import Covering
from rove.mqtt.packets import Puback
from rove.testing.mqtt import SimulatedClient
from rove.testing.network import NetworkBroker, SimulatedNetwork
from tests.effort import share

COVERINGS: tuple[Covering, ...] = ("off", "lazy", "active", "merged")


def line(covering: Covering = "merged", clock_s: float = 3.0) -> SimulatedNetwork:
    """Three brokers in a line, the second with another clock."""
    network = SimulatedNetwork(1, covering)
    network.broker("b1")
    network.broker("b2", clock_s=clock_s)
    network.broker("b3")
    network.wire("b1", "b2")
    network.wire("b2", "b3")
    network.run(3.0)
    return network


def publish(
    network: SimulatedNetwork, client: SimulatedClient, topic: str, **facts: object
) -> None:
    client.publish(topic, json.dumps(facts).encode(), 1)
    network.run(0.5)


@pytest.mark.parametrize("covering", COVERINGS)
def test_a_publication_goes_where_an_expression_matches(covering: Covering) -> None:
    network = line(covering)
    alice = network.brokers["b1"].connect("alice")
    alice.subscribe("air/#", filter="NO2 > 40", qos=1)
    network.run(1.0)
    bob = network.brokers["b3"].connect("bob")
    for value in (39, 41, 42):
        publish(network, bob, "air/zagreb", NO2=value)
    assert [packet.payload for packet in alice.take_all()] == [b'{"NO2": 41}', b'{"NO2": 42}']
    forwarded = network.brokers["b1"].broker.counters.forwards_received
    assert forwarded == 2
    assert network.brokers["b2"].broker.counters.forwards_received == 0


def test_an_unsubscription_reaches_other_brokers() -> None:
    network = line()
    alice = network.brokers["b1"].connect("alice")
    alice.subscribe("a/+")
    network.run(1.0)
    alice.unsubscribe("a/+")
    network.run(20.0)
    publish(network, network.brokers["b3"].connect("bob"), "a/b", x=1)
    assert network.brokers["b1"].broker.counters.forwards_received == 0


def test_a_publication_keeps_its_publisher_properties_and_qos() -> None:
    network = line()
    alice, own = (network.brokers["b1"].connect(name) for name in ("alice", "own"))
    alice.subscribe("a/b", qos=2)
    own.subscribe("a/b", qos=0)
    network.run(1.0)
    bob = network.brokers["b3"].connect("bob")
    bob.publish("a/b", b"1", 1, color="red")
    network.run(1.0)
    (got,) = alice.take_all()
    assert (got.qos, got.payload, got.properties.user) == (1, b"1", (("color", "red"),))
    assert [packet.qos for packet in own.take_all()] == [0]


def test_no_local_holds_in_the_network_because_the_publisher_is_known() -> None:
    network = line()
    first = network.brokers["b1"].connect("bob")
    recent = network.brokers["b1"].broker.recent
    first.subscribe("a/b")
    network.run(1.0)
    publish(network, network.brokers["b3"].connect("carol"), "a/b", x=1)
    assert [one.publisher for one in recent] == ["carol"]
    assert len(first.payloads()) == 1


def test_an_evolving_expression_counts_from_its_acceptance_whatever_the_clocks() -> None:
    network = line(clock_s=500.0)
    alice = network.brokers["b1"].connect("alice")
    alice.subscribe("a", filter="x > t AND x < t + 10")
    network.run(20.0)
    bob = network.brokers["b2"].connect("bob")
    publish(network, bob, "a", x=5)
    publish(network, bob, "a", x=25)
    assert alice.payloads() == [b'{"x": 25}']
    assert network.brokers["b1"].broker.counters.forwards_received == 1


def test_a_following_expression_receives_what_its_variables_match() -> None:
    network = line()
    alice = network.brokers["b1"].connect("alice")
    alice.publish("$rove/me", b'{"x": 10}', 1)
    alice.subscribe("a", filter="x > me.x - 1 AND x < me.x + 1")
    network.run(1.0)
    bob = network.brokers["b3"].connect("bob")
    publish(network, bob, "a", x=10)
    alice.publish("$rove/me", b'{"x": 100}', 1)
    network.run(1.0)
    publish(network, bob, "a", x=10)
    publish(network, bob, "a", x=100)
    assert alice.payloads() == [b'{"x": 10}', b'{"x": 100}']


def test_one_member_of_a_shared_subscription_in_the_whole_network_gets_it() -> None:
    network = line()
    members = [network.brokers[name].connect(f"m-{name}") for name in ("b1", "b2", "b3")]
    for member in members:
        member.subscribe("$share/g/a/#", qos=1)
    network.brokers["b1"].connect("alice").subscribe("a/#")
    network.run(1.0)
    bob = network.brokers["b2"].connect("bob")
    for number in range(9):
        publish(network, bob, "a/b", x=number)
    counts = [len(member.take_all()) for member in members]
    assert sum(counts) == 9
    assert min(counts) >= 2


def test_a_shared_subscription_with_an_expression_goes_to_a_member_that_matches() -> None:
    network = line()
    low = network.brokers["b1"].connect("low")
    low.subscribe("$share/g/a", filter="x < 5", qos=1)
    high = network.brokers["b3"].connect("high")
    high.subscribe("$share/g/a", filter="x >= 5", qos=1)
    network.run(1.0)
    bob = network.brokers["b2"].connect("bob")
    for number in range(10):
        publish(network, bob, "a", x=number)
    assert [packet.payload for packet in low.take_all()] == [
        json.dumps({"x": x}).encode() for x in range(5)
    ]
    assert len(high.take_all()) == 5


def test_retained_and_valid_publications_are_at_every_broker() -> None:
    network = line()
    bob = network.brokers["b3"].connect("bob")
    bob.publish("a/retained", b"1", 1, retain=True)
    bob.publish("a/valid", b"2", 1, valid_for="1000", id="v")
    network.run(1.0)
    alice = network.brokers["b1"].connect("alice")
    alice.subscribe("a/#")
    assert sorted(alice.payloads()) == [b"1", b"2"]
    bob.publish("a/retained", b"", 1, retain=True)
    bob.publish("$rove/unpublish", b"v", 1)
    network.run(1.0)
    late = network.brokers["b1"].connect("late")
    late.subscribe("a/#")
    assert late.payloads() == []


def test_a_queue_for_a_broker_that_is_away_outlives_a_restart() -> None:
    network = line()
    alice = network.brokers["b1"].connect("alice", expiry_s=1_000)
    alice.subscribe("a", qos=1)
    network.run(1.0)
    network.crash("b1")
    network.run(1.0)
    bob = network.brokers["b3"].connect("bob")
    for number in range(20):
        publish(network, bob, "a", x=number)
    network.crash("b3")
    network.run(1.0)
    network.restart("b3")
    network.restart("b1")
    network.run(5.0)
    alice.come_back()
    network.run(2.0)
    assert [json.loads(one.payload)["x"] for one in alice.take_all()] == list(range(20))


# -- random lives ---------------------------------------------------------------------------------


class Subscriber:
    """A durable client with one subscription, and what it has received."""

    def __init__(self, broker: NetworkBroker, number: int, draw: random.Random) -> None:
        self.broker = broker
        self.client = broker.connect(f"s{number}", expiry_s=100_000)
        self.topic_filter = draw.choice(("a/#", "a/0", "a/+"))
        self.least = draw.choice((None, draw.randrange(100)))
        expression = "x >= 0" if self.least is None else f"x >= {self.least}"
        self.client.subscribe(self.topic_filter, qos=draw.choice((1, 2)), filter=expression)
        self.got: list[dict[str, int]] = []

    def wants(self, topic: str, x: int) -> bool:
        return (self.topic_filter != "a/0" or topic == "a/0") and (
            self.least is None or x >= self.least
        )

    def read(self) -> None:
        if self.client.is_closed():
            return
        for packet in self.client.take_all():
            facts = json.loads(packet.payload)
            # What was in flight in a crash comes again, and says so.
            if not (packet.dup and facts in self.got):
                self.got.append(facts)


class Publisher:
    """A client that publishes numbered messages, and knows which were acknowledged."""

    def __init__(self, broker: NetworkBroker, number: int) -> None:
        self.broker, self.number = broker, number
        self.client = broker.connect(f"p{number}")
        self.next = 0
        self.under_way: dict[int, int] = {}
        self.said: dict[int, tuple[str, int]] = {}
        self.acknowledged: set[int] = set()

    def publish(self, draw: random.Random) -> None:
        topic, x = f"a/{draw.randrange(3)}", draw.randrange(100)
        facts = {"x": x, "p": self.number, "n": self.next}
        packet_id = self.client.publish(topic, json.dumps(facts).encode(), 1)
        self.under_way[packet_id] = self.next
        self.said[self.next] = topic, x
        self.next += 1

    def read(self) -> None:
        for packet in self.client.take(Puback):
            self.acknowledged.add(self.under_way.pop(packet.packet_id))


class Life(SimulatedNetwork):
    """A network in which links are cut and brokers are killed while clients publish."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        super().__init__(seed, draw.choice(COVERINGS))
        self.draw = draw
        names = [f"b{number}" for number in range(draw.randint(2, 6))]
        for name in names:
            self.broker(name, clock_s=draw.choice((0.0, draw.uniform(-30, 30))))
        for number, name in enumerate(names[1:], 1):
            self.wire(name, draw.choice(names[:number]), draw.choice((0.001, 0.05)))
        for _ in range(draw.randrange(3)):
            self.wire(*cast(tuple[str, str], draw.sample(names, 2)))
        self.run(5.0)
        some = [self.brokers[draw.choice(names)] for _ in range(4)]
        self.subscribers = [Subscriber(one, number, draw) for number, one in enumerate(some)]
        some = [self.brokers[draw.choice(names)] for _ in range(3)]
        self.publishers = [Publisher(one, number) for number, one in enumerate(some)]
        self.run(5.0)
        for broker in self.brokers.values():
            broker.holds_commits = draw.random() < 0.5

    def _tick_broker(self, name: str) -> None:
        super()._tick_broker(name)
        if self.nodes[name].is_alive:
            self.brokers[name].commit()

    def live(self, steps: int) -> None:
        draw = self.draw
        for _ in range(steps):
            self.run(draw.choice((0.01, 0.1, 1.0)) * draw.random())
            publisher = draw.choice(self.publishers)
            if self.nodes[publisher.broker.name].is_alive:
                for _ in range(draw.randint(1, 5)):
                    publisher.publish(draw)
            self.read()
            if draw.random() < 0.2:
                self.change()

    def read(self) -> None:
        clients: tuple[Publisher | Subscriber, ...] = (*self.publishers, *self.subscribers)
        for one in clients:
            if self.nodes[one.broker.name].is_alive:
                one.read()

    def change(self) -> None:
        draw = self.draw
        wire, name = draw.choice(self.wires), draw.choice(list(self.brokers))
        match draw.randrange(5):
            case 0:
                wire.cut()
            case 1 | 2:
                wire.mend()
            case 3:
                wire.silent.add(draw.choice(wire.ends))
            case _ if self.nodes[name].is_alive:
                self.crash(name)
            case _:
                self.revive(name)

    def revive(self, name: str) -> None:
        broker = self.brokers[name]
        was_held, broker.holds_commits = broker.holds_commits, False
        self.restart(name)
        for subscriber in self.subscribers:
            if subscriber.broker.name == name:
                subscriber.client.come_back()
        for publisher in self.publishers:
            if publisher.broker.name == name:
                publisher.under_way.clear()
                publisher.client.connect()
        broker.holds_commits = was_held

    def settle(self) -> None:
        for name, node in self.nodes.items():
            if not node.is_alive:
                self.revive(name)
        for wire in self.wires:
            wire.mend()
        for _ in range(60):
            self.run(1.0)
            self.read()

    def check(self) -> None:
        for subscriber in self.subscribers:
            for publisher in self.publishers:
                got = [one["n"] for one in subscriber.got if one["p"] == publisher.number]
                assert len(set(got)) == len(got), "twice"
                wanted = {n for n, said in publisher.said.items() if subscriber.wants(*said)}
                assert set(got) <= wanted, "to somebody else"
                assert wanted & publisher.acknowledged <= set(got), "lost"
                for topic in ("a/0", "a/1", "a/2"):
                    of_topic = [n for n in got if publisher.said[n][0] == topic]
                    assert of_topic == sorted(of_topic), "out of order"


def run_life(seed: int) -> Life:
    life = Life(seed)
    life.live(60)
    life.settle()
    life.check()
    return life


@pytest.mark.parametrize("part", range(2))
def test_random_lives(part: int) -> None:
    for seed in range(part, share(40), 2):
        try:
            run_life(seed)
        except BaseException as error:
            error.add_note(f"in life {seed}")
            raise
