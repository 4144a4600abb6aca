"""What the broker shows of its inside, made from a broker in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rove.serve.http.inspection import channels, clients, queues, subscriptions
from rove.serve.settings import Channel, LakeSettings

if TYPE_CHECKING:
    from tests.serve.conftest import Running


def test_pages_go_on_where_the_last_ended(server: Running) -> None:
    for name in ("c", "a", "b"):
        for topic in ("1", "2"):
            server.post(f"/sessions/{name}/subscriptions", {"topic": topic})

    def look(after: int) -> tuple[list[str], int | None]:
        page = server.look(lambda s: clients(s.shell.broker.view, after, 2))
        return [one.client for one in page.items], page.next

    first, place = look(0)
    assert (first, place is not None) == (["c", "a"], True)
    assert look(place or 0) == (["b"], None)
    page = server.look(lambda s: subscriptions(s.shell.broker.context.sessions.values(), 0, 6))
    assert [(one.client, one.topic) for one in page.items] == [
        (name, topic) for name in ("c", "a", "b") for topic in ("1", "2")
    ]
    assert page.next is None


def test_the_longest_queue_comes_first(server: Running) -> None:
    for name in ("a", "b", "nothing"):
        server.post(f"/sessions/{name}/subscriptions", {"topic": name})
    for topic in ("a", "b", "b"):
        server.post(f"/publish?topic={topic}", b"12345")

    def later(_: object) -> None:
        server.server.shell.broker.context.now += 10

    server.look(later)
    found = server.look(lambda s: queues(s.shell.broker.view, 10))
    assert [(one.client, one.queue_messages) for one in found] == [("b", 2), ("a", 1)]
    assert found[0].queue_bytes >= 10
    assert 10 <= found[0].oldest_s < 60
    assert len(server.look(lambda s: queues(s.shell.broker.view, 1))) == 1


def test_who_serves_a_subscription_is_shown(start_server: Callable[..., Running]) -> None:
    server = start_server(lake=LakeSettings(channels=(Channel("all", ("#",)),)))
    for engine in (None, "broker", "spark"):
        wanted = {"topic": f"{engine}", "filter": "x > 1", "engine": engine}
        assert server.post("/sessions/s/subscriptions", wanted).status == 201
    found = server.get("/subscriptions").json["items"]
    assert [one["engine"] for one in found] == ["broker", "broker", "spark"]


def test_a_connected_client(server: Running) -> None:
    with server.stream("/subscribe?topic=a"):
        (one,) = server.look(lambda s: clients(s.shell.broker.view, 0, 10)).items
    assert one.connected
    assert one.address == "127.0.0.1:http"
    assert one.since is not None
    assert (one.subscriptions, one.expiry_s) == (1, 0)


def test_channels_are_as_they_were_configured(start_server: Callable[..., Running]) -> None:
    lake = LakeSettings(
        channels=(Channel("city", ("air/#", "road/+"), ("states", "publications")),)
    )
    server = start_server(lake=lake)
    assert server.get("/channels").json == {
        "items": [
            {"name": "city", "topics": ["air/#", "road/+"], "keeps": ["publications", "states"]}
        ]
    }
    assert server.look(lambda s: channels(s.shell.broker.view))[0].name == "city"
