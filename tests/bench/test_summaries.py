"""Summaries of runs: in Python, from the metrics database, and in Spark."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from rove.bench.summaries import (
    Observation,
    Summary,
    SummaryError,
    observations,
    of_runs,
    read,
    summaries,
    summarise,
)
from rove.metrics.database import Database, Reading, RunRecord


def test_one_run_has_no_interval_and_equal_runs_a_narrow_one() -> None:
    (one,) = summarise([Observation("a", 2.0, "s")])
    assert one == Summary("a", "s", None, 1, 2.0, None, None, 2.0, None, None, None)
    (three,) = summarise([Observation("a", 2.0, "s", 1.5, "b")] * 3)
    assert (three.mean_low, three.mean_high, three.deviation) == (2.0, 2.0, 0.0)
    assert (three.ratio, three.ratio_low, three.ratio_high) == (1.5, 1.5, 1.5)
    assert summarise([]) == []


def test_measures_are_told_apart_and_keep_their_order(tmp_path: Path) -> None:
    lines = [("b", 1, "s"), ("a", 2, "s"), ("b", 3, "s"), ("b", 9, "ms")]
    for number in range(2):
        text = "\n".join(
            json.dumps(dict(zip(("name", "value", "unit"), x, strict=True))) for x in lines
        )
        (tmp_path / f"{number}.json").write_text(text + "\n\n")
    found = summarise(read([tmp_path / "0.json", tmp_path / "1.json"]))
    assert [(s.name, s.unit, s.n, s.mean) for s in found] == [
        ("b", "s", 4, 2.0), ("a", "s", 2, 2.0), ("b", "ms", 2, 9.0)
    ]  # fmt: skip


@pytest.mark.parametrize("line", ["nonsense", '{"name": "a", "value": "x"}', "[1]", '"\udc80"'])
def test_a_line_that_is_no_measure_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b'{"name":"a","value":1}\n' + line.encode(errors="surrogateescape"))
    with pytest.raises(SummaryError, match=r"x\.json, line 2 is no measure"):
        read([path])
    with pytest.raises(SummaryError, match=r"cannot read .*No such file"):
        read([tmp_path / "none.json"])


def test_runs_of_a_database_are_observations(tmp_path: Path) -> None:
    """Three runs of two engines, of which the live one publishes so much a second."""
    with Database(str(tmp_path / "metrics.db")) as database:
        for number, rate in enumerate((10.0, 20.0, 30.0)):
            began = 1_000_000.0 + 100 * number
            facts: dict[str, object] = {"live": "area", "engines": ["area", "tile"]}
            database.put_run(RunRecord(f"r{number}", "dense", "", number, began, began + 50, facts))
            for at in range(50):
                for engine, times in (("area", 1), ("tile", 4)):
                    labels = f'engine="{engine}",run="r{number}",scenario="dense"'
                    sent = Reading(
                        "rove_world_publications_total", labels, began + at, times * rate * at
                    )
                    held = Reading("rove_world_subscriptions", labels, began + at, 7.0)
                    database.put_readings([sent, held])
        database.put_run(RunRecord("empty", "sparse", "", 1, 2_000_000.0))
        found = summarise(of_runs(database))
        assert found == summarise(of_runs(database, "dense"))
        assert of_runs(database, "sparse") == []
    by_name = {one.name: one for one in found}
    assert by_name.keys() == {
        f"dense.{engine}.{figure}"
        for engine in ("area", "tile")
        for figure in ("publications", "subscriptions")
    }
    tile = by_name["dense.tile.publications"]
    assert (tile.n, tile.mean, tile.unit, tile.against) == (3, 80.0, "1/s", "area")
    assert (tile.ratio, tile.ratio_low, tile.ratio_high) == (4.0, 4.0, 4.0)
    area = by_name["dense.area.publications"]
    assert (area.mean, area.median, area.deviation, area.against) == (20.0, 20.0, 10.0, None)
    assert by_name["dense.area.subscriptions"].mean == 7.0


def test_spark_finds_the_same(spark: Any, tmp_path: Path) -> None:
    drawn = random.Random(6)
    for number in range(3):
        with (tmp_path / f"{number}.json").open("w") as file:
            for _ in range(20):
                value = {"name": drawn.choice("ab"), "value": drawn.gauss(5, 1), "unit": "s"}
                if drawn.random() < 0.5:
                    value |= {"ratio": drawn.random(), "against": "c"}
                file.write(json.dumps(value) + "\n")
            file.write('{"name": "once", "value": 4, "unit": "s"}\n' if number == 1 else "")
    wanted = {(s.name, s.against): s for s in summarise(read(sorted(tmp_path.glob("*.json"))))}
    rows = summaries(observations(spark, [str(tmp_path)])).collect()
    found = {(row["name"], row["against"]): Summary(**row.asDict()) for row in rows}
    assert found.keys() == wanted.keys()
    for key, one in found.items():
        for name in Summary.__struct_fields__[3:]:
            value = getattr(wanted[key], name)
            assert getattr(one, name) == (None if value is None else pytest.approx(value)), name
