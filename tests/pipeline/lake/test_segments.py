"""Segments of the log: every version is where it holds, and few are where they do not."""

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rove.pipeline.lake.segments import Segments, cuts_of, open_segments, write_segments
from rove.pipeline.lake.versions import FOR_EVER, Version
from rove.pipeline.matching.index_files import IndexFileError


def lives(seed: int, count: int) -> list[Version]:
    """Versions of all lengths, many that begin together."""
    chance = random.Random(seed)
    versions = []
    for number in range(count):
        since = chance.choice((-1, chance.randrange(10_000), chance.randrange(100) * 100))
        until = chance.choice((FOR_EVER, since + chance.randrange(1, 300)))
        versions.append(Version(number=number, text="x > 1", since=since, until=until))
    return versions


def batch_of(positions: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"position": pa.array(positions, pa.int64())})


@pytest.mark.parametrize("begun_min", [1, 7, 10**9])
def test_each_position_meets_all_versions_that_hold(tmp_path: Path, begun_min: int) -> None:
    versions = lives(1, 400)
    count = write_segments(versions, tmp_path / "some", begun_min)
    segments = open_segments(str(tmp_path / "some"))
    assert len(segments) == count
    assert (count == 1) == (begun_min > 400)
    edges = {position + step for one in versions for position in (one.since,) for step in (0, 1)}
    for position in sorted(edges - {-1}):
        (number,) = segments.numbers(batch_of([position])).tolist()
        met = {one.number for one in segments.versions(number)}
        assert met >= {one.number for one in versions if one.since < position <= one.until}


def test_segments_are_short_where_much_changes_and_few_otherwise(tmp_path: Path) -> None:
    """A thousand that stay, and a hundred thousand changes of a hundred others."""
    staying = [Version(number=one, text="") for one in range(1_000)]
    moving = [
        Version(number=1_000 + at % 100, text="", since=at, until=at + 100) for at in range(100_000)
    ]
    write_segments([*staying, *moving], tmp_path / "some")
    segments = Segments(str(tmp_path / "some"))
    sizes = [len(segments.versions(number)) for number in range(len(segments))]
    assert max(sizes) <= 2_500
    assert sum(sizes) <= 3 * (len(staying) + len(moving))


def test_those_that_begin_together_stay_together() -> None:
    since = np.array([-1] * 10 + [5] * 10 + [9], np.int64)
    until = np.full(21, FOR_EVER, np.int64)
    assert cuts_of(since, until, begun_min=3) == [5, 9]
    assert cuts_of(since[:10], until[:10], begun_min=3) == []
    assert cuts_of(since[:0], until[:0]) == []


def test_a_batch_is_split_and_an_index_is_written_once(tmp_path: Path) -> None:
    versions = [
        Version(number=at, text="x > 1", since=at * 10, until=at * 10 + 10) for at in range(6)
    ]
    assert write_segments(versions, tmp_path / "some", begun_min=2) == 3
    segments = Segments(str(tmp_path / "some"))
    parts = [here["position"].to_pylist() for _, here in segments.split(batch_of([1, 50, 2, 51]))]
    assert parts == [[1, 2], [50, 51]]
    written = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.index")}
    assert len(written) == 2
    list(Segments(str(tmp_path / "some")).split(batch_of([1, 50, 51])))
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.index")} == written


def test_what_holds_no_versions_is_named(tmp_path: Path) -> None:
    with pytest.raises(IndexFileError, match=r"cannot open the index .*none"):
        Segments(str(tmp_path / "none"))
    (tmp_path / "other").write_bytes(b"something else")
    with pytest.raises(IndexFileError, match=r"cannot open the index .*other"):
        Segments(str(tmp_path / "other"))
