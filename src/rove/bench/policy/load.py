"""The load of `rove bench policy`: one monitor that publishes, doctors' devices that subscribe.

`run` does jobs one after the other in a new process (`rove.bench.load`). Messages are of
100 KB (`rove.bench.policy.workload`), with QoS 0. A device that has a policy first says who its
patients are, reports its battery and its display, and sets the policy; then it reports every half
minute how much it received. What comes is looked at as it streams by: only its head is read, for
the number, and one that comes twice or out of order ends the job.

Devices that mean harm are let in when everything else is warm, and have some messages to show it
before those that count. They are beside those that are measured, not among them, so that these are
as many and receive as much as without them.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time
from array import array
from collections.abc import Sequence
from typing import Final

import msgspec

from rove.bench.broker.clients import Client, Tally, connect_all
from rove.bench.load import Job, Load, Notes, Outcome, Watch, end_of_packet, percentiles
from rove.bench.policy import workload as policy_work
from rove.bench.policy.workload import FILTER, FIRST_NUMBER, NUMBER, PATIENT, TOPIC
from rove.client.protocol import Request, subscribe_packet
from rove.live.connections import ignore
from rove.mqtt.encoder import encode
from rove.mqtt.packets import Filter, Publish
from rove.testing.broker_processes import BrokerProcessError, family, settle

WARM_UP: Final = 4
"""Messages before those that count."""
_REPORT_S: Final = 30.0
_HEAD_BYTES: Final = 256
"""Of a packet; its number stands within."""
_PATIENCE_S: Final = 5.0
_OVERTIME_S: Final = 600.0
"""How much longer than its messages a job may take."""
_PUBLISH: Final = 0x30
_PUBACK: Final = 0x40
_S_PER_MIN: Final = 60.0


class Device(msgspec.Struct, frozen=True):
    """What a subscriber has."""

    policy: str = ""
    """The name of one; empty for a subscriber that is sent everything."""
    battery: float = 1.0
    counts: bool = True
    """False for one that means harm, and is sent nothing."""


class PolicyJob(Job, frozen=True, kw_only=True):
    """Messages to devices."""

    policies: dict[str, str]
    """Texts by name."""
    devices: Sequence[Device]
    messages: int
    per_min: float = 0.0
    """0 for as fast as it goes."""
    harmful: int = 0
    """Messages that come before those that count when those are there that mean harm."""
    under_way: int = 3
    """Messages that not everybody has received, at most, if it goes as fast as it can."""


class PolicyOutcome(Outcome, kw_only=True):
    """What a job found."""

    received_bytes: int
    p50_ms: float
    p99_ms: float

    @property
    def cpu_s(self) -> float:
        """Of the broker and all processes that it has started."""
        return self.broker_cpu_s + self.children_cpu_s

    @property
    def share(self) -> float:
        """Of the notifications that were due, how many came."""
        return self.received / self.expected


class Jobs(msgspec.Struct, frozen=True):
    """To be done one after the other."""

    jobs: Sequence[PolicyJob]


def run(jobs: Sequence[PolicyJob]) -> list[PolicyOutcome]:
    """Do jobs one after the other in a new process, and wait for them."""
    return LOAD.run(Jobs(jobs))


def _seconds_max(jobs: Sequence[PolicyJob]) -> float:
    paced_s = (job.messages * _S_PER_MIN / job.per_min for job in jobs if job.per_min)
    return _OVERTIME_S * len(jobs) + sum(paced_s)


# --- devices ----------------------------------------------------------------------------------


class Subscriber:
    """One device, on a connection of its own."""

    def __init__(self, number: int, device: Device) -> None:
        self.device = device
        self.client = Client(f"device-{number}")
        self.received = 0
        """Since the last report."""

    async def begin(self, policies: dict[str, str]) -> None:
        """Say what there is to say, and subscribe."""
        asked: list[Request] = []
        if self.device.policy:
            policy = policies[self.device.policy].encode()
            asked = [
                self.told("me", {"patients": [PATIENT]}),
                self.told("report", self._state()),
                Publish("$rove/policy", policy, 1),
            ]
        await self.client.request([*asked, subscribe_packet((Filter(FILTER, 0),))])

    def report(self) -> None:
        """Tell the broker what was received since the last time."""
        if self.device.policy:
            content = {**self._state(), "received": self.received}
            self.received = 0
            packet = self.told("report", content)
            packet.packet_id = self.client.protocol.take_packet_id()
            self.client.send(encode(packet))

    def _state(self) -> dict[str, object]:
        return {"battery": self.device.battery, "display": policy_work.WIDTH}

    @staticmethod
    def told(topic: str, content: dict[str, object]) -> Publish:
        """Something for the broker itself."""
        return Publish(f"$rove/{topic}", msgspec.json.encode(content), 1)


class Listener:
    """Takes what one device is sent, of whatever sizes, without putting it together."""

    def __init__(self, subscriber: Subscriber, tally: Tally, notes: Notes) -> None:
        self._subscriber = subscriber
        self._tally = tally
        self._notes = notes
        self._number = re.compile(NUMBER)
        self._head = b""
        self._left_bytes = 0
        """Of a packet whose head has been read."""
        self._current = 0
        self._last = -1
        subscriber.client.take_bytes(self._take)

    def _take(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if self._left_bytes:
                step = min(self._left_bytes, len(data) - at)
                self._left_bytes -= step
                at += step
            else:
                head = self._head + data[at : at + _HEAD_BYTES]
                end = end_of_packet(head)
                if len(head) < (wanted := min(end, _HEAD_BYTES)):
                    self._head = head
                    return
                at += wanted - len(self._head)
                self._head = b""
                self._left_bytes = end - wanted
                self._look(head[:wanted], end)
            if not self._left_bytes:
                self._end()

    def _look(self, head: bytes, size_bytes: int) -> None:
        kind = head[0] & 0xF0
        if kind == _PUBACK:
            self._current = -1
            return
        found = self._number.search(head) if kind == _PUBLISH else None
        if found is None or (number := int(found[1]) - FIRST_NUMBER) <= self._last:
            name = self._subscriber.client.client_id
            raise BrokerProcessError(f"{name} was sent {head[:80]!r} behind message {self._last}")
        self._current = number
        self._notes.bytes += size_bytes

    def _end(self) -> None:
        if self._current < 0:
            return
        self._last = self._current
        self._subscriber.received += 1
        self._notes.add(self._current, time.perf_counter())
        self._tally.add(1)


# --- the job ----------------------------------------------------------------------------------


class _Monitor:
    """Publishes, and remembers when."""

    def __init__(self, client: Client) -> None:
        self._client = client
        client.take_bytes(ignore)
        self.sent_at = array("d")
        # A broker that has seen another job remembers its pictures.
        self._stamp = random.randrange(policy_work.STAMPS)

    @property
    def sent(self) -> int:
        return len(self.sent_at)

    def _packet(self) -> bytes:
        return encode(Publish(TOPIC, policy_work.message(self.sent, self._stamp + self.sent), 0))

    def _send(self, packet: bytes) -> None:
        self.sent_at.append(time.perf_counter())
        self._client.send(packet)

    async def pace(self, count: int, per_min: float) -> None:
        start = time.perf_counter()
        for number in range(count):
            packet = self._packet()
            due = start + number * _S_PER_MIN / per_min
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            self._send(packet)

    async def hurry(self, count: int, receivers: int, under_way: int, tally: Tally) -> None:
        """As fast as it goes, with few messages that not everybody has received."""
        begin = tally.received
        for number in range(count):
            before = tally.received
            wanted = begin + (number + 1 - under_way) * receivers
            await tally.reach(wanted, _PATIENCE_S)
            if tally.received == before < wanted:
                break  # something is lost, and will not come any more
            self._send(self._packet())


async def _done(job: PolicyJob) -> PolicyOutcome:
    subscribers = [Subscriber(number, device) for number, device in enumerate(job.devices)]
    good = [one for one in subscribers if one.device.counts]
    bad = [one for one in subscribers if not one.device.counts]
    monitor_client = Client("monitor")
    await connect_all([monitor_client, *(one.client for one in subscribers)], job.port)
    for one in good:
        await one.begin(job.policies)
    monitor = _Monitor(monitor_client)
    tally, notes = Tally(), Notes()
    for one in good:
        Listener(one, tally, notes)
    await monitor.hurry(WARM_UP, len(good), 1, tally)
    await tally.reach(WARM_UP * len(good), 2 * _PATIENCE_S)
    for one in bad:
        await one.begin(job.policies)
        one.client.take_bytes(ignore)
    if bad:
        await monitor.hurry(job.harmful, len(good), 1, tally)
        await tally.reach(monitor.sent * len(good), 2 * _PATIENCE_S)
    await asyncio.gather(*(asyncio.to_thread(settle, pid) for pid in family(job.pid)))
    outcome = await _measured(job, monitor, good, tally, notes)
    for client in (monitor_client, *(one.client for one in subscribers)):
        client.take_bytes(ignore)
        client.close()
    return outcome


async def _done_all(asked: Jobs) -> list[PolicyOutcome]:
    return [await _done(job) for job in asked.jobs]


async def _measured(
    job: PolicyJob, monitor: _Monitor, good: Sequence[Subscriber], tally: Tally, notes: Notes
) -> PolicyOutcome:
    tally.received = 0
    notes.clear()
    first = monitor.sent
    watch = Watch(job.pid)
    reporting = asyncio.create_task(_report(good))
    if job.per_min:
        await monitor.pace(job.messages, job.per_min)
    else:
        await monitor.hurry(job.messages, len(good), job.under_way, tally)
    sent = monitor.sent - first
    expected = sent * len(good)
    await tally.reach(expected, _PATIENCE_S)
    reporting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reporting
    if not tally.received:
        raise BrokerProcessError(f"of {expected:,} notifications none came")
    broker_cpu_s, children_cpu_s = watch.cpu_s()
    p50_ms, p99_ms = percentiles(notes.delays(monitor.sent_at)[1], 50, 99)
    return PolicyOutcome(
        sent=sent,
        expected=expected,
        received=tally.received,
        received_bytes=notes.bytes,
        seconds=tally.at - monitor.sent_at[first],
        broker_cpu_s=broker_cpu_s,
        children_cpu_s=children_cpu_s,
        p50_ms=p50_ms,
        p99_ms=p99_ms,
    )


async def _report(subscribers: Sequence[Subscriber]) -> None:
    """Every half minute, one after the other, as devices that know nothing of each other do.

    Not in the first one: of little that was sent, much is always on its way.
    """
    pause_s = _REPORT_S / len(subscribers)
    await asyncio.sleep(_REPORT_S)
    while True:
        for one in subscribers:
            await asyncio.sleep(pause_s)
            one.report()


LOAD: Final = Load(
    "rove.bench.policy.load",
    {Jobs: _done_all},
    list[PolicyOutcome],
    lambda jobs: _seconds_max(jobs.jobs),
)
