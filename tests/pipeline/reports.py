"""Reports of backtests that never were, for those who show them."""

from __future__ import annotations

from collections.abc import Mapping

from rove.pipeline.backtest import Cost, Count, Report, Shown


def report(
    since: float,
    until: float,
    hours: Mapping[int, tuple[int, int, int]],
    against: str | None = None,
) -> Report:
    """With so many notifications in the hours that begin then: first, second and both."""
    counts = [Count(str(at), *numbers) for at, numbers in sorted(hours.items())]
    first, second, both = (
        sum(getattr(count, name) for count in counts) for name in ("first", "second", "both")
    )
    shown = [Shown(since, since, "p1", "ann", "air/a", {"NO2": 41})] if counts else []
    return Report(
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
        publishers=[Count("ann", first, second, both)],
        publishers_all=3,
        topics=[Count("air/a", first, second, both)],
        topics_all=1,
        examples={"first": shown, "second": [], "both": []},
        notification_bytes=100.0,
        cost=Cost(
            rows_read=50,
            bytes_read=1_000,
            bytes_all=100_000,
            files_read=1,
            files_all=4,
            seconds=1.5,
            cpu_s=0.5,
        ),
    )
