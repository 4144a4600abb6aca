"""The last publications, so that somebody can ask what became of one.

The broker keeps no history; this is a short memory in place of one, for `/explain`. It holds
what a publication said and not the publication itself, because whoever holds that keeps it from
being over. Of a payload above `PAYLOAD_BYTES_MAX` only the size is remembered, so that the whole
takes 160 MB at worst with the default of 10,000.

Remembering costs about 0.3 µs per publication; a limit of 0 makes it nothing.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple
from weakref import ref

from rove.broker.publications.publication import Publication
from rove.mqtt.packets import Properties

PAYLOAD_BYTES_MAX = 16 * 1024


class Remembered(NamedTuple):
    """What is remembered of a publication."""

    id: str
    publisher: str
    topic: str
    payload: bytes | int
    """Only its size if it was too large to be remembered."""
    properties: Properties
    qos: int
    retain: bool
    at: float
    notified: int
    """How many sessions were notified when it came."""
    living: ref[Publication]
    """The publication itself, while a queue or the retained store has it."""

    @property
    def expires_at(self) -> float:
        expiry_s = self.properties.message_expiry_s
        return math.inf if expiry_s is None else self.at + expiry_s


class Recent:
    """A ring of the last publications."""

    def __init__(self, count_max: int) -> None:
        self._ring: deque[tuple[Any, ...]] = deque(maxlen=count_max)
        """Plain tuples: what has names takes three times as long to make."""
        self._is_on = count_max > 0

    def __len__(self) -> int:
        return len(self._ring)

    def add(self, one: Publication, notified: int) -> None:
        """Remember a publication, and how many were notified of it."""
        if self._is_on:
            payload: bytes | int = one.payload
            if len(one.payload) > PAYLOAD_BYTES_MAX:
                payload = len(one.payload)
            self._ring.append(
                (one.id, one.publisher, one.topic, payload, one.properties, one.qos, one.retain,
                 one.at, notified, ref(one))
            )  # fmt: skip

    def find(self, id: str) -> Remembered | None:
        """The last publication of that id, whoever published it."""
        found = (each for each in reversed(self._ring) if each[0] == id)
        return next((Remembered(*each) for each in found), None)

    def __iter__(self) -> Iterator[Remembered]:
        """The newest first."""
        return (Remembered(*each) for each in reversed(self._ring))
