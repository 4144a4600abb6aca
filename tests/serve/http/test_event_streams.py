"""Server-sent events: what one looks like, and how a stream behaves that is slow, left or ended."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from rove.broker.limits import Limits
from rove.mqtt.packets import Properties, Publish
from rove.serve.http.event_streams import event_of, readable
from tests.effort import PATIENCE_S

if TYPE_CHECKING:
    from tests.serve.conftest import Running


@pytest.mark.parametrize(
    ("payload", "value", "encoding"),
    [
        (b'{"NO2": 41}', {"NO2": 41}, "json"),
        (b'{"a":\n\n1}', {"a": 1}, "json"),
        (b"17", 17, "json"),
        (b"null", None, "json"),
        (b"hello", "hello", "text"),
        (b"", "", "text"),
        (b"[" * 100_000, "[" * 100_000, "text"),
        (b"\xff\x00", "/wA=", "base64"),
    ],
)
def test_a_payload_is_readable(payload: bytes, value: object, encoding: str) -> None:
    assert readable(payload) == (value, encoding)


def test_an_event_is_three_lines_whatever_the_publication_says() -> None:
    user = (("id", "a\nb\r\0c"), ("x", "\n\nevent: forged"), ("x", "second"))
    packet = Publish(
        "t/\n1", b"line\n\nevent: forged\n\n", retain=True, properties=Properties(user)
    )
    lines = event_of(packet, 5.0).decode().split("\n")
    assert lines[0] == "id: abc"
    assert lines[1] == "event: notification"
    assert lines[2].startswith("data: ")
    assert lines[3:] == ["", ""]
    data = json.loads(lines[2].removeprefix("data: "))
    assert data["value"] == "line\n\nevent: forged\n\n"
    assert data["user"]["x"] == "\n\nevent: forged"
    assert data["retained"] is True
    assert data["at"] == 5.0


def test_a_publication_without_an_id_is_an_event_without_one() -> None:
    assert event_of(Publish("t", b"1"), 0.0).startswith(b"event: ")


def test_many_notifications_come_in_order(server: Running) -> None:
    with server.stream("/subscribe?topic=n&qos=1") as stream:
        for number in range(300):
            server.post("/publish?topic=n", str(number).encode())
        assert [stream.data()["value"] for _ in range(300)] == list(range(300))
        wait_until(lambda: server.look(inflight) == 0)


def inflight(server: Any) -> int:
    return sum(len(one.inflight) for one in server.shell.broker.context.sessions.values())


def test_a_stream_that_is_left_leaves_nothing_behind(server: Running) -> None:
    stream = server.stream("/subscribe?topic=n")
    assert server.look(lambda s: len(s.shell.broker.context.sessions)) == 1
    stream.close()
    wait_until(lambda: server.look(lambda s: len(s.shell.broker.context.sessions)) == 0)
    assert "rove_event_streams_open 0" in server.get("/metrics").text


def test_a_slow_reader_is_dropped_from_and_then_closed(
    start_server: Callable[..., Running],
) -> None:
    limits = Limits(unsent_bytes_max=300_000, unsent_disconnect_s=3)
    server = start_server(limits=limits)
    with socket.create_connection(("127.0.0.1", server.ports["http"])) as slow:
        slow.sendall(b"GET /subscribe?topic=n HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert b"200" in slow.recv(100)
        with server.stream("/subscribe?topic=n") as other:
            big = b"x" * 100_000
            for _ in range(150):
                assert server.post("/publish?topic=n&qos=0", big).status == 200
                assert other.data()["value"] == big.decode()
        wait_until(lambda: counter(server, "slow_disconnected") == 1)
        assert counter(server, "notifications_dropped_slow") > 0


def counter(server: Running, name: str) -> int:
    found: int = server.look(lambda s: getattr(s.shell.broker.counters, name))
    return found


def wait_until(is_so: Callable[[], bool]) -> None:
    """For what happens soon; the test's own timeout is what ends it otherwise."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def test_the_stream_ends_with_a_word_when_the_broker_stops(server: Running) -> None:
    with server.stream("/subscribe?topic=n") as stream:
        server.stop()
        last = stream.event()
        assert last["event"] == "end"
        assert json.loads(last["data"]) == {"error": "the broker is shutting down"}
        assert stream.event() == {}


def test_an_idle_stream_is_kept_alive(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rove.serve.http.event_streams.KEEP_ALIVE_S", 0.05)
    with server.stream("/subscribe?topic=n") as stream:
        time.sleep(0.3)
        server.post("/publish?topic=n", b"1")
        assert stream.data()["value"] == 1
        assert stream.comments[0].startswith("subscribed as rove-")
        assert "still here" in stream.comments[1:]


def test_only_so_many_streams(start_server: Callable[..., Running]) -> None:
    server = start_server(limits=Limits(sse_clients_max=2))
    first = server.stream("/subscribe?topic=n")
    with server.stream("/subscribe?topic=n") as second:
        assert (first.status, second.status) == (200, 200)
        refused = server.get("/subscribe?topic=n")
        assert refused.status == 503
        assert "more than 2 clients" in refused.json["error"]
        first.close()
        wait_until(lambda: "rove_event_streams_open 1" in server.get("/metrics").text)
        with server.stream("/subscribe?topic=n") as again:
            assert again.status == 200


def test_a_refused_subscription_takes_no_place(start_server: Callable[..., Running]) -> None:
    server = start_server(limits=Limits(sse_clients_max=1))
    for _ in range(3):
        assert server.get("/subscribe?topic=n&filter=NO2>").status == 400
    with server.stream("/subscribe?topic=n") as stream:
        assert stream.status == 200
