"""The search itself: it goes on where it stopped, and leaves its workspace as it found it."""

from typing import Any

import numpy as np
import pytest

from rove.lang import normalise, parse
from rove.match.conditions.row_compiler import rows_of
from rove.match.index import layout
from rove.match.index.construction import built
from rove.match.index.layout import WIDTH
from rove.match.index.rows import IndexRow, from_rows
from rove.match.index.search_kernels import find
from rove.match.index.segment import Segment, Workspace
from rove.match.index.subjects import Subjects


def prepared(
    texts: list[str], publications: list[dict[str, Any]]
) -> tuple[Segment, Workspace, np.ndarray]:
    """A segment, and a workspace that is ready to search it."""
    subjects, found = Subjects(), list[IndexRow]()
    for id, text in enumerate(texts):
        found += rows_of(id, normalise(parse(text)).conjunctions, 0.0, subjects)
    rows = from_rows(found)
    segment = Segment(built(rows, 0.0, indexed=True), rows.strings)
    batch = subjects.batch(publications, [1.0] * len(publications))
    segment.write_texts(batch.raws, batch.texts)
    workspace = Workspace()
    workspace.take(batch)
    workspace.make_room(len(subjects), len(segment.alive) + WIDTH)
    return segment, workspace, workspace.frame


def test_a_search_stops_when_there_is_no_room_and_goes_on_from_there() -> None:
    texts = ["x > 1"] * 100
    segment, workspace, frame = prepared(texts, [{"x": 2}, {"x": 0}, {"x": 3}])
    workspace.set(layout.OUT_IDS, np.zeros(2 * WIDTH, np.int64))
    find(segment.buffer, frame)
    assert frame[2 * layout.PUBLICATION] == 2, "the third needs room that the first has taken"
    assert frame[2 * layout.ID_COUNT] == 100
    workspace.grow(layout.OUT_IDS, 4 * WIDTH)
    find(segment.buffer, frame)
    assert frame[2 * layout.PUBLICATION] == 3
    assert frame[2 * layout.ID_COUNT] == 200
    assert workspace.arrays[layout.OUT_COUNTS][:3].tolist() == [100, 0, 100]
    ids = workspace.arrays[layout.OUT_IDS][:200]
    assert np.sort(ids[:100]).tolist() == np.sort(ids[100:]).tolist() == list(range(100))


@pytest.mark.parametrize("place", [layout.CODES, layout.KEYS])
def test_codes_and_keys_are_missing_again_afterwards(place: int) -> None:
    texts = ["x > 1 AND s = 'a'", "y < 5", "s != 'b'", "x + y > 3", "x > t"]
    asked: list[dict[str, Any]] = [{"x": 2, "y": 2, "s": "a"}, {}, {"s": True, "x": [1]}]
    segment, workspace, frame = prepared(texts, asked)
    find(segment.buffer, frame)
    assert frame[2 * layout.ID_COUNT] > 0
    assert not workspace.arrays[place].any()


def test_doubts_are_rows_and_ids_are_subscriptions() -> None:
    segment, workspace, frame = prepared(["x + y > 3", "x > 1", "x > 1 OR y > 1"], [{"x": 2}])
    find(segment.buffer, frame)
    assert sorted(workspace.arrays[layout.OUT_IDS][: frame[2 * layout.ID_COUNT]].tolist()) == [
        ~2,
        1,
    ]
    doubts = workspace.arrays[layout.OUT_DOUBTS][: frame[2 * layout.DOUBT_COUNT]]
    assert segment.ids[doubts].tolist() == [0]
    assert workspace.arrays[layout.OUT_DOUBTFUL][0] == 1


def test_attributes_that_nobody_knows_are_passed_over() -> None:
    segment, workspace, frame = prepared(["x > 1"], [{}, {"later": 5, "x": 2}])
    find(segment.buffer, frame)
    assert workspace.arrays[layout.OUT_COUNTS][:2].tolist() == [0, 1]
