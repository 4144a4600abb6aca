"""The canonical text: two spellings of one meaning look alike.

The normal form is written back as a condition, in a fixed order and with the shortest exact
spelling of each set: `NOT (3 >= a)` comes out as `a > 3`, `a = 2 OR a = 1` as `a IN (1, 2)`,
`WITHIN 24 HOURS` as `WITHIN 1 DAY`. A text whose normal form would be larger than a text may
be keeps its own shape. Canonical texts are stable: canonical of canonical is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import cast

import msgspec

from rove.lang.constant_folding import Unknown, folded
from rove.lang.lexer import forbidden_in
from rove.lang.limits import (
    DEPTH_MAX,
    IN_LITERALS_MAX,
    INTEGER_MAX,
    PREDICATES_MAX,
    TEXT_BYTES_MAX,
)
from rove.lang.normal_form import Conjunction, NormalForm, normalise
from rove.lang.patterns import Pattern, like_text
from rove.lang.printer import to_text
from rove.lang.sets import (
    ALL_NUMBERS,
    ALL_STRINGS,
    IS_FALSE,
    IS_NULL,
    IS_TRUE,
    LOWEST,
    PRESENT,
    TOP,
    Bound,
    Spans,
    ValueSet,
    is_point,
    prefix_span,
)
from rove.lang.tree import (
    FALSE,
    SECONDS_OF,
    TRUE,
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
    Rank,
    Subscription,
    TextTest,
    Unit,
    ValueNode,
    Window,
    children,
    depth,
)
from rove.lang.values import Number, plain_number, previous_number

_INFINITY = float("inf")


def canonical(subscription: Subscription) -> Subscription:
    """The canonical tree of a subscription; `to_text` of it is the canonical text."""
    select, rank = subscription.select, subscription.rank
    found = Subscription(
        as_condition(normalise(subscription)),
        tuple(dict.fromkeys(select)) if select is not None else None,
        _canonical_rank(rank) if rank is not None else None,
    )
    if _fits(found):
        return found
    found = msgspec.structs.replace(found, condition=subscription.condition)
    return found if _fits(found) else subscription


def canonical_text(subscription: Subscription) -> str:
    return to_text(canonical(subscription))


def as_condition(form: NormalForm) -> Condition:
    """A condition with this normal form."""
    found = [_conjunction(conjunction) for conjunction in form.conjunctions]
    return _any(sorted(found, key=to_text))


def _fits(subscription: Subscription) -> bool:
    """True if a canonical tree is itself within the limits of a text."""
    condition = subscription.condition
    return (
        _predicates(condition) <= PREDICATES_MAX
        and depth(condition) <= DEPTH_MAX
        and len(to_text(subscription).encode()) <= TEXT_BYTES_MAX
    )


def _predicates(condition: Condition) -> int:
    """How many predicates the parser counts, bare booleans among them."""
    if isinstance(condition, And | Or | Not):
        return sum(_predicates(cast(Condition, inner)) for inner in children(condition))
    return 1


def _canonical_rank(rank: Rank) -> Rank:
    try:
        score = folded(rank.score)
    except Unknown:
        score = rank.score
    return Rank(score, rank.descending, rank.k, _canonical_window(rank.window))


def _canonical_window(window: Window) -> Window:
    """The same window in the largest unit that gives a whole number; else in seconds."""
    if window.publications is not None:
        return window
    for unit, seconds in reversed(SECONDS_OF.items()):
        milliseconds = unit == "MILLISECONDS"
        amount = round(window.seconds * 1000) if milliseconds else int(window.seconds // seconds)
        whole = Window(amount, cast(Unit, unit))
        if amount <= INTEGER_MAX and whole.seconds == window.seconds:
            return whole
    return Window(window.seconds, "SECONDS")


# -- conjunctions -----------------------------------------------------------------------


def _conjunction(conjunction: Conjunction) -> Condition:
    by_text = sorted(
        conjunction.sets.items(), key=lambda item: (_rank_of(item[0]), to_text(item[0]))
    )
    conditions = [_membership(subject, allowed) for subject, allowed in by_text]
    return _all([*conditions, *_atoms(conjunction.atoms)])


def _rank_of(subject: ValueNode) -> bool:
    return not isinstance(subject, Attribute)


def _atoms(atoms: Iterable[Comparison]) -> list[Condition]:
    """The atoms in order, a lower and an upper bound of one value joined to a BETWEEN."""
    lows = {atom.left: atom for atom in sorted(atoms, key=to_text) if atom.comparator == ">="}
    highs = {atom.left: atom for atom in sorted(atoms, key=to_text) if atom.comparator == "<="}
    joined = [left for left in lows if left in highs]
    used = {lows[left] for left in joined} | {highs[left] for left in joined}
    found: list[Condition] = [atom for atom in atoms if atom not in used]
    found += [Between(left, lows[left].right, highs[left].right) for left in joined]
    return sorted(found, key=to_text)


def _all(conditions: Sequence[Condition]) -> Condition:
    flat = [inner for c in conditions for inner in (c.operands if isinstance(c, And) else [c])]
    flat = [c for c in flat if c != TRUE]
    return And(tuple(flat)) if len(flat) > 1 else flat[0] if flat else TRUE


def _any(conditions: Sequence[Condition]) -> Condition:
    flat = [inner for c in conditions for inner in (c.operands if isinstance(c, Or) else [c])]
    return Or(tuple(flat)) if len(flat) > 1 else flat[0] if flat else FALSE


# -- sets -------------------------------------------------------------------------------


def _membership(subject: ValueNode, allowed: ValueSet) -> Condition:
    """`subject` has one of the allowed values."""
    if isinstance(subject, Attribute | Me) and allowed == PRESENT:
        return IsNull(subject, negated=True)
    found: list[Condition] = []
    if allowed.numbers:
        found.append(_numbers(subject, allowed.numbers))
    if allowed.strings:
        found.append(_strings(subject, allowed))
    if isinstance(subject, Attribute | Me):
        found += [subject] if allowed.facts & IS_TRUE else []
        found += [Not(subject)] if allowed.facts & IS_FALSE else []
        found += [IsNull(subject)] if allowed.facts & IS_NULL else []
    return _any(found)


def _numbers(subject: ValueNode, spans: Spans) -> Condition:
    if spans == ALL_NUMBERS:
        return Or((Comparison("<", subject, Literal(0)), Comparison(">=", subject, Literal(0))))
    return _spans(subject, spans)


def _strings(subject: ValueNode, allowed: ValueSet) -> Condition:
    conditions = [] if allowed.strings == ALL_STRINGS else [_spans(subject, allowed.strings)]
    patterns = sorted(allowed.fitting, key=_spelling)
    conditions += [_pattern(subject, pattern) for pattern in patterns]
    conditions += [Not(_pattern(subject, p)) for p in sorted(allowed.missing, key=_spelling)]
    return _all([_plain_not(c) for c in conditions] or [Comparison(">=", subject, Literal(""))])


def _spelling(pattern: Pattern) -> tuple[str, str]:
    written, escape = like_text(pattern)
    return written, escape or ""


def _plain_not(condition: Condition) -> Condition:
    """`NOT a LIKE …` as `a NOT LIKE …`."""
    if isinstance(condition, Not) and isinstance(condition.operand, Like):
        like = condition.operand
        return Like(like.value, like.pattern, like.escape, negated=True)
    return condition


def _pattern(subject: ValueNode, pattern: Pattern) -> Condition:
    if pattern.name in ("endswith", "contains"):
        return TextTest(
            "endswith" if pattern.name == "endswith" else "contains", subject, pattern.text
        )
    return Like(subject, *like_text(pattern))


def _spans(subject: ValueNode, spans: Spans) -> Condition:
    """One of the spans: points as IN, single holes as != or NOT IN, the rest one by one."""
    holes = [(left[1], right[0]) for left, right in pairwise(spans)]
    if holes and all(is_point(*hole) or _is_prefix(*hole) for hole in holes):
        outer = _span(subject, spans[0][0], spans[-1][1])
        points = [low for low, high in holes if is_point(low, high)]
        without: list[Condition] = list(_one_of(subject, points, negated=True))
        without += [_outside(subject, low) for low, high in holes if not is_point(low, high)]
        return _all([outer, *without])
    points = [low for low, high in spans if is_point(low, high)]
    rest = [_span(subject, low, high) for low, high in spans if not is_point(low, high)]
    return _any([*_one_of(subject, points, negated=False), *rest])


def _one_of(subject: ValueNode, points: list[Bound], *, negated: bool) -> list[Condition]:
    """`subject` is, or is not, one of `points`: as few predicates as the limits allow."""
    literals = [_literal(point) for point in points]
    if len(literals) == 1:
        return [Comparison("!=" if negated else "=", subject, literals[0])]
    starts = range(0, len(literals), IN_LITERALS_MAX)
    return [In(subject, tuple(literals[i : i + IN_LITERALS_MAX]), negated) for i in starts]


def _span(subject: ValueNode, low: Bound, high: Bound) -> Condition:
    if isinstance(low, str) and low and (low, high) == prefix_span(low):
        return TextTest("startswith", subject, low)
    lower = _string_lower(subject, low) if isinstance(low, str) else _number_lower(subject, low)
    upper = _string_upper(subject, high) if isinstance(low, str) else _number_upper(subject, high)
    match lower, upper:
        case Comparison(comparator=">="), Comparison(comparator="<="):
            return Between(subject, lower.right, upper.right)
    return _all([end for end in (lower, upper) if end is not None])


def _number_lower(subject: ValueNode, low: Number) -> Condition | None:
    if low == LOWEST:
        return None
    return _shorter(subject, ">=", low, ">", previous_number(low))


def _number_upper(subject: ValueNode, high: Number) -> Condition | None:
    if high == _INFINITY:
        return None
    return _shorter(subject, "<=", previous_number(high), "<", high)


def _shorter(
    subject: ValueNode, including: Comparator, one: Number, excluding: Comparator, other: Number
) -> Condition:
    """The bound with fewer digits: 3 < x rather than 3.0000000000000004 <= x."""
    included, excluded = _literal(one), _literal(other)
    if len(to_text(included)) <= len(to_text(excluded)):
        return Comparison(including, subject, included)
    return Comparison(excluding, subject, excluded)


def _string_lower(subject: ValueNode, low: str) -> Condition | None:
    if low == "":
        return None
    if low.endswith("\0"):
        return Comparison(">", subject, Literal(low[:-1]))
    if forbidden_in(low):
        before = _prefix_before(low)
        above = Comparison(">", subject, Literal(before))
        return And((above, _outside(subject, before)))
    return Comparison(">=", subject, Literal(low))


def _string_upper(subject: ValueNode, high: Bound) -> Condition | None:
    if high is TOP:
        return None
    if high.endswith("\0"):
        return Comparison("<=", subject, Literal(high[:-1]))
    if forbidden_in(high):
        before = _prefix_before(high)
        below = Comparison("<", subject, Literal(before))
        return Or((below, TextTest("startswith", subject, before)))
    return Comparison("<", subject, Literal(high))


def _prefix_before(bound: str) -> str:
    """The prefix whose span ends at `bound`; asked where `bound` itself cannot be written."""
    point = ord(bound[-1]) - 1
    return bound[:-1] + chr(0xD7FF if point == 0xDFFF else point)


def _is_prefix(low: Bound, high: Bound) -> bool:
    return isinstance(low, str) and low != "" and (low, high) == prefix_span(low)


def _outside(subject: ValueNode, prefix: str) -> Condition:
    return Not(TextTest("startswith", subject, prefix))


def _literal(value: Bound) -> Literal:
    return Literal(value if isinstance(value, str) else plain_number(value))
