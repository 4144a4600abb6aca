"""The full scan against the oracle of the language, on the workloads and on drawn boxes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.bench.match import scan as scan_module
from rove.bench.match.scan import Scan
from rove.lang import matches, parse
from rove.testing.boxes import Boxes, Events, Name, workload
from tests.effort import is_soak


def scan_of(boxes: Boxes) -> Scan:
    """A scan whose ids are the rows and a thousand."""
    ids = np.arange(1_000, 1_000 + len(boxes))
    return Scan(boxes.attributes, boxes.lows, boxes.highs, ids, boxes.speeds)


def assert_equal_to_the_oracle(boxes: Boxes, events: Events, t: float) -> int:
    """Compares every publication with every row; gives the number of matches."""
    subscriptions = [parse(boxes.text(row)) for row in range(len(boxes))]
    scan, found = scan_of(boxes), 0
    for number in range(len(events)):
        publication = events.publication(number)
        wanted = [
            1_000 + row
            for row, subscription in enumerate(subscriptions)
            if matches(subscription, publication, t)
        ]
        assert scan.match(events.values[number], t).tolist() == wanted
        found += len(wanted)
    return found


@pytest.mark.parametrize("name", ["W1", "W2", "W3", "W4"])
def test_workloads_match_as_the_oracle_says(name: Name, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "_PIECE_ROWS", 64)
    boxes, events = workload(name, 200, 40) if is_soak() else workload(name, 100, 20)
    # The lower corner of each box lies in it: enough matches to compare, on bounds.
    corners = np.where(np.isinf(boxes.lows), events.values[0][:, None], boxes.lows).T
    all_values = np.concatenate([events.values, events.with_missing(0.3).values, corners[:20]])
    assert assert_equal_to_the_oracle(boxes, Events(events.attributes, all_values), 0.0) >= 20
    assert_equal_to_the_oracle(boxes, events, 7.3)


INFINITY = math.inf
BOUNDS = st.sampled_from([-INFINITY, -1.5, -0.0, 0.0, 0.1, 1.0, 3.0, 2.0**53, INFINITY])
VALUES = st.sampled_from([-1.5, -0.0, 0.0, 0.1, math.nextafter(0.1, 1), 1.0, 3.0, math.nan])
SPEEDS = st.sampled_from([0.0, 0.1, -2.5])
ROWS = st.lists(st.tuples(BOUNDS, BOUNDS, SPEEDS, BOUNDS, BOUNDS, SPEEDS), max_size=8)


@given(ROWS, VALUES, VALUES, st.sampled_from([0.0, 0.3, 8.0]))
def test_drawn_boxes_match_as_the_oracle_says(
    rows: list[tuple[float, ...]], a: float, b: float, t: float
) -> None:
    columns = np.array(rows).reshape(-1, 2, 3)
    lows, highs = columns[:, :, :2].min(axis=2).T, columns[:, :, :2].max(axis=2).T
    # A bound that is infinite on the wrong side cannot be written as a text.
    lows, highs = np.where(lows == INFINITY, 0, lows), np.where(highs == -INFINITY, 0, highs)
    boxes = Boxes(("a", "b"), lows, highs, columns[:, :, 2].T)
    assert_equal_to_the_oracle(boxes, Events(("a", "b"), np.array([[a, b]])), t)


def test_without_subscriptions_nothing_matches() -> None:
    scan = Scan(("a",), np.empty((1, 0)), np.empty((1, 0)), np.empty(0, np.int64))
    assert len(scan) == 0
    assert scan.match(np.array([1.0])).tolist() == []


def test_an_attribute_that_nobody_asks_for_may_be_missing() -> None:
    nothing = np.array([[-INFINITY, -INFINITY]])
    scan = Scan(("a",), nothing, -nothing, np.array([4, 9]))
    assert scan.match(np.array([math.nan])).tolist() == [4, 9]
    assert scan.match(np.array([1.0])).tolist() == [4, 9]


def test_a_later_publication_does_not_change_an_earlier_answer() -> None:
    boxes, events = workload("W4", 2_000, 2)
    scan = scan_of(boxes.at_rest())
    first = scan.match(events.values[0])
    before = first.copy()
    scan.match(events.values[1])
    assert np.array_equal(first, before)
    assert len(first) > 0


def test_arrays_of_the_wrong_shape_are_refused() -> None:
    with pytest.raises(AssertionError, match="one column per id"):
        Scan(("a",), np.zeros((2, 1)), np.zeros((2, 1)), np.array([1]))
