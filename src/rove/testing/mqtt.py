"""A broker in memory: simulated clients, a disk that commits when told, a clock that the test sets.

The broker's core does no I/O, so its whole life fits into a function: clients that connect and
disconnect, commits that take time, a crash between two of them. `SimulatedBroker` holds the broker,
its disk and the time; `SimulatedClient` speaks MQTT with it, byte for byte, and keeps what it
receives.

    broker = SimulatedBroker()
    alice = broker.connect("alice")
    alice.subscribe("air/#", filter="NO2 > 40")
    broker.connect("bob").publish("air/zagreb", b'{"NO2": 41}')
    assert alice.payloads() == [b'{"NO2": 41}']

By default, every commit finishes at once. With `holds_commits`, what the broker wants to store
stays in `uncommitted` until `commit`, and is lost in a `crash`.

Nothing here sends acknowledgements by itself except `take_all`: a test acknowledges explicitly.
Creating a broker costs about 0.1 ms, a packet about 20 µs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TypeVar

from rove.broker.access import AccessRules, Identity
from rove.broker.broker import Broker
from rove.broker.context import BrokerSettings
from rove.broker.faults import Note
from rove.broker.limits import Limits
from rove.broker.policies.agents import Isolation
from rove.broker.sessions.session import Link
from rove.broker.storage.journal import TABLES, Changes, Key
from rove.broker.storage.records import Row, decoded
from rove.client.protocol import (
    Event,
    Protocol,
    subscribe_packet,
    unsubscribe_packet,
)
from rove.client.protocol import ProtocolSettings as ClientSettings
from rove.elastic.elasticity import ElasticitySettings
from rove.mqtt.decoder import PACKET_BYTES_MAX
from rove.mqtt.packets import (
    NO_PROPERTIES,
    V5,
    Connack,
    Connect,
    Disconnect,
    Filter,
    Malformed,
    Packet,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Unsuback,
    Will,
)
from rove.policy.limits import PolicyLimits
from rove.testing.matchers import SimulatedMatchers
from rove.testing.policies import SimulatedWorkers

START = 1_000_000.0
"""The time at which a simulated broker starts, in seconds since 1970."""
EXPIRES_NEVER_S = 0xFFFF_FFFF

Kind = TypeVar("Kind", bound=Packet)


class SimulatedDisk:
    """Tables in memory: what is here has survived."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[Key, bytes]] = {name: {} for name in TABLES}

    def apply(self, changes: Changes) -> None:
        """Commit, as one."""
        for table, key, row in changes.rows():
            if row is None:
                self.tables[table].pop(key, None)
            else:
                self.tables[table][key] = row

    def rows(self) -> Mapping[str, Iterable[tuple[Key, bytes]]]:
        """Everything, each table in the order of its keys, as a store gives it."""
        return {
            name: sorted(table.items(), key=lambda item: item[0])
            for name, table in self.tables.items()
        }

    def read(self, table: str, kind: type[Row]) -> dict[Key, Row]:
        """The rows of a table, decoded."""
        return {key: decoded(kind, row) for key, row in self.tables[table].items()}

    def sizes(self) -> dict[str, int]:
        """How many rows each table has; those without any are left out, and so is `meta`."""
        return {name: len(table) for name, table in self.tables.items() if table}


class SimulatedBroker:
    """One broker with everything that a shell would give it."""

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        rules: AccessRules | None = None,
        settings: BrokerSettings | None = None,
        holds_commits: bool = False,
        matchers: SimulatedMatchers | None = None,
        elasticity: ElasticitySettings | None = None,
        policies: PolicyLimits | None = None,
        workers: SimulatedWorkers | None = None,
        isolation: Isolation = "none",
        now: float = START,
    ) -> None:
        self.now = now
        self._policies = policies or PolicyLimits()
        self.workers, self._isolation = workers, isolation
        self._matchers, self._elasticity = matchers, elasticity
        self.disk = SimulatedDisk()
        self.holds_commits = holds_commits
        self.uncommitted: deque[tuple[int, Changes]] = deque()
        """Commits that the broker has asked for and the disk has not done, oldest first."""
        self.notes: list[Note] = []
        self.clients: dict[Link, SimulatedClient] = {}
        """Those whose connection is open."""
        self._limits, self._rules, self.settings = limits, rules, settings
        self._names = 0
        self.broker = self._new_broker()

    def _new_broker(self) -> Broker:
        broker = Broker(
            now=self.now,
            new_name=self._new_name,
            limits=self._limits,
            rules=self._rules,
            settings=self.settings,
            matchers=self._matchers,
            elasticity=self._elasticity,
            policies=self._policies,
            workers=self.workers,
            isolation=self._isolation,
        )
        if self._matchers is not None:
            assert broker.coordinator is not None
            self._matchers.listener = broker.coordinator
        if self.workers is not None:
            assert broker.jobs is not None
            self.workers.listener = broker.jobs
        return broker

    def _new_name(self) -> str:
        self._names += 1
        return f"name{self._names}"

    # -- clients -------------------------------------------------------------------------------

    def client(self, client_id: str = "client", version: int = V5) -> SimulatedClient:
        """A client that has no connection yet."""
        return SimulatedClient(self, client_id, version)

    def connect(
        self,
        client_id: str = "client",
        *,
        version: int = V5,
        clean_start: bool = True,
        keep_alive_s: int = 0,
        expiry_s: int | None = None,
        will: Will | None = None,
        properties: Properties = NO_PROPERTIES,
        user: str | None = None,
    ) -> SimulatedClient:
        """A client that has been let in; what `SimulatedClient.connect` takes."""
        client = self.client(client_id, version)
        client.connect(
            clean_start=clean_start,
            keep_alive_s=keep_alive_s,
            expiry_s=expiry_s,
            will=will,
            properties=properties,
            user=user,
        )
        return client

    # -- turns, time and disk ------------------------------------------------------------------

    def turn(self) -> None:
        """End a turn of the broker, and carry out what it wants."""
        output = self.broker.end_turn(self.now)
        self.notes += output.notes
        if output.changes is not None:
            self.uncommitted.append((output.commit, output.changes))
        has_closed = [self._send(link) for link in output.ready]
        for link, packet in output.authentications:
            self.broker.identified(link, Identity(packet.user_name), self.now)
        if self.uncommitted and not self.holds_commits:
            self.commit()
        elif output.authentications or any(has_closed):
            self.turn()
        if self.workers is not None:
            if not self.workers.holds_texts and self.workers.compile():
                self.turn()
            if not self.workers.holds_jobs:
                self.work()

    def work(self, jobs: int | None = None) -> None:
        """Let workers do what they were asked for, or the first so many jobs."""
        if self.workers is not None and self.workers.work(jobs):
            self.turn()

    def _send(self, link: Link) -> bool:
        """Send what waits for it; whether the connection was closed then."""
        client = self.clients.get(link)
        data = b"".join(link.out)
        link.out.clear()
        if client is None:
            return False
        # A client that has connected anew hears nothing of its older connection.
        if client.link is link:
            client.was_sent(data)
        if link.closing:
            del self.clients[link]
            if client.link is link:
                client.was_closed()
            self.broker.closed(link, self.now)
        return link.closing

    def commit(self, count: int | None = None) -> None:
        """Let the disk do the oldest `count` of the commits that wait; all, if it is not said."""
        todo = len(self.uncommitted) if count is None else min(count, len(self.uncommitted))
        if not todo:
            return
        number = 0
        for _ in range(todo):
            number, changes = self.uncommitted.popleft()
            self.disk.apply(changes)
        self.broker.commit_done(number, self.now)
        self.turn()

    def advance(self, seconds: float) -> None:
        """Let time pass, with a tick whenever the broker wants one."""
        end = self.now + seconds
        while (due := self.broker.next_tick_at()) <= end:
            # A tick that asks for another at the same moment still lets time move on.
            self.now = max(self.now, due)
            self.broker.tick(self.now)
            self.turn()
            if self.broker.next_tick_at() <= self.now:
                self.now = min(self.now + 0.001, end)
                if self.now == end:
                    break
        self.now = end
        self.broker.tick(self.now)
        self.turn()

    def crash(self, index: bytes | None = None, *, down_s: float = 0.0) -> None:
        """Everything but the disk is gone; another broker takes up what is there.

        With an index that was saved (`Broker.saved_index`, however long ago), it starts from that.
        With `down_s`, it comes so much later, and what is due then is due before its first turn.
        """
        for client in self.clients.values():
            client.was_closed()
        self.clients.clear()
        self.uncommitted.clear()
        if self._matchers is not None:
            self._matchers.end_all()
        if self.workers is not None:
            self.workers.end_all()
        self.now += down_s
        self.broker = self._new_broker()
        self.broker.restore(self.disk.rows(), index)
        if down_s:
            self.broker.tick(self.now)
        self.turn()


class _Recorder(Protocol):
    """Keeps every packet that comes and answers none."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings)
        self.packets: list[Packet | Malformed] = []

    def _take(self, packet: Packet | Malformed, events: list[Event]) -> None:
        self.packets.append(packet)


class SimulatedClient:
    """Speaks MQTT with the broker of a world; one connection at a time."""

    def __init__(self, world: SimulatedBroker, client_id: str, version: int) -> None:
        self.world = world
        self.client_id = client_id
        self.version = version
        self.inbox: list[Packet | Malformed] = []
        """What came and was not taken yet."""
        self._is_closed = True
        self.link: Link | None = None
        settings = ClientSettings(client_id, packet_bytes_max=PACKET_BYTES_MAX, version=version)
        self._protocol = _Recorder(settings)
        self._user: str | None = None

    # -- the connection ------------------------------------------------------------------------

    def open(self) -> None:
        """Connect, without a word."""
        self.link = self.world.broker.opened(self.client_id or "nameless", self.world.now)
        self.world.clients[self.link] = self
        self._is_closed = False
        self.inbox.clear()
        self._protocol.begin(self.world.now)
        self.world.turn()

    def connect(
        self,
        *,
        clean_start: bool = True,
        keep_alive_s: int = 0,
        expiry_s: int | None = None,
        will: Will | None = None,
        properties: Properties = NO_PROPERTIES,
        user: str | None = None,
    ) -> Connack:
        """Open a connection and be let in; with `expiry_s`, a session that stays."""
        self.send_connect(
            clean_start=clean_start,
            keep_alive_s=keep_alive_s,
            expiry_s=expiry_s,
            will=will,
            properties=properties,
            user=user,
        )
        return self.only(Connack)

    def send_connect(
        self,
        *,
        clean_start: bool = True,
        keep_alive_s: int = 0,
        expiry_s: int | None = None,
        will: Will | None = None,
        properties: Properties = NO_PROPERTIES,
        user: str | None = None,
    ) -> None:
        """The same, whatever the answer is."""
        self._user = user
        if expiry_s is not None:
            fields = {name: getattr(properties, name) for name in properties.__struct_fields__}
            properties = Properties(**{**fields, "session_expiry_s": expiry_s})
        self.open()
        self.send(
            Connect(
                self.client_id,
                self.version,
                clean_start,
                keep_alive_s,
                user,
                None,
                will,
                properties,
            )
        )

    def come_back(self, expiry_s: int = EXPIRES_NEVER_S) -> Connack:
        """Connect to the session that is there."""
        if self.version == V5:
            return self.connect(clean_start=False, expiry_s=expiry_s, user=self._user)
        return self.connect(clean_start=False, user=self._user)

    def drop(self) -> None:
        """Lose the connection."""
        assert self.link is not None
        self.world.clients.pop(self.link, None)
        self._is_closed = True
        self.world.broker.closed(self.link, self.world.now)
        self.world.turn()

    def disconnect(self, reason: int = 0, properties: Properties = NO_PROPERTIES) -> None:
        """Say goodbye."""
        self.send(Disconnect(reason, properties))

    # -- sending -------------------------------------------------------------------------------

    def send(self, *packets: Packet) -> None:
        """Send packets in one piece, and let the broker's turn end."""
        self.say(*packets)
        self.world.turn()

    def send_bytes(self, data: bytes) -> None:
        """Send anything."""
        self.say(data)
        self.world.turn()

    def say(self, *said: bytes | Packet) -> None:
        """Send without ending the turn, so that several clients speak within one."""
        assert self.link is not None
        for one in said:
            if isinstance(one, bytes):
                self._protocol.write_bytes(one)
            else:
                self._protocol.write(one)
        data = self._protocol.output(self.world.now)
        self.world.broker.received(self.link, data, self.world.now)

    def next_packet_id(self) -> int:
        """A packet identifier that was not used lately."""
        return self._protocol.take_packet_id()

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        *,
        retain: bool = False,
        dup: bool = False,
        packet_id: int | None = None,
        properties: Properties = NO_PROPERTIES,
        **user: str,
    ) -> int:
        """Publish; `user` are user properties, `_` for `-`. Gives the packet identifier."""
        if packet_id is None:
            packet_id = self.next_packet_id() if qos else 0
        if user:
            named = tuple((name.replace("_", "-"), value) for name, value in user.items())
            properties = Properties(user=named)
        self.send(Publish(topic, payload, qos, retain, dup, packet_id, properties))
        return packet_id

    def subscribe(
        self,
        *filters: str | Filter,
        qos: int = 0,
        identifier: int | None = None,
        properties: Properties | None = None,
        **user: str,
    ) -> Suback:
        """Subscribe, and give the answer; `user` are user properties such as `filter`."""
        self.send_subscribe(*filters, qos=qos, identifier=identifier, properties=properties, **user)
        return self.only(Suback)

    def send_subscribe(
        self,
        *filters: str | Filter,
        qos: int = 0,
        identifier: int | None = None,
        properties: Properties | None = None,
        **user: str,
    ) -> None:
        """The same, with the answer left in the inbox."""
        asked = tuple(Filter(one, qos) if isinstance(one, str) else one for one in filters)
        packet = subscribe_packet(asked, identifier, tuple(user.items()))
        if properties is not None:
            packet.properties = properties
        packet.packet_id = self.next_packet_id()
        self.send(packet)

    def unsubscribe(self, *topic_filters: str, identifier: int | None = None) -> Unsuback:
        """End subscriptions, and give the answer."""
        packet = unsubscribe_packet(topic_filters, identifier)
        packet.packet_id = self.next_packet_id()
        self.send(packet)
        return self.only(Unsuback)

    # -- receiving -----------------------------------------------------------------------------

    def is_closed(self) -> bool:
        """Whether it has no connection."""
        return self._is_closed

    def was_closed(self) -> None:
        """The broker has closed the connection."""
        self._is_closed = True

    def was_sent(self, data: bytes) -> None:
        """The broker has sent this."""
        self._protocol.receive(data, self.world.now)
        self.inbox += self._protocol.packets
        self._protocol.packets.clear()

    def take(self, kind: type[Kind]) -> list[Kind]:
        """The packets of one kind that came, in order; the others stay."""
        taken: list[Kind] = [packet for packet in self.inbox if isinstance(packet, kind)]
        self.inbox = [packet for packet in self.inbox if not isinstance(packet, kind)]
        return taken

    def only(self, kind: type[Kind]) -> Kind:
        """The one packet of a kind that came; AssertionError if there was none or another."""
        taken = self.take(kind)
        assert len(taken) == 1, f"{len(taken)} of {kind.__name__}; in the inbox: {self.inbox}"
        return taken[0]

    def payloads(self) -> list[bytes]:
        """What was published to it."""
        return [packet.payload for packet in self.take(Publish)]

    def take_all(self) -> list[Publish]:
        """Everything that was published to it, acknowledged until nothing more comes."""
        came: list[Publish] = []
        while self.inbox:
            answers: list[Packet] = []
            for packet in self.inbox:
                if isinstance(packet, Publish):
                    came.append(packet)
                    if packet.qos == 1:
                        answers.append(Puback(packet.packet_id))
                    elif packet.qos == 2:
                        answers.append(Pubrec(packet.packet_id))
                elif isinstance(packet, Pubrel):
                    answers.append(Pubcomp(packet.packet_id))
            self.inbox.clear()
            if answers:
                self.send(*answers)
        return came
