"""Pairs, given by counts or by publications."""

import numpy as np

from rove.match.results import Pairs


def test_publications_follow_from_counts() -> None:
    pairs = Pairs.counted(np.array([2, 0, 1], np.int32), np.array([7, 8, 9]))
    assert pairs.publications.tolist() == [0, 0, 2]
    assert pairs.starts(3).tolist() == [0, 2, 2, 3]
    assert len(pairs) == 3


def test_starts_follow_from_publications() -> None:
    pairs = Pairs(np.array([0, 0, 2], np.int32), np.array([7, 8, 9]))
    assert pairs.starts(4).tolist() == [0, 2, 2, 3, 3]
    assert pairs.publications.tolist() == [0, 0, 2]


def test_no_pairs() -> None:
    assert Pairs(np.empty(0, np.int32), np.empty(0, np.int64)).starts(2).tolist() == [0, 0, 0]
