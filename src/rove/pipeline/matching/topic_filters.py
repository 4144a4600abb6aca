"""Topic filters as part of conditions, and the function that matches rows with an index.

The condition of a subscription with a topic filter has one more attribute, the number of the
filter. A row is matched once for each filter that matches its topic, as in the broker, so the
search skips subscriptions to other topics. Rows of tables and of the lake are matched by the same
function (`matches_among`); only their columns differ.

A row whose topic no filter matches is skipped, unless some subscription has no filter; an index
without any filter has no overhead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from rove.lang.tree import Condition
from rove.match.cell import on_filter
from rove.match.index.columns import PublicationTable
from rove.match.results import Pairs
from rove.mqtt.topic_trees import FilterTree
from rove.pipeline.lake.versions import ANY_TOPIC

NO_FILTER: Final = -1
"""The number for rows whose topic no filter matches; for subscriptions without a filter."""

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
        """Add a filter if it is new; returns its number."""
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = len(self._numbers)
            if name != ANY_TOPIC:
                self._tree.put(name, None, found)
            self._known.clear()
        return found

    def __iter__(self) -> Iterator[str]:
        """The filters in the order of their numbers."""
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def condition(self, name: str, condition: Condition) -> Condition:
        """The condition restricted to a filter, which is added; unchanged for ANY_TOPIC."""
        number = self.add(name)
        return condition if name == ANY_TOPIC else on_filter(number, condition)

    def matching(self, topic: str | None) -> list[int]:
        """The numbers of filters that match a topic; NO_FILTER if none does."""
        found = self._known.get(topic)
        if found is None:
            found = [] if topic is None else self._tree.find(topic)
            if not found and ANY_TOPIC in self._numbers:
                found = [NO_FILTER]
            self._known[topic] = found
        return found

    def expanded(self, topics: Sequence[str | None]) -> tuple[Longs, Longs]:
        """Row numbers, repeated for each filter that matches, and the filters' numbers."""
        numbers = [self.matching(topic) for topic in topics]
        rows = np.repeat(np.arange(len(topics)), [len(some) for some in numbers])
        return rows, np.array([number for some in numbers for number in some], np.int64)


class TableMatcher(Protocol):
    """A matcher, or an index of followers."""

    def prepare(self, begins_at: float, ends_at: float) -> None:
        """Prepare for these times."""

    def match_table(self, columns: PublicationTable, at: Floats) -> Pairs:
        """The matches of each row."""


class MatchableRows(Protocol):
    """Rows to be matched, of a table or of the lake."""

    @property
    def topics(self) -> Sequence[str | None]:
        """The topic of each row; used only if there are filters."""

    def columns(self, rows: Longs | None, numbers: Longs | None) -> PublicationTable:
        """All rows; or some of them, with the numbers of filters."""


def matches_among(
    rows: MatchableRows,
    at: Floats,
    matcher: TableMatcher,
    filters: Filters,
    has_filter: npt.NDArray[np.bool_] | None,
) -> tuple[RowNumbers, Longs]:
    """Rows and ids of all matches, by row. `has_filter` is by id; None if all have one."""
    if list(filters) in ([], [ANY_TOPIC]):
        pairs = matcher.match_table(rows.columns(None, None), at)
        return pairs.publications, pairs.subscriptions
    places, numbers = filters.expanded(rows.topics)
    pairs = matcher.match_table(rows.columns(places, numbers), at[places])
    found, ids = places[pairs.publications], pairs.subscriptions
    if has_filter is None:
        return found, ids
    # A subscription without a filter matches each repetition of a row: keep the first.
    is_first = np.append(True, np.diff(places) != 0)[: len(places)]
    holds = is_first[pairs.publications] | has_filter[ids]
    return found[holds], ids[holds]
