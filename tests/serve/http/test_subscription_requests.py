"""Wishes, and sessions that are prepared for somebody who is not there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties

from rove.serve.http.requests import Query
from rove.serve.http.subscription_requests import SESSION_EXPIRY_S, request_in_query
from rove.serve.settings import Channel, LakeSettings

if TYPE_CHECKING:
    from tests.serve.conftest import Running


def test_a_wish_without_a_session_is_for_the_moment() -> None:
    names = ("topic", "filter", "evolve", "engine", "qos", "me", "session", "session-expiry")
    plain = request_in_query(Query([("topic", "a")], names))
    assert (plain.qos, plain.session, plain.properties.user) == (0, None, ())
    kept = request_in_query(Query([("topic", "a"), ("session", "s"), ("filter", "x > 1")], names))
    assert (kept.qos, kept.session) == (1, "s")
    assert kept.properties.user == (("filter", "x > 1"),)


def test_another_engine_is_another_subscription(start_server: Callable[..., Running]) -> None:
    server = start_server(lake=LakeSettings(channels=(Channel("all", ("#",)),)))
    numbers = []
    for engine in ("broker", "spark", "spark", "broker"):
        path = f"/subscribe?session=s&topic=a&filter=x%20%3E%201&engine={engine}"
        with server.stream(path) as stream:
            assert stream.status == 200
            numbers.append(server.get("/subscriptions").json["items"][0]["number"])
        while server.get("/clients").json["items"][0]["connected"]:
            time.sleep(0.01)
    assert numbers[1] == numbers[2]
    assert len(set(numbers)) == 3
    answer = server.post("/sessions/s/subscriptions", {"topic": "a", "engine": "flink"})
    assert (answer.status, "there is no engine 'flink'" in answer.text) == (400, True)


def test_a_session_that_is_prepared_is_made_by_mqtt(server: Running) -> None:
    server.post("/sessions/phone/subscriptions", {"topic": "a", "filter": "x > 1"})
    for number in range(4):
        server.post("/publish?topic=a", {"x": number})
    found: list[bytes] = []
    one = paho.Client(CallbackAPIVersion.VERSION2, client_id="phone", protocol=paho.MQTTv5)
    one.on_message = lambda _client, _data, message: found.append(bytes(message.payload))
    properties = PahoProperties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = 100
    one.connect("127.0.0.1", server.ports["mqtt"], clean_start=False, properties=properties)
    one.loop_start()
    while len(found) < 2:
        time.sleep(0.001)
    refused = server.post("/sessions/phone/subscriptions", {"topic": "b"})
    assert (refused.status, refused.json["hint"]) == (409, "it can do this itself")
    one.disconnect()
    one.loop_stop()
    assert found == [b'{"x": 2}', b'{"x": 3}']


@pytest.mark.parametrize(("asked_s", "kept_s"), [(None, SESSION_EXPIRY_S), (50, 50)])
def test_how_long_a_session_stays(server: Running, asked_s: int | None, kept_s: int) -> None:
    body: dict[str, object] = {"topic": "a"}
    if asked_s is not None:
        body["session_expiry_s"] = asked_s
    server.post("/sessions/s/subscriptions", body)
    server.post("/sessions/s/subscriptions", {"topic": "b"})
    assert server.get("/clients").json["items"][0]["expiry_s"] == kept_s


def test_what_waits_is_not_lost_when_a_subscription_is_added(server: Running) -> None:
    server.post("/sessions/s/subscriptions", {"topic": "a"})
    for number in range(3):
        server.post("/publish?topic=a", number)
    for topic in "bcd":
        server.post("/sessions/s/subscriptions", {"topic": topic})
    with server.stream("/subscribe?session=s") as stream:
        assert [stream.data()["value"] for _ in range(3)] == [0, 1, 2]
