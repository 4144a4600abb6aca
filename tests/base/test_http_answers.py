"""Answers: JSON, errors with a hint, compressed if the client accepts it. Bodies: JSON objects."""

import gzip
import json

import pytest
from starlette.requests import Request

from rove.base.http import HttpError
from rove.base.http_answers import (
    accepts_gzip,
    compressed,
    error_answer,
    json_answer,
    read_json,
)


def request(encodings: str) -> Request:
    headers = [(b"accept-encoding", encodings.encode())]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": headers})


def test_a_fault_says_what_was_wrong_and_what_would_be_right() -> None:
    answer = error_answer(HttpError(404, "there is none", "look elsewhere"))
    assert answer.status_code == 404
    assert json.loads(bytes(answer.body)) == {"error": "there is none", "hint": "look elsewhere"}
    assert json.loads(bytes(error_answer(HttpError(400, "no")).body)) == {"error": "no"}


def test_an_error_has_its_headers() -> None:
    answer = error_answer(HttpError(400, "wrong", "right", {"x-one": "1"}))
    assert (answer.status_code, answer.headers["x-one"]) == (400, "1")


def test_an_answer_ends_its_line_and_is_not_stored() -> None:
    answer = json_answer({"a": 1})
    assert bytes(answer.body) == b'{"a":1}\n'
    assert answer.headers["cache-control"] == "no-store"


def test_long_answers_are_compressed_if_that_can_be_read() -> None:
    body = b"a" * 5_000
    packed, headers = compressed(body, request("br, gzip"))
    assert gzip.decompress(packed) == body
    assert headers["content-encoding"] == "gzip"
    assert compressed(body, request("br")) == (body, {"vary": "accept-encoding"})
    assert compressed(b"short", request("gzip"))[0] == b"short"
    assert not accepts_gzip(request("identity"))


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b'{"a": ' + b"[" * 100_000, b"[]"])
def test_a_body_that_is_no_json_object(body: bytes) -> None:
    with pytest.raises(HttpError) as refused:
        read_json(body, dict[str, object])
    assert refused.value.status == 400
