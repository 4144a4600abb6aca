"""Rows of a table in windows: in order, in pieces, late, and against the plain window."""

import json
import math
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import RankedWindow, parse
from rove.match.ranked.inputs import FLOAT, HUGE, MISSING, WHOLE
from rove.pipeline.lake.versions import Version
from rove.pipeline.ranked.ranked_tables import (
    MATCHED,
    RankedStream,
    RankedTextsError,
    as_bytes,
    inputs_of,
    matched_in,
    ranked_texts,
)
from tests.effort import examples

SCHEMA = pa.schema(
    [("at", pa.float64()), ("n", pa.int64()), ("a", pa.float64()), ("b", pa.int64())]
)
TEXTS = [
    "ORDER BY a LIMIT 2 WITHIN 2 SECONDS",
    "a > 1 ORDER BY a + b DESC LIMIT 1 WITHIN 3 SECONDS",
    "b IS NOT NULL ORDER BY abs(a - 2) LIMIT 3 WITHIN 4 PUBLICATIONS",
    "b > t ORDER BY b LIMIT 1 WITHIN 1 SECOND",
    "a < 3 ORDER BY n DESC LIMIT 2 WITHIN 5 SECONDS",
]

Given = tuple[int, int, float, float, bool]


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def given_of(found: pa.Table) -> list[Given]:
    names = ("subscription", "n", "due", "score", "promoted")
    return list(zip(*(found[name].to_pylist() for name in names), strict=True))


def plainly(rows: list[dict[str, Any]], until: float) -> list[Given]:
    """What windows of the language give of rows, in this order."""
    found: list[Given] = []
    for number, text in enumerate(TEXTS):
        window = RankedWindow(parse(text))
        deliveries = []
        for row in rows:
            said = {name: value for name, value in row.items() if value is not None}
            deliveries += window.publish(said, row["at"], key=row["n"])
        deliveries += window.advance(until)
        for one in deliveries:
            assert isinstance(one.key, int)
            found.append((number, one.key, one.at, float(one.score), one.promoted))
    return sorted(found)


values = st.none() | st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
whole = st.none() | st.sampled_from([0, 1, 2, 3, 2**53 + 1, 2**53 + 2])
drawn = st.lists(st.tuples(st.integers(0, 40), values, whole), max_size=40)


def as_rows(drawn_rows: list[tuple[int, Any, Any]]) -> list[dict[str, Any]]:
    rows = [{"at": tick / 4, "a": a, "b": b} for tick, a, b in sorted(drawn_rows, key=str)]
    rows.sort(key=lambda row: row["at"])
    return [row | {"n": number} for number, row in enumerate(rows)]


@examples(100)
@given(drawn, st.floats(0, 3), st.randoms(use_true_random=False))
def test_any_order_within_the_lateness_gives_the_same(
    drawn_rows: list[tuple[int, Any, Any]], lateness_s: float, random: Random
) -> None:
    rows = as_rows(drawn_rows)
    # Nobody comes later than allowed, counted from the newest before.
    order = sorted(rows, key=lambda row: (row["at"] + random.uniform(0, lateness_s), row["n"]))
    stream = RankedStream(TEXTS, SCHEMA, at="at", order="n", lateness_s=lateness_s)
    found: list[Given] = []
    cuts = sorted({0, len(rows), *(random.randrange(len(rows) + 1) for _ in range(4))})
    for first, end in pairwise(cuts):
        taken = stream.take(table(order[first:end]))
        found += given_of(taken.given)
        assert len(taken.late) == 0
        state = stream.save()
        stream = RankedStream(TEXTS, SCHEMA, at="at", order="n", lateness_s=lateness_s)
        stream.restore(state)
    found += given_of(stream.finish(100.0))
    assert stream.late_count == 0
    assert sorted(found) == plainly(rows, 100.0)


def test_what_is_late_enters_no_window_and_is_given_back() -> None:
    stream = RankedStream(["ORDER BY a LIMIT 1 WITHIN 10 SECONDS"], SCHEMA, at="at", lateness_s=1)
    rows = [{"at": at, "n": n, "a": a} for n, (at, a) in enumerate([(5.0, 5.0), (4.5, 4.0)])]
    first = stream.take(table(rows))
    assert given_of(first.given) == []
    late = {"at": 3.0, "n": 2, "a": 0.0}
    in_time = {"at": 4.0, "n": 3, "a": 3.0}
    second = stream.take(table([late, in_time, {"at": 9.0, "n": 4, "a": 9.0}]))
    assert second.late.to_pylist() == [late | {"b": None}]
    assert [one[1] for one in given_of(second.given)] == [3]
    assert stream.late_count == 1
    again = RankedStream(["ORDER BY a LIMIT 1 WITHIN 10 SECONDS"], SCHEMA, at="at", lateness_s=1)
    again.restore(stream.save())
    assert again.late_count == 1
    assert again.take(table([late])).late.num_rows == 1
    assert [one[1:3] for one in given_of(again.finish(15.0))] == [(1, 14.0), (0, 14.5), (4, 15.0)]


def test_rows_may_hold_what_no_score_is_made_of() -> None:
    texts = ["ORDER BY o.x LIMIT 1 WITHIN 5 SECONDS", "ORDER BY o.x LIMIT 1 WITHIN 3 PUBLICATIONS"]
    schema = pa.schema(
        [
            ("at", pa.timestamp("us", tz="UTC")),
            ("o", pa.struct([("x", pa.int64()), ("list", pa.list_(pa.int64()))])),
        ]
    )
    stream, found = RankedStream(texts, schema, at="at"), []
    for second, x in enumerate((1, 3, 2, 9)):
        row = {"at": second * 10**6, "o": {"x": x, "list": [x]}}
        stream = RankedStream(texts, schema, at="at").restore(stream.save())
        found += stream.take(pa.Table.from_pylist([row], schema)).given.to_pylist()
    found += stream.finish(6.0).to_pylist()
    given = sorted((row["subscription"], row["due"], row["o"]["x"]) for row in found)
    assert given == [(0, 0.0, 1), (0, 5.0, 2), (1, 0.0, 1), (1, 3.0, 2)]


def test_without_lateness_what_is_out_of_order_is_late() -> None:
    stream = RankedStream(["ORDER BY a LIMIT 1 WITHIN 9 SECONDS"], SCHEMA, at="at")
    assert len(stream.take(table([{"at": 1.0, "n": 0, "a": 2.0}])).given) == 1
    taken = stream.take(table([{"at": 0.5, "n": 1, "a": 1.0}, {"at": 1.0, "n": 2, "a": 1.5}]))
    assert [one[1] for one in given_of(taken.given)] == [2]
    assert taken.late["n"].to_pylist() == [1]


def test_subscriptions_come_from_anywhere(tmp_path: Path) -> None:
    text = "a > 1 ORDER BY b LIMIT 1 WITHIN 1 SECOND"
    file = tmp_path / "subscriptions.jsonl"
    record = {"filter": text, "id": "one", "at": 2.5, "me": {"x": 1}}
    file.write_text(json.dumps(record) + "\n")
    texts = ranked_texts(file)
    assert (texts.ids, texts.accepted_at, texts.me) == (["one"], [2.5], [{"x": 1}])
    assert texts.has_names
    assert texts.conditional == [0]
    assert (texts.attributes, texts.scored) == ({"a", "b"}, {"b"})
    both = ranked_texts([Version(number=7, text=text), (9, "ORDER BY c LIMIT 1 WITHIN 1 HOUR")])
    assert (both.ids, both.unconditional, both.has_names) == ([7, 9], [1], False)


@pytest.mark.parametrize(
    ("subscriptions", "said"),
    [
        ([], "there are no subscriptions"),
        (["a > 1"], "subscription 0 has no ORDER BY"),
        (["a >"], "subscription 0: "),
        ([("x", TEXTS[0]), ("x", TEXTS[1])], "two subscriptions have the same id"),
        ([Version(number=1, text=TEXTS[0], filter="air/#")], "1 has the topic filter air/#"),
    ],
)
def test_what_cannot_be_ranked_is_refused(subscriptions: list[Any], said: str) -> None:
    with pytest.raises(RankedTextsError, match=said):
        ranked_texts(subscriptions)


def test_columns_of_numbers_are_read_without_a_loop() -> None:
    batch = pa.record_batch(
        {
            "at": [0.0, 1.0, 2.0],
            "f": pa.array([1.5, math.nan, None], pa.float32()),
            "i": pa.array([3, None, 2**53 + 1]),
            "o": pa.array([{"x": 1}, {"x": 2.5}, None], pa.struct([("x", pa.float64())])),
            "o.y": [1, 2, 3],
            "s": ["1", "a", None],
        }
    )
    inputs = inputs_of(batch, "at")
    assert inputs.column(("f",)).kinds.tolist() == [FLOAT, MISSING, MISSING]
    assert inputs.column(("i",)).kinds.tolist() == [WHOLE, MISSING, HUGE]
    assert inputs.column(("o", "x")).values.tolist() == [1.0, 2.5, 0.0]
    assert inputs.column(("o", "y")).values.tolist() == [1.0, 2.0, 3.0]
    assert inputs.column(("s",)).kinds.tolist() == [MISSING] * 3
    assert inputs.column(("f",)).values.tolist() == [1.5, 0.0, 0.0]


def test_what_a_row_met_survives_being_bytes() -> None:
    array = as_bytes(np.array([0, 2, 2, 5]), np.array([7, 1, 2**31 - 1, 0, 3]))
    assert len(array[0].as_py()) == 8
    batch = pa.record_batch({MATCHED: array})
    for first, lists in ((0, [[7, 1], [], [2**31 - 1, 0, 3]]), (1, [[], [2**31 - 1, 0, 3]])):
        starts, numbers = matched_in(batch.slice(first))
        parts = [numbers[begin:end].tolist() for begin, end in pairwise(starts.tolist())]
        assert parts == lists
    nothing = pa.record_batch({MATCHED: as_bytes(np.zeros(2, np.int64), np.empty(0, np.int64))})
    assert matched_in(nothing)[1].size == 0


def test_what_a_row_met_may_come_in_large_types() -> None:
    """A session with spark.sql.execution.arrow.useLargeVarTypes has them."""
    met = as_bytes(np.array([0, 2, 2, 3]), np.array([7, 9, 11]))
    for column in (met, met.cast(pa.large_binary())):
        starts, numbers = matched_in(pa.record_batch({MATCHED: column}))
        assert (starts.tolist(), numbers.tolist()) == ([0, 2, 2, 3], [7, 9, 11])
