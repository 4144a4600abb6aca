"""An index that follows the subscriptions of a running broker, from event to event.

What is new gets a small file of its own, what ended is only noted; when there are many files, the
small ones are written together anew. So a change among a million subscriptions costs as much as
the change, and a subscription is written a handful of times in its life.

The files lie where workers find them: in a folder that all of them see, or in an object store.

Those whose subscriber's state changes within a batch are in none of these files for the time of
the batch: they and the changes are data (`rove.pipeline.lake.followers`). Who does not move any
more goes back into a file.
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
from rove.pipeline.lake.versions import FOR_EVER, Timeline, Version, asked_of
from rove.pipeline.matching.index_files import VersionPlace, write_index

FOLDER: Final = "_index"
PARTS_MAX: Final = 8
"""Files before some of them are written together."""


class _LiveFile:
    """A file of the index, as the driver knows it."""

    def __init__(self, location: str, versions: list[Version]) -> None:
        self.location = location
        self.versions = versions
        self.places: list[VersionPlace] = write_index(versions, location)
        self.ended: dict[int, int] = {}
        """By place in `versions`, the last position at which it holds."""

    def spec(self) -> IndexFileSpec:
        sides: dict[str, dict[int, int]] = {"plain": {}, "ranked": {}}
        for index, until in self.ended.items():
            side, id = self.places[index]
            sides[side][id] = until
        return IndexFileSpec(self.location, **sides)

    def still(self, position: int) -> list[Version]:
        """Those of its versions that still hold somewhere above a position."""
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
        """With an engine, only the subscriptions that it serves."""
        self._uri = resolved(location)
        if (folder := folder_of(self._uri)) is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self._timeline = Timeline(engine)
        self._states = LatestStates()
        """As they were where the next batch begins."""
        self._parts: list[_LiveFile] = []
        self._written = 0
        self._new: dict[tuple[int, int], Version] = {}
        """Versions that are in no file yet, by number and where they begin."""
        self._where: dict[int, tuple[_LiveFile | None, int]] = {}
        """By number, where the version is that holds now: its place in a file, or, if it is new,
        where it begins. Followers are in neither."""
        self._changes: list[tuple[int, str, dict[str, object]]] = []
        """Of states, since the last batch."""
        self._moved: dict[int, Version] = {}
        """By number, those whose state has changed since, as they were made."""
        self._over: list[Version] = []
        """The same of those that have ended since."""
        self._seen: dict[str, set[str]] = {}
        """By client the variables whose followers are among the moved."""
        self._following: dict[int, Version] = {}
        """By number, those that the last batch had as followers, and that hold now."""
        self._following_file = ""
        """Where they are written; empty if there are none."""

    @classmethod
    def below(cls, uri: str, engine: str | None = None) -> Self:
        """One whose files are below a location, instead of all that were there.

        Under a new name each time: workers that live on keep files open by their names.
        """
        clear(uri, FOLDER)
        return cls(child(uri, FOLDER, uuid.uuid4().hex), engine)

    @property
    def position(self) -> int:
        """Of the last event that was taken."""
        return self._timeline.position

    def __len__(self) -> int:
        return len(self._timeline)

    def take(self, events: Iterable[Event]) -> None:
        """Go on with the next events, in the order of positions."""
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
        """Those that hold now, in their states of now, and the numbers of the durable ones.

        To be asked for when the index of the events that were taken was asked for.
        """
        versions = [self._states.since(one, self.position) for one in self._timeline.open()]
        return versions, self._timeline.durable()

    def go_on(self, position: int, versions: Iterable[Version], durable: Iterable[int]) -> None:
        """Go on from what there was at a position."""
        versions = list(versions)
        self._timeline.go_on(position, versions, durable)
        for version in versions:
            self._begin(version)

    def _begin(self, version: Version) -> None:
        self._new[version.number, version.since] = version
        self._where[version.number] = (None, version.since)

    def _end(self, version: Version) -> None:
        """It holds up to its `until`, wherever it is."""
        is_moved = self._moved.pop(version.number, None) is not None
        is_following = self._following.pop(version.number, None) is not None
        if is_moved or is_following:
            self._over.append(version)
        else:
            self._close(version.number, version.until)

    def _close(self, number: int, until: int) -> None:
        """What is in a file, or goes into one, holds up to a position."""
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
            is_asked = not asked_of(version.text).isdisjoint(event.changes)
            if is_asked and version.number not in self._moved:
                self._moved[version.number] = version
                self._following.pop(version.number, None)
                # What was before, nobody asks for any more: it is a follower of the next batch.
                self._close(version.number, NOTHING)

    def spec(self, after: int = NOTHING) -> IndexSpec:
        """The index for publications above a position; writes what is not in a file yet.

        To be asked for once for each batch, when its events are taken.
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
        """Of the next file."""
        self._written += 1
        return child(self._uri, f"{self._written:08d}.{ending}")

    def _remove(self, location: str) -> None:
        remove(self._uri, location.rpartition("/")[2])

    def _write_followers(self, after: int) -> None:
        """Write those whose state has changed since the last batch.

        Those of the last batch that it has not go back among the others.
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
        """Let go what holds for none of the publications to come."""
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
        """Write small files together: all but those that are larger than all smaller ones."""
        by_size = sorted(self._parts, key=lambda part: len(part.versions))
        merged: list[_LiveFile] = []
        total = 0
        for part in by_size:
            if len(merged) > 1 and len(part.versions) > total:
                break
            merged.append(part)
            total += len(part.versions)
        versions = [version for part in merged for version in part.still(after)]
        for part in merged:
            self._parts.remove(part)
        if versions:
            self._add_part(versions)
        for part in merged:
            self._remove(part.location)
