"""Rows of the log as Arrow, and decisions as Arrow."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from rove.pipeline.policies import decisions
from rove.pipeline.policies.decisions import DECISIONS, ROW, Work, decide

TWICE = "def arrived(m, me):\n    if m.x:\n        return [m, message(half=m.x / 2)]\n"
AT_US = 1_700_000_000_000_001
ROWS = 700


def batches(rows_each: int) -> Iterator[pa.RecordBatch]:
    """A policy, and then what it is shown."""
    told = {"event": "policy", "policy": TWICE, "me": {}}
    rows: list[dict[str, Any]] = [{"told": json.dumps(told), "is_event": True}]
    for x in range(ROWS):
        said = {"told": '{"policy":"sent"}', "is_event": False, "payload": b'{"x":%d}' % x}
        rows.append({**said, "is_last": True, "user": [{"name": "n", "value": str(x)}]})
    for number, row in enumerate(rows):
        row |= {"bucket": 0, "position": number, "at": AT_US + number, "client_id": "ann"}
        row |= {"topic": "t", "id": f"p{number}", "numbers": [1], "published": number}
    named = {name: [row.get(name) for row in rows] for name in ROW}
    types = {"at": pa.timestamp("us", tz="Europe/Zagreb"), "payload": pa.binary()}
    arrays = [pa.array(values, types.get(name)) for name, values in named.items()]
    table = pa.table(arrays, list(ROW))
    yield from table.to_batches(max_chunksize=rows_each)


def decided(work: Work, rows_each: int) -> list[dict[str, Any]]:
    found = list(decide(work, batches(rows_each)))
    assert {batch.schema for batch in found} == {DECISIONS}
    rows: list[dict[str, Any]] = pa.Table.from_batches(found).to_pylist()
    return rows


@pytest.mark.parametrize("text", [None, TWICE])
@pytest.mark.parametrize("rows_each", [37, 10_000])
def test_a_row_for_each_message_and_one_for_each_silence(text: str | None, rows_each: int) -> None:
    rows = decided(Work(text, None, True), rows_each)
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
    whole = decided(Work(None, None, True), 10_000)
    monkeypatch.setattr(decisions, "_BYTES_MAX", 100)
    assert len(list(decide(Work(None, None, True), batches(10_000)))) > 50
    assert decided(Work(None, None, True), 10_000) == whole


def test_without_payloads_their_sizes_are_there() -> None:
    rows = decided(Work(None, None, False), 10_000)
    assert {row["payload"] for row in rows} == {None}
    assert rows[1]["bytes_out"] == 7
