"""Rows of a DataFrame as publications: `df.write.format("rove")`, and `df.writeStream` likewise.

    df.write.format("rove").mode("append").option("topic", "air/daily").save("mqtt://host:1883")

Each task connects to the broker and publishes its rows in their order; it ends when the broker has
acknowledged all of them. The topic of a row is its column `topic` or the option, its payload the
column `payload` or else the other columns as a JSON object without NULLs.

**At least once.** Spark may retry a task, or a batch of a stream. A column `id` identifies a
publication, so that a subscriber can recognize a repeat. Without one the broker generates ids, and
a repeat gets another.

Some 10,000 rows/s a task; most of the time is spent waiting for acknowledgements.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from rove.client import connect
from rove.client.addresses import parse_address
from rove.client.errors import ClientError
from rove.errors import RoveError

TOPIC: Final = "topic"
PAYLOAD: Final = "payload"
ID: Final = "id"
PASSWORD_VARIABLE: Final = "ROVE_PASSWORD"
_IN_FLIGHT_MAX: Final = 1_000
"""Publications that the broker has not acknowledged."""


class PublishingError(RoveError):
    """Rows that cannot be published, or a broker that refuses them."""


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a query, checked."""

    broker: str
    topic: str = ""
    """For rows without a column `topic`."""
    qos: int = 1
    retain: bool = False
    user: str | None = None
    password: str | None = None
    columns: tuple[str, ...] = ()

    @classmethod
    def read(cls, options: Mapping[str, str], columns: list[str]) -> SinkOptions:
        """Options as Spark has them, and the columns of the table."""
        found = {name.lower(): value for name, value in options.items()}
        if "path" in found:  # what `.save(path)` says
            found["broker"] = found.pop("path")
        if "broker" not in found:
            raise PublishingError('give the address of the broker: .save("mqtt://host:1883")')
        found.pop("checkpointlocation", None)
        try:
            settings = msgspec.convert({**found, "columns": columns}, cls, strict=False)
        except msgspec.ValidationError as error:
            raise PublishingError(f"an option is wrong: {error}") from error
        parse_address(settings.broker)
        if settings.qos not in (1, 2):
            raise PublishingError(f"qos {settings.qos} has no acknowledgement; choose 1 or 2")
        if not settings.topic and TOPIC not in columns:
            raise PublishingError('give a topic: a column "topic", or the option of that name')
        password = settings.password or os.environ.get(PASSWORD_VARIABLE)
        return msgspec.structs.replace(settings, password=password)


class RowPublication(msgspec.Struct, frozen=True):
    """The publication that a row becomes."""

    topic: str
    payload: bytes
    id: str | None


def publications(batch: pa.RecordBatch, settings: SinkOptions) -> Iterator[RowPublication]:
    """The rows of a batch; PublishingError names one that has no topic."""
    others = [name for name in batch.schema.names if name not in (TOPIC, PAYLOAD, ID)]
    for row in batch.to_pylist():
        topic = row.get(TOPIC) or settings.topic
        if not topic:
            raise PublishingError(f"a row has no topic: {row}")
        id = row.get(ID)
        yield RowPublication(topic, _payload(row, others), None if id is None else str(id))


def _payload(row: Mapping[str, Any], others: list[str]) -> bytes:
    if PAYLOAD in row:
        payload = row[PAYLOAD]
        return payload.encode() if isinstance(payload, str) else bytes(payload or b"")
    return msgspec.json.encode({name: row[name] for name in others if row[name] is not None})


async def publish_all(batches: Iterator[pa.RecordBatch], settings: SinkOptions) -> int:
    """Publish all rows and wait for their acknowledgements; returns how many there were."""
    count = 0
    opening = connect(
        settings.broker,
        user_name=settings.user,
        password=settings.password,
        outbox_max=_IN_FLIGHT_MAX,
    )
    async with opening as client:
        waiting: list[asyncio.Future[Any]] = []
        for batch in batches:
            for one in publications(batch, settings):
                posted = await client.post(
                    one.topic, one.payload, qos=settings.qos, retain=settings.retain, id=one.id
                )
                waiting.append(posted)
                count += 1
                if len(waiting) >= _IN_FLIGHT_MAX:
                    await asyncio.gather(*waiting)
                    waiting.clear()
        await asyncio.gather(*waiting)
    return count


class TaskCommit(WriterCommitMessage):  # type: ignore[misc]
    """What a task reports to the driver."""

    def __init__(self, rows: int) -> None:
        self.rows = rows


class _SinkWriter:
    def __init__(self, settings: SinkOptions) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Publish the rows of a task."""
        try:
            return TaskCommit(asyncio.run(publish_all(iterator, self._settings)))
        except ClientError as error:
            where = parse_address(self._settings.broker)
            raise PublishingError(
                f"{where.host}:{where.port} does not accept the rows: {error}"
            ) from error

    def commit(self, *_: Any) -> None:
        """There is nothing to commit: the tasks have published their rows."""

    def abort(self, *_: Any) -> None:
        """Publications cannot be taken back."""


class BrokerWriter(_SinkWriter, DataSourceArrowWriter):  # type: ignore[misc]
    """Writes a table."""


class BrokerStreamWriter(_SinkWriter, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes a stream."""
