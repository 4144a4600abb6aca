"""The streaming match equals matching the lake as a whole, wherever batches end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from rove.bench.pipeline.feed import Feed, publish_some
from rove.lake.delta import DeltaTable
from rove.lake.storage import Location, MissingFileError
from rove.lang.attributes import attributes_of
from rove.lang.oracle import matches
from rove.lang.parser import parse
from rove.pipeline.jobs.job import JobSettings
from rove.pipeline.jobs.notifications import MatchOutput, OutputError
from rove.pipeline.jobs.status import StepReport
from rove.pipeline.jobs.stream import MatchStream, MatchTask, match_slice
from rove.pipeline.lake.data_source import Slice, SliceFile, one_slice, whole
from rove.pipeline.lake.live_index import LiveIndex
from rove.pipeline.lake.log import Lake
from rove.pipeline.lake.version_index import IndexSpec, opened
from rove.pipeline.ranked.ranking import run_bucket
from tests.interop.by_state import versions_by_state

NEAREST = "NO2 > 5 ORDER BY NO2 DESC LIMIT 2 WITHIN 10 SECONDS"
Notification = tuple[int, int, float | None, bool | None]


def publications(folder: Location) -> Any:
    return whole(Lake(folder))


def expected(folder: Location, engine: str | None = None) -> list[Notification]:
    """By the judge of the language: each version of a subscription against each publication."""
    rows = publications(folder).select(["position", "at", "topic", "payload"])
    at_us = rows["at"].cast(pa.int64()).to_pylist()
    found: list[Notification] = []
    for version in versions_by_state(Lake(folder).events(), engine):
        text = parse(version.text)
        if text.rank is not None:
            continue
        for row, moment in zip(rows.to_pylist(), at_us, strict=True):
            if version.since < row["position"] <= version.until and matches(
                text,
                attributes_of(row["topic"], row["payload"]),
                moment / 1e6 - version.accepted_at,
                version.me,
            ):
                found.append((version.number, row["position"], None, False))
    return sorted(found)


def expected_ranked(folder: Location, work: Path) -> list[Notification]:
    """By windows that see everything at once, in one bucket."""
    lake = Lake(folder)
    index = LiveIndex(work)
    index.take(lake.events())
    batch = publications(folder).combine_chunks().to_batches()[0]
    rows = pa.Table.from_batches([opened(index.spec()).ranked_rows(batch, 1)])
    last = batch["at"].cast(pa.int64())[-1].as_py() / 1e6
    found, _ = run_bucket(0, 1, None, list(lake.events()), rows, until=last)
    return sorted(as_notifications(found))


def as_notifications(found: Any) -> list[Notification]:
    return [
        (row["subscription"], row["position"], row["score"], row["promoted"])
        for row in found.to_pylist()
    ]


def result(location: Location) -> list[Notification]:
    found = as_notifications(DeltaTable(location).rows())
    assert len(found) == len(set(found)), "something is there twice"
    return found


def lively(folder: Path, writes: int = 5, *, ranked: bool = False) -> Feed:
    """Subscriptions that come, change and go between publications."""
    feed = Feed(folder)
    for step in range(writes):
        at = 10.0 * step
        publish_some(feed, 20, at, seed=step)
        feed.subscribe(
            step, f"NO2 > {10 * step + 30}", at + 1, engine="spark" if step % 2 else "broker"
        )
        feed.subscribe(100 + step, "NO2 > me.limit", at + 1, me={"limit": 95}, client_id="m")
        feed.subscribe(300 + step, "NO2 > 95 - 2 * t", at + 1)
        if ranked and step in (1, 3):
            feed.subscribe(200 + step, NEAREST, at + 1)
        publish_some(feed, 20, at + 2, seed=100 + step)
        feed.change_state("m", at + 3, limit=70 + step)
        if step:
            feed.unsubscribe(step - 1, at + 3)
        publish_some(feed, 20, at + 4, seed=200 + step)
        feed.write()
    return feed


def settings_of(folder: Path, **changes: Any) -> JobSettings:
    given = {"lake": folder / "lake", "out": folder / "out", "buckets": 3, "once": True, **changes}
    return JobSettings(**given)


def run(spark: Any, settings: JobSettings) -> list[StepReport]:
    told: list[StepReport] = []
    assert MatchStream(spark, settings, settings.out, told.append).start().awaitTermination(120)
    return told


# --- without Spark --------------------------------------------------------------------------------


def test_a_slice_is_matched_as_the_judge_would(tmp_path: Path) -> None:
    lively(tmp_path / "lake")
    index = LiveIndex(tmp_path / "index")
    index.take(Lake(tmp_path / "lake").events())
    everything, out = one_slice(Lake(tmp_path / "lake")), tmp_path / "out"
    report = match_slice(MatchTask(slice=everything, index=index.spec(), out=str(out)))
    assert report.rows == 300
    assert report.found is not None
    found = pa.parquet.read_table(out / report.found.path)
    assert sorted(as_notifications(found)) == expected(tmp_path / "lake")
    assert found["position"].to_pylist() == sorted(found["position"].to_pylist())
    assert report.at_us == 44_000_019


def test_nothing_found_is_no_file(tmp_path: Path) -> None:
    nothing = Slice(-1, 9, str(tmp_path), ())
    report = match_slice(MatchTask(slice=nothing, index=IndexSpec(), out=str(tmp_path), buckets=2))
    assert (report.rows, report.found, report.scratch) == (0, None, None)


def test_a_file_that_a_task_does_not_find_is_an_error(tmp_path: Path) -> None:
    """It does not count as expired: an executor that does not see the lake would lose its rows."""
    lost = Slice(-1, 9, str(tmp_path), (SliceFile("gone.parquet"),))
    with pytest.raises(MissingFileError, match=r"gone.parquet was not found on"):
        match_slice(MatchTask(slice=lost, index=IndexSpec(), out=str(tmp_path)))


# --- with Spark -----------------------------------------------------------------------------------


def test_the_stream_equals_the_judge_wherever_batches_end(spark: Any, tmp_path: Path) -> None:
    lively(tmp_path / "lake", ranked=True)
    settings = settings_of(tmp_path, max_rows=70)
    told = run(spark, settings)
    assert [each.rows_in for each in told] == [70, 70, 70, 70, 20]
    assert [each.batch for each in told] == list(range(5))
    assert told[-1].position == Lake(settings.lake).position()
    assert told[-1].at == pytest.approx(44.000019)
    everything = expected(settings.lake) + expected_ranked(settings.lake, tmp_path / "work")
    assert sorted(result(settings.out)) == sorted(everything)
    assert any(promoted for *_, promoted in everything)
    assert sum(each.rows_out for each in told) == len(everything)


def everything_in(folder: Path) -> list[Notification]:
    return sorted(expected(folder / "lake") + expected_ranked(folder / "lake", folder / "work"))


def test_a_start_reads_only_the_events_since_the_snapshot(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rove.pipeline.lake.snapshots.EVENTS_MIN", 1)
    begun: list[int] = []

    class Counted(Lake):
        def events(self, after: int = -1, *others: Any, **more: Any) -> Any:
            begun.append(after)
            return super().events(after, *others, **more)

    monkeypatch.setattr("rove.pipeline.jobs.stream.Lake", Counted)
    feed = lively(tmp_path / "lake", 2, ranked=True)
    settings = settings_of(tmp_path)
    (told,) = run(spark, settings)
    assert begun == [-1]
    feed.subscribe(900, "NO2 > me.limit", 100.0, me={"limit": 60}, client_id="m")
    publish_some(feed, 30, 101.0, seed=7)
    feed.change_state("m", 102.0, limit=20)
    feed.unsubscribe(1, 102.0)
    publish_some(feed, 30, 103.0, seed=8)
    feed.write()
    run(spark, settings)
    assert begun == [-1, told.position]
    everything = expected(settings.lake) + expected_ranked(settings.lake, tmp_path / "work")
    assert sorted(result(settings.out)) == sorted(everything)


@pytest.mark.soak
def test_it_goes_on_where_it_was_and_a_lost_note_repeats_nothing(
    spark: Any, tmp_path: Path
) -> None:
    feed = lively(tmp_path / "lake", 2, ranked=True)
    settings = settings_of(tmp_path)
    run(spark, settings)
    before = result(settings.out)
    # Spark was killed after our commit and before its own.
    for path in (tmp_path / "out" / "_checkpoint" / "commits").iterdir():
        path.unlink()
    assert run(spark, settings) == []
    assert result(settings.out) == before
    feed.subscribe(900, "NO2 > 50", 100.0)
    publish_some(feed, 50, 101.0)
    feed.write()
    (told,) = run(spark, settings)
    assert (told.batch, told.rows_in) == (1, 50)
    assert sorted(result(settings.out)) == everything_in(tmp_path)


class KilledError(Exception):
    """In place of a death between two commits."""


def test_a_death_between_the_commits_and_a_lost_checkpoint_repeat_nothing(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's offsets are of another version than anybody here could read, and then gone."""
    monkeypatch.setattr("rove.pipeline.jobs.notifications.TIDY_EVERY_S", 0.0)
    spark.conf.set("spark.sql.streaming.offsetLog.formatVersion", "2")
    lively(tmp_path / "lake", 3, ranked=True)
    settings = settings_of(tmp_path, max_rows=70)
    stream = MatchStream(spark, settings, settings.out)
    commit = stream.output._states.commit

    def dies(writer: str, number: int, *files: Any) -> bool:
        if stream.output.done > 0:  # in the second batch
            raise KilledError
        return commit(writer, number, *files)

    monkeypatch.setattr(stream.output._states, "commit", dies)
    with pytest.raises(Exception, match="KilledError"):
        stream.start().awaitTermination(120)
    output = MatchOutput(settings.out)
    assert output.position > output.done > 0
    spark.conf.unset("spark.sql.streaming.offsetLog.formatVersion")
    # Without its checkpoint, and with batches that end elsewhere.
    other = msgspec.structs.replace(settings, checkpoint=tmp_path / "new", max_rows=100)
    told = run(spark, other)
    positions = publications(settings.lake)["position"].to_numpy()
    again = ((positions > output.done) & (positions <= output.position)).sum()
    assert (told[0].position, told[0].rows_in) == (output.position, again)
    assert sorted(result(settings.out)) == everything_in(tmp_path)
    stream.output.tidy()
    assert sorted(result(settings.out)) == everything_in(tmp_path)


@pytest.mark.soak
def test_only_what_spark_serves(spark: Any, tmp_path: Path) -> None:
    feed = lively(tmp_path / "lake", 3)
    feed.subscribe(500, NEAREST, 30.0)
    publish_some(feed, 10, 31.0)
    feed.write()
    settings = settings_of(tmp_path, engine="spark")
    run(spark, settings)
    found = result(settings.out)
    assert sorted(found) == expected(settings.lake, engine="spark")
    assert {number for number, *_ in found} == {1}


@pytest.mark.soak
def test_a_checkpoint_of_another_output_is_refused(spark: Any, tmp_path: Path) -> None:
    feed = lively(tmp_path / "lake", 1)
    settings = settings_of(tmp_path, checkpoint=tmp_path / "checkpoint")
    run(spark, settings)
    publish_some(feed, 5, 100.0)
    feed.write()
    stream = MatchStream(spark, settings, tmp_path / "other")
    with pytest.raises(Exception, match="does not match the checkpoint"):
        stream.start().awaitTermination(60)
    assert isinstance(stream.error, OutputError)
    assert result(tmp_path / "other") == []


@pytest.mark.soak
def test_it_follows_until_it_is_stopped(spark: Any, tmp_path: Path) -> None:
    feed = lively(tmp_path / "lake", 1)
    settings = settings_of(tmp_path, trigger_s=0.05, once=False)
    told: list[StepReport] = []
    stream = MatchStream(spark, settings, settings.out, told.append)
    query = stream.start()
    query.processAllAvailable()
    publish_some(feed, 5, 100.0)
    feed.write()
    query.processAllAvailable()
    stream.stop(query)
    assert not query.isActive
    assert told[-1].position == feed.position
    assert sorted(result(settings.out)) == expected(settings.lake)
