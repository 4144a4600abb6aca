"""The HTTP interface: its routes, and what each does.

It decides nothing: a request is read, becomes packets of a client inside this process (see
`rove.serve.in_process`), and what the broker answers is written as JSON. What it shows of the
broker's inside comes from `inspection`, `explaining` and `metrics`.

Every route is an `Operation` of the table at the end, which is also what the OpenAPI document and
the page for people are made of.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rove import __version__
from rove.broker.access import Identity
from rove.mqtt.packets import Filter, Properties, Publish, Reason
from rove.mqtt.topics import name_fault
from rove.serve.answers import Fault, fault_answer, json_answer
from rove.serve.events import INFLIGHT_MAX, EventStream, Subscriber
from rove.serve.guests import Guests, cross_site_fault
from rove.serve.in_process import Refused
from rove.serve.logs import events
from rove.serve.metrics import CONTENT_TYPE, metrics_text
from rove.serve.openapi import Operation, Parameter, document, front_page, page
from rove.serve.publishers import Publishers
from rove.serve.requests import USER_PREFIX, Query, body_of, json_of
from rove.serve.shell import Shell
from rove.serve.web import Web

FORM = "application/x-www-form-urlencoded"
"""What curl says of any body unless told otherwise: it says nothing about the payload."""
EXPIRY_S_MAX = 0xFFFF_FFFF
SESSION_EXPIRY_S = 24 * 60 * 60

log = events("http")


class Interface:
    """The handlers, and what they need."""

    def __init__(self, shell: Shell, guests: Guests, health: Callable[[], list[str]]) -> None:
        self._shell = shell
        self._guests = guests
        self._health = health
        self._publishers = Publishers(shell)
        self._streams: set[EventStream] = set()
        self._started = time.monotonic()

    # -- publishing ----------------------------------------------------------------------------

    async def publish(self, request: Request, identity: Identity, query: Query) -> Response:
        limits = self._shell.broker.state.limits
        body = await body_of(request, limits.http_body_bytes_max)
        content_type = request.headers.get("content-type")
        packet, id = publication_of(query, body, content_type)
        answer = await self._publishers.publish(identity, packet)
        matched = None
        if answer is not None:
            matched = answer.reason != Reason.NO_MATCHING_SUBSCRIBERS
        return json_answer({"id": id, "matched": matched})

    async def unpublish(self, request: Request, identity: Identity, _query: Query) -> Response:
        id = request.path_params["id"]
        packet = Publish("$rove/unpublish", id.encode("utf-8", "replace"), 1)
        try:
            await self._publishers.publish(identity, packet)
        except Refused as refused:
            if refused.reason == Reason.IMPLEMENTATION_SPECIFIC_ERROR:
                raise Fault(404, refused.text) from None
            raise
        return json_answer({"id": id, "withdrawn": True})

    # -- subscribing ---------------------------------------------------------------------------

    async def subscribe(self, request: Request, identity: Identity, query: Query) -> Response:
        wish = wish_of(query)
        most = self._shell.broker.state.limits.sse_clients_max
        if len(self._streams) >= most:
            self._shell.broker.counters.quota_hits += 1
            raise Fault(503, f"more than {most} clients of /subscribe", "limits.sse_clients_max")
        transport: asyncio.Transport = request.state.transport
        name = f"{_address(request)}:http"
        subscriber = Subscriber(self._shell, name, identity, transport)
        stream = EventStream(subscriber, transport, self._streams.discard)
        self._streams.add(stream)
        try:
            await self._begin(subscriber, wish)
        except BaseException:
            self._streams.discard(stream)
            subscriber.disconnect()
            raise
        return stream

    async def _begin(self, subscriber: Subscriber, wish: Wish) -> None:
        """Connect, say what the subscriber is like, subscribe."""
        session = wish.session
        await subscriber.connect(
            session or "",
            clean_start=session is None,
            expiry_s=wish.session_expiry_s if session else 0,
            receive_max=INFLIGHT_MAX,
        )
        if wish.me is not None:
            await subscriber.publish(Publish("$rove/me", wish.me.encode(), 1))
        missing = [each for each in wish.topics if not self._has(subscriber.client_id, each, wish)]
        if missing:
            filters = tuple(Filter(each, wish.qos) for each in missing)
            await subscriber.subscribe(filters, Properties(user=wish.properties))

    def _has(self, client_id: str, topic: str, wish: Wish) -> bool:
        """Whether a session has that subscription: made again, it would begin anew."""
        session = self._shell.broker.state.sessions.get(client_id)
        for one in session.subscriptions.values() if session is not None else ():
            text, evolve = "", ""
            if one.interest is not None:
                text, evolve = one.interest.text, one.interest.evolve_text
            wanted = (topic, wish.qos, wish.filter or "", wish.evolve or "")
            if (one.key[0], one.qos, text, evolve) == wanted:
                return True
        return False

    # -- looking -------------------------------------------------------------------------------

    async def healthz(self, _request: Request, _identity: Identity, _query: Query) -> Response:
        reasons = self._health()
        if self._shell.is_stopping:
            reasons = [*reasons, "the broker is shutting down"]
        if reasons:
            return json_answer({"status": "ill", "reasons": reasons}, 503)
        return json_answer({"status": "ok"})

    async def metrics(self, request: Request, _identity: Identity, _query: Query) -> Response:
        web: Web = request.state.web
        text = metrics_text(
            self._shell.broker, len(web.connections), len(self._streams), self._started
        )
        return PlainTextResponse(text, media_type=CONTENT_TYPE)

    async def front(self, request: Request, _identity: Identity, _query: Query) -> Response:
        return HTMLResponse(front_page(__version__, request.headers.get("host", "localhost")))

    async def docs(self, _request: Request, _identity: Identity, _query: Query) -> Response:
        return HTMLResponse(page(OPERATIONS.values(), __version__))

    async def openapi(self, _request: Request, _identity: Identity, _query: Query) -> Response:
        return json_answer(document(OPERATIONS.values(), __version__))

    # -- the application -----------------------------------------------------------------------

    def application(self) -> ASGIApp:
        """All routes."""
        routes = [
            Route(operation.path, self._endpoint(name, operation), methods=[operation.method])
            for name, operation in OPERATIONS.items()
        ]
        handlers: Any = {Fault: _answer_fault, Refused: _answer_refused, HTTPException: _answer_404}
        app = Starlette(routes=routes, exception_handlers=handlers)
        return _Edge(app)

    def _endpoint(
        self, name: str, operation: Operation
    ) -> Callable[[Request], Awaitable[Response]]:
        handler = getattr(self, name)

        async def endpoint(request: Request) -> Response:
            identity = await self._identity(request, operation)
            query = Query(request.query_params.multi_items(), operation.query_names)
            found: Response = await handler(request, identity, query)
            return found

        return endpoint

    async def _identity(self, request: Request, operation: Operation) -> Identity:
        if operation.access == "open":
            return Identity()
        headers = dict(request.headers)
        if operation.method != "GET" and (fault := cross_site_fault(headers)) is not None:
            raise Fault(403, fault)
        certificate = request.state.certificate
        identity = await self._guests.identify(headers, _address(request), certificate)
        if operation.access == "admin" and not self._is_admin(identity):
            raise Fault(403, "this is for administrators", "`admin` in the access rules allows it")
        return identity

    def _is_admin(self, identity: Identity) -> bool:
        return self._shell.broker.state.rules.allowed(identity, "admin")


def _address(request: Request) -> str:
    return request.client.host if request.client is not None else ""


# --- reading requests -----------------------------------------------------------------------------


def publication_of(query: Query, body: bytes, content_type: str | None) -> tuple[Publish, str]:
    """The publication that a request asks for, and its id."""
    topic = query.text("topic")
    if topic is None:
        raise Fault(400, "there is no topic", "POST /publish?topic=air/1")
    fault = name_fault(topic)
    if fault is not None:
        raise Fault(400, f"topic: {fault}")
    id = query.text("id") or secrets.token_hex(8)
    user = [("id", id)]
    valid_for = query.text("valid-for")
    if valid_for is not None:
        user.append(("valid-for", valid_for))
    expiry_s = query.integer("expiry", 0, 1, EXPIRY_S_MAX)
    says_nothing = content_type is None or content_type.partition(";")[0].strip() == FORM
    properties = Properties(
        user=(*user, *query.user_properties()),
        message_expiry_s=expiry_s or None,
        content_type=None if says_nothing else content_type,
    )
    qos = query.integer("qos", 1, 0, 2)
    return Publish(topic, body, qos, query.flag("retain"), properties=properties), id


class Wish(msgspec.Struct, frozen=True):
    """What a request to subscribe asks for."""

    topics: list[str]
    filter: str | None
    evolve: str | None
    qos: int
    me: str | None
    session: str | None
    session_expiry_s: int

    @property
    def properties(self) -> tuple[tuple[str, str], ...]:
        """As user properties of a SUBSCRIBE."""
        named = (("filter", self.filter), ("evolve", self.evolve))
        return tuple((name, value) for name, value in named if value is not None)


def wish_of(query: Query) -> Wish:
    """Read it out of the parameters."""
    session = query.text("session")
    topics = query.texts("topic")
    if not topics and not session:
        raise Fault(400, "there is no topic", "GET /subscribe?topic=air/%23 (%23 is #)")
    me = query.text("me")
    if me is not None:
        json_of(me.encode(), dict[str, Any])
    if session == "":
        raise Fault(400, "session is empty", "give it a name, or leave it out")
    return Wish(
        topics,
        query.text("filter"),
        query.text("evolve"),
        query.integer("qos", 1 if session else 0, 0, 1),
        me,
        session,
        query.integer("session-expiry", SESSION_EXPIRY_S, 1, EXPIRY_S_MAX),
    )


# --- answering ------------------------------------------------------------------------------------


async def _answer_fault(_request: Request, fault: Fault) -> Response:
    return fault_answer(fault)


async def _answer_refused(_request: Request, refused: Refused) -> Response:
    fault = Fault.of(refused.reason, refused.text)
    headers = {"retry-after": "1"} if fault.status in (429, 503) else {}
    return fault_answer(Fault(fault.status, fault.error, fault.hint, headers))


async def _answer_404(request: Request, error: HTTPException) -> Response:
    what = error.detail
    if error.status_code == 404:
        what = f"there is no {request.url.path}"
    elif error.status_code == 405:
        what = f"{request.method} is not for {request.url.path}"
    return fault_answer(Fault(error.status_code, what, "/docs has all there is", error.headers))


class _Edge:
    """The outermost layer: the date that HTTP asks for, and a line for the log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def dated(message: Message) -> None:
            if message["type"] == "http.response.start":
                date = formatdate(usegmt=True).encode()
                message["headers"] = [*message["headers"], (b"date", date)]
                log.debug(
                    "request",
                    method=scope["method"],
                    path=scope["path"],
                    peer=(scope["client"] or ("",))[0],
                    status=message["status"],
                )
            await send(message)

        await self._app(scope, receive, dated)


# --- the table ------------------------------------------------------------------------------------

REFUSALS = (
    (400, "the request is wrong; the error says how"),
    (401, "who is it? user or password are missing or wrong"),
    (403, "not allowed"),
)
BUSY = ((429, "too much of it, or a quota is used up"), (503, "not now: overload or shutdown"))
TOPIC_FILTERS = Parameter("topic", "a topic filter, `air/#`; several times for several")
TEXT = Parameter("filter", "a text of the subscription language, `NO2 > 40`")
EVOLVE = Parameter("evolve", "how bounds that move are kept up: exact, pes 1s, lees, clees 500ms")

OPERATIONS: dict[str, Operation] = {
    "front": Operation("GET", "/", "What is here.", answer_type="text/html", access="open"),
    "publish": Operation(
        "POST",
        "/publish",
        "Publish. Answered when the broker has acknowledged it, which for QoS 1 and 2 means that "
        "it is on disk.",
        (
            Parameter("topic", "the topic", required=True),
            Parameter("qos", "0, 1 or 2; 1 unless given", "integer"),
            Parameter("retain", "whether it is the last word on its topic", "boolean"),
            Parameter("id", "its id; without one it is given one"),
            Parameter("valid-for", "seconds, or `forever`: kept for those who subscribe later"),
            Parameter("expiry", "seconds after which it is not delivered any more", "integer"),
            Parameter(USER_PREFIX, "`user.NAME=VALUE`: a user property, which is an attribute"),
        ),
        "the payload, any bytes; members of a JSON object are attributes",
        "application/octet-stream",
        (
            (200, '{"id": …, "matched": whether anybody wanted it; null for QoS 0}'),
            *REFUSALS,
            (413, "too large"),
            *BUSY,
        ),
    ),
    "unpublish": Operation(
        "DELETE",
        "/publications/{id:path}",
        "Withdraw a publication that was published over HTTP by the same user and is still valid, "
        "retained or queued.",
        (Parameter("id", "its id", in_path=True),),
        answers=((200, '{"id": …, "withdrawn": true}'), *REFUSALS, (404, "no such publication")),
    ),
    "subscribe": Operation(
        "GET",
        "/subscribe",
        "Subscribe, and be sent notifications as server-sent events for as long as the connection "
        "is open.",
        (
            TOPIC_FILTERS,
            TEXT,
            EVOLVE,
            Parameter("qos", "0 or 1; 0 unless there is a session", "integer"),
            Parameter("me", "a JSON object: the subscriber's `me.` variables"),
            Parameter("session", "a client id: notifications queue while the stream is closed"),
            Parameter("session-expiry", "for how many seconds they do; a day", "integer"),
        ),
        answers=((200, "events"), *REFUSALS, *BUSY),
        answer_type="text/event-stream",
    ),
    "healthz": Operation(
        "GET",
        "/healthz",
        "Is the broker well?",
        answers=((200, '{"status": "ok"}'), (503, '{"status": "ill", "reasons": […]}')),
        access="open",
    ),
    "metrics": Operation(
        "GET", "/metrics", "Counters and gauges for Prometheus.", answer_type="text/plain"
    ),
    "docs": Operation(
        "GET", "/docs", "This interface, for people.", answer_type="text/html", access="open"
    ),
    "openapi": Operation("GET", "/openapi.json", "This interface, for programs.", access="open"),
}
