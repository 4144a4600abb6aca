"""What tests of this room share: a coordinator with matchers that do as they are told, and a
broker whose matchers are rearranged only when a test says so."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rove.elastic.commands import MatchRow
from rove.elastic.coordinator import Coordinator
from rove.elastic.elasticity import ElasticitySettings
from rove.elastic.layouts import (
    CellLayout,
    Hierarchical,
    Partitioned,
    Replicated,
    SubscriptionSource,
)
from rove.elastic.reconfiguration import Reconfigurer
from rove.elastic.view import Layout
from rove.lang.parser import parse
from rove.match.cell import Cell
from rove.mqtt.packets import Properties
from rove.testing.matchers import SimulatedMatchers
from rove.testing.mqtt import SimulatedBroker

ARRANGEMENTS = {
    "partitioned": Partitioned,
    "replicated": Replicated,
    "hierarchical": Hierarchical,
}


def source(
    id: int, text: str, *, filter: int = 1, evolve: str = "", at: float = 0.0
) -> SubscriptionSource:
    """A subscription, as the broker tells of it."""
    parsed = parse(text)
    is_stateful = bool(evolve) or parsed.rank is not None
    me: dict[str, object] | None = {"x": 1} if "me." in text else None
    return SubscriptionSource(id, text, parsed, filter, at, me, evolve, is_stateful)


def row(number: int, *, filters: Sequence[int] = (1,), **values: object) -> MatchRow:
    """A publication."""
    return MatchRow(number, "air/a", json.dumps(values).encode(), (), float(number), tuple(filters))


class Bench:
    """A coordinator that is out, with nothing but matchers around it."""

    def __init__(self, layout: Layout = "partitioned", matchers: int = 2) -> None:
        self.matchers = SimulatedMatchers(1)
        self.sources: dict[int, SubscriptionSource] = {}
        self.taken_back: list[Cell] = []
        settings = ElasticitySettings(layout=layout, matchers_max=4, pause_s=1e9)
        self.coordinator = Coordinator(
            self.matchers, settings, self.sources.__getitem__, self.taken_back.extend
        )
        self.matchers.listener = self.coordinator
        for _ in range(matchers):
            self.matchers.work_off(self.matchers.start())
        cells = [self.coordinator.new_cell(one, is_stateful=False) for one in self.matchers.living]
        self.coordinator.current = ARRANGEMENTS[layout](cells)
        self.coordinator.is_offloaded = True

    def add(self, id: int, text: str, *, filter: int = 1, evolve: str = "") -> None:
        self.sources[id] = source(id, text, filter=filter, evolve=evolve)
        self.coordinator.add(id)

    def remove(self, id: int) -> None:
        gone = self.sources.pop(id)
        self.coordinator.remove(id, gone.filter)

    def publish(self, *rows: MatchRow, advance_to: float | None = None) -> None:
        self.coordinator.submit(list(rows), advance_to)

    def work_off(self) -> None:
        """Let everybody do everything."""
        while not self.matchers.is_quiet:
            self.matchers.work()

    def found(self) -> list[dict[int, list[int]]]:
        """What came back for each ticket, the subscriptions sorted."""
        results = self.coordinator.results()
        return [{number: sorted(ids) for number, ids in result.found.items()} for result in results]

    def ranked(self) -> list[tuple[int, int]]:
        """What ranked subscriptions were given: subscription and publication."""
        results = self.coordinator.results()
        return [(one.subscription, one.number) for result in results for one in result.ranked]

    def files_in_use(self) -> set[str]:
        """The files that some cell is made again from."""
        return {cell.snapshot for cell in self.coordinator.cells.values() if cell.snapshot}


class Elastic:
    """A broker with simulated matchers."""

    def __init__(
        self,
        matchers: int = 0,
        layout: Layout = "replicated",
        *,
        least: int = 0,
        most: int = 4,
        seed: int = 1,
    ) -> None:
        self.matchers = SimulatedMatchers(seed)
        settings = ElasticitySettings(
            layout=layout, matchers_min=least, matchers_max=most, pause_s=1e9
        )
        self.world = SimulatedBroker(matchers=self.matchers, elasticity=settings)
        broker = self.world.broker
        assert broker.coordinator is not None
        assert broker.router.expressions.reconfigurer is not None
        self.broker = broker
        self.coordinator: Coordinator = broker.coordinator
        self.reconfigurer: Reconfigurer = broker.router.expressions.reconfigurer
        self.client = self.world.connect("subscriber")
        self.publisher = self.world.connect("publisher")
        self.subscribed = 0
        for _ in range(matchers):
            self.split()

    def split(self) -> None:
        assert self.broker.force_split(self.world.now) == ""
        self.settle()

    def merge(self) -> None:
        assert self.broker.force_merge(self.world.now) == ""
        self.settle()

    def step(self, seconds: float = 0.02) -> None:
        self.matchers.work()
        self.world.advance(seconds)

    def settle(self) -> None:
        """Until nothing is under way."""
        for _ in range(5000):
            self.step()
            if self.matchers.is_quiet and not self.reconfigurer.is_running:
                return
        raise AssertionError("it does not come to an end")

    def until_building(self) -> CellLayout:
        """Until there is something that is to take the place of the current arrangement."""
        while True:
            self.step()
            if self.coordinator.next_layout is not None:
                return self.coordinator.next_layout

    def subscribe(self, *texts: str, topic: str = "air/a", evolve: str = "") -> None:
        evolving = (("evolve", evolve),) if evolve else ()
        for text in texts:
            self.subscribed += 1
            user = (("filter", text), *evolving)
            properties = Properties(user=user, subscription_ids=(self.subscribed,))
            suback = self.client.subscribe(topic, properties=properties)
            assert all(code < 0x80 for code in suback.reasons)

    def publish(self, *values: float, topic: str = "air/a") -> None:
        for value in values:
            self.publisher.publish(topic, json.dumps({"x": value}).encode())

    def heard(self) -> list[float]:
        """The values that were delivered since."""
        return [json.loads(payload)["x"] for payload in self.client.payloads()]

    def last(self) -> tuple[str, str]:
        """What was rearranged last, and why not."""
        return self.reconfigurer.history[-1].kind, self.reconfigurer.history[-1].failure

    def files_in_use(self) -> set[str]:
        cells = self.coordinator.cells.values()
        return {path for cell in cells for path in (cell.snapshot, cell.saving) if path}
