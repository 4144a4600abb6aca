"""Cases: what must hold and what must not, and the search for a publication that fits.

The working part of `covers` and `intersects` (see `rove.lang.algebra` for the idea). A case
has a set of values for each variable and for each computed subject, atoms that must be TRUE
and requirements that must not be. `narrowed` draws conclusions until nothing new follows, and
notices contradictions; `WitnessSearch` tries candidates and halves ranges in between.

Cost: a step, which is a case narrowed or a candidate tried, takes 50 µs for a few parts and grows
with them. The number of steps is limited, and so is what they look at.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, TypeAlias, cast

import msgspec

from rove.lang.bounds import Enclosure, Lines, Ranges, enclose, surely_at_most, surely_less
from rove.lang.limits import INTEGER_MAX, INTEGER_MIN, PROOF_STEPS_MAX, PROOF_WORK_MAX
from rove.lang.normal_form import (
    Conjunction,
    mirrored_comparator,
    negated_comparator,
    settle_nesting,
)
from rove.lang.patterns import StepBudget, StepBudgetSpent
from rove.lang.printer import to_text
from rove.lang.sets import (
    ALL_NUMBERS,
    ALL_STRINGS,
    BOOLEANS,
    EMPTY,
    EVERYTHING,
    LOWEST,
    NUMBERS,
    STRINGS,
    ValueSet,
    after,
    complement,
    example,
    intersection,
    is_empty,
    is_point,
    is_subset,
    spans_of,
)
from rove.lang.tree import (
    Attribute,
    Call,
    Comparator,
    Comparison,
    Literal,
    Me,
    Time,
    ValueNode,
    ValueType,
    type_of,
    walk,
)
from rove.lang.values import OPAQUE, Path, next_number, previous_number

Membership: TypeAlias = tuple[ValueNode, ValueSet]
Requirement: TypeAlias = Comparison | Membership
Sets: TypeAlias = dict[ValueNode, ValueSet]

_VARIABLES: Final = (Attribute, Me, Time)
_ROUNDS_MAX: Final = 3
"""Narrowing passes over the atoms of one case: a chain of two bounds needs two."""
_NARROW: Final = 1e-9
"""Ranges that differ by less, on a logarithmic scale, are not halved any more."""
_ORDERING_WEIGHT: Final = 20
"""What it takes to order two bounds, which is done in fractions."""
_INFINITY: Final = math.inf
_IMPLIED_BY: Final[dict[Comparator, tuple[Comparator, ...]]] = {
    "=": ("=",),
    "!=": ("!=", "<", ">"),
    "<": ("<",),
    "<=": ("<=", "<"),
    ">": (">",),
    ">=": (">=", ">"),
}
"""Not `=` for `<=`: booleans can be equal, but have no order."""


class Witness(msgspec.Struct, frozen=True):
    """A publication, a moment and the subscribers' states that prove an answer."""

    publication: dict[str, object]
    t: float = 0.0
    me: dict[str, object] = {}
    """The state of subscriber "a" and of subscriber "b"; of "a" alone if they are the same."""


class ProofCase(msgspec.Struct, frozen=True):
    """`sets` and `atoms` must hold, `fails` must not be TRUE (FALSE or UNKNOWN will do)."""

    sets: Sets
    atoms: tuple[Comparison, ...] = ()
    fails: tuple[Requirement, ...] = ()

    def with_set(self, subject: ValueNode, allowed: ValueSet) -> ProofCase | None:
        """This case, `subject` further restricted; None if nothing is left of it."""
        left = intersection(self.sets.get(subject, EVERYTHING), allowed)
        return None if left == EMPTY else self._replacing(subject, left)

    def _replacing(self, subject: ValueNode, allowed: ValueSet) -> ProofCase:
        return ProofCase({**self.sets, subject: allowed}, self.atoms, self.fails)

    def with_atom(self, atom: Comparison) -> ProofCase:
        return self if atom in self.atoms else ProofCase(self.sets, (*self.atoms, atom), self.fails)

    def failing(self, requirement: Requirement) -> ProofCase:
        return ProofCase(self.sets, self.atoms, (*self.fails, requirement))

    def within(self, conjunction: Conjunction) -> ProofCase | None:
        """The part of this case that matches `conjunction`."""
        case = self
        for atom in _in_order(conjunction.atoms):
            case = case.with_atom(atom)
        for subject, allowed in conjunction.sets.items():
            restricted = case.with_set(subject, allowed)
            if restricted is None:
                return None
            case = restricted
        return case

    def outside(self, conjunction: Conjunction) -> Iterator[ProofCase]:
        """Parts that together are what does not match `conjunction`.

        None overlaps another, unless one attribute must fit several patterns.
        """
        case: ProofCase | None = self
        for subject, allowed in conjunction.sets.items():
            if case is None:
                return
            if isinstance(subject, _VARIABLES):
                parts = (case.with_set(subject, rest) for rest in complement(allowed))
                yield from (part for part in parts if part is not None)
            else:
                yield case.failing((subject, allowed))
            case = case.with_set(subject, allowed)
        for atom in _in_order(conjunction.atoms):
            if case is not None:
                yield case.failing(atom)
                case = case.with_atom(atom)


@lru_cache(maxsize=256)
def _in_order(atoms: frozenset[Comparison]) -> list[Comparison]:
    """By text, since a set has another order in every process, and answers must not differ."""
    return sorted(atoms, key=to_text)


# -- drawing conclusions ----------------------------------------------------------------


def narrowed(case: ProofCase, work: StepBudget | None = None) -> ProofCase | None:
    """`case` with all that follows from it; None if nothing can fit it.

    TooHard if that takes more than is left of `work`.
    """
    work = work or StepBudget()
    work.spend(_weight(case))
    found = _typed(case)
    if found is None:
        return None
    sets = settle_nesting(found.sets)
    if sets is None or any(is_empty(allowed, work) for allowed in sets.values()):
        return None
    found = _settled_fails(ProofCase(sets, found.atoms, found.fails), work)
    for _ in range(_ROUNDS_MAX):
        if found is None or not (found.atoms or _computed_subjects(found)):
            return found
        before = found.sets
        found = _bounded(found)
        if found is not None and found.sets == before:
            break
    return None if found is None or _contradictory(found, work) else found


def _weight(case: ProofCase) -> int:
    """How many parts are looked at to narrow a case; each takes a microsecond or two."""
    spans = sum(len(allowed.numbers) + len(allowed.strings) for allowed in case.sets.values())
    nodes = sum(1 for node in _computed(case) for _ in walk(node))
    return 1 + len(case.sets) + spans // 8 + 4 * nodes + len(case.atoms) ** 2 // 4


def ranges_of(sets: Sets) -> dict[ValueNode, tuple[float, float]]:
    """The range of every variable that is surely a number."""
    return {
        variable: (allowed.numbers[0][0], previous_number(allowed.numbers[-1][1]))
        for variable, allowed in sets.items()
        if isinstance(variable, _VARIABLES)
        and allowed.numbers
        and not (allowed.strings or allowed.facts)
    }


def _typed(case: ProofCase) -> ProofCase | None:
    """What must hold has a value, so what it is computed from has the right type."""
    found: ProofCase | None = case
    for variable, kind in _types_asked(case):
        found = found.with_set(variable, kind) if found is not None else None
    return found


def _types_asked(case: ProofCase) -> Iterator[tuple[ValueNode, ValueSet]]:
    for subject in _computed_subjects(case):
        yield from _types_inside(subject)
    for atom in case.atoms:
        for side, other in ((atom.left, atom.right), (atom.right, atom.left)):
            if isinstance(side, _VARIABLES):
                yield side, _comparable_with(other, case.sets, atom.comparator)
            else:
                yield from _types_inside(side)


def _comparable_with(other: ValueNode, sets: Sets, comparator: Comparator) -> ValueSet:
    """The values that can be compared with `other`: those of the types that it can have."""
    if not isinstance(other, _VARIABLES):
        return STRINGS if type_of(other) is ValueType.STRING else NUMBERS
    allowed = sets.get(other, EVERYTHING)
    are_booleans = comparator in ("=", "!=") and allowed.facts & BOOLEANS.facts
    return ValueSet(
        ALL_NUMBERS if allowed.numbers else (),
        ALL_STRINGS if allowed.strings else (),
        facts=BOOLEANS.facts if are_booleans else 0,
    )


def _types_inside(node: ValueNode) -> Iterator[tuple[ValueNode, ValueSet]]:
    kind = STRINGS if isinstance(node, Call) and node.name == "lower" else NUMBERS
    return ((part, kind) for part in walk(node) if isinstance(part, _VARIABLES))


def _computed_subjects(case: ProofCase) -> list[ValueNode]:
    return [subject for subject in case.sets if not isinstance(subject, _VARIABLES)]


def _settled_fails(case: ProofCase, work: StepBudget) -> ProofCase | None:
    """Turn what must not be TRUE into what must be FALSE, where it surely has a value."""
    ranges = ranges_of(case.sets)
    found = ProofCase(case.sets, case.atoms)
    for requirement in case.fails:
        if isinstance(requirement, Comparison):
            settled = _failed_atom(found, requirement, ranges)
        else:
            settled = _failed_membership(found, requirement, ranges, work)
        if settled is None:
            return None
        found = settled
    return found


def _failed_atom(case: ProofCase, atom: Comparison, ranges: Ranges) -> ProofCase | None:
    implying = _IMPLIED_BY[atom.comparator]
    if any(Comparison(comparator, atom.left, atom.right) in case.atoms for comparator in implying):
        return None
    if enclose(atom.left, ranges).sure and enclose(atom.right, ranges).sure:
        opposite = negated_comparator(atom.comparator)
        return case.with_atom(Comparison(opposite, atom.left, atom.right))
    return case.failing(atom)


def _failed_membership(
    case: ProofCase, requirement: Membership, ranges: Ranges, work: StepBudget
) -> ProofCase | None:
    subject, allowed = requirement
    present = case.sets.get(subject)
    if present is not None and is_subset(present, allowed, work):
        return None
    if enclose(subject, ranges).sure:
        return case.with_set(subject, ValueSet(complement(allowed)[0].numbers))
    lowered = _lowered(subject, case.sets)
    if lowered is not None:
        kept = (text for text in lowered if text not in allowed)
        return case.with_set(subject, ValueSet(strings=spans_of(kept)))
    return case.failing(requirement)


def _lowered(subject: ValueNode, sets: Sets) -> list[str] | None:
    """What lower(a) can be, if `a` is surely one of a few strings."""
    if not (isinstance(subject, Call) and subject.name == "lower"):
        return None
    inner = sets.get(subject.arguments[0], EVERYTHING)
    if inner.numbers or inner.facts or not all(is_point(*span) for span in inner.strings):
        return None
    return [low.lower() for low, _ in inner.strings if low in inner]


def _bounded(case: ProofCase) -> ProofCase | None:
    """Every range narrowed by every atom; None where an enclosure excludes what must hold."""
    found: ProofCase | None = case
    ranges = ranges_of(case.sets)
    for subject in _computed_subjects(case):
        around = enclose(subject, ranges)
        lowered = _lowered(subject, case.sets)
        if found is None or around.never:
            return None
        if lowered is not None:
            found = found.with_set(subject, ValueSet(strings=spans_of(lowered)))
        elif found.sets[subject].numbers:
            span = (around.low, next_number(around.high))
            found = found.with_set(subject, ValueSet((span,)))
    for atom in case.atoms:
        if found is None:
            return None
        found = _bounded_by(found, atom)
    return found


def _bounded_by(case: ProofCase, atom: Comparison) -> ProofCase | None:
    if atom.comparator == "=" and {type(atom.left), type(atom.right)} <= {Attribute, Me}:
        equal = case.with_set(atom.left, case.sets.get(atom.right, EVERYTHING))
        return equal and equal.with_set(atom.right, equal.sets[atom.left])
    ranges = ranges_of(case.sets)
    left, right = enclose(atom.left, ranges), enclose(atom.right, ranges)
    if left.never or right.never:
        return None
    if _are_numbers(atom, ranges) and not _possible(atom.comparator, left, right):
        return None
    found: ProofCase | None = case
    if atom.left in ranges and _is_numeric(atom.right, ranges):
        found = case.with_set(atom.left, _side(atom.comparator, right))
    if found is not None and atom.right in ranges and _is_numeric(atom.left, ranges):
        found = found.with_set(atom.right, _side(mirrored_comparator(atom.comparator), left))
    return found


def _is_numeric(node: ValueNode, ranges: Ranges) -> bool:
    """True if `node` is a number wherever it has a value."""
    return node in ranges or type_of(node) is ValueType.NUMBER


def _are_numbers(atom: Comparison, ranges: Ranges) -> bool:
    return _is_numeric(atom.left, ranges) and _is_numeric(atom.right, ranges)


def _possible(comparator: str, left: Enclosure, right: Enclosure) -> bool:
    match comparator:
        case "<":
            return left.low < right.high
        case "<=":
            return left.low <= right.high
        case ">":
            return left.high > right.low
        case ">=":
            return left.high >= right.low
        case "=":
            return left.low <= right.high and right.low <= left.high
        case _:
            return not (left.low == left.high == right.low == right.high)


def _side(comparator: str, other: Enclosure) -> ValueSet:
    """The numbers x for which `x comparator other` is possible."""
    low: float | int = LOWEST
    high: float | int = _INFINITY
    if comparator in (">=", "="):
        low = other.low
    if comparator == ">":
        low = next_number(other.low)
    if comparator in ("<=", "="):
        high = next_number(other.high)
    if comparator == "<":
        high = other.high
    return ValueSet(((low, high),)) if low < high else EMPTY


def _contradictory(case: ProofCase, work: StepBudget) -> bool:
    """True if a lower bound of some value lies above an upper bound of it, or `a < a` is asked."""
    ranges = ranges_of(case.sets)
    lines: Lines = {}
    lowers = [atom for atom in case.atoms if atom.comparator in (">", ">=", "=")]
    uppers = [atom for atom in case.atoms if atom.comparator in ("<", "<=", "=")]
    for lower in lowers:
        for upper in uppers:
            if lower is upper or lower.left != upper.left:
                continue
            work.spend(_ORDERING_WEIGHT)
            strict = lower.comparator == ">" or upper.comparator == "<"
            if surely_less(upper.right, lower.right, ranges, lines) or (
                strict and surely_at_most(upper.right, lower.right, ranges, lines)
            ):
                return True
    if any(_is_reversed(atom, ranges, lines, work) for atom in case.atoms):
        return True
    different = {(a.left, a.right) for a in case.atoms if a.comparator == "!="}
    return any(
        (atom.left, atom.right) in different
        if atom.comparator == "="
        else atom.left == atom.right and atom.comparator in ("!=", "<", ">")
        for atom in case.atoms
    )


def _is_reversed(atom: Comparison, ranges: Ranges, lines: Lines, work: StepBudget) -> bool:
    """True if the sides of an atom are surely ordered the other way round, as in x + 1 < x."""
    left = {part for part in walk(atom.left) if isinstance(part, _VARIABLES)}
    if left.isdisjoint(walk(atom.right)):
        return False  # then the enclosures have told
    work.spend(_ORDERING_WEIGHT)
    if atom.comparator in ("<", "<=", "=") and surely_less(atom.right, atom.left, ranges, lines):
        return True
    return atom.comparator in (">", ">=", "=") and surely_less(atom.left, atom.right, ranges, lines)


# -- searching --------------------------------------------------------------------------


class Undecided(Exception):
    """Why no answer was found."""


class WitnessSearch:
    """Looks for a witness that `accepts` approves of, within a number of steps.

    A step may be large; so what all of them look at is limited too. `weight` is what it takes to
    ask `accepts`.
    """

    def __init__(
        self, accepts: Callable[[Witness], bool], steps: int = PROOF_STEPS_MAX, weight: int = 1
    ) -> None:
        self.accepts = accepts
        self.steps_left = steps
        self.work = StepBudget(PROOF_WORK_MAX)
        self._weight = weight

    def step(self) -> None:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise Undecided("too many cases")
        if self.work.is_spent:
            raise Undecided(f"more than {PROOF_WORK_MAX:,} parts to look at")

    def look_at(self, parts: int) -> None:
        """Count parts that another function examines for this search."""
        try:
            self.work.spend(parts)
        except StepBudgetSpent:
            self.step()

    def narrowed(self, case: ProofCase) -> ProofCase | None:
        """What `narrowed` says, as one step."""
        self.step()
        return self._narrowed(case)

    def _narrowed(self, case: ProofCase) -> ProofCase | None:
        try:
            return narrowed(case, self.work)
        except StepBudgetSpent:
            self.step()  # which says why
            return case

    def find(self, cases: Iterable[ProofCase]) -> Witness | None:
        """A witness for one of `cases`; None if surely none has any; else raises Undecided."""
        waiting = deque(cases)
        first_round = len(waiting)
        undecided = False
        while waiting:
            case = self.narrowed(waiting.popleft())
            first_round -= 1
            if case is None:
                continue
            witness = self._tried(case, thoroughly=first_round >= 0)
            if witness is not None:
                return witness
            halves = _halves(case)
            undecided = undecided or not halves
            waiting.extend(halves)
        if undecided:
            raise Undecided("no value is certain in the smallest ranges looked at")
        return None

    def _tried(self, case: ProofCase, *, thoroughly: bool) -> Witness | None:
        if not _is_computed(case):
            return self._checked(case, _simplest)
        choices = _CHOICES if thoroughly else _CHOICES[:2]
        for choose_time in choices if Time() in _involved(case) else choices[:1]:
            for choose in choices:
                witness = self._checked(self._at_time(case, choose_time), choose)
                if witness is not None:
                    return witness
        return None

    def _checked(self, case: ProofCase | None, choose: Choice) -> Witness | None:
        """The candidate that `choose` makes of `case`, if it is one in truth."""
        self.step()
        try:
            self.work.spend(self._weight)
            witness = self._candidate(case, choose) if case is not None else None
        except (LookupError, StepBudgetSpent):
            return None
        return witness if witness is not None and self.accepts(witness) else None

    def _at_time(self, case: ProofCase, choose: Choice) -> ProofCase | None:
        t = Time()
        if t not in case.sets:
            return case
        return self._narrowed(_fixed(case, t, choose(case.sets[t], [], self.work)))

    def _candidate(self, case: ProofCase, choose: Choice) -> Witness | None:
        """One value for each variable, those that are computed with first; None on the way out."""
        hints = _hints(case, self.work)
        values: dict[ValueNode, object] = {}
        involved = _involved(case)
        for variable in sorted(_variables(case), key=lambda v: v not in involved):
            allowed = case.sets.get(variable, EVERYTHING)
            value = choose(allowed, hints.get(variable, []), self.work)
            values[variable] = value
            if variable in involved:
                following = self._narrowed(_fixed(case, variable, value))
                if following is None:
                    return None
                case = following
        return _witness(values)


Hints: TypeAlias = list[object]
Choice: TypeAlias = Callable[[ValueSet, Hints, StepBudget], object]


def _simplest(allowed: ValueSet, hints: Hints, work: StepBudget) -> object:
    return next((hint for hint in hints if hint in allowed), None) or example(allowed, work)


def _lowest(allowed: ValueSet, _: Hints, work: StepBudget) -> object:
    return allowed.numbers[0][0] if allowed.numbers else example(allowed, work)


def _highest(allowed: ValueSet, _: Hints, work: StepBudget) -> object:
    return previous_number(allowed.numbers[-1][1]) if allowed.numbers else example(allowed, work)


def _middle(allowed: ValueSet, _: Hints, work: StepBudget) -> object:
    if not allowed.numbers:
        return example(allowed, work)
    middle = _between(allowed.numbers[0][0], previous_number(allowed.numbers[-1][1]))
    return middle if middle in allowed else example(allowed, work)


def _overflowing(allowed: ValueSet, _: Hints, work: StepBudget) -> object:
    """An end of the integers, where x + 1 or -x has no value."""
    ends = (INTEGER_MAX, INTEGER_MIN)
    return next((end for end in ends if end in allowed), None) or example(allowed, work)


_CHOICES: Final[tuple[Choice, ...]] = (_simplest, _middle, _lowest, _highest, _overflowing)


def _fixed(case: ProofCase, variable: ValueNode, value: object) -> ProofCase:
    """`case` with `variable` at one value."""
    if isinstance(value, bool) or value is None or value is OPAQUE:
        return ProofCase({**case.sets, variable: _fact(value)}, case.atoms, case.fails)
    spans = spans_of([value])
    point = ValueSet(strings=spans) if isinstance(value, str) else ValueSet(spans)
    return ProofCase({**case.sets, variable: point}, case.atoms, case.fails)


def _fact(value: object) -> ValueSet:
    return next(ValueSet(facts=fact) for fact in (1, 2, 4, 8) if value in ValueSet(facts=fact))


def _witness(values: dict[ValueNode, object]) -> Witness:
    publication: dict[str, object] = {}
    me: dict[str, object] = {}
    t = 0.0
    deepest_first = sorted(values.items(), key=lambda item: -len(getattr(item[0], "path", ())))
    for variable, value in deepest_first:
        if isinstance(variable, Attribute):
            _place(publication, variable.path, value)
        elif isinstance(variable, Me):
            _place(me, variable.path, value)
        else:
            t = float(cast(float, value))
    return Witness(publication, t, me)


def _place(values: dict[str, object], path: Path, value: object) -> None:
    """Put `value` where `path` leads, making objects on the way; None is left out."""
    if value is None:
        return
    inner = values
    for name in path[:-1]:
        found = inner.setdefault(name, {})
        if not isinstance(found, dict):
            return
        inner = found
    inner.setdefault(path[-1], {} if value is OPAQUE else value)


def _is_computed(case: ProofCase) -> bool:
    return bool(case.atoms or case.fails or _computed_subjects(case))


def _computed(case: ProofCase) -> Iterator[ValueNode]:
    """Every value that is computed with in this case."""
    yield from _computed_subjects(case)
    for atom in case.atoms:
        yield from (atom.left, atom.right)
    for requirement in case.fails:
        if isinstance(requirement, Comparison):
            yield from (requirement.left, requirement.right)
        else:
            yield requirement[0]


def _involved(case: ProofCase) -> dict[ValueNode, None]:
    """The variables that are computed with, `t` first."""
    found = [v for node in _computed(case) for v in walk(node) if isinstance(v, _VARIABLES)]
    return dict.fromkeys(sorted(found, key=lambda v: not isinstance(v, Time)))


def _variables(case: ProofCase) -> dict[ValueNode, None]:
    known = [subject for subject in case.sets if isinstance(subject, _VARIABLES)]
    return dict.fromkeys([*_involved(case), *known])


def _hints(case: ProofCase, work: StepBudget) -> dict[ValueNode, Hints]:
    """Values worth trying for a variable: the place a distance is taken from, a lower case."""
    found: dict[ValueNode, Hints] = {}
    for part in (part for node in _computed(case) for part in walk(node)):
        if isinstance(part, Call) and part.name == "distance":
            for one, other in ((0, 2), (1, 3), (2, 0), (3, 1)):
                constant = part.arguments[other]
                if isinstance(constant, Literal):
                    found.setdefault(part.arguments[one], []).append(constant.value)
        elif isinstance(part, Call) and part.name == "lower":
            found.setdefault(part.arguments[0], []).extend(_examples(case, part, work))
    return found


def _examples(case: ProofCase, subject: ValueNode, work: StepBudget) -> Hints:
    """A value that lower(…) must or may have, as far as sets tell, in lower and upper case."""
    wanted = [case.sets.get(subject, STRINGS)]
    for requirement in case.fails:
        if isinstance(requirement, tuple) and requirement[0] == subject:
            wanted = [intersection(w, r) for w in wanted for r in complement(requirement[1])]
    found = [example(one, work) for one in wanted if not is_empty(one, work)]
    return [*found, *(text.upper() for text in found if isinstance(text, str))]


def _halves(case: ProofCase) -> list[ProofCase]:
    """Cases that together are `case`, one for each type or half; none if that would not help."""
    involved = _involved(case)
    for variable in involved:
        allowed = case.sets.get(variable, EVERYTHING)
        texts = ValueSet((), allowed.strings, allowed.fitting, allowed.missing)
        kinds = [ValueSet(allowed.numbers), texts, ValueSet(facts=allowed.facts)]
        kinds = [kind for kind in kinds if kind.numbers or kind.strings or kind.facts]
        if len(kinds) > 1:
            return [ProofCase({**case.sets, variable: k}, case.atoms, case.fails) for k in kinds]
    ranges = ranges_of(case.sets)
    widths = {v: _scale(ranges[v][1]) - _scale(ranges[v][0]) for v in involved if v in ranges}
    widest = max(widths, key=lambda v: widths[v], default=None)
    if widest is None or widths[widest] < _NARROW:
        return []
    cut = _between(*ranges[widest])
    sides = (ValueSet(((LOWEST, after(cut)),)), ValueSet(((after(cut), _INFINITY),)))
    halves = [case.with_set(widest, side) for side in sides]
    return [half for half in halves if half is not None] if None not in halves else []


def _scale(value: float) -> float:
    """A logarithmic scale through zero, so that ranges without end are halved sensibly."""
    return math.copysign(math.log2(1 + abs(value)), value)


def _between(low: float, high: float) -> float:
    """The middle of a range on that scale."""
    middle = (_scale(low) + _scale(high)) / 2
    value = math.copysign(2.0 ** min(abs(middle), 1023.0) - 1, middle)
    return min(max(value, low), previous_number(high)) if low < high else low
