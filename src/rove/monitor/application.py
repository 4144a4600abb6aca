"""The monitor's routes: the page, its data, and one WebSocket.

No decisions about the world or the broker are made here. The broker is asked with the visitor's own
credentials (`logins`), the metrics database is read in threads, and live data comes from
`live_updates`. Every answer carries headers that keep a browser from running, framing or loading
anything that is not part of the monitor.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from rove import __version__
from rove.base.http import HttpError
from rove.base.http_answers import (
    compressed,
    error_answer,
    json_answer,
    json_bytes,
    read_body,
    read_json,
    routing_error,
)
from rove.monitor.broker_client import BrokerClient
from rove.monitor.broker_status import (
    REARRANGEMENTS,
    ROUTES,
    SlowConsumers,
    fault_of,
    forwarded,
    jobs,
    metrics_json,
)
from rove.monitor.comparison import compare
from rove.monitor.live_updates import PAGES_MAX, LiveUpdates, PageConnection
from rove.monitor.logins import Logins, Visitor
from rove.monitor.metrics_history import MetricsHistory
from rove.monitor.page_files import INDEX, Files
from rove.monitor.sensor_maps import has_sensors, heat
from rove.world.runs.scenarios import load_scenario, shipped_scenarios

BODY_BYTES_MAX: Final = 1024 * 1024
LONG_BYTES: Final = 10_000
"""Longer answers are compressed, in a thread."""
JOBS_FRESH_S: Final = 1.0
LOOK_AFTER_S: Final = 5.0
"""How often the access of open pages is checked again."""
CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS: Final = (
    (b"content-security-policy", CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


class Login(msgspec.Struct):
    """The body of a login."""

    user: str = ""
    password: str = ""


class Monitor:
    """The handlers, and what they need."""

    def __init__(
        self,
        hub: LiveUpdates,
        access: Logins,
        broker: BrokerClient | None = None,
        history: MetricsHistory | None = None,
        pipeline: Path | None = None,
    ) -> None:
        self.hub = hub
        self.access = access
        self._broker = broker
        self._history = history
        self._pipeline = pipeline
        self._files = Files()
        self._slow = SlowConsumers()
        self._jobs: tuple[float, asyncio.Task[list[dict[str, Any]]]] | None = None

    async def _parts(self, visitor: Visitor | None) -> dict[str, bool]:
        """Which parts are available."""
        channels, matchers, policies = await asyncio.gather(
            self._shown("/channels", visitor),
            self._shown("/matchers", visitor),
            self._shown("/policies", visitor, {"limit": "0"}),
        )
        return {
            "world": self.hub.has_world,
            "broker": self._broker is not None,
            "metrics": self._history is not None,
            "pipeline": self._pipeline is not None,
            "sensors": self.hub.has_world,
            "channels": channels is not None and bool(channels["items"]),
            "matchers": matchers is not None,
            "policies": policies is not None,
            "mesh": False,
        }

    async def _shown(
        self, path: str, visitor: Visitor | None, query: dict[str, str] | None = None
    ) -> Any:
        """The broker's answer to a visitor; None if it refuses, or without a broker."""
        if self._broker is None or visitor is None:
            return None
        try:
            answer = await self._broker.get(path, query, visitor.authorization)
        except HttpError:
            return None
        return msgspec.json.decode(answer.body) if answer.status == 200 else None

    # -- the page ------------------------------------------------------------------------------

    async def front(self, request: Request) -> Response:
        return self._files.answer(INDEX, request)

    async def file(self, request: Request) -> Response:
        return self._files.answer(request.path_params["path"], request)

    # -- visitors -----------------------------------------------------------------------------

    async def hello(self, request: Request) -> Response:
        visitor = None
        try:
            visitor = await self.access.visitor(request)
        except HttpError as fault:
            if fault.status != 401:
                raise
        return json_answer(
            {
                "version": __version__,
                "user": None if visitor is None else visitor.user,
                "login": visitor is None,
                "admin": visitor is not None and visitor.is_admin,
                "now": time.time(),
                "parts": await self._parts(visitor),
            }
        )

    async def login(self, request: Request) -> Response:
        asked: Login = read_json(await read_body(request, BODY_BYTES_MAX), Login)
        token = await self.access.log_in(request, asked.user, asked.password)
        cookie = self.access.cookie(token, is_secure=_is_secure(request))
        return json_answer({"user": asked.user or None}, headers={"set-cookie": cookie})

    async def logout(self, request: Request) -> Response:
        self.access.log_out(request)
        cookie = self.access.cookie("", is_secure=_is_secure(request))
        return json_answer({"user": None}, headers={"set-cookie": cookie})

    # -- the world -----------------------------------------------------------------------------

    async def world(self, request: Request, _visitor: Visitor) -> Response:
        await self.hub.ready()
        return await self._packed(self.hub.world_bytes(), request)

    async def scenarios(self, _request: Request, _visitor: Visitor) -> Response:
        return json_answer(await asyncio.to_thread(_scenarios))

    async def sensors(self, request: Request, _visitor: Visitor) -> Response:
        await self.hub.ready()
        attribute = request.query_params.get("attribute", "")[:100]
        if self._pipeline is not None and self.hub.view is not None:
            map_, out = self.hub.view["map"], self._pipeline
            if await asyncio.to_thread(has_sensors, out):
                size = map_["width"], map_["height"]
                found = await asyncio.to_thread(heat, out, attribute, *size)
                if found is not None:
                    return json_answer(found)
        return json_answer({"source": "world", **await self.hub.heat(attribute)})

    # -- the broker and the pipeline -----------------------------------------------------------

    async def broker(self, request: Request, visitor: Visitor) -> Response:
        route = request.path_params["route"]
        broker = self._the_broker()
        if route == "slow":
            return json_answer(await self._slow.found(broker, visitor.authorization))
        if route not in ROUTES:
            raise HttpError(404, f"there is no {request.url.path}")
        query = dict(request.query_params)
        answer = await forwarded(broker, route, query, visitor.authorization)
        if answer.status >= 400 and route != "health":
            raise fault_of(answer)
        if route == "metrics":
            return json_answer(metrics_json(answer))
        # A broker that is unhealthy reports why: a normal answer for the page.
        return await self._packed(answer.body, request)

    async def explain(self, request: Request, visitor: Visitor) -> Response:
        body = await read_body(request, BODY_BYTES_MAX)
        answer = await self._the_broker().post("/explain", body, visitor.authorization)
        if answer.status >= 400:
            raise fault_of(answer)
        return json_bytes(answer.body)

    async def rearrange(self, request: Request, visitor: Visitor) -> Response:
        what, broker = request.path_params["what"], self._the_broker()
        if what not in REARRANGEMENTS:
            raise HttpError(404, f"there is no {request.url.path}")
        body = await read_body(request, BODY_BYTES_MAX)
        answer = await broker.post(f"/matchers/{what}", body, visitor.authorization)
        if answer.status >= 400:
            raise fault_of(answer)
        # Cached answers about the matchers are outdated now.
        broker.forget(visitor.authorization)
        return json_bytes(answer.body, answer.status)

    def _the_broker(self) -> BrokerClient:
        if self._broker is None:
            raise HttpError(404, "the monitor has no broker", "start `rove monitor --broker URL`")
        return self._broker

    async def jobs(self, _request: Request, _visitor: Visitor) -> Response:
        if self._pipeline is None:
            raise HttpError(
                404, "the monitor has no pipeline", "start `rove monitor --pipeline FOLDER`"
            )
        now = time.monotonic()
        if self._jobs is None or self._jobs[0] < now:
            looking = asyncio.create_task(asyncio.to_thread(jobs, self._pipeline))
            self._jobs = now + JOBS_FRESH_S, looking
        return json_answer(await asyncio.shield(self._jobs[1]))

    # -- metrics ---------------------------------------------------------------------

    async def series(self, _request: Request, _visitor: Visitor) -> Response:
        return json_answer(await self._the_history().series())

    async def points(self, request: Request, _visitor: Visitor) -> Response:
        found = await self._the_history().points(dict(request.query_params))
        return await self._long(found, request)

    async def runs(self, _request: Request, _visitor: Visitor) -> Response:
        return json_answer(await self._the_history().runs())

    async def compare(self, request: Request, _visitor: Visitor) -> Response:
        found = await compare(self._the_history(), dict(request.query_params))
        return await self._long(found, request)

    def _the_history(self) -> MetricsHistory:
        if self._history is None:
            raise HttpError(
                404, "the monitor has no metrics database", "start `rove monitor --database FILE`"
            )
        return self._history

    async def _long(self, value: object, request: Request) -> Response:
        return await self._packed(msgspec.json.encode(value), request)

    async def _packed(self, body: bytes, request: Request, status: int = 200) -> Response:
        headers: dict[str, str] = {}
        if len(body) > LONG_BYTES:
            body, headers = await asyncio.to_thread(compressed, body, request)
        return json_bytes(body, status, headers)

    # -- live ----------------------------------------------------------------------------------

    async def live(self, socket: WebSocket) -> None:
        try:
            await self.access.visitor(socket)
            if len(self.hub.pages) >= PAGES_MAX:
                raise HttpError(503, f"more than {PAGES_MAX} pages are open")
        except HttpError as fault:
            await socket.send_denial_response(error_answer(fault))
            return
        await socket.accept()

        async def may_command() -> str | None:
            try:
                visitor = await self.access.visitor(socket)
            except HttpError as fault:
                return fault.error
            return None if visitor.is_admin else "only administrators of the broker may do this"

        async def send(message: str | bytes) -> None:
            if isinstance(message, str):
                await socket.send_text(message)
            else:
                await socket.send_bytes(message)

        page = PageConnection(self.hub, send, may_command)
        self.hub.pages.add(page)
        tasks = [asyncio.create_task(page.serve()), asyncio.create_task(self._look_after(socket))]
        try:
            await _hear(socket, page)
        finally:
            self.hub.pages.discard(page)
            self.hub.watch()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_after(self, socket: WebSocket) -> None:
        """Close the page of a visitor who has lost access or logged out."""
        while True:
            await asyncio.sleep(LOOK_AFTER_S)
            try:
                await self.access.visitor(socket)
            except HttpError as fault:
                if fault.status in (401, 403):
                    await socket.close(1008, fault.error)
                    return

    # -- the application -----------------------------------------------------------------------

    def application(self) -> ASGIApp:
        """All routes."""
        routes: list[Any] = [
            Route("/", self.front),
            Route("/page/{path:path}", self.file),
            Route("/api/hello", self.hello),
            Route("/api/login", self.login, methods=["POST"]),
            Route("/api/logout", self.logout, methods=["POST"]),
            WebSocketRoute("/api/live", self.live),
            Route("/api/world", self._for_visitors(self.world)),
            Route("/api/scenarios", self._for_visitors(self.scenarios)),
            Route("/api/sensors", self._for_visitors(self.sensors)),
            Route("/api/broker/explain", self._for_visitors(self.explain), methods=["POST"]),
            Route(
                "/api/broker/matchers/{what}", self._for_visitors(self.rearrange), methods=["POST"]
            ),
            Route("/api/broker/{route}", self._for_visitors(self.broker)),
            Route("/api/jobs", self._for_visitors(self.jobs)),
            Route("/api/series", self._for_visitors(self.series)),
            Route("/api/points", self._for_visitors(self.points)),
            Route("/api/runs", self._for_visitors(self.runs)),
            Route("/api/compare", self._for_visitors(self.compare)),
        ]
        handlers: Any = {HttpError: _answer_error, HTTPException: _answer_404}
        return _SecurityHeaders(Starlette(routes=routes, exception_handlers=handlers))

    def _for_visitors(
        self, handler: Callable[[Request, Visitor], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            return await handler(request, await self.access.visitor(request))

        return endpoint


def _is_secure(request: Request) -> bool:
    """Whether the browser speaks TLS, to the monitor or to a proxy before it."""
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https:")


async def _hear(socket: WebSocket, page: PageConnection) -> None:
    """Handle messages until the page is closed."""
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        text = message.get("text")
        try:
            await page.hear(text if text is not None else message.get("bytes") or b"")
        except WebSocketDisconnect:
            return


def _scenarios() -> list[dict[str, Any]]:
    found = [load_scenario(name) for name in shipped_scenarios()]
    return [
        {
            "name": one.name,
            "title": one.title,
            "about": one.about,
            "players": one.people.players,
            "engines": list(one.engines.use),
        }
        for one in found
    ]


async def _answer_error(_request: Request, fault: Any) -> Response:
    return error_answer(fault)


async def _answer_404(request: Request, error: Any) -> Response:
    return error_answer(routing_error(request, error))


class _SecurityHeaders:
    """The outermost layer: headers for every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        await self._app(scope, receive, guarded)
