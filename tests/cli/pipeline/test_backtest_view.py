"""A report on the terminal: days with their hours, or weeks with their days."""

from __future__ import annotations

import pytest

from rove.cli.pipeline.backtest_view import DAY_S, HOUR_S, bars, lines_of, show
from tests.pipeline.tables.test_backtest import report

BEGIN = 20_440 * DAY_S
"""A Thursday."""


def test_a_day_is_a_line_with_its_hours() -> None:
    hours = {BEGIN: (2, 0, 0), BEGIN + 23 * HOUR_S: (1, 0, 0), BEGIN + 2 * DAY_S: (0, 1, 4)}
    lines = lines_of(report(BEGIN, BEGIN + 3 * DAY_S, hours))
    assert [line.at for line in lines] == [BEGIN, BEGIN + DAY_S, BEGIN + 2 * DAY_S]
    assert lines[0].parts == (2, *[0] * 22, 1)
    assert [(line.first, line.second, line.both) for line in lines] == [
        (3, 0, 0),
        (0, 0, 0),
        (0, 1, 4),
    ]


def test_many_days_are_weeks() -> None:
    lines = lines_of(report(BEGIN, BEGIN + 70 * DAY_S, {BEGIN + 4 * DAY_S: (7, 0, 0)}))
    assert len(lines) == 11
    assert all(len(line.parts) == 7 for line in lines)
    assert lines[0].at == BEGIN - 3 * DAY_S
    assert lines[1].parts == (7, 0, 0, 0, 0, 0, 0)


def test_what_is_due_when_the_period_has_ended_has_a_line_too() -> None:
    lines = lines_of(report(BEGIN, BEGIN + DAY_S, {BEGIN + DAY_S: (1, 0, 0)}))
    assert [line.first for line in lines] == [0, 1]


def test_bars_grow_and_zero_is_empty() -> None:
    assert bars((0, 1, 50, 100), 100) == " ▁▄█"
    assert bars((1,), 1) == "▅"


def test_one_text_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    show(report(BEGIN, BEGIN + 2 * DAY_S, {BEGIN: (5, 0, 0)}))
    said = capsys.readouterr().out
    assert "notifications  5 (5 % of 100 publications)" in said
    assert "a day          2.5, on the wire about 250 B (100 B each)" in said
    assert "by hour, up to 5" in said
    assert "publisher, 1 of 3" in said
    assert '2025-12-18 00:00 air/a ann {"NO2": 41}' in said
    assert "read 1.0 KB of 100 KB (1 %), 50 rows in 1 of 4 files; 1.5 s, 0.5 s of CPU" in said
    assert "against" not in said


def test_two_texts_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    show(report(BEGIN, BEGIN + 2 * DAY_S, {BEGIN: (5, 2, 1)}, against="NO2 > 9"))
    said = capsys.readouterr().out
    assert "against        3 (NO2 > 9)" in said
    assert "differences    only by the first 5, only by the second 2, both 1" in said
    assert "examples of only the first" in said


def test_nothing_is_told_too(capsys: pytest.CaptureFixture[str]) -> None:
    show(report(BEGIN, BEGIN + DAY_S, {}))
    said = capsys.readouterr().out
    assert "notifications  0 (0 % of 100 publications)" in said
    assert "by hour" not in said
