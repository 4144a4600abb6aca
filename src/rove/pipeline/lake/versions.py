"""Versions of subscriptions: each holds between two positions of the log.

A subscription becomes a *version*: an expression, the initial state of its subscriber, and the
positions between which it holds. So the matches of a publication depend only on its position, and a
log of any length can be matched in any order, by any number of workers. Later changes of the state
are separate data (`rove.pipeline.lake.followers`).

An event costs a microsecond or two.
"""

from __future__ import annotations

import functools
import urllib.error
import urllib.request
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from rove.base.http import basic_authorization
from rove.errors import RoveError
from rove.lang.errors import LanguageError
from rove.lang.parser import parse
from rove.lang.replay import SubscriptionRecord, read_subscription
from rove.lang.tree import Me, walk
from rove.mqtt.topics import split_shared
from rove.pipeline.lake.log import NOTHING, Event

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOR_EVER: Final = 2**63 - 1
ANY_TOPIC: Final = ""
_PAGE: Final = 1_000


class VersionsError(RoveError):
    """Subscriptions that cannot be read."""


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription, with the positions between which it holds."""

    number: int
    text: str
    """The expression; empty if the topic filter is the only condition."""
    filter: str = ANY_TOPIC
    accepted_at: float = 0.0
    me: dict[str, object] = {}
    """The state of its subscriber at its first position."""
    since: int = NOTHING
    """It holds for publications above this position."""
    until: int = FOR_EVER
    """It holds for publications up to this position."""
    client_id: str = ""
    no_local: bool = False
    share: str | None = None
    engine: str = "broker"


@functools.lru_cache(maxsize=65_536)
def state_variables(text: str) -> frozenset[str]:
    """The variables of the subscriber's state that the condition of an expression uses."""
    if "me" not in text:
        return frozenset()
    try:
        condition = parse(text, accepted=True).condition
    except LanguageError:
        return frozenset()  # adding it to an index raises
    return frozenset(part.path[0] for part in walk(condition) if type(part) is Me)


class Timeline:
    """Turns events, in the order of positions, into versions."""

    def __init__(self, engine: str | None = None) -> None:
        """With an engine, only subscriptions that it serves."""
        self._engine = engine
        self._open: dict[int, Version] = {}
        self._durable: set[int] = set()
        self._of_client: dict[str, dict[int, Version]] = {}
        """Active versions that use their subscriber's state, by client and number."""
        self.position = NOTHING
        """The position of the last event."""

    def __len__(self) -> int:
        return len(self._open)

    def open(self) -> list[Version]:
        """The active versions."""
        return list(self._open.values())

    def asking(self, client_id: str) -> Collection[Version]:
        """The active versions that use the state of a client."""
        return self._of_client.get(client_id, {}).values()

    def durable(self) -> list[int]:
        """The numbers of those that survive a restart of the broker."""
        return list(self._durable)

    def go_on(self, position: int, versions: Iterable[Version], durable: Iterable[int]) -> None:
        """Start from the active versions at a position."""
        self.position = position
        kept = set(durable)
        for version in versions:
            self._add(version, durable=version.number in kept)

    def take(self, event: Event) -> tuple[list[Version], list[Version]]:
        """Apply an event; returns the versions that end (with `until` set) and that begin."""
        self.position = event.position
        match event.event:
            case "made":
                return [], self._make(event)
            case "ended":
                return self._end([event.number], event.position), []
            case "started":
                numbers = [number for number in self._open if number not in self._durable]
                return self._end(numbers, event.position), []
            case "state":
                return [], []

    def _make(self, event: Event) -> list[Version]:
        # A log may have it twice: when it was made, and when a new log was started.
        if event.number in self._open or self._engine not in (None, event.engine):
            return []
        made = Version(
            number=event.number,
            text=event.text,
            filter=event.filter,
            accepted_at=event.accepted_at,
            me=event.me,
            since=event.position,
            client_id=event.client_id,
            no_local=event.no_local,
            share=event.share,
            engine=event.engine,
        )
        self._add(made, durable=event.durable)
        return [made]

    def _add(self, version: Version, *, durable: bool) -> None:
        self._open[version.number] = version
        if durable:
            self._durable.add(version.number)
        if state_variables(version.text):
            self._of_client.setdefault(version.client_id, {})[version.number] = version

    def _end(self, numbers: Iterable[int], position: int) -> list[Version]:
        ended = []
        for number in numbers:
            version = self._open.pop(number, None)
            if version is None:
                continue  # another engine's
            self._durable.discard(number)
            asking = self._of_client.get(version.client_id, {})
            asking.pop(number, None)
            if not asking:
                self._of_client.pop(version.client_id, None)
            ended.append(msgspec.structs.replace(version, until=position))
        return ended


def versions_of(events: Iterable[Event]) -> list[Version]:
    """All versions in a range of events, which must be in order."""
    timeline = Timeline()
    closed: list[Version] = []
    for event in events:
        closed += timeline.take(event)[0]
    return closed + timeline.open()


def from_file(path: Path) -> tuple[list[Version], list[str]]:
    """Versions from JSON lines as for `rove match`, numbered from 0; and their names."""
    versions: list[Version] = []
    names: list[str] = []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise VersionsError(f"cannot read {path}: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = read_subscription(line)
        except LanguageError as error:
            raise VersionsError(f"{path}, line {number}: {error}") from error
        names.append(str(number if record.id is None else record.id))
        versions.append(_of_record(len(versions), record))
    return versions, names


def _of_record(number: int, record: SubscriptionRecord) -> Version:
    return Version(number=number, text=record.filter, accepted_at=record.at, me=record.me)


def from_table(table: DataFrame) -> list[Version]:
    """Versions from a table with the column `text` and perhaps other fields of `Version`."""
    known = [name for name in Version.__struct_fields__ if name in table.columns]
    if "text" not in known:
        raise VersionsError(f"a table of subscriptions needs a column text; it has {table.columns}")
    rows = table.select(*known).collect()
    return [_of_row(number, row.asDict(recursive=True)) for number, row in enumerate(rows)]


def _of_row(number: int, row: Mapping[str, Any]) -> Version:
    values = {name: value for name, value in row.items() if value is not None}
    try:
        return msgspec.convert({"number": number, **values}, Version)
    except msgspec.ValidationError as error:
        raise VersionsError(f"row {number} of the subscriptions: {error}") from error


def from_broker(url: str, password: str | None = None, user: str | None = None) -> list[Version]:
    """The subscriptions of a running broker, over HTTP (`http://127.0.0.1:8080`)."""
    pages = _pages(url.rstrip("/"), _authorised(user, password))
    return [_of_view(view) for page in pages for view in page]


def _of_view(view: Mapping[str, Any]) -> Version:
    shared = split_shared(view["topic"])
    share, topic_filter = shared if shared is not None else (None, view["topic"])
    return Version(
        number=view["number"],
        text=view["filter"],
        filter=topic_filter,
        accepted_at=view["accepted_at"],
        client_id=view["client"],
        no_local=view["no_local"],
        share=share,
        me=view["me"],
        engine=view["engine"],
    )


def _pages(url: str, headers: Mapping[str, str]) -> Iterator[Sequence[Mapping[str, Any]]]:
    after: int | None = 0
    while after is not None:
        address = f"{url}/subscriptions?after={after}&limit={_PAGE}"
        request = urllib.request.Request(address, headers=dict(headers))
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                page = msgspec.json.decode(answer.read())
        except urllib.error.HTTPError as error:
            raise VersionsError(f"{address} answered {error.code}: {error.reason}") from error
        except (OSError, msgspec.DecodeError) as error:
            raise VersionsError(f"cannot read from the broker at {url}: {error}") from error
        yield page["items"]
        after = page["next"]


def _authorised(user: str | None, password: str | None) -> dict[str, str]:
    if user is None:
        return {}
    return {"Authorization": basic_authorization(user, password or "")}
