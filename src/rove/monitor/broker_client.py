"""The client for the broker's HTTP interface, used on behalf of visitors.

A few connections are kept open and used from threads: the standard library's client supports all of
HTTP that a broker uses, including TLS, and a request a second needs no more. Answers are cached for
a second for each identity, and a request that is under way is shared: twenty pages cost the broker
one request a second for each route. Credentials are passed on unchanged and never written anywhere.
"""

from __future__ import annotations

import asyncio
import http.client
import queue
import ssl
import time
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from rove.base.http import HttpError
from rove.errors import UsageError

CONNECTIONS_MAX: Final = 4
TIMEOUT_S: Final = 10.0
FRESH_S: Final = 1.0
KEPT_MAX: Final = 500
ANSWER_BYTES_MAX: Final = 32 * 1024 * 1024


class BrokerAnswer(NamedTuple):
    """An answer of the broker."""

    status: int
    type: str
    body: bytes


class _CachedAnswer(NamedTuple):
    until: float
    answer: asyncio.Task[BrokerAnswer]


class BrokerClient:
    """One broker, by the address of its HTTP interface."""

    def __init__(self, url: str, ca_file: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise UsageError(
                f"--broker takes the HTTP interface of one, as http://127.0.0.1:8080, not {url}"
            )
        self.url: Final = url.rstrip("/")
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path.rstrip("/")
        self._tls = None
        if parts.scheme == "https":
            self._tls = ssl.create_default_context(cafile=ca_file)
        self._free: queue.LifoQueue[http.client.HTTPConnection] = queue.LifoQueue()
        self._slots = asyncio.Semaphore(CONNECTIONS_MAX)
        self._kept: dict[tuple[str, str], _CachedAnswer] = {}
        self.asked = 0
        """How many requests were sent to the broker."""

    async def get(
        self, path: str, query: Mapping[str, str] | None = None, authorization: str = ""
    ) -> BrokerAnswer:
        """What a route answers, at most a second old."""
        target = path + (f"?{urlencode(sorted(query.items()))}" if query else "")
        key, now = (authorization, target), time.monotonic()
        kept = self._kept.get(key)
        if kept is None or kept.until < now or kept.answer.cancelled():
            if len(self._kept) >= KEPT_MAX:
                self._kept = {k: one for k, one in self._kept.items() if one.until >= now}
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            task = asyncio.create_task(self._ask("GET", target, authorization, None))
            kept = self._kept[key] = _CachedAnswer(now + FRESH_S, task)
        # A visitor who disconnects must not cancel the answer for the others.
        return await asyncio.shield(kept.answer)

    async def post(self, path: str, body: bytes, authorization: str = "") -> BrokerAnswer:
        """What a question is answered; asked each time."""
        return await self._ask("POST", path, authorization, body)

    def forget(self, authorization: str) -> None:
        """Forget what was answered to somebody."""
        self._kept = {key: one for key, one in self._kept.items() if key[0] != authorization}

    def close(self) -> None:
        """Close what is open."""
        while not self._free.empty():
            self._free.get_nowait().close()

    async def _ask(
        self, method: str, target: str, authorization: str, body: bytes | None
    ) -> BrokerAnswer:
        async with self._slots:
            self.asked += 1
            try:
                return await asyncio.to_thread(self._exchange, method, target, authorization, body)
            except (OSError, http.client.HTTPException) as error:
                why = getattr(error, "strerror", None) or str(error) or type(error).__name__
                hint = "is it up, and is this its HTTP interface?"
                raise HttpError(
                    502, f"the broker at {self.url} does not answer: {why}", hint
                ) from None

    def _exchange(
        self, method: str, target: str, authorization: str, body: bytes | None
    ) -> BrokerAnswer:
        headers = {"accept": "application/json"}
        if authorization:
            headers["authorization"] = authorization
        if body is not None:
            headers["content-type"] = "application/json"
        connection, is_used = self._connection()
        try:
            try:
                connection.request(method, self._path + target, body, headers)
                answer = connection.getresponse()
            except (ConnectionError, http.client.BadStatusLine):
                # One that rested may have been closed meanwhile; a new one was not.
                connection.close()
                if not is_used:
                    raise
                connection = self._new()
                connection.request(method, self._path + target, body, headers)
                answer = connection.getresponse()
            found = answer.read(ANSWER_BYTES_MAX + 1)
        except BaseException:
            connection.close()
            raise
        if len(found) > ANSWER_BYTES_MAX:
            connection.close()
            raise http.client.HTTPException("the answer is too long")
        self._free.put(connection)
        return BrokerAnswer(answer.status, answer.headers.get_content_type(), found)

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        try:
            return self._free.get_nowait(), True
        except queue.Empty:
            return self._new(), False

    def _new(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=TIMEOUT_S, context=self._tls
        )
