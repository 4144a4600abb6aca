"""Vehicles on the roads of a map: they drive, queue at lights, park, and set out again.

Vehicles are entities of a world like any other, and a tick reports which of them changed. Inside, a
vehicle is a place on a lane and a speed, advanced by compiled code
(`rove.world.traffic.vehicle_kernels`, which also explains the car-following model, and why there
are neither collisions nor deadlocks). Cellular automata were considered: they are simpler, but
their cars jump by whole cells, and a subscription that follows a car needs its place.

A vehicle that is not on the road is parked where its last trip ended or where it was created. How
many set out depends on the time of day (`demand`). So the number of vehicles is constant, and the
number on the road has a rush hour.

A tick of 5,000 vehicles on the road takes 0.9 ms of processor time, lights included.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from rove.world.runs.state import Entities, EntityKind, Floats, Ints, Longs, WorldError
from rove.world.traffic.curves import DAY_H, hill
from rove.world.traffic.lights import Lights
from rove.world.traffic.roads import RoadGraph
from rove.world.traffic.vehicle_kernels import (
    ARRIVED,
    DETOURS,
    DRIVING,
    LOOP,
    PARKED,
    PULLED_IN,
    PULLED_OUT,
    VEHICLE,
    WAITING,
    drive,
    write_entities,
)

VEHICLE_LENGTH_M: Final = 4.8
DESTINATIONS_MAX: Final = 256
"""Streets that people go to; each costs a row of the table of ways."""
GARAGE_LANE_M: Final = 40.0
"""A lane this long has garages."""
TICK_S_MAX: Final = 0.5
"""In a longer tick somebody could cross a junction as a whole."""

_MORNING_H, _EVENING_H, _PEAK_H = 8.0, 17.0, 1.2
_NIGHT: Final = 0.05


def demand(hour: float | Floats) -> Floats:
    """How many want to set out at an hour of the day, as a part of the rush hour's: 0 to 1.

    Peaks at 8 and at 17 h, half of that around noon, next to nothing at night.
    """
    day = _NIGHT + 0.45 * hill(hour, 13.0, 4.0)
    rush = hill(hour, _MORNING_H, _PEAK_H) + 0.8 * hill(hour, _EVENING_H, _PEAK_H)
    found: Floats = np.minimum(1.0, day + 0.8 * rush)
    return found


class Traffic:
    """All vehicles of a world and the lights that stop them."""

    def __init__(
        self,
        roads: RoadGraph,
        entities: Entities,
        rng: np.random.Generator,
        *,
        vehicles: int,
        driving: float = 0.3,
        trips_per_hour: float = 2.0,
        begins_h: float = 7.0,
        name: str = "car",
    ) -> None:
        """With a part `driving` already on their way when the world begins, at `begins_h`.

        At the height of the rush hour a parked vehicle sets out `trips_per_hour` times an hour.
        """
        if not 0.0 <= driving <= 1.0:
            raise WorldError(f"driving is a part of the vehicles, from 0 to 1, not {driving:g}")
        if not trips_per_hour >= 0.0:
            raise WorldError(f"trips_per_hour is {trips_per_hour:g}; give 0 or more")
        self.roads = roads
        self.lights = Lights(roads)
        self._entities = entities
        self._rng = rng
        self._trips_per_hour = trips_per_hour
        self._begins_h = begins_h
        self.tick = 0
        self._garages = np.flatnonzero(roads.lanes["length"] >= GARAGE_LANE_M).astype(np.int32)
        if not len(self._garages):
            raise WorldError(f"no lane has {GARAGE_LANE_M:g} m between its junctions; lengthen one")
        count = min(DESTINATIONS_MAX, len(self._garages))
        self._destinations = np.sort(rng.choice(self._garages, count, replace=False))
        self._ways = roads.ways(self._destinations)
        self.happened: Longs = np.zeros(4, np.int64)
        self.loops = self._make_loops()
        self.table = self._make_vehicles(vehicles)
        """The vehicles, a line each (see VEHICLE for the columns)."""
        self.numbers = self._make_entities(name)
        """Their entities."""
        self._send_off(np.flatnonzero(rng.random(vehicles) < driving))

    def __len__(self) -> int:
        return len(self.table)

    # -- beginning ---------------------------------------------------------------------------

    def _make_loops(self) -> npt.NDArray[np.void]:
        detectors = self.roads.roads.detectors
        loops = np.zeros(len(detectors), LOOP)
        loops["lane"] = [detector.lane for detector in detectors]
        loops["place"] = [
            self.roads.place_m(detector.lane, detector.at_m) for detector in detectors
        ]
        return loops

    def _make_vehicles(self, count: int) -> npt.NDArray[np.void]:
        table = np.zeros(count, VEHICLE)
        for column in ("ahead", "behind", "turn", "next_turn", "came", "blocked"):
            table[column] = -1
        table["length"] = VEHICLE_LENGTH_M
        lengths = self.roads.lanes["length"][self._garages]
        table["lane"] = self._rng.choice(self._garages, count, p=lengths / lengths.sum())
        table["place"] = self._garage_places(table["lane"])
        table["state"] = PARKED
        return table

    def _garage_places(self, lanes: Ints) -> Floats:
        """In the further two thirds of a lane, so that who turns into it sees who pulls out."""
        length = self.roads.lanes["length"][lanes]
        places: Floats = length * self._rng.uniform(0.33, 0.95, len(lanes))
        return places

    def _make_entities(self, name: str) -> Ints:
        lanes = self.roads.lanes[self.table["lane"]]
        x = lanes["x"] + lanes["ux"] * self.table["place"]
        y = lanes["y"] + lanes["uy"] * self.table["place"]
        names = [f"{name}{number}" for number in range(len(self.table))]
        return self._entities.add(
            EntityKind.VEHICLE, names, x, y, speed=float(lanes["limit"].max(initial=0.0))
        )

    # -- time --------------------------------------------------------------------------------

    def advance(self, tick_s: float, at: float) -> tuple[Ints, Ints]:
        """One tick on, to the time `at`: the entities that changed, and those of them that turned.

        Turned is who has another velocity than before.
        """
        if not 0.0 < tick_s <= TICK_S_MAX:
            raise WorldError(
                f"a tick of {tick_s:g} s is too long for traffic; at most {TICK_S_MAX:g}"
            )
        self.tick += 1
        self.lights.advance(at)
        self._send_off(self._who_sets_out(tick_s, at))
        roads = self.roads
        drive(
            self.table,
            roads.lanes,
            roads.turns,
            roads.conflicts,
            roads.node_starts,
            roads.node_lanes,
            self._ways,
            self._destinations,
            self.loops,
            self.happened,
            self.tick,
            tick_s,
        )
        return self._written(tick_s)

    def _written(self, tick_s: float) -> tuple[Ints, Ints]:
        entities = self._entities
        changes = np.empty(len(self.table), np.uint8)
        write_entities(
            self.table,
            self.roads.lanes,
            self.roads.turns,
            self.numbers,
            entities.x,
            entities.y,
            entities.vx,
            entities.vy,
            changes,
            tick_s,
        )
        return self.numbers[changes > 0], self.numbers[changes > 1]

    def hour(self, at: float) -> float:
        """The hour of the day, from 0 to 24, at a time of the world."""
        return (self._begins_h + at / 3600.0) % DAY_H

    def _who_sets_out(self, tick_s: float, at: float) -> Longs:
        parked = np.flatnonzero(self.table["state"] == PARKED)
        an_hour = self._trips_per_hour * float(demand(self.hour(at)))
        found: Longs = parked[self._rng.random(len(parked)) < an_hour * tick_s / 3600.0]
        return found

    def _send_off(self, who: Longs) -> None:
        """Give them somewhere to go and have them look for a gap."""
        if not len(who):
            return
        destination = self._rng.integers(len(self._destinations), size=len(who), dtype=np.int32)
        self.table["destination"][who] = destination
        self.table["stop_place"][who] = self._garage_places(self._destinations[destination])
        self.table["state"][who] = WAITING
        self.table["ready"][who] = 0

    # -- what is going on ----------------------------------------------------------------------

    @property
    def is_driving(self) -> npt.NDArray[np.bool_]:
        """Which vehicles are on the road."""
        found: npt.NDArray[np.bool_] = self.table["state"] == DRIVING
        return found

    def counts(self) -> dict[str, int]:
        """Vehicles now, and what has happened since the world began."""
        state = self.table["state"]
        return {
            "driving": int((state == DRIVING).sum()),
            "parked": int((state == PARKED).sum()),
            "waiting": int((state == WAITING).sum()),
            "trips_begun": int(self.happened[PULLED_OUT] - self.happened[PULLED_IN]),
            "trips_ended": int(self.happened[ARRIVED]),
            "detours": int(self.happened[DETOURS]),
            "rests": int(self.happened[PULLED_IN]),
        }
