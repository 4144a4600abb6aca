"""Reconfigurations: adding, removing and dividing matchers, and changes of layout, during
operation.

A reconfiguration is a generator: it yields the conditions that it waits for, and is resumed between
two batches of publications, when no ticket is in flight. New cells are built beside those in use
and replace them in one step at the end. If anything fails before, the new cells are ended, and the
old layout has never stopped working.

- *out*: the broker's cells are saved, and a matcher starts with them.
- *split*, replicated: a copy of a cell (its file, and the commands since) joins the others.
- *split* and *merge*, partitioned and hierarchical, and every change of layout: new cells are
  filled from the expressions, a few subscriptions at a time, so that no matcher is blocked for
  longer than some milliseconds. It takes 0.1 ms per subscription; copying and then removing the
  others' half takes a sixth of that, but delays twice as many publications.
- *stateful* cells (windows, designs) are copied; then either the old one is ended, or each removes
  what the other has, a few at a time, while answers for those are ignored.
- *in*: cells are saved, and the broker continues with them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import islice
from typing import Final, SupportsInt, cast

import msgspec

from rove.elastic.commands import Remove
from rove.elastic.coordinator import Coordinator
from rove.elastic.elasticity import ScalingDecision
from rove.elastic.layouts import CellLayout, Hierarchical, Partitioned, Replicated, divide, divided
from rove.elastic.records import CellRecord
from rove.elastic.view import Kind, Layout, MatchersView, MatcherView, Reconfiguration
from rove.match.cell import Cell

KEPT_RECONFIGURATIONS: Final = 100
ADDED_AT_ONCE: Final = 50
"""Subscriptions that a matcher adds between two batches: some 5 ms."""
REMOVED_AT_ONCE: Final = 200
LATER_S: Final = 0.01
"""The interval at which a condition is checked."""
CONSIDERED_EVERY_S: Final = 0.2
RECOVERY_PAUSE_S: Final = 0.5
RECOVERY_PAUSE_S_MAX: Final = 60.0
"""The pause between attempts to replace a dead matcher; doubles until one stays."""

Ready = Callable[[], bool]
Steps = Generator[Ready, None, int]
"""Yields the conditions that it waits for; returns how many subscriptions were moved."""


class GivenUp(Exception):
    """A reconfiguration cannot be completed."""


class Reconfigurer:
    """Decides on reconfigurations, and carries out one at a time."""

    def __init__(
        self,
        coordinator: Coordinator,
        own_cells: Callable[[], list[Cell]],
        went_out: Callable[[], None],
    ) -> None:
        """`own_cells` returns the broker's own cells; `went_out` is called when matchers have
        them."""
        self._c = coordinator
        coordinator.on_death = self._interrupted
        self._own_cells = own_cells
        self._went_out = went_out
        self.layout: Layout = coordinator.settings.layout
        self._target = 0
        """The number of matchers that there should be; a dead one is replaced."""
        self._steps: Steps | None = None
        self._ready: Ready = lambda: True
        self._decision: ScalingDecision | None = None
        self._now = 0.0
        self._considered_at = float("-inf")
        self._recovers_at = float("-inf")
        self._recovery_pause_s = RECOVERY_PAUSE_S
        self._replaced: list[tuple[int, str]] = []
        """Dead matchers that are being replaced."""
        self._running: Reconfiguration | None = None
        self._began_clock = 0.0
        self._made: list[CellRecord] = []
        """Cells that were made for the present reconfiguration."""
        self._started: list[int] = []
        self._extra: deque[CellRecord] = deque()
        self.history: deque[Reconfiguration] = deque(maxlen=KEPT_RECONFIGURATIONS)
        self.untold: list[Reconfiguration] = []
        """Reconfigurations that were not logged yet."""
        self.done: Counter[Kind] = Counter()
        self.failed = 0

    # -- deciding ------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self._steps is not None

    def next_step_at(self, now: float) -> float:
        """When to call `step` at the latest."""
        if self._steps is not None or self._extra or self._is_recovery_due(now):
            return now + LATER_S
        if self._c.is_offloaded or self._c.deaths or self._c.settings.matchers_min:
            return max(self._considered_at, 0.0) + 5 * CONSIDERED_EVERY_S
        return float("inf")  # the broker matches by itself, and looks whenever it has

    def wants_step(self, now: float) -> bool:
        """Whether `step` would do anything; it must be called when no ticket is in flight."""
        if self._steps is not None:
            return self._ready()
        if self._extra or self._is_recovery_due(now):
            return True
        return now - self._considered_at >= CONSIDERED_EVERY_S

    def step(self, now: float) -> None:
        """Continue the present reconfiguration, or see whether to begin one."""
        assert not self._c.waiting
        self._now = now
        if self._steps is not None:
            if self._ready():
                self._go_on()
            return
        self._remove_extra()
        self._considered_at = now
        if self._is_recovery_due(now):
            self._replace_the_dead()
            return
        decision = self._c.scaling.wants(self._parent_first(), self._c.matchers.clock())
        if decision is not None:
            self._decide(decision)

    def _parent_first(self) -> list[int]:
        numbers = sorted(self._c.members)
        current = self._c.current
        if isinstance(current, Hierarchical):
            parent = current.cells[0].matcher
            numbers.sort(key=lambda number: number != parent)
        return numbers

    def _decide(self, decision: ScalingDecision) -> None:
        self._decision = decision
        self._begin(decision.kind, decision.reason, self._to(decision.matchers))

    def _is_recovery_due(self, now: float) -> bool:
        return bool(self._c.deaths) and now >= self._recovers_at

    def _replace_the_dead(self) -> None:
        deaths, self._c.deaths = self._c.deaths, []
        self._replaced = deaths
        if len(self._c.members) < self._target:
            reason = "; ".join(f"matcher {number}: {why}" for number, why in deaths)
            self._begin("recovery", reason, self._to(self._target))

    def force(self, kind: Kind, now: float, layout: Layout | None = None) -> str:
        """Begin a reconfiguration on request; returns why not, or an empty text."""
        self._now = now
        if self._steps is not None:
            return "a reconfiguration is in progress; try again when it is done"
        count = len(self._c.members)
        if kind == "layout":
            assert layout is not None
            if layout == self.layout:
                return f"the layout is {layout} already"
            self._begin("layout", f"{layout} was asked for", self._switched(layout))
        elif kind == "split":
            if count >= self._c.settings.matchers_max:
                return f"there are {count} matchers, and more are not allowed"
            self._begin("split" if count else "out", "it was asked for", self._to(count + 1))
        else:
            if count <= self._c.settings.matchers_min:
                return f"there are {count} matchers, and fewer are not allowed"
            self._begin("merge" if count > 1 else "in", "it was asked for", self._to(count - 1))
        return ""

    # -- carrying out --------------------------------------------------------------------------

    def _begin(self, kind: Kind, reason: str, steps: Steps) -> None:
        self._steps, self._ready = steps, lambda: True
        self._made, self._started = [], []
        self._began_clock = self._c.matchers.clock()
        self._running = Reconfiguration(kind, reason, self._now, 0.0, 0, 0)

    def _go_on(self) -> None:
        assert self._steps is not None
        try:
            self._ready = next(self._steps)
        except StopIteration as end:
            self._end(end.value)
        except GivenUp as why:
            self._give_up(str(why))
        except Exception as error:
            # A fault of ours; but nothing has taken the place of anything, so all goes on.
            self._give_up(f"unexpected: {error!r}")

    def _end(self, moved: int, failure: str = "") -> None:
        running, decision = self._running, self._decision
        assert running is not None
        clock = self._c.matchers.clock()
        running.duration_s = clock - self._began_clock
        running.matchers, running.moved, running.failure = len(self._c.members), moved, failure
        self._steps = self._running = self._decision = None
        self.history.append(running)
        self.untold.append(running)
        judge = self._c.scaling
        if running.kind == "recovery":
            self._recovers_at = self._now + self._recovery_pause_s
            self._recovery_pause_s = min(2 * self._recovery_pause_s, RECOVERY_PAUSE_S_MAX)
            if failure and not self._c.deaths:
                self._c.deaths = self._replaced
        elif not failure:
            self._recovery_pause_s = RECOVERY_PAUSE_S
        if failure:
            self.failed += 1
            if decision is not None:
                judge.failed(decision, clock)
        else:
            self.done[running.kind] += 1
            self._target = len(self._c.members)
            if decision is not None:
                judge.done(decision, clock)
            else:
                judge.restart(clock)

    def _give_up(self, why: str) -> None:
        """Give up, and leave everything as it was."""
        self._c.next_layout = None
        for cell in self._made:
            self._c.close(cell)
        for matcher in self._started:
            if not any(cell.matcher == matcher for cell in self._c.cells.values()):
                self._stop(matcher)
        self._end(0, why)

    def _interrupted(self, matcher: int, why: str) -> None:
        """A matcher has died: how far the present reconfiguration was is not known."""
        if self._steps is not None:
            self._steps.close()
            self._give_up(f"matcher {matcher}: {why}")

    def _stop(self, matcher: int) -> None:
        self._c.members.pop(matcher, None)
        self._c.awaited.discard(matcher)
        self._c.scaling.forget(matcher)
        self._c.matchers.stop(matcher)

    # -- numbers of matchers -------------------------------------------------------------------

    def _to(self, count: int) -> Steps:
        """Change the number of matchers."""
        present = len(self._c.members)
        if count > present:
            moved = yield from self._grown(count - present)
        elif count:
            moved = yield from self._shrunk(present - count)
        else:
            moved = yield from self._come_in()
        return moved

    def _grown(self, more: int) -> Steps:
        """Add matchers, one after the other, because starting one takes time from the others."""
        c = self._c
        new: list[int] = []
        moved = 0
        for _ in range(more):
            matcher = yield from self._begun()
            if c.is_offloaded:
                new.append(matcher)
            else:
                moved += yield from self._go_out(matcher)
        if new and self.layout == "replicated":
            moved += yield from self._joined(new)
        elif new or len(c.current.cells) > len(c.members):
            moved += yield from self._rebuilt(self.layout, sorted(c.members))
        if new:
            moved += yield from self._spread_kept()
        return moved

    def _begun(self) -> Generator[Ready, None, int]:
        """Start a matcher, and wait until it is ready."""
        c = self._c
        matcher = c.matchers.start()
        self._started.append(matcher)
        c.awaited.add(matcher)
        yield lambda: matcher not in c.awaited
        if matcher not in c.members:
            raise GivenUp("a matcher did not start")
        return matcher

    def _go_out(self, matcher: int) -> Steps:
        """Move the broker's cells to a matcher.

        Stateless cells go first, and get changes while the broker still matches; when the matcher
        has them ready, stateful ones follow, and the matcher takes over.
        """
        c = self._c
        plain: list[CellRecord] = []
        for own in self._own_cells():
            ids = own.stateless_ids()
            if ids or not plain:
                plain.append(self._taken_over(matcher, own, ids, is_stateful=False))
        coming = Replicated(plain) if self._is_one_replica(plain) else Partitioned(plain)
        c.next_layout = coming
        yield from self._caught_up(plain)
        kept = [
            self._taken_over(matcher, own, kept_ids, is_stateful=True)
            for own in self._own_cells()
            if (kept_ids := own.stateful_ids())
        ]
        c.current, c.next_layout = coming, None
        c.stateful = kept
        c.stateful_owner = {id: cell for cell in kept for id in cell.ids}
        c.is_offloaded = True
        self._made = []
        self._went_out()
        return sum(len(cell.ids) for cell in (*plain, *kept))

    def _is_one_replica(self, plain: Sequence[CellRecord]) -> bool:
        return self.layout == "replicated" and len(plain) == 1

    def _taken_over(
        self, matcher: int, own: Cell, ids: set[int], *, is_stateful: bool
    ) -> CellRecord:
        c = self._c
        path = c.matchers.new_path()
        try:
            c.matchers.write(path, own.save(stateless=not is_stateful, stateful=is_stateful))
        except OSError as error:
            c.matchers.forget(path)
            raise GivenUp(f"{path} cannot be written: {error.strerror}") from None
        cell = c.new_cell(matcher, is_stateful=is_stateful, snapshot=path)
        self._made.append(cell)
        cell.ids = ids
        if is_stateful:
            cell.held = frozenset(int(cast(SupportsInt, key)) for key in own.live_keys())
            cell.filters = Counter(c.find(id).filter for id in ids)
            cell.next_change_at = own.next_change_at()
        return cell

    def _shrunk(self, fewer: int) -> Steps:
        """End the least busy matchers."""
        c = self._c
        by_load = sorted(c.members, key=lambda one: (-c.scaling.idle_share(one), -one))
        leaving = by_load[:fewer]
        staying = sorted(set(c.members).difference(leaving))
        moved = yield from self._kept_moved(leaving, staying)
        current = c.current
        if isinstance(current, Replicated) and self.layout == "replicated":
            going = [cell for cell in current.cells if cell.matcher in leaving]
            if len(going) == len(current.cells):
                moved += yield from self._joined(staying[:1])
            for cell in going:
                current.cells.remove(cell)
                c.close(cell)
        else:
            moved += yield from self._rebuilt(self.layout, staying)
            # The first one of all may have come meanwhile, and gone to any of them.
            moved += yield from self._kept_moved(leaving, staying)
        for matcher in leaving:
            self._stop(matcher)
        return moved

    def _come_in(self) -> Steps:
        c = self._c
        moved = sum(len(cell.ids) for cell in (*c.current.cells, *c.stateful))
        if not isinstance(c.current, Replicated) and len(c.current.cells) > 1:
            moved += yield from self._rebuilt("replicated", sorted(c.members)[:1])
        for cell in (*c.current.cells[:1], *c.stateful):
            yield from self._freshly_saved(cell)
        c.come_in()
        for matcher in list(c.members):
            self._stop(matcher)
        return moved

    def take_back(self) -> None:
        """Return everything to the broker at once, as before it ends; waits for it."""
        c = self._c
        if self._steps is not None:
            self._steps.close()
            self._give_up("the broker takes everything back")
        if not c.is_offloaded:
            return
        # As a rearrangement like any other, so that a death ends it.
        self._begin("in", "the broker takes everything back", self._come_in())
        while self._steps is not None:
            if self._ready():
                self._go_on()
            else:
                c.wait()
        if c.is_offloaded:
            # Somebody has died meanwhile: then from files, in as many cells as there are.
            c.come_in()
            for matcher in list(c.members):
                self._stop(matcher)

    # -- plain cells ---------------------------------------------------------------------------

    def _joined(self, new: Sequence[int]) -> Steps:
        """Add replicas in other matchers."""
        c = self._c
        current = c.current
        if not isinstance(current, Replicated):
            return (yield from self._rebuilt("replicated", sorted(c.members)))
        copies = []
        for matcher in new:
            copy = yield from self._copied(current.cells[0], matcher)
            copies.append(copy)
            # From now on it gets all changes, but no publications yet.
            c.next_layout = Replicated(copies)
        yield from self._caught_up(copies)
        c.next_layout = None
        current.cells += copies
        self._made = []
        return sum(len(copy.ids) for copy in copies)

    def _switched(self, layout: Layout) -> Steps:
        c = self._c
        moved = 0
        if c.is_offloaded:
            moved = yield from self._rebuilt(layout, sorted(c.members))
        self.layout = c.scaling.layout = layout
        return moved

    def _rebuilt(self, layout: Layout, matchers: Sequence[int]) -> Steps:
        """Build stateless cells for a layout from the expressions, and replace the old ones."""
        c = self._c
        cells = [c.new_cell(matcher, is_stateful=False) for matcher in matchers]
        self._made += cells
        ids = sorted({id for cell in c.current.cells for id in cell.ids})
        coming = self._arranged(layout, cells, ids)
        c.next_layout = coming
        remaining = iter(ids)
        while chunk := list(islice(remaining, ADDED_AT_ONCE)):
            for id in chunk:
                # Meanwhile it may have gone, or have been replaced there already.
                if id in c.current and id not in coming:
                    c.place_next(id)
            yield from self._caught_up(cells)
        yield from self._caught_up(cells)
        old, c.current, c.next_layout = c.current, coming, None
        self._made = [cell for cell in self._made if cell not in cells]
        for cell in old.cells:
            c.close(cell)
        return len(ids)

    def _arranged(
        self, layout: Layout, cells: Sequence[CellRecord], ids: Sequence[int]
    ) -> CellLayout:
        if layout == "replicated":
            return Replicated(cells)
        if layout == "hierarchical" and len(cells) > 1:
            return Hierarchical(cells)
        # Divided by cost: a fixed one for each subscription, and one for each match.
        shares = divided(ids, self._c.hits, 1.0, len(cells))
        of_cell = {id: number for number, share in enumerate(shares) for id in share}
        self._c.hits.clear()
        return Partitioned(cells, of_cell)

    # -- kept cells ----------------------------------------------------------------------------

    def _kept_at(self, matcher: int) -> int:
        return sum(len(cell.ids) for cell in self._c.stateful if cell.matcher == matcher)

    def _spread_kept(self) -> Steps:
        """Move stateful subscriptions to matchers that have none."""
        c = self._c
        moved = 0
        for cell in [one for one in c.stateful if not one.ids]:
            c.stateful.remove(cell)
            c.close(cell)
        while c.stateful:
            without = [one for one in sorted(c.members) if not self._kept_at(one)]
            cells_at = Counter(cell.matcher for cell in c.stateful)
            together = [cell for cell in c.stateful if cells_at[cell.matcher] > 1]
            largest = max(together or c.stateful, key=lambda cell: len(cell.ids))
            if not without or not (together or len(largest.ids) > 1):
                break
            # Halving whenever there is one that could be moved would leave ever more cells.
            move = self._moved if together else self._halved
            moved += yield from move(largest, without[-1])
        return moved

    def _moved(self, cell: CellRecord, matcher: int) -> Steps:
        """Move a stateful cell to another matcher."""
        c = self._c
        yield from self._freshly_saved(cell)
        # Both from the same file and the same commands, between two publications.
        copy = self._copy(cell, matcher)
        self._take_over(cell, copy, set(cell.ids))
        c.stateful.remove(cell)
        c.close(cell)
        if copy.extra:
            self._extra.append(copy)
        return len(copy.ids)

    def _kept_moved(self, leaving: Sequence[int], staying: Sequence[int]) -> Steps:
        moved = 0
        while going := [cell for cell in self._c.stateful if cell.matcher in leaving]:
            moved += yield from self._moved(going[0], min(staying, key=self._kept_at))
        return moved

    def _halved(self, cell: CellRecord, matcher: int) -> Steps:
        """Move half of a stateful cell, by cost, to another matcher."""
        yield from self._freshly_saved(cell)
        copy = self._copy(cell, matcher)
        going = set(divide(sorted(cell.ids), self._c.hits, 1.0)[1])
        copy.extra |= cell.ids - going
        cell.extra |= going
        self._take_over(cell, copy, going)
        self._extra += [cell, copy]
        return len(going)

    def _take_over(self, cell: CellRecord, copy: CellRecord, going: set[int]) -> None:
        c = self._c
        copy.ids = going
        cell.ids -= going
        for id in going:
            c.stateful_owner[id] = copy
        for one in (cell, copy):
            one.filters = Counter(c.find(id).filter for id in one.ids)
        c.stateful.append(copy)
        self._made = [made for made in self._made if made is not copy]

    def _remove_extra(self) -> None:
        if self._extra:
            cell = self._extra.popleft()
            if cell.number not in self._c.cells:
                return
            going = list(islice(cell.extra, REMOVED_AT_ONCE))
            if going:
                cell.extra.difference_update(going)
                self._c.tell(cell, Remove(cell.number, going))
            if cell.extra:
                self._extra.append(cell)

    # -- copies --------------------------------------------------------------------------------

    def _freshly_saved(self, cell: CellRecord) -> Generator[Ready, None, None]:
        """Save a cell, so that few commands are newer than its file."""
        if cell.log or not cell.snapshot:
            if not cell.saving:
                self._c.save(cell)
            path = cell.saving
            # By the time that this is looked at, it may have been saved again.
            yield lambda: cell.saving != path
        if cell.number not in self._c.cells:
            raise GivenUp(f"cell {cell.number} is no more")

    def _copied(self, cell: CellRecord, matcher: int) -> Generator[Ready, None, CellRecord]:
        yield from self._freshly_saved(cell)
        return self._copy(cell, matcher)

    def _copy(self, cell: CellRecord, matcher: int) -> CellRecord:
        c = self._c
        copy = c.new_cell(matcher, is_stateful=cell.is_stateful, snapshot=cell.snapshot)
        self._made.append(copy)
        copy.ids, copy.extra = set(cell.ids), set(cell.extra)
        copy.next_change_at = cell.next_change_at
        copy.held, copy.recent, copy.shown = cell.held, set(cell.recent), cell.shown
        copy.log = [msgspec.structs.replace(one, cell=copy.number) for one in cell.log]
        copy.weight = cell.weight
        c.matchers.send(matcher, copy.log)
        return copy

    def _caught_up(self, cells: Sequence[CellRecord]) -> Generator[Ready, None, None]:
        """Wait until cells have executed all commands."""
        for cell in cells:
            self._c.probe(cell)
        numbers = {cell.number for cell in cells}
        yield lambda: numbers <= self._c.probed

    # -- being seen ----------------------------------------------------------------------------

    def view(self, now: float) -> MatchersView:
        """For people."""
        c = self._c
        settings = c.settings
        return MatchersView(
            self.layout,
            list(self._views(now)),
            settings.matchers_min,
            settings.matchers_max,
            list(self.history),
            dict(self.done),
            self.failed,
            c.waiting,
            self.is_running,
        )

    def _views(self, now: float) -> Iterator[MatcherView]:
        c = self._c
        judge, clock = c.scaling, c.matchers.clock()
        if not c.is_offloaded:
            own = sum(len(cell) for cell in self._own_cells())
            idle, rate = judge.idle_share(0), judge.rate(0, clock)
            count = len(self._own_cells())
            yield MatcherView(0, 0, count, own, idle, rate, c.own_messages, "broker")
        for number, member in sorted(c.members.items()):
            cells = [cell for cell in c.cells.values() if cell.matcher == number]
            yield MatcherView(
                number,
                member.pid,
                len(cells),
                sum(len(cell.ids) for cell in cells),
                judge.idle_share(number),
                judge.rate(number, clock),
                member.messages,
                self._role(number),
            )

    def _role(self, matcher: int) -> str:
        current = self._c.current
        if not isinstance(current, Hierarchical):
            return "member"
        return "parent" if current.cells[0].matcher == matcher else "child"
