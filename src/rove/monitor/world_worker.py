"""The process that plays a world in real time: its loop, its commands and what it reports.

A tick is computed when its time has come. On a machine that is too slow the world lags: delays of
more than `BEHIND_S_MAX` are not made up for, so world time runs more slowly, and `speed` gives the
ratio. After the last second of its scenario a world continues until the command `end`.

Requests, answers and frames share one pipe, in the order in which they happened: JSON, or frames of
`rove.monitor.motion_frames`. The process ends when the other end of the pipe is closed.

`world_view` is what the page draws of a run: the map and its inhabitants, once for each run, as
JSON. Coordinates are metres, rounded to centimetres: more is invisible, and half of the bytes are
digits. Above 30,000 tiles a picture shows only a grey haze, so they are left out. The shipped town
with 200 players takes 87 KB, the open plain with its 8,000 tiles 361; compressed 22 and 55.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable
from multiprocessing.connection import Connection
from typing import Any, Final

import msgspec
import numpy as np

from rove.errors import RoveError
from rove.monitor.console_commands import (
    Begin,
    Halt,
    Help,
    completions,
    console_help,
    world_control,
)
from rove.monitor.motion_frames import ClientAreas, Motion
from rove.monitor.sensor_maps import SensorMap
from rove.world.engines.areas_of_interest import areas_of, listening_of
from rove.world.engines.ensemble import WorldEngine
from rove.world.map.maps import Map, Roads
from rove.world.map.tiles import Tiles
from rove.world.people.commands import WorldCommand
from rove.world.runs.scenario_run import ScenarioRun
from rove.world.runs.scenarios import Scenario, ScenarioError, load_scenario, shipped_scenarios
from rove.world.runs.state import EntityKind, Floats, WorldError

BEHIND_S_MAX: Final = 1.0
LISTENING_S: Final = 0.2
SAMPLE_S: Final = 1.0
"""Of the wall's time: charts go on at their pace even if the world does not."""
SPEED_OVER_S: Final = 3.0
TEXT_MAX: Final = 1_000
"""Letters of a command."""


class WorkerRequest(msgspec.Struct, tag_field="do", tag=str.lower):
    """A request of the monitor."""


class RunCommand(WorkerRequest):
    number: int
    text: str


class CompleteCommand(WorkerRequest):
    number: int
    text: str


class WatchEntities(WorkerRequest):
    selected: list[str]
    areas: bool


class ReadHeatMap(WorkerRequest):
    number: int
    attribute: str


AnyRequest = RunCommand | CompleteCommand | WatchEntities | ReadHeatMap


def play(pipe: Connection, scenario: Scenario) -> None:
    """Play a scenario, and others after it, until the other end of the pipe is gone."""
    # Ctrl-C is for the monitor, which then ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        WorldWorker(pipe, scenario).play()
    except RoveError as error:
        what = f"{scenario.name} cannot be played: {error}"
        pipe.send_bytes(msgspec.json.encode(_note("scenario", what)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


class WorldWorker:
    """Plays one world after another and reports over the pipe."""

    def __init__(self, pipe: Connection, scenario: Scenario) -> None:
        self._pipe = pipe
        self._first = scenario
        self._decode = msgspec.json.Decoder(AnyRequest).decode
        self._selected: list[str] = []
        self._wants_areas = False
        self._waiting: dict[int, tuple[WorldCommand, int]] = {}
        """Commands for the next tick, by their identity, with the numbers of their requests."""
        self._is_paused = False
        self._is_over = False
        self._said_state: dict[str, Any] = {}
        self._begin(scenario)

    def _begin(self, scenario: Scenario) -> None:
        run = ScenarioRun(scenario, timer=time.perf_counter_ns, is_open=True)
        if run.ensemble is not None:
            run.ensemble.begin()
        else:
            run.world.begin()
        self._run = run
        self._name = f"{scenario.name}-{int(time.time() * 1000)}"
        self._motion = Motion(len(run.world.entities))
        self._areas = ClientAreas(len(run.world.clients.avatar))
        self._sensors = SensorMap(run.world.map)
        self._waiting.clear()
        self._is_paused = self._is_over = False
        self._was_over = False
        self._pace = [(time.monotonic(), 0.0)]
        self._due = time.monotonic() + scenario.tick_s
        self._sample_due = time.monotonic() + SAMPLE_S
        self._listened_at = -1.0
        facts = {
            "players": scenario.people.players,
            "entities": len(run.world.entities),
            "servers": scenario.people.servers,
            "live": run.live,
        }
        view = world_view(run, self._name)
        self._tell({"type": "world", "began": time.time(), "facts": facts, "view": view})
        self._frames()
        self._said_state = {}
        self._tell_state()
        self._note("scenario", f"{scenario.name} begins")

    # -- time ----------------------------------------------------------------------------------

    def play(self) -> None:
        """Tick after tick; ends with an EOFError."""
        while True:
            stands = self._is_paused or self._is_over
            wait_s = None if stands else max(0.0, self._due - time.monotonic())
            if self._pipe.poll(wait_s):
                self._answer(self._decode(self._pipe.recv_bytes()))
            elif not stands:
                self._step()

    def _step(self) -> None:
        run, now = self._run, time.monotonic()
        if now - self._due > BEHIND_S_MAX:
            self._due = now
        self._due += run.world.tick_s
        changes = run.step()
        self._answer_commands()
        self._sensors.take(run.feeds)
        self._frames()
        self._tell_listening(changes.at)
        if now >= self._sample_due:
            self._sample_due = now + SAMPLE_S - (now - self._sample_due) % SAMPLE_S
            self._tell_sample()
            self._measure(now)
        if not self._was_over and changes.at >= run.scenario.seconds:
            self._was_over = True
            self._note("scenario", f"{run.scenario.name} is over; the world continues until `end`")
        self._tell_state()

    def _measure(self, now: float) -> None:
        self._pace.append((now, self._run.world.at))
        while len(self._pace) > 2 and now - self._pace[1][0] > SPEED_OVER_S:
            self._pace.pop(0)

    @property
    def _speed(self) -> float:
        (began, at), (now, at_now) = self._pace[0], self._pace[-1]
        # Values near 1 count as 1: a state is sent when it changes, and the speed fluctuates.
        speed = (at_now - at) / (now - began) if now - began > 1.0 else 1.0
        return 1.0 if speed > 0.97 else round(speed, 1)

    # -- reports -------------------------------------------------------------------------------

    def _tell(self, what: dict[str, Any]) -> None:
        self._pipe.send_bytes(msgspec.json.encode(what))

    def _note(self, kind: str, text: str) -> None:
        self._tell(_note(kind, text))

    def _tell_state(self) -> None:
        state = {
            "is_paused": self._is_paused,
            "is_over": self._is_over,
            "live": self._run.live,
            "speed": self._speed,
        }
        if state == self._said_state:
            return
        before = self._said_state.get("live")
        self._said_state = state
        at = round(self._run.world.at, 3)
        self._tell({"type": "state", "run": self._name, "at": at, **state})
        if before is not None and before != state["live"]:
            self._note("engine", f"{state['live']} is live, {before} no longer")

    def _frames(self) -> None:
        world = self._run.world
        of = world.entities
        frame = self._motion.look(of.x, of.y, of.vx, of.vy, world.tick, world.at, world.tick_s)
        self._pipe.send_bytes(frame)
        if self._wants_areas and self._run.live:
            areas = areas_of(self._run.live, self._run.buses[self._run.live], world)
            self._pipe.send_bytes(self._areas.look(*areas, world.tick, world.at))

    def _tell_sample(self) -> None:
        engines, audiences = self._run.sample()
        self._tell(
            {
                "type": "sample",
                "run": self._name,
                "now": time.time(),
                "at": round(self._run.world.at, 3),
                "engines": {one.source: one.figures for one in engines},
                "audiences": {one.source: one.figures for one in audiences},
            }
        )

    def _tell_listening(self, at: float) -> None:
        if not self._selected or 0 <= at - self._listened_at < LISTENING_S - 1e-9:
            return
        self._listened_at = at
        for name in self._selected:
            self._tell(self._listening(name))

    def _listening(self, name: str) -> dict[str, Any]:
        run, world = self._run, self._run.world
        found: dict[str, Any] = {"type": "listening", "select": name, "at": round(world.at, 3)}
        try:
            entity = world.entities.number(name)
        except WorldError:
            return {**found, "truth": None, "engines": {}}
        of, clients = world.entities, world.clients
        place = [of.x[entity], of.y[entity], clients.reach_x, clients.reach_y]
        truth = _rounded([*place, of.vx[entity], of.vy[entity]])
        numbers = (clients.avatar == entity).nonzero()[0].tolist()
        if not numbers:
            return {**found, "truth": truth, "engines": {}}
        engines = {
            engine: _listening_view(listening_of(engine, bus, world, numbers[0]))
            for engine, bus in run.buses.items()
        }
        return {**found, "truth": truth, "engines": engines}

    # -- answering -----------------------------------------------------------------------------

    def _answer(self, asked: AnyRequest) -> None:
        match asked:
            case RunCommand(number=number, text=text):
                self._obey(number, text[:TEXT_MAX])
            case CompleteCommand(number=number, text=text):
                words = completions(text[:TEXT_MAX], self._run.world, self._scenarios())
                self._tell({"type": "completions", "number": number, "words": words.words})
            case WatchEntities(selected=selected, areas=areas):
                self._watch(selected, areas)
            case ReadHeatMap(number=number, attribute=attribute):
                heat = self._sensors.view(attribute, self._run.world.at)
                self._tell({"type": "heat", "number": number, "heat": heat})

    def _watch(self, selected: list[str], wants_areas: bool) -> None:
        new = [name for name in selected if name not in self._selected]
        self._selected = selected
        for name in new:
            self._tell(self._listening(name))
        if wants_areas and not self._wants_areas and self._run.live:
            # From the beginning: no page has had updates meanwhile.
            self._areas.forget()
            areas = areas_of(self._run.live, self._run.buses[self._run.live], self._run.world)
            world = self._run.world
            self._pipe.send_bytes(self._areas.look(*areas, world.tick, world.at))
        self._wants_areas = wants_areas

    def _said(self, number: int, text: str, *, ok: bool = True) -> None:
        self._tell({"type": "said", "number": number, "ok": ok, "text": text})

    def _obey(self, number: int, text: str) -> None:
        try:
            order = world_control(text)
            match order:
                case Help(verb=verb):
                    self._said(number, console_help(verb, self._scenarios()))
                case Begin():
                    self._begin_another(number, self._chosen(order))
                case Halt(verb=verb):
                    self._halt(number, verb)
                case None:
                    self._command(number, text)
        except RoveError as error:
            self._said(number, str(error), ok=False)
            self._note("refused", f"{text}: {_first_line(error)}")

    def _command(self, number: int, text: str) -> None:
        if self._is_over:
            raise WorldError("the world has ended; enter restart, or scenario NAME")
        command = self._run.world.obey(text)
        if self._is_paused:
            self._said(number, f"{command}: queued until the world continues")
        self._waiting[id(command)] = command, -1 if self._is_paused else number

    def _answer_commands(self) -> None:
        """Report the results of the commands of this tick."""
        world = self._run.world
        why = {id(refusal.command): refusal for refusal in world.refusals}
        world.refusals.clear()
        for key, (command, number) in self._waiting.items():
            refusal = why.pop(key, None)
            if refusal is not None:
                self._note("refused", f"{command}: {refusal.why}")
            else:
                self._note("command", str(command))
            if number >= 0:
                what = f"{command}: done at {world.at:.1f} s" if refusal is None else refusal.why
                self._said(number, what, ok=refusal is None)
        self._waiting.clear()
        for refusal in why.values():
            self._note("refused", f"{refusal.command}: {refusal.why}")
        while self._run.refused:
            said, reason = self._run.refused.popleft()
            self._note("refused", f"{said}: {reason}")

    def _halt(self, number: int, verb: str) -> None:
        if verb == "restart":
            self._begin_another(number, self._run.scenario)
            return
        if self._is_over:
            raise WorldError("the world has ended; enter restart, or scenario NAME")
        if verb == "end":
            self._is_over = True
            self._said(number, f"{self._run.scenario.name} has ended")
            self._note("scenario", f"{self._run.scenario.name} was ended")
        elif verb == "pause":
            self._is_paused = True
            self._said(number, f"the world is paused at {self._run.world.at:.1f} s")
        else:
            self._is_paused = False
            self._due = time.monotonic()
            self._sample_due = time.monotonic()
            self._pace = [(time.monotonic(), self._run.world.at)]
            self._said(number, "the world continues")
        self._tell_state()

    # -- scenarios -----------------------------------------------------------------------------

    def _scenarios(self) -> list[str]:
        return sorted({*shipped_scenarios(), self._first.name})

    def _chosen(self, order: Begin) -> Scenario:
        if order.name not in self._scenarios():
            raise ScenarioError(
                f"there is no scenario {order.name}; there are {', '.join(self._scenarios())}"
            )
        is_first = order.name == self._first.name
        found = self._first if is_first else load_scenario(order.name)
        return found.sized(players=order.players, seed=order.seed)

    def _begin_another(self, number: int, scenario: Scenario) -> None:
        self._begin(scenario)
        players = scenario.people.players
        self._said(number, f"{scenario.name}: {scenario.title}, {players:,} players")


def _note(kind: str, text: str) -> dict[str, Any]:
    return {"type": "note", "now": time.time(), "kind": kind, "text": text}


def _listening_view(found: Any) -> dict[str, Any]:
    return {
        "rectangles": [_rounded(line) for line in found.rectangles.tolist()],
        "tiles": found.tiles.tolist(),
        "objects": found.objects.tolist(),
    }


def _rounded(values: list[float]) -> list[float]:
    return [round(float(value), 3) for value in values]


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


TILES_MAX: Final = 30_000
LANE_M: Final = 3.0
"""How wide a lane is drawn; maps say nothing of it."""


def world_view(run: ScenarioRun, name: str) -> dict[str, Any]:
    """Everything of a run that does not move."""
    world, scenario = run.world, run.scenario
    regions = world.regions
    return {
        "run": name,
        "scenario": scenario.name,
        "title": scenario.title,
        "about": scenario.about,
        "seed": scenario.seed,
        "seconds": scenario.seconds,
        "tick_s": world.tick_s,
        "map": _map_view(world.map, world.tiles),
        "regions": [
            dict(zip(("server", "x0", "y0", "x1", "y1"), (n, *regions.rectangle(n)), strict=True))
            for n in range(regions.count)
        ],
        "entities": {
            "names": world.entities.names,
            "kinds": world.entities.kind.tolist(),
            "kind_names": [kind.name.lower() for kind in EntityKind],
        },
        "clients": {
            "avatars": world.clients.avatar.tolist(),
            "reach": [world.clients.reach_x, world.clients.reach_y],
        },
        "engines": [_engine_view(one, run) for one in _engines(run)],
    }


def _engines(run: ScenarioRun) -> Iterable[WorldEngine]:
    return run.ensemble.engines if run.ensemble is not None else ()


def _engine_view(engine: WorldEngine, run: ScenarioRun) -> dict[str, Any]:
    chosen = run.scenario.engines
    lag_s = chosen.lag_s if engine.name in ("evolving-pes", "evolving-clees") else None
    return {
        "name": engine.name,
        "delay_s": engine.delay_ticks * run.world.tick_s,
        "live": engine.name == run.live,
        "design": engine.name.partition("-")[2] or engine.name,
        "lag_s": lag_s,
    }


def _map_view(map_: Map, tiles: Tiles) -> dict[str, Any]:
    is_few = len(tiles) <= TILES_MAX
    return {
        "name": map_.name,
        "width": map_.width,
        "height": map_.height,
        "walls": [_rounded_points(np.array(wall)) for wall in map_.obstacles],
        "roads": [] if map_.roads is None else _roads_view(map_.roads),
        "places": {name: [float(x), float(y)] for name, (x, y) in map_.places.items()},
        "tiles": _rounded_points(tiles.triangles.reshape(-1, 6)) if is_few else [],
    }


def _roads_view(roads: Roads) -> list[dict[str, Any]]:
    return [
        {"points": [roads.nodes[lane.from_node], roads.nodes[lane.to_node]], "width": LANE_M}
        for lane in roads.lanes
    ]


def _rounded_points(points: Floats) -> Any:
    return points.round(2).tolist()
