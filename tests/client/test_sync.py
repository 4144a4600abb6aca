"""The client without an event loop, against the real broker in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec
import pytest

from rove.client import ClientClosed, ConnectionFailed, FilterError, PublishRefused, sync

if TYPE_CHECKING:
    from tests.client.conftest import StartBroker


class Reading(msgspec.Struct):
    NO2: float


@pytest.fixture
def url(start_broker: StartBroker) -> Iterator[str]:
    """Of a broker that runs in another thread until the test is over."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    broker = start_broker()
    started = asyncio.run_coroutine_threadsafe(broker.__aenter__(), loop).result(20)
    yield started.url
    asyncio.run_coroutine_threadsafe(broker.__aexit__(None, None, None), loop).result(20)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def is_running() -> bool:
    """Whether there is a thread with an event loop of a client."""
    return any(thread.name == "rove client" for thread in threading.enumerate())


def test_publishing_and_subscribing(url: str) -> None:
    with sync.connect(url) as client:
        assert client.is_connected
        assert client.client_id
        with client.subscribe("air/#", "NO2 > 40", into=Reading) as readings:
            for number in range(300):
                client.publish("air/z", Reading(number))
            found = [readings.get(timeout_s=10).value.NO2 for _ in range(259)]
            assert found == list(range(41, 300))
            with pytest.raises(TimeoutError):
                readings.get(timeout_s=0.01)
            assert readings.dropped == 0


def test_a_loop_ends_when_nothing_comes(url: str) -> None:
    with sync.connect(url) as client, client.subscribe("t", timeout_s=1) as numbers:
        for number in range(3):
            client.publish("t", number)
        assert [one.value for one in numbers] == [0, 1, 2]


def test_unpublishing(url: str) -> None:
    with sync.connect(url) as client:
        published = client.publish("t", 1, valid_for="forever")
        client.unpublish(published.id)
        with client.subscribe("t", timeout_s=0.1) as late:
            assert list(late) == []
        with pytest.raises(PublishRefused):
            client.unpublish("nothing")


def test_me_is_a_mapping(url: str) -> None:
    with sync.connect(url) as client:
        client.me["x"] = 1
        client.me.update(y=2, z=3)
        del client.me["z"]
        assert dict(client.me) == {"x": 1, "y": 2}
        assert len(client.me) == 2
        with pytest.raises(KeyError):
            del client.me["z"]
        with pytest.raises(ValueError, match="del me"):
            client.me["x"] = None
        with client.subscribe("t", "x = me.x") as same:
            client.publish("t", {"x": 2})
            client.publish("t", {"x": 1})
            assert same.get(timeout_s=10).value == {"x": 1}


def test_any_thread_may_use_it(url: str) -> None:
    with sync.connect(url) as client, ThreadPoolExecutor(4) as threads:
        ids = {
            published.id for published in threads.map(lambda n: client.publish("t", n), range(99))
        }
        assert len(ids) == 99


def test_errors_are_the_same(url: str, free_port: int) -> None:
    with pytest.raises(ConnectionFailed):
        sync.connect(f"mqtt://127.0.0.1:{free_port}")
    assert not is_running()
    with sync.connect(url) as client, pytest.raises(FilterError):
        client.subscribe("t", "x >")


def test_after_closing_there_is_nothing(url: str) -> None:
    client = sync.connect(url)
    numbers = client.subscribe("t")
    assert is_running()
    client.close()
    client.close()
    assert not is_running()
    with pytest.raises(ClientClosed):
        client.publish("t", 1)
    with pytest.raises(ClientClosed):
        numbers.get()


def test_a_subscription_that_ended_says_so(url: str) -> None:
    with sync.connect(url) as client:
        numbers = client.subscribe("t")
        numbers.close()
        assert list(numbers) == []
        with pytest.raises(ClientClosed, match="the subscription has ended"):
            numbers.get()


def test_policies_variables_and_reports(url: str) -> None:
    with sync.connect(url) as client:
        client.report(lambda: {"battery": 0.5})
        client.me["x"] = 1
        assert client.variables().items() >= {"x": 1, "battery": 0.5}.items()
        drop = "def arrived(m, me):\n    return None\n"
        with client.policy_notices() as notices, client.subscribe("t", timeout_s=5) as numbers:
            client.set_policy(drop)
            client.publish("t", {"x": 1})
            client.set_policy("def arrived(m, me):\n    return m.x + 1\n", numbers)
            client.publish("t", {"x": 2})
            assert notices.get(5).value.event == "stopped"
            client.remove_policy(numbers)
            client.remove_policy()
            client.publish("t", {"x": 3})
            assert numbers.get(5).value == {"x": 3}
        here = "def arrived(m, me):\n    m.battery = me.battery\n    return m\n"
        with client.subscribe("t", policy=here, policy_runs="here") as numbers:
            client.publish("t", {"x": 4})
            assert numbers.get(5).value == {"x": 4, "battery": 0.5}
