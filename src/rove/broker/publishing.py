"""From a PUBLISH to the notifications that it causes.

Publications of one turn are collected and routed together, so that the matcher sees a batch. The
batch is routed before anything changes who wants what; a client that subscribes and publishes in
one breath meets its own subscription.

What a client published with QoS 1 or 2 is acknowledged with what became of it: refused with its
reason, taken, or taken though nobody wanted it.

To take a publication is a step, and to route it is another (`rove.broker.steps`). If a batch cannot
be matched, its publications are matched one by one. One that fails is taken back: it is not
retained, not logged, not acknowledged, nobody is notified of it, and its publisher is told.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final, Literal

import msgspec

from rove.broker.control import DONE, PREFIX, Answer, Control
from rove.broker.keeping import Replaced
from rove.broker.links import Link
from rove.broker.logbook import forget_publication, log_notification, log_publication
from rove.broker.publications import Publication, user_property
from rove.broker.records import received_key
from rove.broker.routes import Given, Met, Route
from rove.broker.seats import Notification, Seat
from rove.broker.sessions import Select, Session
from rove.broker.spelling import CONTROL_NAMES, PUBLISH_NAMES, misspelt
from rove.broker.state import State
from rove.broker.subscriptions import Subscription
from rove.broker.targets import Target
from rove.broker.undecided import tell_undecided
from rove.mqtt.packets import (
    NO_PROPERTIES,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Reason,
)

_WHY: Final = {"initial": b'{"initial":true}', "promoted": b'{"promoted":true}'}
"""What the log says of notifications that come later than their publication."""
RECENT_MAX = 1_000
"""Ids of a client's last publications that are recognised when they come again."""


class _Waiting(msgspec.Struct, gc=False):
    """A publication of this turn, and where its acknowledgement goes."""

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


class Publishing:
    """Takes publications and routes them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._control = Control(state, self.notify_behind)
        state.variables.match_first = self._match_collected
        self._batch: list[_Waiting] = []
        self._submitted: deque[list[_Waiting]] = deque()
        """Batches on their way through the matchers."""

    @property
    def has_waiting(self) -> bool:
        """Whether publications wait to be routed, and something can be done about it."""
        return bool(self._batch) and self._state.interests.has_room

    # -- taking --------------------------------------------------------------------------------

    def publish(self, session: Session, link: Link, packet: Publish) -> None:
        """A client has published."""
        state = self._state
        state.counters.publications_received += 1
        link.is_publisher = True
        if packet.properties.topic_alias is not None and not self._resolve(link, packet):
            return
        is_command = packet.topic.startswith(PREFIX)
        if is_command:
            # What came before it comes first, and is no part of this step.
            self.flush()
        if packet.qos and not self._may_open(session, link, packet):
            return
        refusal = self._refusal(session, packet)
        if refusal is not None:
            self._refuse(session, link, packet, refusal)
            return
        state.next_publication += 1
        id = None
        valid_until = None
        if packet.properties.user:
            id = user_property(packet.properties, "id")
            valid_for = user_property(packet.properties, "valid-for")
            if valid_for is not None:
                valid_until = moment_of(valid_for, state.now)
                if valid_until is None:
                    what = f"valid-for is {valid_for!r}; write seconds, or forever"
                    answer = Answer(Reason.IMPLEMENTATION_SPECIFIC_ERROR, what)
                    self._refuse(session, link, packet, answer)
                    return
        number, user = state.next_publication, session.identity.user
        given = id or f"{session.number}-{number}-{int(state.now * 1000):x}"
        publication = Publication(
            number, packet, session.client_id, given, state.now, valid_until, user
        )
        if is_command:
            self._command(session, link, packet, publication)
            return
        if packet.dup and id is not None and id in session.recent_ids:
            state.counters.publications_repeated += 1
            self._answer(session, link, packet.packet_id, packet.qos, DONE)
            return
        asked_for_id = id is None and valid_until is not None
        waiting = _Waiting(publication, link, packet.packet_id, asked_for_id, session)
        if (
            id is not None or valid_until is not None or packet.retain or state.settings.channels
        ) and not self._keep(session, link, packet, waiting, named=id is not None):
            return
        if id is not None:
            state.steps.undoes(session.recent_ids.pop, id, None)
            _remember(session, id)
        self._batch.append(waiting)

    def publish_own(self, publication: Publication, *, is_again: bool = False) -> None:
        """The broker itself publishes: a will."""
        waiting = _Waiting(publication, None, 0, False, is_again=is_again)
        if publication.retain:
            waiting.replaced = self._state.keeper.found_before(publication)
            self._state.keeper.retain(publication)
        log_publication(self._state, publication)
        self._state.steps.undoes(self._batch.remove, waiting)
        self._batch.append(waiting)

    def _resolve(self, link: Link, packet: Publish) -> bool:
        """Put the topic in the place of its alias; False if the connection had to be closed."""
        alias = packet.properties.topic_alias
        assert alias is not None
        if alias > self._state.limits.topic_alias_max:
            self._state.close(link, Reason.TOPIC_ALIAS_INVALID, f"no topic alias {alias} here")
            return False
        if packet.topic:
            if not link.aliases:
                link.aliases = {}
            link.aliases[alias] = packet.topic
        elif alias in link.aliases:
            packet.topic = link.aliases[alias]
        else:
            self._state.close(link, Reason.PROTOCOL_ERROR, f"topic alias {alias} was never set")
            return False
        return True

    def _may_open(self, session: Session, link: Link, packet: Publish) -> bool:
        """Count it among the unacknowledged; False if it needs no further thought."""
        if packet.qos == 2 and packet.packet_id in session.received:
            self._state.counters.publications_repeated += 1
            if not self._answers_later(session, link, packet.packet_id):
                self._send_answer(link, Pubrec(packet.packet_id))
            return False
        if link.is_v5 and link.open_publishes >= self._state.limits.receive_max:
            self._state.close(
                link,
                Reason.RECEIVE_MAX_EXCEEDED,
                f"more than {self._state.limits.receive_max} publications without acknowledgement",
            )
            return False
        link.open_publishes += 1
        if packet.qos == 2:
            self._state.steps.undoes(session.received.discard, packet.packet_id)
            session.received.add(packet.packet_id)
        return True

    def _answers_later(self, session: Session, link: Link, packet_id: int) -> bool:
        """Whether one that came again waits to be routed; then it is answered here."""
        for one in chain(self._batch, *self._submitted):
            if one.session is session and one.packet_id == packet_id:
                one.link = link
                return True
        return False

    def _refusal(self, session: Session, packet: Publish) -> Answer | None:
        state = self._state
        limits = state.limits
        if packet.topic.count("/") >= limits.topic_levels_max:
            return Answer(Reason.TOPIC_NAME_INVALID, f"more than {limits.topic_levels_max} levels")
        if not state.rules.allowed(session.identity, "publish", packet.topic):
            return Answer(Reason.NOT_AUTHORIZED, f"publishing on {packet.topic} is not allowed")
        if packet.topic.startswith("$") and not packet.topic.startswith(PREFIX):
            what = "topics that begin with $ are the broker's own"
            return Answer(Reason.TOPIC_NAME_INVALID, what)
        if packet.properties.user:
            names = CONTROL_NAMES if packet.topic.startswith(PREFIX) else PUBLISH_NAMES
            wrong = misspelt(packet.properties.user, names)
            if wrong is not None:
                return Answer(Reason.IMPLEMENTATION_SPECIFIC_ERROR, wrong)
        return None

    def _refuse(self, session: Session, link: Link, packet: Publish, answer: Answer) -> None:
        state = self._state
        state.counters.publications_refused += 1
        state.note(
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
        waiting: _Waiting,
        *,
        named: bool,
    ) -> bool:
        """Retain it, hold it, log it as asked; False if it was refused.

        QoS 0 cannot be told of a refusal: it is then delivered, and no more than that.
        """
        state, publication = self._state, waiting.publication
        refusal = None
        is_valid = publication.valid_until is not None
        if named or is_valid or publication.retain:
            waiting.replaced = state.keeper.found_before(publication)
        old = state.keeper.replaced_by(publication) if is_valid else None
        if old is not None and not state.rules.allowed(session.identity, "publish", old.topic):
            what = f"{old.id!r} is valid on {old.topic}, and withdrawing from there is not allowed"
            refusal = Answer(Reason.NOT_AUTHORIZED, what)
        elif is_valid and not state.keeper.has_room(publication):
            refusal = Answer(Reason.QUOTA_EXCEEDED, "no room for another valid publication")
        elif publication.retain and not state.keeper.retain(publication):
            refusal = Answer(Reason.QUOTA_EXCEEDED, "no room for another retained publication")
        elif is_valid:
            state.keeper.hold(publication)
        if refusal is not None and packet.qos:
            self._refuse(session, link, packet, refusal)
            return False
        if named or is_valid:
            state.keeper.name(publication)
        log_publication(self._state, publication)
        return True

    def _command(
        self, session: Session, link: Link, packet: Publish, publication: Publication
    ) -> None:
        answer = self._control.handle(session, publication)
        if answer.reason >= Reason.UNSPECIFIED_ERROR:
            self._refuse(session, link, packet, answer)
        else:
            self._answer(session, link, packet.packet_id, packet.qos, answer)

    # -- answering -----------------------------------------------------------------------------

    def released(self, session: Session, link: Link, packet_id: int) -> None:
        """PUBREL: the client forgets the publication, so may we."""
        reason: int = Reason.PACKET_ID_NOT_FOUND
        if packet_id in session.received:
            self._close_received(session, link, packet_id)
            reason = Reason.SUCCESS
        self._send_answer(link, Pubcomp(packet_id, reason))

    def _close_received(self, session: Session, link: Link, packet_id: int) -> None:
        if packet_id in session.received:
            self._state.steps.undoes(session.received.add, packet_id)
        session.received.discard(packet_id)
        # One that was opened before a reconnection was never counted here.
        link.open_publishes = max(0, link.open_publishes - 1)
        if session.is_durable:
            key = received_key(session.number, packet_id)
            self._state.gate.changes.delete("received", key)

    def _answer(
        self, session: Session, link: Link, packet_id: int, qos: int, answer: Answer
    ) -> None:
        """Acknowledge what was not routed."""
        reason = answer.reason
        properties = NO_PROPERTIES
        if link.wants_problems and answer.text:
            properties = link.explained(answer.text)
        elif link.wants_problems and answer.user:
            properties = Properties(user=answer.user)
        if qos == 2 and reason >= Reason.UNSPECIFIED_ERROR and link.is_v5:
            # A refused one is over: the client sends no PUBREL for it.
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
                # In the commit of what it caused: after a crash it is known only if it was routed.
                key = received_key(session.number, packet_id)
                self._state.gate.changes.put("received", key, b"")
            self._send_answer(link, Pubrec(packet_id, reason, more))

    def _send_answer(self, link: Link, packet: Puback | Pubrec | Pubcomp) -> None:
        data = link.encoded(packet)
        if data is not None:
            self._state.gate.send_after_commit(link, data)

    def _acknowledge(self, waiting: _Waiting, notified: int) -> None:
        """Acknowledge what was routed, if it came with QoS 1 or 2."""
        link, session, qos = waiting.link, waiting.session, waiting.publication.qos
        if link is None or session is None:
            return
        reason = Reason.SUCCESS if notified else Reason.NO_MATCHING_SUBSCRIBERS
        properties = NO_PROPERTIES
        if waiting.asked_for_id and link.wants_problems:
            properties = Properties(user=(("id", waiting.publication.id),))
        self._reply(session, link, waiting.packet_id, qos, reason, properties)

    # -- routing -------------------------------------------------------------------------------

    def flush(self) -> None:
        """Route everything that was collected, and let windows slide up to now.

        Both come before whatever is about to change, so that it never changes the past. Where
        matchers are beside the broker, this waits for them.
        """
        assert not self._state.steps.undo, "what was collected is routed between two steps"
        self._match_collected()
        self.route_answered()
        if self._batch:
            # A will that failed is tried once more.
            self._match_collected()
            self.route_answered()
        if self._state.interests.has_ranked:
            self.slide()

    def slide(self) -> None:
        """Let windows slide up to now, and notify of what moves up."""
        state = self._state
        try:
            given = state.interests.advance(state.now)
        except Exception as error:
            state.faults.happened(error, "slide of windows")
            return
        self.promote(given)

    def pass_on(self) -> None:
        """Nothing is about to change: have what was collected matched, route what is."""
        interests = self._state.interests
        if not interests.is_out:
            self.flush()
            return
        self.route_answered()
        while self._batch and interests.has_room:
            count = interests.batch_max
            # Windows slide behind all that was collected, not in the middle of it.
            slides = interests.has_ranked and len(self._batch) <= count
            self._submit(self._state.now if slides else None, count)
        self.route_answered()

    def _submit(self, advance_to: float | None, count: int | None = None) -> None:
        """Hand in what was collected, or the first so many."""
        batch = self._batch[:count]
        interests = self._state.interests
        try:
            interests.submit([waiting.publication for waiting in batch], advance_to)
        except Exception as error:
            self._state.faults.tell(error, "match of a batch", "", None)
            self._submit_each(batch, advance_to)
        else:
            self._submitted.append(batch)
        del self._batch[: len(batch)]

    def _submit_each(self, batch: list[_Waiting], advance_to: float | None) -> None:
        """Have the publications of a batch that failed matched one by one."""
        interests = self._state.interests
        for waiting in batch:
            try:
                interests.submit([waiting.publication], None)
            except Exception as error:
                # It keeps its place among the others until it is told of.
                waiting.error = error
                interests.submit([], None)
            self._submitted.append([waiting])
        interests.submit([], advance_to)
        self._submitted.append([])

    def _match_collected(self) -> None:
        """Have everything matched that was collected; it is routed when its turn comes."""
        interests = self._state.interests
        if self._batch:
            self._submit(None)
        while interests.waiting:
            interests.wait()

    def route_answered(self) -> None:
        """Route what was matched, and what had to be matched meanwhile for a policy's sake."""
        while self._submitted and (answered := self._state.interests.results()):
            for met in answered:
                batch = self._submitted.popleft()
                if met.failed:
                    _mark_failed(batch, met.failed)
                self._route(batch, met)
                if batch:
                    self._state.routed.append((batch[0].publication.at, len(batch)))

    def _route(self, batch: list[_Waiting], met: Met) -> None:
        state = self._state
        steps, undo, remember = state.steps, state.steps.undo, state.recent.add
        arrived: dict[Publication, list[Subscription]] = {}
        promoted: deque[Given] = deque()
        for one in met.given:
            if one.promoted:
                promoted.append(one)
            else:
                arrived.setdefault(one.publication, []).append(one.subscription)
        for waiting in batch:
            publication = waiting.publication
            # What moved up before this came goes out before it, however large the batch is.
            while promoted and promoted[0].at < publication.at:
                self.promote((promoted.popleft(),))
            try:
                if waiting.error is not None:
                    raise waiting.error
                matched: Sequence[Subscription] = met.found.get(publication.number, ())
                if publication in arrived:
                    matched = [*matched, *arrived[publication]]
                notified = self._notify(publication, matched)
                if publication.qos:
                    self._acknowledge(waiting, notified)
                remember(publication, notified)
                if steps.later:
                    steps.succeed()
                else:
                    undo.clear()
            except Exception as error:
                self._failed(waiting, error)
                continue
            if not notified:
                state.counters.publications_unmatched += 1
        self.promote(promoted)
        if met.undecided:
            state.faults.attempt("undecided", tell_undecided, state, met.undecided)

    def _failed(self, waiting: _Waiting, error: Exception) -> None:
        """A publication could not be routed: take it back and tell its publisher."""
        state = self._state
        publication = waiting.publication
        state.steps.roll_back()
        for other in chain(self._batch, *self._submitted):
            if other.replaced is not None:
                other.replaced.forget(publication, waiting.replaced)
        client = publication.publisher
        state.faults.attempt("taking back a PUBLISH", self._take_back, waiting, client=client)
        state.faults.happened(error, "PUBLISH", waiting.link, client=client)
        if waiting.link is None and not waiting.is_again:
            again = partial(self.publish_own, publication, is_again=True)
            state.faults.attempt("will", again, client=client)

    def _take_back(self, waiting: _Waiting) -> None:
        """Let it be as if a publication had never come."""
        state, publication, session = self._state, waiting.publication, waiting.session
        if waiting.replaced is not None:
            state.keeper.put_back(publication, waiting.replaced)
        forget_publication(state, publication)
        if session is not None:
            session.recent_ids.pop(publication.id, None)
            session.received.discard(waiting.packet_id)

    def promote(self, given: Iterable[Given]) -> None:
        """Notify of publications that moved up in a window, each as a step."""
        for one in given:
            owner = one.subscription.session
            self._state.faults.attempt(
                "promotion", self._promote, one, link=owner.link, client=owner.client_id
            )

    def _promote(self, given: Given) -> None:
        one, publication = given.subscription, given.publication
        own = one.no_local and publication.publisher == one.session.client_id
        if not own and not publication.is_over(self._state.now):
            self.notify_later(publication, one, why="promoted")

    def _notify(self, publication: Publication, matched: Sequence[Subscription]) -> int:
        """Notify everybody who wants it, each session once; how many there were."""
        state = self._state
        route = state.interests.route(publication.topic)
        if matched or route.groups:
            return self._notify_merged(publication, matched, route)
        count = 0
        for target in route.with_desks:
            count += self._notify_target(publication, target)
        if not (publication.retain or state.is_guarded or state.keeps_more):
            return count + state.delivery.broadcast(publication, route.targets, state.now)
        for target in route.targets:
            count += self._notify_target(publication, target)
        return count

    def _notify_target(self, publication: Publication, found: Target) -> bool:
        target = found.heard_from(publication.publisher)
        if target is None:
            return False
        return self._deliver(
            publication,
            target.session,
            target.qos,
            target.ids,
            target.keeps_retain,
            None,
            target.numbers,
            target.seat,
        )

    def _notify_merged(
        self, publication: Publication, matched: Sequence[Subscription], route: Route
    ) -> int:
        """The same where texts or groups are met: first find out who is notified, and for what."""
        by_place: dict[Session | Seat, list[Subscription]] = {}
        shared: dict[tuple[str, str], list[Subscription]] = {}
        # Thousands may be met, nearly all by nothing but their text: one look at each.
        for one in matched:
            if one.group is not None:
                shared.setdefault((one.group, one.topic_filter), []).append(one)
            elif not (one.no_local and publication.publisher == one.session.client_id):
                place = one.seat or one.session
                if place in by_place:
                    by_place[place].append(one)
                else:
                    by_place[place] = [one]
        for group in route.groups:
            plain = [one for one in group.members if one.interest is None]
            shared.setdefault(group.name, []).extend(plain)
        # Of each group, one member is notified.
        chosen = [self._state.interests.pick(one) for one in shared.values()]
        count = 0
        for target in chain(route.with_desks, route.targets):
            own = by_place.pop(target.seat or target.session, None)
            if own is None:
                count += self._notify_target(publication, target)
            else:
                count += self._notify_all(publication, own, target)
        for subscriptions in by_place.values():
            count += self._notify_all(publication, subscriptions)
        for member in chosen:
            count += self._notify_all(publication, [member])
        return count

    def _notify_all(
        self,
        publication: Publication,
        subscriptions: list[Subscription],
        target: Target | None = None,
    ) -> bool:
        """Notify one session of what several of its subscriptions met."""
        ids = tuple([one.identifier for one in subscriptions if one.identifier])
        # What the publication itself does not allow need not be asked of each.
        qos = max([one.qos for one in subscriptions]) if publication.qos else 0
        keeps_retain = publication.retain and any(one.retain_as_published for one in subscriptions)
        select = _selection(subscriptions)
        if target is not None:
            target = target.heard_from(publication.publisher)
        numbers: tuple[int, ...] = ()
        if self._state.keeps_more:
            numbers = tuple([one.number for one in subscriptions])
        if target is not None:
            ids += target.ids
            numbers += target.numbers
            qos = max(qos, target.qos)
            keeps_retain = keeps_retain or target.keeps_retain
            select = None
        first = subscriptions[0]
        return self._deliver(
            publication, first.session, qos, ids, keeps_retain, select, numbers, first.seat
        )

    def notify_later(
        self,
        publication: Publication,
        one: Subscription,
        retain: bool = False,
        *,
        why: Literal["initial", "promoted"],
    ) -> bool:
        """Notify a subscription later than others: of what is kept, or of what moved up."""
        return self.notify_behind(publication, [one], _WHY[why], retain=retain)

    def notify_behind(
        self,
        publication: Publication,
        subscriptions: list[Subscription],
        why: bytes,
        *,
        retain: bool = False,
    ) -> bool:
        """Notify one session, behind what waits for this turn's commit; `why` is for the log."""
        state = self._state
        session, seat = subscriptions[0].session, subscriptions[0].seat
        if state.is_guarded and not state.rules.may_receive(session.identity, publication.topic):
            return False
        others = [one for one in subscriptions if one.seat is not seat]
        if others:
            # Whoever has a policy of its own is told by itself.
            subscriptions = [one for one in subscriptions if one.seat is seat]
            self.notify_behind(publication, others, why, retain=retain)
        ids = tuple(one.identifier for one in subscriptions if one.identifier)
        qos = max(one.qos for one in subscriptions)
        select = _selection(subscriptions)
        numbers = tuple(one.number for one in subscriptions)
        one = Notification(session, publication, qos, retain, ids, select, numbers, why, waits=True)
        if session.desk is not None:
            state.agents.notify(one, seat)
            return True
        state.delivery.deliver(
            session, publication, qos, retain, ids, state.now, select, waits=True
        )
        log_notification(state, one, why, state.now)
        return True

    def _deliver(
        self,
        publication: Publication,
        session: Session,
        qos: int,
        ids: tuple[int, ...],
        keeps_retain: bool,
        select: Select = None,
        numbers: tuple[int, ...] = (),
        seat: Seat | None = None,
    ) -> bool:
        state = self._state
        if state.is_guarded and not state.rules.may_receive(session.identity, publication.topic):
            return False
        retain = publication.retain and keeps_retain
        if session.desk is not None:
            one = Notification(session, publication, qos, retain, ids, select, numbers)
            state.agents.notify(one, seat)
            return True
        state.delivery.deliver(session, publication, qos, retain, ids, state.now, select)
        if state.keeps_more:
            one = Notification(session, publication, qos, retain, ids, select, numbers)
            log_notification(state, one, b"", state.now)
        return True


def _mark_failed(batch: list[_Waiting], failed: Mapping[int, str]) -> None:
    for waiting in batch:
        if (text := failed.get(waiting.publication.number)) is not None:
            waiting.error = RuntimeError(f"a matcher failed over it: {text}")


def _selection(subscriptions: list[Subscription]) -> Select:
    """What of a publication is sent that meets all these: whatever one of them selects."""
    chosen: dict[object, None] = {}
    selected = []
    for one in subscriptions:
        select = None if one.interest is None else one.interest.parsed.select
        if select is None:
            return None
        for attribute in select:
            if attribute not in chosen:
                chosen[attribute] = None
                selected.append(attribute)
    return tuple(selected)


def _remember(session: Session, id: str) -> None:
    """Let the id be known again when it comes again; of too many, the oldest is forgotten."""
    known = session.recent_ids
    known[id] = None
    if len(known) > RECENT_MAX:
        del known[next(iter(known))]


def moment_of(valid_for: str, now: float) -> float | None:
    """Until when `valid-for` says, or None if it says nothing that can be meant."""
    if valid_for == "forever":
        return math.inf
    try:
        seconds = float(valid_for)
    except ValueError:
        return None
    return now + seconds if 0 < seconds < math.inf else None
