"""What a tick has changed, found by looking.

Movement, commands, behaviours, items, hand-over and traffic all change entities. Each could say
what it has changed, and each could forget to; or something could be changed and changed back. So
the columns are compared with what they were a tick ago, and what differs has changed, whoever did
it. That is exact by construction and costs 0.1 ms for 10,000 entities.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rove.world.runs.state import Entities, Flags, Ints

_VELOCITY: Final = ("vx", "vy")
_PLACE: Final = ("x", "y")
_COLUMNS: Final = (*_PLACE, *_VELOCITY, "speed", "server", "holder", "uses")
"""What there is to know about an entity; its tile follows from its place."""


class ChangeDetector:
    """The columns as they were."""

    def __init__(self, entities: Entities) -> None:
        self._columns = {column: getattr(entities, column).copy() for column in _COLUMNS}

    def compare(self, entities: Entities) -> tuple[Ints, Ints, Ints]:
        """Who has changed since the last time; whose velocity has; whose place has; all ascend."""
        changed = np.zeros(len(entities), np.bool_)
        legs, moved = changed.copy(), changed.copy()
        for column, before in self._columns.items():
            now = getattr(entities, column)
            differs = now != before
            changed |= differs
            if column in _VELOCITY:
                legs |= differs
            elif column in _PLACE:
                moved |= differs
            np.copyto(before, now)
        return _numbers(changed), _numbers(legs), _numbers(moved)


def _numbers(flags: Flags) -> Ints:
    return np.flatnonzero(flags).astype(np.int32)
