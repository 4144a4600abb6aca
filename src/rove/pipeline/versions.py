"""Subscriptions over time: who wanted what, from which position of the log to which.

A subscription's life is a list of *versions*. Each has a text, the state of its subscriber, and
the positions between which it holds; a change of state ends one and begins the next. So what a
publication meets depends on nothing but its own position, and a history of any length can be
matched in any order, by any number of workers.

An event costs a microsecond or two; a change of state, that for each subscription that asks for it.
"""

from __future__ import annotations

import base64
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from rove.errors import RoveError
from rove.lang.errors import LanguageError
from rove.lang.records import SubscriptionRecord, read_subscription
from rove.lang.values import change_state
from rove.mqtt.topics import split_shared
from rove.pipeline.lake import NOTHING, Event, Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOR_EVER: Final = 2**63 - 1
ANY_TOPIC: Final = ""
_PAGE: Final = 1_000


class VersionsError(RoveError):
    """Subscriptions that cannot be read."""


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription as it was for a while."""

    number: int
    text: str
    """Empty for all that the topic filter lets through."""
    filter: str = ANY_TOPIC
    accepted_at: float = 0.0
    me: dict[str, object] = {}
    since: int = NOTHING
    """It holds for publications above this position,"""
    until: int = FOR_EVER
    """and up to this one."""
    client_id: str = ""
    no_local: bool = False
    share: str | None = None
    engine: str = "broker"


class Timeline:
    """Takes events in the order of positions, and knows the versions there were and are."""

    def __init__(self, engine: str | None = None) -> None:
        """With an engine, only the subscriptions that it serves."""
        self._engine = engine
        self._open: dict[int, Version] = {}
        self._durable: set[int] = set()
        self._of_client: dict[str, dict[int, None]] = {}
        """Subscriptions that ask for their subscriber's state."""
        self.position = NOTHING
        """Of the last event that was taken."""

    def __len__(self) -> int:
        return len(self._open)

    def open(self) -> list[Version]:
        """Those that hold now."""
        return list(self._open.values())

    def take(self, event: Event) -> tuple[list[Version], list[Version]]:
        """What the event ends (with `until` set) and what it begins."""
        self.position = event.position
        match event.event:
            case "made":
                return [], self._make(event)
            case "ended":
                return self._end([event.number], event.position), []
            case "state":
                return self._change(event)
            case "started":
                gone = [number for number in self._open if number not in self._durable]
                return self._end(gone, event.position), []

    def _make(self, event: Event) -> list[Version]:
        # A log may tell of one twice: when it was made, and when the log was begun anew.
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
        self._open[event.number] = made
        if event.durable:
            self._durable.add(event.number)
        if "me" in event.text:  # perhaps it asks; what does not is only a version more
            self._of_client.setdefault(event.client_id, {})[event.number] = None
        return [made]

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

    def _change(self, event: Event) -> tuple[list[Version], list[Version]]:
        ended, begun = [], []
        for number in self._of_client.get(event.client_id, ()):
            before = self._open[number]
            me = dict(before.me)
            change_state(me, event.changes)
            ended.append(msgspec.structs.replace(before, until=event.position))
            after = msgspec.structs.replace(before, me=me, since=event.position)
            self._open[number] = after
            begun.append(after)
        return ended, begun


def from_lake(lake: Lake, up_to: int | None = None, engine: str | None = None) -> list[Version]:
    """Every version that the lake tells of, or those that an engine serves."""
    return versions_of(lake.events(up_to=up_to), engine)


def versions_of(events: Iterable[Event], engine: str | None = None) -> list[Version]:
    """Every version in a stretch of events, which must come in order."""
    timeline = Timeline(engine)
    closed: list[Version] = []
    for event in events:
        closed += timeline.take(event)[0]
    return closed + timeline.open()


def from_texts(texts: Iterable[str | tuple[int, str]]) -> list[Version]:
    """Texts for all topics, numbered as they come unless they have a number."""
    pairs = (
        (number, given) if isinstance(given, str) else given for number, given in enumerate(texts)
    )
    return [Version(number=number, text=text) for number, text in pairs]


def from_file(path: Path) -> tuple[list[Version], list[str]]:
    """JSON lines as `rove match` takes them, numbered by their lines from 0; and their names."""
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
    """A row each: `text`, and whatever other fields of `Version` there are columns for."""
    known = [name for name in Version.__struct_fields__ if name in table.columns]
    if "text" not in known:
        raise VersionsError(f"a table of subscriptions needs a column text; it has {table.columns}")
    rows = table.select(*known).collect()
    return [_of_row(number, row.asDict(recursive=True)) for number, row in enumerate(rows)]


def _of_row(number: int, row: Mapping[str, Any]) -> Version:
    told = {name: value for name, value in row.items() if value is not None}
    try:
        return msgspec.convert({"number": number, **told}, Version)
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
        asked = f"{url}/subscriptions?after={after}&limit={_PAGE}"
        request = urllib.request.Request(asked, headers=dict(headers))
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                page = msgspec.json.decode(answer.read())
        except urllib.error.HTTPError as error:
            raise VersionsError(f"{asked} answered {error.code}: {error.reason}") from error
        except (OSError, msgspec.DecodeError) as error:
            raise VersionsError(f"cannot ask the broker at {url}: {error}") from error
        yield page["items"]
        after = page["next"]


def _authorised(user: str | None, password: str | None) -> dict[str, str]:
    if user is None:
        return {}
    word = base64.b64encode(f"{user}:{password or ''}".encode()).decode("ascii")
    return {"Authorization": f"Basic {word}"}
