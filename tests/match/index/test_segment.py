"""A segment: rows are removed and given back, and there is room for whatever is found."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import LimitError, Subscription, normalise, parse
from rove.lang.partial_evaluation import at_moment
from rove.match.conditions.row_compiler import rows_of
from rove.match.index import layout
from rove.match.index.batch import Slots
from rove.match.index.construction import built
from rove.match.index.layout import WIDTH
from rove.match.index.rows import IndexRow, Rows, from_rows
from rove.match.index.search_kernels import find
from rove.match.index.segment import Segment, SegmentMatches, Workspace
from rove.match.index.subjects import Subjects
from rove.testing import strategies
from tests.effort import examples

Publication = dict[str, Any]


def rows_from(texts: list[str], subjects: Subjects) -> Rows:
    """A subscription for each text, numbered from 0."""
    found: list[IndexRow] = []
    for id, text in enumerate(texts):
        found += rows_of(id, normalise(parse(text)).conjunctions, 0.0, subjects)
    return from_rows(found)


def segment_of(rows: Rows, *, indexed: bool = True) -> Segment:
    return Segment(built(rows, 0.0, indexed=indexed), rows.strings)


def searched(
    segment: Segment,
    subjects: Subjects,
    publications: list[Publication],
    workspace: Workspace | None = None,
) -> SegmentMatches:
    batch = subjects.batch(publications, [1.0] * len(publications))
    workspace = Workspace() if workspace is None else workspace
    workspace.take(batch)
    return segment.find(batch, find, workspace)


def ids_of(found: SegmentMatches) -> list[int]:
    """Everybody that was found, once; rows of one subscription come as ~id."""
    return sorted({~id if id < 0 else id for id in found.ids.tolist()})


# -- rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("indexed", [True, False])
def test_removed_rows_match_no_more(indexed: bool) -> None:
    subjects = Subjects()
    texts = [f"x > {i} OR y > {i}" if i % 3 == 0 else f"x > {i}" for i in range(200)]
    segment = segment_of(rows_from(texts, subjects), indexed=indexed)
    assert segment.live == 200 + 67
    x, y = subjects.attribute("x"), subjects.attribute("y")
    assert sorted(segment.remove(3)) == sorted([x, y])
    assert segment.remove(4) == [x]
    assert segment.remove(4) == segment.remove(999) == []
    assert segment.live == 267 - 3
    assert segment.live_rows_of(3) == []
    assert len(segment.live_rows_of(6)) == 2
    expected = [i for i in range(200) if i not in (3, 4)]
    assert sorted(set(segment.live_ids().tolist())) == expected
    batch = subjects.batch([{"x": 500, "y": 500}], [1.0])
    assert ids_of(segment.scan(batch)) == expected
    if indexed:
        assert ids_of(searched(segment, subjects, [{"x": 500, "y": 500}])) == expected


def test_live_rows_are_those_that_are_there() -> None:
    segment = segment_of(rows_from(["x > 1"] * 70, Subjects()))
    assert len(segment) == 2 * WIDTH
    assert segment.live_rows().sum() == 70
    assert (segment.ids[segment.live_rows()] >= 0).all()
    assert segment.nbytes == segment.buffer.nbytes


def test_subjects_in_use_are_those_of_live_rows() -> None:
    subjects = Subjects()
    segment = segment_of(rows_from(["x > 1", "x > 2 AND s LIKE '%a%'", "x IN (1, 3)"], subjects))
    x = subjects.attribute("x")
    pattern = next(number for number in segment.subjects_in_use() if number != x)
    before = segment.subjects_in_use()
    assert before[pattern] == 1
    segment.remove(1)
    assert pattern not in segment.subjects_in_use()
    assert segment.subjects_in_use()[x] < before[x]


@examples(60)
@given(
    st.lists(strategies.encounters(), min_size=1, max_size=10),
    st.sets(st.integers(0, 9)),
    st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=2),
    st.booleans(),
)
def test_rows_are_given_back_as_they_came(
    drawn: list[tuple[Subscription, Publication, float, Publication]],
    removed: set[int],
    accepted: list[float],
    indexed: bool,
) -> None:
    subjects, rows = Subjects(), []
    for id, (subscription, _, _, me) in enumerate(drawn):
        try:
            found = normalise(subscription).conjunctions
        except LimitError:
            continue
        known = [one for each in found if (one := at_moment(each, None, me)) is not None]
        rows += rows_of(id, known, accepted[id % len(accepted)], subjects)
    segment = segment_of(from_rows(rows), indexed=indexed)
    for id in removed:
        segment.remove(id)
    again = segment_of(segment.rows(), indexed=indexed)
    kept = sorted(row.id for row in rows if row.id not in removed)
    assert sorted(again.live_ids().tolist()) == sorted(segment.rows().ids.tolist()) == kept
    batch = subjects.batch([p for _, p, _, _ in drawn], [t for _, _, t, _ in drawn])
    assert told(segment, batch) == told(again, batch)


def told(segment: Segment, batch: Any) -> list[tuple[list[int], list[int]]]:
    """What a scan finds: for each publication ids, and the ids of doubtful rows."""
    found = segment.scan(batch)
    ids = np.split(found.ids, np.cumsum(found.counts)[:-1])
    doubts = np.split(segment.ids[found.doubts], np.cumsum(found.doubtful)[:-1])
    return [(sorted(a.tolist()), sorted(b.tolist())) for a, b in zip(ids, doubts, strict=True)]


@pytest.mark.parametrize("largest", [2**31 - 2, 2**31 - 1, 2**31, 2**63 - 1])
def test_ids_may_be_as_large_as_integers_are(largest: int) -> None:
    subjects = Subjects()
    several = normalise(parse("x > 1 OR y > 1")).conjunctions
    rows = rows_of(largest, several, 0.0, subjects) + rows_of(0, several[:1], 0.0, subjects)
    segment = segment_of(from_rows(rows))
    asked: list[Publication] = [{"x": 2, "y": 2}]
    assert ids_of(searched(segment, subjects, asked)) == [0, largest]
    assert ids_of(segment.scan(subjects.batch(asked, [1.0]))) == [0, largest]
    assert sorted(segment.rows().ids.tolist()) == [0, largest, largest]
    assert len(segment.remove(largest)) == 2


def test_bounds_are_where_they_are_at_a_time() -> None:
    subjects = Subjects()
    text = "x > 3 + 2 * least(t, 5) AND y = 0.5 * t"
    segment = segment_of(rows_from([text], subjects))
    (row,) = segment.live_rows_of(0)
    x, y = subjects.attribute("x"), subjects.attribute("y")
    assert sorted(segment.bounds_at(row, 2.0)) == sorted([(x, ">", 7.0), (y, "=", 1.0)])
    assert sorted(segment.bounds_at(row, 8.0)) == sorted([(x, ">", 13.0), (y, "=", 4.0)])
    fast = segment_of(rows_from(["x > 1e300 * t"], subjects))
    (row,) = fast.live_rows_of(0)
    assert fast.bounds_at(row, 1e10) == [(x, ">", None)]


# -- room ------------------------------------------------------------------------------------


def test_there_is_room_for_more_ids_than_there_was() -> None:
    subjects = Subjects()
    segment = segment_of(rows_from(["x > 1"] * 5_000, subjects))
    workspace = Workspace()
    found = searched(segment, subjects, [{"x": 2}, {"x": 0}, {"x": 3}], workspace)
    assert found.counts.tolist() == [5_000, 0, 5_000]
    assert np.sort(found.ids[:5_000]).tolist() == np.sort(found.ids[5_000:]).tolist()
    again = searched(segment, subjects, [{"x": 2}] * 20, workspace)
    assert again.counts.tolist() == [5_000] * 20
    assert found.counts.tolist() == [5_000, 0, 5_000], "what was handed out stays as it is"
    assert np.unique(again.ids).tolist() == list(range(5_000))


def test_there_is_room_for_more_doubts_than_there_was() -> None:
    subjects = Subjects()
    segment = segment_of(rows_from(["x + y > 1"] * 5_000, subjects))
    found = searched(segment, subjects, [{"x": 2}, {}])
    assert found.doubtful.tolist() == [5_000, 5_000]
    assert len(found.ids) == 0
    assert np.unique(found.doubts).size == 5_000


def test_there_is_room_for_all_that_moves_when_the_horizon_is_over() -> None:
    subjects = Subjects()
    segment = segment_of(rows_from([f"x >= {i} - t" for i in range(5_000)], subjects))
    batch = subjects.batch([{"x": 0}] * 2, [1e6, 4_000.0])
    workspace = Workspace()
    workspace.take(batch)
    found = segment.find(batch, find, workspace)
    assert found.counts.tolist() == [5_000, 4_001]


def test_many_subjects_have_room_too() -> None:
    subjects = Subjects()
    segment = segment_of(rows_from([f"a{i} > 1" for i in range(5_000)], subjects))
    asked: list[Publication] = [{f"a{i}": 2 for i in range(5_000)}, {"a7": 2}, {"a7": 1}]
    found = searched(segment, subjects, asked)
    assert found.counts.tolist() == [5_000, 1, 0]


def test_one_publication_after_many_and_many_after_one() -> None:
    """One workspace serves batches and single publications by turns."""
    subjects = Subjects()
    segment = segment_of(rows_from(["x > 1", "s = 'a'"], subjects))
    workspace = Workspace()
    for asked, ids in (({"x": 2}, [0]), ({"s": "a"}, [1]), ({"s": "b", "x": True}, [])):
        assert ids_of(searched(segment, subjects, [asked, asked], workspace)) == ids
        slots = Slots()
        subjects.fill(slots, asked)
        workspace.take_one(slots, 1.0)
        segment.write_texts(workspace.arrays[layout.RAWS], slots.texts)
        workspace.frame[2 * layout.ID_COUNT] = 0
        segment.search(find, workspace, 1)
        assert workspace.taken_ids().tolist() == ids


def test_a_publication_of_any_size_can_be_taken() -> None:
    workspace, slots = Workspace(), Slots()
    for subject in range(10_000):
        slots.add(subject, float(subject))
    workspace.take_one(slots, 2.0)
    assert workspace.arrays[layout.SLOT_SUBJECTS][:10_000].tolist() == list(range(10_000))
    assert workspace.arrays[layout.STARTS].tolist() == [0, 10_000]
    assert workspace.arrays[layout.AT].tolist() == [2.0]


def test_what_was_written_stays_when_room_is_made() -> None:
    workspace = Workspace()
    workspace.arrays[layout.OUT_IDS][:3] = 7, 8, 9
    size = workspace.arrays[layout.OUT_IDS].size
    workspace.grow(layout.OUT_IDS, size + 1)
    grown = workspace.arrays[layout.OUT_IDS]
    assert grown.size >= 2 * size
    assert grown[:4].tolist() == [7, 8, 9, 0]
    assert workspace.frame[2 * layout.OUT_IDS + 1] == grown.size
    assert workspace.frame[2 * layout.OUT_IDS] == grown.__array_interface__["data"][0]


@pytest.mark.parametrize("indexed", [True, False])
def test_nothing_published_nothing_found(indexed: bool) -> None:
    subjects = Subjects()
    segment = segment_of(rows_from(["x > 1", "s LIKE '%a%'"], subjects), indexed=indexed)
    batch = subjects.batch([], [])
    found = segment.scan(batch)
    assert len(found.ids) == len(found.counts) == len(found.doubts) == 0
    if indexed:
        assert len(searched(segment, subjects, []).ids) == 0


def test_a_segment_without_what_moves_is_right_for_ever() -> None:
    still = segment_of(rows_from(["x > 1"], Subjects()))
    moving = segment_of(rows_from(["x > t"], Subjects()))
    assert (still.begins_at, still.ends_at, still.has_moving) == (-math.inf, math.inf, False)
    assert moving.has_moving
    assert moving.ends_at < math.inf
