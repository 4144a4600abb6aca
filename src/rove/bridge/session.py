"""A session of the broker whose packet identifiers are made of offsets, and outlive this process.

Publications are QoS 2 and held: the broker's PUBREC is awaited for all of them, and PUBREL is sent
on request. In between the broker has the packet identifiers on disk, together with the effects of
the publications, and accepts none of them twice. Reconnecting and resending is up to the client
(`rove.client.connection`, `rove.client.session`).

A packet identifier is computed from the offset, so a record that is published again has the same
one. There are 65,535, and those in flight must differ: the offsets of a batch, and those of the
batch before it that may not be released yet, lie within half of that (`SPAN`). Offsets have gaps,
where records were compacted or transactions ended, so a batch is limited by offsets and not by
count alone.
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
from rove.client.session import ClientSession, Outgoing
from rove.mqtt.packets import Properties, Publish, Reason


class BridgeSession:
    """One session over successive connections."""

    def __init__(self, options: ClientOptions) -> None:
        self._protocol = ClientSession(options.settings())
        self._connection = PersistentConnection(options, self._protocol, self)
        self._unanswered = self._unreleased = 0
        self._held: list[Outgoing] = []
        self._changed = asyncio.Event()
        self._error: ClientError | None = None
        self.refusals: list[tuple[int, str]] = []
        """Packet identifiers that the broker has refused since the last release, and why."""
        self.was_forgotten = False
        """Whether the broker has lost the session."""
        self._expects_session = options.clean_start is False

    async def open(self, released: Sequence[int]) -> None:
        """Connect, and release packet identifiers that an earlier process may have left."""
        self._unreleased = len(released)
        self._protocol.release_earlier(released, self._was_released)
        await self._connection.open()

    async def close(self) -> None:
        """Disconnect; the session stays."""
        await self._connection.close(forget=False)

    def publish(self, packet_id: int, publication: BridgePublication) -> None:
        """Send a publication, and hold it."""
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
        """Wait until the broker has answered for all; accepted ones are held."""
        await self._until(lambda: self._unanswered == 0)

    def release(self) -> None:
        """Release the packet identifiers of held publications."""
        held, self._held = self._held, []
        self._unreleased += len(held)
        for outgoing in held:
            self._protocol.release(outgoing, self._was_released)
        self.refusals.clear()
        self._connection.flush_soon()

    async def released(self) -> None:
        """Wait until the broker has released all of them."""
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
"""Per partition; the broker's receive maximum is 1,000, and two batches may be in flight."""


def packet_id_of(offset: int) -> int:
    """The packet identifier of the record with an offset."""
    return offset % PACKET_IDS + 1


class Position(msgspec.Struct, frozen=True):
    """The progress of a partition."""

    next: int
    """The first offset that is not published."""
    unreleased: int
    """The broker may still hold packet identifiers from here to `next`."""

    def packet_ids(self) -> list[int]:
        """Packet identifiers that an earlier process may not have released."""
        return [packet_id_of(offset) for offset in range(self.unreleased, self.next)]


def cut(
    records: Iterable[KafkaRecord], batch_max: int = BATCH_MAX
) -> tuple[list[KafkaRecord], list[KafkaRecord]]:
    """Divide records of a partition into the next batch and the rest."""
    batch: list[KafkaRecord] = []
    rest: list[KafkaRecord] = []
    for record in records:
        fits = len(batch) < batch_max and (not batch or record.offset - batch[0].offset < SPAN)
        (batch if fits and not rest else rest).append(record)
    return batch, rest


def must_settle(position: Position, batch: list[KafkaRecord]) -> bool:
    """Whether everything earlier must be released, and recorded as such, before this batch."""
    return batch[-1].offset - position.unreleased >= SPAN
