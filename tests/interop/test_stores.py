"""The lake in stores other than S3: written, compacted, read, matched, ingested; no key is told.

What holds for all stores is tried at length with S3 (`test_object_store.py`).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rove.bench.pipeline.feed import Feed, publish_some
from rove.bench.pipeline.stream import check
from rove.broker.storage.records import LogRow
from rove.lake import delta
from rove.lake.delta import MissingTableError
from rove.lake.log import LakeLog
from rove.lake.storage import OPTIONS, LakeError, child, clear, folders, read_bytes, write_whole
from rove.pipeline.jobs.job import JobSettings
from rove.pipeline.jobs.stream import MatchStream
from rove.pipeline.lake.data_source import one_slice, whole
from rove.pipeline.lake.log import Lake as ReadLake
from rove.pipeline.tables.ingest import ingest
from rove.pipeline.tables.table import Table, channels
from rove.serve.disk.lake import LakeAppender
from tests.interop import stores
from tests.interop.stores import Store

pytestmark = pytest.mark.soak
NOON_S = 1_763_294_400.0
Serve = Callable[[Path], contextlib.AbstractContextManager[Store]]


@pytest.fixture(scope="module", params=[stores.azure, stores.hdfs], ids=["abfs", "hdfs"])
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    serve: Serve = request.param
    with serve(tmp_path_factory.mktemp("store")) as one, pytest.MonkeyPatch.context() as patch:
        for name, value in one.environment.items():
            patch.setenv(name, value)
        yield one


def rows(first: int, last: int) -> list[tuple[int, LogRow]]:
    return [
        (n, LogRow("publications", "a/b", NOON_S, "t", str(n), payload=b'{"x": %d}' % n))
        for n in range(first, last + 1)
    ]


def positions(location: str) -> list[int]:
    found: list[int] = whole(LakeLog(location))["position"].to_pylist()
    return found


def test_a_lake_is_written_compacted_read_and_ingested(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    location, tables = f"{store.location}/some/lake", f"{store.location}/some/tables"
    with pytest.raises(MissingTableError, match=f"there is no table at {location}"):
        delta.DeltaTable(location)
    lake = LakeAppender(location, rows_per_file=4, replaced_hours=0)
    lake.take(rows(1, 10))
    assert lake.files == 3
    again = LakeAppender(location, replaced_hours=0)
    again.take(rows(5, 12))
    assert positions(location) == list(range(1, 13))
    monkeypatch.setattr("rove.lake.compaction.SMALL_FILES_MAX", 2)
    again.maintain(time.time())
    assert again.files == 1
    assert positions(location) == list(range(1, 13))
    assert (ingest(None, location, tables).rows_out, channels(tables)) == (12, ["a/b"])
    found = Table(tables, "a/b").read(columns=["x"])["x"].to_pylist()
    assert sorted(found) == list(range(1, 13))
    assert ingest(None, location, tables).rows_in == 0
    again.keep_bytes = 0
    again.maintain(time.time())
    assert (positions(location), LakeLog(location).position()) == ([], 12)


def test_small_files_come_back_as_they_were(store: Store) -> None:
    place = f"{store.location}/small"
    assert read_bytes(place, "a/b") is None
    for content in (b"", b"x", bytes(range(256)) * 40_000):
        write_whole(child(place, "a/b"), [content])
        assert read_bytes(place, "a/b") == content
    assert (folders(place), folders(f"{place}/nothing")) == (["a"], [])
    clear(place, "a")
    assert read_bytes(place, "a/b") is None


def test_match_finds_in_a_store_and_writes_to_it(store: Store, tmp_path: Path) -> None:
    lake, out = f"{store.location}/lake", f"{store.location}/out/match"
    feed = Feed(lake)
    feed.subscribe(1, "NO2 > 50", 0.0, engine="spark")
    feed.subscribe(2, "NO2 > 5 ORDER BY NO2 DESC LIMIT 2 WITHIN 1 SECONDS", 0.0, engine="spark")
    publish_some(feed, 40, 1.0)
    feed.write()
    stream = MatchStream(None, JobSettings(lake=lake, out=out, buckets=2), out)
    stream.take(0, [one_slice(ReadLake(lake), up_to=feed.position)])
    assert check(lake, out, tmp_path / "work") > 10
    stream.output.tidy()


def test_no_key_is_told(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a good one that opens nothing nor one that is refused or is none."""
    if not store.secret:
        pytest.skip("this store has no key")
    caplog.set_level(logging.DEBUG)
    monkeypatch.setitem(OPTIONS, "max_retries", "0")
    wrong = store.secret[:-6] + "AAAA=="
    for name, value in (
        ("AZURITE_BLOB_STORAGE_URL", "http://127.0.0.1:9"),
        ("AZURE_STORAGE_ACCOUNT_KEY", wrong),
        ("AZURE_STORAGE_ACCOUNT_KEY", f"not base64 {store.secret}"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            with pytest.raises(LakeError) as caught:
                LakeLog(f"{store.location}/lake")
        for said in (str(caught.value), caplog.text):
            assert "\n" not in str(caught.value)
            assert store.secret[:20] not in said
