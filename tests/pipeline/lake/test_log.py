"""The broker's lake as the pipeline reads it."""

import json
from pathlib import Path

import pytest

from rove.broker.storage.records import LogRow
from rove.lake.log import COLUMNS, LogFile, open_for_writing
from rove.pipeline.lake.log import Lake, LakeError
from rove.serve.disk.lake import LakeAppender as WrittenLake

NOON_S = 1_700_000_000.25
DAY_S = 86_400.0


def written(folder: Path) -> Lake:
    """Ten publications on two channels and two days, and events between them."""
    rows: list[tuple[int, LogRow]] = []
    for position in range(1, 11):
        channel = "a/b" if position % 2 else "road"
        at = NOON_S + (DAY_S if position > 5 else 0)
        rows.append((3 * position, LogRow("publications", channel, at, "t", f"p{position}")))
        event = {"event": "ended", "number": position}
        row = LogRow("subscriptions", "", at, client_id="ann", payload=json.dumps(event).encode())
        rows.append((3 * position + 1, row))
    lake = WrittenLake(folder, rows_per_file=3)
    lake.take(rows)
    return Lake(folder)


def test_files_are_found_by_position_channel_and_day(tmp_path: Path) -> None:
    lake = written(tmp_path)
    assert lake.position() == 31
    assert lake.channels() == ["a/b", "road"]
    everything = lake.files("publications")
    assert [file.first for file in everything] == sorted(file.first for file in everything)
    assert sum(len(lake.read(file)) for file in everything) == 10
    assert {file.channel for file in lake.files("publications", channels=["a/b"])} == {"a/b"}
    assert {file.day for file in lake.files("publications", days=("2023-11-15", "9"))} == {
        "2023-11-15"
    }
    some = lake.files("publications", after=12, up_to=18)
    assert all(file.last > 12 and file.first <= 18 for file in some)
    found = [
        row["position"] for file in some for row in lake.read(file, COLUMNS, 12, 18).to_pylist()
    ]
    assert sorted(found) == [15, 18]


def test_what_is_added_is_seen(tmp_path: Path) -> None:
    lake = written(tmp_path)
    before = len(lake.files("publications"))
    WrittenLake(tmp_path).take([(99, LogRow("publications", "road", NOON_S + DAY_S))])
    after = lake.files("publications")
    assert (len(after), after[-1].last) == (before + 1, 99)


def test_events_come_in_order_with_their_moment(tmp_path: Path) -> None:
    events = list(written(tmp_path).events(after=7, up_to=20))
    assert [(event.position, event.number) for event in events] == [
        (10, 3), (13, 4), (16, 5), (19, 6),
    ]  # fmt: skip
    assert {event.client_id for event in events} == {"ann"}
    assert events[0].at == NOON_S


def test_only_the_states_of_some_clients_are_read(tmp_path: Path) -> None:
    said = [
        ("ann", "state"),
        ("bob", "state"),
        ("ann", "ended"),
        ("bob", "policy"),
        ("", "started"),
    ]
    rows = [
        (
            position,
            LogRow(
                "subscriptions", "", NOON_S, client_id=client_id,
                payload=json.dumps({"event": event}, separators=(",", ":")).encode(),
            ),
        )
        for position, (client_id, event) in enumerate(said)
    ]  # fmt: skip
    WrittenLake(tmp_path).take(rows)
    lake = Lake(tmp_path)
    assert [one.position for one in lake.events()] == [0, 1, 2, 4]
    assert [one.position for one in lake.events(states_of=["bob"])] == [1, 2, 4]
    assert [one.position for one in lake.events(states_of=())] == [2, 4]
    assert lake.id == Lake(tmp_path).id


def test_an_event_of_another_kind_is_named(tmp_path: Path) -> None:
    row = LogRow("subscriptions", "", NOON_S, payload=b'{"event": "gone"}')
    WrittenLake(tmp_path).take([(1, row)])
    with pytest.raises(LakeError, match=r"position 1: Invalid enum value 'gone'"):
        list(Lake(tmp_path).events())


def test_a_lake_that_is_missing_or_damaged_says_so(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=r"there is no lake at .*; a broker writes one when"):
        Lake(tmp_path / "none")
    WrittenLake(tmp_path)
    lake = Lake(tmp_path)
    assert lake.position() == -1
    (tmp_path / "x.parquet").write_bytes(b"no parquet")
    file = LogFile(0, 1, "x.parquet", "publications", "", "2023-11-15", 2, 10)
    with pytest.raises(LakeError, match=r"cannot read .*x\.parquet: Parquet magic bytes not found"):
        lake.read(file)
    [commit] = (tmp_path / "_delta_log").glob("*.json")
    commit.write_text("{")
    with pytest.raises(LakeError, match=r"cannot open the table .*") as caught:
        Lake(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("channel", ["a/b", "..", "", "ünï/😀", "a%2Fb", "17", "x y", "a=b"])
def test_channels_are_read_back(tmp_path: Path, channel: str) -> None:
    WrittenLake(tmp_path).take([(1, LogRow("publications", channel, NOON_S))])
    assert Lake(tmp_path).channels() == [channel]


def test_publications_as_a_data_frame(tmp_path: Path, spark: object) -> None:
    lake = written(tmp_path)
    columns = ("position", "id", "channel", "day")
    some = lake.publications(spark, after=6, up_to=25, channels=["a/b"], columns=columns)
    assert sorted((row.position, row.id, row.channel, str(row.day)) for row in some.collect()) == [
        (9, "p3", "a/b", "2023-11-14"),
        (15, "p5", "a/b", "2023-11-14"),
        (21, "p7", "a/b", "2023-11-15"),
    ]
    with pytest.raises(LakeError, match="the lake has no channel 'sea'; it has 'a/b', 'road'"):
        lake.publications(spark, channels=["sea"])
    with pytest.raises(LakeError, match="no publications from 1999-01-01 to 1999-01-02"):
        lake.publications(spark, days=("1999-01-01", "1999-01-02"))
    empty = tmp_path / "empty"
    open_for_writing(empty)
    with pytest.raises(LakeError, match="has no publications yet"):
        Lake(empty).publications(spark)
