"""Sorted pairs, against sets and dictionaries."""

import numpy as np
import pytest

from rove.world.engines.pair_kernels import (
    are_among,
    continue_pairs,
    distinct_counts,
    judge,
    keys_of,
    last_lines,
    missing_from,
    pairs_of,
    receivers_of,
    starts_of,
    with_keys,
    without_keys,
    write_keys,
)
from rove.world.runs.state import Ints, Longs

LARGEST = 2**31 - 1


def ints(*values: int) -> Ints:
    return np.array(values, np.int32)


def longs(values: set[int] | list[int]) -> Longs:
    return np.array(sorted(values), np.int64)


def random_keys(rng: np.random.Generator, largest: int = 60) -> set[int]:
    return set(rng.integers(0, largest, rng.integers(0, 50)).tolist())


def test_keys_are_ordered_as_their_pairs() -> None:
    keys, ascends = keys_of(ints(0, 0, 0, 1, LARGEST), ints(0, 0, LARGEST, 0, LARGEST))
    assert ascends
    assert keys.tolist() == sorted(keys.tolist())
    first, second = pairs_of(keys)
    assert first.tolist() == [0, 0, 0, 1, LARGEST]
    assert second.tolist() == [0, 0, LARGEST, 0, LARGEST]


def test_keys_of_messages_and_receivers() -> None:
    keys = np.empty(3, np.int64)
    assert write_keys(ints(7, 5, 9), ints(1, 0, 0), ints(3, 1, 2), keys)
    assert [column.tolist() for column in pairs_of(keys)] == [[5, 7, 7], [3, 1, 2]]
    assert not write_keys(ints(7, 5, 9), ints(0, 1, 2), ints(0, 0, 0), keys)


@pytest.mark.parametrize("pairs", [([1, 0], [0, 0]), ([1, 1], [2, 1]), ([0, 2, 1], [0, 0, 0])])
def test_what_does_not_ascend_is_noticed(pairs: tuple[list[int], list[int]]) -> None:
    assert not keys_of(ints(*pairs[0]), ints(*pairs[1]))[1]


@pytest.mark.parametrize("seed", range(60))
def test_sets_of_keys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    held, others = random_keys(rng, 60 if seed % 2 else 2000), random_keys(rng)
    twice = np.sort(np.concatenate([longs(others), longs(others)]))
    assert missing_from(longs(held), twice).tolist() == sorted(others - held)
    assert with_keys(longs(held), longs(others - held)).tolist() == sorted(held | others)
    assert without_keys(longs(held), twice).tolist() == sorted(held - others)
    assert longs(held)[are_among(longs(held), twice)].tolist() == sorted(held & others)


def test_starts_have_a_place_for_every_first_number() -> None:
    keys, _ = keys_of(ints(1, 1, 4), ints(7, 8, 0))
    assert starts_of(keys).tolist() == [0, 0, 2, 2, 2, 3]
    assert starts_of(longs([])).tolist() == [0]


@pytest.mark.parametrize("seed", range(20))
def test_receivers_by_topic(seed: int) -> None:
    rng = np.random.default_rng(seed)
    joined = {(int(t), int(s)) for t, s in rng.integers(0, 8, (rng.integers(0, 30), 2))}
    everywhere = sorted(set(rng.integers(0, 12, seed % 4).tolist()))
    topics = rng.integers(0, 12, 25).astype(np.int32)
    pairs = sorted(joined)
    keys, _ = keys_of(ints(*[t for t, _ in pairs]), ints(*[s for _, s in pairs]))
    ends, receivers = receivers_of(keys, starts_of(keys), ints(*everywhere), topics)
    for i, topic in enumerate(topics.tolist()):
        expected = {s for t, s in joined if t == topic} | set(everywhere)
        assert receivers[ends[i] : ends[i + 1]].tolist() == sorted(expected)


def test_different_receivers_are_counted_in_each_stretch() -> None:
    ends = np.array([0, 3, 3, 4, 6])
    assert distinct_counts(ends, ints(1, 1, 2, 2, 2, 2)).tolist() == [2, 0, 1, 1]
    assert distinct_counts(np.array([0]), ints()).tolist() == []


def test_the_last_line_of_each_number() -> None:
    assert last_lines(ints(3, 1, 3, 0, 1), 6).tolist() == [3, 4, 2]
    assert last_lines(ints(), 4).tolist() == []


def test_pairs_go_on_or_begin() -> None:
    before, _ = keys_of(ints(0, 1, 2), ints(1, 1, 0))
    own = ints(2, 9)  # of the second number 0 it is 2, of 1 nobody here
    starts = np.array([0, 2, 3, 5])
    keys, since = np.empty((2, 5), np.int64)
    old_since = np.array([5, 6, 7])
    count = continue_pairs(starts, ints(0, 1, 0, 0, 1), own, before, old_since, 8, keys, since)
    first, second = pairs_of(keys[:count])
    assert list(zip(first.tolist(), second.tolist(), since[:count].tolist(), strict=True)) == [
        (0, 0, 8),
        (0, 1, 5),
        (1, 0, 8),
        (2, 1, 8),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_judging_against_dictionaries(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ought = {int(key): int(rng.integers(0, 10)) for key in random_keys(rng)}
    held = {int(key): int(rng.integers(0, 10)) for key in random_keys(rng)}
    keys, since = longs(list(ought)), np.array([ought[key] for key in sorted(ought)], np.int64)
    marks = np.array([(held[key], 0) for key in sorted(held)], np.int64).reshape(-1, 2)
    out = np.full(len(ought), 9, np.int8)
    due = np.array([5])  # all keys are below 60, so all have the first number 0
    found = judge(keys, since, longs(list(held)), marks, due, 6, out)
    verdicts = [
        0 if ought[key] > 6 else 1 if key not in held else 2 if held[key] < 5 else 0
        for key in sorted(ought)
    ]
    assert out.tolist() == verdicts
    assert found == (verdicts.count(1), verdicts.count(2), len(held.keys() - ought.keys()))
