"""mosquitto_pub and mosquitto_sub, as everybody has them, in both versions of MQTT."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.interop.conftest import Program, RunningBroker, RunProgram

VERSIONS = ("mqttv311", "mqttv5")


class Mosquitto:
    """The two programs, talking to one broker."""

    def __init__(self, run: RunProgram, port: int) -> None:
        self._run = run
        self._port = port

    def publish(self, topic: str, payload: str, *options: object, version: str = "mqttv5") -> None:
        """Publish with QoS 1 unless told otherwise, and wait until it is acknowledged."""
        qos = () if "-q" in options else ("-q", 1)
        arguments = ("-p", self._port, "-V", version, "-t", topic, "-m", payload, *qos, *options)
        program = self._run("mosquitto_pub", *arguments)
        assert (program.rest(), program.exit_code) == ([], 0)

    def subscribe(self, topic: str, *options: object, version: str = "mqttv5") -> Program:
        """A subscriber whose subscription is in force; writes one line per notification."""
        arguments = ("-p", self._port, "-V", version, "-t", topic, "-d", *options)
        program = self._run("mosquitto_sub", *arguments)
        program.until("Subscribed (mid: 1)")
        return program


@pytest.fixture
def mosquitto(broker: RunningBroker, run: RunProgram) -> Mosquitto:
    return Mosquitto(run, broker.port)


def heard(program: Program, count: int) -> list[str]:
    """The next notifications, without what `-d` tells of packets."""
    found: list[str] = []
    while len(found) < count:
        line = program.line()
        if not line.startswith(("Client ", "Subscribed ")):
            found.append(line)
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publications_arrive(mosquitto: Mosquitto, version: str, qos: int) -> None:
    topic = f"plain/{version}/{qos}"
    subscriber = mosquitto.subscribe(f"plain/{version}/+", "-q", qos, "-F", "%t %q %p")
    mosquitto.publish(topic, "hello", "-q", qos, version=version)
    mosquitto.publish(topic, "", "-q", qos, version=version)
    assert heard(subscriber, 2) == [f"{topic} {qos} hello", f"{topic} {qos} "]


def test_a_filter_chooses_by_content(mosquitto: Mosquitto) -> None:
    wants = ("-D", "subscribe", "user-property", "filter", "NO2 > 40")
    subscriber = mosquitto.subscribe("air/#", *wants, "-v")
    mosquitto.publish("air/zagreb", '{"NO2": 39}')
    mosquitto.publish("air/zagreb", '{"NO2": 41}')
    mosquitto.publish("air/split", "no JSON at all")
    mosquitto.publish("air/split", '{"NO2": 55, "PM10": 12}')
    expected = ['air/zagreb {"NO2": 41}', 'air/split {"NO2": 55, "PM10": 12}']
    assert heard(subscriber, 2) == expected


def test_user_properties_are_attributes(mosquitto: Mosquitto) -> None:
    wants = ("-D", "subscribe", "user-property", "filter", "colour = 'red'")
    subscriber = mosquitto.subscribe("lamps/#", *wants, "-F", "%p %P")
    mosquitto.publish("lamps/1", "on", "-D", "publish", "user-property", "colour", "blue")
    mosquitto.publish("lamps/2", "off", "-D", "publish", "user-property", "colour", "red")
    assert heard(subscriber, 1) == ["off colour:red"]


def test_a_bad_filter_is_refused_and_the_reason_logged(
    broker: RunningBroker, run: RunProgram
) -> None:
    wants = ("-D", "subscribe", "user-property", "filter", "NO2 >")
    arguments = ("-p", broker.port, "-V", "mqttv5", "-t", "air/#", "-i", "clumsy", *wants)
    program = run("mosquitto_sub", *arguments)
    assert "All subscription requests were denied." in program.rest()
    [line] = broker.written("subscription refused")
    assert "client=clumsy" in line
    assert "NO2 >" in line


def test_3_1_1_says_topic_and_text_in_one(mosquitto: Mosquitto) -> None:
    topic = "air/osijek?NO2 > 40"
    subscriber = mosquitto.subscribe(topic, "-v", version="mqttv311")
    mosquitto.publish("air/osijek", '{"NO2": 39}', version="mqttv311")
    mosquitto.publish("air/osijek", '{"NO2": 41}', version="mqttv311")
    assert heard(subscriber, 1) == ['air/osijek {"NO2": 41}']


@pytest.mark.parametrize("version", VERSIONS)
def test_retained_messages_wait_for_subscribers(mosquitto: Mosquitto, version: str) -> None:
    topic = f"retained/{version}"
    mosquitto.publish(topic, "first", "-r", version=version)
    mosquitto.publish(topic, "last", "-r", version=version)
    subscriber = mosquitto.subscribe(topic, "-F", "%r %p", version=version)
    assert heard(subscriber, 1) == ["1 last"]
    mosquitto.publish(topic, "new", version=version)
    assert heard(subscriber, 1) == ["0 new"]


def test_an_empty_retained_message_ends_the_last(mosquitto: Mosquitto) -> None:
    mosquitto.publish("retained/ended", "first", "-r")
    mosquitto.publish("retained/ended", "", "-r")
    subscriber = mosquitto.subscribe("retained/ended", "-F", "%r %p")
    mosquitto.publish("retained/ended", "live")
    assert heard(subscriber, 1) == ["0 live"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_will_of_a_client_that_dies_is_published(mosquitto: Mosquitto, version: str) -> None:
    mourner = mosquitto.subscribe(f"wills/{version}", "-v")
    will = ("--will-topic", f"wills/{version}", "--will-payload", "gone", "--will-qos", 1)
    dying = mosquitto.subscribe("whatever", *will, version=version)
    dying.end()
    assert heard(mourner, 1) == [f"wills/{version} gone"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_keeps_what_comes_meanwhile(
    mosquitto: Mosquitto, broker: RunningBroker, run: RunProgram, version: str
) -> None:
    session = ["-i", f"sleeper-{version}", "-c", "-q", 1]
    if version == "mqttv5":
        session += ["-x", 3600]
    arguments = ("-p", broker.port, "-V", version, "-t", f"sleep/{version}", *session)
    assert run("mosquitto_sub", *arguments, "-E").exit_code == 0
    for number in range(20):
        mosquitto.publish(f"sleep/{version}", str(number), version=version)
    back = run("mosquitto_sub", *arguments, "-C", 20)
    assert back.rest() == [str(number) for number in range(20)]


def test_members_of_a_group_share(mosquitto: Mosquitto) -> None:
    first = mosquitto.subscribe("$share/workers/jobs", "-q", 1)
    second = mosquitto.subscribe("$share/workers/jobs", "-q", 1)
    for number in range(6):
        mosquitto.publish("jobs", str(number))
    assert sorted(heard(first, 3) + heard(second, 3)) == list("012345")


def test_properties_travel_along(mosquitto: Mosquitto) -> None:
    subscriber = mosquitto.subscribe(
        "full", "-F", "%J", "-D", "subscribe", "subscription-identifier", 7
    )
    properties: list[object] = []
    for name, value in {
        "content-type": "text/plain",
        "response-topic": "answers/here",
        "correlation-data": "c0ffee",
        "message-expiry-interval": 3600,
        "payload-format-indicator": 1,
    }.items():
        properties += ["-D", "publish", name, value]
    mosquitto.publish("full", "5", *properties, "-D", "publish", "user-property", "a", "b")
    found = json.loads(heard(subscriber, 1)[0])["properties"]
    assert found["content-type"] == "text/plain"
    assert found["response-topic"] == "answers/here"
    assert found["message-expiry-interval"] in (3599, 3600)
    assert found["user-properties"] == {"a": "b"}


def test_valid_publications_are_found_until_withdrawn(mosquitto: Mosquitto) -> None:
    def publish(number: int) -> None:
        options: list[object] = ["-i", "shop"]
        for name, value in (("id", f"offer-{number}"), ("valid-for", "forever")):
            options += ["-D", "publish", "user-property", name, value]
        mosquitto.publish("offers", json.dumps({"price": number}), *options)

    for number in range(1, 5):
        publish(number)
    mosquitto.publish("$rove/unpublish", "offer-2", "-i", "shop")
    wants = ("-D", "subscribe", "user-property", "filter", "price < 4")
    subscriber = mosquitto.subscribe("offers", *wants, "-q", 1)
    assert sorted(heard(subscriber, 2)) == ['{"price": 1}', '{"price": 3}']


def test_the_state_of_a_subscriber_moves_its_subscriptions(
    mosquitto: Mosquitto, broker: RunningBroker, run: RunProgram
) -> None:
    session = ["-i", "walker", "-c", "-x", 3600, "-q", 1, "-V", "mqttv5", "-p", broker.port]
    wants = ("-t", "shops/#", "-D", "subscribe", "user-property", "filter", "distance < me.reach")
    assert run("mosquitto_sub", *session, *wants, "-E").exit_code == 0
    setting = ("-i", "walker", "-c", "-x", 3600)
    mosquitto.publish("shops/1", '{"distance": 5}')
    mosquitto.publish("$rove/me", '{"reach": 10}', *setting)
    mosquitto.publish("shops/2", '{"distance": 5}')
    mosquitto.publish("shops/3", '{"distance": 15}')
    back = run("mosquitto_sub", *session, *wants, "-C", 1, "-F", "%t")
    assert back.rest() == ["shops/2"]
