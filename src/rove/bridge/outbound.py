"""From the broker's lake to a topic of Kafka.

The lake has every publication of a channel once, in the order of positions, whatever its QoS, and
keeps it for its retention time; the progress of Kafka is one number. So the bridge reads the lake
and is no subscriber: no queue fills up while it is down, and nothing depends on acknowledgements.
The price is a delay of about a second, until the broker has written a publication to the lake.

Up to `CHUNK_ROWS` publications are one transaction. A file of the lake is held in memory while it
is sent.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from rove.bridge.routes import BridgeConfig, BridgeRoute, RouteProgress
from rove.bridge.transactions import KafkaTransactions
from rove.bridge.translation import KafkaRecord, LakeRow, Translator
from rove.lake.log import COLUMNS, NOTHING, LakeLog, in_order

CHUNK_ROWS: Final = 5_000
_COLUMNS: Final = (*COLUMNS, "earlier")


class _StoredPosition(msgspec.Struct, frozen=True):
    """A position in the topic of positions."""

    position: int


class OutboundRoute:
    """One route; every method blocks."""

    def __init__(
        self,
        config: BridgeConfig,
        route: BridgeRoute,
        progress: RouteProgress,
        is_stopped: threading.Event,
    ) -> None:
        self._config, self._route, self._progress = config, route, progress
        self._translator = Translator(route, config.name)
        self._transactions = KafkaTransactions(config, route, is_stopped)
        self._log: LakeLog | None = None
        self._chunks: Iterator[tuple[int, list[LakeRow]]] = iter(())
        self._position = self._written = NOTHING

    def open(self) -> None:
        """Read the position."""
        self._log = LakeLog(self._config.lake)
        found = self._transactions.open().get(self._route.title)
        self._transactions.partitions()
        self._chunks = iter(())
        if found:
            self._position = self._written = msgspec.json.decode(
                found, type=_StoredPosition
            ).position
        else:
            # Written at once: the meaning of `latest` must not change with the next start.
            self._position = self._log.position() if self._route.start == "latest" else NOTHING
            self._write(())
        self._progress.position = self._position

    def step(self) -> bool:
        """Send one transaction; False if there was nothing to send."""
        assert self._log is not None, "open it first"
        chunk = next(self._chunks, None)
        if chunk is None:
            up_to = self._log.position()
            if up_to <= self._position:
                self._progress.is_at_end = True
                return False
            self._progress.is_at_end = False
            self._chunks = chunks(self._log, self._position, up_to, self._route.channels)
            chunk = next(self._chunks, (up_to, []))
        end, rows = chunk
        self._send(end, rows)
        return True

    def close(self) -> None:
        """Write the position, and close."""
        try:
            if self._position > self._written:
                self._write(())
        finally:
            self._transactions.close()

    def abandon(self) -> None:
        """Close without writing."""
        self._transactions.close()

    def _send(self, end: int, rows: list[LakeRow]) -> None:
        found = [self._translator.record(row) for row in rows]
        records = [record for record in found if record is not None]
        before, self._position = self._position, end
        if records:
            try:
                self._write(records)
            except BaseException:
                self._position = before
                raise
        progress = self._progress
        progress.read += len(rows)
        progress.sent += len(records)
        progress.left += len(rows) - len(records)
        progress.position = end

    def _write(self, records: Sequence[KafkaRecord]) -> None:
        stored = msgspec.json.encode(_StoredPosition(self._position))
        self._transactions.write(records, {self._route.title: stored})
        self._written = self._position


def chunks(
    log: LakeLog, after: int, up_to: int, channels: tuple[str, ...], rows_max: int = CHUNK_ROWS
) -> Iterator[tuple[int, list[LakeRow]]]:
    """Publications between two positions, in order and each once, with the end of each part."""
    files = log.files("publications", after, up_to, channels or None)
    while files:
        end = min(files[0].last, up_to)
        tables = [log.read(file, _COLUMNS, after, end) for file in files if file.first <= end]
        rows = list(rows_of(in_order(pa.concat_tables(tables)), channels))
        for begin in range(0, len(rows), rows_max):
            part = rows[begin : begin + rows_max]
            is_last = begin + rows_max >= len(rows)
            yield (end if is_last else part[-1].position), part
        after = end
        # A file may have been written or compacted since: later positions are for the next time.
        files = [file for file in files if file.last > after and after < up_to]
    yield up_to, []


def rows_of(table: pa.Table, channels: tuple[str, ...]) -> Iterator[LakeRow]:
    """A publication that several channels keep counts once: from the first of them."""
    among = set(channels)
    columns = {name: table[name] for name in _COLUMNS}
    columns["at"] = columns["at"].cast(pa.int64())
    for position, at_us, topic, id, client_id, payload, user, earlier in zip(
        *(
            columns[name].to_pylist()
            for name in ("position", "at", "topic", "id", "client_id", "payload", "user", "earlier")
        ),
        strict=True,
    ):
        if earlier and (not among or among.intersection(earlier)):
            continue
        pairs = tuple((each["name"], each["value"]) for each in user or ())
        yield LakeRow(position, at_us, topic, id or "", client_id or "", payload or b"", pairs)
