"""What inhabitants do of their own accord."""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pytest

from rove.world.map.maps import Map
from rove.world.people import behaviours, items
from rove.world.people.behaviours import (
    BEHAVIOURS,
    Behaviour,
    BehaviourWorld,
    make_behaviour,
    register,
)
from rove.world.runs.simulation import World
from rove.world.runs.state import NOBODY, EntityKind, WorldError

YARD = Map(
    "yard",
    100,
    80,
    (((20, 20), (40, 20), (40, 50), (20, 50)), ((60, 0), (62, 0), (62, 60), (60, 60))),
    {"gate": (5, 40), "well": (80, 10)},
)


def world(count: int, behaviour: Behaviour | str, *, apples: int = 0, speed: float = 3) -> World:
    made = World(YARD, seed=3)
    made.populate(0, count, apples, behaviour=behaviour, speed=speed)
    return made


def put(made: World, entity: int, x: float, y: float) -> None:
    made.entities.x[entity], made.entities.y[entity] = x, y


def run(made: World, seconds: float) -> None:
    for _ in range(round(seconds / made.tick_s)):
        made.step()


def distances(made: World, x: float, y: float) -> list[float]:
    squares = (made.entities.x - x) ** 2 + (made.entities.y - y) ** 2
    return [float(each) for each in np.sqrt(squares)]


def test_standing() -> None:
    made = world(3, "stand")
    made.begin()
    for _ in range(50):
        assert made.step().changed.tolist() == []


def test_wandering_goes_on_and_stays_near() -> None:
    made = world(20, behaviours.Wander(range_m=10, pause_s=0.5))
    made.begin()
    legs = np.zeros(20, int)
    x, y = made.entities.x.copy(), made.entities.y.copy()
    for _ in range(600):
        legs[made.step().legs] += 1
    assert legs.min() > 10
    assert (abs(made.entities.x - x) + abs(made.entities.y - y) > 1).sum() >= 15


def test_wandering_ends_within_range_of_its_beginning() -> None:
    made = world(50, behaviours.Wander(range_m=7, pause_s=1e6))
    x, y = made.entities.x.copy(), made.entities.y.copy()
    run(made, 30)
    metres = np.sqrt((made.entities.x - x) ** 2 + (made.entities.y - y) ** 2)
    assert metres.max() <= 7
    assert metres.min() > 0


def test_gathering_makes_a_crowd_that_mills_about() -> None:
    made = world(30, behaviours.Gather("well", within_m=6))
    run(made, 90)
    assert max(distances(made, 80, 10)) <= 6
    before = made.entities.version.copy()
    run(made, 20)
    assert (made.entities.version > before).all()
    assert max(distances(made, 80, 10)) <= 6


def test_travelling_is_far() -> None:
    def mean_leg_m(behaviour: Behaviour) -> float:
        made = world(20, behaviour, speed=10)
        made.begin()
        walked, arrivals = 0.0, 0
        for _ in range(400):
            changes = made.step()
            walked += float(np.sqrt(made.entities.vx**2 + made.entities.vy**2).sum()) * 0.1
            arrivals += len(changes.legs)
        return walked / arrivals

    assert mean_leg_m(behaviours.Travel()) > 2 * mean_leg_m(behaviours.Wander(range_m=20))
    made = world(1, behaviours.Travel(choices=50))
    put(made, 0, 5, 40)
    made.step()
    # The farthest of fifty points is in one of the far corners, behind the wall.
    while made.movement.is_moving(0) and made.entities.x[0] < 75:
        made.step()
    assert made.entities.x[0] >= 75


def test_patrols_go_round() -> None:
    made = world(1, behaviours.Patrol(("gate", (10, 70), "well")))
    put(made, 0, 5, 5)
    names = {(5.0, 40.0): "gate", (10.0, 70.0): "corner", (80.0, 10.0): "well"}
    visited: list[str] = []
    for _ in range(2500):
        made.step()
        here = (float(made.entities.x[0]), float(made.entities.y[0]))
        visited += [name for point, name in names.items() if point == here]
    assert len(visited) >= 6
    assert visited[:6] == ["gate", "corner", "well"] * 2


def test_following_keeps_near_and_waits() -> None:
    made = world(2, "stand")
    put(made, 0, 10, 10)
    put(made, 1, 90, 10)  # behind a wall
    made.obey("follow npc1 npc2")
    run(made, 60)
    assert items.distance_m(made.entities, 0, 1) <= 2
    assert not made.movement.is_moving(0)
    made.obey("go npc2 to gate")
    made.obey("speed npc2 1")
    run(made, 20)
    for _ in range(300):
        made.step()
        assert items.distance_m(made.entities, 0, 1) <= 2 + 3 * 1.1
    run(made, 90)
    assert made.entities.x[1] == 5
    assert items.distance_m(made.entities, 0, 1) <= 2


def test_fleeing_keeps_away() -> None:
    made = world(2, "stand")
    put(made, 0, 50, 70)
    put(made, 1, 50, 60)
    made.obey("flee npc1 npc2")
    run(made, 20)
    assert items.distance_m(made.entities, 0, 1) > 30
    assert not made.movement.is_moving(0)
    put(made, 1, float(made.entities.x[0]), float(made.entities.y[0]))  # on the same point
    run(made, 20)
    assert items.distance_m(made.entities, 0, 1) > 30


def test_trading_moves_items_from_hand_to_hand() -> None:
    made = world(6, "trade", apples=3)
    made.begin()
    holders: dict[int, list[int]] = {item: [] for item in (6, 7, 8)}
    for _ in range(3000):
        made.step()
        for item, seen in holders.items():
            holder = int(made.entities.holder[item])
            if holder != NOBODY and holder not in seen[-1:]:
                seen.append(holder)
    assert all(len(seen) >= 3 for seen in holders.values())
    assert not made.refusals


def test_without_items_traders_stand() -> None:
    made = world(2, "trade")
    run(made, 5)
    assert not made.entities.vx.any()


def test_a_trader_alone_keeps_what_it_has() -> None:
    made = world(1, "trade", apples=1)
    run(made, 120)
    assert made.entities.holder.tolist() == [NOBODY, 0]
    assert made.entities.kind[1] == EntityKind.ITEM


# -- behaviours of users --------------------------------------------------------------------


@pytest.fixture
def known_before() -> Iterator[None]:
    known = dict(BEHAVIOURS)
    yield
    BEHAVIOURS.clear()
    BEHAVIOURS.update(known)


def test_a_user_adds_a_behaviour(known_before: None) -> None:
    @register
    class Pendulum(Behaviour):
        """To and fro between two places."""

        name: ClassVar[str] = "pendulum"
        pause_s: float = 0.2

        def decide(self, world: BehaviourWorld, entity: int) -> None:
            at_gate = (world.entities.x[entity], world.entities.y[entity]) == (5, 40)
            there = world.place("well" if at_gate else "gate")
            world.go(entity, *there, pause_s=self.pause_s)

    made = world(2, "stand", speed=10)
    made.obey("behave npc1 pendulum")
    places = set()
    for _ in range(400):
        made.step()
        places.add((float(made.entities.x[0]), float(made.entities.y[0])))
    assert {(5, 40), (80, 10)} <= places
    assert isinstance(made.behaviour_of(0), Pendulum)
    assert made.behaviour_of(1).name == "stand"
    other = world(1, make_behaviour("pendulum", {"pause_s": 1.5}))
    assert "pendulum" in other.words("BEHAVIOUR")


def test_names_of_behaviours_are_given_once(known_before: None) -> None:
    with pytest.raises(WorldError, match="Nameless has no name"):

        @register
        class Nameless(Behaviour):
            pass

    with pytest.raises(WorldError, match="already a behaviour wander"):

        @register
        class Other(Behaviour):
            name: ClassVar[str] = "wander"

    register(behaviours.Wander)  # the same again does no harm


def test_a_behaviour_that_decides_nothing_is_a_mistake_of_its_writer() -> None:
    class Lazy(Behaviour):
        name: ClassVar[str] = "lazy"

    made = world(1, Lazy())
    with pytest.raises(NotImplementedError, match="lazy decides nothing"):
        made.step()


@pytest.mark.parametrize(
    ("name", "parameters", "complaint"),
    [
        ("dance", {}, "there is no behaviour dance; known are .*patrol"),
        ("wander", {"range_m": "far"}, "behaviour wander: Expected `float`, got `str`.*range_m"),
        ("wander", {"range_m": 0}, "behaviour wander: .*> 0.*range_m"),
        ("wander", {"range": 5}, "behaviour wander: .*unknown field `range`"),
        ("follow", {}, "behaviour follow: .*`whom`"),
        ("patrol", {"stops": []}, "behaviour patrol: .*length >= 1"),
    ],
)
def test_parameters_are_checked(name: str, parameters: dict[str, object], complaint: str) -> None:
    with pytest.raises(WorldError, match=complaint):
        make_behaviour(name, parameters)


@pytest.mark.parametrize(
    ("behaviour", "complaint"),
    [
        (behaviours.Follow("ghost"), "nobody called ghost"),
        (behaviours.Flee("ghost"), "nobody called ghost"),
        (behaviours.Gather("market"), "no place market"),
        (behaviours.Patrol(("gate", (30.0, 30.0))), "inside a wall"),
    ],
)
def test_what_cannot_be_done_here_is_refused_at_once(behaviour: Behaviour, complaint: str) -> None:
    made = world(1, "stand")
    with pytest.raises(WorldError, match=complaint):
        made.assign(np.array([0], np.int32), behaviour)
