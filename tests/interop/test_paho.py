"""paho-mqtt, the client that most Python programs use, in both versions of MQTT."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from queue import Queue
from typing import TYPE_CHECKING, Any

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.effort import PATIENCE_S

if TYPE_CHECKING:
    from tests.interop.conftest import RunningBroker

V311, V5 = MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5
VERSIONS = (V311, V5)


def properties_of(kind: int, user: dict[str, str] | None = None, **named: object) -> Properties:
    """Properties of a packet by the names that paho gives them."""
    found = Properties(kind)  # type: ignore[no-untyped-call]
    if user:
        found.UserProperty = list(user.items())
    for name, value in named.items():
        setattr(found, name, value)
    return found


def identifiers_of(message: MQTTMessage) -> list[int]:
    """The subscriptions that a notification says it met."""
    properties: Any = message.properties
    return sorted(properties.SubscriptionIdentifier)


class Paho:
    """A client whose callbacks fill queues, so that a test can wait for what happens."""

    def __init__(self, port: int, client_id: str, version: MQTTProtocolVersion) -> None:
        self._port = port
        self.version = version
        self.client_id = client_id
        self.client: Client
        self.messages: Queue[MQTTMessage] = Queue()
        self.answers: Queue[Any] = Queue()

    def connect(
        self, *, keeps: bool = False, will: dict[str, Any] | None = None, **properties: object
    ) -> bool:
        """Connect; whether the session was there."""
        clean = not keeps if self.version == V311 else None
        self.client = Client(
            CallbackAPIVersion.VERSION2, self.client_id, clean, protocol=self.version
        )
        self.client.on_message = lambda _c, _u, message: self.messages.put(message)
        self.client.on_connect = lambda _c, _u, flags, code, _p: self.answers.put((flags, code))
        self.client.on_subscribe = lambda _c, _u, _m, codes, p: self.answers.put((codes, p))
        self.client.on_unsubscribe = lambda _c, _u, _m, codes, _p: self.answers.put(codes)
        if will is not None:
            self.client.will_set(**will)
        if self.version == V5:
            expiry = {"SessionExpiryInterval": 3600} if keeps else {}
            packet = properties_of(PacketTypes.CONNECT, None, **expiry, **properties)
            self.client.connect("127.0.0.1", self._port, clean_start=not keeps, properties=packet)
        else:
            self.client.connect("127.0.0.1", self._port)
        self.client.loop_start()
        flags, code = self.answers.get(timeout=PATIENCE_S)
        assert code == 0
        return bool(flags.session_present)

    def subscribe(
        self,
        topic: str,
        qos: int = 1,
        *,
        user: dict[str, str] | None = None,
        identifier: int | None = None,
        options: SubscribeOptions | None = None,
    ) -> tuple[list[ReasonCode], Any]:
        """Subscribe; the codes of the answer, and its properties."""
        if self.version == V5:
            named = {} if identifier is None else {"SubscriptionIdentifier": identifier}
            packet = properties_of(PacketTypes.SUBSCRIBE, user, **named)
            options = options or SubscribeOptions(qos)
            self.client.subscribe(topic, options=options, properties=packet)
        else:
            self.client.subscribe(topic, qos)
        answer: tuple[list[ReasonCode], Any] = self.answers.get(timeout=PATIENCE_S)
        return answer

    def publish(
        self,
        topic: str,
        payload: object,
        qos: int = 1,
        *,
        retain: bool = False,
        user: dict[str, str] | None = None,
        **named: Any,
    ) -> None:
        """Publish, and wait until it is acknowledged."""
        data = payload if isinstance(payload, str) else json.dumps(payload)
        packet = None
        if self.version == V5:
            packet = properties_of(PacketTypes.PUBLISH, user, **named)
        self.client.publish(topic, data, qos, retain, packet).wait_for_publish(PATIENCE_S)

    def message(self) -> MQTTMessage:
        return self.messages.get(timeout=PATIENCE_S)

    def heard(self, count: int) -> list[str]:
        """The payloads of the next messages."""
        return [self.message().payload.decode() for _ in range(count)]

    def disconnect(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def vanish(self) -> None:
        """Go without a word, as a client that lost its network."""
        sock = self.client.socket()
        assert sock is not None
        self.client.loop_stop()
        sock.close()


MakePaho = Callable[..., Paho]


@pytest.fixture
def paho(broker: RunningBroker) -> Iterator[MakePaho]:
    """Makes clients that are connected, unless told otherwise."""
    made: list[Paho] = []

    def make(
        client_id: str = "", version: MQTTProtocolVersion = V5, *, connects: bool = True
    ) -> Paho:
        one = Paho(broker.port, client_id, version)
        made.append(one)
        if connects:
            one.connect()
        return one

    yield make
    for one in made:
        one.disconnect()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("sent", [0, 1, 2])
def test_the_lower_qos_counts(
    paho: MakePaho, version: MQTTProtocolVersion, granted: int, sent: int
) -> None:
    topic = f"qos/{version}/{granted}/{sent}"
    subscriber, publisher = paho("", version), paho("", version)
    assert subscriber.subscribe(topic, granted)[0] == [granted]
    publisher.publish(topic, "hello", sent)
    message = subscriber.message()
    assert (message.payload, message.qos) == (b"hello", min(granted, sent))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [1, 2])
def test_order_holds(paho: MakePaho, version: MQTTProtocolVersion, qos: int) -> None:
    subscriber, publisher = paho("", version), paho("", version)
    subscriber.subscribe("order/#", qos)
    for number in range(500):
        publisher.client.publish(f"order/{version}", str(number), qos)
    assert subscriber.heard(500) == [str(number) for number in range(500)]


@pytest.mark.parametrize("version", VERSIONS)
def test_retained(paho: MakePaho, version: MQTTProtocolVersion) -> None:
    topic = f"retained/{version}"
    publisher = paho("", version)
    publisher.publish(topic, "old", retain=True)
    publisher.publish(topic, "last", retain=True)
    subscriber = paho("", version)
    subscriber.subscribe(f"retained/{version}/#")
    message = subscriber.message()
    assert (message.payload, message.retain) == (b"last", True)
    publisher.publish(topic, "live", retain=True)
    message = subscriber.message()
    assert (message.payload, message.retain) == (b"live", False)


def test_how_retained_messages_are_handled(paho: MakePaho) -> None:
    publisher, subscriber = paho(), paho()
    publisher.publish("handled", "kept", retain=True)
    subscriber.subscribe("handled", options=SubscribeOptions(1, retainHandling=2))
    publisher.publish("handled", "first")
    subscriber.subscribe("handled", options=SubscribeOptions(1, retainHandling=1))
    publisher.publish("handled", "second")
    as_published = SubscribeOptions(1, retainHandling=0, retainAsPublished=True)
    subscriber.subscribe("handled", options=as_published)
    publisher.publish("handled", "third", retain=True)
    messages = [subscriber.message() for _ in range(4)]
    assert [message.payload for message in messages] == [b"first", b"second", b"kept", b"third"]
    assert [message.retain for message in messages] == [False, False, True, True]


def test_no_local(paho: MakePaho) -> None:
    one, other = paho(), paho()
    one.subscribe("chat", options=SubscribeOptions(1, noLocal=True))
    one.publish("chat", "my own")
    other.publish("chat", "another's")
    assert one.heard(1) == ["another's"]


@pytest.mark.parametrize("version", VERSIONS)
def test_wills(paho: MakePaho, version: MQTTProtocolVersion) -> None:
    topic = f"wills/{version}"
    mourner = paho()
    mourner.subscribe("wills/#")
    polite, lost = paho("", version, connects=False), paho("", version, connects=False)
    polite.connect(will={"topic": topic, "payload": "polite", "qos": 1})
    lost.connect(will={"topic": topic, "payload": "lost", "qos": 1})
    polite.disconnect()
    lost.vanish()
    assert mourner.heard(1) == ["lost"]


def test_a_will_waits_for_its_delay(paho: MakePaho) -> None:
    mourner = paho()
    mourner.subscribe("delayed/#")
    delay = properties_of(PacketTypes.WILLMESSAGE, WillDelayInterval=1)
    short = paho("short", connects=False)
    short.connect(
        keeps=True,
        will={"topic": "delayed/short", "payload": "gone", "qos": 1, "properties": delay},
    )
    short.vanish()
    back = paho("back", connects=False)
    back.connect(
        keeps=True,
        will={"topic": "delayed/back", "payload": "gone", "qos": 1, "properties": delay},
    )
    back.vanish()
    assert back.connect(keeps=True)
    assert mourner.message().topic == "delayed/short"
    mourner.publish("delayed/end", "end")
    assert mourner.message().topic == "delayed/end"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [1, 2])
def test_a_session_goes_on(paho: MakePaho, version: MQTTProtocolVersion, qos: int) -> None:
    client_id, topic = f"sleeper-{version}-{qos}", f"sleep/{version}/{qos}"
    sleeper = paho(client_id, version, connects=False)
    assert not sleeper.connect(keeps=True)
    sleeper.subscribe(topic, qos)
    sleeper.vanish()
    publisher = paho("", version)
    for number in range(50):
        publisher.publish(topic, str(number), qos)
    assert sleeper.connect(keeps=True)
    assert sleeper.heard(50) == [str(number) for number in range(50)]
    publisher.publish(topic, "live", qos)
    assert sleeper.heard(1) == ["live"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_that_connects_again_takes_over(
    paho: MakePaho, version: MQTTProtocolVersion
) -> None:
    first = paho(f"twin-{version}", version)
    gone: Queue[Any] = Queue()

    def on_disconnect(client: Client, _u: Any, _f: Any, code: ReasonCode, _p: Any) -> None:
        client.disconnect()  # or paho would connect again, and so for ever
        gone.put(code)

    first.client.on_disconnect = on_disconnect
    paho(f"twin-{version}", version)
    code = gone.get(timeout=PATIENCE_S)
    assert code.is_failure
    assert version == V311 or code == "Session taken over"


def test_properties_travel_along(paho: MakePaho) -> None:
    subscriber, publisher = paho(), paho()
    subscriber.subscribe("full", identifier=268_435_455)
    sent: dict[str, Any] = {
        "ContentType": "text/plain",
        "ResponseTopic": "answers/here",
        "CorrelationData": b"\x00\xff",
        "PayloadFormatIndicator": 1,
    }
    user = {"a": "b", "": "ü"}
    publisher.publish("full", "hello", user=user, MessageExpiryInterval=100, **sent)
    found: Any = subscriber.message().properties
    assert {name: getattr(found, name) for name in sent} == sent
    assert found.UserProperty == list(user.items())
    assert found.SubscriptionIdentifier == [268_435_455]
    assert 0 < found.MessageExpiryInterval <= 100


def test_what_has_expired_is_not_delivered(paho: MakePaho) -> None:
    sleeper = paho("late", connects=False)
    sleeper.connect(keeps=True)
    sleeper.subscribe("news")
    sleeper.disconnect()
    publisher, watch = paho(), paho()
    watch.subscribe("tick")
    publisher.publish("news", "short", MessageExpiryInterval=1)
    publisher.publish("news", "long", MessageExpiryInterval=3600)
    # A will after two seconds is a clock on the broker's side.
    delay = properties_of(PacketTypes.WILLMESSAGE, WillDelayInterval=2)
    clock = paho("clock", connects=False)
    clock.connect(keeps=True, will={"topic": "tick", "payload": "", "qos": 1, "properties": delay})
    clock.vanish()
    watch.message()
    sleeper.connect(keeps=True)
    assert sleeper.heard(1) == ["long"]


@pytest.mark.parametrize("version", VERSIONS)
def test_shared_subscriptions(paho: MakePaho, version: MQTTProtocolVersion) -> None:
    members = [paho("", version) for _ in range(3)]
    for member in members:
        member.subscribe(f"$share/crew/jobs/{version}")
    publisher = paho()
    for number in range(30):
        publisher.publish(f"jobs/{version}", str(number))
    shares = [member.heard(10) for member in members]
    everything = [int(payload) for share in shares for payload in share]
    assert sorted(everything) == list(range(30))


def test_content_filters(paho: MakePaho) -> None:
    subscriber, publisher = paho(), paho()
    subscriber.subscribe("air/#", user={"filter": "NO2 > 40"}, identifier=1)
    subscriber.subscribe("air/#", user={"filter": "PM10 > 50"}, identifier=2)
    subscriber.subscribe("air/zagreb", user={"filter": "site.height < 10"}, identifier=3)
    publisher.publish("air/zagreb", {"NO2": 40, "PM10": 50, "site": {"height": 10}})
    publisher.publish("air/split", {"NO2": 41, "PM10": 1})
    publisher.publish("air/zagreb", {"NO2": 41, "PM10": 51, "site": {"height": 9}})
    first, both = subscriber.message(), subscriber.message()
    assert first.topic == "air/split"
    assert identifiers_of(first) == [1]
    assert both.topic == "air/zagreb"
    assert identifiers_of(both) == [1, 2, 3]
    publisher.publish("air/end", {"NO2": 99})
    assert subscriber.message().topic == "air/end", "a notification came once per session"


def test_a_refused_filter_leaves_the_connection(paho: MakePaho) -> None:
    subscriber = paho()
    codes, properties = subscriber.subscribe("air/#", user={"filter": "NO2 >"})
    assert codes == ["Implementation specific error"]
    assert properties.ReasonString.startswith("column 6: expected a value")
    subscriber.subscribe("still/here")
    subscriber.publish("still/here", "yes")
    assert subscriber.heard(1) == ["yes"]


def test_3_1_1_says_topic_and_text_in_one(paho: MakePaho) -> None:
    subscriber, publisher = paho("", V311), paho("", V311)
    assert subscriber.subscribe("air/rijeka?NO2 > 40")[0] == [1]
    assert subscriber.subscribe("air/rijeka?NO2 >")[0] == [0x80]
    publisher.publish("air/rijeka", {"NO2": 39})
    publisher.publish("air/rijeka", {"NO2": 41})
    assert subscriber.heard(1) == ['{"NO2": 41}']


def test_unsubscribing(paho: MakePaho) -> None:
    subscriber = paho()
    for identifier, text in ((1, "x > 1"), (2, "x > 2")):
        subscriber.subscribe("some", user={"filter": text}, identifier=identifier)
    only = properties_of(PacketTypes.UNSUBSCRIBE, {"subscription": "1"})
    subscriber.client.unsubscribe("some", only)
    assert subscriber.answers.get(timeout=PATIENCE_S) == ["Success"]
    subscriber.publish("some", {"x": 2})
    subscriber.publish("some", {"x": 3})
    assert subscriber.heard(1) == ['{"x": 3}']
    subscriber.client.unsubscribe("some")
    assert subscriber.answers.get(timeout=PATIENCE_S) == ["Success"]
    subscriber.client.unsubscribe("some")
    assert subscriber.answers.get(timeout=PATIENCE_S) == ["No subscription found"]


def test_a_receive_maximum_of_one(paho: MakePaho) -> None:
    slow = paho("", connects=False)
    slow.connect(ReceiveMaximum=1)
    slow.subscribe("narrow", 2)
    publisher = paho()
    for number in range(20):
        publisher.publish("narrow", str(number), 2)
    assert slow.heard(20) == [str(number) for number in range(20)]


def test_topic_aliases(paho: MakePaho) -> None:
    subscriber, publisher = paho(), paho()
    subscriber.subscribe("a/long/name")
    publisher.publish("a/long/name", "first", TopicAlias=3)
    publisher.publish("", "second", TopicAlias=3)
    assert subscriber.heard(2) == ["first", "second"]


def test_who_sends_too_much_is_told(paho: MakePaho) -> None:
    publisher = paho()
    gone: Queue[tuple[ReasonCode, Any]] = Queue()

    def on_disconnect(client: Client, _u: Any, _f: Any, code: ReasonCode, told: Any) -> None:
        client.disconnect()  # or paho would connect again, and send it again
        gone.put((code, told))

    publisher.client.on_disconnect = on_disconnect
    publisher.client.publish("large", b"x" * 2_000_000, 1)
    code, told = gone.get(timeout=PATIENCE_S)
    assert code == "Packet too large"
    assert "at most 1048576" in told.ReasonString
