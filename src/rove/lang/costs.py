"""What a text costs a broker, known before it is accepted.

The unit is a *step*, about a nanosecond on a machine of today. `matching_steps` is what one
publication of 1 KB can make a text cost at most: every row is found, every computed condition is
evaluated, and all characters are in the one string that most patterns are tried on. Computed
conditions are compiled little by little: until then their trees are walked, at `first_steps` for
each of the first publications. `moving_steps`
is what a change of the subscriber's `me.` variables costs. A window's memory is the span or the
number of publications that it asks for; how many fall into a span only the stream decides.

The figures were calibrated with `rove bench texts --part slowest`, which searches for texts that
take longer than they say. They err on the safe side: most publications cost a text nothing,
because the index does not find it.

Cost: one walk over the normal form, 5 to 200 µs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from rove.lang.limits import COMPILED_NODES_MAX
from rove.lang.normal_form import Conjunction, accepted_form, parts_of
from rove.lang.patterns import Pattern, steps_per_character
from rove.lang.sets import ValueSet
from rove.lang.tree import (
    Arithmetic,
    Attribute,
    Call,
    Comparison,
    Literal,
    Me,
    Negation,
    Node,
    Rank,
    Subscription,
    Time,
    ValueNode,
    walk,
)

PUBLICATION_CHARACTERS: Final = 1024
"""The length of the publication that costs are stated for."""

ROW_STEPS: Final = 300
"""To find one conjunction in an index."""
SEVERAL_STEPS: Final = 3_000
"""To find one of several conjunctions, which may be found together and is to count once."""
PART_STEPS: Final = 40
"""To compare one span, fact or line in time there."""
COMPUTED_STEPS: Final = 1_500
"""To begin computing a conjunction that an index cannot decide."""
WALK_STEPS: Final = 2_000
"""To begin walking a conjunction that is not compiled yet."""
WALKED_NODE_STEPS: Final = 1_000
"""For each node of its values."""
SET_STEPS: Final = 200
"""To look a computed value up in a set, or to compare two."""
PATTERN_STEPS: Final = 500
"""To try one pattern, beside the characters."""
STRING_STEPS: Final = 5_000
"""To begin trying patterns on one attribute."""
OPERATION_STEPS: Final[dict[type[Node], int]] = {
    Attribute: 150,
    Me: 150,
    Time: 20,
    Literal: 20,
    Negation: 150,
    Arithmetic: 200,
}
CALL_STEPS: Final = {"pow": 600, "distance": 1_500, "lower": 300 + PUBLICATION_CHARACTERS}
OTHER_CALL_STEPS: Final = 300
SCORE_STEPS: Final = 5_000
"""To find a publication's place in a window."""
VERSION_STEPS: Final = 20_000
"""To make another version of one conjunction, for designs that keep versions."""
MOVING_STEPS: Final = 10_000
"""To put one part of a subscription in another place, and as much again for each conjunction."""


class Cost(msgspec.Struct, frozen=True):
    """What a subscription costs at most."""

    matching_steps: int
    """For each publication of 1 KB."""
    moving_steps: int = 0
    """For each change of `me.`; 0 if no `me.` occurs."""
    window_s: float | None = None
    window_publications: int | None = None
    """What a window holds: all of a span of time, or so many."""
    first_steps: int = 0
    """For each of the first publications; 0 if nothing is computed."""

    @property
    def has_window(self) -> bool:
        return self.window_s is not None or self.window_publications is not None

    @property
    def peak_steps(self) -> int:
        """For the publication that costs most."""
        return max(self.matching_steps, self.first_steps)


NO_COST: Final = Cost(0)


def cost_of(subscription: Subscription, *, versions: bool = False) -> Cost:
    """The cost of a subscription; with `versions`, of one whose design keeps versions of it.

    LimitError if its normal form is too large.
    """
    conjunctions = accepted_form(subscription).conjunctions
    computing = _Computing()
    matching = _patterns_cost(conjunctions) + sum(
        _row_cost(one, computing, versions=versions) for one in conjunctions
    )
    if len(conjunctions) > 1:
        matching += SEVERAL_STEPS * len(conjunctions)
    first = matching + computing.walking - computing.computing if computing.walking else 0
    rank = subscription.rank
    if rank is not None:
        matching += SCORE_STEPS + computing.steps(rank.score)
    nodes = (node for one in conjunctions for node in (*one.sets, *one.atoms))
    moving = 0
    if any(type(part) is Me for node in _distinct(nodes) for part in walk(node)):
        moving = MOVING_STEPS * sum(1 + parts_of(one) for one in conjunctions)
    return Cost(matching, moving, *_window(rank), first)


def _window(rank: Rank | None) -> tuple[float | None, int | None]:
    if rank is None:
        return None, None
    if rank.window.publications is not None:
        return None, rank.window.publications
    return rank.window.seconds, None


def _row_cost(conjunction: Conjunction, computing: _Computing, *, versions: bool) -> int:
    cost = ROW_STEPS + PART_STEPS * parts_of(conjunction)
    computed = [subject for subject in conjunction.sets if not _is_indexed_value(subject)]
    atoms = [atom for atom in conjunction.atoms if not _is_line(atom)]
    if versions:
        computed, atoms = list(conjunction.sets), list(conjunction.atoms)
        cost += VERSION_STEPS
    if not (computed or atoms):
        return cost
    sides = (side for atom in conjunction.atoms for side in (atom.left, atom.right))
    cost += COMPUTED_STEPS + SET_STEPS * (len(conjunction.sets) + len(conjunction.atoms))
    return cost + computing.conjunction((*conjunction.sets, *sides))


class _Computing:
    """What it takes to compute values. Conjunctions of one product share them, so each is looked
    at once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}
        self.computing = self.walking = 0
        """Of all conjunctions so far: by their programs, and by walking their trees."""

    def conjunction(self, nodes: Iterable[ValueNode]) -> int:
        """To compute the values of one more conjunction."""
        found = [self._steps(node) for node in nodes]
        steps = sum(steps for steps, _ in found)
        self.computing += steps
        self.walking += WALK_STEPS + WALKED_NODE_STEPS * sum(count for _, count in found)
        return steps

    def steps(self, node: ValueNode) -> int:
        return self._steps(node)[0]

    def _steps(self, node: ValueNode) -> tuple[int, int]:
        found = self._known.get(id(node))
        if found is None:
            steps = [
                CALL_STEPS.get(part.name, OTHER_CALL_STEPS)
                if type(part) is Call
                else OPERATION_STEPS.get(type(part), 0)
                for part in walk(node)
            ]
            count = len(steps)
            is_compiled = count <= COMPILED_NODES_MAX
            cost = sum(steps) if is_compiled else WALKED_NODE_STEPS * count
            found = self._known[id(node)] = cost, count
        return found


def _patterns_cost(conjunctions: Iterable[Conjunction]) -> int:
    """Each pattern once, wherever it occurs; characters where most patterns are tried on them."""
    by_source: dict[object, set[tuple[ValueNode, Pattern]]] = {}
    for subject, allowed in _patterned(conjunctions):
        found = by_source.setdefault(_source(subject), set())
        found.update((subject, pattern) for pattern in (*allowed.fitting, *allowed.missing))
    if not by_source:
        return 0
    slowest = max(
        sum(map(_character_steps, {pattern for _, pattern in found}))
        for found in by_source.values()
    )
    count = sum(map(len, by_source.values()))
    fixed = PATTERN_STEPS * count + STRING_STEPS * len(by_source)
    return fixed + PUBLICATION_CHARACTERS * slowest


def _character_steps(pattern: Pattern) -> int:
    """Plain tests are looked for together, in one pass over the string."""
    return 0 if pattern.name is not None else steps_per_character(pattern)


def _patterned(conjunctions: Iterable[Conjunction]) -> Iterator[tuple[ValueNode, ValueSet]]:
    seen: set[int] = set()
    for conjunction in conjunctions:
        for subject, allowed in conjunction.sets.items():
            if allowed.patterned and id(allowed) not in seen:
                seen.add(id(allowed))
                yield subject, allowed


def _source(subject: ValueNode) -> object:
    """The attribute that a tested string comes from, with or without `lower`."""
    while type(subject) is Call:
        subject = subject.arguments[0]
    return subject


def _is_indexed_value(subject: ValueNode) -> bool:
    """Attributes, `lower` of them, and what is known for as long as the state is."""
    return type(subject) in (Attribute, Me) or (
        type(subject) is Call
        and subject.name == "lower"
        and type(subject.arguments[0]) in (Attribute, Me)
    )


def _is_line(atom: Comparison) -> bool:
    """Whether an index can decide a comparison: an attribute with a line in time."""
    if type(atom.left) is not Attribute or atom.comparator == "!=":
        return False
    return all(
        type(part) in (Literal, Time, Me, Negation)
        or (type(part) is Call and part.name in ("least", "greatest"))
        or (type(part) is Arithmetic and _is_linear(part))
        for part in walk(atom.right)
    )


def _is_linear(part: Arithmetic) -> bool:
    if part.operator in "+-":
        return True
    return part.operator == "*" and Literal in (type(part.left), type(part.right))


def _distinct(nodes: Iterable[Node]) -> Iterable[Node]:
    """Each object once: conjunctions of one product share most of theirs."""
    return {id(node): node for node in nodes}.values()
