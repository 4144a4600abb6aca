"""Subscriptions that the pipeline serves: for any client, and whoever is killed meanwhile.

What Spark would find is found here by the evaluator of the language (`tests.interop.by_hand`): the
way from the lake to the subscriber is what is tested.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties

from rove.client import sync
from rove.pipeline.jobs.delivery import at_once, deliver
from tests.effort import PATIENCE_S
from tests.interop.by_hand import HandMatch
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.interop.conftest import RunningBroker, StartBroker

LAKE = {
    "ROVE_LAKE__CHANNELS": '[{name = "air", topics = ["air/#"]}]',
    "ROVE_LAKE__SECONDS_PER_FILE": "0.05",
}
DELIVERER = """
import sys
from pathlib import Path
from rove.pipeline.jobs.delivery import deliver
deliver(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
"""


def url_of(broker: RunningBroker) -> str:
    return f"mqtt://127.0.0.1:{broker.port}"


def lake_of(broker: RunningBroker) -> Path:
    return broker.data / "lake"


def test_any_client_of_mqtt_5_is_served(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker(**LAKE)
    came: list[tuple[bytes, int, list[int]]] = []
    granted = threading.Event()
    one = paho.Client(CallbackAPIVersion.VERSION2, client_id="paho", protocol=paho.MQTTv5)
    one.on_subscribe = lambda *_: granted.set()

    def arrived(_client: object, _data: object, message: Any) -> None:
        ids = list(message.properties.SubscriptionIdentifier)
        came.append((bytes(message.payload), message.qos, ids))

    one.on_message = arrived
    one.connect("127.0.0.1", broker.port)
    one.loop_start()
    try:
        wish = PahoProperties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
        wish.UserProperty = [("filter", "SELECT x WHERE x > 1"), ("engine", "spark")]
        wish.SubscriptionIdentifier = 7
        one.subscribe("air/#", qos=1, properties=wish)
        assert granted.wait(PATIENCE_S)
        with sync.connect(url_of(broker)) as publisher:
            for x in (1, 2, 3):
                publisher.publish("air/zagreb", {"x": x, "y": 0})
        match = HandMatch(lake_of(broker), tmp_path / "out")
        eventually(lambda: match.step() and len(match.ids) == 3, "the lake is not complete")
        assert came == []
        for _ in range(2):
            deliver(tmp_path / "out", lake_of(broker), url_of(broker), until=at_once)
        eventually(lambda: len(came) >= 2, "nothing came")
        assert came == [(b'{"x":2}', 1, [7]), (b'{"x":3}', 1, [7])]
    finally:
        one.disconnect()
        one.loop_stop()


class Life:
    """Everybody at work: a publisher, the match, a deliverer, subscribers; and who kills them."""

    def __init__(self, broker: RunningBroker, out: Path, seed: int) -> None:
        self.broker, self.out, self.chance = broker, out, random.Random(seed)
        self.published = 0
        self._ends = threading.Event()
        self._deliverer: subprocess.Popen[bytes] | None = None
        self._threads = [threading.Thread(target=each) for each in (self._publish, self._match)]
        self.match: HandMatch
        self.errors: list[BaseException] = []

    def start(self) -> None:
        self.match = HandMatch(lake_of(self.broker), self.out)
        for thread in self._threads:
            thread.start()
        self.start_deliverer()

    def stop(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()
        if self._deliverer is not None:
            self.kill_deliverer()

    def _publish(self) -> None:
        try:
            with sync.connect(url_of(self.broker), client_id="publisher", retry_s_max=0.2) as one:
                while not self._ends.is_set():
                    one.publish("air/zagreb", {"x": self.published}, qos=2)
                    self.published += 1
                    time.sleep(0.002)
        except BaseException as error:
            self.errors.append(error)

    def _match(self) -> None:
        try:
            while not self._ends.is_set():
                self.match.step()
                time.sleep(0.05)
        except BaseException as error:
            self.errors.append(error)

    def start_deliverer(self) -> None:
        words = [str(self.out), str(lake_of(self.broker)), url_of(self.broker)]
        self._deliverer = subprocess.Popen([sys.executable, "-c", DELIVERER, *words])

    def kill_deliverer(self) -> None:
        assert self._deliverer is not None
        assert self._deliverer.poll() is None, "the deliverer has ended by itself"
        self._deliverer.kill()
        self._deliverer.wait()

    def suffer(self, kills: int) -> None:
        """Kill the broker or the deliverer so many times, whatever they are doing."""
        for _ in range(kills):
            time.sleep(self.chance.uniform(0.2, 1.2))
            if self.chance.random() < 0.5:
                self.broker.kill()
                self.broker.start()
            else:
                self.kill_deliverer()
                self.start_deliverer()


def taken(subscription: sync.Subscription[Any], count: int) -> list[int]:
    """All that comes: so many, however long that takes, and what may come too much."""
    came = [subscription.get(PATIENCE_S).value["x"] for _ in range(count)]
    subscription.timeout_s = 0.5
    return came + [notification.value["x"] for notification in subscription]


def lives(start_broker: StartBroker, out: Path, seed: int, kills: int) -> None:
    """QoS 2 all the way: what comes twice was delivered twice."""
    broker = start_broker(**LAKE)
    life = Life(broker, out, seed)
    url = url_of(broker)
    with sync.connect(url, client_id="subscriber", retry_s_max=0.2) as client:
        wanted = [client.subscribe("air/#", "x >= 0", engine="spark", qos=2)]
        wanted.append(client.subscribe("air/#", "x < 50", engine="spark", qos=2))
        try:
            life.start()
            life.suffer(kills)
        finally:
            life.stop()
        assert life.errors == []
        eventually(lambda: not life.match.step() and _has_all(life), "the lake is not complete")
        deliver(out, lake_of(broker), url, until=at_once)
        everything = list(range(life.published))
        for subscription, ours in zip(wanted, (everything, everything[:50]), strict=True):
            assert taken(subscription, len(ours)) == ours
            assert subscription._subscription.duplicates == 0


def _has_all(life: Life) -> bool:
    return len(life.match.ids) >= life.published


@pytest.mark.soak
def test_kills_of_either_side_lose_nothing_and_repeat_nothing(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    lives(start_broker, tmp_path / "out", seed=5, kills=3)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_many_kills(start_broker: StartBroker, tmp_path: Path, seed: int) -> None:
    lives(start_broker, tmp_path / "out", seed, kills=30)
