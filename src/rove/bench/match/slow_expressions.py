"""`rove bench texts --part slowest`: a search for the slowest expression that a broker accepts.

An attacker would look for an expression that is within all limits and still slow. So does this
search, by hill climbing: a *recipe* describes an expression (predicates of some kinds, how they are
joined, and how many ORs stand beside them, which a normal form multiplies out). The search changes
recipes a little and continues with those that cost more.

The cost is CPU time here, and counted calls in the tests, where it must be the same on every
machine. An expression may take 20 ms to accept (parse, normal form, cost, compile, add) and 1 ms to
match for a publication of 1 KB. A candidate that seems to take longer is measured several times
more, and the shortest time counts: on a busy machine one measurement in a hundred is disturbed.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

import msgspec

from rove.bench.measure import Measure
from rove.broker.limits import Limits
from rove.lang.costs import PUBLICATION_CHARACTERS, Cost, cost_of
from rove.lang.errors import LanguageError
from rove.lang.limits import PREDICATES_MAX, TEXT_BYTES_MAX
from rove.lang.parser import parse
from rove.match.matcher import Matcher

TRIALS: Final = 400
ACCEPTING_MS_MAX: Final = 20.0
MATCHING_MS_MAX: Final = 1.0
_ROUNDS: Final = 5
_SHOWN_CHARACTERS: Final = 120
_LETTERS: Final = "abz"
_AT: Final = 5.0
_ME: Final = {"x": 1, "y": 2.5}


def _pattern(random: Random) -> str:
    pieces = ("a", "b", "z", "%", "%a%", "_", "a_b", "ab", "%_a")
    return "".join(random.choices(pieces, k=random.choice((2, 5, 20, 60, 600))))


def _computed(random: Random, depth: int) -> str:
    if depth == 0:
        return random.choice(("x", "y", "z", "2.5", "t", "me.x", "a1"))
    inner = [_computed(random, depth - 1) for _ in range(4)]
    return random.choice(
        (
            f"({inner[0]} + {inner[1]})",
            f"({inner[0]} * {inner[1]})",
            f"pow({inner[0]}, {inner[1]})",
            f"distance({', '.join(inner)})",
            f"least({inner[0]}, {inner[1]})",
            f"sin({inner[0]})",
        )
    )


PREDICATES: Final[dict[str, Callable[[Random, int], str]]] = {
    "number": lambda random, i: f"a{i % 40} > {random.randrange(9)}",
    "equal": lambda random, i: f"x = {2 * i}",
    "string": lambda random, i: f"s{i % 3} >= '{random.choice(_LETTERS)}{i}'",
    "in": lambda random, i: f"a{i % 9} IN ({','.join(map(str, random.sample(range(99), 60)))})",
    "like": lambda random, i: f"s LIKE '{_pattern(random)}'",
    "not like": lambda random, i: f"s NOT LIKE '%{_pattern(random)}'",
    "contains": lambda random, i: f"contains(lower(s{i % 50}), '{random.choice(_LETTERS)}{i}')",
    "pair": lambda random, i: f"a{i % 40} > b{i % 30}",
    "bound": lambda random, i: f"x BETWEEN {i} + t AND {i} * t + 9",
    "place": lambda random, i: f"y BETWEEN me.x - {i} AND me.x + {i}",
    "computed": lambda random, i: f"{_computed(random, random.choice((1, 2, 3, 4)))} > {i}",
    "nested": lambda random, i: f"{'.'.join('a' * (i % 20 + 1))} IS NOT NULL",
}


class Recipe(msgspec.Struct, frozen=True):
    """How an expression is made."""

    seed: int
    kinds: tuple[str, ...]
    """Of predicates, in turn."""
    count: int
    joins: str
    ors: int
    """Pairs of alternatives beside all of it."""
    negated: bool = False

    def text(self) -> str:
        """The expression, with as many predicates as fit."""
        random = Random(self.seed)
        beside = [f"(p{i} = 1 OR q{i} = 1)" for i in range(self.ors)]
        room = TEXT_BYTES_MAX - 40 - sum(map(len, beside)) - 5 * len(beside)
        found: list[str] = []
        for i in range(min(self.count, PREDICATES_MAX - 2 * self.ors)):
            one = PREDICATES[self.kinds[i % len(self.kinds)]](random, i)
            room -= len(one) + 5
            if room < 0:
                break
            found.append(one)
        joined = f" {self.joins} ".join(found) or "TRUE"
        inner = f"NOT ({joined})" if self.negated else f"({joined})"
        return " AND ".join([*beside, inner])

    def changed(self, random: Random) -> Recipe:
        """Another one, a little different."""
        kinds = list(self.kinds)
        place = random.randrange(len(kinds))
        match random.randrange(7):
            case 0:
                kinds[place] = random.choice(list(PREDICATES))
            case 1:
                kinds.append(random.choice(list(PREDICATES)))
            case 2:
                kinds = kinds[:place] + kinds[place + 1 :] or kinds
            case 3:
                return msgspec.structs.replace(self, seed=random.randrange(1_000))
            case 4:
                count = random.choice((self.count // 2 + 1, self.count * 2, 64, PREDICATES_MAX))
                return msgspec.structs.replace(self, count=count)
            case 5:
                return msgspec.structs.replace(self, ors=random.randrange(7))
            case _:
                joins, negated = random.choice(("AND", "OR")), random.random() < 0.3
                return msgspec.structs.replace(self, joins=joins, negated=negated)
        return msgspec.structs.replace(self, kinds=tuple(kinds))


def publications() -> list[dict[str, Any]]:
    """Publications of about 1 KB for which the expressions of recipes are slow."""
    numbers: dict[str, Any] = {f"a{i}": 9 for i in range(40)} | {f"b{i}": 0 for i in range(30)}
    some = {"x": 7.5, "y": 3, "z": 0.25, "p0": 1, "q0": 1}
    either = {f"{name}{i}": 1 for i in range(6) for name in "pq"}
    size = PUBLICATION_CHARACTERS - 80
    return [
        some | either | {"s": ("ab" * size)[:size]},
        some | either | {"s": "a" * size},
        some | either | {f"s{i}": "abz" * 6 for i in range(50)},
        some | either | numbers | {"s": "zab" * 30},
    ]


class Candidate(msgspec.Struct, frozen=True):
    """What one expression cost."""

    recipe: Recipe
    text: str
    cost: Cost
    accepting: float
    matching: float
    """In the unit that the caller measures; the worst of several publications."""


Measured = Callable[[Callable[[], object]], float]


def tried(recipe: Recipe, steps_max: int, measured: Measured) -> Candidate | None:
    """The cost to accept and to match an expression; None if it is refused."""
    text = recipe.text()
    matcher = Matcher()
    found: list[Cost] = []

    def accept() -> None:
        parsed = parse(text)
        found.append(cost_of(parsed))
        if found[0].peak_steps <= steps_max:
            matcher.add(1, parsed, 0.0, _ME)

    try:
        accepting = measured(accept)
    except LanguageError:
        return None
    if found[0].peak_steps > steps_max:
        return None
    waiting = max(_matching(matcher, one, measured) for one in publications())
    matcher.compact()
    indexed = max(_matching(matcher, one, measured) for one in publications())
    return Candidate(recipe, text, found[0], accepting, max(waiting, indexed))


def _matching(matcher: Matcher, publication: dict[str, Any], measured: Measured) -> float:
    matcher.match([publication], [_AT])  # what is compiled once is not for every publication
    return measured(lambda: matcher.match([publication], [_AT]))


def hunt(
    seed: int, trials: int, steps_max: int, measured: Measured, worth: Callable[[Candidate], float]
) -> list[Candidate]:
    """All accepted candidates: one of each kind of predicate, then variants of the costliest."""
    random = Random(seed)
    first = [Recipe(i, (kind,), 64, "OR", 0) for i, kind in enumerate(PREDICATES)]
    found: list[Candidate] = []
    for number in range(trials):
        best = sorted(found, key=worth)[-4:]
        if number < len(first):
            recipe = first[number]
        else:
            recipe = random.choice(best).recipe if best else random.choice(first)
            for _ in range(random.choice((1, 1, 2))):
                recipe = recipe.changed(random)
        candidate = tried(recipe, steps_max, measured)
        if candidate is not None:
            found.append(candidate)
    return found


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


def _slowness(candidate: Candidate) -> float:
    """In shares of what is allowed."""
    return max(candidate.accepting / ACCEPTING_MS_MAX, candidate.matching / MATCHING_MS_MAX)


def _again(candidate: Candidate, steps_max: int) -> Candidate:
    rounds = [tried(candidate.recipe, steps_max, milliseconds) for _ in range(_ROUNDS)]
    known = [one for one in rounds if one is not None]
    accepting = min(one.accepting for one in known)
    matching = min(one.matching for one in known)
    return Candidate(candidate.recipe, candidate.text, candidate.cost, accepting, matching)


def _judged(name: str, candidate: Candidate, value: float, limit: float) -> Measure:
    text = candidate.text
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
