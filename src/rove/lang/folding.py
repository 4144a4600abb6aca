"""Values in canonical shape: constants computed, operands in a fixed order.

Only rewrites that keep every bit are made: `3 + t` and `t + 3` are the same float, `t - -3`
and `t + 3` too, but `(t + 1) + 2` and `t + 3` may differ in the last bit and stay apart.
"""

from __future__ import annotations

from rove.lang.limits import INTEGER_MIN
from rove.lang.oracle import NO_STATE, value_of
from rove.lang.printer import to_text
from rove.lang.tree import Arithmetic, Attribute, Call, Literal, Me, Negation, Time, ValueNode


class Unknown(Exception):
    """A constant part of a value can never be computed, so the value is always UNKNOWN."""


def folded(node: ValueNode) -> ValueNode:
    """`node` in canonical shape; raises Unknown where it can have no value, as in `x + 1/0`."""
    kind = type(node)
    if kind is Literal or kind is Attribute or kind is Me or kind is Time:
        return node
    match node:
        case Negation(operand=operand):
            inner = folded(operand)
            return _computed(Negation(inner)) if type(inner) is Literal else Negation(inner)
        case Call(name=name, arguments=arguments):
            call = Call(name, tuple(folded(argument) for argument in arguments))
            constant = all(type(argument) is Literal for argument in call.arguments)
            return _computed(call) if constant else call
        case Arithmetic(operator=operator, left=left, right=right):
            sum_or_product = Arithmetic(operator, folded(left), folded(right))
            if type(sum_or_product.left) is type(sum_or_product.right) is Literal:
                return _computed(sum_or_product)
            return _ordered(sum_or_product)
    return node


def _computed(constant: ValueNode) -> Literal:
    value = value_of(constant, {}, 0.0, NO_STATE)
    if value is None:
        raise Unknown
    return Literal(value)


def _ordered(node: Arithmetic) -> Arithmetic:
    """Constants behind a sum and before a product; otherwise the operands by their text."""
    operator, left, right = node.operator, node.left, node.right
    if operator == "+" and _place(left) > _place(right):
        left, right = right, left
    if operator == "*" and _place(left)[1:] > _place(right)[1:] and type(left) is not Literal:
        left, right = right, left
    if operator == "*" and type(right) is Literal:
        left, right = right, left
    if operator in "+-" and type(right) is Literal and _is_negative(right.value):
        return Arithmetic("-" if operator == "+" else "+", left, _computed(Negation(right)))
    return Arithmetic(operator, left, right)


def _place(node: ValueNode) -> tuple[bool, str]:
    return type(node) is Literal, to_text(node)


def _is_negative(value: object) -> bool:
    return isinstance(value, int | float) and value < 0 and value != INTEGER_MIN
