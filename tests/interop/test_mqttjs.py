"""mqtt.js over WebSocket, as a page in a browser uses it, in both versions of MQTT."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.effort import some

if TYPE_CHECKING:
    from tests.interop.conftest import Program, RunningBroker, RunProgram

SCRIPT = Path(__file__).with_name("mqttjs.mjs")
VERSIONS = (4, 5)

Start = Callable[..., "Program"]


@pytest.fixture
def page(broker: RunningBroker, run: RunProgram, node_modules: Path) -> Start:
    """Starts a client that does as it is told (see the script)."""

    def start(version: int, **wishes: object) -> Program:
        url = f"ws://127.0.0.1:{broker.http_port}/mqtt"
        return run("node", SCRIPT, node_modules, url, version, json.dumps(wishes))

    return start


def said(program: Program) -> Any:
    return json.loads(program.line())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", some([1, 0, 2]))
def test_publications_arrive(page: Start, version: int, qos: int) -> None:
    topic = f"plain/{version}/{qos}"
    subscriber = page(version, subscribe={"topic": f"plain/{version}/+", "qos": qos})
    assert said(subscriber) == {"granted": [qos]}
    publication = {"topic": topic, "payload": "ünï", "qos": qos}
    publisher = page(version, publish=[publication] * 3)
    assert [said(publisher) for _ in range(3)] == [{"published": topic}] * 3
    for _ in range(3):
        notified = said(subscriber)["notified"]
        assert (notified["topic"], notified["payload"], notified["qos"]) == (topic, "ünï", qos)


def test_content_filters(page: Start) -> None:
    properties = {"userProperties": {"filter": "NO2 > 40"}, "subscriptionIdentifier": 12}
    wish = {"topic": "air/#", "qos": 1, "properties": properties}
    subscriber = page(5, subscribe=wish)
    assert said(subscriber) == {"granted": [1]}
    readings = [
        {"topic": "air/zagreb", "payload": json.dumps({"NO2": value}), "qos": 1}
        for value in (40, 41)
    ]
    page(5, publish=readings)
    notified = said(subscriber)["notified"]
    assert (notified["payload"], notified["ids"]) == ('{"NO2": 41}', [12])


def test_a_refused_filter_leaves_the_connection(page: Start) -> None:
    wish = {"topic": "air/#", "properties": {"userProperties": {"filter": "NO2 >"}}}
    subscriber = page(5, subscribe=wish, publish=[{"topic": "still/here", "payload": "", "qos": 1}])
    refused = said(subscriber)["refused"]
    assert "Implementation specific error" in refused or "131" in refused
    assert said(subscriber) == {"published": "still/here"}


def test_retained_and_user_properties(page: Start) -> None:
    publication = {
        "topic": "kept/here",
        "payload": "last",
        "qos": 1,
        "retain": True,
        "properties": {"userProperties": {"colour": "red"}},
    }
    assert said(page(5, publish=[publication])) == {"published": "kept/here"}
    subscriber = page(5, subscribe={"topic": "kept/#", "qos": 1})
    lines = [said(subscriber), said(subscriber)]
    [notified] = [line["notified"] for line in lines if "notified" in line]
    assert notified["retain"] is True
    assert notified["user"] == {"colour": "red"}


def test_3_1_1_says_topic_and_text_in_one(page: Start) -> None:
    subscriber = page(4, subscribe={"topic": "air/osijek?NO2 > 40", "qos": 1})
    assert said(subscriber) == {"granted": [1]}
    readings = [
        {"topic": "air/osijek", "payload": json.dumps({"NO2": value}), "qos": 1}
        for value in (40, 41)
    ]
    page(4, publish=readings)
    assert said(subscriber)["notified"]["payload"] == '{"NO2": 41}'
