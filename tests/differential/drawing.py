"""Subscriptions and publications drawn by a seeded generator, on the edges, by the million.

The strategies of `rove.testing.strategies` draw a subscription in milliseconds, and can shrink
what they drew. To compare engines over millions of pairs that is too slow, so this draws from the
same pools (neighbours of 2^53, both zeros, the ends of the integers, strings of a few letters) in
some ten microseconds, with `random.Random` and nothing else: one seed, one drawing.

Publications are made for subscriptions: their values are the constants of some subscription, what
its moving bounds are worth at some moment, and the direct neighbours of these. So most of them
stand on a bound or beside it. Others are missing, null, of another type, or beyond 64 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from rove.lang.errors import LimitError
from rove.lang.normal_form import accepted_form
from rove.lang.oracle import value_of
from rove.lang.tree import (
    FALSE,
    TRUE,
    And,
    Arithmetic,
    Attribute,
    Between,
    Call,
    Comparator,
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
    Operator,
    Or,
    Subscription,
    TextTest,
    TextTestName,
    Time,
    ValueNode,
    walk,
)
from rove.lang.values import Path, is_number, next_number, previous_number
from rove.testing.strategies import NUMBERS, PATHS, STRINGS, VARIABLES

COMPARATORS: Final[tuple[Comparator, ...]] = ("=", "!=", "<", "<=", ">", ">=")
OPERATORS: Final[tuple[Operator, ...]] = ("+", "-", "*", "/")
TEXT_TESTS: Final[tuple[TextTestName, ...]] = ("startswith", "endswith", "contains")
PLAIN_NUMBERS: Final = (-3, -1, -0.0, 0, 0.1, 0.5, 1, 1.0, 2, 2.5, 3, 8, 40)
"""What people write; with these, bounds that move still meet something."""
OPAQUE: Final[tuple[Any, ...]] = (None, [], [1], {}, b"bytes", 2**63, -(2**63) - 1, 2**100)
_LETTERS: Final = "ab%_'~é"


class Moment(NamedTuple):
    """What `t` and `me.` are."""

    t: float
    me: Mapping[str, object]


class Drawing:
    """An endless supply from one source of randomness.

    `moving` is the share of predicates with `t`, `me.` or arithmetic, `texts` that of tests on
    strings; `names` are attributes beside the usual ones, for those who want many.
    """

    def __init__(
        self, random: Random, moving: float = 0.3, texts: float = 0.2, names: Sequence[str] = ()
    ) -> None:
        self._random = random
        self._moving = moving
        self._texts = texts
        self._paths: tuple[Path, ...] = (*PATHS, *((name,) for name in names))
        self._moving_kinds: tuple[Callable[[], Condition], ...] = (
            self._bounded,
            self._bounded,
            self._travelling,
            self._travelling,
            self._following,
            self._computed,
            self._odd,
        )

    # -- subscriptions -----------------------------------------------------------------------

    def subscriptions(self, count: int) -> list[Subscription]:
        """So many that are within the limits of the language."""
        found: list[Subscription] = []
        while len(found) < count:
            subscription = Subscription(self.condition())
            try:
                accepted_form(subscription)
            except LimitError:
                continue
            found.append(subscription)
        return found

    def condition(self) -> Condition:
        """Mostly what people write, a few predicates joined by AND; sometimes anything."""
        shape = self._random.random()
        if shape < 0.75:
            return self._all_of(self._random.choice((1, 1, 2, 2, 3, 4)))
        if shape < 0.9:
            return Or((self._all_of(self._random.choice((1, 2))), self._all_of(1)))
        return self._tree(3)

    def _all_of(self, count: int) -> Condition:
        predicates = tuple(self.predicate() for _ in range(count))
        return predicates[0] if count == 1 else And(predicates)

    def _tree(self, depth: int) -> Condition:
        kind = self._random.randrange(4 if depth else 1)
        if kind == 0:
            return self.predicate()
        if kind == 1:
            return Not(self._tree(depth - 1))
        operands = tuple(self._tree(depth - 1) for _ in range(self._random.choice((2, 2, 3))))
        return And(operands) if kind == 2 else Or(operands)

    def predicate(self) -> Condition:
        kind = self._random.random()
        if kind < self._moving:
            return self._random.choice(self._moving_kinds)()
        if kind < self._moving + (1 - self._moving) * self._texts:
            return self._text_test()
        return self._fixed()

    def _is(self, probability: float) -> bool:
        return self._random.random() < probability

    def _attribute(self) -> Attribute:
        return Attribute(self._random.choice(self._paths))

    def _variable(self) -> Me:
        return Me(self._random.choice(VARIABLES))

    def _number(self) -> Literal:
        return Literal(self._random.choice(NUMBERS if self._is(0.5) else PLAIN_NUMBERS))

    def _plain(self) -> Literal:
        return Literal(self._random.choice(NUMBERS if self._is(0.1) else PLAIN_NUMBERS))

    def _string(self) -> str:
        if self._is(0.6):
            return self._random.choice(STRINGS)
        return "".join(self._random.choices(_LETTERS, k=self._random.randrange(5)))

    def _literals(self) -> Callable[[], Literal]:
        return self._number if self._is(0.7) else lambda: Literal(self._string())

    def _fixed(self) -> Condition:
        """A predicate over one attribute and constants."""
        attribute, kind = self._attribute(), self._random.random()
        if kind < 0.4:
            return Comparison(
                self._random.choice(COMPARATORS), *self._turned(attribute, self._literals()())
            )
        if kind < 0.65:
            literal = self._literals()
            low, high = literal(), literal()
            if self._is(0.8) and low.value > high.value:  # type: ignore[operator]
                low, high = high, low
            return Between(attribute, low, high, self._is(0.15))
        if kind < 0.8:
            literal = self._literals() if self._is(0.9) else lambda: Literal(self._is(0.5))
            items = tuple(literal() for _ in range(self._random.randrange(1, 5)))
            return In(attribute, items, self._is(0.3))
        if kind < 0.87:
            return IsNull(attribute, self._is(0.6))
        if kind < 0.93:
            comparator: Comparator = "=" if self._is(0.5) else "!="
            return Comparison(comparator, attribute, Literal(self._is(0.5)))
        return attribute if kind < 0.98 else TRUE if self._is(0.7) else FALSE

    def _turned(self, left: ValueNode, right: ValueNode) -> tuple[ValueNode, ValueNode]:
        """Either way round."""
        return (left, right) if self._is(0.7) else (right, left)

    def _text_test(self) -> Condition:
        subject: ValueNode = self._attribute()
        if self._is(0.2):
            subject = Call("lower", (subject,))
        if self._is(0.5):
            return TextTest(self._random.choice(TEXT_TESTS), subject, self._string())
        escape = self._random.choice((None, None, "!", "\\"))
        pieces = ["a", "b", "é", "%", "%", "_", "'"]
        if escape is not None:
            pieces += [f"{escape}%", f"{escape}_", f"{escape}{escape}"]
        pattern = "".join(self._random.choices(pieces, k=self._random.randrange(6)))
        return Like(subject, pattern, escape, self._is(0.2))

    # -- what moves --------------------------------------------------------------------------

    def _line(self) -> ValueNode:
        """A bound that is linear in `t`, in one of the ways to write that."""
        product = Arithmetic("*", *self._turned(Time(), self._plain()))
        moved: ValueNode = self._random.choice((Time(), product, product, product))
        if self._is(0.8):
            operands = self._turned(moved, self._plain())
            moved = Arithmetic("+" if self._is(0.7) else "-", *operands)
        if self._is(0.25):
            moved = self._held(moved)
        return moved

    def _held(self, value: ValueNode) -> ValueNode:
        name = "least" if self._is(0.5) else "greatest"
        return Call(name, self._turned(value, self._plain()))

    def _bound(self) -> ValueNode:
        """What a value may be compared with: no attribute occurs in it."""
        kind = self._random.random()
        if kind < 0.5:
            return self._line()
        if kind < 0.6:
            return Arithmetic("+", self._plain(), self._held(Time()))
        if kind < 0.8:
            operator: Operator = "+" if self._is(0.5) else "-"
            inner: ValueNode = self._line() if self._is(0.3) else self._plain()
            return Arithmetic(operator, self._variable(), inner)
        if kind < 0.85:
            return self._variable()
        name = self._random.choice(("sin", "sqrt", "abs", "floor", "ceil", "/", "pow", "-"))
        if name == "/":
            return Arithmetic("/", self._plain(), self._line())
        if name == "pow":
            return Call("pow", (self._line(), Literal(2)))
        return Negation(self._line()) if name == "-" else Call(name, (self._line(),))

    def _bounded(self) -> Condition:
        sides = self._turned(self._attribute(), self._bound())
        return Comparison(self._random.choice(COMPARATORS), *sides)

    def _travelling(self) -> Condition:
        """An interval of which both ends move alike, as an area that travels has them."""
        shift: ValueNode = Arithmetic("*", self._plain(), Time())
        if self._is(0.3):
            shift = self._variable()
        ends = [Arithmetic("+", self._plain(), shift), Arithmetic("+", self._plain(), shift)]
        return Between(self._attribute(), ends[0], ends[1], self._is(0.1))

    def _following(self) -> Condition:
        if self._is(0.2):
            return IsNull(self._variable(), self._is(0.5)) if self._is(0.7) else self._variable()
        if self._is(0.3):
            literal = self._literals()()
            return Comparison(self._random.choice(COMPARATORS), self._variable(), literal)
        return Comparison(self._random.choice(COMPARATORS), self._attribute(), self._variable())

    def _computed(self) -> Condition:
        """Arithmetic over attributes, which no index can hold."""
        left: ValueNode = self._attribute()
        if self._is(0.8):
            other = self._random.choice((self._attribute, self._plain, self._variable, Time))()
            left = Arithmetic(self._random.choice(OPERATORS), *self._turned(left, other))
        right = self._attribute() if self._is(0.3) else self._plain()
        return Comparison(self._random.choice(COMPARATORS), left, right)

    def _odd(self) -> Condition:
        kind = self._random.random()
        if kind < 0.3:
            return Between(Time(), self._plain(), self._plain(), self._is(0.3))
        if kind < 0.6:
            here = (self._attribute(), self._attribute(), self._plain(), self._variable())
            return Comparison("<", Call("distance", here), Literal(1e6))
        attribute = self._attribute()
        return Between(attribute, self._bound(), self._bound(), self._is(0.3))

    # -- publications and states -------------------------------------------------------------

    def value(self) -> Any:
        """Any value, of any type."""
        kind = self._random.random()
        if kind < 0.6:
            return self._number().value
        if kind < 0.8:
            return self._string()
        return self._is(0.5) if kind < 0.9 else self._random.choice(OPAQUE)

    def state(self) -> dict[str, Any]:
        """Some variables of a subscriber; mostly numbers to compute with."""
        values = self.value if self._is(0.3) else (lambda: self._plain().value)
        found: dict[str, Any] = {name: values() for name in ("x", "y") if self._is(0.8)}
        if self._is(0.5):
            found["battery"] = {"level": values()} if self._is(0.9) else values()
        return found

    def publication(self, near: Sequence[Subscription], moment: Moment) -> dict[str, Any]:
        """A publication that stands on the bounds of some subscriptions at a moment."""
        found: dict[str, Any] = {}
        for subscription in near:
            for path, values in edges(subscription, moment).items():
                if self._is(0.95):
                    value = self._random.choice(values) if self._is(0.9) else self.value()
                    _put(found, path, value)
        if self._is(0.3):
            _put(found, self._random.choice(self._paths), self.value())
        return found


def edges(subscription: Subscription, moment: Moment) -> dict[Path, list[Any]]:
    """By attribute, what it is compared with at a moment, and the direct neighbours of that."""
    found: dict[Path, list[Any]] = {}
    for node in walk(subscription.condition):
        values = _with_neighbours(_compared_with(node, moment))
        for part in walk(node):
            if type(part) is Attribute:
                found.setdefault(part.path, []).extend(values)
    return {path: values or [True, False, None, 0] for path, values in found.items()}


def _compared_with(node: Node, moment: Moment) -> list[Any]:
    """Nothing, if the node is no predicate with constants."""
    match node:
        case In(items=items):
            return [item.value for item in items]
        case Like(pattern=pattern):
            return [pattern, pattern.replace("%", "").replace("_", "a")]
        case TextTest(text=text):
            return [text, f"{text}b", f"B{text}"]
        case Comparison(left=left, right=right):
            return _worth((left, right), moment)
        case Between(value=value, low=low, high=high):
            return _worth((value, low, high), moment)
        case _:
            return []


def _worth(nodes: Sequence[ValueNode], moment: Moment) -> list[Any]:
    """What those nodes that no publication decides are worth, if anything."""
    decided = [node for node in nodes if not any(type(part) is Attribute for part in walk(node))]
    values = (value_of(node, {}, moment.t, moment.me) for node in decided)
    return [value for value in values if value is not None]


def _with_neighbours(values: list[Any]) -> list[Any]:
    found = list(values)
    for value in values:
        if type(value) is str:
            found.append(value + "\0")
        elif is_number(value):
            around = (next_number(value), previous_number(value), float(value))
            found += [number for number in around if math.isfinite(number)]
    return found


def _put(publication: dict[str, Any], path: Path, value: Any) -> None:
    """Set a value at a path, where nothing is yet and nothing stands in the way."""
    inside = publication
    for name in path[:-1]:
        deeper = inside.setdefault(name, {})
        if not isinstance(deeper, dict):
            return
        inside = deeper
    inside.setdefault(path[-1], value)
