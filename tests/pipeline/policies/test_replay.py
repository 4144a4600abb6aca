"""Policies over a lake, by Spark: the same as row by row, however the lake lies and is cut.

What the broker did is compared in `tests/interop/test_policy_equality.py`.
"""

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rove.broker.storage.records import LogRow
from rove.lake.log import open_for_writing
from rove.pipeline.lake.log import Lake, LakeError
from rove.pipeline.policies import replay as policies
from rove.pipeline.policies.decisions import (
    Decided,
    HypotheticalPolicy,
    PolicyRow,
    RecordedPolicies,
)
from rove.pipeline.policies.replay import counts, replay_policies, replay_policy
from rove.policy.errors import PolicyError
from rove.serve.disk.lake import LakeAppender as WrittenLake

NOON_S = 1_700_000_000.0
CLIENTS = tuple(f"c{number}" for number in range(7))
POLICIES = (
    'def arrived(m, me):\n    if changed("x", by=2):\n        return m\n',
    "def arrived(m, me):\n    me.seen = get('seen', 0) + 1\n    return [m, message(n=me.seen)]\n",
    "def arrived(m, me):\n    return message(x=m.x / m.y)\n",
    "def arrived(m, me):\n    while m.x > 3:\n        pass\n    return m\n",
)
TRIED = """
def arrived(m, me):
    me.seen = me.get("seen", 0) + 1
    if m.x > me.get("least", 2):
        return message(x=m.x, seen=me.seen)
"""


class Written:
    """A lake made by hand, and the same rows for whoever takes them without Spark."""

    def __init__(self, folder: Path, seed: int, notifications: bool = True) -> None:
        self.folder = folder
        self._chance = random.Random(seed)
        self._lines: list[tuple[int, LogRow]] = []
        self._payloads: dict[int, bytes] = {}
        self.rows: list[PolicyRow] = []
        self._agents = RecordedPolicies()
        self._keeps = notifications
        self._logged: Counter[str] = Counter()
        for client_id in CLIENTS:
            self.event(client_id, "made", number=int(client_id[1:]), filter="#", accepted_at=0.0)

    def _log(self, kind: str, channel: str, **facts: Any) -> int:
        position = 3 * len(self._lines) + 1
        at = NOON_S + 2 * len(self._lines)
        self._lines.append((position, LogRow(kind, channel, at, **facts)))
        return position

    def event(self, client_id: str, event: str, **facts: Any) -> None:
        told = json.dumps({"event": event, **facts}, separators=(",", ":")).encode()
        position = self._log("subscriptions", "", client_id=client_id, payload=told)
        row = PolicyRow(position, self._at_us(), client_id, told, True)
        self.rows.append(row)
        list(self._agents.take([row]))

    def _at_us(self) -> int:
        return round(self._lines[-1][1].at * 1e6)

    def policy(self, client_id: str, text: str, **facts: Any) -> None:
        given = {"number": 0, "me": {}, "automatic": [], "durable": True, **facts}
        self.event(client_id, "policy", policy=text, **given)

    def publish(self, clients: Sequence[str], earlier: int | None = None) -> int:
        """Publish something, or show what was published earlier to some more."""
        position = earlier
        if position is None:
            said = {"x": self._chance.randrange(6), "y": self._chance.randrange(4)}
            payload = json.dumps(said).encode()
            # Ids come again, topics too.
            facts: dict[str, Any] = {"topic": f"t/{said['x'] % 2}", "id": f"p{said['y']}"}
            facts["user"] = (("from", "me"),) if said["y"] else ()
            position = self._log("publications", "air", client_id="pub", payload=payload, **facts)
            self._payloads[position] = payload
        for client_id in clients:
            self._notify(client_id, position)
        return position

    def _notify(self, client_id: str, published: int) -> None:
        source = next(line for line in self._lines if line[0] == published)[1]
        shown = {"topic": source.topic, "id": source.id, "user": source.user}
        numbers = (int(client_id[1:]),)
        probe = PolicyRow(
            0, round((NOON_S + 2 * len(self._lines)) * 1e6), client_id, b'{"policy":"?"}', False,
            source.topic, source.id, source.user, numbers, published, source.payload,
        )  # fmt: skip
        (decided,) = self._agents.take([probe])
        facts = {"policy": decided.verdict, "position": published, "kind": decided.kind}
        told = json.dumps(facts, separators=(",", ":")).encode()
        self._logged[decided.verdict] += 1
        if self._keeps:
            position = self._log(
                "notifications", "air", client_id=client_id, payload=told, subscriptions=numbers,
                **shown,
            )  # fmt: skip
            self.rows.append(probe._replace(position=position, entry=told))
        if decided.verdict != "stopped" and "me.seen" in POLICIES[int(client_id[1:]) % 4]:
            self.event(client_id, "state", changes={"seen": 0}, by="policy")

    def live(self, steps: int) -> Lake:
        """A life of many small things."""
        chance = self._chance
        for client_id in CLIENTS:
            self.policy(client_id, POLICIES[int(client_id[1:]) % 4])
        old = [self.publish(CLIENTS)]
        for _ in range(steps):
            some = [one for one in CLIENTS if chance.random() < 0.6]
            act = chance.choices(("publish", "again", "state", "policy", "start"), (10, 3, 2, 1, 1))
            if act == ["publish"]:
                old.append(self.publish(some))
            elif act == ["again"]:
                self.publish(some[:2], chance.choice(old))
            elif act == ["state"]:
                changes = {"least": chance.choice((1, 3, None))}
                self.event(chance.choice(CLIENTS), "state", changes=changes)
            elif act == ["policy"]:
                client_id = chance.choice(CLIENTS)
                self.policy(client_id, POLICIES[int(client_id[1:]) % 4] + "\n" * len(old))
            else:
                self.event("", "started", policies={"offences_max": 3})
        return self.write()

    def write(self) -> Lake:
        lake = WrittenLake(self.folder, rows_per_file=20)
        lake.take(self._lines)
        return Lake(self.folder)


def sent(decided: Decided) -> Iterator[tuple[object, ...]]:
    row = decided.row
    head = (row.position, row.at_us, row.client_id, row.id, row.topic, decided.verdict)
    for number, one in enumerate(decided.outputs):
        yield (*head, number, one.payload, one.user)
    if not decided.outputs:
        yield (*head, None, None, None)


def by_spark(frame: Any) -> list[tuple[object, ...]]:
    found = []
    for one in frame.toArrow().to_pylist():
        user = one["user"]
        pairs = None if user is None else tuple((each["name"], each["value"]) for each in user)
        at_us = round(one["at"].timestamp() * 1e6)
        head = (one["position"], at_us, one["client_id"], one["id"], one["topic"], one["verdict"])
        found.append((*head, one["number"], one["payload"], pairs))
    return sorted(found, key=lambda one: (one[0], one[6] or 0))


@pytest.mark.soak
def test_decisions_of_the_past_by_bucket(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "NEAR", 30)
    written = Written(tmp_path / "lake", seed=3)
    lake = written.live(120)
    expected = [one for each in RecordedPolicies().take(written.rows) for one in sent(each)]
    assert len(expected) > 300
    assert {one[5] for one in expected} == {"passed", "sent", "dropped", "stopped", "suspended"}
    assert by_spark(replay_policies(spark, lake, buckets=3)) == expected


@pytest.mark.soak
def test_a_policy_that_was_not_there_and_what_it_would_have_saved(
    tmp_path: Path, spark: Any
) -> None:
    written = Written(tmp_path / "lake", seed=5)
    lake = written.live(60)
    decided = list(HypotheticalPolicy(TRIED).take(written.rows))
    frame = replay_policy(spark, lake, TRIED, client_ids=["c1", "c2"], buckets=2).cache()
    of_two = [one for one in decided if one.row.client_id in ("c1", "c2")]
    assert by_spark(frame) == [one for each in of_two for one in sent(each)]
    found = {row["client_id"]: row.asDict() for row in counts(frame, "client_id").collect()}
    assert found.keys() == {"c1", "c2"}
    for client_id, row in found.items():
        mine = [one for one in of_two if one.row.client_id == client_id]
        assert row["messages"] == len(mine)
        assert row["bytes_in"] == sum(one.size_bytes for one in mine)
        assert row["bytes_out"] == sum(len(sent.payload) for one in mine for sent in one.outputs)
        assert row["sent"] == row["changed"] == sum(len(one.outputs) for one in mine)
        assert row["dropped"] == row["messages"] - row["sent"]
        assert (row["kinds"], row["different"]) == ({}, 0)
    frame.unpersist()


@pytest.mark.soak
def test_without_notifications_in_the_lake_they_are_found(tmp_path: Path, spark: Any) -> None:
    """Everybody gets everything, once, with the variables of that moment."""
    written = Written(tmp_path / "lake", seed=7, notifications=False)
    publications = []
    for number in range(40):
        if number % 9 == 4:
            written.event(CLIENTS[number % 7], "state", changes={"least": number % 5})
        publications.append(written._log("publications", "air", **_said(number)))
    lake = written.write()
    lines = dict(written._lines)
    rows = list(written.rows)
    for position in publications:
        line = lines[position]
        rows += [
            PolicyRow(
                position, round(line.at * 1e6), client_id, b"{}", False, line.topic, line.id,
                line.user, (int(client_id[1:]),), position, line.payload,
            )
            for client_id in CLIENTS
        ]  # fmt: skip
    rows.sort(key=lambda row: (row.position, row.client_id))
    expected = [one for each in HypotheticalPolicy(TRIED).take(rows) for one in sent(each)]
    found = by_spark(replay_policy(spark, lake, TRIED, buckets=2))
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def _said(number: int) -> Mapping[str, Any]:
    payload = json.dumps({"x": number % 6}).encode()
    return {"topic": "t", "id": f"p{number}", "client_id": "pub", "payload": payload}


@pytest.mark.soak
def test_a_range_of_the_past_begins_without_memory_and_its_stops_are_counted(
    tmp_path: Path, spark: Any
) -> None:
    written = Written(tmp_path / "lake", seed=8)
    lake = written.live(60)
    shown = [row for row in written.rows if not row.is_event]
    after, up_to = shown[50].position, shown[150].position
    within = [row for row in written.rows if row.is_event or after < row.position <= up_to]
    decided = list(RecordedPolicies().take(within))
    frame = replay_policies(spark, lake, after=after, up_to=up_to, buckets=2, payloads=False)
    stops: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one in decided:
        if one.kind:
            stops[one.row.client_id][one.kind] += 1
    rows = counts(frame).collect()
    assert {row["client_id"]: row["kinds"] for row in rows if row["kinds"]} == stops
    for name, expected in {
        "messages": len(decided),
        "steps": sum(one.steps for one in decided),
        "bytes_out": sum(len(sent.payload) for one in decided for sent in one.outputs),
        "suspended": sum(one.verdict == "suspended" for one in decided),
        "different": sum(one.verdict != one.logged for one in decided),
    }.items():
        assert sum(row[name] for row in rows) == expected


def test_what_cannot_be_is_said_before_spark_begins(tmp_path: Path, spark: Any) -> None:
    open_for_writing(tmp_path)
    with pytest.raises(LakeError, match="has no notifications yet; a channel keeps them if"):
        replay_policies(spark, Lake(tmp_path))
    with pytest.raises(PolicyError, match="line 1"):
        replay_policy(spark, Lake(tmp_path), "import os")
