"""Summaries of runs: Student's t against integrals and closed forms, the bootstrap, and Spark."""

from __future__ import annotations

import json
import math
import random
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rove.lab.summaries import (
    FREEDOM_EXACT_MAX,
    Observation,
    Summary,
    SummaryError,
    mean_interval,
    median_interval,
    observations,
    of_runs,
    read,
    summaries,
    summarise,
    t_mass,
    t_quantile,
)
from rove.metrics.database import Database, Reading, Run


def integral(t: float, freedom: int, steps: int = 20_000) -> float:
    """The mass from -t to t, by Simpson's rule over the density."""
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    scale = math.exp(log_scale) / math.sqrt(freedom * math.pi)
    x = np.linspace(0.0, t, steps + 1)
    density = scale * np.exp(-(freedom + 1) / 2 * np.log1p(x * x / freedom))
    weights = np.ones(steps + 1)
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    return 2 * float((weights * density).sum()) * t / steps / 3


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 8, 29, 30, 101, 1_000, 10_000])
def test_the_mass_is_the_integral_of_the_density(freedom: int) -> None:
    for t in (0.01, 0.5, 1.0, 1.96, 4.0, 12.0):
        assert t_mass(t, freedom) == pytest.approx(integral(t, freedom), abs=1e-10)
    assert t_mass(0.0, freedom) == 0.0


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99, 0.999])
def test_quantiles_are_those_of_closed_forms(confidence: float) -> None:
    assert t_quantile(confidence, 1) == pytest.approx(math.tan(math.pi * confidence / 2))
    by_hand = confidence * math.sqrt(2 / (1 - confidence**2))
    assert t_quantile(confidence, 2) == pytest.approx(by_hand)
    normal = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    assert t_quantile(confidence, 10**9) == pytest.approx(normal, abs=1e-7)


def test_quantiles_are_those_of_the_printed_table() -> None:
    printed = {3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 10: 2.228, 20: 2.086, 30: 2.042, 120: 1.980}
    found = {freedom: round(t_quantile(0.95, freedom), 3) for freedom in printed}
    assert found == printed


def test_the_quantile_has_no_step_where_the_series_takes_over() -> None:
    around = [t_quantile(0.95, FREEDOM_EXACT_MAX + step) for step in (-1, 0, 1, 2)]
    steps = np.diff(around)
    assert steps == pytest.approx([steps[0]] * 3, rel=1e-3)


def test_the_intervals_of_means_hold_as_often_as_they_say() -> None:
    drawn = np.random.default_rng(3)
    intervals = [mean_interval(drawn.normal(7.0, 2.0, 6)) for _ in range(2_000)]
    hits = sum(1 for each in intervals if each is not None and each[0] <= 7.0 <= each[1])
    assert 0.935 < hits / 2_000 < 0.965


def test_the_intervals_of_medians_hold_nearly_as_often() -> None:
    drawn = np.random.default_rng(4)
    intervals = [
        median_interval(drawn.exponential(1.0, 25), resamples=500, seed=each) for each in range(400)
    ]
    hits = sum(1 for each in intervals if each is not None and each[0] <= math.log(2) <= each[1])
    assert 0.89 < hits / 400 < 0.99


def test_the_bootstrap_is_the_same_every_time_and_in_any_order() -> None:
    values = np.array([3.0, 9.0, 4.0, 4.5, 8.0, 1.0])
    first = median_interval(values)
    assert first == median_interval(values[::-1]) == median_interval(values)
    assert first != median_interval(values, seed=1, resamples=7)
    assert first is not None
    assert 1.0 <= first[0] < 4.25 < first[1] <= 9.0


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
            database.put_run(Run(f"r{number}", "dense", "", number, began, began + 50, facts))
            for at in range(50):
                for engine, times in (("area", 1), ("tile", 4)):
                    labels = f'engine="{engine}",run="r{number}",scenario="dense"'
                    sent = Reading(
                        "rove_world_publications_total", labels, began + at, times * rate * at
                    )
                    held = Reading("rove_world_subscriptions", labels, began + at, 7.0)
                    database.put_readings([sent, held])
        database.put_run(Run("empty", "sparse", "", 1, 2_000_000.0))
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
