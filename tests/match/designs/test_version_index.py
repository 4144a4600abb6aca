"""Versions: the same answers tried and indexed, and how often each is done."""

from rove.lang import normalise, parse
from rove.match.designs.design import Evolving, OneByOne
from rove.match.designs.version_index import INDEXED_AT_ONCE_MAX, TRIED_MAX, VersionIndex


def evolving(id: int, text: str) -> Evolving:
    return Evolving.of(id, normalise(parse(text)).conjunctions, 10.0, {"y": 3}, None)


def ids(versions: VersionIndex, x: float) -> list[int]:
    return sorted(versions.match([{"x": x}]).subscriptions.tolist())


def test_answers_are_the_same_before_and_after_indexing() -> None:
    index = OneByOne()
    versions = VersionIndex(lambda: index)
    for id in range(5):
        versions.put(evolving(id, f"x > {id} + t + me.y OR x = -{id}"), 12.0)
    for number in range(2 * TRIED_MAX):
        assert ids(versions, 7.5) == [0, 1, 2]
        assert ids(versions, -4.0) == [4]
        assert bool(index.held) == (2 * (number + 1) >= TRIED_MAX)
    assert not versions.tried


def test_few_are_indexed_for_one_publication() -> None:
    index = OneByOne()
    versions = VersionIndex(lambda: index)
    for id in range(3 * INDEXED_AT_ONCE_MAX):
        versions.put(evolving(id, "x > t"), 12.0)
    for _ in range(TRIED_MAX - 1):
        ids(versions, 0.0)
    for rounds in (0, 1, 2, 3, 3):
        assert len(index.held) == rounds * INDEXED_AT_ONCE_MAX
        assert len(ids(versions, 5.0)) == 3 * INDEXED_AT_ONCE_MAX


def test_a_new_version_takes_the_place_of_the_old_one() -> None:
    index = OneByOne()
    versions = VersionIndex(lambda: index)
    one = evolving(1, "x > t")
    versions.put(one, 12.0)
    for _ in range(TRIED_MAX):
        assert ids(versions, 3.0) == [1]
    assert list(index.held) == [1]
    versions.put(one, 14.0)
    assert (index.held, 1 in versions) == ({}, True)
    assert ids(versions, 3.0) == []
    versions.drop(1)
    versions.drop(1)
    assert 1 not in versions
    assert ids(versions, 9.0) == []


def test_a_version_that_cannot_hold_stays_out_of_the_index() -> None:
    index = OneByOne()
    versions = VersionIndex(lambda: index)
    versions.put(evolving(1, "x > 1 / (t - 2)"), 12.0)
    for _ in range(2 * TRIED_MAX):
        assert ids(versions, 3.0) == []
    assert index.held == {}
