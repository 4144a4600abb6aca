"""What a scenario has besides people: traffic, sensors and monitors, and their subscribers.

`Instruments` adds them to a world before it begins and returns the publications of each tick;
`audiences_of` makes the subscribers. Each part has a random generator of its own, derived from the
scenario's seed: with or without an audience, with more sensors or fewer, the people of a world do
the same.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rove.lang import LanguageError
from rove.policy.compiler import compiled
from rove.policy.errors import PolicyError
from rove.world.feeds.air import AirField, AirSensors
from rove.world.feeds.audiences import Audience, FeedPublication
from rove.world.feeds.devices import AudienceDevices
from rove.world.feeds.hospital import HospitalWard
from rove.world.runs.scenarios import AudienceSettings, Scenario, ScenarioError
from rove.world.runs.simulation import World
from rove.world.runs.state import EntityKind, Floats, Ints, WorldError
from rove.world.traffic.roads import RoadGraph
from rove.world.traffic.roadside import Roadside, TrafficCentre
from rove.world.traffic.vehicles import Traffic

_TRAFFIC, _AIR, _WARD, _AUDIENCE = range(1, 5)


def _generator(scenario: Scenario, part: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([scenario.seed, part]))


class Instruments:
    """Everything of a world that publishes of its own accord."""

    def __init__(self, scenario: Scenario, world: World) -> None:
        """Put vehicles and sensors into a world that has not begun."""
        self._sources: list[Callable[[float], list[FeedPublication]]] = []
        self._scenario = scenario
        self.centre: TrafficCentre | None = None
        """Who acts upon what it hears, if there is one."""
        if scenario.traffic.vehicles:
            self._add_traffic(world)
        if scenario.air.sensors or scenario.air.carriers:
            self._add_air(world)
        if scenario.ward.patients:
            self._add_ward(world)

    def feeds(self, at: float) -> list[FeedPublication]:
        """What is published at a time; to be asked after every tick."""
        feeds = [feed for source in self._sources for feed in source(at)]
        if self.centre is not None:
            self.centre.hear(self.centre.audience.publish(feeds, at), at)
        return feeds

    def _add_traffic(self, world: World) -> None:
        chosen = self._scenario.traffic
        if world.map.roads is None:
            raise ScenarioError(
                f"{self._scenario.name}: the map {world.map.name} has no roads for "
                f"{chosen.vehicles} vehicles; take one with roads, such as city"
            )
        traffic = Traffic(
            RoadGraph(world.map.roads),
            world.entities,
            _generator(self._scenario, _TRAFFIC),
            vehicles=chosen.vehicles,
            driving=chosen.driving,
            trips_per_hour=chosen.trips_per_hour,
            begins_h=self._scenario.begins_h,
        )

        def drive() -> None:
            # What has changed the world finds out for itself.
            traffic.advance(world.tick_s, world.at)

        world.movers.append(drive)
        roadside = Roadside(
            traffic,
            world.entities,
            detectors_s=chosen.detectors_s,
            cameras_s=chosen.cameras_s,
            vehicles_s=chosen.vehicles_s,
        )
        self._sources.append(roadside.feeds)
        if chosen.controlled:
            self.centre = TrafficCentre(traffic)

    def _add_air(self, world: World) -> None:
        chosen, rng = self._scenario.air, _generator(self._scenario, _AIR)
        x, y = world.paths.free_points(rng, chosen.sensors)
        names = [f"sensor{number + 1}" for number in range(chosen.sensors)]
        standing = world.entities.add(EntityKind.SENSOR, names, x, y)
        carriers = np.concatenate([_called(world, chosen.carriers), standing])
        air = AirField(world.map, rng, begins_h=self._scenario.begins_h)
        sensors = AirSensors(air, world.entities, carriers, rng, every_s=chosen.every_s)
        self._sources.append(sensors.feeds)

    def _add_ward(self, world: World) -> None:
        chosen, rng = self._scenario.ward, _generator(self._scenario, _WARD)
        ward = HospitalWard(
            rng,
            patients=chosen.patients,
            every_s=chosen.every_s,
            image_every_s=chosen.image_every_s,
            beds=_beds(world, chosen.patients, rng),
        )
        self._sources.append(ward.feeds)


def _beds(world: World, count: int, rng: np.random.Generator) -> Floats:
    """Where patients lie: bed1, bed2, … of the map; where it has too few of them, anywhere."""
    places = [world.map.places.get(f"bed{number + 1}") for number in range(count)]
    beds = [place for place in places if place is not None]
    if len(beds) == count:
        return np.array(beds)
    return np.column_stack(world.paths.free_points(rng, count))


def _called(world: World, pattern: str) -> Ints:
    """The entities of such a name."""
    names = enumerate(world.entities.names)
    return np.array([number for number, name in names if fnmatchcase(name, pattern)], np.int32)


def audiences_of(scenario: Scenario, world: World) -> list[Audience]:
    """The audiences of a scenario, all of them subscribed."""
    wishes = planned_subscriptions(scenario, world)
    return [
        _audience(scenario, chosen, each)
        for chosen, each in zip(scenario.audiences, wishes, strict=True)
    ]


def patients_of(scenario: Scenario, chosen: AudienceSettings, number: int) -> list[int]:
    """The patients that a subscriber is responsible for; more subscribers begin from the first."""
    if not chosen.patients:
        return []
    first = number % (scenario.ward.patients // chosen.patients) * chosen.patients
    return list(range(first, first + chosen.patients))


def devices_of(scenario: Scenario) -> list[AudienceDevices | None]:
    """The devices of each audience; None for those of whom it does not matter."""
    return [_devices(scenario, place) for place in range(len(scenario.audiences))]


def _devices(scenario: Scenario, place: int) -> AudienceDevices | None:
    chosen = scenario.audiences[place]
    if chosen.device is None:
        return None
    text = policy_of(scenario, chosen)
    variables = [variables_of(scenario, chosen, number) for number in range(chosen.count)]
    policy = compiled(text) if text else None
    return AudienceDevices(chosen.device, variables, policy=policy, seed=scenario.seed + place)


def variables_of(scenario: Scenario, chosen: AudienceSettings, number: int) -> dict[str, object]:
    """The variables that a subscriber sets itself."""
    return {"patients": patients_of(scenario, chosen, number)} if chosen.patients else {}


def policy_of(scenario: Scenario, chosen: AudienceSettings) -> str:
    """The text of an audience's policy; empty if it has none, ScenarioError if it is none."""
    if not chosen.policy:
        return ""
    text = Path(chosen.policy).read_text(encoding="utf-8")
    try:
        compiled(text)
    except PolicyError as error:
        raise ScenarioError(f"{scenario.name}: {chosen.policy}: {error}") from None
    return text


class PlannedSubscription(NamedTuple):
    """What one subscriber of an audience subscribes to."""

    text: str
    me: dict[str, object] | None
    """Where it is, if that matters."""
    entity: int | None
    """Whom it follows."""


def planned_subscriptions(scenario: Scenario, world: World) -> list[list[PlannedSubscription]]:
    """What the subscribers of each audience subscribe to."""
    rng = _generator(scenario, _AUDIENCE)
    return [_wishes(scenario, chosen, world, rng) for chosen in scenario.audiences]


def _wishes(
    scenario: Scenario, chosen: AudienceSettings, world: World, rng: np.random.Generator
) -> list[PlannedSubscription]:
    avatars = world.clients.avatar
    count = min(chosen.count, len(avatars)) if chosen.follow else chosen.count
    wishes = []
    for number, (x, y) in enumerate(np.column_stack(world.paths.free_points(rng, count)).tolist()):
        text = chosen.text.replace("{x}", f"{x:.2f}").replace("{y}", f"{y:.2f}")
        if own := patients_of(scenario, chosen, number):
            text = text.replace("{first}", str(own[0])).replace("{last}", str(own[-1]))
        entity = int(avatars[number]) if chosen.follow else None
        wishes.append(
            PlannedSubscription(text, {"x": x, "y": y} if chosen.follow else None, entity)
        )
    return wishes


def _audience(
    scenario: Scenario, chosen: AudienceSettings, wishes: list[PlannedSubscription]
) -> Audience:
    audience = Audience(chosen.name)
    for text, me, entity in wishes:
        try:
            subscription = audience.subscribe(chosen.topic, text, me=me, evolve=chosen.evolve)
        except LanguageError as error:
            why = f"{error.what}; {error.hint}" if error.hint else error.what
            raise ScenarioError(
                f"{scenario.name}: audience {chosen.name}: {text!r}: {why}"
            ) from None
        except WorldError as error:
            raise ScenarioError(f"{scenario.name}: {error}") from None
        if entity is not None:
            audience.follow(subscription, entity)
    return audience
