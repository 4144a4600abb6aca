"""Rows from outside are in the table as if they had been published, each file once."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rove.broker.storage.records import LogRow
from rove.pipeline.tables.file_import import (
    FileImportError,
    ImportColumns,
    LineReader,
    format_of,
    ingest_files,
    moment_of,
)
from rove.pipeline.tables.ingest import ingest
from rove.pipeline.tables.quality import QualityRules, RuleBook
from rove.pipeline.tables.table import Table, attributes_of_rows
from rove.serve.disk.lake import LakeAppender as BrokersLake

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def content(tables: Path) -> list[dict[str, Any]]:
    """Rows with their attributes, by time."""
    table = Table(tables, "air")
    rows = table.read()
    found = [
        {"at": at, "id": id_, "client": client, **attributes}
        for at, id_, client, attributes in zip(
            *(rows[name].to_pylist() for name in ("at", "id", "client_id")),
            attributes_of_rows(table.schema(), rows),
            strict=True,
        )
    ]
    return sorted(found, key=lambda row: row["at"])


# --- without Spark ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        (NOON.timestamp(), NOON),
        (NOON.timestamp() + 0.000001, NOON + timedelta(microseconds=1)),
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        ("2026-11-16T12:00:00Z", NOON),
        ("2026-11-16 13:00:00+01:00", NOON),
        (" 2026-11-16T12:00:00 ", NOON),
        ("noon", None),
        (True, None),
        (None, None),
        (1e300, None),
        ([], None),
    ],
)
def test_moments(value: object, moment: datetime | None) -> None:
    assert moment_of(value) == moment


def read(
    text: str, columns: ImportColumns | None = None, *, is_text: bool = False
) -> dict[str, Any]:
    reader = LineReader(columns or ImportColumns(), ("lat",), ("where", "long"), "air")
    return reader.row(text, is_text=is_text)


def test_a_line_becomes_a_row() -> None:
    columns = ImportColumns(at="t", id="n", client_id="who", lat="y", long="x", topic="old/air")
    text = '{"t": 0, "n": 17, "who": "s1", "y": 1.5, "x": 2, "where": {"street": "A"}, "NO2": 3}'
    row = read(text, columns)
    assert (row["topic"], row["id"], row["client_id"]) == ("old/air", "17", "s1")
    assert json.loads(row["payload"]) == {
        "lat": 1.5,
        "where": {"street": "A", "long": 2},
        "NO2": 3,
    }
    plain = read('{"at": 0, "NO2": 1}')
    assert (plain["topic"], plain["id"]) == ("air", "")


def test_a_line_that_is_none_is_kept_with_its_reason() -> None:
    for text, reason in (("no JSON", "line"), ("[1]", "line"), ('{"x": 1}', "at")):
        row = read(text)
        assert (row["reason"], row["payload"]) == (reason, text.encode())
        assert "at" not in row


def test_texts_of_csv_are_looked_at_one_by_one() -> None:
    written = {
        "at": "0", "id": "007", "a": "41", "b": "-1.5e3", "c": "TRUE", "d": "007", "e": "",
        "f": "1e999", "g": "x", "h": " 5",
    }  # fmt: skip
    row = read(json.dumps(written), is_text=True)
    assert row["id"] == "007"
    assert json.loads(row["payload"]) == {
        "a": 41, "b": -1500.0, "c": True, "d": "007", "f": "1e999", "g": "x", "h": " 5",
    }  # fmt: skip


def test_formats_by_name() -> None:
    assert format_of(Path("a/b.CSV")) == "csv"
    assert format_of(Path("b.ndjson")) == "jsonl"
    with pytest.raises(FileImportError, match="has no known suffix; give its format"):
        format_of(Path("b.txt"))


# --- by Spark ---------------------------------------------------------------------------------


def test_three_formats_into_one_table_each_file_once(spark: Any, tmp_path: Path) -> None:
    csv, jsonl, parquet = (tmp_path / f"in.{each}" for each in ("csv", "jsonl", "parquet"))
    csv.write_text(
        "when,name,y,x,NO2,note\n"
        '2026-11-16T12:00:00Z,a,45.8,15.98,41,"two\nlines, ""quoted"""\n'
        "2026-11-16T12:00:01Z,b,45.8,15.98,41.5,\n"
        "never,c,45.8,15.98,1,\n"
    )
    jsonl.write_text(
        '{"when": 1794830402, "name": "d", "y": 1, "x": 2, "NO2": null, "deep": {"er": [1]}}\n'
        "\n"
        "torn\n"
    )
    when = NOON + timedelta(seconds=3, microseconds=7)
    pq.write_table(
        pa.table({
            "when": pa.array([when], pa.timestamp("us", "UTC")),
            "name": ["e"], "y": [45.8], "x": [15.98], "odd.name": [2**60],
        }),
        parquet,
    )  # fmt: skip
    columns = ImportColumns(at="when", id="name", lat="y", long="x")
    files = [csv, jsonl, parquet]
    report = ingest_files(spark, files, tmp_path / "tables", "air", columns=columns)
    assert (report.rows_in, report.rows_out, report.files_read) == (6, 4, 3)
    assert report.rejected == {"at": 1, "line": 1}
    position = {"lat": 45.8, "long": 15.98}
    base = {"client": "", "topic": "air"}
    assert content(tmp_path / "tables") == [
        {"at": NOON, "id": "a", **base, **position, "NO2": 41, "note": 'two\nlines, "quoted"'},
        {"at": NOON + timedelta(seconds=1), "id": "b", **base, **position, "NO2": 41.5},
        {
            "at": NOON + timedelta(seconds=2), "id": "d", **base, "lat": 1, "long": 2,
            "NO2": None, "deep": {"er": [1]},
        },
        {
            "at": when, "id": "e", **base, **position,
            "odd.name": 2**60,
        },
    ]  # fmt: skip
    table = Table(tmp_path / "tables", "air")
    assert [entry.cell for entry in table.files()].count("33TWL77") >= 1
    assert {row["payload"] for row in table.read("rejected").to_pylist()} >= {b"torn"}
    again = ingest_files(spark, files, tmp_path / "tables", "air", columns=columns)
    assert again.rows_in == 0
    csv.write_text("when\n5\n")
    with pytest.raises(FileImportError, match=r"in\.csv was ingested before and has changed since"):
        ingest_files(spark, files, tmp_path / "tables", "air", columns=columns)
    with pytest.raises(FileImportError, match="there is no file"):
        ingest_files(spark, [tmp_path / "none.csv"], tmp_path / "tables", "air")


@pytest.mark.soak
def test_beside_the_lake_with_duplicates_and_late_types(spark: Any, tmp_path: Path) -> None:
    at_s = NOON.timestamp()
    row = LogRow("publications", "air", at_s - 1, "t", "1", "c", b'{"x": 1.5}')
    BrokersLake(tmp_path / "lake").take([(5, row)])
    ingest(spark, tmp_path / "lake", tmp_path / "tables")
    lines = [{"at": at_s + each, "id": str(each // 2), "who": "c", "x": each} for each in range(6)]
    lines.append({"at": at_s + 9, "id": "", "x": "text"})
    source = tmp_path / "more.jsonl"
    source.write_text("\n".join(map(json.dumps, lines)))
    report = ingest_files(
        spark,
        [source],
        tmp_path / "tables",
        "air",
        columns=ImportColumns(client_id="who"),
        rules=RuleBook({"air": QualityRules(duplicates_s=60)}),
    )
    # Of ids 0, 0, 1, 1, 2, 2 the lake has 1 already.
    assert (report.rows_out, report.rejected) == (3, {"duplicate": 4})
    assert [row["x"] for row in content(tmp_path / "tables")] == [1.5, 0, 4, "text"]
    assert report.position == 5
    positions = Table(tmp_path / "tables", "air").read()["position"].to_pylist()
    assert sorted(positions, key=str) == [5, None, None, None]


def test_a_broken_parquet_file_is_an_error_of_one_line(spark: Any, tmp_path: Path) -> None:
    torn = tmp_path / "torn.parquet"
    torn.write_bytes(b"PAR1torn")
    with pytest.raises(FileImportError, match=r"cannot read .*torn\.parquet") as caught:
        ingest_files(spark, [torn], tmp_path / "tables", "air")
    assert "\n" not in str(caught.value)
