"""Answers: JSON, errors with a hint, compressed for whoever can read that."""

import gzip
import json

from starlette.requests import Request

from rove.monitor.answers import Fault, compressed, fault_answer, json_answer, takes_gzip


def request(encodings: str) -> Request:
    headers = [(b"accept-encoding", encodings.encode())]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": headers})


def test_a_fault_says_what_was_wrong_and_what_would_be_right() -> None:
    answer = fault_answer(Fault(404, "there is none", "look elsewhere"))
    assert answer.status_code == 404
    assert json.loads(bytes(answer.body)) == {"error": "there is none", "hint": "look elsewhere"}
    assert json.loads(bytes(fault_answer(Fault(400, "no")).body)) == {"error": "no"}


def test_answers_are_not_kept() -> None:
    assert json_answer([1]).headers["cache-control"] == "no-store"


def test_long_answers_are_compressed_if_that_can_be_read() -> None:
    body = b"a" * 5_000
    packed, headers = compressed(body, request("br, gzip"))
    assert gzip.decompress(packed) == body
    assert headers["content-encoding"] == "gzip"
    assert compressed(body, request("br")) == (body, {"vary": "accept-encoding"})
    assert compressed(b"short", request("gzip"))[0] == b"short"
    assert not takes_gzip(request("identity"))
