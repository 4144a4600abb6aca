"""Checks that a table has the columns that expressions use: a wrong name is an error, not no match.

A publication may lack any attribute, so in a broker an expression with a missing attribute, or one
that compares a string with a number, just does not match. But the columns of a table and their
types are known beforehand. An expression that uses another column can never match, and the reason
is nearly always a misspelt name, or a CSV file that was read without a schema, so that all columns
are strings. So it is refused, with the name, the type and a remedy; `strict=False` applies the
broker's rule.

Collecting the attributes of an expression is one walk over its tree, some 10 µs; checking is one
lookup for each distinct attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from rove.errors import RoveError
from rove.lang.advice import did_you_mean
from rove.lang.description import types_of
from rove.lang.printer import name_text
from rove.lang.tree import Subscription
from rove.lang.values import Path
from rove.pipeline.matching.arrow import OBJECT, OPEN, TOPIC, kind_of, path_of
from rove.pipeline.spark.dialect import to_arrow_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rove.pipeline.spark.parquet_files import ParquetFiles

_ANY: Final = "any"
_CASTS: Final = {"number": "double", "string": "string", "boolean": "boolean"}
_NAMED_MAX: Final = 20
"""Columns that an error lists."""


class MatchingError(RoveError):
    """Subscriptions and columns that do not fit together."""


class ColumnUse(msgspec.Struct, frozen=True):
    """An attribute in an expression, and the types that it may have there."""

    path: Path
    kinds: frozenset[str]


class ColumnUses:
    """The attributes in some expressions, each with the expressions that use it."""

    def __init__(self, given: Mapping[ColumnUse, Iterable[Any]] | None = None) -> None:
        self._who = {use: dict.fromkeys(who) for use, who in (given or {}).items()}

    def add(self, subscription: Subscription, who: Any) -> None:
        """Add an expression, and what identifies it."""
        for attribute, kinds in types_of(subscription).items():
            self._who.setdefault(ColumnUse(attribute.path, frozenset(kinds)), {})[who] = None

    def remove(self, subscription: Subscription, who: Any) -> None:
        """Remove an expression."""
        for attribute, kinds in types_of(subscription).items():
            use = ColumnUse(attribute.path, frozenset(kinds))
            del self._who[use][who]
            if not self._who[use]:
                del self._who[use]

    def as_lists(self) -> list[tuple[ColumnUse, list[Any]]]:
        """The content as lists, to be saved."""
        return [(use, list(who)) for use, who in self._who.items()]

    @property
    def heads(self) -> frozenset[str]:
        """The attributes without members."""
        return frozenset(use.path[0] for use in self._who)

    def check_table(
        self,
        df: DataFrame | ParquetFiles,
        attributes: Sequence[str] | None = None,
        topic: str | None = None,
        named: Callable[[Any], str] = str,
    ) -> None:
        """MatchingError unless a table has all columns in use, with the right types.

        Expressions can use the columns `attributes`, by default all; `topic` is that of the topic.
        `named` gives the name of an expression for the error.
        """
        seen = set(df.columns if attributes is None else attributes)
        fields = {one.name: one.dataType for one in df.schema if one.name in seen}
        if topic is not None:
            fields = {name: kind for name, kind in fields.items() if path_of(name)[0] != TOPIC}
            fields[TOPIC] = df.schema[topic].dataType
        heads = self.heads
        self.check(
            {
                name: _arrow_type(kind) if path_of(name)[0] in heads else pa.null()
                for name, kind in fields.items()
            },
            named,
        )

    def check(self, columns: Mapping[str, pa.DataType], named: Callable[[Any], str] = str) -> None:
        """MatchingError unless all columns in use exist and have the right types."""
        found: dict[Path, pa.DataType] = {}
        for name, kind in columns.items():
            for path, inner in _inside(path_of(name), kind):
                found.setdefault(path, inner)
        for use, who in self._who.items():
            if problem := _problem(use, found, columns):
                raise MatchingError(f"{named(next(iter(who)))} {problem}")


def uses_of(subscription: Subscription, name: str) -> ColumnUses:
    """The attributes in one expression."""
    uses = ColumnUses()
    uses.add(subscription, name)
    return uses


def _arrow_type(of_spark: Any) -> pa.DataType:
    """The Arrow type that workers get; null if Spark cannot send the type."""
    from pyspark.errors import PySparkException

    try:
        return to_arrow_type(of_spark)
    except PySparkException:
        return pa.null()


def _inside(path: Path, kind: pa.DataType) -> Iterator[tuple[Path, pa.DataType]]:
    """The attributes in a column, each with its type; for a dotted name also the objects."""
    for length in range(1, len(path)):
        yield path[:length], pa.struct([])
    yield path, kind
    if pa.types.is_struct(kind):
        for member in kind:
            yield from _inside((*path, member.name), member.type)


def _problem(
    use: ColumnUse, found: Mapping[Path, pa.DataType], columns: Iterable[str]
) -> str | None:
    """What is wrong with the use of a column; None if nothing is."""
    written = name_text(use.path)
    if any(kind_of(found[part]) == OPEN for part in _heads(use.path) if part in found):
        return None
    if use.path not in found:
        near = _near(".".join(use.path), [".".join(path) for path in found])
        return (
            f"uses {written}, and there is no such column; {near or _listed(columns)} "
            "(strict=False takes it as missing in every row)"
        )
    kind = kind_of(found[use.path])
    if _ANY in use.kinds or kind in use.kinds:
        return None
    return (
        f"uses {written} as a {' or a '.join(sorted(use.kinds))}, and the column is "
        f"of type {_type_name(found[use.path])}; {_cure(kind, min(use.kinds))}"
    )


def _near(name: str, there: Sequence[str]) -> str | None:
    """A suggestion for a name; first one that differs only in case, which Spark ignores."""
    same = next((one for one in there if one.lower() == name.lower()), None)
    return f"did you mean {same}?" if same else did_you_mean(name, there)


def _listed(columns: Iterable[str]) -> str:
    first = list(columns)
    more = ", …" if len(first) > _NAMED_MAX else ""
    return f"there are {', '.join(first[:_NAMED_MAX])}{more}"


def _heads(path: Path) -> Iterator[Path]:
    """The path and its outer objects."""
    return (path[:length] for length in range(1, len(path) + 1))


def _type_name(kind: pa.DataType) -> str:
    return "object" if kind_of(kind) == OBJECT else str(kind).partition("[")[0].partition("<")[0]


def _cure(kind: str, wanted: str) -> str:
    cast = _CASTS[wanted]
    if kind == "string":
        return f"read the table with a schema, or cast the column: .cast('{cast}')"
    if kind == OBJECT:
        return "name one of its members, with a dot"
    if kind in _CASTS:
        return f"compare it with a {kind}, or cast the column: .cast('{cast}')"
    return "no expression can compare that type; convert it to a number or a string first"
