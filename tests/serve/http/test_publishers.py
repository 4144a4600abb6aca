"""Publishing over HTTP uses one connection per user."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rove.broker.access import Identity
from rove.broker.sessions.session import Session
from rove.mqtt.packets import Publish
from rove.serve.http.publishers import Publishers, client_id_of

if TYPE_CHECKING:
    from tests.serve.conftest import Running


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
