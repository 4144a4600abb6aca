"""`rove demo`: the language at work on a small generated city.

On a terminal that is wide enough it is a moving picture, a few seconds long; elsewhere (a pipe,
a log, a narrow window) it prints what was delivered, as fast as it can. Ctrl-C ends it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rove.cli.common.arguments import whole_number
from rove.cli.common.output import is_terminal

if TYPE_CHECKING:
    from rove.demo.scenes import Scene

_SECONDS = 45
_SCENES_PER_S = 5.0
_PICTURE_AT = 30
_PAGE_S_MAX = 600.0
_EXAMPLE = "NO2 > 40 AND x BETWEEN t AND t + 5"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove demo`."""
    parser.add_argument(
        "--seconds", type=whole_number(1), default=_SECONDS, help="of the city's time (default 45)"
    )
    parser.add_argument(
        "--svg", metavar="FILE", help="write one scene as a picture instead (light colours)"
    )
    parser.add_argument(
        "--no-spark", action="store_true", help="do not run the pipeline beside the broker"
    )
    parser.add_argument(
        "--spark-after",
        metavar="FILE",
        type=Path,
        help="Spark is being installed: wait for this file, which will hold the exit code",
    )
    parser.add_argument(
        "--monitor", action="store_true", help="serve a page beside it, with a town to look at"
    )
    parser.add_argument("--dark", action="store_true", help="with --svg: dark colours")


def run(arguments: argparse.Namespace) -> int:
    """Show the demonstration in the form that suits the reader."""
    if arguments.svg is not None:
        _write_picture(Path(arguments.svg), dark=arguments.dark)
    elif arguments.monitor:
        _show_beside_monitor(arguments)
    else:
        _show(arguments)
    return 0


def _show(arguments: argparse.Namespace) -> None:
    if is_terminal() and _is_wide_enough():
        _play(arguments)
    else:
        _tell(arguments)


def _scenes(arguments: argparse.Namespace) -> Iterator[Scene]:
    from rove.demo.scenes import scenes

    after = arguments.spark_after
    return scenes(arguments.seconds, with_spark=not arguments.no_spark, spark_after=after)


def _show_beside_monitor(arguments: argparse.Namespace) -> None:
    """The same, with a monitor that a person may look at until Ctrl-C.

    The first time, the page takes a while: its world's loops are compiled. Nothing waits for it.
    """
    from rove.demo.companions import monitor_beside
    from rove.monitor.monitor_process import MonitorProcessError

    with monitor_beside() as beside:

        def tell(words: str) -> None:
            try:
                sys.stderr.write(f"{words}: {beside.url(_PAGE_S_MAX)}\n")
            except MonitorProcessError as error:
                sys.stderr.write(f"There is no page: {error}\n")

        meanwhile = ("A page to look at meanwhile",)
        telling = threading.Thread(target=tell, args=meanwhile, name="rove-page", daemon=True)
        telling.start()
        _show(arguments)
        # Who reads a log wants to know too; what came of it is known by now, or soon.
        telling.join()
        if is_terminal():
            tell("\nThe page goes on until Ctrl-C")
            beside.wait()


def _is_wide_enough() -> bool:
    from rove.demo.scenes import HEIGHT, WIDTH

    columns, lines = shutil.get_terminal_size()
    return columns >= WIDTH and lines >= HEIGHT


def _write_picture(file: Path, *, dark: bool) -> None:
    from rove.demo.scenes import as_svg, scenes

    *_, scene = scenes(_PICTURE_AT)
    file.write_text(as_svg(scene, dark=dark), encoding="utf-8")


def _play(arguments: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.live import Live

    from rove.demo.scenes import drawn, summary

    console = Console()
    with Live(console=console, auto_refresh=False) as live:
        for scene in _scenes(arguments):
            live.update(drawn(scene), refresh=True)
            time.sleep(1 / _SCENES_PER_S)
    console.print(summary(scene))
    console.print(f'\nTry: [bold]rove check "{_EXAMPLE}"[/]', highlight=False)


def _tell(arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from rove.demo.scenes import summary

    found = 0
    is_installing = False
    for scene in _scenes(arguments):
        if scene.is_installing and not scene.delivered and not is_installing:
            is_installing = True
            sys.stdout.write(f"{'':8}  Spark is being installed, and joins then\n")
        if scene.found is not None and sum(scene.found.values()) != found:
            found = sum(scene.found.values())
            sys.stdout.write(f"{'':8}  Spark has found {found} notifications in the lake\n")
        for one in scene.delivered:
            moved_up = "  (moved up)" if one.promoted else ""
            line = f"{one.at:6.2f} s  {one.subscription:5}  {dict(one.attributes)}{moved_up}\n"
            sys.stdout.write(line)
        sys.stdout.flush()
    Console(width=118, file=sys.stdout).print("\n", summary(scene), sep="")
