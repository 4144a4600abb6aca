"""The slowest text that a broker accepts: searched for, by time.

`rove.testing.slow_texts` changes texts a little and keeps what takes longer; here it is measured in
CPU time. A text may take 20 ms to accept (parse, normal form, cost, compile, add) and 1 ms to match
for a publication of 1 KB. A candidate that seems to take longer is measured again several times and
the least counts: on a busy machine one measurement in a hundred is disturbed.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from typing import Final

from rove.bench.measure import Measure
from rove.broker.limits import Limits
from rove.lang.costs import cost_of
from rove.lang.parser import parse
from rove.match.matcher import Matcher
from rove.testing.slow_texts import Trial, hunt, tried

TRIALS: Final = 400
ACCEPTING_MS_MAX: Final = 20.0
MATCHING_MS_MAX: Final = 1.0
_ROUNDS: Final = 5
_SHOWN_CHARACTERS: Final = 120


def run(trials: int = TRIALS, seed: int = 1) -> Iterator[Measure]:
    """The slowest to accept, the slowest to match, and whether the cost model foresaw it."""
    _warm_up()
    steps_max = Limits().text_steps_max
    found = hunt(seed, trials, steps_max, milliseconds, _slowness)
    again = [_again(one, steps_max) for one in sorted(found, key=_slowness)[-10:]]
    slowest = max(again, key=lambda one: one.accepting)
    yield _judged("texts.slowest.accepting", slowest, slowest.accepting, ACCEPTING_MS_MAX)
    slowest = max(again, key=lambda one: one.matching)
    yield _judged("texts.slowest.matching", slowest, slowest.matching, MATCHING_MS_MAX)
    foreseen_ms = slowest.cost.peak_steps / 1e6
    yield Measure(
        "texts.slowest.foreseen",
        foreseen_ms,
        "ms",
        ratio=foreseen_ms / slowest.matching,
        against="texts.slowest.matching",
    )
    yield Measure("texts.slowest.accepted", len(found) / trials, "of the texts tried")


def milliseconds(work: Callable[[], object]) -> float:
    """CPU time; garbage of other texts is not collected meanwhile."""
    gc.disable()
    try:
        start_s = time.process_time()
        work()
        return 1e3 * (time.process_time() - start_s)
    finally:
        gc.enable()


def _slowness(trial: Trial) -> float:
    """In shares of what is allowed."""
    return max(trial.accepting / ACCEPTING_MS_MAX, trial.matching / MATCHING_MS_MAX)


def _again(trial: Trial, steps_max: int) -> Trial:
    rounds = [tried(trial.recipe, steps_max, milliseconds) for _ in range(_ROUNDS)]
    known = [one for one in rounds if one is not None]
    accepting = min(one.accepting for one in known)
    matching = min(one.matching for one in known)
    return Trial(trial.recipe, trial.text, trial.cost, accepting, matching)


def _judged(name: str, trial: Trial, value: float, limit: float) -> Measure:
    text = trial.text
    shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
    return Measure(
        name,
        value,
        "ms",
        goal=f"<= {limit:g} ms",
        reached=value <= limit,
        note=f"{len(text):,} characters: {shown}",
    )


def _warm_up() -> None:
    """Let kernels be loaded, and caches that all texts share be filled."""
    matcher = Matcher()
    parsed = parse("s LIKE '%a%b' OR s LIKE '%a_b%c%' OR lower(s) LIKE '%a%' OR x > 1")
    cost_of(parsed)
    matcher.add(1, parsed)
    for _ in range(2):
        matcher.match([{"s": "x", "x": 2}], [0.0])
        matcher.compact()
