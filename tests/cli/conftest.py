"""A real broker for the commands that talk to one, in a thread beside the test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rove.serve.server import Server
from rove.serve.settings import Config, DataSettings, ListenSettings, MatcherSettings


@pytest.fixture
def broker_url(tmp_path: Path) -> Iterator[str]:
    """Of a broker that runs until the test is over."""
    listen = ListenSettings(mqtt_port=0, http_port="off")
    data = DataSettings(folder=str(tmp_path / "data"), durability="process")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = Server(Config(listen=listen, data=data))
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(20)
    yield f"mqtt://127.0.0.1:{server.ports['mqtt']}"
    asyncio.run_coroutine_threadsafe(server.stop(), loop).result(20)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def http_url(tmp_path: Path) -> Iterator[str]:
    """The HTTP interface of a broker that runs until the test is over."""
    listen = ListenSettings(mqtt_port="off", http_port=0)
    data = DataSettings(folder=str(tmp_path / "data"), durability="none")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = Server(Config(listen=listen, data=data, matchers=MatcherSettings(max=1)))
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(20)
    yield f"http://127.0.0.1:{server.ports['http']}"
    asyncio.run_coroutine_threadsafe(server.stop(), loop).result(20)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
