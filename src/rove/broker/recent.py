"""The last publications, so that somebody can ask what became of one.

The broker keeps no history; this is a short memory in place of one, for `/explain`. It holds
what a publication said and not the publication itself, because whoever holds that keeps it from
being over. Of a payload above `PAYLOAD_BYTES_MAX` only the size is remembered, so that the whole
takes 160 MB at worst with the default of 10,000.

Remembering costs about half a microsecond per publication; a limit of 0 makes it nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple
from weakref import ref

from rove.broker.publications import Publication
from rove.mqtt.packets import Properties

PAYLOAD_BYTES_MAX = 16 * 1024


class Remembered(NamedTuple):
    """What is remembered of a publication."""

    id: str
    publisher: str
    topic: str
    payload: bytes | None
    """None if it was too large to be remembered."""
    payload_bytes: int
    properties: Properties
    qos: int
    retain: bool
    at: float
    expires_at: float
    valid_until: float | None
    notified: int
    """How many sessions were notified when it came."""
    living: ref[Publication]
    """The publication itself, while a queue or a keeper has it."""


class Recent:
    """A ring of the last publications."""

    def __init__(self, count_max: int) -> None:
        self._ring: deque[Remembered] = deque(maxlen=count_max)

    def __len__(self) -> int:
        return len(self._ring)

    def add(self, one: Publication, notified: int) -> None:
        """Remember a publication, and how many were notified of it."""
        if not self._ring.maxlen:
            return
        size = len(one.payload)
        self._ring.append(
            Remembered(
                one.id,
                one.publisher,
                one.topic,
                one.payload if size <= PAYLOAD_BYTES_MAX else None,
                size,
                one.properties,
                one.qos,
                one.retain,
                one.at,
                one.expires_at,
                one.valid_until,
                notified,
                ref(one),
            )
        )

    def find(self, id: str) -> Remembered | None:
        """The last publication of that id, whoever published it."""
        return next((one for one in reversed(self._ring) if one.id == id), None)

    def __iter__(self) -> Iterator[Remembered]:
        """The newest first."""
        return reversed(self._ring)
