"""From the table back to subscribers: a real broker, its lake, and what was found in it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rove.broker.limits import Limits
from rove.client import ConnectionFailed, PublishRefused, sync
from rove.lake.log import open_for_writing
from rove.pipeline.jobs import delivery
from rove.pipeline.jobs.delivery import DeliverError, at_once, deliver
from rove.pipeline.jobs.job import JobSettings
from rove.pipeline.jobs.registry import run_jobs
from rove.pipeline.jobs.status import StepReport, statuses
from rove.pipeline.lake.data_source import whole
from rove.pipeline.lake.log import Lake as ReadLake
from rove.pipeline.spark.session import SparkSettings
from rove.serve.passwords import set_password
from rove.serve.settings import (
    AccessSettings,
    Channel,
    Config,
    DataSettings,
    LakeSettings,
    ListenSettings,
)
from tests.effort import PATIENCE_S
from tests.interop.by_hand import Batches, HandMatch
from tests.serve.conftest import Running
from tests.waiting import eventually

CHANNELS = (Channel("air", ("air/#",), ("publications", "notifications")),)
LOCAL = SparkSettings(master="local[2]", memory="1g")


class Place:
    """A broker with a lake, and a table of notifications beside it."""

    def __init__(self, folder: Path, **sections: Any) -> None:
        self.lake, self.out = folder / "data" / "lake", folder / "out"
        config = Config(
            listen=ListenSettings(mqtt_port=0, http_port=0),
            data=DataSettings(folder=str(folder / "data"), durability="process"),
            lake=LakeSettings(channels=CHANNELS, seconds_per_file=0.02),
        )
        self._config = msgspec.structs.replace(config, **sections)
        self.broker = Running(self._config)

    def restart(self) -> None:
        """Another broker in the place of this one, on the same port."""
        port = self.broker.ports["mqtt"]
        self.broker.stop()
        listen = ListenSettings(mqtt_port=port, http_port=0)
        self.broker = Running(msgspec.structs.replace(self._config, listen=listen))

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.broker.ports['mqtt']}"

    @property
    def feeds(self) -> dict[str, int]:
        found: dict[str, int] = self.broker.look(lambda one: one.shell.broker.feeds.last)
        return found

    def in_lake(self) -> None:
        """Wait until everything that was published is in the lake."""
        last = self.broker.look(lambda one: one.shell.broker.context.position)
        eventually(lambda: ReadLake(self.lake).position() >= last)

    def match(self) -> HandMatch:
        self.in_lake()
        match = HandMatch(self.lake, self.out)
        match.step()
        return match

    def deliver(self, **options: Any) -> int:
        return deliver(self.out, self.lake, self.url, until=at_once, **options)


@pytest.fixture
def new_place(tmp_path: Path) -> Iterator[Callable[..., Place]]:
    """Makes one, with other sections of its configuration."""
    places: list[Place] = []

    def make(**sections: Any) -> Place:
        places.append(Place(tmp_path, **sections))
        return places[-1]

    yield make
    for place in places:
        place.broker.stop()


@pytest.fixture
def place(new_place: Callable[..., Place]) -> Place:
    return new_place()


def taken(subscription: sync.Subscription[Any], count: int) -> list[Any]:
    """So many notifications, and no more."""
    found = [subscription.get(PATIENCE_S).value["x"] for _ in range(count)]
    with pytest.raises(TimeoutError):
        subscription.get(0.1)
    return found


def test_a_subscription_is_served_by_what_was_found(place: Place) -> None:
    with sync.connect(place.url) as client:
        heavy = client.subscribe("air/#", "x > 4", engine="spark")
        live = client.subscribe("air/#", "x > 7")
        for x in range(10):
            client.publish(f"air/{x % 3}", {"x": x})
        assert taken(live, 2) == [8, 9]
        place.match()
        assert place.deliver() == 5
        assert taken(heavy, 5) == [5, 6, 7, 8, 9]


def test_doing_it_again_adds_nothing(place: Place) -> None:
    with sync.connect(place.url) as client:
        heavy = client.subscribe("air/#", "x >= 0", engine="spark")
        client.publish("air/1", {"x": 0})
        match = place.match()
        assert (place.deliver(), place.deliver()) == (1, 0)
        client.publish("air/1", {"x": 1})
        place.in_lake()
        match.step()
        assert place.deliver() == 1
        assert taken(heavy, 2) == [0, 1]


def test_a_table_that_is_begun_anew_adds_nothing_either(place: Place, tmp_path: Path) -> None:
    with sync.connect(place.url) as client:
        heavy = client.subscribe("air/#", "x >= 0", engine="spark")
        client.publish("air/1", {"x": 0})
        place.match()
        place.deliver()
        place.out = tmp_path / "another"
        client.publish("air/1", {"x": 1})
        place.match()
        assert place.deliver() == 1
        assert taken(heavy, 2) == [0, 1]


def test_ranked_ones_have_a_feed_for_each_table(place: Place, tmp_path: Path) -> None:
    text = "ORDER BY x DESC LIMIT 1 WITHIN 1 HOUR"
    with sync.connect(place.url) as client:
        best = client.subscribe("air/#", text, engine="spark")
        for x in (3, 5, 4):
            client.publish("air/1", {"x": x})
        place.in_lake()
        number = place.broker.look(lambda one: one.shell.broker.context.next_subscription) - 1
        rows = ReadLake(place.lake)
        position = rows.files("publications")[-1].last
        for _ in range(2):
            found = [
                {"subscription": number, "position": position - 2, "score": 3.0},
                {"subscription": number, "position": position - 1, "score": 5.0},
                {"subscription": number, "position": position, "score": 4.0, "promoted": True},
            ]
            Batches(place.out).commit(rows.position(), found)
            assert (place.deliver(), place.deliver()) == (3, 0)
            place.out = tmp_path / "another"
        # The client knows by their ids that it has had them.
        assert taken(best, 3) == [3, 5, 4]
        assert sorted(place.feeds.values()) == [3, 3]


def test_more_than_one_packet_can_hold(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "PACKET_NOTIFICATIONS", 3)
    monkeypatch.setattr(delivery, "IN_FLIGHT_MAX", 2)
    with sync.connect(place.url) as client:
        heavy = client.subscribe("air/#", "x >= 0", engine="spark")
        for x in range(40):
            client.publish("air/1", {"x": x})
        place.match()
        assert place.deliver() == 40
        assert taken(heavy, 40) == list(range(40))


def test_what_the_broker_finds_too_large_is_left_out_and_told(
    new_place: Callable[..., Place],
) -> None:
    place = new_place(limits=Limits(packet_bytes_max=4_000))
    steps: list[StepReport] = []
    with sync.connect(place.url) as client:
        heavy = client.subscribe("air/#", "x >= 0", engine="spark")
        for x in range(30):
            # In base64 it is more than the broker takes, though it came as it is.
            client.publish("air/1", {"x": x, "filling": "a" * (3_500 if x == 20 else 500)})
        place.match()
        assert place.deliver(report=steps.append) == 29
        assert taken(heavy, 29) == [x for x in range(30) if x != 20]
    (note,) = [note for step in steps for note in step.notes]
    assert note.endswith("exceeds the broker's packet_bytes_max; skipped")


def test_a_broker_that_has_forgotten_is_told_again(place: Place) -> None:
    """Its store is gone while the deliverer lives: numbers begin anew, subscriptions do not."""
    stopping = threading.Event()
    steps: list[StepReport] = []
    with sync.connect(place.url) as client:
        client.subscribe("air/#", "x >= 0", engine="spark")
        client.publish("air/1", {"x": 0})
        match = place.match()
        thread = threading.Thread(
            target=deliver,
            args=(place.out, place.lake, place.url),
            kwargs={"stopping": stopping, "report": steps.append},
        )
        thread.start()
        try:
            eventually(lambda: steps and steps[-1].rows_out == 1)
            place.broker.look(lambda one: one.shell.broker.feeds.last.clear())
            client.publish("air/1", {"x": 1})
            place.in_lake()
            match.step()
            eventually(lambda: sum(step.rows_out for step in steps) == 3)
        finally:
            stopping.set()
            thread.join()
    counters = place.broker.look(lambda one: one.shell.broker.counters)
    assert counters.deliveries_taken == 3


def test_it_follows_and_outlives_the_broker(place: Place) -> None:
    stopping = threading.Event()
    url = place.url
    with sync.connect(url, retry_s_max=0.5, client_id="subscriber") as client:
        heavy = client.subscribe("air/#", "x >= 0", engine="spark")
        client.publish("air/1", {"x": 0})
        match = place.match()
        thread = threading.Thread(
            target=deliver, args=(place.out, place.lake, url), kwargs={"stopping": stopping}
        )
        thread.start()
        try:
            assert heavy.get(PATIENCE_S).value == {"x": 0}
            place.restart()
            client.publish("air/1", {"x": 1})
            place.in_lake()
            match.step()
            assert taken(heavy, 1) == [1]
        finally:
            stopping.set()
            thread.join()


def test_it_waits_for_a_broker_unless_it_is_for_once(tmp_path: Path) -> None:
    open_for_writing(tmp_path / "lake")
    nobody = "mqtt://127.0.0.1:1"
    with pytest.raises(ConnectionFailed):
        deliver(tmp_path / "out", tmp_path / "lake", nobody, until=at_once)
    stopping = threading.Event()
    steps: list[StepReport] = []

    def told(step: StepReport) -> None:
        steps.append(step)
        stopping.set()

    assert deliver(tmp_path / "out", tmp_path / "lake", nobody, stopping=stopping, report=told) == 0
    assert steps[0].notes[0].endswith("; trying again")


def test_who_may_not_is_told_what_is_needed(
    tmp_path: Path, new_place: Callable[..., Place]
) -> None:
    passwords = tmp_path / "passwords"
    set_password(passwords, "ann", b"secret")
    set_password(passwords, "admin", b"secret")
    place = new_place(access=AccessSettings(password_file=str(passwords)))
    url = place.url.replace("//", "//ann@")
    Batches(place.out).commit(0, [])
    with pytest.raises(PublishRefused, match="needs the right `admin`"):
        deliver(place.out, place.lake, url, password="secret", until=at_once)
    admin = place.url.replace("//", "//admin@")
    assert deliver(place.out, place.lake, admin, password="secret", until=at_once) == 0


def test_what_is_refused_for_good_is_an_error(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sync.connect(place.url) as client:
        client.subscribe("air/#", "x >= 0", engine="spark")
        client.publish("air/1", {"x": 0})
        place.match()
        fitting = delivery.Deliverer._fitting

        def spoilt(self: delivery.Deliverer, one: Any) -> Any:
            return msgspec.structs.replace(fitting(self, one), topic="a/#")

        monkeypatch.setattr(delivery.Deliverer, "_fitting", spoilt)
        with pytest.raises(DeliverError, match=r"refuses the notifications: .*wildcard"):
            place.deliver()


@pytest.mark.usefixtures("spark")
def test_spark_finds_it_and_the_broker_delivers_it(place: Place) -> None:
    """The whole way round, as jobs of one run."""
    with sync.connect(place.url) as client:
        client.me["limit"] = 3
        heavy = client.subscribe("air/#", "SELECT x WHERE x > me.limit", engine="spark")
        best = client.subscribe("air/#", "ORDER BY x DESC LIMIT 1 WITHIN 1 HOUR", engine="spark")
        client.subscribe("air/#", "x > 100")
        for x in (2, 7, 5):
            client.publish("air/1", {"x": x, "y": 1})
        place.in_lake()
        settings = JobSettings(
            lake=place.lake,
            out=place.out,
            once=True,
            engine="spark",
            options={"broker": place.url},
        )
        ended = run_jobs(["deliver", "match"], settings, LOCAL)
        assert [(one.job, one.state) for one in ended] == [("deliver", "done"), ("match", "done")]
        assert [heavy.get(PATIENCE_S).payload for _ in range(2)] == [b'{"x":7}', b'{"x":5}']
        assert taken(best, 2) == [2, 7]
    (status,) = statuses(place.out, ["deliver"])
    assert (status.state, status.rows_out) == ("done", 4)
    assert status.lag_rows is not None
    assert status.lag_rows <= 4, "the notifications are in the log as well, and may be there by now"
    place.broker.stop()
    notified = [
        json.loads(row["payload"])
        for row in whole(ReadLake(place.lake), "notifications").to_pylist()
    ]
    plain, ranked = {"engine": "spark"}, {"engine": "spark", "promoted": False}
    assert notified[:2] == [plain, plain]
    assert [one | {"score": 0} for one in notified[2:]] == [ranked | {"score": 0}] * 2
