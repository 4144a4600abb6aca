"""What a subscription wants, as far as a summary has to look into it.

A region is a disjunction of conjunctions (`rove.lang.normal_form`), with a box around it: for each
attribute that every conjunction restricts to numbers, the least and the greatest of them. The box
is in floats, rounded outwards, so that NumPy compares what the language compares exactly.

One region covers another only if that can be read off part by part, conjunction by conjunction,
which takes microseconds; `rove.lang.algebra` could prove more, in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeAlias
from zlib import crc32

import msgspec

from rove.lang import parse, to_text
from rove.lang.canonical_form import as_condition
from rove.lang.errors import LanguageError
from rove.lang.lexer import forbidden_in
from rove.lang.limits import NORMALISING_STEPS_MAX, TEXT_BYTES_MAX
from rove.lang.normal_form import Conjunction, NormalForm, includes
from rove.lang.patterns import StepBudget
from rove.lang.sets import IS_OPAQUE, PRESENT, ValueSet, is_point, normal_spans
from rove.lang.tree import Attribute, Me, Node, Time, ValueNode, walk
from rove.lang.values import Number, Path

Bounds: TypeAlias = dict[Path, tuple[float, float]]
"""For an attribute that must be a number: the least, and the end, which is not included."""

ALL_BITS = 2**64 - 1
_STRINGS_MAX = 16
"""Strings of one attribute that a hull lists."""
_ATTRIBUTES_MAX = 16
"""Attributes that a hull restricts."""
ALL = Conjunction()
"""Holds for every publication."""


class Region(msgspec.Struct, frozen=True, eq=False):
    """Conjunctions, with their box."""

    conjunctions: tuple[Conjunction, ...]
    bounds: Bounds
    is_box: bool
    """Whether the box is all that there is: what lies in it matches."""
    uses_time: bool = False
    masks: dict[Path, int] = {}
    """For an attribute that must be one of some strings, a bit for each of them."""


def region_of(conjunctions: tuple[Conjunction, ...]) -> Region:
    """The region of a normal form without `me.`."""
    boxes = [conjunction_bounds(conjunction) for conjunction in conjunctions]
    bounds = hull_of_bounds(boxes) if boxes else {}
    is_box = len(conjunctions) == 1 and _is_box(conjunctions[0], bounds)
    masks = _masks(conjunctions[0]) if len(conjunctions) == 1 and not is_box else {}
    return Region(conjunctions, bounds, is_box, not is_box and mentions(conjunctions, Time), masks)


def _masks(conjunction: Conjunction) -> dict[Path, int]:
    found: dict[Path, int] = {}
    for subject, allowed in conjunction.sets.items():
        if type(subject) is not Attribute or not allowed.strings:
            continue
        if allowed.numbers or allowed.facts or allowed.patterned:
            continue
        if all(is_point(*span) for span in allowed.strings):
            bits = {crc32(low.encode()) % 64 for low, _ in allowed.strings}
            found[subject.path] = sum(1 << bit for bit in bits)
    return found


def conjunction_bounds(conjunction: Conjunction) -> Bounds:
    """The box around a conjunction."""
    found: Bounds = {}
    for subject, allowed in conjunction.sets.items():
        if type(subject) is Attribute and allowed.numbers:
            if allowed.strings or allowed.facts:
                continue
            spans = allowed.numbers
            found[subject.path] = round_down(spans[0][0]), round_up(spans[-1][1])
    return found


def hull_of_bounds(boxes: Iterable[Bounds]) -> Bounds:
    """The box around all of `boxes`, of which there is at least one."""
    first, *others = boxes
    found = dict(first)
    for box in others:
        for path in list(found):
            inner = box.get(path)
            if inner is None:
                del found[path]
            else:
                low, high = found[path]
                found[path] = min(low, inner[0]), max(high, inner[1])
    return found


def _is_box(conjunction: Conjunction, bounds: Bounds) -> bool:
    """Whether the conjunction is its box exactly: one span each, with bounds that are floats."""
    if conjunction.atoms or len(conjunction.sets) != len(bounds):
        return False
    return all(
        len(allowed.numbers) == 1 and allowed.numbers[0] == bounds[subject.path]  # type: ignore[union-attr]
        for subject, allowed in conjunction.sets.items()
    )


def region_covers(a: Region, b: Region, *, same_time: bool) -> bool:
    """Whether everything that `b` matches, `a` certainly matches.

    `same_time` says that `t` is the same for both.
    """
    if a.is_box:
        return bounds_cover(a.bounds, b.bounds)
    if a.uses_time and b.uses_time and not same_time:
        return False
    effort = StepBudget(NORMALISING_STEPS_MAX)
    return all(
        any(includes(outer, inner, effort) for outer in a.conjunctions) for inner in b.conjunctions
    )


def bounds_cover(a: Bounds, b: Bounds) -> bool:
    """Whether the box `b` lies in the box `a`."""
    for path, (low, high) in a.items():
        inner = b.get(path)
        if inner is None or inner[0] < low or high < inner[1]:
            return False
    return True


def hull(a: Region, b: Region) -> Region:
    """A region of one conjunction that contains two others of one conjunction each.

    For each attribute that both restrict, numbers become one span, and sets of strings are united.
    Everything else is left out.
    """
    one, other = a.conjunctions[0].sets, b.conjunctions[0].sets
    sets: dict[ValueNode, ValueSet] = {}
    for subject, allowed in one.items():
        if type(subject) is Attribute and subject in other and len(sets) < _ATTRIBUTES_MAX:
            both = _hull_of_sets(allowed, other[subject])
            if both is not None:
                sets[subject] = both
    return region_of((Conjunction(sets),)) if sets else region_of((ALL,))


def _hull_of_sets(a: ValueSet, b: ValueSet) -> ValueSet | None:
    """A set that contains two others; None if it would contain everything."""
    facts = a.facts | b.facts
    numbers = a.numbers + b.numbers
    if numbers:
        low, high = min(span[0] for span in numbers), max(span[1] for span in numbers)
        numbers = ((round_down(low), round_up(high)),)
    strings, fitting, missing = a.strings, a.fitting, a.missing
    if not a.strings:
        strings, fitting, missing = b.strings, b.fitting, b.missing
    elif b.strings:
        strings = normal_spans(a.strings + b.strings)
        if (a.fitting, a.missing) != (b.fitting, b.missing):
            fitting = missing = frozenset()
        if len(strings) > _STRINGS_MAX:
            strings = ((strings[0][0], strings[-1][1]),)
    found = ValueSet(numbers, strings, fitting, missing, facts)
    # Objects and arrays cannot be asked for alone.
    return None if facts & IS_OPAQUE and found != PRESENT else found


def box_conjunction(bounds: Bounds) -> Conjunction:
    """The conjunction that is a box."""
    sets = {Attribute(path): ValueSet((bound,)) for path, bound in bounds.items()}
    return Conjunction(sets) if sets else ALL  # type: ignore[arg-type]


def mentions(conjunctions: Iterable[Conjunction], kind: type[Time] | type[Me]) -> bool:
    """Whether `t` (Time) or a variable of the subscriber (Me) occurs."""
    return any(
        type(part) is kind
        for conjunction in conjunctions
        for node in _nodes(conjunction)
        for part in walk(node)
    )


def _nodes(conjunction: Conjunction) -> Iterable[Node]:
    yield from conjunction.sets
    yield from conjunction.atoms


def round_down(value: Number) -> float:
    """The greatest float that is no greater."""
    rounded = float(value)
    return math.nextafter(rounded, -math.inf) if rounded > value else rounded


def round_up(value: Number) -> float:
    """The least float that is no less."""
    rounded = float(value)
    return math.nextafter(rounded, math.inf) if rounded < value else rounded


# -- expressions -----------------------------------------------------------------------


def expression_of(conjunctions: tuple[Conjunction, ...]) -> str | None:
    """A filter expression that matches at least what the conjunctions match; None for everything.

    It is exact unless the language does not allow the result: what is put in for `me.` may be
    longer than it was, or hold characters that no expression may.
    """
    if any(conjunction == ALL for conjunction in conjunctions):
        return None
    text = to_text(as_condition(NormalForm(conjunctions)))
    is_plain = all(map(_is_plain, conjunctions)) and not forbidden_in(text)
    if is_plain and len(text) < _SURE_BYTES:
        return text
    if len(text.encode()) <= TEXT_BYTES_MAX:
        try:
            parse(text)
        except LanguageError:
            pass
        else:
            return text
    bounds = hull_of_bounds(conjunction_bounds(one) for one in conjunctions)
    return expression_of((box_conjunction(dict(list(bounds.items())[:8])),))


_SURE_BYTES = 1_000
"""A text that is shorter is within all limits if nothing in it is computed."""


def _is_plain(conjunction: Conjunction) -> bool:
    return not conjunction.atoms and all(type(s) is Attribute for s in conjunction.sets)
