"""The public names of the client: users import these, so none comes or goes by accident."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rove
import rove.client

if TYPE_CHECKING:
    from tests.client.conftest import StartBroker

GUIDE = Path(__file__).resolve().parent.parent.parent / "docs" / "sdk.md"

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


async def test_the_guides_snippets_run(
    start_broker: StartBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """In order, in one namespace, as a reader would type them; those without a loop in a thread."""
    snippets = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(snippets) >= 10
    names: dict[str, Any] = {}
    async with start_broker() as broker:
        for number, snippet in enumerate(snippets):
            text = snippet.replace("mqtt://127.0.0.1:1883", broker.url)
            code = compile(text, f"snippet {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if code.co_flags & inspect.CO_COROUTINE:
                await eval(code, names)
            else:
                await asyncio.to_thread(exec, code, names)
    printed = capsys.readouterr().out
    for expected in (
        "air/zagreb 41.5",
        "Zagreb air/zagreb",
        "{'NO2': 55}",
        "{'x': 10.5}",
        "{'pulse': 71, 'ecg': 'a picture'}\n",
        "    import os\n      ^ 2\n",
        "{'alarm': 150, 'patient': 8}\n",
        "{'pulse': 72}\n",
        "1280 1.0 True\n",
        "stopped in line 2 ",
        "[70, 80] 2\n",
        "column",
    ):
        assert expected in printed
    assert names["seen"] == [{"NO2": 12}]
