"""The client inside the process: a client like any other, against a broker that runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from rove.broker.access import Identity
from rove.broker.sessions.session import Session
from rove.client.protocol import DeliveryToken
from rove.mqtt.packets import Filter, Properties, Publish, Reason
from rove.serve.http.in_process import InProcessClient, Publishers, Refused, client_id_of

if TYPE_CHECKING:
    from tests.serve.conftest import Running


class Listener(InProcessClient):
    """Keeps what it hears, and acknowledges it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.heard: list[bytes] = []

    def notified(self, packet: Publish, delivery: DeliveryToken | None) -> None:
        self.heard.append(packet.payload)
        asyncio.get_running_loop().call_soon(self.acknowledge, delivery)


def client(server: Running) -> Listener:
    async def make() -> Listener:
        return Listener(server.server.shell, "test", Identity())

    found: Listener = server.call(make())
    return found


def test_every_quality_of_service_both_ways(server: Running) -> None:
    one = client(server)

    async def talk() -> None:
        assert await one.connect("one") is False
        await one.subscribe((Filter("a", 2),), Properties())
        for qos in (0, 1, 2):
            await one.publish(Publish("a", bytes((qos,)), qos))
        while len(one.heard) < 3 or broker.context.sessions["one"].inflight:
            await asyncio.sleep(0.001)
        assert not broker.context.sessions["one"].received

    broker = server.server.shell.broker
    server.call(talk())
    assert sorted(one.heard) == [b"\0", b"\1", b"\2"]


def test_more_publications_at_once_than_the_broker_takes(server: Running) -> None:
    one = client(server)

    async def talk() -> int:
        await one.connect("one")
        packets = [Publish("a", b"", 1 + number % 2) for number in range(3000)]
        answers = await asyncio.gather(*map(one.publish, packets))
        return sum(answer is not None for answer in answers)

    assert server.call(talk()) == 3000
    assert one.end is None


@pytest.mark.parametrize("qos", [1, 2])
def test_the_answer_says_whether_anybody_wanted_it(server: Running, qos: int) -> None:
    one = client(server)

    async def talk() -> list[int | None]:
        await one.connect("one")
        await one.subscribe((Filter("wanted"),), Properties())
        return [await one.publish(Publish(topic, b"", qos)) for topic in ("wanted", "other")]

    assert server.call(talk()) == [Reason.SUCCESS, Reason.NO_MATCHING_SUBSCRIBERS]


def test_what_is_refused_is_raised(server: Running) -> None:
    one = client(server)

    async def talk() -> tuple[int, str]:
        await one.connect("one")
        with pytest.raises(Refused) as refused:
            await one.publish(Publish("$other", b"", 1))
        with pytest.raises(Refused, match="last level"):
            await one.subscribe((Filter("a/#/b"),), Properties())
        return refused.value.reason, refused.value.text

    assert server.call(talk())[0] == Reason.TOPIC_NAME_INVALID
    assert one.end is None or "malformed" in str(one.end)


def test_who_waits_hears_of_the_end(server: Running) -> None:
    one = client(server)

    async def talk() -> str:
        await one.connect("one")
        waiting = asyncio.ensure_future(one.publish(Publish("a", b"", 1)))
        await asyncio.sleep(0)
        other = Listener(server.server.shell, "test", Identity())
        server.server.shell._committed = lambda number: None  # type: ignore[method-assign]
        await other.connect("one")
        with pytest.raises(Refused) as refused:
            await waiting
        return refused.value.text

    assert server.call(talk()) == "the client has connected again"
    with pytest.raises(Refused, match="connected again"):
        server.call(one.publish(Publish("a", b"", 1)))


def test_a_session_of_another_user_is_not_for_the_taking(server: Running) -> None:
    async def talk() -> None:
        shell = server.server.shell
        await InProcessClient(shell, "test", Identity("alice")).connect("one")
        await InProcessClient(shell, "test", Identity("bob")).connect("one")

    with pytest.raises(Refused, match="belongs to another user"):
        server.call(talk())


def test_names() -> None:
    assert client_id_of(Identity()) == "http"
    assert client_id_of(Identity("alice")) == "http:alice"


def test_a_session_from_before_is_no_obstacle(server: Running) -> None:
    """It may have been made over MQTT, by a Rove that let others have this id."""

    async def publish() -> str | None:
        context = server.server.shell.broker.context
        old = context.sessions["http:alice"] = Session("http:alice", 7, 5, 60)
        old.identity = Identity("mallory", "http:alice")
        await Publishers(server.server.shell).publish(Identity("alice"), Publish("a", b"", 1))
        return context.sessions["http:alice"].identity.user

    assert server.call(publish()) == "alice"


def test_one_connection_for_all_requests_of_a_user(server: Running) -> None:
    async def publish() -> set[str]:
        publishers = Publishers(server.server.shell)
        who = [Identity("alice"), Identity("bob"), Identity()]
        await asyncio.gather(
            *(publishers.publish(who[number % 3], Publish("a", b"", 1)) for number in range(60))
        )
        return set(server.server.shell.broker.context.sessions)

    assert server.call(publish()) == {"http", "http:alice", "http:bob"}
    assert server.look(lambda s: s.shell.broker.counters.connections) == 3


def test_a_connection_that_was_lost_is_opened_again(server: Running) -> None:
    async def publish() -> None:
        publishers = Publishers(server.server.shell)
        await publishers.publish(Identity(), Publish("a", b"", 1))
        (link,) = server.server.shell.broker.context.links
        link.peer.close()
        assert await publishers.publish(Identity(), Publish("a", b"", 1)) is not None

    server.call(publish())
