"""What the monitor answers: JSON, and errors with a hint, in the form that the broker uses.

    {"error": "what was wrong", "hint": "what would be right"}

`rove.serve.http.answers` is the same for the broker. The monitor is a client of the broker and
knows none of its code, so the few lines are here again.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping

import msgspec
from starlette.requests import HTTPConnection
from starlette.responses import Response

GZIP_BYTES_MIN = 1_000
"""Shorter answers gain nothing."""


class Fault(Exception):
    """A request that is answered with an error."""

    def __init__(
        self,
        status: int,
        error: str,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, error)
        self.status = status
        self.error = error
        self.hint = hint
        self.headers = headers or {}


def json_answer(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A value as JSON, on a line of its own so that a terminal shows it well."""
    return json_bytes(msgspec.json.encode(value) + b"\n", status, headers)


def json_bytes(
    body: bytes, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """What is JSON already."""
    return Response(
        body, status, {"cache-control": "no-store", **(headers or {})}, "application/json"
    )


def compressed(body: bytes, request: HTTPConnection) -> tuple[bytes, dict[str, str]]:
    """A body as small as whoever asked can read it, and the headers for that; takes its time."""
    headers = {"vary": "accept-encoding"}
    if len(body) < GZIP_BYTES_MIN or not takes_gzip(request):
        return body, headers
    return gzip.compress(body, 3), {**headers, "content-encoding": "gzip"}


def takes_gzip(request: HTTPConnection) -> bool:
    """Whether whoever asks can read gzip."""
    words = request.headers.get("accept-encoding", "").replace(" ", "").lower().split(",")
    return "gzip" in words


def fault_answer(fault: Fault) -> Response:
    """An error as JSON."""
    value = {"error": fault.error}
    if fault.hint:
        value["hint"] = fault.hint
    return json_answer(value, fault.status, fault.headers)
