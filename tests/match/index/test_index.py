"""The index against the oracle, while subscriptions come, go, change and are merged."""

import math
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import LimitError, Subscription, matches, normalise, parse, sets
from rove.lang.errors import PublicationError
from rove.lang.normal_form import Conjunction
from rove.match import Matcher, engine
from rove.match.conditions import residual
from rove.match.index import index as index_module
from rove.match.index.batch import Slots
from rove.match.index.index import ExactIndex, SegmentMerge
from rove.match.index.layout import T_MAX
from rove.match.index.subjects import Subjects
from rove.match.patterns import automaton
from rove.testing import strategies
from rove.testing.boxes import Name, workload
from tests.effort import examples

Publication = dict[str, Any]
Encounter = tuple[Subscription, Publication, float, Publication]


def conjunctions_of(text: str) -> tuple[Conjunction, ...]:
    return normalise(parse(text)).conjunctions


def filled(*texts: str, compiled: bool = True) -> ExactIndex:
    """An index of these texts, numbered from 0."""
    index = ExactIndex(compiled=compiled)
    for id, text in enumerate(texts):
        index.add(id, conjunctions_of(text))
    return index


def found(index: ExactIndex, publication: Publication, at: float = 0.0) -> list[int]:
    pairs = index.match([publication], [at])
    ids: list[int] = sorted(pairs.subscriptions.tolist())
    assert len(set(ids)) == len(ids), "everybody once"
    assert sorted(index.match_one(publication, at).tolist()) == ids
    return ids


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows wait and few segments are kept, so that short tests reach everything."""
    monkeypatch.setattr(index_module, "FRESH_MAX", 4)
    monkeypatch.setattr(index_module, "MERGE_WIDTH", 3)
    monkeypatch.setattr(index_module, "MERGED_AT_ONCE_MAX", 20)


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """As if the kernels were not there yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "search_kernel", None)
        yield patch


# -- against the oracle ----------------------------------------------------------------------


class Script:
    """Random changes of an index and of a model beside it; a merge may be running."""

    def __init__(self, drawn: list[Encounter], seed: int, *, compiled: bool) -> None:
        self.random = Random(seed)
        self.drawn = drawn
        self.index = ExactIndex(compiled=compiled)
        self.live: dict[int, tuple[Subscription, float, Publication]] = {}
        self.running: SegmentMerge | None = None

    def change(self, id: int) -> None:
        what = self.random.random()
        if what < 0.65 or not self.live:
            self.add(id)
            return
        chosen = self.random.choice(list(self.live))
        if what < 0.8:
            self.index.remove(chosen)
            del self.live[chosen]
        elif what < 0.9:
            subscription, accepted_at, _ = self.live[chosen]
            me = self.random.choice(self.drawn)[3]
            self.index.set_state(chosen, me)
            self.live[chosen] = subscription, accepted_at, me
        else:
            self.index.remove(chosen)
            del self.live[chosen]
            self.add(chosen)

    def add(self, id: int) -> None:
        subscription, _, _, me = self.random.choice(self.drawn)
        accepted_at = self.random.choice([0.0, 0.0, 0.5, 1.0])
        try:
            conjunctions = normalise(subscription).conjunctions
        except LimitError:
            return
        self.index.add(id, conjunctions, accepted_at, me)
        self.live[id] = subscription, accepted_at, me

    def merge(self) -> None:
        """Begin a merge, or let one run, or take its result over."""
        if self.running is None:
            self.running = self.index.merge_due()
        elif not self.running.is_done:
            self.running.run()
        else:
            self.index.install(self.running)
            self.running = None

    def check(self) -> None:
        asked = self.random.sample(self.drawn, min(3, len(self.drawn)))
        publications, at = [p for _, p, _, _ in asked], [t for _, _, t, _ in asked]
        pairs = self.index.match(publications, at)
        got: list[list[int]] = [[] for _ in asked]
        for number, id in zip(pairs.publications, pairs.subscriptions.tolist(), strict=True):
            got[number].append(id)
        for ids, publication, moment in zip(got, publications, at, strict=True):
            assert sorted(ids) == self.expected(publication, moment)
            one = self.index.match_one(publication, moment).tolist()
            assert sorted(one) == sorted(ids)
        assert len(self.index) == len(self.live)
        assert all(id in self.index for id in self.live)

    def expected(self, publication: Publication, at: float) -> list[int]:
        return sorted(
            id
            for id, (subscription, accepted_at, me) in self.live.items()
            if at >= accepted_at and matches(subscription, publication, at - accepted_at, me)
        )


@pytest.mark.parametrize("compiled", [True, False])
@examples(40)
@given(st.lists(strategies.encounters(), min_size=1, max_size=12), st.integers(0, 2**32))
def test_changes_interleaved_with_merges_lose_and_invent_nothing(
    compiled: bool, drawn: list[Encounter], seed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_module, "FRESH_MAX", 4)
        patch.setattr(index_module, "MERGE_WIDTH", 3)
        patch.setattr(index_module, "MERGED_AT_ONCE_MAX", 20)
        if not compiled:
            patch.setattr(engine, "search_kernel", None)
        script = Script(drawn, seed, compiled=compiled)
        for id in range(60):
            script.change(id)
            if script.random.random() < 0.4:
                script.merge()
            if id % 15 == 14:
                script.check()
        script.index.compact()
        script.check()


# -- what moves, and integers ----------------------------------------------------------------


@pytest.mark.parametrize("text", ["x > t", "x <= 9007199254740992 + t", "x = 9007199254740992 + t"])
@pytest.mark.parametrize("x", [2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, -(2**53) - 1, 2**63 - 1])
@pytest.mark.parametrize("at", [0.0, 1.0, 1e7])
def test_integers_that_no_float_holds_meet_what_moves(text: str, x: int, at: float) -> None:
    index = filled(text)
    index.settle_fresh()
    assert found(index, {"x": x}, at) == ([0] if matches(parse(text), {"x": x}, at) else [])


def test_integers_that_no_float_holds_meet_boxes_that_move() -> None:
    index = ExactIndex()
    bounds = np.array([[0.0]]), np.array([[2.0**52]])
    index.add_boxes(np.array([7]), ["x"], *bounds, np.array([[2.0**52]]))
    assert found(index, {"x": 2**53}, 1.0) == [7]
    assert found(index, {"x": 2**53 + 1}, 1.0) == []
    assert found(index, {"x": 2**53 + 1}, 1.5) == [7]


def test_lines_are_right_beyond_what_rough_ones_are_good_for() -> None:
    text = "x > 1 + t + t"
    index = filled(text)
    index.settle_fresh()
    for at in (0.0, T_MAX, 2 * T_MAX, 1e15):
        for x in (2 * at, 2 * at + 1, 2 * at + 2, 1e300):
            assert found(index, {"x": x}, at) == ([0] if matches(parse(text), {"x": x}, at) else [])


# -- what is there ---------------------------------------------------------------------------


def test_its_length_is_the_number_of_its_subscriptions() -> None:
    index = filled("x > 1", "x > 1 OR y > 1", "x > 1 AND x < 0")
    assert len(index) == 3
    index.settle_fresh()
    assert len(index) == 3
    assert 2 in index
    assert 3 not in index
    index.remove(1)
    assert len(index) == 2
    assert 1 not in index


def test_several_conjunctions_match_once() -> None:
    index = filled(*["a = 1 OR b = 1 OR a + b > 1"] * 100)
    assert found(index, {"a": 1, "b": 1}) == list(range(100))
    index.settle_fresh()
    assert found(index, {"a": 1, "b": 1}) == list(range(100))


@pytest.mark.parametrize("id", [1, -1, 2**63])
def test_ids_that_are_no_free_ids_are_refused(id: int) -> None:
    index = filled("x > 0", "x > 1")
    with pytest.raises(ValueError, match="no free id"):
        index.add(id, conjunctions_of("x > 2"))
    table = np.zeros((1, 2))
    ids: Any = np.array([5, id], np.int64 if id < 2**63 else np.uint64)
    with pytest.raises(ValueError, match="no free id"):
        index.add_boxes(ids, ["x"], table, table + 1)
    assert len(index) == 2
    assert found(index, {"x": 0.5}) == [0]


def test_boxes_need_an_id_each() -> None:
    table = np.zeros((1, 2))
    with pytest.raises(ValueError, match="no free id"):
        ExactIndex().add_boxes(np.array([5, 5]), ["x"], table, table + 1)


def test_an_id_can_be_used_again() -> None:
    index = filled("x > 1")
    index.settle_fresh()
    index.remove(0)
    index.add(0, conjunctions_of("x < 1"))
    assert found(index, {"x": 2}) == []
    assert found(index, {"x": 0}) == [0]


def test_what_is_not_there_cannot_be_changed() -> None:
    with pytest.raises(KeyError):
        ExactIndex().remove(1)
    with pytest.raises(KeyError):
        ExactIndex().set_state(1, {"x": 1})


def test_a_state_moves_only_who_follows() -> None:
    index = ExactIndex()
    index.add(1, conjunctions_of("x > me.x"), 0.0, {"x": 5})
    index.add(2, conjunctions_of("x > 5"))
    for settle in (False, True):
        if settle:
            index.settle_fresh()
        index.set_state(2, {"x": 0})
        index.set_state(1, {"x": 5})
        assert found(index, {"x": 4}) == []
        index.set_state(1, {"x": 3})
        assert found(index, {"x": 4}) == [1]
        index.set_state(1, {})
        assert found(index, {"x": 9}) == [2]


def slots_of(index: ExactIndex, publication: Mapping[str, object]) -> int:
    slots = Slots()
    index.subjects.fill(slots, publication)
    return len(slots.subjects)


def test_patterns_of_removed_subscriptions_are_not_searched() -> None:
    index = filled("s LIKE '%a%'", "s LIKE '%a%'", "s LIKE '%b%' AND x > 1")
    index.settle_fresh()
    assert slots_of(index, {"s": "ab"}) == 3
    index.remove(0)
    assert found(index, {"s": "a"}) == [1]
    index.remove(2)
    index.remove(1)
    assert slots_of(index, {"s": "ab"}) == 1, "only the text itself is left"


# -- merging ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
def test_small_segments_are_merged_on_the_way() -> None:
    index = filled(*[f"x > {i}" for i in range(16)])
    assert len(index.segments) < 4
    assert found(index, {"x": 7}) == list(range(7))


@pytest.mark.usefixtures("small")
def test_large_segments_are_merged_when_somebody_does_it() -> None:
    index = filled(*[f"x > {i}" for i in range(400)])
    before = len(index.segments)
    assert index.merge_due() is not None
    assert index.merge_due() is None, "one at a time"
    index = filled(*[f"x > {i}" for i in range(400)])
    index.merge_all()
    assert len(index.segments) < before
    assert index.merge_due() is None
    assert found(index, {"x": 300}) == list(range(300))


@pytest.mark.usefixtures("small")
def test_what_changes_while_a_merge_runs_stays_changed() -> None:
    index = ExactIndex()
    for id in range(400):
        index.add(id, conjunctions_of(f"x > {id} AND y > me.y"), 0.0, {"y": 0})
    due = index.merge_due()
    assert due is not None
    merging = due.segments[0].live_ids().tolist()[:6]
    removed_before, moved_before, replaced_before, removed, moved, replaced = merging
    index.remove(removed_before)
    index.set_state(moved_before, {"y": 100})
    index.remove(replaced_before)
    index.add(replaced_before, conjunctions_of("z = 1"))
    due.run()
    index.remove(removed)
    index.set_state(moved, {"y": 100})
    index.remove(replaced)
    index.add(replaced, conjunctions_of("z = 1"))
    index.install(due)
    changed = set(merging)
    plain = [id for id in range(400) if id not in changed]
    assert found(index, {"x": 500, "y": 1}) == plain
    assert found(index, {"x": 500, "y": 200}) == sorted([*plain, moved_before, moved])
    assert found(index, {"z": 1}) == sorted([replaced_before, replaced])


@pytest.mark.usefixtures("small")
def test_a_merge_that_was_not_run_cannot_be_installed() -> None:
    index = filled(*[f"x > {i}" for i in range(400)])
    due = index.merge_due()
    assert due is not None
    with pytest.raises(ValueError, match="was not run"):
        index.install(due)
    assert found(index, {"x": 500}) == list(range(400))
    index.install(due.run())
    assert found(index, {"x": 500}) == list(range(400))


@pytest.mark.usefixtures("small")
def test_a_merge_of_what_is_all_gone_leaves_nothing() -> None:
    index = filled(*[f"x > {i}" for i in range(400)])
    due = index.merge_due()
    assert due is not None
    for id in range(400):
        index.remove(id)
    index.install(due.run())
    index.merge_all()
    assert found(index, {"x": 500}) == []
    assert len(index) == 0
    assert sum(segment.live for segment in index.segments) == 0


def test_a_segment_that_is_mostly_gone_is_built_again() -> None:
    index = filled(*[f"x > {i}" for i in range(500)])
    index.merge_all()
    size = index.nbytes
    for id in range(450):
        index.remove(id)
    index.merge_all()
    assert index.nbytes < size / 2
    assert found(index, {"x": 1e9}) == list(range(450, 500))


def test_horizons_that_are_mostly_over_are_due() -> None:
    index = filled(*[f"x BETWEEN {i} + t AND {i + 5} + t" for i in range(200)])
    index.compact()
    (segment,) = index.segments
    assert index.merge_due() is None
    found(index, {"x": 1}, segment.begins_at + 0.9 * (segment.ends_at - segment.begins_at))
    due = index.merge_due()
    assert due is not None
    index.install(due.run())
    (renewed,) = index.segments
    assert renewed.begins_at == index.now
    assert renewed.ends_at > segment.ends_at
    assert index.merge_due() is None
    for at in (0.0, index.now, renewed.ends_at, renewed.ends_at + 1, 1e6):
        assert found(index, {"x": at + 100}, at) == list(range(95, 101))


def test_compacting_makes_one_segment() -> None:
    index = filled(*[f"x > {i}" for i in range(300)])
    index.compact()
    assert len(index.segments) == 1
    assert found(index, {"x": 100}) == list(range(100))


# -- without kernels -------------------------------------------------------------------------


def test_segments_without_an_index_get_one_later(cold: pytest.MonkeyPatch) -> None:
    index = filled(*[f"x > {i}" for i in range(300)], compiled=False)
    assert not any(segment.is_indexed for segment in index.segments)
    assert found(index, {"x": 100}) == list(range(100))
    assert index.merge_due() is None
    cold.undo()
    engine.warm_up()
    assert found(index, {"x": 100}) == list(range(100))
    due = index.merge_due()
    assert due is not None
    index.install(due.run())
    index.merge_all()
    assert all(segment.is_indexed for segment in index.segments)
    assert found(index, {"x": 100}) == list(range(100))


# -- publications ----------------------------------------------------------------------------


def test_many_publications_at_once_are_what_each_is_alone() -> None:
    index = filled(*[f"x > {i} OR y = {i} OR x + y > 300" for i in range(200)])
    publications: list[Publication] = [{"x": i, "y": 7} for i in range(300)]
    pairs = index.match(publications)
    assert (np.diff(pairs.publications) >= 0).all()
    lists = np.split(pairs.subscriptions, pairs.starts(300)[1:-1])
    for number in (0, 7, 8, 100, 299):
        assert sorted(lists[number].tolist()) == found(index, publications[number])


def test_columns_are_publications_too() -> None:
    index = filled("x > 1", "x > 1 AND y < 3", "y IS NULL", "x BETWEEN t AND 2 + t")
    names, values = (
        ["x", "y", "z"],
        np.array([[2.0, math.nan, 1.0], [1.5, 2.0, 0.0], [math.nan] * 3]),
    )
    at = np.array([0.0, 0.5, 0.0])
    pairs = index.match_columns(names, values, at)
    lists = [sorted(ids.tolist()) for ids in np.split(pairs.subscriptions, pairs.starts(3)[1:-1])]
    assert lists == [[0, 2, 3], [0, 1, 3], [2]]


def test_columns_are_not_enough_for_what_must_be_computed() -> None:
    index = filled("x + y > 1")
    with pytest.raises(PublicationError, match="computed"):
        index.match_columns(["x"], np.array([[1.0]]), np.zeros(1))


def test_every_publication_needs_a_time_that_is_one() -> None:
    index = filled("x > 1")
    index.settle_fresh()
    with pytest.raises(PublicationError, match="1 publications came with 2 times"):
        index.match([{"x": 1}], [0.0, 1.0])
    with pytest.raises(PublicationError, match="finite"):
        index.match([{"x": 1}], [math.nan])
    with pytest.raises(PublicationError, match="finite"):
        index.match_one({"x": 1}, math.nan)


def test_nothing_published_nothing_found() -> None:
    index = filled("x > 1", "TRUE")
    assert len(index.match([])) == 0
    assert len(ExactIndex().match([{"x": 1}])) == 0


def test_two_indexes_can_share_their_subjects() -> None:
    subjects = Subjects()
    first, second = ExactIndex(subjects), ExactIndex(subjects)
    first.add(1, conjunctions_of("a > 1 AND s LIKE '%x%'"))
    second.add(1, conjunctions_of("b > 1"))
    first.settle_fresh()
    second.settle_fresh()
    batch = subjects.batch([{"a": 2, "s": "x"}, {"b": 2}], [0.0, 0.0])
    assert first.match_batch(batch).publications.tolist() == [0]
    assert second.match_batch(batch).publications.tolist() == [1]


def test_a_loaded_index_is_the_one_that_was_saved() -> None:
    index = filled("x > 1", "s LIKE '%a%'", "x + y > 3", "x > 1 AND x < 0", "s = 'k' OR x > t")
    index.add(9, conjunctions_of("x > me.x"), 0.5, {"x": 7})
    head, buffers = index.state()
    subjects = Subjects.from_state(index.subjects.state())
    copies = [np.frombuffer(bytearray(buffer.tobytes()), np.int64) for buffer in buffers]
    loaded = ExactIndex.from_state(head, copies, subjects, compiled=True)
    assert len(loaded) == len(index) == 6
    for asked in ({"x": 2, "y": 2}, {"s": "ka"}, {"s": "k"}, {"x": 9}, {}):
        assert found(loaded, asked, 1.0) == found(index, asked, 1.0)
    loaded.set_state(9, {"x": 1})
    assert 9 in found(loaded, {"x": 2}, 1.0)
    loaded.remove(1)
    assert found(loaded, {"s": "a"}) == []
    with pytest.raises(ValueError, match="no free id"):
        loaded.add(0, conjunctions_of("x > 1"))


def test_a_merge_that_fails_can_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    index = ExactIndex()
    monkeypatch.setattr(index_module, "MERGED_AT_ONCE_MAX", 0)
    for id in range(index_module.FRESH_MAX * index_module.MERGE_WIDTH):
        index.add(id, normalise(parse(f"x > {id}")).conjunctions)
    first = index.merge_due()
    assert first is not None
    assert index.merge_due() is None
    with monkeypatch.context() as patch:
        patch.setattr(index_module, "built", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            first.run()
    second = index.merge_due()
    assert second is not None
    index.install(second.run())
    assert len(index.segments) == 1
    assert index.match([{"x": 1.5}]).subscriptions.tolist() == [0, 1]


# -- what is computed --------------------------------------------------------------------------


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """An entry for each time that a conjunction is computed from now on."""
    times: list[float] = []
    holds = residual.Test.holds

    def counted(
        self: residual.Test,
        publication: Mapping[str, object],
        t: float,
        me: Mapping[str, object],
    ) -> bool:
        times.append(t)
        return holds(self, publication, t, me)

    monkeypatch.setattr(residual.Test, "holds", counted)
    return times


def test_each_of_several_computed_conditions_is_computed_once(computed: list[float]) -> None:
    """Not once for every row that any of them leaves in doubt."""
    near = " OR ".join(f"distance(a, b, {i}, 2) < 1" for i in range(64))
    index = filled(*(f"({near}) AND c != {i}" for i in range(5)))
    index.settle_fresh()
    far = {"a": 50.5, "b": 80.0, "c": -1}
    assert index.match_one(far, 0.0).tolist() == []
    assert len(computed) == 5 * 64
    assert len(index.match([far, far], [0.0, 0.0])) == 0
    assert len(computed) == 3 * 5 * 64
    computed.clear()
    assert found(index, {"a": 0.0, "b": 2.0, "c": 3}) == [0, 1, 2, 4]
    assert len(computed) <= 2 * 4 * 64


def test_patterns_of_waiting_rows_are_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a publication fits was found for all rows at once."""

    def tried(*_: object) -> bool:
        raise AssertionError("one by one")

    texts = [" AND ".join(f"s NOT LIKE '%{prefix}{i}%z%'" for i in range(100)) for prefix in "ab"]
    index = filled(*texts, "s LIKE 'x%b7%z%' AND n > 2", "s LIKE '%c%c%'")
    monkeypatch.setattr(sets, "fits", tried)
    assert not index.segments
    assert index.match_one({"s": "xa7b7z", "n": 3}, 0.0).tolist() == [2]
    assert index.match_one({"s": "xa8b9", "n": 3}, 0.0).tolist() == [0, 1]
    assert index.match_one({"s": 5}, 0.0).tolist() == []
    assert not index.segments, "they still wait"


def test_waiting_rows_are_counted_by_what_they_cost() -> None:
    light = filled(*(f"a > {i}" for i in range(40)))
    light.match_one({"a": 3.5}, 0.0)
    assert not light.segments
    near = " OR ".join(f"distance(a, b, {i}, 2) < 1" for i in range(64))
    heavy = filled(near, near)
    heavy.match_one({"a": 3.5}, 0.0)
    assert len(heavy.segments) == 1
    light.match([{"a": 3.5}] * 3, [0.0] * 3)
    assert len(light.segments) == 1


@pytest.mark.parametrize("compiled", [True, False])
def test_subscriptions_that_were_skipped_are_undecided(
    compiled: bool, cold: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patterns that take too many steps are neither TRUE nor FALSE; others are as they were."""
    if compiled:
        cold.undo()
        monkeypatch.setattr(automaton, "WAITING_MAX", 1)
    index = filled(
        "s LIKE '%a%b%'",
        "s NOT LIKE '%a%b%'",
        "s LIKE '%a%b%' AND n = 1",
        "s LIKE '%a%b%' AND n = 2",
        "contains(s, 'a')",
        "s LIKE '%a%b%' OR n = 1",
        "s LIKE '%a%b%' AND n + m > 2",
        compiled=compiled,
    )
    publication = {"s": "xaxb", "n": 1}
    assert found(index, publication) == [0, 2, 4, 5]
    assert index.undecided == set()
    monkeypatch.setattr(automaton, "PATTERN_STEPS_MAX", -64 * len("xaxb"))
    for _ in range(2):
        assert found(index, publication) == [4, 5]
        assert index.undecided == {0, 1, 2, 5, 6}
        index.undecided.clear()
        index.settle_fresh()
    assert found(index, {"s": "b", "n": 1}) == [1, 5]
    assert index.undecided == set()


# -- publications that are numbers --------------------------------------------------------------


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
    monkeypatch.setattr(engine, "search_kernel", None)
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
