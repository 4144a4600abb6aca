"""Subscriptions over time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rove.client import sync
from rove.pipeline.lake.log import Event
from rove.pipeline.lake.versions import (
    FOR_EVER,
    Timeline,
    Version,
    VersionsError,
    from_broker,
    from_file,
    from_table,
    state_variables,
)
from rove.serve.passwords import set_password
from rove.serve.settings import (
    AccessSettings,
    Channel,
    Config,
    DataSettings,
    LakeSettings,
    ListenSettings,
)
from tests.serve.conftest import Running


def made(number: int, position: int, text: str = "x > 1", **more: Any) -> Event:
    return Event(event="made", number=number, position=position, text=text, **more)


def lives(versions: list[Version]) -> list[tuple[int, int, int]]:
    return sorted((one.number, one.since, one.until) for one in versions)


def test_a_life_is_not_cut_by_changes_of_state() -> None:
    timeline = Timeline()
    ended: list[Version] = []
    for event in (
        made(1, 10, "x > me.x", client_id="ann", me={"x": 1}),
        made(2, 11, client_id="ann"),
        made(3, 12, "x > me.x", client_id="bob"),
        Event(event="state", position=20, client_id="ann", changes={"x": 2, "y": 3}),
        Event(event="state", position=25, client_id="nobody", changes={"x": 2}),
        Event(event="ended", position=30, number=2),
        Event(event="state", position=40, client_id="ann", changes={"x": None}),
    ):
        ended += timeline.take(event)[0]
    assert lives(ended) == [(2, 11, 30)]
    assert lives(timeline.open()) == [(1, 10, FOR_EVER), (3, 12, FOR_EVER)]
    assert {one.number: one.me for one in timeline.open()}[1] == {"x": 1}
    assert [one.number for one in timeline.asking("ann")] == [1]
    assert timeline.position == 40
    assert len(timeline) == 2


def test_what_a_text_asks_of_its_subscriber() -> None:
    assert state_variables("x > me.x AND distance(a, b, me.home.lat, me.y) < 3") == {
        "x",
        "y",
        "home",
    }
    assert state_variables("x > 1 ORDER BY abs(x - me.x) LIMIT 1 WITHIN 1 HOUR") == set()
    assert state_variables("some > 1") == state_variables("me >") == state_variables("") == set()


def test_a_start_ends_what_was_not_kept() -> None:
    timeline = Timeline()
    for number, durable in ((1, True), (2, False)):
        timeline.take(made(number, number, durable=durable))
    ended, begun = timeline.take(Event(event="started", position=9))
    assert (lives(ended), begun) == ([(2, 2, 9)], [])
    assert timeline.take(made(1, 10)) == ([], []), "told again, and known"
    assert timeline.take(Event(event="ended", position=11, number=7)) == ([], [])


def test_an_engine_sees_its_own_only() -> None:
    timeline = Timeline("spark")
    timeline.take(made(1, 1))
    timeline.take(made(2, 2, engine="spark"))
    assert lives(timeline.open()) == [(2, 2, FOR_EVER)]
    assert timeline.take(Event(event="ended", position=3, number=1)) == ([], [])


def test_a_file_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "subscriptions.jsonl"
    path.write_text('"x > 1"\n\n{"id": "home", "filter": "x > me.x", "at": 5, "me": {"x": 2}}\n')
    versions, names = from_file(path)
    assert names == ["1", "home"]
    assert versions == [
        Version(number=0, text="x > 1"),
        Version(number=1, text="x > me.x", accepted_at=5.0, me={"x": 2}),
    ]
    path.write_text('"x > 1"\n17\n')
    with pytest.raises(VersionsError, match="line 2: not a subscription"):
        from_file(path)
    with pytest.raises(VersionsError, match=r"cannot read .*none: No such file"):
        from_file(tmp_path / "none")


def test_a_table(spark: Any) -> None:
    rows = [("x > 1", 5, "air/#", None), ("y > 1", 6, None, 3.5)]
    table = spark.createDataFrame(
        rows, "text string, number int, filter string, accepted_at double"
    )
    assert from_table(table) == [
        Version(number=5, text="x > 1", filter="air/#"),
        Version(number=6, text="y > 1", accepted_at=3.5),
    ]
    with pytest.raises(VersionsError, match="needs a column text; it has"):
        from_table(table.drop("text"))
    with pytest.raises(VersionsError, match=r"row 0 .*Expected `int`, got `str`"):
        from_table(spark.createDataFrame([("x > 1", "a")], "text string, number string"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Running]:
    set_password(tmp_path / "passwords", "admin", b"secret")
    access = AccessSettings(password_file=str(tmp_path / "passwords"))
    running = Running(
        Config(
            listen=ListenSettings(mqtt_port=0, http_port=0),
            data=DataSettings(folder=str(tmp_path / "data")),
            access=access,
            lake=LakeSettings(channels=(Channel("road", ("road",), ("publications",)),)),
        )
    )
    yield running
    running.stop()


def test_what_a_running_broker_has(broker: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rove.pipeline.lake.versions._PAGE", 2)
    url = f"http://127.0.0.1:{broker.ports['http']}"
    address = f"mqtt://admin:secret@127.0.0.1:{broker.ports['mqtt']}"
    with sync.connect(address, client_id="bob") as bob:
        bob.me["x"] = 5
        subscribed = [
            bob.subscribe("air/#", "x > 1"),
            bob.subscribe("$share/team/air/#"),
            bob.subscribe("road", "x < me.x", engine="spark"),
        ]
        found = from_broker(url, user="admin", password="secret")
        for one in subscribed:
            one.close()
    assert [(one.filter, one.text, one.share) for one in found] == [
        ("air/#", "x > 1", None), ("air/#", "", "team"), ("road", "x < me.x", None),
    ]  # fmt: skip
    assert [one.client_id for one in found] == ["bob"] * 3
    assert [one.engine for one in found] == ["broker", "broker", "spark"]
    assert [one.me for one in found] == [{}, {}, {"x": 5}], "only who looks at it"
    assert sorted({one.number for one in found}) == [one.number for one in found]
    with pytest.raises(VersionsError, match="answered 401"):
        from_broker(url)


def test_a_broker_that_is_not_there() -> None:
    with pytest.raises(VersionsError, match="cannot read from the broker"):
        from_broker("http://127.0.0.1:1")
