"""`curl -N` as a subscriber, and as a publisher; Python's own HTTP where there is no curl."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from tests.effort import PATIENCE_S

if TYPE_CHECKING:
    from tests.interop.conftest import RunningBroker, RunProgram

NextLine = Callable[[], str]


@pytest.fixture
def listen(broker: RunningBroker, run: RunProgram) -> Iterator[Callable[..., NextLine]]:
    """Starts a stream of events; gives what gives its lines."""
    connections: list[http.client.HTTPConnection] = []

    def start(**query: str) -> NextLine:
        path = f"/subscribe?{urlencode(query)}"
        if shutil.which("curl"):
            return run("curl", "-sN", f"http://127.0.0.1:{broker.http_port}{path}").line
        connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=PATIENCE_S)
        connections.append(connection)
        connection.request("GET", path)
        answer = connection.getresponse()
        return lambda: answer.readline().decode().rstrip("\n")

    yield start
    for connection in connections:
        connection.close()


def post(broker: RunningBroker, topic: str, payload: object) -> Any:
    """Publish as `curl -d` does; what was answered."""
    url = f"http://127.0.0.1:{broker.http_port}/publish?{urlencode({'topic': topic})}"
    data = json.dumps(payload)
    if shutil.which("curl"):
        command = ["curl", "-sS", "-d", data, url]
        done = subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE_S)
        return json.loads(done.stdout)
    with urllib.request.urlopen(url, data.encode(), timeout=PATIENCE_S) as answer:
        return json.loads(answer.read())


def event(line: NextLine) -> dict[str, str]:
    """The next event as its fields; comments are passed over."""
    fields: dict[str, str] = {}
    while (text := line()) or not fields:
        name, _, value = text.partition(": ")
        if name:
            fields[name] = value
    return fields


def test_a_filter_chooses_by_content(
    broker: RunningBroker, listen: Callable[..., NextLine]
) -> None:
    line = listen(topic="air/#", filter="NO2 > 40")
    assert line().startswith(": subscribed as ")
    assert post(broker, "air/zagreb", {"NO2": 40})["matched"] is False
    assert post(broker, "air/zagreb", {"NO2": 41})["matched"] is True
    found = event(line)
    assert found["event"] == "notification"
    data = json.loads(found["data"])
    assert (data["topic"], data["value"], data["retained"]) == ("air/zagreb", {"NO2": 41}, False)


def test_what_mqtt_publishes_arrives(
    broker: RunningBroker, listen: Callable[..., NextLine], run: RunProgram
) -> None:
    line = listen(topic="mixed/#")
    assert line().startswith(": subscribed as ")
    named = ("-D", "publish", "user-property", "id", "first")
    publish = ("-p", broker.port, "-V", "mqttv5", "-t", "mixed/1", "-m", "no JSON", *named)
    assert run("mosquitto_pub", *publish).exit_code == 0
    found = event(line)
    assert found["id"] == "first"
    data = json.loads(found["data"])
    assert (data["value"], data["encoding"]) == ("no JSON", "text")


def test_a_bad_filter_is_told_in_the_answer(
    broker: RunningBroker, listen: Callable[..., NextLine]
) -> None:
    line = listen(topic="air/#", filter="NO2 >")
    assert "expected a value" in json.loads(line())["error"]
