"""A lake in an object store: the same rows, once, however badly the store answers."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rove.bench.pipeline.feed import Feed, publish_some
from rove.bench.pipeline.stream import check
from rove.broker.storage.records import LogRow
from rove.lake import delta
from rove.lake.delta import MissingTableError
from rove.lake.log import LakeLog
from rove.lake.storage import OPTIONS, LakeError, child, clear, read_bytes, remove, write_whole
from rove.pipeline.jobs.job import JobSettings
from rove.pipeline.jobs.notifications import MatchOutput, found_position
from rove.pipeline.jobs.spark_feeds import FeedOffset, FeedReader
from rove.pipeline.jobs.status import Reporter, StatusError, StepReport, ask_to_stop, held, statuses
from rove.pipeline.jobs.stream import MatchStream
from rove.pipeline.lake.data_source import one_slice, whole
from rove.pipeline.lake.log import Lake as ReadLake
from rove.pipeline.tables.backtest_sources import TableSource
from rove.pipeline.tables.backtest_tasks import Example
from rove.pipeline.tables.ingest import ingest
from rove.pipeline.tables.table import Table, TablesError, channels
from rove.serve.disk.lake import LakeAppender
from tests.effort import PATIENCE_S, is_soak
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
NOON_S = 1_763_294_400.0


def rows(first: int, last: int) -> list[tuple[int, LogRow]]:
    return [
        (position, LogRow("publications", "a/b", NOON_S, "t", str(position), payload=b"x"))
        for position in range(first, last + 1)
    ]


def positions(location: str) -> list[int]:
    found: list[int] = whole(LakeLog(location))["position"].to_pylist()
    return found


def test_it_is_written_read_compacted_and_cleaned(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = f"{bucket}/some/lake"
    with pytest.raises(MissingTableError, match=f"there is no table at {location}"):
        delta.DeltaTable(location)
    lake = LakeAppender(location, rows_per_file=4, replaced_hours=0)
    lake.take(rows(1, 10))
    assert lake.files == 3
    again = LakeAppender(location, replaced_hours=0)
    again.take(rows(5, 12))
    log = LakeLog(location)
    assert (log.position(), log.channels()) == (12, ["a/b"])
    assert positions(location) == list(range(1, 13))
    monkeypatch.setattr("rove.lake.compaction.SMALL_FILES_MAX", 2)
    again.maintain(time.time())
    assert again.files == 1
    assert positions(location) == list(range(1, 13))
    again.keep_bytes = 0
    again.maintain(time.time())
    assert positions(location) == []
    assert LakeLog(location).position() == 12


@pytest.mark.soak
def test_typed_tables_are_made_read_and_kept_few_there(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rove.lake.compaction.NEWEST_FILES_MAX", 2)
    lake, tables = f"{bucket}/lake", f"{bucket}/some/tables"
    with pytest.raises(TablesError, match=f"no table of the channel 'a/b' in {tables}; `rove"):
        Table(tables, "a/b").read()
    assert channels(tables) == []
    writer = LakeAppender(lake)
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
    history = TableSource(tables)
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
    monkeypatch.setattr("rove.lake.compaction.SMALL_FILES_MAX", 6)
    steps = 60 if is_soak() else 6
    done = failures = 0
    lake: LakeAppender | None = None
    while done < steps:
        try:
            lake = lake or LakeAppender(unreliable)
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
        LakeLog(f"{bucket}/lake")
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_small_files_come_back_as_they_were(bucket: str) -> None:
    assert read_bytes(bucket, "a/b") is None
    remove(bucket, "a/b")
    for content in (b"", b"x", bytes(range(256)) * 40_000):
        write_whole(child(bucket, "a/b"), [content])
        assert read_bytes(bucket, "a/b") == content
    clear(bucket, "a")
    assert read_bytes(bucket, "a/b") is None


def subscribed(location: str) -> Feed:
    feed = Feed(location)
    feed.subscribe(1, "NO2 > 50", 0.0, engine="spark")
    feed.subscribe(2, "NO2 > 5 ORDER BY NO2 DESC LIMIT 2 WITHIN 1 SECONDS", 0.0, engine="spark")
    publish_some(feed, 40, 1.0)
    feed.write()
    return feed


def test_match_finds_in_a_store_and_writes_to_it(bucket: str, tmp_path: Path) -> None:
    """All that tasks and the driver write is there: notifications, states, scratch and index."""
    lake, out = f"{bucket}/lake", f"{bucket}/out/match"
    feed = subscribed(lake)
    for step in range(3):
        stream = MatchStream(None, JobSettings(lake=lake, out=out, buckets=2), out)
        stream.take(step, [one_slice(ReadLake(lake), up_to=feed.position)])
        assert stream.output.done == feed.position
        assert set(stream.output.states) == {0, 1}
        publish_some(feed, 40, 10.0 + step, seed=step)
        feed.write()
    stream.take(3, [one_slice(ReadLake(lake), up_to=feed.position)])
    found = check(lake, out, tmp_path / "work")
    stream.output.tidy()
    assert check(lake, out, tmp_path / "work2") == found > 60
    batches = FeedReader(out, ReadLake(lake)).batches(FeedOffset())
    assert sum(1 for batch in batches for _ in batch.found) > 30
    assert MatchOutput(out).done == feed.position


def test_a_job_says_how_it_is_and_is_stopped_in_a_store(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rove.pipeline.jobs.status.STORE_EVERY_S", 0.0)
    out = f"{bucket}/out"
    with pytest.raises(StatusError, match=f"no job has run in {out}"):
        statuses(out)
    with held(f"{out}/match", "match"):
        reporter = Reporter(f"{out}/match", "match")
        reporter.progress(StepReport(position=7))
        assert [(one.job, one.state, one.position) for one in statuses(out)] == [
            ("match", "running", 7),
        ]  # fmt: skip
        assert not reporter.is_stop_requested()
        with pytest.raises(StatusError, match=r"has not ended within 0 s"):
            ask_to_stop(out, [], 0.0)
        assert reporter.is_stop_requested()
        monkeypatch.setattr("rove.pipeline.jobs.status.SILENT_S", 0.0)
        assert [one.state for one in statuses(out)] == ["killed"]
        reporter.end("stopped")
    assert [one.state for one in statuses(out)] == ["stopped"]
    with held(f"{out}/match", "match"):
        assert not reporter.is_stop_requested()


@pytest.mark.soak
def test_the_command_runs_in_a_store(bucket: str, tmp_path: Path) -> None:
    """With executors of their own that know it only by its address."""
    lake, out = f"{bucket}/lake", f"{bucket}/out"
    feed = subscribed(lake)
    rove = [sys.executable, "-m", "rove", "pipeline"]
    words = ["match", "--lake", lake, "--out", out, "--buckets", "2", "--brief", "--memory", "1g"]
    for step in range(2):
        with subprocess.Popen([*rove, "run", *words], cwd=tmp_path) as job:
            try:
                eventually(
                    lambda: (
                        job.poll() is not None or found_position(f"{out}/match") == feed.position
                    )
                )
                subprocess.run([*rove, "stop", "--out", out], check=True)
                assert job.wait(PATIENCE_S) == 0
            finally:
                job.kill()
        assert check(lake, f"{out}/match", tmp_path / f"work{step}") > 10
        publish_some(feed, 40, 10.0 + step, seed=step)
        feed.write()
    assert list(tmp_path.glob("[!w]*")) == [], "nothing is left in the working folder"
