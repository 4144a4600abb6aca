"""Towards the broker: which records are published together, and under which packet identifiers.

A packet identifier is made of the offset, so whoever publishes a record again says the same. There
are 65,535, and what is under way must not share one: the offsets of a batch, with those of the
batch before it that may not be released yet, lie within half of that (`SPAN`). Offsets have gaps,
where records were compacted away or transactions ended; so a batch is cut by offset and not by
count alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from rove.bridge.translation import KafkaRecord

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
