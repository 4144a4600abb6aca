"""An index of a running broker's subscriptions that is updated event by event.

It is a small log-structured merge tree: new versions get a file of their own, ends are only
recorded, and when there are many files the small ones are merged. So the cost of a change does not
depend on the number of subscriptions, and a subscription is written a few times in its life.

The files are where all workers can read them: in a shared folder, or in an object store.

Versions whose subscriber's state changes within a batch are in none of these files during the
batch: they and the changes are written as data (`rove.pipeline.lake.followers`). After a batch
without changes they return to a file.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Final, Self

import msgspec

from rove.lake.storage import Location, child, clear, folder_of, remove, resolved
from rove.pipeline.lake.followers import LatestStates, changes_of, variables_of, write_followers
from rove.pipeline.lake.log import NOTHING, Event
from rove.pipeline.lake.version_index import IndexFileSpec, IndexSpec
from rove.pipeline.lake.versions import FOR_EVER, Timeline, Version, state_variables
from rove.pipeline.matching.index_files import VersionPlace, write_index

FOLDER: Final = "_index"
PARTS_MAX: Final = 8
"""With more files, the small ones are merged."""


class _LiveFile:
    """A file of the index, as the driver tracks it."""

    def __init__(self, location: str, versions: list[Version]) -> None:
        self.location = location
        self.versions = versions
        self.places: list[VersionPlace] = write_index(versions, location)
        self.ended: dict[int, int] = {}
        """The last position of versions that have ended, by index in `versions`."""

    def spec(self) -> IndexFileSpec:
        sides: dict[str, dict[int, int]] = {"plain": {}, "ranked": {}}
        for index, until in self.ended.items():
            side, id = self.places[index]
            sides[side][id] = until
        return IndexFileSpec(self.location, **sides)

    def holding(self, position: int) -> list[Version]:
        """Those of its versions that hold somewhere above a position."""
        now = [
            msgspec.structs.replace(version, until=self.ended[index])
            if index in self.ended
            else version
            for index, version in enumerate(self.versions)
        ]
        return [version for version in now if version.until > position]


class LiveIndex:
    """The versions of all subscriptions, as files at a location of its own."""

    def __init__(self, location: Location, engine: str | None = None) -> None:
        """With an engine, only subscriptions that it serves."""
        self._uri = resolved(location)
        if (folder := folder_of(self._uri)) is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self._timeline = Timeline(engine)
        self._states = LatestStates()
        """The states at the begin of the next batch."""
        self._parts: list[_LiveFile] = []
        self._written = 0
        self._new: dict[tuple[int, int], Version] = {}
        """Versions that are in no file yet, by number and first position."""
        self._where: dict[int, tuple[_LiveFile | None, int]] = {}
        """Where active versions are, by number: a file and the index in it; if new, None and the
        first position. Followers are not in here."""
        self._changes: list[tuple[int, str, dict[str, object]]] = []
        """Changes of states since the last batch."""
        self._moved: dict[int, Version] = {}
        """Versions whose state has changed since, as they were made; by number."""
        self._over: list[Version] = []
        """Of these, the versions that have ended since."""
        self._seen: dict[str, set[str]] = {}
        """The variables whose followers are in `_moved`, by client."""
        self._following: dict[int, Version] = {}
        """Active versions that were followers in the last batch, by number."""
        self._following_file = ""
        """The file of the followers; empty if there are none."""

    @classmethod
    def below(cls, uri: str, engine: str | None = None) -> Self:
        """An index whose files replace all index files below a location.

        The folder gets a new name each time: workers that go on running keep files open by name.
        """
        clear(uri, FOLDER)
        return cls(child(uri, FOLDER, uuid.uuid4().hex), engine)

    @property
    def position(self) -> int:
        """The position of the last event."""
        return self._timeline.position

    def __len__(self) -> int:
        return len(self._timeline)

    def take(self, events: Iterable[Event]) -> None:
        """Apply the next events, in the order of positions."""
        for event in events:
            if event.event == "state":
                self._timeline.take(event)
                self._change(event)
                continue
            ended, begun = self._timeline.take(event)
            for version in ended:
                self._end(version)
            for version in begun:
                self._begin(version)
                self._seen.pop(version.client_id, None)

    def open(self) -> tuple[list[Version], list[int]]:
        """The active versions with their current states, and the numbers of the durable ones.

        Call it after `spec`.
        """
        versions = [self._states.since(one, self.position) for one in self._timeline.open()]
        return versions, self._timeline.durable()

    def go_on(self, position: int, versions: Iterable[Version], durable: Iterable[int]) -> None:
        """Start from the active versions at a position."""
        versions = list(versions)
        self._timeline.go_on(position, versions, durable)
        for version in versions:
            self._begin(version)

    def _begin(self, version: Version) -> None:
        self._new[version.number, version.since] = version
        self._where[version.number] = (None, version.since)

    def _end(self, version: Version) -> None:
        """Record that a version has ended."""
        is_moved = self._moved.pop(version.number, None) is not None
        is_following = self._following.pop(version.number, None) is not None
        if is_moved or is_following:
            self._over.append(version)
        else:
            self._close(version.number, version.until)

    def _close(self, number: int, until: int) -> None:
        """Set the last position of a version in a file, or of one that is not written yet."""
        part, place = self._where.pop(number, (None, NOTHING))
        if part is not None:
            part.ended[place] = until
        elif (number, place) in self._new:
            new = self._new[number, place]
            self._new[number, place] = msgspec.structs.replace(new, until=until)

    def _change(self, event: Event) -> None:
        asking = self._timeline.asking(event.client_id)
        if not asking:
            return
        self._changes.append((event.position, event.client_id, event.changes))
        seen = self._seen.setdefault(event.client_id, set())
        if event.changes.keys() <= seen:
            return
        seen |= event.changes.keys()
        for version in asking:
            is_asked = not state_variables(version.text).isdisjoint(event.changes)
            if is_asked and version.number not in self._moved:
                self._moved[version.number] = version
                self._following.pop(version.number, None)
                # It is a follower in the next batch, so its entry in a file must not match.
                self._close(version.number, NOTHING)

    def spec(self, after: int = NOTHING) -> IndexSpec:
        """The index for publications above a position; writes new versions to files.

        Call it once for each batch, after its events.
        """
        self._write_followers(after)
        self._forget(after)
        if self._new:
            self._add_part(list(self._new.values()))
            self._new.clear()
        if len(self._parts) > PARTS_MAX:
            self._merge(after)
        return IndexSpec(tuple(part.spec() for part in self._parts), self._following_file)

    def _location(self, ending: str) -> str:
        """The location of the next file."""
        self._written += 1
        return child(self._uri, f"{self._written:08d}.{ending}")

    def _remove(self, location: str) -> None:
        remove(self._uri, location.rpartition("/")[2])

    def _write_followers(self, after: int) -> None:
        """Write the versions whose state has changed since the last batch.

        Followers of the last batch whose state has not changed since return to a file.
        """
        earlier = [one for one in self._changes if one[0] <= after]
        self._states.take(earlier)
        for version in self._following.values():
            self._begin(self._states.since(version, after))
        moved = [
            self._states.since(version, after)
            for version in (*self._moved.values(), *self._over)
            if version.until > after
        ]
        if self._following_file:
            self._remove(self._following_file)
            self._following_file = ""
        if moved:
            variables = variables_of(moved)
            changes = changes_of(self._changes[len(earlier) :], variables)
            self._following_file = self._location("following")
            write_followers(moved, variables, changes, self._following_file)
        self._states.take(self._changes[len(earlier) :])
        for client_id in {*self._seen, *(one.client_id for one in self._over)}:
            if not self._timeline.asking(client_id):
                self._states.forget(client_id)
        self._following = self._moved
        self._changes, self._moved, self._over, self._seen = [], {}, [], {}

    def _forget(self, after: int) -> None:
        """Drop versions that have ended before the next publications."""
        self._new = {
            key: one for key, one in self._new.items() if one.until > max(after, one.since)
        }
        for part in list(self._parts):
            if len(part.ended) == len(part.versions) and max(part.ended.values()) <= after:
                self._parts.remove(part)
                self._remove(part.location)

    def _add_part(self, versions: list[Version]) -> None:
        part = _LiveFile(self._location("index"), versions)
        self._parts.append(part)
        for index, version in enumerate(versions):
            if version.until == FOR_EVER:
                self._where[version.number] = (part, index)
            else:
                part.ended[index] = version.until

    def _merge(self, after: int) -> None:
        """Merge small files: all but those that are larger than all smaller ones together."""
        by_size = sorted(self._parts, key=lambda part: len(part.versions))
        merged: list[_LiveFile] = []
        total = 0
        for part in by_size:
            if len(merged) > 1 and len(part.versions) > total:
                break
            merged.append(part)
            total += len(part.versions)
        versions = [version for part in merged for version in part.holding(after)]
        for part in merged:
            self._parts.remove(part)
        if versions:
            self._add_part(versions)
        for part in merged:
            self._remove(part.location)
