"""The picture of a backtest: what is in it, and that it is one."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from rove.errors import UsageError
from rove.pipeline.tables.backtest_plot import by_hour_of_day, draw, over_period
from tests.pipeline.tables.test_backtest import report

DAY_S, HOUR_S = 86_400, 3_600
BEGIN = 20_440 * DAY_S
HOURS = {BEGIN + 3 * HOUR_S: (2, 0, 0), BEGIN + DAY_S + 3 * HOUR_S: (1, 4, 5)}


def test_every_hour_of_the_period_is_there() -> None:
    begin, series = over_period(report(BEGIN, BEGIN + 2 * DAY_S, HOURS), HOUR_S)
    assert begin == BEGIN
    assert [name for name, _ in series] == ["notifications"]
    assert series[0][1].tolist() == [0, 0, 0, 2, *[0] * 23, 1, *[0] * 20]


def test_by_day_and_by_hour_of_the_day() -> None:
    two = report(BEGIN, BEGIN + 3 * DAY_S, HOURS, against="NO2 > 9")
    _, series = over_period(two, DAY_S)
    assert [counts.tolist() for _, counts in series] == [[2, 1, 0], [0, 4, 0], [0, 5, 0]]
    assert [counts[3] for _, counts in by_hour_of_day(two)] == [3, 4, 5]


@pytest.mark.parametrize(("days", "against"), [(2, None), (100, "NO2 > 9")])
def test_a_picture_is_written(tmp_path: Path, days: int, against: str | None) -> None:
    path = tmp_path / "plot.png"
    draw(report(BEGIN, BEGIN + days * DAY_S, HOURS, against), path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_it_is_said_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = builtins.__import__

    def no_matplotlib(name: str, *more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(f"no {name}")
        return imported(name, *more)

    monkeypatch.setattr(builtins, "__import__", no_matplotlib)
    with pytest.raises(UsageError, match=r"pip install rove\[plots\]"):
        draw(report(BEGIN, BEGIN + DAY_S, HOURS), tmp_path / "plot.png")
