"""Crashes in simulation: what was acknowledged is there, in order, once where once was promised.

A seed decides who publishes, acknowledges, leaves and comes back, when the disk commits and when
the broker dies. Packets of a connection that ends are lost in both directions. In the end everybody
comes back and acknowledges everything, and then the promises are checked.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import msgspec
import pytest

from rove.broker.broker import Broker
from rove.broker.context import LakeStream, Settings
from rove.broker.limits import Limits
from rove.broker.sessions.session import Session
from rove.broker.storage.records import (
    QUEUE_ENTRY_BITS,
    PublicationRow,
    QueueRow,
    SessionRow,
    SubscriptionRow,
    decoded,
    decoded_number,
    encoded,
    queue_key,
    received_key,
)
from rove.lang.limits import OPERATIONS_MAX, PARTS_MAX
from rove.mqtt.packets import (
    V311,
    Connack,
    Filter,
    Packet,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
    Suback,
    Unsubscribe,
    Will,
)
from rove.testing.mqtt import SimulatedBroker
from tests.effort import some

SEEDS = 300
STEPS = 120
TOPICS = ("a", "b/c")
LIMITS = Limits(
    inflight_max=4, queue_messages_max=1_000_000, replay_messages_per_s=2_000, receive_max=20
)


class Said(msgspec.Struct, frozen=True):
    """What a publication says, so that receivers can judge."""

    publisher: str
    topic: str
    qos: int
    number: int


class Player:
    """A client that keeps the rules of MQTT across lost connections."""

    def __init__(self, chaos: Chaos, name: str, version: int) -> None:
        self.chaos = chaos
        self.client = chaos.world.client(name, version)
        self.name = name
        self.outbox: dict[int, Publish] = {}
        """Published and not acknowledged, in order."""
        self.releasing: dict[int, None] = {}
        """QoS 2: acknowledged, to be released."""
        self.unreleased: set[int] = set()
        """QoS 2 from the broker: taken, not released."""
        self.taken: list[Said] = []
        self.acknowledged: list[Said] = []
        self.numbers: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.next_id = 0
        self.is_known = False
        """Whether it was ever let in: from then on, its session must be there."""
        self.is_welcome = False

    @property
    def is_here(self) -> bool:
        return self.is_welcome and not self.client.is_closed()

    def come(self) -> None:
        """Connect; the rest has to wait for the answer."""
        client, rng = self.client, self.chaos.rng
        properties = Properties(session_expiry_s=1_000_000, receive_max=rng.choice((1, 3, None)))
        if client.version == V311:
            properties = Properties()
        self.is_welcome = False
        client.send_connect(clean_start=False, properties=properties)

    def welcomed(self, welcome: Connack) -> None:
        """The session is there: send again what was not answered."""
        assert welcome.reason == Reason.SUCCESS
        assert welcome.session_present == self.is_known, "a session was lost"
        self.is_welcome = self.is_known = True
        for packet_id, packet in self.outbox.items():
            packet.dup = True
            packet.packet_id = packet_id
            self.say(packet)
        for packet_id in self.releasing:
            self.say(Pubrel(packet_id))

    def say(self, packet: Packet) -> None:
        """Send, unless the packet is lost together with the connection."""
        if self.chaos.is_rough and self.chaos.rng.random() < 0.01:
            self.client.drop()
        elif self.is_here:
            self.client.say(packet)

    def publish(self, topic: str, qos: int, *, retain: bool = False) -> None:
        if len(self.outbox) + len(self.releasing) >= LIMITS.receive_max:
            return
        self.numbers[topic, qos] += 1
        said = Said(self.name, topic, qos, self.numbers[topic, qos])
        packet_id = self.new_packet_id() if qos else 0
        properties = Properties()
        if self.client.version != V311:
            properties = Properties(user=(("id", f"{said.topic}-{said.qos}-{said.number}"),))
        packet = Publish(
            topic, msgspec.json.encode(said), qos, retain, False, packet_id, properties
        )
        if qos:
            self.outbox[packet_id] = packet
        self.say(packet)

    def new_packet_id(self) -> int:
        while True:
            self.next_id = self.next_id % 65_535 + 1
            if self.next_id not in self.outbox and self.next_id not in self.releasing:
                return self.next_id

    def process(self, count: int) -> None:
        """Take up to so many packets out of the inbox, and answer them."""
        for _ in range(count):
            if not self.client.inbox:
                return
            self.handle(self.client.inbox.pop(0))

    def handle(self, packet: Any) -> None:
        match packet:
            case Connack():
                self.welcomed(packet)
            case Publish():
                self.take(packet)
            case Pubrel(packet_id=packet_id):
                self.unreleased.discard(packet_id)
                self.say(Pubcomp(packet_id))
            case Puback(packet_id=packet_id):
                self.finish(packet_id)
            case Pubrec(packet_id=packet_id):
                if packet_id in self.outbox:
                    self.finish(packet_id)
                self.releasing[packet_id] = None
                self.say(Pubrel(packet_id))
            case Pubcomp(packet_id=packet_id):
                self.releasing.pop(packet_id, None)
            case _:
                assert isinstance(packet, Suback), packet

    def finish(self, packet_id: int) -> None:
        packet = self.outbox.pop(packet_id)
        self.acknowledged.append(msgspec.json.decode(packet.payload, type=Said))

    def take(self, packet: Publish) -> None:
        said = msgspec.json.decode(packet.payload, type=Said)
        if packet.qos == 2:
            if packet.packet_id not in self.unreleased:
                self.unreleased.add(packet.packet_id)
                self.taken.append(said)
            self.say(Pubrec(packet.packet_id))
            return
        self.taken.append(said)
        if packet.qos == 1:
            self.say(Puback(packet.packet_id))


class Chaos:
    """One run: everything is decided by the seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = SimulatedBroker(limits=LIMITS)
        self.is_rough = False
        self.players = [
            Player(self, f"player{n}", V311 if self.rng.random() < 0.3 else 5) for n in range(4)
        ]
        self.wants: dict[str, int] = {}
        """The players that subscribe, and the quality that each was granted."""
        for player in self.players:
            player.come()
            player.process(1)
            if self.rng.random() < 0.7:
                self.wants[player.name] = qos = self.rng.choice((1, 2))
                texts = {}
                if player.client.version == 5 and self.rng.random() < 0.5:
                    texts = {"filter": "number > 0"}
                player.client.subscribe(
                    *(Filter(topic, qos) for topic in TOPICS),
                    properties=Properties(user=tuple(texts.items())),
                )
        self.volatile = self.world.client("volatile")
        self.world.holds_commits = True
        self.is_rough = True

    def step(self) -> None:
        rng = self.rng
        steps = (
            (40, self.publish),
            (25, lambda player: player.process(rng.randrange(1, 6))),
            (7, lambda player: None if player.client.is_closed() else player.client.drop()),
            (10, self.come),
            (11, lambda _: self.world.commit(rng.randrange(1, 4))),
            (3, lambda _: self.world.advance(rng.random() * 0.05)),
            (2, lambda _: self.crash()),
            (2, lambda _: self.disturb()),
        )
        (do,) = rng.choices([step for _, step in steps], [weight for weight, _ in steps])
        do(rng.choice(self.players))
        if rng.random() < 0.6:
            self.world.turn()

    def come(self, player: Player) -> None:
        if player.client.is_closed() or self.rng.random() < 0.1:
            player.come()

    def publish(self, player: Player) -> None:
        if player.is_here:
            qos = self.rng.choice((0, 1, 1, 2, 2))
            player.publish(self.rng.choice(TOPICS), qos, retain=self.rng.random() < 0.1)

    def disturb(self) -> None:
        """One who wants everything and whose session never stays comes or goes."""
        if self.volatile.is_closed():
            self.volatile.connect()
            self.volatile.send_subscribe("#", qos=self.rng.choice((0, 1, 2)))
        else:
            self.volatile.drop()

    def crash(self) -> None:
        check_nothing_is_orphaned(self.world)
        before = None
        broker = self.world.broker
        is_routing = broker._queue.is_waiting  # what came in a turn that has not ended
        if not (self.world.uncommitted or broker.context.gate.changes or is_routing):
            before = remembered(broker)
        self.world.crash()
        if before is not None:
            assert remembered(self.world.broker) == before

    def settle(self) -> None:
        """Let everybody come back and finish what is open."""
        self.is_rough = False
        self.world.holds_commits = False
        self.world.turn()
        for player in self.players:
            player.come()
        for _ in range(1_000):
            self.world.advance(0.05)
            for player in self.players:
                player.process(1_000)
            self.world.turn()
            is_open = any(
                player.outbox or player.releasing or player.client.inbox or player.unreleased
                for player in self.players
            )
            if not is_open and not self.world.broker.delivery.is_replaying:
                return
        raise AssertionError("it never settles")

    def run(self) -> None:
        for _ in range(STEPS):
            self.step()
        self.settle()
        for player in self.players:
            if player.name in self.wants:
                self.check_received(player, self.wants[player.name])
        self.check_disk()

    def check_received(self, subscriber: Player, granted: int) -> None:
        by_stream: defaultdict[tuple[str, str, int], list[int]] = defaultdict(list)
        for said in subscriber.taken:
            by_stream[said.publisher, said.topic, said.qos].append(said.number)
        for publisher in self.players:
            for said in publisher.acknowledged:
                stream = by_stream[said.publisher, said.topic, said.qos]
                assert said.number in stream, f"{said} was acknowledged and is lost"
        for (_, _, qos), numbers in by_stream.items():
            first = list(dict.fromkeys(numbers))
            assert first == sorted(first), "the order has changed"
            if min(qos, granted) == 2 or qos == 0:
                assert len(numbers) == len(set(numbers)), "something came twice"

    def check_disk(self) -> None:
        """What nobody needs any more is not kept."""
        sizes = self.world.disk.sizes()
        retained = sizes.pop("retained", 0)
        assert sizes.pop("publications", 0) == retained
        assert sizes.pop("sessions") == len(self.players)
        assert sizes.pop("subscriptions", 0) == len(self.wants) * len(TOPICS)
        assert sizes == {}


def remembered(broker: Broker) -> dict[str, Any]:
    """Everything that a restart has to bring back."""
    context = broker.context
    retained = broker.retained
    return {
        "sessions": {
            session.client_id: remembered_session(session)
            for session in context.sessions.values()
            if session.is_durable
        },
        "retained": sorted(
            (one.topic, one.payload) for one in retained.find_retained("#", context.now)
        ),
        "valid": sorted((one.publisher, one.id) for one in retained.find_valid("#", context.now)),
        "room": (retained.retained_bytes, retained.valid_bytes),
    }


def remembered_session(session: Session) -> dict[str, Any]:
    return {
        "number": session.number,
        "expiry": session.expiry_s,
        "version": session.version,
        "user": session.identity.user,
        "me": session.me,
        "will": session.will,
        "subscriptions": {key: one.row() for key, one in session.subscriptions.items()},
        "queue": [entry.row() for entry in session.queue],
        "queue bytes": session.queue_bytes,
        "inflight": {packet_id: entry.row() for packet_id, entry in session.inflight.items()},
        "received": session.received,
    }


@pytest.mark.parametrize("part", some(range(10), 3))
def test_nothing_acknowledged_is_lost_whenever_the_broker_dies(part: int) -> None:
    for seed in range(part, SEEDS, 10):
        try:
            Chaos(seed).run()
        except AssertionError as error:
            raise AssertionError(f"with seed {seed}: {error}") from error


@pytest.mark.soak
def test_nothing_acknowledged_is_lost_in_a_long_run() -> None:
    for seed in range(SEEDS, 20_000):
        try:
            Chaos(seed).run()
        except AssertionError as error:
            raise AssertionError(f"with seed {seed}: {error}") from error


def test_one_seed_gives_one_run() -> None:
    runs = []
    for _ in range(2):
        chaos = Chaos(7)
        chaos.run()
        runs.append([player.taken for player in chaos.players])
    assert runs[0] == runs[1]


def test_a_restored_broker_is_the_one_that_died() -> None:
    world = SimulatedBroker()
    publisher = world.connect("publisher")
    client = world.connect(
        expiry_s=600,
        user="alice",
        will=Will("wills/w", b"gone", 1, properties=Properties(will_delay_s=100)),
    )
    client.subscribe("a/#", qos=2)
    client.subscribe("b", qos=1, identifier=3, filter="x > me.x", evolve="lees")
    client.subscribe("b", qos=1, identifier=4, filter="SELECT x WHERE x > 2 * t")
    client.subscribe("b", qos=0, filter="ORDER BY x LIMIT 2 WITHIN 10 SECONDS")
    client.subscribe(Filter("$share/g/c", 1, retain_as_published=True))
    client.publish("$rove/me", b'{"x": 3, "place": {"lat": 45.8}}', 1)
    publisher.publish("a/1", b"1", 2)
    publisher.publish("a/2", b"2", 2, retain=True)
    client.send(Pubrec(client.take(Publish)[0].packet_id))
    client.publish("x", b"", 2, packet_id=99)
    client.drop()
    publisher.publish("b", b'{"x": 9, "y": 1}', 1, id="nine", valid_for="forever")
    publisher.publish("b", b'{"x": 10}', 1, valid_for="60")
    publisher.drop()
    before = remembered(world.broker)
    assert len(before["sessions"]["client"]["queue"]) == 2
    world.crash()
    assert remembered(world.broker) == before
    world.crash()
    assert remembered(world.broker) == before


def test_those_that_spark_serves_are_served_again() -> None:
    channel = LakeStream("all", ("#",))
    world = SimulatedBroker(settings=Settings(channels=(channel,), keeps_subscriptions=True))
    client = world.connect(expiry_s=600)
    client.subscribe("b", qos=1, filter="x > 1", engine="spark")
    index = world.broker.saved_index()
    for saved in (None, index):
        world.crash(saved)
        router = world.broker.router
        (one,) = world.broker.context.sessions["client"].subscriptions.values()
        assert router.served(one.number) is one
        assert len(router) == 1
    client.come_back()
    client.publish("b", b'{"x": 9}', 1)
    assert client.payloads() == []
    client.unsubscribe("b")
    assert len(world.broker.router) == 0
    assert world.disk.sizes().get("subscriptions") is None


def test_those_who_were_connected_left_when_the_broker_did() -> None:
    world = SimulatedBroker()
    client = world.connect(expiry_s=60)
    world.advance(100)
    world.crash()
    (row,) = world.disk.read("sessions", SessionRow).values()
    assert row.away_since == world.now
    world.advance(59)
    assert client.come_back(60).session_present


def test_those_who_were_away_have_been_away_all_the_time() -> None:
    world = SimulatedBroker()
    client = world.connect(expiry_s=60)
    client.drop()
    world.advance(30)
    world.crash()
    world.advance(31)
    assert not client.come_back(60).session_present
    assert world.broker.counters.sessions_expired == 1


def test_numbers_go_on_where_they_were() -> None:
    """A new session, subscription or publication never takes the number of one that is kept."""
    world = SimulatedBroker()
    client = world.connect("old", expiry_s=600)
    client.subscribe("a", qos=1)
    client.drop()
    world.connect("publisher").publish("a", b"1", 1)
    world.crash()
    other = world.connect("new", expiry_s=600)
    other.subscribe("a", qos=1)
    other.publish("a", b"2", 1)
    client.come_back()
    assert [packet.payload for packet in client.take_all()] == [b"1", b"2"]
    assert [packet.payload for packet in other.take_all()] == [b"2"]
    sessions = world.broker.context.sessions
    assert sessions["old"].number != sessions["new"].number


def test_rows_of_nobody_are_deleted() -> None:
    world = SimulatedBroker()
    lost = PublicationRow("a", b"", 1, "nobody", "x", 0.0)
    world.disk.tables["publications"][5] = encoded(lost)
    world.disk.tables["queue"][queue_key(77, 0)] = encoded((5, 1, False))
    world.disk.tables["received"][received_key(77, 1)] = b""
    world.crash()
    assert world.disk.sizes() == {}


def test_a_subscription_that_cannot_be_read_any_more_is_named_and_the_rest_goes_on() -> None:
    world = SimulatedBroker()
    client = world.connect(expiry_s=60)
    client.subscribe("a", qos=1, identifier=1, filter="x > 1")
    client.subscribe("b", qos=1)
    ((key, row),) = (
        item for item in world.disk.tables["subscriptions"].items() if b"x > 1" in item[1]
    )
    world.disk.tables["subscriptions"][key] = row.replace(b"x > 1", b"x > >")
    world.crash()
    assert [note.event for note in world.notes if note.level == "warning"] == ["subscription lost"]
    client.come_back()
    client.publish("b", b"1", 1)
    assert client.payloads() == [b"1"]


def beyond_operations() -> str:
    return " AND ".join(f"x + x + x + x > {-i}" for i in range(OPERATIONS_MAX // 3 + 1))


def beyond_parts() -> str:
    ors = " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(6))
    values = ",".join(str(2 * i) for i in range(PARTS_MAX // 64))
    return f"{ors} AND x IN ({values})"


@pytest.mark.parametrize("text", [beyond_operations(), beyond_parts()], ids=["operations", "parts"])
def test_what_was_accepted_before_there_were_smaller_limits_is_served_again(text: str) -> None:
    world = SimulatedBroker()
    client = world.connect(expiry_s=60)
    client.subscribe("b", qos=1, filter="x > 1")
    assert client.subscribe("a", qos=1, filter=text).reasons[0] >= 0x80
    ((key, row),) = world.disk.tables["subscriptions"].items()
    kept = decoded(SubscriptionRow, row)
    world.disk.tables["subscriptions"][key] = encoded(msgspec.structs.replace(kept, text=text))
    world.crash()
    assert "subscription lost" not in [note.event for note in world.notes]
    client.come_back()
    meeting = {f"a{i}": 1 for i in range(6)} | {"x": 2}
    client.publish("b", msgspec.json.encode(meeting), 1)
    client.publish("b", msgspec.json.encode(meeting | {"x": -1}), 1)
    assert client.payloads() == [msgspec.json.encode(meeting)]


class Upkeep:
    """One run of everything that is kept: sessions, texts, state, retained and valid ones."""

    TEXTS = ("x > me.x", "x < 5 + t", "SELECT x WHERE x >= 0", "topic LIKE 'a%'", "x = 1")

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = SimulatedBroker(
            limits=Limits(retained_messages_max=3, valid_publications_max=3)
        )
        self.clients = [
            self.world.connect(f"client{n}", expiry_s=self.rng.choice((0, 3, 60))) for n in range(4)
        ]
        self.world.holds_commits = True

    def step(self) -> None:
        rng, world = self.rng, self.world
        client = rng.choice(self.clients)
        if client.is_closed():
            client.send_connect(clean_start=rng.random() < 0.3, expiry_s=rng.choice((0, 3, 60)))
        does = rng.choice(
            (
                lambda: client.send_subscribe(
                    rng.choice(("a", "+", "$share/g/a")),
                    qos=rng.randrange(3),
                    identifier=rng.randrange(1, 4),
                    properties=self.text() if rng.random() < 0.7 else None,
                ),
                lambda: client.send(Unsubscribe(9, (rng.choice(("a", "+", "$share/g/a")),))),
                lambda: client.publish("$rove/me", b'{"x": %d}' % rng.randrange(9), 1),
                lambda: client.publish("$rove/unpublish", b"%d" % rng.randrange(3), 1),
                self.publish,
                self.publish,
                client.drop,
                client.disconnect,
                client.take_all,
                lambda: world.commit(1),
                lambda: world.advance(rng.random()),
                self.crash,
            )
        )
        does()

    def text(self) -> Properties:
        user = (("filter", self.rng.choice(self.TEXTS)),)
        return Properties(user=user, subscription_ids=(self.rng.randrange(1, 4),))

    def publish(self) -> None:
        rng = self.rng
        client = rng.choice(self.clients)
        if client.is_closed():
            return
        user = [("id", str(rng.randrange(3)))]
        if rng.random() < 0.4:
            user.append(("valid-for", rng.choice(("1", "60", "forever"))))
        properties = Properties(user=tuple(user), message_expiry_s=rng.choice((None, None, 2)))
        payload = b'{"x": %d}' % rng.randrange(9) if rng.random() < 0.8 else b""
        topic = rng.choice(("a", "b"))
        client.publish(
            topic, payload, rng.randrange(3), retain=rng.random() < 0.4, properties=properties
        )

    def crash(self) -> None:
        check_nothing_is_orphaned(self.world)
        if self.rng.random() < 0.7:
            self.world.commit()
        all_kept = not self.world.uncommitted
        before = remembered(self.world.broker)
        self.world.crash()
        if all_kept:
            assert remembered(self.world.broker) == before
        check_nothing_is_orphaned(self.world)


def check_nothing_is_orphaned(world: SimulatedBroker) -> None:
    """Whatever the disk holds is somebody's, after every commit."""
    disk = world.disk
    sessions = {row.number: name for name, row in disk.read("sessions", SessionRow).items()}
    queue = disk.read("queue", QueueRow)
    spoken_of = {row.publication for row in queue.values()}
    for table in ("retained", "valid"):
        spoken_of |= {decoded_number(row) for row in disk.tables[table].values()}
    assert spoken_of == set(disk.tables["publications"])
    assert {int(key) >> QUEUE_ENTRY_BITS for key in queue} <= set(sessions)
    assert {int(key) >> 16 for key in disk.tables["received"]} <= set(sessions)
    subscriptions = disk.read("subscriptions", SubscriptionRow).values()
    assert {row.client_id for row in subscriptions} <= set(sessions.values())


@pytest.mark.parametrize("part", some(range(5), 2))
def test_whatever_is_kept_comes_back_and_nothing_else_is_kept(part: int) -> None:
    for seed in range(part, 100, 5):
        upkeep = Upkeep(seed)
        try:
            for _ in range(120):
                upkeep.step()
            upkeep.crash()
        except AssertionError as error:
            raise AssertionError(f"with seed {seed}: {error}") from error
