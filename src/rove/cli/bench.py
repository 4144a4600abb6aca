"""`rove bench SUITE`: measure this machine; a table for people, `--json` for programs.

`match`, `broker`, `pipeline`, `elastic`, `policy`, `world` and `monitor` are the large ones and
take options; `all` is `language` and `match`, which need nothing but a processor. What is being
measured is shown on stderr while a person is watching.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from rove.cli.common.arguments import whole_number
from rove.cli.common.progress import progress_bar
from rove.errors import UsageError

if TYPE_CHECKING:
    from rove.bench.broker import suite as broker_bench
    from rove.bench.elastic import suite as elastic_bench
    from rove.bench.match.suite import Options
    from rove.bench.measure import Measure
    from rove.bench.pipeline import suite as pipeline_bench
    from rove.bench.policy import suite as policy_bench

_SUITES = (
    "all",
    "bridge",
    "broker",
    "designs",
    "elastic",
    "forest",
    "language",
    "match",
    "monitor",
    "pipeline",
    "policy",
    "programs",
    "ranked",
    "store",
    "texts",
    "world",
)
_MATCH_OPTIONS = ("workload", "subscriptions", "engine", "missing", "threads", "part", "plots")
_BROKER_OPTIONS = ("part", "seconds", "quick")
_PIPELINE_OPTIONS = ("part", "workload", "subscriptions", "plots", "quick", "full")
_ELASTIC_OPTIONS = ("part", "subscriptions", "plots", "quick", "full")
_POLICY_OPTIONS = ("part", "seconds", "plots", "quick", "full")
_WORLD_OPTIONS = ("part", "seconds", "quick")
_MONITOR_OPTIONS = ("part", "quick")
_TEXTS_OPTIONS = ("part",)
_OPTIONS = {
    "all": _MATCH_OPTIONS,
    "match": _MATCH_OPTIONS,
    "broker": _BROKER_OPTIONS,
    "pipeline": _PIPELINE_OPTIONS,
    "elastic": _ELASTIC_OPTIONS,
    "policy": _POLICY_OPTIONS,
    "world": _WORLD_OPTIONS,
    "monitor": _MONITOR_OPTIONS,
    "texts": _TEXTS_OPTIONS,
}
_QUICK_S = 0.3
_SECONDS_MAX = 3_600
_SUBSCRIPTIONS_MAX = 10_000_000
_THREADS_MAX = 64


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rove bench`."""
    parser.add_argument("suite", choices=_SUITES, help="what to measure")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
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
        help="that each load of broker publishes (default 4), that each case of policy's part "
        "`hostile` lasts (5), or that world lives (300)",
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
        "for match and all; those of pipeline and elastic are fewer"
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
        help="that share a batch (default 2; 1 for none)",
    )
    options.add_argument(
        "--plots", metavar="FOLDER", type=Path, help="write pictures of speed against size there"
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

    _refuse_options(arguments)
    _check_plots(arguments)
    start = _suite(arguments)
    with progress_bar("starting", "nothing", as_json=arguments.json) as tell:
        measures = _Kept(start(lambda text: tell(title=text)))
        if arguments.json:
            show(measures, as_json=True)
        else:
            list(measures)
    if not arguments.json:
        show(map(_shortened, measures.seen), as_json=False)
    if arguments.plots is not None:
        for path in _draw(arguments, measures.seen):
            print(f"wrote {path}", file=sys.stderr)
    return 0


def _draw(arguments: argparse.Namespace, measures: list[Measure]) -> list[Path]:
    if arguments.suite == "pipeline":
        from rove.bench.pipeline import suite as pipeline_bench

        workloads = _pipeline_options(arguments).workloads
        return pipeline_bench.draw(measures, workloads, arguments.plots)
    if arguments.suite == "elastic":
        from rove.bench.elastic import suite as elastic_bench

        return elastic_bench.pictures(_elastic_options(arguments))
    if arguments.suite == "policy":
        from rove.bench.policy import suite as policy_bench

        return policy_bench.pictures(_policy_options(arguments))
    from rove.bench.match.suite import draw

    return draw(measures, _options(arguments).workloads, arguments.plots)


def _shortened(measure: Measure) -> Measure:
    """For a table: of what it is compared with, only the part of the name that differs."""
    if measure.against is None:
        return measure
    names = zip(measure.name.split("."), measure.against.split("."), strict=False)
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], names))
    against = ".".join(measure.against.split(".")[same:])
    return msgspec.structs.replace(measure, against=against)


class _Kept:
    """Passes measures on as they come, and remembers them."""

    def __init__(self, measures: Iterator[Measure]) -> None:
        self._measures = measures
        self.seen: list[Measure] = []

    def __iter__(self) -> Iterator[Measure]:
        for measure in self._measures:
            self.seen.append(measure)
            yield measure


Extent = TypeVar("Extent")
Start = Callable[[Callable[[str], None]], "Iterator[Measure]"]
"""Begins to measure, and says what it is doing."""


def _suite(arguments: argparse.Namespace) -> Start:
    """What was asked for; UsageError before anything is measured."""
    suite = arguments.suite
    if suite == "broker":
        return _broker(arguments)
    if suite == "pipeline":
        return _pipeline(arguments)
    if suite == "elastic":
        return _elastic(arguments)
    if suite == "policy":
        return _policy(arguments)
    if suite == "world":
        return _world(arguments)
    if suite == "monitor":
        return _monitor(arguments)
    if suite == "texts" and arguments.part:
        return _texts(arguments)
    if suite == "bridge":
        from rove.bench import bridge as bridge_bench

        return bridge_bench.run
    if suite == "store":
        from rove.bench.broker import store as store_bench

        return lambda tell: store_bench.run()
    options = _options(arguments)
    return lambda tell: _measures(suite, options, tell)


def _measures(suite: str, options: Options, tell: Callable[[str], None]) -> Iterator[Measure]:
    if suite in ("all", "language"):
        from rove.bench import language as language_bench

        tell("language")
        yield from language_bench.run()
    if suite != "language":
        from rove.bench.match import suite as match_bench

        yield from match_bench.run(options, tell)


def _broker(arguments: argparse.Namespace) -> Start:
    if sys.platform != "linux":
        raise UsageError("`rove bench broker` reads CPU times from /proc; it needs Linux")
    from rove.bench.broker import suite as broker_bench

    options = _broker_options(arguments)
    return lambda tell: broker_bench.run(options, tell)


def _broker_options(arguments: argparse.Namespace) -> broker_bench.Options:
    from rove.bench.broker import suite as broker_bench

    quick = bool(arguments.quick)
    return broker_bench.Options(
        parts=_chosen("part", arguments.part, tuple(broker_bench.PARTS)) or (),
        seconds=arguments.seconds or (_QUICK_S if quick else broker_bench.SECONDS),
        sizes=broker_bench.QUICK if quick else broker_bench.Sizes(),
    )


def _pipeline(arguments: argparse.Namespace) -> Start:
    if sys.platform != "linux":
        raise UsageError("`rove bench pipeline` reads memory from /proc; it needs Linux")
    from rove.bench.pipeline import suite as pipeline_bench

    options = _pipeline_options(arguments)
    return lambda tell: pipeline_bench.run(options, tell)


def _pipeline_options(arguments: argparse.Namespace) -> pipeline_bench.Options:
    from rove.bench.pipeline import suite as pipeline_bench

    plain, quick, full = pipeline_bench.Options(), pipeline_bench.QUICK, pipeline_bench.FULL
    given = {
        "workloads": _chosen("workload", arguments.workload, pipeline_bench.WORKLOADS),
        "sizes": arguments.subscriptions and sorted(set(arguments.subscriptions)),
        "parts": _chosen("part", arguments.part, tuple(pipeline_bench.PARTS)),
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(_extent(arguments, plain, quick, full), **chosen)


def _extent(arguments: argparse.Namespace, plain: Extent, quick: Extent, full: Extent) -> Extent:
    """How much of a benchmark was asked for."""
    if arguments.quick and arguments.full:
        raise UsageError("--quick and --full cannot both be; choose one")
    return quick if arguments.quick else full if arguments.full else plain


def _elastic(arguments: argparse.Namespace) -> Start:
    if sys.platform != "linux":
        raise UsageError("`rove bench elastic` reads CPU times from /proc; it needs Linux")
    from rove.bench.elastic import suite as elastic_bench

    options = _elastic_options(arguments)
    return lambda tell: elastic_bench.run(options, tell)


def _elastic_options(arguments: argparse.Namespace) -> elastic_bench.Options:
    from rove.bench.elastic import suite as elastic_bench

    plain, quick, full = elastic_bench.Options(), elastic_bench.QUICK, elastic_bench.FULL
    base = _extent(arguments, plain, quick, full)
    parts = _chosen("part", arguments.part, tuple(elastic_bench.PARTS)) or ()
    sizes = tuple(sorted(set(arguments.subscriptions or base.sizes)))
    return msgspec.structs.replace(base, parts=parts, sizes=sizes, plots=arguments.plots)


def _policy(arguments: argparse.Namespace) -> Start:
    if sys.platform != "linux":
        raise UsageError("`rove bench policy` reads CPU times from /proc; it needs Linux")
    from rove.bench.policy import suite as policy_bench

    options = _policy_options(arguments)
    return lambda tell: policy_bench.run(options, tell)


def _policy_options(arguments: argparse.Namespace) -> policy_bench.Options:
    from rove.bench.policy import suite as policy_bench

    plain, quick, full = policy_bench.Options(), policy_bench.QUICK, policy_bench.FULL
    parts = _chosen("part", arguments.part, tuple(policy_bench.PARTS)) or ()
    if arguments.seconds and parts and "hostile" not in parts:
        raise UsageError("--seconds is how long a case of the part `hostile` lasts")
    base = _extent(arguments, plain, quick, full)
    hostile_s = arguments.seconds or base.hostile_s
    return msgspec.structs.replace(
        base, parts=parts, plots=arguments.plots, hostile_s=float(hostile_s)
    )


def _world(arguments: argparse.Namespace) -> Start:
    if sys.platform != "linux":
        raise UsageError("`rove bench world` binds processes to cores; it needs Linux")
    from rove.bench import world as world_bench

    given: dict[str, Any] = {
        "parts": _chosen("part", arguments.part, tuple(world_bench.PARTS)),
        "live_s": arguments.seconds,
    }
    base = world_bench.QUICK if arguments.quick else world_bench.Options()
    chosen = {name: value for name, value in given.items() if value is not None}
    options = msgspec.structs.replace(base, **chosen)
    return lambda tell: world_bench.run(options, tell)


def _monitor(arguments: argparse.Namespace) -> Start:
    if sys.platform != "linux":
        raise UsageError("`rove bench monitor` reads CPU times from /proc; it needs Linux")
    from rove.bench.monitor import suite as monitor_bench

    base = monitor_bench.QUICK if arguments.quick else monitor_bench.Options()
    parts = _chosen("part", arguments.part, tuple(monitor_bench.PARTS)) or ()
    options = msgspec.structs.replace(base, parts=parts)
    return lambda tell: monitor_bench.run(options, tell)


def _texts(arguments: argparse.Namespace) -> Start:
    from rove.bench.match import slow_texts as slow_texts_bench
    from rove.bench.match import texts as texts_bench

    parts = {"contains": texts_bench.run, "slowest": slow_texts_bench.run}
    chosen = _chosen("part", arguments.part, tuple(parts)) or ()
    return lambda tell: itertools.chain.from_iterable(parts[name]() for name in chosen)


def _options(arguments: argparse.Namespace) -> Options:
    from rove.bench.match import suite as match_bench
    from rove.bench.match.engines import ENGINES

    given = {
        "workloads": _chosen("workload", arguments.workload, match_bench.WORKLOADS),
        "sizes": arguments.subscriptions and sorted(set(arguments.subscriptions)),
        "engines": _chosen("engine", arguments.engine, ("scan", *ENGINES)),
        "missing": arguments.missing,
        "threads": arguments.threads,
        "parts": _chosen("part", arguments.part, tuple(match_bench.PARTS)),
    }
    if arguments.suite in match_bench.PARTS:
        given["parts"] = [arguments.suite]
    if given["engines"] is not None:  # the scan is the judge and runs anyway
        given["engines"] = [name for name in given["engines"] if name != "scan"]
    return match_bench.Options(
        **{name: value for name, value in given.items() if value is not None}
    )


def _chosen(what: str, names: list[str] | None, known: tuple[str, ...]) -> list[str] | None:
    """Each name once, in our order; UsageError for one that is not known."""
    for name in names or ():
        if name not in known:
            raise UsageError(f"there is no {what} {name!r}; choose from {', '.join(known)}")
    return None if names is None else [name for name in known if name in names]


def _refuse_options(arguments: argparse.Namespace) -> None:
    for name in dict.fromkeys(_MATCH_OPTIONS + _BROKER_OPTIONS + _PIPELINE_OPTIONS):
        if getattr(arguments, name) is None or name in _OPTIONS.get(arguments.suite, ()):
            continue
        takers = [
            suite
            for suite in ("match", "broker", "pipeline", "elastic", "policy", "world", "monitor")
            if name in _OPTIONS[suite]
        ]
        taken = " and ".join(f"`rove bench {suite}`" for suite in takers)
        raise UsageError(f"--{name} is for {taken}, not for {arguments.suite}")


def _check_plots(arguments: argparse.Namespace) -> None:
    """Before many minutes are spent on measures that could not be drawn."""
    if arguments.plots is None:
        return
    import importlib.util

    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("--plots needs matplotlib; install it with `pip install rove[plots]`")
    if arguments.suite not in ("elastic", "policy") and "speed" not in (
        arguments.part or ["speed"]
    ):
        raise UsageError("--plots draws what the part `speed` measures; add it to --part")
