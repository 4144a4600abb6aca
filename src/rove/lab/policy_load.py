"""The load of `rove bench policy`: one monitor that publishes, doctors' devices that subscribe.

`python -m rove.lab.policy_load` reads jobs as JSON from its standard input, does them one after the
other, and writes what they found, as `rove.lab.broker_load` does and for the same reasons. Messages
are of 100 KB (`rove.lab.policy_work`), with QoS 0. A device that has a policy first says who its
patients are, reports its battery and its display, and sets the policy; then it reports every half
minute how much it received. What comes is looked at as it streams by: only its head is read, for
the number, and one that comes twice or out of order ends the job.

Devices that mean harm are let in when everything else is warm, and have some messages to show it
before those that count. They are beside those that are measured, not among them, so that these are
as many and receive as much as without them.

CPU times are read from Linux's schedstat, to the nanosecond: a message takes the broker a few
milliseconds, and other clocks know tens of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import re
import sys
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from rove.lab import policy_work
from rove.lab.broker_clients import Client, Tally, connect_all
from rove.lab.broker_load import carried_out, done_apart
from rove.lab.broker_process import BrokerBenchError, family, settle
from rove.lab.policy_work import FILTER, FIRST_NUMBER, NUMBER, PATIENT, TOPIC
from rove.mqtt.packets import Filter, Packet, Puback, Publish, Reason, Subscribe
from rove.mqtt.writing import encode

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


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Messages to devices."""

    port: int
    pid: int
    """Of the broker."""
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


class Outcome(msgspec.Struct, kw_only=True):
    """What a job found."""

    sent: int
    expected: int
    """Notifications."""
    received: int
    received_bytes: int
    seconds: float
    """From the first message to the last notification."""
    broker_cpu_s: float
    workers_cpu_s: float
    p50_ms: float
    p99_ms: float

    @property
    def cpu_s(self) -> float:
        """The broker's and that of all that it has started."""
        return self.broker_cpu_s + self.workers_cpu_s

    @property
    def share(self) -> float:
        """Of the notifications that were due, how many came."""
        return self.received / self.expected


class Jobs(msgspec.Struct, frozen=True):
    """To be done one after the other."""

    jobs: Sequence[Job]


def run(jobs: Sequence[Job]) -> list[Outcome]:
    """Do jobs in a process of their own, one after the other, and wait for them."""
    answer = done_apart("rove.lab.policy_load", Jobs(jobs), 2 * _seconds_max(jobs))
    return msgspec.json.decode(answer, type=list[Outcome])


def _seconds_max(jobs: Sequence[Job]) -> float:
    paced_s = (job.messages * _S_PER_MIN / job.per_min for job in jobs if job.per_min)
    return _OVERTIME_S * len(jobs) + sum(paced_s)


# --- devices ----------------------------------------------------------------------------------


class Notes:
    """Which message each notification was of, when it came, and how large all were."""

    def __init__(self) -> None:
        self.numbers = array("q")
        self.came_at = array("d")
        self.bytes = 0


class Subscriber:
    """One device, on a connection of its own."""

    def __init__(self, number: int, device: Device) -> None:
        self.device = device
        self.client = Client(f"device-{number}")
        self.received = 0
        """Since the last report."""

    async def begin(self, policies: dict[str, str]) -> None:
        """Say what there is to say, and subscribe."""
        asked: list[Packet] = []
        if self.device.policy:
            asked = [
                self.told("me", {"patients": [PATIENT]}, 1),
                self.told("report", self._state(), 2),
                Publish("$rove/policy", policies[self.device.policy].encode(), 1, packet_id=3),
            ]
        answers = await self.client.ask([*asked, Subscribe(4, (Filter(FILTER, 0),))])
        for answer in answers:
            if isinstance(answer, Puback) and answer.reason >= Reason.UNSPECIFIED_ERROR:
                why = answer.properties.reason_string
                raise BrokerBenchError(f"{self.client.client_id} was refused: {why}")

    def report(self) -> None:
        """Tell the broker what was received since the last time."""
        if self.device.policy:
            content = {**self._state(), "received": self.received}
            self.received = 0
            self.client.transport.write(encode(self.told("report", content, 5)))

    def _state(self) -> dict[str, object]:
        return {"battery": self.device.battery, "display": policy_work.WIDTH}

    @staticmethod
    def told(topic: str, content: dict[str, object], packet_id: int) -> Publish:
        """Something for the broker itself."""
        return Publish(f"$rove/{topic}", msgspec.json.encode(content), 1, packet_id=packet_id)


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
        subscriber.client.take = self._take

    def _take(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if self._left_bytes:
                step = min(self._left_bytes, len(data) - at)
                self._left_bytes -= step
                at += step
            else:
                head = self._head + data[at : at + _HEAD_BYTES]
                end = _end_of_packet(head)
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
            raise BrokerBenchError(f"{name} was sent {head[:80]!r} behind message {self._last}")
        self._current = number
        self._notes.bytes += size_bytes

    def _end(self) -> None:
        if self._current < 0:
            return
        self._last = self._current
        self._subscriber.received += 1
        self._notes.numbers.append(self._current)
        self._notes.came_at.append(time.perf_counter())
        self._tally.add(1)


def _end_of_packet(head: bytes) -> int:
    """How many bytes a packet has; more than there are where that cannot be told yet."""
    size, shift, at = 0, 0, 1
    while at < len(head):
        size |= (head[at] & 0x7F) << shift
        if head[at] < 0x80:
            return at + 1 + size
        shift += 7
        at += 1
    return len(head) + 1


# --- the job ----------------------------------------------------------------------------------


class _Monitor:
    """Publishes, and remembers when."""

    def __init__(self, client: Client) -> None:
        self._transport = client.transport
        client.take = _ignore
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
        self._transport.write(packet)

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


async def _done(job: Job) -> Outcome:
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
        one.client.take = _ignore
    if bad:
        await monitor.hurry(job.harmful, len(good), 1, tally)
        await tally.reach(monitor.sent * len(good), 2 * _PATIENCE_S)
    await asyncio.gather(*(asyncio.to_thread(settle, pid) for pid in family(job.pid)))
    outcome = await _measured(job, monitor, good, tally, notes)
    for client in (monitor_client, *(one.client for one in subscribers)):
        client.take = _ignore
        client.leave()
    return outcome


def _ignore(data: bytes) -> None:
    """What comes is not looked at."""


async def _done_all(jobs: Sequence[Job]) -> list[Outcome]:
    return [await _done(job) for job in jobs]


async def _measured(
    job: Job, monitor: _Monitor, good: Sequence[Subscriber], tally: Tally, notes: Notes
) -> Outcome:
    tally.received = 0
    del notes.numbers[:], notes.came_at[:]
    notes.bytes = 0
    first = monitor.sent
    gc.collect()
    gc.disable()  # its pauses would be measured as the broker's
    before = cpu_times(job.pid)
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
        raise BrokerBenchError(f"of {expected:,} notifications none came")
    broker_cpu_s, workers_cpu_s = _passed(before, cpu_times(job.pid), job.pid)
    sent_at = np.array(monitor.sent_at)[np.frombuffer(notes.numbers, np.int64)]
    delays_ms = 1_000 * (np.frombuffer(notes.came_at) - sent_at)
    p50, p99 = np.percentile(delays_ms, (50, 99))
    return Outcome(
        sent=sent,
        expected=expected,
        received=tally.received,
        received_bytes=notes.bytes,
        seconds=tally.at - monitor.sent_at[first],
        broker_cpu_s=broker_cpu_s,
        workers_cpu_s=workers_cpu_s,
        p50_ms=float(p50),
        p99_ms=float(p99),
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


# --- what it costs ----------------------------------------------------------------------------


def cpu_times(pid: int) -> dict[int, float]:
    """Seconds that a process and all that it has started have used so far, each."""
    found: dict[int, float] = {}
    for one in family(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            tasks = Path(f"/proc/{one}/task").iterdir()
            texts = [(task / "schedstat").read_text(encoding="ascii") for task in tasks]
            found[one] = sum(int(text.split()[0]) for text in texts) / 1e9
    return found


def _passed(before: dict[int, float], after: dict[int, float], broker: int) -> tuple[float, float]:
    """What the broker used meanwhile, and what the others did; those that ended are lost."""
    used = {pid: seconds - before.get(pid, 0.0) for pid, seconds in after.items()}
    return used.pop(broker), sum(used.values())


def main() -> int:
    """Do the job on standard input."""
    import uvloop

    jobs = msgspec.json.decode(sys.stdin.buffer.read(), type=Jobs).jobs
    try:
        outcomes = uvloop.run(carried_out(_done_all(jobs), _seconds_max(jobs)))
    except BrokerBenchError as error:
        print(error, file=sys.stderr)
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(outcomes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
