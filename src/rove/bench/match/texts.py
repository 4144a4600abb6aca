"""How fast one text meets many patterns (`contains`), and what it costs to keep them.

Patterns of 5 to 12 letters and texts of 40, drawn with the unevenness of a language; beside them
a plain Python loop over `pattern in text`, on the same texts, with the answers compared. Patterns
are added one by one, with the merges done as soon as they are due, and then once more all merged.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random

from rove.bench.measure import Measure, seconds_for
from rove.lang.patterns import Pattern, contains
from rove.match.patterns.pattern_set import PatternSet

_SIZES = (1_000, 10_000, 100_000)
_TEXTS = 2_000
_TEXTS_OF_THE_LOOP = 20
_TEXT_GOAL_US = 15.0
_ADD_GOAL_US = 30.0
_PAUSE_GOAL_MS = 20.0

_LETTERS = "etaoinshrdlucmfwypvbgkqjxz"
_WEIGHTS = [1 / rank for rank in range(1, len(_LETTERS) + 1)]


def run() -> Iterator[Measure]:
    """All measures, each as soon as it is known."""
    for size in _SIZES:
        random = Random(size)
        words = [_word(random, random.randint(5, 12)) for _ in range(size)]
        texts = [_word(random, 40) for _ in range(_TEXTS)]
        name = f"texts.contains.{size}"
        patterns = PatternSet()
        yield from _adding(name, patterns, [contains(word) for word in words])
        yield from _asking(name, patterns, words, texts)
        yield Measure(f"{name}.bytes", patterns.nbytes / len(patterns), "bytes/pattern")


def _adding(name: str, patterns: PatternSet, drawn: list[Pattern]) -> Iterator[Measure]:
    longest_s = merging_s = 0.0
    start = time.perf_counter()
    for pattern in drawn:
        before = time.perf_counter()
        patterns.add(pattern)
        longest_s = max(longest_s, time.perf_counter() - before)
        while (merge := patterns.merge_due()) is not None:
            before = time.perf_counter()
            merge.run()
            merging_s += time.perf_counter() - before
            before = time.perf_counter()
            patterns.install(merge)
            longest_s = max(longest_s, time.perf_counter() - before)
    add_us = 1e6 * (time.perf_counter() - start) / len(drawn)
    yield _limited(f"{name}.add", add_us, "µs", _ADD_GOAL_US)
    yield Measure(f"{name}.add.merging", 1e6 * merging_s / len(drawn), "µs")
    yield _limited(f"{name}.add.pause", 1e3 * longest_s, "ms", _PAUSE_GOAL_MS)


def _asking(
    name: str, patterns: PatternSet, words: list[str], texts: list[str]
) -> Iterator[Measure]:
    distinct = sorted(set(words))
    few = texts[:_TEXTS_OF_THE_LOOP]
    loop_us = 1e6 * seconds_for(lambda: _tried(distinct, few), rounds=1) / len(few)
    counts = [len(patterns.fitting(text)) for text in few]
    assert counts == _tried(distinct, few), "the loop and the set disagree"
    yield Measure(f"{name}.loop", loop_us, "µs/text")
    ours_s = seconds_for(lambda: [patterns.fitting(text) for text in texts], rounds=9)
    ours_us = 1e6 * ours_s / len(texts)
    yield _compared(f"{name}.fitting", ours_us, loop_us)


def _tried(words: list[str], texts: list[str]) -> list[int]:
    """How many words each text holds, one by one."""
    return [sum(word in text for word in words) for text in texts]


def _compared(name: str, ours_us: float, loop_us: float) -> Measure:
    return Measure(
        name,
        ours_us,
        "µs/text",
        ratio=loop_us / ours_us,
        against=name.replace("fitting", "loop"),
        goal=f"<= {_TEXT_GOAL_US:g} µs",
        reached=ours_us <= _TEXT_GOAL_US,
    )


def _limited(name: str, value: float, unit: str, limit: float) -> Measure:
    return Measure(name, value, unit, goal=f"<= {limit:g} {unit}", reached=value <= limit)


def _word(random: Random, size: int) -> str:
    return "".join(random.choices(_LETTERS, _WEIGHTS, k=size))
