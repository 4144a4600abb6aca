"""`rove bench language`: how fast expressions are parsed, and how fast hostile ones are refused.

Measured on expressions of W1 (see `rove.testing.workloads`), one core. If sqlglot and lark are
installed, they parse the same expressions: our parser was chosen over them.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Final

from rove.bench.harness import Bench, Suite, SuiteOptions
from rove.bench.measure import Measure, seconds_for
from rove.lang import LanguageError, covers, intersects, matches, normalise, parse, to_text
from rove.testing.workloads import AirQuality

_TEXTS = 2_000
_PARSE_GOAL_PER_S = 20_000
_HOSTILE_GOAL_MS = 10.0
_HELP_GOAL_MS = 150.0

HOSTILE: dict[str, str] = {
    "10MB-long": "a > 1 AND " * 1_000_000,
    "100000-parentheses": "(" * 100_000 + "a" + ")" * 100_000,
    "million-terms": " OR ".join(["a=1"] * 1_000_000),
    "8KiB-parentheses": "(" * 8_000,
    "8KiB-terms": " OR ".join(["a=1"] * 1_100),
    "8KiB-NOT": "NOT " * 2_000 + "a",
    "8KiB-minus": "- " * 4_000 + "a > 1",
    "8KiB-sum": "a+" * 4_000 + "a > 1",
    "8KiB-digits": "a > " + "9" * 8_000,
    "huge-exponent": "a > 1e999999999",
    "8KiB-IN": "a IN (" + ",".join(["1"] * 4_000) + ")",
    "normal-form-blows-up": " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(128)),
    "normal-form-blows-up-late": " AND ".join(
        [f"c{i}={i}" for i in range(200)] + [f"(a{i}=1 OR b{i}=1)" for i in range(8)]
    ),
    "controls": "a > 1 AND b = '\x00\x1b[2J'",
    "direction-override": "a = '\u202eadmin'",
    "zero-width": "a\u200b > 1",
    "lone-surrogate": "a = '\ud800'",
    "unclosed-string": "a = '" + "x" * 8_000,
    "unclosed-backticks": "`" * 7_999,
}
"""Expressions to refuse at once. Each is a kind of attack: length, depth, number, characters."""

_LARK_GRAMMAR = r"""
    start: predicate (("AND"i | "OR"i) predicate)*
    predicate: value OPERATOR value | value "BETWEEN"i value "AND"i value
    value: NAME | NUMBER | "(" value ")" | value ("+" | "-" | "*" | "/") value
    OPERATOR: "<=" | ">=" | "!=" | "<>" | "=" | "<" | ">"
    NAME: /[a-zA-Z_][a-zA-Z_0-9.]*/
    NUMBER: /-?[0-9]+(\.[0-9]*)?/
    %ignore " "
"""


def run(_bench: Bench[SuiteOptions]) -> Iterator[Measure]:
    """Yield all measures, each as soon as it is known."""
    yield _help()
    yield from _reading()
    yield from _meaning()
    yield from _refusing()


def _help() -> Measure:
    command = [sys.executable, "-m", "rove", "--help"]
    elapsed_ms = 1e3 * seconds_for(
        lambda: subprocess.run(command, check=True, capture_output=True), rounds=5
    )
    return Measure("language.help", elapsed_ms, "ms").at_most(_HELP_GOAL_MS, " ms")


def _reading() -> Iterator[Measure]:
    texts = AirQuality().texts(_TEXTS)
    trees = [parse(text) for text in texts]
    ours_per_s = _per_second(lambda: [parse(text) for text in texts])
    both_per_s = _per_second(lambda: [normalise(parse(text)) for text in texts])
    ours = Measure("language.parse.W1", ours_per_s, "texts/s")
    yield ours
    both = Measure("language.parse+normalise.W1", both_per_s, "texts/s")
    yield both.at_least(_PARSE_GOAL_PER_S)
    yield Measure(
        "language.print.W1", _per_second(lambda: [to_text(tree) for tree in trees]), "texts/s"
    )
    for name, other in (("sqlglot", _sqlglot()), ("lark", _lark())):
        if other is not None:
            theirs_per_s = _per_second(lambda: [other(text) for text in texts[:200]], 200)  # noqa: B023
            yield Measure(f"language.parse.W1.{name}", theirs_per_s, "texts/s").compared(ours)


def _meaning() -> Iterator[Measure]:
    workload = AirQuality()
    trees = [parse(text) for text in workload.texts(100)]
    readings = workload.publications(100)
    oracle_s = seconds_for(lambda: [matches(tree, r) for tree in trees for r in readings])
    yield Measure("language.oracle.W1", 1e4 / oracle_s, "evaluations/s")
    pairs = list(zip(trees[:50], trees[50:], strict=True))
    for relation in (covers, intersects):
        elapsed_s = seconds_for(lambda: [relation(a, b) for a, b in pairs])  # noqa: B023
        yield Measure(f"language.{relation.__name__}.W1", len(pairs) / elapsed_s, "pairs/s")


def _refusing() -> Iterator[Measure]:
    for name, text in HOSTILE.items():
        elapsed_ms = 1e3 * seconds_for(lambda: _refuse(text))  # noqa: B023
        measure = Measure(f"language.hostile.{name}", elapsed_ms, "ms")
        yield measure.at_most(_HOSTILE_GOAL_MS, " ms")


def _refuse(text: str) -> None:
    try:
        normalise(parse(text))
    except LanguageError:
        return
    raise AssertionError("a hostile expression was accepted")


def _per_second(work: Callable[[], object], count: int = _TEXTS) -> float:
    return count / seconds_for(work, rounds=9)


def _sqlglot() -> Callable[[str], object] | None:
    if importlib.util.find_spec("sqlglot") is None:
        return None
    import sqlglot

    return lambda text: sqlglot.parse_one(text, dialect="spark")


def _lark() -> Callable[[str], object] | None:
    if importlib.util.find_spec("lark") is None:
        return None
    import lark

    return lark.Lark(_LARK_GRAMMAR, parser="lalr").parse


SUITE: Final = Suite(name="language", parts={"language": run}, options=SuiteOptions())
