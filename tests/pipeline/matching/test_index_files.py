"""Versions in files."""

from pathlib import Path

import pytest

from rove.pipeline.lake.replay import write_segments
from rove.pipeline.lake.versions import FOR_EVER, Version
from rove.pipeline.matching.index_files import IndexFileError, open_index, write_index
from rove.pipeline.matching.topic_filters import NO_FILTER


def test_what_is_written_is_read(tmp_path: Path) -> None:
    versions = [
        Version(number=70, text="x > 1", filter="air/#", accepted_at=5.5, since=3, until=9),
        Version(
            number=71, text="ORDER BY x LIMIT 1 WITHIN 1 HOURS", client_id="ann", no_local=True
        ),
        Version(number=72, text="", filter="air/#", share="team"),
        Version(number=73, text="x > 1", filter="air/#", client_id="bob", no_local=True),
    ]
    places = write_index(versions, tmp_path / "a.index")
    assert places == [("plain", 0), ("ranked", 0), ("plain", 1), ("plain", 2)]
    found = open_index(str(tmp_path / "a.index"))
    assert found.plain.numbers.tolist() == [70, 72, 73]
    assert found.plain.own == {2: "bob"}
    assert (found.plain.since[0], found.plain.until.tolist()) == (3, [9, FOR_EVER, FOR_EVER])
    assert found.plain.shared == {1: ("team", "air/#")}
    assert (found.ranked.numbers.tolist(), found.ranked.own) == ([71], {}), "windows hold all"
    assert (found.plain.filters.matching("air/a"), found.plain.filters.matching("road")) == (
        [0],
        [],
    )
    assert found.ranked.filters.matching("road") == [NO_FILTER], "it has none"
    assert open_index(str(tmp_path / "a.index")) is found
    assert [path.name for path in tmp_path.iterdir()] == ["a.index"]


def test_nothing_can_be_written_too(tmp_path: Path) -> None:
    assert write_index([], tmp_path / "empty.index") == []
    found = open_index(str(tmp_path / "empty.index"))
    assert (
        len(found.plain.numbers),
        len(found.ranked.numbers),
        found.plain.filters.matching("a"),
    ) == (
        0,
        0,
        [],
    )


def test_what_is_no_index_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"something else, long enough to have a head")
    with pytest.raises(
        IndexFileError, match=r"cannot open the index .*other: it is not a file of this version"
    ):
        open_index(str(tmp_path / "other"))
    with pytest.raises(IndexFileError, match=r"cannot open the index .*none: "):
        open_index(str(tmp_path / "none"))
    write_segments([], tmp_path / "segments")
    with pytest.raises(IndexFileError, match="it holds segments, not versions"):
        open_index(str(tmp_path / "segments"))
    with pytest.raises(IndexFileError, match=r"subscription 8: ."):
        write_index([Version(number=8, text="x >")], tmp_path / "bad.index")
