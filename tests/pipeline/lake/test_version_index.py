"""A recorded life of a broker, judged again from its lake: the same notifications."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from rove.lang.attributes import attributes_of
from rove.lang.oracle import matches
from rove.lang.parser import parse
from rove.pipeline.lake.followers import changes_of, variables_of, write_followers
from rove.pipeline.lake.version_index import IndexFileSpec, IndexSpec, VersionIndex, opened
from rove.pipeline.lake.versions import Version, versions_of
from rove.pipeline.matching.dataframes import MatchJob, match_pieces
from rove.pipeline.matching.index import Index
from rove.pipeline.matching.index import open_index as open_table_index
from rove.pipeline.matching.index_files import write_index
from rove.pipeline.spark.executors import TaskFile
from tests.effort import is_soak, some
from tests.interop.by_state import index_of
from tests.interop.recorded import Notified, Recording

USER = pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))


def judged(recording: Recording, folder: Path) -> list[Notified]:
    index = index_of(recording.read, folder / "index")
    batches = recording.publications().to_batches(max_chunksize=17)
    return [one for batch in batches for one in pairs_of(index, batch)]


def pairs_of(index: VersionIndex, batch: Any) -> list[Notified]:
    pairs = index.match_lake(batch)
    numbers, ids = pairs["subscription"].to_pylist(), pairs["id"].to_pylist()
    return [Notified(*pair, False) for pair in zip(numbers, ids, strict=True)]


@pytest.mark.parametrize("seed", some([1, 0, *range(2, 6)]))
def test_what_the_lake_says_is_what_the_broker_did(tmp_path: Path, seed: int) -> None:
    recording = Recording(tmp_path / "lake", seed, elastic=seed % 2 == 1)
    recording.play(600 if is_soak() else 300)
    versions = versions_of(recording.read.events())
    is_ranked = {one.number for one in versions if one.text and parse(one.text).rank is not None}
    expected = [one for one in recording.notified() if one.subscription not in is_ranked]
    assert len(expected) > 100
    assert sorted(judged(recording, tmp_path)) == sorted(expected)


def test_of_those_who_share_one_is_found(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "lake", 20, ranked=False, shared=True)
    recording.play(500)
    versions = versions_of(recording.read.events())
    group_of = {one.number: (one.share, one.filter) for one in versions if one.share}
    assert len(group_of) > 5

    def by_group(found: list[Notified]) -> list[tuple[object, str]]:
        return sorted(
            (str(group_of.get(one.subscription, one.subscription)), one.id) for one in found
        )

    assert by_group(judged(recording, tmp_path)) == by_group(recording.notified())


def test_ranked_rows_are_those_that_meet_a_condition(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "lake", 30)
    recording.play(300)
    text = "x > 3 ORDER BY y LIMIT 1 WITHIN 1 HOURS"
    versions = [
        Version(number=number, text=text, filter="air/#", since=100 * number) for number in range(5)
    ]
    write_index(versions, tmp_path / "ranked.index")
    index = opened(IndexSpec((IndexFileSpec(str(tmp_path / "ranked.index"), ranked={4: 450}),)))
    table = recording.publications()
    rows = index.ranked_rows(table.combine_chunks().to_batches()[0], 2).to_pylist()
    condition = parse("x > 3")
    expected = {
        (row["position"], bucket): [
            one.number
            for one in versions
            if one.number % 2 == bucket
            and one.since < row["position"] <= (450 if one.number == 4 else 10_000)
        ]
        for row in table.to_pylist()
        for bucket in range(2)
        if row["topic"].startswith("air/")
        and matches(condition, attributes_of(row["topic"], row["payload"], ()))
    }
    found = {(row["position"], row["bucket"]): row["matched"] for row in rows}
    assert found == {key: numbers for key, numbers in expected.items() if numbers}
    assert len(found) > 50
    assert [row["position"] for row in rows] == sorted(row["position"] for row in rows)


@pytest.mark.parametrize(
    "text", ["", "x > 1", "x > t - 9", "x > 1 OR y > 1", "x + y > 1", "lower(k) = 'a'", "x > me.x"]
)
@pytest.mark.parametrize("topic_filter", ["", "air"])
def test_nobody_gets_what_is_older_than_their_subscription(
    tmp_path: Path, text: str, topic_filter: str
) -> None:
    """A clock that is set back, or a table of any times: the matcher itself looks at the time."""
    version = Version(
        number=0, text=text, filter=topic_filter, accepted_at=100.0, me={"x": 0}, client_id="ann"
    )
    ranked = msgspec.structs.replace(
        version, number=1, text=f"{text} ORDER BY x LIMIT 1 WITHIN 1 HOUR"
    )
    moments = pa.array([99_000_000, 100_000_000]).cast(pa.timestamp("us", tz="UTC"))
    said = pa.array([b'{"x": 5, "y": 2, "k": "A"}'] * 2, pa.binary())
    lake = pa.record_batch(
        {"position": [7, 8], "at": moments, "id": ["7", "8"], "client_id": ["bob"] * 2,
         "topic": ["air"] * 2, "payload": said, "user": pa.nulls(2, USER)}
    )  # fmt: skip
    write_index([version, ranked], tmp_path / "fixed")
    found = [opened(IndexSpec((IndexFileSpec(str(tmp_path / "fixed")),)))]
    if "me." in text:
        variables = variables_of([version])
        changes = changes_of([(9, "ann", {"x": 9})], variables)
        write_followers([version, ranked], variables, changes, tmp_path / "following")
        found.append(opened(IndexSpec((), str(tmp_path / "following"))))
    for index in found:
        assert index.match_lake(lake)["position"].to_pylist() == [8]
        assert index.ranked_rows(lake, 1)["position"].to_pylist() == [8]

    with Index.build([version]) as table_index:
        table_index.save(tmp_path / "table")
    table = pa.record_batch(
        {"at": [99.0, 100.0], "topic": ["air"] * 2, "x": [5] * 2, "y": [2] * 2, "k": ["A"] * 2}
    )
    job = MatchJob(TaskFile("table", str(tmp_path / "table")), ["x"], "at", "topic", [], "pairs")
    ((_, rows),) = match_pieces(job, open_table_index(job.file), [table])
    assert rows.counts.tolist() == [0, 1]


def test_a_publication_without_a_payload_says_its_topic_only(tmp_path: Path) -> None:
    texts = ["", "topic = 'air'", "x IS NULL", "x > 1", "NOT (x > 1)"]
    versions = [Version(number=number, text=text, filter="#") for number, text in enumerate(texts)]
    write_index(versions, tmp_path / "index")
    index = opened(IndexSpec((IndexFileSpec(str(tmp_path / "index")),)))
    for payload in (None, b"", b"no object"):
        batch = pa.record_batch(
            {"position": [7], "at": pa.array([0], pa.timestamp("us", tz="UTC")), "id": ["7"],
             "client_id": ["bob"], "topic": ["air"], "payload": pa.array([payload], pa.binary()),
             "user": pa.nulls(1, USER)}
        )  # fmt: skip
        assert index.match_lake(batch)["subscription"].to_pylist() == [0, 1, 2]
