"""Readings one at a time: the same answers as for dictionaries."""

import numpy as np
import pytest

from rove.lang import PublicationError, parse
from rove.match import Matcher
from rove.match.index import index as index_module
from rove.testing.boxes import Name, workload


@pytest.mark.parametrize("name", ["W1", "W2", "W3", "W4"])
def test_a_line_of_numbers_is_a_publication(name: Name) -> None:
    boxes, events = workload(name, 3_000, 60)
    events = events.with_missing(0.2)
    matcher = Matcher()
    matcher.add_boxes(
        np.arange(2_000),
        boxes.attributes,
        boxes.lows[:, :2_000],
        boxes.highs[:, :2_000],
        None if boxes.speeds is None else boxes.speeds[:, :2_000],
    )
    for row in range(2_000, 2_100):
        matcher.add(row, parse(boxes.text(row)))
    reader = matcher.reader(events.attributes)
    found = 0
    for number, values in enumerate(events.values):
        ids = reader.match(values, number / 7)
        wanted = matcher.match_one(events.publication(number), number / 7)
        assert sorted(ids.tolist()) == sorted(wanted.tolist())
        found += len(ids)
    assert found > 0


def test_what_is_added_later_is_read_too() -> None:
    matcher = Matcher()
    reader = matcher.reader(["x", "y"])
    assert reader.match(np.array([1.0, 2.0]), 0.0).tolist() == []
    matcher.add(4, parse("x = 1 OR y = 2"))
    assert reader.match(np.array([1.0, 2.0]), 0.0).tolist() == [4]
    assert reader.match(np.array([np.nan, 2.0]), 0.0).tolist() == [4]
    matcher.remove(4)
    assert reader.match(np.array([1.0, 2.0]), 0.0).tolist() == []


def test_what_must_be_computed_is_refused() -> None:
    matcher = Matcher()
    matcher.add(1, parse("x + y > 3"))
    with pytest.raises(PublicationError, match="columns are not enough"):
        matcher.reader(["x", "y"]).match(np.array([2.0, 2.0]), 0.0)


def test_without_kernels_the_answers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "kernel", lambda: None)
    matcher = Matcher(compiled=False)
    matcher.add(1, parse("x > 3"))
    reader = matcher.reader(["x"])
    assert [reader.match(np.array([value]), 0.0).tolist() for value in (3.0, 4.0)] == [[], [1]]


@pytest.mark.parametrize(
    ("values", "at", "complaint"),
    [
        ([1.0], 0.0, "1 values came for 2 attributes"),
        ([1.0, np.inf], 0.0, "infinite"),
        ([1.0, 2.0], np.nan, "time"),
    ],
)
def test_what_is_no_reading_is_refused(values: list[float], at: float, complaint: str) -> None:
    matcher = Matcher()
    matcher.add(1, parse("x > 0"))
    with pytest.raises(PublicationError, match=complaint):
        matcher.reader(["x", "y"]).match(np.array(values), at)
