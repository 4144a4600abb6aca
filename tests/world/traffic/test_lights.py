"""Phases, yellow between them, and a subscriber's say."""

import pytest

from rove.world.map.maps import Lane, Light, Phase, Roads
from rove.world.runs.state import WorldError
from rove.world.traffic.lights import Lights
from rove.world.traffic.roads import GREEN, RED, YELLOW, RoadGraph

YELLOW_S = 0.5 + 10.0 / 4.0


def crossing(*phases: Phase, offset_s: float = 0.0) -> Lights:
    """Lanes 0 to 3 lead to the middle, from west, east, south and north."""
    nodes = ((0.0, 0.0), (-99.0, 0.0), (99.0, 0.0), (0.0, -99.0), (0.0, 99.0))
    lanes = [Lane(node, 0, 10.0) for node in range(1, 5)]
    lanes += [Lane(0, node, 10.0) for node in range(1, 5)]
    return Lights(RoadGraph(Roads(nodes, tuple(lanes), (Light(0, phases, offset_s),))))


def signals(lights: Lights) -> list[int]:
    return [int(signal) for signal in lights._roads.lanes["signal"][:4]]


EAST_WEST, NORTH_SOUTH = Phase(20.0, (0, 1)), Phase(10.0, (2, 3))
ACROSS, YELLOW_ACROSS, UP = [GREEN, GREEN, RED, RED], [YELLOW, YELLOW, RED, RED], [2, 2, 0, 0]


def test_phases_come_one_after_the_other_with_yellow_between() -> None:
    lights = crossing(EAST_WEST, NORTH_SOUTH)
    seen: list[tuple[float, list[int]]] = []
    for tick in range(400):
        lights.advance(tick * 0.1)
        if not seen or seen[-1][1] != signals(lights):
            seen.append((round(tick * 0.1, 1), signals(lights)))
    assert seen == [
        (0.0, ACROSS),
        (20.0, YELLOW_ACROSS),
        (20.0 + YELLOW_S, UP),
        (30.0 + YELLOW_S, [RED, RED, YELLOW, YELLOW]),
        (30.0 + 2 * YELLOW_S, ACROSS),
    ]


def test_lanes_that_keep_their_green_have_no_yellow() -> None:
    lights = crossing(Phase(10.0, (0, 1)), Phase(10.0, (0, 2)))
    lights.advance(10.0)
    assert signals(lights) == [GREEN, YELLOW, RED, RED]


def test_who_loses_nothing_gets_the_next_phase_at_once() -> None:
    lights = crossing(Phase(10.0), Phase(10.0, (0,)), Phase(10.0, (0, 1)))
    assert signals(lights) == [RED] * 4
    lights.advance(10.0)
    assert signals(lights) == [GREEN, RED, RED, RED]
    lights.advance(20.0)
    assert signals(lights) == [GREEN, GREEN, RED, RED]


def test_one_phase_is_green_for_ever() -> None:
    lights = crossing(Phase(5.0, (0, 2)))
    for tick in range(100):
        lights.advance(tick * 1.0)
        assert signals(lights) == [GREEN, RED, GREEN, RED]


def test_the_offset_is_somewhere_in_the_phases() -> None:
    lights = crossing(EAST_WEST, NORTH_SOUTH, offset_s=25.0)
    assert signals(lights) == UP
    lights.advance(4.9)
    assert signals(lights) == UP
    lights.advance(5.0)
    assert signals(lights) == [RED, RED, YELLOW, YELLOW]


def test_a_phase_that_is_asked_for_comes_after_a_yellow_and_stays_as_long_as_asked() -> None:
    lights = crossing(EAST_WEST, NORTH_SOUTH)
    lights.set_phase("light0", 1, 2.0, hold_s=60.0)
    assert signals(lights) == YELLOW_ACROSS
    lights.advance(2.0 + YELLOW_S)
    assert signals(lights) == UP
    lights.advance(61.9 + YELLOW_S)
    assert signals(lights) == UP
    lights.advance(62.0 + YELLOW_S)
    assert signals(lights) == [RED, RED, YELLOW, YELLOW]


def test_a_phase_that_is_shown_is_shown_longer_and_never_shorter() -> None:
    lights = crossing(EAST_WEST, NORTH_SOUTH)
    lights.set_phase("light0", 0, 15.0, hold_s=30.0)
    lights.set_phase("light0", 0, 16.0, hold_s=1.0)
    lights.advance(44.9)
    assert signals(lights) == ACROSS
    lights.advance(45.0)
    assert signals(lights) == YELLOW_ACROSS


def test_asked_while_yellow_the_yellow_is_not_cut_short() -> None:
    lights = crossing(EAST_WEST, NORTH_SOUTH, Phase(10.0, (1, 2)))
    lights.advance(20.0)
    lights.set_phase("light0", 2, 21.0)
    assert signals(lights) == [YELLOW, GREEN, RED, RED]
    lights.advance(20.0 + YELLOW_S)
    assert signals(lights) == [RED, GREEN, GREEN, RED]
    lights.set_phase("light0", 0, 24.0)
    lights.set_phase("light0", 2, 25.0)
    lights.advance(24.0 + YELLOW_S)
    assert signals(lights) == [RED, GREEN, GREEN, RED]


def test_names_and_phases_are_checked() -> None:
    lights = crossing(EAST_WEST, NORTH_SOUTH)
    assert lights.names() == ["light0"]
    assert lights.has_green("light0") == [(0, 1), (2, 3)]
    for name in ("light1", "light", "light00", "lamp0", "light٣"):
        with pytest.raises(WorldError, match=f"no light called {name}"):
            lights.number(name)
    with pytest.raises(WorldError, match="no phase 2; give one from 0 to 1"):
        lights.set_phase("light0", 2, 0.0)
    with pytest.raises(WorldError, match="cannot stay for 0 s"):
        lights.set_phase("light0", 1, 0.0, hold_s=0.0)
