"""What pruning leaves out cannot match: random texts over tables of odd types, in real Parquet."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import LimitError, Subscription, matches, parse
from rove.lang.functions import EARTH_RADIUS_M, call
from rove.lang.tree import Attribute, Call, Comparison, Literal
from rove.pipeline.matching import pruning
from rove.pipeline.matching.pruning import (
    EVERY_ROW,
    PrunedExpression,
    RangeTest,
    ReadPlan,
    arrow_filter,
    plan,
)
from rove.pipeline.tables import column_builder as columns_module
from rove.pipeline.tables import table as table_module
from rove.pipeline.tables.column_builder import ColumnBuilder
from rove.pipeline.tables.table import BASE, REST, TableFile, TableSchema, attributes
from rove.testing import strategies


def written(
    publications: Sequence[Mapping[str, Any]], schema: TableSchema, topic: str = "air/a"
) -> tuple[pa.Table, TableSchema]:
    """Publications as the rows of a table, whose schema is made to fit them."""
    payloads = pa.array([msgspec.json.encode(one) for one in publications], pa.binary())
    users = pa.array([[]] * len(publications), pa.list_(pa.struct([("name", pa.string())])))
    typed = ColumnBuilder(schema).typed(payloads, users)
    while not typed.is_complete:
        schema = schema.extended(typed.unmet, needs_rest=typed.needs_rest)
        typed = ColumnBuilder(schema).typed(payloads, users)
    rows = len(publications)
    base = {
        "position": pa.array(range(rows), pa.int64()),
        "at": pa.array(range(rows), pa.int64()).cast(BASE.field("at").type),
        "topic": pa.array([topic] * rows),
        "id": pa.array([f"p{row}" for row in range(rows)]),
        "client_id": pa.array(["ann"] * rows),
        "qos": pa.array([0] * rows, pa.int8()),
    }
    return pa.table({**base, **typed.columns}), schema


def fragment(table: pa.Table, row_group_size: int = 2) -> Any:
    """A Parquet file in memory, with statistics of small row groups."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=row_group_size, compression="zstd")
    return ds.ParquetFileFormat().make_fragment(pa.BufferReader(sink.getvalue()))


def read(table: pa.Table, schema: TableSchema, found: ReadPlan) -> pa.Table:
    """What is left of a table, of rows and of columns, by statistics and row by row."""
    columns = [*BASE.names, *found.columns]
    expression = arrow_filter(found.filter)
    part = fragment(table)
    by_statistics = part.to_table(schema=schema.arrow(), columns=columns, filter=expression)
    again = table_of_all(table, schema).filter(expression)
    assert by_statistics["position"].to_pylist() == again["position"].to_pylist()
    return by_statistics


def table_of_all(table: pa.Table, schema: TableSchema) -> pa.Table:
    missing = [field for field in schema.arrow() if field.name not in table.column_names]
    for field in missing:
        table = table.append_column(field, pa.nulls(len(table), field.type))
    return table


def left(
    text: str, publications: Sequence[Mapping[str, Any]], *, t: tuple[float, float] = (0.0, 0.0)
) -> list[int]:
    """The rows that are read for a text, without its exact match."""
    table, schema = written(publications, TableSchema("air"))
    found = plan(schema, [PrunedExpression(parse(text), t)])
    return read(table, schema, found)["position"].to_pylist()  # type: ignore[no-any-return]


# -- nothing is lost -------------------------------------------------------------------------


@st.composite
def tables(draw: st.DrawFn, wanted: st.SearchStrategy[Subscription]) -> Any:
    """A subscription, a state, and publications with their `t` that stand on its bounds."""
    subscription = draw(wanted)
    meetings = draw(
        st.lists(strategies.encounters(st.just(subscription)), min_size=1, max_size=6)
        | st.lists(
            st.tuples(
                st.just(subscription), strategies.publications, strategies.times, strategies.states
            ),
            min_size=1,
            max_size=6,
        )
    )
    return subscription, meetings[0][3], [(one[1], one[2]) for one in meetings]


def admitted(publication: Mapping[str, Any]) -> dict[str, Any]:
    """As it can come in a payload; some strategies draw bytes."""
    return msgspec.json.decode(msgspec.json.encode(publication), type=dict[str, Any])


def check_nothing_is_lost(case: Any) -> None:
    subscription, me, drawn = case
    publications = [{**admitted(one), "topic": "air/a"} for one, _ in drawn]
    times = [t for _, t in drawn]
    table, schema = written(publications, TableSchema("air"))
    try:
        found = plan(schema, [PrunedExpression(subscription, (min(times), max(times)), me)])
    except LimitError:
        return
    expected = [
        row for row, one in enumerate(publications) if matches(subscription, one, times[row], me)
    ]
    rows = read(table, schema, found)
    restored = [attributes(schema, row) for row in rows.to_pylist()]
    exact = [
        row
        for row, one in zip(rows["position"].to_pylist(), restored, strict=True)
        if matches(subscription, one, times[row], me)
    ]
    assert exact == expected


@given(tables(strategies.static_subscriptions))
def test_of_texts_that_stand_still_nothing_is_lost(case: Any) -> None:
    check_nothing_is_lost(case)


@given(tables(strategies.subscriptions))
def test_of_texts_of_all_kinds_nothing_is_lost(case: Any) -> None:
    check_nothing_is_lost(case)


@given(tables(strategies.subscriptions))
def test_nothing_is_lost_in_a_table_that_has_no_room_for_columns(case: Any) -> None:
    """What has no column is kept as JSON beside them."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (table_module, columns_module):
            patch.setattr(module, "ATTRIBUTES_MAX", 2)
        check_nothing_is_lost(case)


near = st.floats(-3, 3) | st.sampled_from([0.0, 1e-9, -1e-9, 90.0, -90.0, 180.0, -180.0, 360.0])


@given(
    st.sampled_from([(45.8, 15.97), (0.0, 0.0), (0.0, 179.99), (89.5, 10.0), (-60.0, -179.999)]),
    st.sampled_from([0.0, 1.0, 500.0, 20_000.0, 400_000.0, 8_000_000.0, 1.9e7]),
    st.lists(st.tuples(near, near), min_size=1, max_size=8),
)
def test_no_place_within_a_distance_is_lost(
    centre: tuple[float, float], metres: float, steps: list[tuple[float, float]]
) -> None:
    """Also where longitudes begin again, at a pole, and for degrees that do not exist."""
    spread = math.degrees(metres / EARTH_RADIUS_M)
    publications = [
        {"lat": centre[0] + a * spread, "long": centre[1] + b * spread} for a, b in steps
    ] + [{"lat": centre[0] + a, "long": centre[1] + b} for a, b in steps]
    here = (Literal(centre[0]), Literal(centre[1]))
    there = (Attribute(("lat",)), Attribute(("long",)))
    for arguments in ((*here, *there), (*there, *here)):
        near_by = Subscription(Comparison("<=", Call("distance", arguments), Literal(metres)))
        table, schema = written(publications, TableSchema("air"))
        rows = read(table, schema, plan(schema, [PrunedExpression(near_by)]))[
            "position"
        ].to_pylist()
        for row, one in enumerate(publications):
            distance = call("distance", [*centre, one["lat"], one["long"]])
            assert isinstance(distance, float)
            assert row in rows or distance > metres


# -- and what cannot match is left out -------------------------------------------------------

LADDER = [{"x": float(x), "kind": f"k{x:02d}", "on": x % 2 == 0} for x in range(20)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x >= 18", [18, 19]),
        ("x > 3 AND x <= 5", [4, 5]),
        ("x = 0", [0]),
        ("x < 1 OR x BETWEEN 7 AND 8", [0, 7, 8]),
        ("kind = 'k07'", [7]),
        ("kind LIKE 'k1%' AND x < 12", [10, 11]),
        ("kind IN ('k01', 'k03')", [1, 3]),
        ("on AND x < 5", [0, 2, 4]),
        ("NOT on AND x < 5", [1, 3]),
        ("x + 2 > 20.5", [19]),
        ("abs(x - 5) < 1.5", [4, 5, 6]),
        ("2 * x < 3", [0, 1]),
        ("x / 4 > 4.6", [19]),
        ("greatest(x, 1) < 2", [0, 1]),
        ("least(x, 100) > 17.5", [18, 19]),
        ("sqrt(x) < 1.1", [0, 1]),
        ("-x > -1.5", [0, 1]),
        ("x IS NOT NULL AND x > 17.5", [18, 19]),
        ("missing > 3", []),
        ("x = 'a'", []),
        ("x > 5 AND missing IS NULL AND x < 6.5", [6]),
        ("x > t", list(range(8, 20))),
        ("x BETWEEN t - 1 AND t + 1", list(range(7, 12))),
        ("t > 20", []),
        ("topic = 'road'", []),
    ],
)
def test_rows_that_cannot_match_are_not_read(text: str, expected: list[int]) -> None:
    assert left(text, LADDER, t=(8.0, 10.0)) == expected


def test_whole_row_groups_are_passed_over() -> None:
    table, schema = written(LADDER, TableSchema("air"))
    found = plan(schema, [PrunedExpression(parse("x >= 18 AND kind > 'k'"))])
    part = fragment(table, row_group_size=5)
    touched = part.subset(arrow_filter(found.filter), schema=schema.arrow())
    assert [group.id for group in touched.row_groups] == [3]


def test_a_following_text_is_pruned_by_where_its_subscriber_is() -> None:
    table, schema = written(LADDER, TableSchema("air"))
    text = parse("x BETWEEN me.x - 1 AND me.x + 1")
    found = plan(schema, [PrunedExpression(text, me={"x": 5})])
    assert read(table, schema, found)["position"].to_pylist() == [4, 5, 6]
    assert plan(schema, [PrunedExpression(text)]).filter == ()


def test_only_columns_that_are_named_are_read() -> None:
    publications = [
        {"x": 1.5, "y": 1.5, "deep": {"z": 1, "w": 2}},
        {"x": "text", "y": 1.5, "deep": None},
    ]
    _, schema = written(publications, TableSchema("air"))

    def columns(text: str) -> set[str]:
        return set(plan(schema, [PrunedExpression(parse(text))]).columns)

    assert columns("x > 3") == {"x", "x::string"}
    assert columns("deep.z > 3") == {"deep.z", "deep::json"}
    assert columns("deep IS NULL") == {"deep.z", "deep.w", "deep::json"}
    assert columns("x > 3 ORDER BY y LIMIT 3 WITHIN 1 HOUR") == {"x", "x::string", "y"}
    assert columns("topic = 'air/a'") == set()


def test_a_value_may_stand_in_any_of_the_columns_of_its_attribute() -> None:
    publications = [{"x": value} for value in (1.5, 7.5, 2**60 + 1, 7, "7", True, [7], None)]
    assert left("x > 5", publications) == [1, 2, 3]
    assert left("x = '7'", publications) == [4]
    assert left("x", publications) == [5]
    assert left(f"x = {2**60 + 1}", publications) == [2]
    assert left("x > 5 OR x IS NULL", publications) == list(range(8))
    assert 6 in left("x IS NOT NULL", publications)


def test_both_zeros_are_zero() -> None:
    assert left("x = 0", [{"x": 0.0}, {"x": -0.0}, {"x": 1.5}]) == [0, 1]
    assert left("x >= 0 AND x < 1", [{"x": -0.0}, {"x": -1.5}]) == [0]


def test_a_number_that_is_none_is_as_good_as_missing() -> None:
    """No publication has one, but files from outside may."""
    table, schema = written([{"x": 1.5}, {"x": 2.5}], TableSchema("air"))
    table = table.set_column(table.column_names.index("x"), "x", pa.array([math.nan, 2.5]))
    found = plan(schema, [PrunedExpression(parse("x > 2"))])
    assert read(table, schema, found)["position"].to_pylist() == [1]
    missing = plan(schema, [PrunedExpression(parse("x IS NULL"))])
    assert missing.filter == EVERY_ROW


def test_a_topic_filter_restricts_topics() -> None:
    table, schema = written(LADDER[:3], TableSchema("air"), topic="air/a/b")
    text = parse("x >= 0")
    for topic_filter, rows in (("air/#", 3), ("air/+/b", 3), ("#", 3), ("road/#", 0), ("ai", 3)):
        found = plan(schema, [PrunedExpression(text)], topic_filter)
        assert read(table, schema, found).num_rows == rows, topic_filter


def test_two_texts_share_what_is_read() -> None:
    table, schema = written(LADDER, TableSchema("air"))
    found = plan(
        schema, [PrunedExpression(parse("x < 1")), PrunedExpression(parse("kind = 'k19'"))]
    )
    assert read(table, schema, found)["position"].to_pylist() == [0, 19]
    assert set(found.columns) == {"x", "kind"}


def test_a_filter_does_not_grow_without_bound() -> None:
    table, schema = written(LADDER, TableSchema("air"))
    many = ", ".join(str(number) for number in range(0, 2_000, 2))
    found = plan(schema, [PrunedExpression(parse(f"x IN ({many})"))])
    assert len(found.filter[0][0]) == 1
    assert read(table, schema, found).num_rows == 20
    texts = [parse(f"kind = 'k{number}' AND x IN (1, 3, 5, 7)") for number in range(300)]
    assert plan(schema, [PrunedExpression(text) for text in texts]).filter == EVERY_ROW


# -- files -----------------------------------------------------------------------------------


def file(cell: str, box: tuple[float, float, float, float] | None) -> TableFile:
    return TableFile("part.parquet", 1, 1, cell=cell, box=box)


def test_files_elsewhere_are_not_opened() -> None:
    _, schema = written([{"lat": 1.5, "long": 1.5, "x": 1.5}], TableSchema("air"))
    text = "lat BETWEEN 45 AND 46 AND long > 15 OR distance(lat, long, 0, 179.99) < 5000"
    found = plan(schema, [PrunedExpression(parse(text))])
    assert found.may_hold(file("33TWL", (45.9, 46.1, 14.0, 15.1)))
    assert not found.may_hold(file("33TWL", (46.1, 46.2, 14.0, 15.1)))
    assert not found.may_hold(file("33TWL", (45.1, 45.2, 14.0, 15.0)))
    assert found.may_hold(file("01NAA", (0.0, 0.01, -180.0, -179.99)))
    assert not found.may_hold(file("01NAA", (0.0, 0.01, -179.0, -178.0)))
    assert found.may_hold(file("none", (0.0, 0.0, 0.0, 0.0)))
    assert found.may_hold(file("33TWL", None))


def test_a_text_that_cannot_hold_needs_no_file() -> None:
    found = plan(TableSchema("air"), [PrunedExpression(parse("x > 3"))])
    assert found.filter == ()
    assert not found.may_hold(file("none", None))


def test_tests_say_when_they_ask_for_one_value() -> None:
    assert RangeTest("x", "a", "a\0").is_point
    assert RangeTest("x", 3, 4).is_point
    assert RangeTest("x", True).is_point
    assert not RangeTest("x", 3.0, math.nextafter(3.0, 4)).is_point
    assert not RangeTest("x", 3, 5).is_point
    assert not RangeTest("x").is_point


def test_random_boxes_and_points_agree() -> None:
    """A file is kept if one of its points matches, whatever the text says of places."""
    chance = random.Random(5)
    _, schema = written([{"lat": 1.5, "long": 1.5}], TableSchema("air"))
    kept = 0
    for _ in range(200):
        lat, long = chance.uniform(-90, 90), chance.uniform(-180, 180)
        metres = 10 ** chance.uniform(2, 6.8)
        text = parse(f"distance(lat, long, {lat}, {long}) < {metres}")
        found = plan(schema, [PrunedExpression(text)])
        for _ in range(20):
            point = {"lat": chance.uniform(-90, 90), "long": chance.uniform(-180, 180)}
            box = (point["lat"], point["lat"], point["long"], point["long"])
            keeps = found.may_hold(file("33TWL", box))
            kept += keeps
            assert keeps or not matches(text, point)
    assert 0 < kept < 2_000


def test_spark_and_arrow_are_told_the_same(spark: Any) -> None:
    table, schema = written(LADDER, TableSchema("air"))
    frame = spark.createDataFrame(table.to_pandas())
    for text in ("x >= 18", "kind LIKE 'k1%' AND x < 12 OR on AND x = 2", "missing = 1", "x < 99"):
        found = plan(schema, [PrunedExpression(parse(text))])
        rows = frame.where(pruning.spark_filter(found.filter)).select("position").collect()
        expected = table.filter(arrow_filter(found.filter))["position"].to_pylist()
        assert sorted(row.position for row in rows) == expected


def test_rest_is_read_where_there_is_one() -> None:
    schema = TableSchema("air", has_rest=True)
    found = plan(schema, [PrunedExpression(parse("x > 3"))])
    assert found.columns == (REST,)
    assert found.filter == (((RangeTest(REST),),),)
    assert pc.field(REST).is_valid().equals(arrow_filter(found.filter))
