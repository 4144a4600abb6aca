"""A world over a real broker, in real time: starts a process for each role, and sums up.

There are as many servers as the scenario or `servers` specifies, `hosts` processes that share the
clients among them, and one for the interest-management service if an engine needs it; the broker is
a running one or is started for this. Each is a process (`rove.live.role_process`), so each is
scaled separately.

All processes get the time of tick 0 and then run independently until the end. Their reports, once a
second, are summed up here, and their hashes are compared: all have the same history, or the run
ends. It also ends when a process does, with its name and last lines. Nothing is left behind,
neither processes nor retained messages on the broker.

Considered: `multiprocessing`. Its workers inherit memory and signal handlers of their parent; a
program that reads a line and writes lines can be started by hand, and on another machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from rove.client import connect
from rove.errors import RoveError
from rove.live.broker_audiences import play_audiences
from rove.live.engine_roles import DELAY_TICKS, Role, add_row, shares
from rove.live.role_process import (
    RUN_TOPIC,
    Announcement,
    DelayHistograms,
    RoleJob,
    RoleOutcome,
    RoleReady,
    RoleReport,
    RoleStart,
    percentile_s,
)
from rove.testing.broker_processes import cpu_seconds, rove
from rove.world.engines.ensemble import full_name, make_engine
from rove.world.runs.scenario_run import EngineFacts, RunSample, ScenarioResult
from rove.world.runs.scenarios import Scenario

OVER_MQTT: Final = " over MQTT"
_PREPARE_S_MAX: Final = 300.0
"""The first start on a machine compiles the kernels."""
_BEGIN_IN_S: Final = 1.0
_END_S_MAX: Final = 10.0
_LINE_BYTES_MAX: Final = 64 * 1024 * 1024
_QUICK: Final = {"ROVE_DATA__DURABILITY": "none"}
"""Nothing of a world has to survive its broker."""

Tell = Callable[[float, float], None]
"""Is told how many seconds of how many have passed."""


class LiveError(RoveError):
    """A world over a broker cannot go on."""


class ProcessFacts(msgspec.Struct, frozen=True):
    """What a process had to do."""

    name: str
    cpu_s: float
    late_s_max: float = 0.0
    """How long after its moment a tick began, at most."""
    late_ticks: int = 0
    """Ticks that began when the next one should have."""


class LiveResult(msgspec.Struct, frozen=True):
    """What came of a world over a broker."""

    result: ScenarioResult
    """The figures of the live engine, and of all engines in process beside it."""
    updates: int
    """That have reached clients, and whose delays were taken."""
    delay_p50_ms: float
    delay_p95_ms: float
    delay_p99_ms: float
    delay_max_ms: float
    """From the moment of a tick to the arrival of an update, over all; to 2 % above."""
    client_p99_ms: dict[int, float]
    """The 99th percentile of each client's updates."""
    processes: tuple[ProcessFacts, ...]
    longest_ms: tuple[float, ...] = ()
    """The longest delay of an update, second by second, the beginning included."""
    was_stopped: bool = False
    """Somebody ended it before its time."""


# -- one process --------------------------------------------------------------------------


class _RoleProcess:
    """A process that plays a role, as it is seen from here."""

    def __init__(self, job: RoleJob, process: asyncio.subprocess.Process) -> None:
        self.job = job
        self.reports: dict[int, RoleReport] = {}
        self.outcome: RoleOutcome | None = None
        self.is_ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._process = process
        self._words = asyncio.ensure_future(_last_words(process))

    def say(self, what: RoleJob | RoleStart) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(what) + b"\n")

    def stop(self) -> None:
        """Have it come to an end; it still tells what came of it."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def listen(self, told: Callable[[_RoleProcess, RoleReport], None]) -> None:
        """Take what it reports, to its end; LiveError if that is no good one."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            match msgspec.json.decode(line, type=RoleReady | RoleReport | RoleOutcome):
                case RoleReady():
                    self.is_ready.set_result(None)
                case RoleReport() as report:
                    self.reports[report.tick] = report
                    told(self, report)
                case RoleOutcome() as outcome:
                    self.outcome = outcome
                    told(self, outcome.last)
        code = await self._process.wait()
        if code or self.outcome is None:
            words = await self._words
            why = words or (f"killed by signal {-code}" if code < 0 else f"exit code {code}")
            raise LiveError(f"{self.job.name} of the world has ended: {why}")

    async def end(self) -> None:
        """See to it that it is gone."""
        for ask in (self.stop, self._process.terminate, self._process.kill):
            with contextlib.suppress(ProcessLookupError):
                ask()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_S_MAX):
                    await self._process.wait()
                    break
        await self._words


async def _last_words(process: asyncio.subprocess.Process) -> str:
    """The last line that a process writes to stderr."""
    assert process.stderr is not None
    last = b""
    async for line in process.stderr:
        last = line if line.strip() else last
    return last.decode(errors="replace").strip()


@asynccontextmanager
async def _started(jobs: list[RoleJob]) -> AsyncIterator[list[_RoleProcess]]:
    """A process for each job; all are gone in the end."""
    processes: list[_RoleProcess] = []
    try:
        for job in jobs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "rove.live.role_process",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=_LINE_BYTES_MAX,
                start_new_session=True,  # Ctrl-C is for us to hear, not for them
            )
            processes.append(_RoleProcess(job, process))
            processes[-1].say(job)
        yield processes
    finally:
        await asyncio.gather(*(process.end() for process in processes))


# -- the whole ----------------------------------------------------------------------------


def run_live(
    scenario: Scenario,
    *,
    url: str | None = None,
    servers: int | None = None,
    hosts: int = 1,
    has_dummies: bool = True,
    tell: Tell | None = None,
) -> LiveResult:
    """Play a scenario over the broker at `url`, or over one of its own, in real time.

    The clients are hosted by so many processes. With `has_dummies`, all engines of the scenario
    run beside, in the process of the first server. One without engines has no roles: its audiences
    subscribe, from this process.
    """
    if servers is not None:
        scenario = replace(scenario, people=replace(scenario.people, servers=servers))
    with _broker(url) as (address, pid):
        if not scenario.engines.use and scenario.audiences:
            return _run_audiences(scenario, address, pid, tell)
        jobs = make_jobs(scenario, address, hosts=hosts, has_dummies=has_dummies)
        before_s = cpu_seconds(pid) if pid else 0.0
        run = _LiveRun(scenario, jobs, tell)
        asyncio.run(run.play())
        broker_s = cpu_seconds(pid) - before_s if pid else None
    return run.result(broker_s)


def _run_audiences(scenario: Scenario, url: str, pid: int, tell: Tell | None) -> LiveResult:
    """A scenario without engines: what instruments publish, and who subscribes to it."""
    before_s = cpu_seconds(pid) if pid else 0.0
    ours_s = time.process_time()
    result = asyncio.run(play_audiences(scenario, url, tell))
    facts = [ProcessFacts("world and its subscribers", time.process_time() - ours_s)]
    if pid:
        facts.insert(0, ProcessFacts("broker", cpu_seconds(pid) - before_s))
    return LiveResult(result, 0, 0.0, 0.0, 0.0, 0.0, {}, tuple(facts))


@contextmanager
def _broker(url: str | None) -> Iterator[tuple[str, int]]:
    """(URL, process) of the broker; the process is 0 if it is not ours."""
    if url is not None:
        yield url, 0
        return
    with (
        tempfile.TemporaryDirectory(prefix="rove-world-") as folder,
        rove(Path(folder), _QUICK) as broker,
    ):
        yield f"mqtt://127.0.0.1:{broker.port}", broker.pid


def make_jobs(scenario: Scenario, url: str, *, hosts: int, has_dummies: bool) -> list[RoleJob]:
    """A job for each process."""
    people, engines = scenario.people, [full_name(name) for name in scenario.engines.use]
    if not engines:
        raise LiveError(f"{scenario.name} has no engines: there is nothing to tell over a broker")
    clients = people.players + people.npcs * people.npcs_look
    if not 1 <= hosts <= max(clients, 1):
        raise LiveError(f"{clients} clients cannot be hosted by {hosts} processes")
    run = secrets.token_hex(4)

    def job(name: str, role: Role, numbers: list[int], *, with_dummies: bool = False) -> RoleJob:
        return RoleJob(
            name=name,
            role=role,
            numbers=tuple(numbers),
            scenario=scenario,
            run=run,
            url=url,
            has_dummies=with_dummies,
        )

    jobs = [
        job(f"server {n + 1}", Role.SERVER, [n], with_dummies=has_dummies and n == 0)
        for n in range(people.servers)
    ]
    for number, part in enumerate(shares(clients, hosts)):
        jobs.append(job(f"host {number + 1}", Role.CLIENTS, part.tolist()))
    if "object" in engines:
        jobs.append(job("interest", Role.INTEREST, []))
    return jobs


class _LiveRun:
    """A world over a broker, from its beginning to its end."""

    def __init__(self, scenario: Scenario, jobs: list[RoleJob], tell: Tell | None) -> None:
        self._scenario = scenario
        self._jobs = jobs
        self._tell = tell
        self._processes: list[_RoleProcess] = []
        self._hashes: dict[int, tuple[str, str]] = {}
        """Who told a hash first for a tick, and which."""
        self._was_stopped = False
        self._began = 0.0
        self._elapsed_s = 0.0

    async def play(self) -> None:
        """Start everybody, begin, and wait for the end."""
        async with _started(self._jobs) as self._processes:
            try:
                async with asyncio.TaskGroup() as group:
                    for process in self._processes:
                        group.create_task(process.listen(self._told))
                    group.create_task(self._conduct())
            except ExceptionGroup as failures:
                # The first is the reason; the others follow from it.
                raise failures.exceptions[0] from None

    async def _conduct(self) -> None:
        """Let all begin at the same moment, when all are ready."""
        try:
            async with asyncio.timeout(_PREPARE_S_MAX):
                await asyncio.gather(*(process.is_ready for process in self._processes))
        except TimeoutError:
            raise LiveError(f"not everybody was ready after {_PREPARE_S_MAX:g} s") from None
        first = self._jobs[0]
        async with connect(first.url) as client:
            begins_at = time.time() + _BEGIN_IN_S
            about = Announcement(first.run, begins_at, self._scenario)
            await client.publish(RUN_TOPIC, msgspec.json.encode(about), retain=True)
            try:
                with self._stoppable():
                    for process in self._processes:
                        process.say(RoleStart(begins_at))
                    self._began = time.monotonic()
                    while any(process.outcome is None for process in self._processes):
                        await asyncio.sleep(0.1)
                    self._elapsed_s = time.monotonic() - self._began
            finally:
                await client.publish(RUN_TOPIC, b"", retain=True)

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        """The first Ctrl-C has everybody finish; a second one is as usual."""
        loop = asyncio.get_running_loop()

        def stop() -> None:
            self._was_stopped = True
            loop.remove_signal_handler(signal.SIGINT)
            for process in self._processes:
                process.stop()

        try:
            loop.add_signal_handler(signal.SIGINT, stop)
        except (RuntimeError, ValueError):  # not in the main thread: nobody presses keys there
            yield
            return
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def _told(self, process: _RoleProcess, report: RoleReport) -> None:
        who, known = self._hashes.setdefault(report.tick, (process.job.name, report.hash))
        if known != report.hash:
            raise LiveError(
                f"{who} and {process.job.name} have different histories at tick {report.tick}; "
                "they have to run the same version of Rove and hear the same commands"
            )
        if self._tell is not None and process is self._processes[0]:
            self._tell(report.tick * self._scenario.tick_s, self._scenario.seconds)

    # -- what came of it -----------------------------------------------------------------

    def result(self, broker_s: float | None) -> LiveResult:
        """Everything added up."""
        outcomes = [process.outcome for process in self._processes]
        done = [outcome for outcome in outcomes if outcome is not None]
        assert len(done) == len(self._processes), "all have told what came of it"
        counts = DelayHistograms(0).of_all()
        for outcome in done:
            if outcome.delays:
                counts += np.array(outcome.delays, np.int64)
        half, most, nearly_all, longest = (
            percentile_s(counts, share) * 1_000 for share in (0.5, 0.95, 0.99, 1.0)
        )
        facts = [
            ProcessFacts(process.job.name, of.cpu_s, of.late_s_max, of.late_ticks)
            for process, of in zip(self._processes, done, strict=True)
        ]
        if broker_s is not None:
            facts.insert(0, ProcessFacts("broker", broker_s))
        return LiveResult(
            result=self._figures(done),
            updates=int(counts.sum()),
            delay_p50_ms=half,
            delay_p95_ms=most,
            delay_p99_ms=nearly_all,
            delay_max_ms=longest,
            client_p99_ms={
                client: of_client[2] * 1_000
                for of in done
                for client, of_client in sorted(of.client_delays_s.items())
            },
            processes=tuple(facts),
            longest_ms=tuple(
                1_000 * max(process.reports[tick].delay_s_max for process in self._processes)
                for tick in self._ticks()
            ),
            was_stopped=self._was_stopped,
        )

    def _figures(self, done: list[RoleOutcome]) -> ScenarioResult:
        """The same as of a run in process, with the live engine beside the others."""
        scenario, last = self._scenario, min(outcome.last.tick for outcome in done)
        samples = [sample for tick in self._ticks() for sample in self._samples(tick)]
        samples += self._samples_of([outcome.last for outcome in done], last)
        engines = list(dict.fromkeys(sample.source for sample in samples))
        live = done[0].engine + OVER_MQTT
        return ScenarioResult(
            scenario=scenario.name,
            title=scenario.title,
            seed=scenario.seed,
            players=scenario.people.players,
            entities=done[0].entities,
            servers=scenario.people.servers,
            seconds=last * scenario.tick_s,
            ticks=last,
            trace_hash=next(of.last.hash for of in done if of.last.tick == last),
            engines=tuple(
                EngineFacts(name, _delay_ticks(name) * scenario.tick_s, name == live)
                for name in engines
            ),
            samples=tuple(samples),
            heard=(),
            handed_over=done[0].handed_over,
            elapsed_s=self._elapsed_s,
        )

    def _ticks(self) -> list[int]:
        """Those that everybody has reported."""
        everywhere = set.intersection(*(set(process.reports) for process in self._processes))
        return sorted(everywhere - {0})

    def _samples(self, tick: int) -> list[RunSample]:
        return self._samples_of([process.reports[tick] for process in self._processes], tick)

    def _samples_of(self, reports: list[RoleReport], tick: int) -> list[RunSample]:
        at = tick * self._scenario.tick_s
        totals: dict[str, dict[str, float]] = {}
        for report in reports:
            for engine, row in report.rows.items():
                add_row(totals.setdefault(engine + OVER_MQTT, {}), row)
        over_mqtt = [RunSample(at, name, figures, True) for name, figures in totals.items()]
        return over_mqtt + [
            RunSample(at, name, row) for report in reports for name, row in report.dummies.items()
        ]


def _delay_ticks(name: str) -> int:
    """What an engine states; over MQTT it is judged when the tick after is about to begin."""
    return DELAY_TICKS + 1 if name.endswith(OVER_MQTT) else make_engine(name).delay_ticks
