"""Arrow's types mean in a subscription what the pages say; no Spark is needed to see it."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import matches, parse
from rove.match import Matcher
from rove.match.index.columns import PublicationTable
from rove.pipeline.matching.arrow import TimesError, columns_of, lake_columns, path_of, times_of


def batch_of(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def rows(text: str, table: PublicationTable) -> list[int]:
    """The rows that match, by the index; the oracle must say the same of them as mappings."""
    matcher = Matcher()
    matcher.add(0, parse(text))
    matcher.compact()
    found: list[int] = matcher.match_table(table, np.zeros(len(table))).publications.tolist()
    judged = [matches(parse(text), publication) for publication in table.publications]
    assert found == [row for row, holds in enumerate(judged) if holds]
    return found


INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("kind", INTEGERS)
def test_whole_numbers_of_every_width(kind: str) -> None:
    array = pa.array([1, None, 3], getattr(pa, kind)())
    table = columns_of(batch_of(a=array))
    assert rows("a >= 2", table) == [2]
    assert rows("a IS NULL", table) == [1]
    assert type(table.publications[0]["a"]) is int


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_floats_of_every_width(kind: str) -> None:
    values = np.array([1.5, 0, 3], getattr(np, kind))
    array = pa.array(values, mask=np.array([False, True, False]))
    table = columns_of(batch_of(a=array))
    assert rows("a >= 1.5", table) == [0, 2]
    assert rows("a IS NULL", table) == [1]
    assert type(table.publications[0]["a"]) is float


def test_a_short_float_is_the_number_that_it_holds() -> None:
    table = columns_of(batch_of(a=pa.array([0.1], pa.float32())))
    assert rows("a = 0.1", table) == []
    assert rows("a = 0.10000000149011612", table) == [0]


def test_integers_of_64_bits_are_exact() -> None:
    table = columns_of(batch_of(a=pa.array([2**53, 2**53 + 1, -(2**63), 2**63 - 1])))
    assert rows("a = 9007199254740993", table) == [1]
    assert rows("a < -9223372036854775807", table) == [2]
    assert rows("a > 9223372036854775806", table) == [3]


def test_what_is_beyond_64_bits_is_there_and_cannot_be_compared() -> None:
    table = columns_of(batch_of(a=pa.array([2**64 - 1, 7, None], pa.uint64())))
    assert rows("a > 0", table) == [1]
    assert rows("a IS NOT NULL", table) == [0, 1]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_strings_of_every_form(kind: Any) -> None:
    array = pa.array(["ab", None, "é𝄞", "ab"], kind)
    for column in (array, array.dictionary_encode()):
        table = columns_of(batch_of(a=column))
        assert rows("a = 'ab'", table) == [0, 3]
        assert rows("a LIKE 'é_'", table) == [2]
        assert rows("a IS NULL", table) == [1]
        assert rows("a > 'abc'", table) == [2]


def test_dictionaries_of_anything() -> None:
    numbers = pa.array([5, 6, 5, None]).dictionary_encode()
    holed = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None, 0], pa.int8()), pa.array([None, "x"])
    )
    table = columns_of(batch_of(a=numbers, b=holed))
    assert rows("a = 5", table) == [0, 2]
    assert rows("b IS NULL", table) == [0, 2, 3]
    assert rows("b = 'x'", table) == [1]


def test_a_slice_is_seen_alone() -> None:
    batch = batch_of(
        a=pa.array(["x", "y", None, "y"]),
        b=pa.array([True, None, False, True]),
        c=pa.array([{"d": 1}, None, {"d": 3}, {"d": 4}]),
    ).slice(1)
    table = columns_of(batch)
    assert list(table.publications) == [
        {"a": "y"},
        {"b": False, "c": {"d": 3}},
        {"a": "y", "b": True, "c": {"d": 4}},
    ]
    assert rows("a = 'y' AND b", table) == [2]
    assert rows("c.d >= 3", table) == [1, 2]


def test_strings_that_are_no_unicode_can_be_compared_with_nothing() -> None:
    broken = pa.array([b"ok", b"\xff", None], pa.binary()).view(pa.string())
    table = columns_of(batch_of(a=broken))
    assert rows("a IS NOT NULL", table) == [0, 1]
    assert rows("a LIKE '%'", table) == [0]


def test_truths() -> None:
    table = columns_of(batch_of(a=pa.array([True, False, None])))
    assert rows("a", table) == [0]
    assert rows("a = FALSE", table) == [1]
    assert rows("a = 1", table) == []


@pytest.mark.parametrize("kind", [pa.decimal128(20, 2), pa.decimal256(40, 2)])
def test_decimals_are_what_their_digits_are_in_json(kind: Any) -> None:
    digits = ["12.10", "-0.30", "3.00", "123456789012345678.25"]
    table = columns_of(batch_of(a=pa.array([*map(Decimal, digits), None], kind)))
    for row, written in enumerate(digits):
        value = table.publications[row]["a"]
        assert value == json.loads(written)
        assert type(value) is float
    assert rows("a = 12.1", table) == [0]
    assert rows("a IS NULL", table) == [4]


def test_decimals_without_a_scale_are_integers() -> None:
    array = pa.array([Decimal(2**53 + 1), Decimal(10**30)], pa.decimal128(38, 0))
    table = columns_of(batch_of(a=array))
    assert rows("a = 9007199254740993", table) == [0]
    assert rows("a IS NOT NULL", table) == [0, 1]
    assert rows("a > 0", table) == [0]


OPAQUE = [
    pa.array([[1, 2], [], None]),
    pa.array([b"x", b"", None]),
    pa.array([datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)] * 2 + [None]),
    pa.array([datetime.date(2026, 1, 1)] * 2 + [None]),
    pa.array([datetime.timedelta(1)] * 2 + [None]),
    pa.array([[(1, "x")], [], None], pa.map_(pa.int64(), pa.string())),
]


@pytest.mark.parametrize("array", OPAQUE, ids=lambda array: str(array.type))
def test_the_rest_is_there_and_no_more(array: Any) -> None:
    table = columns_of(batch_of(a=array))
    assert rows("a IS NOT NULL", table) == [0, 1]
    assert rows("a = 1 OR a != 1 OR a = 'x' OR a != 'x'", table) == []


def test_a_column_of_nulls_is_missing() -> None:
    table = columns_of(batch_of(a=pa.nulls(2), b=pa.array([1, 2])))
    assert rows("a IS NULL AND b = 2", table) == [1]


def test_structs_are_objects() -> None:
    array = pa.array([{"m": {"k": 1.5}, "s": "x"}, {"m": None, "s": None}, None])
    table = columns_of(batch_of(n=array))
    assert rows("n.m.k = 1.5 AND n.s = 'x'", table) == [0]
    assert rows("n IS NOT NULL", table) == [0, 1]
    assert rows("n.m IS NOT NULL", table) == [0]
    assert list(table.publications) == [{"n": {"m": {"k": 1.5}, "s": "x"}}, {"n": {}}, {}]


def test_maps_with_string_keys_are_objects() -> None:
    kind = pa.map_(pa.string(), pa.struct([("k", pa.decimal128(5, 1))]))
    array = pa.array([[("m", {"k": Decimal("1.5")})], [], None], kind)
    table = columns_of(batch_of(n=array))
    assert rows("n.m.k = 1.5", table) == [0]
    assert rows("n IS NOT NULL", table) == [0, 1]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a", ("a",)),
        ("n.m", ("n", "m")),
        ("`n.m`", ("n.m",)),
        ("x.`a``b`.c", ("x", "a`b", "c")),
        ("odd name", ("odd name",)),
        ("n..m", ("n..m",)),
        ("`n", ("`n",)),
        ("", ("",)),
    ],
)
def test_a_name_is_read_as_a_text_writes_it(name: str, path: tuple[str, ...]) -> None:
    assert path_of(name) == path


def test_dotted_names_are_nested() -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1.0, None]), pa.array(["x", "y"]), pa.array([5, 6])], ["n.m", "n.s", "`n.m`"]
    )
    table = columns_of(batch)
    assert rows("n.m = 1", table) == [0]
    assert rows("`n.m` = 6", table) == [1]
    assert table.publications[1] == {"n": {"s": "y"}, "n.m": 6}


def test_the_topic_may_stand_in_any_column() -> None:
    batch = batch_of(place=pa.array(["air/1", "air/2"]), topic=pa.array([1, 2]))
    assert rows("topic = 'air/2' AND place = 'air/2'", columns_of(batch, topic="place")) == [1]
    assert rows("topic = 2", columns_of(batch)) == [1]


def test_what_is_left_out_is_not_seen() -> None:
    batch = batch_of(a=pa.array([1]), b=pa.array([2]))
    assert list(columns_of(batch, leave_out=["a"]).publications) == [{"b": 2}]


# -- times -----------------------------------------------------------------------------------


@given(st.integers(-(10**15), 4 * 10**15))
def test_timestamps_are_the_seconds_of_the_broker(us: int) -> None:
    array = pa.array([us], pa.int64()).cast(pa.timestamp("us", "UTC"))
    assert times_of(array, "at").tolist() == [us / 1e6]


def test_times_in_other_forms() -> None:
    assert times_of(pa.array([5], pa.int64()).cast(pa.timestamp("ms")), "at").tolist() == [0.005]
    assert times_of(pa.array([3], pa.int32()), "at").tolist() == [3.0]
    assert times_of(pa.array([3.25], pa.float32()), "at").tolist() == [3.25]
    assert times_of(pa.array([Decimal("0.1")]), "at").tolist() == [0.1]


def test_times_that_are_none_are_refused() -> None:
    with pytest.raises(TimesError, match="column when has no time in some rows"):
        times_of(pa.array([1.0, None]), "when")
    with pytest.raises(TimesError, match="column when has the type string"):
        times_of(pa.array(["noon"]), "when")


# -- the lake --------------------------------------------------------------------------------


USER = pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))


def lake_batch(*publications: tuple[str, bytes | None, list[tuple[str, str]]]) -> pa.RecordBatch:
    users = [[{"name": n, "value": v} for n, v in user] for _, _, user in publications]
    return batch_of(
        topic=pa.array([topic for topic, _, _ in publications]),
        payload=pa.array([payload for _, payload, _ in publications], pa.binary()),
        user=pa.array(users, USER),
    )


def test_the_lake_is_read_as_the_broker_reads_it() -> None:
    table = lake_columns(
        lake_batch(
            ("air/1", b'{"NO2": 41, "n": {"m": "x"}}', []),
            ("air/2", b'{"NO2": "41", "topic": "no"}', [("NO2", "7"), ("unit", "ppm")]),
            ("air/3", b"no object", [("NO2", "7")]),
            ("air/1", None, []),
        )
    )
    assert rows("NO2 > 40", table) == [0]
    assert rows("NO2 = '7'", table) == [2]
    assert rows("unit = 'ppm' AND topic = 'air/2'", table) == [1]
    assert rows("n.m = 'x'", table) == [0]
    assert rows("topic LIKE 'air/1'", table) == [0, 3]
    assert rows("NO2 + 1 > 41", table) == [0]


def test_a_lake_without_user_properties() -> None:
    table = lake_columns(lake_batch(("a", b'{"x": 1}', []), ("b", b'{"x": 2.5}', [])))
    assert list(table.publications) == [{"x": 1, "topic": "a"}, {"x": 2.5, "topic": "b"}]
    assert rows("x > 1", table) == [1]
