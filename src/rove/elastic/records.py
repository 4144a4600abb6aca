"""The coordinator's records of cells, and of batches in flight (*tickets*).

A cell is made again from the file in which it was last saved and the commands since. For a
stateless cell these are only the commands that change it; for a stateful one also all publications,
which change it too. The list is kept short by saving: a thousand publications or changes are
matched again in some tens of milliseconds.

A ticket has a part for each cell that gets the batch; a part is done when the cell has answered,
and the ticket when all parts are. Tickets are released in the order of submission. An answer for a
part that is done already, perhaps from a matcher that was taken for dead, is ignored, which removes
duplicates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from rove.elastic.commands import AnyCommand, Match, MatchRow, RankedMatch, encoded_rows

LOG_MAX = 1_000
"""After this many commands and publications a cell is saved again."""


class CellRecord(msgspec.Struct, eq=False):
    """A cell."""

    number: int
    matcher: int
    is_stateful: bool
    ids: set[int] = msgspec.field(default_factory=set)
    """The subscriptions whose matches are taken from it."""
    extra: set[int] = msgspec.field(default_factory=set)
    """Other subscriptions that it still has: their matches are ignored."""
    filters: Counter[int] = msgspec.field(default_factory=Counter)
    """The number of subscriptions of each topic filter; of stateful cells only."""
    log: list[AnyCommand] = msgspec.field(default_factory=list)
    weight: int = 0
    """The cost of executing the log again."""
    snapshot: str = ""
    saving: str = ""
    """The file that is being written."""
    saving_from: int = 0
    """How much of the log is in that file."""
    saving_upto: int = 0
    """The last publication that it got before saving began."""
    shown: int = 0
    """The last publication that it got."""
    recent: set[int] = msgspec.field(default_factory=set)
    """Publications that it got since then, by number; of stateful cells only."""
    held: frozenset[int] = frozenset()
    """Earlier publications that its windows may still deliver."""
    next_change_at: float = float("inf")
    asked: int = 0
    """Parts that it has not answered."""
    failures: int = 0
    """Failures since it was last saved."""

    def may_slide(self, now: float) -> bool:
        """Whether a window or a design may have to be advanced by then."""
        return self.asked > 0 or self.next_change_at <= now

    def keep(self, command: AnyCommand, rows: int = 0) -> None:
        """Append a command that changes the cell to its log."""
        self.log.append(command)
        self.weight += 1 + rows

    @property
    def wants_saving(self) -> bool:
        """Whether the log is long; a large stateless cell may have a longer one."""
        return not self.saving and self.weight > max(LOG_MAX, len(self.ids) // 10)

    def show(self, publications: Iterable[int]) -> None:
        """It gets publications, by number, the latest last."""
        for publication in publications:
            self.recent.add(publication)
            self.shown = publication

    def learn(self, held: frozenset[int], upto: int) -> None:
        """It has reported what it holds of the publications up to one of them."""
        self.held = held
        self.recent = {one for one in self.recent if one > upto}

    def begin_saving(self, path: str) -> None:
        """A file with everything so far is being written."""
        self.saving, self.saving_from, self.saving_upto = path, len(self.log), self.shown

    def not_saved(self) -> None:
        """Saving has failed: try again when the log has grown as much again."""
        self.saving, self.weight = "", 0

    def may_deliver(self, publication: int) -> bool:
        """Whether a window in it may still hold a publication."""
        return publication in self.recent or publication in self.held

    def saved(self, path: str) -> str:
        """The file is complete; returns the file that it replaces."""
        old, self.snapshot, self.saving, self.failures = self.snapshot, path, "", 0
        self.log = self.log[self.saving_from :]
        self.weight = sum(1 + (100 if isinstance(one, Match) else 0) for one in self.log)
        return old


PARTS_MAX = 1 << 16
"""Numbers of parts that each ticket has."""


class TicketPart(msgspec.Struct, gc=False):
    """The part of a ticket for one cell."""

    ticket: Ticket
    command: Match
    positions: Sequence[int]
    """Its rows of the ticket."""


class Ticket(msgspec.Struct, eq=False):
    """A batch in flight."""

    number: int
    rows: list[MatchRow]
    advance_to: float | None
    part_rows_min: int = 1
    """The fewest publications that are worth a part."""
    waiting: dict[int, TicketPart] = msgspec.field(default_factory=dict)
    """Unanswered parts, by number."""
    found: dict[int, list[int]] = msgspec.field(default_factory=dict)
    """Subscriptions by the number of the publication."""
    ranked: list[RankedMatch] = msgspec.field(default_factory=list)
    undecided: set[int] = msgspec.field(default_factory=set)
    """Subscriptions that were skipped."""
    failed: dict[int, str] = msgspec.field(default_factory=dict)
    """Publications, by number, that a cell could not match, and why."""
    next_part: int = 0

    def part(
        self, cell: int, positions: Sequence[int], raw: msgspec.Raw | None = None, *, slides: bool
    ) -> Match:
        """Make a part for a cell from some rows; with `slides`, its windows advance afterwards."""
        if raw is None:
            raw = encoded_rows([self.rows[position] for position in positions])
        number = self.number * PARTS_MAX + self.next_part
        self.next_part += 1
        command = Match(cell, self.number, number, raw, self.advance_to if slides else None)
        self.waiting[number] = TicketPart(self, command, positions)
        return command

    def owed(self, cell: int) -> list[Match]:
        """The unanswered parts of a cell."""
        return [part.command for part in self.waiting.values() if part.command.cell == cell]

    @property
    def is_done(self) -> bool:
        return not self.waiting
