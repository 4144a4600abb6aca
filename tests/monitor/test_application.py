"""The routes of a real monitor, over real sockets."""

import random

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from rove.monitor.application import BODY_BYTES_MAX
from tests.monitor.conftest import Frame, Running


def test_hello_says_what_is_there(monitor: Running) -> None:
    hello = monitor.get("/api/hello").json
    assert (hello["user"], hello["login"], hello["admin"]) == (None, False, True)
    there = {name for name, is_there in hello["parts"].items() if is_there}
    assert there == {"world", "metrics", "sensors"}


def test_every_answer_is_guarded(monitor: Running) -> None:
    for path in ("/", "/page/main.js", "/api/hello", "/api/nothing"):
        headers = monitor.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers


def test_the_world(monitor: Running) -> None:
    world = monitor.get("/api/world", {"accept-encoding": "identity"}).json
    assert world["scenario"] in ("yard", "sparse")
    assert {"run", "at", "is_paused", "is_over", "live", "map", "entities"} <= set(world)
    assert any(one["name"] == "crowd" for one in monitor.get("/api/scenarios").json)


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/api/nothing", 404, "there is no /api/nothing"),
        ("/nothing", 404, "there is no /nothing"),
        ("/api/login", 405, "GET is not for /api/login"),
        ("/api/jobs", 404, "the monitor has no pipeline"),
        ("/api/broker/clients", 404, "the monitor has no broker"),
        ("/api/points", 400, "which metric?"),
        ("/api/points?metric=m&since=soon", 400, "since is"),
        ("/api/points?metric=m&points=0", 400, "points is"),
        ("/api/compare?left=a", 400, "left is"),
        ("/api/compare?left=a/b&right=c/d", 404, "there is no run a"),
    ],
)
def test_what_cannot_be_is_told(monitor: Running, path: str, status: int, error: str) -> None:
    answer = monitor.get(path)
    assert answer.status == status
    assert error in answer.json["error"]


def test_bodies_are_bounded_and_read_with_care(monitor: Running) -> None:
    assert monitor.post("/api/login", b"x" * (BODY_BYTES_MAX + 1)).status == 413
    assert monitor.post("/api/login", b"{").status == 400
    assert monitor.post("/api/login", b"[" * 100_000).status == 400
    assert monitor.post("/api/login", {"user": "a", "password": "b"}).status == 401


def test_a_page_hears_the_world(monitor: Running) -> None:
    with monitor.live() as page:
        hello = page.message("hello")
        assert hello["run"] == monitor.get("/api/world").json["run"]
        page.send(type="watch", world=True, select="player1", areas=True)
        whole = page.frame(1)
        names = monitor.get("/api/world").json["entities"]["names"]
        assert len(whole.columns[0]) == len(names)
        assert page.frame(2).tick > whole.tick
        assert page.message("listening", select="player1")["engines"]
        assert page.say("stop player1")["ok"]
        assert page.message("sample")["engines"]


def test_a_page_comes_back_after_it_was_cut_off(monitor: Running) -> None:
    with monitor.live() as page:
        page.send(type="watch", world=True)
        before = page.frame(1)
        page.socket.socket.close()
    with monitor.live() as page:
        page.send(type="watch", world=True)
        assert page.frame(1).tick >= before.tick
        assert page.frame(2).tick > before.tick


def test_hostile_bytes_end_at_most_their_own_connection(monitor: Running) -> None:
    rng = random.Random(1)
    codes: set[int | None] = set()
    for _ in range(10):
        with monitor.live() as page:
            for _ in range(20):
                length = rng.randrange(200)
                page.socket.send(rng.randbytes(length))
                page.socket.send("".join(map(chr, rng.choices(range(1, 0xD000), k=length))))
            page.socket.send("x" * 100_000)
            with pytest.raises(ConnectionClosed) as closed:
                list(page.raw())
            # The long one is too long. Its end may still be on the way when the monitor closes,
            # and then the system tells of a reset before anybody has read the reason.
            told = closed.value.rcvd
            codes.add(None if told is None else told.code)
        assert monitor.get("/api/hello").status == 200
    assert 1009 in codes
    assert codes <= {None, 1009}
    with monitor.live() as page:
        page.send(type="watch", world=True)
        assert isinstance(page.frame(2), Frame)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"host": "evil.example"},
        {"x-forwarded-for": "192.0.2.1"},
    ],
)
def test_pages_of_others_and_turned_names_get_nothing(
    monitor: Running, headers: dict[str, str]
) -> None:
    assert monitor.get("/api/world", headers).status == 403
    assert monitor.get("/api/hello", headers).status == 403
    if "host" not in headers:
        with pytest.raises(InvalidStatus) as refused, monitor.live(headers):
            pass
        assert refused.value.response.status_code == 403


def test_its_own_page_is_let_in(monitor: Running) -> None:
    origin = {"origin": monitor.url}
    assert monitor.get("/api/world", origin).status == 200
    with monitor.live(origin) as page:
        assert page.message("hello")
