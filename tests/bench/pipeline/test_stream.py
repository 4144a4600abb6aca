"""The benchmark of the streaming match, without the waiting: what it writes and how it judges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rove.bench.pipeline.feed import Feed, publish_some
from rove.bench.pipeline.stream import (
    Done,
    Load,
    StreamBenchError,
    append,
    check,
    count_slices,
    in_order,
    measured_delays,
    plain,
    subscribe,
    write,
)
from rove.lake.files import write_file
from rove.lake.log import COLUMNS
from rove.pipeline.jobs.notifications import SCHEMA, MatchOutput
from rove.pipeline.lake.data_source import schema_of, whole
from rove.pipeline.lake.log import Lake
from rove.pipeline.ranked.ranking import NOTIFICATIONS


def rows_of(lake: Path) -> pa.Table:
    return whole(Lake(lake))


@pytest.mark.soak
def test_the_writer_keeps_its_rate_and_its_order(tmp_path: Path) -> None:
    append(tmp_path, "W1", 400, 0.5)
    write(tmp_path, "W1", 100, 0.3, 0.1)
    rows = rows_of(tmp_path)
    assert rows.schema == schema_of(COLUMNS)
    assert rows["position"].to_pylist() == list(range(230))
    assert Lake(tmp_path).position() == 229
    at_us = rows["at"].cast(pa.int64()).to_numpy()
    assert np.all(np.diff(at_us) > 0)
    assert at_us[199] - at_us[0] == pytest.approx(199 / 400 * 1e6, abs=2)
    assert rows["id"][7].as_py() == "p7"


def test_subscriptions_are_those_of_the_workload(tmp_path: Path) -> None:
    subscribe(tmp_path, Load("W2", 20))
    events = list(Lake(tmp_path).events())
    assert [event.number for event in events] == list(range(20))
    assert all("BETWEEN" in event.text and "* t" not in event.text for event in events)


def filled(folder: Path) -> Path:
    feed = Feed(folder / "lake")
    feed.subscribe(1, "NO2 > 50", 0.0)
    feed.subscribe(2, "NO2 > 5 ORDER BY NO2 DESC LIMIT 2 WITHIN 1 SECONDS", 0.0)
    for second in range(1, 5):
        publish_some(feed, 10, float(second), seed=second)
    feed.write()
    return folder / "lake"


def test_a_table_that_differs_is_refused(tmp_path: Path) -> None:
    lake, output = filled(tmp_path), MatchOutput(tmp_path / "out")
    expected = plain(lake, tmp_path / "index")
    assert set(expected["subscription"].to_pylist()) == {1, 2}
    assert expected.schema == NOTIFICATIONS
    assert in_order(expected.take(list(range(len(expected)))[::-1])) == expected
    found = expected.append_column("sequence", pa.nulls(len(expected), pa.int64())).cast(SCHEMA)
    output.commit(41, [write_file(output.uri, found.slice(1))], [], 0)
    with pytest.raises(StreamBenchError, match="are not the same"):
        check(lake, output.uri, tmp_path / "work1")
    output.commit(42, [write_file(output.uri, found.slice(0, 1))], [], 0)
    assert check(lake, output.uri, tmp_path / "work2") == len(expected)


def test_delays_are_from_the_publication_to_its_commit(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    for second in range(11):
        feed.publish("air/1", {}, float(second))
    feed.write()
    # Positions 4 to 10; those before are the warm-up.
    delays = measured_delays(tmp_path, [Done(4, 6.0), Done(10, 12.0)], -1)
    assert delays.tolist() == [2, 7, 6, 5, 4, 3, 2]


def test_slices_are_counted_by_reading_them(tmp_path: Path) -> None:
    from rove.pipeline.lake.data_source import LakeStreamReader, SourceOptions

    lake = filled(tmp_path)
    reader = LakeStreamReader(SourceOptions(lake=str(lake), content="slices"))
    parts = reader.partitions({"position": -1}, {"position": 41})
    (counted,) = count_slices(batch for part in parts for batch in reader.read(part))
    assert counted["rows"].to_pylist() == [40]
