"""What there is in a world, as columns: one line for each entity, one array for each property.

Whoever works on the world works on whole arrays: a tick of ten thousand inhabitants is a few calls
of compiled loops, not ten thousand calls of Python. An entity is its line number and stays it; a
name is for people.

Time is counted in ticks. Between two ticks an entity rests or moves along a straight *leg* with a
constant velocity, so where it is at any tick follows from where the leg began. `version` counts
what happened to an entity; whoever has a copy with the same version has the truth.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rove.errors import RoveError

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int32]
Longs: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

NOBODY: Final = -1


class WorldError(RoveError):
    """Something of a world is wrong: a map, a scenario, a command, a name."""


class EntityKind(enum.IntEnum):
    """What an entity is."""

    PLAYER = 0
    """Somebody plays it, or a behaviour does in their place."""
    NPC = 1
    ITEM = 2
    """Lies about or is carried."""
    VEHICLE = 3
    SENSOR = 4


class TickChanges(NamedTuple):
    """What a tick did; numbers of entities ascend."""

    tick: int
    at: float
    """Seconds since the world began."""
    changed: Ints
    """Entities whose version grew: they moved, or something was done with them."""
    legs: Ints
    """Of these, those whose velocity is no longer what it was: they set out, turned or stopped."""
    handed_over: Ints
    """Of these, those that another server holds now."""


class Entities:
    """All entities of a world, in columns of equal length."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.kind = np.empty(0, np.int8)
        self.x = np.empty(0)
        self.y = np.empty(0)
        self.vx = np.empty(0)
        self.vy = np.empty(0)
        """Metres a second, as they will be until the next tick."""
        self.speed = np.empty(0)
        """How fast it goes when it goes."""
        self.tile = np.empty(0, np.int32)
        self.server = np.empty(0, np.int32)
        """Who holds the master copy."""
        self.holder = np.empty(0, np.int32)
        """The entity that carries it, or NOBODY."""
        self.uses = np.empty(0, np.int64)
        """How often an item was used."""
        self.version = np.empty(0, np.int64)
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.names)

    def add(
        self, kind: EntityKind, names: Sequence[str], x: Floats, y: Floats, *, speed: float = 0.0
    ) -> Ints:
        """New entities, at rest; their numbers."""
        for name in names:
            if name in self._numbers:
                raise WorldError(f"there is already a {name}; names are given once")
            self._numbers[name] = len(self.names)
            self.names.append(name)
        count = len(names)
        new: dict[str, object] = {
            "kind": np.full(count, kind, np.int8),
            "x": x,
            "y": y,
            "vx": np.zeros(count),
            "vy": np.zeros(count),
            "speed": np.full(count, speed),
            "tile": np.full(count, NOBODY, np.int32),
            "server": np.zeros(count, np.int32),
            "holder": np.full(count, NOBODY, np.int32),
            "uses": np.zeros(count, np.int64),
            "version": np.ones(count, np.int64),
        }
        for column, values in new.items():
            setattr(self, column, np.concatenate([getattr(self, column), values]))
        return np.arange(len(self.names) - count, len(self.names), dtype=np.int32)

    def number(self, name: str) -> int:
        """The entity of a name; WorldError if there is none."""
        try:
            return self._numbers[name]
        except KeyError:
            raise WorldError(f"there is nobody called {name}") from None


class Clients(NamedTuple):
    """Who looks: each client has an avatar and sees a rectangle around it, itself included."""

    avatar: Ints
    """The entity that each client moves, by the client's number."""
    reach_x: float
    reach_y: float
    """Half the sides of the rectangle, metres; the border belongs to it."""
