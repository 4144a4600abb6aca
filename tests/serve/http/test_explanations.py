"""`/explain`: every reason for which a publication does not arrive has a test that meets it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from rove.broker.limits import Limits
from rove.serve.passwords import set_password
from rove.serve.settings import AccessSettings, Channel, LakeSettings, PolicySettings

if TYPE_CHECKING:
    from tests.serve.conftest import Running


def checks(verdict: dict[str, Any]) -> dict[str, bool | None]:
    return {check["check"]: check["passed"] for check in verdict["checks"]}


def explained(server: Running, **question: Any) -> dict[str, Any]:
    answer = server.post("/explain", question)
    assert answer.status == 200, answer.text
    found: dict[str, Any] = answer.json
    return found


def one(server: Running, **question: Any) -> dict[str, Any]:
    (verdict,) = explained(server, **question)["subscriptions"]
    found: dict[str, Any] = verdict
    return found


def test_a_description_of_both(server: Running) -> None:
    wanted = {"topic": "air/#", "filter": "NO2 > 40 AND x < me.x", "me": {"x": 5}}
    met = one(server, publication={"NO2": 41, "x": 1}, topic="air/1", subscription=wanted)
    assert (met["reaches"], checks(met)) == (True, {"topic": True, "access": True, "text": True})
    missed = one(server, publication={"NO2": 39, "x": 1}, topic="air/1", subscription=wanted)
    assert missed["reaches"] is False
    text = missed["checks"][-1]
    assert [part["truth"] for part in text["parts"][0]["parts"]] == [False, True]
    assert text["parts"][0]["parts"][0]["why"] == "NO2 is 39"
    elsewhere = one(server, publication={"NO2": 41, "x": 1}, topic="sea/1", subscription=wanted)
    assert checks(elsewhere)["topic"] is False
    assert elsewhere["checks"][0]["why"] == "air/# does not fit sea/1"


def test_a_publication_that_came_and_a_subscription_that_is(server: Running) -> None:
    made = server.post("/sessions/s/subscriptions", {"topic": "air/#", "filter": "NO2 > 40"}).json
    server.post("/publish?topic=air/1&id=missed", {"NO2": 39})
    server.post("/publish?topic=air/1&id=met", {"NO2": 41})
    missed = explained(server, publication="missed", subscription=made["number"])
    assert missed["publication"]["notified"] == 0
    assert missed["publication"]["publisher"] == "http"
    assert missed["subscriptions"][0]["reaches"] is False
    met = explained(server, publication="met", client="s")
    assert met["publication"]["notified"] == 1
    verdict = met["subscriptions"][0]
    assert checks(verdict)["text"] is True
    assert verdict["checks"][-1] == {
        "check": "queue", "passed": None, "why": "it waits in the queue, at place 1 of 1",
    }  # fmt: skip


def test_what_came_before_the_subscription(server: Running) -> None:
    server.post("/publish?topic=a&id=early", b"{}")
    server.post("/sessions/s/subscriptions", {"topic": "a"})
    verdict = one(server, publication="early", client="s")
    assert checks(verdict)["time"] is None
    assert verdict["reaches"] is None


def test_what_expired_and_what_was_withdrawn(server: Running) -> None:
    server.post("/sessions/s/subscriptions", {"topic": "a"})
    server.post("/publish?topic=a&id=w&valid-for=60", b"{}")
    server.ask("DELETE", "/publications/w")
    assert checks(one(server, publication="w", client="s"))["withdrawn"] is False
    server.post("/publish?topic=a&id=e&expiry=1", b"{}")

    def pass_time(s: Any) -> None:
        s.shell.broker.context.now += 2

    server.look(pass_time)
    assert checks(one(server, publication="e", client="s"))["expiry"] is None


def test_quality_0_waits_for_nobody(server: Running) -> None:
    server.post("/sessions/s/subscriptions", {"topic": "a", "qos": 0})
    server.post("/publish?topic=a&id=x", b"{}")
    assert checks(one(server, publication="x", client="s"))["connection"] is None


def test_what_is_shared_goes_to_one(server: Running) -> None:
    server.post("/sessions/s/subscriptions", {"topic": "$share/g/a"})
    server.post("/publish?topic=a&id=x", b"{}")
    verdict = one(server, publication="x", client="s")
    assert (checks(verdict)["topic"], checks(verdict)["group"]) == (True, None)
    assert verdict["subscription"]["topic"] == "$share/g/a"


def test_what_spark_serves_is_spark_s_to_say(start_server: Callable[..., Running]) -> None:
    server = start_server(lake=LakeSettings(channels=(Channel("all", ("#",)),)))
    wanted = {"topic": "a", "filter": "x > 1", "engine": "spark"}
    assert server.post("/sessions/s/subscriptions", wanted).json["engine"] == "spark"
    server.post("/publish?topic=a&id=met", {"x": 2})
    verdict = one(server, publication="met", client="s")
    assert verdict["reaches"] is None
    (check,) = [check for check in verdict["checks"] if check["check"] == "engine"]
    assert check["passed"] is None
    assert check["why"].startswith("Spark serves it")
    server.post("/publish?topic=a&id=missed", {"x": 0})
    assert one(server, publication="missed", client="s")["reaches"] is False


def test_a_rank_is_known_to_its_window_only(server: Running) -> None:
    text = "ORDER BY x DESC LIMIT 1 WITHIN 60 SECONDS"
    verdict = one(
        server, publication={"x": 1}, topic="a", subscription={"topic": "a", "filter": text}
    )
    assert (verdict["reaches"], checks(verdict)["text"]) == (None, None)


def test_a_text_that_moves_is_asked_for_its_moment(server: Running) -> None:
    with server.stream("/subscribe?topic=a&session=s&filter=" + quote("x < t")):
        begun = server.get("/subscriptions").json["items"][0]["accepted_at"]
        at = {"publication": {"x": 5}, "topic": "a", "client": "s"}
        assert one(server, at=begun + 4, **at)["reaches"] is False
        assert one(server, at=begun + 6, **at)["reaches"] is True


def test_large_payloads_and_full_queues(start_server: Callable[..., Running]) -> None:
    server = start_server(limits=Limits(queue_messages_max=1))
    server.post("/sessions/s/subscriptions", {"topic": "a", "filter": "x > 1"})
    server.post("/publish?topic=a&id=full", {"x": 2})
    server.post("/publish?topic=a&id=large", {"x": 2, "text": "y" * 20_000})
    verdict = one(server, publication="large", client="s")
    assert checks(verdict)["text"] is None
    whys = [check["why"] for check in verdict["checks"] if check["check"] == "queue"]
    assert "its queue is full; drop-oldest applies" in whys


@pytest.mark.parametrize(
    ("question", "status", "what"),
    [
        ({"publication": "gone", "client": "s"}, 404, "no publication 'gone' among the last"),
        ({"publication": {"x": 1}, "client": "s"}, 400, "there is no topic"),
        ({"publication": {"x": 1}, "topic": "a/#", "client": "s"}, 400, "no wildcards"),
        ({"publication": {"x": 1}, "topic": "a"}, 400, "which subscription?"),
        ({"publication": {"x": 1}, "topic": "a", "client": "nobody"}, 404, "no such subscription"),
        ({"publication": {"x": 1}, "topic": "a", "subscription": 99}, 404, "no such subscription"),
        (
            {"publication": {}, "topic": "a", "subscription": {"topic": "a", "filter": "x >"}},
            400,
            "expected a value",
        ),
        ({"publication": {}, "topic": "a", "subscription": {"topic": "a/#/b"}}, 400, "last level"),
        ({"pub": 1}, 400, "the body cannot be read"),
    ],
)
def test_questions_without_an_answer(
    server: Running, question: object, status: int, what: str
) -> None:
    refused = server.post("/explain", question)
    assert refused.status == status
    assert what in refused.json["error"]


def test_a_memory_of_nothing(start_server: Callable[..., Running]) -> None:
    server = start_server(limits=Limits(explain_publications_max=0))
    server.post("/publish?topic=a&id=x", b"{}")
    assert server.post("/explain", {"publication": "x", "client": "s"}).status == 404


def test_only_ones_own_business_is_explained(
    start_server: Callable[..., Running], tmp_path: Path
) -> None:
    passwords, rules = tmp_path / "passwords", tmp_path / "rules"
    headers = {}
    for user in ("admin", "alice", "bob"):
        set_password(passwords, user, b"secret")
        encoded = base64.b64encode(f"{user}:secret".encode()).decode()
        headers[user] = {"authorization": f"Basic {encoded}"}
    rules.write_text(
        "allow user admin admin\nallow user alice publish,subscribe a\n"
        "allow user bob publish,subscribe b\nallow user bob subscribe a\n"
    )
    server = start_server(access=AccessSettings(password_file=str(passwords), acl_file=str(rules)))
    server.post("/sessions/s/subscriptions", {"topic": "a"}, headers["alice"])
    server.post("/sessions/sb/subscriptions", {"topic": "b"}, headers["bob"])
    server.post("/publish?topic=b&id=secret", b"{}", headers["bob"])
    for question, status in (
        ({"publication": {}, "topic": "a", "client": "s"}, 404),
        ({"publication": "secret", "client": "sb"}, 200),
    ):
        assert server.post("/explain", question, headers["bob"]).status == status
    assert (
        server.post("/explain", {"publication": "secret", "client": "s"}, headers["alice"]).status
        == 404
    )
    question = {"publication": "secret", "client": "s"}
    verdict = server.post("/explain", question, headers["admin"]).json["subscriptions"][0]
    assert checks(verdict)["access"] is False


POLICY = """def arrived(m, me):
    if m.mode == "loop":
        while True:
            pass
    if m.mode == "picture":
        return message(image=compress(m.image, quality=5))
    if m.mode == "wrong":
        return m.mode + 1
    if m.mode == "two":
        return message(a=1), message(b=2)
    if m.mode == "other":
        return keep(m, "x")
    return m if m.mode == "as it is" else None
"""


WOULD: dict[str, tuple[bool | None, str]] = {
    "as it is": (True, "would send it unchanged"),
    "other": (True, "would send another message instead"),
    "two": (True, "would send 2 messages instead"),
    "none": (False, "would send nothing"),
    "wrong": (False, "would be stopped (error): line 8: "),
    "loop": (None, "would take too long to run here"),
    "picture": (None, "would have a picture made smaller first, and then decide"),
}


def test_a_policy_is_asked_what_it_would_do(server: Running) -> None:
    number = server.post("/sessions/s/subscriptions", {"topic": "a"}).json["number"]
    assert server.ask("PUT", "/sessions/s/policy", POLICY.encode()).status == 200
    for mode, (reaches, why) in WOULD.items():
        described = {"mode": mode, "x": 1, "image": "AAAA"}
        verdict = one(server, publication=described, topic="a", subscription=number)
        assert (verdict["reaches"], verdict["checks"][-1]["check"]) == (reaches, "policy"), mode
        assert verdict["checks"][-1]["why"].startswith(f"the policy of its session {why}")
    assert server.get("/policies").json["total"]["calls"] == 0, "only asked"


def test_what_a_policy_did_then_is_not_known(start_server: Callable[..., Running]) -> None:
    server = start_server(policies=PolicySettings(offences_max=1))
    body = {"topic": "a", "policy": POLICY}
    number = server.post("/sessions/s/subscriptions", body).json["number"]
    server.post("/publish?topic=a&id=one", {"mode": "none"})
    verdict = one(server, publication="one", subscription=number)
    assert (verdict["reaches"], checks(verdict)["policy"]) == (None, None)
    server.post("/publish?topic=a", {"mode": "wrong"})
    described = {"publication": {"mode": "as it is"}, "topic": "a", "subscription": number}
    verdict = one(server, **described)
    assert (verdict["reaches"], checks(verdict)["policy"]) == (False, False)
    assert "its own policy is suspended for another" in verdict["checks"][-1]["why"]
    assert server.get("/policies").json["suspended"] == 1
