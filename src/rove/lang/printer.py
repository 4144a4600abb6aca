"""Trees back to texts: `parse(to_text(tree)) == tree`, for every tree.

The text has no more parentheses than the tree needs. Canonical texts, in which two
spellings of one meaning look alike, come from `rove.lang.canonical_form`, through here.
"""

from __future__ import annotations

import re
from functools import lru_cache

from rove.lang.lexer import keyword_of
from rove.lang.limits import TEXT_BYTES_MAX
from rove.lang.tree import (
    And,
    Arithmetic,
    Attribute,
    Between,
    Call,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Me,
    Negation,
    Node,
    Not,
    Or,
    Rank,
    Subscription,
    TextTest,
    Time,
)
from rove.lang.values import Path

_BARE_NAME = re.compile(r"[^\W\d]\w*")
_QUOTED_OR_COMMA = re.compile(r"('[^']*'|`[^`]*`)|, ")

# How tightly a node binds; an operand that binds less tightly than its place asks for
# stands in parentheses.
_OR, _AND, _NOT, _PREDICATE, _SUM, _PRODUCT, _PRIMARY = range(1, 8)
_BINDING: dict[type, int] = {Or: _OR, And: _AND, Not: _NOT}
_BINDING |= dict.fromkeys((Comparison, Between, In, Like, IsNull), _PREDICATE)


def to_text(what: Subscription | Node) -> str:
    """The text of a subscription, of a condition or of a value.

    A text that would be longer than a text may be is written without spaces behind commas, so
    that a list that came in close to the limit can be read back.
    """
    text = _subscription(what) if isinstance(what, Subscription) else _written(what)
    if len(text) > TEXT_BYTES_MAX:
        return _QUOTED_OR_COMMA.sub(lambda found: found.group(1) or ",", text)
    return text


def _subscription(what: Subscription) -> str:
    words: list[str] = []
    if what.select is not None:
        words.append("SELECT " + ", ".join(_written(item) for item in what.select))
    condition_is_silent = what.condition == Literal(True) and (words or what.rank)
    if not condition_is_silent:
        words += ["WHERE", _written(what.condition)] if words else [_written(what.condition)]
    if what.rank is not None:
        words.append(_rank(what.rank))
    return " ".join(words)


def name_text(path: Path) -> str:
    """A name as it must be written: odd segments in backticks, reserved words too."""
    segments = [_segment(segment) for segment in path]
    if path[0] in ("t", "me") and (len(path) == 1 or path[0] == "me"):
        segments[0] = f"`{path[0]}`"
    return ".".join(segments)


def string_text(value: str) -> str:
    """A string literal, quotes doubled."""
    return "'" + value.replace("'", "''") + "'"


def literal_text(value: object) -> str:
    """A literal as the parser reads it back: same type, same bits."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return string_text(value) if isinstance(value, str) else repr(value)


@lru_cache(maxsize=1024)
def _segment(segment: str) -> str:
    if _BARE_NAME.fullmatch(segment) and not keyword_of(segment):
        return segment
    return "`" + segment.replace("`", "``") + "`"


def _rank(rank: Rank) -> str:
    order = " DESC" if rank.descending else ""
    unit = rank.window.unit[:-1] if rank.window.amount == 1 else rank.window.unit
    return (
        f"ORDER BY {_written(rank.score)}{order} LIMIT {rank.k} "
        f"WITHIN {literal_text(rank.window.amount)} {unit}"
    )


def _binding(node: Node) -> int:
    if isinstance(node, Arithmetic):
        return _SUM if node.operator in "+-" else _PRODUCT
    return _BINDING.get(type(node), _PRIMARY)


def _operand(node: Node, at_least: int) -> str:
    written = _written(node)
    return written if _binding(node) >= at_least else f"({written})"


def _written(node: Node) -> str:
    match node:
        case Literal(value=value):
            return literal_text(value)
        case Attribute(path=path):
            return name_text(path)
        case Me(path=path):
            return ".".join(["me", *(_segment(segment) for segment in path)])
        case Time():
            return "t"
        case Negation(operand=operand):
            return operation_text(node, _written(operand))
        case Arithmetic(left=left, right=right):
            return operation_text(node, _written(left), _written(right))
        case Call(arguments=arguments):
            return operation_text(node, *map(_written, arguments))
        case TextTest(name=name, value=value, text=text):
            return f"{name}({_written(value)}, {string_text(text)})"
        case And(operands=operands):
            return " AND ".join(_operand(operand, _NOT) for operand in operands)
        case Or(operands=operands):
            return " OR ".join(_operand(operand, _AND) for operand in operands)
        case Not(operand=operand):
            return f"NOT {_operand(operand, _NOT)}"
        case _:
            return _predicate(node)


def operation_text(node: Negation | Arithmetic | Call, *operands: str) -> str:
    """The text of an operation, given those of its operands."""
    if isinstance(node, Call):
        return f"{node.name}({', '.join(operands)})"
    if isinstance(node, Arithmetic):
        level, (left, right) = _binding(node), operands
        left = left if _binding(node.left) >= level else f"({left})"
        right = right if _binding(node.right) > level else f"({right})"
        return f"{left} {node.operator} {right}"
    # `-5` is the literal minus five, so a literal needs parentheses; `--` starts a comment.
    if isinstance(node.operand, Negation):
        return f"- {operands[0]}"
    bare = isinstance(node.operand, Attribute | Me | Time | Call)
    return f"-{operands[0]}" if bare else f"-({operands[0]})"


def _predicate(node: Comparison | Between | In | Like | IsNull) -> str:
    no = "NOT " if not isinstance(node, Comparison) and node.negated else ""
    match node:
        case Comparison(comparator=comparator, left=left, right=right):
            return f"{_operand(left, _SUM)} {comparator} {_operand(right, _SUM)}"
        case Between(value=value, low=low, high=high):
            subject, lower, upper = (_operand(part, _SUM) for part in (value, low, high))
            return f"{subject} {no}BETWEEN {lower} AND {upper}"
        case In(value=value, items=items):
            return f"{_operand(value, _SUM)} {no}IN ({', '.join(_written(i) for i in items)})"
        case Like(value=value, pattern=pattern, escape=escape):
            ending = f" ESCAPE {string_text(escape)}" if escape is not None else ""
            return f"{_written(value)} {no}LIKE {string_text(pattern)}{ending}"
        case IsNull(value=value):
            return f"{_written(value)} IS {no}NULL"
