"""What a table gives back is what was published, whatever that was and however the schema grew."""

import io
import json
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rove.lang.attributes import attributes_of
from rove.pipeline.tables.column_builder import ColumnBuilder
from rove.pipeline.tables.table import (
    ATTRIBUTES_MAX,
    DEPTH_MAX,
    REST,
    TableSchema,
    attributes_of_rows,
)

USER = pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))
Pairs = list[tuple[str, str]]
Publication = tuple[str, bytes, Pairs]

NAMES = st.sampled_from(
    ["NO2", "no2", "a", "a.b", "b", "at", "AT", "id", "topic", "", " ", "`", "a::int", "a::string",
     "a~2", "::rest", "day", "ı", "İ", "i", "K", "k", "ß", "ss", "😀", "%", "x\x00y", "position"]
)  # fmt: skip
NUMBERS = st.sampled_from(
    [0, 1, -1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**63, 10**30, 1.0, -0.0, 0.5,
     1e308, 5e-324, 2.0**53, 2.0**63]
)  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), NUMBERS, st.integers(), st.floats(allow_nan=False), st.text()
).filter(lambda value: not isinstance(value, float) or abs(value) != float("inf"))
OBJECTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
PAYLOADS = st.one_of(
    st.dictionaries(NAMES, OBJECTS, max_size=5).map(lambda found: json.dumps(found).encode()),
    st.binary(max_size=8),
    st.sampled_from([b"", b"{", b"[]", b"null", b"21.5", b'{"a":NaN}', b' {"a":1,"a":"2"} ']),
)
USERS = st.lists(st.tuples(NAMES, st.text(max_size=3)), max_size=2)
PUBLICATIONS = st.lists(
    st.tuples(st.sampled_from(["air/1", "b"]), PAYLOADS, USERS), min_size=1, max_size=6
)


def exactly(value: Any) -> Any:
    """What tells 1 from 1.0 and True, and 0.0 from -0.0."""
    if isinstance(value, dict):
        return {name: exactly(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [exactly(inner) for inner in value]
    return (type(value), repr(value))


def published(batch: list[Publication]) -> list[Any]:
    return [exactly(attributes_of(topic, payload, user)) for topic, payload, user in batch]


def written(schema: TableSchema, batch: list[Publication]) -> tuple[TableSchema, bytes]:
    """A Parquet file of the batch, and the schema that it took."""
    payloads = pa.array([payload for _, payload, _ in batch], pa.binary())
    pairs = [[{"name": name, "value": value} for name, value in user] for *_, user in batch]
    users = pa.array(pairs, USER)
    found = ColumnBuilder(schema).typed(payloads, users)
    if not found.is_complete:
        schema = schema.extended(found.unmet, needs_rest=found.needs_rest)
        found = ColumnBuilder(schema).typed(payloads, users)
    assert found.is_complete  # the second time there is a place for everything
    topics = pa.array([topic for topic, *_ in batch])
    names = ["topic", *found.columns]
    table = pa.Table.from_arrays([topics, *found.columns.values()], names)
    assert set(names) <= set(schema.arrow().names)
    assert table.schema.equals(pa.schema([schema.arrow().field(name) for name in names]))
    file = io.BytesIO()
    pq.write_table(table, file)
    return schema, file.getvalue()


def read_back(schema: TableSchema, file: bytes) -> list[Any]:
    table = pq.ParquetFile(io.BytesIO(file)).read()
    return [exactly(each) for each in attributes_of_rows(schema, table)]


@given(st.lists(PUBLICATIONS, min_size=1, max_size=3))
@example([[("t", b'{"NO2": 1}', [])], [("t", b'{"NO2": 1.5}', [])], [("t", b'{"NO2": 2}', [])]])
@example([[("t", b'{"NO2": 1.5}', []), ("t", b'{"NO2": 1, "no2": "x"}', [("No2", "y")])]])
@example([[("t", b'{"a": {"b": 1}, "a.b": 2}', [])], [("t", b'{"a": 3}', [("a", "lost")])]])
@example([[("t", b'{"a": {}}', []), ("t", b'{"a": {"b": {}}}', [("topic", "lost")])]])
def test_old_and_new_files_give_back_what_was_published(batches: list[list[Publication]]) -> None:
    schema = TableSchema("air")
    files = []
    for batch in batches:
        schema, file = written(schema, batch)
        files.append(file)
    names = schema.arrow().names
    # Spark compares names by Java's rules, for which these two are enough.
    assert len({name.lower() for name in names}) == len(names)
    assert len({name.upper() for name in names}) == len(names)
    for batch, file in zip(batches, files, strict=True):  # with the schema as it became
        assert read_back(schema, file) == published(batch)


def one(*payloads: bytes) -> list[Publication]:
    return [("t", payload, []) for payload in payloads]


def test_nests_too_deep_and_names_too_long_are_kept_in_the_rest() -> None:
    deep = b'{"n":' * (DEPTH_MAX + 3) + b'{"x": 1, "y": []}' + b"}" * (DEPTH_MAX + 3)
    long = b'{"%s": 12345678901234567890123, "b": 1}' % (b"x" * 300)
    batch = one(deep, long, b'{"b": 2}')
    schema, file = written(TableSchema("air"), batch)
    assert schema.has_rest
    assert [each.path for each in schema.attributes] == [("b",)]
    assert read_back(schema, file) == published(batch)


def test_objects_go_both_to_columns_and_to_the_rest() -> None:
    batch = one(b'{"a": {"b": 1, "%s": [2]}}' % (b"x" * 300))
    schema, file = written(TableSchema("air"), batch)
    assert read_back(schema, file) == published(batch)


@pytest.mark.soak
def test_a_publisher_that_invents_names_gets_only_so_many_columns() -> None:
    batch = one(*(b'{"b": 1.5, "n%d": %d}' % (each, each) for each in range(ATTRIBUTES_MAX + 500)))
    schema, file = written(TableSchema("air"), batch)
    assert len(schema.attributes) == ATTRIBUTES_MAX
    assert schema.attributes[0].path == ("b",)  # the most frequent come first
    assert REST in schema.arrow().names
    assert read_back(schema, file) == published(batch)
    later, file = written(schema, one(b'{"late": 1, "b": "text"}'))
    assert len(later.attributes) == ATTRIBUTES_MAX
    assert read_back(later, file) == published(one(b'{"late": 1, "b": "text"}'))


def test_what_has_no_column_is_counted_and_nothing_is_written() -> None:
    schema = TableSchema("air").extended({(("NO2",), "float"): 1})
    payloads = pa.array([b'{"NO2": 1.5, "O3": 2}', b'{"NO2": "x", "O3": 3}'])
    found = ColumnBuilder(schema).typed(payloads, pa.array([[], []], USER))
    assert found.unmet == Counter({(("O3",), "small"): 2, (("NO2",), "text"): 1})
    assert found.columns == {}


def test_numbers_of_an_attribute_whatever_column_they_are_in() -> None:
    batch = one(b'{"x": 1.5}', b'{"x": 2}', b'{"x": 9007199254740994}', b'{"x": true}', b"{}")
    payloads = pa.array([payload for _, payload, _ in batch])
    users = pa.array([[]] * 5, USER)
    schema = TableSchema("air").extended(
        ColumnBuilder(TableSchema("air")).typed(payloads, users).unmet
    )
    builder = ColumnBuilder(schema)
    found = builder.typed(payloads, users)
    np.testing.assert_array_equal(
        builder.numbers(found, ("x",)), [1.5, 2.0, 9007199254740994.0, np.nan, np.nan]
    )
    assert np.isnan(builder.numbers(found, ("y",))).all()
