"""Batches of publications on their way through the matchers.

A batch is a *ticket*. It has a part for each cell that is asked; a part is done when its answer is
there, the ticket when all parts are, and tickets are given back in the order in which they were
handed in, whatever came first. An answer for a part that is done already, as after a matcher was
thought dead, is not used: that is how duplicates are removed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rove.elastic.commands import Match, Ranked, Row, encoded_rows

PARTS_MAX = 1 << 16
"""Parts of a ticket have numbers of their own, so many apart from those of the next."""


class Part(msgspec.Struct, gc=False):
    """What one cell is asked."""

    ticket: Ticket
    command: Match
    positions: Sequence[int]
    """The rows of the ticket that it is asked about."""


class Ticket(msgspec.Struct, eq=False):
    """A batch on its way."""

    number: int
    rows: list[Row]
    advance_to: float | None
    part_rows_min: int = 1
    """Publications below which cutting it costs more than it saves."""
    waiting: dict[int, Part] = msgspec.field(default_factory=dict)
    """By number, the parts that have not been answered."""
    found: dict[int, list[int]] = msgspec.field(default_factory=dict)
    """Subscriptions by the number of the publication."""
    ranked: list[Ranked] = msgspec.field(default_factory=list)
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
        self.waiting[number] = Part(self, command, positions)
        return command

    def owed(self, cell: int) -> list[Match]:
        """What a cell has been asked and has not answered."""
        return [part.command for part in self.waiting.values() if part.command.cell == cell]

    @property
    def is_done(self) -> bool:
        return not self.waiting
