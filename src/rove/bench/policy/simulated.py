"""A doctor's device in virtual time: what reaches it over a poor link, and how long it lasts.

SUBLIM's second and third experiment took PDAs, a radio and hours. Here the broker is the real one
(`rove.testing.mqtt.SimulatedBroker`: its core, without sockets), the policy is the real one and
pictures
are really made smaller; time, link and battery are simulated (`rove.client.devices`). So five
minutes take a second, and the same seed gives the same figures.

- The link carries one message after the other at a rate that is drawn anew every ten seconds,
  between 300 kb/s and 3 Mb/s, evenly on a logarithmic scale. A message that would have to wait for
  more than two seconds is lost, as in the buffer of an access point. Nothing is sent again: QoS 0.
- The device reports every half minute, as SUBLIM's did: what it has received since, its battery,
  its display.
- The battery loses so much a second whatever happens, so much with every message and so much with
  every byte of it.

Pictures that were made smaller are remembered between runs: there are four of them, and few sizes.
A message takes about 0.3 ms.
"""

from __future__ import annotations

import functools
from collections import deque
from typing import Any, Final

import msgspec

from rove.bench.policy import workload as policy_work
from rove.bench.policy.workload import FILTER, PATIENT, PICTURES, TOPIC, WIDTH
from rove.client.devices import EnergyModel, SimulatedBattery, SimulatedNetwork
from rove.mqtt.encoder import encode
from rove.mqtt.packets import Publish
from rove.policy.jobs import Answer, Compress, Compressed, Compression, Job
from rove.policy.limits import PolicyLimits
from rove.policy.working import answer_of
from rove.testing.mqtt import SimulatedBroker
from rove.testing.policies import SimulatedWorkers

REPORT_S: Final = 30.0
_S_PER_MIN: Final = 60.0
MODEL: Final = EnergyModel(idle_w=1.2, joules_per_byte=3e-6, joules_per_message=0.02)
"""A PDA of its time with its display on and its radio awake. A byte has to be received and, as part
of a picture, to be decoded and shown; a message wakes the device up."""


class Clerk(SimulatedWorkers):
    """Does jobs at the end of the turn, and each picture only once for all worlds."""

    def __init__(self) -> None:
        super().__init__(count=1)
        self._asked: list[Job] = []

    def submit(self, job: Job, time_ms: int) -> None:
        self._asked.append(job)

    def work(self, most: int | None = None) -> int:
        """Do all that was asked for; how much that was."""
        asked, self._asked = self._asked, []
        for job in asked:
            self.listener.answered(self._answer(job))
        return len(asked)

    def _answer(self, job: Job) -> Answer:
        if isinstance(job, Compress):
            return msgspec.structs.replace(_smaller(job.request), number=job.number)
        return answer_of(job, self.clock)


@functools.cache
def _smaller(request: Compression) -> Compressed:
    answer = answer_of(Compress(0, request), lambda: 0.0)
    assert isinstance(answer, Compressed)
    return answer


@functools.cache
def _message(which: int) -> bytes:
    return policy_work.message(which)


class Ward:
    """A broker with a monitor that publishes and one doctor's device."""

    def __init__(self, policy: str) -> None:
        self.world = SimulatedBroker(policies=PolicyLimits(), workers=Clerk())
        self.began_at = self.world.now
        self._doctor = self.world.connect("doctor")
        self._monitor = self.world.connect("monitor")
        self._tell("me", {"patients": [PATIENT]})
        self.report({"battery": 1.0})
        self._doctor.publish("$rove/policy", policy.encode(), 1)
        self._doctor.subscribe(FILTER)
        self._doctor.inbox.clear()
        self._published = 0

    def clock(self) -> float:
        """Seconds of this world."""
        return self.world.now

    def report(self, content: dict[str, Any]) -> None:
        """The device tells the broker about itself."""
        self._tell("report", {"display": WIDTH, **content})

    def _tell(self, topic: str, content: dict[str, Any]) -> None:
        self._doctor.publish(f"$rove/{topic}", msgspec.json.encode(content), 1)

    def publish(self) -> list[int]:
        """The next message comes; the sizes of what is sent to the device."""
        self._monitor.publish(TOPIC, _message(self._published % PICTURES))
        self._published += 1
        return [len(encode(packet)) for packet in self._doctor.take(Publish)]

    def wait_until(self, moment: float) -> None:
        """Let time pass."""
        self.world.advance(max(0.0, moment - self.world.now))


class Linked(msgspec.Struct, frozen=True):
    """How a link carried what was published."""

    published: int
    sent: int
    received: int
    bytes_mean: float
    """Of what was sent."""

    @property
    def share(self) -> float:
        """Of what was published."""
        return self.received / self.published


def linked(policy: str, per_min: float, seconds: float, seed: int) -> Linked:
    """Publish at a pace to a device behind a poor link."""
    ward = Ward(policy)
    network = SimulatedNetwork(ward.clock, seed)
    arrivals: deque[float] = deque()
    reports = 1
    sizes: list[int] = []
    count = round(seconds * per_min / _S_PER_MIN)
    for number in range(count):
        due = ward.began_at + number * _S_PER_MIN / per_min
        while (at := ward.began_at + reports * REPORT_S) <= due:
            ward.wait_until(at)
            received = 0
            while arrivals and arrivals[0] <= at:
                arrivals.popleft()
                received += 1
            ward.report({"battery": 1.0, "received": received})
            reports += 1
        ward.wait_until(due)
        for size_bytes in ward.publish():
            sizes.append(size_bytes)
            arrival = network.arrival(size_bytes)
            if arrival is not None:
                arrivals.append(arrival)
    return Linked(count, len(sizes), network.received, sum(sizes) / max(1, len(sizes)))


def life_s(
    policy: str | None, per_min: float, capacity_j: float, model: EnergyModel = MODEL
) -> float:
    """How long a battery lasts; without a policy nothing is published."""
    if policy is None:
        return capacity_j / model.idle_w
    ward = Ward(policy)
    battery = SimulatedBattery(capacity_j, model, ward.clock)
    reports, number, received = 1, 0, 0
    while not battery.is_empty:
        due = ward.began_at + number * _S_PER_MIN / per_min
        if (at := ward.began_at + reports * REPORT_S) <= due:
            ward.wait_until(at)
            ward.report({"battery": battery.level, "received": received})
            reports, received = reports + 1, 0
            continue
        ward.wait_until(due)
        number += 1
        received += sum(battery.received(size_bytes) for size_bytes in ward.publish())
    assert battery.emptied_at is not None
    return battery.emptied_at - ward.began_at
