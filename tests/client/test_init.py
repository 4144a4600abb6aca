"""The public names of the client: users import these, so none comes or goes by accident."""

from __future__ import annotations

import subprocess
import sys

import rove
import rove.client

PUBLIC = [
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


def test_the_public_names_are_these() -> None:
    assert rove.client.__all__ == PUBLIC
    assert [name for name in PUBLIC if not hasattr(rove.client, name)] == []


def test_the_package_has_the_same_door() -> None:
    assert rove.connect is rove.client.connect
    assert not hasattr(rove, "disconnect")


def test_the_package_alone_imports_nothing_the_client_no_policies_and_those_no_numpy() -> None:
    program = """
import sys
before = set(sys.modules)
import rove
print(*sorted(set(sys.modules) - before))
rove.connect
print("asyncio" in sys.modules, "numpy" in sys.modules, "websockets" in sys.modules)
print(any(name.startswith("rove.policy") for name in sys.modules))
import rove.client.edge
print("numpy" in sys.modules, "PIL" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "rove rove.errors",
        "True False False",
        "False",
        "False False",
    ]
