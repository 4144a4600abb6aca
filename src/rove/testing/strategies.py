"""Hypothesis strategies for trees, texts and publications, made to find edges.

Values come from small pools that hold the neighbours of everything interesting (2^53 and the
integers and floats around it, the ends of the 64-bit integers, the smallest and the largest
float, both zeros), so that drawn subscriptions and publications meet on a bound all the time
instead of almost never. Needs Hypothesis.
"""

from __future__ import annotations

import sys
from typing import Any, cast

from hypothesis import strategies as st

from rove.lang import tree as syntax
from rove.lang.values import next_number, previous_number

_MAX = sys.float_info.max
_LANDMARKS = (-(2**63), -(2**53), -1, 0, 0.1, 1, 2.5, 3, 40, 2**53, 2**63 - 1, 1e300)
_AROUND = [
    number
    for landmark in _LANDMARKS
    for number in (landmark, next_number(landmark), previous_number(landmark), float(landmark))
]
NUMBERS: tuple[int | float, ...] = (*_AROUND, -0.0, _MAX, -_MAX, 2**53 + 1, 5e-324)
STRINGS = ("", "a", "ab", "abc", "abd", "b", "bab", "A", "a%b", "a_b", "it's", "~", "é", "𝄞", "\\")
PATHS = (
    ("a",),
    ("b",),
    ("c",),
    ("n", "m"),
    ("n",),
    ("odd name",),
    ("t",),
    ("me", "x"),
    ("select",),
)
VARIABLES = (("x",), ("y",), ("battery", "level"))

numbers = st.sampled_from(NUMBERS)
strings = st.sampled_from(STRINGS) | st.text("ab%_'~é", max_size=4)
comparators = cast(
    "st.SearchStrategy[syntax.Comparator]", st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
)
attributes = st.sampled_from([syntax.Attribute(path) for path in PATHS])
state_variables = st.sampled_from([syntax.Me(path) for path in VARIABLES])
times = st.sampled_from([0.0, 0.5, 1.0, 2.0, 8.0, 1e9])

carried: st.SearchStrategy[Any] = st.sampled_from(
    [None, [], [1], {}, b"bytes", 2**63, -(2**63) - 1]
)
values = numbers | strings | st.booleans() | carried


def _flat(paths: tuple[tuple[str, ...], ...]) -> st.SearchStrategy[dict[str, Any]]:
    names = sorted({path[0] for path in paths})
    return st.dictionaries(st.sampled_from(names), values | st.fixed_dictionaries({"m": values}))


publications = _flat(PATHS)
"""Attributes present, missing, null, nested, of every type, of no type."""

states = st.fixed_dictionaries(
    {}, optional={"x": values, "y": values, "battery": st.fixed_dictionaries({"level": values})}
)

_leaves: st.SearchStrategy[syntax.ValueNode] = (
    numbers.map(syntax.Literal) | attributes | state_variables | st.just(syntax.Time())
)


def _computed(inner: st.SearchStrategy[syntax.ValueNode]) -> st.SearchStrategy[syntax.ValueNode]:
    operators = cast("st.SearchStrategy[syntax.Operator]", st.sampled_from("+-*/"))
    one = st.tuples(inner)
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return (
        st.builds(syntax.Arithmetic, operators, inner, inner)
        | st.builds(syntax.Negation, inner)
        | st.builds(
            syntax.Call, st.sampled_from(["abs", "sqrt", "sin", "cos", "floor", "ceil"]), one
        )
        | st.builds(syntax.Call, st.sampled_from(["least", "greatest"]), several)
        | st.builds(syntax.Call, st.just("pow"), st.tuples(inner, inner))
        | st.builds(syntax.Call, st.just("distance"), st.tuples(inner, inner, inner, inner))
    )


number_values: st.SearchStrategy[syntax.ValueNode] = st.recursive(_leaves, _computed, max_leaves=4)
"""Values that are numbers where they have a value at all."""

text_values: st.SearchStrategy[syntax.ValueNode] = attributes | st.builds(
    syntax.Call, st.just("lower"), st.tuples(attributes)
)

_literals = numbers.map(syntax.Literal) | strings.map(syntax.Literal)


@st.composite
def _likes(draw: st.DrawFn) -> syntax.Like:
    escape = draw(st.sampled_from([None, None, "!", "\\"]))
    pieces = st.sampled_from(["a", "b", "é", "%", "_", "'"])
    escaped = (
        pieces
        if escape is None
        else pieces | st.sampled_from([f"{escape}%", f"{escape}_", f"{escape}{escape}"])
    )
    pattern = "".join(draw(st.lists(escaped, max_size=5)))
    return syntax.Like(draw(text_values), pattern, escape, draw(st.booleans()))


def _ins() -> st.SearchStrategy[syntax.In]:
    one_kind = (
        st.lists(numbers.map(syntax.Literal), min_size=1, max_size=4)
        | st.lists(strings.map(syntax.Literal), min_size=1, max_size=4)
        | st.lists(st.booleans().map(syntax.Literal), min_size=1, max_size=2)
    )
    return st.builds(syntax.In, attributes, one_kind.map(tuple), st.booleans())


static_predicates: st.SearchStrategy[syntax.Condition] = (
    st.builds(syntax.Comparison, comparators, attributes, _literals)
    | st.builds(syntax.Comparison, comparators, _literals, attributes)
    | st.builds(
        syntax.Comparison,
        cast("st.SearchStrategy[syntax.Comparator]", st.sampled_from(["=", "!="])),
        attributes,
        st.booleans().map(syntax.Literal),
    )
    | st.builds(syntax.Between, attributes, *[numbers.map(syntax.Literal)] * 2, st.booleans())
    | st.builds(syntax.Between, attributes, *[strings.map(syntax.Literal)] * 2, st.booleans())
    | _ins()
    | st.builds(
        syntax.TextTest,
        cast(
            "st.SearchStrategy[syntax.TextTestName]",
            st.sampled_from(["startswith", "endswith", "contains"]),
        ),
        text_values,
        strings,
    )
    | _likes()
    | st.builds(syntax.IsNull, attributes, st.booleans())
    | attributes
    | st.booleans().map(syntax.Literal)
)
"""Predicates over single attributes and constants."""

moving_predicates: st.SearchStrategy[syntax.Condition] = (
    st.builds(syntax.Comparison, comparators, number_values, number_values)
    | st.builds(syntax.Between, number_values, number_values, number_values, st.booleans())
    | st.builds(syntax.Comparison, comparators, attributes, attributes)
    | st.builds(syntax.IsNull, state_variables, st.booleans())
    | state_variables
)
"""Predicates with arithmetic, `t`, `me.` and several attributes."""


def conditions(
    predicates: st.SearchStrategy[syntax.Condition], max_leaves: int = 6
) -> st.SearchStrategy[syntax.Condition]:
    """Predicates joined by AND, OR and NOT."""

    def joined(inner: st.SearchStrategy[syntax.Condition]) -> st.SearchStrategy[syntax.Condition]:
        several = st.lists(inner, min_size=2, max_size=3).map(tuple)
        return (
            st.builds(syntax.And, several)
            | st.builds(syntax.Or, several)
            | st.builds(syntax.Not, inner)
        )

    return st.recursive(predicates, joined, max_leaves=max_leaves)


windows = st.builds(
    syntax.Window,
    st.integers(1, 100),
    cast(
        "st.SearchStrategy[syntax.Unit]",
        st.sampled_from(["MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS", "PUBLICATIONS"]),
    ),
) | st.builds(
    syntax.Window,
    st.sampled_from([0.5, 1.5, 0.001]),
    cast("st.SearchStrategy[syntax.Unit]", st.just("HOURS")),
)

ranks = st.builds(syntax.Rank, number_values, st.booleans(), st.integers(1, 10_000), windows)

selects = st.none() | st.lists(attributes, min_size=1, max_size=3).map(tuple)

static_subscriptions = st.builds(syntax.Subscription, conditions(static_predicates))
subscriptions = st.builds(
    syntax.Subscription,
    conditions(static_predicates | moving_predicates),
    selects,
    st.none() | ranks,
)
"""Everything the language can say."""


# -- encounters ---------------------------------------------------------------------------


def _constants(subscription: syntax.Subscription) -> list[Any]:
    """What a subscription compares with, the direct neighbours of that, and something else."""
    found: list[Any] = [None, True, False, 0, "a", [1], 2**63]
    for node in syntax.parts(subscription):
        match node:
            case syntax.Literal(value=value):
                found.append(value)
            case syntax.In(items=items):
                found += [item.value for item in items]
            case syntax.Like(pattern=pattern):
                found += [pattern, pattern.replace("%", "").replace("_", "a")]
            case syntax.TextTest(text=text):
                found += [f"{text}b", f"b{text}"]
    for value in list(found):
        if type(value) is str:
            found.append(value + "\0")
        elif type(value) in (int, float) and abs(value) < 2**63:
            found += [next_number(value), previous_number(value)]
    return found


@st.composite
def encounters(
    draw: st.DrawFn, wanted: st.SearchStrategy[syntax.Subscription] = subscriptions
) -> tuple[syntax.Subscription, dict[str, Any], float, dict[str, Any]]:
    """A subscription, and a publication, a `t` and a state that stand on its bounds."""
    subscription = draw(wanted)
    constants = st.sampled_from(_constants(subscription))
    publication: dict[str, Any] = {}
    me: dict[str, Any] = {}
    named = {
        node
        for node in syntax.parts(subscription)
        if isinstance(node, syntax.Attribute | syntax.Me)
    }
    for name in sorted(named, key=repr):
        inside = publication if isinstance(name, syntax.Attribute) else me
        for segment in name.path[:-1]:
            inside = inside.setdefault(segment, {})
            inside = inside if isinstance(inside, dict) else {}
        inside.setdefault(name.path[-1], draw(constants))
    return subscription, publication, draw(times), me
