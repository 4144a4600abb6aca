"""The bench of backtests: a table as ingestion leaves it, and answers that are checked."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest

from rove.bench.match.engines import WrongAnswerError
from rove.bench.pipeline import backtest as bench
from rove.errors import UsageError
from rove.pipeline.tables.backtest_sources import TableSource
from rove.pipeline.tables.table import Table
from tests.pipeline.tables.test_backtest import report

ROWS, DAYS = 3_000, 2


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return bench.make_table(tmp_path_factory.mktemp("tables"), ROWS, DAYS)


def test_the_table_is_whole(table: Table) -> None:
    rows = table.read()
    assert sorted(rows["position"].to_pylist()) == list(range(ROWS))
    assert {entry.day for entry in table.files()} == {"2025-11-16", "2025-11-17"}
    assert set(rows.column_names) >= {"lat", "NO2", "battery", "alarm", "kind"}
    for entry in table.files():
        assert entry.box is not None
        assert entry.at_min_us <= entry.at_max_us
    per_file = {entry.rows for entry in table.files()}
    assert sum(entry.rows for entry in table.files()) == ROWS
    assert len(per_file) > 1
    assert pc.max(rows["battery"]).as_py() <= 100


def test_metadata_tell_what_a_text_needs(table: Table) -> None:
    size_bytes = sum(entry.size_bytes for entry in table.files())
    needed = {
        name: bench.planned_bytes(table, bench.question(text, DAYS))
        for name, text in bench.TEXTS.items()
    }
    assert 0 < needed["place"] < needed["broad"] < size_bytes
    footers = needed["rare"]
    assert footers < needed["broad"]


@pytest.mark.soak
def test_everything_is_measured_and_checked(tmp_path: Path) -> None:
    """With a Spark of its own."""
    found = {one.name: one for one in bench.measures(ROWS, DAYS, tmp_path, lambda text: None)}
    assert found["backtest.table"].value == ROWS
    assert {f"backtest.{name}.read" for name in bench.TEXTS} <= set(found)
    assert found["backtest.broad.notifications"].value > ROWS / 2
    place, broad = (found[f"backtest.{name}.planned"].value for name in ("place", "broad"))
    assert 0 < place < broad < 100
    assert found["backtest.place.read"].goal == "≤ 5 %"


def test_a_wrong_answer_ends_it(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = report(0, 3_600, {0: (7, 0, 0)})
    monkeypatch.setattr(bench, "backtest", lambda *asked: wrong)
    history = TableSource(table.uri.rpartition("/")[0])
    with pytest.raises(WrongAnswerError, match="the backtest found 7, the matcher 0"):
        bench.check(None, history, table, "NO2 > 1000000")


def test_a_disk_that_is_too_small_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"rows need 1000000000000 GB of disk"):
        next(bench.measures(10**19, DAYS, tmp_path, lambda text: None))
