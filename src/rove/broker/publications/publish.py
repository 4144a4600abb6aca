"""Incoming publications, from PUBLISH to their acknowledgement.

`PublishHandler` checks a PUBLISH, keeps what has to be kept of it, and puts it into the queue. A
publication of QoS 1 or 2 is acknowledged after it was routed, with the outcome: refused with a
reason, accepted, or accepted without a matching subscription. Accepting a publication is one step
(`rove.broker.steps`), routing it another.

`PublicationQueue` collects the publications of one turn, so that the matcher gets a batch, and has
them matched and routed at the end of the turn (`go_on`), in the order in which they came. Whatever
changes something for the subscribers has them routed first (`drain`): the broker does so before
every packet other than publications and acknowledgements. What changes which subscriptions match,
such as variables that a policy sets while a batch is being routed, has them matched first
(`match`); the index of expressions asks for that by itself. So a change never affects earlier
publications, and a client that subscribes and publishes right away receives its own publication.

If a batch cannot be matched, its publications are matched one by one. A publication that fails is
taken back: it is not retained, logged or acknowledged, no subscriber is notified of it, and its
publisher gets a reason.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from rove.broker.context import BrokerContext
from rove.broker.control import DONE, PREFIX, UNPUBLISH, Control, PublishResult
from rove.broker.notifications.notifier import Notifier
from rove.broker.publications.forwarded import ForwardedError
from rove.broker.publications.publication import Publication, RecentPublications
from rove.broker.publications.retained_store import Replaced, RetainedStore
from rove.broker.sessions.session import Link, Session, Subscription
from rove.broker.storage.log import PublicationLog
from rove.broker.storage.records import received_key
from rove.broker.subscriptions.router import Router
from rove.broker.subscriptions.routes import (
    NO_ROUTE,
    NOBODY,
    MatchResult,
    PublicationBatch,
    RankedHit,
)
from rove.broker.user_properties import CONTROL_NAMES, PUBLISH_NAMES, misspelt, user_property
from rove.mqtt.packets import (
    NO_PROPERTIES,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Reason,
)


class QueuedPublication(msgspec.Struct, gc=False, eq=False):
    """An accepted publication, and where its acknowledgement goes."""

    publication: Publication
    link: Link | None
    packet_id: int
    asked_for_id: bool
    session: Session | None = None
    replaced: Replaced | None = None
    """What it replaced, if it is retained or valid or has an id."""
    error: Exception | None = None
    """Why it could not be matched."""
    is_again: bool = False
    """A will that failed before, and is retried."""


class _BatchInProgress(msgspec.Struct, eq=False):
    """A batch between being submitted and being completely routed."""

    taken: Sequence[QueuedPublication]
    batch: PublicationBatch
    next: int = 0
    """The first that is not routed yet."""
    arrived: Mapping[int, list[Subscription]] = {}
    """Ranked subscriptions that get a publication when it comes, by its number."""
    promoted: deque[RankedHit] | None = None
    """Publications that are promoted in windows; None until the result was split."""


class PublicationQueue:
    """Has publications matched and routed, in order."""

    def __init__(
        self,
        context: BrokerContext,
        router: Router,
        notifier: Notifier,
        recent: RecentPublications,
        acknowledge: Callable[[QueuedPublication, int], None],
        fail: Callable[[QueuedPublication, Exception], None],
    ) -> None:
        """`acknowledge` gets the number of notified sessions; `fail` takes back a publication."""
        self._context = context
        self._router = router
        self._index = router.expressions
        self._steps = context.steps
        self._notifier = notifier
        self._recent = recent
        self._acknowledge = acknowledge
        self._fail = fail
        self._collected: list[QueuedPublication] = []
        self._routing: deque[_BatchInProgress] = deque()
        """Batches that are being matched or routed, in order."""
        self._index.match_first = self.match
        self.routed: list[tuple[float, int]] = []
        """Routed batches, for the shell: when the first publication came, and their number."""

    def put(self, taken: QueuedPublication) -> None:
        """Append a publication; this cannot be undone, so it comes last in its step."""
        self._collected.append(taken)

    def take_out(self, taken: QueuedPublication) -> None:
        """Remove a publication that was not accepted after all."""
        self._collected.remove(taken)

    @property
    def has_work(self) -> bool:
        """Whether publications wait to be matched, and matchers have room for them."""
        return bool(self._collected) and self._index.has_room

    @property
    def is_waiting(self) -> bool:
        """Whether any publication is not routed yet."""
        return bool(self._collected or self._routing)

    def unrouted(self) -> list[QueuedPublication]:
        """Those that are not routed yet."""
        on_the_way = [one for each in self._routing for one in each.taken[each.next :]]
        return on_the_way + self._collected

    # -- draining ------------------------------------------------------------------------------

    def go_on(self) -> None:
        """At the end of a turn: submit what the matchers have room for, route what is matched."""
        index = self._index
        if not index.is_offloaded:
            self.drain()
            return
        self._route_matched()
        while self._collected and index.has_room:
            count = index.batch_max
            # Windows slide after all that was collected, not in the middle of it.
            slides = index.ranked_filters and len(self._collected) <= count
            self._hand_in(self._context.now if slides else None, count)
        self._route_matched()

    def drain(self) -> None:
        """Route everything and slide windows up to now, because something is about to change.

        With matcher processes, this waits for them.
        """
        assert not self._steps.undo, "what was collected is routed between two steps"
        # A will that failed is collected again.
        while self._collected or self._routing:
            self.match()
            self._route_matched()
        if self._index.ranked_filters:
            self.slide()

    def match(self) -> None:
        """Have everything matched; it is routed later, in order."""
        if self._collected:
            self._hand_in(None)
        if self._index.asked:
            self._index.take_answers(waits=True)

    def slide(self) -> None:
        """Slide windows up to now, and notify of promotions."""
        context = self._context
        try:
            moved = self._index.advance(context.now)
        except Exception as error:
            context.faults.happened(error, "slide of windows")
            return
        self._notifier.promote(moved)

    # -- matching ------------------------------------------------------------------------------

    def _hand_in(self, advance_to: float | None, count: int | None = None) -> None:
        """Have what was collected, or the first `count`, matched."""
        taken = self._collected[:count]
        del self._collected[:count]
        try:
            batch = self._submit(taken, advance_to)
        except Exception as error:
            self._context.faults.tell(error, "match of a batch", "", None)
            self._hand_in_each(taken, advance_to)
        else:
            self._routing.append(_BatchInProgress(taken, batch))

    def _hand_in_each(self, taken: Sequence[QueuedPublication], advance_to: float | None) -> None:
        """Have the publications of a failed batch matched one by one."""
        for one in taken:
            try:
                batch = self._submit([one])
            except Exception as error:
                # It keeps its place among the others until its failure is reported.
                one.error = error
                batch = PublicationBatch([one.publication], [NO_ROUTE], NOBODY)
            self._routing.append(_BatchInProgress([one], batch))
        self._routing.append(_BatchInProgress((), self._submit((), advance_to)))

    def _submit(
        self, taken: Sequence[QueuedPublication], advance_to: float | None = None
    ) -> PublicationBatch:
        """Route publications by topic, and hand those to the index that expressions may match."""
        routes, publications = [], []
        known, index = self._router.routes, self._index
        has_expressions = advance_to is not None
        for one in taken:
            publication = one.publication
            route = known.get(publication.topic) or self._router.route(publication.topic)
            publications.append(publication)
            routes.append(route)
            if route.filters:
                has_expressions = True
        batch = PublicationBatch(publications, routes)
        if has_expressions or index.is_offloaded:
            index.match(batch, advance_to)
        else:
            batch.result = NOBODY
        return batch

    # -- routing -------------------------------------------------------------------------------

    def _route_matched(self) -> None:
        """Route what is matched, also what a policy causes to be matched meanwhile."""
        if self._index.asked:
            self._index.take_answers()
        routing = self._routing
        while routing:
            first = routing[0]
            result = first.batch.result
            if result is None:
                return
            if result is not NOBODY:
                self._prepare(first, result)
            self._route(first, result)
            # A fault may have drained the queue meanwhile, and continued from here.
            if routing and routing[0] is first:
                routing.popleft()
                self._end(first, result)

    def _prepare(self, routing: _BatchInProgress, result: MatchResult) -> None:
        """Split the ranked hits by kind, and mark what has failed, if not done yet."""
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

    def _route(self, routing: _BatchInProgress, result: MatchResult) -> None:
        steps, undo, remember = self._steps, self._steps.undo, self._recent.add
        taken, routes, promoted = routing.taken, routing.batch.routes, routing.promoted
        while routing.next < len(taken):
            position = routing.next
            routing.next = position + 1
            one = taken[position]
            publication = one.publication
            # What was promoted before this came goes out before it, however large the batch.
            while promoted and promoted[0].at < publication.at:
                self._notifier.promote((promoted.popleft(),))
            try:
                if one.error is not None:
                    raise one.error
                matched: Sequence[Subscription] = result.found.get(publication.number, ())
                if publication.number in routing.arrived:
                    matched = [*matched, *routing.arrived[publication.number]]
                notified = self._notifier.notify_all(publication, matched, routes[position])
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
                counters = self._context.counters
                if not publication.origin:
                    counters.publications_unmatched += 1
                elif not publication.retain and publication.valid_until is None:
                    counters.forwards_unmatched += 1
                    self._context.count_forward(publication.origin, 0, 1)

    def _end(self, routing: _BatchInProgress, result: MatchResult) -> None:
        """A batch is routed: deliver the promotions that follow it."""
        context = self._context
        if routing.promoted:
            self._notifier.promote(routing.promoted)
        if result.undecided:
            tell = self._notifier.tell_undecided
            context.faults.attempt("undecided", tell, result.undecided)
        if routing.taken:
            self.routed.append((routing.taken[0].publication.at, len(routing.taken)))


RECENT_MAX = 1_000
"""Ids of a client's last publications that are kept to recognise repeated ones."""


class PublishHandler:
    """Accepts or refuses publications, and acknowledges them."""

    def __init__(
        self,
        context: BrokerContext,
        router: Router,
        retained: RetainedStore,
        notifier: Notifier,
        control: Control,
        recent: RecentPublications,
        log: PublicationLog,
    ) -> None:
        self._context = context
        self._retained = retained
        self._control = control
        self._log = log
        answer, fail = self._acknowledge, self._failed
        self.queue = PublicationQueue(context, router, notifier, recent, answer, fail)

    # -- accepting -----------------------------------------------------------------------------

    def publish(self, session: Session, link: Link, packet: Publish) -> None:
        """PUBLISH has come."""
        context = self._context
        context.counters.publications_received += 1
        link.is_publisher = True
        if packet.properties.topic_alias is not None and not self._resolve(link, packet):
            return
        if packet.qos and not self._may_open(session, link, packet):
            return
        refusal = self._refusal(session, packet)
        if refusal is not None:
            self._refuse(session, link, packet, refusal)
            return
        context.next_publication += 1
        id = None
        valid_until = None
        if packet.properties.user:
            id = user_property(packet.properties, "id")
            valid_for = user_property(packet.properties, "valid-for")
            if valid_for is not None:
                valid_until = moment_of(valid_for, context.now)
                if valid_until is None:
                    what = f"valid-for is {valid_for!r}; write seconds, or forever"
                    answer = PublishResult(Reason.IMPLEMENTATION_SPECIFIC_ERROR, what)
                    self._refuse(session, link, packet, answer)
                    return
        number, user = context.next_publication, session.identity.user
        given = id or f"{session.number}-{number}-{int(context.now * 1000):x}"
        publication = Publication(
            number, packet, session.client_id, given, context.now, valid_until, user
        )
        if packet.topic.startswith(PREFIX):
            self._command(session, link, packet, publication)
            return
        if packet.dup and id is not None and id in session.recent_ids:
            context.counters.publications_repeated += 1
            self._answer(session, link, packet.packet_id, packet.qos, DONE)
            return
        asked_for_id = id is None and valid_until is not None
        taken = QueuedPublication(publication, link, packet.packet_id, asked_for_id, session)
        if (
            id is not None or valid_until is not None or packet.retain or context.settings.channels
        ) and not self._keep(session, link, packet, taken, named=id is not None):
            return
        if id is not None:
            context.steps.undoes(session.recent_ids.pop, id, None)
            _remember(session, id)
        self.queue.put(taken)

    def forwarded(self, session: Session, link: Link, packet: Publish) -> None:
        """A publication has come from another broker."""
        context = self._context
        context.counters.forwards_received += 1
        context.count_forward(session.broker, 1, 0)
        if packet.qos and not self._may_open(session, link, packet):
            return
        context.next_publication += 1
        try:
            publication = Publication.forwarded(
                context.next_publication, packet, session.broker, link.offset_s
            )
        except ForwardedError as error:
            context.close(link, Reason.PROTOCOL_ERROR, str(error))
            return
        if publication.topic == UNPUBLISH:
            id = publication.payload.decode("utf-8", "replace")
            self._retained.withdraw((publication.user, publication.publisher, id))
            self._answer(session, link, packet.packet_id, packet.qos, DONE)
            return
        if not context.rules.allowed(session.identity, "publish", packet.topic):
            text = f"publications on {packet.topic} may not come from broker {session.broker}"
            self._refuse(session, link, packet, PublishResult(Reason.NOT_AUTHORIZED, text))
            return
        publication.group = session.group_of(packet.properties.subscription_ids)
        taken = QueuedPublication(publication, link, packet.packet_id, False, session)
        is_valid = publication.valid_until is not None
        if publication.is_named or is_valid or publication.retain:
            taken.replaced = self._retained.found_before(publication)
        if publication.retain and self._retained.is_newest(publication):
            self._retained.retain(publication)
        if is_valid and self._retained.has_room(publication):
            self._retained.hold(publication)
        if publication.is_named:
            self._retained.name(publication)
        self._log.taken(publication)
        self.queue.put(taken)

    def publish_own(self, publication: Publication, *, is_again: bool = False) -> None:
        """Publish a will."""
        taken = QueuedPublication(publication, None, 0, False, is_again=is_again)
        if publication.retain:
            taken.replaced = self._retained.found_before(publication)
            self._retained.retain(publication)
        self._log.taken(publication)
        self.queue.put(taken)
        self._context.steps.undoes(self.queue.take_out, taken)

    def _resolve(self, link: Link, packet: Publish) -> bool:
        """Resolve a topic alias; False if the connection had to be closed."""
        alias = packet.properties.topic_alias
        assert alias is not None
        if alias > self._context.limits.topic_alias_max:
            self._context.close(link, Reason.TOPIC_ALIAS_INVALID, f"no topic alias {alias} here")
            return False
        if packet.topic:
            if not link.aliases:
                link.aliases = {}
            link.aliases[alias] = packet.topic
        elif alias in link.aliases:
            packet.topic = link.aliases[alias]
        else:
            self._context.close(link, Reason.PROTOCOL_ERROR, f"topic alias {alias} was never set")
            return False
        return True

    def _may_open(self, session: Session, link: Link, packet: Publish) -> bool:
        """Count it as unacknowledged; False if it was repeated or closed the connection."""
        if packet.qos == 2 and packet.packet_id in session.received:
            self._context.counters.publications_repeated += 1
            if not self._answers_later(session, link, packet.packet_id):
                self._send_answer(link, Pubrec(packet.packet_id))
            return False
        most = self._context.limits.receive_max
        if link.is_v5 and link.open_publishes >= most and not session.broker:
            what = f"more than {most} publications without acknowledgement"
            self._context.close(link, Reason.RECEIVE_MAX_EXCEEDED, what)
            return False
        link.open_publishes += 1
        if packet.qos == 2:
            self._context.steps.undoes(session.received.discard, packet.packet_id)
            session.received.add(packet.packet_id)
        return True

    def _answers_later(self, session: Session, link: Link, packet_id: int) -> bool:
        """Whether a repeated publication still waits to be routed; then it is answered here."""
        for one in self.queue.unrouted():
            if one.session is session and one.packet_id == packet_id:
                one.link = link
                return True
        return False

    def _refusal(self, session: Session, packet: Publish) -> PublishResult | None:
        context = self._context
        limits = context.limits
        if packet.topic.count("/") >= limits.topic_levels_max:
            return PublishResult(
                Reason.TOPIC_NAME_INVALID, f"more than {limits.topic_levels_max} levels"
            )
        if not context.rules.allowed(session.identity, "publish", packet.topic):
            return PublishResult(
                Reason.NOT_AUTHORIZED, f"publishing on {packet.topic} is not allowed"
            )
        if packet.topic.startswith("$") and not packet.topic.startswith(PREFIX):
            what = "topics that begin with $ are the broker's own"
            return PublishResult(Reason.TOPIC_NAME_INVALID, what)
        if packet.properties.user:
            names = CONTROL_NAMES if packet.topic.startswith(PREFIX) else PUBLISH_NAMES
            wrong = misspelt(packet.properties.user, names)
            if wrong is not None:
                return PublishResult(Reason.IMPLEMENTATION_SPECIFIC_ERROR, wrong)
        return None

    def _refuse(self, session: Session, link: Link, packet: Publish, answer: PublishResult) -> None:
        context = self._context
        context.counters.publications_refused += 1
        context.note(
            "warning",
            "publication refused",
            client=session.client_id,
            topic=packet.topic,
            reason=answer.text,
        )
        self._answer(session, link, packet.packet_id, packet.qos, answer)

    def _keep(
        self,
        session: Session,
        link: Link,
        packet: Publish,
        taken: QueuedPublication,
        *,
        named: bool,
    ) -> bool:
        """Retain it, keep it while valid, and log it, as requested; False if it was refused.

        QoS 0 has no acknowledgement to refuse with: it is then delivered, but not kept.
        """
        context, publication = self._context, taken.publication
        refusal = None
        is_valid = publication.valid_until is not None
        if named or is_valid or publication.retain:
            taken.replaced = self._retained.found_before(publication)
        old = self._retained.replaced_by(publication) if is_valid else None
        if old is not None and not context.rules.allowed(session.identity, "publish", old.topic):
            what = f"{old.id!r} is valid on {old.topic}, and withdrawing from there is not allowed"
            refusal = PublishResult(Reason.NOT_AUTHORIZED, what)
        elif is_valid and not self._retained.has_room(publication):
            refusal = PublishResult(Reason.QUOTA_EXCEEDED, "no room for another valid publication")
        elif publication.retain and not self._retained.retain(publication):
            refusal = PublishResult(
                Reason.QUOTA_EXCEEDED, "no room for another retained publication"
            )
        elif is_valid:
            self._retained.hold(publication)
        if refusal is not None and packet.qos:
            self._refuse(session, link, packet, refusal)
            return False
        if named or is_valid:
            self._retained.name(publication)
        self._log.taken(publication)
        return True

    def _command(
        self, session: Session, link: Link, packet: Publish, publication: Publication
    ) -> None:
        answer = self._control.handle(session, publication)
        if answer.reason >= Reason.UNSPECIFIED_ERROR:
            self._refuse(session, link, packet, answer)
        else:
            self._answer(session, link, packet.packet_id, packet.qos, answer)

    # -- acknowledging -------------------------------------------------------------------------

    def released(self, session: Session, link: Link, packet_id: int) -> None:
        """PUBREL: the client forgets the publication, so may we."""
        reason: int = Reason.PACKET_ID_NOT_FOUND
        if packet_id in session.received:
            self._close_received(session, link, packet_id)
            reason = Reason.SUCCESS
        self._send_answer(link, Pubcomp(packet_id, reason))

    def _close_received(self, session: Session, link: Link, packet_id: int) -> None:
        if packet_id in session.received:
            self._context.steps.undoes(session.received.add, packet_id)
        session.received.discard(packet_id)
        # A publication from before a reconnection was not counted on this connection.
        link.open_publishes = max(0, link.open_publishes - 1)
        if session.is_durable:
            key = received_key(session.number, packet_id)
            self._context.gate.changes.delete("received", key)

    def _answer(
        self, session: Session, link: Link, packet_id: int, qos: int, answer: PublishResult
    ) -> None:
        """Acknowledge a publication that is not routed."""
        reason = answer.reason
        properties = NO_PROPERTIES
        if link.wants_problems and answer.text:
            properties = link.explained(answer.text)
        elif link.wants_problems and answer.user:
            properties = Properties(user=answer.user)
        if qos == 2 and reason >= Reason.UNSPECIFIED_ERROR and link.is_v5:
            # A refused publication is finished: the client sends no PUBREL for it.
            self._close_received(session, link, packet_id)
        self._reply(session, link, packet_id, qos, reason, properties)

    def _reply(
        self, session: Session, link: Link, packet_id: int, qos: int, reason: int, more: Properties
    ) -> None:
        if qos == 1:
            link.open_publishes -= 1
            self._send_answer(link, Puback(packet_id, reason, more))
        elif qos == 2:
            if session.is_durable and packet_id in session.received:
                # In the commit of its effects: after a crash it is known only if it was routed.
                key = received_key(session.number, packet_id)
                self._context.gate.changes.put("received", key, b"")
            self._send_answer(link, Pubrec(packet_id, reason, more))

    def _send_answer(self, link: Link, packet: Puback | Pubrec | Pubcomp) -> None:
        data = link.encoded(packet)
        if data is not None:
            self._context.gate.send_after_commit(link, data)

    def _acknowledge(self, taken: QueuedPublication, notified: int) -> None:
        """Acknowledge a routed publication of QoS 1 or 2."""
        link, session, qos = taken.link, taken.session, taken.publication.qos
        if link is None or session is None:
            return
        if session.broker:
            qos = 2
        reason = Reason.SUCCESS if notified else Reason.NO_MATCHING_SUBSCRIBERS
        properties = NO_PROPERTIES
        if taken.asked_for_id and link.wants_problems:
            properties = Properties(user=(("id", taken.publication.id),))
        self._reply(session, link, taken.packet_id, qos, reason, properties)

    # -- what fails ----------------------------------------------------------------------------

    def _failed(self, taken: QueuedPublication, error: Exception) -> None:
        """A publication could not be routed: take it back and report that to its publisher."""
        context = self._context
        publication = taken.publication
        context.steps.roll_back()
        for other in self.queue.unrouted():
            if other.replaced is not None:
                other.replaced.forget(publication, taken.replaced)
        client = publication.publisher
        context.faults.attempt("taking back a PUBLISH", self._take_back, taken, client=client)
        context.faults.happened(error, "PUBLISH", taken.link, client=client)
        if taken.link is None and not taken.is_again:
            again = partial(self.publish_own, publication, is_again=True)
            context.faults.attempt("will", again, client=client)

    def _take_back(self, taken: QueuedPublication) -> None:
        """Restore what was there before a publication."""
        publication, session = taken.publication, taken.session
        if taken.replaced is not None:
            self._retained.put_back(publication, taken.replaced)
        self._log.forget(publication)
        if session is not None:
            session.recent_ids.pop(publication.id, None)
            session.received.discard(taken.packet_id)


def _remember(session: Session, id: str) -> None:
    """Remember an id to recognise a repeated publication; the oldest is forgotten."""
    known = session.recent_ids
    known[id] = None
    if len(known) > RECENT_MAX:
        del known[next(iter(known))]


def moment_of(valid_for: str, now: float) -> float | None:
    """The end of `valid-for`, or None if it is neither seconds nor `forever`."""
    if valid_for == "forever":
        return math.inf
    try:
        seconds = float(valid_for)
    except ValueError:
        return None
    return now + seconds if 0 < seconds < math.inf else None
