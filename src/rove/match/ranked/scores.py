"""Scores of many subscriptions at once: the same expression, each with its own constants.

`ORDER BY abs(x - 3)` and `ORDER BY abs(x - 4.5)` have one shape. A shape is compiled to a
*program*, a few steps on a stack; its constants become columns, with one place for each
subscription. The state of the subscriber (`me.`) is a constant until it changes, and `t` is the
time of the publication less the column of acceptance. So one run over the columns gives the
scores of all, and one over the columns of a window gives those of all its publications.

The result must be what `rove.lang.oracle.score_of` says, to the last bit and in the same type.
Floats are computed by the same operations in the same order. Integers are computed as floats,
which is the same while everything stays below 2^53; every lane keeps watch over that, and where
it does not hold, or an integer may have rounded a zero to -0.0, the oracle is asked. What has no
program at all (`lower`, very large literals) is always asked of the oracle.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self, cast

import numpy as np
import numpy.typing as npt

from rove.lang import functions
from rove.lang.tree import (
    Arithmetic,
    Attribute,
    Call,
    Literal,
    Me,
    Negation,
    Time,
    ValueNode,
    children,
)
from rove.lang.values import Path, Value, is_number, look_up
from rove.match.ranked import score_kernels as kernels

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Marks = npt.NDArray[np.uint8]

_DEPTH_MAX: Final = 64
_OPERATORS: Final = {
    "+": kernels.ADD,
    "-": kernels.SUBTRACT,
    "*": kernels.MULTIPLY,
    "/": kernels.DIVIDE,
}
_CALLS: Final = {
    "abs": kernels.ABSOLUTE,
    "least": kernels.LEAST,
    "greatest": kernels.GREATEST,
    "sqrt": kernels.ROOT,
    "pow": kernels.POWER,
    "sin": kernels.SINE,
    "cos": kernels.COSINE,
    "floor": kernels.FLOOR,
    "ceil": kernels.CEILING,
    "distance": kernels.DISTANCE,
}
_KEEP_KIND: Final = (kernels.NEGATE, kernels.ABSOLUTE, kernels.FLOOR, kernels.CEILING)
_WHOLE_IF_BOTH: Final = (kernels.ADD, kernels.SUBTRACT, kernels.MULTIPLY)
_OF_THE_LIBRARY: Final = (kernels.POWER, kernels.SINE, kernels.COSINE, kernels.DISTANCE)


class ScoreProgram(NamedTuple):
    """The shape of a score; equal for all subscriptions that differ in constants only."""

    code: tuple[int, ...]
    """Inputs and steps. Inputs are numbered: attributes, the time, constants."""
    attributes: tuple[Path, ...]
    timed: bool
    whole: tuple[bool, ...]
    """Of each constant, whether it is an integer."""
    depth: int
    descending: bool

    @property
    def scalars(self) -> int:
        """How many inputs come with a publication."""
        return len(self.attributes) + self.timed

    @property
    def sign(self) -> float:
        return -1.0 if self.descending else 1.0

    @property
    def uses_library(self) -> bool:
        """Whether a step is a function of the C library, which is slow beside the others."""
        return any(step in _OF_THE_LIBRARY for step in self.code)


class CompiledScore(NamedTuple):
    """A score of one subscription: a program and its constants."""

    program: ScoreProgram
    constants: tuple[float, ...]


class _Hard(Exception):
    """The oracle has to compute it."""


class Unscored(Exception):
    """With this state the score is UNKNOWN for every publication."""


def compiled(
    score: ValueNode, descending: bool, accepted_at: float, me: Mapping[str, object]
) -> CompiledScore | None:
    """The program of a score, or None where only the oracle can compute it."""
    attributes: dict[Path, int] = {}
    steps: list[tuple[str, Any]] = []
    try:
        _collect(score, me, attributes, steps)
    except _Hard:
        return None
    timed = ("time", None) in steps
    first_constant = len(attributes) + timed
    constants: list[int | float] = []
    code: list[int] = []
    for kind, what in steps:
        if kind == "attribute":
            code.append(attributes[what])
        elif kind == "constant":
            code.append(first_constant + len(constants))
            constants.append(what)
        elif kind == "time":
            code += [first_constant - 1, first_constant + len(constants), kernels.SUBTRACT]
            constants.append(accepted_at)
        else:
            code.append(what)
    depth = _depth(code)
    if depth > _DEPTH_MAX:
        return None
    whole = tuple(type(constant) is int for constant in constants)
    program = ScoreProgram(tuple(code), tuple(attributes), timed, whole, depth, descending)
    return CompiledScore(program, tuple(map(float, constants)))


def _collect(
    node: ValueNode,
    me: Mapping[str, object],
    attributes: dict[Path, int],
    steps: list[tuple[str, Any]],
) -> None:
    """The steps of `node` in the order in which a stack needs them.

    `- 3` is a constant and `x + 3` is `x - -3`, bit by bit: a sign makes no other shape.
    """
    match node:
        case Literal() | Negation(operand=Literal()):
            steps.append(("constant", _constant(_literal(node))))
        case Arithmetic(
            operator="+", left=left, right=(Literal() | Negation(operand=Literal())) as right
        ):
            _collect(left, me, attributes, steps)
            opposite = functions.negate(_literal(right))
            if opposite is None:  # the least integer has none
                raise _Hard
            steps.append(("constant", _constant(opposite)))
            steps.append(("step", kernels.SUBTRACT))
        case Me(path=path):
            steps.append(("constant", _constant(look_up(me, path))))
        case Attribute(path=path):
            attributes.setdefault(path, len(attributes))
            steps.append(("attribute", path))
        case Time():
            steps.append(("time", None))
        case _:
            step, repeated = _step(node)
            for number, child in enumerate(children(node)):
                _collect(cast(ValueNode, child), me, attributes, steps)
                if repeated and number > 0:
                    steps.append(("step", step))
            if not repeated:
                steps.append(("step", step))


def _literal(node: ValueNode) -> Value | None:
    """The value of a literal, perhaps with a sign."""
    if isinstance(node, Negation):
        return functions.negate(_literal(node.operand))
    assert isinstance(node, Literal), "only literals are asked for"
    return node.value


def _constant(value: object) -> int | float:
    if not is_number(value):
        raise Unscored
    number = cast(float, value)
    if type(number) is int and abs(number) >= kernels.EXACT_MAX:
        raise _Hard
    return number


def _step(node: ValueNode) -> tuple[int, bool]:
    """The step of a node, and whether it is taken after every operand but the first."""
    match node:
        case Negation():
            return kernels.NEGATE, False
        case Arithmetic(operator=operator):
            return _OPERATORS[operator], False
        case Call(name=name) if name in _CALLS:
            if _CALLS[name] in _OF_THE_LIBRARY and not library_agrees():
                raise _Hard
            return _CALLS[name], name in ("least", "greatest")
    raise _Hard


def _depth(code: list[int]) -> int:
    depth = deepest = 0
    for step in code:
        depth += 1 - _taken(step)
        deepest = max(deepest, depth)
    return deepest


def _taken(step: int) -> int:
    """How many values a step takes from the stack."""
    if step >= 0:
        return 0
    return 4 if step == kernels.DISTANCE else 2 if step >= kernels.POWER else 1


@functools.cache
def result_is_whole(program: ScoreProgram, attributes: tuple[bool, ...]) -> bool | None:
    """Whether a score is an integer, given which attributes are; None if only time will tell."""
    inputs = (*attributes, *((False,) if program.timed else ()), *program.whole)
    stack: list[bool] = []
    for step in program.code:
        if step >= 0:
            stack.append(inputs[step])
            continue
        taken = [stack.pop() for _ in range(_taken(step))]
        if step in _KEEP_KIND:
            stack.append(taken[0])
        elif step in _WHOLE_IF_BOTH:
            stack.append(all(taken))
        elif step in (kernels.LEAST, kernels.GREATEST):
            if taken[0] is not taken[1]:
                return None
            stack.append(taken[0])
        else:
            stack.append(False)
    return stack[0]


@functools.cache
def library_agrees() -> bool:
    """Whether compiled pow, sin, cos and distance give the very bits that Python's give.

    Both call the C library of the process. Where something replaces one of them (there are
    vector libraries that do), the oracle has to compute these functions instead.
    """
    random = np.random.default_rng(1)
    table = random.uniform(-90, 90, (4, 256))
    stack, doubt = np.empty((4, 256)), np.empty(256)
    for name in ("pow", "sin", "cos", "distance"):
        _, count, _ = functions.NUMERIC[name]
        inputs = np.abs(table[:count]) if name == "pow" else table[:count]
        code = np.array([*range(count), _CALLS[name]], np.int64)
        kernels.evaluate(code, np.ascontiguousarray(inputs), stack, doubt, 256, False)
        ours = [value if math.isfinite(value) else None for value in stack[0].tolist()]
        if ours != [functions.call(name, list(given)) for given in inputs.T.tolist()]:
            return False
    return True


class ProgramInputs(NamedTuple):
    """What a program needs of one publication."""

    values: Floats
    low: Floats
    high: Floats
    """The values as intervals: one that no float holds lies between two."""
    mixed: bool
    """Integers take part."""
    whole: bool
    """The score is an integer."""
    sure: bool
    """False if the oracle has to be asked in any case."""


def read(
    program: ScoreProgram, publication: Mapping[str, object], at: float
) -> ProgramInputs | None:
    """The inputs of `program`, or None where one is no number: then there is no score."""
    values: list[float] = []
    kinds: list[bool] = []
    sure = True
    for path in program.attributes:
        found = look_up(publication, path)
        if not is_number(found):
            return None
        number = cast(float, found)
        kinds.append(type(number) is int)
        sure &= not (kinds[-1] and abs(number) >= kernels.EXACT_MAX)
        values.append(float(number))
    if program.timed:
        values.append(at)
    whole = result_is_whole(program, tuple(kinds))
    array = np.array(values)
    low, high = array, array
    if not sure:
        low = np.array([math.nextafter(value, -math.inf) for value in values])
        high = np.array([math.nextafter(value, math.inf) for value in values])
    mixed = any(kinds) or any(program.whole)
    return ProgramInputs(array, low, high, mixed, bool(whole), sure and whole is not None)


class Scores(NamedTuple):
    """Scores for some rows (or of some publications), lower being better."""

    scores: Floats
    tails: Integers
    whole: Marks
    known: Marks

    def put(self, i: int, score: int | float | None, sign: float) -> None:
        """What the oracle said; None is UNKNOWN."""
        self.known[i] = score is not None
        if score is None:
            return
        # An integer beyond 2^53 is a float and what is left: pairs that compare as integers do.
        rounded = float(score)
        self.scores[i] = rounded * sign
        self.tails[i] = 0 if type(score) is float else (int(score) - int(rounded)) * int(sign)
        self.whole[i] = type(score) is int


def empty_scores(count: int) -> Scores:
    """Room for `count` scores, all UNKNOWN."""
    return Scores(
        np.zeros(count), np.zeros(count, np.int64), np.zeros(count, np.uint8), np.zeros(count, "u1")
    )


def settle(scores: Scores, doubts: Floats, mixed: bool) -> Integers:
    """Mark which scores are known; the numbers of those that the oracle has to tell."""
    if not mixed:
        scores.known[:] = doubts == 0
        return np.empty(0, np.int64)
    sure = (doubts < kernels.EXACT_MAX) & (scores.scores != 0)
    scores.known[:] = sure
    return np.flatnonzero(~sure)


class ConstantColumns:
    """The constants of all subscriptions of one shape; a subscription has a place in them."""

    def __init__(self, program: ScoreProgram | None) -> None:
        self.program = program
        """None for those that only the oracle can score."""
        self.code = np.array(program.code if program else (), np.int64)
        self.constants: Floats = np.zeros((len(program.whole) if program else 0, kernels.LANES))
        self.rows: Integers = np.full(kernels.LANES, -1, np.int64)
        """The row of each place, -1 for a free one."""
        self._free: list[int] = []
        self._next = 0

    def __len__(self) -> int:
        return self._next - len(self._free)

    def add(self, row: int, constants: tuple[float, ...]) -> int:
        """Give `row` a place."""
        if self._free:
            place = self._free.pop()
        else:
            place = self._next
            self._next += 1
            if place == self.rows.size:
                self.grow()
        self.rows[place] = row
        self.change(place, constants)
        return place

    def change(self, place: int, constants: tuple[float, ...]) -> None:
        self.constants[:, place] = constants

    def remove(self, place: int) -> None:
        self.rows[place] = -1
        self._free.append(place)

    def grow(self) -> None:
        """Twice the room."""
        constants = np.zeros((self.constants.shape[0], 2 * self.rows.size))
        constants[:, : self.rows.size] = self.constants
        self.constants = constants
        self.rows = np.concatenate([self.rows, np.full(self.rows.size, -1, np.int64)])

    def places(self) -> Integers:
        """The places that are taken."""
        return np.flatnonzero(self.rows[: self._next] >= 0)

    def score(self, reading: ProgramInputs, places: Integers) -> tuple[Scores, Integers]:
        """The scores at `places`, and the numbers of those that the oracle has to tell."""
        assert self.program is not None, "without a program there is nothing to run"
        scores = empty_scores(places.size)
        if not reading.sure:
            return scores, np.arange(places.size)
        doubts = np.empty(places.size)
        kernels.score_places(
            self.code,
            self.program.depth,
            self.program.scalars,
            reading.values,
            self.constants,
            places,
            reading.mixed,
            self.program.sign,
            scores.scores,
            doubts,
        )
        if reading.whole:
            scores.whole[:] = 1
        return scores, settle(scores, doubts, reading.mixed)

    def state(self) -> tuple[Any, ...]:
        """Everything, as plain values and bytes."""
        program = None if self.program is None else tuple(self.program)
        return program, self.constants.tobytes(), self.rows.tobytes(), list(self._free), self._next

    @classmethod
    def from_state(cls, state: tuple[Any, ...]) -> Self:
        """What `state` was taken from."""
        program, constants, rows, free, taken = state
        columns = cls(None if program is None else ScoreProgram(*program))
        columns.rows = np.frombuffer(rows, np.int64).copy()
        columns.constants = np.frombuffer(constants).reshape(-1, columns.rows.size).copy()
        columns._free, columns._next = list(free), taken
        return columns
