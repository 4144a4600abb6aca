"""What lists are made anew from: what is young enough, in columns and as it came."""

import pickle

import numpy as np

from rove.lang.values import OPAQUE
from rove.match.ranked.history import History, plain


def test_what_has_left_the_longest_window_is_forgotten() -> None:
    history = History()
    history.track([("a",)])
    history.hold(1.0)
    history.hold(5.0)
    for number in range(3_000):
        assert history.append({"a": number, "b": "x"}, number / 10) == number
        history.forget(number / 10)
    assert len(history) == 50
    assert history.end == 3_000
    history.release(5.0)
    history.forget(299.9)
    assert history.numbers().tolist() == list(range(2_990, 3_000))


def test_what_is_there_since_a_number_comes_as_columns() -> None:
    history = History()
    history.hold(9.0)
    history.track([("a",), ("b", "c")])
    given: list[dict[str, object]] = [{"a": 1}, {"a": 2.5, "b": {"c": 2**60}}, {"b": {"c": "?"}}]
    for at, publication in enumerate(given):
        history.append(publication, float(at))
    history = History.from_state(pickle.loads(pickle.dumps(history.state())))
    numbers, inputs = history.since(1)
    assert numbers.tolist() == [1, 2]
    assert list(inputs.publications) == given[1:]
    assert inputs.at.tolist() == [1.0, 2.0]
    assert inputs.column(("a",)).kinds.tolist() == [2, 0]
    assert inputs.column(("b", "c")).kinds.tolist() == [3, 0]
    assert np.isfinite(inputs.column(("b", "c")).values).all()


def test_of_a_row_only_what_scores_are_made_of_is_kept() -> None:
    row = {"a": 1, "b": {"c": 2, "d": OPAQUE}, "e": OPAQUE}
    assert plain(row) == {"a": 1, "b": {"c": 2}}
