"""Policies at work on the past, for Spark's workers: rows of the log in, decisions out, as Arrow.

Apart from `rove.pipeline.policies.replay` because a worker has to import it: there is no compiled
kernel behind this, and to load those would take longer than many a job.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import pyarrow as pa

from rove.lake.log import SCHEMA
from rove.pipeline.policies.deciding import Decided, Recorded, Row, Supposed
from rove.pipeline.spark.workers import in_worker
from rove.policy.limits import PolicyLimits

_ROWS_MAX: Final = 256
_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of one batch of results."""
_AT: Final = SCHEMA.field("at").type
DECISIONS: Final = pa.schema(
    [
        *map(SCHEMA.field, ("position", "at", "client_id")),
        pa.field("subscription", pa.int64()),
        pa.field("published", pa.int64()),
        *map(SCHEMA.field, ("id", "topic")),
        pa.field("verdict", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("logged", pa.string()),
        pa.field("steps", pa.int64()),
        pa.field("bytes_in", pa.int64()),
        pa.field("number", pa.int32()),
        pa.field("bytes_out", pa.int64()),
        *map(SCHEMA.field, ("payload", "user")),
    ]
)
ROW: Final = (
    "bucket",
    "position",
    "at",
    "client_id",
    "told",
    "is_event",
    "topic",
    "id",
    "user",
    "numbers",
    "published",
    "payload",
    "is_last",
)


class Work(msgspec.Struct, frozen=True):
    """What workers are told."""

    text: str | None
    """None for the policies that there were."""
    limits: PolicyLimits | None
    payloads: bool


@in_worker
def decide(work: Work, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run a bucket; its rows come in order."""
    agents = Recorded(work.limits) if work.text is None else Supposed(work.text, work.limits)
    results = _Results(payloads=work.payloads)
    for batch in batches:
        for decided in agents.take(_rows(batch)):
            results.add(decided)
            if results.is_full:
                yield results.batch()
    yield results.batch()


def _rows(batch: pa.RecordBatch) -> Iterator[Row]:
    names = ROW[1:]
    moments = batch["at"].cast(_AT).cast(pa.int64())
    columns = {name: batch[name] for name in names} | {"at": moments}
    for first in range(0, batch.num_rows, _ROWS_MAX):
        part = (columns[name].slice(first, _ROWS_MAX).to_pylist() for name in names)
        for (
            position, at_us, client_id, told, is_event, topic, id, user, numbers, published,
            payload, is_last,
        ) in zip(*part, strict=True):  # fmt: skip
            if is_event:
                yield Row(position, at_us, client_id, told.encode(), True)
                continue
            pairs = tuple((one["name"], one["value"]) for one in user or ())
            yield Row(
                position, at_us, client_id, told.encode(), False, topic, id, pairs,
                tuple(numbers or ()), published, payload, is_last,
            )  # fmt: skip


class _Results:
    """Decisions on their way back to Spark."""

    def __init__(self, *, payloads: bool) -> None:
        self._payloads = payloads
        self._rows: list[tuple[object, ...]] = []
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return self._bytes > _BYTES_MAX or len(self._rows) > 100 * _ROWS_MAX

    def add(self, decided: Decided) -> None:
        row = decided.row
        head = (
            row.position,
            row.at_us,
            row.client_id,
            decided.subscription,
            row.published,
            row.id,
            row.topic,
            decided.verdict,
            decided.kind,
            decided.logged,
            decided.steps,
            decided.size_bytes,
        )
        for number, sent in enumerate(decided.outputs):
            payload = sent.payload if self._payloads else None
            self._rows.append((*head, number, len(sent.payload), payload, _named(sent.user)))
            self._bytes += len(sent.payload) if self._payloads else 0
        if not decided.outputs:
            self._rows.append((*head, None, None, None, None))

    def batch(self) -> pa.RecordBatch:
        columns = zip(*self._rows, strict=True) if self._rows else ((),) * len(DECISIONS)
        arrays = [
            pa.array(list(values), pa.int64()).cast(_AT)
            if field.name == "at"
            else pa.array(list(values), field.type)
            for field, values in zip(DECISIONS, columns, strict=True)
        ]
        self._rows, self._bytes = [], 0
        return pa.RecordBatch.from_arrays(arrays, schema=DECISIONS)


def _named(user: tuple[tuple[str, str], ...]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in user]
