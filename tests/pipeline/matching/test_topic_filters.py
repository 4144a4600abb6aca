"""Topic filters within an index: the same as to ask each filter of each row."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from rove.mqtt.topics import fits
from rove.pipeline.lake.versions import Version
from rove.pipeline.matching.dataframes import MatchJob, match_pieces
from rove.pipeline.matching.index import Index, open_index
from rove.pipeline.matching.topic_filters import NO_FILTER, Filters
from rove.pipeline.spark.executors import TaskFile

WORDS = ("air", "road", "a", "+", "#", "$SYS")


def test_a_row_is_shown_once_for_each_filter_that_fits() -> None:
    filters = Filters(["air/#", "+/no2"])
    rows, numbers = filters.expanded(["air/no2", "road/x", None, "air/o3"])
    assert sorted(zip(rows.tolist(), numbers.tolist(), strict=True)) == [(0, 0), (0, 1), (3, 0)]
    filters.add("")
    rows, numbers = filters.expanded(["road/x", None, "air/o3"])
    assert (rows.tolist(), numbers.tolist()) == ([0, 1, 2], [NO_FILTER, NO_FILTER, 0])


@pytest.mark.parametrize("seed", range(6))
def test_filters_as_a_loop_has_them(seed: int, tmp_path: Path) -> None:
    drawn = random.Random(seed)
    topics = [*("/".join(drawn.choices(WORDS[:3], k=drawn.randint(1, 3))) for _ in range(40)), None]
    topics += ["$SYS/a", "", "air/"]
    x = [drawn.randint(0, 9) for _ in topics]
    known = ["", "#", "air/#", "+/a", "air", "air/+", "$SYS/#", "+/+/#", "a/#"]
    filters = drawn.sample(known, drawn.randint(1, 5))
    wanted = [(drawn.choice(filters), drawn.randint(0, 9)) for _ in range(30)]
    index = Index.build(
        [
            Version(number=number, text=f"x > {bound}" if bound else "", filter=name)
            for number, (name, bound) in enumerate(wanted)
        ]
    )
    index.save(tmp_path / "index")
    file = TaskFile(str(tmp_path / "index"), str(tmp_path / "index"))
    batch = pa.record_batch({"x": pa.array(x), "place": pa.array(topics, pa.string())})
    found: set[tuple[int, int]] = set()
    for piece, matched in match_pieces(
        MatchJob(file, ["x"], None, "place", [], "pairs"), open_index(file), [batch]
    ):
        assert piece.num_rows == len(topics)
        ids = iter(matched.subscriptions.tolist())
        pairs = [(row, next(ids)) for row, n in enumerate(matched.counts) for _ in range(n)]
        assert len(pairs) == len(set(pairs)), "nobody gets a row twice"
        found |= set(pairs)
    expected = {
        (row, number)
        for row, (topic, value) in enumerate(zip(topics, x, strict=True))
        for number, (name, bound) in enumerate(wanted)
        if (not bound or value > bound) and (not name or (topic is not None and fits(name, topic)))
    }
    assert found == expected
