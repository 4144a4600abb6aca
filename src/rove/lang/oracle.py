"""The oracle: what a subscription means, said as plainly as possible.

No index, no compiled code, no cleverness; three-valued logic spelled out, with None for
UNKNOWN. Every matcher is judged by this module, so when the two differ, this one is right,
and when this one is wrong, the language is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rove.lang import functions
from rove.lang.patterns import TEXT_TESTS, Pattern, like_pattern
from rove.lang.tree import (
    And,
    Arithmetic,
    Attribute,
    Between,
    Call,
    Comparison,
    Condition,
    In,
    IsNull,
    Like,
    Literal,
    Me,
    Negation,
    Not,
    Or,
    Subscription,
    TextTest,
    Time,
    ValueNode,
)
from rove.lang.values import OPAQUE, Known, Path, is_number, look_up

Publication = Mapping[str, object]
State = Mapping[str, object]
NO_STATE: State = {}


def matches(
    subscription: Subscription, publication: Publication, t: float = 0.0, me: State = NO_STATE
) -> bool:
    """True if the condition holds; a rank is not looked at (see `rove.lang.replay`)."""
    return truth(subscription.condition, publication, t, me) is True


def truth(
    condition: Condition, publication: Publication, t: float = 0.0, me: State = NO_STATE
) -> bool | None:
    """TRUE, FALSE or UNKNOWN (None)."""

    def value(node: ValueNode) -> Known:
        return value_of(node, publication, t, me)

    def holds(inner: Condition) -> bool | None:
        return truth(inner, publication, t, me)

    match condition:
        case And(operands=operands):
            return all_of([holds(operand) for operand in operands])
        case Or(operands=operands):
            return any_of([holds(operand) for operand in operands])
        case Not(operand=operand):
            return opposite(holds(operand))
        case Comparison(comparator=comparator, left=left, right=right):
            return compare(comparator, value(left), value(right))
        case Between(value=subject, low=low, high=high, negated=negated):
            above = compare(">=", value(subject), value(low))
            below = compare("<=", value(subject), value(high))
            return opposite_if(negated, all_of([above, below]))
        case In(value=subject, items=items, negated=negated):
            found = any_of([compare("=", value(subject), item.value) for item in items])
            return opposite_if(negated, found)
        case Like(value=subject, pattern=written, escape=escape, negated=negated):
            return opposite_if(negated, _fits(like_pattern(written, escape), value(subject)))
        case TextTest(name=name, value=subject, text=text):
            return _fits(TEXT_TESTS[name](text), value(subject))
        case IsNull(value=subject, negated=negated):
            return _is_null(subject, publication, me) is not negated
        case _:
            boolean = value(condition)
            return boolean if isinstance(boolean, bool) else None


def value_of(node: ValueNode, publication: Publication, t: float, me: State) -> Known:
    """The value of a node, or None where it has none that can be compared."""
    # Texts that were not compiled yet are walked for each publication: no patterns here, they take
    # twice as long.
    if type(node) is Literal:
        return node.value
    if type(node) is Attribute:
        return _value_at(publication, node.path)
    if type(node) is Me:
        return _value_at(me, node.path)
    if type(node) is Call:
        return functions.call(
            node.name, [value_of(each, publication, t, me) for each in node.arguments]
        )
    if type(node) is Arithmetic:
        return functions.arithmetic(
            node.operator,
            value_of(node.left, publication, t, me),
            value_of(node.right, publication, t, me),
        )
    if type(node) is Negation:
        return functions.negate(value_of(node.operand, publication, t, me))
    if type(node) is Time:
        return float(t)
    raise TypeError(f"{node!r} is no value")


def score_of(
    subscription: Subscription, publication: Publication, t: float = 0.0, me: State = NO_STATE
) -> int | float | None:
    """The score of a ranked subscription, or None where it is UNKNOWN."""
    assert subscription.rank is not None, "only a ranked subscription has a score"
    score: Any = value_of(subscription.rank.score, publication, t, me)
    return score if is_number(score) else None


def all_of(truths: list[bool | None]) -> bool | None:
    """AND: FALSE if any is FALSE, else UNKNOWN if any is UNKNOWN, else TRUE."""
    if False in truths:
        return False
    return None if None in truths else True


def any_of(truths: list[bool | None]) -> bool | None:
    """OR: TRUE if any is TRUE, else UNKNOWN if any is UNKNOWN, else FALSE."""
    if True in truths:
        return True
    return None if None in truths else False


def opposite(one: bool | None) -> bool | None:
    """NOT: UNKNOWN stays UNKNOWN."""
    return None if one is None else not one


def opposite_if(negated: bool, one: bool | None) -> bool | None:
    return opposite(one) if negated else one


def compare(comparator: str, left: Any, right: Any) -> bool | None:
    """Numbers with numbers, strings with strings, booleans for equality only; else UNKNOWN."""
    both_numbers = is_number(left) and is_number(right)
    both_strings = isinstance(left, str) and isinstance(right, str)
    both_booleans = isinstance(left, bool) and isinstance(right, bool)
    if not (both_numbers or both_strings or (both_booleans and comparator in ("=", "!="))):
        return None
    match comparator:
        case "=":
            return bool(left == right)
        case "!=":
            return bool(left != right)
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
        case _:
            return bool(left >= right)


def _fits(pattern: Pattern, value: Known) -> bool | None:
    return pattern.matches(value) if isinstance(value, str) else None


def _is_null(subject: Attribute | Me, publication: Publication, me: State) -> bool:
    values = publication if isinstance(subject, Attribute) else me
    return look_up(values, subject.path) is None


def _value_at(values: Mapping[str, object], path: Path) -> Known:
    found = look_up(values, path)
    return None if found is OPAQUE else cast(Known, found)
