"""Simulated devices of subscribers: a battery, a display and a network, and the policies that use
them.

An audience (`rove.world.feeds.audiences`) determines who is notified. This module simulates the way
from there to the reader: the policy of a subscriber decides what is sent instead, the link drops
what it cannot carry in time, receiving drains the battery, and the device reports its state
periodically, which gives `me.network` as in the broker. All is in virtual time, with the broker's
own agents (`rove.policy.agents`) and the devices that clients are tested with
(`rove.client.devices`).

An audience without a policy may have devices too: then everything is sent, which shows its cost.
Notifications reach the device at their time. A picture for two subscribers is compressed for each,
since nothing waits for it here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rove.client.devices import (
    Clock,
    EnergyModel,
    SimulatedBattery,
    SimulatedDevice,
    SimulatedNetwork,
)
from rove.policy.agents import Agent
from rove.policy.automatic_variables import NETWORK, USUAL, network_share
from rove.policy.compiler import Policy
from rove.policy.limits import PolicyLimits
from rove.policy.messages import IncomingMessage, OutputMessage
from rove.world.feeds.audiences import AudienceNotification
from rove.world.runs.scenarios import DeviceSettings

_ROUNDING_S: Final = 1e-9


class DeviceSubscriber:
    """One subscriber: variables, device, policy, and what became of its messages."""

    def __init__(self, device: SimulatedDevice, me: dict[str, object]) -> None:
        self.device = device
        self.me = me
        self.sent = self.received = 0
        self.sent_bytes = self.received_bytes = 0
        self._sent_before = self._received_before = 0

    def tell(self, output: OutputMessage) -> None:
        """Something is sent to it."""
        size = len(output.payload)
        self.sent += 1
        self.sent_bytes += size
        if self.device.received(size):
            self.received += 1
            self.received_bytes += size

    def report(self) -> None:
        """The device tells how it is; the rest follows from what was sent since the last time."""
        sent, received = self.sent - self._sent_before, self.received - self._received_before
        self._sent_before, self._received_before = self.sent, self.received
        self.me.update(self.device())
        self.me[NETWORK] = network_share(received, sent)


def make_device(
    chosen: DeviceSettings, number: int, count: int, clock: Clock, seed: int
) -> SimulatedDevice:
    """The device of one of so many subscribers."""
    first, last = chosen.battery
    level = first + (last - first) * number / max(count - 1, 1)
    model = EnergyModel(chosen.idle_w, chosen.joules_per_byte, chosen.joules_per_message)
    low, high = chosen.bits_per_s
    link = SimulatedNetwork(
        clock, 1_000_000 * seed + number, low_bits_per_s=low, high_bits_per_s=high
    )
    battery = SimulatedBattery(chosen.battery_j, model, clock, level)
    display = chosen.display[number % len(chosen.display)]
    return SimulatedDevice(battery, network=link, display=display)


class AudienceDevices:
    """The devices of an audience, a subscription each, in order."""

    def __init__(
        self,
        chosen: DeviceSettings,
        variables: Iterable[dict[str, object]],
        *,
        policy: Policy | None = None,
        seed: int = 0,
    ) -> None:
        """`variables` are the manual ones of each subscriber."""
        self._report_s = chosen.report_s
        self._at = 0.0
        self._next_report = chosen.report_s
        self._policy = policy
        self._limits = PolicyLimits()
        mine = list(variables)
        self.subscribers = [
            DeviceSubscriber(make_device(chosen, number, len(mine), self._clock, seed), me)
            for number, me in enumerate(mine)
        ]
        self._agents = [Agent(policy, 0.0) for _ in mine] if policy is not None else []
        for one in self.subscribers:
            one.report()

    def _clock(self) -> float:
        return self._at

    def hear(self, notifications: Iterable[AudienceNotification], at: float) -> None:
        """Deliver all notifications of the audience at a time; call it every tick."""
        self._at = at
        if at >= self._next_report - _ROUNDING_S:
            self._next_report += self._report_s
            for one in self.subscribers:
                one.report()
        shown: dict[int, IncomingMessage] = {}
        for notification in notifications:
            feed = notification.feed
            arrived = shown.get(id(feed))
            if arrived is None:
                arrived = shown[id(feed)] = IncomingMessage(feed.topic, feed.payload)
            self._pass(notification.subscription, arrived)

    def _pass(self, number: int, arrived: IncomingMessage) -> None:
        subscriber = self.subscribers[number]
        came = OutputMessage(arrived.payload, arrived.user)
        if not self._agents:
            subscriber.tell(came)
            return
        decision = self._agents[number].decide(
            arrived, subscriber.me, self._at, self._limits, automatic=USUAL
        )
        subscriber.me.update(decision.changes)
        for output in (came,) if decision.is_unchanged else decision.outputs:
            subscriber.tell(output)

    def figures(self) -> dict[str, float]:
        """What they have come to: sent and received, and how batteries and networks are."""
        everybody = self.subscribers
        count = max(len(everybody), 1)
        batteries = [one.device.battery for one in everybody]
        return {
            "notifications": sum(one.sent for one in everybody),
            "notified_bytes": sum(one.sent_bytes for one in everybody),
            "received": sum(one.received for one in everybody),
            "received_bytes": sum(one.received_bytes for one in everybody),
            "dropped": sum(agent.tally.dropped for agent in self._agents),
            "changed": sum(agent.tally.changed for agent in self._agents),
            "stopped": sum(sum(agent.tally.stopped.values()) for agent in self._agents),
            "battery": sum(one.level for one in batteries if one is not None) / count,
            "network": sum(float(str(one.me[NETWORK])) for one in everybody) / count,
        }
