"""`rove bench policy`: what policies cost and what they are good for, beside SUBLIM's figures.

The experiments of SUBLIM's evaluation, its Figures 5 to 8, with its case study
(`rove.bench.policy.cases`) and its messages of 100 KB, and the speed of policies by themselves.
Names are `policy.PART.CASE`:

- `overhead`: a real broker that delivers blindly, beside one that asks a policy for each
  subscriber. SUBLIM's measure is the time until everything is processed, of messages at a pace,
  `duration`. A broker of today waits most of that time, so there are two stricter ones: `cpu`, the
  processor time of the broker and its workers, and `unpaced`, messages as fast as it goes. Cases:
  `passed`, nothing needs to become smaller; `one`, all want the same quality; `many`, all that the
  policy knows;
- `link`: what gets through a link between 300 kb/s and 3 Mb/s, with state and without; `direct`
  goes by the last report of the network alone;
- `battery`: how long a device lasts, with state, without, and without messages;
- `malicious`: the first again, with 5 and 10 % as many subscribers more whose policies never end;
  delays are those of the others, and are compared in turns, round by round. A broker suspends such
  policies after five messages. In runs of five minutes that is soon; in short ones it has happened
  before what counts begins, and `unsuspended` is the largest of these once more, with a broker that
  never does. `endless` is that without any limit of steps or time, as in SUBLIM's Figure 8a;
- `hostile`: the worst policies that we know of (`rove.bench.policy.hostile`), fifty at a time, with
  the limits that a broker ships with and in both modes of isolation: how long a bystander waits at
  worst, and how much later the messages of a victim come that has five attackers beside it;
- `speed`: evaluations in a second, beside plain Python (`rove.bench.policy.speed`).

`link` and `battery` run in virtual time (`rove.bench.policy.simulated`), the others on this
machine; while it does something else, they mean little. Takes twenty-one minutes; with `full`,
where runs last five minutes as SUBLIM's did, thirteen hours.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from rove.bench.harness import Bench, Setting, Suite, SuiteOptions
from rove.bench.measure import Measure
from rove.bench.policy import hostile as policy_hostile
from rove.bench.policy import load as policy_load
from rove.bench.policy import plots as policy_plots
from rove.bench.policy import simulated as policy_simulated
from rove.bench.policy import speed as policy_speed
from rove.bench.policy import sublim as policy_sublim
from rove.bench.policy.cases import DIRECT, MALICIOUS, STATELESS, icu
from rove.bench.policy.load import Device, PolicyJob, PolicyOutcome
from rove.bench.policy.simulated import Linked
from rove.bench.policy.speed import Extent
from rove.client.devices import EnergyModel
from rove.testing import broker_processes
from rove.testing.broker_processes import Running

BLIND: Final = "blind"
CASES: Final = ("passed", "one", "many")
_SPREAD: Final = (0.26, 0.74)
"""Batteries of `many`: between those at which pictures become smaller, and nothing is left of
them."""
_HALF: Final = 0.5
_GOAL_CASE: Final = (240, 220, "passed")
_P99_GOAL: Final = 5.0
_NEVER: Final = 1_000_000_000
"""So many offences nobody commits, and no run takes so many steps or milliseconds."""
_LIMITLESS: Final = {
    f"ROVE_POLICIES__{name}": str(_NEVER) for name in ("OFFENCES_MAX", "STEPS_MAX", "TIME_MS")
}
_S_PER_MIN: Final = 60.0
_S_PER_H: Final = 3_600.0

Point: TypeAlias = tuple[int, int]
"""Messages in a minute, and subscribers."""


class PolicyOptions(SuiteOptions, frozen=True, kw_only=True):
    """How much to measure."""

    subscribers: Sequence[int] = (20, 100, 220)
    rates: Sequence[int] = (30, 60, 120, 240)
    paced_s: float = 3.0
    paced_messages: int = 6
    """At least, whatever the rate."""
    unpaced_messages: int = 60
    unpaced_rounds: int = 5
    link_rates: Sequence[int] = (20, 40, 60, 80, 100, 120)
    link_s: float = 300.0
    link_runs: int = 6
    battery_rates: Sequence[int] = (20, 40, 60, 80, 100, 120)
    battery_h: float = 1.0
    """How long a battery lasts that is sent nothing."""
    models_uj: Sequence[float] = (1.0, 10.0)
    """Other energies of a byte that the battery is tried with."""
    malicious_subscribers: Sequence[int] = (100, 200)
    malicious_rates: Sequence[int] = (120, 240)
    malicious_s: float = 2.0
    malicious_rounds: int = 2
    largest_rounds: int = 3
    largest_s: float = 50.0
    """With the highest rate and the most subscribers, by which the goal is judged. All subscribers
    get a message at nearly the same time, so of fewer than two hundred the p99 is that of the
    slowest, whatever made it slow."""
    harmful: int = 6
    """Messages that malicious subscribers are shown before those that count."""
    hostile_cases: Sequence[str] = tuple(policy_hostile.CASES)
    hostile_sessions: int = 50
    hostile_s: float = 5.0
    attackers: int = 5
    speed: Extent = Extent()


FULL: Final = PolicyOptions(
    subscribers=(20, 60, 100, 140, 180, 200, 220),
    paced_s=300.0,
    unpaced_messages=1_000,
    link_runs=20,
    battery_h=5.0,
    malicious_subscribers=(100, 140, 180, 200),
    malicious_s=300.0,
    malicious_rounds=1,
    largest_rounds=3,
    largest_s=300.0,
    harmful=0,
    hostile_s=60.0,
    speed=Extent(rounds=20),
)
QUICK: Final = PolicyOptions(
    subscribers=(4, 8),
    rates=(240,),
    paced_s=0.5,
    paced_messages=2,
    unpaced_messages=5,
    unpaced_rounds=1,
    link_rates=(60, 120),
    link_s=90.0,
    link_runs=1,
    battery_rates=(60,),
    battery_h=0.05,
    models_uj=(),
    malicious_subscribers=(10,),
    malicious_rates=(240,),
    malicious_s=1.0,
    malicious_rounds=1,
    largest_rounds=1,
    largest_s=1.0,
    harmful=2,
    hostile_cases=("reset",),
    hostile_sessions=2,
    hostile_s=0.3,
    attackers=1,
    speed=Extent(calls=500, rounds=1),
)

PolicyBench: TypeAlias = Bench[PolicyOptions]


def _overhead_percent(full: float, blind: float) -> float:
    return 100.0 * (full - blind) / blind


# -- the broker and its load --------------------------------------------------------------------


@contextmanager
def _running(settings: Mapping[str, str] | None = None) -> Iterator[Running]:
    with (
        tempfile.TemporaryDirectory(prefix="rove-bench-") as folder,
        broker_processes.rove(Path(folder), settings) as broker,
    ):
        yield broker


def _devices(case: str, count: int, malicious: int = 0) -> list[Device]:
    """The subscribers of a case, and so many more that mean harm."""
    if case == BLIND:
        found = [Device()] * count
    elif case == "many":
        low, high = _SPREAD
        steps = max(1, count - 1)
        found = [Device("icu", low + (high - low) * n / steps) for n in range(count)]
    else:
        found = [Device("icu", _HALF if case == "one" else 1.0)] * count
    kinds = len(MALICIOUS)
    return found + [Device(f"malicious{n % kinds}", counts=False) for n in range(malicious)]


def _policies() -> dict[str, str]:
    return {"icu": icu(), **{f"malicious{n}": text for n, text in enumerate(MALICIOUS)}}


def _job(broker: Running, devices: Sequence[Device], messages: int, per_min: int = 0) -> PolicyJob:
    return PolicyJob(
        port=broker.port,
        pid=broker.pid,
        policies=_policies(),
        devices=devices,
        messages=messages,
        per_min=per_min,
    )


def _paced(
    broker: Running, devices: Sequence[Device], rate: int, seconds: float, at_least: int = 2
) -> PolicyJob:
    return _job(broker, devices, max(at_least, round(seconds * rate / _S_PER_MIN)), rate)


# -- experiment 1 -------------------------------------------------------------------------------


def _overhead(bench: PolicyBench) -> Iterator[Measure]:
    options = bench.options
    found: dict[Point, dict[str, PolicyOutcome]] = {}
    length = options.paced_s, options.paced_messages
    with _running() as broker:
        # What is done for the first time takes longer, and would be told of the first case.
        policy_load.run([_job(broker, _devices(BLIND, 1), options.paced_messages)])
        for rate in options.rates:
            for count in options.subscribers:
                bench.tell(f"policy.overhead, {count} subscribers, {rate} a minute")
                cases = (BLIND, *CASES)
                jobs = [_paced(broker, _devices(case, count), rate, *length) for case in cases]
                some = dict(zip(cases, policy_load.run(jobs), strict=True))
                found[rate, count] = some
                yield from _overheads(rate, count, some)
        yield from _unpaced(broker, bench)
    if (path := bench.plot("policy-overhead")) is not None:
        policy_plots.overhead(found, path)


def _overheads(rate: int, count: int, found: Mapping[str, PolicyOutcome]) -> Iterator[Measure]:
    group, blind = f"policy.overhead.{rate}.{count}", found[BLIND]
    yield Measure(f"{group}.blind.duration", blind.seconds, "s")
    yield Measure(f"{group}.blind.cpu", 1e3 * blind.cpu_s / blind.sent, "CPU ms/message")
    published = policy_sublim.OVERHEAD.get((rate, count))
    if published is not None:
        yield Measure(f"{group}.sublim.duration", published, "% more", note="as published")
    for case in CASES:
        one = found[case]
        more = _overhead_percent(one.seconds, blind.seconds)
        duration = Measure(
            f"{group}.{case}.duration",
            more,
            "% more",
            one.seconds / blind.seconds,
            f"{group}.blind.duration",
            note=None if one.share == 1 else f"{100 * one.share:.1f} % came",
        )
        if (rate, count, case) == _GOAL_CASE:
            duration = duration.at_most(5, " %")
        yield duration
        yield Measure(
            f"{group}.{case}.cpu",
            _overhead_percent(one.cpu_s / one.sent, blind.cpu_s / blind.sent),
            "% more",
            one.cpu_s / one.sent / (blind.cpu_s / blind.sent),
            f"{group}.blind.cpu",
            note=f"{one.received_bytes / one.received / 1e3:.1f} KB each",
        )


def _unpaced(broker: Running, bench: PolicyBench) -> Iterator[Measure]:
    """Measure the cases in turn, as fast as they go; yield the median of each."""
    options = bench.options
    count = max(options.subscribers)
    bench.tell("policy.overhead, as fast as it goes")
    cases = (BLIND, *CASES)
    jobs = [_job(broker, _devices(case, count), options.unpaced_messages) for case in cases]
    outcomes = policy_load.run(jobs * options.unpaced_rounds)
    found = {case: outcomes[place :: len(cases)] for place, case in enumerate(cases)}
    group = f"policy.overhead.unpaced.{count}"
    first: dict[str, float] = {}
    for case, some in found.items():
        values = {
            "duration": statistics.median(1e3 * one.seconds / one.sent for one in some),
            "cpu": statistics.median(1e3 * one.cpu_s / one.sent for one in some),
        }
        for what, value in values.items():
            name, unit = (
                f"{group}.{case}.{what}",
                {"duration": "ms/message"}.get(what, "CPU ms/message"),
            )
            if case == BLIND:
                first[what] = value
                yield Measure(name, value, unit)
            else:
                yield Measure(name, value, unit, value / first[what], f"{group}.blind.{what}")


# -- experiment 2 -------------------------------------------------------------------------------


def _link(bench: PolicyBench) -> Iterator[Measure]:
    options = bench.options
    policies = {"stateless": STATELESS, "direct": DIRECT, "stateful": icu()}
    lines: dict[str, list[tuple[int, float]]] = {name: [] for name in policies}
    for rate in options.link_rates:
        shares: dict[str, float] = {}
        for name, text in policies.items():
            bench.tell(f"policy.link, {rate} a minute, {name}")
            runs = [
                policy_simulated.linked(text, rate, options.link_s, seed)
                for seed in range(options.link_runs)
            ]
            shares[name] = share = 100 * statistics.mean(one.share for one in runs)
            lines[name].append((rate, share))
            yield _link_measure(rate, name, shares, runs)
    if (path := bench.plot("policy-link")) is not None:
        policy_plots.link(lines, path)


def _link_measure(
    rate: int, name: str, shares: Mapping[str, float], runs: Sequence[Linked]
) -> Measure:
    kilobytes = statistics.mean(one.bytes_mean for one in runs) / 1e3
    is_first = len(shares) == 1
    return Measure(
        f"policy.link.{rate}.{name}",
        shares[name],
        "% received",
        None if is_first else shares[name] / shares["stateless"],
        None if is_first else f"policy.link.{rate}.stateless",
        note=f"{len(runs)} runs, {kilobytes:.1f} KB each",
    )


# -- experiment 3 -------------------------------------------------------------------------------


def _battery(bench: PolicyBench) -> Iterator[Measure]:
    options = bench.options
    model = policy_simulated.MODEL
    capacity_j = options.battery_h * _S_PER_H * model.idle_w
    idle_s = policy_simulated.life_s(None, 0, capacity_j)
    published = policy_sublim.BATTERY
    yield Measure("policy.battery.sublim", published, "% longer at most", note="as published")
    yield Measure("policy.battery.none", idle_s / _S_PER_H, "h", note="no messages")
    lines: dict[str, list[tuple[int, float]]] = {"stateful": [], "stateless": []}
    for rate in options.battery_rates:
        bench.tell(f"policy.battery, {rate} a minute")
        stateless, stateful = _lives(rate, options, model)
        yield stateless
        yield stateful
        lines["stateless"].append((rate, 100 * stateless.value * _S_PER_H / idle_s))
        lines["stateful"].append((rate, 100 * stateful.value * _S_PER_H / idle_s))
    rate = max(options.battery_rates)
    for byte_uj in options.models_uj:
        bench.tell(f"policy.battery, {byte_uj:g} µJ a byte")
        other = msgspec.structs.replace(model, joules_per_byte=1e-6 * byte_uj)
        yield from _lives(rate, options, other, f".{byte_uj:g}uJ")
    if (path := bench.plot("policy-battery")) is not None:
        policy_plots.battery(lines, model, path)


def _lives(
    rate: int, options: PolicyOptions, model: EnergyModel, which: str = ""
) -> tuple[Measure, Measure]:
    """Without state and with it."""
    capacity_j = options.battery_h * _S_PER_H * model.idle_w
    short_h, long_h = (
        policy_simulated.life_s(text, rate, capacity_j, model) / _S_PER_H
        for text in (STATELESS, icu())
    )
    name = f"policy.battery.{rate}{which}"
    note = f"{model.joules_per_byte * 1e6:g} µJ a byte"
    stateless = Measure(f"{name}.stateless", short_h, "h")
    ratio = long_h / short_h
    stateful = Measure(f"{name}.stateful", long_h, "h", ratio, stateless.name, note=note)
    return stateless, stateful


# -- experiment 4 -------------------------------------------------------------------------------


def _malicious(bench: PolicyBench) -> Iterator[Measure]:
    options = bench.options
    found: dict[Point, dict[str, list[PolicyOutcome]]] = {}
    largest = max(options.malicious_rates), max(options.malicious_subscribers)
    with _running() as broker:
        for rate in options.malicious_rates:
            for count in options.malicious_subscribers:
                bench.tell(f"policy.malicious, {count} subscribers, {rate} a minute")
                point = rate, count
                length = options.malicious_rounds, options.malicious_s
                if point == largest:
                    length = options.largest_rounds, options.largest_s
                some = found[point] = _in_turns(broker, options, point, *length)
                published = policy_sublim.MALICIOUS.get(point, ())
                group = f"policy.malicious.{rate}.{count}"
                yield from _harm(group, some, published, has_goal=point == largest)
    bench.tell("policy.malicious, and none is ever suspended")
    with _running({"ROVE_POLICIES__OFFENCES_MAX": str(_NEVER)}) as broker:
        some = _in_turns(broker, options, largest, options.malicious_rounds, options.malicious_s)
        yield from _harm("policy.malicious.unsuspended", some)
    bench.tell("policy.malicious, and nothing is ever stopped")
    with _running(_LIMITLESS) as broker:
        # In one round, least harm first: what does not end is still there in the next.
        at_once = msgspec.structs.replace(options, harmful=0)
        some = _in_turns(broker, at_once, largest, 1, options.malicious_s)
        yield from _harm("policy.malicious.endless", some)
    if (path := bench.plot("policy-malicious")) is not None:
        policy_plots.malicious(found, path)


def _in_turns(
    broker: Running, options: PolicyOptions, point: Point, rounds: int, seconds: float
) -> dict[str, list[PolicyOutcome]]:
    """Blind delivery, and each share of malicious subscribers, round by round."""
    rate, count = point
    blind = _paced(broker, _devices(BLIND, count), rate, seconds)
    jobs = []
    for share in policy_sublim.SHARES:
        devices = _devices("passed", count, round(count * share / 100))
        job = _paced(broker, devices, rate, seconds)
        jobs.append(msgspec.structs.replace(job, harmful=options.harmful))
    first, *others = policy_load.run([blind, *jobs * rounds])
    found = {BLIND: [first]}
    for place, share in enumerate(policy_sublim.SHARES):
        found[str(share)] = others[place :: len(jobs)]
    return found


def _harm(
    group: str,
    found: Mapping[str, Sequence[PolicyOutcome]],
    published: Sequence[float] = (),
    *,
    has_goal: bool = False,
) -> Iterator[Measure]:
    """Medians of the rounds, and what SUBLIM published beside them."""
    blind_s = statistics.median(one.seconds for one in found[BLIND])
    calm_ms = statistics.median(one.p99_ms for one in found["0"])
    for place, share in enumerate(policy_sublim.SHARES):
        some = found[f"{share}"]
        name = f"{group}.{share}%"
        if published:
            theirs = f"{name}.sublim.duration"
            yield Measure(theirs, published[place], "% more", note="as published")
        seconds = statistics.median(one.seconds for one in some)
        more = _overhead_percent(seconds, blind_s)
        yield Measure(f"{name}.duration", more, "% more", seconds / blind_s, "blind")
        yield Measure(f"{name}.p50", statistics.median(one.p50_ms for one in some), "ms")
        all_ms = sorted(one.p99_ms for one in some)
        p99_ms = statistics.median(all_ms)
        note = f"{all_ms[0]:.1f} to {all_ms[-1]:.1f}, {len(all_ms)} rounds"
        p99 = Measure(f"{name}.p99", p99_ms, "ms", note=note)
        if share:
            ratio = p99_ms / calm_ms
            p99 = msgspec.structs.replace(p99, ratio=ratio, against=f"{group}.0%.p99")
            if has_goal:
                goal, reached = f"<= {_P99_GOAL:g} % more", ratio <= 1 + _P99_GOAL / 100
                p99 = msgspec.structs.replace(p99, goal=goal, reached=reached)
        yield p99
        workers_ms = statistics.median(1e3 * one.children_cpu_s / one.sent for one in some)
        yield Measure(f"{name}.workers", workers_ms, "CPU ms/message")


# -- the worst ----------------------------------------------------------------------------------


def _hostile(bench: PolicyBench) -> Iterator[Measure]:
    options = bench.options
    for isolation in ("none", "process"):
        group = f"policy.hostile.{isolation}"
        with _running({"ROVE_POLICIES__ISOLATION": isolation}) as broker:
            for case in (policy_hostile.QUIET, *options.hostile_cases):
                bench.tell(f"{group}.{case}")
                yield from policy_hostile.bystanders(
                    broker.port, group, case, options.hostile_sessions, options.hostile_s
                )
            for case in options.hostile_cases:
                bench.tell(f"{group}, a victim beside {case}")
                yield from policy_hostile.victim(
                    broker.port, f"{group}.{case}", case, options.attackers, options.hostile_s
                )


# -- speed --------------------------------------------------------------------------------------


def _speed(bench: PolicyBench) -> Iterator[Measure]:
    yield from policy_speed.measures(bench.options.speed)


SUITE: Final = Suite(
    name="policy",
    parts={
        "overhead": _overhead,
        "link": _link,
        "battery": _battery,
        "malicious": _malicious,
        "hostile": _hostile,
        "speed": _speed,
    },
    options=PolicyOptions(),
    quick=QUICK,
    full=FULL,
    accepts={
        "seconds": Setting("hostile_s", parts=("hostile",)),
        "plots": Setting("plots", parts=("overhead", "link", "battery", "malicious")),
    },
    needs_linux_to="reads CPU times from /proc",
)
