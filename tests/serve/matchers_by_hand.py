"""Matchers as a broker would tell of them, put together by hand: for tests of what people see."""

from __future__ import annotations

import time

from rove.elastic.view import MatchersView, MatcherView, Reconfiguration


def three_matchers() -> MatchersView:
    """The broker and two processes, after one split that was done and one that was given up."""
    began = time.time() - 90
    return MatchersView(
        layout="replicated",
        matchers=[
            MatcherView(0, 100, 1, 0, 0.9, 0.0, 12_000, "broker"),
            MatcherView(1, 101, 2, 60_000, 0.15, 2_400.5, 480_000, "member"),
            MatcherView(2, 102, 1, 40_000, 0.42, 1_900.0, 90_000, "member"),
        ],
        matchers_min=0,
        matchers_max=2,
        reconfigurations=[
            Reconfiguration("out", "the broker was idle 8 % of the time", began, 0.8, 1, 100_000),
            Reconfiguration("split", "1 was idle 11 % of the time", began + 30, 0.25, 2, 40_000),
            Reconfiguration(
                "merge", "2 was idle <b>75 %</b>", began + 60, 1.5, 2, 0, "matcher 1 has died"
            ),
        ],
        done={"out": 1, "split": 1},
        failed=1,
        tickets_waiting=3,
        is_reconfiguring=False,
    )
