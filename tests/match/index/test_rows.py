"""Rows as flat arrays mean what they meant one by one, also after merging."""

import math
from bisect import bisect_right
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import LimitError, Subscription, matches, normalise, parse
from rove.lang.sets import ALL_STRINGS, IS_NULL, TOP, ValueSet, spans_of
from rove.lang.tree import Attribute
from rove.lang.values import comparable
from rove.match.index import keys
from rove.match.index.keys import FIRST_STRING, are_exact, number_key
from rove.match.index.layout import ABOVE, AT_LEAST, AT_MOST, BELOW, CHECK, EQUAL, MOVING
from rove.match.index.rows import Bound, IndexRow, Rows, from_boxes, from_rows, merged
from rove.testing import strategies
from rove.testing.boxes import Boxes, workload
from tests.effort import examples

NUMBER_OF = {path: number for number, path in enumerate(strategies.PATHS)}


def key_of(rows: Rows, subject: int, value: object) -> int:
    """The key of a value among the strings of these rows."""
    seen = comparable(value)
    if seen is None:
        return keys.NULL
    if isinstance(seen, bool):
        return keys.TRUE if seen else keys.FALSE
    if isinstance(seen, int | float):
        return number_key(seen)
    if isinstance(seen, str):
        return FIRST_STRING + bisect_right(rows.strings.get(subject, []), seen)
    return keys.CARRIED


def bound_holds(comparator: int, value: object, bound: float) -> bool:
    if type(value) not in (int, float) or not math.isfinite(bound):
        return False
    assert isinstance(value, int | float)
    return {
        AT_LEAST: value >= bound,
        ABOVE: value > bound,
        AT_MOST: value <= bound,
        BELOW: value < bound,
        EQUAL: value == bound,
    }[comparator]


def row_holds(rows: Rows, row: int, values: Mapping[int, object], at: float) -> bool:
    """What a row of flat arrays says, read off entry by entry."""
    entries = range(rows.entry_starts[row], rows.entry_starts[row + 1])
    inside: dict[int, bool] = {}
    for i in entries:
        subject = int(rows.entry_subjects[i])
        key = key_of(rows, subject, values.get(subject))
        within = int(rows.entry_firsts[i]) <= key <= int(rows.entry_lasts[i])
        inside[subject] = inside.get(subject, False) or within
    t = at - float(rows.accepted[row])
    for i in range(rows.bound_starts[row], rows.bound_starts[row + 1]):
        subject, comparator = divmod(int(rows.bound_tests[i]), 8)
        base, slope, t_from, t_to = rows.bound_values[4 * i : 4 * i + 4].tolist()
        bound = base + slope * min(max(t, t_from), t_to)
        inside[subject] = inside.get(subject, True) and bound_holds(
            comparator, values.get(subject), bound
        )
    return all(inside.values())


def rows_in(subscriptions: list[Subscription]) -> list[IndexRow]:
    """The sets of subscriptions as rows, without patterns and what keys cannot tell."""
    found: list[IndexRow] = []
    for subscription in subscriptions:
        try:
            conjunctions = normalise(subscription).conjunctions
        except LimitError:
            continue
        for conjunction in conjunctions:
            sets = tuple(
                (NUMBER_OF[subject.path], allowed)
                for subject, allowed in conjunction.sets.items()
                if type(subject) is Attribute and not allowed.patterned and are_exact(allowed)
            )
            found.append(IndexRow(len(found), 0.0, 0, sets))
    return found


def expected(rows: list[IndexRow], values: Mapping[int, object]) -> list[bool]:
    return [all(comparable(values.get(s)) in allowed for s, allowed in row.sets) for row in rows]


several = st.lists(strategies.static_subscriptions, min_size=1, max_size=8)
values_by_subject = st.dictionaries(st.integers(0, len(NUMBER_OF) - 1), strategies.values)


@examples(60)
@given(several, st.lists(values_by_subject, min_size=1, max_size=4))
def test_flat_rows_hold_what_the_rows_held(
    subscriptions: list[Subscription], publications: list[dict[int, object]]
) -> None:
    drawn = rows_in(subscriptions)
    rows = from_rows(drawn)
    assert len(rows) == len(drawn)
    for values in publications:
        found = [row_holds(rows, row, values, 0.0) for row in range(len(rows))]
        assert found == expected(drawn, values)


@examples(60)
@given(
    st.lists(several, min_size=1, max_size=4), st.lists(values_by_subject, min_size=1, max_size=3)
)
def test_merged_rows_hold_what_they_held_apart(
    groups: list[list[Subscription]], publications: list[dict[int, object]]
) -> None:
    drawn = [rows_in(group) for group in groups]
    rows = merged([from_rows(group) for group in drawn])
    flat = [row for group in drawn for row in group]
    for values in publications:
        found = [row_holds(rows, row, values, 0.0) for row in range(len(rows))]
        assert found == expected(flat, values)


def text_row(id: int, *spans: tuple[str, object]) -> IndexRow:
    return IndexRow(id, 0.0, 0, ((7, ValueSet(strings=spans)),))


def test_strings_are_ranked_anew_among_all_that_are_merged() -> None:
    parts = [
        from_rows([text_row(0, ("m", "n")), text_row(1, ("", "m"), ("z", TOP))]),
        from_rows([text_row(2, ("a", "m\0"))]),
        from_rows([text_row(3, ("", TOP))]),
        from_rows([IndexRow(4, 0.0, 0, ((7, ValueSet(facts=IS_NULL)),))]),
    ]
    rows = merged(parts)
    assert rows.strings == {7: ["a", "m", "m\0", "n", "z"]}
    found = {
        text: [row for row in range(5) if row_holds(rows, row, {7: text}, 0.0)]
        for text in ("", "a", "l", "m", "m\0", "mz", "n", "z", "zz")
    }
    assert found == {
        "": [1, 3],
        "a": [1, 2, 3],
        "l": [1, 2, 3],
        "m": [0, 2, 3],
        "m\0": [0, 3],
        "mz": [0, 3],
        "n": [3],
        "z": [1, 3],
        "zz": [1, 3],
    }
    assert row_holds(rows, 4, {}, 0.0)


def test_merging_changes_none_of_its_parts() -> None:
    first, second = from_rows([text_row(0, ("m", "n"))]), from_rows([text_row(1, ("a", "b"))])
    before = first.entry_firsts.tolist(), first.entry_lasts.tolist()
    merged([second, first])
    assert (first.entry_firsts.tolist(), first.entry_lasts.tolist()) == before
    assert first.strings == {7: ["m", "n"]}


def test_alternatives_are_flagged_and_so_is_what_moves() -> None:
    one, two = ValueSet(spans_of([1])), ValueSet(spans_of([1, 3]))
    bound = Bound(0, AT_LEAST, 1.0, 2.0)
    rows = from_rows(
        [
            IndexRow(0, 0.0, 0, ((0, one),)),
            IndexRow(1, 0.0, 0, ((0, two),)),
            IndexRow(2, 0.0, 0, (), (bound,)),
        ]
    )
    assert rows.flags.tolist() == [0, CHECK, MOVING]
    assert rows.bound_values.tolist() == [1.0, 2.0, -math.inf, math.inf]


def test_rows_are_taken_in_any_order_with_empty_ones_between() -> None:
    rows = from_rows(
        [
            IndexRow(
                5, 1.0, 0, ((0, ValueSet(spans_of([1, 3]))), (1, ValueSet(strings=ALL_STRINGS)))
            ),
            IndexRow(6, 2.0, 0, ()),
            IndexRow(
                7, 3.0, 0, ((2, ValueSet(facts=IS_NULL)),), (Bound(1, BELOW, 3.0, -1.0, 0.0, 2.0),)
            ),
        ]
    )
    taken = rows.taken(np.array([2, -1, 0, 2]))
    assert len(taken) == 4
    assert np.diff(taken.entry_starts).tolist() == [1, 0, 3, 1]
    assert np.diff(taken.bound_starts).tolist() == [1, 0, 0, 1]
    assert taken.ids[[0, 2, 3]].tolist() == [7, 5, 7]
    assert taken.accepted[[0, 2, 3]].tolist() == [3.0, 1.0, 3.0]
    assert taken.entry_rows.tolist() == [0, 2, 2, 2, 3]
    assert taken.bound_rows.tolist() == [0, 3]
    assert row_holds(taken, 2, {0: 3, 1: "x"}, 1.0)
    assert not row_holds(taken, 2, {0: 2, 1: "x"}, 1.0)
    assert row_holds(taken, 3, {1: 0.5}, 9.0)
    assert not row_holds(taken, 3, {1: 1.0}, 9.0)


def test_nothing_can_be_taken_and_merged_too() -> None:
    nothing = from_rows([])
    assert len(nothing.taken(np.empty(0, np.int64))) == 0
    one = from_rows([text_row(3, ("a", "b"))])
    assert merged([nothing, one, nothing]).ids.tolist() == [3]


# -- boxes -----------------------------------------------------------------------------------


def rows_of_boxes(boxes: Boxes) -> Rows:
    ids = np.arange(len(boxes))
    return from_boxes(ids, range(len(boxes.attributes)), boxes.lows, boxes.highs, boxes.speeds)


def check_boxes(boxes: Boxes, values: np.ndarray, at: list[float]) -> int:
    """Every box against its text; returns how often one held."""
    rows, held = rows_of_boxes(boxes), 0
    texts = [parse(boxes.text(row)) for row in range(len(boxes))]
    for line, moment in zip(values.tolist(), at, strict=True):
        publication = dict(zip(boxes.attributes, line, strict=True))
        by_subject = dict(enumerate(line))
        for row, text in enumerate(texts):
            holds = row_holds(rows, row, by_subject, moment)
            assert holds == matches(text, publication, moment), boxes.text(row)
            held += holds
    return held


@pytest.mark.parametrize("name", ["W1", "W2", "W3", "W4"])
def test_boxes_mean_what_their_texts_mean(name: str) -> None:
    boxes, events = workload(name, 60, 20)  # type: ignore[arg-type]
    # Some publications stand exactly on the bounds of a box.
    on_bounds = np.where(np.isfinite(boxes.lows), boxes.lows, 0.0).T[:20]
    at = [0.0, 3.0] * 10
    check_boxes(boxes, events.values, at)
    assert check_boxes(boxes, on_bounds, [0.0] * 20) > 0


def test_boxes_open_on_one_side_mean_what_their_texts_mean() -> None:
    inf = math.inf
    lows = np.array([[-inf, 1.0, -inf, 1.0, 2.0], [-inf, -inf, 3.0, 3.0, 1.0]])
    highs = np.array([[inf, inf, 2.0, 1.0, 1.0], [inf, 5.0, inf, 3.5, inf]])
    speeds = np.array([[0.0, 1.0, -1.0, 0.5, 1.0], [1.0, -2.0, 0.0, 0.25, 0.0]])
    values = np.array([[x, y] for x in (-9.0, 1.0, 2.0, 3.0) for y in (-9.0, 3.0, 3.5, 9.0)])
    for boxes in (Boxes(("x", "y"), lows, highs), Boxes(("x", "y"), lows, highs, speeds)):
        for moment in (0.0, 1.0, 4.0):
            assert check_boxes(boxes, values, [moment] * len(values)) > 0


def test_a_box_that_moves_holds_no_integer_that_it_should_not() -> None:
    boxes = Boxes(("x",), np.array([[0.0]]), np.array([[1.0]]), np.array([[2.0**53]]))
    rows = rows_of_boxes(boxes)
    assert row_holds(rows, 0, {0: 2.0**53}, 1.0)
    assert not row_holds(rows, 0, {0: 2**53 + 1}, 1.0)
    assert not row_holds(rows, 0, {0: "x"}, 1.0)


@pytest.mark.parametrize("bad", [math.nan, 2.0**53, -(2.0**60)])
def test_bounds_that_boxes_cannot_have_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="within"):
        from_boxes(np.array([1]), [0], np.array([[bad]]), np.array([[math.inf]]))


def test_strings_of_rows_that_are_gone_are_forgotten() -> None:
    rows = [
        IndexRow(id, 0.0, 0, ((0, ValueSet(strings=((text, text + "\0"),))),))
        for id, text in enumerate(["a", "b", "c"])
    ]
    left = merged([from_rows(rows).taken(np.array([1]))])
    assert left.strings == {0: ["b", "b\0"]}
    assert left.entry_firsts.tolist() == [FIRST_STRING + 1] == left.entry_lasts.tolist()
