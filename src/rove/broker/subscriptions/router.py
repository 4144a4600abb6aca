"""The router holds all subscriptions and finds those that match a publication.

Subscriptions without a filter expression are found by their topic filters, in a tree; the answer
for a topic is cached until a subscription changes. Subscriptions with an expression live in a cell
(`rove.match.cell`), which gets a publication with the numbers of the topic filters that fit it
(rarely more than two). So a topic without expressions costs nothing.

The broker matches a batch of publications at once, or matcher processes answer later
(`rove.elastic.coordinator`). A change of a subscription first has earlier publications matched.
Subscriptions that Spark serves are known here only by their numbers.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from rove.broker.publications.publication import Publication
from rove.broker.sessions.session import PolicySlot, Session, Subscription
from rove.broker.steps import Steps
from rove.broker.subscriptions.interest import Interest
from rove.broker.subscriptions.routes import (
    NOBODY,
    Batch,
    Group,
    MatchResult,
    RankedHit,
    Route,
    Target,
)
from rove.elastic.arrangements import Source
from rove.elastic.commands import Row
from rove.elastic.coordinator import Coordinator, Result
from rove.elastic.elasticity import Elasticity
from rove.elastic.ports import Matchers
from rove.elastic.rearranging import Rearranging
from rove.lang.errors import LanguageError
from rove.match.cell import Cell, CellSubscription, check
from rove.match.designs.design import Counters
from rove.match.matcher import Work
from rove.match.ranked.ranks import RankedDelivery
from rove.mqtt.topic_trees import FilterTree
from rove.mqtt.topics import has_wildcards

HEAD_BYTES = 4096  # a page, so that what follows can be mapped
ROUTES_MAX = 50_000
"""Topics whose subscribers are remembered, at about 300 bytes and 8 per subscriber each."""
SEEN_EVERY_S = 0.02
"""How often it is told how busy the broker is with matching."""


class _Shown:
    """A publication, as a cell looks at it."""

    __slots__ = ("at", "filters", "key")

    def __init__(self, publication: Publication, filters: Sequence[int]) -> None:
        self.key = publication
        self.at = publication.at
        self.filters = filters

    def attributes(self) -> Mapping[str, object]:
        return self.key.attributes()


class _Filter(msgspec.Struct):
    """A topic filter that subscriptions with a text have."""

    number: int
    uses: int = 0


class Router:
    """All subscriptions of a broker."""

    def __init__(self, steps: Steps | None = None, *, compiled: bool = True) -> None:
        self._steps = steps or Steps()
        self._is_alone = steps is None
        """Nobody ends steps: each change is one."""
        self._tree: FilterTree[Subscription | Group] = FilterTree()
        self._groups: dict[tuple[str, str], Group] = {}
        self._filter_tree: FilterTree[int] = FilterTree()
        self._filters: dict[str, _Filter] = {}
        self._next_filter = 1
        self._compiled = compiled
        self._cells = [Cell(compiled=compiled)]
        """What the broker matches by itself: all, or nothing while matchers do."""
        self.ranked_filters: Counter[int] = Counter()
        """How many ranked ones there are, by the number of the topic filter."""
        self._saved: set[int] = set()
        """Numbers of those that the cell knows from before a restart; only while restoring."""
        self.asked: deque[Batch] = deque()
        """Batches on their way through matchers, in order."""
        self.match_first: Callable[[], None] = lambda: None
        """Has everything matched that came before a change (`PublicationQueue.match`)."""
        self._shown: dict[int, Publication] = {}
        """Publications that are known to windows only by their numbers."""
        self._outside: Coordinator | None = None
        self.rearranging: Rearranging | None = None
        self._busy_s = self._cpu_s = self._seen_at = 0.0
        self._messages = 0
        self._with_text: dict[int, Subscription] = {}
        self._served: dict[int, Subscription] = {}
        """Those for which Spark finds what meets them."""
        self._routes: dict[str, Route] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size + len(self._served)

    # -- changing ------------------------------------------------------------------------------

    def add(self, new: Subscription) -> None:
        """Let a subscription take part from now on; LanguageError if the matcher refuses it."""
        if not _is_live(new):
            self._steps.saves_item(self._served, new.number)
            self._served[new.number] = new
            return
        self.match_first()
        self._steps.saves(self, "_size")
        if new.interest is not None:
            new.session.spent.add(new.interest.cost, self._steps)
            self._number_filter(new)
            try:
                self._add_text(new, new.interest)
            except LanguageError:
                self._with_text.pop(new.number, None)
                self._drop_filter(new)
                new.session.spent.add(new.interest.cost, self._steps, -1)
                raise
            except Exception:
                self._with_text.pop(new.number, None)
                self._mend(new)
                self._drop_filter(new)
                raise
            self._with_text[new.number] = new
            self._steps.undoes(self._unadd, new)
        else:
            self._steps.undoes(self._leave_tree, new)
            self._enter_tree(new)
        if new.interest is not None and new.group is not None:
            self._enter_group(new)
        self._size += 1

    def _unadd(self, new: Subscription) -> None:
        """Take out one with a text that was added in this step."""
        assert new.interest is not None
        del self._with_text[new.number]
        if new.group is not None:
            self._leave_group(new)
        self._count_ranked(new, new.interest, -1)
        self._take_out(new)
        self._drop_filter(new)

    def _enter_tree(self, new: Subscription) -> None:
        """Let one without a text be found by its topic filter."""
        if new.group is not None:
            group = self._enter_group(new)
            self._tree.put(new.topic_filter, ("$share", new.group), group)
        else:
            self._tree.put(new.topic_filter, new.number, new)
        self._forget_routes(new.topic_filter)

    def _leave_tree(self, old: Subscription) -> None:
        if old.group is not None:
            self._leave_group(old)
        else:
            self._tree.remove(old.topic_filter, old.number)
        self._forget_routes(old.topic_filter)

    def _enter_group(self, new: Subscription) -> Group:
        assert new.group is not None
        name = (new.group, new.topic_filter)
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = Group(name)
        group.members[new] = None
        return group

    def _add_text(self, new: Subscription, interest: Interest) -> None:
        wanted = _wanted(new, interest)
        outside = self._outside
        if outside is not None and outside.is_offloaded:
            check(wanted)
            self._with_text[new.number] = new
            outside.add(new.number)
            self._count_ranked(new, interest, 1)
            return
        cell = self._cells[0]
        if new.number in self._saved:
            if not interest.uses_me:
                return
            # Its state may have changed since; what was saved of it is out of date.
            cell.remove(new.number)
        if wanted.is_kept:
            # Beside the others of its kind, which the last cell has: they move together.
            cell = self._cells[-1]
        cell.add(wanted)
        self._count_ranked(new, interest, 1)
        if outside is not None and outside.next_layout is not None and not wanted.is_kept:
            self._with_text[new.number] = new
            outside.place_next(new.number)

    def _count_ranked(self, one: Subscription, interest: Interest, change: int) -> None:
        if interest.is_ranked:
            self.ranked_filters[one.filter_number] += change
            if not self.ranked_filters[one.filter_number]:
                del self.ranked_filters[one.filter_number]

    def remove(self, old: Subscription) -> None:
        """Let it take part no longer."""
        steps = self._steps
        if not _is_live(old):
            steps.saves_item(self._served, old.number)
            del self._served[old.number]
            return
        self.match_first()
        steps.saves(self, "_size")
        self._size -= 1
        if old.interest is None:
            steps.undoes(self._enter_tree, old)
            self._leave_tree(old)
            return
        if old.group is not None:
            steps.undoes(self._enter_group, old)
            self._leave_group(old)
        old.session.spent.add(old.interest.cost, self._steps, -1)
        # The index gives nothing back: what it forgets, it forgets when the step has gone well.
        steps.afterwards(self._forget_text, old, old.interest, [])
        if self._is_alone:
            steps.succeed()

    def _forget_text(self, old: Subscription, interest: Interest, done: list[str]) -> None:
        """Let one with a text be known no more; can be called again if it fails."""
        self._with_text.pop(old.number, None)
        if "rank" not in done:
            self._count_ranked(old, interest, -1)
            done.append("rank")
        if "index" not in done:
            self._take_out(old)
            done.append("index")
        self._drop_filter(old)

    def _leave_group(self, old: Subscription) -> None:
        assert old.group is not None
        group = self._groups.get((old.group, old.topic_filter))
        if group is None or old not in group.members:
            return
        del group.members[old]
        if all(member.interest is not None for member in group.members):
            self._tree.remove(old.topic_filter, ("$share", old.group))
        if not group.members:
            del self._groups[old.group, old.topic_filter]

    def _take_out(self, old: Subscription) -> None:
        """Take it out of the index; if that fails, the index is made anew."""
        try:
            self._remove_text(old)
        except Exception as error:
            self._steps.troubles.append(error)
            self._mend(old)

    def _remove_text(self, old: Subscription) -> None:
        if self._outside is not None and self._outside.is_offloaded:
            self._outside.remove(old.number, old.filter_number)
        else:
            self._cell_of(old.number).remove(old.number)
            if self._outside is not None:
                self._outside.remove_next(old.number)

    def _cell_of(self, number: int) -> Cell:
        if len(self._cells) == 1:
            return self._cells[0]
        return next(cell for cell in self._cells if number in cell)

    def _number_filter(self, new: Subscription) -> None:
        found = self._filters.get(new.topic_filter)
        if found is None:
            number = new.filter_number or self._next_filter
            self._filter_tree.put(new.topic_filter, None, number)
            found = self._filters[new.topic_filter] = _Filter(number)
            self._next_filter = max(self._next_filter, number + 1)
            self._forget_routes(new.topic_filter)
        found.uses += 1
        new.filter_number = found.number

    def _drop_filter(self, old: Subscription) -> None:
        found = self._filters[old.topic_filter]
        if found.uses > 1:
            found.uses -= 1
            return
        self._forget_routes(old.topic_filter)
        self._filter_tree.remove(old.topic_filter, None)
        del self._filters[old.topic_filter]

    def _forget_routes(self, topic_filter: str) -> None:
        """Something about a filter has changed, and so have the routes of topics that fit it.

        Texts that share a filter come and go without that; clients that move have thousands.
        """
        if has_wildcards(topic_filter):
            self._routes.clear()
        else:
            self._routes.pop(topic_filter, None)

    def forget_routes(self, changed: Iterable[Subscription]) -> None:
        """These are to be treated in another way from now on."""
        for one in changed:
            # The others are not in routes, or are looked at anew each time.
            if one.interest is None and one.group is None:
                self._forget_routes(one.topic_filter)

    def set_state(
        self, session: Session, me: dict[str, object], changes: Mapping[str, object]
    ) -> None:
        """Let a subscriber's variables be `me` after these changes; its subscriptions move.

        What came before was published before: it is matched by what the variables were. If the
        step fails, all move back.
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

    def _move(self, subscription: Subscription, changes: Mapping[str, object]) -> None:
        number = subscription.number
        if self._outside is not None and self._outside.is_offloaded:
            self._outside.change(number, dict(changes))
        else:
            self._cell_of(number).set_state(number, changes)
            if self._outside is not None:
                self._outside.change_next(number, dict(changes))

    def _move_back(self, subscription: Subscription, changes: Mapping[str, object]) -> None:
        """Undo a change of variables, which may have been made by halves."""
        try:
            self._move(subscription, changes)
        except Exception as error:
            self._steps.troubles.append(error)
            self._mend(subscription)

    # -- mending -------------------------------------------------------------------------------

    def _mend(self, suspect: Subscription) -> None:
        """Something failed inside an index, which may be spoilt: make that one anew."""
        outside = self._outside
        if outside is not None and self.rearranging is not None and outside.is_offloaded:
            self.rearranging.take_back()
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
        """Make windows anew; these publications are not to be in them.

        What they hold is shown to them again. What it could not have delivered any more is missing
        in a window that counts publications; that is told.
        """
        left_out = set(without)
        wanted = self._wanted_in(cell)
        for filter in filters:
            held = {self._publication(key): key for key in cell.held_by(filter)}
            again = [
                (_Shown(one, (filter,)), held[one])
                for one in sorted(held, key=lambda one: one.number)
                if one not in left_out
            ]
            cell.renew_ranked(filter, wanted, again)
            made = self._those(one.id for one in wanted if one.filter == filter)
            if any(one.interest and one.interest.cost.window_publications for one in made):
                self._steps.warnings.append(f"windows on {made[0].topic_filter} may count too few")

    def _wanted_in(self, cell: Cell) -> list[CellSubscription]:
        """What is to be in a cell."""
        elsewhere: set[int] = set()
        for other in self._cells:
            if other is not cell:
                elsewhere |= other.ids()
        return [
            _wanted(one, one.interest)
            for one in self._with_text.values()
            if one.interest is not None and one.number not in elsewhere
        ]

    # -- finding -------------------------------------------------------------------------------

    def match(self, batch: Batch, advance_to: float | None = None) -> None:
        """Find out whom publications meet; then let windows slide up to a moment.

        The result is there at once, or when matchers have answered.
        """
        routes, shown = [], []
        for publication in batch.publications:
            route = self.route(publication.topic)
            routes.append(route)
            if route.filters:
                shown.append(_Shown(publication, route.filters))
        batch.routes = routes
        outside = self._outside
        if outside is not None and outside.is_offloaded:
            outside.submit(self._rows(shown), advance_to)
            self.asked.append(batch)
            # What remains for the broker tells whether it could take everything back.
            self._measure(outside, 0.0, len(routes))
            return
        result = self._matched(shown, batch.publications) if shown else NOBODY
        if advance_to is not None:
            result = result._replace(ranked=[*result.ranked, *self._advanced(advance_to)])
        batch.result = result

    def route(self, topic: str) -> Route:
        """Who wants everything on a topic, and which filters with texts fit it."""
        route = self._routes.get(topic)
        if route is None:
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            route = self._routes[topic] = self._new_route(topic)
        return route

    def _new_route(self, topic: str) -> Route:
        by_place: dict[Session | PolicySlot, list[Subscription]] = {}
        groups: list[Group] = []
        for found in self._tree.find(topic):
            if isinstance(found, Group):
                groups.append(found)
            else:
                by_place.setdefault(found.slot or found.session, []).append(found)
        targets: list[Target] = []
        with_policies: list[Target] = []
        for subscriptions in by_place.values():
            has_policy = subscriptions[0].session.subscriber is not None
            (with_policies if has_policy else targets).append(Target(subscriptions))
        return Route(targets, with_policies, groups, self._filter_tree.find(topic))

    @property
    def is_offloaded(self) -> bool:
        """Whether matchers beside the broker are asked."""
        return self._outside is not None and self._outside.is_offloaded

    @property
    def has_room(self) -> bool:
        """Whether another batch would find somebody free; if not, batches become larger."""
        outside = self._outside
        return outside is None or outside.waiting < 2 * max(1, len(outside.members))

    @property
    def batch_max(self) -> int:
        """How many publications a batch should have at most, so that nobody waits for its end."""
        assert self._outside is not None
        return self._outside.ticket_rows

    def take_answers(self, *, waits: bool = False) -> None:
        """Give batches what matchers have answered; with `waits`, until they all have it."""
        outside = self._outside
        if outside is None:
            return
        self._collect(outside)
        while waits and self.asked:
            outside.wait()
            self._collect(outside)
        if outside.take_may_forget():
            self._forget(outside.may_deliver)

    def _collect(self, outside: Coordinator) -> None:
        for result in outside.results():
            self.asked.popleft().result = self._result_of(result)

    def _forget(self, is_held: Callable[[int], bool]) -> None:
        """Forget publications that windows have forgotten."""
        self._shown = {number: one for number, one in self._shown.items() if is_held(number)}

    def _rows(self, shown: Sequence[_Shown]) -> list[Row]:
        rows = []
        for one in shown:
            publication, filters = one.key, one.filters
            user = tuple(publication.properties.user)
            topic, payload = publication.topic, publication.payload
            rows.append(Row(publication.number, topic, payload, user, one.at, tuple(filters)))
            if not self.ranked_filters.keys().isdisjoint(filters):
                self._shown[publication.number] = publication
        return rows

    def _result_of(self, result: Result) -> MatchResult:
        found = {number: self._those(ids) for number, ids in result.found.items()}
        ranked = [
            RankedHit(
                self._with_text[one.subscription], self._shown[one.number], one.at, one.promoted
            )
            for one in sorted(result.ranked, key=lambda one: (one.at, one.subscription))
        ]
        return MatchResult(found, ranked, self._those(sorted(result.undecided)), result.failed)

    def _those(self, ids: Iterable[int]) -> list[Subscription]:
        return [self._with_text[id] for id in ids]

    def _matched(self, shown: list[_Shown], publications: Sequence[Publication]) -> MatchResult:
        found: dict[int, list[Subscription]] = {}
        ranked: list[RankedDelivery] = []
        undecided: list[Subscription] = []
        outside = self._outside
        began = 0.0 if outside is None else outside.matchers.clock()
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
                found.setdefault(shown[row].key.number, []).extend(self._those(ids))
        if outside is not None:
            outside.own_messages += len(shown)
            self._measure(outside, outside.matchers.clock() - began, len(shown))
        return MatchResult(found, self._given(ranked) if ranked else (), undecided)

    def _measure(self, outside: Coordinator, busy_s: float, messages: int) -> None:
        """Tell how busy the broker is, with matching and in all."""
        clock = outside.matchers.clock()
        self._busy_s += busy_s
        self._messages += messages
        passed_s = clock - self._seen_at
        if passed_s >= SEEN_EVERY_S:
            cpu_s = outside.matchers.cpu_s()
            used_s = min(cpu_s - self._cpu_s, passed_s)
            other_s = max(0.0, used_s - self._busy_s)
            waited_s = max(0.0, passed_s - self._busy_s - other_s)
            outside.scaling.seen(0, self._busy_s, waited_s, self._messages, clock, other_s)
            self._seen_at, self._cpu_s, self._busy_s, self._messages = clock, cpu_s, 0.0, 0

    def _given(self, ranked: Iterable[RankedDelivery]) -> list[RankedHit]:
        given = []
        for one in sorted(ranked, key=lambda one: (one.at, one.subscription)):
            subscription = self._with_text[one.subscription]
            given.append(RankedHit(subscription, self._publication(one.key), one.at, one.promoted))
        return given

    def _publication(self, key: object) -> Publication:
        """What a window calls so."""
        return key if isinstance(key, Publication) else self._shown[key]  # type: ignore[index]

    def subscription(self, number: int) -> Subscription:
        """One with a text, by its number."""
        return self._with_text[number]

    def served(self, number: int) -> Subscription | None:
        """One that Spark serves, by its number."""
        return self._served.get(number)

    def pick(self, candidates: Sequence[Subscription]) -> Subscription:
        """One of the members of a group that a publication meets."""
        first = candidates[0]
        assert first.group is not None
        return self._groups[first.group, first.topic_filter].pick(candidates)

    # -- time and upkeep -----------------------------------------------------------------------

    def advance(self, now: float) -> Sequence[RankedHit]:
        """Let windows slide and designs evolve; nothing must be on its way."""
        if not self.is_offloaded:
            return self._advanced(now)
        slide = Batch(())
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
        """When `advance` has something to do at the latest."""
        if self._outside is not None and self._outside.is_offloaded:
            return self._outside.next_change_at()
        return min([cell.next_change_at() for cell in self._cells])

    def counters(self) -> Mapping[str, Counters]:
        """What each design for evolving subscriptions has done so far, here in the broker."""
        return {name: each for cell in self._cells for name, each in cell.counters().items()}

    def merge_due(self) -> Work | None:
        """Work on the index that is to be run beside, then installed (see `Matcher`)."""
        works = (cell.merge_due() for cell in self._cells)
        return next((work for work in works if work is not None), None)

    # -- matchers ------------------------------------------------------------------------------

    def attach(self, matchers: Matchers, settings: Elasticity) -> Coordinator:
        """Let matchers beside the broker take over when it has too much to do."""
        self._outside = Coordinator(matchers, settings, self._source, self._came_in)
        self.rearranging = Rearranging(self._outside, self._own_cells, self._went_out)
        return self._outside

    def _source(self, number: int) -> Source:
        one = self._with_text[number]
        interest = one.interest
        assert interest is not None
        return Source(
            number,
            interest.text,
            interest.parsed,
            one.filter_number,
            one.accepted_at,
            dict(one.session.me) if interest.uses_me else None,
            interest.evolve_text,
            _wanted(one, interest).is_kept,
        )

    def _own_cells(self) -> list[Cell]:
        return self._cells

    def _went_out(self) -> None:
        """Matchers have everything: windows know publications only by their numbers now."""
        for cell in self._cells:
            for key in cell.live_keys():
                if isinstance(key, Publication):
                    self._shown[key.number] = key
        self._cells = [Cell(compiled=self._compiled)]

    def _came_in(self, cells: list[Cell]) -> None:
        # What was asked outside comes before what is asked here from now on.
        assert self._outside is not None
        self._collect(self._outside)
        self._cells = cells or [Cell(compiled=self._compiled)]
        held = {key for cell in self._cells for key in cell.live_keys()}
        self._forget(held.__contains__)

    # -- saving --------------------------------------------------------------------------------

    def saved(self, next_subscription: int) -> bytes:
        """The index of all that are not ranked, so that a restart need not build it again.

        It begins with the number above all that it knows. Whoever loads it goes on from there, so
        a number in it never means anything else, however old it is.
        """
        head = next_subscription.to_bytes(8, "little").ljust(HEAD_BYTES, b"\0")
        return b"".join((head, *self._cells[0].save(kept=False)))

    def load(self, saved: bytes | memoryview) -> int:
        """Begin with an index that was saved; gives the number to go on from.

        SavedError if it is no index.
        """
        view = memoryview(saved)
        self._cells = [Cell.load(view[HEAD_BYTES:], compiled=self._compiled)]
        self._saved = self._cells[0].ids()
        return int.from_bytes(view[:8], "little")

    def end_restoring(self) -> None:
        """Everything that still exists was added: what else the index knows has gone."""
        for number in self._saved - self._with_text.keys():
            self._cells[0].remove(number)
        self._saved = set()


def _is_live(subscription: Subscription) -> bool:
    return subscription.interest is None or subscription.interest.is_live


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
