"""States of subscribers as data: joined in time they give what a version for each state would."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from rove.broker.storage.records import LogRow
from rove.lang.attributes import attributes_of
from rove.lang.oracle import matches
from rove.lang.parser import parse
from rove.mqtt.topics import fits
from rove.pipeline.lake.followers import (
    CHANGES,
    Followers,
    LatestStates,
    changes_in,
    changes_of,
    followers_of,
    open_followers,
    variables_of,
    write_followers,
)
from rove.pipeline.lake.live_index import LiveIndex
from rove.pipeline.lake.log import Event, Lake
from rove.pipeline.lake.version_index import IndexFileSpec, IndexSpec, opened
from rove.pipeline.lake.versions import Version, versions_of
from rove.pipeline.matching.index_files import IndexFileError, open_index, write_index
from rove.serve.disk.lake import LakeAppender as WrittenLake
from tests.effort import some
from tests.interop.by_state import versions_by_state
from tests.match.index.test_followers import TEXTS, VALUES

CLIENTS = ("ann", "bob", "cid")
FILTERS = ("#", "air/#", "road")
TOPICS = ("air/a", "road")
RANK = " ORDER BY y LIMIT 1 WITHIN 1 HOUR"
USER = pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))


def value(chance: random.Random) -> Any:
    return chance.choice((chance.choice(VALUES), chance.uniform(-5, 10), chance.uniform(-5, 10)))


class Life:
    """Subscribers that come, move, go and return between publications: a seed decides."""

    def __init__(self, seed: int, steps: int) -> None:
        self.chance = random.Random(seed)
        self.events: list[Event] = []
        self.published: list[dict[str, Any]] = []
        self.position = 0
        self._holding: dict[int, str] = {}
        self._numbers = 0
        for _ in range(steps):
            # States change at positions right before, right after and far from publications.
            self.position += self.chance.choice((1, 1, 1, 5))
            weights = (30, 40, 6, 4, 1)
            acts = (self._publish, self._move, self._subscribe, self._leave, self._start)
            self.chance.choices(acts, weights)[0]()

    @property
    def at(self) -> float:
        return self.position / 16

    def _publish(self) -> None:
        chance = self.chance
        said = {"x": value(chance), "y": chance.choice((1, 7.5))}
        said |= {"kind": chance.choice(("car", "bus", 3)), "ok": chance.random() < 0.5}
        self.published.append(
            {
                "position": self.position,
                "at": self.position * 62_500,
                "id": str(self.position),
                "client_id": chance.choice(CLIENTS),
                "topic": chance.choice(TOPICS),
                "payload": msgspec.json.encode(said),
                "user": None,
            }
        )

    def _state(self) -> dict[str, Any]:
        names = self.chance.sample(("x", "y", "kind", "ok", "home", "unasked"), 2)
        return {name: value(self.chance) for name in names}

    def _move(self) -> None:
        self._tell("state", client_id=self.chance.choice(CLIENTS), changes=self._state())

    def _subscribe(self) -> None:
        chance = self.chance
        text = chance.choice(TEXTS) + (RANK if chance.random() < 0.2 else "")
        number = self._numbers = self._numbers + 1
        if self._holding and chance.random() < 0.1:
            number = min(self._holding)  # told of again
        elif number > 3 and chance.random() < 0.2 and number - 3 not in self._holding:
            number -= 3  # a number that was there before
        client_id = self._holding.setdefault(number, chance.choice(CLIENTS))
        me = {name: value for name, value in self._state().items() if value is not None}
        more = {"no_local": chance.random() < 0.2, "durable": chance.random() < 0.7}
        topic_filter = chance.choice(FILTERS)
        self._tell(
            "made", client_id=client_id, number=number, text=text, filter=topic_filter, me=me,
            accepted_at=self.at, **more,
        )  # fmt: skip

    def _leave(self) -> None:
        if self._holding:
            number = self.chance.choice(list(self._holding))
            self._tell("ended", number=number, client_id=self._holding.pop(number))

    def _start(self) -> None:
        self._tell("started")

    def _tell(self, event: Any, **said: Any) -> None:
        self.events.append(Event(event=event, position=self.position, at=self.at, **said))

    def batches(self, size: int) -> list[pa.RecordBatch]:
        columns: dict[str, Any] = {
            name: [one[name] for one in self.published] for name in self.published[0]
        }
        columns["at"] = pa.array(columns["at"]).cast(pa.timestamp("us", tz="UTC"))
        columns["payload"] = pa.array(columns["payload"], pa.binary())
        columns["user"] = pa.array(columns["user"], USER)
        batches: list[pa.RecordBatch] = pa.table(columns).to_batches(max_chunksize=size)
        return batches

    def expected(self, *, ranked: bool) -> set[tuple[int, int]]:
        found = set()
        for version in versions_by_state(self.events):
            text = parse(version.text)
            if (text.rank is not None) != ranked:
                continue
            for one in self.published:
                at = one["at"] / 1e6
                if (
                    version.since < one["position"] <= version.until
                    and at >= version.accepted_at
                    and fits(version.filter, one["topic"])
                    and (ranked or not version.no_local or one["client_id"] != version.client_id)
                    and matches(
                        text,
                        attributes_of(one["topic"], one["payload"]),
                        at - version.accepted_at,
                        version.me,
                    )
                ):
                    found.add((version.number, one["position"]))
        return found


def changes_among(events: Sequence[Event]) -> list[tuple[int, str, dict[str, object]]]:
    return [(e.position, e.client_id, e.changes) for e in events if e.event == "state"]


def told(changes: pa.Table) -> list[str]:
    """As texts, of which NaN equals NaN."""
    return [str(one) for one in changes.to_pylist()]


def found_by(index: Any, batch: pa.RecordBatch) -> list[tuple[int, int]]:
    pairs = index.match_lake(batch)
    return list(zip(pairs["subscription"].to_pylist(), pairs["position"].to_pylist(), strict=True))


def ranked_by(index: Any, batch: pa.RecordBatch) -> list[tuple[int, int]]:
    rows = index.ranked_rows(batch, 2).to_pylist()
    return [(number, row["position"]) for row in rows for number in row["matched"]]


@pytest.mark.parametrize("seed", some(range(1, 60), few=2))
def test_a_history_is_matched_as_with_a_version_for_each_state(tmp_path: Path, seed: int) -> None:
    life = Life(seed, 400)
    versions = versions_of(life.events)
    variables = variables_of(versions)
    changes = changes_of(changes_among(life.events), variables)
    assert changes.schema == CHANGES
    following, others = followers_of(versions, variables, changes)
    assert len(following) + len(others) == len(versions)
    write_index(others, tmp_path / "others")
    write_followers(following, variables, changes, tmp_path / "following", block_changes=20)
    index = opened(
        IndexSpec((IndexFileSpec(str(tmp_path / "others")),), str(tmp_path / "following"))
    )
    batches = life.batches(31)
    random.Random(seed).shuffle(batches)  # any order will do
    for ranked, find in ((False, found_by), (True, ranked_by)):
        found = [one for batch in batches for one in find(index, batch)]
        assert len(found) == len(set(found)), "each once"
        assert set(found) == life.expected(ranked=ranked)
    assert life.expected(ranked=False)


@pytest.mark.parametrize("seed", some(range(100, 160), few=2))
def test_a_stream_finds_the_same_wherever_batches_end(tmp_path: Path, seed: int) -> None:
    life = Life(seed, 400)
    size = life.chance.choice((1, 7, 60, 1000))
    live = LiveIndex(tmp_path / "live")
    found: list[tuple[int, int]] = []
    ranked: list[tuple[int, int]] = []
    after = life.chance.choice((-1, life.published[40]["position"]))  # it may begin later
    done = -1
    for batch in life.batches(size):
        last = batch["position"][-1].as_py()
        if last <= after:
            continue
        live.take(one for one in life.events if done < one.position <= last)
        done = last
        index = opened(live.spec(after))
        here = batch.filter(pa.array([one.as_py() > after for one in batch["position"]]))
        found += found_by(index, here)
        ranked += ranked_by(index, here)
        after = last
    first = life.published[40]["position"] if found and min(p for _, p in found) > 60 else -1
    for each, is_ranked in ((found, False), (ranked, True)):
        assert len(each) == len(set(each)), "each once"
        wanted = {one for one in life.expected(ranked=is_ranked) if one[1] > first}
        assert {one for one in each if one[1] > first} == wanted


def test_changes_of_state_write_no_versions(tmp_path: Path) -> None:
    """Twenty subscriptions and two hundred changes, of which one in four is asked for."""
    made = [
        Event(event="made", number=n, position=n, text="x > me.x", client_id="ann", me={"x": 1})
        for n in range(20)
    ]
    moved = [
        Event(event="state", position=20 + i, client_id="ann", changes={"yxzz"[i % 4]: float(i)})
        for i in range(200)
    ]
    live = LiveIndex(tmp_path)
    live.take(made)
    assert not live.spec().following
    live.take(moved)
    spec = live.spec(after=19)
    assert spec.parts == (), "all of them move"
    following = open_followers(spec.following)
    ((side, _),) = following.sides("plain", pa.array([500]).to_numpy())
    assert len(side.numbers) == 20 * (50 + 1)
    versions = versions_of([*made, *moved])
    changes = changes_of(changes_among(moved), variables_of(versions))
    assert (len(versions), len(changes)) == (20, 50)
    live.take([])
    spec = live.spec(after=500)
    assert not spec.following, "who does not move any more is among the others"
    assert sum(len(open_index(p.path).plain.numbers) - len(p.plain) for p in spec.parts) == 20


def test_before_a_position_only_the_last_of_each_variable_counts() -> None:
    wanted = {"ann": {"x": 0, "y": 1}}
    changes = [(i, "ann", {"xy"[i % 2]: i, "z": 1}) for i in range(10)]
    found = changes_of([*changes, (10, "bob", {"x": 1})], wanted, after=6).to_pylist()
    assert [(one["variable"], one["position"], one["value"]) for one in found] == [
        (0, 6, b"6"), (0, 8, b"8"), (1, 5, b"5"), (1, 7, b"7"), (1, 9, b"9"),
    ]  # fmt: skip


def test_the_latest_states_are_those_since_it_was_made() -> None:
    states = LatestStates()
    states.take([(5, "ann", {"x": 1, "y": 2}), (9, "ann", {"x": None, "z": 3})])
    version = Version(number=1, text="", client_id="ann", me={"x": 0, "y": 0}, since=7)
    found = states.since(version, 20)
    assert (found.me, found.since) == ({"y": 0, "z": 3}, 20)
    states.forget("ann")
    assert states.since(version, 3) == version


def test_a_lake_is_read_by_the_driver_or_by_workers_alike(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(7, 300)
    rows = [
        (
            event.position,
            LogRow(
                "subscriptions", "", event.at, client_id=event.client_id,
                payload=msgspec.json.encode({"event": event.event, "changes": event.changes}),
            ),
        )
        for event in life.events
        if event.event == "state"
    ]  # fmt: skip
    WrittenLake(tmp_path, rows_per_file=20).take(rows)
    wanted = {"ann": {"x": 0, "y": 1}, "bob": {"kind": 2}}
    lake = Lake(tmp_path)
    last = lake.position()
    for after in (-1, last // 2):
        expected = told(changes_of(changes_among(life.events), wanted, after))
        assert told(changes_in(spark, lake, wanted, after, last)) == expected
        with monkeypatch.context() as patch:
            patch.setattr("rove.pipeline.lake.followers._IN_DRIVER_MAX", 0)
            assert told(changes_in(spark, lake, wanted, after, last)) == expected
        assert len(expected) > 20
    assert len(changes_in(spark, lake, {}, -1, last)) == 0


def test_what_holds_no_followers_is_named(tmp_path: Path) -> None:
    with pytest.raises(IndexFileError, match="cannot open the index"):
        Followers(str(tmp_path / "none"))
    (tmp_path / "other").write_bytes(b"something else")
    with pytest.raises(IndexFileError, match="cannot open the index"):
        Followers(str(tmp_path / "other"))
