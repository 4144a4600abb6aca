"""Envelopes: what a subscription with `me.` can want while its subscriber stays near.

Another broker does not have the variables of a subscriber here. It gets the area that the
subscription cannot leave as long as each numeric variable stays within a range, and everything
else keeps its value. Only when a variable is about to leave its range (the next step of the same
size would) is another envelope sent; one that has left it already is sent at once.

The ranges are a fraction of the area's size. The fraction doubles when an envelope does not last,
and is halved when it lasts long, between `FRACTION_MIN` and `FRACTION_MAX`: that bounds the false
forwards as well as the messages. A range reaches further in the direction of travel.

Where bounds use `t` beside `me.`, the envelope also covers a stretch of time, and is renewed
before its end. A check of a new state takes a microsecond for each variable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from rove.lang.bounds import Ranges, enclose
from rove.lang.normal_form import (
    Conjunction,
    compared_conjunction,
    comparison_set,
    restrict,
    restricted_conjunction,
)
from rove.lang.oracle import State
from rove.lang.sets import NUMBERS, ValueSet, after
from rove.lang.tree import (
    Attribute,
    Call,
    Comparison,
    Literal,
    Me,
    Node,
    Time,
    ValueNode,
    ValueType,
    rebuilt,
    type_of,
    walk,
)
from rove.lang.values import OPAQUE, is_number, look_up
from rove.mesh.interest.regions import (
    conjunction_bounds,
    hull_of_bounds,
    mentions,
    round_down,
    round_up,
)

LASTS_S = 10.0
"""How long an envelope should last, and how far ahead one covers bounds that use `t`."""
RENEWED_BEFORE_S = 2.0
"""How long before its end an envelope is renewed."""
FRACTION_MIN = 1 / 32
FRACTION_MAX = 1 / 2
"""How far a variable may move, as a fraction of the narrowest side of the area."""
_FRACTION_FIRST = 1 / 8
_AHEAD = 0.75
"""How much further a range reaches in the direction of travel, as a fraction of its half."""


class Surroundings(msgspec.Struct, frozen=True, eq=False):
    """The states for which an envelope was made."""

    ranges: dict[Me, tuple[float, float]]
    """Of numeric variables."""
    fixed: dict[Me, object]
    """The exact values of all other variables; None for one that is missing."""
    until_s: float = math.inf

    def contain(self, state: State) -> bool:
        """Whether the envelope is valid for a state."""
        return all(
            is_number(value := look_up(state, me.path)) and low <= value <= high  # type: ignore[operator]
            for me, (low, high) in self.ranges.items()
        ) and all(_is_same(look_up(state, me.path), old) for me, old in self.fixed.items())


def _is_same(a: object, b: object) -> bool:
    return type(a) is type(b) and (a is b or a == b) and not is_number(a)


class Envelope:
    """The envelope of one subscription, made anew as its subscriber moves."""

    def __init__(self, conjunctions: tuple[Conjunction, ...], accepted_at_s: float) -> None:
        self._conjunctions = conjunctions
        self._accepted_at_s = accepted_at_s
        nodes = [n for c in conjunctions for top in (*c.sets, *c.atoms) for n in walk(top)]
        self._variables = tuple(dict.fromkeys(n for n in nodes if type(n) is Me))
        self._uses_time = mentions(conjunctions, Time)
        self._fraction = _FRACTION_FIRST
        self._made_at_s = -math.inf
        self._first: dict[Me, float] = {}
        """Where the numeric variables were when the envelope was made."""
        self._last: dict[Me, float] = {}
        """Where they were last."""
        self._around: Surroundings | None = None

    @property
    def until_s(self) -> float:
        """When it has to be renewed although nothing moves."""
        return math.inf if self._around is None else self._around.until_s - RENEWED_BEFORE_S

    def is_due(self, state: State, now_s: float) -> bool:
        """Whether it has been left, or is about to be."""
        if self._around is None or now_s >= self.until_s or not self._around.contain(state):
            return True
        about_to_leave = False
        for me, (low, high) in self._around.ranges.items():
            value = float(look_up(state, me.path))  # type: ignore[arg-type]
            ahead = 2 * value - self._last[me]
            self._last[me] = value
            about_to_leave = about_to_leave or not low <= ahead <= high
        return about_to_leave

    def renew(self, state: State, now_s: float) -> tuple[Conjunction, ...]:
        """What is wanted around a state, without `me.`."""
        self._adapt(now_s)
        values = {me: look_up(state, me.path) for me in self._variables}
        numbers = {me: value for me, value in values.items() if is_number(value)}
        fixed = {me: value for me, value in values.items() if me not in numbers}
        margin = self._fraction * self._side(numbers, fixed, now_s)
        ranges = {me: self._range(me, float(value), margin) for me, value in numbers.items()}  # type: ignore[arg-type]
        self._made_at_s = now_s
        self._first = {me: float(value) for me, value in numbers.items()}  # type: ignore[arg-type]
        self._last = dict(self._first)
        until_s = now_s + LASTS_S if self._uses_time else math.inf
        self._around = Surroundings(ranges, fixed, until_s)
        return enclosed(self._conjunctions, self._around, self._times(now_s))

    def _adapt(self, now_s: float) -> None:
        lasted_s = now_s - self._made_at_s
        if lasted_s < LASTS_S / 2:
            self._fraction = min(2 * self._fraction, FRACTION_MAX)
        elif lasted_s > 2 * LASTS_S and self._made_at_s > -math.inf:
            self._fraction = max(self._fraction / 2, FRACTION_MIN)

    def _times(self, now_s: float) -> tuple[float, float]:
        t = now_s - self._accepted_at_s
        return t - RENEWED_BEFORE_S, t + LASTS_S + RENEWED_BEFORE_S

    def _side(self, numbers: Mapping[Me, object], fixed: dict[Me, object], now_s: float) -> float:
        """The narrowest side of the area where the subscriber is; a guess if it has none."""
        here = {me: (round_down(v), round_up(v)) for me, v in numbers.items()}  # type: ignore[arg-type]
        found = enclosed(self._conjunctions, Surroundings(here, fixed), self._times(now_s))
        boxes = [conjunction_bounds(one) for one in found]
        sides = [high - low for low, high in hull_of_bounds(boxes).values()] if boxes else []
        sides = [side for side in sides if 0 < side < 1e300]
        return min(sides) if sides else max((abs(low) for low, _ in here.values()), default=1.0)

    def _range(self, me: Me, value: float, margin: float) -> tuple[float, float]:
        margin = min(margin, 1e300)
        before = self._first.get(me, value)
        ahead = _AHEAD * margin * ((value > before) - (value < before))
        # The value itself may be an integer that no float is.
        low = min(value - margin + ahead, math.nextafter(value, -math.inf))
        high = max(value + margin + ahead, math.nextafter(value, math.inf))
        return low, high


# -- without `me.` ---------------------------------------------------------------------


def enclosed(
    conjunctions: tuple[Conjunction, ...], around: Surroundings, times: tuple[float, float]
) -> tuple[Conjunction, ...]:
    """Conjunctions without `me.` that hold at least where these do, for all these states."""
    ranges: dict[ValueNode, tuple[float, float]] = dict(around.ranges.items())
    ranges[Time()] = times
    found = (_enclosed(conjunction, around, ranges) for conjunction in conjunctions)
    return tuple(conjunction for conjunction in found if conjunction is not None)


def _enclosed(conjunction: Conjunction, around: Surroundings, ranges: Ranges) -> Conjunction | None:
    sets: dict[ValueNode, ValueSet] = {}
    atoms: set[Comparison] = set()
    for subject, allowed in conjunction.sets.items():
        part = _set_enclosed(subject, allowed, around)
        if part is None or not restrict(sets, part):
            return None
    for atom in conjunction.atoms:
        part = _atom_enclosed(atom, around, ranges)
        if part is None or not restrict(sets, part):
            return None
        atoms |= part.atoms
    return Conjunction(sets, frozenset(atoms))


def _set_enclosed(
    subject: ValueNode, allowed: ValueSet, around: Surroundings
) -> Conjunction | None:
    if not _has(subject, Me):
        return Conjunction({subject: allowed})
    if type(subject) is Me:
        if subject in around.fixed:
            return Conjunction() if around.fixed[subject] in allowed else None
        low, high = around.ranges[subject]
        meets = any(start <= high and low < end for start, end in allowed.numbers)
        return Conjunction() if meets else None
    known = _with_fixed(subject, around)
    if known is None:
        return None
    # What is computed of a publication and a moving variable may be anything.
    return Conjunction() if _has(known, Me) else restricted_conjunction(known, allowed)


def _atom_enclosed(atom: Comparison, around: Surroundings, ranges: Ranges) -> Conjunction | None:
    if not (_has(atom.left, Me) or _has(atom.right, Me)):
        return Conjunction({}, frozenset([atom]))
    left, right = _with_fixed(atom.left, around), _with_fixed(atom.right, around)
    if left is None or right is None:
        return None
    if not (_has(left, Me) or _has(right, Me)):
        if not _are_comparable(left, right):
            return None
        return compared_conjunction(Comparison(atom.comparator, left, right))
    if _has(left, Me) or _has(left, Time) or _has(right, Attribute):
        return Conjunction()
    value = enclose(right, ranges)
    if value.never or type_of(left) not in (ValueType.ANY, ValueType.NUMBER):
        return None
    if atom.comparator in (">", ">="):
        allowed = comparison_set(">=", value.low)
    elif atom.comparator in ("<", "<="):
        allowed = comparison_set("<=", value.high)
    elif atom.comparator == "=":
        allowed = ValueSet(((value.low, after(value.high)),))
    else:
        allowed = NUMBERS
    return restricted_conjunction(left, allowed)


def _are_comparable(left: ValueNode, right: ValueNode) -> bool:
    """Whether a comparison can hold, and so can be written: `abs(x) < 'a'` can be neither."""
    return len({type_of(left), type_of(right)} - {ValueType.ANY}) < 2


def _has(node: ValueNode, kind: type[Node]) -> bool:
    return any(type(part) is kind for part in walk(node))


def _with_fixed(node: ValueNode, around: Surroundings) -> ValueNode | None:
    """`node` with the variables that are no numbers put in; None if it has no value then."""
    used = [part for part in walk(node) if type(part) is Me and part in around.fixed]
    if any(around.fixed[me] is None or around.fixed[me] is OPAQUE for me in used):
        return None
    # Only lower(…) computes with what is no number.
    if used and not (type(node) is Me or (type(node) is Call and node.name == "lower")):
        return None
    if used and type(node) is Call and not isinstance(around.fixed[used[0]], str):
        return None

    def change(part: Node) -> Node:
        if type(part) is Me and part in around.fixed:
            return Literal(around.fixed[part])  # type: ignore[arg-type]
        return part

    return rebuilt(node, change) if used else node
