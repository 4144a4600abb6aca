"""Columns of publications tell what a value is to a score."""

import math

import numpy as np

from rove.lang import parse
from rove.match.ranked.inputs import (
    FLOAT,
    HUGE,
    MISSING,
    WHOLE,
    Inputs,
    column_of,
    score_pairs,
)
from rove.match.ranked.scores import ConstantColumns, compiled, empty_scores


def test_columns_tell_what_a_value_is() -> None:
    column = column_of([1, 1.5, None, True, "1", 2**53, -(2**53) + 1])
    kinds = [WHOLE, FLOAT, MISSING, MISSING, MISSING, HUGE, WHOLE]
    assert column.kinds.tolist() == kinds
    assert column.values.tolist() == [1.0, 1.5, 0.0, 0.0, 0.0, 2.0**53, -(2.0**53) + 1]
    assert math.isfinite(column.values.sum())


def test_a_score_of_many_attributes_is_computed_from_all_of_them() -> None:
    names = [f"a{number}" for number in range(40)]
    first, second = " + ".join(names[:20]), " + ".join(names[20:])
    rank = parse(f"ORDER BY ({first}) + ({second}) LIMIT 1 WITHIN 1 SECOND").rank
    assert rank is not None
    found = compiled(rank.score, False, 0.0, {})
    assert found is not None
    columns = ConstantColumns(found.program)
    place = columns.add(0, found.constants)
    full: dict[str, object] = dict.fromkeys(names, 0.5)
    rows = [full, {**full, "a0": None}, {**full, "a39": None}, {**full, "a0": 1}, {**full, "a1": 9}]
    every, scores = np.arange(len(rows)), empty_scores(len(rows))
    inputs = Inputs(rows, np.zeros(len(rows)))
    asked = score_pairs(columns, inputs, every, np.full(len(rows), place), every, scores)
    assert asked.size == 0
    assert scores.known.tolist() == [1, 0, 0, 1, 1]
    assert scores.scores[[0, 3, 4]].tolist() == [20.0, 20.5, 28.5]
