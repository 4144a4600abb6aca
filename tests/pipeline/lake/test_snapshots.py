"""Subscriptions that are kept: whole, of the right lake and position, or not at all."""

from pathlib import Path

import msgspec

from rove.pipeline.lake.live_index import LiveIndex
from rove.pipeline.lake.log import Event
from rove.pipeline.lake.snapshots import SubscriptionSnapshot, load, save
from rove.pipeline.lake.versions import Version


def snapshot(position: int, lake: str = "one") -> SubscriptionSnapshot:
    version = Version(number=position, text="x > me.x", me={"x": 1.5, "y": ["a"]}, since=position)
    return SubscriptionSnapshot(lake, None, position, [version], [position])


def test_the_latest_of_a_lake_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    assert load(str(folder), "one", None, 100) is None
    save(str(folder), snapshot(10))
    assert load(str(folder), "one", None, 10) == snapshot(10)
    assert load(str(folder), "one", None, 9) is None, "it has not come so far"
    assert load(str(folder), "two", None, 10) is None
    assert load(str(folder), "one", "spark", 10) is None
    save(str(folder), snapshot(20))
    assert load(str(folder), "one", None, 99) == snapshot(20)
    assert [path.name for path in folder.glob("*/*")] == ["20.snapshot"]


def test_what_is_torn_is_passed_over_wherever_it_is(tmp_path: Path) -> None:
    save(str(tmp_path), snapshot(10))
    earlier = tmp_path / "_subscriptions" / "10.snapshot"
    whole = earlier.read_bytes()
    save(str(tmp_path), snapshot(20))
    earlier.write_bytes(whole)
    later = tmp_path / "_subscriptions" / "20.snapshot"
    whole = later.read_bytes()
    for size in range(0, len(whole), 7):
        later.write_bytes(whole[:size])
        assert load(str(tmp_path), "one", None, 99) == snapshot(10)
    for at in range(0, len(whole), 5):
        later.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        assert load(str(tmp_path), "one", None, 99) == snapshot(10)


def test_an_index_goes_on_with_states_of_then(tmp_path: Path) -> None:
    index = LiveIndex(tmp_path / "a")
    index.take(
        [
            Event(event="made", number=1, position=1, text="x > me.x", client_id="ann"),
            Event(event="made", number=2, position=2, text="x > 1", durable=False),
            Event(event="state", position=3, client_id="ann", changes={"x": 5}),
        ]
    )
    index.spec()
    versions, durable = index.open()
    assert [(one.number, one.since, one.me) for one in versions] == [(1, 3, {"x": 5}), (2, 3, {})]
    again = LiveIndex(tmp_path / "b")
    again.go_on(3, msgspec.convert(msgspec.to_builtins(versions), list[Version]), durable)
    assert (again.position, again.open()) == (3, (versions, durable))
    again.take([Event(event="started", position=4)])
    assert [one.number for one in again.open()[0]] == [1]
