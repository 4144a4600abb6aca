"""Publications of a world's instruments over a real broker: each subscriber is a client.

For scenarios without engines (a hospital ward, air). The world runs in real time in this process
and publishes what its instruments measure. Every subscriber of every audience connects, with its
filter expression, its variables, its policy, and a simulated device if it has one, which reports as
a real one would. So the broker does everything that `rove.world.feeds.audiences` and
`rove.world.feeds.devices` do in process, and policies run in the broker.

One process for all clients suffices: the broker takes most of the time; clients that only count
take little.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final

from msgspec.structs import replace

from rove.client import Client, Notification, Published, connect
from rove.client.devices import Clock, SimulatedDevice
from rove.client.reports import EVERY_S
from rove.errors import RoveError
from rove.world.feeds.devices import make_device
from rove.world.feeds.instruments import (
    PlannedSubscription,
    planned_subscriptions,
    policy_of,
    variables_of,
)
from rove.world.runs.scenario_run import RunSample, ScenarioResult, ScenarioRun
from rove.world.runs.scenarios import AudienceSettings, Scenario

CLIENTS_MAX: Final = 1_000
_QUIET_S: Final = 0.5
_QUIET_S_MAX: Final = 30.0
"""What is under way when the world ends has so long to come; it is there when nothing comes."""
_NETWORK: Final = "network"

Tell = Callable[[float, float], None]


class _CountingDevice:
    """A simulated device, and what it was sent."""

    def __init__(self, device: SimulatedDevice) -> None:
        self.device = device
        self.sent = self.sent_bytes = 0

    def __call__(self) -> dict[str, Any]:
        return self.device()

    def received(self, size_bytes: int) -> bool:
        self.sent += 1
        self.sent_bytes += size_bytes
        return self.device.received(size_bytes)


class _AudienceClient:
    """One client, and what it got."""

    def __init__(
        self, client: Client, wish: PlannedSubscription, device: _CountingDevice | None
    ) -> None:
        self.client = client
        self.wish = wish
        self.device = device
        self.received = self.received_bytes = 0
        self.network = 1.0

    @property
    def came(self) -> int:
        """All that the broker has sent."""
        return self.received if self.device is None else self.device.sent

    def take(self, notification: Notification[Any]) -> None:
        self.received += 1
        self.received_bytes += len(notification.payload)

    def notice(self, notification: Notification[Any]) -> None:
        """Its own state, as the broker has it."""
        self.network = notification.value.get(_NETWORK, self.network)


class _LiveAudience:
    """An audience."""

    def __init__(self, scenario: Scenario, place: int, clock: Clock) -> None:
        self.chosen: Final[AudienceSettings] = scenario.audiences[place]
        self.everybody: list[_AudienceClient] = []
        self._scenario = scenario
        self._place = place
        self._clock = clock
        self._policy = policy_of(scenario, self.chosen)

    async def join(
        self, stack: AsyncExitStack, url: str, wishes: list[PlannedSubscription]
    ) -> None:
        """All of them connect and subscribe."""
        for number, wish in enumerate(wishes):
            device = self._device(number, len(wishes))
            every_s = EVERY_S if self.chosen.device is None else self.chosen.device.report_s
            client = await stack.enter_async_context(
                connect(url, report=device, report_every_s=every_s)
            )
            subscriber = _AudienceClient(client, wish, device)
            variables = variables_of(self._scenario, self.chosen, number) | (wish.me or {})
            if variables:
                await client.me.set(**variables)
            if device is not None:
                state = await client.subscribe("$rove/me", into=dict)
                state.listen(subscriber.notice)
            subscription = await client.subscribe(
                self.chosen.topic,
                wish.text,
                evolve=None if self.chosen.evolve == "exact" else self.chosen.evolve,
                policy=self._policy or None,
            )
            subscription.listen(subscriber.take)
            self.everybody.append(subscriber)

    def _device(self, number: int, count: int) -> _CountingDevice | None:
        if self.chosen.device is None:
            return None
        seed = self._scenario.seed + self._place
        return _CountingDevice(make_device(self.chosen.device, number, count, self._clock, seed))

    def look_around(self, run: ScenarioRun) -> None:
        """Those who follow tell where they are."""
        entities = run.world.entities
        for one in self.everybody:
            if (entity := one.wish.entity) is not None:
                one.client.me["x"] = float(entities.x[entity])
                one.client.me["y"] = float(entities.y[entity])

    def figures(self, publications: int, published_bytes: int) -> dict[str, float]:
        """What they have come to."""
        everybody = self.everybody
        count = len(everybody)
        received = sum(one.received for one in everybody)
        received_bytes = sum(one.received_bytes for one in everybody)
        found = {
            "subscriptions": float(count),
            "operations": float(count),
            "publications": float(publications),
            "published_bytes": float(published_bytes),
            "notifications": float(received),
            "notified_bytes": float(received_bytes),
        }
        devices = [one.device for one in everybody if one.device is not None]
        if devices:
            batteries = [one.device.battery for one in devices]
            found |= {
                "notifications": float(sum(one.sent for one in devices)),
                "notified_bytes": float(sum(one.sent_bytes for one in devices)),
                "received": float(received),
                "received_bytes": float(received_bytes),
                "network": sum(one.network for one in everybody) / count,
                "battery": sum(one.level for one in batteries if one is not None) / count,
            }
        return found


async def play_audiences(scenario: Scenario, url: str, tell: Tell | None = None) -> ScenarioResult:
    """Play a scenario's instruments and audiences over a broker, in real time."""
    clients = sum(audience.count for audience in scenario.audiences)
    if clients > CLIENTS_MAX:
        raise RoveError(
            f"{scenario.name} has {clients:,} subscribers; over a broker there can be "
            f"{CLIENTS_MAX:,}, a connection each"
        )
    run = ScenarioRun(replace(scenario, audiences=()), is_open=True)
    joining = time.monotonic()
    places = range(len(scenario.audiences))
    listeners = [
        _LiveAudience(scenario, place, lambda: time.monotonic() - joining) for place in places
    ]
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(connect(url))
        for each, wishes in zip(listeners, planned_subscriptions(scenario, run.world), strict=True):
            await each.join(stack, url, wishes)
        began = time.monotonic()
        publications, published_bytes = await _publish(run, publisher, listeners, began, tell)
        elapsed_s = time.monotonic() - began
        await _quiet(listeners)
        heard = tuple(
            RunSample(run.world.at, each.chosen.name, each.figures(publications, published_bytes))
            for each in listeners
        )
    return replace(run.result(), heard=heard, samples=(), elapsed_s=elapsed_s)


async def _quiet(listeners: list[_LiveAudience]) -> None:
    """Wait until nobody receives anything any more."""
    before, end = -1, time.monotonic() + _QUIET_S_MAX
    while time.monotonic() < end:
        came = sum(one.came for each in listeners for one in each.everybody)
        if came == before:
            return
        before = came
        await asyncio.sleep(_QUIET_S)


async def _publish(
    run: ScenarioRun,
    publisher: Client,
    listeners: list[_LiveAudience],
    began: float,
    tell: Tell | None,
) -> tuple[int, int]:
    """Every tick at its moment, to the end; how much was published."""
    scenario = run.scenario
    count = size = 0
    receipts: set[asyncio.Future[Published]] = set()
    reporting = max(1, round(1.0 / scenario.tick_s))
    for tick in range(1, round(scenario.seconds / scenario.tick_s) + 1):
        await asyncio.sleep(max(0.0, began + tick * scenario.tick_s - time.monotonic()))
        run.step()
        for each in listeners:
            every = max(1, round(each.chosen.follow_s / scenario.tick_s))
            if each.chosen.follow and tick % every == 0:
                each.look_around(run)
        for feed in run.feeds:
            receipt = await publisher.post(feed.topic, feed.payload)
            receipts.add(receipt)
            receipt.add_done_callback(receipts.discard)
            count += 1
            size += feed.nbytes
        if tell is not None and tick % reporting == 0:
            tell(run.world.at, scenario.seconds)
    await asyncio.gather(*receipts)
    return count, size
