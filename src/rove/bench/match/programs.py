"""How much faster compiled conditions are than walking their trees, and what compiling costs.

The texts are what no index decides: sums of attributes, distances, bounds that move with `t` and
with the subscriber. Each is evaluated both ways, with the answers compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from rove.bench.measure import Measure, seconds_for
from rove.lang import normalise, parse
from rove.lang.normal_form import Conjunction, NormalForm, holds
from rove.match.conditions import programs
from rove.match.conditions.programs import compiled_conjunction

TEXTS: Final = {
    "sum": "a + b > 3",
    "distance": "distance(lat, long, 45.8, 15.9) < 500",
    "moving": "x >= 3 * me.v + sin(t)",
    "area": "x BETWEEN me.x - 3 AND me.x + 3 AND y BETWEEN me.y - 2 AND me.y + 2",
    "names": "a < b",
}
_PUBLICATION: Final[dict[str, Any]] = {
    "a": 1.5,
    "b": 2.5,
    "x": 4.0,
    "y": 1.0,
    "lat": 45.801,
    "long": 15.901,
}
_STATE: Final = {"v": 0.5, "x": 3.0, "y": 1.5}
_CALLS = 2_000
_GOAL_RATIO = 5.0


def run() -> Iterator[Measure]:
    """All measures, each as soon as it is known."""
    for name, text in TEXTS.items():
        (conjunction,) = normalise(parse(text)).conjunctions
        yield from _evaluating(name, conjunction)
        yield from _compiling(name, conjunction)


def _evaluating(name: str, conjunction: Conjunction) -> Iterator[Measure]:
    form, program = NormalForm((conjunction,)), compiled_conjunction(conjunction)
    truth = holds(form, _PUBLICATION, 1.5, _STATE)
    assert program(_PUBLICATION, 1.5, _STATE) is truth, f"{name}: the program disagrees"
    walked_us = _us_per_call(lambda: holds(form, _PUBLICATION, 1.5, _STATE))
    ours_us = _us_per_call(lambda: program(_PUBLICATION, 1.5, _STATE))
    yield Measure(f"programs.{name}.tree", walked_us, "µs")
    yield Measure(
        f"programs.{name}.program",
        ours_us,
        "µs",
        ratio=walked_us / ours_us,
        against=f"programs.{name}.tree",
        goal=f">= {_GOAL_RATIO:g}×",
        reached=walked_us / ours_us >= _GOAL_RATIO,
    )


def _compiling(name: str, conjunction: Conjunction) -> Iterator[Measure]:
    def forgotten() -> None:
        programs._maker.cache_clear()
        compiled_conjunction(conjunction)

    yield Measure(f"programs.{name}.new-shape", 1e6 * seconds_for(forgotten, 20), "µs")
    known_us = _us_per_call(lambda: compiled_conjunction(conjunction), calls=_CALLS // 10)
    yield Measure(f"programs.{name}.known-shape", known_us, "µs")


def _us_per_call(work: Any, calls: int | None = None) -> float:
    repeats = range(calls or _CALLS)

    def repeated() -> None:
        for _ in repeats:
            work()

    return 1e6 * seconds_for(repeated) / len(repeats)
