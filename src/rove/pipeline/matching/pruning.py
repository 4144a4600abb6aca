"""Pruning: which columns, files and row groups of a typed table an expression can need.

Each conjunction of the normal form says which values an attribute may have. This gives the columns
to read, the files whose rows may be in the right place, and a filter by ranges, which Parquet
checks against its statistics for each row group. Conditions such as `distance(lat, long, …) < 500`
or `x + 2 > t` are inverted: which values must `lat`, `long` and `x` have, if all other values stay
within their bounds?

Pruning is conservative: a row that is skipped cannot match; all others are matched exactly, by the
broker's own matcher. If a value may be in several columns (its type changed), or outside of
columns, each of these may keep the row; a conjunction that holds for a missing attribute does not
restrict it. The place of a file's rows comes from its statistics, not from the names of cells, so
the exceptions at the borders of zones do not matter.

Costs a fraction of a millisecond for an expression, and a microsecond for each file.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain, product
from operator import and_, or_
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from rove.lang.bounds import Enclosure, enclose
from rove.lang.functions import EARTH_RADIUS_M
from rove.lang.limits import INTEGER_MAX, INTEGER_MIN
from rove.lang.normal_form import Conjunction, mirrored_comparator, normalise
from rove.lang.partial_evaluation import at_moment
from rove.lang.sets import (
    ALL_NUMBERS,
    EMPTY,
    IS_FALSE,
    IS_NULL,
    IS_OPAQUE,
    IS_TRUE,
    LOWEST,
    NUMBERS,
    STRINGS,
    TOP,
    Bound,
    Spans,
    ValueSet,
    after,
    intersection,
    normal_spans,
    prefix_span,
)
from rove.lang.tree import (
    Arithmetic,
    Attribute,
    Call,
    Comparison,
    IsNull,
    Negation,
    Subscription,
    Time,
    ValueNode,
    ValueType,
    parts,
    type_of,
)
from rove.lang.values import Path, previous_number
from rove.pipeline.spark.dialect import quoted
from rove.pipeline.tables.grid import NONE
from rove.pipeline.tables.table import REST, TableFile, TableSchema

if TYPE_CHECKING:
    import pyarrow.compute as pc
    from pyspark.sql import Column

SPANS_MAX: Final = 32
"""Ranges of an attribute in a filter; more are replaced by one that encloses them."""
TESTS_MAX: Final = 1_000
"""Tests in a filter; a larger filter costs more than it saves, and is dropped."""
TOPIC: Final[Path] = ("topic",)

_MAX: Final = sys.float_info.max
_SLACK: Final = 1e-12
"""Relative to the largest number in an operation: far more than rounding errors."""
_LEAST: Final = 1e-300
"""Below this, products and quotients lose all their digits."""
_CAP_DEGREES_MAX: Final = 80.0
"""Larger circles hardly exclude rows, and their bounds are hard to compute."""
_CAPS_MAX: Final = 3
_COMPARABLE: Final = ValueSet(ALL_NUMBERS, STRINGS.strings, facts=IS_TRUE | IS_FALSE)


class RangeTest(msgspec.Struct, frozen=True):
    """`low <= column < high`; None is an open end, and without ends any value passes."""

    column: str
    low: Bound = None
    high: Bound = None

    @property
    def is_point(self) -> bool:
        """Whether only one string, integer or boolean passes; floats have two zeros."""
        kind = type(self.low)
        if kind is bool:
            return True
        return (kind is str or kind is int) and self.high == _next(self.low)


Filter: TypeAlias = tuple[tuple[tuple[RangeTest, ...], ...], ...]
"""An OR of ANDs of ORs of tests."""
EVERY_ROW: Final[Filter] = ((),)

Needs: TypeAlias = Mapping[Path, ValueSet]
"""The values that attributes must have for a conjunction to hold; others may have any."""


class ReadPlan(msgspec.Struct, frozen=True):
    """What to read of a table."""

    columns: tuple[str, ...]
    """Columns of attributes, without those that every table has."""
    filter: Filter
    """If it is empty, no row can match."""
    areas: tuple[tuple[Spans, Spans], ...]
    """Where rows with a place can match: spans of latitude and of longitude."""

    def may_hold(self, file: TableFile) -> bool:
        """Whether some row of a file may match, by the place of its rows."""
        if not self.filter:
            return False
        if file.cell == NONE or file.box is None:
            return True
        south, north, west, east = file.box
        return any(
            _meets(latitudes, south, north) and _meets(longitudes, west, east)
            for latitudes, longitudes in self.areas
        )


class PrunedExpression(msgspec.Struct, frozen=True):
    """An expression, with the bounds of `t` and the state of its subscriber."""

    subscription: Subscription
    t: tuple[float, float] = (0.0, _MAX)
    """The least and the greatest possible `t`."""
    me: Mapping[str, object] = {}


def plan(
    schema: TableSchema, wanted: Sequence[PrunedExpression], topic_filter: str = ""
) -> ReadPlan:
    """What these expressions need of a table, together."""
    alternatives = [
        needed
        for one in wanted
        for conjunction in normalise(one.subscription).conjunctions
        for needed in needs(conjunction, one.t, one.me)
    ]
    if begin := _fixed_part(topic_filter):
        on_topic = ValueSet(strings=(prefix_span(begin),))
        narrowed = [_restricted(needed, TOPIC, on_topic) for needed in alternatives]
        alternatives = [needed for needed in narrowed if needed is not None]
    places = _ColumnFinder(schema)
    return ReadPlan(
        places.read_for([one.subscription for one in wanted]),
        _small(places.filter_of(alternatives)),
        tuple((_numbers(one, schema.lat), _numbers(one, schema.long)) for one in alternatives),
    )


def _fixed_part(topic_filter: str) -> str:
    """The common begin of all topics that a filter matches; `a/#` matches `a` itself."""
    levels = topic_filter.split("/")
    fixed = next((i for i, level in enumerate(levels) if level in ("+", "#")), len(levels))
    return "/".join(levels[:fixed])


def _numbers(needed: Needs, path: Path) -> Spans:
    return needed[path].numbers if path in needed else ALL_NUMBERS


def _meets(spans: Spans, low: float, high: float) -> bool:
    return any(begin <= high and low < end for begin, end in spans)


# -- values of attributes ----------------------------------------------------------------------


def needs(
    conjunction: Conjunction, t: tuple[float, float], me: Mapping[str, object]
) -> Iterator[Needs]:
    """Alternatives, one of which holds wherever the conjunction does; none if it never holds."""
    known = at_moment(conjunction, None, me)
    if known is None:
        return
    first: Needs | None = {
        subject.path: allowed
        for subject, allowed in known.sets.items()
        if isinstance(subject, Attribute)
    }
    assert first is not None
    ranges: dict[ValueNode, tuple[float, float]] = {Time(): t}
    for path, allowed in first.items():
        if allowed.numbers and allowed == ValueSet(allowed.numbers):
            ranges[Attribute(path)] = _hull(allowed.numbers)
    inverter = _Inverter(ranges)
    for subject, allowed in known.sets.items():
        if not isinstance(subject, Attribute):
            inverter.restrict(subject, allowed)
    for atom in known.atoms:
        inverter.compare(atom)
    yield from inverter.alternatives(first)


def _restricted(needed: Needs, path: Path, allowed: ValueSet) -> Needs | None:
    both = intersection(needed[path], allowed) if path in needed else allowed
    return None if both == EMPTY else {**needed, path: both}


def _hull(spans: Spans) -> tuple[float, float]:
    """The least and the greatest number, rounded outwards to floats."""
    low, high = spans[0][0], previous_number(spans[-1][1])
    return _float(low, -math.inf), min(_float(high, math.inf), _MAX)


class _Inverter:
    """Collects the restrictions that computed values put on the attributes in them."""

    def __init__(self, ranges: dict[ValueNode, tuple[float, float]]) -> None:
        self._ranges = ranges
        self._restrictions: list[tuple[Path, ValueSet]] = []
        self._caps: list[list[Needs]] = []
        self._is_impossible = False

    def alternatives(self, needed: Needs) -> Iterator[Needs]:
        """The restrictions together with those of `needed`."""
        if self._is_impossible:
            return
        for chosen in product(*self._caps[:_CAPS_MAX]):
            found: Needs | None = needed
            for path, allowed in chain(self._restrictions, *(cap.items() for cap in chosen)):
                found = None if found is None else _restricted(found, path, allowed)
            if found is not None:
                yield found

    def restrict(self, subject: ValueNode, allowed: ValueSet) -> None:
        """A computed value that is compared with constants."""
        if type_of(subject) is not ValueType.NUMBER:
            self._all_are(subject, STRINGS)
            return
        can_be = enclose(subject, self._ranges)
        low, high = _hull(allowed.numbers) if allowed.numbers else (_MAX, -_MAX)
        if can_be.never or high < can_be.low or can_be.high < low:
            self._is_impossible = True
        else:
            self._within(subject, low, high)

    def compare(self, atom: Comparison) -> None:
        """A comparison of two values that vary."""
        kinds = {type_of(atom.left), type_of(atom.right)}
        if ValueType.NUMBER not in kinds:
            comparable = STRINGS if ValueType.STRING in kinds else _COMPARABLE
            self._all_are(atom.left, comparable)
            self._all_are(atom.right, comparable)
            return
        self._bound(atom.left, atom.comparator, enclose(atom.right, self._ranges))
        self._bound(
            atom.right, mirrored_comparator(atom.comparator), enclose(atom.left, self._ranges)
        )

    def _bound(self, node: ValueNode, comparator: str, other: Enclosure) -> None:
        if other.never:
            self._is_impossible = True
            return
        low = other.low if comparator in ("=", ">", ">=") else -_MAX
        high = other.high if comparator in ("=", "<", "<=") else _MAX
        self._within(node, low, high)

    def _all_are(self, node: ValueNode, allowed: ValueSet) -> None:
        """Every attribute in the node has one of these values."""
        match node:
            case Attribute(path=path):
                self._restrictions.append((path, allowed))
            case Call(name="lower", arguments=arguments):
                for argument in arguments:
                    self._all_are(argument, STRINGS)
            case Call(arguments=arguments):
                for argument in arguments:
                    self._all_are(argument, NUMBERS)
            case Arithmetic(left=left, right=right):
                self._all_are(left, NUMBERS)
                self._all_are(right, NUMBERS)
            case Negation(operand=operand):
                self._all_are(operand, NUMBERS)

    def _within(self, node: ValueNode, low: float, high: float) -> None:
        """The node has a value from `low` to `high`."""
        if low > high:
            self._is_impossible = True
            return
        match node:
            case Attribute(path=path):
                self._restrictions.append((path, ValueSet(((low, after(high)),))))
            case Negation(operand=operand):
                self._within(operand, -high, -low)
            case Arithmetic():
                self._within_arithmetic(node, low, high)
            case Call(name=name, arguments=arguments):
                self._within_call(name, arguments, low, high)

    def _within_arithmetic(self, node: Arithmetic, low: float, high: float) -> None:
        a, b = enclose(node.left, self._ranges), enclose(node.right, self._ranges)
        if a.never or b.never:
            self._is_impossible = True
            return
        match node.operator:
            case "+":
                lefts, rights = _differences(low, high, b), _differences(low, high, a)
            case "-":
                lefts = _differences(low, high, Enclosure(-b.high, -b.low))
                rights = _differences(a.low, a.high, Enclosure(low, high))
            case "*":
                lefts, rights = _quotients(low, high, b), _quotients(low, high, a)
            case _:
                lefts, rights = _products(low, high, b), (-_MAX, _MAX)
        self._within(node.left, *lefts)
        self._within(node.right, *rights)

    def _within_call(
        self, name: str, arguments: tuple[ValueNode, ...], low: float, high: float
    ) -> None:
        match name:
            case "abs":
                self._within(arguments[0], -high, high)
            case "least":
                for argument in arguments:
                    self._within(argument, low, _MAX)
            case "greatest":
                for argument in arguments:
                    self._within(argument, -_MAX, high)
            case "floor" | "ceil":
                self._within(arguments[0], *_wider(low - 1, high + 1))
            case "sqrt":
                root = min(max(high, 0.0), math.sqrt(_MAX) / 2)
                self._within(arguments[0], 0.0, _MAX if root < high else _wider(0, root * root)[1])
            case _:
                for argument in arguments:
                    self._all_are(argument, NUMBERS)
                if name == "distance":
                    self._within_distance(arguments, high)

    def _within_distance(self, arguments: tuple[ValueNode, ...], metres: float) -> None:
        """Restrict a place that is at most `metres` from another one with known bounds."""
        for place, centre in ((arguments[:2], arguments[2:]), (arguments[2:], arguments[:2])):
            lat, long = place
            if isinstance(lat, Attribute) and isinstance(long, Attribute):
                around = [enclose(node, self._ranges) for node in centre]
                cap = _cap(around[0], around[1], metres)
                if cap is not None and lat != long:
                    latitudes, longitudes = cap
                    on_map: Needs = {lat.path: latitudes, long.path: longitudes}
                    self._caps.append([on_map, {lat.path: _OFF_MAP_LATITUDES}])
                    return


_LATITUDES: Final = (-90.0, 90.0)
_LONGITUDES: Final = (-180.0, 180.0)


def _outside(ends: tuple[float, float]) -> Spans:
    return ((LOWEST, ends[0]), (after(ends[1]), math.inf))


_OFF_MAP_LATITUDES: Final = ValueSet(_outside(_LATITUDES))
"""Invalid degrees; `distance` is computed for them, too, and is periodic."""


def _cap(lat: Enclosure, long: Enclosure, metres: float) -> tuple[ValueSet, ValueSet] | None:
    """Valid latitudes, and longitudes, around a place; None if unrestricted."""
    degrees = math.degrees(metres / EARTH_RADIUS_M) * (1 + 1e-9) + 1e-7 if metres < 1e8 else 360.0
    farthest = max(abs(lat.low), abs(lat.high))
    if lat.never or long.never or degrees > _CAP_DEGREES_MAX or farthest > _LATITUDES[1]:
        return None
    south, north = max(lat.low - degrees, -90.0), min(lat.high + degrees, 90.0)
    latitudes = ValueSet(((south, after(north)),))
    if farthest + degrees > 89.9:  # a pole may be inside, and with it all longitudes
        return latitudes, NUMBERS
    ratio = math.sin(math.radians(degrees)) / math.cos(math.radians(farthest))
    aside = math.degrees(math.asin(min(1.0, ratio))) * (1 + 1e-9) + 1e-7
    west, east = long.low - aside, long.high + aside
    if east - west >= 360 or max(abs(west), abs(east)) > 1e6:
        return latitudes, NUMBERS
    turns = 360.0 * math.floor((west + 180) / 360)
    west, east = west - turns - 1e-6, east - turns + 1e-6
    spans = [(west, east), (west - 360, east - 360), *_outside(_LONGITUDES)]
    return latitudes, ValueSet(normal_spans(spans))


def _differences(low: float, high: float, other: Enclosure) -> tuple[float, float]:
    """The bounds of a summand if the sum with another is between `low` and `high`."""
    least = -_MAX if low <= -_MAX or other.high >= _MAX else low - other.high
    greatest = _MAX if high >= _MAX or other.low <= -_MAX else high - other.low
    return (
        _outwards(least, -math.inf, max(abs(low), abs(other.high))),
        _outwards(greatest, math.inf, max(abs(high), abs(other.low))),
    )


def _quotients(low: float, high: float, factor: Enclosure) -> tuple[float, float]:
    """The bounds of a factor if the product with another is between `low` and `high`."""
    if factor.low <= 0 <= factor.high:
        return -_MAX, _MAX
    ends = _wider(low, high)
    return _around([end / other for end in ends for other in (factor.low, factor.high)])


def _products(low: float, high: float, divisor: Enclosure) -> tuple[float, float]:
    """The bounds of a dividend if the quotient is between `low` and `high`."""
    ends = _wider(low, high)
    return _around([end * other for end in ends for other in (divisor.low, divisor.high)])


def _around(values: Sequence[float]) -> tuple[float, float]:
    return _wider(min(values), max(values))


def _wider(low: float, high: float) -> tuple[float, float]:
    return _outwards(low, -math.inf, abs(low)), _outwards(high, math.inf, abs(high))


def _outwards(end: float, towards: float, size: float) -> float:
    """An end of an interval, moved outwards by more than rounding errors of this size."""
    moved = end + math.copysign(min(size, _MAX) * _SLACK + _LEAST, towards)
    return min(max(moved, -_MAX), _MAX)


# -- columns of attributes ---------------------------------------------------------------------


class _ColumnFinder:
    """Finds the columns of a table in which an attribute may have its values."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self._by_path = schema.by_path()

    def read_for(self, subscriptions: Iterable[Subscription]) -> tuple[str, ...]:
        """All columns that may have an attribute of the expressions."""
        found: dict[str, None] = {}
        for node in chain.from_iterable(map(parts, subscriptions)):
            if isinstance(node, Attribute):
                found.update(dict.fromkeys(self._of(node.path)))
            elif isinstance(node, IsNull) and isinstance(node.value, Attribute):
                found.update(dict.fromkeys(self._inside(node.value.path)))
        if self._schema.has_rest:
            found[REST] = None
        return tuple(found)

    def _of(self, path: Path) -> Iterator[str]:
        """The columns of an attribute, and of outer objects that are stored as JSON."""
        if path in self._by_path:
            yield from self._by_path[path].columns.values()
        yield from self._around(path)

    def _around(self, path: Path) -> Iterator[str]:
        for length in range(1, len(path)):
            outer = self._by_path.get(path[:length])
            if outer is not None and "json" in outer.columns:
                yield outer.columns["json"]

    def _inside(self, path: Path) -> Iterator[str]:
        for attribute in self._schema.attributes:
            if attribute.path[: len(path)] == path and len(attribute.path) > len(path):
                yield from attribute.columns.values()

    def filter_of(self, alternatives: Iterable[Needs]) -> Filter:
        """A filter that passes all rows of the alternatives, and perhaps others."""
        found: dict[tuple[tuple[RangeTest, ...], ...], None] = {}
        for needed in alternatives:
            clauses = [self._clause(path, allowed) for path, allowed in needed.items()]
            demanding = tuple(clause for clause in clauses if clause is not None)
            if all(demanding):
                found[demanding] = None
        return EVERY_ROW if () in found else tuple(found)

    def _clause(self, path: Path, allowed: ValueSet) -> tuple[RangeTest, ...] | None:
        """Tests, one of which holds if the attribute is allowed; None if it may be missing."""
        if allowed.facts & IS_NULL:
            return None
        tests = [RangeTest(column) for column in self._around(path)]
        attribute = self._by_path.get(path)
        if path == TOPIC:
            tests += _of_strings("topic", allowed)
        for kind, column in attribute.columns.items() if attribute is not None else ():
            tests += _TESTS[kind](column, allowed)
        if allowed.facts & IS_OPAQUE:
            tests += map(RangeTest, self._inside(path))
        if self._schema.has_rest and (attribute is None or allowed.facts & IS_OPAQUE):
            tests.append(RangeTest(REST))
        any_value = {test.column for test in tests if test.low is None and test.high is None}
        kept = [test for test in tests if test.column not in any_value]
        return (*map(RangeTest, sorted(any_value)), *kept)


def _of_floats(column: str, allowed: ValueSet) -> Iterator[RangeTest]:
    if allowed.facts & IS_OPAQUE:  # infinities cannot be compared
        yield RangeTest(column)
        return
    for low, high in _few(allowed.numbers):
        begin, end = _float(low, math.inf), _float(high, math.inf)
        # There are two zeros, and some readers order them.
        begin = -0.0 if begin == 0 else begin
        yield RangeTest(column, None if begin <= LOWEST else begin, None if end > _MAX else end)


def _of_integers(column: str, allowed: ValueSet) -> Iterator[RangeTest]:
    for low, high in _few(allowed.numbers):
        begin = math.ceil(low)
        end = INTEGER_MAX + 1 if math.isinf(high) else math.ceil(high)
        if begin <= INTEGER_MAX and end > INTEGER_MIN and begin < end:
            yield RangeTest(
                column,
                None if begin <= INTEGER_MIN else begin,
                None if end > INTEGER_MAX else end,
            )


def _of_strings(column: str, allowed: ValueSet) -> Iterator[RangeTest]:
    for low, high in _few(allowed.strings):
        yield RangeTest(column, low or None, None if high is TOP else high)


def _of_truths(column: str, allowed: ValueSet) -> Iterator[RangeTest]:
    truths = [fact for fact in (IS_TRUE, IS_FALSE) if allowed.facts & fact]
    if len(truths) == 2:
        yield RangeTest(column)
    elif truths:
        yield RangeTest(column, low=truths[0] == IS_TRUE)


def _of_json(column: str, allowed: ValueSet) -> Iterator[RangeTest]:
    if allowed.facts & IS_OPAQUE:
        yield RangeTest(column)


def _of_marks(column: str, allowed: ValueSet) -> Iterator[RangeTest]:
    return iter(())


_TESTS: Final = {
    "double": _of_floats,
    "long": _of_integers,
    "string": _of_strings,
    "boolean": _of_truths,
    "json": _of_json,
    "int": _of_marks,
}


def _few(spans: Spans) -> Spans:
    return spans if len(spans) <= SPANS_MAX else ((spans[0][0], spans[-1][1]),)


def _float(number: Any, towards: float) -> float:
    """The nearest float in a direction."""
    try:
        rounded = float(number)
    except OverflowError:
        return towards
    if (rounded < number) if towards > 0 else (rounded > number):
        return math.nextafter(rounded, towards)
    return rounded


def _next(value: Any) -> Any:
    return value + "\0" if type(value) is str else value + 1


def _small(found: Filter) -> Filter:
    tests = sum(len(clause) for conjunction in found for clause in conjunction)
    return found if tests <= TESTS_MAX else EVERY_ROW


# -- the filter for readers --------------------------------------------------------------------


def spark_filter(found: Filter) -> Column:
    """The filter as a condition of Spark, which pushes it down to Parquet."""
    from pyspark.sql import functions as f

    def tested(test: RangeTest) -> Any:
        column = f.col(quoted(test.column))
        return _tested(test, column, column.isNotNull, f.lit)

    return _combined(found, tested, f.lit)


def arrow_filter(found: Filter) -> pc.Expression:
    """The filter as an expression of Arrow, which pushes it down to Parquet."""
    import pyarrow.compute as pc

    def tested(test: RangeTest) -> Any:
        column = pc.field(test.column)
        return _tested(test, column, column.is_valid, pc.scalar)

    return _combined(found, tested, pc.scalar)


def _tested(test: RangeTest, column: Any, is_there: Any, literal: Any) -> Any:
    if test.low is None and test.high is None:
        return is_there()
    if test.is_point:
        return column == literal(test.low)
    if test.high is None:
        return column >= literal(test.low)
    below = column < literal(test.high)
    return below if test.low is None else (column >= literal(test.low)) & below


def _combined(found: Filter, tested: Any, literal: Any) -> Any:
    if found == EVERY_ROW:
        return literal(True)
    conjunctions = [
        reduce(and_, [reduce(or_, map(tested, clause)) for clause in conjunction])
        for conjunction in found
    ]
    return reduce(or_, conjunctions) if conjunctions else literal(False)
