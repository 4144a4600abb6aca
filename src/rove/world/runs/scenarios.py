"""Scenarios as files: who is in the world, what they do when, and which engines are compared.

A scenario is a TOML file. It names a map or has one generated, gives the numbers of players, NPCs,
items and vehicles, commands with their times (in the grammar of the console, `commands`), and the
engines. It may have feeds: publishers with content and an audience that subscribes to it. A run
needs only the number of seconds besides. One file and one seed are one history.

The shipped ones are in `shipped/`. Considered: scenarios as Python. They could do anything, and no
tool could tell what a scenario does; what a file cannot express, a behaviour can
(`behaviours.register`).

A generated map may grow with the players (`m2_per_player`), so that `--players 10000` makes a
larger world and not a denser one; a named map keeps its size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from rove.base.documents import read_document
from rove.world.engines.ensemble import ENGINES, full_name
from rove.world.map.generation import MAP_KINDS, generate
from rove.world.map.maps import Map, load_map
from rove.world.people.behaviours import make_behaviour
from rove.world.people.commands import CommandError, parse_command
from rove.world.runs.state import WorldError

SHIPPED: Final = Path(__file__).parents[1] / "shipped"
PLAYERS_MAX: Final = 100_000

Count = Annotated[int, Meta(ge=0, le=PLAYERS_MAX)]
Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Metres = Annotated[float, Meta(gt=0, le=100_000)]
Share = Annotated[float, Meta(ge=0, le=1)]


class ScenarioError(WorldError):
    """A scenario cannot be read, or cannot be."""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Part of a scenario's file."""


class MapSettings(_Table, frozen=True):
    """Where it happens: `name` of a map, or what to generate."""

    name: str = ""
    """A shipped map, or a file; one beside the scenario is found there."""
    generate: str = ""
    """Or a kind of map: plain, town, maze, city."""
    width: Metres = 1_000.0
    height: Metres = 1_000.0
    m2_per_player: NotNegative = 0.0
    """If given: as large as the players need, in the proportions of width and height."""
    seed: int = 1


class PeopleSettings(_Table, frozen=True):
    """Who is there."""

    players: Count = 100
    npcs: Count = 0
    items: Count = 0
    reach: tuple[Metres, Metres] = (30.0, 20.0)
    """Half the sides of what each client sees, metres."""
    speed: Positive = 1.4
    """Metres a second."""
    behaviour: str = "wander"
    """What players and NPCs do until a command says otherwise ..."""
    parameters: dict[str, Any] = {}
    """... and how: the fields of the behaviour's class."""
    npcs_look: bool = True
    """Whether NPCs are clients, too, and see what is around them."""
    servers: Annotated[int, Meta(ge=1, le=1_000)] = 1


class TimedCommand(_Table, frozen=True):
    """A command at its time."""

    at: NotNegative
    """Seconds after the beginning."""
    do: str


class EngineSettings(_Table, frozen=True):
    """Which engines run, and how. None of them, and there are no replicas in this scenario."""

    use: tuple[str, ...] = ("object", "tile", "area", "evolving")
    live: str = ""
    """The one that carries the traffic; the first unless said otherwise."""
    resubscribe_s: Positive = 0.5
    """How often area-based clients and servers replace their rectangles while they move, or ask for
    replicas, where rectangles evolve."""
    lag_s: Positive = 0.5
    """The interval of PES and the threshold of CLEES."""


class TrafficSettings(_Table, frozen=True):
    """Vehicles on the roads of the map; they, loops and cameras publish under `traffic/`."""

    vehicles: Count = 0
    driving: Annotated[float, Meta(ge=0, le=1)] = 0.3
    """Which part of them is on the road when the world begins."""
    trips_per_hour: NotNegative = 2.0
    """Of a vehicle, at the height of the rush hour."""
    detectors_s: Positive = 10.0
    cameras_s: Positive = 5.0
    vehicles_s: Positive = 5.0
    """How often each of them publishes."""
    controlled: bool = False
    """Whether a traffic centre listens around each light, and changes its phase."""


class AirSettings(_Table, frozen=True):
    """Sensors of the air, which publish under `air/`."""

    sensors: Count = 0
    """So many stand at random places of the map;"""
    carriers: str = ""
    """Entities with such a name (player*, car*) carry one each, in addition."""
    every_s: Positive = 1.0


class WardSettings(_Table, frozen=True):
    """Patients whose monitors publish under `ward/`."""

    patients: Count = 0
    every_s: Positive = 1.0
    image_every_s: Positive = 10.0


class DeviceSettings(_Table, frozen=True):
    """What each subscriber of an audience reads with, simulated (`rove.client.devices`)."""

    battery: tuple[Share, Share] = (1.0, 1.0)
    """How full it is at the beginning, from the first subscriber to the last."""
    battery_j: Positive = 60.0
    """What a full one holds. Minutes, not hours: a scenario is to see it empty."""
    idle_w: NotNegative = 0.1
    joules_per_byte: NotNegative = 4e-6
    """About a watt at 2 Mb/s."""
    joules_per_message: NotNegative = 1e-3
    display: tuple[Annotated[int, Meta(ge=1)], ...] = (1280,)
    """Pixels, one subscriber after the other."""
    bits_per_s: tuple[Positive, Positive] = (3e5, 3e6)
    """Between these the link varies, every ten seconds."""
    report_s: Positive = 10.0
    """How often it tells how it is."""


class AudienceSettings(_Table, frozen=True):
    """Subscribers to what the feeds publish."""

    name: str
    topic: str
    """A filter, as MQTT has them."""
    text: str
    """A subscription of Rove's language. {x} and {y} stand for a point of the map, another one for
    each subscriber."""
    count: Annotated[int, Meta(ge=1, le=PLAYERS_MAX)] = 1
    follow: bool = False
    """Whether `me.x` and `me.y` are where a player is. Each subscriber has one, so there are at
    most as many as players ..."""
    follow_s: Positive = 1.0
    """... and tells this often where it is."""
    evolve: str = "exact"
    """The design, for texts with `t`: exact, pes 1, lees, clees 1."""
    patients: Count = 0
    """So many of the ward are each subscriber's own, as `me.patients`, one after the other; {first}
    and {last} in the text stand for the first and the last of them."""
    policy: str = ""
    """The file of a policy that each has: beside the scenario, or the shipped `icu.policy`."""
    device: DeviceSettings | None = None
    """What they read with, if that matters; with a policy it always does."""


class Scenario(_Table, frozen=True):
    """All of it."""

    title: str
    about: str
    """What it is for, in a sentence or two."""
    map: MapSettings
    people: PeopleSettings = PeopleSettings()
    engines: EngineSettings = EngineSettings()
    commands: tuple[TimedCommand, ...] = ()
    traffic: TrafficSettings = TrafficSettings()
    air: AirSettings = AirSettings()
    ward: WardSettings = WardSettings()
    audiences: tuple[AudienceSettings, ...] = ()
    seconds: Positive = 60.0
    tick_s: Annotated[float, Meta(gt=0, le=10)] = 0.1
    begins_h: Annotated[float, Meta(ge=0, lt=24)] = 7.0
    """The hour of the day when the world begins, for traffic and air."""
    sample_s: Positive = 1.0
    seed: Annotated[int, Meta(ge=0)] = 1
    name: str = ""
    """That of the file; not written in it."""

    def sized(
        self,
        *,
        players: int | None = None,
        seconds: float | None = None,
        seed: int | None = None,
        engines: Sequence[str] | None = None,
        live: str | None = None,
    ) -> Scenario:
        """The same with some of it changed, as the command line does; None leaves it."""
        people = self.people if players is None else replace(self.people, players=players)
        chosen = self.engines if engines is None else replace(self.engines, use=tuple(engines))
        if engines is not None and chosen.live not in engines:
            chosen = replace(chosen, live="")
        if live is not None:
            chosen = replace(chosen, live=live)
        changed = replace(
            self,
            people=people,
            engines=chosen,
            seconds=self.seconds if seconds is None else seconds,
            seed=self.seed if seed is None else seed,
        )
        return _checked(changed, self.name)


# --- reading --------------------------------------------------------------------------------------


def shipped_scenarios() -> list[str]:
    """The names of the scenarios that come with Rove."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def load_scenario(name_or_path: str | Path) -> Scenario:
    """A shipped scenario by its name, or one out of a file; ScenarioError says what is wrong."""
    written = str(name_or_path)
    path = SHIPPED / f"{written}.toml" if written in shipped_scenarios() else Path(written)
    if not path.exists():
        known = ", ".join(shipped_scenarios())
        raise ScenarioError(f"no scenario and no file is called {written}; shipped are {known}")
    scenario = read_document(path, Scenario, ScenarioError)
    if scenario.name:
        raise ScenarioError(f"{path}: `name` is {scenario.name!r}: it is the file's, leave it out")
    scenario = _checked(scenario, str(path))
    beside = path.parent / scenario.map.name
    if scenario.map.name and beside.is_file():
        scenario = replace(scenario, map=replace(scenario.map, name=str(beside)))
    audiences = tuple(_with_policy(audience, path.parent) for audience in scenario.audiences)
    return replace(scenario, audiences=audiences, name=path.stem)


def _with_policy(audience: AudienceSettings, folder: Path) -> AudienceSettings:
    """The same with the path of its policy's file; an audience with a policy has devices."""
    if not audience.policy:
        return audience
    places = (folder / audience.policy, SHIPPED / audience.policy, Path(audience.policy))
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise ScenarioError(f"audience {audience.name}: there is no policy {audience.policy}")
    return replace(audience, policy=str(found), device=audience.device or DeviceSettings())


def make_map(scenario: Scenario) -> Map:
    """The map of a scenario: read, or generated from the map's own seed."""
    choice = scenario.map
    if choice.name:
        return load_map(choice.name)
    width, height = choice.width, choice.height
    if choice.m2_per_player:
        m2 = choice.m2_per_player * max(scenario.people.players, 1)
        scale = math.sqrt(m2 / (width * height))
        width, height = round(width * scale, 1), round(height * scale, 1)
    return generate_map(choice.generate, width, height, choice.seed)


def generate_map(kind: str, width: float, height: float, seed: int) -> Map:
    """A map that a seed stands for."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return generate(kind, rng, width, height)


def _checked(scenario: Scenario, where: str) -> Scenario:
    """The same, engines by their full names; ScenarioError if it cannot be."""
    for complaint in _complaints(scenario):
        raise ScenarioError(f"{where}: {complaint}")
    engines = scenario.engines
    use = tuple(map(full_name, engines.use))
    live = full_name(engines.live) if engines.live else next(iter(use), "")
    return replace(scenario, engines=replace(engines, use=use, live=live))


def _wrong_engines(engines: EngineSettings) -> Iterator[str]:
    use = [full_name(engine) for engine in engines.use]
    for engine in use:
        if engine not in ENGINES:
            yield f"there is no engine {engine}; there are {', '.join(ENGINES)}"
        if use.count(engine) > 1:
            yield f"engine {engine} is named twice; each runs once"
    if engines.live and full_name(engines.live) not in use:
        running = ", ".join(use) or "none"
        yield f"the live engine is one of those that run ({running}), not {engines.live}"


def _complaints(scenario: Scenario) -> Iterator[str]:
    """What single keys cannot tell, the first thing first."""
    choice, engines = scenario.map, scenario.engines
    if not 0 <= scenario.people.players <= PLAYERS_MAX:
        yield f"{scenario.people.players:,} players are too many; give up to {PLAYERS_MAX:,}"
    if bool(choice.name) == bool(choice.generate):
        yield "[map] has either `name`, of a map, or `generate`, a kind of map"
    if choice.generate and choice.generate not in MAP_KINDS:
        yield f"`map.generate` is {choice.generate!r}: there are {', '.join(MAP_KINDS)}"
    try:
        make_behaviour(scenario.people.behaviour, scenario.people.parameters)
    except WorldError as error:
        yield f"[people]: {error}"
    yield from _wrong_engines(engines)
    for audience in scenario.audiences:
        if audience.patients > scenario.ward.patients:
            yield (
                f"audience {audience.name} has {audience.patients} patients each, and the ward has "
                f"{scenario.ward.patients}"
            )
    for number, said in enumerate(scenario.commands):
        try:
            parse_command(said.do)
        except CommandError as error:
            why = f"{error.refusal.what}; {error.refusal.hint}"
            yield f"`commands[{number}].do` is {said.do!r}: {why}"
