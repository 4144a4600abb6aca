"""What is known of a subscription before any publication arrives: `rove check`.

Its kinds of interest, the attributes it uses and their types, the size of its normal form, and
how an index finds each part. `check_schema` compares the types with those of a channel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import msgspec

from rove.lang.advice import did_you_mean
from rove.lang.canonical_form import as_condition, canonical_text
from rove.lang.errors import LanguageError, TextError
from rove.lang.lexer import END, segments_of, span, tokens_of
from rove.lang.normal_form import Conjunction, NormalForm, accepted_form
from rove.lang.printer import name_text, to_text
from rove.lang.sets import ValueSet, is_point
from rove.lang.tree import (
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
    Node,
    Not,
    Subscription,
    TextTest,
    Time,
    ValueNode,
    ValueType,
    children,
    parts,
    type_of,
    walk,
)
from rove.lang.values import Path


class IndexedPart(msgspec.Struct, frozen=True):
    """One part of a conjunction, and how an index finds it; if none can, how it is checked."""

    part: str
    how: str
    indexed: bool


class Description(msgspec.Struct, frozen=True):
    """What `rove check` says of a text."""

    canonical: str
    kinds: tuple[str, ...]
    attributes: dict[str, list[str]]
    variables: list[str]
    conjunctions: int
    parts: int
    index: list[list[IndexedPart]]
    """For each conjunction of the normal form, its parts."""

    @property
    def matches(self) -> str:
        """nothing, everything or something: what the condition alone lets through."""
        if self.conjunctions == 0:
            return "nothing"
        return "everything" if [] in self.index else "something"

    @property
    def indexed(self) -> bool:
        """True if every conjunction has a part that an index can find."""
        return all(any(part.indexed for part in one) for one in self.index)


def describe(subscription: Subscription) -> Description:
    """All that is known of `subscription`; LimitError if its normal form is too large."""
    form = accepted_form(subscription)
    index = [list(_index_of(conjunction)) for conjunction in form.conjunctions]
    return Description(
        canonical=canonical_text(subscription),
        kinds=kinds_of(subscription),
        attributes={
            ".".join(attribute.path): sorted(kinds)
            for attribute, kinds in sorted(types_of(subscription).items(), key=lambda i: i[0].path)
        },
        variables=sorted({to_text(node) for node in parts(subscription) if isinstance(node, Me)}),
        conjunctions=len(form.conjunctions),
        parts=sum(map(len, index)),
        index=index,
    )


def kinds_of(subscription: Subscription) -> tuple[str, ...]:
    """Boolean, or what it is beyond that: evolving, following, ranked."""
    nodes = list(parts(subscription))
    found = [
        ("evolving", any(isinstance(node, Time) for node in nodes)),
        ("following", any(isinstance(node, Me) for node in nodes)),
        ("ranked", subscription.rank is not None),
    ]
    return tuple(name for name, present in found if present) or ("Boolean",)


# -- types ------------------------------------------------------------------------------


def types_of(subscription: Subscription) -> dict[Attribute, set[str]]:
    """The types that each attribute must have; "any" where every type is allowed."""
    found: dict[Attribute, set[str]] = {}
    uses = list(_uses(subscription.condition))
    if subscription.rank is not None:
        uses += [(subscription.rank.score, ValueType.NUMBER), *_inner_uses(subscription.rank.score)]
    for node, kind in uses:
        if isinstance(node, Attribute):
            found.setdefault(node, set()).add(kind.value)
    return {attribute: kinds - {"any"} or {"any"} for attribute, kinds in found.items()}


def _uses(node: Condition) -> Iterator[tuple[Node, ValueType]]:
    """Every value in a condition, with the type that its place requires."""
    match node:
        case Comparison(left=left, right=right):
            yield from ((left, type_of(right)), (right, type_of(left)))
        case Between(value=value, low=low, high=high):
            known = [k for k in map(type_of, (value, low, high)) if k is not ValueType.ANY]
            yield from ((part, known[0] if known else ValueType.ANY) for part in (value, low, high))
        case In(value=value, items=items):
            yield value, type_of(items[0])
        case Like(value=value) | TextTest(value=value):
            yield value, ValueType.STRING
        case IsNull(value=value):
            yield value, ValueType.ANY
        case Attribute() | Me() | Literal():
            yield node, ValueType.BOOLEAN
    for child in children(node):
        yield from _uses(child) if _is_condition_in(node) else _inner_uses(child)  # type: ignore[arg-type]


def _is_condition_in(node: Node) -> bool:
    return isinstance(node, Not) or hasattr(node, "operands")


def _inner_uses(value: Node) -> Iterator[tuple[Node, ValueType]]:
    """The operands inside of a value: numbers, or a string inside of lower()."""
    for part in walk(value):
        if isinstance(part, Arithmetic | Negation | Call):
            is_text = isinstance(part, Call) and part.name == "lower"
            for operand in children(part):
                yield operand, ValueType.STRING if is_text else ValueType.NUMBER


# -- indexing ---------------------------------------------------------------------------


def _index_of(conjunction: Conjunction) -> Iterator[IndexedPart]:
    for subject, allowed in conjunction.sets.items():
        if isinstance(subject, Attribute):
            how, indexed = _how_found(allowed)
        else:
            how, indexed = "computed for each candidate", False
        one = NormalForm((Conjunction({subject: allowed}),))
        yield IndexedPart(to_text(as_condition(one)), how, indexed)
    for atom in sorted(conjunction.atoms, key=to_text):
        how, indexed = _how_bounded(atom)
        yield IndexedPart(to_text(atom), how, indexed)


def _how_found(allowed: ValueSet) -> tuple[str, bool]:
    """How an index finds an attribute within a set, and whether it can."""
    if allowed.patterned:
        return "string automaton", True
    spans = (*allowed.numbers, *allowed.strings)
    if not spans:
        return "presence or truth", True
    if all(is_point(low, high) for low, high in spans):
        return ("one value" if len(spans) == 1 else f"{len(spans)} values"), True
    lane = "numbers" if allowed.numbers else "strings"
    return (f"range of {lane}" if len(spans) == 1 else f"{len(spans)} ranges"), True


def _how_bounded(atom: Comparison) -> tuple[str, bool]:
    """How an index finds an attribute with a bound that varies, and whether it can."""
    bound = list(walk(atom.right))
    if not isinstance(atom.left, Attribute) or any(isinstance(n, Attribute) for n in bound):
        return "computed for each candidate", False
    if any(isinstance(node, Me) for node in bound):
        return "bound follows the subscriber's state", True
    if is_linear(atom.right):
        return "bound moves linearly with t", True
    if is_piecewise_linear(atom.right):
        return "bound moves piecewise linearly with t", True
    return "bound moves with t, indexed by its hull", True


def is_linear(node: ValueNode) -> bool:
    """True if `node` is linear in `t`."""
    match node:
        case Literal() | Time():
            return True
        case Negation(operand=operand):
            return is_linear(operand)
        case Arithmetic(operator="+" | "-", left=left, right=right):
            return is_linear(left) and is_linear(right)
        case Arithmetic(operator="*", left=Literal(), right=other):
            return is_linear(other)
        case Arithmetic(operator="*" | "/", left=other, right=Literal()):
            return is_linear(other)
    return False


def is_piecewise_linear(node: ValueNode) -> bool:
    """True if `node` consists of linear pieces in `t`, as `3 + least(t, 8)` does."""
    match node:
        case Negation(operand=operand):
            return is_piecewise_linear(operand)
        case Call(name="least" | "greatest" | "abs", arguments=arguments):
            return all(map(is_piecewise_linear, arguments))
        case Arithmetic(operator="+" | "-", left=left, right=right):
            return is_piecewise_linear(left) and is_piecewise_linear(right)
        case Arithmetic(operator="*", left=Literal(), right=other):
            return is_piecewise_linear(other)
        case Arithmetic(operator="*" | "/", left=other, right=Literal()):
            return is_piecewise_linear(other)
    return is_linear(node)


# -- schemas ----------------------------------------------------------------------------

# A schema is optional. With one, a misspelt attribute is refused with a suggestion, instead of
# being a subscription that never matches.

Schema: TypeAlias = Mapping[str, str]
"""Attribute (dots reach into objects) to "number", "string", "boolean" or "any"."""

KINDS = ("number", "string", "boolean", "any")


def check_schema(subscription: Subscription, schema: Schema, text: str) -> None:
    """Refuse `text`, whose tree is `subscription`, if it uses what `schema` does not have."""
    _check_kinds(schema)
    chosen = {attribute: {"any"} for attribute in subscription.select or ()}
    for attribute, kinds in {**chosen, **types_of(subscription)}.items():
        name = ".".join(attribute.path)
        if name not in schema:
            hint = did_you_mean(name, tuple(schema)) or (
                f"there are {', '.join(schema)}" if schema else "the schema has no attributes"
            )
            raise _refusal(
                f"there is no attribute {name_text(attribute.path)}", text, attribute, hint
            )
        wrong = kinds - {"any", schema[name]}
        if wrong and schema[name] != "any":
            raise _refusal(
                f"{name_text(attribute.path)} is a {schema[name]}, and used as a {min(wrong)}",
                text,
                attribute,
                f"compare it with a {schema[name]}",
            )


def _check_kinds(schema: Schema) -> None:
    for name, kind in schema.items():
        if kind not in KINDS:
            raise LanguageError(
                f"the schema says {kind!r} of attribute {name}", f"kinds are {', '.join(KINDS)}"
            )


def _refusal(what: str, text: str, attribute: Attribute, hint: str) -> TextError:
    start, end = _place_of(text, attribute.path)
    return TextError(what, text, start, end, hint)


def _place_of(text: str, path: Path) -> tuple[int, int]:
    """Where an attribute is first named in `text`."""
    for index, token in enumerate(tokens_of(text)):
        if token != END and segments_of(token) == path:
            return span(text, index)
    return 0, len(text)
