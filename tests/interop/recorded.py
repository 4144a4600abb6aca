"""A life of a broker, recorded: a seed decides who comes, wants, moves, publishes and crashes.

The broker is the real one, in memory; what it logs goes into a real lake. So what it notified, and
everything it knew when it did, lie side by side.

A publication costs some 0.2 ms, nearly all of it the broker's. So clients do not read what they
are sent, and payloads are drawn from some that were written before.
"""

from __future__ import annotations

import gc
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from rove.broker.context import BrokerSettings, LakeStream
from rove.broker.storage.records import LogRow, decoded
from rove.elastic.elasticity import ElasticitySettings
from rove.elastic.view import LAYOUTS
from rove.lake.log import COLUMNS
from rove.lake.storage import Location
from rove.mqtt.packets import V5, Filter, Properties, Publish, Unsubscribe
from rove.pipeline.lake.log import Lake as ReadLake
from rove.serve.disk.lake import LakeAppender
from rove.testing.matchers import SimulatedMatchers
from rove.testing.mqtt import SimulatedBroker, SimulatedClient

KEPT = frozenset(("publications", "notifications"))
SETTINGS = BrokerSettings(
    channels=(
        LakeStream("air", ("air/#",), KEPT),
        LakeStream("road", ("road/#",), KEPT),
        LakeStream("places", ("+/a",), KEPT),  # what it keeps, one of the others keeps too
    ),
    keeps_subscriptions=True,
)
ELASTICITY = ElasticitySettings(matchers_max=3, pause_s=1e9)
"""Rearranged only when the seed says so."""
PAYLOADS = 2_000
OBJECTS_PER_COLLECTION = 200_000
TOPICS = ("air/a", "air/b", "road/a", "road/b/c")
QUIET_TOPICS = tuple(f"road/c/{number}" for number in range(6))
"""Two of the filters fit these."""
FILTERS = ("air/#", "air/+", "road/#", "#", "air/a", "+/a", "road/b/c")
PLAIN = (
    "x > 5",
    "x BETWEEN 2 AND 4 AND kind = 'car'",
    "kind LIKE 'c%' OR x IS NULL",
    "x + y > 10",
    "NOT (x < 3) AND topic LIKE 'air/%'",
    "kind IN ('car', 'bus') AND deep.z >= 0",
    "x = 9007199254740993",
)
EVOLVING = ("x BETWEEN t - 3 AND t + 3", "x > 8 - t / 2", "pow(t, 2) > x AND y < 7")
FOLLOWING = ("x BETWEEN me.x - 2 AND me.x + 2", "kind = me.kind", "x < me.x + t")
RANKED = (
    "ORDER BY x LIMIT 2 WITHIN 2 SECONDS",
    "x > 2 ORDER BY y DESC LIMIT 1 WITHIN 3 SECONDS",
    "kind = 'car' ORDER BY abs(x - me.x) LIMIT 3 WITHIN 4 SECONDS",
    "x >= 0 ORDER BY x + t LIMIT 2 WITHIN 5 PUBLICATIONS",
)


def move_log(world: SimulatedBroker, lake: LakeAppender) -> None:
    """Move a broker's log into a lake, as its thread does."""
    log = world.disk.tables["log"]
    rows = [(int(key), decoded(LogRow, row)) for key, row in sorted(log.items())]
    if rows:
        lake.take(rows)
    log.clear()


class Notified(NamedTuple):
    """Who was notified of what."""

    subscription: int
    id: str
    promoted: bool


class _Listener(SimulatedClient):
    """Takes what it is sent and never looks at it."""

    def was_sent(self, data: bytes) -> None:
        """Nobody asks what it was; the log tells."""


class Recording:
    """Plays a life, writes it into a lake and knows what the broker did."""

    def __init__(
        self,
        location: Location,
        seed: int,
        *,
        ranked: bool = True,
        shared: bool = False,
        topics: Sequence[str] = TOPICS,
        rows_per_file: int = 400,
        elastic: bool = False,
    ) -> None:
        """With `elastic`, matchers split, merge, change their layout and die all the time."""
        self.location = location
        self._chance = random.Random(seed)
        self._texts = PLAIN + EVOLVING + FOLLOWING + (RANKED if ranked else ())
        self._shared = shared
        self._topics = topics
        self._now_us = 1_700_000_000_000_000
        self._matchers = SimulatedMatchers(seed) if elastic else None
        self.world = SimulatedBroker(
            settings=SETTINGS, matchers=self._matchers, elasticity=ELASTICITY
        )
        self.world.now = self._now_us / 1e6
        self._clients: dict[str, SimulatedClient] = {}
        self._rearranged = 0
        self.published = 0
        self._payloads = [self._payload() for _ in range(PAYLOADS)]
        self._lake = LakeAppender(location, rows_per_file=rows_per_file)
        self._begin(is_new=True)

    def _begin(self, *, is_new: bool) -> None:
        self.world.broker.begin_log(self._lake.last_position, is_new=is_new, now=self.world.now)
        self.world.turn()

    # -- the play ------------------------------------------------------------------------------

    def play(
        self,
        steps: int,
        *,
        publishing: float = 50,
        unsubscribing: float = 4,
        bursts: Sequence[int] = (1,),
    ) -> None:
        """So many steps, then into the lake.

        Beside so much publishing and unsubscribing there is 29.5 of everything else. A burst is so
        many publications in one turn of the broker.
        """
        self._weights = (publishing, 10, unsubscribing, 12, 4, 1, 0.5, 2)
        self._bursts = bursts
        for _ in range(steps):
            self._step()
        self._pass(10_000_000)
        self.flush()

    def flush(self) -> None:
        """Move the log into the lake, as the broker's thread does."""
        move_log(self.world, self._lake)

    def _step(self) -> None:
        chance = self._chance
        self._pass(chance.choice((0, 1, 1_000, 20_000, 100_000, 900_000)))
        act = chance.choices(
            (self._publish, self._subscribe, self._unsubscribe, self._move, self._leave,
             self._take_over, self._crash, self.flush),
            self._weights,
        )[0]  # fmt: skip
        act()
        if self._matchers is not None:
            self._rearrange(self._matchers)

    def _rearrange(self, matchers: SimulatedMatchers) -> None:
        chance, broker, now = self._chance, self.world.broker, self.world.now
        what = chance.choices(("work", "split", "merge", "layout", "kill"), (20, 3, 1, 2, 1))[0]
        if what == "split":
            broker.force_split(now)
        elif what == "merge":
            broker.force_merge(now)
        elif what == "layout":
            broker.switch_layout(chance.choice(LAYOUTS), now)
        elif what == "kill" and matchers.living:
            matchers.kill(chance.choice(matchers.living))
        for _ in range(chance.randrange(5)):
            matchers.work()
        self.world.turn()

    def rearranged(self) -> int:
        """How often matchers were."""
        view = self.world.broker.view.matchers(self.world.now)
        return self._rearranged + (0 if view is None else sum(view.done.values()))

    def _pass(self, micros: int) -> None:
        end_us = self._now_us + micros
        while (due := self.world.broker.next_tick_at() * 1e6) <= end_us and micros:
            self._tick(min(end_us, max(self._now_us + 1, int(due) + 1)))
            if self._now_us == end_us:
                break
        self._tick(end_us)

    def _tick(self, now_us: int) -> None:
        self._now_us = now_us
        self.world.now = now_us / 1e6
        self.world.broker.tick(self.world.now)
        self.world.turn()

    def _client(self) -> SimulatedClient:
        name = self._chance.choice(("ann", "bob", "cid", "dan", "eve"))
        found = self._clients.get(name)
        return self._connect(name) if found is None or found.is_closed() else found

    def _connect(self, name: str) -> SimulatedClient:
        # Some stay registered while they are away, some do not.
        expiry_s = 1_000_000 if name in ("ann", "bob", "cid") else 0
        client = self._clients[name] = _Listener(self.world, name, V5)
        client.send_connect(clean_start=False, expiry_s=expiry_s)
        return client

    def _publish(self) -> None:
        client = self._client()
        packets = [self._publication() for _ in range(self._chance.choice(self._bursts))]
        if self._chance.random() < 0.5:  # in one piece, so at one moment
            client.send(*packets)
            return
        for packet in packets:
            self._now_us += 1
            self.world.now = self._now_us / 1e6
            client.say(packet)
        self.world.turn()

    def _publication(self) -> Publish:
        self.published += 1
        user = (("id", f"p{self.published}"), ("kind", "car"))
        topic, payload = self._chance.choice(self._topics), self._chance.choice(self._payloads)
        return Publish(topic, payload, properties=Properties(user=user))

    def _payload(self) -> bytes:
        chance = self._chance
        said: dict[str, Any] = {
            "x": chance.choice((1, 2, 3.5, 4, 5.0, 7, 9, 9007199254740993, "3")),
            "y": chance.uniform(0, 10),
            "kind": chance.choice(("car", "bus", "cat", 3)),
            "deep": {"z": chance.randrange(-2, 2)},
        }
        said = {name: value for name, value in said.items() if chance.random() >= 0.1}
        return msgspec.json.encode(said) if chance.random() < 0.95 else b"\xff no json"

    def _subscribe(self) -> None:
        text = self._chance.choice((*self._texts, None))
        user = () if text is None else (("filter", text),)
        topic_filter = self._chance.choice(FILTERS)
        # Who of a group gets what moves up in a window, no log tells.
        if self._shared and text not in RANKED and self._chance.random() < 0.3:
            topic_filter = f"$share/team/{topic_filter}"
        no_local = self._chance.random() < 0.2 and not topic_filter.startswith("$share")
        identifier = self._chance.randrange(1, 6)
        properties = Properties(user=user, subscription_ids=(identifier,))
        asked = Filter(topic_filter, self._chance.randrange(2), no_local)
        self._client().send_subscribe(asked, properties=properties)

    def _unsubscribe(self) -> None:
        client = self._client()
        topic_filter = self._chance.choice(FILTERS)
        if self._shared and self._chance.random() < 0.3:
            topic_filter = f"$share/team/{topic_filter}"
        client.send(Unsubscribe(client.next_packet_id(), (topic_filter,)))

    def _move(self) -> None:
        said = {
            "x": self._chance.choice((1, 4.5, 7, None)),
            "kind": self._chance.choice(("car", "bus")),
        }
        self._client().publish("$rove/me", msgspec.json.encode(said))

    def _leave(self) -> None:
        client = self._client()
        client.drop()

    def _take_over(self) -> None:
        """Connect while the older connection is open."""
        self._connect(self._client().client_id)

    def _crash(self) -> None:
        self._rearranged = self.rearranged()
        self.world.crash()
        self._begin(is_new=False)

    # -- what came of it -----------------------------------------------------------------------

    @property
    def folder(self) -> Path:
        """Of a lake that is not in a store."""
        return Path(self.location)

    @property
    def read(self) -> ReadLake:
        return ReadLake(self.location)

    def publications(self) -> Any:
        """All rows of publications in the order of positions."""
        files = self.read.files("publications")
        columns = [*COLUMNS, "earlier"]
        found = pa.concat_tables([self.read.read(file, columns) for file in files])
        is_first = pc.equal(pc.list_value_length(found["earlier"]), 0)
        return found.filter(is_first).drop_columns(["earlier"]).sort_by("position")

    def notified(self) -> list[Notified]:
        """What the broker notified of, but for what new subscriptions were given of the past."""
        found: list[Notified] = []
        for file in self.read.files("notifications"):
            columns = ["id", "payload", "subscriptions", "earlier"]
            for row in self.read.read(file, columns).to_pylist():
                if row["earlier"]:
                    continue
                why = json.loads(row["payload"] or b"{}")
                if "initial" not in why:
                    promoted = why.get("promoted", False)
                    found += [Notified(n, row["id"], promoted) for n in row["subscriptions"]]
        return found


def record(folder: Path, seed: int, publications: int, bursts: Sequence[int]) -> float:
    """Play a long life of all kinds of subscription, and say when it ended.

    For a process of its own: it has memory cleaned rarely.
    """
    gc.set_threshold(OBJECTS_PER_COLLECTION)
    topics = TOPICS + QUIET_TOPICS
    recording = Recording(folder, seed, shared=True, topics=topics, rows_per_file=65_536)
    recording.play(100, publishing=10)  # so that there are subscriptions
    while recording.published < publications:
        # Some twenty subscriptions at a time, and another one every few hundred publications.
        recording.play(100, publishing=100, unsubscribing=25, bursts=bursts)
    return recording.world.now
