"""Publications that were taken and are not routed yet, in the order in which they came.

Publications of one turn are collected, so that the matcher sees a batch; the turn's end has them
matched and routed (`go_on`). Whatever changes something for those who are notified has them routed
first (`drain`): the broker does so before every packet that is no publication and no
acknowledgement. What changes who meets what, such as variables that a policy sets while a batch is
being routed, has them matched first (`match`); the router asks for that by itself. So a change
never changes the past, and a client that subscribes and publishes in one breath meets its own
subscription.

To route a publication is a step of its own (`rove.broker.steps`). If a batch cannot be matched, its
publications are matched one by one. One that fails is taken back: it is not retained, not logged,
not acknowledged, nobody is notified of it, and its publisher is told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from rove.broker.context import BrokerContext
from rove.broker.notifications.notifying import Notifying
from rove.broker.publications.publication import Publication
from rove.broker.publications.recent import Recent
from rove.broker.publications.retained_store import Replaced
from rove.broker.sessions.session import Link, Session, Subscription
from rove.broker.subscriptions.router import Router
from rove.broker.subscriptions.routes import NOBODY, Batch, MatchResult, RankedHit


class Taken(msgspec.Struct, gc=False, eq=False):
    """A publication that was taken, and where its acknowledgement goes."""

    publication: Publication
    link: Link | None
    packet_id: int
    asked_for_id: bool
    session: Session | None = None
    replaced: Replaced | None = None
    """What was there before it, where it is kept or has an id."""
    error: Exception | None = None
    """Why it could not be matched."""
    is_again: bool = False
    """It failed before, and nobody else would publish it again."""


class _Routing(msgspec.Struct, eq=False):
    """A batch on its way from the matcher to those who are notified."""

    taken: Sequence[Taken]
    batch: Batch
    next: int = 0
    """The first that is not routed yet."""
    arrived: Mapping[int, list[Subscription]] = {}
    """Ranked subscriptions that are given a publication when it comes, by its number."""
    promoted: deque[RankedHit] | None = None
    """What moves up in windows; None until that was looked at."""


class PublicationQueue:
    """Has publications matched and routed, in order."""

    def __init__(
        self,
        context: BrokerContext,
        router: Router,
        notifying: Notifying,
        recent: Recent,
        acknowledge: Callable[[Taken, int], None],
        fail: Callable[[Taken, Exception], None],
    ) -> None:
        """`acknowledge` is told how many were notified; `fail` takes back what cannot be routed."""
        self._context = context
        self._router = router
        self._steps = context.steps
        self._notifying = notifying
        self._recent = recent
        self._acknowledge = acknowledge
        self._fail = fail
        self._collected: list[Taken] = []
        self._routing: deque[_Routing] = deque()
        """Batches that were handed to the router, in order."""
        router.match_first = self.match
        self.routed: list[tuple[float, int]] = []
        """Batches that were routed: when the first came, and how many it had; for the shell."""

    def put(self, taken: Taken) -> None:
        """One more was taken; this cannot be undone, so it comes last in its step."""
        self._collected.append(taken)

    def take_out(self, taken: Taken) -> None:
        """It was not taken after all."""
        self._collected.remove(taken)

    @property
    def has_work(self) -> bool:
        """Whether publications wait to be matched, and something can be done about it."""
        return bool(self._collected) and self._router.has_room

    @property
    def is_waiting(self) -> bool:
        """Whether any publication is not routed yet."""
        return bool(self._collected or self._routing)

    def unrouted(self) -> list[Taken]:
        """Those that are not routed yet."""
        on_the_way = [one for each in self._routing for one in each.taken[each.next :]]
        return on_the_way + self._collected

    # -- when ----------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Nothing is about to change: have matched what finds somebody free, route what is."""
        router = self._router
        if not router.is_offloaded:
            self.drain()
            return
        self._route_matched()
        while self._collected and router.has_room:
            count = router.batch_max
            # Windows slide behind all that was collected, not in the middle of it.
            slides = router.ranked_filters and len(self._collected) <= count
            self._hand_in(self._context.now if slides else None, count)
        self._route_matched()

    def drain(self) -> None:
        """Route everything, and let windows slide up to now: something is about to change.

        Where matchers are beside the broker, this waits for them.
        """
        assert not self._steps.undo, "what was collected is routed between two steps"
        # A will that failed is collected once more.
        while self._collected or self._routing:
            self.match()
            self._route_matched()
        if self._router.ranked_filters:
            self.slide()

    def match(self) -> None:
        """Have everything matched; it is routed when its turn comes."""
        if self._collected:
            self._hand_in(None)
        if self._router.asked:
            self._router.take_answers(waits=True)

    def slide(self) -> None:
        """Let windows slide up to now, and notify of what moves up."""
        context = self._context
        try:
            moved = self._router.advance(context.now)
        except Exception as error:
            context.faults.happened(error, "slide of windows")
            return
        self._notifying.promote(moved)

    # -- matching ------------------------------------------------------------------------------

    def _hand_in(self, advance_to: float | None, count: int | None = None) -> None:
        """Have matched what was collected, or the first so many."""
        taken = self._collected[:count]
        batch = Batch([one.publication for one in taken])
        del self._collected[:count]
        try:
            self._router.match(batch, advance_to)
        except Exception as error:
            self._context.faults.tell(error, "match of a batch", "", None)
            self._hand_in_each(taken, advance_to)
        else:
            self._routing.append(_Routing(taken, batch))

    def _hand_in_each(self, taken: Sequence[Taken], advance_to: float | None) -> None:
        """Have the publications of a batch that failed matched one by one."""
        for one in taken:
            batch = Batch([one.publication])
            try:
                self._router.match(batch)
            except Exception as error:
                # It keeps its place among the others until it is told of.
                one.error, batch.result = error, NOBODY
            self._routing.append(_Routing([one], batch))
        slide = Batch(())
        self._router.match(slide, advance_to)
        self._routing.append(_Routing((), slide))

    # -- routing -------------------------------------------------------------------------------

    def _route_matched(self) -> None:
        """Route what is matched, and what has to be matched meanwhile for a policy's sake."""
        if self._router.asked:
            self._router.take_answers()
        routing = self._routing
        while routing:
            first = routing[0]
            result = first.batch.result
            if result is None:
                return
            if result is not NOBODY:
                self._prepare(first, result)
            self._route(first, result)
            # A fault may have drained the queue meanwhile, and gone on from here.
            if routing and routing[0] is first:
                routing.popleft()
                self._end(first, result)

    def _prepare(self, routing: _Routing, result: MatchResult) -> None:
        """Find out what ranked subscriptions are given, and what has failed, if not done yet."""
        if routing.promoted is not None:
            return
        routing.promoted = deque()
        if result.ranked:
            arrived: dict[int, list[Subscription]] = {}
            for hit in result.ranked:
                if hit.promoted:
                    routing.promoted.append(hit)
                else:
                    arrived.setdefault(hit.publication.number, []).append(hit.subscription)
            routing.arrived = arrived
        if result.failed:
            for one in routing.taken:
                if (text := result.failed.get(one.publication.number)) is not None:
                    one.error = RuntimeError(f"a matcher failed over it: {text}")

    def _route(self, routing: _Routing, result: MatchResult) -> None:
        steps, undo, remember = self._steps, self._steps.undo, self._recent.add
        taken, routes, promoted = routing.taken, routing.batch.routes, routing.promoted
        while routing.next < len(taken):
            position = routing.next
            routing.next = position + 1
            one = taken[position]
            publication = one.publication
            # What moved up before this came goes out before it, however large the batch is.
            while promoted and promoted[0].at < publication.at:
                self._notifying.promote((promoted.popleft(),))
            try:
                if one.error is not None:
                    raise one.error
                matched: Sequence[Subscription] = result.found.get(publication.number, ())
                if publication.number in routing.arrived:
                    matched = [*matched, *routing.arrived[publication.number]]
                notified = self._notifying.notify_all(publication, matched, routes[position])
                if publication.qos:
                    self._acknowledge(one, notified)
                remember(publication, notified)
                if steps.later:
                    steps.succeed()
                else:
                    undo.clear()
            except Exception as error:
                self._fail(one, error)
                continue
            if not notified:
                self._context.counters.publications_unmatched += 1

    def _end(self, routing: _Routing, result: MatchResult) -> None:
        """All of a batch are routed: what moves up behind them has its turn."""
        context = self._context
        if routing.promoted:
            self._notifying.promote(routing.promoted)
        if result.undecided:
            tell = self._notifying.tell_undecided
            context.faults.attempt("undecided", tell, result.undecided)
        if routing.taken:
            self.routed.append((routing.taken[0].publication.at, len(routing.taken)))
