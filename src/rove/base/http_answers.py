"""Answers and bodies of HTTP: JSON, errors with a hint, compression, bodies up to a size.

    {"error": "what was wrong", "hint": "how to mend it"}

Answers depend on the user who asks and change at any moment, so no cache may store them.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response

from rove.base.http import HttpError

BODY_S: Final = 60.0
DIGITS_MAX: Final = 20
GZIP_BYTES_MIN: Final = 1_000
"""Shorter answers gain nothing."""
CLOSE: Final = {"connection": "close"}
"""Headers of an error before the end of a body: no further request follows on the connection."""


# --- answers --------------------------------------------------------------------------------------


def json_answer(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A value as JSON; it ends its line, for terminals."""
    return json_bytes(msgspec.json.encode(value) + b"\n", status, headers)


def json_bytes(
    body: bytes, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer whose body is JSON already."""
    return Response(
        body, status, {"cache-control": "no-store", **(headers or {})}, "application/json"
    )


def error_answer(error: HttpError) -> Response:
    """An error as JSON."""
    value = {"error": error.error}
    if error.hint:
        value["hint"] = error.hint
    return json_answer(value, error.status, error.headers)


def routing_error(request: Request, error: HTTPException, hint: str | None = None) -> HttpError:
    """An error of the web framework in our words: an unknown path, or the wrong method."""
    what = error.detail
    if error.status_code == 404:
        what = f"there is no {request.url.path}"
    elif error.status_code == 405:
        what = f"{request.method} is not for {request.url.path}"
    return HttpError(error.status_code, what, hint, error.headers)


def compressed(body: bytes, request: HTTPConnection) -> tuple[bytes, dict[str, str]]:
    """A body, compressed if the client accepts gzip, and its headers. For threads: it is slow."""
    headers = {"vary": "accept-encoding"}
    if len(body) < GZIP_BYTES_MIN or not accepts_gzip(request):
        return body, headers
    return gzip.compress(body, 3), {**headers, "content-encoding": "gzip"}


def accepts_gzip(request: HTTPConnection) -> bool:
    """Whether the client can decompress gzip."""
    words = request.headers.get("accept-encoding", "").replace(" ", "").lower().split(",")
    return "gzip" in words


# --- bodies ---------------------------------------------------------------------------------------


def whole_number(text: str) -> int | None:
    """A number of at most 20 digits; None for anything else."""
    is_one = text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
    return int(text) if is_one else None


async def read_body(
    request: Request,
    bytes_max: int,
    hint: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """The body of a request; an `HttpError` as soon as it is known to be too large.

    With `CLOSE` as its headers the rest of such a body is not read. Clients that read no answer
    before they have sent everything may then miss it, unless the server waits a moment.
    """
    too_large = HttpError(413, f"the body has more than {bytes_max} bytes", hint, headers)
    announced = whole_number(request.headers.get("content-length", ""))
    if announced is not None and announced > bytes_max:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > bytes_max:
                    raise too_large
    except TimeoutError:
        what = f"the body did not arrive within {BODY_S:.0f} s"
        raise HttpError(408, what, headers=CLOSE) from None
    except ClientDisconnect:
        raise HttpError(400, "the body is incomplete") from None
    return bytes(body)


def read_json(body: bytes, kind: type[Any]) -> Any:
    """A body of JSON as an object of a type."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HttpError(400, f"the body cannot be read: {error}", "send a JSON object") from None
