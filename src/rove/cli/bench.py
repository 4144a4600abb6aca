"""`rove bench SUITE`: measure this machine; a table for people, `--json` for programs.

The suites are declared in `rove.bench`, each with the options that it accepts, and
`rove.bench.harness` runs them. This module registers them by name, because importing them all would
take seconds and needs extras that are not installed everywhere.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rove.cli.common.arguments import whole_number
from rove.cli.common.progress import progress_bar
from rove.errors import UsageError

if TYPE_CHECKING:
    from rove.bench.harness import Suite

SUITES: Final = {
    "all": "rove.bench.match.suite:ALL_SUITE",
    "bridge": "rove.bench.bridge:SUITE",
    "broker": "rove.bench.broker.suite:SUITE",
    "designs": "rove.bench.match.suite:DESIGNS_SUITE",
    "elastic": "rove.bench.elastic.suite:SUITE",
    "forest": "rove.bench.match.suite:FOREST_SUITE",
    "language": "rove.bench.language:SUITE",
    "match": "rove.bench.match.suite:SUITE",
    "monitor": "rove.bench.monitor.suite:SUITE",
    "pipeline": "rove.bench.pipeline.suite:SUITE",
    "policy": "rove.bench.policy.suite:SUITE",
    "programs": "rove.bench.match.suite:PROGRAMS_SUITE",
    "ranked": "rove.bench.match.suite:RANKED_SUITE",
    "store": "rove.bench.broker.store:SUITE",
    "texts": "rove.bench.match.suite:TEXTS_SUITE",
    "world": "rove.bench.world:SUITE",
}
"""For each suite its module, and its name there."""
_OPTIONS: Final = (
    "part",
    "workload",
    "subscriptions",
    "engine",
    "missing",
    "threads",
    "plots",
    "seconds",
    "quick",
    "full",
)
_SECONDS_MAX: Final = 3_600
_SUBSCRIPTIONS_MAX: Final = 10_000_000
_THREADS_MAX: Final = 64


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove bench`."""
    parser.add_argument("suite", choices=SUITES, help="what to measure")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument(
        "--part",
        nargs="+",
        metavar="NAME",
        help="of match: speed, kinetic, changes …; of broker: fanout, durable …; "
        "of pipeline: speed, joins …; of elastic: delay, steps …; of policy: overhead, link …; "
        "of world: speed, memory …; of monitor: size, stream … (default all); "
        "of texts: contains (default), slowest",
    )
    _configure_match(parser)
    options = parser.add_argument_group("for broker, pipeline, elastic, policy, world and monitor")
    options.add_argument(
        "--seconds",
        metavar="N",
        type=whole_number(1, _SECONDS_MAX),
        help="how long each load of broker publishes (default 4), each case of policy's part "
        "`hostile` lasts (5), or world runs over MQTT (300)",
    )
    options.add_argument(
        "--quick",
        action="store_const",
        const=True,
        help="a little of everything, to see that it works; the figures mean nothing",
    )
    options.add_argument(
        "--full",
        action="store_const",
        const=True,
        help="of pipeline: ten million publications; of pipeline and elastic: a million "
        "subscriptions, an hour; of policy: runs of five minutes, thirteen hours",
    )


def _configure_match(parser: argparse.ArgumentParser) -> None:
    options = parser.add_argument_group(
        "for match and all; pipeline and elastic accept some of these"
    )
    options.add_argument("--workload", nargs="+", metavar="NAME", help="W1 to W4 (default all)")
    options.add_argument(
        "--subscriptions",
        nargs="+",
        metavar="N",
        type=whole_number(1, _SUBSCRIPTIONS_MAX),
        help="how many (default 1000 10000 100000 1000000)",
    )
    options.add_argument(
        "--engine", nargs="+", metavar="NAME", help="scan, index, numpy, forest (default all)"
    )
    options.add_argument(
        "--missing",
        metavar="SHARE",
        type=_share,
        help="of the values, in a second run (default 0.3; 0 for no such run)",
    )
    options.add_argument(
        "--threads",
        metavar="N",
        type=whole_number(1, _THREADS_MAX),
        help="threads that share a batch (default 2; 1 for none)",
    )
    options.add_argument(
        "--plots", metavar="FOLDER", type=Path, help="write plots to this folder (PNG)"
    )


def _share(written: str) -> float:
    try:
        share = float(written)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise argparse.ArgumentTypeError(f"{written} is not a number from 0 to less than 1")
    return share


def run(arguments: argparse.Namespace) -> int:
    """Run one suite and print its measures."""
    from rove.bench.measure import show

    given = {
        name: value for name in _OPTIONS if (value := getattr(arguments, name, None)) is not None
    }
    if "plots" in given and importlib.util.find_spec("matplotlib") is None:
        raise UsageError("--plots needs matplotlib; install it with `pip install rove[plots]`")
    suite = _suite(arguments.suite)
    options = suite.options_of(given)
    with progress_bar("starting", "nothing", as_json=arguments.json) as tell:
        bench = suite.bench(options, lambda text: tell(title=text))
        with bench:
            measures = suite.measures(bench)
            if arguments.json:
                show(measures, as_json=True)
            else:
                found = list(measures)
    if not arguments.json:
        show(found, as_json=False)
    for path in bench.plots:
        print(f"wrote {path}", file=sys.stderr)
    return 0


def _suite(name: str) -> Suite[Any]:
    module, _, constant = SUITES[name].partition(":")
    suite: Suite[Any] = getattr(importlib.import_module(module), constant)
    return suite
