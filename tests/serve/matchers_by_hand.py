"""Matchers as a broker would tell of them, put together by hand: for tests of what people see."""

from __future__ import annotations

import time

from rove.elastic.view import MatchersView, MatcherView, Reconfiguration


def three_matchers() -> MatchersView:
    """Three processes, after splits that were done and a merge that was given up."""
    began = time.time() - 90
    out, split = "idle 8 % of the last 2 s, less than 20 %", "idle 11 % of the last 5,000 messages"
    merge = "idle 75 % of the last 10 s, more than 70 %"
    return MatchersView(
        layout="partitioned",
        matchers=[
            MatcherView(1, 101, 2, 60_000, 0.15, 2_400.5, 480_000, "member"),
            MatcherView(2, 102, 1, 20_000, 0.42, 2_400.5, 90_000, "member"),
            MatcherView(4, 104, 1, 20_000, 0.75, 2_400.5, 12_000, "member"),
        ],
        matchers_min=0,
        matchers_max=4,
        reconfigurations=[
            Reconfiguration("out", out, began, 0.8, 1, 100_000),
            Reconfiguration("split", split, began + 30, 0.25, 3, 40_000),
            Reconfiguration("merge", merge, began + 60, 1.5, 3, 0, "matcher 3 has died"),
        ],
        done={"out": 1, "split": 1},
        failed=1,
        tickets_waiting=3,
        is_reconfiguring=False,
    )
