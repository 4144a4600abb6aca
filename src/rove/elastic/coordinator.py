"""The coordinator: sends subscriptions and publications to matchers and collects their matches.

It is part of the broker. While the broker matches by itself, it costs nothing. Once matching is
*offloaded*, every change goes to the cells that it concerns and every batch of publications becomes
a ticket (`records`). A cell gets all commands in one order, and a change waits for the tickets in
flight, so answers always reflect the subscriptions at the time of the publication.

When a matcher dies, its cells are made again in another matcher, or in the broker itself, and
unanswered batches are sent again. `layouts` distributes the cells, and `reconfiguration` changes
the distribution.

A ticket costs about 30 µs, and 2 µs for each of its publications, in the broker; the rest is the
matchers' time.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from rove.elastic.cell_host import CellHost, matched_of
from rove.elastic.commands import (
    AnyCommand,
    AnyReply,
    ChangeState,
    Close,
    Failed,
    Match,
    MatcherProcesses,
    MatchReply,
    MatchRow,
    Open,
    RankedMatch,
    Remove,
    Replies,
    Save,
    Saved,
    Unsaved,
    encoded_rows,
)
from rove.elastic.elasticity import ElasticitySettings, ScalingPolicy
from rove.elastic.layouts import CellLayout, Find, Partitioned, Placed, Replicated
from rove.elastic.records import PARTS_MAX, CellRecord, Ticket
from rove.match.cell import Cell

HITS_EVERY = 16
"""One ticket of this many is evaluated for how often subscriptions match."""
PART_S = 0.01
"""The work of a part of a ticket: some parts in flight keep all matchers busy, and none waits for
the end of a long one."""
PART_S_MIN = 0.001
"""A part with less work is not worth dividing."""
PART_ROWS_MAX = 2_048
ROW_COST_S = 1e-4
"""The cost of a publication until it is measured."""
NO_ROWS = encoded_rows([])
PROBE_ROWS = encoded_rows([MatchRow(0, "", b"{}", (), 0.0, (0,))] * 2)
"""Their topic filter does not exist."""
FAILURES_MAX = 2
"""After this many a cell is made again from its expressions instead of its file."""


class TicketResult(NamedTuple):
    """The subscriptions that match the publications of a ticket."""

    found: dict[int, list[int]]
    """Subscriptions by the number of the publication."""
    ranked: list[RankedMatch]
    undecided: set[int]
    """Subscriptions that were skipped: their patterns took too many steps."""
    failed: dict[int, str]
    """Publications, by number, whose matches are not known, and why."""


class RunningMatcher(NamedTuple):
    """A matcher that is running."""

    pid: int
    subscriptions: int
    messages: int


class Coordinator:
    """Matching in other processes; a `rove.elastic.commands.MatcherListener`."""

    def __init__(
        self,
        matchers: MatcherProcesses,
        settings: ElasticitySettings,
        find: Find,
        came_in: Callable[[list[Cell]], None],
    ) -> None:
        """`find` returns a subscription; `came_in` takes cells when the broker matches by
        itself."""
        self.matchers = matchers
        self.settings = settings
        self.scaling = ScalingPolicy(settings)
        self.find = find
        self._came_in = came_in
        self.is_offloaded = False
        self.members: dict[int, RunningMatcher] = {}
        """Matchers that are running."""
        self.awaited: set[int] = set()
        """Matchers that were started and are not running yet."""
        self.cells: dict[int, CellRecord] = {}
        self.current: CellLayout = Partitioned([])
        self.next_layout: CellLayout | None = None
        """The layout that is being built to replace it."""
        self.stateful: list[CellRecord] = []
        self.stateful_owner: dict[int, CellRecord] = {}
        self.own_messages = 0
        """Publications that the broker has matched by itself."""
        self.hits: Counter[int] = Counter()
        self.deaths: list[tuple[int, str]] = []
        """Matchers that have died and were not replaced yet."""
        self.troubles: list[str] = []
        """Warnings for the log."""
        self.probed: set[int] = set()
        """Cells that have executed every command before their probe."""
        self.on_death: Callable[[int, str], None] = lambda _matcher, _why: None
        self._row_cost_s = ROW_COST_S
        self._tickets: deque[Ticket] = deque()
        self._by_number: dict[int, Ticket] = {}
        self._next_ticket = 0
        self._next_cell = 0
        self._results: list[TicketResult] = []
        self._may_forget = False
        self._learned: deque[tuple[int, CellRecord, frozenset[int], int]] = deque()
        """Publications that a cell holds, valid once a ticket and all before it are released."""
        self.duplicates = 0
        """Answers that were ignored because there had been one already."""

    # -- subscriptions -------------------------------------------------------------------------

    def add(self, id: int) -> None:
        """Add a subscription."""
        one = self.find(id)
        if one.is_stateful:
            cell = min(self.stateful, key=lambda each: len(each.ids), default=None)
            if cell is None:
                cell = self.new_cell(self._quietest(), is_stateful=True)
                self.stateful.append(cell)
            cell.ids.add(id)
            cell.filters[one.filter] += 1
            self.stateful_owner[id] = cell
            self.tell(cell, one.command(cell.number))
            return
        self._place(self.current.add(one))
        if self.next_layout is not None:
            self._place(self.next_layout.add(one))

    def place_next(self, id: int) -> None:
        """Add a subscription to the layout that is being built."""
        assert self.next_layout is not None
        self._place(self.next_layout.add(self.find(id)))

    def remove_next(self, id: int) -> None:
        """Remove a subscription from the layout that is being built."""
        if self.next_layout is not None and id in self.next_layout:
            self._place(self.next_layout.remove(id))

    def change_next(self, id: int, changes: dict[str, object]) -> None:
        """Change the variables of its subscriber in the layout that is being built."""
        if self.next_layout is not None and id in self.next_layout:
            for cell in self.next_layout.holders(id):
                self.tell(cell, ChangeState(cell.number, id, changes))

    def remove(self, id: int, filter: int) -> None:
        """Remove a subscription."""
        self.hits.pop(id, None)
        cell = self.stateful_owner.pop(id, None)
        if cell is None:
            self._place(self.current.remove(id))
            self.remove_next(id)
            return
        cell.ids.discard(id)
        cell.filters[filter] -= 1
        if not cell.filters[filter]:
            del cell.filters[filter]
        self.tell(cell, Remove(cell.number, [id]))
        for other in self.stateful:
            if id in other.extra:
                other.extra.discard(id)
                self.tell(other, Remove(other.number, [id]))

    def change(self, id: int, changes: dict[str, object]) -> None:
        """Change the `me.` variables of its subscriber."""
        owner = self.stateful_owner.get(id)
        for cell in [owner] if owner is not None else self.current.holders(id):
            self.tell(cell, ChangeState(cell.number, id, changes))
        if owner is None:
            self.change_next(id, changes)

    def _place(self, placed: Iterable[Placed]) -> None:
        for cell, id, is_there in placed:
            if is_there:
                self.tell(cell, self.find(id).command(cell.number))
            else:
                self.tell(cell, Remove(cell.number, [id]))

    def _quietest(self) -> int:
        return min(self.members, key=lambda one: self.members[one].subscriptions)

    # -- cells ---------------------------------------------------------------------------------

    def new_cell(self, matcher: int, *, is_stateful: bool, snapshot: str = "") -> CellRecord:
        """Make a cell in a matcher."""
        self._next_cell += 1
        cell = CellRecord(self._next_cell, matcher, is_stateful, snapshot=snapshot)
        self.cells[cell.number] = cell
        self.matchers.send(matcher, [Open(cell.number, snapshot)])
        return cell

    def tell(self, cell: CellRecord, command: AnyCommand) -> None:
        """Send a command that changes a cell, after all tickets in flight are answered."""
        while self._tickets:
            self.matchers.wait()
        cell.keep(command)
        self.matchers.send(cell.matcher, [command])
        if cell.wants_saving:
            self.save(cell)

    def save(self, cell: CellRecord) -> str:
        """Save a cell; returns the path."""
        path = self.matchers.new_path()
        cell.begin_saving(path)
        self.matchers.send(cell.matcher, [Save(cell.number, path)])
        return path

    def probe(self, cell: CellRecord) -> None:
        """Put a cell into `probed` once it has executed all commands so far."""
        self.probed.discard(cell.number)
        # A stateless cell matches rows without any match, because its first answer takes longest.
        rows = NO_ROWS if cell.is_stateful else PROBE_ROWS
        self.matchers.send(cell.matcher, [Match(cell.number, -1, -1, rows)])

    def close(self, cell: CellRecord) -> None:
        """End a cell."""
        self.cells.pop(cell.number, None)
        self.probed.discard(cell.number)
        if cell.matcher in self.members:
            self.matchers.send(cell.matcher, [Close(cell.number)])
        for path in (cell.snapshot, cell.saving):
            self._forget(path)

    # -- publications --------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Tickets in flight."""
        return len(self._tickets)

    @property
    def ticket_rows(self) -> int:
        """The most publications that a ticket should have, by their recent cost."""
        part_rows = min(PART_ROWS_MAX, max(1, int(PART_S / self._row_cost_s)))
        return part_rows * max(1, self.current.shares)

    def submit(self, rows: list[MatchRow], advance_to: float | None) -> None:
        """Match publications, and advance windows to a moment."""
        self._next_ticket += 1
        part_rows_min = max(1, int(PART_S_MIN / self._row_cost_s))
        ticket = Ticket(self._next_ticket, rows, advance_to, part_rows_min)
        if rows:
            self._send_all(self.current.ask(ticket))
        for cell in self.stateful:
            filters = cell.filters
            positions = [
                position
                for position, row in enumerate(rows)
                if any(filters[filter] for filter in row.filters)
            ]
            if positions or (advance_to is not None and cell.may_slide(advance_to)):
                command = ticket.part(cell.number, positions, slides=True)
                cell.show(rows[position].number for position in positions)
                cell.keep(command, len(positions))
                self._send_all([command])
                if cell.wants_saving:
                    self.save(cell)
        self._tickets.append(ticket)
        self._by_number[ticket.number] = ticket
        self._release()

    def _send_all(self, asked: Sequence[Match]) -> None:
        for command in asked:
            cell = self.cells[command.cell]
            cell.asked += 1
            self.matchers.send(cell.matcher, [command])

    def wait(self) -> None:
        """Wait for a message of any matcher."""
        self.matchers.wait()

    def results(self) -> list[TicketResult]:
        """The results that are ready, in the order of submission."""
        results, self._results = self._results, []
        return results

    def take_may_forget(self) -> bool:
        """Whether there is news about which publications windows may still deliver."""
        found, self._may_forget = self._may_forget, False
        return found

    def may_deliver(self, publication: int) -> bool:
        """Whether a window may still hold a publication."""
        return any(cell.may_deliver(publication) for cell in self.stateful)

    def next_change_at(self) -> float:
        """When a window or a design must next be advanced."""
        return min((cell.next_change_at for cell in self.stateful), default=math.inf)

    def _release(self) -> None:
        while self._tickets and self._tickets[0].is_done:
            ticket = self._tickets.popleft()
            del self._by_number[ticket.number]
            self._results.append(
                TicketResult(ticket.found, ticket.ranked, ticket.undecided, ticket.failed)
            )
            if ticket.number % HITS_EVERY == 0:
                for ids in ticket.found.values():
                    self.hits.update(ids)
        # A publication that a cell no longer holds may be in answers that are not released yet.
        oldest = self._tickets[0].number if self._tickets else self._next_ticket + 1
        while self._learned and self._learned[0][0] < oldest:
            _, learned_of, held, upto = self._learned.popleft()
            learned_of.learn(held, upto)
            self._may_forget = True

    # -- messages of matchers ------------------------------------------------------------------

    def started(self, matcher: int, pid: int) -> None:
        """A matcher is running."""
        self.awaited.discard(matcher)
        self.members[matcher] = RunningMatcher(pid, 0, 0)

    def arrived(self, matcher: int, replies: Replies) -> None:
        """A matcher has sent replies."""
        member = self.members.get(matcher)
        if member is None:
            return
        messages = member.messages + replies.messages
        self.members[matcher] = RunningMatcher(member.pid, replies.subscriptions, messages)
        self.scaling.seen(
            matcher, replies.busy_s, replies.waited_s, replies.messages, self.matchers.clock()
        )
        for reply in replies.replies:
            self._heard(reply)
        self._release()

    def _heard(self, reply: AnyReply) -> None:
        cell = self.cells.get(reply.cell)
        if cell is None:
            if isinstance(reply, Saved):  # the cell ended while it was saved
                self.matchers.forget(reply.path)
            return
        match reply:
            case MatchReply():
                self._found(cell, reply)
            case Saved():
                if cell.saving == reply.path:
                    old = cell.saved(reply.path)
                    if cell.is_stateful:
                        held = frozenset(reply.held)
                        self._learned.append((self._next_ticket, cell, held, cell.saving_upto))
                    self._forget(old)
                else:
                    self.matchers.forget(reply.path)
            case Unsaved():
                self.matchers.forget(reply.path)
                if cell.saving == reply.path:
                    cell.not_saved()
                self.troubles.append(f"cell {cell.number} could not be saved: {reply.text}")
            case Failed():
                self.troubles.append(f"cell {cell.number} failed: {reply.text}")
                self.on_death(cell.matcher, f"cell {cell.number} failed: {reply.text}")
                if cell.number in self.cells:
                    self._failed(cell, reply)
                    self._make_again(cell, cell.matcher)

    def _found(self, cell: CellRecord, reply: MatchReply) -> None:
        if reply.part < 0:
            self.probed.add(cell.number)
            return
        ticket = self._by_number.get(reply.part // PARTS_MAX)
        part = None if ticket is None else ticket.waiting.pop(reply.part, None)
        if ticket is None or part is None:
            self.duplicates += 1
            return
        cell.asked -= 1
        cell.next_change_at = reply.next_change_at
        found = [(part.positions[row], ids) for row, ids in matched_of(reply).by_row()]
        ranked = reply.ranked
        undecided = reply.undecided
        if cell.is_stateful:
            ids_here = cell.ids
            undecided = [id for id in undecided if id in ids_here]
            found = [(row, [id for id in ids if id in ids_here]) for row, ids in found]
            ranked = [one for one in ranked if one.subscription in ids_here]
        else:
            cost_s = reply.took_s / len(part.positions)
            self._row_cost_s += (max(cost_s, 1e-6) - self._row_cost_s) / 16
            self._send_all(self.current.follow(ticket, cell.number, found))
        for row, ids in found:
            if ids:
                ticket.found.setdefault(ticket.rows[row].number, []).extend(ids)
        ticket.ranked += ranked
        ticket.undecided.update(undecided)

    # -- deaths --------------------------------------------------------------------------------

    def died(self, matcher: int, why: str) -> None:
        """A matcher has died: make its cells again elsewhere, and ask again what it owed."""
        self.awaited.discard(matcher)
        was_member = self.members.pop(matcher, None) is not None
        self.scaling.forget(matcher)
        self.deaths.append((matcher, why))
        # A reconfiguration is given up first, and the cells that were built for it end.
        self.on_death(matcher, why)
        if not was_member:
            return
        lost = [cell for cell in self.cells.values() if cell.matcher == matcher]
        if not lost:
            return
        if not self.members:
            self.come_in()
            return
        for cell in lost:
            if not self._is_spare(cell):
                self._make_again(cell, self._quietest())
        self._release()

    def _is_spare(self, cell: CellRecord) -> bool:
        """Whether it is a replica; then the others get its work, and it is dropped."""
        current = self.current
        if not isinstance(current, Replicated) or cell.is_stateful or len(current.cells) < 2:
            return False
        current.cells.remove(cell)
        self.close(cell)
        for ticket in self._tickets:
            for command in ticket.owed(cell.number):
                positions = ticket.waiting.pop(command.part).positions
                other = current.next_cell().number
                self._send_all([ticket.part(other, positions, slides=False)])
        return True

    def _make_again(self, cell: CellRecord, matcher: int) -> None:
        cell.matcher = matcher
        self.matchers.send(matcher, self._making(cell))

    def _making(self, cell: CellRecord) -> list[AnyCommand]:
        """The commands that restore a cell and repeat what it has not answered."""
        if cell.saving:
            self._forget(cell.saving)
            cell.saving = ""
        # A stateful cell has them in its log, in their place.
        owed = [] if cell.is_stateful else self._owed(cell)
        return [Open(cell.number, cell.snapshot), *cell.log, *owed]

    def _owed(self, cell: CellRecord) -> list[Match]:
        return [command for ticket in self._tickets for command in ticket.owed(cell.number)]

    def _failed(self, cell: CellRecord, failed: Failed) -> None:
        """A command of a cell has failed; if that happens again, the cell is made in another
        way."""
        cell.failures += 1
        if cell.failures < FAILURES_MAX:
            return
        if cell.failures > FAILURES_MAX:
            # It was made from nothing, so the question is at fault.
            self._narrow(cell, failed)
            if failed.part >= 0:
                return
        elif cell.is_stateful:
            self.troubles.append(
                f"cell {cell.number}: the windows of {len(cell.ids)} subscriptions begin anew,"
                " without the publications that they held"
            )
        old, cell.snapshot = cell.snapshot, ""
        self._forget(old)
        cell.log = [self.find(id).command(cell.number) for id in sorted(cell.ids)]
        cell.weight = len(cell.log)
        if cell.is_stateful:
            cell.log += self._owed(cell)
        cell.extra.clear()

    def _narrow(self, cell: CellRecord, failed: Failed) -> None:
        """Ask a cell about each publication of the failed part alone, or give up a single one.

        If the part is not known, all unanswered publications are given up together.
        """
        before = self._owed(cell)
        for ticket in self._tickets:
            for command in ticket.owed(cell.number):
                if failed.part not in (-1, command.part):
                    continue
                positions = ticket.waiting.pop(command.part).positions
                if failed.part < 0 or len(positions) < 2:
                    ticket.failed.update(
                        (ticket.rows[row].number, failed.text) for row in positions
                    )
                    continue
                slides = command.advance_to is not None
                for row in positions:
                    ticket.part(cell.number, [row], slides=slides and row == positions[-1])
        if cell.is_stateful:
            # Answered publications stay in the log, because its windows hold them.
            cell.log = [*(one for one in cell.log if one not in before), *self._owed(cell)]
        cell.asked = len(self._owed(cell))

    def _forget(self, path: str) -> None:
        """Remove a file of a cell, unless other cells need it."""
        if path and not any(cell.snapshot == path for cell in self.cells.values()):
            self.matchers.forget(path)

    def come_in(self) -> None:
        """Return to matching in the broker, with all cells as they are."""
        host = CellHost(self.matchers.read, self.matchers.write, self.matchers.clock)
        for cell in self._needed():
            while (failed := self._make_here(cell, host)) is not None:
                if cell.failures > FAILURES_MAX and failed.part < 0:
                    raise RuntimeError(f"cell {cell.number} cannot be made: {failed.text}")
                # Its file is missing or damaged: make it from its expressions.
                cell.failures = max(cell.failures, FAILURES_MAX - 1)
                self._failed(cell, failed)
        cells = []
        for cell in self._needed():
            found = host.cells[cell.number]
            for id in cell.extra:
                found.remove(id)
            cells.append(found)
        self._release()
        for cell in list(self.cells.values()):
            self.close(cell)
        self.stateful, self.stateful_owner = [], {}
        self._learned.clear()
        self.hits.clear()
        self._may_forget = False
        self.current, self.next_layout, self.is_offloaded = Partitioned([]), None, False
        self._came_in(cells)

    def _make_here(self, cell: CellRecord, host: CellHost) -> Failed | None:
        """Make a cell in the broker; returns why that failed."""
        failed = None
        for command in self._making(cell):
            for reply in host.handle(command):
                if isinstance(reply, Failed):
                    failed = reply
                else:
                    self._heard(reply)
        return failed

    def _needed(self) -> list[CellRecord]:
        """Cells that together hold every subscription once, in any layout."""
        plain = self.current.cells
        if isinstance(self.current, Replicated):
            plain = plain[:1]
        return [*plain, *self.stateful]
