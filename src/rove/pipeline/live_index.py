"""An index that follows the subscriptions of a running broker, from event to event.

What is new gets a small file of its own, what ended is only noted; when there are many files, the
small ones are written together anew. So a change among a million subscriptions costs as much as
the change, and a subscription is written a handful of times in its life.

The files lie where workers find them: in a folder that all of them see, or as copies in an object
store.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Self

import msgspec

from rove.lake.storage import child, clear, folder_of, remove, write_bytes
from rove.pipeline.disk import folder_of_process
from rove.pipeline.index_files import Place, write_index
from rove.pipeline.judging import IndexSpec, PartSpec
from rove.pipeline.lake import NOTHING, Event
from rove.pipeline.versions import FOR_EVER, Timeline, Version

FOLDER: Final = "_index"
PARTS_MAX: Final = 8
"""Files before some of them are written together."""


class _Part:
    """A file of the index, as the driver knows it."""

    def __init__(self, path: Path, versions: list[Version], shared: str | None) -> None:
        self.path = path
        self._shared = shared
        """Where its copy is to be, if workers do not see the folder."""
        self.versions = versions
        self.places: list[Place] = write_index(versions, path)
        self.ended: dict[int, int] = {}
        """By place in `versions`, the last position at which it holds."""
        if shared is not None:
            write_bytes(shared, path.name, path.read_bytes())

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        if self._shared is not None:
            remove(self._shared, self.path.name)

    def spec(self) -> PartSpec:
        sides: dict[str, dict[int, int]] = {"plain": {}, "ranked": {}}
        for index, until in self.ended.items():
            side, id = self.places[index]
            sides[side][id] = until
        name = str(self.path) if self._shared is None else child(self._shared, self.path.name)
        return PartSpec(name, **sides)

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
    """The versions of all subscriptions, as files in a folder of its own."""

    def __init__(self, folder: Path, engine: str | None = None, shared: str | None = None) -> None:
        """With an engine, only the subscriptions that it serves; `shared` is where workers look."""
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob("*.index"):
            leftover.unlink()
        self._folder = folder
        self._shared = shared
        self._timeline = Timeline(engine)
        self._parts: list[_Part] = []
        self._written = 0
        self._new: dict[tuple[int, int], Version] = {}
        """Versions that are in no file yet, by number and where they begin."""
        self._where: dict[int, tuple[_Part, int]] = {}
        """By number, where the version is that holds now."""

    @classmethod
    def below(cls, uri: str, engine: str | None = None) -> Self:
        """One whose files are below a location, instead of all that were there.

        Under a new name each time: workers that live on keep files open by their names.
        """
        name = uuid.uuid4().hex
        clear(uri, FOLDER)
        if (folder := folder_of(uri)) is not None:
            return cls(folder / FOLDER / name, engine)
        return cls(folder_of_process("index") / name, engine, child(uri, FOLDER, name))

    @property
    def position(self) -> int:
        """Of the last event that was taken."""
        return self._timeline.position

    def __len__(self) -> int:
        return len(self._timeline)

    def take(self, events: Iterable[Event]) -> None:
        """Go on with the next events, in the order of positions."""
        for event in events:
            ended, begun = self._timeline.take(event)
            for version in ended:
                self._end(version)
            for version in begun:
                self._new[version.number, version.since] = version

    def _end(self, version: Version) -> None:
        key = (version.number, version.since)
        if key in self._new:
            self._new[key] = version
        else:
            part, index = self._where.pop(version.number)
            part.ended[index] = version.until

    def spec(self, after: int = NOTHING) -> IndexSpec:
        """The index for publications above a position; writes what is not in a file yet."""
        self._forget(after)
        if self._new:
            self._add_part(list(self._new.values()))
            self._new.clear()
        if len(self._parts) > PARTS_MAX:
            self._merge(after)
        return IndexSpec(tuple(part.spec() for part in self._parts))

    def _forget(self, after: int) -> None:
        """Let go what holds for none of the publications to come."""
        self._new = {key: one for key, one in self._new.items() if one.until > after}
        for part in list(self._parts):
            if len(part.ended) == len(part.versions) and max(part.ended.values()) <= after:
                self._parts.remove(part)
                part.remove()

    def _add_part(self, versions: list[Version]) -> None:
        self._written += 1
        part = _Part(self._folder / f"{self._written:08d}.index", versions, self._shared)
        self._parts.append(part)
        for index, version in enumerate(versions):
            if version.until == FOR_EVER:
                self._where[version.number] = (part, index)

    def _merge(self, after: int) -> None:
        """Write small files together: all but those that are larger than all smaller ones."""
        by_size = sorted(self._parts, key=lambda part: len(part.versions))
        merged: list[_Part] = []
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
            part.remove()
