"""Segments against the meaning of the normal form: every row, every publication."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rove.lang import LimitError, Subscription, normalise, parse
from rove.lang.normal import Conjunction, NormalForm, holds
from rove.match import codes as codes_module
from rove.match.segment import Segment
from rove.testing import strategies
from rove.testing.workloads import AirQuality


def rows_of(subscriptions: list[Subscription]) -> list[Conjunction]:
    rows: list[Conjunction] = []
    for subscription in subscriptions:
        try:
            rows += normalise(subscription).conjunctions
        except LimitError:
            continue
    return rows


def pairs(segment: Segment, publications: list[dict[str, object]]) -> set[tuple[int, int]]:
    found, rows = segment.match(publications)
    together = list(zip(found.tolist(), rows.tolist(), strict=True))
    assert len(together) == len(set(together))
    return set(together)


def expected(
    rows: list[Conjunction], publications: list[dict[str, object]]
) -> set[tuple[int, int]]:
    return {
        (number, row)
        for number, publication in enumerate(publications)
        for row, conjunction in enumerate(rows)
        if holds(NormalForm((conjunction,)), publication)
    }


@settings(max_examples=300)
@given(
    st.lists(strategies.static_subscriptions, min_size=1, max_size=100),
    st.lists(strategies.publications, min_size=1, max_size=8),
)
def test_a_segment_means_what_its_rows_mean(
    subscriptions: list[Subscription], publications: list[dict[str, object]]
) -> None:
    rows = rows_of(subscriptions)
    if rows:
        assert pairs(Segment(rows), publications) == expected(rows, publications)


@settings(max_examples=100)
@given(
    st.lists(strategies.static_subscriptions, min_size=1, max_size=40),
    st.lists(strategies.publications, min_size=1, max_size=4),
)
def test_ranks_cut_to_few_codes_are_settled_exactly(
    subscriptions: list[Subscription], publications: list[dict[str, object]]
) -> None:
    rows = rows_of(subscriptions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codes_module, "_CODES_MAX", 4)
        if rows:
            assert pairs(Segment(rows), publications) == expected(rows, publications)


def test_several_levels_and_more_pairs_than_there_is_room_for_at_first() -> None:
    workload = AirQuality()
    rows = rows_of([parse(text) for text in workload.texts(5_000)])
    publications: list[dict[str, object]] = [*workload.publications(60)]
    segment = Segment(rows)
    assert pairs(segment, publications) == expected(rows, publications)
    everything = Segment(rows_of([parse("TRUE")] * 5_000))
    assert len(pairs(everything, [{}, {}])) == 10_000


@settings(max_examples=50)
@given(st.data())
def test_removed_rows_match_no_more(data: st.DataObject) -> None:
    rows = rows_of(data.draw(st.lists(strategies.static_subscriptions, min_size=1, max_size=80)))
    publications = data.draw(st.lists(strategies.publications, min_size=1, max_size=3))
    if not rows:
        return
    segment = Segment(rows)
    removed = data.draw(st.sets(st.integers(0, len(rows) - 1)))
    for row in removed:
        segment.remove(row)
    wanted = {pair for pair in expected(rows, publications) if pair[1] not in removed}
    assert pairs(segment, publications) == wanted


def test_its_size_is_known() -> None:
    rows = rows_of([parse(text) for text in AirQuality().texts(2_000)])
    assert 10 < Segment(rows).nbytes / len(rows) < 200


def test_nothing_published_nothing_found() -> None:
    found, rows = Segment(rows_of([parse("x > 1")])).match([])
    assert len(found) == len(rows) == 0
    assert rows.dtype == np.int32
