"""The index of all subscriptions with a filter expression.

They live in a cell (`rove.match.cell`), which gets a publication with the numbers of the topic
filters that fit it (rarely more than two). The broker matches a batch of publications at once, or
matcher processes answer later (`rove.elastic.coordinator`). A change of a subscription first has
earlier publications matched.

An index in which a call failed may be corrupt: it is rebuilt from the subscriptions, which costs as
much as adding all of them again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from rove.broker.publications.publication import Publication
from rove.broker.sessions.session import Session, Subscription
from rove.broker.steps import Steps
from rove.broker.subscriptions.interest import Interest
from rove.broker.subscriptions.routes import NOBODY, MatchResult, PublicationBatch, RankedHit
from rove.elastic.commands import MatcherProcesses, MatchRow
from rove.elastic.coordinator import Coordinator, TicketResult
from rove.elastic.elasticity import ElasticitySettings
from rove.elastic.layouts import SubscriptionSource
from rove.elastic.reconfiguration import Reconfigurer
from rove.lang.errors import LanguageError
from rove.match.cell import Cell, CellSubscription, check
from rove.match.designs.design import Counters
from rove.match.matcher import Work
from rove.match.results import RankedDelivery

HEAD_BYTES = 4096  # a page, so that what follows can be mapped
LOAD_EVERY_S = 0.02
"""How often the broker's load is measured."""


class _CellPublication:
    """A publication, as a cell takes it."""

    __slots__ = ("at", "attributes", "filters", "key")

    def __init__(self, publication: Publication, filters: Sequence[int]) -> None:
        self.key = publication
        self.at = publication.at
        self.filters = filters
        self.attributes = publication.attributes


class ExpressionIndex:
    """The subscriptions with an expression, in the broker's own cells or in matchers."""

    def __init__(self, steps: Steps, *, compiled: bool = True) -> None:
        self._steps = steps
        self._compiled = compiled
        self._cells = [Cell(compiled=compiled)]
        """The cells in the broker: with all subscriptions, or empty while matchers have them."""
        self.ranked_filters: Counter[int] = Counter()
        """How many ranked subscriptions there are, by the number of the topic filter."""
        self._saved: set[int] = set()
        """Numbers of subscriptions in the index from before a restart; only while restoring."""
        self.asked: deque[PublicationBatch] = deque()
        """Batches that matchers have not answered, in order."""
        self.match_first: Callable[[], None] = lambda: None
        """Has all earlier publications matched before a change (`PublicationQueue.match`)."""
        self._shown: dict[int, Publication] = {}
        """Publications that windows have only by number."""
        self._coordinator: Coordinator | None = None
        self.reconfigurer: Reconfigurer | None = None
        self._busy_s = self._cpu_s = self._seen_at = 0.0
        self._messages = 0
        self._subscriptions: dict[int, Subscription] = {}

    # -- changing ------------------------------------------------------------------------------

    def add(self, new: Subscription, interest: Interest) -> None:
        """Add a subscription; LanguageError if the matcher refuses it."""
        try:
            self._add(new, interest)
        except LanguageError:
            self._subscriptions.pop(new.number, None)
            raise
        except Exception:
            self._subscriptions.pop(new.number, None)
            self._mend(new)
            raise
        self._subscriptions[new.number] = new

    def unadd(self, new: Subscription, interest: Interest) -> None:
        """Undo adding a subscription."""
        del self._subscriptions[new.number]
        self._count_ranked(new, interest, -1)
        self._take_out(new)

    def remove(self, old: Subscription, interest: Interest, done: list[str]) -> None:
        """Remove a subscription; if that fails, call it again with the same list `done`."""
        self._subscriptions.pop(old.number, None)
        if not done:
            self._count_ranked(old, interest, -1)
            done.append("rank")
        self._take_out(old)

    def _add(self, new: Subscription, interest: Interest) -> None:
        wanted = _wanted(new, interest)
        coordinator = self._coordinator
        if coordinator is not None and coordinator.is_offloaded:
            check(wanted)
            self._subscriptions[new.number] = new
            coordinator.add(new.number)
            self._count_ranked(new, interest, 1)
            return
        cell = self._cells[0]
        if new.number in self._saved:
            if not interest.uses_me:
                return
            # Its state may have changed since: the saved entry is out of date.
            cell.remove(new.number)
        if wanted.is_stateful:
            # The last cell has all windows and designs: they move to matchers together.
            cell = self._cells[-1]
        cell.add(wanted)
        self._count_ranked(new, interest, 1)
        if coordinator is None or coordinator.next_layout is None or wanted.is_stateful:
            return
        self._subscriptions[new.number] = new
        coordinator.place_next(new.number)

    def _count_ranked(self, one: Subscription, interest: Interest, change: int) -> None:
        if interest.is_ranked:
            self.ranked_filters[one.filter_number] += change
            if not self.ranked_filters[one.filter_number]:
                del self.ranked_filters[one.filter_number]

    def _take_out(self, old: Subscription) -> None:
        """Remove it from the index; if that fails, rebuild the index."""
        try:
            self._remove_expression(old)
        except Exception as error:
            self._steps.troubles.append(error)
            self._mend(old)

    def _remove_expression(self, old: Subscription) -> None:
        if self._coordinator is not None and self._coordinator.is_offloaded:
            self._coordinator.remove(old.number, old.filter_number)
        else:
            self._cell_of(old.number).remove(old.number)
            if self._coordinator is not None:
                self._coordinator.remove_next(old.number)

    def _cell_of(self, number: int) -> Cell:
        if len(self._cells) == 1:
            return self._cells[0]
        return next(cell for cell in self._cells if number in cell)

    def set_state(
        self, session: Session, me: dict[str, object], changes: Mapping[str, object]
    ) -> bool:
        """Set a subscriber's variables to `me`; returns whether subscriptions use any.

        Earlier publications are matched first, with the earlier values. If the step fails, all
        subscriptions move back.
        """
        following = [
            one
            for one in session.subscriptions.values()
            if one.interest is not None and one.interest.uses_me and one.interest.is_live
        ]
        if following:
            self.match_first()
            back = {name: session.me.get(name) for name in changes}
            for one in following:
                self._steps.undoes(self._move_back, one, back)
        self._steps.saves(session, "me")
        session.me = me
        for one in following:
            self._move(one, changes)
        return bool(following)

    def _move(self, subscription: Subscription, changes: Mapping[str, object]) -> None:
        number = subscription.number
        if self._coordinator is not None and self._coordinator.is_offloaded:
            self._coordinator.change(number, dict(changes))
        else:
            self._cell_of(number).set_state(number, changes)
            if self._coordinator is not None:
                self._coordinator.change_next(number, dict(changes))

    def _move_back(self, subscription: Subscription, changes: Mapping[str, object]) -> None:
        """Undo a change of variables, which may have been made incompletely."""
        try:
            self._move(subscription, changes)
        except Exception as error:
            self._steps.troubles.append(error)
            self._mend(subscription)

    # -- repairing -----------------------------------------------------------------------------

    def _mend(self, suspect: Subscription) -> None:
        """Rebuild an index in which something failed, because it may be corrupt."""
        coordinator = self._coordinator
        if coordinator is not None and self.reconfigurer is not None and coordinator.is_offloaded:
            self.reconfigurer.take_back()
        interest = suspect.interest
        assert interest is not None
        cell = next((one for one in self._cells if suspect.number in one), self._cells[-1])
        if interest.is_ranked:
            self._renew_ranked(cell, [suspect.filter_number], ())
        else:
            cell.renew_unranked(self._wanted_in(cell))

    def _renew_ranked(
        self, cell: Cell, filters: Iterable[int], without: Iterable[Publication]
    ) -> None:
        """Rebuild windows, without the publications `without`.

        The publications that they hold are matched again. A window that counts publications misses
        those that could not have been delivered any more; that is logged.
        """
        left_out = set(without)
        wanted = self._wanted_in(cell)
        for filter in filters:
            held = {self._publication(key): key for key in cell.held_by(filter)}
            again = [
                (_CellPublication(one, (filter,)), held[one])
                for one in sorted(held, key=lambda one: one.number)
                if one not in left_out
            ]
            cell.renew_ranked(filter, wanted, again)
            made = self._those(one.id for one in wanted if one.filter == filter)
            if any(one.interest and one.interest.cost.window_publications for one in made):
                self._steps.warnings.append(f"windows on {made[0].topic_filter} may count too few")

    def _wanted_in(self, cell: Cell) -> list[CellSubscription]:
        """The subscriptions that belong to a cell."""
        elsewhere: set[int] = set()
        for other in self._cells:
            if other is not cell:
                elsewhere |= other.ids()
        return [
            _wanted(one, one.interest)
            for one in self._subscriptions.values()
            if one.interest is not None and one.number not in elsewhere
        ]

    # -- matching ------------------------------------------------------------------------------

    def match(self, batch: PublicationBatch, advance_to: float | None = None) -> None:
        """Match the publications of a batch, which has its routes; then slide windows to a time.

        The result is set at once, or when the matchers have answered.
        """
        shown = []
        for publication, route in zip(batch.publications, batch.routes, strict=True):
            if route.filters:
                shown.append(_CellPublication(publication, route.filters))
        coordinator = self._coordinator
        if coordinator is not None and coordinator.is_offloaded:
            coordinator.submit(self._rows(shown), advance_to)
            self.asked.append(batch)
            # The broker's remaining load tells whether it could match by itself again.
            self._measure(coordinator, 0.0, len(batch.routes))
            return
        result = self._matched(shown, batch.publications) if shown else NOBODY
        if advance_to is not None:
            result = result._replace(ranked=[*result.ranked, *self._advanced(advance_to)])
        batch.result = result

    @property
    def is_offloaded(self) -> bool:
        """Whether matcher processes do the matching."""
        return self._coordinator is not None and self._coordinator.is_offloaded

    @property
    def has_room(self) -> bool:
        """Whether a matcher is free for another batch; if not, batches grow."""
        coordinator = self._coordinator
        return coordinator is None or coordinator.waiting < 2 * max(1, len(coordinator.members))

    @property
    def batch_max(self) -> int:
        """The most publications of a batch, so that it does not take too long."""
        assert self._coordinator is not None
        return self._coordinator.ticket_rows

    def take_answers(self, *, waits: bool = False) -> None:
        """Set the results of batches that matchers have answered; with `waits`, of all batches."""
        coordinator = self._coordinator
        if coordinator is None:
            return
        self._collect(coordinator)
        while waits and self.asked:
            coordinator.wait()
            self._collect(coordinator)
        if coordinator.take_may_forget():
            self._forget(coordinator.may_deliver)

    def _collect(self, coordinator: Coordinator) -> None:
        for result in coordinator.results():
            self.asked.popleft().result = self._result_of(result)

    def _forget(self, is_held: Callable[[int], bool]) -> None:
        """Drop publications that no window holds any more."""
        self._shown = {number: one for number, one in self._shown.items() if is_held(number)}

    def _rows(self, shown: Sequence[_CellPublication]) -> list[MatchRow]:
        rows = []
        for one in shown:
            publication, filters = one.key, one.filters
            user = tuple(publication.properties.user)
            topic, payload = publication.topic, publication.payload
            rows.append(MatchRow(publication.number, topic, payload, user, one.at, tuple(filters)))
            if not self.ranked_filters.keys().isdisjoint(filters):
                self._shown[publication.number] = publication
        return rows

    def _result_of(self, result: TicketResult) -> MatchResult:
        found = {number: self._those(ids) for number, ids in result.found.items()}
        known, shown = self._subscriptions, self._shown
        ranked = [
            RankedHit(known[one.subscription], shown[one.number], one.at, one.promoted)
            for one in sorted(result.ranked, key=lambda one: (one.at, one.subscription))
        ]
        return MatchResult(found, ranked, self._those(sorted(result.undecided)), result.failed)

    def _those(self, ids: Iterable[int]) -> list[Subscription]:
        return list(map(self._subscriptions.__getitem__, ids))

    def _matched(
        self, shown: list[_CellPublication], publications: Sequence[Publication]
    ) -> MatchResult:
        found: dict[int, list[Subscription]] = {}
        ranked: list[RankedDelivery] = []
        undecided: list[Subscription] = []
        coordinator = self._coordinator
        began = 0.0 if coordinator is None else coordinator.matchers.clock()
        for cell in self._cells:
            try:
                matched = cell.match(shown)
            except Exception:
                self._renew_ranked(cell, cell.touched, publications)
                raise
            ranked += matched.ranked
            if matched.undecided:
                undecided += self._those(matched.undecided)
            for row, ids in matched.by_row():
                matches = found.setdefault(shown[row].key.number, [])
                matches += map(self._subscriptions.__getitem__, ids)
        if coordinator is not None:
            coordinator.own_messages += len(shown)
            self._measure(coordinator, coordinator.matchers.clock() - began, len(shown))
        return MatchResult(found, self._given(ranked) if ranked else (), undecided)

    def _measure(self, coordinator: Coordinator, busy_s: float, messages: int) -> None:
        """Measure the broker's load, from matching and in total."""
        clock = coordinator.matchers.clock()
        self._busy_s += busy_s
        self._messages += messages
        passed_s = clock - self._seen_at
        if passed_s >= LOAD_EVERY_S:
            cpu_s = coordinator.matchers.cpu_s()
            used_s = min(cpu_s - self._cpu_s, passed_s)
            other_s = max(0.0, used_s - self._busy_s)
            waited_s = max(0.0, passed_s - self._busy_s - other_s)
            coordinator.scaling.seen(0, self._busy_s, waited_s, self._messages, clock, other_s)
            self._seen_at, self._cpu_s, self._busy_s, self._messages = clock, cpu_s, 0.0, 0

    def _given(self, ranked: Iterable[RankedDelivery]) -> list[RankedHit]:
        given = []
        for one in sorted(ranked, key=lambda one: (one.at, one.subscription)):
            subscription = self._subscriptions[one.subscription]
            given.append(RankedHit(subscription, self._publication(one.key), one.at, one.promoted))
        return given

    def _publication(self, key: object) -> Publication:
        """The publication of a key in a window."""
        return key if isinstance(key, Publication) else self._shown[key]  # type: ignore[index]

    # -- time and maintenance ------------------------------------------------------------------

    def advance(self, now: float) -> Sequence[RankedHit]:
        """Slide windows and evolve designs; no batch must be pending."""
        if not self.is_offloaded:
            return self._advanced(now)
        slide = PublicationBatch((), ())
        self.match(slide, now)
        self.take_answers(waits=True)
        return () if slide.result is None else slide.result.ranked

    def _advanced(self, now: float) -> list[RankedHit]:
        given: list[RankedDelivery] = []
        for cell in self._cells:
            for filter in cell.slides:
                try:
                    given += cell.advance_some(filter, now)
                except Exception as error:
                    self._steps.troubles.append(error)
                    self._renew_ranked(cell, [filter], ())
        return self._given(given)

    def next_change_at(self) -> float:
        """The time by which `advance` has to be called."""
        if self._coordinator is not None and self._coordinator.is_offloaded:
            return self._coordinator.next_change_at()
        return min([cell.next_change_at() for cell in self._cells])

    def counters(self) -> Mapping[str, Counters]:
        """What each design for evolving subscriptions has done so far, here in the broker."""
        return {name: each for cell in self._cells for name, each in cell.counters().items()}

    def merge_due(self) -> Work | None:
        """Work on the index for another thread, to be installed afterwards (see `Matcher`)."""
        works = (cell.merge_due() for cell in self._cells)
        return next((work for work in works if work is not None), None)

    # -- matchers ------------------------------------------------------------------------------

    def attach(self, matchers: MatcherProcesses, settings: ElasticitySettings) -> Coordinator:
        """Let matcher processes take over when the broker has too much to do."""
        self._coordinator = Coordinator(matchers, settings, self._source, self._came_in)
        self.reconfigurer = Reconfigurer(self._coordinator, self._own_cells, self._went_out)
        return self._coordinator

    def _source(self, number: int) -> SubscriptionSource:
        one = self._subscriptions[number]
        interest = one.interest
        assert interest is not None
        return SubscriptionSource(
            number,
            interest.text,
            interest.parsed,
            one.filter_number,
            one.accepted_at,
            dict(one.session.me) if interest.uses_me else None,
            interest.evolve_text,
            _wanted(one, interest).is_stateful,
        )

    def _own_cells(self) -> list[Cell]:
        return self._cells

    def _went_out(self) -> None:
        """Matchers have all cells: windows have publications only by number now."""
        for cell in self._cells:
            for key in cell.live_keys():
                if isinstance(key, Publication):
                    self._shown[key.number] = key
        self._cells = [Cell(compiled=self._compiled)]

    def _came_in(self, cells: list[Cell]) -> None:
        # Results of matchers come before those of the broker's own cells.
        assert self._coordinator is not None
        self._collect(self._coordinator)
        self._cells = cells or [Cell(compiled=self._compiled)]
        held = {key for cell in self._cells for key in cell.live_keys()}
        self._forget(held.__contains__)

    # -- saving --------------------------------------------------------------------------------

    def saved(self, next_subscription: int) -> bytes:
        """The index of all subscriptions that are not ranked, for a faster restart.

        It begins with the next free number. The broker that loads it continues from there, so a
        number in it never means another subscription, however old the index is.
        """
        head = next_subscription.to_bytes(8, "little").ljust(HEAD_BYTES, b"\0")
        return b"".join((head, *self._cells[0].save(stateful=False)))

    def load(self, saved: bytes | memoryview) -> int:
        """Begin with a saved index; returns the next free number.

        SavedError if it is no index.
        """
        view = memoryview(saved)
        self._cells = [Cell.load(view[HEAD_BYTES:], compiled=self._compiled)]
        self._saved = self._cells[0].ids()
        return int.from_bytes(view[:8], "little")

    def end_restoring(self) -> None:
        """All existing subscriptions were added: remove the others from the index."""
        for number in self._saved - self._subscriptions.keys():
            self._cells[0].remove(number)
        self._saved = set()


def _wanted(subscription: Subscription, interest: Interest) -> CellSubscription:
    me = subscription.session.me if interest.uses_me else None
    return CellSubscription(
        subscription.number,
        interest.parsed,
        subscription.filter_number,
        subscription.accepted_at,
        me,
        interest.evolve,
    )
