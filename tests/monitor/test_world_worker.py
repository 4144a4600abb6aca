"""What the worker plays and answers, through its pipe."""

import json
import random
import threading
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import msgspec
import pytest

from rove.monitor.world_worker import (
    CompleteCommand,
    ReadHeatMap,
    RunCommand,
    WatchEntities,
    WorkerRequest,
    WorldWorker,
    world_view,
)
from rove.world.people.commands import COMMAND_FORMS
from rove.world.runs.scenario_run import ScenarioRun
from rove.world.runs.scenarios import TimedCommand, load_scenario
from tests.effort import PATIENCE_S
from tests.monitor.conftest import ENGINES, Frame, read_frame, yard


class WorkerPipe:
    """A player in a thread, and the other end of its pipe."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self.heard: list[Any] = []

    def ask(self, what: WorkerRequest) -> None:
        self.pipe.send_bytes(msgspec.json.encode(what))

    def next(self) -> Any:
        assert self.pipe.poll(PATIENCE_S)
        data = self.pipe.recv_bytes()
        found = json.loads(data) if data[:1] == b"{" else read_frame(data)
        self.heard.append(found)
        return found

    def message(self, type: str, **fields: Any) -> Any:
        wanted = {"type": type, **fields}.items()
        while True:
            one = self.next()
            if isinstance(one, dict) and all(one.get(name) == value for name, value in wanted):
                return one

    def frame(self, kind: int = 2) -> Frame:
        while True:
            one = self.next()
            if isinstance(one, Frame) and one.kind == kind:
                return one

    def say(self, number: int, text: str) -> Any:
        self.ask(RunCommand(number, text))
        return self.message("said", number=number)


def played(**changes: Any) -> Iterator[WorkerPipe]:
    here, there = Pipe()

    def play() -> None:
        try:
            WorldWorker(there, yard(**changes)).play()
        except (EOFError, OSError):
            there.close()

    thread = threading.Thread(target=play)
    thread.start()
    try:
        yield WorkerPipe(here)
    finally:
        here.close()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerPipe]:
    """One for all, which know nothing of each other's worlds."""
    yield from played()


def test_a_run_begins_with_the_world_everybody_and_its_state() -> None:
    for worker in played():
        begun, frame, state, note = (worker.next() for _ in range(4))
        assert begun["type"] == "world"
        assert begun["facts"]["players"] == 20
        assert frame.columns[0] == tuple(range(len(begun["view"]["entities"]["names"])))
        assert state["live"] == "object"
        assert note["text"] == "yard begins"
        assert worker.frame().tick == 1


def test_samples_come_every_second_and_the_world_outlives_its_scenario() -> None:
    for worker in played(seconds=1.5):
        sample = worker.message("sample")
        assert set(sample["engines"]) >= {"object", "area", "evolving-pes"}
        assert sample["engines"]["area"]["subscriptions"] > 0
        assert worker.message("note", kind="scenario")["text"].startswith("yard is over")
        assert worker.frame().at >= 1.5


def test_a_command_is_answered_when_it_was_obeyed(worker: WorkerPipe) -> None:
    said = worker.say(1, "go player1 to 20 20")
    assert said["ok"]
    assert "done at" in said["text"]
    assert any(one.get("kind") == "command" for one in worker.heard if isinstance(one, dict))


def test_refusals_are_answers_and_end_nothing(worker: WorkerPipe) -> None:
    at_once = worker.say(2, "go player1 to nowhere")
    assert not at_once["ok"]
    assert "there is no place nowhere" in at_once["text"]
    in_its_turn = worker.say(3, "drop player1")
    assert not in_its_turn["ok"]
    assert "carries nothing" in in_its_turn["text"]
    none = worker.say(4, "import os")
    assert not none["ok"]
    assert "there is no command" in none["text"]
    assert worker.say(5, "stop player1")["ok"]


def test_help_and_completion(worker: WorkerPipe) -> None:
    assert "gather CROWD at POINT" in worker.say(6, "help")["text"]
    worker.ask(CompleteCommand(7, "scenario ya"))
    assert worker.message("completions", number=7)["words"] == ["yard"]
    worker.ask(CompleteCommand(8, "go player1"))
    assert "player12" in worker.message("completions", number=8)["words"]


def test_the_live_engine_changes(worker: WorkerPipe) -> None:
    for engine in ("evolving", "area"):
        assert worker.say(9, f"engine {engine}")["ok"]
        assert worker.message("state", live=engine)
        assert f"{engine} is live" in worker.message("note", kind="engine")["text"]


def test_paused_nothing_moves_and_commands_wait(worker: WorkerPipe) -> None:
    assert worker.say(10, "pause")["ok"]
    assert worker.message("state", is_paused=True)
    taken = worker.say(11, "go player2 to 30 30")
    assert taken["ok"]
    assert "until the world continues" in taken["text"]
    assert not worker.pipe.poll(0.3)
    worker.say(12, "resume")
    assert worker.message("note", kind="command")["text"] == "go player2 to 30 30"


def test_what_a_client_listens_to_is_told_by_every_engine(worker: WorkerPipe) -> None:
    worker.say(13, "go player1 to 50 50")
    worker.ask(WatchEntities(["player1", "nobody", "apple1"], areas=False))
    found = worker.message("listening", select="player1")
    assert len(found["truth"]) == 6
    engines = found["engines"]
    assert engines["tile"]["tiles"]
    assert engines["tile"]["rectangles"] == []
    for name in ("object", "area", "evolving", "evolving-pes", "evolving-clees"):
        x, y, reach_x, reach_y, *_ = engines[name]["rectangles"][0]
        # Whatever the design believes, what is seen lies in it.
        assert abs(x - found["truth"][0]) <= reach_x - 30.0 + 0.01
        assert abs(y - found["truth"][1]) <= reach_y - 20.0 + 0.01
    assert worker.message("listening", select="nobody")["truth"] is None
    assert worker.message("listening", select="apple1")["engines"] == {}
    worker.ask(WatchEntities([], areas=False))


def test_areas_of_everybody_come_while_somebody_wants_them(worker: WorkerPipe) -> None:
    worker.say(30, "engine area")
    worker.ask(WatchEntities([], areas=True))
    first = worker.frame(3)
    assert first.is_whole
    assert first.columns[0] == tuple(range(20))
    worker.say(14, "engine tile")
    while not ((frame := worker.frame(3)).is_whole and not frame.columns[0]):
        continue
    worker.ask(WatchEntities([], areas=False))


def test_sensors_are_shown(worker: WorkerPipe) -> None:
    worker.message("sample")  # each has published by then
    worker.ask(ReadHeatMap(15, "NO2"))
    heat = worker.message("heat", number=15)["heat"]
    assert heat["attribute"] == "NO2"
    assert sum(cell[4] for cell in heat["cells"]) == 6


def test_another_scenario_and_the_end(worker: WorkerPipe) -> None:
    refused = worker.say(16, "scenario /etc/passwd")
    assert not refused["ok"]
    assert "there is no scenario" in refused["text"]
    worker.ask(RunCommand(17, "scenario sparse players 5 seed 9"))
    view = worker.message("world")["view"]
    assert (view["scenario"], view["seed"]) == ("sparse", 9)
    assert len(view["clients"]["avatars"]) == 5
    assert worker.message("said", number=17)["ok"]
    assert worker.say(18, "end")["ok"]
    assert worker.message("state", is_over=True)
    assert "has ended" in worker.say(19, "go player1 to 5 5")["text"]
    worker.ask(RunCommand(20, "restart"))
    assert worker.message("world")["view"]["scenario"] == "sparse"
    assert worker.message("state", is_over=False)


def test_a_scenarios_own_command_that_cannot_be_is_a_note() -> None:
    for worker in played(
        commands=(TimedCommand(0.0, "go nobody to 5 5"), TimedCommand(0.0, "drop player1"))
    ):
        notes = [worker.message("note", kind="refused")["text"] for _ in range(2)]
        assert any("nobody" in note for note in notes)
        assert any("carries nothing" in note for note in notes)
        assert worker.frame().tick > 0


def test_a_machine_that_is_too_slow_says_so() -> None:
    for worker in played(tick_s=0.0005):
        assert worker.message("state", is_over=False)["speed"] == 1.0
        assert worker.message("state")["speed"] < 1.0


class Heap:
    """The other end of a pipe, which only counts."""

    def __init__(self) -> None:
        self.count = 0

    def send_bytes(self, _: bytes) -> None:
        self.count += 1


NUMBERS = ("0", "-1", "5", "149.9", "1e308", "-1e308", "1e-300", "99999999999")
NAMES = ("player1", "player*", "*", "?", "apple1", "sensor1", "nobody", "ü", "-")
FILLED = {
    "BEHAVIOUR": ("stand", "wander", "follow", "patrol", "nothing"),
    "ENGINE": ("area", "tile", "nothing"),
    "POINTS": ("10 10, 20 20", "0 0, 200 150", "5 5"),
    **dict.fromkeys(("WHO", "NAME", "ITEM"), NAMES),
    **dict.fromkeys(("CROWD",), (*NAMES, "1", "21", "999999999")),
    **dict.fromkeys(("DX", "DY", "METRES"), NUMBERS),
}


def said(rng: random.Random) -> str:
    """A command with anything in its places, or anything at all."""
    if rng.random() < 0.1:
        letters = "abc 019,*?\0\n\u2028<'\""
        return "".join(rng.choice(letters) for _ in range(rng.randrange(30)))
    syntax = rng.choice(list(COMMAND_FORMS.values())).syntax.replace("[", "").replace("]", "")
    points = ("10 10", "0 0", "200 150", f"{rng.choice(NUMBERS)} {rng.choice(NUMBERS)}")
    known = {**FILLED, "POINT": points}
    return " ".join(rng.choice(known.get(word, (word,))) for word in syntax.split())


def test_whatever_is_said_the_world_goes_on() -> None:
    rng, pipe = random.Random(3), Heap()
    player = WorldWorker(pipe, yard())  # type: ignore[arg-type]
    for number in range(600):
        text = said(rng)
        player._answer(RunCommand(number, text))
        player._answer(CompleteCommand(number, text[: rng.randrange(len(text) + 1)]))
        if number % 5 == 0:
            player._answer(WatchEntities([rng.choice(NAMES)], rng.random() < 0.5))
            player._step()
    assert player._run.world.tick == 120
    assert pipe.count > 1200


def test_a_view_has_what_does_not_move() -> None:
    run = ScenarioRun(yard(), is_open=True)
    view = msgspec.json.decode(msgspec.json.encode(world_view(run, "yard-1")))
    world = run.world
    assert view["run"] == "yard-1"
    assert view["entities"]["names"] == world.entities.names
    kinds = {view["entities"]["kind_names"][kind] for kind in view["entities"]["kinds"]}
    assert kinds == {"player", "item", "sensor"}
    assert view["clients"] == {"avatars": list(range(20)), "reach": [30.0, 20.0]}
    assert [one["name"] for one in view["engines"]] == list(ENGINES)
    assert [one["name"] for one in view["engines"] if one["live"]] == ["object"]
    assert {one["name"]: one["lag_s"] for one in view["engines"]}["evolving-pes"] == 0.5
    area = sum((r["x1"] - r["x0"]) * (r["y1"] - r["y0"]) for r in view["regions"])
    assert len(view["regions"]) == 4
    assert round(area) == round(world.map.width * world.map.height)
    assert all(len(tile) == 6 for tile in view["map"]["tiles"])
    assert len(view["map"]["tiles"]) == len(world.tiles)


def test_roads_are_lanes_and_a_world_may_have_no_engines() -> None:
    view = world_view(ScenarioRun(load_scenario("air").sized(players=3), is_open=True), "air-1")
    assert view["engines"] == []
    assert view["map"]["roads"]
    assert all(len(road["points"]) == 2 for road in view["map"]["roads"])
