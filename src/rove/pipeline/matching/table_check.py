"""Whether a table has what texts ask for: a wrong column is an error, not an empty answer.

A publication may lack anything, so in a broker an attribute that is not there is missing, and a
string is no number: the text does not match, and that is right. A table says beforehand which
columns it has and of which types. A text that asks for another one can never match, and the reason
is nearly always a misspelt name, or a file of CSV that was read without a schema, where everything
is a string. So this is refused, with the name, the type and what would help; who means it asks for
`strict=False` and gets the broker's rule.

Collecting what a text asks for takes one walk over its tree, some 10 µs; checking takes one look
for each distinct attribute.
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
from rove.pipeline.spark.older_spark import to_arrow_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rove.pipeline.spark.parquet_files import ParquetFiles

_ANY: Final = "any"
_CASTS: Final = {"number": "double", "string": "string", "boolean": "boolean"}
_NAMED_MAX: Final = 20
"""Columns that an error lists."""


class MatchingError(RoveError):
    """Subscriptions, or columns, that cannot be matched with each other."""


class ColumnUse(msgspec.Struct, frozen=True):
    """What a text asks of an attribute: one of these types."""

    path: Path
    kinds: frozenset[str]


class ColumnUses:
    """What some texts ask of a table, and who asks for it."""

    def __init__(self, given: Mapping[ColumnUse, Iterable[Any]] | None = None) -> None:
        self._who = {use: dict.fromkeys(who) for use, who in (given or {}).items()}

    def add(self, subscription: Subscription, who: Any) -> None:
        """One more text, and whatever it is known by."""
        for attribute, kinds in types_of(subscription).items():
            self._who.setdefault(ColumnUse(attribute.path, frozenset(kinds)), {})[who] = None

    def remove(self, subscription: Subscription, who: Any) -> None:
        """Take one back that was added."""
        for attribute, kinds in types_of(subscription).items():
            use = ColumnUse(attribute.path, frozenset(kinds))
            del self._who[use][who]
            if not self._who[use]:
                del self._who[use]

    def as_lists(self) -> list[tuple[ColumnUse, list[Any]]]:
        """All of it, to be kept."""
        return [(use, list(who)) for use, who in self._who.items()]

    @property
    def heads(self) -> frozenset[str]:
        """The attributes, without what follows a dot."""
        return frozenset(use.path[0] for use in self._who)

    def check_table(
        self,
        df: DataFrame | ParquetFiles,
        attributes: Sequence[str] | None = None,
        topic: str | None = None,
        named: Callable[[Any], str] = str,
    ) -> None:
        """MatchingError unless a table has all that is asked for, by name and type.

        Texts see the columns `attributes`, all if none are named; `topic` is the topic's. `named`
        says what one who asks is called.
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
        """MatchingError unless the columns have all that is asked for, by name and type."""
        found: dict[Path, pa.DataType] = {}
        for name, kind in columns.items():
            for path, inner in _inside(path_of(name), kind):
                found.setdefault(path, inner)
        for use, who in self._who.items():
            if problem := _problem(use, found, columns):
                raise MatchingError(f"{named(next(iter(who)))} {problem}")


def uses_of(subscription: Subscription, name: str) -> ColumnUses:
    """What one text asks for."""
    uses = ColumnUses()
    uses.add(subscription, name)
    return uses


def _arrow_type(of_spark: Any) -> pa.DataType:
    """As workers will see it; what cannot go to them is Spark's to refuse."""
    from pyspark.errors import PySparkException

    try:
        return to_arrow_type(of_spark)
    except PySparkException:
        return pa.null()


def _inside(path: Path, kind: pa.DataType) -> Iterator[tuple[Path, pa.DataType]]:
    """The attributes that a column has, each with its type; of a dotted name the objects, too."""
    for length in range(1, len(path)):
        yield path[:length], pa.struct([])
    yield path, kind
    if pa.types.is_struct(kind):
        for member in kind:
            yield from _inside((*path, member.name), member.type)


def _problem(
    use: ColumnUse, found: Mapping[Path, pa.DataType], columns: Iterable[str]
) -> str | None:
    """What is wrong with a text that asks for this, if anything is."""
    written = name_text(use.path)
    if any(kind_of(found[part]) == OPEN for part in _heads(use.path) if part in found):
        return None
    if use.path not in found:
        near = _near(".".join(use.path), [".".join(path) for path in found])
        return (
            f"asks for {written}, and there is no such column; {near or _listed(columns)} "
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
    """Spark does not tell small letters from capitals, and the language does."""
    same = next((one for one in there if one.lower() == name.lower()), None)
    return f"did you mean {same}?" if same else did_you_mean(name, there)


def _listed(columns: Iterable[str]) -> str:
    first = list(columns)
    more = ", …" if len(first) > _NAMED_MAX else ""
    return f"there are {', '.join(first[:_NAMED_MAX])}{more}"


def _heads(path: Path) -> Iterator[Path]:
    """The path and the objects around it."""
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
    return "no text can compare that; make a number or a string of it first"
