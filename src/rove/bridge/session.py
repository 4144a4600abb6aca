"""A session of the broker under packet identifiers of our own, which outlives this process.

Publications are QoS 2 and held: the broker's PUBREC is awaited for all of them, and PUBREL is sent
when somebody says so. In between the broker has the packet identifiers on disk, together with what
the publications have caused, and takes none of them twice. Coming back after a loss, and sending
again what was not answered, is the client's (`rove.client.connection`, `rove.client.session`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from rove.bridge.translation import BridgePublication
from rove.client.connection import PersistentConnection
from rove.client.errors import ClientError, in_words
from rove.client.options import ClientOptions
from rove.client.protocol import DeliveryToken
from rove.client.session import ClientSession as ClientSession
from rove.client.session import Outgoing
from rove.mqtt.packets import Properties, Publish, Reason


class BridgeSession:
    """One connection after the other, in one session."""

    def __init__(self, options: ClientOptions) -> None:
        self._protocol = ClientSession(options.settings())
        self._connection = PersistentConnection(options, self._protocol, self)
        self._unanswered = self._unreleased = 0
        self._held: list[Outgoing] = []
        self._changed = asyncio.Event()
        self._error: ClientError | None = None
        self.refusals: list[tuple[int, str]] = []
        """Packet identifiers of what the broker refused since the last release, and why."""
        self.was_forgotten = False
        """The broker did not know the session any more."""
        self._expects_session = options.clean_start is False

    async def open(self, released: Sequence[int]) -> None:
        """Connect; `released` are packet identifiers that an earlier process may have left."""
        self._unreleased = len(released)
        self._protocol.release_earlier(released, self._was_released)
        await self._connection.open()

    async def close(self) -> None:
        """Go; the session stays."""
        await self._connection.close(forget=False)

    def publish(self, packet_id: int, publication: BridgePublication) -> None:
        """Send it, and hold it."""
        properties = Properties(user=publication.user)
        packet = Publish(
            publication.topic,
            publication.payload,
            qos=2,
            packet_id=packet_id,
            properties=properties,
        )
        outgoing = Outgoing(packet, lambda reason, text: None, holds=True)
        outgoing.answered = partial(self._was_answered, outgoing)
        self._unanswered += 1
        self._protocol.publish(outgoing)
        self._connection.flush_if_much()

    async def received(self) -> None:
        """Wait until the broker has answered for all; those that it has are held."""
        await self._until(lambda: self._unanswered == 0)

    def release(self) -> None:
        """Let the broker forget the packet identifiers of what is held."""
        held, self._held = self._held, []
        self._unreleased += len(held)
        for outgoing in held:
            self._protocol.release(outgoing, self._was_released)
        self.refusals.clear()
        self._connection.flush_soon()

    async def released(self) -> None:
        """Wait until the broker has forgotten all that was released."""
        await self._until(lambda: self._unreleased == 0)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            if self._error is not None:
                raise self._error
            self._changed.clear()
            await self._changed.wait()

    def _was_answered(self, outgoing: Outgoing, reason: int, text: str | None) -> None:
        self._unanswered -= 1
        if reason >= Reason.UNSPECIFIED_ERROR:
            self.refusals.append((outgoing.publish.packet_id, in_words(reason, text)))
        else:
            self._held.append(outgoing)
        self._changed.set()

    def _was_released(self, reason: int, text: str | None) -> None:
        self._unreleased -= 1
        self._changed.set()

    # -- for the connection --------------------------------------------------------------------

    def arrived(self, publish: Publish, delivery: DeliveryToken | None) -> None:
        """Nothing was subscribed to."""

    def opened(self, session_present: bool) -> Sequence[Outgoing]:
        if self._expects_session and not session_present:
            self.was_forgotten = True
        self._expects_session = True
        return ()

    def finished(self, error: ClientError) -> None:
        self._error = error
        self._changed.set()
