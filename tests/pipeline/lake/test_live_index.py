"""An index that follows a running broker finds what one that knows everything finds."""

from pathlib import Path

import pytest

from rove.pipeline.lake.live_index import PARTS_MAX, LiveIndex
from rove.pipeline.lake.log import Event
from rove.pipeline.lake.version_index import opened
from tests.effort import some
from tests.interop.recorded import Notified, Recording
from tests.pipeline.lake.test_version_index import judged, pairs_of


@pytest.mark.parametrize("size", some([40, 3, 1000]))
def test_batch_by_batch_it_finds_the_same(tmp_path: Path, size: int) -> None:
    recording = Recording(tmp_path / "lake", 11)
    recording.play(500)
    lake = recording.read
    live = LiveIndex(tmp_path / "live")
    found: list[Notified] = []
    parts = 0
    for batch in recording.publications().to_batches(max_chunksize=size):
        last = batch["position"][-1].as_py()
        live.take(lake.events(live.position, last))
        spec = live.spec(after=batch["position"][0].as_py() - 1)
        parts = max(parts, len(spec.parts))
        found += pairs_of(opened(spec), batch)
    expected = judged(recording, tmp_path)
    assert len(expected) > 200
    assert sorted(found) == sorted(expected)
    assert parts <= PARTS_MAX
    if size == 3:
        assert parts == PARTS_MAX, "files were written together"


def test_files_of_what_is_over_are_removed(tmp_path: Path) -> None:
    live = LiveIndex(tmp_path)
    live.take([Event(event="made", number=1, position=1, text="x > 1")])
    assert len(live.spec().parts) == 1
    live.take([Event(event="ended", number=1, position=5)])
    [part] = live.spec(after=4).parts
    assert part.plain == {0: 5}
    assert live.spec(after=5).parts == ()
    assert list(tmp_path.iterdir()) == []
    assert (len(live), live.position) == (0, 5)


def test_what_a_dead_driver_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "_index" / "life").mkdir(parents=True)
    (tmp_path / "_index" / "life" / "00000001.index").write_bytes(b"")
    LiveIndex.below(str(tmp_path))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
