"""The cells of one matcher: commands in, replies out.

It runs in a matcher process, in a simulation, and in the broker while cells return to it. The
caller provides functions that read and write files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np

from rove.elastic.commands import (
    Add,
    AnyCommand,
    AnyReply,
    ChangeState,
    Close,
    Failed,
    Match,
    MatchReply,
    MatchRow,
    Open,
    RankedMatch,
    Remove,
    Save,
    Saved,
    Unsaved,
    decoded_rows,
)
from rove.lang.attributes import attributes_of
from rove.lang.parser import parse
from rove.match.cell import Cell, CellMatches, CellSubscription
from rove.match.designs.design import parse_evolve
from rove.match.matcher import EXACT, Work
from rove.match.results import RankedDelivery


class CellRow:
    """A `MatchRow` for a cell: the payload is decoded when the first cell needs it."""

    __slots__ = ("_attributes", "_row", "at", "filters")

    def __init__(self, row: MatchRow) -> None:
        self._row = row
        self._attributes: Mapping[str, object] | None = None
        self.at = row.at
        self.filters = row.filters

    @property
    def key(self) -> int:
        return self._row.number

    def attributes(self) -> Mapping[str, object]:
        if self._attributes is None:
            row = self._row
            self._attributes = attributes_of(row.topic, row.payload, row.user)
        return self._attributes


class CellHost:
    """Holds cells and executes commands."""

    def __init__(
        self,
        read: Callable[[str], memoryview],
        write: Callable[[str, Sequence[bytes | memoryview]], None],
        clock: Callable[[], float],
    ) -> None:
        self.cells: dict[int, Cell] = {}
        self._read = read
        self._write = write
        self._clock = clock
        self._ended: set[int] = set()
        """Cells that have failed: later commands to them are ignored."""
        self._shown: tuple[bytes, list[CellRow]] = (b"", [])
        """The last rows, in case several cells get the same."""

    @property
    def subscriptions(self) -> int:
        """How many all cells have together."""
        return sum(len(cell) for cell in self.cells.values())

    def handle(self, command: AnyCommand) -> list[AnyReply]:
        """Execute a command; returns the replies.

        If a command fails, the cell may have executed half of it, so the cell is ended; that is
        reported once.
        """
        if command.cell in self._ended:
            if isinstance(command, (Open, Close)):
                self._ended.discard(command.cell)
            if not isinstance(command, Open):
                return []
        try:
            return self._handled(command)
        except Exception as error:
            self.cells.pop(command.cell, None)
            self._ended.add(command.cell)
            part = command.part if isinstance(command, Match) else -1
            return [Failed(command.cell, f"{type(command).__name__}: {error!r}", part)]

    def _handled(self, command: AnyCommand) -> list[AnyReply]:
        if isinstance(command, Open):
            saved = command.snapshot
            self.cells[command.cell] = Cell.load(self._read(saved)) if saved else Cell()
            return []
        cell = self.cells[command.cell]
        match command:
            case Match():
                return [self._matched(cell, command)]
            case Add():
                cell.add(wanted(command))
            case Remove():
                for id in command.ids:
                    cell.remove(id)
            case ChangeState():
                cell.set_state(command.id, command.changes)
            case Save():
                return [self._saved(cell, command)]
            case Close():
                del self.cells[command.cell]
        return []

    def _saved(self, cell: Cell, command: Save) -> Saved | Unsaved:
        try:
            self._write(command.path, cell.save())
        except OSError as error:
            return Unsaved(command.cell, command.path, str(error))
        return Saved(command.cell, command.path, cast(list[int], cell.live_keys()))

    def _matched(self, cell: Cell, command: Match) -> MatchReply:
        began = self._clock()
        found = cell.match(self._rows(command))
        ranked = list(found.ranked)
        if command.advance_to is not None:
            ranked += cell.advance(command.advance_to)
        counts, ids = arrays_of(found)
        told = [told_of(one) for one in ranked]
        took_s = self._clock() - began
        return MatchReply(
            command.cell,
            command.part,
            counts,
            ids,
            told,
            cell.next_change_at(),
            took_s,
            found.undecided,
        )

    def _rows(self, command: Match) -> list[CellRow]:
        raw = bytes(command.rows)
        if self._shown[0] != raw:
            self._shown = raw, [CellRow(row) for row in decoded_rows(command.rows)]
        return self._shown[1]

    def merge_due(self) -> Work | None:
        """Work on an index to run in another thread and then install."""
        for cell in self.cells.values():
            if (work := cell.merge_due()) is not None:
                return work
        return None

    def install(self, work: Work) -> None:
        """Install finished work, even of a cell that has ended meanwhile."""
        work.install()


def wanted(command: Add) -> CellSubscription:
    """The subscription that a command adds."""
    return CellSubscription(
        command.id,
        parse(command.text, accepted=True),
        command.filter,
        command.accepted_at,
        command.me,
        parse_evolve(command.evolve) if command.evolve else EXACT,
    )


def arrays_of(found: CellMatches) -> tuple[bytes, bytes]:
    """Matches in the form of a message."""
    if not found.counts:
        return b"", b""
    return np.asarray(found.counts, np.int32).tobytes(), found.ids.astype(np.int64).tobytes()


def matched_of(found: MatchReply) -> CellMatches:
    """Matches of a message, without the ranked ones."""
    counts = np.frombuffer(found.counts, np.int32).tolist()
    return CellMatches(counts, np.frombuffer(found.ids, np.int64), [])


def told_of(delivery: RankedDelivery) -> RankedMatch:
    """A ranked delivery in the form of a message."""
    number = cast(int, delivery.key)
    return RankedMatch(
        delivery.subscription, number, delivery.at, delivery.score, delivery.promoted
    )
