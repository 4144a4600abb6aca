"""Every command on a world, and every refusal."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.world.map.maps import Map
from rove.world.people.behaviours import Flee, Follow, Gather, Patrol
from rove.world.people.commands import COMMAND_FORMS, WorldCommand, parse_command
from rove.world.runs.simulation import World
from rove.world.runs.state import NOBODY, WorldError

YARD = Map(
    "yard",
    100,
    80,
    (
        ((20, 20), (40, 20), (40, 50), (20, 50)),
        # A court without a door.
        ((70, 40), (90, 40), (90, 42), (70, 42)),
        ((70, 58), (90, 58), (90, 60), (70, 60)),
        ((70, 40), (72, 40), (72, 60), (70, 60)),
        ((88, 40), (90, 40), (90, 60), (88, 60)),
    ),
    {"gate": (5, 40), "well": (80, 10)},
)


@pytest.fixture
def made() -> World:
    """Two players and three NPCs in a row, an apple at player1's feet, one far away; all stand."""
    world = World(YARD, seed=1)
    world.populate(2, 3, 2, behaviour="stand", speed=2)
    of = world.entities
    of.x[:] = [10, 11, 12, 13, 14, 10.5, 90]
    of.y[:] = [10, 10, 10, 10, 10, 10, 70]
    world.begin()
    return world


def do(world: World, *texts: str, seconds: float = 0.1) -> None:
    for text in texts:
        world.obey(text)
    for _ in range(round(seconds / world.tick_s)):
        world.step()


def place(world: World, name: str) -> tuple[float, float]:
    number = world.entities.number(name)
    return float(world.entities.x[number]), float(world.entities.y[number])


def test_go(made: World) -> None:
    do(made, "wander npc*", "go npc* to 50 70", "go player1 to gate", seconds=60)
    assert [place(made, f"npc{i}") for i in (1, 2, 3)] == [(50, 70)] * 3
    assert place(made, "player1") == (5, 40)
    assert made.behaviour_of(2).name == "stand"


def test_go_where_no_way_leads(made: World) -> None:
    do(made, "go player* to 80 50")
    (refusal,) = made.refusals
    assert refusal.why == "there is no way to 80 50 for player1 and 1 others"
    assert (refusal.tick, str(refusal.command)) == (1, "go player* to 80 50")
    assert place(made, "player1") == (10, 10)


def test_steer_until_stopped_or_a_wall(made: World) -> None:
    do(made, "steer player1 0 1", seconds=1.1)
    x, y = place(made, "player1")
    assert x == 10
    assert y == pytest.approx(12, abs=0.01)
    do(made, "steer player1 -3 0", seconds=20)
    assert place(made, "player1") == pytest.approx((0.05, y + 0.2), abs=0.01)
    do(made, "steer player1 0 -1", seconds=0.5)
    do(made, "steer player1 0 0")
    stopped = place(made, "player1")
    do(made, seconds=1)
    assert place(made, "player1") == stopped


def test_stop(made: World) -> None:
    do(made, "wander *", seconds=2)
    assert made.entities.vx.any()
    do(made, "stop *")
    assert not made.entities.vx.any()
    assert not made.step().changed.any()


@pytest.mark.parametrize("name", ["wander", "travel", "trade"])
def test_behaviours_without_more_words(made: World, name: str) -> None:
    do(made, f"{name} npc*", seconds=5)
    assert [made.behaviour_of(i).name for i in range(5)] == ["stand"] * 2 + [name] * 3
    assert (made.entities.version[2:5] > 1).all()
    assert (made.entities.version[:2] == 1).all()
    do(made, f"behave player1 {name}", seconds=1)
    assert made.behaviour_of(0).name == name


def test_follow_and_flee_leave_out_whom_they_are_about(made: World) -> None:
    do(made, "follow * player1", "flee npc3 player2", seconds=1)
    assert made.behaviour_of(0).name == "stand"
    for number in (1, 2, 3):
        behaviour = made.behaviour_of(number)
        assert isinstance(behaviour, Follow)
        assert behaviour.whom == "player1"
    assert isinstance(made.behaviour_of(4), Flee)


def test_patrol(made: World) -> None:
    do(made, "patrol npc1 via gate, 50 70", seconds=0.2)
    behaviour = made.behaviour_of(2)
    assert isinstance(behaviour, Patrol)
    assert behaviour.stops == ("gate", (50.0, 70.0))
    assert made.movement.is_moving(2)


def test_gather_calls_the_nearest(made: World) -> None:
    do(made, "gather 2 at 14 12")
    assert [made.behaviour_of(i).name for i in range(5)] == ["stand"] * 3 + ["gather"] * 2
    do(made, "gather npc* at gate within 7")
    behaviour = made.behaviour_of(2)
    assert isinstance(behaviour, Gather)
    assert (behaviour.point, behaviour.within_m) == ("gate", 7)
    assert made.behaviour_of(4) is behaviour


def test_speed(made: World) -> None:
    do(made, "go npc1 to 12 70", "speed npc* 4")
    assert made.entities.speed.tolist() == [2, 2, 4, 4, 4, 0, 0]
    assert made.entities.vy[2] == pytest.approx(4, abs=0.1)


def test_items(made: World) -> None:
    apple = made.entities.number("apple1")
    do(made, "pick player1 apple1", "use player1 apple1")
    assert made.entities.holder[apple] == 0
    do(made, "give player1 apple1 player2")
    assert made.entities.holder[apple] == 1
    do(made, "drop player2", "use npc1 apple1", "pick npc1 apple1", "drop npc1 apple1")
    assert made.entities.holder[apple] == NOBODY
    assert made.entities.uses[apple] == 2
    assert not made.refusals


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("pick player1 apple2", "apple2 is 100.00 m from player1, whose reach is 2 m"),
        ("steer player1 1e300 0", "1e+300 0 is no direction; write for example 1 0 for the right"),
        ("drop player1", "player1 carries nothing"),
        ("drop player1 apple1", "player1 does not carry apple1"),
        ("give player1 apple1 player2", "player1 does not carry apple1"),
        ("use npc3 apple1", "apple1 is 3.50 m from npc3, whose reach is 2 m"),
    ],
)
def test_what_turns_out_to_be_impossible_is_written_down(made: World, text: str, why: str) -> None:
    do(made, text)
    assert [(refusal.tick, refusal.why) for refusal in made.refusals] == [(1, why)]
    assert made.refusals[0].command == parse_command(text)


def test_of_two_who_want_an_item_the_first_gets_it(made: World) -> None:
    do(made, "pick player2 apple1", "pick player1 apple1")
    assert made.entities.holder[5] == 1
    assert [refusal.why for refusal in made.refusals] == ["apple1 is carried by player2"]


def test_engine(made: World) -> None:
    with pytest.raises(WorldError, match="no engine area runs on this world; there are none"):
        made.obey("engine area")
    made.engine_names = ("tile", "area")
    do(made, "engine area")
    assert made.engine_wanted == "area"
    with pytest.raises(WorldError, match="no engine fast runs on this world; there are tile, area"):
        made.obey("engine fast")


BAD_ARGUMENTS = [
    ("go ghost to gate", "nobody called ghost"),
    ("go ork* to gate", r"no player and no NPC is called ork\*; there are 5"),
    ("go apple1 to gate", "apple1 is no player and no NPC"),
    ("go player1 to market", "no place market on the map yard; there are gate, well"),
    ("go player1 to 30 30", "the point 30 30 is inside a wall"),
    ("go player1 to 300 30", "the point 300 30 is not on the map, which is 100 x 80 m"),
    ("steer ghost 1 0", "nobody called ghost"),
    ("stop ghost", "nobody called ghost"),
    ("wander ork*", "no player and no NPC"),
    ("travel ork*", "no player and no NPC"),
    ("trade ork*", "no player and no NPC"),
    ("follow npc1 ghost", "nobody called ghost"),
    ("follow ork* npc1", "no player and no NPC"),
    ("follow npc1 npc1", "npc1 cannot follow itself"),
    ("flee npc1 npc1", "npc1 cannot flee itself"),
    ("flee npc1 ghost", "nobody called ghost"),
    ("patrol ghost via gate, well", "nobody called ghost"),
    ("patrol npc1 via gate, market", "no place market"),
    ("patrol npc1 via gate, 30 30", "inside a wall"),
    ("gather 6 at gate", "6 cannot gather: there are 5 inhabitants"),
    ("gather 3 at market", "no place market"),
    ("gather ork* at gate", "no player and no NPC"),
    ("gather npc* at 30 30", "inside a wall"),
    ("behave npc1 dance", "no behaviour dance; known are"),
    ("behave npc1 follow", "behaviour follow: .*`whom`"),
    ("behave ghost stand", "nobody called ghost"),
    ("speed ghost 2", "nobody called ghost"),
    ("speed npc* 5000", "0.01 to 1000 metres a second"),
    ("pick ghost apple1", "nobody called ghost"),
    ("pick player1 pear", "nobody called pear"),
    ("pick player1 npc1", "npc1 is no item"),
    ("drop player1 npc1", "npc1 is no item"),
    ("use player1 npc1", "npc1 is no item"),
    ("give player1 apple1 ghost", "nobody called ghost"),
    ("give player1 apple1 apple2", "apple2 is no player and no NPC"),
    ("give player1 npc1 player2", "npc1 is no item"),
    ("engine area", "no engine area"),
]


@pytest.mark.parametrize(("text", "complaint"), BAD_ARGUMENTS)
def test_what_can_never_work_is_refused_at_once(made: World, text: str, complaint: str) -> None:
    with pytest.raises(WorldError, match=complaint):
        made.obey(text)
    assert not made.step().changed.any()
    assert not made.refusals


def test_every_command_has_been_refused() -> None:
    assert {text.split()[0] for text, _ in BAD_ARGUMENTS} == set(COMMAND_FORMS)


words = st.sampled_from(
    ["npc1", "npc*", "player1", "*", "ghost", "apple1", "apple2", "gate", "well", "market", "to",
     "at", "via", ",", "within", "1", "-5", "30", "79.5", "1e6", "0", "wander", "trade", "dance"]
)  # fmt: skip
texts = st.builds(
    lambda verb, rest: " ".join([verb, *rest]),
    st.sampled_from(sorted(COMMAND_FORMS)),
    st.lists(words, max_size=6),
)
forms = st.sampled_from([form.example for form in COMMAND_FORMS.values()])


@given(st.lists(texts | forms, min_size=1, max_size=10))
def test_nothing_that_can_be_said_harms(said: list[str]) -> None:
    world = World(SMALL, seed=1)
    world.populate(2, 3, 3, speed=20)
    obeyed: list[WorldCommand] = []
    for text in said:
        try:
            obeyed.append(world.obey(text))
        except WorldError:
            continue
        world.step()
    for _ in range(5):
        world.step()
    assert np.isfinite(world.entities.x).all()
    assert (world.tiles.tile_at(world.entities.x, world.entities.y) >= 0).all()
    assert len(world.refusals) <= len(obeyed)


SMALL = Map("small", 100, 80, (((20, 20), (40, 20), (40, 50), (20, 50)),), {"gate": (5, 40)})
