"""Rows of tables and of the lake are judged as the oracle judges them, and counted where found."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from rove.lang import LimitError, TextError, matches, normalise, parse, to_text
from rove.pipeline.lake.log import Lake
from rove.pipeline.lake.version_index import AT_TYPE
from rove.pipeline.tables import column_builder as columns_module
from rove.pipeline.tables import table as table_module
from rove.pipeline.tables.backtest_tasks import (
    BOTH,
    FIRST,
    HITS,
    HOUR_US,
    BacktestExpression,
    CountTask,
    HitCounter,
    candidates,
    count_hits,
    count_matches,
    hits_of,
    match_bits,
    merge_counts,
    rank_candidates,
)
from rove.pipeline.tables.table import Table, TableSchema
from rove.testing import strategies
from tests.pipeline.matching.test_pruning import admitted, tables, written
from tests.pipeline.tables.test_backtest_sources import BEGIN, DAY, ME, RANKED, TEXTS, Past

UNTIL = BEGIN + 3 * DAY


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Past:
    return Past(tmp_path_factory.mktemp("past"))


def lake_batches(past: Past) -> Iterator[pa.RecordBatch]:
    lake = Lake(past.lake)
    for file in lake.files("publications"):
        yield from lake.read(file).to_batches()


def table_batches(past: Past, channel: str) -> tuple[TableSchema, pa.Table]:
    """All rows of a table, with the columns of attributes by other names."""
    table = Table(past.tables, channel)
    return table.schema(), table.read()


def work_for(
    schema: TableSchema, rows: pa.Table, asked: tuple[BacktestExpression, ...]
) -> CountTask:
    own = [name for name in rows.column_names if name in schema.arrow().names]
    return CountTask(asked, schema, {name: name for name in own if name not in _BASE})


_BASE = ("position", "at", "topic", "id", "client_id", "qos")


def judged_ids(work: CountTask, batches: Iterator[pa.RecordBatch], bit: int = FIRST) -> list[str]:
    found: list[str] = []
    for batch in batches:
        bits = match_bits(work, batch)
        found += batch.column("id").take(pa.array(np.flatnonzero(bits & bit))).to_pylist()
    return sorted(found)


@pytest.mark.parametrize("text", TEXTS)
def test_tables_and_the_lake_are_judged_as_the_oracle_does(past: Past, text: str) -> None:
    asked = (BacktestExpression(text, BEGIN, ME),)
    expected = sorted(one.publication for one in past.notified(text, BEGIN, UNTIL))
    assert judged_ids(CountTask(asked), lake_batches(past)) == expected
    found: list[str] = []
    for channel in ("air", "road"):
        schema, rows = table_batches(past, channel)
        work = work_for(schema, rows, asked)
        found += judged_ids(work, iter(rows.combine_chunks().to_batches()))
    assert sorted(found) == expected
    assert expected or text == "missing > 3"


def check(case: Any) -> None:
    """One drawn text over one drawn table, by the matcher and by the oracle."""
    subscription, me, drawn = case
    try:
        text = to_text(subscription)
        normalise(parse(text))
    except (LimitError, TextError):
        return
    publications = [{**admitted(one), "topic": "air/a"} for one, _ in drawn]
    table, schema = written(publications, TableSchema("air"))
    times = [t for _, t in drawn]
    at = pa.array([round(t * 1e6) for t in times], pa.int64()).cast(AT_TYPE)
    table = table.set_column(table.column_names.index("at"), "at", at)
    (batch,) = table.combine_chunks().to_batches()
    work = work_for(schema, table, (BacktestExpression(text, 0.0, admitted(me)),))
    expected = [
        matches(parse(text), one, t, admitted(me))
        for one, t in zip(publications, times, strict=True)
    ]
    assert match_bits(work, batch).astype(bool).tolist() == expected


@given(tables(strategies.subscriptions))
def test_odd_tables_are_judged_as_the_oracle_does(case: Any) -> None:
    check(case)


@given(tables(strategies.subscriptions))
def test_so_are_tables_without_room_for_columns(case: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module in (table_module, columns_module):
            patch.setattr(module, "ATTRIBUTES_MAX", 2)
        check(case)


@pytest.mark.parametrize("attributes_max", [2, 1_000])
@pytest.mark.parametrize(
    ("said", "text", "matched"),
    [
        ({"a": {"m": None}}, "a IS NULL", False),
        ({"a": {"m": None, "n": {"o": None}}}, "a IS NOT NULL AND a.n IS NOT NULL", True),
        ({"a": {"m": None, "n": 3}}, "a.n + 1 > 3 AND a.m IS NULL AND a IS NOT NULL", True),
        ({"a": None}, "a IS NULL", True),
        ({"a": [None]}, "a IS NULL", False),
        ({"a": {}}, "a IS NULL", False),
    ],
)
def test_an_object_is_there_even_if_its_members_are_null(
    monkeypatch: pytest.MonkeyPatch, attributes_max: int, said: Any, text: str, matched: bool
) -> None:
    for module in (table_module, columns_module):
        monkeypatch.setattr(module, "ATTRIBUTES_MAX", attributes_max)
    full = {"y": 1.5, "z": 1.5, "topic": "air/a"}
    check((parse(text), {}, [(full, 0.0), ({**full, **said}, 0.0)]))
    assert matches(parse(text), said) is matched


def test_two_texts_a_topic_filter_and_a_later_acceptance(past: Past) -> None:
    asked = (
        BacktestExpression("NO2 > 40", BEGIN),
        BacktestExpression("NO2 > 20 AND kind = 'car'", BEGIN + DAY),
    )
    work = CountTask(asked, topic_filter="air/+")
    rows = [row for row in past.rows if row.channel == "air"]
    assert {row.topic for row in rows} == {"air/a", "air/b", "air/c"}
    first = past.notified(asked[0].text, BEGIN, UNTIL, channel="air")
    second = past.notified(
        asked[1].text, BEGIN, UNTIL, channel="air", accepted_at=asked[1].accepted_at
    )
    assert judged_ids(work, lake_batches(past), 1) == sorted(one.publication for one in first)
    assert judged_ids(work, lake_batches(past), 2) == sorted(one.publication for one in second)
    assert judged_ids(CountTask(asked, topic_filter="sea/#"), lake_batches(past)) == []


@pytest.mark.parametrize("text", RANKED)
def test_ranked_texts_go_through_their_windows(past: Past, text: str) -> None:
    asked = BacktestExpression(text, BEGIN, ME)
    found = candidates(CountTask((asked,)), lake_batches(past))
    together = pa.Table.from_batches(found).sort_by([("at", "ascending")])
    pieces = together.combine_chunks().to_batches(max_chunksize=37)
    told = pa.Table.from_batches(rank_candidates(asked, 0, UNTIL, iter(pieces)))
    expected = past.notified(text, BEGIN, UNTIL)
    assert any(one.promoted for one in expected) or "PUBLICATIONS" in text
    due = told["due"].cast(pa.int64()).to_pylist()
    assert Counter(zip(told["id"].to_pylist(), due, strict=True)) == Counter(
        (one.publication, round(one.at * 1e6)) for one in expected
    )
    row = told.slice(0, 1).to_pylist()[0]
    published = next(one for one in past.rows if one.id == row["id"])
    assert (row["client_id"], row["topic"]) == (published.client_id, published.topic)


def test_a_table_ranks_what_the_lake_ranks(past: Past) -> None:
    asked = BacktestExpression(RANKED[0], BEGIN, ME)
    from_tables: list[pa.RecordBatch] = []
    for channel in ("air", "road"):
        schema, rows = table_batches(past, channel)
        batches = iter(rows.combine_chunks().to_batches())
        from_tables += list(candidates(work_for(schema, rows, (asked,)), batches))
    assert scored(from_tables) == scored(candidates(CountTask((asked,)), lake_batches(past)))


def scored(found: Iterable[pa.RecordBatch]) -> dict[str, object]:
    """By id, what a score is computed from; null is as good as missing."""
    table = pa.Table.from_batches(found)
    decoded = [json.loads(payload) for payload in table["payload"].to_pylist()]
    known = [{name: value for name, value in one.items() if value is not None} for one in decoded]
    return dict(zip(table["id"].to_pylist(), known, strict=True))


# -- counting --------------------------------------------------------------------------------


def hits(rows: list[tuple[int, int, str, str]]) -> pa.RecordBatch:
    """Of bits, hour, publisher and topic."""
    at = pa.array([hour * HOUR_US + 5 for _, hour, _, _ in rows], pa.int64()).cast(AT_TYPE)
    count = len(rows)
    columns = {
        "bits": pa.array([bits for bits, _, _, _ in rows], pa.int32()),
        "position": pa.array(range(count), pa.int64()),
        "at": at,
        "due": at,
        "id": pa.array([f"p{row}" for row in range(count)]),
        "client_id": pa.array([publisher for _, _, publisher, _ in rows], pa.string()),
        "topic": pa.array([topic for _, _, _, topic in rows], pa.string()),
        "cell": pa.array(["none"] * count),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in HITS.names], schema=HITS)


def test_hits_are_counted_by_hour_publisher_and_topic() -> None:
    one = hits([(1, 7, "ann", "a"), (1, 7, "bob", "a"), (3, 7, "ann", "b")])
    other = hits([(2, 7, "ann", "a"), (1, 9, "ann", "a")])
    parts = [*count_hits(5, iter([one])), *count_hits(5, iter([other, hits([])]))]
    found = merge_counts(pa.Table.from_batches(parts), 5)
    assert found.of("hour") == {"7": [2, 1, 1], "9": [1, 0, 0]}
    assert found.of("publisher") == {"ann": [2, 1, 1], "bob": [1, 0, 0]}
    assert found.of("topic") == {"a": [3, 1, 0], "b": [0, 0, 1]}
    assert found.total("judged") == 5
    assert found.total("cpu_ns") > 0
    assert [one.position for one in found.examples[BOTH]] == [2]


def test_examples_are_the_same_however_rows_are_cut() -> None:
    rows = [(1 + row % 3, row, f"c{row}", "a") for row in range(100)]
    every = hits(rows)

    def examples(pieces: list[pa.RecordBatch]) -> Any:
        partials = [batch for piece in pieces for batch in count_hits(4, iter([piece]))]
        return merge_counts(pa.Table.from_batches(partials), 4).examples

    whole = examples([every])
    assert [len(chosen) for chosen in whole.values()] == [4, 4, 4]
    assert examples([every.slice(first, 7) for first in range(0, 100, 7)]) == whole
    assert len({one.at_us // HOUR_US for one in whole[FIRST]}) == 4


def test_publishers_without_a_name_are_counted_too() -> None:
    tally = HitCounter(1)
    batch = hits([(1, 1, "ann", "a")])
    nameless = batch.set_column(
        batch.schema.names.index("client_id"), "client_id", pa.nulls(1, pa.string())
    )
    tally.take(nameless)
    found = merge_counts(pa.Table.from_batches([tally.partials()]), 1)
    assert found.of("publisher") == {"": [1, 0, 0]}


def test_a_worker_tells_counts_only(past: Past) -> None:
    text = "NO2 > 60"
    parts = list(count_matches(CountTask((BacktestExpression(text, BEGIN),)), lake_batches(past)))
    found = merge_counts(pa.Table.from_batches(parts), 5)
    expected = past.notified(text, BEGIN, UNTIL)
    assert sum(first for first, _, _ in found.of("hour").values()) == len(expected)
    assert found.total("judged") == len(past.rows)
    assert sum(batch.num_rows for batch in parts) < 120


def test_rows_that_meet_nothing_are_no_hits(past: Past) -> None:
    batch = next(lake_batches(past))
    assert hits_of(batch, np.zeros(batch.num_rows, np.int32)).num_rows == 0
    work = msgspec.structs.replace(CountTask((BacktestExpression("missing > 3"),)), examples=1)
    assert next(count_matches(work, iter([batch])))["what"].to_pylist() == ["judged", "cpu_ns"]
