"""Boxes that move alike: lines of memory and inner columns, against the full scan."""

import numpy as np
import pytest

from rove.lang import matches, parse
from rove.match import Matcher
from rove.match.index import layout
from rove.match.index.drifts import Times, extremes
from rove.match.index.rows import Floats, from_boxes
from rove.match.scan import Scan
from rove.testing.boxes import workload

COUNT = 5_000


@pytest.fixture(scope="module")
def world() -> tuple[Matcher, Scan, Floats]:
    boxes, events = workload("W2", COUNT, 200)
    matcher = Matcher()
    ids = np.arange(COUNT)
    matcher.add_boxes(ids, boxes.attributes, boxes.lows, boxes.highs, boxes.speeds)
    scan = Scan(boxes.attributes, boxes.lows, boxes.highs, ids, boxes.speeds)
    on_bounds = boxes.lows[:, :200].T, boxes.speeds[:, :200].T if boxes.speeds is not None else 0
    return matcher, scan, np.stack([events.values, *np.broadcast_arrays(*on_bounds)])


@pytest.mark.parametrize("at", [0.0, 0.37, 3.0, 6.1, 7.0, 1e4, 1e9])
def test_they_are_where_they_are_at_the_moment(
    world: tuple[Matcher, Scan, Floats], at: float
) -> None:
    matcher, scan, (anywhere, lows, speeds) = world
    values = np.concatenate([anywhere, lows + speeds * at])  # the latter on a bound to the bit
    found = matcher.match_columns(("x", "y"), values, np.full(len(values), at))
    ends = found.starts(len(values))
    for number, one in enumerate(values):
        ids = found.subscriptions[ends[number] : ends[number + 1]]
        assert np.array_equal(np.sort(ids), np.sort(scan.match(one, at)))
        assert number < 200 or number - 200 in ids


def test_the_ends_of_the_horizon_give_the_extremes() -> None:
    rows = from_boxes(
        np.arange(2),
        [0],
        np.array([[0.0, 5.0]]),
        np.array([[1.0, 6.0]]),
        np.array([[2.0, -1.0]]),
    )
    least, most = extremes(rows, Times(1.0, 4.0))
    assert least.tolist() == [2.0, 3.0, 1.0, 2.0]
    assert most.tolist() == [8.0, 9.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("texts", "alike"),
    [
        (["x >= 1 + t AND x <= 5 + t", "x >= 2 - t AND x <= 7 - t"], True),
        (["x >= 1 + t", "x >= 2 - t"], True),
        (["x >= 1 + t", "x > 2 - t"], False),
        (["x >= 1 + t", "y >= 2 - t"], False),
        (["x >= 1 + t", "x >= least(t, 3)"], False),
        (["x >= 1 + t", "x >= 4"], False),
    ],
)
def test_only_boxes_that_move_alike_have_lines(texts: list[str], alike: bool) -> None:
    matcher = Matcher()
    subscriptions = [parse(text) for text in texts]
    for id, subscription in enumerate(subscriptions):
        matcher.add(id, subscription)
    matcher.compact()
    (segment,) = matcher._index.segments
    assert (segment.buffer[2 * layout.DRIFTS + 1] > 0) == alike
    for x in (-3.0, 1.0, 2.5, 4.0, 9.0):
        for at in (0.0, 1.5, 60.0):
            publication = {"x": x, "y": x}
            wanted = [id for id, s in enumerate(subscriptions) if matches(s, publication, at)]
            assert sorted(matcher.match_one(publication, at).tolist()) == wanted


def test_a_bound_that_leaves_the_floats_excludes() -> None:
    matcher = Matcher()
    for id in range(3):
        matcher.add(id, parse(f"x >= {id} - 1e308 * t"))
    matcher.compact()
    assert sorted(matcher.match_one({"x": 5.0}, 1.0).tolist()) == [0, 1, 2]
    assert matcher.match_one({"x": 5.0}, 100.0).tolist() == []
