"""The library for programs that publish and subscribe, over MQTT 5.

    async with rove.connect("mqtt://127.0.0.1:1883") as client:
        await client.publish("air/zagreb", {"NO2": 41.5})
        async with client.subscribe("air/#", "NO2 > 40") as readings:
            async for notification in readings:
                print(notification.topic, notification.value)

`client` has the client, `protocol` the state of its session without any I/O, `sync` the same for
programs without an event loop, `errors` everything that can go wrong. The guide is `docs/sdk.md`.
"""

from rove.client.client import Client, Published, connect
from rove.client.devices import Battery
from rove.client.errors import (
    AddressError,
    ClientClosed,
    ClientError,
    ConnectionEnded,
    ConnectionFailed,
    ConnectionRefused,
    FilterError,
    MissingPackage,
    OutboxFull,
    PayloadError,
    PolicyRefused,
    PublishRefused,
    SessionTakenOver,
    SlowConsumer,
    SubscribeRefused,
)
from rove.client.me import Me
from rove.client.notifications import Notification
from rove.client.options import Connection, Will
from rove.client.policies import PolicyNotice
from rove.client.subscription import Subscription
from rove.client.variables import Variables

__all__ = [
    "AddressError",
    "Battery",
    "Client",
    "ClientClosed",
    "ClientError",
    "Connection",
    "ConnectionEnded",
    "ConnectionFailed",
    "ConnectionRefused",
    "FilterError",
    "Me",
    "MissingPackage",
    "Notification",
    "OutboxFull",
    "PayloadError",
    "PolicyNotice",
    "PolicyRefused",
    "PublishRefused",
    "Published",
    "SessionTakenOver",
    "SlowConsumer",
    "SubscribeRefused",
    "Subscription",
    "Variables",
    "Will",
    "connect",
]
