"""aiomqtt, the client of asyncio programs, in both versions of MQTT."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import pytest
from aiomqtt import Client, MqttError, ProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

if TYPE_CHECKING:
    from tests.interop.conftest import RunningBroker, StartBroker

VERSIONS = (ProtocolVersion.V311, ProtocolVersion.V5)


def run(work: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(30):
            await work

    asyncio.run(limited())


def properties_of(kind: int, **user: str) -> Properties:
    found = Properties(kind)  # type: ignore[no-untyped-call]
    found.UserProperty = [(name.replace("_", "-"), value) for name, value in user.items()]
    return found


async def heard(client: Client, count: int) -> list[bytes]:
    """The payloads of the next messages."""
    found: list[bytes] = []
    async for message in client.messages:
        assert isinstance(message.payload, bytes)
        found.append(message.payload)
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publications_arrive(broker: RunningBroker, version: ProtocolVersion, qos: int) -> None:
    async def work() -> None:
        async with Client("127.0.0.1", broker.port, protocol=version) as client:
            await client.subscribe("plain/+", qos)
            for number in range(50):
                await client.publish("plain/here", str(number), qos)
            assert await heard(client, 50) == [b"%d" % number for number in range(50)]

    run(work())


def test_content_filters(broker: RunningBroker) -> None:
    async def work() -> None:
        async with Client("127.0.0.1", broker.port, protocol=ProtocolVersion.V5) as client:
            wants = properties_of(PacketTypes.SUBSCRIBE, filter="NO2 > 40 AND topic LIKE 'air/z%'")
            await client.subscribe("air/#", 1, properties=wants)
            for topic in ("air/zagreb", "air/split"):
                for value in (40, 41):
                    await client.publish(topic, json.dumps({"NO2": value}), 1)
            await client.publish("air/zadar", '{"NO2": 99}', 1)
            assert await heard(client, 2) == [b'{"NO2": 41}', b'{"NO2": 99}']

    run(work())


def test_a_refused_filter_is_an_error(broker: RunningBroker) -> None:
    async def work() -> None:
        async with Client("127.0.0.1", broker.port, protocol=ProtocolVersion.V5) as client:
            wants = properties_of(PacketTypes.SUBSCRIBE, filter="NO2 >")
            codes = await client.subscribe("air/#", 1, properties=wants)
            assert [str(code) for code in codes] == ["Implementation specific error"]

    run(work())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_outlives_its_client(broker: RunningBroker, version: ProtocolVersion) -> None:
    def sleeper() -> Client:
        name = f"sleeper-{version}"
        if version == ProtocolVersion.V311:
            return Client("127.0.0.1", broker.port, identifier=name, clean_session=False)
        expiry = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        expiry.SessionExpiryInterval = 3600
        return Client(
            "127.0.0.1",
            broker.port,
            identifier=name,
            protocol=version,
            clean_start=False,
            properties=expiry,
        )

    async def work() -> None:
        async with sleeper() as client:
            await client.subscribe(f"sleep/{version}", 2)
        async with Client("127.0.0.1", broker.port, protocol=version) as client:
            for number in range(20):
                await client.publish(f"sleep/{version}", str(number), 2)
        async with sleeper() as client:
            assert await heard(client, 20) == [b"%d" % number for number in range(20)]

    run(work())


def test_a_broker_that_stops_is_noticed(start_broker: StartBroker) -> None:
    broker = start_broker()

    async def work() -> None:
        async with Client("127.0.0.1", broker.port, protocol=ProtocolVersion.V5) as client:
            await client.subscribe("anything")
            assert await asyncio.to_thread(broker.stop) == 0
            with pytest.raises(MqttError):
                await heard(client, 1)

    run(work())
