"""The passing of time: what a tick changes, what it tells, and that it is always the same."""

import math
from typing import ClassVar

import msgspec
import numpy as np
import pytest

from rove.world.map.maps import Map
from rove.world.people.behaviours import Behaviour, BehaviourWorld, Wander
from rove.world.runs.simulation import World
from rove.world.runs.state import NOBODY, EntityKind, TickChanges, WorldError

COLUMNS = ("x", "y", "vx", "vy", "speed", "server", "holder", "uses", "version")

YARD = Map(
    "yard",
    100,
    80,
    (((20, 20), (40, 20), (40, 50), (20, 50)), ((60, 0), (62, 0), (62, 60), (60, 60))),
    {"gate": (5, 40), "well": (80, 10)},
)


def world(seed: int = 1, *, servers: int = 1, players: int = 6, npcs: int = 6) -> World:
    made = World(YARD, seed=seed, servers=servers)
    made.populate(players, npcs, 4, reach=(10, 5))
    return made


def columns(of: World) -> dict[str, list[float]]:
    return {column: getattr(of.entities, column).tolist() for column in COLUMNS}


def test_it_begins_with_everybody_new_and_at_rest() -> None:
    made = world()
    first = made.begin()
    everybody = list(range(16))
    assert (first.tick, first.at) == (0, 0.0)
    assert first.changed.tolist() == first.legs.tolist() == everybody
    assert first.handed_over.tolist() == []
    assert made.entities.names[:2] == ["player1", "player2"]
    assert made.entities.names[6] == "npc1"
    assert made.entities.names[12:] == ["apple1", "apple2", "apple3", "apple4"]
    assert (
        made.entities.kind.tolist()
        == [EntityKind.PLAYER] * 6 + [EntityKind.NPC] * 6 + [EntityKind.ITEM] * 4
    )
    assert made.entities.version.tolist() == [1] * 16
    assert not made.entities.vx.any()
    assert (made.entities.tile >= 0).all()
    before = columns(made)
    made.begin()
    assert columns(made) == before


def test_clients_and_what_they_see() -> None:
    made = world()
    assert made.clients.avatar.tolist() == list(range(12))
    assert (made.clients.reach_x, made.clients.reach_y) == (10, 5)
    made = World(YARD, seed=1)
    made.populate(2, 3, npcs_look=False)
    made.populate(1, reach=(7, 8))
    assert made.entities.names[-1] == "player3"
    assert made.clients.avatar.tolist() == [0, 1, 5]
    assert made.clients.reach_x == 7


@pytest.mark.parametrize("seed", range(3))
def test_changes_are_exactly_what_changed(seed: int) -> None:
    made = world(seed, servers=4)
    for command in ("trade npc*", "speed player1 5", "follow player2 player1"):
        made.obey(command)
    made.begin()
    kinds_of_change = set()
    for tick in range(1, 600):
        before = columns(made)
        changes = made.step()
        after = columns(made)
        differing = {
            column: {i for i in range(16) if after[column][i] != before[column][i]}
            for column in COLUMNS
        }
        kinds_of_change |= {column for column, those in differing.items() if those}
        versions = differing.pop("version")
        assert changes.changed.tolist() == sorted(set().union(*differing.values()))
        assert versions == set(changes.changed.tolist())
        assert all(after["version"][i] == before["version"][i] + 1 for i in versions)
        assert changes.legs.tolist() == sorted(differing["vx"] | differing["vy"])
        assert changes.handed_over.tolist() == sorted(differing["server"])
        assert (changes.tick, changes.at) == (tick, tick * 0.1) == (made.tick, made.at)
    # Every kind of thing has happened, so every kind was looked at; items are used by command only.
    assert kinds_of_change == set(COLUMNS) - {"uses"}


def test_who_does_not_turn_is_where_the_velocity_says() -> None:
    made = world(4, servers=2)
    made.obey("trade npc*")
    made.begin()
    of = made.entities
    since = np.zeros(len(of))
    from_x, from_y = of.x.copy(), of.y.copy()
    vx, vy = of.vx.copy(), of.vy.copy()
    for _ in range(500):
        changes = made.step()
        seconds = (made.tick - since) * made.tick_s
        np.testing.assert_allclose(of.x, from_x + vx * seconds, atol=1e-9)
        np.testing.assert_allclose(of.y, from_y + vy * seconds, atol=1e-9)
        turned = changes.legs
        since[turned] = made.tick
        from_x[turned], from_y[turned] = of.x[turned], of.y[turned]
        vx[turned], vy[turned] = of.vx[turned], of.vy[turned]


def test_nobody_walks_through_walls_or_too_fast() -> None:
    made = world(5)
    made.begin()
    for _ in range(600):
        made.step()
        assert (made.tiles.tile_at(made.entities.x, made.entities.y) >= 0).all()
        walking = np.sqrt(made.entities.vx**2 + made.entities.vy**2)
        assert (walking <= made.entities.speed * (1 + 1e-8)).all()
    tiles = made.tiles.tile_at(made.entities.x, made.entities.y)
    assert made.entities.tile.tolist() == tiles.tolist()


def history(seed: int, ticks: int = 150, players: int = 6) -> str:
    made = world(seed, servers=3, players=players)
    made.obey("trade npc*")
    for tick in range(ticks):
        if tick == 20:
            made.obey("gather 5 at gate")
        made.step()
    return made.hash()


def test_ten_runs_are_one_history() -> None:
    assert len({history(7) for _ in range(10)}) == 1


@pytest.mark.soak
def test_ten_long_runs_of_many_are_one_history() -> None:
    assert len({history(7, ticks=1200, players=1000) for _ in range(10)}) == 1


def test_other_seeds_lengths_and_inhabitants_are_other_histories() -> None:
    others = [history(8), history(7, ticks=151), history(7, players=7), history(7)]
    assert len(set(others)) == 4


def test_the_hash_sees_every_column() -> None:
    hashes = set()
    for column in (None, "x", "y", "vx", "vy", "speed", "server", "holder", "uses"):
        made = World(YARD, seed=1)
        made.populate(2, behaviour="stand")
        made.begin()
        if column is not None:
            getattr(made.entities, column)[1] = 1
        made.step()
        hashes.add(made.hash())
    assert len(hashes) == 9


def test_step_begins_a_world_that_nobody_began() -> None:
    begun, other = world(), world()
    begun.begin()
    begun.step()
    other.step()
    assert begun.hash() == other.hash()
    with pytest.raises(WorldError, match="began 1 ticks ago"):
        begun.begin()


def test_populating_has_rules() -> None:
    made = World(YARD, seed=1)
    with pytest.raises(WorldError, match="reach of 0, 5"):
        made.populate(1, reach=(0, 5))
    with pytest.raises(WorldError, match="a speed of 0"):
        made.populate(1, speed=0)
    with pytest.raises(WorldError, match=r"no behaviour dance; known are .*wander"):
        made.populate(1, behaviour="dance")
    with pytest.raises(WorldError, match="2 players, -1 NPCs and 0 items cannot be"):
        made.populate(2, -1)
    assert len(made.entities) == 0
    with pytest.raises(WorldError, match="a tick of 0 s"):
        World(YARD, seed=1, tick_s=0)
    made.begin()
    with pytest.raises(WorldError, match="the world has begun; inhabitants come before"):
        made.populate(1)


def test_commands_are_obeyed_in_the_next_tick_in_their_order() -> None:
    made = World(YARD, seed=1)
    made.populate(1, behaviour="stand")
    made.step()
    x = made.entities.x[0]
    made.obey("steer player1 1 0")
    made.obey("stop player1")
    made.step()
    assert made.entities.vx[0] == 0
    made.obey("stop player1")
    made.obey("steer player1 1 0")
    assert made.entities.vx[0] == 0
    changes = made.step()
    assert made.entities.x[0] == x
    assert changes.legs.tolist() == [0]
    assert made.entities.vx[0] > 0
    made.step()
    assert made.entities.x[0] == pytest.approx(x + made.entities.vx[0] * made.tick_s)


def test_who_moves_otherwise_is_moved_each_tick() -> None:
    made = world()
    lorry = int(
        made.entities.add(EntityKind.VEHICLE, ["lorry1"], np.array([1.0]), np.array([1.0]))[0]
    )

    def drive() -> None:
        made.entities.x[lorry] += 1.5

    made.movers.append(drive)
    made.begin()
    assert lorry in made.step().changed
    made.step()
    assert made.entities.x[lorry] == 4.0
    assert made.entities.version[lorry] == 3
    tile = made.tiles.tile_at(made.entities.x[-1:], made.entities.y[-1:])
    assert made.entities.tile[lorry] == tile[0]


def test_places_and_points() -> None:
    made = world()
    assert made.place("gate") == (5, 40)
    assert made.place((1.5, 2.0)) == (1.5, 2.0)
    with pytest.raises(WorldError, match="no place market on the map yard; there are gate, well"):
        made.place("market")
    with pytest.raises(WorldError, match="the point 30 30 is inside a wall"):
        made.place((30, 30))
    with pytest.raises(WorldError, match="the point 130 30 is not on the map, which is 100 x 80 m"):
        made.place((130, 30))
    with pytest.raises(WorldError, match="nan"):
        made.place((math.nan, 30))


def test_names_and_patterns() -> None:
    made = world(npcs=12)
    assert made.inhabitants("npc3").tolist() == [8]
    assert made.inhabitants("npc1*").tolist() == [6, 15, 16, 17]
    assert made.inhabitants("*1").tolist() == [0, 6, 16]
    assert made.inhabitants("player?").tolist() == list(range(6))
    assert made.inhabitants("*").tolist() == list(range(18))
    with pytest.raises(WorldError, match="nobody called npc13"):
        made.inhabitants("npc13")
    with pytest.raises(WorldError, match=r"no player and no NPC is called ork\*; there are 18"):
        made.inhabitants("ork*")
    with pytest.raises(WorldError, match="apple1 is no player and no NPC, but of kind ITEM"):
        made.inhabitants("apple1")


def test_words_for_completion() -> None:
    made = world(players=1, npcs=1)
    made.engine_names = ("tile", "area")
    assert made.words("WHO") == made.words("CROWD") == ["player1", "npc1"]
    assert made.words("ITEM") == ["apple1", "apple2", "apple3", "apple4"]
    assert made.words("NAME") == made.entities.names
    assert made.words("POINT") == made.words("POINTS") == ("gate", "well")
    assert made.words("ENGINE") == ("tile", "area")
    assert "wander" in made.words("BEHAVIOUR")


class Pacer(Behaviour):
    """Counts how it is asked."""

    name: ClassVar[str] = "pacer"
    asked: list[tuple[int, int]] = msgspec.field(default_factory=list)

    def decide(self, world: BehaviourWorld, entity: int) -> None:
        self.asked.append((world.tick, entity))
        here = float(world.entities.x[entity]), float(world.entities.y[entity])
        match len(self.asked):
            case 1:
                assert world.go(entity, 5.42, 40.0, pause_s=0.5)  # three ticks away
            case 2:
                assert world.go(entity, *here, pause_s=0.3)  # there already
            case 3:
                assert not world.go(entity, 30.0, 30.0)
                world.wait(entity, 1.0)


def test_behaviours_are_asked_on_arrival_and_after_waiting() -> None:
    made = World(YARD, seed=1)
    pacer = Pacer()
    made.populate(1, behaviour=pacer)
    made.entities.x[0], made.entities.y[0] = 5.0, 40.0
    for _ in range(60):
        made.step()
    # Sets out at 1, arrives at 4 and rests until 9; is there and rests until 12; waits until 22.
    assert pacer.asked == [(1, 0), (9, 0), (12, 0), (22, 0)]
    assert made.behaviour_of(0) is pacer


class Nagger(Behaviour):
    """Is asked once a second."""

    name: ClassVar[str] = "nagger"
    think_s: ClassVar[float | None] = 1.0
    asked: list[int] = msgspec.field(default_factory=list)

    def decide(self, world: BehaviourWorld, entity: int) -> None:
        self.asked.append(world.tick)


def test_thinkers_are_asked_every_so_often() -> None:
    made = World(YARD, seed=1)
    nagger = Nagger()
    made.populate(1, behaviour=nagger)
    for _ in range(35):
        made.step()
    assert nagger.asked == [1, 11, 21, 31]


def test_many_do_not_all_begin_at_once() -> None:
    made = World(YARD, seed=1)
    made.populate(450, behaviour=(nagger := Nagger()))
    for _ in range(10):
        made.step()
    counts = np.bincount(nagger.asked).tolist()
    assert sum(counts) == 450
    assert max(counts) <= 200


def test_behaviours_that_nobody_has_are_forgotten() -> None:
    made = World(YARD, seed=1)
    made.populate(3)
    for _ in range(50):
        made.assign(np.array([0, 1], np.int32), Wander())
    assert len(made._minds) <= 4
    assert made.behaviour_of(2) is not made.behaviour_of(1) is made.behaviour_of(0)


def test_random_points_are_near_free_and_within_walking() -> None:
    made = world(players=300)
    who = made.inhabitants("player*")
    x, y = made.entities.x[who], made.entities.y[who]
    to_x, to_y, found = made.free_points_near(who, x, y, 15.0)
    assert found.mean() > 0.9
    assert (((to_x - x) ** 2 + (to_y - y) ** 2)[found] <= 15.0**2 + 1e-9).all()
    assert (made.tiles.tile_at(to_x[found], to_y[found]) >= 0).all()
    inside_a_wall = np.full(300, 30.0), np.full(300, 30.0)
    assert not made.free_points_near(who, *inside_a_wall, 5.0)[2].any()


def test_a_world_of_nobody_passes_too() -> None:
    made = World(YARD, seed=1)
    first, second = made.begin(), made.step()
    assert isinstance(first, TickChanges)
    assert len(first.changed) == len(second.changed) == 0


def test_carried_items_go_along() -> None:
    made = World(YARD, seed=1, servers=2)
    made.populate(1, 0, 1, behaviour="stand", speed=2)
    of = made.entities
    of.x[:], of.y[:] = [45.0, 45.5], [70.0, 70.0]
    made.begin()
    made.obey("pick player1 apple1")
    made.obey("go player1 to 57 70")
    made.step()
    assert of.holder.tolist() == [NOBODY, 0]
    handed_over: list[int] = []
    while made.movement.is_moving(0):
        changes = made.step()
        assert changes.changed.tolist() == [0, 1]
        assert (of.x[0], of.y[0], of.vx[0]) == (of.x[1], of.y[1], of.vx[1])
        handed_over += changes.handed_over.tolist()
    assert of.x.tolist() == [57, 57]
    assert handed_over == [0, 1]
    assert not made.refusals
