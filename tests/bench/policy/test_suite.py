"""Parts of the benchmark run, in a tiny version, with a real broker. One broker serves them all,
since starting takes most of the time. Figures are not judged here; that everything came once and in
order is judged by the benchmark itself."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rove.bench.measure import Measure
from rove.bench.policy import suite as policy_bench
from rove.bench.policy.load import PolicyOutcome
from rove.bench.policy.suite import FULL, QUICK, SUITE, PolicyOptions
from rove.testing import broker_processes
from rove.testing.broker_processes import Running


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with broker_processes.rove(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def shared(broker: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def same(settings: Mapping[str, str] | None = None) -> Iterator[Running]:
        yield broker

    monkeypatch.setattr(policy_bench, "_running", same)


def measured(part: str, **changes: Any) -> dict[str, Measure]:
    told: list[str] = []
    options = msgspec.structs.replace(QUICK, parts=[part], **changes)
    measures = {one.name: one for one in SUITE.run(options, told.append)}
    assert told[0] == part
    assert all(name.startswith(f"policy.{part}.") for name in measures)
    return measures


@pytest.mark.soak
@pytest.mark.usefixtures("shared")
def test_overhead(tmp_path: Path) -> None:
    measures = measured("overhead", subscribers=(3,), paced_s=0.2, plots=tmp_path)
    group = "policy.overhead.240.3"
    for case in ("passed", "one", "many"):
        duration = measures[f"{group}.{case}.duration"]
        assert duration.against == f"{group}.blind.duration"
        assert duration.note is None, "everything came"
        assert duration.value == pytest.approx(100 * (duration.ratio or 0) - 100)
        ratio = measures[f"policy.overhead.unpaced.3.{case}.cpu"].ratio
        assert ratio is not None
        assert ratio > 0
    kilobytes = {
        case: float((measures[f"{group}.{case}.cpu"].note or "").split()[0])
        for case in ("passed", "one")
    }
    assert kilobytes["one"] < 0.7 * kilobytes["passed"] < 0.7 * 101
    assert (tmp_path / "policy-overhead.png").exists()


@pytest.mark.soak
@pytest.mark.usefixtures("shared")
def test_malicious(tmp_path: Path) -> None:
    measures = measured("malicious", malicious_s=0.6, plots=tmp_path)
    group = "policy.malicious.240.10"
    for share in ("0%", "5%", "10%"):
        assert measures[f"{group}.{share}.p50"].value <= measures[f"{group}.{share}.p99"].value
    assert measures[f"{group}.0%.p99"].goal is None
    worst = measures[f"{group}.10%.p99"]
    assert (worst.against, worst.goal) == (f"{group}.0%.p99", "<= 5 % more")
    assert measures[f"{group}.10%.workers"].value > 0, "a worker did what never ends"
    assert measures["policy.malicious.unsuspended.10%.p99"].goal is None
    assert measures["policy.malicious.endless.10%.p99"].goal is None
    assert (tmp_path / "policy-malicious.png").exists()


@pytest.mark.soak
def test_malicious_policies_that_are_not_suspended() -> None:
    """In brokers with their own limits; the one that tests share has suspended the client."""
    measures = measured("malicious", malicious_s=0.6)
    for case in ("unsuspended", "endless"):
        assert measures[f"policy.malicious.{case}.10%.workers"].value > 0


@pytest.mark.soak
def test_link(tmp_path: Path) -> None:
    measures = measured("link", link_rates=(120,), plots=tmp_path)
    assert list(measures) == [
        f"policy.link.120.{name}" for name in ("stateless", "direct", "stateful")
    ]
    stateful = measures["policy.link.120.stateful"]
    assert stateful.against == "policy.link.120.stateless"
    assert (stateful.ratio or 0) >= 1
    assert (tmp_path / "policy-link.png").exists()


def test_battery(tmp_path: Path) -> None:
    measures = measured("battery", models_uj=(10.0,), plots=tmp_path)
    assert measures["policy.battery.none"].value == QUICK.battery_h
    usual, other = (measures[f"policy.battery.60{which}.stateful"] for which in ("", ".10uJ"))
    assert usual.value > other.value
    assert (other.ratio or 0) > (usual.ratio or 0) > 1
    assert usual.note == "3 µJ a byte"
    assert measures["policy.battery.sublim"].value == 31.0
    assert (tmp_path / "policy-battery.png").exists()


def outcome(seconds: float, received: int = 880, p99_ms: float = 10.0) -> PolicyOutcome:
    return PolicyOutcome(
        sent=4,
        expected=880,
        received=received,
        received_bytes=880,
        seconds=seconds,
        broker_cpu_s=1.0,
        children_cpu_s=0.5,
        p50_ms=1.0,
        p99_ms=p99_ms,
    )


@pytest.mark.parametrize(("seconds", "reached"), [(10.4, True), (10.6, False)])
def test_the_goal_is_judged_where_it_was_set(seconds: float, reached: bool) -> None:
    found = {case: outcome(seconds) for case in ("passed", "one", "many")}
    found["blind"] = outcome(10.0)
    found["many"] = outcome(seconds, received=440)
    judged = {one.name: one for one in policy_bench._overheads(240, 220, found)}
    assert judged["policy.overhead.240.220.passed.duration"].reached is reached
    assert judged["policy.overhead.240.220.one.duration"].goal is None
    many = judged["policy.overhead.240.220.many.duration"]
    assert many.note == "50.0 % came"
    for rate, count in ((120, 220), (240, 200)):
        elsewhere = policy_bench._overheads(rate, count, found)
        assert all(one.goal is None for one in elsewhere)


def test_the_published_figures_stand_beside_ours() -> None:
    calm, harmed = [outcome(10.0)], [outcome(10.0, p99_ms=ms) for ms in (10.4, 99.0, 10.1)]
    found = {"blind": calm, "0": calm, "5": harmed, "10": [outcome(10.0, p99_ms=10.6)]}
    measures = {
        one.name: one for one in policy_bench._harm("some", found, (1.0, 328.0, 3.0), has_goal=True)
    }
    assert measures["some.5%.sublim.duration"].value == 328.0
    assert [measures[f"some.{share}%.p99"].reached for share in (0, 5, 10)] == [
        None,
        True,
        False,
    ]


def test_all_that_was_asked_for_is_there() -> None:
    assert set(SUITE.parts) == {"overhead", "link", "battery", "malicious", "hostile", "speed"}
    assert (min(FULL.subscribers), max(FULL.subscribers)) == (20, 220)
    assert (min(FULL.rates), max(FULL.rates)) == (30, 240)
    assert (FULL.paced_s, FULL.malicious_s, PolicyOptions().link_s) == (300.0, 300.0, 300.0)
    assert 220 in PolicyOptions().subscribers
    assert 240 in PolicyOptions().rates


@pytest.mark.soak
@pytest.mark.usefixtures("shared")
def test_hostile() -> None:
    measures = measured("hostile")
    for isolation in ("none", "process"):
        group = f"policy.hostile.{isolation}"
        assert measures[f"{group}.quiet.plain.worst"].goal is None
        for name in ("plain", "policy"):
            assert measures[f"{group}.reset.{name}.worst"].goal == "<= 50 ms"
            assert " ms late" in (measures[f"{group}.reset.{name}.worst"].note or "")
        p99 = measures[f"{group}.reset.victim.reset.p99"]
        assert p99.against == f"{group}.reset.victim.quiet.p99"
        assert p99.goal == "<= 3 times"
