"""Values in canonical shape: constants computed, operands in a fixed order.

Only rewrites that keep every bit are made: `3 + t` and `t + 3` are the same float, `t - -3`
and `t + 3` too, but `(t + 1) + 2` and `t + 3` may differ in the last bit and stay apart.
"""

from __future__ import annotations

from typing import TypeAlias

from rove.lang.limits import INTEGER_MIN
from rove.lang.oracle import NO_STATE, value_of
from rove.lang.printer import literal_text, operation_text, to_text
from rove.lang.tree import (
    Arithmetic,
    Attribute,
    Call,
    Literal,
    Me,
    Negation,
    Operator,
    Time,
    ValueNode,
)


class Unknown(Exception):
    """A constant part of a value can never be computed, so the value is always UNKNOWN."""


_Written: TypeAlias = tuple[ValueNode, str]
"""A value in canonical shape and its text, so that no part is written more than once."""


def folded(node: ValueNode) -> ValueNode:
    """`node` in canonical shape; raises Unknown where it can have no value, as in `x + 1/0`."""
    kind = type(node)
    if kind is Literal or kind is Attribute or kind is Me or kind is Time:
        return node
    return _folded(node)[0]


def _folded(node: ValueNode) -> _Written:
    kind = type(node)
    if kind is Attribute or kind is Literal or kind is Me or kind is Time:
        return node, to_text(node)
    match node:
        case Negation(operand=operand):
            inner, text = _folded(operand)
            negated = Negation(inner)
            if type(inner) is Literal:
                return _computed(negated)
            return negated, operation_text(negated, text)
        case Call(name=name, arguments=arguments):
            parts = [_folded(argument) for argument in arguments]
            call = Call(name, tuple(argument for argument, _ in parts))
            if all(type(argument) is Literal for argument in call.arguments):
                return _computed(call)
            return call, operation_text(call, *(text for _, text in parts))
        case Arithmetic(operator=operator, left=left, right=right):
            return _ordered(operator, _folded(left), _folded(right))
    raise TypeError(f"{node!r} is no value")


def _computed(constant: ValueNode) -> _Written:
    value = value_of(constant, {}, 0.0, NO_STATE)
    if value is None:
        raise Unknown
    return Literal(value), literal_text(value)


def _ordered(operator: Operator, left: _Written, right: _Written) -> _Written:
    """Constants behind a sum and before a product; otherwise the operands by their text."""
    left_is_constant, right_is_constant = type(left[0]) is Literal, type(right[0]) is Literal
    if left_is_constant and right_is_constant:
        return _computed(Arithmetic(operator, left[0], right[0]))
    if operator == "+":
        is_swapped = (left_is_constant, left[1]) > (right_is_constant, right[1])
    else:
        is_swapped = operator == "*" and (not left_is_constant, left[1]) > (
            not right_is_constant,
            right[1],
        )
    if is_swapped:
        left, right = right, left
    value = right[0]
    if operator in "+-" and type(value) is Literal and _is_negative(value.value):
        operator = "-" if operator == "+" else "+"
        right = _computed(Negation(value))
    node = Arithmetic(operator, left[0], right[0])
    return node, operation_text(node, left[1], right[1])


def _is_negative(value: object) -> bool:
    return isinstance(value, int | float) and value < 0 and value != INTEGER_MIN
