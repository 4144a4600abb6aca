"""Others read the lake without us, and find the same rows."""

from __future__ import annotations

import datetime
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from rove.bench.servers.jars import JarsMissingError, fetched
from rove.broker.storage.records import LogRow
from rove.lake import compaction
from rove.lake.log import LakeLog
from rove.pipeline.lake.data_source import whole
from rove.pipeline.tables.ingest import ingest
from rove.pipeline.tables.table import Table
from rove.serve.disk.lake import LakeAppender
from tests.duckdb_reader import by_duckdb
from tests.effort import PATIENCE_S
from tests.interop.spark_environment import spark_environment

CHANNELS = ["a/b", "..", "ünï/😀", "a%2Fb", "17", "x y", "a=b", "%"]
DAY_S = 86_400.0
ODD = [b"", b"\x00\xff", b'{"x": 1e400}', "µ".encode() * 300]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some kinds, channels and days; part of it was compacted, part removed."""
    folder = tmp_path_factory.mktemp("readers") / "lake"
    writer = LakeAppender(folder, rows_per_file=9, replaced_hours=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "SMALL_FILES_MAX", 3)
        for begin in range(0, 90, 30):
            writer.take([(number, row(number)) for number in range(begin, begin + 30)])
            writer.maintain(begin * 1e4)
    writer._table.delete("kind = 'publications' AND position < 6")
    return folder


def row(number: int) -> LogRow:
    kind = "notifications" if number % 5 == 0 else "publications"
    user = (("unit", "µg"), ("unit", str(number)))[: number % 3]
    return LogRow(
        kind,
        CHANNELS[number % len(CHANNELS)],
        1.7e9 + number * DAY_S / 40,
        topic=f"air/{number % 3}",
        id=f"p{number}",
        client_id="c",
        payload=ODD[number % len(ODD)],
        user=user,
        qos=number % 3,
        subscriptions=(number, 2**62) if kind == "notifications" else (),
    )


def ours(lake: Path, kind: str) -> list[dict[str, Any]]:
    return as_facts(whole(LakeLog(lake), kind).to_pylist())


def as_facts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = ("position", "at", "topic", "id", "client_id", "payload", "user", "qos")
    kept = [{name: each[name] for name in names} for each in rows]
    for each in kept:
        each["at"] = each["at"].astimezone(datetime.UTC)
    return sorted(kept, key=lambda each: each["position"])


@pytest.mark.parametrize("kind", ["publications", "notifications"])
def test_everybody_finds_the_same(lake: Path, kind: str, tmp_path: Path) -> None:
    expected = ours(lake, kind)
    assert len(expected) == {"publications": 68, "notifications": 18}[kind]
    assert DeltaTable(lake).count() == 86
    found = by_duckdb(lake, f"SELECT * FROM found WHERE kind = '{kind}'", tmp_path)
    assert as_facts(found) == expected
    by_polars = pl.read_delta(str(lake)).filter(pl.col("kind") == kind)
    assert as_facts(by_polars.to_dicts()) == expected


def test_channels_are_the_same_for_everybody(lake: Path, tmp_path: Path) -> None:
    expected = sorted(CHANNELS)
    assert LakeLog(lake).channels() == expected
    assert sorted(pl.read_delta(str(lake))["channel"].unique().to_list()) == expected
    found = by_duckdb(lake, "SELECT DISTINCT channel FROM found", tmp_path)
    assert sorted(row["channel"] for row in found) == expected


def test_an_earlier_version_can_be_read(lake: Path) -> None:
    """Before rows were removed, as long as their files stay."""
    table = DeltaTable(lake)
    table.load_as_version(table.version() - 1)
    assert table.count() == 90


# -- typed tables --------------------------------------------------------------------------------


ROUNDS = 5


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Attributes that come and go and change their types; part of it was compacted."""
    folder = tmp_path_factory.mktemp("typed")
    writer = LakeAppender(folder / "lake")
    payloads = [
        b'{"NO2": 1.5, "no2": "x", "lat": 45.8, "long": 15.98}',
        b'{"NO2": 2, "a.b": true, "a": {"b": [1]}, "odd name; (x=1)": 7}',
        b'{"NO2": "text", "lat": 45.8, "long": 15.98, "\xc4\xb0": null}',
        b"no JSON",
    ]
    monkey = pytest.MonkeyPatch()
    monkey.setattr(compaction, "NEWEST_FILES_MAX", 2)
    for number in range(ROUNDS):
        taken = [
            (
                position,
                LogRow(
                    "publications",
                    "air",
                    1.7e9 + position * 0.001,
                    "t",
                    str(position),
                    "c",
                    payload,
                ),
            )
            for position, payload in enumerate(payloads, number * len(payloads))
        ]
        writer.take(taken)
        ingest(None, folder / "lake", folder / "tables")
    monkey.undo()
    return folder / "tables"


def in_rows(rows: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    found = [{name: each[name] for name in names} for each in rows]
    for each in found:
        each["at"] = each["at"].astimezone(datetime.UTC)
    return sorted(found, key=lambda each: each["position"])


def test_typed_tables_are_the_same_for_everybody(tables: Path, tmp_path: Path) -> None:
    table = Table(tables, "air")
    rows = table.read()
    assert rows.num_rows == 4 * ROUNDS
    assert {"NO2", "NO2::string", "no2~2", "a%2Eb", "odd%20name%3B%20%28x%3D1%29"} <= set(
        rows.column_names
    )
    assert len(table.files()) < 2 * ROUNDS
    expected = in_rows(rows.to_pylist(), rows.column_names)
    data = Path(table.uri_of("data"))
    found = by_duckdb(data, "SELECT * FROM found", tmp_path)
    assert in_rows(found, rows.column_names) == expected
    by_polars = pl.read_delta(str(data))
    assert in_rows(by_polars.to_dicts(), rows.column_names) == expected
    assert by_polars.filter(pl.col("cell") == "33TWL77").height == 2 * ROUNDS
    one_day = by_duckdb(data, "SELECT count(*) AS n FROM found WHERE day = '2023-11-14'", tmp_path)
    assert one_day == [{"n": rows.num_rows}]
    quality = pl.read_delta(table.uri_of("quality"))
    assert quality["rows"].sum() == rows.num_rows


# -- Spark's own reader --------------------------------------------------------------------------


DELTA_SPARK = "4.2"
"""The newest Spark that Delta has a jar for."""
DELTA = ("io.delta:delta-spark_4.2_2.13:4.4.0", "io.delta:delta-storage:4.4.0")
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.soak
def test_sparks_own_reader_finds_the_same(lake: Path, tables: Path, tmp_path: Path) -> None:
    try:
        jars = ",".join(map(str, sorted(fetched("delta", DELTA, alone=True).glob("*.jar"))))
    except JarsMissingError as error:
        pytest.skip(str(error))
    table = Table(tables, "air")
    wanted = [str(lake), table.uri_of("data"), table.uri_of("quality")]
    with spark_environment(f"{DELTA_SPARK}-delta", f"=={DELTA_SPARK}.*") as python:
        done = subprocess.run(
            [python, "-m", "tests.interop.delta_by_spark", jars, tmp_path, *wanted],
            capture_output=True, text=True, cwd=ROOT, timeout=5 * PATIENCE_S, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3_000:]
    now, data, quality = (pq.read_table(tmp_path / f"{n}.parquet") for n in range(3))
    for kind in ("publications", "notifications"):
        assert as_facts(now.filter(pc.field("kind") == kind).to_pylist()) == ours(lake, kind)
    assert now.num_rows == 86
    rows = table.read()
    expected = in_rows(rows.to_pylist(), rows.column_names)
    assert in_rows(data.to_pylist(), rows.column_names) == expected
    assert pc.sum(quality["rows"]).as_py() == rows.num_rows
