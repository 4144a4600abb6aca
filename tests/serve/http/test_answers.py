"""What the broker refuses becomes the right status of HTTP."""

import json

import pytest

from rove.mqtt.packets import Reason
from rove.serve.http.answers import Fault, fault_answer, json_answer


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
    assert Fault.of(reason, "why").status == status


def test_every_refusal_is_an_error_of_http() -> None:
    for reason in Reason:
        if reason >= Reason.UNSPECIFIED_ERROR:
            assert 400 <= Fault.of(reason, "why").status < 600


def test_an_error_is_json_with_a_hint_if_there_is_one() -> None:
    answer = fault_answer(Fault(400, "wrong", "right", {"x-one": "1"}))
    assert (answer.status_code, answer.headers["x-one"]) == (400, "1")
    assert json.loads(bytes(answer.body)) == {"error": "wrong", "hint": "right"}
    assert json.loads(bytes(fault_answer(Fault(400, "wrong")).body)) == {"error": "wrong"}


def test_an_answer_ends_its_line() -> None:
    assert bytes(json_answer({"a": 1}).body) == b'{"a":1}\n'
