"""A recorded day with policies: what clients received against what Spark computes, in order.

The broker ran the policies message by message as they came, with time, crashes and workers between
them. Spark has nothing but the lake, and comes to the same messages, byte for byte.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rove.pipeline.policies.replay import replay_policies
from rove.testing.policies import SimulatedWorkers
from tests.effort import is_soak
from tests.interop.recorded_day import DAY_S, LIMITS, Received, RecordedDay


class Logged(NamedTuple):
    """What the log says of a notification."""

    position: int
    client_id: str
    id: str
    facts: dict[str, Any]


def logged(day: RecordedDay) -> list[Logged]:
    found = []
    for file in day.read.files("notifications"):
        columns = ["position", "client_id", "id", "payload", "earlier"]
        for row in day.read.read(file, columns).to_pylist():
            if not row["earlier"]:
                facts = json.loads(row["payload"] or b"{}")
                found.append(Logged(row["position"], row["client_id"], row["id"], facts))
    return sorted(found, key=lambda one: one.position)


def sent_by_spark(decisions: pa.Table) -> dict[int, list[Received]]:
    """By the position of the decision, what was sent; in order."""
    sent: dict[int, list[Received]] = defaultdict(list)
    for row in decisions.sort_by([("position", "ascending"), ("number", "ascending")]).to_pylist():
        if row["number"] is not None:
            user = tuple((one["name"], one["value"]) for one in row["user"])
            sent[row["position"]].append(Received(row["topic"], row["payload"], user))
    return sent


def equal_to_what_came(day: RecordedDay, spark: Any, buckets: int) -> Counter[tuple[str, str]]:
    """Compare client by client and message by message; how often there was which verdict."""
    decisions = replay_policies(spark, day.read, buckets=buckets).toArrow()
    sent = sent_by_spark(decisions)
    expected: dict[str, list[Received]] = defaultdict(list)
    for one in logged(day):
        if "policy" in one.facts:
            expected[one.client_id] += sent[one.position]
        else:
            # It met no policy; whether it met a SELECT is not the question here.
            expected[one.client_id].append(day.published[one.id]._replace(payload=None))
    for device in day.devices:
        wanted = expected[device.client_id]
        assert len(device.received) == len(wanted)
        for came, computed in zip(device.received, wanted, strict=True):
            assert computed in (came, came._replace(payload=None))
    return verdicts(decisions)


def verdicts(decisions: pa.Table) -> Counter[tuple[str, str]]:
    """How often there was which, and by what; those that Spark computes are those of the log."""
    first = decisions.filter(pc.equal(pc.fill_null(decisions["number"], 0), 0))
    assert first["verdict"].equals(first["logged"])
    moments = pc.min_max(first["at"].cast(pa.int64())).as_py()
    assert moments["max"] - moments["min"] > 0.95 * DAY_S * 1e6
    return Counter(zip(first["verdict"].to_pylist(), first["kind"].to_pylist(), strict=True))


def restless(seed: int) -> SimulatedWorkers:
    """Workers that take their time, and die of some jobs."""
    workers = SimulatedWorkers(seed)
    workers.holds_jobs = True
    workers.kill_share = workers.late_share = 0.02
    return workers


def test_a_day_of_policies(tmp_path: Path, spark: Any) -> None:
    day = RecordedDay(tmp_path / "lake", 3, steps=500 if is_soak() else 160)
    assert day.crashes
    found = equal_to_what_came(day, spark, buckets=3)
    assert sum(len(device.received) for device in day.devices) > 1_000
    own = {("stopped", kind) for kind in ("steps", "error", "output")}
    rest = {(verdict, "") for verdict in ("passed", "sent", "dropped", "suspended")}
    assert found.keys() == own | rest


@pytest.mark.soak
def test_a_day_of_policies_with_workers_that_are_slow_and_die(tmp_path: Path, spark: Any) -> None:
    """Heavy calls are decided later, and who is suspended gets everything as it came."""
    limits = msgspec.structs.replace(LIMITS, suspended="deliver")
    workers = restless(4)
    day = RecordedDay(tmp_path / "lake", 4, steps=400, workers=workers, limits=limits)
    found = equal_to_what_came(day, spark, buckets=2)
    assert workers.done > 100
    assert workers.kills
    assert {("stopped", "crowded"), ("stopped", "time"), ("suspended", "")} < found.keys()
    assert any("lost" in one.facts for one in logged(day))


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["none", "workers", "process"])
@pytest.mark.parametrize("seed", range(5, 8))
def test_long_days_of_policies(tmp_path: Path, spark: Any, mode: str, seed: int) -> None:
    day = RecordedDay(
        tmp_path / "lake",
        seed,
        steps=6_000,
        subscribers=60,
        workers=None if mode == "none" else restless(seed),
        isolated=mode == "process",
    )
    found = equal_to_what_came(day, spark, buckets=4)
    received = sum(len(device.received) for device in day.devices)
    print(f"{mode}, {seed}: {received:,} messages received, {sum(found.values()):,} decisions")
    assert received > 10_000
