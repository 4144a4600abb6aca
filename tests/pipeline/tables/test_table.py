"""Schemas only grow, every attribute finds a name, and readers see what is committed."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from rove.broker.storage.records import LogRow
from rove.lake import delta
from rove.lake.storage import LakeError
from rove.pipeline.tables.commits import ChannelTables, WriteResult
from rove.pipeline.tables.ingest import ingest
from rove.pipeline.tables.table import (
    ATTRIBUTES_MAX,
    NAME_BYTES_MAX,
    AttributeColumns,
    NamePath,
    Sort,
    Table,
    TableSchema,
    TablesError,
    attributes_of_rows,
    channels,
    folder_name,
)
from rove.serve.disk.lake import LakeAppender as BrokersLake

NOON_S = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()
EMPTY = TableSchema("air")


def columns_of(schema: TableSchema, *path: str) -> dict[str, str]:
    return {str(kind): name for kind, name in schema.by_path()[path].columns.items()}


def grown(*steps: dict[tuple[NamePath, Sort], int]) -> TableSchema:
    schema = EMPTY
    for step in steps:
        schema = schema.extended(step)
    return schema


NO2 = ("NO2",)


def test_the_first_type_has_the_plain_name_and_others_say_what_they_are() -> None:
    schema = grown({(NO2, "float"): 9, (NO2, "text"): 1}, {(NO2, "truth"): 5, (NO2, "other"): 50})
    assert columns_of(schema, "NO2") == {
        "double": "NO2",
        "string": "NO2::string",
        "json": "NO2::json",
        "boolean": "NO2::boolean",
    }
    assert columns_of(grown({(NO2, "text"): 9, (NO2, "float"): 1}), "NO2")["string"] == "NO2"
    late = grown({(NO2, "other"): 9}, {(NO2, "float"): 1})  # null says nothing of the type
    assert columns_of(late, "NO2") == {"json": "NO2::json", "double": "NO2"}


@pytest.mark.parametrize(
    ("steps", "columns"),
    [
        ([{(NO2, "small"): 1}], {"long": "NO2"}),
        ([{(NO2, "small"): 1, (NO2, "large"): 1}], {"long": "NO2"}),
        ([{(NO2, "small"): 9, (NO2, "float"): 1}], {"double": "NO2", "int": "NO2::int"}),
        ([{(NO2, "float"): 1}, {(NO2, "small"): 1}], {"double": "NO2", "int": "NO2::int"}),
        ([{(NO2, "float"): 9}, {(NO2, "large"): 1}], {"double": "NO2", "long": "NO2::long"}),
        ([{(NO2, "small"): 9}, {(NO2, "float"): 1}], {"long": "NO2", "double": "NO2::double"}),
    ],
)
def test_whole_numbers_are_long_alone_and_marked_among_others(
    steps: list[dict[tuple[NamePath, Sort], int]], columns: dict[str, str]
) -> None:
    assert columns_of(grown(*steps), "NO2") == columns


def test_what_was_there_stays_as_it_was() -> None:
    before = grown({(NO2, "float"): 1, (("a", "b"), "text"): 1})
    after = before.extended({(NO2, "text"): 5, (("no2",), "float"): 9})
    for attribute in before.attributes:
        columns = after.by_path()[attribute.path].columns
        assert attribute.columns.items() <= columns.items()
    assert after.arrow().names[: len(before.arrow().names) - 1] == before.arrow().names[:-1]


def test_names_that_tools_would_confuse_are_told_apart() -> None:
    paths: list[NamePath] = [
        ("NO2",), ("no2",), ("at",), ("AT",), ("a", "b"), ("a.b",), ("x`y",), ("",), ("day",),
        ("NO2::string",), ("NO2~2",), ("K",), ("\u212a",), ("İ",), ("i",), ("ı",),
    ]  # fmt: skip
    schema = EMPTY
    for path in paths:
        schema = schema.extended({(path, "text"): 1})
    names = [schema.by_path()[path].columns["string"] for path in paths]
    assert names == [
        "NO2", "no2~2", "at~2", "AT~3", "a.b", "a%2Eb", "x%60y", "%", "day~2",
        "NO2::string", "NO2~2~2", "K", "\u212a~2", "İ", "i~2", "ı~3",
    ]  # fmt: skip
    schema = schema.extended({(NO2, "float"): 1, (NO2, "truth"): 1})
    assert columns_of(schema, "NO2")["double"] == "NO2::double"


def test_there_are_only_so_many_columns() -> None:
    wide = EMPTY.extended({((str(each),), "float"): 1 for each in range(ATTRIBUTES_MAX + 5)})
    assert len(wide.attributes) == ATTRIBUTES_MAX
    assert wide.has_rest
    assert not EMPTY.may_take(("x" * (NAME_BYTES_MAX + 1),))
    assert not EMPTY.may_take(("x",) * 17)
    assert EMPTY.extended({(("x" * 500,), "float"): 1}).arrow().names[-1] == "::rest"


def test_a_column_takes_only_its_own() -> None:
    attribute = AttributeColumns(NO2, {"double": "NO2", "string": "NO2::string"})
    sorts: tuple[Sort, ...] = ("float", "small", "large", "text", "truth", "other")
    found = [attribute.column_of(sort) for sort in sorts]
    assert found == ["double", None, None, "string", None, None]
    marked = AttributeColumns(NO2, {"double": "NO2", "int": "NO2::int"})
    assert marked.column_of("small") == "double"


def test_a_column_in_which_nothing_is_gives_nothing() -> None:
    schema = grown({(NO2, "small"): 1, (NO2, "float"): 1})
    named = columns_of(schema, "NO2")
    rows = pa.table(
        {
            "topic": pa.array(["air"]),
            named["double"]: pa.array([None], pa.float64()),
            named["int"]: pa.array([None], pa.bool_()),
        }
    )
    assert attributes_of_rows(schema, rows) == [{"topic": "air"}]


@pytest.mark.parametrize(
    ("channel", "name"),
    [
        ("air", "air"), ("a/b", "a~2Fb"), ("..", "~2E."), (".", "~2E"), ("", "~"), ("%", "~25"),
        ("_x", "~5Fx"), ("x_y", "x_y"), ("ü/😀", "~C3~BC~2F~F0~9F~98~80"), ("a b", "a~20b"),
        ("~", "~7E"), ("*", "~2A"),
    ],
)  # fmt: skip
def test_a_channel_has_a_folder_of_its_own(channel: str, name: str) -> None:
    assert folder_name(channel) == name


def test_long_channels_are_cut_and_stay_apart() -> None:
    names = {folder_name("/" * 100 + end) for end in ("a", "b", "c" * 500)}
    assert len(names) == 3
    assert all(len(name) <= 218 for name in names)


# --- on disk ----------------------------------------------------------------------------------


def test_a_table_that_is_not_there_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TablesError, match=r"no table of the channel 'air' in .*pipeline ingest"):
        Table(tmp_path, "air").schema()
    assert channels(tmp_path) == []


def test_a_table_of_somebody_else_is_refused(tmp_path: Path) -> None:
    delta.DeltaTable.for_writing(tmp_path / "air" / "data", pa.schema([("x", pa.int64())]), [], {})
    with pytest.raises(TablesError, match="air/data is no table of `rove pipeline ingest`"):
        Table(tmp_path, "air").schema()


def test_a_table_of_an_earlier_rove_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "air" / "_manifest").mkdir(parents=True)
    with pytest.raises(TablesError, match=r"earlier Rove; move it away, and `rove pipeline ing"):
        Table(tmp_path, "air")
    BrokersLake(tmp_path / "lake").take([(1, LogRow("publications", "air", NOON_S, "t"))])
    with pytest.raises(TablesError, match="earlier Rove"):
        ingest(None, tmp_path / "lake", tmp_path)


def test_a_schema_is_what_the_table_tells(tmp_path: Path) -> None:
    begin = TableSchema("a/b", 1, ("where", "lat"), ("where", "long"))
    seen: list[dict[tuple[NamePath, Sort], int]] = [
        {(NO2, "float"): 9, (("where", "lat"), "float"): 7, (("a b", "c.d"), "text"): 1},
        {(NO2, "small"): 1, (("=",), "other"): 3, (("no2",), "truth"): 2},
    ]
    schema = begin
    for number, step in enumerate(seen):
        schema = schema.extended(step, needs_rest=number == 1)
        channel = ChannelTables(tmp_path, begin)
        channel.commit(schema, WriteResult(counts={"in": 0}))
        assert Table(tmp_path, "a/b").schema() == schema
    assert columns_of(schema, "a b", "c.d") == {"string": "a%20b.c%2Ed"}
    assert ChannelTables(tmp_path, begin).schema == schema


def test_days_cells_and_columns_are_chosen(tmp_path: Path) -> None:
    payloads = [
        {"lat": 45.8, "long": 15.98, "x": 1.5},
        {"lat": 60.0, "long": 4.0, "x": 2.5, "y": "late"},
        {"x": 3.5},
    ]
    rows = [
        (
            day,
            LogRow(
                "publications", "air", NOON_S + day * 86_400, "t", payload=json.dumps(each).encode()
            ),
        )
        for day, each in enumerate(payloads)
    ]
    BrokersLake(tmp_path / "lake").take(rows)
    ingest(None, tmp_path / "lake", tmp_path / "tables")
    table = Table(tmp_path / "tables", "air")
    assert channels(tmp_path / "tables") == ["air"]
    entries = table.files()
    assert [entry.cell for entry in entries] == ["33TWL77", "32VKM26", "none"]
    assert [entry.box for entry in entries] == [(45.8, 45.8, 15.98, 15.98), (60, 60, 4, 4), None]
    assert table.files(cells=["none"]) == entries[2:]
    assert table.files(days=("2026-11-17", "2026-11-17")) == entries[1:2]
    assert table.read(columns=["x", "y"]).to_pydict() == {
        "x": [1.5, 2.5, 3.5],
        "y": [None, "late", None],
    }
    assert table.read().schema.names == table.schema().arrow().names
    assert table.read(cells=["nowhere"]).num_rows == 0
    assert table.read("rejected").num_rows == 0
    (tmp_path / "tables" / "air" / "data" / entries[0].path).write_bytes(b"torn")
    with pytest.raises(LakeError, match=r"cannot read .*part-"):
        table.read()
