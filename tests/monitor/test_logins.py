"""Who may look and who may command, as a real broker says it."""

import http.cookies
from collections.abc import Callable

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from rove.monitor import logins
from rove.monitor.logins import FAILURES_MAX
from tests.monitor.conftest import Answer, Running
from tests.serve.conftest import Running as RunningBroker

StartMonitor = Callable[..., Running]
OPEN = ("/api/hello", "/", "/page/main.js")
CLOSED = ("/api/scenarios", "/api/broker/clients", "/api/series", "/api/jobs")


def log_in(monitor: Running, user: str, password: str | None = None) -> Answer:
    secret = f"{user}'s secret" if password is None else password
    return monitor.post("/api/login", {"user": user, "password": secret})


def cookie_of(answer: Answer) -> dict[str, str]:
    return {"cookie": answer.headers["set-cookie"].partition(";")[0]}


def test_where_the_broker_lets_everybody_in_nobody_logs_in(
    broker: RunningBroker, start_monitor: StartMonitor
) -> None:
    monitor = start_monitor(broker=broker.url(""))
    hello = monitor.get("/api/hello").json
    assert (hello["login"], hello["admin"], hello["user"]) == (False, True, None)
    assert monitor.get("/api/broker/clients").json == {"items": [], "next": None}


def test_where_it_does_not_everything_needs_a_login(
    guarded_broker: RunningBroker, start_monitor: StartMonitor
) -> None:
    monitor = start_monitor(broker=guarded_broker.url(""))
    assert all(monitor.get(path).status == 200 for path in OPEN)
    assert monitor.get("/api/hello").json["login"] is True
    assert [monitor.get(path).status for path in CLOSED] == [401] * len(CLOSED)
    with pytest.raises(InvalidStatus) as refused, monitor.live():
        pass
    assert refused.value.response.status_code == 401
    for user, password in (("alice", "wrong"), ("nobody", "x"), ("", ""), ("a:b", "x")):
        assert log_in(monitor, user, password).status == 401


def test_a_login_is_a_cookie_that_ends(
    guarded_broker: RunningBroker, start_monitor: StartMonitor
) -> None:
    monitor = start_monitor(broker=guarded_broker.url(""))
    answer = log_in(monitor, "admin")
    assert answer.json == {"user": "admin"}
    made = http.cookies.SimpleCookie(answer.headers["set-cookie"])
    [morsel] = made.values()
    assert morsel["httponly"]
    assert morsel["samesite"] == "Strict"
    assert len(morsel.value) >= 43
    cookie = cookie_of(answer)
    hello = monitor.get("/api/hello", cookie).json
    assert (hello["user"], hello["login"], hello["admin"]) == ("admin", False, True)
    assert monitor.get("/api/broker/queues", cookie).status == 200
    assert monitor.post("/api/logout", b"", cookie).status == 200
    assert monitor.get("/api/broker/queues", cookie).status == 401


def test_a_page_that_is_open_is_closed_when_its_login_ends(
    guarded_broker: RunningBroker, start_monitor: StartMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rove.monitor.application.LOOK_AFTER_S", 0.05)
    monitor = start_monitor(broker=guarded_broker.url(""))
    cookie = cookie_of(log_in(monitor, "alice"))
    with monitor.live(cookie) as page:
        assert page.message("hello")
        assert monitor.post("/api/logout", b"", cookie).status == 200
        with pytest.raises(ConnectionClosed) as closed:
            list(page.raw())
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


def test_what_the_broker_refuses_the_monitor_refuses(
    guarded_broker: RunningBroker, start_monitor: StartMonitor
) -> None:
    monitor = start_monitor(broker=guarded_broker.url(""))
    alice = cookie_of(log_in(monitor, "alice"))
    hello = monitor.get("/api/hello", alice).json
    assert (hello["user"], hello["admin"]) == ("alice", False)
    refused = monitor.get("/api/broker/clients", alice)
    assert refused.status == 403
    assert "administrators" in refused.json["error"]
    assert monitor.get("/api/broker/subscriptions", alice).json["items"] == []
    assert monitor.get("/api/broker/metrics", alice).json["rove_sessions"] == 0
    with monitor.live(alice) as page:
        assert page.message("hello")
        said = page.say("end")
        assert not said["ok"]
        assert "administrators" in said["text"]


def test_behind_tls_the_cookie_is_for_tls(start_monitor: StartMonitor) -> None:
    monitor = start_monitor(key="open sesame")
    body = {"user": "", "password": "open sesame"}
    behind = {"host": "monitor.example", "origin": "https://monitor.example"}
    assert "Secure" in monitor.post("/api/login", body, behind).headers["set-cookie"]
    assert "Secure" not in monitor.post("/api/login", body).headers["set-cookie"]


def test_another_origin_may_not_log_anybody_in_or_out(
    guarded_broker: RunningBroker, start_monitor: StartMonitor
) -> None:
    monitor = start_monitor(broker=guarded_broker.url(""))
    cookie = cookie_of(log_in(monitor, "admin"))
    foreign = {**cookie, "origin": "http://evil.example"}
    assert monitor.post("/api/logout", b"", foreign).status == 403
    body = {"user": "admin", "password": "admin's secret"}
    assert monitor.post("/api/login", body, {"origin": "http://evil.example"}).status == 403
    assert monitor.get("/api/broker/queues", cookie).status == 200


def test_guessing_is_slowed_down(
    guarded_broker: RunningBroker, start_monitor: StartMonitor
) -> None:
    monitor = start_monitor(broker=guarded_broker.url(""))
    statuses = [log_in(monitor, "admin", f"guess {n}").status for n in range(FAILURES_MAX + 1)]
    assert statuses == [401] * FAILURES_MAX + [429]
    assert log_in(monitor, "admin").status == 429


def test_a_broker_that_is_away_locks_nobody_out_and_lets_nobody_in(
    guarded_broker: RunningBroker, start_monitor: StartMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rove.monitor.broker_client.FRESH_S", 0.0)
    monitor = start_monitor(broker=guarded_broker.url(""))
    cookie = cookie_of(log_in(monitor, "admin"))
    assert monitor.get("/api/scenarios", cookie).status == 200
    guarded_broker.stop()
    assert monitor.get("/api/scenarios", cookie).status == 200
    assert monitor.get("/api/broker/queues", cookie).status == 502
    assert log_in(monitor, "alice").status == 502
    assert monitor.get("/api/scenarios").status in (401, 502)


def test_who_comes_from_elsewhere_logs_in_even_if_the_broker_trusts_this_machine(
    broker: RunningBroker, start_monitor: StartMonitor
) -> None:
    monitor = start_monitor(broker=broker.url(""))
    for headers in ({"x-forwarded-for": "192.0.2.1"}, {"host": "monitor.example"}):
        assert monitor.get("/api/hello", headers).json["login"] is True
        assert monitor.get("/api/broker/clients", headers).status == 401


def test_a_key_opens_a_monitor_without_broker(start_monitor: StartMonitor) -> None:
    monitor = start_monitor(key="open sesame")
    assert monitor.get("/api/hello").json["login"] is True
    assert monitor.get("/api/scenarios").status == 401
    assert log_in(monitor, "", "open says me").status == 401
    cookie = cookie_of(log_in(monitor, "", "open sesame"))
    hello = monitor.get("/api/hello", {**cookie, "host": "monitor.example"}).json
    assert (hello["login"], hello["admin"]) == (False, True)
    assert monitor.get("/api/scenarios", cookie).status == 200


def test_sessions_end_by_themselves_and_are_bounded(
    start_monitor: StartMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "SESSIONS_MAX", 3)
    monitor = start_monitor(key="open sesame")
    cookies = [log_in(monitor, "", "open sesame") for _ in range(4)]
    assert [answer.status for answer in cookies] == [200, 200, 200, 503]
    monkeypatch.setattr(logins, "SESSION_S", -1.0)
    monkeypatch.setattr(logins, "SESSIONS_MAX", 9)
    over = cookie_of(log_in(monitor, "", "open sesame"))
    assert monitor.get("/api/scenarios", over).status == 401
    assert monitor.get("/api/scenarios", cookie_of(cookies[0])).status == 200
