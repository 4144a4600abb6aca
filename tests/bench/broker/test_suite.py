"""Every part of the benchmark runs, in a tiny version, against real brokers: two of them in
`make test`, all in `make soak`. Figures are not judged here; that nothing was lost is judged by the
benchmark itself."""

from pathlib import Path

import msgspec
import pytest

from rove.bench.broker import suite as broker_bench
from rove.bench.broker.load import BrokerOutcome
from rove.bench.broker.suite import QUICK, SUITE
from rove.bench.measure import Measure
from rove.broker.storage.journal import Changes
from rove.serve.disk.store import Store
from rove.testing.broker_processes import BrokerProcessError, mosquitto_program

HAS_MOSQUITTO = mosquitto_program() is not None


def measured(part: str) -> dict[str, Measure]:
    told: list[str] = []
    options = msgspec.structs.replace(QUICK, parts=[part], seconds=0.2)
    measures = {measure.name: measure for measure in SUITE.run(options, told.append)}
    assert told[0] == part
    assert all(name.startswith(f"broker.{part}") for name in measures)
    return measures


@pytest.mark.parametrize("part", ["fanout", pytest.param("unbatched", marks=pytest.mark.soak)])
def test_one_to_many(part: str) -> None:
    measures = measured(part)
    for qos in (0, 1):
        ours = measures[f"broker.{part}.qos{qos}.rove"]
        assert ours.value > 0
        assert ours.goal is not None
        assert (ours.ratio is not None) == HAS_MOSQUITTO
        if HAS_MOSQUITTO:
            theirs = measures[f"broker.{part}.qos{qos}.mosquitto"]
            assert ours.against == theirs.name
            assert ours.ratio == pytest.approx(ours.value / theirs.value)
        assert measures[f"{ours.name}.rate"].value > 0
    assert 0 < measures[f"broker.{part}.qos0.rove.delivered"].value <= 100


@pytest.mark.soak
def test_durable() -> None:
    measures = measured("durable")
    assert measures.keys() == {
        f"broker.durable.{where}.256{what}"
        for where in ("queue", "lake", "both")
        for what in ("", ".cpu")
    }
    both = measures["broker.durable.both.256.cpu"]
    assert (both.against, both.goal) == ("broker.durable.queue.256.cpu", "<= 1.3×")
    assert both.ratio == pytest.approx(both.value / measures["broker.durable.queue.256.cpu"].value)
    assert all(measure.value > 0 for measure in measures.values())
    assert measures["broker.durable.queue.256"].goal == ">= 15,000/s"


@pytest.mark.soak
def test_sift() -> None:
    measures = measured("sift")
    ours = measures["broker.sift.rove"]
    assert ours.goal == ">= 20×"
    assert measures["broker.sift.rove.with_clients"].value < ours.value
    if HAS_MOSQUITTO:
        assert ours.against == "broker.sift.mosquitto"
        assert ours.ratio is not None
        assert measures["broker.sift.rove.with_clients"].ratio is not None


@pytest.mark.soak
def test_delay() -> None:
    measures = measured("delay")
    for qos in (0, 1):
        half, most, longest = (
            measures[f"broker.delay.qos{qos}.{which}"] for which in ("p50", "p99", "max")
        )
        assert 0 < half.value <= most.value <= longest.value
        assert most.goal == "<= 20 ms"
        assert measures[f"broker.delay.qos{qos}.rate"].value > 0


@pytest.mark.soak
def test_idle() -> None:
    measures = measured("idle")
    assert measures["broker.idle.rove"].unit == "KB/connection"
    assert measures["broker.idle.rove"].goal == "<= 64 KB"
    assert measures["broker.idle.rove.growth"].goal is not None
    assert ("broker.idle.mosquitto" in measures) == HAS_MOSQUITTO


@pytest.mark.soak
def test_slow() -> None:
    measures = measured("slow")
    ours = measures["broker.slow.with.p99"]
    assert ours.against == "broker.slow.without.p99"
    assert ours.ratio == pytest.approx(ours.value / measures["broker.slow.without.p99"].value)
    assert measures["broker.slow.dropped"].value >= 0


@pytest.mark.soak
def test_restart() -> None:
    measures = measured("restart")
    assert measures["broker.restart.with_index"].goal == "<= 5 s"
    assert measures["broker.restart.without_index.cpu"].value > 0


def test_every_part_is_tested_here() -> None:
    assert set(SUITE.parts) == {
        "fanout", "unbatched", "durable", "sift", "delay", "idle", "slow", "restart",
    }  # fmt: skip


@pytest.mark.soak
def test_without_mosquitto_rove_is_measured_alone() -> None:
    options = msgspec.structs.replace(QUICK, parts=["sift"], seconds=0.2, has_mosquitto=False)
    measures = list(SUITE.run(options))
    assert measures
    assert all(".rove" in measure.name and measure.ratio is None for measure in measures)


def test_a_lost_notification_ends_the_run() -> None:
    broker_bench._nothing_lost("here", BrokerOutcome(expected=7, received=7))
    with pytest.raises(BrokerProcessError, match="here: 6 notifications came, 7 were due"):
        broker_bench._nothing_lost("here", BrokerOutcome(expected=7, received=6))


def test_what_was_kept_is_counted_on_disk(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        changes = Changes()
        for number in range(3):
            changes.put("queue", number, b"entry")
            changes.put("publications", number, b"publication")
        changes.put("queue", 3, b"entry without its publication")
        store.commit(changes)
    assert broker_bench._rows_kept(tmp_path, "queue") == 3
