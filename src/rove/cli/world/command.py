"""`rove world PART`: run scenarios of a virtual world, look at its maps, draw it.

A part is one line in `PARTS`, as for `rove pipeline`. Runs are in process and in virtual time, or
with `--live` over a broker (`rove.cli.world.live`); a progress bar is on stderr while a person is
watching. Room `world` has no clock, so the one that measures how long matching takes is handed in
from here.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rove.cli.common.arguments import CommandPart, add_parts, number_of, run_part, whole_number
from rove.cli.common.output import emit_json, emit_rows
from rove.cli.common.progress import progress_bar
from rove.cli.world import live as world_live
from rove.errors import UsageError

if TYPE_CHECKING:
    from rove.world.runs.scenario_run import ScenarioResult, ScenarioRun
    from rove.world.runs.scenarios import Scenario

_SECONDS = number_of("seconds", 1_000_000)
_METRES = number_of("metres", 100_000)
_WHOLE = whole_number(0)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the parts."""
    add_parts(parser, PARTS)


def run(arguments: argparse.Namespace) -> int:
    """Run the part that was named."""
    return run_part(arguments)


# --- run ------------------------------------------------------------------------------------------


def _configure_run(parser: argparse.ArgumentParser) -> None:
    _add_scenario(parser)
    parser.add_argument("--seconds", metavar="S", type=_SECONDS, help="of the world's time")
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="write Parquet files there")
    parser.add_argument(
        "--database", metavar="URL", help="record the run in this metrics database (a file, a URL)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    world_live.add_live_arguments(parser)


def _add_scenario(parser: argparse.ArgumentParser) -> None:
    """Which scenario, and how it differs from its file."""
    parser.add_argument("scenario", help="a shipped one (`rove world list`), or a file")
    parser.add_argument("--players", metavar="N", type=_WHOLE, help="instead of the scenario's")
    parser.add_argument("--engines", metavar="A,B", type=_names, help="which run: object,tile …")
    parser.add_argument("--live-engine", metavar="NAME", help="the one that carries the traffic")
    parser.add_argument("--seed", metavar="N", type=_WHOLE, help="instead of the scenario's")


def _run_scenario(arguments: argparse.Namespace) -> int:
    _refuse_live_options(arguments)
    scenario = _scenario(arguments).sized(seconds=arguments.seconds)
    began = time.time()
    live = None
    with progress_bar(scenario.name, "seconds", as_json=arguments.json) as tell:
        if arguments.live:
            live = world_live.run_over_broker(scenario, arguments, tell)
            result = live.result
        else:
            result = _in_process(scenario, tell)
    if arguments.out is not None:
        _write_parquet(result, arguments.out)
    if arguments.database is not None:
        _write_metrics(result, arguments.database, began)
    _show(result, as_json=arguments.json)
    if live is not None:
        world_live.show_delays(live, as_json=arguments.json)
    return 0


def _refuse_live_options(arguments: argparse.Namespace) -> None:
    given = {
        "--broker": arguments.broker is not None,
        "--servers": arguments.servers is not None,
        "--client-processes": arguments.client_processes != 1,
        "--no-dummies": arguments.no_dummies,
    }
    for option, is_given in given.items():
        if is_given and not arguments.live:
            raise UsageError(f"{option} is about a real broker; add --live")


def _in_process(scenario: Scenario, tell: Callable[[float, float], None]) -> ScenarioResult:
    from rove.world.runs.scenario_run import run as run_scenario

    return run_scenario(scenario, tell=tell, timer=time.perf_counter_ns)


def _scenario(arguments: argparse.Namespace) -> Scenario:
    from rove.world.runs.scenarios import load_scenario

    return load_scenario(arguments.scenario).sized(
        players=arguments.players,
        seed=arguments.seed,
        engines=arguments.engines,
        live=arguments.live_engine,
    )


def _write_parquet(result: ScenarioResult, folder: Path) -> None:
    from rove.live.report import write_parquet

    for path in write_parquet(result, folder):
        print(f"wrote {path}", file=sys.stderr)


def _write_metrics(result: ScenarioResult, place: str, began: float) -> None:
    from rove.live.report import open_database, write_metrics

    with open_database(place) as database:
        name = f"{result.scenario}-{int(began)}"
        rows = write_metrics(result, database, name, int(began))
        print(f"wrote {rows:,} readings of run {name} to {database.name}", file=sys.stderr)


def _show(result: ScenarioResult, *, as_json: bool) -> None:
    from rove.cli.world.view import json_rows, show

    if not as_json:
        show(result)
        return
    for row in json_rows(result):
        emit_json(row)


# --- list -----------------------------------------------------------------------------------------


def _configure_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def _run_list(arguments: argparse.Namespace) -> int:
    from rove.world.map.maps import shipped_maps
    from rove.world.runs.scenarios import load_scenario, shipped_scenarios

    scenarios = [load_scenario(name) for name in shipped_scenarios()]
    if arguments.json:
        for each in scenarios:
            engines = list(each.engines.use)
            emit_json(
                {
                    "scenario": each.name,
                    "title": each.title,
                    "about": each.about,
                    "players": each.people.players,
                    "seconds": each.seconds,
                    "engines": engines,
                }
            )
        return 0
    emit_rows((each.name, f"{each.title}. {each.about}") for each in scenarios)
    print(f"\nmaps: {', '.join(shipped_maps())}")
    return 0


# --- maps -----------------------------------------------------------------------------------------


def _configure_map(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("map", help="a shipped map (`rove world list`), or a file")
    parser.add_argument("--picture", metavar="FILE.png", type=_png, help="draw it there")
    parser.add_argument("--json", action="store_true", help="as one line of JSON")


def _run_map(arguments: argparse.Namespace) -> int:
    from rove.world.map.maps import load_map
    from rove.world.map.tiles import Tiles

    shown = load_map(arguments.map)
    tiles = Tiles(shown)
    roads = shown.roads
    facts: dict[str, object] = {
        "name": shown.name,
        "width_m": shown.width,
        "height_m": shown.height,
        "obstacles": len(shown.obstacles),
        "free_m2": round(shown.free_space.area),
        "tiles": len(tiles.triangles),
        "places": sorted(shown.places),
        "lanes": len(roads.lanes) if roads else 0,
        "lights": len(roads.lights) if roads else 0,
        "detectors": len(roads.detectors) if roads else 0,
        "cameras": len(roads.cameras) if roads else 0,
    }
    if arguments.picture is not None:
        from rove.world.runs.picture import draw_map

        draw_map(shown, tiles, arguments.picture)
        print(f"wrote {arguments.picture}", file=sys.stderr)
    if arguments.json:
        emit_json(facts)
    else:
        emit_rows((name.replace("_", " "), _fact(value)) for name, value in facts.items())
    return 0


def _fact(value: object) -> str:
    match value:
        case list():
            return ", ".join(value) or "none"
        case int() | float():
            return f"{value:,g}" if isinstance(value, float) else f"{value:,}"
    return str(value)


def _configure_generate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", help="plain, town, maze or city")
    for side in ("--width", "--height"):
        parser.add_argument(side, metavar="METRES", type=_METRES, default=1_000.0, help="(1000)")
    parser.add_argument("--seed", metavar="N", type=_WHOLE, default=1, help="(1)")


def _run_generate(arguments: argparse.Namespace) -> int:
    from rove.world.map.maps import map_text
    from rove.world.runs.scenarios import generate_map

    made = generate_map(arguments.kind, arguments.width, arguments.height, arguments.seed)
    sys.stdout.write(map_text(made))
    return 0


# --- picture --------------------------------------------------------------------------------------


def _configure_picture(parser: argparse.ArgumentParser) -> None:
    _add_scenario(parser)
    parser.add_argument("--at", metavar="S", type=_SECONDS, default=30.0, help="seconds (30)")
    parser.add_argument("--out", metavar="FILE.png", type=_png, required=True, help="where to")


def _run_picture(arguments: argparse.Namespace) -> int:
    from rove.world.runs.picture import draw_world

    scenario = _scenario(arguments).sized(seconds=arguments.at)
    draw_world(_played(scenario), arguments.out)
    print(f"wrote {arguments.out}", file=sys.stderr)
    return 0


def _played(scenario: Scenario) -> ScenarioRun:
    """A run of a scenario at its last second."""
    from rove.world.runs.scenario_run import ScenarioRun

    run_ = ScenarioRun(scenario)
    with progress_bar(scenario.name, "seconds") as tell:
        run_.play(tell)
    return run_


# --- what is written on the command line ----------------------------------------------------------


def _names(written: str) -> list[str]:
    names = [name.strip() for name in written.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"{written!r} is not a list such as object,tile")
    return names


def _png(written: str) -> Path:
    path = Path(written)
    if path.suffix != ".png":
        raise UsageError(f"pictures are PNG files; {path} is called otherwise")
    return path


PARTS: dict[str, CommandPart] = {
    "run": CommandPart(
        "run a scenario with some engines and compare them", _configure_run, _run_scenario
    ),
    "list": CommandPart("list the scenarios and maps that are shipped", _configure_list, _run_list),
    "map": CommandPart("tell what is on a map, or draw it", _configure_map, _run_map),
    "picture": CommandPart("draw a scenario at a moment", _configure_picture, _run_picture),
    "play": CommandPart(
        "talk to a world that runs over a broker", world_live.configure_play, world_live.run_play
    ),
    "generate": CommandPart(
        "make up a map, as the text of its file", _configure_generate, _run_generate
    ),
}
