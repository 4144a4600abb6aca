"""One connection to a broker, without the library's queues and tasks: for the world and for loads.

A `DirectConnection` is the socket and the timer of one `rove.client.protocol.Protocol`. It is never
reopened: after a lost connection the measurement of a load is invalid, and a player has lost its
place in the world. So failures are errors, raised where somebody waits, or else in `failed`.

Considered: `rove.client`. A notification costs its process 14 to 22 µs there and 5 µs here (100
connections of one process, the system's share included, on a busy machine).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar, cast

from rove.client.errors import in_words
from rove.client.protocol import (
    Ended,
    Event,
    Opened,
    Protocol,
    ProtocolSettings,
    PublishReceived,
    Request,
    Response,
    words,
)
from rove.client.session import reason_of
from rove.errors import RoveError
from rove.mqtt.packets import Puback, Publish, Reason, Suback

_CONNECTING_AT_ONCE: Final = 50

Some = TypeVar("Some")


class DirectConnection(asyncio.Protocol):
    """Sends what it is given, and says what came."""

    error: type[RoveError] = RoveError
    """What everything that goes wrong is raised as."""

    def __init__(
        self, settings: ProtocolSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.client_id = settings.client_id
        self._clock = clock
        self.protocol = Protocol(settings)
        self.transport: asyncio.Transport | None = None
        self._unanswered = 1
        """CONNECT, and what was asked."""
        self._settled: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_leaving = False

    # -- for derived classes -------------------------------------------------------------------

    def arrived(self, publish: Publish, now: float) -> None:
        """A notification has come."""

    def failed(self, error: RoveError) -> None:
        """Something is wrong and nobody waits for an answer."""
        raise error

    # -- sending -------------------------------------------------------------------------------

    def ask(self, request: Request) -> None:
        """Send a request with the next flush; that the broker refuses it is an error."""
        self._unanswered += 1
        self.protocol.ask(request, self._was_answered)

    def flush(self) -> None:
        """Send what was collected, at once."""
        data = self.protocol.output(self._clock())
        if data and self.transport is not None:
            self.transport.write(data)

    async def settle(self) -> None:
        """Send what was collected, and wait until the broker has answered everything."""
        self.flush()
        if self._unanswered:
            self._settled = asyncio.get_running_loop().create_future()
            try:
                await self._settled
            finally:
                self._settled = None

    def close(self) -> None:
        """Send what was collected and DISCONNECT, and close the connection."""
        self._is_leaving = True
        self._cancel_timer()
        if self.transport is not None:
            self.protocol.disconnect()
            self.flush()
            self.transport.close()

    def take_bytes(self, take: Callable[[bytes], None]) -> None:
        """From now on pass the bytes that come to a function, which decodes what it needs."""
        self.protocol.reader = _Taker(take)

    # -- asyncio's side ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is not derived from it
        self.protocol.open(self._clock())
        self.flush()
        self._set_timer()

    def data_received(self, data: bytes) -> None:
        now = self._clock()
        if events := self.protocol.receive(data, now):
            self._handle(events, now)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._cancel_timer()
        self.protocol.lose()
        if not self._is_leaving:
            self._fail(f"the connection of {self.client_id} was lost: {error or 'end'}")

    def _handle(self, events: Sequence[Event], now: float) -> None:
        for event in events:
            if type(event) is PublishReceived:
                self.arrived(event.publish, now)
            elif isinstance(event, Opened):
                self._has_answer()
                self._set_timer()
            elif isinstance(event, Ended):
                self.flush()
                what = "was not let in" if event.refused else "was sent away"
                self._fail(f"{self.client_id} {what}: {event.text or in_words(event.reason, None)}")

    def _was_answered(self, response: Response) -> None:
        reason = reason_of(response)
        if reason >= Reason.UNSPECIFIED_ERROR:
            verb = _VERBS.get(type(response), "unsubscribe")
            why = words(response.properties) or in_words(reason, None)
            self._fail(f"{self.client_id} may not {verb}: {why}")
        self._has_answer()

    def _has_answer(self) -> None:
        self._unanswered -= 1
        if not self._unanswered and self._settled is not None and not self._settled.done():
            self._settled.set_result(None)

    def _fail(self, why: str) -> None:
        self._is_leaving = True
        error = self.error(why)
        if self._settled is not None and not self._settled.done():
            self._settled.set_exception(error)
        else:
            self.failed(error)

    # -- time ----------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        self._cancel_timer()
        delay_s = self.protocol.wake_at() - self._clock()
        if delay_s != float("inf"):
            self._timer = asyncio.get_running_loop().call_later(max(0.0, delay_s), self._tick)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        now = self._clock()
        self._handle(self.protocol.advance(now), now)
        self.flush()
        if not self._is_leaving:
            self._set_timer()


_VERBS: Final = {Suback: "subscribe", Puback: "publish"}


class _Taker:
    """A reader that decodes nothing."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take

    def feed(self, data: bytes) -> tuple[()]:
        self._take(data)
        return ()


def ignore(data: bytes) -> None:
    """To `take_bytes`: nothing looks at what comes."""


async def some_at_a_time(
    connections: Sequence[Some], connect: Callable[[Some], Awaitable[None]]
) -> None:
    """Connect them; a broker's backlog is short."""
    for begin in range(0, len(connections), _CONNECTING_AT_ONCE):
        some = connections[begin : begin + _CONNECTING_AT_ONCE]
        await asyncio.gather(*map(connect, some))
