"""The handlers of the HTTP interface.

They make no decisions: a request is read and becomes packets of a client in this process
(`rove.serve.http.in_process`), and the broker's answer is written as JSON. The state of the broker
comes from `inspection`, `explanations` and `metrics`.

`operations` lists the routes and who may use them.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping
from email.utils import formatdate
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rove import __version__
from rove.base.http import HttpError
from rove.base.http_answers import (
    CLOSE,
    error_answer,
    json_answer,
    read_body,
    read_json,
    routing_error,
    whole_number,
)
from rove.broker.access import Identity
from rove.broker.sessions.session import Session
from rove.elastic.view import LAYOUTS, Kind, Layout, MatchersView
from rove.errors import RoveError
from rove.metrics.recorder import RecorderState
from rove.mqtt.packets import Properties, Publish, Reason
from rove.mqtt.topics import name_fault, text_fault
from rove.serve.http.authentication import HttpAuthenticator, cross_site_fault
from rove.serve.http.event_streams import EventStream, EventStreamClient
from rove.serve.http.explanations import ExplainRequest, explained
from rove.serve.http.in_process import Publishers, Refused
from rove.serve.http.inspection import (
    channels,
    clients,
    policies,
    queues,
    subscription_view,
    subscriptions,
)
from rove.serve.http.openapi import Operation, document, front_page, page
from rove.serve.http.operations import OPERATIONS
from rove.serve.http.requests import Query
from rove.serve.http.subscription_requests import (
    IDENTIFIER_MAX,
    SubscriptionBody,
    add,
    begin,
    end,
    remove,
    request_in_body,
    request_in_query,
    set_policy,
)
from rove.serve.http.web import Web
from rove.serve.logs import events
from rove.serve.mesh import Mesh
from rove.serve.mesh_view import mesh_status
from rove.serve.metrics.readings import (
    CONTENT_TYPE,
    Metric,
    matcher_metrics,
    mesh_metrics,
    metrics_of,
    metrics_text,
    policy_metrics,
    recorder_metrics,
)
from rove.serve.shell import Shell

FORM = "application/x-www-form-urlencoded"
"""The default of curl for any body, which therefore means nothing."""
EXPIRY_S_MAX = 0xFFFF_FFFF
PAGE = 100
PAGE_MAX = 10_000

STATUSES: Final[Mapping[int, int]] = {
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
"""The status for each reason code of MQTT with which the broker refuses. All other errors are a
temporary condition of the broker: 503."""

log = events("http")


class LayoutBody(msgspec.Struct):
    """The body of a request for a layout."""

    layout: str


class JoinBody(msgspec.Struct):
    """The body of a request to join another broker."""

    url: str


class Interface:
    """The handlers and their state."""

    def __init__(
        self, shell: Shell, guests: HttpAuthenticator, health: Callable[[], list[str]]
    ) -> None:
        self._shell = shell
        self._guests = guests
        self._health = health
        self._publishers = Publishers(shell)
        self._streams: set[EventStream] = set()
        self._started = time.monotonic()
        self.recorder_state: Callable[[], RecorderState] | None = None
        """The state of the recording of metrics, if there is one."""
        self.network: Mesh | None = None
        """The network of brokers, if this one is part of one."""

    async def _body(self, request: Request) -> bytes:
        bytes_max = self._shell.broker.view.limits.http_body_bytes_max
        return await read_body(request, bytes_max, "limits.http_body_bytes_max", CLOSE)

    # -- publishing ----------------------------------------------------------------------------

    async def publish(self, request: Request, identity: Identity, query: Query) -> Response:
        body = await self._body(request)
        content_type = request.headers.get("content-type")
        packet, id = publication_of(query, body, content_type)
        reason = await self._publishers.publish(identity, packet)
        matched = None
        if reason is not None:
            matched = reason != Reason.NO_MATCHING_SUBSCRIBERS
        return json_answer({"id": id, "matched": matched})

    async def unpublish(self, request: Request, identity: Identity, _query: Query) -> Response:
        id = request.path_params["id"]
        packet = Publish("$rove/unpublish", id.encode("utf-8", "replace"), 1)
        try:
            await self._publishers.publish(identity, packet)
        except Refused as refused:
            if refused.reason == Reason.IMPLEMENTATION_SPECIFIC_ERROR:
                raise HttpError(404, refused.text) from None
            raise
        return json_answer({"id": id, "withdrawn": True})

    # -- subscribing ---------------------------------------------------------------------------

    async def subscribe(self, request: Request, identity: Identity, query: Query) -> Response:
        wanted = request_in_query(query)
        most = self._shell.broker.view.limits.sse_clients_max
        if len(self._streams) >= most:
            self._shell.broker.counters.quota_hits += 1
            raise HttpError(
                503, f"more than {most} clients of /subscribe", "limits.sse_clients_max"
            )
        transport: asyncio.Transport = request.state.transport
        name = f"{_address(request)}:http"
        subscriber = EventStreamClient(self._shell, name, identity, transport)
        stream = EventStream(subscriber, transport, self._streams.discard)
        self._streams.add(stream)
        try:
            await begin(self._shell, subscriber, wanted)
        except BaseException:
            self._streams.discard(stream)
            subscriber.disconnect()
            raise
        return stream

    async def add_subscription(
        self, request: Request, identity: Identity, _query: Query
    ) -> Response:
        body = await self._body(request)
        wanted = request_in_body(_name(request, "client"), read_json(body, SubscriptionBody))
        made = await add(self._shell, identity, wanted)
        return json_answer(subscription_view(made), 201)

    async def remove_subscription(
        self, request: Request, identity: Identity, _query: Query
    ) -> Response:
        client, number = _name(request, "client"), whole_number(request.path_params["number"])
        if number is None:
            raise HttpError(404, f"there is no {request.url.path}", "subscriptions have numbers")
        await remove(self._shell, identity, client, number)
        return json_answer({"number": number, "ended": True})

    async def end_session(self, request: Request, identity: Identity, _query: Query) -> Response:
        client = _name(request, "client")
        await end(self._shell, identity, client)
        return json_answer({"client": client, "ended": True})

    # -- policies ------------------------------------------------------------------------------

    async def set_policy(self, request: Request, identity: Identity, query: Query) -> Response:
        text = await self._body(request)
        if not text.strip():
            raise HttpError(400, "there is no policy in the body", "DELETE takes one away")
        return await self._policy(request, identity, query, text, "set")

    async def remove_policy(self, request: Request, identity: Identity, query: Query) -> Response:
        return await self._policy(request, identity, query, b"", "removed")

    async def _policy(
        self, request: Request, identity: Identity, query: Query, text: bytes, done: str
    ) -> Response:
        client = _name(request, "client")
        identifier = query.integer("subscription", 0, 1, IDENTIFIER_MAX)
        try:
            await set_policy(self._shell, identity, client, text, identifier)
        except Refused as refused:
            if refused.reason == Reason.IMPLEMENTATION_SPECIFIC_ERROR:
                raise HttpError(404, refused.text, "GET /subscriptions lists identifiers") from None
            raise
        return json_answer({"client": client, "subscription": identifier, done: True})

    async def policies(self, _request: Request, identity: Identity, query: Query) -> Response:
        count = query.integer("limit", PAGE, 0, PAGE_MAX)
        is_short, client = query.flag("short"), query.text("client")
        broker = self._shell.broker.view
        seen: Container[str] | None = None if client is None else (client,)
        if not self._is_admin(identity):
            seen = self._own(identity, client)
        if broker.policy_limits is None:
            hint = "`enabled` in the section [policies] of its configuration allows them"
            raise HttpError(404, "this broker runs no policies", hint)
        view = broker.policies(count if seen is None else None)
        return json_answer(policies(view, count, broker.now, seen, is_short=is_short))

    def _own(self, identity: Identity, client: str | None) -> set[str]:
        """The client ids of a user, or the given one if it is the user's."""
        if identity.user is None:
            raise HttpError(403, "without a name nobody has policies of their own here")
        return {
            name
            for name, one in self._shell.broker.view.sessions.items()
            if one.identity.user == identity.user and client in (None, name)
        }

    async def variables(self, request: Request, identity: Identity, _query: Query) -> Response:
        client, broker = _name(request, "client"), self._shell.broker
        session = broker.view.sessions.get(client)
        is_own = (
            session is not None
            and identity.user is not None
            and session.identity.user == identity.user
        )
        if not is_own and not self._is_admin(identity):
            raise HttpError(403, "these are for the user of the session and for administrators")
        found = broker.view.variables(client)
        if found is None:
            raise HttpError(404, f"there is no session {client!r}", "GET /clients lists them")
        return json_answer(found)

    # -- matchers ------------------------------------------------------------------------------

    async def matchers(self, _request: Request, _identity: Identity, _query: Query) -> Response:
        return json_answer(self._matchers_view())

    async def switch_layout(self, request: Request, _identity: Identity, _query: Query) -> Response:
        body = await self._body(request)
        wanted = read_json(body, LayoutBody).layout
        found = [layout for layout in LAYOUTS if layout == wanted]
        if not found:
            raise HttpError(
                400, f"there is no layout {wanted[:100]!r}", f"there is {_listed(LAYOUTS)}"
            )
        return self._rearrange("layout", found[0])

    async def split_matcher(
        self, _request: Request, _identity: Identity, _query: Query
    ) -> Response:
        return self._rearrange("split")

    async def merge_matchers(
        self, _request: Request, _identity: Identity, _query: Query
    ) -> Response:
        return self._rearrange("merge")

    def _matchers_view(self) -> MatchersView:
        view = self._shell.broker.view.matchers(self._shell.now())
        if view is None:
            hint = "`max` in the section [matchers] of its configuration allows them"
            raise HttpError(404, "this broker was given no matchers", hint)
        return view

    def _rearrange(self, kind: Kind, layout: Layout | None = None) -> Response:
        """Begin a reconfiguration of the matchers; it continues in the background."""
        self._matchers_view()
        shell = self._shell
        if why_not := shell.broker.rearrange_matchers(kind, shell.now(), layout):
            raise HttpError(409, why_not)
        shell.wake()
        return json_answer({"asked": kind}, 202)

    # -- the network ---------------------------------------------------------------------------

    async def mesh(self, _request: Request, _identity: Identity, _query: Query) -> Response:
        return json_answer(mesh_status(self._network()))

    async def join_broker(self, request: Request, _identity: Identity, _query: Query) -> Response:
        network = self._network()
        wanted = read_json(await self._body(request), JoinBody)
        try:
            dial = network.join(wanted.url)
        except RoveError as error:
            raise HttpError(400, str(error)) from None
        return json_answer({"joins": str(dial.address)}, 202)

    async def leave_broker(self, request: Request, _identity: Identity, _query: Query) -> Response:
        network, name = self._network(), _name(request, "name")
        if not network.disconnect(name):
            raise HttpError(404, f"there is no link to {name!r}", "GET /mesh lists all links")
        return json_answer({"name": name, "disconnected": True})

    def _network(self) -> Mesh:
        if self.network is None:
            hint = "`name` in the section [mesh] of its configuration makes it part of one"
            raise HttpError(404, "this broker is in no network", hint)
        return self.network

    # -- looking -------------------------------------------------------------------------------

    async def clients(self, _request: Request, _identity: Identity, query: Query) -> Response:
        after, count = _place(query)
        return json_answer(clients(self._shell.broker.view, after, count))

    async def queues(self, _request: Request, _identity: Identity, query: Query) -> Response:
        count = query.integer("limit", PAGE, 1, PAGE_MAX)
        return json_answer({"items": queues(self._shell.broker.view, count)})

    async def expired(self, _request: Request, _identity: Identity, _query: Query) -> Response:
        return json_answer({"items": list(self._shell.broker.view.expired)})

    async def channels(self, _request: Request, _identity: Identity, _query: Query) -> Response:
        return json_answer({"items": channels(self._shell.broker.view)})

    async def subscriptions(self, _request: Request, identity: Identity, query: Query) -> Response:
        sessions = self._shell.broker.view.sessions
        after, count = _place(query)
        client = query.text("client")
        found: Iterable[Session] = sessions.values()
        if client is not None:
            session = sessions.get(client)
            found = [] if session is None else [session]
        if not self._is_admin(identity):
            if identity.user is None:
                raise HttpError(403, "without a name nobody has subscriptions of their own here")
            found = (one for one in found if one.identity.user == identity.user)
        return json_answer(subscriptions(found, after, count))

    async def explain(self, request: Request, identity: Identity, _query: Query) -> Response:
        body = await self._body(request)
        question = read_json(body, ExplainRequest)
        return json_answer(explained(self._shell.broker.view, question, identity))

    async def healthz(self, _request: Request, _identity: Identity, _query: Query) -> Response:
        reasons = self._health()
        if self._shell.is_stopping:
            reasons = [*reasons, "the broker is shutting down"]
        if reasons:
            return json_answer({"status": "ill", "reasons": reasons}, 503)
        return json_answer({"status": "ok"})

    async def metrics(self, request: Request, _identity: Identity, _query: Query) -> Response:
        text = metrics_text(self.metrics_now(request.state.web))
        return PlainTextResponse(text, media_type=CONTENT_TYPE)

    def metrics_now(self, web: Web) -> Iterator[Metric]:
        """All metrics."""
        shell, streams = self._shell, len(self._streams)
        yield from metrics_of(
            shell.broker, shell.now(), shell.delays, len(web.connections), streams, self._started
        )
        view = shell.broker.view.matchers(shell.now())
        if view is not None:
            yield from matcher_metrics(view)
        yield from policy_metrics(shell.broker.view.policies(0))
        if self.network is not None:
            yield from mesh_metrics(mesh_status(self.network))
        if self.recorder_state is not None:
            yield from recorder_metrics(self.recorder_state())

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
        handlers: Any = {
            HttpError: _answer_error,
            Refused: _answer_refused,
            HTTPException: _answer_404,
        }
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
        if not operation.is_safe and (fault := cross_site_fault(headers)) is not None:
            raise HttpError(403, fault)
        certificate = request.state.certificate
        identity = await self._guests.identify(headers, _address(request), certificate)
        if operation.access == "admin" and not self._is_admin(identity):
            raise HttpError(
                403, "this is for administrators", "`admin` in the access rules allows it"
            )
        return identity

    def _is_admin(self, identity: Identity) -> bool:
        return self._shell.broker.view.may(identity, "admin")


def _address(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def _name(request: Request, parameter: str) -> str:
    """A name in the path."""
    name: str = request.path_params[parameter]
    fault = text_fault(name)
    if fault is not None:
        raise HttpError(400, f"{parameter} {fault}")
    return name


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}"


def _place(query: Query) -> tuple[int, int]:
    """Where a page begins, and its length."""
    return query.integer("after", 0, 0, 2**62), query.integer("limit", PAGE, 1, PAGE_MAX)


# --- reading requests -----------------------------------------------------------------------------


def publication_of(query: Query, body: bytes, content_type: str | None) -> tuple[Publish, str]:
    """The publication in a request, and its id."""
    topic = query.text("topic")
    if topic is None:
        raise HttpError(400, "there is no topic", "POST /publish?topic=air/1")
    fault = name_fault(topic)
    if fault is not None:
        raise HttpError(400, f"topic: {fault}")
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


# --- answering ------------------------------------------------------------------------------------


async def _answer_error(_request: Request, fault: HttpError) -> Response:
    return error_answer(fault)


async def _answer_refused(_request: Request, refused: Refused) -> Response:
    status = STATUSES.get(refused.reason, 503)
    headers = {"retry-after": "1"} if status in (429, 503) else {}
    return error_answer(HttpError(status, refused.text, headers=headers))


async def _answer_404(request: Request, error: HTTPException) -> Response:
    return error_answer(routing_error(request, error, "/docs lists all routes"))


class _Edge:
    """The outermost layer: adds the date header, which HTTP requires, and logs the request."""

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

        app = _ambiguous if _is_ambiguous(scope["headers"]) else self._app
        await app(scope, receive, dated)


def _is_ambiguous(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether two headers give the end of the body: a proxy may have used the other one."""
    return {b"content-length", b"transfer-encoding"} <= {name for name, _ in headers}


async def _ambiguous(scope: Scope, receive: Receive, send: Send) -> None:
    what = "content-length and transfer-encoding contradict each other"
    fault = HttpError(400, what, "send one of them", {"connection": "close"})
    await error_answer(fault)(scope, receive, send)
