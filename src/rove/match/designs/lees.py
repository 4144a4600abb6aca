"""LEES, lazy-evaluation evolving subscriptions: evaluated when something is published. Exact.

    add ──▶ fixed part ────▶ static index ◀── publications
      └───▶ evolving part ──▶ hash table, by the same id ──▶ evaluated for the candidates

A subscription is split into two parts with the same id. The static index contains the fixed part
and finds the candidates. The evolving part is in a hash table and is evaluated for candidates only,
with the `t` of the publication. A subscription without a fixed part is always a candidate. Nothing
is computed unless something is published, and a change of `me.` costs next to nothing; but a
publication costs time for each candidate.

**Declared staleness.** None: each answer is that of the publication's own time.

Nearly every bound in practice is linear in `t` (`100 + 2.5 * t`), perhaps held back by `least`
or `greatest`. Those are also kept in flat arrays, one *shape* of subscription beside the other
of its kind, and evaluated all together, operation by operation as the tree has them, so that
the last bit agrees: 1.4 ms for 100,000 moving areas, on two cores busy with other work
(`rove.bench.match.designs.run(subscriptions=100_000)`). All other parts are computed one by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias, cast

import msgspec
import numpy as np
import numpy.typing as npt

from rove.lang import functions
from rove.lang.oracle import Publication, State, value_of
from rove.lang.tree import (
    Arithmetic,
    Attribute,
    Call,
    Comparator,
    Negation,
    Time,
    ValueNode,
)
from rove.lang.values import Known, Number, Path, is_number, look_up
from rove.match.designs.design import (
    ALWAYS,
    Answers,
    Evolving,
    EvolvingDesign,
    NewIndex,
    by_publication,
)
from rove.match.results import Pairs

Floats: TypeAlias = npt.NDArray[np.float64]

SIZE_MAX: Final = 1e100
"""No time or constant in the arrays is larger: then no product of two leaves the floats."""
BENT_SIZE_MAX: Final = 2.0**24
"""Nor in a line with `least` or `greatest`, where integers may be computed with: a product of
two and a sum are then the same in integers and in floats."""
TOGETHER_MIN: Final = 16
"""Fewer subscriptions than this are sooner computed one by one."""
_BLOCK: Final = 32768
"""Rows that are computed at a time: their intermediate results stay in the cache."""


# -- lines --------------------------------------------------------------------------------


class LinearBound(msgspec.Struct, frozen=True):
    """`slope * (t + shift) + offset`, with `t` and the result held within limits.

    Rounded after each operation, as the tree that it was read from. Not every order of
    operations fits: what does not is no line.
    """

    slope: float = 1.0
    offset: float = 0.0
    shift: float = 0.0
    t_low: float = -math.inf
    t_high: float = math.inf
    low: float = -math.inf
    high: float = math.inf
    done: int = 0
    """The last operation that stands: 0 none, 1 a shift, 2 a slope, 3 an offset, 4 a limit."""

    @property
    def is_bent(self) -> bool:
        """True if more than slope and offset are to be computed."""
        return self.shift != 0 or self.limits != (-math.inf, math.inf) * 2

    @property
    def limits(self) -> tuple[float, float, float, float]:
        return (self.t_low, self.t_high, self.low, self.high)

    @property
    def numbers(self) -> tuple[float, ...]:
        """What is kept in the arrays: two numbers, or all seven."""
        if not self.is_bent:
            return (self.slope, self.offset)
        return (self.slope, self.offset, self.shift, *self.limits)

    def plus(self, number: float) -> LinearBound | None:
        if self.done == 0:
            return _changed(self, shift=number, done=1)
        return _changed(self, offset=number, done=3) if self.done < 3 else None

    def times(self, number: float) -> LinearBound | None:
        return _changed(self, slope=number, done=2) if self.done < 2 else None

    def negated(self) -> LinearBound | None:
        if self.done > 3:
            return None
        done = max(self.done, 2)  # rounding is symmetric: negating the parts negates the result
        return _changed(self, slope=-self.slope, offset=-self.offset, done=done)

    def held(self, low: float, high: float) -> LinearBound | None:
        """Held within limits; None where the order of least and greatest would matter."""
        if self.done == 0:
            low, high = max(low, self.t_low), min(high, self.t_high)
            return _changed(self, t_low=low, t_high=high) if low <= high else None
        low, high = max(low, self.low), min(high, self.high)
        return _changed(self, low=low, high=high, done=4) if low <= high else None


def _changed(line: LinearBound, **fields: float) -> LinearBound:
    return msgspec.structs.replace(line, **fields)


def line_of(node: ValueNode, me: State) -> LinearBound | None:
    """A value as a line that is equal to it for every `t`, to the last bit; None if there is none.

    A value without `t` is a line of slope 0.
    """
    found = _line(node, me)
    if not isinstance(found, LinearBound):
        number = _exact(found)
        return None if number is None else LinearBound(slope=0.0, offset=number, done=3)
    if found.done == 1:  # nothing follows the sum: as an offset it needs two numbers, not seven
        found = _changed(found, shift=0.0, offset=found.shift)
    size_max = BENT_SIZE_MAX if found.is_bent else SIZE_MAX
    fits = all(abs(number) <= size_max for number in found.numbers if math.isfinite(number))
    return found if fits else None


def _line(node: ValueNode, me: State) -> LinearBound | Known:
    """A line, or the value of a node without `t`; None where it is neither."""
    match node:
        case Time():
            return LinearBound()
        case Negation(operand=operand):
            found = _line(operand, me)
            return found.negated() if isinstance(found, LinearBound) else functions.negate(found)
        case Arithmetic(operator=operator, left=left, right=right):
            return _combined(operator, _line(left, me), _line(right, me))
        case Call(name=name, arguments=arguments):
            return _called(name, [_line(argument, me) for argument in arguments])
        case _:
            return value_of(node, {}, 0.0, me)


def _exact(value: Known) -> float | None:
    """A value, if it is a number that a float holds exactly and the arrays may hold."""
    if not is_number(value):
        return None
    number = cast(Number, value)
    return float(number) if abs(number) <= SIZE_MAX and float(number) == number else None


def _combined(
    operator: str, left: LinearBound | Known, right: LinearBound | Known
) -> LinearBound | Known:
    """A sum, difference or product of a line and a constant, or of two constants."""
    if not isinstance(left, LinearBound):
        if not isinstance(right, LinearBound):
            return functions.arithmetic(operator, left, right)
        negated = right.negated() if operator == "-" else right
        return None if negated is None else _moved(operator.replace("-", "+"), negated, left)
    return None if isinstance(right, LinearBound) else _moved(operator, left, right)


def _moved(operator: str, line: LinearBound, constant: Known) -> LinearBound | None:
    """`line operator constant`; for a sum and a product the order does not matter."""
    number = _exact(constant)
    if number is None or operator == "/":
        return None
    if operator == "*":
        return line.times(number)
    return line.plus(number if operator == "+" else -number)


def _called(name: str, arguments: list[LinearBound | Known]) -> LinearBound | Known:
    lines = [argument for argument in arguments if isinstance(argument, LinearBound)]
    constants = [argument for argument in arguments if not isinstance(argument, LinearBound)]
    if not lines:
        return functions.call(name, constants)
    numbers = [number for number in map(_exact, constants) if number is not None]
    if len(lines) > 1 or len(numbers) < len(constants) or name not in ("least", "greatest"):
        return None
    if name == "least":
        return lines[0].held(-math.inf, min(numbers))
    return lines[0].held(max(numbers), math.inf)


# -- rows ---------------------------------------------------------------------------------


class LinearComparison(NamedTuple):
    """One comparison of a shape: `path comparator line`."""

    path: Path
    comparator: Comparator
    is_bent: bool


class _Neighbours(NamedTuple):
    """A number between the floats around it, which are one if it is a float itself.

    NumPy would round a large integer before it compares; with its neighbours nothing is rounded.
    """

    below: float
    above: float


def _neighbours(number: Number) -> _Neighbours:
    rounded = float(number)
    return _Neighbours(
        rounded if rounded <= number else math.nextafter(rounded, -math.inf),
        rounded if rounded >= number else math.nextafter(rounded, math.inf),
    )


def _compared(comparator: Comparator, number: _Neighbours, bounds: Floats) -> npt.NDArray[np.bool_]:
    """Where `number comparator bound` is true."""
    below, above = number
    holds: npt.NDArray[np.bool_]
    if comparator == ">=":
        holds = bounds <= below
    elif comparator == "<=":
        holds = bounds >= above
    elif comparator == ">":
        holds = bounds < above
    elif comparator == "<":
        holds = bounds > below
    elif comparator == "=":
        holds = (bounds == below) & (bounds == above)
    else:
        holds = (bounds != below) | (bounds != above)
    return holds


class LinearRows:
    """Subscriptions of one shape: the same attributes and comparators, each bound a line.

    The first row of `numbers` holds the times of acceptance, the others what the columns say.
    Removing moves the last subscription into the gap.
    """

    def __init__(self, columns: tuple[LinearComparison, ...]) -> None:
        self.columns = columns
        self._offsets = [1]
        for column in columns:
            self._offsets.append(self._offsets[-1] + (7 if column.is_bent else 2))
        self._places: dict[int, int] = {}
        self._ids = np.empty(64, np.int64)
        self._numbers = np.empty((self._offsets[-1], 64))

    def __len__(self) -> int:
        return len(self._places)

    def add(self, id: int, accepted_at: float, lines: Sequence[LinearBound]) -> None:
        """Add a subscription, with a line for each column."""
        place = len(self._places)
        if place == len(self._ids):
            self._ids = np.concatenate([self._ids, np.empty_like(self._ids)])
            self._numbers = np.hstack([self._numbers, np.empty_like(self._numbers)])
        self._places[id] = place
        self._ids[place] = id
        self._numbers[:, place] = [accepted_at, *(n for line in lines for n in line.numbers)]

    def remove(self, id: int) -> None:
        """Remove a subscription."""
        place, last = self._places.pop(id), len(self._places)
        if place < last:
            moved = int(self._ids[last])
            self._ids[place] = moved
            self._numbers[:, place] = self._numbers[:, last]
            self._places[moved] = place

    def ids(self) -> list[int]:
        """The ids of all rows."""
        return list(self._places)

    def values(self, publication: Publication) -> list[_Neighbours] | None:
        """What each column compares, or None if one finds no number: then none can hold."""
        found: list[_Neighbours] = []
        for column in self.columns:
            value = look_up(publication, column.path)
            if not is_number(value):
                return None
            found.append(_neighbours(cast(Number, value)))
        return found

    def holding(self, values: list[_Neighbours], at: float) -> npt.NDArray[np.int64]:
        """The ids for which every column holds."""
        count = len(self._places)
        found = [
            self._holding(slice(start, min(start + _BLOCK, count)), values, at)
            for start in range(0, count, _BLOCK)
        ]
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def holding_among(
        self, ids: list[int], values: list[_Neighbours], at: float
    ) -> npt.NDArray[np.int64]:
        """The same, of some ids only."""
        places = np.fromiter(map(self._places.__getitem__, ids), np.int64, len(ids))
        return self._holding(places, values, at)

    def _holding(
        self, rows: slice | npt.NDArray[np.int64], values: list[_Neighbours], at: float
    ) -> npt.NDArray[np.int64]:
        # Two columns at full width, for the two ends of one attribute leave few rows over; the
        # others for those only, since choosing rows costs about as much as computing them.
        numbers, ids = self._numbers[:, rows], self._ids[rows]
        t = at - numbers[0]
        holds = t >= 0
        for i, column in enumerate(self.columns):
            if i == 2:
                kept = np.flatnonzero(holds)
                numbers, ids, t, holds = numbers[:, kept], ids[kept], t[kept], holds[kept]
            bounds = _bounds(numbers[self._offsets[i] : self._offsets[i + 1]], t)
            holds &= _compared(column.comparator, values[i], bounds)
        found: npt.NDArray[np.int64] = ids[holds]
        return found


def _bounds(numbers: Floats, t: Floats) -> Floats:
    """The lines at each `t`, in the order of operations of the tree."""
    if len(numbers) == 2:
        slope, offset = numbers
        bounds: Floats = slope * t
        bounds += offset
        return bounds
    slope, offset, shift, t_low, t_high, low, high = numbers
    moved = np.minimum(np.maximum(t, t_low), t_high) + shift
    return cast(Floats, np.minimum(np.maximum(slope * moved + offset, low), high))


# -- the design ---------------------------------------------------------------------------


class _Shape(NamedTuple):
    """What subscriptions in one set of arrays have in common."""

    is_always_candidate: bool
    columns: tuple[LinearComparison, ...]


class _Lazy(msgspec.Struct):
    """One subscription in the hash table."""

    evolving: Evolving
    is_fixed: bool
    is_always_candidate: bool
    shape: _Shape | None = None
    """The arrays that it is in, if it is in any."""


class Lees(EvolvingDesign[_Lazy]):
    """Lazily evaluated subscriptions over a static index. Nothing is ever due, or out of date."""

    def __init__(self, new_index: NewIndex) -> None:
        super().__init__(new_index)
        self._index = new_index()
        self._always: set[int] = set()
        """Candidates for everything that are computed one by one."""
        self._rows: dict[_Shape, LinearRows] = {}

    def _insert(self, evolving: Evolving) -> _Lazy:
        one = _Lazy(evolving, evolving.is_fixed, evolving.is_always_candidate)
        if evolving.splits and not one.is_always_candidate:
            self._index.add(evolving.id, [split.fixed for split in evolving.splits])
        self._place(one)
        return one

    def _delete(self, one: _Lazy) -> None:
        if one.evolving.splits and not one.is_always_candidate:
            self._index.remove(one.evolving.id)
        self._unplace(one)

    def _refresh(self, one: _Lazy) -> None:
        self._unplace(one)
        self._place(one)

    def match(self, publications: Sequence[Publication], at: Sequence[float]) -> Pairs:
        """Who is interested in each of `publications`, each at its own time."""
        answers = Answers(publications)
        candidates = by_publication(self._index.match(publications), len(publications))
        for position, publication in enumerate(publications):
            self._answer(answers, position, publication, at[position], candidates[position])
        return answers.pairs()

    # -- where an evolving part is kept --------------------------------------------------

    def _place(self, one: _Lazy) -> None:
        """Put an evolving part into arrays if it can be, else among those computed one by one."""
        evolving = one.evolving
        lines = _lines(evolving)
        if lines is not None:
            columns = tuple(column for column, _ in lines)
            one.shape = _Shape(one.is_always_candidate, columns)
            if one.shape not in self._rows:
                self._rows[one.shape] = LinearRows(columns)
            rows = self._rows[one.shape]
            rows.add(evolving.id, evolving.accepted_at, [line for _, line in lines])
        elif one.is_always_candidate:
            self._always.add(evolving.id)

    def _unplace(self, one: _Lazy) -> None:
        self._always.discard(one.evolving.id)
        if one.shape is not None:
            self._rows[one.shape].remove(one.evolving.id)
            if not self._rows[one.shape]:
                del self._rows[one.shape]
            one.shape = None

    # -- one publication -------------------------------------------------------------------

    def _answer(
        self,
        answers: Answers,
        position: int,
        publication: Publication,
        at: float,
        candidates: list[int],
    ) -> None:
        alone = list(self._always)
        together: dict[_Shape, list[int]] = {}
        for id in candidates:
            shape = self._held[id].shape
            (alone if shape is None else together.setdefault(shape, [])).append(id)
        for shape, rows in self._rows.items():
            ids = None if shape.is_always_candidate else together.get(shape, [])
            self._answer_rows(answers, position, publication, at, rows, ids)
        answers.give(position, [id for id in alone if self._holds(id, publication, at)])

    def _answer_rows(
        self,
        answers: Answers,
        position: int,
        publication: Publication,
        at: float,
        rows: LinearRows,
        ids: list[int] | None,
    ) -> None:
        """Answer for some ids of `rows`, or for all of them."""
        count = len(rows) if ids is None else len(ids)
        values = rows.values(publication) if count else None
        if values is None:
            return
        if count < TOGETHER_MIN or at > SIZE_MAX:
            some = rows.ids() if ids is None else ids
            answers.give(position, [id for id in some if self._holds(id, publication, at)])
            return
        self.counters.evaluations += count
        if ids is None:
            answers.give(position, rows.holding(values, at))
        else:
            answers.give(position, rows.holding_among(ids, values, at))

    def _holds(self, id: int, publication: Publication, at: float) -> bool:
        """Decide about a candidate by itself."""
        one = self._held[id]
        evolving = one.evolving
        if at < evolving.accepted_at or one.is_fixed:
            return at >= evolving.accepted_at
        t, me = at - evolving.accepted_at, evolving.me
        self.counters.evaluations += 1
        if len(evolving.splits) == 1:
            return evolving.splits[0].evolving_holds(publication, t, me)
        # The index says that one of the fixed parts holds, but not which.
        return any(split.whole_holds(publication, t, me) for split in evolving.splits)


def _lines(evolving: Evolving) -> list[tuple[LinearComparison, LinearBound]] | None:
    """The evolving part as columns and lines in a fixed order; None if it is not made of lines.

    Alternatives are left out: which of them a row stands for would have to be kept as well.
    """
    if len(evolving.splits) != 1 or abs(evolving.accepted_at) > SIZE_MAX:
        return None
    (only,) = evolving.splits
    if not only.bounds or only.rest != ALWAYS:
        return None
    found: list[tuple[LinearComparison, LinearBound]] = []
    for bound in only.bounds:
        line = line_of(bound.right, evolving.me)
        if line is None or type(bound.left) is not Attribute:
            return None
        found.append((LinearComparison(bound.left.path, bound.comparator, line.is_bent), line))
    return sorted(found, key=lambda pair: pair[0])
