"""The sink: what a manifest names counts, once, whatever was killed on the way."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rove.pipeline import sink as sinks
from rove.pipeline.sink import (
    BATCHES_KEPT,
    FOLD,
    PARTS,
    SCRATCH,
    STATES,
    Manifest,
    Sink,
    SinkError,
    manifests,
    part_files,
    read,
    table,
    write_bytes,
    write_part,
)

SCHEMA = pa.schema([("position", pa.int64()), ("word", pa.string())])
ROWS_PER_BATCH = 3


def rows(batch: int) -> pa.Table:
    positions = [batch * ROWS_PER_BATCH + index for index in range(ROWS_PER_BATCH)]
    return pa.table({"position": positions, "word": [f"w{each}" for each in positions]}, SCHEMA)


def manifest_of(batch: int, **changes: Any) -> Manifest:
    after = batch * ROWS_PER_BATCH - 1
    bounds = {"after": after, "last": after + ROWS_PER_BATCH}
    return Manifest(batch=batch, first_batch=batch, **{"at": time.time(), **bounds, **changes})


def commit(sink: Sink, batch: int) -> None:
    part = write_part(sink.folder, batch, rows(batch))
    state = write_bytes(sink.folder, batch, str(batch).encode())
    sink.commit(manifest_of(batch, parts=(part,), states={"0": state}))


def positions_in(folder: Path) -> list[int]:
    return list(table(folder, SCHEMA)["position"].to_pylist())


def test_what_is_committed_is_read_in_order(tmp_path: Path) -> None:
    sink = Sink(tmp_path)
    assert sink.last is None
    assert table(tmp_path, SCHEMA).num_rows == 0
    for batch in range(5):
        assert not sink.holds(batch, batch * 3 - 1, batch * 3 + 2)
        commit(sink, batch)
    assert positions_in(tmp_path) == list(range(15))
    assert [each.rows for each in manifests(tmp_path)] == [3] * 5
    assert manifests(tmp_path)[4].parts[0].first == 12
    assert manifests(tmp_path)[4].parts[0].last == 14
    assert len(part_files(tmp_path, after_batch=2)) == 2


def test_a_part_without_a_manifest_does_not_count(tmp_path: Path) -> None:
    sink = Sink(tmp_path)
    commit(sink, 0)
    write_part(tmp_path, 1, rows(1))
    write_part(tmp_path, 0, rows(0))
    assert positions_in(tmp_path) == [0, 1, 2]


def test_a_folder_opened_again_knows_what_it_holds(tmp_path: Path) -> None:
    commit(Sink(tmp_path), 0)
    again = Sink(tmp_path)
    assert again.holds(0, -1, 2)
    assert not again.holds(1, 2, 5)
    last = again.last
    assert last is not None
    assert (tmp_path / STATES / last.states["0"]).read_bytes() == b"0"


@pytest.mark.parametrize(
    ("batch", "after", "last"),
    [
        (0, -1, 9),  # the checkpoint began anew, with other batches
        (2, 5, 9),  # other positions in the last one
        (3, 11, 20),  # a gap before the next
        (4, 8, 11),  # one is left out
    ],
)
def test_a_checkpoint_that_does_not_fit_is_noticed(
    tmp_path: Path, batch: int, after: int, last: int
) -> None:
    sink = Sink(tmp_path)
    for each in range(3):
        commit(sink, each)
    with pytest.raises(SinkError, match=r"does not fit to the checkpoint.*remove both"):
        sink.holds(batch, after, last)


def test_a_new_checkpoint_is_noticed_after_a_fold_too(tmp_path: Path) -> None:
    sink = Sink(tmp_path)
    for batch in range(FOLD + BATCHES_KEPT):
        commit(sink, batch)
    sink.tidy()
    assert sink.holds(3, 8, 11)
    with pytest.raises(SinkError):
        sink.holds(0, -1, FOLD * ROWS_PER_BATCH)


def test_many_batches_become_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "FOLD", 4)
    monkeypatch.setattr(sinks, "BATCHES_KEPT", 2)
    monkeypatch.setattr(sinks, "RETIRED_S", 0.0)
    sink = Sink(tmp_path)
    for batch in range(50):
        commit(sink, batch)
        sink.tidy()
        assert positions_in(tmp_path) == list(range((batch + 1) * ROWS_PER_BATCH))
    # 16 + 16 + 4 + 4 + 4 + 4, and the newest two.
    spans = [each.batch - each.first_batch + 1 for each in manifests(tmp_path)]
    assert spans == [16, 16, 16, 1, 1]
    assert [each.rows for each in manifests(tmp_path)] == [48, 48, 48, 3, 3]
    assert len(list((tmp_path / PARTS).iterdir())) == 5
    assert len(list((tmp_path / STATES).iterdir())) == 2
    assert Sink(tmp_path).holds(49, 146, 149)


def test_large_parts_are_left_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "FOLD", 4)
    monkeypatch.setattr(sinks, "BATCHES_KEPT", 1)
    monkeypatch.setattr(sinks, "PART_ROWS_MAX", 2 * ROWS_PER_BATCH)
    sink = Sink(tmp_path)
    for batch in range(5):
        commit(sink, batch)
    sink.tidy()
    assert [part.rows for part in manifests(tmp_path)[0].parts] == [6, 6]
    assert positions_in(tmp_path) == list(range(15))


def test_parts_that_were_put_together_stay_for_those_who_read_them(tmp_path: Path) -> None:
    sink = Sink(tmp_path)
    for batch in range(FOLD + BATCHES_KEPT):
        commit(sink, batch)
    listed = part_files(tmp_path)
    sink.tidy()
    assert all(path.exists() for path in listed)
    assert len(part_files(tmp_path)) == 1 + BATCHES_KEPT


def test_a_crash_within_a_fold_leaves_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Sink(tmp_path)
    for batch in range(FOLD + BATCHES_KEPT):
        commit(sink, batch)

    class CrashError(Exception):
        pass

    def crash(_path: Path, missing_ok: bool = False) -> None:
        raise CrashError

    with monkeypatch.context() as broken:
        broken.setattr(Path, "unlink", crash)
        with pytest.raises(CrashError):
            sink.tidy()
    assert positions_in(tmp_path) == list(range((FOLD + BATCHES_KEPT) * ROWS_PER_BATCH))
    assert len(manifests(tmp_path)) == 1 + BATCHES_KEPT
    Sink(tmp_path)
    assert len(list((tmp_path / "_manifests").iterdir())) == 1 + BATCHES_KEPT


def test_orphans_of_old_batches_are_removed(tmp_path: Path) -> None:
    sink = Sink(tmp_path)
    for kind in (PARTS, SCRATCH):
        write_part(tmp_path, 0, rows(0), kind)
    write_bytes(tmp_path, 0, b"old")
    recent = write_part(tmp_path, BATCHES_KEPT, rows(0))
    running = write_part(tmp_path, BATCHES_KEPT + 1, rows(0))
    for batch in range(BATCHES_KEPT + 1):
        commit(sink, batch)
    # Three orphans, and what batch 0 remembered: newer manifests name a newer one.
    assert sink.collect() == 4
    left = {path.name for path in (tmp_path / PARTS).iterdir()}
    assert {recent.name, running.name} <= left
    assert positions_in(tmp_path) == list(range((BATCHES_KEPT + 1) * ROWS_PER_BATCH))


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    commit(Sink(tmp_path), 0)
    (path,) = (tmp_path / "_manifests").iterdir()
    path.write_text("{")
    with pytest.raises(SinkError, match=f"cannot read the manifest {path}"):
        Sink(tmp_path)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match=r"cannot use the folder .*file.*: Not a directory"):
        Sink(tmp_path / "file")


def test_spark_reads_what_counts(spark: Any, tmp_path: Path) -> None:
    assert read(spark, tmp_path, SCHEMA).count() == 0
    sink = Sink(tmp_path)
    commit(sink, 0)
    commit(sink, 1)
    write_part(tmp_path, 2, rows(2))
    found = sorted(row["position"] for row in read(spark, tmp_path, SCHEMA).collect())
    assert found == list(range(6))


WRITER = """
import sys
from pathlib import Path
from rove.pipeline import sink as sinks
from tests_sink import Sink, commit
sinks.FOLD, sinks.BATCHES_KEPT, sinks.RETIRED_S = 4, 2, 0.0
sink = Sink(Path(sys.argv[1]))
while True:
    last = sink.last
    batch = 0 if last is None else last.batch  # as Spark: the last one comes again
    for each in (batch, batch + 1):
        if not sink.holds(each, each * 3 - 1, each * 3 + 2):
            commit(sink, each)
            print(each, flush=True)
    sink.tidy()
"""


@pytest.mark.soak
def test_killed_at_any_moment_each_row_is_there_once(tmp_path: Path) -> None:
    folder = tmp_path / "sink"
    (tmp_path / "tests_sink.py").write_text(Path(__file__).read_text())
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    chance = random.Random(5)
    done = -1
    for _ in range(8):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert writer.stdout is not None
        for _ in range(chance.randrange(2, 12)):
            done = int(writer.stdout.readline())
        time.sleep(chance.random() * 0.02)
        writer.send_signal(signal.SIGKILL)
        rest = writer.communicate()[0].split()
        done = int(rest[-1]) if rest else done
        found = positions_in(folder)
        assert found == list(range(len(found)))
        assert len(found) in {(done + 1) * ROWS_PER_BATCH, (done + 2) * ROWS_PER_BATCH}
