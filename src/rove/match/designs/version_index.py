"""Versions of evolving subscriptions: tried one by one while they are new, indexed if they last.

A version (`rove.match.designs.design`) is a plain conjunction for as long as it is in use. To put
one into an index and to take it out again costs as much as computing it for some sixty
publications, so a version that fewer publications meet should never get there: with `pes 1ms` or
`clees 1ms` each publication would make all versions anew. So a new version is a compiled program
and a moment. When it has been tried on `TRIED_MAX` publications it goes into the index, a few for
each publication. The work for a version is then at most twice that of the better way, whatever
comes.

Cost: 1 to 2 µs for a version and a publication while it is tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from rove.lang.oracle import Publication
from rove.match.designs.design import Evolving, NewIndex
from rove.match.pairs import Pairs

TRIED_MAX: Final = 64
"""Publications that a version is tried on before it is put into the index."""
INDEXED_AT_ONCE_MAX: Final = 8
"""Versions that are put there for one publication: half a millisecond of work."""


class _Tried(msgspec.Struct):
    """A version that is not in the index."""

    evolving: Evolving
    moment: float
    asked: int = 0
    """By how many publications."""

    def holds(self, publication: Publication) -> bool:
        t, me = self.moment - self.evolving.accepted_at, self.evolving.me
        return any(one.whole_holds(publication, t, me) for one in self.evolving.splits)


class VersionIndex:
    """At most one version of each subscription, over a static index."""

    def __init__(self, new_index: NewIndex) -> None:
        self.tried: dict[int, _Tried] = {}
        """Versions that are not in the index, oldest first."""
        self._index = new_index()
        self._indexed: set[int] = set()

    def __contains__(self, id: int) -> bool:
        return id in self.tried or id in self._indexed

    def put(self, evolving: Evolving, moment: float) -> None:
        """The version of a subscription is now that of `moment`."""
        self.drop(evolving.id)
        self.tried[evolving.id] = _Tried(evolving, moment)

    def drop(self, id: int) -> None:
        """A subscription has no version any more, if it had one."""
        if self.tried.pop(id, None) is None and id in self._indexed:
            self._indexed.remove(id)
            self._index.remove(id)

    def match(self, publications: Sequence[Publication]) -> Pairs:
        """Positions of publications and the ids whose versions match them."""
        found = self._index.match(publications)
        if not self.tried:
            return found
        pairs = [
            (position, id)
            for id, one in self.tried.items()
            for position, publication in enumerate(publications)
            if one.holds(publication)
        ]
        self._count(len(publications))
        positions = np.array([position for position, _ in pairs], np.int32)
        ids = np.array([id for _, id in pairs], np.int64)
        return Pairs(
            np.concatenate([found.publications, positions]),
            np.concatenate([found.subscriptions, ids]),
        )

    def _count(self, publications: int) -> None:
        """Publications were tried on all that are not indexed; index some that last."""
        lasting: list[_Tried] = []
        for one in self.tried.values():
            one.asked += publications
            if one.asked >= TRIED_MAX and len(lasting) < INDEXED_AT_ONCE_MAX * publications:
                lasting.append(one)
        for one in lasting:
            id, version = one.evolving.id, one.evolving.at(one.moment)
            if version:  # what cannot hold costs next to nothing to try
                del self.tried[id]
                self._indexed.add(id)
                self._index.add(id, version)
