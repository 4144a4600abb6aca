"""A process of a live world: one role, its connections to the broker, and the clock.

`python -m rove.live.role_process` reads its job as a line of JSON, prepares, reports that it is
ready, gets the time of tick 0 and then plays tick after tick until the end of the scenario, or of
its standard input. Its reports are lines, too: `rove.live.launcher` starts such processes and reads
them. The moment of each tick follows from that of the first, so processes need not communicate to
keep step; one that is late catches up.

`rove.live.engine_roles` has what a role does at a tick; here are the sockets and the clock. The
delay of each update is measured from the moment of its tick to its arrival: computing the tick,
encoding, the broker, decoding, and waiting for a core. The first `SETTLING_S`, in which everybody
connects, do not count. Delays are counted for each client in a histogram with steps of 2 %, a few
kilobytes.

Commands come by MQTT, for a tick some way ahead. One that arrives too late ends the process: others
may have executed it, and there would be two histories.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec
import numpy as np

from rove.client.addresses import parse_address
from rove.errors import RoveError
from rove.live.engine_roles import ClientChecker, Dummies, LiveBus, LiveRole, Lockstep, Role
from rove.live.mqtt_bus import (
    Arrival,
    ArrivalRoute,
    BusConnection,
    MqttBus,
    PacketCache,
    open_connections,
)
from rove.mqtt.encoder import encode
from rove.mqtt.packets import Publish
from rove.testing.broker_processes import allow_many_files
from rove.world.engines.bus import Deliveries
from rove.world.engines.messages import MessageKind
from rove.world.engines.roles import SERVERS_FROM, SERVICE
from rove.world.runs.scenario_run import ScenarioRun
from rove.world.runs.scenarios import Scenario
from rove.world.runs.state import Floats, Ints, Longs, TickChanges, WorldError

RUN_TOPIC: Final = "world/run"
"""Where it is retained which world is being played; `Announcement`."""
COMMAND_TOPIC: Final = "world/command"
ANSWER_TOPIC: Final = "world/answer"
SETTLING_S: Final = 2.0
_COMMANDS: Final = 0xFFF_FFFF
"""The highest subscription identifier there is, for commands; a bus uses others."""
_REPORT_S: Final = 1.0
_REHEARSED: Final = 8
_SHARES: Final = (0.5, 0.95, 0.99)


# -- what is said between processes -------------------------------------------------------


class RoleJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is to play."""

    name: str
    """For people: server 1."""
    role: Role
    numbers: tuple[int, ...]
    """Of its servers, or of its clients."""
    scenario: Scenario
    run: str
    """What this world is called on the broker; no two at a time have the same name."""
    url: str
    has_dummies: bool = False
    """Whether all engines of the scenario run here beside, in process."""


class RoleStart(msgspec.Struct, frozen=True):
    """When tick 0 is, in seconds since 1970."""

    begins_at: float


class RoleReady(msgspec.Struct, frozen=True, tag="ready"):
    """The process can begin."""


class RoleReport(msgspec.Struct, frozen=True, tag="report"):
    """How far it has come."""

    tick: int
    hash: str
    rows: dict[str, dict[str, float]]
    """The figures of each engine that is or was live."""
    dummies: dict[str, dict[str, float]] = {}
    delay_s_max: float = 0.0
    """How long an update took since the last report, at most."""


class RoleOutcome(msgspec.Struct, frozen=True, tag="outcome", kw_only=True):
    """What came of it."""

    last: RoleReport
    engine: str
    """That is live at the end."""
    entities: int
    handed_over: int
    delays: list[int] = []
    """How many updates took how long: a histogram as of `rove.live.role_process`."""
    client_delays_s: dict[int, tuple[float, float, float]] = {}
    """Half, 95 % and 99 % of each client's updates took at most that."""
    late_s_max: float = 0.0
    """How long after its moment a tick began, at most."""
    late_ticks: int = 0
    """Ticks that began when the next one should have."""
    cpu_s: float = 0.0


class ScheduledCommand(msgspec.Struct, frozen=True):
    """A command for a tick, as it is published."""

    tick: int
    text: str
    run: str = ""
    """Only for the world of that name, if one is given."""


class CommandAnswer(msgspec.Struct, frozen=True):
    """What became of a command."""

    tick: int
    text: str
    refused: str | None
    """Why, or None."""


class Announcement(msgspec.Struct, frozen=True):
    """A world that is being played."""

    run: str
    begins_at: float
    scenario: Scenario


# -- the process --------------------------------------------------------------------------


class RolePlayer:
    """One role from its first connection to its last tick."""

    def __init__(self, job: RoleJob, tell: Callable[[RoleReady | RoleReport], None]) -> None:
        self._job = job
        self._tell = tell
        self._step = Lockstep(job.scenario)
        self._world = self._step.world
        self._tick_s = self._world.tick_s
        self._dummies = (
            Dummies(job.scenario, self._world, time.perf_counter_ns) if job.has_dummies else None
        )
        count = len(self._world.clients.avatar)
        hosts = job.role is Role.CLIENTS
        self._judge = ClientChecker(job.numbers, count) if hosts else None
        self._delays = DelayHistograms(count if hosts else 0)
        self._known = PacketCache()
        self._links = {number: self._link(number) for number in _subscribers(job)}
        self._playing = LiveRole(job.role, job.numbers, job.scenario, self._make_bus)
        self._commands: list[Arrival] = []
        self._begins_at = 0.0
        """Tick 0, by `time.monotonic`."""
        self._over = asyncio.Event()
        self._fault: BaseException | None = None
        self._delay_s_max = 0.0
        """Since the last report."""
        self._late_s_max = 0.0
        self._late_ticks = 0

    def _link(self, number: int) -> BusConnection:
        name = f"world-{self._job.run}-{number}"
        link = BusConnection(number, name, time.monotonic, self._known)
        link.lost = self.fail
        return link

    def _make_bus(self, generation: int) -> MqttBus:
        return MqttBus(self._links, f"world/{self._job.run}/{generation}", generation)

    # -- its course ----------------------------------------------------------------------

    async def prepare(self) -> None:
        """Connect, and subscribe to what is needed from the first tick on."""
        rehearse(self._job.scenario)
        await open_connections(self._links.values(), parse_address(self._job.url))
        first = next(iter(self._links.values()))
        first.subscribe(_COMMANDS, ArrivalRoute(self._commands, COMMAND_TOPIC, 0), retained=False)
        engines = self._job.scenario.engines
        self._playing.begin(engines.live or engines.use[0], 0)
        changes = self._step.begin()
        if self._job.role is not Role.SERVER:
            self._playing.act(self._world, changes)
        await asyncio.gather(*(link.settle() for link in self._links.values()))
        gc.collect()
        gc.freeze()  # or each collection would look through the compiler of the kernels
        self._tell(RoleReady())

    async def play(self, begins_at: float) -> None:
        """All ticks, each at its moment."""
        self._begins_at = begins_at - time.time() + time.monotonic()
        ticks = round(self._job.scenario.seconds / self._tick_s)
        reporting = max(1, round(_REPORT_S / self._tick_s))
        for tick in range(ticks + 1):
            await self._wait_until(self._moment(tick))
            if self._over.is_set():
                break
            self._take(tick)
            if tick % reporting == 0:
                self._tell(self._report())
            await asyncio.sleep(0)  # or one that is late would never read what has come
        await self._wait_until(self._moment(self._world.tick + 1))
        self._hear()
        if self._fault is not None:
            raise self._fault

    def stop(self) -> None:
        """Come to an end as soon as the present tick is over."""
        self._over.set()

    def fail(self, fault: BaseException) -> None:
        """Come to an end, for a reason."""
        self._fault = self._fault or fault
        self._over.set()

    async def leave(self) -> None:
        """Say goodbye to the broker, and leave nothing there."""
        if self._fault is None:
            self._playing.end()
        for link in self._links.values():
            link.close()
        await asyncio.sleep(0)

    def outcome(self) -> RoleOutcome:
        """What came of it."""
        counts = self._delays.counts
        heard = np.flatnonzero(counts.any(axis=1)).tolist()
        half, most, nearly_all = _SHARES
        return RoleOutcome(
            last=self._report(),
            engine=self._playing.engine,
            entities=len(self._world.entities),
            handed_over=self._world.regions.handed_over,
            delays=self._delays.of_all().tolist() if heard else [],
            client_delays_s={
                client: (
                    percentile_s(counts[client], half),
                    percentile_s(counts[client], most),
                    percentile_s(counts[client], nearly_all),
                )
                for client in heard
            },
            late_s_max=self._late_s_max,
            late_ticks=self._late_ticks,
            cpu_s=time.process_time(),
        )

    # -- a tick --------------------------------------------------------------------------

    def _moment(self, tick: int) -> float:
        return self._begins_at + tick * self._tick_s

    async def _wait_until(self, moment: float) -> None:
        while not self._over.is_set() and (left_s := moment - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._over.wait()

    def _take(self, tick: int) -> None:
        late_s = time.monotonic() - self._moment(tick)
        self._late_s_max = max(self._late_s_max, late_s)
        self._late_ticks += late_s >= self._tick_s
        answers: list[tuple[str, str | None]] = []
        if tick == 0:
            changes = self._step.begin()
            if self._job.role is not Role.SERVER:
                return  # all who listen were there before
        else:
            self._hear()
            self._take_commands()
            changes, answers = self._step.step()
        self._playing.act(self._world, changes)
        self._answer(changes, answers)
        for link in self._links.values():
            link.flush()
        if self._dummies is not None:
            self._dummies.take(changes)

    def _hear(self) -> None:
        """Take in what has come since the last tick, and judge it."""
        self._playing.receive(self._world, self._note)
        counters = self._playing.counters
        if self._judge is not None and counters is not None:
            self._judge.check(self._world, self._playing.visible(), counters)

    def _note(self, bus: LiveBus, deliveries: Deliveries) -> None:
        """Take note of how long updates were on their way to clients."""
        if self._judge is None or not isinstance(bus, MqttBus):
            return
        arrivals, messages = bus.arrivals, deliveries.messages
        updates = messages.what[arrivals.message] == MessageKind.UPDATE
        ticks = messages.tick[arrivals.message[updates]]
        moments = self._begins_at + ticks * self._tick_s
        delays_s = arrivals.at_s[updates] - moments
        self._delay_s_max = max(self._delay_s_max, float(delays_s.max(initial=0.0)))
        if self._world.at >= SETTLING_S:
            self._delays.add(arrivals.receiver[updates], delays_s)

    def _take_commands(self) -> None:
        arrived = self._commands[:]
        self._commands.clear()
        for arrival in arrived:
            try:
                order = msgspec.json.decode(arrival.payload, type=ScheduledCommand)
            except msgspec.DecodeError:
                continue  # not ours: anybody can publish there, and everybody passes it over
            if order.run in ("", self._job.run):
                self._step.order(order.tick, order.text)

    def _answer(self, changes: TickChanges, answers: list[tuple[str, str | None]]) -> None:
        """The first server tells what became of commands."""
        if self._job.role is Role.SERVER and 0 in self._job.numbers:
            for text, refused in answers:
                answer = msgspec.json.encode(CommandAnswer(changes.tick, text, refused))
                self._links[SERVERS_FROM].say(encode(Publish(ANSWER_TOPIC, answer)))

    def _report(self) -> RoleReport:
        delay_s_max, self._delay_s_max = self._delay_s_max, 0.0
        return RoleReport(
            self._world.tick,
            self._world.hash(),
            self._playing.rows(self._tick_s),
            self._dummies.rows() if self._dummies is not None else {},
            delay_s_max,
        )


def _subscribers(job: RoleJob) -> list[int]:
    """The numbers on the bus of those who are played."""
    match job.role:
        case Role.SERVER:
            return [SERVERS_FROM + number for number in job.numbers]
        case Role.CLIENTS:
            return list(job.numbers)
    return [SERVICE]


def rehearse(scenario: Scenario) -> None:
    """Play a few ticks with few people, so that all kernels are loaded before it counts."""
    few = min(scenario.people.players, _REHEARSED)
    small = scenario.sized(players=few, seconds=3 * scenario.tick_s)
    with contextlib.suppress(WorldError):  # some commands need the people who are not there
        ScenarioRun(small).play()


# -- the door -----------------------------------------------------------------------------


async def _carry_out(job: RoleJob, commands: asyncio.StreamReader) -> RoleOutcome:
    player = RolePlayer(job, _say)
    loop = asyncio.get_running_loop()

    def failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        player.fail(context.get("exception") or RoveError(context["message"]))

    loop.set_exception_handler(failed)
    try:
        await player.prepare()
        start = await commands.readline()
        if not start:
            raise WorldError("the world was called off before it began")
        listening = asyncio.ensure_future(_stop_at_end(commands, player))
        await player.play(msgspec.json.decode(start, type=RoleStart).begins_at)
        listening.cancel()
        return player.outcome()
    finally:
        await player.leave()


async def _stop_at_end(commands: asyncio.StreamReader, player: RolePlayer) -> None:
    await commands.read()
    player.stop()


def _say(what: RoleReady | RoleReport | RoleOutcome) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.buffer.flush()


async def _main() -> None:
    commands = asyncio.StreamReader(limit=16 * 1024 * 1024)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin.buffer
    )
    job = msgspec.json.decode(await commands.readline(), type=RoleJob)
    _say(await _carry_out(job, commands))


def fast_loop() -> Callable[[Coroutine[Any, Any, None]], None]:
    """uvloop where it is installed: half the CPU of asyncio's own loop per packet."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def main() -> int:
    """Play the job on standard input."""
    # Ctrl-C reaches all processes of a terminal; who started us decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    allow_many_files()
    try:
        fast_loop()(_main())
    except RoveError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())


SHORTEST_S: Final = 0.0001
_GROWTH: Final = 1.02
_BINS: Final = 700
"""Up to 104 seconds; what takes longer counts as that."""


class DelayHistograms:
    """How long updates were on their way to each client: a histogram with steps of 2 %."""

    def __init__(self, clients: int) -> None:
        self.counts: Longs = np.zeros((clients, _BINS), np.int64)

    def add(self, clients: Ints, delays_s: Floats) -> None:
        """Take note of some arrivals; what came before its time counts as on time."""
        relative = np.maximum(delays_s, SHORTEST_S) / SHORTEST_S
        steps = np.ceil(np.log(relative) / np.log(_GROWTH) - 1e-9).astype(np.int64)
        np.add.at(self.counts, (clients, np.minimum(steps, _BINS - 1)), 1)

    def of_all(self) -> Longs:
        """One histogram for all clients."""
        total: Longs = self.counts.sum(axis=0)
        return total


def percentile_s(counts: Longs, share: float) -> float:
    """At most how long that share of all arrivals took, to 2 % above; NaN if there are none."""
    total = int(counts.sum())
    if not total:
        return float("nan")
    step = int(np.searchsorted(np.cumsum(counts), share * total))
    return SHORTEST_S * _GROWTH**step
