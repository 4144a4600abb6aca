"""Segments, however they are built, mean what their rows mean: searched and scanned alike."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.bench.match.scan import Scan
from rove.lang import LimitError, Subscription, matches, normalise, parse
from rove.lang.normal_form import Conjunction, NormalForm, holds
from rove.lang.partial_evaluation import at_moment
from rove.match import Matcher
from rove.match.conditions.row_compiler import rows_of
from rove.match.index import construction, layout
from rove.match.index.construction import built
from rove.match.index.layout import WIDTH, section
from rove.match.index.rows import Floats, IndexRow, from_boxes, from_rows
from rove.match.index.search_kernels import find
from rove.match.index.segment import Segment, SegmentMatches, Workspace
from rove.match.index.subjects import Subjects
from rove.testing import strategies
from rove.testing.boxes import workload
from tests.effort import examples

Publication = dict[str, Any]
LIMITS: dict[str, dict[str, int]] = {
    "as they are": {},
    "few cuts": {"_CUTS_MAX": 4},
    "small trees": {"_SUBJECTS_OF_ONE_TREE_MAX": 2, "_ROWS_OF_A_TREE_MIN": 2},
    "only lists": {"_SUBJECTS_OF_ONE_TREE_MAX": 1, "_ROWS_OF_A_TREE_MIN": 1_000_000},
    "all at once": {"_CUTS_MAX": 4, "_SUBJECTS_OF_ONE_TREE_MAX": 2, "_ROWS_OF_A_TREE_MIN": 3},
}


@contextmanager
def limits(values: dict[str, int]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setattr(construction, name, value)
        yield


class Rows:
    """Conjunctions, numbered, as a segment and as the judge sees them."""

    def __init__(self) -> None:
        self.subjects = Subjects()
        self.conjunctions: dict[int, tuple[Conjunction, float]] = {}
        self._rows: list[IndexRow] = []

    def add(self, conjunction: Conjunction, accepted_at: float = 0.0) -> None:
        id = len(self.conjunctions)
        self.conjunctions[id] = conjunction, accepted_at
        self._rows += rows_of(id, [conjunction], accepted_at, self.subjects)

    def add_text(self, text: str, accepted_at: float = 0.0) -> None:
        (conjunction,) = normalise(parse(text)).conjunctions
        self.add(conjunction, accepted_at)

    def segment(self, now: float = 0.0, *, indexed: bool = True) -> Segment:
        rows = from_rows(self._rows)
        return Segment(built(rows, now, indexed=indexed), rows.strings)

    def holding(self, publication: Publication, at: float) -> set[int]:
        return {id for id in self.conjunctions if self.holds(id, publication, at)}

    def holds(self, id: int, publication: Publication, at: float) -> bool:
        conjunction, accepted_at = self.conjunctions[id]
        form = NormalForm((conjunction,))
        return at >= accepted_at and holds(form, publication, at - accepted_at)

    def check(self, segment: Segment, publications: list[Publication], at: list[float]) -> None:
        """What a segment finds, by search and by scan, is what holds."""
        workspace = Workspace()
        batch = self.subjects.batch(publications, at)
        if segment.is_indexed:
            workspace.take(batch)
            self._judge(segment, segment.find(batch, find, workspace), publications, at)
        self._judge(segment, segment.scan(batch), publications, at)

    def _judge(
        self,
        segment: Segment,
        found: SegmentMatches,
        publications: list[Publication],
        at: list[float],
    ) -> None:
        ids, doubts = found.ids.tolist(), segment.ids[found.doubts].tolist()
        for number, publication in enumerate(publications):
            mine = ids[: found.counts[number]]
            doubted = doubts[: found.doubtful[number]]
            del ids[: found.counts[number]], doubts[: found.doubtful[number]]
            assert len(set(mine + doubted)) == len(mine + doubted), "each row at most once"
            computed = {id for id in doubted if self.holds(id, publication, at[number])}
            assert set(mine) | computed == self.holding(publication, at[number])
        assert ids == doubts == []


def drawn_rows(
    drawn: list[tuple[Subscription, Publication, float, Publication]], accepted: list[float]
) -> Rows:
    rows = Rows()
    for number, (subscription, _, _, me) in enumerate(drawn):
        try:
            conjunctions = normalise(subscription).conjunctions
        except LimitError:
            continue
        for conjunction in conjunctions:
            known = at_moment(conjunction, None, me)
            if known is not None:
                rows.add(known, accepted[number % len(accepted)])
    return rows


@pytest.mark.parametrize("name", LIMITS)
@examples(40)
@given(
    st.lists(strategies.encounters(), min_size=1, max_size=12),
    st.lists(strategies.publications, max_size=2),
    st.lists(st.sampled_from([0.0, 0.0, 0.5, 1.0]), min_size=1, max_size=3),
    st.sampled_from([0.0, 1.0, 1e9, float("-inf")]),
)
def test_a_segment_means_what_its_rows_mean(
    name: str,
    drawn: list[tuple[Subscription, Publication, float, Publication]],
    more: list[Publication],
    accepted: list[float],
    now: float,
) -> None:
    rows = drawn_rows(drawn, accepted)
    publications = [*(publication for _, publication, _, _ in drawn), *more]
    at = [*(t for _, _, t, _ in drawn), *(1.0 for _ in more)]
    with limits(LIMITS[name]):
        rows.check(rows.segment(now), publications, at)


def many_rows(count: int) -> Rows:
    """Rows over a common attribute, rare ones, strings, alternatives, and what moves."""
    texts = [
        "x > {0}",
        "x BETWEEN {0} AND {1} AND rare{2} = {2}",
        "x >= {0} + t AND x < {1} + 0.5 * t",
        "s = 'k{0}'",
        "x IN ({0}, {1}) AND y > {2}",
        "rare{2} <= {0} - t",
        "y IS NULL AND x < {0}",
        "x + y > {1}",
        "s != 'k{2}' AND x > {0}",
    ]
    rows = Rows()
    for number in range(count):
        text = texts[number % len(texts)].format(number % 97, number % 97 + 7, number % 40)
        rows.add_text(text, accepted_at=float(number % 3))
    return rows


PUBLICATIONS: list[Publication] = [
    {},
    {"x": 50, "y": 3, "rare7": 7, "rare30": 30.0},
    {"x": 53.5, "s": "k12", "y": None},
    {"x": 2**53 + 1, "rare2": -3, "rare3": "text"},
    {"s": "k5\0", "x": -0.0},
    {"x": "text", "y": True, "s": 5, "rare1": []},
]


@pytest.mark.parametrize("name", LIMITS)
def test_rows_of_every_kind_in_trees_and_lists(name: str) -> None:
    rows = many_rows(700)
    with limits(LIMITS[name]):
        segment = rows.segment()
        at = [10.0, 2.0, 2.5, 1.0, 0.5, 3.0]
        rows.check(segment, PUBLICATIONS, at)
        rows.check(rows.segment(indexed=False), PUBLICATIONS, at)


def test_limits_lead_to_trees_lists_and_codes_that_are_not_exact() -> None:
    """That the tests above meet what they are there for."""
    rows = many_rows(700)
    segment = rows.segment()
    assert not section(segment.buffer, layout.INEXACT).any()
    with limits(LIMITS["all at once"]):
        segment = rows.segment()
    assert section(segment.buffer, layout.INEXACT).any()
    assert len(section(segment.buffer, layout.TREE_STARTS)) > 2
    assert len(section(segment.buffer, layout.MOVING_ROWS)) > 0
    with limits(LIMITS["only lists"]):
        segment = rows.segment()
    listed = section(segment.buffer, layout.POSTING_ROWS)
    assert len(listed) > 0
    assert (segment.flags[listed] & layout.MOVING).any(), "rows in lists move too"


@pytest.mark.parametrize("at", [-3.0, 0.0, 99.9, 100.0, 103.0, 110.0, 110.1, 1e6, 2e10])
def test_boxes_that_move_are_right_before_in_and_after_their_horizon(at: float) -> None:
    rows = many_rows(300)
    segment = rows.segment(now=100.0)
    assert segment.begins_at == 100.0
    assert 100.1 <= segment.ends_at < 3700.1
    near: list[Publication] = [{"x": at + offset, "rare7": 7 - at} for offset in (-1, 7, 40, 90)]
    rows.check(segment, near, [at] * 4)


ends = st.tuples(
    strategies.numbers.map(float), strategies.numbers.map(float), st.sampled_from([0.0, 0.5, -2.0])
)


@pytest.mark.parametrize("name", ["as they are", "few cuts"])
@examples(60)
@given(
    st.lists(ends, min_size=1, max_size=90),
    st.sampled_from(["", " AND y > 1", " AND y BETWEEN 0 + t AND 3 + t"]),
    st.lists(st.tuples(strategies.values, st.sampled_from([0, 1, 2, 3.5])), max_size=3),
    st.lists(st.sampled_from([0.0, 0.0, 0.5]), min_size=1, max_size=3),
    st.sampled_from([0.0, 0.01, 0.5, 1.0, 8.0, 1e9]),
)
def test_boxes_that_move_alike_mean_what_they_mean(
    name: str,
    boxes: list[tuple[float, float, float]],
    other: str,
    values: list[tuple[object, float]],
    accepted: list[float],
    at: float,
) -> None:
    """All with the same few bounds: these are checked by lines of memory and inner columns."""
    rows = Rows()
    for number, (low, high, speed) in enumerate(boxes):
        text = f"x >= {low!r} + {speed!r} * t AND x <= {high!r} + {speed!r} * t{other}"
        for conjunction in normalise(parse(text)).conjunctions:
            rows.add(conjunction, accepted[number % len(accepted)])
    on_bounds = [(end + speed * at, 2.0) for low, high, speed in boxes[:4] for end in (low, high)]
    publications: list[Publication] = [{"x": x, "y": y} for x, y in (*values, *on_bounds)]
    with limits(LIMITS[name]):
        rows.check(rows.segment(), publications, [at] * len(publications))


def test_boxes_that_move_alike_have_lines_and_inner_columns() -> None:
    """That the test above meets what it is there for."""
    rows = Rows()
    for number in range(70):
        rows.add_text(f"x BETWEEN {number} + t AND {number + 5} + t")
    segment = rows.segment()
    assert len(section(segment.buffer, layout.DRIFTS)) > 0
    assert len(section(segment.buffer, layout.INNERS)) > 0
    rows.check(segment, [{"x": x} for x in (-1, 0, 2.5, 70, 74, 75)], [0.0] * 6)


@pytest.mark.parametrize("name", ["W1", "W2", "W3", "W4"])
def test_several_levels(name: str) -> None:
    boxes, events = workload(name, 5_000, 6)  # type: ignore[arg-type]
    subjects = Subjects()
    numbers = [subjects.attribute(attribute) for attribute in boxes.attributes]
    ids = np.arange(len(boxes))
    rows = from_boxes(ids, numbers, boxes.lows, boxes.highs, boxes.speeds)
    segment = Segment(built(rows, 0.0, indexed=True), rows.strings)
    assert section(segment.buffer, layout.TREES)[1] == 3, "leaves, groups and a root"
    at = np.array([0.0, 1.0, 2.0, 0.5, 1e4, 7.0])
    # Three publications stand on bounds of boxes, one of these has little else.
    values = events.values.copy()
    values[:3] = np.where(np.isfinite(boxes.lows), boxes.lows, np.nan).T[[3, 77, 4_999]]
    batch = subjects.columns(boxes.attributes, values, at)
    workspace = Workspace()
    workspace.take(batch)
    speeds = np.zeros_like(boxes.lows) if boxes.speeds is None else boxes.speeds
    searched = segment.find(batch, find, workspace)
    for found in (searched, segment.scan(batch)):
        assert len(found.doubts) == 0
        lists = np.split(found.ids, np.cumsum(found.counts)[:-1])
        for line, moment, ids_found in zip(values, at, lists, strict=True):
            shift = speeds * moment
            inside = (boxes.lows + shift <= line[:, None]) & (line[:, None] <= boxes.highs + shift)
            free = np.isinf(boxes.lows) & np.isinf(boxes.highs)
            assert np.sort(ids_found).tolist() == np.flatnonzero((inside | free).all(0)).tolist()
    assert len(searched.ids) > 0


def test_rows_that_ask_for_nothing_are_found_by_everybody() -> None:
    rows = Rows()
    for _ in range(WIDTH * WIDTH + 100):
        rows.add(Conjunction())
    segment = rows.segment()
    batch = rows.subjects.batch([{}, {"x": 1}], [0.0, 0.0])
    workspace = Workspace()
    workspace.take(batch)
    found = segment.find(batch, find, workspace)
    assert np.sort(found.ids[: found.counts[0]]).tolist() == list(range(WIDTH * WIDTH + 100))
    assert found.counts.tolist() == [WIDTH * WIDTH + 100] * 2


@pytest.mark.parametrize("indexed", [True, False])
def test_nothing_can_be_built_too(indexed: bool) -> None:
    rows = Rows()
    segment = rows.segment(indexed=indexed)
    assert len(segment) == segment.live == 0
    rows.check(segment, [{"x": 1}, {}], [0.0, 1.0])


def test_a_string_where_only_numbers_are_asked_for_matches_nothing() -> None:
    """Strings count as carried there; they must not be taken for large numbers."""
    rows = Rows()
    for text in ("a > 5", "a IS NOT NULL", "a IS NULL", "a > t", "a IN (1, 7)"):
        rows.add_text(text)
    asked: list[Publication] = [{"a": value} for value in ("z", "", 7, 5, True, [1], None, 2**63)]
    rows.check(rows.segment(), asked, [0.0] * len(asked))
    rows.add_text("a > 'k'")
    rows.check(rows.segment(), asked, [0.0] * len(asked))


def test_an_attribute_that_a_publication_has_not_costs_it_nothing() -> None:
    """Rows of a rare subject stand in its own tree, not in that of all."""
    rows = Rows()
    for number in range(40 * WIDTH):
        rows.add_text(f"rare{number % 40} > {number}")
    segment = rows.segment()
    assert section(segment.buffer, layout.TREES)[0] == -1, "nobody stands in the tree of all"
    assert (section(segment.buffer, layout.TREE_OF_SUBJECT) > 0).all()
    rows.check(segment, [{"rare3": 500}, {"other": 1}, {"rare39": 1e9}], [0.0] * 3)


# -- boxes that all move in the same way --------------------------------------------------------

DRIFTING = 5_000


@pytest.fixture(scope="module")
def world() -> tuple[Matcher, Scan, Floats]:
    boxes, events = workload("W2", DRIFTING, 200)
    matcher = Matcher()
    ids = np.arange(DRIFTING)
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
    (segment,) = matcher.index.segments
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
