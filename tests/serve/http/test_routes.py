"""The HTTP interface, against a broker that runs: what it does, what it refuses, and to whom."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import pytest

from rove.base.http import basic_authorization
from rove.broker.context import ExpiredSession
from rove.broker.limits import Limits
from rove.mqtt.packets import Reason
from rove.serve.http.operations import OPERATIONS
from rove.serve.http.routes import STATUSES
from rove.serve.passwords import set_password
from rove.serve.settings import AccessSettings, MatcherSettings, PolicySettings
from tests.effort import PATIENCE_S

if TYPE_CHECKING:
    from tests.serve.conftest import Running


def basic(user: str, password: str) -> dict[str, str]:
    return {"authorization": basic_authorization(user, password)}


# --- publishing and subscribing -------------------------------------------------------------------


def test_a_publication_reaches_who_wants_it(server: Running) -> None:
    query = urlencode({"topic": "air/#", "filter": "NO2 > 40"})
    with server.stream(f"/subscribe?{query}") as stream:
        assert stream.answer.getheader("content-type") == "text/event-stream; charset=utf-8"
        missed = server.post("/publish?topic=air/1", {"NO2": 39})
        assert (missed.status, missed.json["matched"]) == (200, False)
        met = server.post("/publish?topic=air/1&id=one&user.site=north", {"NO2": 41})
        assert met.json == {"id": "one", "matched": True}
        event = stream.event()
        data = json.loads(event["data"])
        assert (event["id"], event["event"]) == ("one", "notification")
        assert (data["topic"], data["value"]) == ("air/1", {"NO2": 41})
        assert data["user"] == {"id": "one", "site": "north"}


def test_user_properties_are_attributes(server: Running) -> None:
    query = urlencode({"topic": "a", "filter": "site = 'n'"})
    with server.stream(f"/subscribe?{query}") as stream:
        server.post("/publish?topic=a&user.site=s", b"no")
        server.post("/publish?topic=a&user.site=n", b"\xff")
        assert stream.data()["value"] == "/w=="


def test_several_topics_and_a_state(server: Running) -> None:
    wanted = [("topic", "a"), ("topic", "b"), ("filter", "x > me.x"), ("me", '{"x": 5}')]
    with server.stream(f"/subscribe?{urlencode(wanted)}") as stream:
        for topic in "abc":
            server.post(f"/publish?topic={topic}", {"x": 5})
            server.post(f"/publish?topic={topic}", {"x": 6, "on": topic})
        assert [stream.data()["value"]["on"] for _ in range(2)] == ["a", "b"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_every_quality_of_service(server: Running, qos: int) -> None:
    with server.stream("/subscribe?topic=a&qos=1") as stream:
        for number in range(5):
            taken = server.post(f"/publish?topic=a&qos={qos}", number)
            assert taken.json["matched"] is (None if qos == 0 else True)
        assert [stream.data()["value"] for _ in range(5)] == list(range(5))
    released = server.look(
        lambda s: [one.received for one in s.shell.broker.context.sessions.values()]
    )
    assert not any(released)


def test_retained_and_valid_publications_meet_who_comes_later(server: Running) -> None:
    server.post("/publish?topic=r&retain", b"last")
    server.post("/publish?topic=v&valid-for=60&id=v1", b"valid")
    server.post("/publish?topic=v&valid-for=forever&id=v2", b"withdrawn")
    assert server.ask("DELETE", "/publications/v2").json == {"id": "v2", "withdrawn": True}
    gone = server.ask("DELETE", "/publications/v2")
    assert gone.status == 404
    with server.stream("/subscribe?topic=%23") as stream:
        found = {(each["value"], each["retained"]) for each in (stream.data(), stream.data())}
        assert found == {("last", True), ("valid", False)}


def test_a_publication_expires(server: Running) -> None:
    server.post("/publish?topic=r&retain&expiry=1000", b"1")
    left_s = server.look(
        lambda s: (
            next(s.shell.broker.retained.find_retained("r", 0)).expires_at
            - s.shell.broker.context.now
        )
    )
    assert 900 < left_s <= 1000


def test_the_content_type_travels_unless_it_says_nothing(server: Running) -> None:
    server.post("/publish?topic=a&retain", b"1", {"content-type": "text/x-one"})
    server.post("/publish?topic=b&retain", b"1")
    kinds = server.look(
        lambda s: [
            one.properties.content_type for one in s.shell.broker.retained.find_retained("#", 0)
        ]
    )
    assert set(kinds) == {"text/x-one", None}


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("/publish", "there is no topic"),
        ("/publish?topic=", "needs at least one character"),
        ("/publish?topic=a/%23", "has no wildcards"),
        ("/publish?topic=a%00", "U+0000"),
        ("/publish?topic=a&qos=3", "qos=3"),
        ("/publish?topic=a&qos=-1", "qos=-1"),
        ("/publish?topic=a&retain=perhaps", "retain=perhaps"),
        ("/publish?topic=a&expiry=soon", "expiry=soon"),
        ("/publish?topic=a&topic=b", "topic is given 2 times"),
        ("/publish?topic=a&validfor=3", "no parameter 'validfor'"),
        ("/publish?topic=a&valid-for=long", "valid-for is 'long'"),
        ("/publish?topic=$other/x", "topics that begin with $"),
        ("/publish?topic=$rove/nothing", "there is no $rove/nothing"),
        (f"/publish?topic={'a/' * 200}", "more than 128 levels"),
    ],
)
def test_a_publication_that_cannot_be(server: Running, path: str, what: str) -> None:
    refused = server.post(path, b"x")
    assert refused.status in (400, 403)
    assert what in refused.json["error"]
    assert server.post("/publish?topic=fine", b"x").status == 200


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("/subscribe", "there is no topic"),
        ("/subscribe?topic=a/%23/b", "# is the last level"),
        ("/subscribe?topic=a&filter=NO2%20%3E", "expected a value"),
        ("/subscribe?topic=a&filter=NO2%20%3E%201&evolve=quickly", "quickly"),
        ("/subscribe?topic=a&me=7", "the body cannot be read"),
        ("/subscribe?topic=a&qos=2", "qos=2"),
        ("/subscribe?topic=a&session=", "session is empty"),
    ],
)
def test_a_subscription_that_cannot_be(server: Running, path: str, what: str) -> None:
    refused = server.get(path)
    assert refused.status == 400
    assert what in refused.json["error"]


def test_the_pointer_of_a_diagnostic_survives(server: Running) -> None:
    refused = server.get("/subscribe?topic=a&filter=" + quote("NO2 >> 40"))
    assert "\n  NO2 >> 40\n       ^" in refused.json["error"]


# --- sessions -------------------------------------------------------------------------------------


def test_a_session_queues_while_nobody_reads(server: Running) -> None:
    path = "/subscribe?topic=a&session=me&filter=" + quote("n >= 0")
    with server.stream(path) as stream:
        server.post("/publish?topic=a", {"n": 0})
        assert stream.data()["value"] == {"n": 0}
    wait_for_leaving(server, "me")
    for number in (1, 2, 3):
        server.post("/publish?topic=a", {"n": number})
    made = server.look(lambda s: s.shell.broker.counters.subscriptions_made)
    with server.stream(path) as stream:
        assert [stream.data()["value"]["n"] for _ in range(3)] == [1, 2, 3]
    assert server.look(lambda s: s.shell.broker.counters.subscriptions_made) == made


def wait_for_leaving(server: Running, client: str) -> None:
    while server.look(lambda s: s.shell.broker.context.sessions[client].link) is not None:
        pass


def test_subscriptions_are_a_resource(server: Running) -> None:
    made = server.post(
        "/sessions/room%2F1/subscriptions", {"topic": "a", "filter": "x > 1", "identifier": 7}
    )
    assert made.status == 201
    number = made.json["number"]
    assert (made.json["client"], made.json["qos"], made.json["filter"]) == ("room/1", 1, "x > 1")
    again = server.post(
        "/sessions/room%2F1/subscriptions", {"topic": "a", "filter": "x > 1", "identifier": 7}
    )
    assert again.json["number"] == number
    server.post("/sessions/room%2F1/subscriptions", {"topic": "b"})
    listed = server.get("/subscriptions?client=room/1&limit=1").json
    assert [one["number"] for one in listed["items"]] == [number]
    rest = server.get(f"/subscriptions?after={listed['next']}").json
    assert ([one["topic"] for one in rest["items"]], rest["next"]) == (["b"], None)
    server.post("/publish?topic=a", {"x": 2})
    assert server.get("/queues").json["items"][0]["client"] == "room/1"
    ended = server.ask("DELETE", f"/sessions/room%2F1/subscriptions/{number}")
    assert ended.json == {"number": number, "ended": True}
    for gone in (number, "x", "9" * 5000):
        assert server.ask("DELETE", f"/sessions/room%2F1/subscriptions/{gone}").status == 404
    server.post("/publish?topic=a", {"x": 3})
    with server.stream("/subscribe?session=room/1") as stream:
        server.post("/publish?topic=b", b"b")
        assert [stream.data()["value"] for _ in range(2)] == [{"x": 2}, "b"]


def test_a_stream_that_is_open_gets_the_new_subscription(server: Running) -> None:
    with server.stream("/subscribe?topic=a&session=me") as stream:
        made = server.post("/sessions/me/subscriptions", {"topic": "b"})
        assert made.status == 201
        server.post("/publish?topic=b", b"1")
        assert stream.data()["topic"] == "b"


def test_a_session_can_be_ended(server: Running) -> None:
    server.post("/sessions/me/subscriptions", {"topic": "a"})
    assert server.ask("DELETE", "/sessions/me").json == {"client": "me", "ended": True}
    assert server.ask("DELETE", "/sessions/me").status == 404
    assert server.get("/subscriptions").json == {"items": [], "next": None}


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ({}, "missing required field `topic`"),
        ({"topic": "a", "qos": 3}, "qos is 3"),
        ({"topic": "a", "flter": "x"}, "unknown field `flter`"),
        ({"topic": "a/#/b"}, "# is the last level"),
        ({"topic": "a", "filter": "x >"}, "expected a value"),
        ({"topic": "a\0"}, "U+0000"),
        ([], "Expected `object`"),
    ],
)
def test_a_body_that_cannot_be(server: Running, body: object, what: str) -> None:
    refused = server.post("/sessions/me/subscriptions", body)
    assert refused.status == 400
    assert what in refused.json["error"]


# --- limits ---------------------------------------------------------------------------------------


def test_a_body_that_is_too_large(start_server: Callable[..., Running]) -> None:
    server = start_server(limits=Limits(http_body_bytes_max=1000))
    assert server.post("/publish?topic=a", b"x" * 1000).status == 200
    refused = server.post("/publish?topic=a", b"x" * 1001)
    assert (refused.status, refused.json["hint"]) == (413, "limits.http_body_bytes_max")


def test_a_publication_that_is_too_large_for_a_packet(start_server: Callable[..., Running]) -> None:
    server = start_server(limits=Limits(packet_bytes_max=2000))
    refused = server.post("/publish?topic=a", b"x" * 2000)
    assert refused.status == 413
    assert "a publication may have 2000 bytes" in refused.json["error"]
    assert server.post("/publish?topic=a", b"x").status == 200


def test_a_user_who_is_too_quick(
    start_server: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rove.serve.http.in_process.PATIENCE_S", 0.01)
    server = start_server(limits=Limits(publish_per_s_max=2))
    found = [server.post("/publish?topic=a&qos=0", b"x") for _ in range(20)]
    # On a busy machine the broker may push back as well.
    assert {200, 429} <= {each.status for each in found} <= {200, 429, 503}
    refused = next(each for each in found if each.status == 429)
    assert "publications per second" in refused.json["error"]
    assert refused.headers["retry-after"] == "1"


def test_a_broker_that_pushes_back(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rove.serve.http.in_process.PATIENCE_S", 0.01)
    assert server.post("/publish?topic=a", b"x").status == 200
    server.look(lambda s: next(iter(s.shell.broker.context.links)).peer.pause())
    refused = server.post("/publish?topic=a", b"x")
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    server.look(lambda s: next(iter(s.shell.broker.context.links)).peer.resume())
    assert server.post("/publish?topic=a", b"x").status == 200


# --- access ---------------------------------------------------------------------------------------


@pytest.fixture
def guarded(start_server: Callable[..., Running], tmp_path: Path) -> Running:
    """A broker with users: alice may use air/#, bob nothing but b, admin looks."""
    passwords, rules = tmp_path / "passwords", tmp_path / "rules"
    for user in ("admin", "alice", "bob"):
        set_password(passwords, user, f"secret of {user}".encode())
    rules.write_text(
        "allow user admin admin\n"
        "allow user alice publish,subscribe air/#\n"
        "allow user bob publish,subscribe b\n"
    )
    access = AccessSettings(password_file=str(passwords), acl_file=str(rules))
    return start_server(access=access, matchers=MatcherSettings(max=1))


def as_(user: str) -> dict[str, str]:
    return basic(user, f"secret of {user}")


def test_who_is_not_known_is_asked(guarded: Running) -> None:
    for headers in (None, basic("alice", "guess"), basic("nobody", "x"), {"authorization": "?"}):
        refused = guarded.post("/publish?topic=air/1", b"x", headers)
        assert refused.status == 401
        assert refused.headers["www-authenticate"].startswith("Basic")
    assert guarded.get("/metrics").status == 401
    assert guarded.get("/healthz").json == {"status": "ok"}


def test_access_rules_are_the_brokers_own(guarded: Running) -> None:
    assert guarded.post("/publish?topic=air/1", b"x", as_("alice")).status == 200
    refused = guarded.post("/publish?topic=b", b"x", as_("alice"))
    assert (refused.status, refused.json["error"]) == (403, "publishing on b is not allowed")
    assert guarded.get("/subscribe?topic=%23", as_("alice")).status == 403
    with guarded.stream("/subscribe?topic=air/%23", as_("alice")) as stream:
        guarded.post("/publish?topic=air/1", b"x", as_("alice"))
        assert stream.data()["value"] == "x"


def test_others_are_none_of_ones_business(guarded: Running) -> None:
    guarded.post("/sessions/s-alice/subscriptions", {"topic": "air/1"}, as_("alice"))
    guarded.post("/sessions/s-bob/subscriptions", {"topic": "b"}, as_("bob"))
    for path in ("/clients", "/queues"):
        assert guarded.get(path, as_("alice")).status == 403
        assert guarded.get(path, as_("admin")).status == 200
    mine = guarded.get("/subscriptions", as_("alice")).json["items"]
    assert [one["client"] for one in mine] == ["s-alice"]
    assert guarded.get("/subscriptions?client=s-bob", as_("alice")).json["items"] == []
    assert len(guarded.get("/subscriptions", as_("admin")).json["items"]) == 2
    for method, path in (
        ("POST", "/sessions/s-bob/subscriptions"),
        ("DELETE", "/sessions/s-bob"),
        ("DELETE", "/sessions/s-bob/subscriptions/2"),
    ):
        refused = guarded.ask(method, path, {"topic": "air/1"}, as_("alice"))
        assert (refused.status, refused.json["error"]) == (
            403, "this client id belongs to another user",
        )  # fmt: skip


def test_publications_of_another_cannot_be_withdrawn(guarded: Running) -> None:
    guarded.post("/publish?topic=air/1&valid-for=60&id=x", b"x", as_("alice"))
    assert guarded.ask("DELETE", "/publications/x", None, as_("bob")).status == 404
    assert guarded.ask("DELETE", "/publications/x", None, as_("alice")).status == 200


def test_pages_of_elsewhere_may_do_nothing(server: Running) -> None:
    page = {"origin": "https://evil.example"}
    assert server.post("/publish?topic=a", b"x", page).status == 403
    assert server.get("/clients", page).status == 403
    bent = server.get("/clients", {"host": "evil.example"})
    assert (bent.status, "is not called" in bent.json["error"]) == (403, True)
    near = {"origin": "http://localhost:3000", "host": "localhost:1"}
    assert server.post("/publish?topic=a", b"x", near).status == 200


def test_a_remembered_password_serves_no_page_of_elsewhere(guarded: Running) -> None:
    headers = as_("alice") | {"origin": "https://evil.example"}
    refused = guarded.post("/publish?topic=air/1", b"x", headers)
    assert (refused.status, "may not do this" in refused.json["error"]) == (403, True)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "headers", [{"sec-fetch-site": "cross-site"}, {"user-agent": "Mozilla/5.0 (X11)"}]
)
def test_a_picture_on_another_site_takes_nothing_out_of_a_queue(
    guarded: Running, method: str, headers: dict[str, str]
) -> None:
    guarded.post("/sessions/phone/subscriptions", {"topic": "air/1"}, as_("alice"))
    guarded.post("/publish?topic=air/1", b"x", as_("alice"))
    for path in ("/subscribe?session=phone", "/subscribe?session=new&topic=air/1"):
        assert guarded.ask(method, path, None, as_("alice") | headers).status == 403
    broker = guarded.server.shell.broker.view
    assert guarded.look(lambda _: [len(one.queue) for one in broker.sessions.values()]) == [1, 0]
    assert guarded.get("/subscriptions", as_("alice") | headers).status == 200


def test_sessions_that_expired_are_listed_for_administrators(guarded: Running) -> None:
    gone = ExpiredSession("gone", "alice", 5.0, 300, 2)
    guarded.look(lambda s: s.shell.broker.view.expired.append(gone))
    assert guarded.get("/expired", as_("alice")).status == 403
    assert guarded.get("/expired", as_("admin")).json == {
        "items": [{"client": "gone", "user": "alice", "at": 5.0, "expiry_s": 300, "dropped": 2}]
    }
    metrics = guarded.get("/metrics", as_("admin")).text
    assert "rove_sessions_expired_total 0" in metrics
    assert "rove_notifications_dropped_session_total 0" in metrics


# --- the rest -------------------------------------------------------------------------------------


def test_what_is_not_there(server: Running) -> None:
    assert server.get("/nothing").json == {
        "error": "there is no /nothing", "hint": "/docs lists all routes",
    }  # fmt: skip
    wrong = server.get("/publish?topic=a")
    assert (wrong.status, wrong.json["error"]) == (405, "GET is not for /publish")


def test_health(server: Running) -> None:
    assert server.get("/healthz").json == {"status": "ok"}
    server.look(lambda s: setattr(s._writer, "_commit_trouble", "no room"))
    ill = server.get("/healthz")
    assert ill.status == 503
    assert ill.json["reasons"] == ["changes cannot be written to the disk"]


def test_clients_are_listed_in_pages(server: Running) -> None:
    for name in "abc":
        server.post(f"/sessions/{name}/subscriptions", {"topic": "t"})
    first = server.get("/clients?limit=2").json
    second = server.get(f"/clients?limit=2&after={first['next']}").json
    listed = [one["client"] for one in first["items"] + second["items"]]
    assert (listed, second["next"]) == (["a", "b", "c"], None)
    one = first["items"][0]
    assert (one["version"], one["subscriptions"], one["connected"]) == ("5", 1, False)
    assert one["user"] is None


def test_answers_are_dated(server: Running) -> None:
    assert server.get("/healthz").headers["date"].endswith("GMT")


# --- policies -------------------------------------------------------------------------------------

DROPS_LOW = """def arrived(m, me):
    if m.NO2 < get("low", 40):
        return None
    me.last = m.NO2
    return keep(m, "NO2")
"""


def test_a_policy_is_a_resource_of_a_session(server: Running) -> None:
    server.post("/sessions/phone/subscriptions", {"topic": "air/#"})
    assert server.ask("PUT", "/sessions/phone/policy", DROPS_LOW.encode()).json == {
        "client": "phone", "subscription": 0, "set": True,
    }  # fmt: skip
    for reading in (39, 41):
        server.post("/publish?topic=air/1", {"NO2": reading, "wind": 3})
    view = server.get("/policies").json
    [one] = view["policies"]
    assert (one["client_id"], one["subscription"], one["text"]) == ("phone", 0, DROPS_LOW)
    assert (view["count"], view["suspended"], one["suspended_until"]) == (1, 0, None)
    assert view["total"] == one["tally"]
    counted = {name: one["tally"][name] for name in ("calls", "dropped", "changed", "outputs")}
    assert counted == {"calls": 2, "dropped": 1, "changed": 1, "outputs": 1}
    metrics = server.get("/metrics").text
    assert "\nrove_policies 1\n" in metrics
    assert '\nrove_policy_verdicts_total{verdict="dropped"} 1\n' in metrics
    found = server.get("/sessions/phone/variables").json
    assert found["manual"] == {"last": 41}
    assert {"connected", "connected_at"} <= found["automatic"].keys()
    with server.stream("/subscribe?session=phone") as stream:
        assert stream.data()["value"] == {"NO2": 41}
    wait_for_leaving(server, "phone")
    removed = server.ask("DELETE", "/sessions/phone/policy")
    assert (removed.status, removed.json["removed"]) == (200, True)
    assert server.get("/policies").json["policies"] == []
    assert server.get("/policies").json["total"]["calls"] == 2, "of those that have gone, too"


def test_subscriptions_have_policies_of_their_own(server: Running) -> None:
    body = {"topic": "air/#", "identifier": 7, "policy": DROPS_LOW}
    made = server.post("/sessions/phone/subscriptions", body)
    assert (made.status, made.json["policy"]) == (201, DROPS_LOW)
    again = server.post("/sessions/phone/subscriptions", body)
    assert again.json["number"] == made.json["number"]
    [one] = server.get("/policies?client=phone").json["policies"]
    assert (one["subscription"], one["identifier"]) == (made.json["number"], 7)
    assert one["topic_filter"] == "air/#"
    other = DROPS_LOW.replace("40", "50").encode()
    path = "/sessions/phone/policy?subscription=7"
    assert server.ask("PUT", path, other).json["subscription"] == 7
    assert server.get("/subscriptions").json["items"][0]["policy"] == other.decode()
    assert server.ask("DELETE", path).status == 200
    assert server.get("/subscriptions").json["items"][0]["policy"] == ""
    query = urlencode({"topic": "a", "policy": "def arrived(m, me):\n    return keep(m, 'x')\n"})
    with server.stream(f"/subscribe?{query}") as stream:
        server.post("/publish?topic=a", {"x": 1, "y": 2})
        assert stream.data()["value"] == {"x": 1}


def test_what_is_shown_of_policies_can_be_less(server: Running) -> None:
    for name in ("a", "b", "c"):
        server.ask("PUT", f"/sessions/{name}/policy", DROPS_LOW.encode())

    def look(query: str) -> tuple[int, list[tuple[str, str]]]:
        view = server.get(f"/policies?{query}").json
        return view["count"], [(one["client_id"], one["text"]) for one in view["policies"]]

    assert look("limit=2&short") == (3, [("a", ""), ("b", "")])
    assert look("limit=0") == (3, [])
    assert look("client=c") == (1, [("c", DROPS_LOW)])
    assert look("client=nobody") == (0, [])
    assert server.get("/policies?limit=-1").status == 400


def test_a_policy_that_cannot_be(server: Running) -> None:
    server.post("/sessions/phone/subscriptions", {"topic": "air/#"})
    path, imports = "/sessions/phone/policy", b"def arrived(m, me):\n    import os\n"
    for method, where, body, status, what in (
        ("PUT", path, imports, 400, "line 2: "),
        ("PUT", path, b" \n", 400, "there is no policy in the body"),
        ("PUT", f"{path}?subscription=9", b"x", 404, "with the identifier 9"),
        ("PUT", f"{path}?subscription=0", b"x", 400, "subscription=0"),
        ("DELETE", "/sessions/nobody/policy", None, 404, "there is no session 'nobody'"),
        ("GET", "/sessions/nobody/variables", None, 404, "there is no session 'nobody'"),
    ):
        refused = server.ask(method, where, body)
        assert (refused.status, what in refused.json["error"]) == (status, True), refused.text
    assert server.get("/policies").json["count"] == 0


def test_a_broker_may_run_no_policies(start_server: Callable[..., Running]) -> None:
    server = start_server(policies=PolicySettings(enabled=False))
    refused = server.get("/policies")
    assert (refused.status, refused.json["error"]) == (404, "this broker runs no policies")
    refused = server.ask("PUT", "/sessions/phone/policy", DROPS_LOW.encode())
    assert (refused.status, "runs no policies" in refused.json["error"]) == (400, True)
    assert "rove_polic" not in server.get("/metrics").text


def test_policies_and_variables_of_others_are_none_of_ones_business(guarded: Running) -> None:
    for user in ("alice", "bob"):
        path = f"/sessions/s-{user}/policy"
        assert guarded.ask("PUT", path, DROPS_LOW.encode(), as_(user)).status == 200
        view = guarded.get("/policies", as_(user)).json
        assert [one["client_id"] for one in view["policies"]] == [f"s-{user}"]
        assert view["count"] == 1
        assert guarded.get(f"/sessions/s-{user}/variables", as_(user)).status == 200
    assert guarded.get("/policies?client=s-bob", as_("alice")).json["policies"] == []
    assert len(guarded.get("/policies", as_("admin")).json["policies"]) == 2
    assert guarded.get("/sessions/s-bob/variables", as_("admin")).status == 200
    for method, path in (
        ("GET", "/sessions/s-bob/variables"),
        ("GET", "/sessions/nobody/variables"),
        ("PUT", "/sessions/s-bob/policy"),
        ("DELETE", "/sessions/s-bob/policy"),
    ):
        body = DROPS_LOW.encode() if method == "PUT" else None
        assert guarded.ask(method, path, body, as_("alice")).status == 403
        assert guarded.ask(method, path, body).status == 401


# --- matchers -------------------------------------------------------------------------------------


def settled(server: Running, processes: int) -> dict[str, Any]:
    """What `/matchers` says, once there are so many processes and nothing is rearranged."""
    end = time.monotonic() + PATIENCE_S
    while True:
        view: dict[str, Any] = server.get("/matchers").json
        found = sum(one["number"] > 0 for one in view["matchers"])
        if found == processes and not view["is_reconfiguring"]:
            return view
        assert time.monotonic() < end, view
        time.sleep(0.05)


def test_a_matcher_is_seen_and_rearranged(start_server: Callable[..., Running]) -> None:
    server = start_server(matchers=MatcherSettings(min=1, max=2, pause_s=3600))
    server.post("/sessions/phone/subscriptions", {"topic": "air/#", "filter": "NO2 > 40"})
    [matcher] = settled(server, 1)["matchers"]
    assert (matcher["role"], matcher["subscriptions"]) == ("member", 1)
    assert server.post("/publish?topic=air/1", {"NO2": 41}).json["matched"] is True
    metrics = server.get("/metrics").text
    number = matcher["number"]
    for line in (
        "rove_matchers 1",
        f'rove_matcher_subscriptions{{matcher="{number}"}} 1',
        f'rove_matcher_messages_total{{matcher="{number}"}} 1',
        'rove_matcher_reconfigurations_total{kind="out"} 1',
        'rove_matcher_layout{layout="replicated"} 1',
    ):
        assert f"\n{line}\n" in metrics
    refused = server.post("/matchers/merge")
    assert (refused.status, "fewer are not allowed" in refused.text) == (409, True)
    assert server.post("/matchers/layout", {"layout": "replicated"}).status == 409
    begun = server.post("/matchers/layout", {"layout": "partitioned"})
    assert (begun.status, begun.json) == (202, {"asked": "layout"})
    view = settled(server, 1)
    assert view["layout"] == "partitioned"
    assert [one["kind"] for one in view["reconfigurations"]] == ["out", "layout"]
    assert server.post("/publish?topic=air/1", {"NO2": 41}).json["matched"] is True


def test_a_layout_that_cannot_be(start_server: Callable[..., Running]) -> None:
    server = start_server(matchers=MatcherSettings(max=1))
    refused = server.post("/matchers/layout", {"layout": "round"})
    assert (refused.status, refused.json) == (
        400,
        {
            "error": "there is no layout 'round'",
            "hint": "there is partitioned, replicated and hierarchical",
        },
    )
    for body in (b"", b"[]", b"{}", b'{"layout": 3}'):
        assert "the body cannot be read" in server.post("/matchers/layout", body).json["error"]


def test_a_broker_may_have_no_matchers(start_server: Callable[..., Running]) -> None:
    server = start_server(matchers=MatcherSettings(max=0))
    assert "rove_matcher" not in server.get("/metrics").text
    for method, path in (("GET", ""), ("POST", "/split"), ("POST", "/merge"), ("POST", "/layout")):
        refused = server.ask(method, f"/matchers{path}", b'{"layout": "partitioned"}')
        assert (refused.status, refused.json["error"]) == (404, "this broker was given no matchers")


def test_matchers_are_rearranged_by_administrators(guarded: Running) -> None:
    for path in ("layout", "split", "merge"):
        assert guarded.post(f"/matchers/{path}", b"", as_("alice")).status == 403
        assert guarded.post(f"/matchers/{path}").status == 401
    elsewhere = {"origin": "http://elsewhere.example", **as_("admin")}
    assert guarded.post("/matchers/merge", b"", elsewhere).status == 403
    assert guarded.post("/matchers/merge", b"", as_("admin")).status == 409
    assert guarded.get("/matchers", as_("alice")).status == 200
    assert guarded.get("/matchers").status == 401


# --- the page -------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[3] / "docs" / "http.md"
EXAMPLES = [
    line
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    for line in block.splitlines()
]


def test_the_page_has_examples_of_every_route_that_is_no_page() -> None:
    for operation in OPERATIONS.values():
        if operation.answer_type != "text/html":
            pattern = re.sub(r"\\{\w+\\}", r"[^'/]+", re.escape(operation.public_path))
            asked = re.compile(rf"localhost:8080{pattern}['?]")
            assert any(asked.search(line) for line in EXAMPLES), operation.public_path


# --- refusals of the broker -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (Reason.NOT_AUTHORIZED, 403),
        (Reason.QUOTA_EXCEEDED, 429),
        (Reason.PACKET_TOO_LARGE, 413),
        (Reason.TOPIC_NAME_INVALID, 400),
        (Reason.SERVER_SHUTTING_DOWN, 503),
        (Reason.SERVER_BUSY, 503),
        (Reason.SESSION_TAKEN_OVER, 409),
    ],
)
def test_reasons_become_statuses(reason: int, status: int) -> None:
    assert STATUSES.get(reason, 503) == status


def test_every_refusal_is_an_error_of_http() -> None:
    for reason in Reason:
        if reason >= Reason.UNSPECIFIED_ERROR:
            assert 400 <= STATUSES.get(reason, 503) < 600
