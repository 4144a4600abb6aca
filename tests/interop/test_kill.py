"""`kill -9` at random moments: what was acknowledged is there, in order, and QoS 2 once.

A life of a broker here is a dozen processes that all end without warning: while they are busy,
while they start, while they take up what the last one left. Publishers and subscribers with
sessions of their own come back each time and resend by the rules of the specification, exactly:
the clients are written out below on our codec, because libraries hide just that.

At the end of a life the broker may have lost only what it never acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from rove.mqtt.decoder import PacketDecoder
from rove.mqtt.encoder import encode
from rove.mqtt.packets import (
    V5,
    V311,
    Connack,
    Connect,
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
    Subscribe,
)
from rove.serve.disk.store import Store
from tests.effort import PATIENCE_S, is_soak

if TYPE_CHECKING:
    from tests.interop.conftest import RunningBroker, StartBroker

KILLS = 10 if is_soak() else 2
"""In one life; one life in `make test`."""
FOR_EVER_S = 0xFFFF_FFFF
WINDOW = 100
"""Publications of one publisher that are not acknowledged."""
BURST = 20
"""Publications of one publisher between two pauses."""
PAUSE_S = 0.01
OLD_TOPIC = "t/old"
"""Of the publisher with 3.1.1: it cannot give ids."""
LAKE = '[{name = "all", topics = ["t/#"], keep = ["publications"]}]'


class Lost(Exception):
    """The connection went before the answer came."""


# -- clients -------------------------------------------------------------------------------------


class Client:
    """Comes back after every loss, and goes on where it was."""

    def __init__(
        self, port: int, client_id: str, *, version: int = V5, forgets: bool = False
    ) -> None:
        self._port = port
        self.client_id = client_id
        self.version = version
        self._forgets = forgets
        self._has_promise = False
        """Something was acknowledged, so the session has to be there."""
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._live())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _live(self) -> None:
        while True:
            try:
                reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
            except OSError:
                await asyncio.sleep(PAUSE_S)
                continue
            try:
                await self._talk(reader)
            except ConnectionError:
                pass
            finally:
                writer, self._writer = self._writer, None
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()
                self.lost()

    async def _talk(self, reader: asyncio.StreamReader) -> None:
        packets = PacketDecoder(version=self.version, from_server=True)
        properties = Properties(session_expiry_s=FOR_EVER_S)
        self.send(Connect(self.client_id, self.version, self._forgets, 0, properties=properties))
        while data := await reader.read(65_536):
            for packet in packets.feed(data):
                if isinstance(packet, Connack):
                    assert packet.reason == Reason.SUCCESS
                    kept = packet.session_present or self._forgets or not self._has_promise
                    assert kept, f"the session of {self.client_id} was lost"
                    self.connected(packet.session_present)
                else:
                    assert isinstance(packet, Packet), packet
                    self._has_promise |= isinstance(packet, Puback | Pubrec | Suback)
                    self.take(packet)

    def send(self, packet: Packet) -> None:
        if self._writer is not None:
            self._writer.write(encode(packet, self.version))

    @property
    def is_connected(self) -> bool:
        return self._writer is not None

    def connected(self, session_present: bool) -> None:
        """The broker has let us in."""

    def take(self, packet: Packet) -> None:
        """The broker says something."""

    def lost(self) -> None:
        """The connection has gone."""


class Publisher(Client):
    """Publishes numbers on a topic of its own; one that forgets never resends."""

    def __init__(
        self, port: int, name: str, qos: int, *, version: int = V5, forgets: bool = False
    ) -> None:
        super().__init__(port, f"publisher-{name}", version=version, forgets=forgets)
        self.topic = f"t/{name}"
        self.qos = qos
        self.sent = 0
        self.acknowledged: set[int] = set()
        self.open: dict[int, Publish] = {}
        """By packet identifier, in the order of sending."""
        self._released: set[int] = set()
        self._is_in = False

    @property
    def unacknowledged(self) -> set[int]:
        return set(range(self.sent)) - self.acknowledged

    def publish(self) -> None:
        """Publish one more, if there is room for it."""
        if not self._is_in or len(self.open) >= WINDOW:
            return
        packet_id = self.sent % 60_000 + 1
        payload = json.dumps({"n": self.sent, "even": self.sent % 2 == 0}).encode()
        properties = Properties(user=(("id", f"{self.topic} {self.sent}"),))
        publish = Publish(self.topic, payload, self.qos, False, False, packet_id, properties)
        self.open[packet_id] = publish
        self.sent += 1
        self.send(publish)

    def connected(self, session_present: bool) -> None:
        self._is_in = True
        if self._forgets:
            self.open.clear()
            self._released.clear()
        for packet_id, publish in self.open.items():
            if packet_id in self._released:
                self.send(Pubrel(packet_id))
            else:
                publish.dup = session_present
                self.send(publish)

    def lost(self) -> None:
        self._is_in = False

    def take(self, packet: Packet) -> None:
        match packet:
            case Puback(packet_id, reason):
                assert reason < Reason.UNSPECIFIED_ERROR
                self.acknowledged.add(number_of(self.open.pop(packet_id)))
            case Pubrec(packet_id, reason):
                assert reason < Reason.UNSPECIFIED_ERROR
                self.acknowledged.add(number_of(self.open[packet_id]))
                self._released.add(packet_id)
                self.send(Pubrel(packet_id))
            case Pubcomp(packet_id):
                self._released.discard(packet_id)
                del self.open[packet_id]


class Subscriber(Client):
    """Wants what its text says, and notes what it gets."""

    def __init__(
        self,
        port: int,
        name: str,
        qos: int,
        text: str | None = None,
        identifier: int = 1,
        *,
        version: int = V5,
    ) -> None:
        super().__init__(port, f"subscriber-{name}", version=version)
        self.qos = qos
        user = () if text is None else (("filter", text),)
        properties = Properties(user=user, subscription_ids=(identifier,))
        self._subscribe = Subscribe(1, (Filter("t/#", qos),), properties)
        self._identifier = identifier
        self.is_subscribed = False
        self.got = Received()
        self._unreleased: set[int] = set()

    def connected(self, session_present: bool) -> None:
        self.got.begin_connection()
        if not self.is_subscribed:
            self.send(self._subscribe)

    def take(self, packet: Packet) -> None:
        match packet:
            case Suback(_, reasons):
                assert reasons == (self.qos,)
                self.is_subscribed = True
            case Publish(qos=1):
                self._note(packet)
                self.send(Puback(packet.packet_id))
            case Publish(qos=2):
                if packet.packet_id not in self._unreleased:
                    self._unreleased.add(packet.packet_id)
                    self._note(packet)
                self.send(Pubrec(packet.packet_id))
            case Pubrel(packet_id):
                self._unreleased.discard(packet_id)
                self.send(Pubcomp(packet_id))

    def _note(self, publish: Publish) -> None:
        number = number_of(publish)
        if self.version == V5:
            assert publish.properties.subscription_ids == (self._identifier,)
            if publish.topic != OLD_TOPIC:
                assert publish.properties.user == (("id", f"{publish.topic} {number}"),)
        self.got.add(publish.topic, number, publish.packet_id, publish.dup)

    def has(self, topic: str, wanted: set[int]) -> bool:
        return {(topic, number) for number in wanted} <= self.got.all


class Received:
    """What a subscriber got of each topic, in the order in which the broker means it.

    On a new connection the broker sends again what it was not answered: the last packets of
    before, under their old identifiers, and perhaps some that never arrived. Those that are known
    are left out here. What is left comes twice only if its publisher sent it twice.
    """

    def __init__(self) -> None:
        self.all: set[tuple[str, int]] = set()
        self._known: dict[str, list[tuple[int, int]]] = {}
        self._again: dict[str, list[tuple[int, int]]] = {}

    def begin_connection(self) -> None:
        """What is sent again from now on follows all that came before."""
        for topic in list(self._again):
            self._settle(topic)

    def add(self, topic: str, number: int, packet_id: int, dup: bool) -> None:
        """A notification has come."""
        self.all.add((topic, number))
        if dup:
            self._again.setdefault(topic, []).append((number, packet_id))
        else:
            self._settle(topic)
            self._known.setdefault(topic, []).append((number, packet_id))

    def numbers(self, topic: str) -> list[int]:
        """What came on a topic; to be asked at the end."""
        self._settle(topic)
        return [number for number, _ in self._known.get(topic, [])]

    def _settle(self, topic: str) -> None:
        again = self._again.pop(topic, [])
        known = self._known.setdefault(topic, [])
        for count in range(len(again), -1, -1):
            if known[len(known) - count :] == again[:count]:
                known += again[count:]
                return


class Asker(Client):
    """Sends one packet at a time and waits for its answer; asks nothing twice."""

    def __init__(self, port: int, client_id: str) -> None:
        super().__init__(port, client_id)
        self._in = asyncio.Event()
        self._answers: dict[int, asyncio.Future[Packet]] = {}
        self._last_packet_id = 0
        self.notified: list[Publish] = []

    def connected(self, session_present: bool) -> None:
        self._in.set()

    def lost(self) -> None:
        self._in.clear()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(Lost())

    def take(self, packet: Packet) -> None:
        match packet:
            case Publish():
                self.notified.append(packet)
                self.send(Puback(packet.packet_id))
            case Puback(packet_id) | Suback(packet_id):
                answer = self._answers[packet_id]
                if not answer.done():  # whoever asked may have given up meanwhile
                    answer.set_result(packet)

    async def ask(self, make: Callable[[int], Publish | Subscribe]) -> None:
        """Send what is made for a packet identifier; Lost if no answer comes."""
        await self._in.wait()
        self._last_packet_id += 1
        packet = make(self._last_packet_id)
        answer = self._answers[self._last_packet_id] = asyncio.Future()
        self.send(packet)
        found = await answer
        reasons = found.reasons if isinstance(found, Suback) else (found.reason,)  # type: ignore[union-attr]
        assert max(reasons) < Reason.UNSPECIFIED_ERROR, found

    async def publish(
        self, topic: str, payload: object, *, retain: bool = False, **user: str
    ) -> None:
        properties = Properties(user=tuple((k.replace("_", "-"), v) for k, v in user.items()))
        data = payload.encode() if isinstance(payload, str) else json.dumps(payload).encode()
        await self.ask(lambda id: Publish(topic, data, 1, retain, False, id, properties))

    async def subscribe(self, topic_filter: str, text: str = "", identifier: int = 0) -> None:
        user = (("filter", text),) if text else ()
        properties = Properties(user=user, subscription_ids=(identifier,) if identifier else ())
        await self.ask(lambda id: Subscribe(id, (Filter(topic_filter, 1),), properties))


def number_of(publish: Publish) -> int:
    return int(json.loads(publish.payload)["n"])


class Attempts:
    """What was asked for, and which of it was granted."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.granted: list[int] = []

    @contextlib.contextmanager
    def of(self, number: int) -> Iterator[None]:
        self.asked.append(number)
        yield
        self.granted.append(number)

    def may_be_last(self, number: int) -> bool:
        """Whether it may be what stands now: the last that was granted, or a later one."""
        return number in self.asked and number >= max(self.granted)


class Ward:
    """Has the broker keep something new of every kind, again and again."""

    STATE_ID = 60_000

    def __init__(self, port: int) -> None:
        self.asker = Asker(port, "ward")
        self.subscriptions, self.states = Attempts(), Attempts()
        self.retained, self.valid, self.withdrawn = Attempts(), Attempts(), Attempts()

    async def begin(self) -> None:
        await self.asker.subscribe("end")
        await self.asker.subscribe("state", "v = me.v", self.STATE_ID)
        await self._round(0)

    async def work(self) -> None:
        number = 0
        while True:
            number += 1
            # What is lost is not asked for again: the next round has its own things.
            with contextlib.suppress(Lost):
                await self._round(number)
            await asyncio.sleep(PAUSE_S)

    async def _round(self, number: int) -> None:
        asker = self.asker
        with self.subscriptions.of(number):
            await asker.subscribe("probe", f"probe = {number}", number + 1)
        with self.states.of(number):
            await asker.publish("$rove/me", {"v": number})
        with self.retained.of(number):
            await asker.publish("kept", {"v": number}, retain=True)
        with self.valid.of(number):
            await asker.publish("valid", {"v": number}, id=str(number), valid_for="forever")
        if number % 2 and number - 1 in self.valid.granted:
            with self.withdrawn.of(number - 1):
                await asker.publish("$rove/unpublish", str(number - 1))

    async def check(self, port: int) -> None:
        """See what is there now that all is calm."""
        checker = Asker(port, "checker")
        checker.start()
        await self._check_subscriptions(checker)
        await self._check_publications(checker)
        await checker.stop()

    async def _check_subscriptions(self, checker: Asker) -> None:
        for number in self.subscriptions.granted:
            await checker.publish("probe", {"probe": number})
        for number in self.states.asked:
            await checker.publish("state", {"v": number})
        await checker.publish("end", {})
        notified = self.asker.notified
        await until(lambda: bool(notified) and notified[-1].topic == "end")
        found = [one.properties.subscription_ids for one in notified if one.topic == "probe"]
        assert found == [(number + 1,) for number in self.subscriptions.granted]
        [state] = [one for one in notified if one.topic == "state"]
        assert state.properties.subscription_ids == (self.STATE_ID,)
        assert self.states.may_be_last(json.loads(state.payload)["v"])

    async def _check_publications(self, checker: Asker) -> None:
        for topic in ("kept", "valid", "end"):
            await checker.subscribe(topic)
        await checker.publish("end", {})
        await until(lambda: bool(checker.notified) and checker.notified[-1].topic == "end")
        [kept] = [one for one in checker.notified if one.topic == "kept"]
        assert kept.retain
        assert self.retained.may_be_last(json.loads(kept.payload)["v"])
        found = {json.loads(one.payload)["v"] for one in checker.notified if one.topic == "valid"}
        assert found <= set(self.valid.asked)
        assert found >= set(self.valid.granted) - set(self.withdrawn.asked)
        assert not found & set(self.withdrawn.granted)


# -- a life --------------------------------------------------------------------------------------


class Life:
    """One broker that is killed again and again, and everybody around it."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        port = broker.port
        self.publishers = [
            Publisher(port, "one", 1),
            Publisher(port, "two", 2),
            Publisher(port, "old", 2, version=V311),
            Publisher(port, "careless", 1, forgets=True),
        ]
        self.even = Subscriber(port, "even", 1, "even = true", 2)
        self.away = Subscriber(port, "away", 2, "n >= 0", 3)
        self.subscribers = [
            Subscriber(port, "here", 2),
            Subscriber(port, "old", 2, version=V311),
            self.even,
            self.away,
        ]
        self.ward = Ward(port)

    async def run(self, chance: random.Random) -> None:
        everybody = [*self.publishers, *self.subscribers, self.ward.asker]
        for client in everybody:
            client.start()
        try:
            await until(lambda: all(one.is_subscribed for one in self.subscribers))
            await self.away.stop()
            await self.ward.begin()
            working = [asyncio.ensure_future(work) for work in (self.ward.work(), self._publish())]
            await self._suffer(chance)
            for work in working:
                work.cancel()
            await asyncio.wait(working)
            assert [work for work in working if not work.cancelled()] == []
            await until(lambda: not any(one.open for one in self.publishers))
            self.away.start()
            # What is missing after that, `check` can name.
            with contextlib.suppress(TimeoutError):
                await until(self._all_delivered)
            await self.ward.check(self.broker.port)
        finally:
            for client in everybody:
                await client.stop()

    async def _publish(self) -> None:
        while True:
            for publisher in self.publishers:
                for _ in range(BURST):
                    publisher.publish()
            await asyncio.sleep(PAUSE_S)

    async def _suffer(self, chance: random.Random) -> None:
        """Kill: mostly while it serves, sometimes while it starts."""
        for _ in range(KILLS):
            if chance.random() < 0.3:
                await asyncio.sleep(chance.uniform(0, 1.0))
            else:
                await asyncio.to_thread(self.broker.wait)
                await asyncio.sleep(chance.uniform(0, 0.5))
            self.broker.kill()
            self.broker.spawn()
        await asyncio.to_thread(self.broker.wait)
        await until(lambda: sum(publisher.sent for publisher in self.publishers) > 100)

    def _all_delivered(self) -> bool:
        return all(
            subscriber.has(publisher.topic, self._wanted(subscriber, publisher.acknowledged))
            for subscriber in self.subscribers
            for publisher in self.publishers
        )

    def _wanted(self, subscriber: Subscriber, numbers: set[int]) -> set[int]:
        return {n for n in numbers if n % 2 == 0} if subscriber is self.even else set(numbers)

    def check(self) -> None:
        """Everything came, in order, and no more often than it may."""
        for subscriber in self.subscribers:
            for publisher in self.publishers:
                got = subscriber.got.numbers(publisher.topic)
                wanted = self._wanted(subscriber, publisher.acknowledged)
                is_once = publisher.qos == subscriber.qos == 2
                faults = faults_of(got, wanted, is_once)
                where = f"{subscriber.client_id} on {publisher.topic}"
                assert not faults, f"{where}: {'; '.join(faults)}; it got {got}"
                assert set(got) <= self._wanted(subscriber, set(range(publisher.sent)))

    def check_lake(self, folder: Path) -> None:
        """Each row once, the rows of a topic in order, QoS 2 once."""
        rows = DeltaTable(folder).to_pyarrow_dataset()
        is_publication = ds.field("kind") == "publications"
        columns = ["position", "topic", "payload"]
        found = rows.to_table(columns, filter=is_publication).to_pylist()
        found.sort(key=lambda row: row["position"])
        positions = [row["position"] for row in found]
        assert len(set(positions)) == len(positions)
        for publisher in self.publishers:
            payloads = [row["payload"] for row in found if row["topic"] == publisher.topic]
            numbers = [json.loads(payload)["n"] for payload in payloads]
            assert faults_of(numbers, publisher.acknowledged, publisher.qos == 2) == []


def faults_of(got: list[int], wanted: set[int], is_once: bool) -> list[str]:
    """What is wrong with the order in which the numbers of a publisher came.

    A number may be passed over only if nobody promised it. Going back is a repetition: the
    publisher sends again what it was not answered. From there on all is in order again, and it
    happens at most once per kill, with QoS 2 never.
    """
    faults = [f"{number} is missing" for number in sorted(wanted - set(got))]
    returns = 0
    for before, number in zip([-1, *got], got, strict=False):
        if number > before:
            skipped = wanted.intersection(range(before + 1, number))
            faults += [f"{number} came after {before}, without {sorted(skipped)}"] * bool(skipped)
        else:
            returns += 1
    if returns > (0 if is_once else KILLS):
        faults.append(f"went back {returns} times")
    return faults


async def until(is_so: Callable[[], object]) -> None:
    """Wait for what has to happen."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(PAUSE_S)


def live(start_broker: StartBroker, seed: int) -> None:
    """One life; every second one with the lake."""
    has_lake = seed % 2 == 1
    broker = start_broker(ROVE_LAKE__CHANNELS=LAKE) if has_lake else start_broker()
    life = Life(broker)
    asyncio.run(life.run(random.Random(seed)))
    life.check()
    assert broker.stop() == 0, broker.log
    while has_lake and waiting_rows(broker):  # a busy machine could not write them while it stopped
        broker.start()
        assert broker.stop() == 0, broker.log
    assert "Traceback" not in broker.log
    if has_lake:
        life.check_lake(broker.data / "lake")


def waiting_rows(broker: RunningBroker) -> int:
    """Rows that are not in the lake yet."""
    with Store.open(broker.data, "process") as store:
        return sum(1 for _ in store.load("log"))


# The second has a lake.
@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.soak), 1])
def test_nothing_acknowledged_is_lost(start_broker: StartBroker, seed: int) -> None:
    live(start_broker, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 120))
def test_nothing_acknowledged_is_lost_in_many_lives(start_broker: StartBroker, seed: int) -> None:
    live(start_broker, seed)


@pytest.mark.parametrize(
    ("got", "is_once", "fault"),
    [
        ([0, 2, 3], False, "1 is missing"),
        ([0, 2, 1, 2, 3], False, "2 came after 0, without [1]"),
        ([0, 1, 2, 3, 1, 3], False, "3 came after 1, without [2]"),
        ([0, 1, 1, 2, 3], True, "went back 1 times"),
    ],
)
def test_the_judge_sees_faults(got: list[int], is_once: bool, fault: str) -> None:
    assert fault in faults_of(got, {0, 1, 2, 3}, is_once)


def test_the_judge_allows_repetitions_in_order() -> None:
    assert faults_of([0, 1, 2, 1, 2, 2, 3], {0, 1, 2, 3}, is_once=False) == []
    assert faults_of([0, 2, 3, 5], {0, 3, 5}, is_once=True) == []


def test_what_the_broker_sends_again_is_no_repetition() -> None:
    got = Received()
    for connection in (
        [(6, 1, False), (7, 2, False), (3, 3, False)],
        [(7, 2, True), (3, 3, True), (4, 4, True), (5, 5, False)],
        [(5, 5, True), (6, 6, True)],
    ):
        got.begin_connection()
        for number, packet_id, dup in connection:
            got.add("t", number, packet_id, dup)
    assert got.numbers("t") == [6, 7, 3, 4, 5, 6]
    assert got.all == {("t", number) for number in (3, 4, 5, 6, 7)}


def test_what_is_sent_again_out_of_order_is_seen() -> None:
    got = Received()
    for number in (1, 2, 3):
        got.add("t", number, number, False)
    got.begin_connection()
    for number in (3, 2):
        got.add("t", number, number, True)
    assert got.numbers("t") == [1, 2, 3, 2]
    assert faults_of([1, 3, 2], {1, 2, 3}, is_once=False) == ["3 came after 1, without [2]"]
