"""Conditions that no index can decide, made quick: a Python function for each.

`a + b > 3` and `distance(lat, long, 45.8, 15.9) < 500` are decided for the rows that an index
leaves over, by walking their trees (`rove.lang.oracle.value_of`). Here the tree becomes straight
Python code once, without calls where both operands are plain floats, with every name looked up
once; what is no plain case goes to `rove.lang.functions`, and the last bit agrees.

Compiling takes 200 to 500 µs, far too much for every subscription. But subscriptions differ in
constants and names much more than in *shape*, and the code has neither: they are its parameters.
So the code is compiled once for each shape (the last 1,024 are kept), and for most subscriptions
what remains is to write it and to find that it is known, 15 to 40 µs. As another consequence,
nothing that a subscriber wrote ever becomes part of a source text.

Evaluating is 8 (`distance`) to 35 times as fast as walking the tree: 0.3 to 1.8 µs. All figures
by `rove.bench.match.programs`. Considered and not taken: closures of closures, which call a
function for each node, and Numba, which cannot look into a dictionary of Python objects.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

from rove.lang import functions
from rove.lang.limits import INTEGER_MAX, INTEGER_MIN
from rove.lang.normal_form import Conjunction
from rove.lang.oracle import Publication, State, compare, value_of
from rove.lang.sets import IS_NULL, ValueSet
from rove.lang.tree import (
    Arithmetic,
    Attribute,
    Call,
    Comparison,
    Literal,
    Me,
    Negation,
    Time,
    ValueNode,
    ValueType,
    type_of,
)
from rove.lang.values import OPAQUE, Known, comparable, is_number, look_up

ValueProgram: TypeAlias = Callable[[Publication, float, State], Known]
TruthProgram: TypeAlias = Callable[[Publication, float, State], bool]

SHAPES_MAX: Final = 1_024

_SIGNS: Final = {"=": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_PARTIAL_FUNCTIONS: Final = frozenset(("abs", "sqrt", "pow"))
_FLOAT_FUNCTIONS: Final = frozenset(("sqrt", "pow", "sin", "cos", "distance"))


def compiled_value(node: ValueNode) -> ValueProgram:
    """A function that returns what `value_of(node, …)` returns."""
    writer = _CodeWriter("None")
    writer.say(f"return {writer.value(node)}")
    return cast(ValueProgram, writer.compiled())


def compiled_conjunction(conjunction: Conjunction) -> TruthProgram:
    """A function that returns whether `conjunction` holds."""
    writer = _CodeWriter("False")
    # The cheap parts first, and all in an order that does not differ from process to process.
    for subject, allowed in conjunction.sets.items():
        if _is_name(subject):
            writer.require_name_in(cast(Attribute | Me, subject), allowed)
    for atom in sorted(conjunction.atoms, key=repr):
        writer.require(atom)
    for subject, allowed in conjunction.sets.items():
        if not _is_name(subject):
            writer.require_in(subject, allowed)
    writer.say("return True")
    return cast(TruthProgram, writer.compiled())


class _CodeWriter:
    """Writes the lines of one function, and collects their parameters.

    Every line either gives a new name to a value or leaves the function. Whatever is not known
    makes all that is computed from it UNKNOWN, so the function can be left at once.
    """

    def __init__(self, unknown: str) -> None:
        self._unknown = unknown
        self._lines: list[str] = []
        self._parameters: list[object] = []
        self._values: dict[ValueNode, str] = {}
        self._numbers: dict[ValueNode, str] = {}
        self._floats: set[str] = set()
        """Names of what is a float whenever it is a number."""

    def say(self, line: str) -> None:
        self._lines.append(f"  {line}")

    def compiled(self) -> Callable[..., object]:
        """The function itself."""
        names = "".join(f"p{i}, " for i in range(len(self._parameters)))
        lines = [f"def make({names}):", " def program(publication, t, me):", *self._lines]
        maker = _maker("\n".join([*lines, " return program"]))
        return cast(Callable[..., object], maker(*self._parameters))

    def _parameter(self, value: object) -> str:
        self._parameters.append(value)
        return f"p{len(self._parameters) - 1}"

    def _named(self, expression: str) -> str:
        name = f"v{len(self._lines)}"
        self.say(f"{name} = {expression}")
        return name

    def _leave_if(self, condition: str) -> None:
        self.say(f"if {condition}: return {self._unknown}")

    # -- conditions --------------------------------------------------------------------

    def require(self, atom: Comparison) -> None:
        """Go on only if the comparison is TRUE."""
        sign = _SIGNS[atom.comparator]
        if ValueType.NUMBER in (type_of(atom.left), type_of(atom.right)):
            self._leave_if(f"not {self.number(atom.left)} {sign} {self.number(atom.right)}")
            return
        left, right = self.value(atom.left), self.value(atom.right)
        floats = f"type({left}) is float and type({right}) is float"
        compared = f"compare({self._parameter(atom.comparator)}, {left}, {right})"
        self._leave_if(f"not ({left} {sign} {right} if {floats} else {compared})")

    def require_name_in(self, name: Attribute | Me, allowed: ValueSet) -> None:
        """Go on only if what the name leads to, of whatever kind, belongs to the set."""
        if _is_one_span(allowed):
            self._require_span(self.number(name), allowed)
        else:
            self._leave_if(f"{self._found(name)} not in {self._parameter(allowed)}")

    def require_in(self, subject: ValueNode, allowed: ValueSet) -> None:
        """Go on only if the computed value belongs to the set."""
        if type_of(subject) is not ValueType.NUMBER:
            self._leave_if(f"{self.value(subject)} not in {self._parameter(allowed)}")
        elif allowed.facts & IS_NULL:
            # No expression tests whether a computed value is NULL; such a set works all the same.
            tree = self._parameter(subject)
            value = f"value_of({tree}, publication, t, me)"
            self._leave_if(f"{value} not in {self._parameter(allowed)}")
        elif _is_one_span(allowed):
            self._require_span(self.number(subject), allowed)
        else:
            self._leave_if(f"{self.number(subject)} not in {self._parameter(allowed)}")

    def _require_span(self, number: str, allowed: ValueSet) -> None:
        ((low, high),) = allowed.numbers
        self._leave_if(f"not {self._parameter(low)} <= {number} < {self._parameter(high)}")

    # -- values ------------------------------------------------------------------------

    def value(self, node: ValueNode) -> str:
        """The name of a value of any kind, None for UNKNOWN; a number, where it is computed."""
        if type_of(node) is ValueType.NUMBER:
            return self.number(node)
        if node not in self._values:
            self._values[node] = self._any_value(node)
        return self._values[node]

    def _any_value(self, node: ValueNode) -> str:
        match node:
            case Literal(value=value):
                return self._parameter(value)
            case Attribute() | Me():
                name = self._named(self._raw(node))
                self.say(f"if type({name}) is not float: {name} = known({name})")
                return name
            case Call(arguments=arguments) if type_of(node) is ValueType.STRING:
                (text,) = map(self.value, arguments)
                return self._named(f"{text}.lower() if type({text}) is str else None")
            case _:
                raise TypeError(f"{node!r} is no value")

    def number(self, node: ValueNode) -> str:
        """The name of a number; where it is none, the function is left."""
        if type(node) is Literal:  # equal constants are no part of the shape
            return self._constant(node.value)
        if node not in self._numbers:
            self._numbers[node] = self._number(node)
        return self._numbers[node]

    def _number(self, node: ValueNode) -> str:
        match node:
            case Attribute() | Me():
                return self._number_at(node)
            case Time():
                return self._float("t if type(t) is float else float(t)")
            case Negation(operand=operand):
                inner = self.number(operand)
                return self._fit(f"-{inner}", inner in self._floats)
            case Arithmetic(operator="/", left=left, right=right):
                dividend, divisor = self.number(left), self.number(right)
                self._leave_if(f"{divisor} == 0")
                return self._fit(f"float({dividend}) / float({divisor})", True)
            case Arithmetic(operator=operator, left=left, right=right) if operator in "+-*":
                a, b = self.number(left), self.number(right)
                return self._fit(f"{a} {operator} {b}", not self._floats.isdisjoint((a, b)))
            case Call(name=name, arguments=arguments):
                return self._call(name, arguments)
            case _:
                raise TypeError(f"{node!r} is no value")

    def _constant(self, value: object) -> str:
        name = self._parameter(value)
        if not is_number(value):
            self._leave_if("True")
        if type(value) is float:
            self._floats.add(name)
        return name

    def _number_at(self, node: Attribute | Me) -> str:
        name = self._named(self._raw(node))
        other = f"type({name}) is not int or not INTEGER_MIN <= {name} <= INTEGER_MAX"
        self._leave_if(f"type({name}) is not float and ({other})")
        return name

    def _call(self, name: str, arguments: tuple[ValueNode, ...]) -> str:
        if name == "lower":
            return self._constant("")  # a string is no number
        if name not in functions.NUMERIC:
            raise KeyError(name)
        numbers = [self.number(argument) for argument in arguments]
        is_float = name in _FLOAT_FUNCTIONS or self._floats.issuperset(numbers)
        return self._fit(f"{name}({', '.join(numbers)})", is_float, name in _PARTIAL_FUNCTIONS)

    def _float(self, expression: str) -> str:
        name = self._named(expression)
        self._floats.add(name)
        return name

    def _fit(self, expression: str, is_float: bool, may_fail: bool = False) -> str:
        """A result, if it stays within the 64 bits of its type.

        Of floats, only the infinite and NaN differ from themselves by something else than 0.
        """
        name = self._float(expression) if is_float else self._named(expression)
        if may_fail:
            self._leave_if(f"{name} is None")
        if is_float:
            self._leave_if(f"{name} - {name} != 0.0")
        else:
            whole = f"INTEGER_MIN <= {name} <= INTEGER_MAX"
            self._leave_if(f"not ({whole} if type({name}) is int else {name} - {name} == 0.0)")
        return name

    # -- names -------------------------------------------------------------------------

    def _raw(self, node: Attribute | Me) -> str:
        """The value in the publication or the state, unchanged."""
        source = "publication" if type(node) is Attribute else "me"
        if len(node.path) == 1:
            return f"{source}.get({self._parameter(node.path[0])})"
        return f"look_up({source}, {self._parameter(node.path)})"

    def _found(self, node: Attribute | Me) -> str:
        """What `look_up` finds."""
        return f"comparable({self._raw(node)})"


def _is_name(node: ValueNode) -> bool:
    return type(node) is Attribute or type(node) is Me


def _is_one_span(allowed: ValueSet) -> bool:
    """True for a set of nothing but the numbers from one bound to another."""
    return len(allowed.numbers) == 1 and not allowed.strings and not allowed.facts


def _known(found: object) -> object:
    """`found` as a value, or None where it is none."""
    value = comparable(found)
    return None if value is OPAQUE else value


_NAMES_IN_CODE: Final[dict[str, Any]] = {
    "__builtins__": {},
    "type": type,
    "int": int,
    "float": float,
    "str": str,
    "INTEGER_MIN": INTEGER_MIN,
    "INTEGER_MAX": INTEGER_MAX,
    "comparable": comparable,
    "compare": compare,
    "known": _known,
    "look_up": look_up,
    "value_of": value_of,
    **{name: function for name, (function, _, _) in functions.NUMERIC.items()},
}


@lru_cache(maxsize=SHAPES_MAX)
def _maker(source: str) -> Callable[..., object]:
    """The function that makes programs of one shape out of their parameters."""
    made: dict[str, Callable[..., object]] = {}
    exec(compile(source, "<a shape of conditions>", "exec"), _NAMES_IN_CODE, made)
    return made["make"]
