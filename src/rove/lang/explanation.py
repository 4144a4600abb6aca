"""Why a publication matches or does not, predicate by predicate: `rove explain`.

The oracle evaluates every part; this module adds the values that were compared. There is no second
evaluation that could differ.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from rove.lang.oracle import NO_STATE, Publication, State, matches, score_of, truth, value_of
from rove.lang.printer import literal_text, to_text
from rove.lang.tree import (
    And,
    Attribute,
    Condition,
    Literal,
    Me,
    Node,
    Not,
    Or,
    Subscription,
    Time,
    ValueNode,
    children,
    is_value,
)
from rove.lang.values import OPAQUE, look_up

_JOINTS: dict[type, str] = {And: "all of", Or: "any of", Not: "not"}


class Explanation(msgspec.Struct, frozen=True):
    """A part of the condition, its truth (None: UNKNOWN), and why."""

    text: str
    truth: bool | None
    why: str
    parts: tuple[Explanation, ...] = ()


def explain(
    subscription: Subscription, publication: Publication, t: float = 0.0, me: State = NO_STATE
) -> tuple[bool, list[Explanation]]:
    """Whether it matches, and the explanation of the condition and of the score, if any."""
    found = [_explained(subscription.condition, publication, t, me)]
    matched = matches(subscription, publication, t, me)
    if subscription.rank is not None:
        score = score_of(subscription, publication, t, me)
        text = f"ORDER BY {to_text(subscription.rank.score)}"
        why = (
            f"the score is {score!r}; whether it is among the best, only the window tells"
            if score is not None
            else "the score is unknown, so it never enters the window: "
            + _values([subscription.rank.score], publication, t, me)
        )
        found.append(Explanation(text, None if score is None else True, why))
        matched = matched and score is not None
    return matched, found


def _explained(node: Condition, publication: Publication, t: float, me: State) -> Explanation:
    answer = truth(node, publication, t, me)
    if isinstance(node, And | Or | Not):
        inner: tuple[Condition, ...] = (node.operand,) if isinstance(node, Not) else node.operands
        explained = tuple(_explained(part, publication, t, me) for part in inner)
        return Explanation(to_text(node), answer, _JOINTS[type(node)], explained)
    values = [node] if is_value(node) else list(children(node))
    return Explanation(to_text(node), answer, _values(values, publication, t, me))  # type: ignore[arg-type]


def _values(nodes: list[ValueNode], publication: Publication, t: float, me: State) -> str:
    """The value of everything that is not written in the text already."""
    shown: dict[str, str] = {}
    for node in nodes:
        for part in _parts_to_show(node):
            shown[to_text(part)] = _shown(part, publication, t, me)
    return ", ".join(f"{text} is {value}" for text, value in shown.items())


def _parts_to_show(node: Node) -> Iterator[ValueNode]:
    """A computed value, then each variable in it."""
    if isinstance(node, Literal) or not is_value(node):
        return
    yield node  # type: ignore[misc]
    for child in children(node):
        if isinstance(child, Attribute | Me | Time) or children(child):
            yield from _parts_to_show(child)


def _shown(node: ValueNode, publication: Publication, t: float, me: State) -> str:
    if isinstance(node, Attribute | Me):
        found = look_up(publication if isinstance(node, Attribute) else me, node.path)
        if found is OPAQUE:
            return "neither number, string nor boolean"
        return "missing or null" if found is None else literal_text(found)
    value = value_of(node, publication, t, me)
    return "unknown" if value is None else literal_text(value)
