"""`rove bench broker`: the cost of a broker, for Rove and Mosquitto in the same run.

Each broker is a process, and so is the load (`rove.bench.broker.load`), which is the same for both.
The suite compares the CPU times of the brokers, because they hardly depend on what else the machine
does. Rates and delays do; measure them on a quiet machine.

Only received notifications count: each part compares them with the publications, and a lost
notification of QoS 1 ends the run with an error. Names are `broker.PART.CASE`:

- `fanout`: one publisher at full speed, a hundred subscribers, 1 KB; Rove also evaluates a thousand
  subscriptions with expressions for each publication, of which none matches,
- `unbatched`: the same at a pace at which every publication arrives alone,
- `durable`: fifty publishers with QoS 1, everything stored on disk: in the queue of a disconnected
  subscriber (`queue`), in a channel of the lake (`lake`), or in both,
- `sift`: a thousand subscribers that each want 1 % by content; Rove sends them only that,
  Mosquitto sends them everything and they drop the rest,
- `delay`: from publication to notification, with 20,000 subscriptions with expressions,
- `idle`: the memory of 10,000 idle connections, and what remains when they are closed,
- `slow`: the delay of a hundred subscribers, without and with one more that does not read,
- `restart`: on a folder with 100,000 subscriptions and a million queued notifications, with the
  saved index and without it.

If Mosquitto is not installed, Rove is measured alone. Takes about five minutes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from rove.bench.broker import restart as broker_restart
from rove.bench.broker.load import LOAD, BrokerOutcome, Durable, FanOut, Idle, Sift, Spread
from rove.bench.harness import Bench, Setting, Suite, SuiteOptions
from rove.bench.measure import Measure
from rove.serve.disk.store import Store
from rove.testing import broker_processes
from rove.testing.broker_processes import BrokerProcessError, Running

_FAN_OUT_GOAL: Final = 1.0
_UNBATCHED_GOAL: Final = 0.7

_QUEUES_WITHOUT_END: Final = {
    "ROVE_LIMITS__QUEUE_MESSAGES_MAX": "100000000",
    "ROVE_LIMITS__QUEUE_BYTES_MAX": "100000000000",
}
_LAKE: Final = {
    "ROVE_LAKE__CHANNELS": '[{name = "air", topics = ["air/#"], keep = ["publications"]}]'
}
_LITTLE_UNSENT: Final = {"ROVE_LIMITS__UNSENT_BYTES_MAX": str(512 * 1024)}
"""Small enough that the slow subscriber fills its share while the load runs."""


class BrokerOptions(SuiteOptions, frozen=True, kw_only=True):
    """How much to measure."""

    seconds: float = 4.0
    """How long each load publishes."""
    has_mosquitto: bool = True
    """False leaves out Mosquitto even if it is installed."""
    subscribers: int = 100
    bystanders: int = 1_000
    payload_bytes: int = 1_024
    unbatched_per_s: float = 200
    rounds: int = 3
    """Of `fanout` and `unbatched`, for each broker."""
    publishers: int = 50
    window: int = 20
    durable_bytes: Sequence[int] = (256, 1_024)
    sifters: int = 1_000
    sifted_share: float = 0.01
    delay_subscriptions: int = 20_000
    delay_connections: int = 200
    delay_per_s: float = 1_000
    delay_times: float = 3.0
    """How much longer than the others this part takes, because its p99 needs rare events."""
    idle_connections: int = 10_000
    idle_rounds: int = 3
    slow_per_s: float = 500
    slow_rounds: int = 4
    stored: broker_restart.Folder = broker_restart.Folder()


QUICK: Final = BrokerOptions(
    seconds=0.3,
    subscribers=5,
    bystanders=10,
    unbatched_per_s=50,
    rounds=1,
    publishers=3,
    window=5,
    durable_bytes=(256,),
    sifters=20,
    sifted_share=0.1,
    delay_subscriptions=200,
    delay_connections=20,
    delay_per_s=100,
    delay_times=1.0,
    idle_connections=50,
    idle_rounds=2,
    slow_per_s=200,
    slow_rounds=1,
    stored=broker_restart.Folder(sessions=10, subscriptions=100, notifications=1_000),
)

BrokerBench: TypeAlias = Bench[BrokerOptions]


# -- brokers ------------------------------------------------------------------------------


def _brokers(options: BrokerOptions) -> Sequence[str]:
    """Mosquitto first, so that Rove can be compared with it."""
    has_other = options.has_mosquitto and broker_processes.mosquitto_program() is not None
    return ("mosquitto", "rove") if has_other else ("rove",)


@contextmanager
def _running(name: str, settings: dict[str, str] | None = None) -> Iterator[Running]:
    with tempfile.TemporaryDirectory(prefix="rove-bench-") as folder:
        start: AbstractContextManager[Running]
        if name == "rove":
            start = broker_processes.rove(Path(folder), settings)
        else:
            start = broker_processes.mosquitto(Path(folder))
        with start as broker:
            yield broker


def _nothing_lost(name: str, outcome: BrokerOutcome) -> None:
    if outcome.received != outcome.expected:
        raise BrokerProcessError(
            f"{name}: {outcome.received:,} notifications came, {outcome.expected:,} were due"
        )


# -- one to many --------------------------------------------------------------------------


def _fan_out(bench: BrokerBench) -> Iterator[Measure]:
    yield from _one_to_many("broker.fanout", 0.0, _FAN_OUT_GOAL, bench)


def _unbatched(bench: BrokerBench) -> Iterator[Measure]:
    per_s = bench.options.unbatched_per_s
    yield from _one_to_many("broker.unbatched", per_s, _UNBATCHED_GOAL, bench)


def _one_to_many(prefix: str, per_s: float, goal: float, bench: BrokerBench) -> Iterator[Measure]:
    """Measure the brokers in turn; of each broker the round counts that took the least CPU time."""
    options = bench.options
    with ExitStack() as stack:
        brokers = [stack.enter_context(_running(name)) for name in _brokers(options)]
        for qos in (0, 1):
            outcomes: dict[str, list[BrokerOutcome]] = {broker.name: [] for broker in brokers}
            for _ in range(options.rounds):
                for broker in brokers:
                    group = f"{prefix}.qos{qos}.{broker.name}"
                    bench.tell(group)
                    outcome = LOAD.run(_fan_out_job(broker, qos, per_s, options))
                    if qos:
                        _nothing_lost(group, outcome)
                    outcomes[broker.name].append(outcome)
            theirs: Measure | None = None
            for name, found in outcomes.items():
                group = f"{prefix}.qos{qos}.{name}"
                best = min(found, key=lambda one: one.broker_cpu_s / one.received)
                efficiency = _efficiency(group, best.received, "deliveries", best)
                if name == "rove":
                    efficiency = efficiency.compared(theirs).at_least(goal, "×")
                yield efficiency
                theirs = efficiency
                yield Measure(f"{group}.rate", best.received / best.seconds, "deliveries/s")
                if not qos:
                    yield Measure(f"{group}.delivered", 100 * best.received / best.expected, "%")


def _fan_out_job(broker: Running, qos: int, per_s: float, options: BrokerOptions) -> FanOut:
    return FanOut(
        port=broker.port,
        pid=broker.pid,
        seconds=options.seconds,
        qos=qos,
        subscribers=options.subscribers,
        payload_bytes=options.payload_bytes,
        bystanders=options.bystanders if broker.name == "rove" else 0,
        per_s=per_s,
    )


def _efficiency(name: str, count: int, what: str, outcome: BrokerOutcome) -> Measure:
    """So many for each second of CPU time; a tick at least, where there was next to nothing."""
    return Measure(name, count / max(outcome.broker_cpu_s, 0.01), f"{what}/CPU s")


# -- kept on disk -------------------------------------------------------------------------


def _durable(bench: BrokerBench) -> Iterator[Measure]:
    cases = {
        "queue": _QUEUES_WITHOUT_END,
        "lake": _LAKE,
        "both": _QUEUES_WITHOUT_END | _LAKE,
    }
    for payload_bytes in bench.options.durable_bytes:
        cpu: dict[str, Measure] = {}
        for where, settings in cases.items():
            group = f"broker.durable.{where}.{payload_bytes}"
            bench.tell(group)
            rate, cpu_us = _kept(group, where, settings, payload_bytes, bench.options)
            yield Measure(group, rate, "publications/s").at_least(15_000, "/s")
            cpu[where] = Measure(f"{group}.cpu", cpu_us, "µs/publication")
            if where == "both":
                cpu[where] = cpu[where].compared(cpu["queue"]).at_most(1.3, "×")
            yield cpu[where]


def _kept(
    group: str, where: str, settings: dict[str, str], payload_bytes: int, options: BrokerOptions
) -> tuple[float, float]:
    """Publications a second, and what each took of the broker's processor time, in µs."""
    with tempfile.TemporaryDirectory(prefix="rove-bench-") as folder:
        with broker_processes.rove(Path(folder), settings) as broker:
            job = Durable(
                port=broker.port,
                pid=broker.pid,
                seconds=options.seconds,
                has_absentee=where != "lake",
                publishers=options.publishers,
                window=options.window,
                payload_bytes=payload_bytes,
            )
            outcome = LOAD.run(job)
            if where == "queue":
                # What was acknowledged is on disk now, not after a good end.
                broker.kill()
        kept = _rows_kept(Path(folder) / "data", where)
    if kept != outcome.sent:
        raise BrokerProcessError(
            f"{group}: {outcome.sent:,} publications were acknowledged, {kept:,} were kept"
        )
    return outcome.sent / outcome.seconds, 1e6 * outcome.broker_cpu_s / outcome.sent


def _rows_kept(data: Path, where: str) -> int:
    """In all places that were to keep them, the fewest."""
    with Store.open(data) as store:
        publications = {key for key, _ in store.load("publications")}
        queued = min(len(publications), sum(1 for _ in store.load("queue")))
        waiting = sum(1 for _ in store.load("log"))
    if where == "queue":
        return queued
    from rove.lake.log import LakeLog

    in_lake = waiting + sum(file.rows for file in LakeLog(data / "lake").files("publications"))
    return in_lake if where == "lake" else min(queued, in_lake)


# -- a share by content -------------------------------------------------------------------


def _sift(bench: BrokerBench) -> Iterator[Measure]:
    options = bench.options
    alone: Measure | None = None
    together: Measure | None = None
    for name in _brokers(options):
        group = f"broker.sift.{name}"
        bench.tell(group)
        with _running(name) as broker:
            job = Sift(
                port=broker.port,
                pid=broker.pid,
                seconds=options.seconds,
                subscribers=options.sifters,
                share=options.sifted_share,
                by_content=name == "rove",
                under_way=50,
                at_once=10,
                payload_bytes=options.payload_bytes,
            )
            outcome = LOAD.run(job)
        _nothing_lost(group, outcome)
        ours = _efficiency(group, outcome.useful, "useful", outcome)
        all_cpu_s = outcome.broker_cpu_s + outcome.load_cpu_s
        both = Measure(f"{group}.with_clients", outcome.useful / all_cpu_s, "useful/CPU s")
        if name == "rove":
            yield ours.compared(alone).at_least(20, "×")
            yield both.compared(together)
        else:
            yield from (ours, both)
            alone, together = ours, both
        yield Measure(f"{group}.rate", outcome.useful / outcome.seconds, "useful/s")


# -- delays -------------------------------------------------------------------------------


def _delay(bench: BrokerBench) -> Iterator[Measure]:
    options = bench.options
    for qos in (0, 1):
        group = f"broker.delay.qos{qos}"
        bench.tell(group)
        with _running("rove") as broker:
            job = Spread(
                port=broker.port,
                pid=broker.pid,
                seconds=options.seconds * options.delay_times,
                qos=qos,
                subscriptions=options.delay_subscriptions,
                connections=options.delay_connections,
                matches=10,
                per_s=options.delay_per_s,
                payload_bytes=options.payload_bytes,
            )
            outcome = LOAD.run(job)
        _nothing_lost(group, outcome)
        half, most, longest = _delays(outcome)
        yield Measure(f"{group}.p50", half, "ms")
        yield Measure(f"{group}.p99", most, "ms").at_most(20, " ms")
        yield Measure(f"{group}.max", longest, "ms")
        yield Measure(f"{group}.rate", outcome.sent / outcome.seconds, "publications/s")
        yield Measure(f"{group}.cpu", 100 * outcome.broker_cpu_s / outcome.seconds, "% of a core")


def _delays(outcome: BrokerOutcome) -> tuple[float, float, float]:
    assert outcome.delays_ms is not None, "this load takes delays"
    return outcome.delays_ms


def _slow(bench: BrokerBench) -> Iterator[Measure]:
    """In turns, and of each the round that was least disturbed: others use the machine too."""
    options = bench.options
    found: dict[bool, list[float]] = {False: [], True: []}
    with _running("rove", _LITTLE_UNSENT) as broker:
        for turn in range(options.slow_rounds):
            for has_slow_one in (False, True):
                case = "with" if has_slow_one else "without"
                bench.tell(f"broker.slow, round {turn + 1}, {case}")
                job = FanOut(
                    port=broker.port,
                    pid=broker.pid,
                    seconds=options.seconds,
                    qos=0,
                    subscribers=options.subscribers,
                    payload_bytes=options.payload_bytes,
                    per_s=options.slow_per_s,
                    has_slow_one=has_slow_one,
                )
                outcome = LOAD.run(job)
                _nothing_lost("broker.slow", outcome)
                found[has_slow_one].append(_delays(outcome)[1])
        dropped = broker.metrics()["rove_notifications_dropped_slow_total"]
    without = Measure("broker.slow.without.p99", min(found[False]), "ms")
    yield without
    beside = Measure("broker.slow.with.p99", min(found[True]), "ms")
    yield beside.compared(without).at_most(1.2, "×")
    yield Measure("broker.slow.dropped", dropped, "notifications")


# -- memory -------------------------------------------------------------------------------


def _idle(bench: BrokerBench) -> Iterator[Measure]:
    options = bench.options
    count = options.idle_connections
    theirs: Measure | None = None
    for name in _brokers(options):
        group = f"broker.idle.{name}"
        bench.tell(group)
        with _running(name) as broker:
            job = Idle(
                port=broker.port,
                pid=broker.pid,
                seconds=options.seconds,
                connections=count,
                rounds=options.idle_rounds,
            )
            outcome = LOAD.run(job)
        before, first, *_ = outcome.resident_bytes
        ours = Measure(group, (first - before) / count / 1_024, "KB/connection")
        left = outcome.resident_bytes[2::2]
        growth_kb = (left[-1] - left[0]) / count / 1_024 / (len(left) - 1)
        growth = Measure(f"{group}.growth", growth_kb, "KB/connection and round")
        if name == "rove":
            yield ours.compared(theirs).at_most(64, " KB")
            yield growth.at_most(0.5, " KB")
        else:
            yield from (ours, growth)
            theirs = ours
        yield Measure(f"{group}.cpu", 1e6 * outcome.broker_cpu_s / outcome.received, "µs/visit")


# -- starting again -----------------------------------------------------------------------


def _restart(bench: BrokerBench) -> Iterator[Measure]:
    what = bench.options.stored
    bench.tell("broker.restart: filling a folder")
    broker_restart.fill(bench.folder / "data", what)
    bench.tell("broker.restart.without_index")
    first = broker_restart.restart(bench.folder, what)
    bench.tell("broker.restart.with_index")
    again = broker_restart.restart(bench.folder, what)
    yield Measure("broker.restart.without_index", first.seconds, "s")
    yield Measure("broker.restart.without_index.cpu", first.cpu_s, "CPU s")
    yield Measure("broker.restart.with_index", again.seconds, "s").at_most(5, " s")
    yield Measure("broker.restart.with_index.cpu", again.cpu_s, "CPU s")


SUITE: Final = Suite(
    name="broker",
    parts={
        "fanout": _fan_out,
        "unbatched": _unbatched,
        "durable": _durable,
        "sift": _sift,
        "delay": _delay,
        "idle": _idle,
        "slow": _slow,
        "restart": _restart,
    },
    options=BrokerOptions(),
    quick=QUICK,
    accepts={"seconds": Setting("seconds")},
    needs_linux_to="reads CPU times from /proc",
)
