"""The broker's lake as the pipeline reads it: rows for Spark, and subscription events.

`rove.lake.log` lists the files and knows up to which position the log is complete. Spark reads rows
through its data source `rove` (`rove.pipeline.lake.data_source`), from any storage.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from rove.lake.log import COLUMNS, NOTHING, LakeLog, LogFile
from rove.lake.storage import LakeError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["NOTHING", "Event", "Lake", "LakeError", "LogFile"]

_POLICY: Final = '"event":"policy"'
STATE: Final = '"event":"state"'
"""Occurs only as a member of an event: within a string, the quotes would be escaped."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the log of subscriptions (described in docs/lake.md)."""

    position: int = NOTHING
    at: float = 0.0
    client_id: str = ""
    event: Literal["made", "ended", "state", "started"]
    number: int = 0
    filter: str = ""
    text: str = ""
    accepted_at: float = 0.0
    me: dict[str, object] = {}
    no_local: bool = False
    share: str | None = None
    durable: bool = True
    engine: str = "broker"
    changes: dict[str, object] = {}
    lived_until: float = -math.inf
    """In `started`: the last moment in the log of the broker's previous life."""


_EVENT: Final = msgspec.json.Decoder(Event)


class Lake(LakeLog):
    """A broker's lake."""

    def last_moment(self, up_to: int) -> float:
        """The latest `at` of all rows up to a position; minus infinity if there are none."""
        moments = [-math.inf]
        for kind in ("publications", "notifications", "subscriptions"):
            for channel in self.channels(kind):
                for file in self.files(kind, up_to=up_to, channels=[channel])[-1:]:
                    found = pc.max(self.read(file, ["position", "at"], up_to=up_to)["at"])
                    moments.append(found.cast(pa.int64()).as_py() / 1e6)
        return max(moments)

    def events(
        self,
        after: int = NOTHING,
        up_to: int | None = None,
        states_of: Collection[str] | None = None,
    ) -> Iterator[Event]:
        """Events of subscriptions and states (not of policies), in the order of positions.

        With `states_of`, only states of these clients; skipping the others costs next to nothing.
        """
        names = ("position", "client_id", "payload")
        for file in self.files("subscriptions", after, up_to):
            table = self.read(file, [*names, "at"], after, up_to)
            table = table.filter(_is_wanted_event(table, states_of))
            moments = table["at"].cast(pa.int64()).to_pylist()
            columns = (table[name].to_pylist() for name in names)
            for at_us, position, client_id, payload in zip(moments, *columns, strict=True):
                try:
                    event = _EVENT.decode(payload)
                except msgspec.MsgspecError as error:
                    raise LakeError(f"{file.path}, position {position}: {error}") from error
                lived_until = (
                    self.last_moment(position - 1) if event.event == "started" else -math.inf
                )
                yield msgspec.structs.replace(
                    event,
                    position=position,
                    at=at_us / 1e6,
                    client_id=client_id,
                    lived_until=lived_until,
                )

    def publications(
        self,
        spark: SparkSession,
        *,
        after: int = NOTHING,
        up_to: int | None = None,
        channels: Collection[str] | None = None,
        days: tuple[str, str] | None = None,
        columns: Collection[str] = COLUMNS,
        content: Literal["rows", "slices"] = "rows",
    ) -> DataFrame:
        """Publications as a DataFrame, no order implied; LakeError if there are none.

        A publication that several of the channels keep comes once. With `slices`, tasks read the
        rows themselves (`rove.pipeline.lake.data_source.rows_of`), without the JVM.
        """
        return self._rows(spark, "publications", columns, after, up_to, channels, days, content)

    def notifications(
        self,
        spark: SparkSession,
        *,
        after: int = NOTHING,
        up_to: int | None = None,
        channels: Collection[str] | None = None,
        days: tuple[str, str] | None = None,
    ) -> DataFrame:
        """Notifications as a DataFrame; `payload` is the entry of the log as JSON."""
        columns = (*COLUMNS, "subscriptions")
        return self._rows(spark, "notifications", columns, after, up_to, channels, days)

    def event_rows(
        self,
        spark: SparkSession,
        up_to: int | None = None,
        columns: Collection[str] = COLUMNS,
        content: Literal["rows", "slices"] = "rows",
    ) -> DataFrame:
        """Events of subscriptions and policies as a DataFrame; `payload` is the event as JSON."""
        return self._rows(spark, "subscriptions", columns, NOTHING, up_to, None, None, content)

    def _rows(
        self,
        spark: SparkSession,
        kind: str,
        columns: Collection[str],
        after: int,
        up_to: int | None,
        channels: Collection[str] | None,
        days: tuple[str, str] | None,
        content: str = "rows",
    ) -> DataFrame:
        from rove.base.processes import cores
        from rove.pipeline.lake.data_source import NAME, register

        if not self.files(kind, after, up_to, channels, days):
            raise LakeError(self.why_empty(kind, channels, days))
        options: dict[str, object] = {"lake": self.uri, "kind": kind, "start": after}
        options |= {"columns": ",".join(columns), "content": content, "slices": 4 * cores()}
        if up_to is not None:
            options["end"] = up_to
        if channels is not None:
            options["channels"] = msgspec.json.encode(sorted(channels)).decode()
        if days is not None:
            options["days"] = msgspec.json.encode(days).decode()
        register(spark)
        return spark.read.format(NAME).options(**options).load()


def _is_wanted_event(rows: pa.Table, states_of: Collection[str] | None) -> Any:
    """Which rows are events that the caller wants."""
    payloads = rows["payload"]
    is_event = pc.invert(pc.match_substring(payloads, _POLICY))
    if states_of is None:
        return is_event
    is_wanted = pc.is_in(rows["client_id"], pa.array(list(states_of), pa.string()))
    is_state = pc.match_substring(payloads, STATE)
    return pc.and_(is_event, pc.or_(pc.invert(is_state), is_wanted))
