"""Policies replayed over the log: row by row, and with rows and decisions as Arrow."""

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from rove.pipeline.policies import decisions
from rove.pipeline.policies.decisions import (
    DECISIONS,
    ENDED_MAX,
    ROW,
    Decided,
    DecideTask,
    DecidingError,
    HypotheticalPolicy,
    PolicyRow,
    RecordedPolicies,
    decide,
)
from rove.policy.agents import StoredAgent
from rove.policy.errors import PolicyError
from rove.policy.limits import PolicyLimits

COUNTS = """
def arrived(m, me):
    me.seen = get("seen", 0) + 1
    return message(x=m.x, seen=me.seen, mode=me.mode)
"""
HALF = 'def arrived(m, me):\n    if changed("x", by=2):\n        return m\n'
LOOPS = "def arrived(m, me):\n    while True:\n        pass\n"
PASSES = "def arrived(m, me):\n    return m\n"


class Log:
    """Rows as a broker would have written them, one second after the other."""

    def __init__(self) -> None:
        self.rows: list[PolicyRow] = []

    def _place(self) -> tuple[int, int]:
        position = len(self.rows) + 1
        return position, position * 1_000_000

    def event(self, client_id: str, event: str, **facts: Any) -> None:
        told = json.dumps({"event": event, **facts}).encode()
        self.rows.append(PolicyRow(*self._place(), client_id, told, True))

    def policy(self, client_id: str, text: str, number: int = 0, **facts: Any) -> None:
        given = {"me": {}, "automatic": ["network"], "durable": True, **facts}
        self.event(client_id, "policy", number=number, policy=text, **given)

    def notified(
        self,
        client_id: str,
        attributes: Mapping[str, Any],
        logged: str = "sent",
        number: int = 0,
        met: tuple[int, ...] = (),
        **facts: Any,
    ) -> None:
        told = json.dumps({"policy": logged, "subscription": number, **facts}).encode()
        payload = json.dumps(attributes).encode()
        place = self._place()
        row = PolicyRow(*place, client_id, told, False, "t", "p", (), met, place[0], payload)
        self.rows.append(row)

    def by_policy(self, client_id: str) -> None:
        """The log only says when."""
        self.event(client_id, "state", changes={"seen": -1}, by="policy")


def recorded(log: Log, limits: PolicyLimits | None = None) -> list[Decided]:
    return list(RecordedPolicies(limits).take(log.rows))


def sent(decided: list[Decided]) -> list[Any]:
    """What was sent, decision by decision: nothing, a payload, or several."""
    return [[json.loads(one.payload) for one in each.outputs] for each in decided]


def test_variables_are_those_of_then_and_those_that_policies_set_are_computed() -> None:
    log = Log()
    log.event("ann", "state", changes={"mode": "unheard"})
    log.policy("ann", COUNTS, me={"mode": "day", "seen": 10})
    log.notified("ann", {"x": 1})
    log.by_policy("ann")
    log.event("ann", "state", changes={"mode": "night"})
    log.notified("ann", {"x": 2})
    log.by_policy("ann")
    log.event("ann", "state", changes={"mode": None})
    log.notified("ann", {"x": 3})
    assert sent(recorded(log)) == [
        [{"x": 1, "seen": 11, "mode": "day"}],
        [{"x": 2, "seen": 12, "mode": "night"}],
        [{"x": 3, "seen": 13, "mode": None}],
    ]


def test_what_is_decided_before_variables_are_set_does_not_see_them() -> None:
    log = Log()
    log.policy("ann", COUNTS, me={"seen": 0})
    log.notified("ann", {"x": 1})
    log.notified("ann", {"x": 2})
    log.by_policy("ann")
    log.by_policy("ann")
    assert [one[0]["seen"] for one in sent(recorded(log))] == [1, 1]


def test_each_subscription_has_its_own_policy_and_one_that_takes_its_place_goes_on() -> None:
    log = Log()
    log.policy("ann", HALF)
    log.policy("ann", HALF, number=7)
    log.policy("ann", PASSES, number=8)
    log.notified("ann", {"x": 1}, "passed", number=7)
    log.notified("ann", {"x": 1}, "passed")
    log.notified("ann", {"x": 1}, "passed", number=8)
    log.policy("ann", HALF, number=9, replaces=7)
    log.event("ann", "ended", number=7)
    log.notified("ann", {"x": 2}, "dropped", number=9)
    log.policy("ann", PASSES, number=10, replaces=9)
    log.notified("ann", {"x": 2}, "passed", number=10)
    log.notified("ann", {"x": 3}, "passed")
    decided = recorded(log)
    assert [one.verdict for one in decided] == [one.logged for one in decided]


def test_the_same_text_again_goes_on_and_another_one_begins_anew() -> None:
    log = Log()
    for text, verdict in ((HALF, "passed"), (HALF, "dropped"), (HALF + "\n", "passed")):
        log.policy("ann", text)
        log.notified("ann", {"x": 1}, verdict)
    assert [one.verdict for one in recorded(log)] == ["passed", "dropped", "passed"]


def test_offences_suspend_and_the_same_text_again_does_not_end_that() -> None:
    limits = PolicyLimits(offences_max=2, suspension_s=4.0)
    log = Log()
    log.policy("ann", LOOPS)
    for _ in range(3):
        log.notified("ann", {})
    log.policy("ann", LOOPS)
    for _ in range(5):
        log.notified("ann", {})
    decided = recorded(log, limits)
    verdicts = [one.verdict for one in decided]
    assert verdicts == ["stopped"] * 2 + ["suspended"] * 2 + ["stopped"] * 2 + ["suspended"] * 2
    assert {one.kind for one in decided if one.verdict == "stopped"} == {"steps"}
    assert all(not one.outputs for one in decided)
    goes_on = msgspec.structs.replace(limits, suspended="deliver")
    assert [len(one.outputs) for one in recorded(log, goes_on)] == [0, 0, 1, 1, 0, 0, 1, 1]


def test_what_a_policy_begins_with_is_in_the_log() -> None:
    log = Log()
    kept = StoredAgent(LOOPS, 0.0, {}, (), 1e12)
    log.event(
        "ann", "policy", policy=LOOPS, kept=base64.b64encode(msgspec.msgpack.encode(kept)).decode()
    )
    log.notified("ann", {})
    assert [one.verdict for one in recorded(log)] == ["suspended"]


def test_limits_are_those_of_the_log() -> None:
    log = Log()
    log.event("", "started", policies={"offences_max": 1})
    log.policy("ann", LOOPS)
    log.notified("ann", {})
    log.notified("ann", {})
    assert [one.verdict for one in recorded(log)] == ["stopped", "suspended"]


def test_limits_that_change_meanwhile_hold_from_then_on() -> None:
    log = Log()
    log.event("", "started", policies={"offences_max": 9})
    log.policy("ann", LOOPS)
    log.notified("ann", {})
    log.event("", "policy", policies={"offences_max": 2})
    log.notified("ann", {})
    log.notified("ann", {})
    assert [one.verdict for one in recorded(log)] == ["stopped", "stopped", "suspended"]


@pytest.mark.parametrize("why", [{"kind": "time"}, {"kind": "share"}, {"kind": "crowded"},
                                 {"kind": "memory", "lost": True}])  # fmt: skip
def test_stops_by_the_machine_are_those_of_the_log(why: dict[str, Any]) -> None:
    log = Log()
    log.policy("ann", HALF)
    log.notified("ann", {"x": 1}, "stopped", **why)
    log.notified("ann", {"x": 1}, "passed")
    stopped, passed = recorded(log, PolicyLimits(offences_max=2))
    assert (stopped.verdict, stopped.kind, stopped.outputs) == ("stopped", why["kind"], ())
    assert passed.verdict == "passed"  # the stopped call left nothing behind


def test_a_stop_in_the_log_that_is_the_policys_own_is_computed() -> None:
    log = Log()
    log.policy("ann", PASSES)
    log.notified("ann", {"x": 1}, "stopped", kind="steps")
    (decided,) = recorded(log)
    assert (decided.verdict, decided.logged) == ("passed", "stopped")


def test_a_start_ends_what_only_memory_held() -> None:
    log = Log()
    log.policy("ann", HALF)
    log.policy("bob", HALF, durable=False)
    log.notified("ann", {"x": 1}, "passed")
    log.notified("bob", {"x": 1}, "passed")
    log.event("", "started")
    log.policy("bob", HALF, durable=False)
    log.notified("ann", {"x": 1}, "dropped")
    log.notified("bob", {"x": 1}, "passed")
    decided = recorded(log)
    assert [one.verdict for one in decided] == [one.logged for one in decided]


def test_a_log_that_begins_later_brings_what_agents_remember() -> None:
    log = Log()
    log.policy("ann", HALF)
    log.notified("ann", {"x": 1}, "passed")
    agents = RecordedPolicies()
    list(agents.take(log.rows))
    memory = agents._subscribers["ann"].agents[0].stored().memory
    kept = msgspec.msgpack.encode(StoredAgent(HALF, 1.0, memory))
    later = Log()
    later.policy("ann", HALF, kept=base64.b64encode(kept).decode())
    later.notified("ann", {"x": 1}, "dropped")
    assert [one.verdict for one in recorded(later)] == ["dropped"]


def test_what_reports_name_can_only_be_read() -> None:
    log = Log()
    log.policy("ann", COUNTS)
    log.notified("ann", {"x": 1})
    log.event("ann", "state", changes={"seen": 5}, by="report")
    log.notified("ann", {"x": 1}, "stopped", kind="error")
    log.event("ann", "state", changes={"seen": None}, by="report")
    log.notified("ann", {"x": 1})
    assert [one.verdict for one in recorded(log)] == ["sent", "stopped", "sent"]


def test_policies_see_what_their_subscriptions_select() -> None:
    log = Log()
    log.event("ann", "made", number=1, text="SELECT x WHERE x > 0")
    log.event("ann", "made", number=2, text="SELECT y WHERE y > 0")
    log.event("ann", "made", number=3, text="x > 0")
    log.policy("ann", PASSES)
    said = {"x": 1, "y": 2, "z": 3}
    for met in ((1,), (2,), (2, 1), (1, 3), (4,)):
        log.notified("ann", said, "passed", met=met)
    found = [one[0] for one in sent(recorded(log))]
    assert found == [{"x": 1}, {"y": 2}, {"y": 2, "x": 1}, said, said]


def test_what_waited_for_a_worker_is_what_a_subscription_selected_that_is_no_more() -> None:
    log = Log()
    log.policy("ann", PASSES)
    for number in range(1, ENDED_MAX + 2):
        log.event("ann", "made", number=number, text="SELECT x WHERE x > 0")
        log.event("ann", "ended", number=number)
    log.notified("ann", {"x": 1, "y": 2}, "passed", met=(2,))
    log.notified("ann", {"x": 1, "y": 2}, "passed", met=(1,))  # too long ago
    assert sent(recorded(log)) == [[{"x": 1}], [{"x": 1, "y": 2}]]


def test_a_payload_is_held_while_somebody_else_is_about_to_see_it() -> None:
    log = Log()
    for name in ("ann", "bob", "cid"):
        log.policy(name, PASSES)
        log.notified(name, {"x": 1}, "passed")
    rows = log.rows
    first = rows[1].position
    rows[1] = rows[1]._replace(is_last=False)
    rows[3] = rows[3]._replace(payload=None, published=first, is_last=False)
    rows[5] = rows[5]._replace(payload=None, published=first)
    agents = RecordedPolicies()
    decided = list(agents.take(rows))
    assert sent(decided) == [[{"x": 1}]] * 3
    assert not agents._shown._payloads
    assert not agents._shown._messages


def test_what_cannot_be_repeated_is_said() -> None:
    log = Log()
    log.notified("ann", {"x": 1})
    with pytest.raises(DecidingError, match="does not say which policy 'ann' had at position 1"):
        recorded(log)
    log = Log()
    log.policy("ann", PASSES)
    log.notified("ann", {"x": 1})
    log.rows[1] = log.rows[1]._replace(payload=None)
    with pytest.raises(DecidingError, match="does not have the publication 'p' on 't'"):
        recorded(log)
    log = Log()
    log.policy("ann", "import os")
    with pytest.raises(DecidingError, match="no longer valid: line 1"):
        recorded(log)


def test_one_policy_for_everybody_whatever_there_was() -> None:
    log = Log()
    log.policy("ann", PASSES, me={"mode": "day"})
    log.notified("ann", {"x": 1}, "dropped", number=3)
    log.by_policy("ann")
    log.event("bob", "state", changes={"mode": "night"})
    log.notified("bob", {"x": 2})
    log.notified("ann", {"x": 3})
    decided = list(HypotheticalPolicy(COUNTS).take(log.rows))
    assert sent(decided) == [
        [{"x": 1, "seen": 1, "mode": "day"}],
        [{"x": 2, "seen": 1, "mode": "night"}],
        [{"x": 3, "seen": 2, "mode": "day"}],
    ]
    assert {one.logged for one in decided} == {""}
    with pytest.raises(PolicyError, match="line 1"):
        HypotheticalPolicy("no policy")


def test_a_policy_that_was_not_there_knows_nothing_of_sessions_that_were_not_kept() -> None:
    log = Log()
    log.event("", "started", policies={"offences_max": 1})
    log.event("ann", "made", number=1, text="x > 0", durable=False)
    log.event("ann", "state", changes={"mode": "day"})
    log.notified("ann", {"x": 1})
    log.event("", "started")
    log.notified("ann", {"x": 2})
    found = [one[0] for one in sent(list(HypotheticalPolicy(COUNTS).take(log.rows)))]
    assert [(one["seen"], one["mode"]) for one in found] == [(1, "day"), (1, None)]


# -- as Arrow -------------------------------------------------------------------------------------

TWICE = "def arrived(m, me):\n    if m.x:\n        return [m, message(half=m.x / 2)]\n"
AT_US = 1_700_000_000_000_001
ROWS = 700


def batches(rows_each: int) -> Iterator[pa.RecordBatch]:
    """A policy, and then what it is shown."""
    told = {"event": "policy", "policy": TWICE, "me": {}}
    rows: list[dict[str, Any]] = [{"entry": json.dumps(told), "is_event": True}]
    for x in range(ROWS):
        said = {"entry": '{"policy":"sent"}', "is_event": False, "payload": b'{"x":%d}' % x}
        rows.append({**said, "is_last": True, "user": [{"name": "n", "value": str(x)}]})
    for number, row in enumerate(rows):
        row |= {"bucket": 0, "position": number, "at": AT_US + number, "client_id": "ann"}
        row |= {"topic": "t", "id": f"p{number}", "numbers": [1], "published": number}
    named = {name: [row.get(name) for row in rows] for name in ROW}
    types = {"at": pa.timestamp("us", tz="Europe/Zagreb"), "payload": pa.binary()}
    arrays = [pa.array(values, types.get(name)) for name, values in named.items()]
    table = pa.table(arrays, list(ROW))
    yield from table.to_batches(max_chunksize=rows_each)


def decided(work: DecideTask, rows_each: int) -> list[dict[str, Any]]:
    found = list(decide(work, batches(rows_each)))
    assert {batch.schema for batch in found} == {DECISIONS}
    rows: list[dict[str, Any]] = pa.Table.from_batches(found).to_pylist()
    return rows


@pytest.mark.parametrize("text", [None, TWICE])
@pytest.mark.parametrize("rows_each", [37, 10_000])
def test_a_row_for_each_message_and_one_for_each_silence(text: str | None, rows_each: int) -> None:
    rows = decided(DecideTask(text, None, True), rows_each)
    assert len(rows) == 1 + 2 * (ROWS - 1)
    silent, first, second = rows[:3]
    assert (silent["verdict"], silent["number"], silent["payload"]) == ("dropped", None, None)
    assert (first["number"], first["payload"], first["bytes_in"]) == (0, b'{"x":1}', 7)
    assert (second["number"], second["payload"]) == (1, b'{"half":0.5}')
    assert (first["user"], second["user"]) == ([{"name": "n", "value": "1"}], [])
    assert [row["position"] for row in rows[1:]] == [n for n in range(2, ROWS + 1) for _ in "ab"]
    last = rows[-1]
    assert (last["id"], last["topic"], last["client_id"]) == (f"p{ROWS}", "t", "ann")
    assert round(last["at"].timestamp() * 1e6) == AT_US + ROWS
    assert last["logged"] == ("sent" if text is None else "")


def test_results_go_back_before_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = decided(DecideTask(None, None, True), 10_000)
    monkeypatch.setattr(decisions, "_BYTES_MAX", 100)
    assert len(list(decide(DecideTask(None, None, True), batches(10_000)))) > 50
    assert decided(DecideTask(None, None, True), 10_000) == whole


def test_without_payloads_their_sizes_are_there() -> None:
    rows = decided(DecideTask(None, None, False), 10_000)
    assert {row["payload"] for row in rows} == {None}
    assert rows[1]["bytes_out"] == 7
