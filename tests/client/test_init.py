"""The public names of the client: users import these, so none comes or goes by accident."""

import subprocess
import sys

import rove
import rove.client

PUBLIC = [
    "AddressError",
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
    "PublishRefused",
    "Published",
    "SessionTakenOver",
    "SlowConsumer",
    "SubscribeRefused",
    "Subscription",
    "Will",
    "connect",
]


def test_the_public_names_are_these() -> None:
    assert rove.client.__all__ == PUBLIC
    assert [name for name in PUBLIC if not hasattr(rove.client, name)] == []


def test_the_package_has_the_same_door() -> None:
    assert rove.connect is rove.client.connect
    assert not hasattr(rove, "disconnect")


def test_the_package_alone_imports_nothing_and_the_client_no_numpy() -> None:
    program = """
import sys
before = set(sys.modules)
import rove
print(*sorted(set(sys.modules) - before))
rove.connect
print("asyncio" in sys.modules, "numpy" in sys.modules, "websockets" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["rove rove.errors", "True False False"]
