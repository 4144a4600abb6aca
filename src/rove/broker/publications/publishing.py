"""Taking publications: what a PUBLISH is checked for, what is kept of it, and how it is answered.

What is taken waits in the queue (`rove.broker.publications.queue`) until it is routed. What a
client published with QoS 1 or 2 is acknowledged then, with what became of it: refused with its
reason, taken, or taken though nobody wanted it. To take a publication is a step, and to route it is
another (`rove.broker.steps`).
"""

from __future__ import annotations

import math
from functools import partial

from rove.broker.context import BrokerContext
from rove.broker.control import DONE, PREFIX, Answer, Control
from rove.broker.notifications.notifying import Notifying
from rove.broker.publications.publication import Publication, user_property
from rove.broker.publications.queue import PublicationQueue, Taken
from rove.broker.publications.recent import Recent
from rove.broker.publications.retained_store import RetainedStore
from rove.broker.sessions.session import Link, Session
from rove.broker.storage.publication_log import PublicationLog
from rove.broker.storage.records import received_key
from rove.broker.subscriptions.router import Router
from rove.broker.subscriptions.spelling import CONTROL_NAMES, PUBLISH_NAMES, misspelt
from rove.mqtt.packets import (
    NO_PROPERTIES,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Reason,
)

RECENT_MAX = 1_000
"""Ids of a client's last publications that are recognised when they come again."""


class Publishing:
    """Takes publications, and answers for them."""

    def __init__(
        self,
        context: BrokerContext,
        router: Router,
        retained: RetainedStore,
        notifying: Notifying,
        control: Control,
        recent: Recent,
        log: PublicationLog,
    ) -> None:
        self._context = context
        self._retained = retained
        self._control = control
        self._log = log
        answer, fail = self._acknowledge, self._failed
        self.queue = PublicationQueue(context, router, notifying, recent, answer, fail)

    # -- taking --------------------------------------------------------------------------------

    def publish(self, session: Session, link: Link, packet: Publish) -> None:
        """A client has published."""
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
                    answer = Answer(Reason.IMPLEMENTATION_SPECIFIC_ERROR, what)
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
        taken = Taken(publication, link, packet.packet_id, asked_for_id, session)
        if (
            id is not None or valid_until is not None or packet.retain or context.settings.channels
        ) and not self._keep(session, link, packet, taken, named=id is not None):
            return
        if id is not None:
            context.steps.undoes(session.recent_ids.pop, id, None)
            _remember(session, id)
        self.queue.put(taken)

    def publish_own(self, publication: Publication, *, is_again: bool = False) -> None:
        """The broker itself publishes: a will."""
        taken = Taken(publication, None, 0, False, is_again=is_again)
        if publication.retain:
            taken.replaced = self._retained.found_before(publication)
            self._retained.retain(publication)
        self._log.taken(publication)
        self.queue.put(taken)
        self._context.steps.undoes(self.queue.take_out, taken)

    def _resolve(self, link: Link, packet: Publish) -> bool:
        """Put the topic in the place of its alias; False if the connection had to be closed."""
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
        """Count it among the unacknowledged; False if it needs no further thought."""
        if packet.qos == 2 and packet.packet_id in session.received:
            self._context.counters.publications_repeated += 1
            if not self._answers_later(session, link, packet.packet_id):
                self._send_answer(link, Pubrec(packet.packet_id))
            return False
        most = self._context.limits.receive_max
        if link.is_v5 and link.open_publishes >= most:
            what = f"more than {most} publications without acknowledgement"
            self._context.close(link, Reason.RECEIVE_MAX_EXCEEDED, what)
            return False
        link.open_publishes += 1
        if packet.qos == 2:
            self._context.steps.undoes(session.received.discard, packet.packet_id)
            session.received.add(packet.packet_id)
        return True

    def _answers_later(self, session: Session, link: Link, packet_id: int) -> bool:
        """Whether one that came again waits to be routed; then it is answered here."""
        for one in self.queue.unrouted():
            if one.session is session and one.packet_id == packet_id:
                one.link = link
                return True
        return False

    def _refusal(self, session: Session, packet: Publish) -> Answer | None:
        context = self._context
        limits = context.limits
        if packet.topic.count("/") >= limits.topic_levels_max:
            return Answer(Reason.TOPIC_NAME_INVALID, f"more than {limits.topic_levels_max} levels")
        if not context.rules.allowed(session.identity, "publish", packet.topic):
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
        taken: Taken,
        *,
        named: bool,
    ) -> bool:
        """Retain it, hold it, log it as asked; False if it was refused.

        QoS 0 cannot be told of a refusal: it is then delivered, and no more than that.
        """
        context, publication = self._context, taken.publication
        refusal = None
        is_valid = publication.valid_until is not None
        if named or is_valid or publication.retain:
            taken.replaced = self._retained.found_before(publication)
        old = self._retained.replaced_by(publication) if is_valid else None
        if old is not None and not context.rules.allowed(session.identity, "publish", old.topic):
            what = f"{old.id!r} is valid on {old.topic}, and withdrawing from there is not allowed"
            refusal = Answer(Reason.NOT_AUTHORIZED, what)
        elif is_valid and not self._retained.has_room(publication):
            refusal = Answer(Reason.QUOTA_EXCEEDED, "no room for another valid publication")
        elif publication.retain and not self._retained.retain(publication):
            refusal = Answer(Reason.QUOTA_EXCEEDED, "no room for another retained publication")
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
            self._context.steps.undoes(session.received.add, packet_id)
        session.received.discard(packet_id)
        # One that was opened before a reconnection was never counted here.
        link.open_publishes = max(0, link.open_publishes - 1)
        if session.is_durable:
            key = received_key(session.number, packet_id)
            self._context.gate.changes.delete("received", key)

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
                self._context.gate.changes.put("received", key, b"")
            self._send_answer(link, Pubrec(packet_id, reason, more))

    def _send_answer(self, link: Link, packet: Puback | Pubrec | Pubcomp) -> None:
        data = link.encoded(packet)
        if data is not None:
            self._context.gate.send_after_commit(link, data)

    def _acknowledge(self, taken: Taken, notified: int) -> None:
        """Acknowledge what was routed, if it came with QoS 1 or 2."""
        link, session, qos = taken.link, taken.session, taken.publication.qos
        if link is None or session is None:
            return
        reason = Reason.SUCCESS if notified else Reason.NO_MATCHING_SUBSCRIBERS
        properties = NO_PROPERTIES
        if taken.asked_for_id and link.wants_problems:
            properties = Properties(user=(("id", taken.publication.id),))
        self._reply(session, link, taken.packet_id, qos, reason, properties)

    # -- what fails ----------------------------------------------------------------------------

    def _failed(self, taken: Taken, error: Exception) -> None:
        """A publication could not be routed: take it back and tell its publisher."""
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

    def _take_back(self, taken: Taken) -> None:
        """Let it be as if a publication had never come."""
        publication, session = taken.publication, taken.session
        if taken.replaced is not None:
            self._retained.put_back(publication, taken.replaced)
        self._log.forget(publication)
        if session is not None:
            session.recent_ids.pop(publication.id, None)
            session.received.discard(taken.packet_id)


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
