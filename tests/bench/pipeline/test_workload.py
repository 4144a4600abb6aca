"""What is measured lies on disk as it should, and the judge knows what is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rove.bench.pipeline.workload import FILES, LASTING_S, in_order, judged, work_of
from rove.pipeline.matching.dataframes import match_pieces
from rove.pipeline.matching.index import open_index


def test_publications_are_spread_over_files_and_time(tmp_path: Path) -> None:
    work, boxes = work_of(tmp_path, "W1", 50, 1_001)
    tables = [pq.read_table(path) for path in work.files]
    assert len(tables) == FILES
    ids = np.concatenate([table.column("id").to_numpy() for table in tables])
    assert ids.tolist() == list(range(1_001))
    assert tables[-1].column("at")[-1].as_py() == LASTING_S
    assert work.attributes == boxes.attributes
    assert boxes.speeds is None


def test_events_are_the_same_for_all_sizes(tmp_path: Path) -> None:
    small, _ = work_of(tmp_path, "W2", 10, 100)
    large, _ = work_of(tmp_path, "W2", 20, 100)
    assert small.folder == large.folder
    assert small.index != large.index


@pytest.mark.parametrize("moving", [False, True])
def test_the_index_says_what_the_scan_says(tmp_path: Path, moving: bool) -> None:
    work, boxes = work_of(tmp_path, "W2", 3_000, 800, moving=moving, timed=True)
    assert work.at == "at"
    batch = pq.read_table(work.files[0]).to_batches()[0]
    found = [
        np.stack(
            [np.repeat(piece.column("id").to_numpy(), each.counts), each.subscriptions], axis=1
        )
        for piece, each in match_pieces(work.job(), open_index(work.index_file), [batch])
    ]
    wanted = judged(work, boxes, batch.num_rows)
    assert len(wanted) > 100
    assert np.array_equal(in_order(np.concatenate(found)), wanted)
