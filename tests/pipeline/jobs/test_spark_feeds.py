"""What of the table is for whom: in order, and under numbers that nothing changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rove.bench.pipeline.feed import Feed
from rove.broker.storage.records import LogRow
from rove.lake.delta import DeltaTable
from rove.lake.log import open_for_writing
from rove.pipeline.jobs import spark_feeds
from rove.pipeline.jobs.spark_feeds import (
    PIECE_BITS,
    FeedOffset,
    FeedReader,
    NotificationBatch,
    SparkNotification,
)
from rove.pipeline.lake.log import Event, Lake
from rove.pipeline.lake.snapshots import SubscriptionSnapshot, save
from rove.pipeline.lake.versions import Version
from tests.interop.by_hand import Batches

PLAIN, OTHER, RANKED, LIVE = 100, 101, 102, 103


class Case:
    """A lake with forty publications at positions 4 to 43, and a table to be filled."""

    def __init__(self, folder: Path) -> None:
        self.feed = Feed(folder / "lake", rows_per_file=7)
        for number in (PLAIN, OTHER):
            self.feed.subscribe(number, "x > 1", 1.0, engine="spark")
        text = "ORDER BY x LIMIT 1 WITHIN 1 HOUR"
        self.feed.subscribe(RANKED, text, 1.0, engine="spark")
        self.feed.subscribe(LIVE, "x > 1", 1.0)
        for x in range(4, 44):
            self.feed.publish(f"{'air' if x % 2 else 'road'}/{x}", {"x": x}, 2.0 + x / 1e6)
        self.feed.write()
        self.batches = Batches(folder / "out")
        self.reader = FeedReader(folder / "out", Lake(folder / "lake"))

    def plain(self, after: int = 0) -> list[SparkNotification]:
        return in_order(self.reader.batches(FeedOffset(after, 10**9)))

    def ranked(self, after: int = 0) -> list[SparkNotification]:
        return in_order(self.reader.batches(FeedOffset(10**15, after)))


def in_order(batches: Iterable[NotificationBatch]) -> list[SparkNotification]:
    return [one for batch in batches for one in batch.found]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def rows(*pairs: tuple[int, int], **facts: Any) -> list[dict[str, Any]]:
    return [{"subscription": number, "position": at, **facts} for number, at in pairs]


def at(position: int) -> int:
    return (position << PIECE_BITS) + 1


def test_a_publication_comes_with_all_that_it_meets(case: Case) -> None:
    case.batches.commit(30, rows((PLAIN, 9), (LIVE, 8), (PLAIN, 8)), rows((OTHER, 9), (LIVE, 9)))
    first, second = case.plain()
    assert (first.sequence, first.subscriptions) == (at(8), [PLAIN])
    assert second == SparkNotification(
        sequence=at(9),
        subscriptions=[PLAIN, OTHER],
        topic="air/9",
        at=2.000009,
        id="p9",
        client_id="feed",
        payload=b'{"x":9}',
        qos=0,
        position=9,
    )


def test_a_start_reads_who_is_subscribed_from_where_match_has_kept_it(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = [
        Version(number=PLAIN, text="x > 1", engine="spark"),
        Version(number=LIVE, text="x > 1"),
    ]
    lake = Lake(tmp_path / "lake")
    save(str(tmp_path / "out"), SubscriptionSnapshot(lake.id, None, 3, versions, [PLAIN, LIVE]))
    begun: list[int] = []

    def events(_: Lake, after: int, up_to: int, states_of: object) -> Iterator[Event]:
        begun.append(after)
        return iter(())

    monkeypatch.setattr(Lake, "events", events)
    case.batches.commit(30, rows((PLAIN, 9), (LIVE, 9), (OTHER, 9)))
    assert [one.subscriptions for one in case.plain()] == [[PLAIN]]
    assert begun == [3]


def test_user_properties_and_quality_are_those_of_the_publication(tmp_path: Path) -> None:
    case = Case(tmp_path)
    user = (("unit", "a"), ("unit", "b"))
    case.feed._add(LogRow("publications", "air", 3.0, "air/1", "own", "me", b"\xff", user, (), 2))
    position = case.feed.write()
    case.batches.commit(position, rows((PLAIN, position)))
    (one,) = case.plain()
    assert (one.user, one.qos, one.id) == (list(user), 2, "own")
    assert (one.client_id, one.payload) == ("me", b"\xff")


def test_it_is_read_on_from_any_number(case: Case) -> None:
    case.batches.commit(20, rows((PLAIN, 6), (PLAIN, 10)))
    case.batches.commit(43, rows((PLAIN, 30), (OTHER, 40)))
    sequences = [one.sequence for one in case.plain()]
    assert sequences == [at(6), at(10), at(30), at(40)]
    for done, after in enumerate(sequences, start=1):
        assert [one.sequence for one in case.plain(after)] == sequences[done:]


def test_many_subscriptions_are_handed_over_in_pieces(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_feeds, "PIECE_SUBSCRIPTIONS", 1)
    case.batches.commit(43, rows((OTHER, 9), (PLAIN, 9), (PLAIN, 10)))
    found = case.plain()
    assert [(one.sequence, one.subscriptions) for one in found] == [
        (at(9), [PLAIN]), (at(9) + 1, [OTHER]), (at(10), [PLAIN]),
    ]  # fmt: skip
    assert case.plain(at(9)) == found[1:]


def test_ranked_ones_go_by_their_sequence_and_may_look_back(case: Case) -> None:
    case.batches.commit(20, rows((PLAIN, 6), (PLAIN, 7)), rows((RANKED, 7), score=7.0))
    case.batches.commit(43, rows((RANKED, 6), score=6.0, promoted=True), rows((LIVE, 30)))
    assert [one.sequence for one in case.plain()] == [at(6), at(7)]
    found = case.ranked()
    assert [(one.sequence, one.id, one.score, one.promoted) for one in found] == [
        (1, "p7", 7.0, False), (2, "p6", 6.0, True),
    ]  # fmt: skip
    assert case.ranked(1) == found[1:]
    assert case.ranked(2) == []


def test_the_offset_after_a_batch_leaves_nothing_of_it(case: Case) -> None:
    case.batches.commit(20, rows((PLAIN, 6)), rows((RANKED, 7), score=1.0))
    plain, ranked = case.reader.batches(FeedOffset())
    assert [(each.is_ranked, each.position, each.rows) for each in (plain, ranked)] == [
        (False, 20, 2), (True, 20, 1),
    ]  # fmt: skip
    assert list(case.reader.batches(ranked.end)) == []
    case.batches.commit(30, rows((PLAIN, 21)), rows((RANKED, 7), score=1.0))
    plain, ranked = case.reader.batches(ranked.end)
    assert [one.sequence for one in plain.found] == [at(21)]
    assert [one.sequence for one in ranked.found] == [2]


def test_much_comes_in_several_batches(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    for position in range(4, 43, 2):
        case.batches.commit(
            position + 1,
            rows((PLAIN, position), (OTHER, position + 1)),
            rows((RANKED, position), (RANKED, 5), score=1.0),
        )
    plain, ranked = case.plain(), case.ranked()
    monkeypatch.setattr(spark_feeds, "BATCH_ROWS", 10)
    batches = list(case.reader.batches(FeedOffset()))
    assert len(batches) > 8
    assert in_order(batches) == plain + ranked


def test_compaction_changes_no_number(case: Case) -> None:
    for position in range(4, 43, 2):
        case.batches.commit(
            position + 1,
            rows((PLAIN, position), (OTHER, position + 1)),
            rows((RANKED, position), (RANKED, 5), score=1.0),
        )
    plain, ranked = case.plain(), case.ranked()
    assert (len(plain), len(ranked)) == (40, 40)
    table = DeltaTable(case.reader.uri)
    table.compact(1_000_000)
    assert table.files().num_rows == 1
    assert (case.plain(), case.ranked()) == (plain, ranked)
    for done in range(0, 40, 13):
        assert case.plain(plain[done].sequence) == plain[done + 1 :]
        assert case.ranked(ranked[done].sequence) == ranked[done + 1 :]


def test_a_publication_of_several_channels_counts_once(case: Case) -> None:
    for at_s, payload in ((5.0, b"1"), (5.0, b"2")):
        for channel in ("air", "road", "all"):
            row = LogRow("publications", channel, at_s, "air/1", f"id{payload!r}", "me", payload)
            case.feed._add(row)
    last = case.feed.write()
    case.batches.commit(last, rows(*((PLAIN, last - back) for back in range(6))))
    assert [one.payload for one in case.plain()] == [b"1", b"2"]
    assert [one.payload for one in case.plain(at(last - 4))] == [b"2"]


def test_what_the_lake_has_no_more_is_counted(case: Case) -> None:
    case.batches.commit(43, rows((PLAIN, 9), (PLAIN, 42)))
    open_for_writing(case.reader._lake.uri).delete("kind = 'publications' AND position <= 12")
    assert [one.sequence for one in case.plain()] == [at(42)]
    assert case.reader.lost == 1


def test_later_subscriptions_are_learnt(case: Case) -> None:
    case.batches.commit(43, rows((200, 9)))
    assert case.plain() == []
    case.feed.subscribe(200, "x > 1", 50.0, engine="spark")
    position = case.feed.publish("air/1", {"x": 2}, 51.0)
    case.feed.write()
    case.batches.commit(position, rows((200, position)))
    assert [one.sequence for one in case.plain(at(43))] == [at(position)]


def test_news_are_noticed(case: Case) -> None:
    assert case.reader.has_news()
    list(case.reader.batches(FeedOffset()))
    assert not case.reader.has_news()
    case.batches.commit(20, [])
    assert case.reader.has_news()


def test_a_table_that_is_not_there_yet_is_no_news(case: Case, tmp_path: Path) -> None:
    reader = FeedReader(tmp_path / "later", case.reader._lake)
    assert (reader.name, reader.has_news(), list(reader.batches(FeedOffset()))) == (
        None,
        False,
        [],
    )
    Batches(tmp_path / "later")
    assert reader.has_news()
    assert list(reader.batches(FeedOffset())) == []


def test_every_table_has_a_name_of_its_own(case: Case, tmp_path: Path) -> None:
    Batches(tmp_path / "other")
    lake = case.reader._lake
    names = [FeedReader(tmp_path / name, lake).name for name in ("out", "out", "other")]
    assert names[0] == names[1] != names[2]
