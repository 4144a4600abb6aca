"""A session of the broker under packet identifiers of our own, which outlives this process.

Publications are QoS 2 and held: the broker's PUBREC is awaited for all of them, and PUBREL is sent
when somebody says so. In between the broker has the packet identifiers on disk, together with what
the publications have caused, and takes none of them twice. Coming back after a loss, and sending
again what was not answered, is the client's (`rove.client.connection`, `rove.client.session`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import msgspec

from rove.bridge.translation import BridgePublication, KafkaRecord
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


PACKET_IDS: Final = 65_535
SPAN: Final = PACKET_IDS // 2
BATCH_MAX: Final = 500
"""Of a partition; the broker's receive maximum is 1,000, and two batches may be under way."""


def packet_id_of(offset: int) -> int:
    """The packet identifier under which the record of an offset is published."""
    return offset % PACKET_IDS + 1


class Position(msgspec.Struct, frozen=True):
    """How far a partition is published."""

    next: int
    """The first offset that is not."""
    unreleased: int
    """From here to `next`, the broker may still hold packet identifiers."""

    def packet_ids(self) -> list[int]:
        """Those that an earlier process may not have released."""
        return [packet_id_of(offset) for offset in range(self.unreleased, self.next)]


def cut(
    records: Iterable[KafkaRecord], batch_max: int = BATCH_MAX
) -> tuple[list[KafkaRecord], list[KafkaRecord]]:
    """The records of one partition that make the next batch, and those that come after it."""
    batch: list[KafkaRecord] = []
    rest: list[KafkaRecord] = []
    for record in records:
        fits = len(batch) < batch_max and (not batch or record.offset - batch[0].offset < SPAN)
        (batch if fits and not rest else rest).append(record)
    return batch, rest


def must_settle(position: Position, batch: list[KafkaRecord]) -> bool:
    """Whether all that came before has to be released, and that written down, before this batch."""
    return batch[-1].offset - position.unreleased >= SPAN
