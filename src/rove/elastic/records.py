"""What the coordinator keeps of each cell and of each batch on its way (a *ticket*).

A cell is made again from the file that it was last saved in and the commands since. For a stateless
cell these are only the commands that change it; for a stateful one also all publications, which
change it too. So the list is cut by saving whenever it has grown long: a thousand publications or
changes are matched again in some tens of milliseconds.

A ticket has a part for each cell that gets the batch; a part is done when the cell has answered,
the ticket when all parts are. Tickets are returned in the order in which they were submitted. An
answer for a part that is done already, as from a matcher that was taken for dead, is ignored: that
is how duplicates are removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from rove.elastic.commands import AnyCommand, Match, MatchRow, RankedMatch, encoded_rows

LOG_MAX = 1_000
"""Commands and publications since the last snapshot, after which another is worth its while."""


class CellRecord(msgspec.Struct, eq=False):
    """One cell."""

    number: int
    matcher: int
    is_kept: bool
    ids: set[int] = msgspec.field(default_factory=set)
    """The subscriptions that it answers for."""
    extra: set[int] = msgspec.field(default_factory=set)
    """Others that it has still: what it finds for them is not used."""
    filters: Counter[int] = msgspec.field(default_factory=Counter)
    """How many subscriptions there are of each topic filter; only of kept cells."""
    log: list[AnyCommand] = msgspec.field(default_factory=list)
    weight: int = 0
    """How long it would take to carry out the log again."""
    snapshot: str = ""
    saving: str = ""
    """The file that is being written."""
    saving_from: int = 0
    """What of the log is in that file."""
    saving_upto: int = 0
    """The last publication that it had been shown when saving began."""
    shown: int = 0
    """The last publication that it has been shown."""
    recent: set[int] = msgspec.field(default_factory=set)
    """Publications that it has been shown since then, by number; only of kept cells."""
    held: frozenset[int] = frozenset()
    """Publications of before that its windows may still deliver."""
    next_change_at: float = float("inf")
    asked: int = 0
    """Questions that it has not answered."""
    failures: int = 0
    """Since it was last saved."""

    def may_slide(self, now: float) -> bool:
        """Whether a window or a design may have something to do until then."""
        return self.asked > 0 or self.next_change_at <= now

    def keep(self, command: AnyCommand, rows: int = 0) -> None:
        """Remember a command that changes the cell."""
        self.log.append(command)
        self.weight += 1 + rows

    @property
    def wants_saving(self) -> bool:
        """Whether the log has grown long; a large plain cell may have a longer one."""
        return not self.saving and self.weight > max(LOG_MAX, len(self.ids) // 10)

    def show(self, publications: Iterable[int]) -> None:
        """It is shown publications, by number, the latest last."""
        for publication in publications:
            self.recent.add(publication)
            self.shown = publication

    def learn(self, held: frozenset[int], upto: int) -> None:
        """Of what it was shown up to a publication, it still holds this."""
        self.held = held
        self.recent = {one for one in self.recent if one > upto}

    def begin_saving(self, path: str) -> None:
        """Everything so far will be in that file."""
        self.saving, self.saving_from, self.saving_upto = path, len(self.log), self.shown

    def not_saved(self) -> None:
        """There is no such file: it is tried again when the log has grown as much again."""
        self.saving, self.weight = "", 0

    def may_deliver(self, publication: int) -> bool:
        """Whether a window in it may still hold a publication."""
        return publication in self.recent or publication in self.held

    def saved(self, path: str) -> str:
        """The file is there; gives the one that is not needed any more."""
        old, self.snapshot, self.saving, self.failures = self.snapshot, path, "", 0
        self.log = self.log[self.saving_from :]
        self.weight = sum(1 + (100 if isinstance(one, Match) else 0) for one in self.log)
        return old


PARTS_MAX = 1 << 16
"""Parts of a ticket have numbers of their own, so many apart from those of the next."""


class TicketPart(msgspec.Struct, gc=False):
    """What one cell is asked."""

    ticket: Ticket
    command: Match
    positions: Sequence[int]
    """The rows of the ticket that it is asked about."""


class Ticket(msgspec.Struct, eq=False):
    """A batch on its way."""

    number: int
    rows: list[MatchRow]
    advance_to: float | None
    part_rows_min: int = 1
    """Publications below which cutting it costs more than it saves."""
    waiting: dict[int, TicketPart] = msgspec.field(default_factory=dict)
    """By number, the parts that have not been answered."""
    found: dict[int, list[int]] = msgspec.field(default_factory=dict)
    """Subscriptions by the number of the publication."""
    ranked: list[RankedMatch] = msgspec.field(default_factory=list)
    undecided: set[int] = msgspec.field(default_factory=set)
    """Subscriptions that were passed over."""
    failed: dict[int, str] = msgspec.field(default_factory=dict)
    """Publications, by number, that a cell could not be asked about, and why."""
    next_part: int = 0

    def part(
        self, cell: int, positions: Sequence[int], raw: msgspec.Raw | None = None, *, slides: bool
    ) -> Match:
        """Have a cell asked about some rows; with `slides`, its windows move on afterwards."""
        if raw is None:
            raw = encoded_rows([self.rows[position] for position in positions])
        number = self.number * PARTS_MAX + self.next_part
        self.next_part += 1
        command = Match(cell, self.number, number, raw, self.advance_to if slides else None)
        self.waiting[number] = TicketPart(self, command, positions)
        return command

    def owed(self, cell: int) -> list[Match]:
        """What a cell has been asked and has not answered."""
        return [part.command for part in self.waiting.values() if part.command.cell == cell]

    @property
    def is_done(self) -> bool:
        return not self.waiting
