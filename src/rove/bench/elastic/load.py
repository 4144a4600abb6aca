"""The load of `rove bench elastic`: publishers and subscribers in a process of their own.

`LOAD.run` does a job in a new process (`rove.bench.load`). Notifications have many identifiers
and so all sizes, and each is compared with what was due (`rove.bench.elastic.workload`). One that
is missing, too much, twice or out of order ends the job.

A publication is sent with QoS 1 where the publisher waits for what became of it, and with QoS 0
where it keeps a pace; notifications are of QoS 0. Looking at one takes about 2 µs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rove.bench.broker.clients import Client, Publisher, Tally, connect_all
from rove.bench.elastic.workload import (
    FILTER,
    FIRST_NUMBER,
    NUMBER_AT,
    NUMBER_DIGITS,
    PUBLISHER_NUMBERS,
    Drawn,
    Name,
    Work,
    due_bytes,
    work_of,
)
from rove.bench.load import (
    Job,
    Load,
    Notes,
    Outcome,
    Watch,
    end_of_packet,
    number_at,
    percentiles,
)
from rove.client.protocol import subscribe_packet
from rove.mqtt.packets import Filter, Subscribe
from rove.testing.broker_processes import BrokerProcessError, family, settle

_PATIENCE_S: Final = 20.0
_OVERTIME_S: Final = 1_800.0
"""How long a job may take besides its publishing: a million subscriptions take minutes."""
_SUBSCRIBED_AT_ONCE: Final = 5_000
_WARM_UP: Final = 50
"""Publications before those that count."""
_QUARTERS: Final = 4


class ElasticJob(Job, frozen=True, kw_only=True, tag=True):
    """What every job of this load needs to know."""

    work: Name = "gas"
    sessions: int = 10
    """That share the subscriptions, each as a client of its own."""


class Closed(ElasticJob, frozen=True, kw_only=True, tag=True):
    """Publications one after the other, a few of them under way; runs of several lengths."""

    sizes: Sequence[int]
    """Numbers of subscriptions, ascending: those of a run stay for the next."""
    counts: Sequence[int]
    """Publications of a run; all of them with each size."""
    under_way: int
    seconds_max: float = 3_600.0
    """A run ends early when it takes longer."""


class Paced(ElasticJob, frozen=True, kw_only=True, tag=True):
    """Publications at paces that change."""

    size: int
    steps: Sequence[tuple[float, float]]
    """Publications per second, and for how many seconds."""


class Flooded(ElasticJob, frozen=True, kw_only=True, tag=True):
    """As many publications as the broker takes, many of them under way.

    Several publish: what is acknowledged to one at once comes again at once, in one batch.
    """

    size: int
    publishers: int
    under_way: int
    """Of each publisher."""
    seconds: float


class Run(Outcome, kw_only=True):
    """What one run found."""

    subscriptions: int
    mean_ms: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    quarters_ms: list[float] = msgspec.field(default_factory=list)
    """The mean of each quarter of the run."""

    @property
    def sent_per_s(self) -> float:
        return self.sent / self.seconds


class Trace(msgspec.Struct, kw_only=True):
    """When each notification's publication was sent, and how long it took."""

    began_at: float
    """In seconds since 1970."""
    sent: int
    sent_s: bytes
    """64-bit numbers: seconds since it began, for each notification."""
    delays_ms: bytes
    """The same: milliseconds."""

    def arrays(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Both as numbers."""
        return np.frombuffer(self.sent_s), np.frombuffer(self.delays_ms)


class Runs(msgspec.Struct, kw_only=True):
    """What a job found."""

    runs: list[Run] = []
    trace: Trace | None = None


# --- clients ----------------------------------------------------------------------------------


class _Subscribers:
    """Sessions that share the subscriptions of a work, and what is due to them."""

    def __init__(self, job: ElasticJob, work: Work) -> None:
        self._job = job
        self._work = work
        self._clients = [Client(f"subscriber-{number}") for number in range(job.sessions)]
        self._count = 0
        self._due_notifications = np.zeros(len(work.readings), np.int64)
        self._due: list[list[int]] = []

    async def connect(self) -> None:
        await connect_all(self._clients, self._job.port)

    async def grow(self, count: int) -> None:
        """Subscribe to what is wanting; ends when the broker and all its matchers are at rest."""
        for number, client in enumerate(self._clients):
            asked = _subscribes(self._work.texts, number, len(self._clients), self._count, count)
            for begin in range(0, len(asked), _SUBSCRIBED_AT_ONCE):
                await client.request(asked[begin : begin + _SUBSCRIBED_AT_ONCE])
        self._count = count
        for pid in family(self._job.pid):
            await asyncio.to_thread(settle, pid)
        every = [
            due_bytes(self._work, count, number, len(self._clients))
            for number in range(len(self._clients))
        ]
        self._due = [one.tolist() for one in every]
        self._due_notifications = np.sum([one > 0 for one in every], axis=0, dtype=np.int64)

    def listen(self, publisher: _Sender, tally: Tally, notes: Notes) -> None:
        for client, due in zip(self._clients, self._due, strict=True):
            _Listener(client, publisher, due, tally, notes)

    def due(self, publisher: _Sender, first: int = 0) -> int:
        """Notifications of what a publisher has sent, from its first on or from a later one."""
        begin = publisher.stream.first
        sent = range(begin + first, begin + publisher.sent)
        readings = np.fromiter(map(publisher.stream.reading, sent), np.int64, len(sent))
        return int(self._due_notifications[readings].sum())


def _subscribes(
    texts: Sequence[str], session: int, sessions: int, begin: int, end: int
) -> list[Subscribe]:
    """Those that a session has of the subscriptions from one position to another."""
    return [
        subscribe_packet((Filter(FILTER, 0),), identifier, (("filter", texts[position]),))
        for identifier, position in enumerate(range(session, end, sessions), start=1)
        if position >= begin
    ]


class _Sender(Publisher):
    """Remembers when it sent what, and can stop after so many."""

    stream: Drawn

    def __init__(self, client: Client, stream: Drawn) -> None:
        super().__init__(client, stream)
        self._goal = 0
        self._give_up_at = 0.0
        self._is_reached = asyncio.Event()

    def send(self, count: int) -> None:
        now = time.perf_counter()
        self.sent_at.extend([now] * count)
        super().send(count)

    async def send_all(self, count: int, under_way: int, until: float) -> None:
        """So many more, a few of them under way; fewer if that takes too long."""
        self._goal = self.sent + count
        self._give_up_at = until
        self._is_reached.clear()
        self.send(min(under_way, count))
        await self._is_reached.wait()
        self._goal = 0

    async def keep_pace(self, per_s: float, seconds: float) -> None:
        """At a pace, together what is due together: timers know milliseconds."""
        start, done = time.perf_counter(), 0
        while (now := time.perf_counter() - start) < seconds:
            if due := int(now * per_s) + 1 - done:
                self.send(due)
                done += due
            await asyncio.sleep(done / per_s - (time.perf_counter() - start))

    def _answered(self, count: int) -> None:
        super()._answered(count)
        if not self._goal:
            return
        if time.perf_counter() > self._give_up_at:
            self._goal = self.sent
        if more := min(count, self._goal - self.sent):
            self.send(more)
        if self.acknowledged == self._goal:
            self._is_reached.set()


class _Listener:
    """Takes notifications of all sizes, and compares each with what was due."""

    def __init__(
        self, client: Client, publisher: _Sender, due: list[int], tally: Tally, notes: Notes
    ) -> None:
        self._name = client.client_id
        self._reading = publisher.stream.reading
        self._due = due
        self._tally = tally
        self._notes = notes
        self._last: dict[int, int] = {}
        """Of each publisher."""
        self._rest = b""
        client.take_bytes(self._take)

    def _take(self, data: bytes) -> None:
        now = time.perf_counter()
        if self._rest:
            data = self._rest + data
        begin, count = 0, 0
        while (end := end_of_packet(data, begin)) <= len(data):
            self._notification(data, begin, now)
            begin, count = end, count + 1
        self._rest = data[begin:]
        if count:
            self._tally.add(count)

    def _notification(self, data: bytes, begin: int, now: float) -> None:
        _, at = number_at(data, begin + 1)
        at += 2 + int.from_bytes(data[at : at + 2], "big")
        identifiers_bytes, at = number_at(data, at)
        at += identifiers_bytes + NUMBER_AT
        number = int(data[at : at + NUMBER_DIGITS]) - FIRST_NUMBER
        due = self._due[self._reading(number)]
        publisher = number // PUBLISHER_NUMBERS
        last = self._last.get(publisher, -1)
        if data[begin] & 0xF6 != 0x30 or identifiers_bytes != due or number <= last:
            raise BrokerProcessError(
                f"{self._name} was told of publication {number} behind {last} with"
                f" {identifiers_bytes} bytes of identifiers, not {due}"
            )
        self._last[publisher] = number
        self._notes.add(number, now)


# --- the jobs ---------------------------------------------------------------------------------


async def _closed(job: Closed) -> Runs:
    work = work_of(job.work, max(job.sizes))
    subscribers = _Subscribers(job, work)
    await subscribers.connect()
    publisher = await _sender(job, work, qos=1)
    found = []
    for size in job.sizes:
        await subscribers.grow(size)
        await _run(job, subscribers, publisher, _WARM_UP)
        found += [await _run(job, subscribers, publisher, count, size) for count in job.counts]
    return Runs(runs=found)


async def _run(
    job: Closed, subscribers: _Subscribers, publisher: _Sender, count: int, size: int = 0
) -> Run:
    tally, notes = Tally(), Notes()
    subscribers.listen(publisher, tally, notes)
    first = publisher.sent
    watch = Watch(job.pid)
    until = time.perf_counter() + job.seconds_max
    await publisher.send_all(count, job.under_way, until)
    sent = publisher.sent - first
    expected = subscribers.due(publisher, first)
    await tally.reach(expected, _PATIENCE_S)
    found = _found(watch, size, sent, expected, tally)
    _note_delays(found, notes.delays(publisher.sent_at)[1])
    return found


def _note_delays(found: Run, delays_ms: NDArray[np.float64]) -> None:
    if len(delays_ms):
        found.mean_ms = float(delays_ms.mean())
        found.p50_ms, found.p99_ms = percentiles(delays_ms, 50, 99)
        parts = np.array_split(delays_ms, _QUARTERS)
        found.quarters_ms = [float(part.mean()) for part in parts if len(part)]


async def _paced(job: Paced) -> Runs:
    work = work_of(job.work, job.size)
    subscribers = _Subscribers(job, work)
    await subscribers.connect()
    publisher = await _sender(job, work, qos=0)
    await subscribers.grow(job.size)
    tally, notes = Tally(), Notes()
    subscribers.listen(publisher, tally, notes)
    watch = Watch(job.pid)
    began, began_at = time.perf_counter(), time.time()
    for per_s, seconds in job.steps:
        await publisher.keep_pace(per_s, seconds)
    expected = subscribers.due(publisher)
    await tally.reach(expected, _PATIENCE_S)
    found = _found(watch, job.size, publisher.sent, expected, tally)
    sent_at, delays_ms = notes.delays(publisher.sent_at)
    trace = Trace(
        began_at=began_at,
        sent=publisher.sent,
        sent_s=(sent_at - began).tobytes(),
        delays_ms=delays_ms.tobytes(),
    )
    _note_delays(found, delays_ms)
    return Runs(runs=[found], trace=trace)


async def _flooded(job: Flooded) -> Runs:
    work = work_of(job.work, job.size)
    subscribers = _Subscribers(job, work)
    await subscribers.connect()
    publishers = [await _sender(job, work, 1, number) for number in range(job.publishers)]
    await subscribers.grow(job.size)
    tally, notes = Tally(), Notes()
    subscribers.listen(publishers[0], tally, notes)
    watch = Watch(job.pid)
    until = time.perf_counter() + job.seconds
    await asyncio.gather(*(one.keep_in_flight(job.under_way, until) for one in publishers))
    expected = sum(map(subscribers.due, publishers))
    await tally.reach(expected, _PATIENCE_S)
    sent = sum(one.sent for one in publishers)
    return Runs(runs=[_found(watch, job.size, sent, expected, tally)])


async def _sender(job: ElasticJob, work: Work, qos: int, number: int = 0) -> _Sender:
    client = Client(f"publisher-{number}")
    await client.connect(job.port)
    return _Sender(client, Drawn(work, qos, number))


def _found(watch: Watch, size: int, sent: int, expected: int, tally: Tally) -> Run:
    """What came, which has to be what was due."""
    if tally.received != expected:
        raise BrokerProcessError(f"{tally.received:,} notifications came, {expected:,} were due")
    broker_cpu_s, children_cpu_s = watch.cpu_s()
    return Run(
        subscriptions=size,
        sent=sent,
        expected=expected,
        received=tally.received,
        seconds=time.perf_counter() - watch.start,
        broker_cpu_s=broker_cpu_s,
        children_cpu_s=children_cpu_s,
    )


LOAD: Final = Load(
    "rove.bench.elastic.load",
    {Closed: _closed, Paced: _paced, Flooded: _flooded},
    Runs,
    lambda job: _OVERTIME_S,
)
