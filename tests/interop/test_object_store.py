"""A lake in an object store: the same rows, once, however badly the store answers."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rove.broker.records import LogRow
from rove.lake import delta
from rove.lake.delta import MissingTableError
from rove.lake.log import Log
from rove.lake.storage import OPTIONS, LakeError
from rove.pipeline.histories import TableHistory
from rove.pipeline.ingest import ingest
from rove.pipeline.source import whole
from rove.pipeline.tables import Table, TablesError, channels
from rove.pipeline.tallying import Example
from rove.serve.lake import Lake
from tests.effort import is_soak

ROOT = Path(__file__).parents[2]
NOON_S = 1_763_294_400.0


def rows(first: int, last: int) -> list[tuple[int, LogRow]]:
    return [
        (position, LogRow("publications", "a/b", NOON_S, "t", str(position), payload=b"x"))
        for position in range(first, last + 1)
    ]


def positions(location: str) -> list[int]:
    found: list[int] = whole(Log(location))["position"].to_pylist()
    return found


def test_it_is_written_read_compacted_and_cleaned(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = f"{bucket}/some/lake"
    with pytest.raises(MissingTableError, match=f"there is no table at {location}"):
        delta.Table(location)
    lake = Lake(location, rows_per_file=4, replaced_hours=0)
    lake.take(rows(1, 10))
    assert lake.files == 3
    again = Lake(location, replaced_hours=0)
    again.take(rows(5, 12))
    log = Log(location)
    assert (log.position(), log.channels()) == (12, ["a/b"])
    assert positions(location) == list(range(1, 13))
    monkeypatch.setattr("rove.serve.lake.SMALL_FILES_MAX", 2)
    again.maintain(time.time())
    assert again.files == 1
    assert positions(location) == list(range(1, 13))
    again.keep_bytes = 0
    again.maintain(time.time())
    assert positions(location) == []
    assert Log(location).position() == 12


def test_typed_tables_are_made_read_and_kept_few_there(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rove.lake.upkeep.SMALL_FILES_MAX", 2)
    lake, tables = f"{bucket}/lake", f"{bucket}/some/tables"
    with pytest.raises(TablesError, match=f"no table of the channel 'a/b' in {tables}; `rove"):
        Table(tables, "a/b").read()
    assert channels(tables) == []
    writer = Lake(lake)
    count = 5
    for number in range(count):
        taken = [
            (position, LogRow("publications", "a/b", NOON_S, "t", payload=b'{"x": %d}' % position))
            for position in range(5 * number, 5 * number + 5)
        ]
        writer.take(taken)
        assert ingest(None, lake, tables).rows_out == 5
    assert channels(tables) == ["a/b"]
    table = Table(tables, "a/b")
    assert sorted(table.read(columns=["x"])["x"].to_pylist()) == list(range(5 * count))
    assert len(table.files()) <= 2
    assert table.counts() == {"in": 5 * count, "out": 5 * count}
    assert ingest(None, lake, tables).rows_in == 0
    history = TableHistory(tables)
    one = Example(0, round(NOON_S * 1e6), 7, "", "t", "none", 0)
    assert history.find(one, lambda said: True).attributes == {"x": 7, "topic": "t"}


@pytest.fixture
def unreliable(s3_server: str, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The bucket through a proxy that fails a fifth of the requests."""
    target = s3_server.removeprefix("http://")
    command = [sys.executable, "-m", "tests.interop.unreliable_store", target, "7", "0.2"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{int(proxy.stdout.readline())}")
        yield f"{bucket}/lake"
        proxy.kill()


def test_a_store_that_fails_and_loses_answers_has_each_row_once(
    unreliable: str, s3_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rove.serve.lake.SMALL_FILES_MAX", 6)
    steps = 60 if is_soak() else 6
    done = failures = 0
    lake: Lake | None = None
    while done < steps:
        try:
            lake = lake or Lake(unreliable)
            lake.take(rows(max(1, 5 * done - 7), 5 * done + 5))  # some come again
            done += 1
            lake.maintain(time.time())
        except LakeError:
            failures += 1
            lake = None if failures % 3 == 0 else lake
        assert failures < 20 * steps
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    assert positions(unreliable) == list(range(1, 5 * steps + 1))


def test_a_store_that_is_away_says_so_in_one_line(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setitem(OPTIONS, "max_retries", "0")
    with pytest.raises(LakeError, match=f"cannot open the table {bucket}/lake: ") as caught:
        Log(f"{bucket}/lake")
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
