"""The load of `rove bench broker`: what its publishers and subscribers do, job by job.

`LOAD.run` does a job in a new process (`rove.bench.load`): many who want everything, durable
subscribers, some who choose by content and some who look for themselves, many texts of which few
match, and connections on which nothing happens.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import msgspec

from rove.bench.broker.clients import (
    FILTER,
    X_COUNT,
    X_MIN,
    Client,
    Publisher,
    Receiver,
    Stream,
    Tally,
    connect_all,
    delays_into,
)
from rove.bench.load import Job, Load, Outcome, Watch, percentiles
from rove.client.protocol import subscribe_packet
from rove.mqtt.packets import Filter, Subscribe
from rove.testing.broker_processes import (
    BrokerProcessError,
    allow_many_files,
    resident_bytes,
    settle,
)

_WINDOW: Final = 500
"""Publications of a saturating publisher that are not acknowledged: half of what is allowed."""
_PATIENCE_S: Final = {0: 2.0, 1: 10.0}
"""When nothing has come for so long, by QoS, nothing more will."""
_DURABLE_S: Final = 3_600
_OVERTIME_S: Final = 120.0
"""How much longer than its seconds a job may take, setting up included."""
_SLOW_PAUSE_S: Final = 0.5
_FILES_SPARE: Final = 64


class BrokerJob(Job, frozen=True, kw_only=True, tag=True):
    """What every job of this load needs to know."""

    seconds: float
    """How long to publish."""


class FanOut(BrokerJob, frozen=True, kw_only=True, tag=True):
    """One publisher, many subscribers who want everything."""

    qos: int
    subscribers: int
    payload_bytes: int
    bystanders: int = 0
    """Subscriptions with texts on the same topics that nothing matches; for Rove only."""
    per_s: float = 0.0
    """0 publishes as fast as the broker takes it."""
    has_slow_one: bool = False
    """One subscriber more, who stops reading and then reads next to nothing."""


class Durable(BrokerJob, frozen=True, kw_only=True, tag=True):
    """Many publishers with QoS 1, and perhaps a subscriber who is away and whose queue grows."""

    has_absentee: bool
    publishers: int
    window: int
    payload_bytes: int


class Sift(BrokerJob, frozen=True, kw_only=True, tag=True):
    """Subscribers who want a share of the stream, and get it, or get everything and choose."""

    subscribers: int
    share: float
    by_content: bool
    under_way: int
    """Publications that not everybody has received, at most."""
    at_once: int
    """Publications that are written together."""
    payload_bytes: int


class Spread(BrokerJob, frozen=True, kw_only=True, tag=True):
    """Many subscriptions with texts on some connections, of which few match, and the delays."""

    qos: int
    subscriptions: int
    connections: int
    matches: int
    """Of each publication, about."""
    per_s: float
    payload_bytes: int


class Idle(BrokerJob, frozen=True, kw_only=True, tag=True):
    """Subscribers who come, stay a moment without a word, and go; several times."""

    connections: int
    rounds: int


class BrokerOutcome(Outcome, kw_only=True):
    """What a job found."""

    useful: int = 0
    """Notifications that their receivers wanted, where these sift."""
    delays_ms: tuple[float, float, float] | None = None
    """Half of all were quicker than the first, 99 % than the second; the third is the longest."""
    resident_bytes: list[int] = msgspec.field(default_factory=list)
    """Of the broker: before, then with all connections and without them, round by round."""


# --- the jobs ---------------------------------------------------------------------------------


async def _fan_out(job: FanOut) -> BrokerOutcome:
    clients = [Client(f"subscriber-{number}") for number in range(job.subscribers)]
    await connect_all(clients, job.port)
    for client in clients:
        await client.request([Subscribe(0, (Filter(FILTER, job.qos),))])
    if job.bystanders:
        await _stand_by(job)
    if job.has_slow_one:
        await _read_slowly(job)
    publisher = await _publisher(job.port, Stream(job.qos, job.payload_bytes))
    delays = array("d")
    look = delays_into(delays, publisher, job.payload_bytes) if job.per_s else None
    tally = Tally()
    for client in clients:
        Receiver(client, tally, job.qos, look)
    watch = Watch(job.pid)
    until = time.perf_counter() + job.seconds
    if job.per_s:
        await publisher.pace(job.per_s, until)
    elif job.qos:
        await publisher.keep_in_flight(_WINDOW, until)
    else:
        await publisher.flood(until)
    await publisher.acknowledgements()
    expected = publisher.sent * job.subscribers
    await tally.reach(expected, _PATIENCE_S[job.qos])
    return _outcome(watch, publisher.sent, expected, tally, delays)


async def _stand_by(job: FanOut) -> None:
    """Subscribe to what never comes: each text is evaluated for each publication."""
    client = Client("bystander")
    await client.connect(job.port)
    texts = [
        f"NO2 > {1_000 + number} AND lat BETWEEN {40 + number / 1_000} AND {41 + number / 1_000}"
        for number in range(job.bystanders)
    ]
    await client.request(_subscribes(texts, qos=0))
    await asyncio.to_thread(settle, job.pid)


async def _read_slowly(job: FanOut) -> None:
    """Subscribe, read nothing for half the time, then a little now and then."""
    client = Client("slow")
    await client.connect(job.port, holds_little=True)
    await client.request([Subscribe(0, (Filter(FILTER, job.qos),))])
    transport = client.transport
    assert transport is not None
    client.take_bytes(lambda data: transport.pause_reading())
    transport.pause_reading()
    loop = asyncio.get_running_loop()

    def read_a_little() -> None:
        transport.resume_reading()
        loop.call_later(_SLOW_PAUSE_S, read_a_little)

    loop.call_later(job.seconds / 2, read_a_little)


async def _durable(job: Durable) -> BrokerOutcome:
    if job.has_absentee:
        absentee = Client("absentee", session_expiry_s=_DURABLE_S)
        await absentee.connect(job.port)
        await absentee.request([Subscribe(0, (Filter(FILTER, 1),))])
        absentee.close()
    publishers = [
        await _publisher(job.port, Stream(1, job.payload_bytes, seed), f"publisher-{seed}")
        for seed in range(job.publishers)
    ]
    watch = Watch(job.pid)
    until = time.perf_counter() + job.seconds
    await asyncio.gather(*(one.keep_in_flight(job.window, until) for one in publishers))
    return _outcome(watch, sum(publisher.sent for publisher in publishers), 0, Tally())


async def _sift(job: Sift) -> BrokerOutcome:
    ranges = _ranges(job.subscribers, round(job.share * X_COUNT))
    clients = [Client(f"subscriber-{number}") for number in range(job.subscribers)]
    await connect_all(clients, job.port)
    for client, wanted in zip(clients, ranges, strict=True):
        everything = Subscribe(0, (Filter(FILTER, 0),))
        await client.request(_subscribes([_text(wanted)], 0) if job.by_content else [everything])
    await asyncio.to_thread(settle, job.pid)
    stream = Stream(0, job.payload_bytes)
    publisher = await _publisher(job.port, stream)
    tally, sieves = Tally(), [_Sieve(wanted, job.payload_bytes) for wanted in ranges]
    for client, sieve in zip(clients, sieves, strict=True):
        Receiver(client, tally, 0, sieve.look)
    meeting = _meeting(ranges)
    due = [0]
    """Notifications of the first publications, by how many these are."""
    watch = Watch(job.pid)
    until = time.perf_counter() + job.seconds
    while time.perf_counter() < until:
        for number in range(publisher.sent, publisher.sent + job.at_once):
            some = meeting[stream.x(number) - X_MIN] if job.by_content else job.subscribers
            due.append(due[-1] + some)
        publisher.send(job.at_once)
        await tally.reach(due[max(0, publisher.sent - job.under_way)], _PATIENCE_S[1])
    await tally.reach(due[-1], _PATIENCE_S[1])
    outcome = _outcome(watch, publisher.sent, due[-1], tally)
    outcome.useful = sum(sieve.kept for sieve in sieves)
    return outcome


class _Wanted(msgspec.Struct):
    """All that a sifting subscriber reads of a publication."""

    x: int


class _Sieve:
    """Keeps what one subscriber wants: it has to look at everything that comes."""

    def __init__(self, wanted: range, payload_bytes: int) -> None:
        self.kept = 0
        self._wanted = wanted
        self._payload_bytes = payload_bytes
        self._decode = msgspec.json.Decoder(_Wanted).decode

    def look(self, whole: bytes, size: int) -> None:
        for begin in range(size - self._payload_bytes, len(whole), size):
            found = self._decode(whole[begin : begin + self._payload_bytes])
            self.kept += found.x in self._wanted


async def _spread(job: Spread) -> BrokerOutcome:
    width = job.matches * X_COUNT // job.subscriptions
    ranges = _ranges(job.subscriptions, width)
    texts = list(map(_text, ranges))
    expiry_s = _DURABLE_S if job.qos else 0
    clients = [
        Client(f"subscriber-{number}", session_expiry_s=expiry_s)
        for number in range(job.connections)
    ]
    await connect_all(clients, job.port)
    for number, client in enumerate(clients):
        await client.request(_subscribes(texts[number :: job.connections], job.qos))
    await asyncio.to_thread(settle, job.pid)
    stream = Stream(job.qos, job.payload_bytes)
    publisher = await _publisher(job.port, stream)
    tally, delays = Tally(), array("d")
    look = delays_into(delays, publisher, job.payload_bytes)
    for client in clients:
        Receiver(client, tally, job.qos, look)
    meeting = _meeting(ranges)
    watch = Watch(job.pid)
    await publisher.pace(job.per_s, time.perf_counter() + job.seconds)
    await publisher.acknowledgements()
    expected = sum(meeting[stream.x(number) - X_MIN] for number in range(publisher.sent))
    await tally.reach(expected, _PATIENCE_S[1])
    return _outcome(watch, publisher.sent, expected, tally, delays)


async def _idle(job: Idle) -> BrokerOutcome:
    if (allowed := allow_many_files()) < job.connections + _FILES_SPARE:
        raise BrokerProcessError(
            f"{job.connections:,} connections need as many open files, and this system allows"
            f" {allowed:,} (ulimit -Hn); raise its limit or leave out the part `idle`"
        )
    outcome = BrokerOutcome(expected=job.connections * job.rounds, resident_bytes=[])
    outcome.resident_bytes.append(resident_bytes(job.pid))
    watch = Watch(job.pid)
    for turn in range(job.rounds):
        clients = [Client(f"idle-{number}") for number in range(job.connections)]
        # Ports of closed connections rest for a minute; each address has its own.
        await connect_all(clients, job.port, f"127.0.1.{turn + 1}")
        for client in clients:
            await client.request([Subscribe(0, (Filter(f"idle/{client.client_id}"),))])
        await asyncio.to_thread(settle, job.pid)
        outcome.resident_bytes.append(resident_bytes(job.pid))
        for client in clients:
            client.close()
        await asyncio.to_thread(settle, job.pid)
        outcome.resident_bytes.append(resident_bytes(job.pid))
        outcome.received += len(clients)
    outcome.broker_cpu_s, _ = watch.cpu_s()
    return outcome


# --- what they share --------------------------------------------------------------------------


async def _publisher(port: int, stream: Stream, name: str = "publisher") -> Publisher:
    client = Client(name)
    await client.connect(port)
    return Publisher(client, stream)


def _ranges(count: int, width: int) -> list[range]:
    """So many ranges of `x`, spread evenly; the last ones are cut off at the end."""
    end = X_MIN + X_COUNT
    begins = [X_MIN + number * X_COUNT // count for number in range(count)]
    return [range(begin, min(begin + width, end)) for begin in begins]


def _meeting(ranges: Sequence[range]) -> list[int]:
    """How many of the ranges hold each `x`."""
    steps = [0] * (X_COUNT + 1)
    for one in ranges:
        steps[one.start - X_MIN] += 1
        steps[one.stop - X_MIN] -= 1
    return list(accumulate(steps))


def _text(wanted: range) -> str:
    """A subscription that goes by `x`; its other conditions are met by all."""
    return f"x >= {wanted.start} AND x < {wanted.stop} AND NO2 > 10 AND lat BETWEEN 45 AND 46"


def _subscribes(texts: Sequence[str], qos: int) -> list[Subscribe]:
    """One subscription each. One alone goes without an identifier, as most people's do."""
    return [
        subscribe_packet(
            (Filter(FILTER, qos),), number if len(texts) > 1 else None, (("filter", text),)
        )
        for number, text in enumerate(texts, start=1)
    ]


def _outcome(
    watch: Watch, sent: int, expected: int, tally: Tally, delays_s: Sequence[float] = ()
) -> BrokerOutcome:
    delays_ms = None
    if len(delays_s):
        half, most, longest = percentiles(delays_s, 50, 99, 100)
        delays_ms = (1_000 * half, 1_000 * most, 1_000 * longest)
    broker_cpu_s, _ = watch.cpu_s()
    return BrokerOutcome(
        sent=sent,
        expected=expected,
        received=tally.received,
        seconds=(tally.at or time.perf_counter()) - watch.start,
        broker_cpu_s=broker_cpu_s,
        load_cpu_s=watch.load_cpu_s(),
        delays_ms=delays_ms,
    )


LOAD: Final = Load(
    "rove.bench.broker.load",
    {FanOut: _fan_out, Durable: _durable, Sift: _sift, Spread: _spread, Idle: _idle},
    BrokerOutcome,
    lambda job: job.seconds + _OVERTIME_S,
)
