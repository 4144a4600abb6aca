"""`rove world`: every part as a user starts it, and what is refused; the guide tells the truth."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rove.cli import main
from rove.live.report import open_database
from rove.world.engines.ensemble import ENGINES
from rove.world.map.maps import load_map, shipped_maps
from rove.world.people.commands import COMMAND_FORMS
from rove.world.runs.scenarios import shipped_scenarios

GUIDE = Path(__file__).parents[3] / "docs" / "world.md"
QUICK = ("--players", "12", "--seconds", "2")


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command that works prints on stdout."""
    assert main(["world", *words]) == 0
    return capsys.readouterr().out


def rows(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in told(capsys, *words, "--json").splitlines()]


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line about a command line that is refused."""
    assert main(["world", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err


# --- run ------------------------------------------------------------------------------------------


def test_a_run_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys, "run", "dense", *QUICK, "--live-engine", "area").splitlines()
    assert lines[0].startswith("dense: High density; 12 players, ")
    assert [line.split()[0] for line in lines[1:]] == [
        "engine", "object", "tile", "●", "evolving", "2",
    ]  # fmt: skip
    assert re.fullmatch(
        r"2 s of the world, 20 ticks in .* s, .*x real time; trace [0-9a-f]{32}", lines[-1]
    )


def test_a_run_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("run", "sparse", *QUICK, "--engines", "tile,pes", "--seed", "5")
    run, tile, evolving = rows(capsys, *words)
    assert (run["players"], run["seed"], run["seconds"]) == (12, 5, 2.0)
    assert run["speed"] > 0
    assert (tile["engine"], tile["live"]) == ("tile", True)
    assert (evolving["engine"], evolving["live"]) == ("evolving-pes", False)
    assert rows(capsys, *words)[0]["trace_hash"] == run["trace_hash"]


def test_audiences_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, "run", "ward", "--seconds", "2")
    assert "archive: everything" in {row.get("audience") for row in found}


def test_files_and_the_database(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place = tmp_path / "metrics.sqlite"
    words = ("run", "dense", *QUICK, "--out", str(tmp_path / "out"), "--database", str(place))
    assert main(["world", *words, "--json"]) == 0
    said = capsys.readouterr()
    assert "engines.parquet" in said.err
    final = {row["engine"]: row for row in map(json.loads, said.out.splitlines()[1:])}
    table = pq.read_table(tmp_path / "out" / "engines.parquet").to_pylist()
    last = {row["engine"]: row for row in table if row["at_s"] == 2.0}
    assert last.keys() == final.keys()
    for name, row in final.items():
        assert row["subscribes"] == last[name]["subscribes"] > 0
    with open_database(str(place)) as database:
        found = database.rollups("rove_world_subscribes_total", 60)
    names = {re.findall(r'engine="(\w+)"', each.labels)[0]: each.max for each in found}
    assert names == {name: row["subscribes"] for name, row in final.items()}


@pytest.mark.soak
def test_a_run_over_a_broker(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("run", "sparse", "--players", "4", "--seconds", "1", "--engines", "tile", "--live")
    run, live, beside, delays, *processes = rows(capsys, *words)
    assert (live["engine"], live["live"]) == ("tile over MQTT", True)
    assert (beside["engine"], beside["live"]) == ("tile", False)
    assert "was_stopped" in delays
    assert [row["process"] for row in processes] == ["broker", "server 1", "host 1"]
    assert rows(capsys, *words[:-1])[0]["trace_hash"] == run["trace_hash"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "sparse", "--servers", "2"), "--servers is about a real broker; add --live"),
        (("run", "dens"), "no scenario and no file is called dens; shipped are"),
        (("run", "dense", "--players", "-3"), "-3 is not a whole number"),
        (("run", "dense", "--players", "9999999"), "9,999,999 players are too many"),
        (("run", "dense", "--seconds", "0"), "0 is not a number of seconds above 0"),
        (("run", "dense", "--engines", "cable"), "there is no engine cable; there are object"),
        (("run", "dense", "--engines", "tile,,area"), "is not a list such as object,tile"),
        (("run", "dense", "--live-engine", "pes"), "one of those that run"),
        (("run", "dense", *QUICK, "--database", "no://where"), "cannot use no://where"),
        (("picture", "dense", "--out", "a.jpg"), "pictures are PNG files; a.jpg"),
        (("map", "nowhere"), "no map and no file is called nowhere"),
        (("generate", "sea"), "there is no kind of map sea"),
        (("generate", "town", "--width", "-1"), "-1 is not a number of metres"),
        (("fly",), "invalid choice: 'fly'"),
        ((), "required: PART"),
    ],
)
def test_what_is_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, *words)


# --- the other parts ------------------------------------------------------------------------------


def test_what_there_is_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, "list")
    for name in (*shipped_scenarios(), *shipped_maps()):
        assert name in text
    found = rows(capsys, "list")
    assert [row["scenario"] for row in found] == shipped_scenarios()
    assert all(row["about"] and row["players"] > 0 for row in found)


def test_a_map_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (facts,) = rows(capsys, "map", "city")
    assert facts["lights"] > 0
    assert facts["tiles"] > facts["obstacles"] > 0
    picture = tmp_path / "arena.png"
    text = told(capsys, "map", "arena", "--picture", str(picture))
    assert "places     east, middle" in text
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_map_is_made_up(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("generate", "town", "--width", "300", "--height", "200", "--seed", "3")
    text = told(capsys, *words)
    assert text == told(capsys, *words)
    path = tmp_path / "mine.toml"
    path.write_text(text)
    assert (load_map(path).width, load_map(path).height) == (300, 200)
    (facts,) = rows(capsys, "map", str(path))
    assert facts["width_m"] == 300


def test_a_moment_is_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "moment.png"
    words = ("picture", "sparse", "--players", "5", "--at", "1", "--out", str(picture))
    assert main(["world", *words]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert str(picture) in capsys.readouterr().err


# --- the guide ------------------------------------------------------------------------------------


def test_the_guide_has_every_command_scenario_and_engine() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    for form in COMMAND_FORMS.values():
        assert f"| `{form.syntax}` | {form.meaning} | `{form.example}` |" in text
    for name in (*shipped_scenarios(), *shipped_maps()):
        assert f"`{name}`" in text
    for engine in ENGINES:
        assert f"`{engine.removeprefix('evolving-')}`" in text


def test_the_scenario_of_the_guide_can_be_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / "guide.toml"
    path.write_text(text)
    run, *_ = rows(capsys, "run", str(path), "--seconds", "1")
    assert run["scenario"] == "guide"
