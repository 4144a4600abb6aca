"""A lake of the old layout becomes a table with the same rows, whatever happens on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from rove.cli import main
from rove.lake import migration
from rove.lake.log import LakeLog
from rove.lake.migration import is_old, migrate
from rove.lake.storage import LakeError
from rove.serve.disk.lake import LakeAppender

AT_US = 1_700_000_000_000_000
COLUMNS = [
    ("position", pa.int64()),
    ("at", pa.timestamp("us", tz="UTC")),
    ("topic", pa.dictionary(pa.int32(), pa.string())),
    ("id", pa.string()),
    ("client_id", pa.dictionary(pa.int32(), pa.string())),
    ("payload", pa.binary()),
    ("user", pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))),
    ("qos", pa.int8()),
    ("earlier", pa.list_(pa.string())),
]


def put(lake: Path, kind: str, channel: str, positions: list[int]) -> None:
    """A file as the broker wrote them."""
    folder = lake / kind / f"channel={channel}" / "day=2023-11-14"
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = [
        {
            "position": position,
            "at": AT_US + position,
            "topic": "air/1",
            "id": f"p{position}",
            "client_id": "c",
            "payload": b"\xff%d" % position,
            "user": [{"name": "unit", "value": "µg"}],
            "qos": 1,
            "earlier": ["road"],
        }
        for position in positions
    ]
    columns = list(COLUMNS)
    if kind == "notifications":
        columns.append(("subscriptions", pa.list_(pa.int64())))
        rows = [row | {"subscriptions": [row["position"]]} for row in rows]
    table = pa.Table.from_pylist(rows, schema=pa.schema(columns))
    pq.write_table(table, folder / f"{positions[0]:016d}-{positions[-1]:016d}.parquet")


def old_lake(lake: Path) -> None:
    put(lake, "publications", "air", [1, 4, 7])
    put(lake, "publications", "air", [10, 12])
    put(lake, "publications", "a%2Fb", [2, 5, 11])
    put(lake, "notifications", "air", [3, 8])
    put(lake, "subscriptions", "__HIVE_DEFAULT_PARTITION__", [0, 6, 9])
    (lake / "_position").write_text("11\n")


def found(lake: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(lake).to_pyarrow_table().sort_by("position").to_pylist()
    return rows


@pytest.mark.parametrize("stretch_bytes", [1, 10**9])
def test_every_row_is_there_as_it_was(
    tmp_path: Path, stretch_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "RANGE_BYTES", stretch_bytes)
    lake = tmp_path / "lake"
    old_lake(lake)
    told: list[tuple[int, int]] = []
    assert migrate(lake, lambda done, total: told.append((done, total))) == 12
    rows = found(lake)
    # The broker still has 12 and writes it again: others of its batch may be missing.
    assert [row["position"] for row in rows] == list(range(12))
    assert [row["channel"] for row in rows[:4]] == [None, "air", "a/b", "air"]
    assert rows[3]["subscriptions"] == [3]
    assert rows[2]["subscriptions"] is None
    assert (rows[5]["payload"], rows[5]["qos"], rows[5]["earlier"]) == (b"\xff5", 1, ["road"])
    assert rows[5]["user"] == [{"name": "unit", "value": "µg"}]
    assert str(rows[5]["day"]) == "2023-11-14"
    assert LakeLog(lake).position() == 11
    assert told[-1][0] == told[-1][1]
    assert sorted(path.name for path in lake.iterdir()) == [
        "_delta_log", "_flushed", "kind=notifications", "kind=publications", "kind=subscriptions",
    ]  # fmt: skip
    assert (tmp_path / "lake.old" / "_position").exists()
    LakeAppender(lake)


def test_killed_anywhere_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "RANGE_BYTES", 1)
    for stop in range(8):
        lake = tmp_path / str(stop) / "lake"
        old_lake(lake)
        real, calls = migration._append, iter(range(100))

        def killed(*arguments: Any, real: Any = real, calls: Any = calls, stop: int = stop) -> int:
            if next(calls) == stop:
                raise KeyboardInterrupt
            return int(real(*arguments))

        with monkeypatch.context() as patch:
            patch.setattr(migration, "_append", killed)
            try:
                migrate(lake)
            except KeyboardInterrupt:
                with pytest.raises(LakeError, match="rove lake migrate"):
                    LakeAppender(lake)
                migrate(lake)
        assert [row["position"] for row in found(lake)] == list(range(12))
        assert not is_old(lake)


def test_long_names_are_cut_and_stay_apart(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    put(lake, "publications", "x" * 150 + "~1", [1])
    put(lake, "publications", "x" * 150 + "~2", [2])
    migrate(lake)
    names = LakeLog(lake).channels()
    assert len(names) == 2
    assert all(name.startswith("xxx") and len(name) <= 80 for name in names)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = tmp_path / "lake"
    old_lake(lake)
    assert main(["lake", "migrate", str(lake)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "migrated   12 rows",
        f"old files  {lake}.old",
    ]
    assert main(["lake", "migrate", str(lake)]) == 2
    assert "there is no lake of an earlier Rove in" in capsys.readouterr().err
