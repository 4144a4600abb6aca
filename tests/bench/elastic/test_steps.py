"""The sums behind experiment 3, on traces that are made up."""

import numpy as np
import pytest

from rove.bench.elastic import steps as elastic_steps
from rove.bench.elastic.steps import Change, Step
from rove.elastic.view import Reconfiguration

SENT_S = np.arange(0.0, 10.0, 0.01)
DELAYS_MS = np.where((SENT_S >= 4.5) & (SENT_S < 5.5), 80.0, 2.0)
"""A second of trouble in the middle, across a whole second of the clock."""


def change(begin_s: float) -> Change:
    return Change(begin_s, begin_s + 0.1, "split", "busy", 2, "", 1.0, 1.0)


def test_steps_follow_each_other() -> None:
    steps = elastic_steps.steps_of([(95, 2.0), (292, 3.0)], ["a", "b"])
    assert steps == [Step("a", 95, 0.0, 2.0), Step("b", 292, 2.0, 5.0)]


def test_seconds_are_those_of_sending_and_empty_ones_are_left_out() -> None:
    seconds = elastic_steps.seconds_of(np.array([0.1, 0.9, 2.5]), np.array([1.0, 3.0, 7.0]))
    assert [(one.begin_s, one.mean_ms, one.p50_ms) for one in seconds] == [
        (0.0, 2.0, 2.0),
        (2.0, 7.0, 7.0),
    ]


def test_the_delays_of_a_step_are_of_what_was_sent_in_it() -> None:
    step = Step("a", 95, 4.0, 5.0)
    assert len(elastic_steps.within(step, SENT_S, DELAYS_MS)) == 100
    after = elastic_steps.within(Step("b", 95, 20.0, 21.0), SENT_S, DELAYS_MS)
    assert elastic_steps.stats(after) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("begin_s", "end_s", "worst_ms"),
    [(4.9, 5.0, 80.0), (3.9, 4.0, 80.0), (5.9, 6.1, 80.0), (2.0, 2.2, 2.0), (8.0, 9.0, 2.0)],
)
def test_the_worst_second_around_a_change(begin_s: float, end_s: float, worst_ms: float) -> None:
    worst = elastic_steps.worst_p99_ms(begin_s, end_s, SENT_S, DELAYS_MS)
    assert worst == pytest.approx(worst_ms)


def test_a_time_without_publications_has_no_worst_second() -> None:
    assert elastic_steps.worst_p99_ms(50.0, 51.0, SENT_S, DELAYS_MS) == 0.0


def test_changes_before_the_load_are_not_its_own() -> None:
    def at(seconds: float) -> Reconfiguration:
        return Reconfiguration("split", "busy", 1_000.0 + seconds, 0.5, 2, 100)

    found = elastic_steps.changes_of([at(-20.0), at(5.0)], 1_000.0, SENT_S, DELAYS_MS)
    assert [(one.begin_s, one.end_s, one.kind, one.p99_ms) for one in found] == [
        (5.0, 5.5, "split", 80.0)
    ]


def test_what_was_slow_before_a_change_is_told_apart() -> None:
    late = Reconfiguration("merge", "idle", 5.6, 0.1, 1, 100)
    early = Reconfiguration("split", "busy", 4.4, 0.1, 2, 100)
    found = elastic_steps.changes_of([early, late], 0.0, SENT_S, DELAYS_MS)
    assert [(one.before_p99_ms, one.p99_ms) for one in found] == [(2.0, 80.0), (80.0, 80.0)]


def test_a_change_belongs_to_the_step_it_began_in() -> None:
    first, last = elastic_steps.steps_of([(95, 2.0), (292, 3.0)], ["a", "b"])
    changes = [change(0.5), change(1.9), change(2.0), change(99.0)]
    assert elastic_steps.changes_in(first, changes, is_last=False) == 2
    assert elastic_steps.changes_in(last, changes, is_last=False) == 1
    assert elastic_steps.changes_in(last, changes, is_last=True) == 2
