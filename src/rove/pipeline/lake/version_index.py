"""Matches publications of the lake with versions of subscriptions, as the broker does, in a worker.

A publication is matched with an index of one or more files (`rove.pipeline.matching.index_files`)
and with the followers, whose states change (`rove.pipeline.lake.followers`). A match counts if the
publication lies between the positions of the version, or of the state. The matcher itself checks
that no publication is older than the subscription, for tables as for the lake. Publications are
read once and matched with each file once for every topic filter that fits, as in the broker: some
3 µs each besides the matching.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rove.lake.log import SCHEMA
from rove.match.cell import FILTER_ATTRIBUTE
from rove.match.index.columns import MappingTable, PublicationTable
from rove.match.index.followers import POSITION
from rove.pipeline.lake.followers import Followers, open_followers
from rove.pipeline.matching.arrow import lake_attributes
from rove.pipeline.matching.index_files import IndexSide, SideName, VersionIndexFile, open_index
from rove.pipeline.matching.topic_filters import NO_FILTER, Longs, matches_among

AT_TYPE: Final = SCHEMA.field("at").type
PAIRS: Final = pa.schema(
    [("subscription", pa.int64()), ("position", pa.int64()), ("id", pa.string()), ("at", AT_TYPE)]
)
_SHOWN: Final = ("position", "at", "id", "client_id", "topic", "payload", "user")
RANKED_ROWS: Final = pa.schema(
    [
        pa.field("bucket", pa.int32()),
        *map(SCHEMA.field, _SHOWN),
        pa.field("matched", pa.list_(pa.int64())),
    ]
)


class IndexFileSpec(msgspec.Struct, frozen=True):
    """A file of an index, with the versions that ended since it was written."""

    path: str
    plain: dict[int, int] = {}
    """The last position of versions that have ended, by id."""
    ranked: dict[int, int] = {}


class IndexSpec(msgspec.Struct, frozen=True):
    """An index as it is sent to workers: names of files."""

    parts: tuple[IndexFileSpec, ...] = ()
    following: str = ""
    """The file of followers; empty if there are none."""


class Publications:
    """A batch of the lake's rows, decoded on demand."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.positions: Longs = np.asarray(batch["position"])
        moments_us = np.asarray(batch["at"].cast(AT_TYPE).cast(pa.int64()))
        self.at: npt.NDArray[np.float64] = moments_us / 1e6

    def __len__(self) -> int:
        return len(self.positions)

    @functools.cached_property
    def topics(self) -> list[str | None]:
        return self.batch["topic"].to_pylist()  # type: ignore[no-any-return]

    @functools.cached_property
    def client_ids(self) -> list[str]:
        return self.batch["client_id"].to_pylist()  # type: ignore[no-any-return]

    @functools.cached_property
    def attributes(self) -> list[dict[str, object]]:
        """The attributes of each publication."""
        return lake_attributes(self.batch)


class _SelectedRows:
    """Some publications of a batch, as the matcher takes them."""

    def __init__(self, publications: Publications, rows: Longs) -> None:
        self._publications = publications
        self._rows = rows

    @property
    def topics(self) -> list[str | None]:
        topics = self._publications.topics
        return [topics[row] for row in self._rows.tolist()]

    def columns(self, rows: Longs | None, numbers: Longs | None) -> PublicationTable:
        """Columns with the positions, since states hold between two positions."""
        here = self._rows if rows is None else self._rows[rows]
        filters = itertools.repeat(NO_FILTER) if numbers is None else numbers.tolist()
        positions = self._publications.positions[here].tolist()
        attributes = self._publications.attributes
        shown: list[dict[str, object]] = []
        before = -1
        for row, number, position in zip(here.tolist(), filters, positions, strict=False):
            # The first time the attributes are changed in place; copies differ only in the filter.
            one = dict(attributes[row]) if row == before else attributes[row]
            one[FILTER_ATTRIBUTE] = number
            one[POSITION] = float(position)
            shown.append(one)
            before = row
        return MappingTable(shown)


class VersionIndex:
    """An index of versions, open in a worker."""

    def __init__(
        self,
        parts: Sequence[tuple[VersionIndexFile, IndexFileSpec]],
        following: Followers | None = None,
    ) -> None:
        self._parts = parts
        self._following = following

    def match_lake(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The matches of a batch, except those of ranked subscriptions."""
        publications = Publications(batch)
        rows, numbers = self._pairs(publications, "plain")
        found = pa.array(rows)
        columns = [
            pa.array(numbers),
            pa.array(publications.positions[rows]),
            batch["id"].cast(pa.string()).take(found),
            batch["at"].cast(AT_TYPE).take(found),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=PAIRS)

    def ranked_rows(self, batch: pa.RecordBatch, buckets: int) -> pa.RecordBatch:
        """Candidates for ranked subscriptions, once for each bucket."""
        rows, numbers = self._pairs(Publications(batch), "ranked")
        in_bucket = numbers % buckets
        order = np.lexsort((numbers, in_bucket, rows))
        rows, numbers, in_bucket = rows[order], numbers[order], in_bucket[order]
        is_first = np.ones(len(rows), bool)
        is_first[1:] = (np.diff(rows) != 0) | (np.diff(in_bucket) != 0)
        firsts = np.flatnonzero(is_first)
        ends = np.append(firsts, len(rows)).astype(np.int32)
        found = pa.array(rows[firsts])
        columns = [pa.array(in_bucket[firsts].astype(np.int32))]
        columns += [batch[name].cast(RANKED_ROWS.field(name).type).take(found) for name in _SHOWN]
        columns.append(pa.ListArray.from_arrays(pa.array(ends), pa.array(numbers)))
        return pa.RecordBatch.from_arrays(columns, schema=RANKED_ROWS)

    def _pairs(self, publications: Publications, name: SideName) -> tuple[Longs, Longs]:
        """Rows of the batch and the numbers of matching subscriptions, by row."""
        found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        groups: dict[int, tuple[str, str]] = {}
        for side, ended, rows in self._sides(publications, name):
            found.append(_found(publications, rows, side, ended))
            groups |= {int(side.numbers[id]): group for id, group in side.shared.items()}
        rows, numbers = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        if groups:
            rows, numbers = _one_of_each_group(rows, numbers, groups)
        if len(found) <= 2:
            return rows, numbers  # matches of a single file are in the order of rows
        order = np.argsort(rows, kind="stable")
        return rows[order], numbers[order]

    def _sides(
        self, publications: Publications, name: SideName
    ) -> Iterator[tuple[IndexSide, Mapping[int, int], Longs]]:
        """The indexes that may match some of the publications, and these."""
        if not len(publications):
            return
        for file, spec in self._parts:
            side = file.plain if name == "plain" else file.ranked
            if not side.is_empty:
                ended = spec.plain if name == "plain" else spec.ranked
                yield side, ended, np.arange(len(publications))
        if self._following is not None:
            for side, rows in self._following.sides(name, publications.positions):
                yield side, {}, rows


def opened(spec: IndexSpec) -> VersionIndex:
    """Open the index that was sent to a task; its files stay open between tasks."""
    following = open_followers(spec.following) if spec.following else None
    return VersionIndex([(open_index(part.path), part) for part in spec.parts], following)


def _found(
    publications: Publications, some: Longs, side: IndexSide, ended: Mapping[int, int]
) -> tuple[Longs, Longs]:
    """The matches of some rows with one matcher, as rows and numbers of subscriptions."""
    at = publications.at[some]
    side.matcher.prepare(float(at.min()), float(at.max()))
    shown = _SelectedRows(publications, some)
    rows, ids = matches_among(shown, at, side.matcher, side.filters, side.has_filter)
    here = some[rows]
    holds = _holds(publications, here, ids, side, ended)
    return here[holds], side.numbers[ids[holds]]


def _holds(
    publications: Publications,
    rows: Longs,
    ids: Longs,
    side: IndexSide,
    ended: Mapping[int, int],
) -> npt.NDArray[np.bool_]:
    """Which matches are of a version that holds at the publication's position."""
    until = side.until
    if ended:
        until = until.copy()
        until[list(ended)] = list(ended.values())
    positions = publications.positions[rows]
    holds = (positions > side.since[ids]) & (positions <= until[ids])
    if side.own:
        for pair in np.flatnonzero(np.isin(ids, list(side.own))).tolist():
            publisher = publications.client_ids[int(rows[pair])]
            holds[pair] &= publisher != side.own[int(ids[pair])]
    return holds


def _one_of_each_group(
    rows: Longs, numbers: Longs, groups: Mapping[int, tuple[str, str]]
) -> tuple[Longs, Longs]:
    """Keep one match for each group of a shared subscription: that with the lowest number.

    The broker's choice depends on which members are connected, which is not in the log.
    """
    names = {group: place for place, group in enumerate(dict.fromkeys(groups.values()))}
    shares = np.flatnonzero(np.isin(numbers, list(groups)))
    group_of = [names[groups[number]] for number in numbers[shares].tolist()]
    keys = rows[shares] * len(names) + np.array(group_of, np.int64)
    order = np.lexsort((numbers[shares], keys))
    is_first = np.append(True, np.diff(keys[order]) != 0)[: len(order)]
    keeps = np.ones(len(rows), bool)
    keeps[shares[order[~is_first]]] = False
    return rows[keeps], numbers[keeps]
