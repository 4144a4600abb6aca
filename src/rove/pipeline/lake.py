"""The broker's lake as the pipeline reads it: which files there are, and who subscribed when.

Names of files say which positions they hold, so a stretch of the log is found without opening
anything. `position` is how far the lake is complete; whoever needs publications and events
together stops there. Listing costs 16 µs a file; folders that have not changed are not listed
again.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rove.errors import RoveError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

EMPTY_CHANNEL: Final = "__HIVE_DEFAULT_PARTITION__"
NOTHING: Final = -1
"""Below every position."""
_KEEPS: Final = {
    "notifications": "; a channel keeps them if its `keep` says so",
    "subscriptions": "; they are kept unless `subscriptions = false`",
}
_POLICY: Final = b'"event":"policy"'
"""Within a text, quotes would be escaped."""
_SETTLED_NS: Final = 2_000_000_000
_FILE_NAME: Final = re.compile(r"(\d+)-(\d+)\.parquet")
PUBLICATION_COLUMNS: Final = (
    "position",
    "at",
    "topic",
    "id",
    "client_id",
    "payload",
    "user",
    "qos",
)
PUBLICATION_SCHEMA: Final = (
    "position long, at timestamp, topic string, id string, client_id string, payload binary, "
    "user array<struct<name: string, value: string>>, qos tinyint, "
    "earlier array<string>, channel string, day string"
)
NOTIFICATION_SCHEMA: Final = f"{PUBLICATION_SCHEMA}, subscriptions array<long>"


class LakeError(RoveError):
    """There is no lake, or nothing in it that was asked for, or it cannot be read."""


class LakeFile(msgspec.Struct, frozen=True, order=True):
    """A finished file, by the positions that it holds."""

    first: int
    last: int
    path: Path
    kind: str
    channel: str
    day: str


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to subscriptions (docs/lake.md says what each means)."""

    position: int = NOTHING
    at: float = 0.0
    client_id: str = ""
    event: Literal["made", "ended", "state", "started"]
    number: int = 0
    filter: str = ""
    text: str = ""
    accepted_at: float = 0.0
    me: dict[str, object] = {}
    evolve: str = "exact"
    qos: int = 0
    no_local: bool = False
    share: str | None = None
    durable: bool = True
    engine: str = "broker"
    changes: dict[str, object] = {}
    lived_until: float = -math.inf
    """Of a start: the last moment that the log has of the life before."""


_EVENT: Final = msgspec.json.Decoder(Event)


class Lake:
    """A folder of Parquet files that a broker fills."""

    def __init__(self, folder: Path) -> None:
        """LakeError if there is no such folder."""
        self.folder = folder
        self._listed: dict[Path, tuple[int, list[LakeFile]]] = {}
        """By folder, when it last changed and what was in it then."""
        if not folder.is_dir():
            raise LakeError(
                f"there is no lake at {folder}; a broker writes one when its configuration has a "
                "channel under [lake]"
            )

    def position(self) -> int:
        """All rows up to this position are in finished files; -1 if there are none yet."""
        said = self.folder / "_position"
        try:
            return int(said.read_text(encoding="ascii"))
        except FileNotFoundError:
            return NOTHING
        except (OSError, ValueError) as error:
            raise LakeError(f"{said} does not hold a position: {error}") from error

    def channels(self, kind: str = "publications") -> list[str]:
        """The channels that have anything of a kind."""
        return sorted({channel_of(path.name) for path in (self.folder / kind).glob("channel=*")})

    def files(
        self,
        kind: str,
        after: int = NOTHING,
        up_to: int | None = None,
        channels: Collection[str] | None = None,
        days: tuple[str, str] | None = None,
    ) -> list[LakeFile]:
        """Files with positions above `after` and up to `up_to`, of days from and to, in order."""
        found: list[LakeFile] = []
        for folder in (self.folder / kind).glob("channel=*/day=*"):
            channel, day = channel_of(folder.parent.name), folder.name.removeprefix("day=")
            if channels is not None and channel not in channels:
                continue
            if days is not None and not days[0] <= day <= days[1]:
                continue
            found += [
                file
                for file in self._list(folder, kind, channel, day)
                if file.last > after and (up_to is None or file.first <= up_to)
            ]
        return sorted(found)

    def _list(self, folder: Path, kind: str, channel: str, day: str) -> list[LakeFile]:
        changed_ns = folder.stat().st_mtime_ns
        known = self._listed.get(folder)
        # Some clocks of file systems are coarse: what changed just now may change unnoticed.
        is_settled = time.time_ns() - changed_ns > _SETTLED_NS
        if known is not None and known[0] == changed_ns and is_settled:
            return known[1]
        files = [
            LakeFile(int(named[1]), int(named[2]), path, kind, channel, day)
            for path in folder.iterdir()
            if (named := _FILE_NAME.fullmatch(path.name))
        ]
        self._listed[folder] = (changed_ns, files)
        return files

    def last_moment(self, up_to: int) -> float:
        """The latest `at` of all rows up to a position; minus infinity if there are none."""
        moments = [-math.inf]
        for kind in ("publications", "notifications", "subscriptions"):
            for channel in self.channels(kind):
                for file in self.files(kind, up_to=up_to, channels=[channel])[-1:]:
                    found = pc.max(read_file(file, ["position", "at"], up_to=up_to)["at"])
                    moments.append(found.cast(pa.int64()).as_py() / 1e6)
        return max(moments)

    def events(self, after: int = NOTHING, up_to: int | None = None) -> Iterator[Event]:
        """What happened to subscriptions, in the order of positions; not to policies."""
        for file in self.files("subscriptions", after, up_to):
            table = read_file(file, ["position", "at", "client_id", "payload"], after, up_to)
            moments = table["at"].cast(pa.int64()).to_pylist()
            columns = (table[name].to_pylist() for name in ("position", "client_id", "payload"))
            for at_us, position, client_id, payload in zip(moments, *columns, strict=True):
                if _POLICY in payload:
                    continue
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
    ) -> DataFrame:
        """Publications as a DataFrame, no order implied; LakeError if there are none.

        What several of the channels keep comes once.
        """
        return self._rows(spark, "publications", PUBLICATION_SCHEMA, after, up_to, channels, days)

    def notifications(
        self,
        spark: SparkSession,
        *,
        after: int = NOTHING,
        up_to: int | None = None,
        channels: Collection[str] | None = None,
        days: tuple[str, str] | None = None,
    ) -> DataFrame:
        """Notifications likewise; `payload` is what the log says of them."""
        return self._rows(spark, "notifications", NOTIFICATION_SCHEMA, after, up_to, channels, days)

    def event_rows(self, spark: SparkSession, up_to: int | None = None) -> DataFrame:
        """What happened to subscriptions and policies, `payload` being the event as JSON."""
        return self._rows(spark, "subscriptions", PUBLICATION_SCHEMA, NOTHING, up_to, None, None)

    def _rows(
        self,
        spark: SparkSession,
        kind: str,
        schema: str,
        after: int,
        up_to: int | None,
        channels: Collection[str] | None,
        days: tuple[str, str] | None,
    ) -> DataFrame:
        files = self.files(kind, after, up_to, channels, days)
        if not files:
            raise LakeError(self._why_empty(kind, channels, days))
        rows = (
            spark.read.schema(schema)
            .option("basePath", str(self.folder / kind))
            .parquet(*[str(file.path) for file in files])
        )
        rows = rows.where(_is_first(channels)).drop("earlier")
        if after > NOTHING:
            rows = rows.where(rows["position"] > after)
        return rows if up_to is None else rows.where(rows["position"] <= up_to)

    def _why_empty(
        self, kind: str, channels: Collection[str] | None, days: tuple[str, str] | None
    ) -> str:
        there = self.channels(kind)
        if not there:
            keeps = _KEEPS.get(kind, "")
            return f"the lake {self.folder} has no {kind} yet{keeps}"
        unknown = sorted(set(channels or ()) - set(there))
        if unknown:
            return f"the lake has no channel {unknown[0]!r}; it has {', '.join(map(repr, there))}"
        when = f" from {days[0]} to {days[1]}" if days else " there"
        return f"the lake {self.folder} has no {kind}{when}"


def _is_first(channels: Collection[str] | None) -> Column:
    """Whether a row is the first of its publication in some channels, or in all."""
    from pyspark.sql import functions as f

    earlier = f.coalesce("earlier", f.array().cast("array<string>"))
    if channels is None:
        return f.size(earlier) == 0
    return ~f.arrays_overlap(earlier, f.array(*map(f.lit, channels)).cast("array<string>"))


def read_file(
    file: LakeFile, columns: list[str] | None = None, after: int = NOTHING, up_to: int | None = None
) -> Any:
    """The rows of a file above and up to a position, as an Arrow table."""
    try:
        # Not read_table: that would make columns of the folders' names.
        table = pq.ParquetFile(file.path).read(columns or list(PUBLICATION_COLUMNS))
    except (OSError, pa.ArrowException) as error:
        raise LakeError(f"cannot read {file.path}: {error}") from error
    if file.first <= after:
        table = table.filter(pc.greater(table["position"], after))
    if up_to is not None and file.last > up_to:
        table = table.filter(pc.less_equal(table["position"], up_to))
    return table


def channel_of(folder_name: str) -> str:
    """The channel that a folder `channel=…` is named after."""
    name = folder_name.removeprefix("channel=")
    return "" if name == EMPTY_CHANNEL else unquote(name)
