"""Authentication of visitors: the broker's rules apply, and the monitor adds none.

With a broker, its answer decides: users who may connect may look, and administrators may change the
world. A visitor without a login counts as an anonymous user of the broker, but only on this
machine: the broker may trust the address of the monitor, so anonymous requests from elsewhere are
refused. Without a broker everybody on this machine may do everything, and visitors from elsewhere
need the key. (Asking the broker with rights of the monitor would require a second copy of its rules
here.)

A login is a cookie of 32 random bytes that scripts cannot read and that browsers do not send to
other sites. It stands for the password, which stays in memory until the login ends and goes with
every request to the broker, so a user who is locked out there is locked out here at the next one.

Pages of other sites must not reach a monitor through the browser of a user: `rove.base.http` has
the checks of `Origin`, `Sec-Fetch-Site` and `Host`.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import deque
from typing import Final

import msgspec
from starlette.requests import HTTPConnection

from rove.base.http import (
    HttpError,
    basic_authorization,
    foreign_page_error,
    is_loopback,
    requested_host,
)
from rove.monitor.broker_client import BrokerClient

SESSION_S: Final = 12 * 3600.0
SESSIONS_MAX: Final = 1_000
FAILURES_MAX: Final = 10
FAILURES_OVER_S: Final = 60.0
ADDRESSES_MAX: Final = 10_000
LONG_MAX: Final = 1_000
"""Characters of a name or a password."""
LOGIN_HINT: Final = "log in with a user of the broker"
KEY_HINT: Final = "log in with the key that the monitor was started with"


class Visitor(msgspec.Struct, frozen=True):
    """A user with access to the page."""

    user: str | None
    authorization: str
    """The credentials for the broker; empty for anonymous visitors."""
    is_admin: bool


class _Session(msgspec.Struct):
    user: str
    authorization: str
    until: float
    has_key: bool


class Logins:
    """Authenticates visitors and keeps their logins."""

    def __init__(self, broker: BrokerClient | None, key: str | None, cookie: str) -> None:
        self._broker = broker
        self._key = key
        self._cookie = cookie
        self._sessions: dict[str, _Session] = {}
        self._failures: dict[str, deque[float]] = {}
        self._known: dict[str, int] = {}
        """By authorization, the broker's last answer; used while the broker is down."""

    # -- visitors -----------------------------------------------------------------------------

    async def visitor(self, request: HTTPConnection) -> Visitor:
        """The visitor who sends a request; an `HttpError` without access."""
        self.refuse_foreign_pages(request)
        session = self._session(request)
        if session is not None:
            if session.has_key:
                return Visitor(None, "", True)
            return await self._judged(session.user, session.authorization)
        if self._key is not None:
            raise HttpError(401, "this needs the monitor's key", KEY_HINT)
        if not is_local(request):
            if self._broker is None:
                raise HttpError(403, "this monitor serves its own machine only", "give it a key")
            raise HttpError(401, "a login is required from other machines", LOGIN_HINT)
        return await self._judged(None, "")

    async def _judged(self, user: str | None, authorization: str) -> Visitor:
        if self._broker is None:
            return Visitor(user, authorization, True)
        status = await self._status(authorization)
        if status == 401:
            raise HttpError(401, "the broker does not know this user", LOGIN_HINT)
        if status not in (200, 403):
            raise HttpError(502, f"the broker answers {status} when asked for this user")
        return Visitor(user, authorization, status == 200)

    async def _status(self, authorization: str) -> int:
        """The status with which the broker answers a request for its clients."""
        assert self._broker is not None
        try:
            answer = await self._broker.get("/clients", {"limit": "1"}, authorization)
        except HttpError:
            # While the broker restarts, its last answer counts.
            if authorization in self._known:
                return self._known[authorization]
            raise
        if len(self._known) >= SESSIONS_MAX:
            self._known.clear()
        self._known[authorization] = answer.status
        return answer.status

    def refuse_foreign_pages(self, request: HTTPConnection) -> None:
        """An `HttpError` for a request that a page of another site has made."""
        fault = foreign_page_error(request.headers, checks_port=True)
        if fault is not None:
            raise HttpError(403, fault)

    # -- logging in ----------------------------------------------------------------------------

    async def log_in(self, request: HTTPConnection, user: str, password: str) -> str:
        """The cookie of a new login; an `HttpError` if name and password are not right."""
        self.refuse_foreign_pages(request)
        address = request.client.host if request.client is not None else ""
        if max(len(user), len(password)) > LONG_MAX or ":" in user:
            raise HttpError(401, "the user name or the password is wrong")
        self._refuse_guessing(address)
        if self._key is not None and hmac.compare_digest(password.encode(), self._key.encode()):
            return self._opened(_Session(user, "", 0.0, has_key=True))
        authorization = basic_authorization(user, password)
        if self._broker is None or not user:
            self._failed(address)
            raise HttpError(401, "the key is wrong" if self._key else "logins are not enabled here")
        answer = await self._broker.get("/clients", {"limit": "1"}, authorization)
        if answer.status not in (200, 403):
            self._broker.forget(authorization)
            self._failed(address)
            raise HttpError(401, "the user name or the password is wrong")
        return self._opened(_Session(user, authorization, 0.0, has_key=False))

    def log_out(self, request: HTTPConnection) -> None:
        """End the login that a request belongs to."""
        self.refuse_foreign_pages(request)
        session = self._sessions.pop(request.cookies.get(self._cookie, ""), None)
        if session is not None and self._broker is not None:
            self._broker.forget(session.authorization)
            self._known.pop(session.authorization, None)

    def cookie(self, token: str, *, is_secure: bool) -> str:
        """The header that has a browser keep a login; empty to forget it."""
        age_s = int(SESSION_S) if token else 0
        safe = "; Secure" if is_secure else ""
        kept = f"Max-Age={age_s}; Path=/; HttpOnly; SameSite=Strict{safe}"
        return f"{self._cookie}={token}; {kept}"

    def _opened(self, session: _Session) -> str:
        now = time.monotonic()
        self._sessions = {token: one for token, one in self._sessions.items() if one.until > now}
        if len(self._sessions) >= SESSIONS_MAX:
            raise HttpError(503, "too many are logged in", "try again later")
        token = secrets.token_urlsafe(32)
        session.until = now + SESSION_S
        self._sessions[token] = session
        return token

    def _session(self, request: HTTPConnection) -> _Session | None:
        session = self._sessions.get(request.cookies.get(self._cookie, ""))
        return session if session is not None and session.until > time.monotonic() else None

    def _refuse_guessing(self, address: str) -> None:
        failures = self._failures.get(address)
        while failures and failures[0] < time.monotonic() - FAILURES_OVER_S:
            failures.popleft()
        if failures is not None and len(failures) >= FAILURES_MAX:
            raise HttpError(429, "too many wrong passwords from there", "wait a minute")

    def _failed(self, address: str) -> None:
        if len(self._failures) >= ADDRESSES_MAX:
            self._failures.clear()
        self._failures.setdefault(address, deque(maxlen=FAILURES_MAX)).append(time.monotonic())


def is_local(request: HTTPConnection) -> bool:
    """Whether a request comes from this machine, and not through a proxy."""
    if request.client is None or not is_loopback(request.client.host):
        return False
    if any(name in request.headers for name in ("forwarded", "x-forwarded-for", "x-real-ip")):
        return False
    return is_loopback(requested_host(request.headers))
