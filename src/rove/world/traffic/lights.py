"""Traffic lights: which lanes have green, and commands that change it.

A light goes through its phases in turn. Between two phases the lanes that lose their green have
yellow for as long as a car at the speed limit needs that can no longer stop. So a phase that was
requested (`set_phase`) comes safely, not at once. Lights change rarely: a tick looks at one array
and touches only those that are due, some microseconds for a city.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rove.world.runs.state import Floats, WorldError
from rove.world.traffic.roads import GREEN, RED, YELLOW, RoadGraph

STOPPING_MPS2: Final = 4.0
"""How hard people brake for a light that turns yellow."""
YELLOW_S_MIN: Final = 3.0
_ROUNDING_S: Final = 1e-9


class Lights:
    """The lights of all junctions; they write the signals of the road graph's lanes."""

    def __init__(self, roads: RoadGraph) -> None:
        self._roads = roads
        self._lights = roads.roads.lights
        self.phase = np.zeros(len(self._lights), np.int32)
        """Of each light; while it is yellow, the phase that ends."""
        self._next = np.full(len(self._lights), -1, np.int32)
        """The phase that comes after the yellow; -1 while there is none."""
        self._hold_s: dict[int, float] = {}
        """What was asked for, of lights that somebody has set."""
        self.changes_at: Floats = np.zeros(len(self._lights))
        self._yellow_s = [self._yellow(light.node) for light in self._lights]
        for number, light in enumerate(self._lights):
            seconds = [phase.seconds for phase in light.phases]
            into_s, phase = light.offset_s % sum(seconds), 0
            while phase + 1 < len(seconds) and into_s >= seconds[phase]:
                into_s -= seconds[phase]
                phase += 1
            self.phase[number] = phase
            self.changes_at[number] = seconds[phase] - into_s
            self._show(number)

    def _yellow(self, node: int) -> float:
        roads = self._roads
        lanes = roads.node_lanes[roads.node_starts[node] : roads.node_starts[node + 1]]
        fastest = float(roads.lanes["limit"][lanes].max(initial=0.0))
        return max(YELLOW_S_MIN, 0.5 + fastest / STOPPING_MPS2)

    def __len__(self) -> int:
        return len(self._lights)

    def names(self) -> list[str]:
        """Of all lights, in the order of the map: light0, light1, …"""
        return [f"light{number}" for number in range(len(self))]

    def number(self, name: str) -> int:
        """The light of a name; WorldError if there is none."""
        digits = name.removeprefix("light")
        if not (digits.isdecimal() and name == f"light{int(digits)}" and int(digits) < len(self)):
            raise WorldError(
                f"there is no light called {name}; the map has {len(self)}, from light0"
            )
        return int(digits)

    def has_green(self, name: str) -> list[tuple[int, ...]]:
        """The lanes that have green in each phase of a light."""
        return [phase.green for phase in self._lights[self.number(name)].phases]

    def set_phase(self, name: str, phase: int, at: float, *, hold_s: float | None = None) -> None:
        """Have a phase come next, after a yellow; it stays for `hold_s`, or as long as always.

        A light that shows it already shows it longer. Asked while yellow, it comes after all.
        """
        number = self.number(name)
        phases = self._lights[number].phases
        if not 0 <= phase < len(phases):
            raise WorldError(
                f"light {name} has no phase {phase}; give one from 0 to {len(phases) - 1}"
            )
        stays_s = phases[phase].seconds if hold_s is None else hold_s
        if not stays_s > 0:
            raise WorldError(f"light {name} cannot stay for {stays_s:g} s; give more than 0")
        self._hold_s[number] = stays_s
        if self._next[number] >= 0:
            self._next[number] = phase
            self._show(number)
        elif self.phase[number] == phase:
            self.changes_at[number] = max(self.changes_at[number], at + stays_s)
        else:
            self._begin_yellow(number, phase, at)

    def advance(self, at: float) -> None:
        """Change what is due."""
        for number in np.flatnonzero(self.changes_at <= at + _ROUNDING_S).tolist():
            if self._next[number] < 0:
                following = (self.phase[number] + 1) % len(self._lights[number].phases)
                self._begin_yellow(number, int(following), at)
            else:
                self._begin_green(number, at)

    def _begin_yellow(self, number: int, phase: int, at: float) -> None:
        """Or the phase itself, if nobody loses a green by it."""
        phases = self._lights[number].phases
        self._next[number] = phase
        if set(phases[self.phase[number]].green) <= set(phases[phase].green):
            self._begin_green(number, at)
            return
        self.changes_at[number] = at + self._yellow_s[number]
        self._show(number)

    def _begin_green(self, number: int, at: float) -> None:
        phase = int(self._next[number])
        self.phase[number], self._next[number] = phase, -1
        seconds = self._lights[number].phases[phase].seconds
        self.changes_at[number] = at + self._hold_s.pop(number, seconds)
        self._show(number)

    def _show(self, number: int) -> None:
        roads, light = self._roads, self._lights[number]
        begin, end = roads.node_starts[light.node : light.node + 2]
        signal = roads.lanes["signal"]
        signal[roads.node_lanes[begin:end]] = RED
        following = self._next[number]
        now = light.phases[self.phase[number]].green
        if following < 0:
            signal[list(now)] = GREEN
        else:
            kept = light.phases[following].green
            signal[list(now)] = [GREEN if lane in kept else YELLOW for lane in now]
