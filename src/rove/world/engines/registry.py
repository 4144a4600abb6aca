"""The engines by name, and what every one of them can do.

`rove.world.engines.roles` tells how an engine takes a tick; the engines themselves are
`object_engine`, `tile_engine` and `area_engine`, the last in five designs. A name stands for an
engine with its parameters as the scenarios use them; whoever wants others makes the class itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from rove.world.engines.area_engine import AreaEngine, Design
from rove.world.engines.array_bus import ArrayBus
from rove.world.engines.bus import Bus
from rove.world.engines.counters import EngineCounters
from rove.world.engines.object_engine import ObjectEngine
from rove.world.engines.replicas import Replicas
from rove.world.engines.roles import EngineWorld
from rove.world.engines.tile_engine import TileEngine
from rove.world.runs.state import TickChanges, WorldError


class Engine(Protocol):
    """One way to tell clients of the world."""

    name: str
    delay_ticks: int
    """How many ticks after it ought to be something may still be missing or old."""

    @property
    def replicas(self) -> Replicas:
        """What its clients know."""

    @property
    def counters(self) -> EngineCounters:
        """What it has cost so far."""

    def step(self, world: EngineWorld, changes: TickChanges) -> None:
        """Take the tick that the world has taken; at the first, everybody is new."""

    def subscriptions(self) -> int:
        """How many there are now."""


_DESIGNS: Final[dict[str, Design]] = {
    "area": "resubscribe",
    "evolving": "exact",
    "evolving-pes": "pes",
    "evolving-lees": "lees",
    "evolving-clees": "clees",
}
ENGINES: Final = ("object", "tile", *_DESIGNS)
"""The names of all engines."""
_SHORT: Final = {"pes": "evolving-pes", "lees": "evolving-lees", "clees": "evolving-clees"}


def full_name(name: str) -> str:
    """The name of an engine in full; pes, lees and clees are the evolving ones."""
    return _SHORT.get(name, name)


def make_engine(
    name: str,
    bus: Bus | None = None,
    *,
    resubscribe_s: float = 0.5,
    lag_s: float = 0.5,
    timer: Callable[[], int] | None = None,
) -> Engine:
    """An engine on a bus of its own, in process unless another is given.

    `resubscribe_s` is how often area-based clients subscribe anew while they move, or ask, where
    subscriptions evolve; `lag_s` the interval of PES and the threshold of CLEES. With a timer
    (nanoseconds) the bus in process counts how long it takes to find receivers.
    """
    full = full_name(name)
    if full not in ENGINES:
        raise WorldError(f"there is no engine {name}; there are {', '.join(ENGINES)}")
    if bus is None:
        bus = ArrayBus(timer)
    if full == "object":
        return ObjectEngine(bus)
    if full == "tile":
        return TileEngine(bus)
    return AreaEngine(bus, name=full, design=_DESIGNS[full], ahead_s=resubscribe_s, lag_s=lag_s)
