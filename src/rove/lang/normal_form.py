"""The normal form: a disjunction of conjunctions, each attribute's predicates merged.

Only TRUE matches, so the normal form keeps no UNKNOWN: NOT is pushed down to the predicates
(where three-valued logic allows it: NOT a < 3 is a >= 3, both UNKNOWN for a string), and from
there on a predicate is simply the set of values for which it is TRUE. A conjunction holds

- `sets`: for each subject, the values it may have. A subject is nearly always an attribute;
  it may be any value that is compared with constants, such as `lower(a)` or `distance(…)`;
- `atoms`: comparisons in which both sides vary, such as `x >= t - 3` or `a < b`.

Indexes, `covers`, `intersects` and the canonical text are all built on this.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import TypeAlias

import msgspec

from rove.lang.constant_folding import Unknown, folded
from rove.lang.errors import LimitError
from rove.lang.limits import (
    CONJUNCTIONS_MAX,
    CONJUNCTIONS_WHILE_NORMALISING_MAX,
    NORMALISING_STEPS_MAX,
    PARTS_MAX,
)
from rove.lang.oracle import NO_STATE, Publication, State, compare, value_of
from rove.lang.patterns import TEXT_TESTS, Pattern, StepBudget, like_pattern
from rove.lang.printer import to_text
from rove.lang.sets import (
    ALL_STRINGS,
    EMPTY,
    EVERYTHING,
    IS_FALSE,
    IS_NULL,
    IS_OPAQUE,
    IS_TRUE,
    LOWEST,
    NULL,
    OBJECT,
    PRESENT,
    TOP,
    Bound,
    Spans,
    ValueSet,
    after,
    complement,
    intersection,
    is_empty,
    is_subset,
    prefix_span,
    spans_of,
    union,
)
from rove.lang.tree import (
    And,
    Attribute,
    Between,
    Comparator,
    Comparison,
    Condition,
    In,
    IsNull,
    Like,
    Literal,
    Me,
    Not,
    Or,
    Subscription,
    TextTest,
    ValueNode,
    walk,
)
from rove.lang.values import look_up

_INFINITY = float("inf")
_NEGATED: dict[Comparator, Comparator] = {
    "=": "!=",
    "!=": "=",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
}
_MIRRORED: dict[Comparator, Comparator] = {
    "=": "=",
    "!=": "!=",
    "<": ">",
    ">": "<",
    "<=": ">=",
    ">=": "<=",
}


class Conjunction(msgspec.Struct, frozen=True):
    """All of `sets` and all of `atoms` hold; with neither, everything matches."""

    sets: Mapping[ValueNode, ValueSet] = {}
    atoms: frozenset[Comparison] = frozenset()


class NormalForm(msgspec.Struct, frozen=True):
    """One of `conjunctions` holds; without any, nothing matches."""

    conjunctions: tuple[Conjunction, ...]


_ALWAYS = Conjunction()
_NAMES = (Attribute, Me)


_recent: deque[tuple[Subscription, NormalForm]] = deque(maxlen=4)
"""The latest forms. A text is priced, then compiled, and pairs are compared both ways round. By
identity: subscriptions that are equal may still differ, as 1 and 1.0 do in arithmetic."""


def normalise(subscription: Subscription) -> NormalForm:
    """The normal form of the condition; LimitError if it has too many conjunctions."""
    for known, form in tuple(_recent):
        if known is subscription:
            return form
    form = _normalised(subscription.condition)
    _recent.append((subscription, form))
    return form


def accepted_form(subscription: Subscription) -> NormalForm:
    """The normal form of what is to be accepted; LimitError if it is too large.

    What was accepted before stays accepted: it may have more parts than may be accepted now.
    """
    form = normalise(subscription)
    parts = sum(map(parts_of, form.conjunctions))
    if parts > PARTS_MAX:
        _refuse_parts(subscription.condition, len(form.conjunctions), parts)
    return form


def _normalised(condition: Condition) -> NormalForm:
    try:
        found = _disjunction(condition, False)
    except _TooMany:
        _refuse(condition, CONJUNCTIONS_WHILE_NORMALISING_MAX)
    found = _simplified(found)
    if len(found) > CONJUNCTIONS_MAX:
        _refuse(condition, len(found))
    return NormalForm(tuple(found))


def parts_of(conjunction: Conjunction) -> int:
    """How many spans, facts, patterns and comparisons a matcher stores for a conjunction."""
    return len(conjunction.atoms) + sum(
        len(allowed.numbers)
        + len(allowed.strings)
        + len(allowed.fitting)
        + len(allowed.missing)
        + (allowed.facts != 0)
        for allowed in conjunction.sets.values()
    )


def holds(form: NormalForm, publication: Publication, t: float = 0.0, me: State = NO_STATE) -> bool:
    """True if `form` matches: the normal form's own meaning, to be tested against the oracle."""

    def value(node: ValueNode) -> object:
        if isinstance(node, Attribute):
            return look_up(publication, node.path)
        if isinstance(node, Me):
            return look_up(me, node.path)
        return value_of(node, publication, t, me)

    return any(
        all(value(subject) in allowed for subject, allowed in conjunction.sets.items())
        and all(
            compare(
                atom.comparator,
                value_of(atom.left, publication, t, me),
                value_of(atom.right, publication, t, me),
            )
            for atom in conjunction.atoms
        )
        for conjunction in form.conjunctions
    )


def restricted_conjunction(subject: ValueNode, allowed: ValueSet) -> Conjunction | None:
    """`subject` has one of the allowed values; None if it never has."""
    found = _on(subject, allowed)
    return found[0] if found else None


def compared_conjunction(comparison: Comparison) -> Conjunction | None:
    """One comparison as a conjunction; None if it never holds."""
    found = _comparison(comparison, False)
    return found[0] if found else None


def negated_comparator(comparator: Comparator) -> Comparator:
    """What holds where `comparator` does not, if both sides have a value."""
    return _NEGATED[comparator]


def mirrored_comparator(comparator: Comparator) -> Comparator:
    """The same comparison with its sides exchanged."""
    return _MIRRORED[comparator]


# -- from the tree ----------------------------------------------------------------------


class _TooMany(Exception):
    """The product of two disjunctions outgrew what may be held while normalising."""


def _refuse(condition: Condition, count: int) -> None:
    text = to_text(condition)
    raise LimitError(
        f"the normal form has {count} conjunctions or more; {CONJUNCTIONS_MAX} are kept",
        text,
        0,
        len(text),
        "split it into several subscriptions, or write ORs of one attribute as IN",
    )


def _refuse_parts(condition: Condition, conjunctions: int, parts: int) -> None:
    text = to_text(condition)
    raise LimitError(
        f"the normal form has {parts:,} parts in {conjunctions} conjunctions;"
        f" {PARTS_MAX:,} are kept",
        text,
        0,
        len(text),
        "write fewer values in IN, or fewer ORs beside them",
    )


def _disjunction(node: Condition, negated: bool) -> list[Conjunction]:
    """The conjunctions of `node`, or of NOT `node`."""
    kind = type(node)
    if kind is Comparison:
        return _comparison(node, negated)  # type: ignore[arg-type]
    if kind is Between:
        return _between(node, negated)  # type: ignore[arg-type]
    match node:
        case Not(operand=operand):
            return _disjunction(operand, not negated)
        case And(operands=operands):
            return _any_of(operands, True) if negated else _all_of(operands, False)
        case Or(operands=operands):
            return _all_of(operands, True) if negated else _any_of(operands, False)
        case In(value=value, items=items, negated=inner):
            return _on(value, _in_set(items, negated is not inner))
        case Like(value=value, pattern=written, escape=escape, negated=inner):
            return _on(value, _pattern_set(like_pattern(written, escape), negated is not inner))
        case TextTest(name=name, value=value, text=text):
            return _on(value, _pattern_set(TEXT_TESTS[name](text), negated))
        case IsNull(value=value, negated=inner):
            return _on(value, PRESENT if negated is not inner else NULL)
        case Literal(value=value):
            return [_ALWAYS] if value is not negated else []
        case Attribute() | Me():
            return _on(node, ValueSet(facts=IS_FALSE if negated else IS_TRUE))
        case _:
            raise TypeError(f"{node!r} is no condition")


def _all_of(operands: Iterable[Condition], negated: bool) -> list[Conjunction]:
    """The product of the disjunctions, and of it with what all other operands say together.

    In this order, since merging is cheaper while the conjunctions are short.
    """
    sets: dict[ValueNode, ValueSet] = {}
    atoms: set[Comparison] = set()
    products: list[list[Conjunction]] = []
    for operand in operands:
        found = _disjunction(operand, negated)
        if not found:
            return []
        if len(found) > 1:
            products.append(found)
            continue
        atoms |= found[0].atoms
        if not restrict(sets, found[0]):
            return []
    simple = Conjunction(sets, frozenset(atoms))
    if not products:
        return [simple]
    pairs = [meet(simple, conjunction) for conjunction in reduce(_product, products)]
    found = [both for both in pairs if both is not None]
    varying = {subject for product in products for c in product for subject in c.sets}
    return found if varying.isdisjoint(sets) else _merged(found)


def _any_of(operands: Iterable[Condition], negated: bool) -> list[Conjunction]:
    found: list[Conjunction] = []
    for operand in operands:
        found += _disjunction(operand, negated)
    return _merged(found)


def _product(left: list[Conjunction], right: list[Conjunction]) -> list[Conjunction]:
    if len(left) * len(right) > CONJUNCTIONS_WHILE_NORMALISING_MAX:
        raise _TooMany
    pairs = (meet(a, b) for a in left for b in right)
    return _merged([both for both in pairs if both is not None])


def meet(a: Conjunction, b: Conjunction) -> Conjunction | None:
    """Both conjunctions at once; None where some subject is left without a value."""
    sets = dict(a.sets)
    return Conjunction(sets, a.atoms | b.atoms) if restrict(sets, b) else None


def restrict(sets: dict[ValueNode, ValueSet], by: Conjunction) -> bool:
    """Restrict `sets` in place by those of a conjunction; False if one becomes empty."""
    for subject, allowed in by.sets.items():
        before = sets.get(subject)
        both = allowed if before is None else intersection(before, allowed)
        if both == EMPTY:
            return False
        sets[subject] = both
    return True


# -- predicates -------------------------------------------------------------------------


def _on(subject: ValueNode, allowed: ValueSet) -> list[Conjunction]:
    """`subject` has one of the allowed values."""
    if allowed == EMPTY:
        return []
    try:
        subject = folded(subject)
    except Unknown:
        return []
    if type(subject) is Literal:
        return [_ALWAYS] if subject.value in allowed else []
    return [Conjunction({subject: allowed})]


def _comparison(node: Comparison, negated: bool) -> list[Conjunction]:
    comparator = _NEGATED[node.comparator] if negated else node.comparator
    try:
        left, right = folded(node.left), folded(node.right)
    except Unknown:
        return []
    if type(left) is Literal:
        left, right, comparator = right, left, _MIRRORED[comparator]
    if type(left) is Literal:
        return [_ALWAYS] if compare(comparator, left.value, right.value) else []  # type: ignore[union-attr]
    if type(right) is Literal:
        allowed = comparison_set(comparator, right.value)
        return [Conjunction({left: allowed})] if allowed != EMPTY else []
    return [Conjunction({}, frozenset([_oriented(comparator, left, right)]))]


def _oriented(comparator: Comparator, left: ValueNode, right: ValueNode) -> Comparison:
    """Publication to the left, `t` and `me.` to the right; otherwise by text."""
    if _order(right) < _order(left):
        return Comparison(_MIRRORED[comparator], right, left)
    return Comparison(comparator, left, right)


def _order(node: ValueNode) -> tuple[bool, bool, str]:
    has_attribute = any(type(part) is Attribute for part in walk(node))
    return not has_attribute, type(node) is not Attribute, to_text(node)


def _between(node: Between, negated: bool) -> list[Conjunction]:
    value, low, high = node.value, node.low, node.high
    negated = negated is not node.negated
    if type(value) is Attribute and type(low) is type(high) is Literal and not negated:
        allowed = _span_set(low.value, high.value)
        return [Conjunction({value: allowed})] if allowed is not EMPTY else []
    ends = (Comparison(">=", value, low), Comparison("<=", value, high))
    return _any_of(ends, True) if negated else _all_of(ends, False)


def _span_set(low: Bound, high: Bound) -> ValueSet:
    if high < low:
        return EMPTY
    if type(low) is str:
        return ValueSet(strings=((low, after(high)),))
    return ValueSet(((low, after(high)),))


def comparison_set(comparator: Comparator, value: Bound) -> ValueSet:
    """The values for which `_ comparator value` is TRUE."""
    if type(value) is bool:
        if comparator not in ("=", "!="):
            return EMPTY  # booleans have no order
        return ValueSet(facts=IS_TRUE if value is (comparator == "=") else IS_FALSE)
    is_string = type(value) is str
    lowest: Bound = "" if is_string else LOWEST
    highest: Bound = TOP if is_string else _INFINITY
    spans: Spans
    if comparator == ">":
        spans = ((after(value), highest),)
    elif comparator == ">=":
        spans = ((value, highest),)
    elif comparator == "<":
        spans = ((lowest, value),)
    elif comparator == "<=":
        spans = ((lowest, after(value)),)
    elif comparator == "=":
        spans = ((value, after(value)),)
    else:
        spans = ((lowest, value), (after(value), highest))
    if not all(low < high for low, high in spans):
        spans = tuple((low, high) for low, high in spans if low < high)
    return ValueSet(strings=spans) if is_string else ValueSet(spans)


def _in_set(items: tuple[Literal, ...], negated: bool) -> ValueSet:
    values: list[Bound] = [item.value for item in items]
    if type(values[0]) is bool:
        facts = (IS_TRUE if True in values else 0) | (IS_FALSE if False in values else 0)
        return ValueSet(facts=facts ^ (IS_TRUE | IS_FALSE) if negated else facts)
    if type(values[0]) is str:
        return _strings(ValueSet(strings=spans_of(values)), negated)
    allowed = ValueSet(spans_of(values))
    return ValueSet(complement(allowed)[0].numbers) if negated else allowed


def _pattern_set(pattern: Pattern, negated: bool) -> ValueSet:
    if pattern.name == "equals":
        return _strings(ValueSet(strings=spans_of([pattern.text])), negated)
    if pattern.name == "startswith":
        return _strings(ValueSet(strings=(prefix_span(pattern.text),)), negated)
    patterns = frozenset([pattern])
    if negated:
        return ValueSet(strings=ALL_STRINGS, missing=patterns)
    return ValueSet(strings=ALL_STRINGS, fitting=patterns)


def _strings(allowed: ValueSet, negated: bool) -> ValueSet:
    """`allowed`, or the strings outside of it."""
    return ValueSet(strings=complement(allowed)[0].strings) if negated else allowed


# -- simplifying ------------------------------------------------------------------------


def _simplified(found: list[Conjunction]) -> list[Conjunction]:
    """The same with as few conjunctions as part-by-part comparison finds.

    What all of them have in common is left aside meanwhile: it tells none from another.
    """
    effort = StepBudget(NORMALISING_STEPS_MAX)
    found = _pruned(found, effort)
    if len(found) < 2:
        return found
    common = {
        subject: allowed
        for subject, allowed in found[0].sets.items()
        if all(conjunction.sets.get(subject) is allowed for conjunction in found)
    }
    rests = [
        Conjunction({s: allowed for s, allowed in c.sets.items() if s not in common}, c.atoms)
        for c in found
    ]
    rests = _absorbed(_merged(rests), effort)
    return [Conjunction({**common, **rest.sets}, rest.atoms) for rest in rests]


_Marked: TypeAlias = tuple[int, Conjunction]
"""A conjunction and the sum of the hashes of its sets: less that of one set, it is the mark of
the rest, by which conjunctions that differ in that set only find each other."""


def _merged(found: list[Conjunction]) -> list[Conjunction]:
    """Conjunctions that differ in one subject only become one, until none are left."""
    if len(found) < 2:
        return found
    marked = _distinct((sum(map(hash, c.sets.items())), c) for c in found)
    before = 0
    while len(marked) != before:
        before = len(marked)
        for subject, holding in _varying(marked).items():
            if _may_merge(subject, holding):
                marked = _distinct(_merged_on(subject, marked))
    return [conjunction for _, conjunction in marked]


def _distinct(marked: Iterable[_Marked]) -> list[_Marked]:
    """Each conjunction once."""
    found: dict[object, list[_Marked]] = {}
    for mark, conjunction in marked:
        alike = found.setdefault((mark, conjunction.atoms), [])
        if all(conjunction.sets != other.sets for _, other in alike):
            alike.append((mark, conjunction))
    return [one for alike in found.values() for one in alike]


def _varying(marked: list[_Marked]) -> dict[ValueNode, list[_Marked]]:
    """The subjects that some conjunctions allow this, others that; with those conjunctions."""
    holding: dict[ValueNode, list[_Marked]] = {}
    found: dict[ValueNode, list[_Marked]] = {}
    for one in marked:
        for subject, allowed in one[1].sets.items():
            alike = holding.setdefault(subject, [])
            alike.append(one)
            if alike[0][1].sets[subject] != allowed:
                found[subject] = alike
    return found


def _may_merge(subject: ValueNode, holding: list[_Marked]) -> bool:
    """Whether any two differ in `subject` only, as far as marks tell.

    Few subjects have such a pair, and only for them are all conjunctions looked at. A pair that
    appears by merging on another subject is found in the next round.
    """
    rests = {(mark - hash((subject, c.sets[subject])), c.atoms) for mark, c in holding}
    return len(rests) < len(holding)


def _merged_on(subject: ValueNode, marked: list[_Marked]) -> list[_Marked]:
    kept: list[_Marked] = []
    alike: dict[object, list[int]] = {}
    for mark, conjunction in marked:
        allowed = conjunction.sets.get(subject)
        if allowed is None:
            kept.append((mark, conjunction))
            continue
        rest = mark - hash((subject, allowed))
        places = alike.setdefault((rest, conjunction.atoms), [])
        for place in places:
            joined = _joined(kept[place][1], conjunction, subject)
            if joined is not None:
                kept[place] = (rest + hash((subject, joined.sets[subject])), joined)
                break
        else:
            places.append(len(kept))
            kept.append((mark, conjunction))
    return [_without_everything(mark, conjunction, subject) for mark, conjunction in kept]


def _joined(a: Conjunction, b: Conjunction, subject: ValueNode) -> Conjunction | None:
    """Both as one; None where they differ in more than what they allow `subject` to be."""
    allowed = union(a.sets[subject], b.sets[subject])
    if allowed is None:
        return None
    sets = {**a.sets, subject: allowed}
    return Conjunction(sets, a.atoms) if sets == {**b.sets, subject: allowed} else None


def _without_everything(mark: int, conjunction: Conjunction, subject: ValueNode) -> _Marked:
    if conjunction.sets.get(subject) != EVERYTHING:
        return mark, conjunction
    rest = {s: allowed for s, allowed in conjunction.sets.items() if s != subject}
    return mark - hash((subject, EVERYTHING)), Conjunction(rest, conjunction.atoms)


def _pruned(found: list[Conjunction], effort: StepBudget) -> list[Conjunction]:
    """Without the conjunctions that patterns or nesting leave empty."""
    kept: list[Conjunction] = []
    for conjunction in found:
        sets = conjunction.sets.values()
        if any(allowed.patterned and is_empty(allowed, effort) for allowed in sets):
            continue
        unnested = _unnested(conjunction)
        if unnested is not None:
            kept.append(unnested)
    return kept


def _unnested(conjunction: Conjunction) -> Conjunction | None:
    """Settle attributes that lie inside one another, and leave out what the others imply."""
    if not any(isinstance(s, _NAMES) and len(s.path) > 1 for s in conjunction.sets):
        return conjunction
    sets = settle_nesting(conjunction.sets)
    if sets is None:
        return None
    implied: set[ValueNode] = set()
    for outer, inner in _nested_pairs(sets):
        if sets[outer] == OBJECT and not sets[inner].facts & IS_NULL:
            implied.add(outer)
        if sets[inner] == NULL and not sets[outer].facts & IS_OPAQUE:
            implied.add(inner)
    kept = {subject: allowed for subject, allowed in sets.items() if subject not in implied}
    return Conjunction(kept, conjunction.atoms)


def settle_nesting(sets: Mapping[ValueNode, ValueSet]) -> dict[ValueNode, ValueSet] | None:
    """If `a.b` has a value then `a` is an object; if `a` is none, `a.b` is missing.

    None if that leaves some attribute without a value.
    """
    found = dict(sets)
    for outer, inner in _nested_pairs(sets):
        if not found[outer].facts & IS_OPAQUE:
            found[inner] = intersection(found[inner], NULL)
        elif not found[inner].facts & IS_NULL:
            found[outer] = OBJECT
        if EMPTY in (found[outer], found[inner]):
            return None
    return found


def _nested_pairs(sets: Mapping[ValueNode, ValueSet]) -> list[tuple[ValueNode, ValueNode]]:
    """Every (outer, inner) among the subjects, the innermost pairs first."""
    nested = [s for s in sets if isinstance(s, _NAMES) and len(s.path) > 1]
    return [
        (outer, inner)
        for inner in sorted(nested, key=lambda s: -len(s.path))
        for length in range(1, len(inner.path))
        if (outer := type(inner)(inner.path[:length])) in sets
    ]


def _absorbed(found: list[Conjunction], effort: StepBudget) -> list[Conjunction]:
    """Without the conjunctions that another one includes.

    Subjects are in frozensets meanwhile, which know the hashes of what they hold: the hash of a
    computed value takes as long as the value is large, and there may be thousands of pairs.
    """
    kept: list[_Subjects] = []
    for conjunction in _rarest_first(found):
        one = (frozenset(conjunction.sets), conjunction)
        if effort.is_spent and any(allowed.patterned for allowed in conjunction.sets.values()):
            kept.append(one)
            continue
        if any(_includes(other, one, effort) for other in kept):
            continue
        kept = [other for other in kept if not _includes(one, other, effort)]
        kept.append(one)
    return [conjunction for _, conjunction in kept]


_Subjects: TypeAlias = tuple[frozenset[ValueNode], Conjunction]


def _includes(a: _Subjects, b: _Subjects, effort: StepBudget) -> bool:
    return a[0] <= b[0] and includes(a[1], b[1], effort)


def _rarest_first(found: list[Conjunction]) -> list[Conjunction]:
    """The same conjunctions, each with its rarest subjects in front: two are soon told apart."""
    count = Counter(subject for conjunction in found for subject in conjunction.sets)
    alike = Counter(item for conjunction in found for item in conjunction.sets.items())

    def rarity(item: tuple[ValueNode, ValueSet]) -> tuple[int, int]:
        return count[item[0]], alike[item]

    return [Conjunction(dict(sorted(c.sets.items(), key=rarity)), c.atoms) for c in found]


def includes(a: Conjunction, b: Conjunction, effort: StepBudget) -> bool:
    """True only if certainly everything that `b` matches, `a` matches; read off part by part."""
    if not (a.atoms <= b.atoms and a.sets.keys() <= b.sets.keys()):
        return False
    return all(is_subset(b.sets[subject], allowed, effort) for subject, allowed in a.sets.items())
