"""Asking a real broker: seldom, over connections that are kept, and never in vain twice."""

import asyncio
import socket

import msgspec
import pytest

from rove.base.http import HttpError
from rove.errors import UsageError
from rove.monitor.broker_client import KEPT_MAX, BrokerClient
from tests.serve.conftest import Running as RunningBroker


def test_the_same_question_is_asked_once_a_second(broker: RunningBroker) -> None:
    async def check() -> None:
        asked = BrokerClient(broker.url(""))
        try:
            answers = await asyncio.gather(*(asked.get("/queues") for _ in range(20)))
            assert {answer.status for answer in answers} == {200}
            assert asked.asked == 1
            await asked.get("/queues", {"limit": "5"})
            assert asked.asked == 2
            await asked.get("/queues", {"limit": "5"}, "Basic YTpi")
            assert asked.asked == 3, "another visitor gets an answer of his own"
        finally:
            asked.close()

    asyncio.run(check())


def test_a_connection_that_was_closed_meanwhile_is_opened_again(broker: RunningBroker) -> None:
    async def check() -> None:
        asked = BrokerClient(broker.url(""))
        try:
            assert (await asked.get("/healthz")).status == 200
            for connection in list(asked._free.queue):
                assert connection.sock is not None
                connection.sock.shutdown(socket.SHUT_RDWR)
            answer = await asked.get("/healthz", {"again": "1"})
            assert answer.status in (200, 400)
        finally:
            asked.close()

    asyncio.run(check())


def test_questions_with_a_body_are_asked_each_time(broker: RunningBroker) -> None:
    async def check() -> None:
        asked = BrokerClient(broker.url(""))
        question = {
            "publication": {"NO2": 39},
            "topic": "air/1",
            "subscription": {"topic": "air/#", "filter": "NO2 > 40"},
        }
        try:
            for _ in range(2):
                answer = await asked.post("/explain", msgspec.json.encode(question))
                assert msgspec.json.decode(answer.body)["subscriptions"][0]["reaches"] is False
            assert asked.asked == 2
        finally:
            asked.close()

    asyncio.run(check())


def test_what_is_kept_is_bounded_and_can_be_forgotten(broker: RunningBroker) -> None:
    async def check() -> None:
        asked = BrokerClient(broker.url(""))
        try:
            await asked.get("/healthz", None, "Basic YTpi")
            asked.forget("Basic YTpi")
            await asked.get("/healthz", None, "Basic YTpi")
            assert asked.asked == 2
            for number in range(KEPT_MAX):
                asked._kept[("", f"/{number}")] = asked._kept["Basic YTpi", "/healthz"]
            await asked.get("/queues")
            assert len(asked._kept) <= KEPT_MAX
        finally:
            asked.close()

    asyncio.run(check())


def test_a_broker_that_does_not_answer_is_a_fault() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        asked = BrokerClient(f"http://127.0.0.1:{nobody.getsockname()[1]}")
        with pytest.raises(HttpError, match="does not answer") as fault:
            asyncio.run(asked.get("/queues"))
    assert fault.value.status == 502


@pytest.mark.parametrize("url", ["mqtt://localhost", "localhost:8080", "http://a:b@host", "http:"])
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(UsageError, match="HTTP interface"):
        BrokerClient(url)
