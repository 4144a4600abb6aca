"""What HTTP answers look like: JSON, and errors with a hint.

    {"error": "what was wrong", "hint": "what would be right"}

Reason codes of MQTT become status codes here, in one table, because the HTTP interface is a
client of the broker like any other and passes on what the broker says.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from rove.mqtt.packets import Reason

STATUS: Mapping[int, int] = {
    Reason.UNSPECIFIED_ERROR: 500,
    Reason.MALFORMED_PACKET: 400,
    Reason.PROTOCOL_ERROR: 400,
    Reason.IMPLEMENTATION_SPECIFIC_ERROR: 400,
    Reason.CLIENT_ID_NOT_VALID: 403,
    Reason.BAD_USER_NAME_OR_PASSWORD: 401,
    Reason.NOT_AUTHORIZED: 403,
    Reason.BANNED: 403,
    Reason.SESSION_TAKEN_OVER: 409,
    Reason.TOPIC_FILTER_INVALID: 400,
    Reason.TOPIC_NAME_INVALID: 400,
    Reason.PACKET_TOO_LARGE: 413,
    Reason.MESSAGE_RATE_TOO_HIGH: 429,
    Reason.QUOTA_EXCEEDED: 429,
    Reason.PAYLOAD_FORMAT_INVALID: 400,
    Reason.QOS_NOT_SUPPORTED: 400,
}
"""Everything else that is an error is the broker's momentary condition: 503."""


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

    @classmethod
    def of(cls, reason: int, text: str) -> Fault:
        """What the broker refused, as HTTP says it."""
        return cls(STATUS.get(reason, 503), text)


def json_answer(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A value as JSON, on a line of its own so that a terminal shows it well."""
    body = msgspec.json.encode(value) + b"\n"
    return Response(body, status, dict(headers or {}), "application/json")


def fault_answer(fault: Fault) -> Response:
    """An error as JSON."""
    value = {"error": fault.error}
    if fault.hint:
        value["hint"] = fault.hint
    return json_answer(value, fault.status, fault.headers)
