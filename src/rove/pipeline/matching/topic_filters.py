"""Topic filters as a part of conditions, and the one function that asks an index for matches.

A subscription with a topic filter asks for one more attribute, the number of its filter. A row is
shown to the matcher once for each filter that fits its topic, as the broker does it, so the search
passes over whoever wants another topic. Rows of tables and of the lake go the same way
(`matches_among`); only what their columns are differs.

A row of which no filter fits is not shown, unless some subscription has no filter at all; an index
without any filter costs nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from rove.lang.tree import Condition
from rove.match.cell import on_filter
from rove.match.index.columns import PublicationTable
from rove.match.pairs import Pairs
from rove.mqtt.topic_trees import FilterTree
from rove.pipeline.lake.versions import ANY_TOPIC

NO_FILTER: Final = -1
"""The number that is shown to those without a filter, where no filter fits."""

Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
RowNumbers = npt.NDArray[np.integer[Any]]


class Filters:
    """Topic filters, each with its number."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._numbers: dict[str, int] = {}
        self._tree: FilterTree[int] = FilterTree()
        self._known: dict[str | None, list[int]] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> int:
        """The number of a filter, which may be there already."""
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = len(self._numbers)
            if name != ANY_TOPIC:
                self._tree.put(name, None, found)
            self._known.clear()
        return found

    def __iter__(self) -> Iterator[str]:
        """In the order of their numbers."""
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def condition(self, name: str, condition: Condition) -> Condition:
        """The condition for the topics of one filter only, which is added; as it is without one."""
        number = self.add(name)
        return condition if name == ANY_TOPIC else on_filter(number, condition)

    def fitting(self, topic: str | None) -> list[int]:
        """The numbers of the filters that fit a topic; NO_FILTER where only those without may."""
        found = self._known.get(topic)
        if found is None:
            found = [] if topic is None else self._tree.find(topic)
            if not found and ANY_TOPIC in self._numbers:
                found = [NO_FILTER]
            self._known[topic] = found
        return found

    def shown(self, topics: Sequence[str | None]) -> tuple[Longs, Longs]:
        """Rows as they are shown, by row: each with the number of a filter that fits."""
        numbers = [self.fitting(topic) for topic in topics]
        rows = np.repeat(np.arange(len(topics)), [len(some) for some in numbers])
        return rows, np.array([number for some in numbers for number in some], np.int64)


class TableMatcher(Protocol):
    """A matcher, or an index of followers."""

    def prepare(self, begins_at: float, ends_at: float) -> None:
        """Be quick at these times."""

    def match_table(self, columns: PublicationTable, at: Floats) -> Pairs:
        """Who gets each of the rows."""


class MatchableRows(Protocol):
    """What is matched: rows of a table, or publications of the lake."""

    @property
    def topics(self) -> Sequence[str | None]:
        """Of each row; asked for if there are filters."""

    def columns(self, rows: Longs | None, numbers: Longs | None) -> PublicationTable:
        """All rows; or some of them, beside the numbers of filters."""


def matches_among(
    rows: MatchableRows,
    at: Floats,
    asked: TableMatcher,
    filters: Filters,
    has_filter: npt.NDArray[np.bool_] | None,
) -> tuple[RowNumbers, Longs]:
    """Rows and ids of all matches, by row. `has_filter` tells of each id; None if all have one."""
    if list(filters) in ([], [ANY_TOPIC]):
        pairs = asked.match_table(rows.columns(None, None), at)
        return pairs.publications, pairs.subscriptions
    places, numbers = filters.shown(rows.topics)
    pairs = asked.match_table(rows.columns(places, numbers), at[places])
    found, ids = places[pairs.publications], pairs.subscriptions
    if has_filter is None:
        return found, ids
    # Whoever has no filter has met a row as often as it was shown.
    is_first = np.append(True, np.diff(places) != 0)[: len(places)]
    holds = is_first[pairs.publications] | has_filter[ids]
    return found[holds], ids[holds]
