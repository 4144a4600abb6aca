"""`rove world run … --live` and `rove world play`: a world over a real broker, and talking to it.

What `rove world` needs for it: `add_live_arguments` for the options, `run_over_broker` instead of
a run in process, `show_delays` after the table of engines, and the part `play`. The work is in
`rove.live.launcher` and `rove.live.console`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rove.cli.common.arguments import whole_number
from rove.cli.common.connection import URL_VARIABLE
from rove.cli.common.output import emit_json, is_terminal
from rove.errors import RoveError

if TYPE_CHECKING:
    from rove.live.console import Console
    from rove.live.launcher import LiveResult
    from rove.world.runs.scenarios import Scenario

_HISTORY: Final = Path("~/.cache/rove/world_history")
_PROMPT: Final = "world> "
_COUNT: Final = whole_number(1)


# --- run --live -----------------------------------------------------------------------------------


def add_live_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `rove world run` that are about a real broker."""
    live = parser.add_argument_group("over a real broker, in real time")
    live.add_argument("--live", action="store_true", help="a process for each role, by MQTT")
    live.add_argument("--broker", metavar="URL", help="one that runs (default: one of its own)")
    live.add_argument("--servers", metavar="S", type=_COUNT, help="instead of the scenario's")
    live.add_argument(
        "--client-processes", metavar="P", type=_COUNT, default=1, help="that host clients (1)"
    )
    live.add_argument(
        "--no-dummies", action="store_true", help="do not run all engines beside, in process"
    )


def run_over_broker(
    scenario: Scenario,
    arguments: argparse.Namespace,
    tell: Callable[[float, float], None] | None = None,
) -> LiveResult:
    """Play a scenario over a broker, as the options say."""
    from rove.live.launcher import run_live

    return run_live(
        scenario,
        url=arguments.broker,
        servers=arguments.servers,
        hosts=arguments.client_processes,
        has_dummies=not arguments.no_dummies,
        tell=tell,
    )


def show_delays(live: LiveResult, *, as_json: bool) -> None:
    """How long updates took, and what the processes had to do."""
    if as_json:
        for row in json_rows(live):
            emit_json(row)
        return
    sys.stdout.writelines(f"{line}\n" for line in lines(live))


def lines(live: LiveResult) -> Iterator[str]:
    """The same for a person."""
    if live.was_stopped:
        yield f"stopped after {live.result.seconds:g} s"
    if live.updates:
        worst = max(live.client_p99_ms, key=lambda client: live.client_p99_ms[client])
        yield (
            f"{live.updates:,} updates reached {len(live.client_p99_ms):,} clients: half within "
            f"{live.delay_p50_ms:.1f} ms, 95 % within {live.delay_p95_ms:.1f} ms, 99 % within "
            f"{live.delay_p99_ms:.1f} ms, all within {live.delay_max_ms:.1f} ms"
        )
        yield f"the worst off is client {worst}: 99 % within {live.client_p99_ms[worst]:.1f} ms"
    for process in live.processes:
        share = process.cpu_s / live.result.elapsed_s if live.result.elapsed_s else 0.0
        late = (
            f", late by {process.late_s_max * 1_000:.0f} ms at most" if process.late_s_max else ""
        )
        yield f"{process.name}: {process.cpu_s:.1f} s of CPU, {share:.0%} of a core{late}"


def json_rows(live: LiveResult) -> Iterator[dict[str, object]]:
    """The same for a program."""
    delays = {
        "delay_p50_ms": live.delay_p50_ms,
        "delay_p95_ms": live.delay_p95_ms,
        "delay_p99_ms": live.delay_p99_ms,
        "delay_max_ms": live.delay_max_ms,
        "client_p99_ms_max": max(live.client_p99_ms.values(), default=0.0),
    }
    known = delays if live.updates else {}
    yield {
        "updates": live.updates,
        "clients": len(live.client_p99_ms),
        **known,
        "was_stopped": live.was_stopped,
    }
    for process in live.processes:
        yield {
            "process": process.name,
            "cpu_s": process.cpu_s,
            "late_s_max": process.late_s_max,
            "late_ticks": process.late_ticks,
        }


# --- play -----------------------------------------------------------------------------------------


def configure_play(parser: argparse.ArgumentParser) -> None:
    """The options of `rove world play`."""
    parser.add_argument(
        "--broker",
        metavar="URL",
        help=f"where a world is played (default: {URL_VARIABLE}, or this machine)",
    )


def run_play(arguments: argparse.Namespace) -> int:
    """Read commands, have them obeyed, tell what became of them; to the end of the input."""
    from rove.client.addresses import DEFAULT_URL
    from rove.live.console import console

    with console(arguments.broker or os.environ.get(URL_VARIABLE) or DEFAULT_URL) as talking:
        about = talking.announced.scenario
        print(f"{about.name}: {about.title}; `help` lists commands, `quit` ends", file=sys.stderr)
        refused = False
        for text in _typed(talking):
            try:
                print(talking.say(text), flush=True)
            except RoveError as error:
                refused = True
                print(error, file=sys.stderr)
    # A person has seen it; a script should hear of it.
    return int(refused and not is_terminal(sys.stdin))


def _typed(talking: Console) -> Iterator[str]:
    """What is typed, line by line, with history and completion where a person types it."""
    if not is_terminal(sys.stdin):
        texts = (line.strip() for line in sys.stdin)
        yield from (text for text in texts if text and text != "quit")
        return
    _prepare_readline(talking)
    while True:
        try:
            text = input(_PROMPT).strip()
        except (EOFError, KeyboardInterrupt):
            print(file=sys.stderr)
            return
        if text == "quit":
            return
        if text:
            yield text


def _prepare_readline(talking: Console) -> None:
    try:
        import readline
    except ImportError:  # some systems have none: typing works all the same
        return
    import atexit

    from rove.live.console import Completer

    readline.set_completer(Completer(talking, readline.get_line_buffer))
    readline.set_completer_delims(" ,")
    readline.parse_and_bind("tab: complete")
    path = _HISTORY.expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        readline.read_history_file(path)
    atexit.register(readline.write_history_file, path)
