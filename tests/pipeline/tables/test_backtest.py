"""A backtest says what the oracle says, of tables and of the lake, and reads little."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from rove.lang import TextError
from rove.pipeline.lake.log import Lake
from rove.pipeline.tables.backtest import (
    BacktestCost,
    BacktestError,
    BacktestQuery,
    BacktestReport,
    CountByBits,
    ExampleNotification,
    backtest,
)
from rove.pipeline.tables.backtest_sources import BacktestSource, LakeSource, TableSource
from rove.pipeline.tables.table import Table
from tests.effort import some
from tests.pipeline.tables.test_backtest_sources import BEGIN, DAY, ME, RANKED, Past

SINCE, UNTIL = BEGIN + 0.5 * DAY, BEGIN + 2.75 * DAY


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Past:
    return Past(tmp_path_factory.mktemp("past"))


def question(text: str, **more: Any) -> BacktestQuery:
    return BacktestQuery(**{"text": text, "since": SINCE, "until": UNTIL, "me": ME, **more})


def hours(ats: Sequence[float]) -> dict[int, int]:
    return dict(Counter(int(at // 3600) * 3600 for at in ats))


def check(report: BacktestReport, past: Past, text: str, channel: str | None = None) -> None:
    """Everything that is counted, against the oracle."""
    expected = past.notified(text, SINCE, UNTIL, channel=channel)
    rows = {row.id: row for row in past.rows}
    told = [rows[one.publication] for one in expected]
    assert report.notifications == report.only_first == len(expected)
    assert {int(hour.name): hour.first for hour in report.hours} == hours(
        [one.at for one in expected]
    )
    assert sum(day.first for day in report.days()) == len(expected)
    publishers = Counter(row.client_id for row in told)
    assert {one.name: one.first for one in report.publishers} == dict(publishers)
    assert report.publishers_all == len(publishers)
    assert {one.name: one.first for one in report.topics} == dict(
        Counter(row.topic for row in told)
    )
    assert report.publications == len(past.published(SINCE, UNTIL, channel))
    given = {one.publication: one for one in expected}
    for shown in report.examples["first"]:
        selected = {k: v for k, v in given[shown.id].attributes.items() if k != "topic"}
        assert dict(shown.attributes) == selected
        assert (shown.client_id, shown.topic) == (rows[shown.id].client_id, rows[shown.id].topic)
    assert len(report.examples["first"]) == min(3, len(expected))


@pytest.mark.parametrize(
    "text",
    [
        RANKED[0],
        pytest.param(
            "SELECT NO2, kind WHERE kind = 'car' AND NO2 BETWEEN 20 AND 60", marks=pytest.mark.soak
        ),
        pytest.param(
            "distance(lat, long, 45.8, 15.97) < 5000 OR NO2 BETWEEN t / 5000 AND me.limit",
            marks=pytest.mark.soak,
        ),
    ],
)
@pytest.mark.parametrize("source", some(["lake", "tables"]))
def test_the_oracle_agrees(spark: Any, past: Past, source: str, text: str) -> None:
    history: BacktestSource = (
        TableSource(past.tables) if source == "tables" else LakeSource(Lake(past.lake))
    )
    told: list[tuple[int, int]] = []
    report = backtest(
        spark, history, question(text, examples=3), lambda done, of: told.append((done, of))
    )
    check(report, past, text)
    assert all(0 <= done <= of for done, of in told)
    assert report.share == report.notifications / report.publications
    assert report.per_day == pytest.approx(report.notifications / 2.25)
    assert report.notification_bytes > 20
    assert report.cost.bytes_read > 0
    assert report.cost.cpu_s > 0
    msgspec.json.encode(report)


@pytest.mark.soak
def test_two_texts_are_compared(spark: Any, past: Past) -> None:
    """A text and a ranked one with half of its condition."""
    first, second = "NO2 > 30", "NO2 > 15 AND kind = 'car' ORDER BY NO2 LIMIT 2 WITHIN 4 HOURS"
    history = TableSource(past.tables, ["air"])
    report = backtest(spark, history, question(first, against=second, examples=2))
    a, b = (
        {one.publication for one in past.notified(text, SINCE, UNTIL, channel="air")}
        for text in (first, second)
    )
    assert a - b
    assert b - a
    assert a & b
    assert (report.only_first, report.only_second, report.both) == (
        len(a - b),
        len(b - a),
        len(a & b),
    )
    assert (report.notifications, report.notifications_against) == (len(a), len(b))
    for name, ids in (("first", a - b), ("second", b - a), ("both", a & b)):
        assert len(report.examples[name]) == min(2, len(ids))
        assert {one.id for one in report.examples[name]} <= ids
    assert report.publications == len(past.published(SINCE, UNTIL, "air"))


def test_little_is_read_of_what_cannot_match(spark: Any, past: Past) -> None:
    history = TableSource(past.tables, ["air"])
    everything = backtest(spark, history, question("lat IS NOT NULL OR lat IS NULL")).cost
    nothing = backtest(spark, history, question("missing > 3"))
    assert nothing.notifications == 0
    assert nothing.publications == len(past.published(SINCE, UNTIL, "air"))
    assert nothing.cost.files_read == nothing.cost.bytes_read == 0
    some = backtest(spark, history, question("lat > 45.899 AND long > 16.099")).cost
    assert 0 < some.files_read < everything.files_read == everything.files_all - _days_outside(past)
    assert some.bytes_read < everything.bytes_read


def _days_outside(past: Past) -> int:
    """Files that the period does not touch."""
    return sum(
        entry.at_max_us < SINCE * 1e6 or entry.at_min_us >= UNTIL * 1e6
        for entry in Table(past.tables, "air").files()
    )


def test_what_cannot_be_answered_is_told_in_a_line(spark: Any, past: Past) -> None:
    history = TableSource(past.tables)
    with pytest.raises(TextError, match="column 7"):
        backtest(spark, history, question("NO2 > >"))
    with pytest.raises(BacktestError, match=r"--since must lie before --until"):
        backtest(spark, history, question("NO2 > 3", since=UNTIL, until=SINCE))
    later = question("NO2 > 3", since=UNTIL + 10 * DAY, until=UNTIL + 11 * DAY)
    with pytest.raises(BacktestError, match=r"nothing was published .*2026-11-01 to 2026-11-03"):
        backtest(spark, history, later)
    with pytest.raises(BacktestError, match="nothing was published"):
        backtest(spark, LakeSource(Lake(past.lake)), later)


def report(
    since: float,
    until: float,
    hours: Mapping[int, tuple[int, int, int]],
    against: str | None = None,
) -> BacktestReport:
    """With so many notifications in the hours that begin then: first, second and both."""
    counts = [CountByBits(str(at), *numbers) for at, numbers in sorted(hours.items())]
    first, second, both = (
        sum(getattr(count, name) for count in counts) for name in ("first", "second", "both")
    )
    shown = [ExampleNotification(since, since, "p1", "ann", "air/a", {"NO2": 41})] if counts else []
    return BacktestReport(
        text="NO2 > 40",
        against=against,
        since=since,
        until=until,
        source="tables",
        channels=["air"],
        publications=100,
        only_first=first,
        only_second=second,
        both=both,
        hours=counts,
        publishers=[CountByBits("ann", first, second, both)],
        publishers_all=3,
        topics=[CountByBits("air/a", first, second, both)],
        topics_all=1,
        examples={"first": shown, "second": [], "both": []},
        notification_bytes=100.0,
        cost=BacktestCost(
            rows_read=50,
            bytes_read=1_000,
            bytes_all=100_000,
            files_read=1,
            files_all=4,
            seconds=1.5,
            cpu_s=0.5,
        ),
    )


def test_days_without_anything_are_days_too() -> None:
    hours = {int(BEGIN + DAY + hour * 3600): (1, 0, 0) for hour in (0, 1, 47)}
    found = report(BEGIN + 0.5 * DAY, BEGIN + 3 * DAY, hours)
    assert [(int(day.name) - BEGIN) / DAY for day in found.days()] == [0, 1, 2]
    assert [day.first for day in found.days()] == [0, 2, 1]
    assert found.bytes_per_day == pytest.approx(3 / 2.5 * 100)
