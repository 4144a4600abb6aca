"""All changes during splits, merges, switches of layout and deaths of matchers, against the oracle.

A seed decides who subscribes to what, changes its state, publishes, and what is done to the
matchers meanwhile. What each subscription is notified of, and in which order, must be what the
slow, obvious evaluator says: nothing lost, nothing twice, nothing out of order. Those that evolve
by a design have no oracle but a broker that does it all by itself; it runs the same life.

Matchers are simulated (`rove.testing.matchers`), so that every order of events can come, and come
again. Real processes are killed in tests/serve/workers/test_matchers.py.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from typing import Any

import pytest

from rove.elastic.elasticity import ElasticitySettings
from rove.elastic.view import LAYOUTS
from rove.lang.attributes import attributes_of
from rove.lang.oracle import matches
from rove.lang.parser import parse
from rove.lang.replay import RankedWindow
from rove.mqtt.packets import Properties, Pubcomp, Publish, Pubrec, Pubrel
from rove.mqtt.topics import fits
from rove.testing.matchers import SimulatedMatchers
from rove.testing.mqtt import EXPIRES_NEVER_S, SimulatedBroker, SimulatedClient
from tests.elastic.conftest import Elastic
from tests.interop.recorded import EVOLVING, FOLLOWING, RANKED

TOPICS = ("air/a", "air/b", "road/a")
FILTERS = ("air/#", "air/+", "road/#", "#", "air/a", "+/a")
BOOLEAN = (
    "x > 5",
    "x > 2",
    "x BETWEEN 3 AND 6",
    "kind = 'car' AND x >= 0",
    "kind LIKE 'c%' OR x IS NULL",
    "x + y > 10",
    "x = 9007199254740993",
)
DESIGNS = (("x > t", "pes 500ms"), ("x < 9 - t", "lees"), ("x BETWEEN t AND t + 4", "clees 1s"))
ELASTICITY = ElasticitySettings(matchers_min=0, matchers_max=4, pause_s=1e9)
"""Rearranged only when the test says so."""


class Wanted:
    """A subscription, and what the oracle says it is notified of."""

    def __init__(
        self, text: str, topic_filter: str, accepted_at: float, me: dict[str, Any]
    ) -> None:
        self.parsed = parse(text)
        self.topic_filter = topic_filter
        self.accepted_at = accepted_at
        self.me = me
        self.window = None
        if self.parsed.rank is not None:
            self.window = RankedWindow(self.parsed, accepted_at)
        self.due: list[int] = []

    def published(self, number: int, topic: str, payload: bytes, at: float) -> None:
        if not fits(self.topic_filter, topic):
            return
        attributes = attributes_of(topic, payload)
        if self.window is not None:
            self.due += [one.key for one in self.window.publish(attributes, at, self.me, number)]  # type: ignore[misc]
        elif matches(self.parsed, attributes, at - self.accepted_at, self.me):
            self.due.append(number)

    def passed(self, now: float) -> None:
        if self.window is not None:
            self.due += [one.key for one in self.window.advance(now)]  # type: ignore[misc]


class Life:
    """The same life for a broker with matchers and one without, with the oracle beside."""

    def __init__(self, seed: int, kill_share: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.matchers = SimulatedMatchers(seed)
        self.matchers.kill_share = kill_share
        self.world = SimulatedBroker(matchers=self.matchers, elasticity=ELASTICITY)
        self.alone = SimulatedBroker()
        self.clients = {
            name: (self.world.connect(name), self.alone.connect(name)) for name in "abcd"
        }
        self.me: dict[str, dict[str, Any]] = {name: {} for name in self.clients}
        self.live: dict[int, tuple[str, str, Wanted | None]] = {}
        """By identifier: client, topic filter, and the oracle if it knows."""
        self.judged: dict[int, Wanted] = {}
        self.designs: set[int] = set()
        self.published = 0
        self.next_id = 1
        self.got: dict[int, list[int]] = defaultdict(list)
        self.got_alone: dict[int, list[int]] = defaultdict(list)

    # -- what happens --------------------------------------------------------------------------

    def step(self) -> None:
        seconds = self.random.choice((0.001, 0.01, 0.1, 0.4))
        for world in (self.world, self.alone):
            world.advance(seconds)
        for wanted in self.judged.values():
            wanted.passed(self.world.now)
        happening = self.random.choices(
            (self.publish, self.subscribe, self.unsubscribe, self.move, self.let_work),
            (10, 2, 1, 1, 2),
        )[0]
        happening()
        self.hear()

    def publish(self) -> None:
        publisher = self.random.choice(list(self.clients))
        for _ in range(self.random.randint(1, 5)):
            self.published += 1
            topic = self.random.choice(TOPICS)
            value = {
                "n": self.published,
                "x": self.random.choice((None, 0, 3, 5, 6, 7.5, 9007199254740993, "x")),
                "y": self.random.randint(0, 9),
                "kind": self.random.choice(("car", "bus", "")),
            }
            payload = json.dumps(value).encode()
            # Each at a moment of its own: of what moves up at the very moment in which several
            # arrive, nobody says where among them it comes.
            self.world.now = self.alone.now = self.world.now + 0.0005
            for client in self.clients[publisher]:
                client.say(Publish(topic, payload))
            for id, (_, _, wanted) in self.live.items():
                if wanted is not None:
                    assert self.judged[id] is wanted
                    wanted.published(self.published, topic, payload, self.world.now)
        self.world.turn()
        self.alone.turn()

    def subscribe(self) -> None:
        name = self.random.choice(list(self.clients))
        topic_filter = self.random.choice(FILTERS)
        kinds = (BOOLEAN, EVOLVING, FOLLOWING, RANKED)
        evolve = ""
        text = self.random.choice(self.random.choice(kinds))
        if self.random.random() < 0.15:
            text, evolve = self.random.choice(DESIGNS)
        own = [id for id, (owner, _, _) in self.live.items() if owner == name]
        if own and self.random.random() < 0.3:
            # The same identifier and filter: it takes the place of the old one.
            id = self.random.choice(own)
            topic_filter = self.live[id][1]
        else:
            id, self.next_id = self.next_id, self.next_id + 1
        user = (("filter", text), *((("evolve", evolve),) if evolve else ()))
        for client in self.clients[name]:
            properties = Properties(user=user, subscription_ids=(id,))
            client.send_subscribe(topic_filter, properties=properties)
        wanted = None
        self.hear()
        old = self.judged.pop(id, None)
        if old is not None:
            self.compare(id, old)
        self.got.pop(id, None)
        self.got_alone.pop(id, None)
        self.designs.discard(id)
        if evolve:
            self.designs.add(id)
        else:
            wanted = Wanted(text, topic_filter, self.world.now, dict(self.me[name]))
            self.judged[id] = wanted
        self.live[id] = (name, topic_filter, wanted)

    def unsubscribe(self) -> None:
        if not self.live:
            return
        id = self.random.choice(list(self.live))
        name, topic_filter, wanted = self.live.pop(id)
        for client in self.clients[name]:
            client.unsubscribe(topic_filter, identifier=id)
        self.hear()
        if wanted is not None:
            self.compare(id, self.judged.pop(id))
        else:
            assert self.got.pop(id, []) == self.got_alone.pop(id, []), id
            self.designs.discard(id)

    def move(self) -> None:
        name = self.random.choice(list(self.clients))
        changes: dict[str, Any] = {"x": self.random.choice((None, 1, 4, 6.5))}
        if self.random.random() < 0.5:
            changes["kind"] = self.random.choice(("car", "bus"))
        for client in self.clients[name]:
            client.publish("$rove/me", json.dumps(changes).encode())
        me = self.me[name]
        for key, value in changes.items():
            me.pop(key, None)
            if value is not None:
                me[key] = value
        for owner, _, wanted in self.live.values():
            if owner == name and wanted is not None:
                wanted.me = dict(me)

    def let_work(self) -> None:
        for _ in range(self.random.randint(1, 10)):
            self.matchers.work()
        self.world.turn()

    # -- what is done to the matchers ----------------------------------------------------------

    def rearrange(self) -> None:
        broker, now = self.world.broker, self.world.now
        what = self.random.choice(("split", "merge", "layout", "kill", "split", "fail"))
        if what == "split":
            broker.force_split(now)
        elif what == "merge":
            broker.force_merge(now)
        elif what == "layout":
            broker.switch_layout(self.random.choice(LAYOUTS), now)
        elif what == "kill" and self.matchers.living:
            self.matchers.kill(self.random.choice(self.matchers.living))
        elif what == "fail":
            self.matchers.fails_to_start = 1
        for _ in range(self.random.randint(0, 12)):
            self.step()

    def settle(self) -> None:
        """Until nothing is under way any more."""
        reconfigurer = self.world.broker.router.expressions.reconfigurer
        assert reconfigurer is not None
        for _ in range(3000):
            self.matchers.work()
            self.world.advance(0.02)
            self.alone.advance(0.02)
            if self.matchers.is_quiet and not reconfigurer.is_running:
                break
        for world in (self.world, self.alone):
            world.advance(10.0)
        for wanted in self.judged.values():
            wanted.passed(self.world.now)
        self.hear()

    # -- what comes of it ----------------------------------------------------------------------

    def hear(self) -> None:
        for ours, alones in self.clients.values():
            _note(ours, self.got)
            _note(alones, self.got_alone)

    def compare(self, id: int, wanted: Wanted) -> None:
        wanted.passed(self.world.now)
        assert self.got.pop(id, []) == wanted.due, (id, wanted.parsed)
        self.got_alone.pop(id, None)

    def judge(self) -> None:
        for id in list(self.judged):
            self.compare(id, self.judged.pop(id))
        for id in self.designs:
            assert self.got[id] == self.got_alone[id], id

    def done(self) -> Counter[str]:
        """What was done to the matchers so far."""
        view = self.world.broker.view.matchers(self.world.now)
        assert view is not None
        done: Counter[str] = Counter(kill=self.matchers.kills)
        done.update({str(kind): count for kind, count in view.done.items()})
        return done


def _note(client: SimulatedClient, got: dict[int, list[int]]) -> None:
    for packet in client.take(Publish):
        number = json.loads(packet.payload)["n"]
        for id in packet.properties.subscription_ids:
            got[id].append(number)


def lived(seed: int, times: int, kill_share: float) -> Counter[str]:
    life = Life(seed, kill_share)
    for _ in range(20):
        life.step()
    while life.done().total() < times:
        life.rearrange()
    life.matchers.kill_share = 0.0
    life.settle()
    life.judge()
    return life.done()


def test_rearrangements_change_nothing_for_anybody() -> None:
    done = lived(0, 25, kill_share=0.002)
    assert done["kill"] >= 2
    assert done["split"] + done["out"] >= 2
    assert done["merge"] + done["in"] >= 1
    assert done["layout"] >= 1


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 200))
def test_a_hundred_rearrangements_of_many_lives(seed: int) -> None:
    lived(seed, 100, kill_share=(0.0, 0.002, 0.02)[seed % 3])


@pytest.mark.parametrize("crashes", [True, False], ids=["killed", "sent twice"])
def test_qos_2_is_taken_for_known_only_when_it_was_routed(crashes: bool) -> None:
    """It came and waits for a matcher; then the broker is gone, or it comes once more."""
    elastic = Elastic(1)
    world = elastic.world
    subscriber, publisher = (world.connect(name, expiry_s=EXPIRES_NEVER_S) for name in "sp")
    subscriber.subscribe("air/a", properties=Properties(user=(("filter", "x > 1"),)))
    elastic.settle()
    packet_id = publisher.publish("air/a", b'{"x": 5}', 2)
    world.turn()
    assert publisher.take(Pubrec) == []
    if crashes:
        world.crash()
        subscriber.come_back()
        publisher.come_back()
    publisher.publish("air/a", b'{"x": 5}', 2, dup=True, packet_id=packet_id)
    if not crashes:
        assert publisher.take(Pubrec) == [], "nobody knows yet who gets it"
    for _ in range(20):
        elastic.step()
    assert publisher.only(Pubrec).packet_id == packet_id
    assert subscriber.payloads() == [b'{"x": 5}']
    # From here on it is known, over a crash too.
    world.crash()
    subscriber.come_back()
    publisher.come_back()
    publisher.publish("air/a", b'{"x": 5}', 2, dup=True, packet_id=packet_id)
    for _ in range(20):
        elastic.step()
    assert publisher.only(Pubrec).packet_id == packet_id
    assert subscriber.payloads() == []
    publisher.send(Pubrel(packet_id))
    assert publisher.only(Pubcomp).reason == 0
