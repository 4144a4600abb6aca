"""The life of sessions: CONNECT, DISCONNECT, lost connections, wills and expiry.

At CONNECT a session is resumed or made, an older connection of the same client is closed with
"session taken over", and the queue goes out. When the connection ends, the will is published if it
has to be, at once or after its delay. If the client does not come back in time, the session ends.
"""

from __future__ import annotations

import heapq
import math
from collections import deque

from rove.broker.access import Identity
from rove.broker.context import EXPIRED_MAX, BrokerContext, ExpiredSession
from rove.broker.faults import RETRY_S, Attempt
from rove.broker.notifications.delivery import Delivery
from rove.broker.policies.agents import Agents
from rove.broker.publications.forwarded import FORWARDED
from rove.broker.publications.publication import Publication
from rove.broker.publications.publish import PublishHandler
from rove.broker.sessions.aliases import Aliases
from rove.broker.sessions.session import BROKER_PREFIX, Link, Session
from rove.broker.sessions.variables import Variables
from rove.broker.storage.records import encoded, received_key
from rove.broker.subscriptions.subscribe import SubscribeHandler
from rove.mqtt.packets import (
    V5,
    Connack,
    Connect,
    Disconnect,
    Properties,
    Publish,
    Reason,
    Will,
)

EXPIRY_NEVER_S = 0xFFFF_FFFF
DEADLINES_SPARE = 1_000
"""How many deadlines of closed connections are tolerated before they are removed."""
DUE_SPARE = 100
"""How many timers of ended sessions are tolerated before they are removed."""
HTTP_CLIENT_ID = "http"
"""The broker's own HTTP interface publishes with this client id, or `http:` and a user's name."""
KEEP_ALIVE_GRACE = 1.5
"""From the specification: a client may be silent for this many keep-alive intervals."""
KEEP_ALIVE_S_LIMIT = 65_535
"""The longest that a client can request; where this is allowed, so is no keep-alive at all."""
RECEIVE_MAX_DEFAULT = 65_535


class SessionLifecycle:
    """Begins, resumes and ends sessions."""

    def __init__(
        self,
        context: BrokerContext,
        delivery: Delivery,
        variables: Variables,
        agents: Agents,
        publishing: PublishHandler,
        subscribing: SubscribeHandler,
    ) -> None:
        self._context = context
        self._delivery = delivery
        self._variables = variables
        self._agents = agents
        self.authentications: list[tuple[Link, Connect]] = []
        """Clients that the shell has to authenticate."""
        self.upgrades: list[Link] = []
        """Connections of brokers that have joined, for the shell."""
        self.expired: deque[ExpiredSession] = deque(maxlen=EXPIRED_MAX)
        """The last sessions that expired, oldest first."""
        self._publish_handler = publishing
        self._subscribe_handler = subscribing
        self._deadlines: list[tuple[float, int, Link]] = []
        """A heap of times at which connections are checked for silence."""
        self._looks = 0
        self._due: list[tuple[float, int, Session]] = []
        """A heap of times at which sessions of absent clients are checked."""

    # -- connecting ----------------------------------------------------------------------------

    def connect(self, link: Link, packet: Connect) -> None:
        """CONNECT has come: check it, and have the client authenticated."""
        context = self._context
        link.version = link.form = packet.version
        properties = packet.properties
        link.packet_bytes_max = properties.packet_size_max
        aliases_max = min(properties.topic_alias_max or 0, context.limits.topic_alias_max)
        if aliases_max:
            link.sent_aliases = Aliases(aliases_max)
        link.needs_care = link.packet_bytes_max is not None or aliases_max > 0
        link.wants_problems = properties.request_problem_information != 0
        if properties.authentication_method is not None:
            what = "this broker has no extended authentication; use a password or a certificate"
            self.refuse(link, Reason.BAD_AUTHENTICATION_METHOD, what)
        elif not packet.client_id and not link.is_v5 and not packet.clean_start:
            what = "a session that is to stay needs a client id"
            self.refuse(link, Reason.CLIENT_ID_NOT_VALID, what)
        elif len(packet.client_id.encode()) > context.limits.client_id_bytes_max:
            what = f"a client id may have {context.limits.client_id_bytes_max} bytes"
            self.refuse(link, Reason.CLIENT_ID_NOT_VALID, what)
        elif link.identity is not None:
            self.admit(link, packet, link.identity)
        else:
            link.authenticating = packet
            self.authentications.append((link, packet))

    def refuse(self, link: Link, reason: int, text: str) -> None:
        """Refuse a CONNECT, and close."""
        context = self._context
        context.counters.connections_refused += 1
        context.note("warning", "connection refused", link=link.name, reason=text)
        data = link.encoded(Connack(False, reason, link.explained(text)))
        if data is not None:
            context.gate.send(link, data)
        context.hang_up(link)

    def admit(self, link: Link, packet: Connect, identity: Identity) -> None:
        """The client is authenticated: resume or make its session, and send CONNACK."""
        context = self._context
        fault = self._fault(link, packet, identity)
        if fault is not None:
            link.authenticating = None
            self.refuse(link, *fault)
            return
        if packet.client_id.startswith(BROKER_PREFIX) and link.authenticating is not None:
            self._let_broker_join(link, packet, identity)
            return
        client_id = packet.client_id or f"rove-{context.new_name()}"
        identity = Identity(identity.user, client_id, identity.source)
        link.identity = identity
        old = context.sessions.get(client_id)
        if old is not None:
            if old.link is not None:
                self._take_over(old, old.link)
            is_over = packet.clean_start or _ends_at(old) <= context.now
            if is_over and client_id in context.sessions:
                self._say_last_will(old)
                self._discard(old)
            else:
                # It is due if publishing it failed when the older connection ended.
                self._say_will_if_due(old)
        expiry_s = self._expiry(packet)
        session = context.sessions.get(client_id)
        present = session is not None
        if session is None:
            session = Session(client_id, context.next_session, link.version, expiry_s)
            session.began_at = context.now
            context.next_session += 1
            context.steps.saves_item(context.sessions, client_id)
            context.sessions[client_id] = session
        self._settle(session, link, packet, expiry_s, identity)
        data = link.encoded(self._welcome(packet, client_id, expiry_s, present))
        if data is not None:
            # What CONNACK says about the session has to hold after a crash too.
            is_kept = session.is_durable or (old is not None and old.is_durable)
            send = context.gate.send_welcome if is_kept else context.gate.send
            send(link, data)
        context.note("info", "connected", client=client_id, link=link.name, resumed=present)
        if present:
            self._delivery.resume(session, link, context.now)
        # After `resume`: what this sends must not start the queue before that.
        self._variables.connection_changed(session)
        link.authenticating = None

    def _fault(self, link: Link, packet: Connect, identity: Identity) -> tuple[int, str] | None:
        context = self._context
        old = context.sessions.get(packet.client_id)
        if not link.is_http_publisher:
            if packet.client_id.partition(":")[0] == HTTP_CLIENT_ID:
                what = (
                    f"{HTTP_CLIENT_ID} and what begins with {HTTP_CLIENT_ID}: are the broker's own"
                )
                return Reason.CLIENT_ID_NOT_VALID, what
            if packet.client_id.startswith(BROKER_PREFIX):
                return self._fault_of_broker(link, packet, identity)
            if old is not None and old.identity.user != identity.user:
                return Reason.CLIENT_ID_NOT_VALID, "this client id belongs to another user"
        if old is None and len(context.sessions) >= context.limits.sessions_max:
            context.counters.quota_hits += 1
            return Reason.QUOTA_EXCEEDED, f"more than {context.limits.sessions_max} sessions"
        will = packet.will
        if will is not None and not context.rules.allowed(identity, "publish", will.topic):
            return Reason.NOT_AUTHORIZED, f"a will on {will.topic} is not allowed"
        if will is not None and will.topic.startswith("$"):
            return Reason.TOPIC_NAME_INVALID, "topics that begin with $ are the broker's own"
        levels_max = context.limits.topic_levels_max
        if will is not None and will.topic.count("/") >= levels_max:
            return Reason.TOPIC_NAME_INVALID, f"a will's topic may have {levels_max} levels"
        return None

    def _fault_of_broker(
        self, link: Link, packet: Connect, identity: Identity
    ) -> tuple[int, str] | None:
        """Why another broker may not join."""
        context = self._context
        if link.authenticating is None:
            # Through the HTTP interface, administrators end sessions of brokers that are gone.
            session = context.sessions.get(packet.client_id)
            is_gone = session is not None and session.link is None
            if is_gone and packet.clean_start and context.rules.allowed(identity, "admin"):
                return None
            what = f"client ids that begin with {BROKER_PREFIX} are those of other brokers"
            return Reason.CLIENT_ID_NOT_VALID, what
        if not context.settings.name:
            what = (
                f"client ids that begin with {BROKER_PREFIX} are those of other brokers, and this"
                f" broker is in no network (it has no [mesh] name)"
            )
            return Reason.CLIENT_ID_NOT_VALID, what
        if not link.is_v5:
            return Reason.UNSUPPORTED_PROTOCOL_VERSION, "a broker has to join with MQTT 5"
        if not context.rules.allowed(identity, "broker"):
            who = "an anonymous client" if identity.user is None else f"user {identity.user}"
            what = f"{who} may not join as a broker; the access rules must allow it `broker`"
            return Reason.NOT_AUTHORIZED, what
        return None

    def _let_broker_join(self, link: Link, packet: Connect, identity: Identity) -> None:
        """After CONNACK, the connection is the shell's: it does not carry MQTT any more."""
        context = self._context
        link.identity = Identity(identity.user, packet.client_id, identity.source)
        link.authenticating, link.deadline = None, math.inf
        properties = Properties(user=(("rove", context.settings.version),))
        data = link.encoded(Connack(False, Reason.SUCCESS, properties))
        if data is not None:
            context.gate.send(link, data)
            self.upgrades.append(link)

    def _expiry(self, packet: Connect) -> int:
        most = self._context.limits.session_expiry_s_max
        if packet.version == 5:
            return min(packet.properties.session_expiry_s or 0, most)
        return 0 if packet.clean_start else most

    def _settle(
        self, session: Session, link: Link, packet: Connect, expiry_s: int, identity: Identity
    ) -> None:
        """Attach the connection to the session."""
        context = self._context
        limits = context.limits
        context.steps.saves(link, "session")
        context.steps.saves(
            session, "link", "version", "expiry_s", "identity", "will", "will_at", "away_since"
        )
        session.link, link.session = link, session
        session.version, session.expiry_s = link.version, expiry_s
        session.identity = identity
        session.will, session.will_at = packet.will, math.inf
        session.away_since = None
        receive_max = packet.properties.receive_max or RECEIVE_MAX_DEFAULT
        link.inflight_max = min(receive_max, limits.inflight_max)
        link.keep_alive_s = self._keep_alive(packet)
        if link.keep_alive_s:
            link.deadline = context.now + link.keep_alive_s * KEEP_ALIVE_GRACE
        else:
            link.deadline = math.inf
        self._keep(session)

    def _keep_alive(self, packet: Connect) -> int:
        """The client's keep-alive, or ours if that is too long and CONNACK can say so."""
        most_s = self._context.limits.keep_alive_s_max
        if packet.version != V5 or most_s == KEEP_ALIVE_S_LIMIT:
            return packet.keep_alive_s
        return min(packet.keep_alive_s or most_s, most_s)

    def _welcome(self, packet: Connect, client_id: str, expiry_s: int, present: bool) -> Connack:
        limits = self._context.limits
        asked_s = packet.properties.session_expiry_s or 0
        keep_alive_s = self._keep_alive(packet)
        version = self._context.settings.version
        properties = Properties(
            user=(("rove", version),) if version else (),
            session_expiry_s=expiry_s if expiry_s != asked_s else None,
            assigned_client_id=None if packet.client_id else client_id,
            receive_max=limits.receive_max,
            topic_alias_max=limits.topic_alias_max or None,
            packet_size_max=limits.packet_bytes_max,
            server_keep_alive_s=keep_alive_s if keep_alive_s != packet.keep_alive_s else None,
        )
        return Connack(present, Reason.SUCCESS, properties)

    def _take_over(self, session: Session, old: Link) -> None:
        context = self._context
        context.counters.sessions_taken_over += 1
        context.close(old, Reason.SESSION_TAKEN_OVER, "the client has connected again")
        self.left(old, says_will=True)
        # The older connection stays closed even if the new one fails.
        context.steps.succeed()

    def admit_broker(self, link: Link, name: str, identity: Identity) -> None:
        """Another broker has connected: resume or make its session, without CONNECT."""
        context = self._context
        client_id = BROKER_PREFIX + name
        session = context.sessions.get(client_id)
        if session is None:
            expiry_s = context.limits.session_expiry_s_max
            session = Session(client_id, context.next_session, V5, expiry_s)
            session.began_at = context.now
            context.next_session += 1
            context.steps.saves_item(context.sessions, client_id)
            context.sessions[client_id] = session
        elif session.link is not None:
            self._take_over(session, session.link)
        context.steps.saves(link, "session", "deadline")
        context.steps.saves(session, "link", "identity", "away_since")
        context.steps.saves_item(context.brokers, name)
        context.brokers[name] = session
        session.link, link.session = link, session
        session.identity, session.away_since = identity, None
        link.form, link.needs_care, link.deadline = FORWARDED, True, math.inf
        link.inflight_max = context.limits.inflight_max
        link.first_subscription = context.next_subscription
        self._keep(session)
        context.note("info", "broker connected", broker=name, link=link.name)
        self._delivery.resume(session, link, context.now)

    # -- disconnecting -------------------------------------------------------------------------

    def disconnect(self, link: Link, packet: Disconnect) -> None:
        """DISCONNECT has come."""
        session = link.session
        assert session is not None
        expiry_s = packet.properties.session_expiry_s
        if expiry_s is not None:
            if session.expiry_s == 0 and expiry_s > 0:
                what = "a session that was to end with its connection cannot be kept after all"
                self._context.close(link, Reason.PROTOCOL_ERROR, what)
                self.left(link, says_will=True)
                return
            self._context.steps.saves(session, "expiry_s")
            session.expiry_s = min(expiry_s, self._context.limits.session_expiry_s_max)
        self._context.hang_up(link)
        self.left(link, says_will=packet.reason != Reason.SUCCESS)

    def left(self, link: Link, *, says_will: bool) -> None:
        """The connection is closed."""
        session = link.session
        if session is None:
            return
        context = self._context
        context.steps.saves(link, "session")
        context.steps.saves(session, "link", "away_since", "will", "will_at")
        link.session = session.link = None
        session.away_since = context.now
        self._delivery.left(session)
        if session.will is not None:
            if says_will:
                session.will_at = context.now + context.will_delay_s(session.will)
            else:
                session.will = None
        if session.expiry_s:
            self._keep(session)
            self._variables.connection_changed(session)
        context.note("info", "disconnected", client=session.client_id, link=link.name)
        context.steps.succeed()
        # The connection stays detached even if the rest fails: that is retried.
        if not context.faults.attempt(
            "end of a connection", self._go_on, session, client=session.client_id
        ):
            self._try_again(session)

    def _go_on(self, session: Session) -> None:
        """The client is away: publish its will or end its session, if that is due."""
        if _ends_at(session) <= self._context.now:
            self.end(session)
        else:
            self._say_will_if_due(session)
            self._watch(session)

    def _try_again(self, session: Session) -> None:
        """Something failed that has to be done for an absent client."""
        # Also after a restart: it may have been meant to end with its connection.
        self._context.faults.attempt("end of a connection", self._keep, session)
        due = session.watched_at = self._context.now + RETRY_S
        heapq.heappush(self._due, (due, session.number, session))

    def end(self, session: Session) -> None:
        """End a session: nothing of it stays."""
        self._say_last_will(session)
        self._discard(session)
        self._context.steps.succeed()

    def _say_last_will(self, session: Session) -> None:
        """Publish a delayed will now; this is a step of its own."""
        if session.will is not None and session.will_at < math.inf:
            self._context.steps.saves(session, "will_at")
            session.will_at = self._context.now
            self._say_will_if_due(session)
        self._publish_handler.queue.drain()

    def _discard(self, session: Session) -> None:
        context = self._context
        self._subscribe_handler.end_all(session)
        self._agents.session_ended(session)
        self._delivery.discard(session)
        context.steps.saves_item(context.sessions, session.client_id)
        del context.sessions[session.client_id]
        if session.broker:
            context.steps.saves_item(context.brokers, session.broker)
            context.brokers.pop(session.broker, None)
        if session.is_durable:
            changes = context.gate.changes
            changes.delete("sessions", session.client_id)
            for packet_id in session.received:
                changes.delete("received", received_key(session.number, packet_id))

    def _say_will_if_due(self, session: Session) -> None:
        will = session.will
        if will is None or session.will_at > self._context.now:
            return
        self._context.steps.saves(session, "will", "will_at")
        session.will = None
        session.will_at = math.inf
        self._context.next_publication += 1
        self._publish_handler.publish_own(
            will_publication(will, session, self._context.next_publication, self._context.now)
        )
        self._keep(session)
        self._context.counters.wills_published += 1
        self._context.steps.succeed()

    def _keep(self, session: Session) -> None:
        if session.is_durable and session.client_id in self._context.sessions:
            self._context.gate.changes.put("sessions", session.client_id, encoded(session.row()))

    # -- time ----------------------------------------------------------------------------------

    def restored(self, session: Session) -> None:
        """A session was restored from disk: its client is away."""
        if session.broker:
            self._context.brokers[session.broker] = session
        self._watch(session)

    def _watch(self, session: Session) -> None:
        """Have the session checked when its will or its end is due, whichever comes first."""
        due = min(session.will_at, _ends_at(session))
        if due >= session.watched_at:
            # An earlier timer exists; it will set the next one.
            return
        if len(self._due) > 2 * len(self._context.sessions) + DUE_SPARE:
            # Ended sessions would stay in memory until their timers fire.
            self._due = [one for one in self._due if self._is_watched(*one)]
            heapq.heapify(self._due)
        session.watched_at = due
        heapq.heappush(self._due, (due, session.number, session))

    def _is_watched(self, due: float, _number: int, session: Session) -> bool:
        is_there = self._context.sessions.get(session.client_id) is session
        return is_there and due == session.watched_at

    def advance(self) -> None:
        """Publish wills whose delay is over, end sessions that have expired."""
        context = self._context
        while self._due and self._due[0][0] <= context.now:
            *due, session = heapq.heappop(self._due)
            attempt, client = context.faults.attempt, session.client_id
            if not attempt("timer of a session", self._timed, *due, session, client=client):
                self._try_again(session)

    def _timed(self, due: float, number: int, session: Session) -> None:
        if not self._is_watched(due, number, session):
            return
        session.watched_at = math.inf
        if session.link is not None:
            return
        expired = self._expired(session) if _ends_at(session) <= self._context.now else None
        self._go_on(session)
        if expired is not None:
            self._tell_of(expired)

    def _expired(self, session: Session) -> ExpiredSession:
        """The client did not come back: its queue is about to be lost."""
        user, dropped = session.identity.user, len(session.queue) + len(session.inflight)
        now = self._context.now
        return ExpiredSession(session.client_id, user, now, session.expiry_s, dropped)

    def _tell_of(self, expired: ExpiredSession) -> None:
        """Count and log an expired session."""
        context, dropped = self._context, expired.dropped
        context.counters.sessions_expired += 1
        context.counters.notifications_dropped_session += dropped
        self.expired.append(expired)
        facts = {"client": expired.client, "after_s": expired.expiry_s, "dropped": dropped}
        context.note("warning" if dropped else "info", "session expired", **facts)

    def next_change_at(self) -> float:
        """The time by which `advance` and `close_silent` have to be called."""
        due = self._due[0][0] if self._due else math.inf
        return min(due, self._deadlines[0][0]) if self._deadlines else due

    # -- silence -------------------------------------------------------------------------------

    def watch(self, link: Link) -> None:
        """Set the timer that closes a connection that is silent for too long."""
        if link.deadline < math.inf and not link.closing:
            self._looks += 1
            if len(self._deadlines) > 2 * len(self._context.links) + DEADLINES_SPARE:
                # Closed connections would stay in memory until their deadlines.
                self._deadlines = [one for one in self._deadlines if self._is_looked_at(*one)]
                heapq.heapify(self._deadlines)
            heapq.heappush(self._deadlines, (link.deadline, self._looks, link))

    def _is_looked_at(self, due_at: float, _look: int, link: Link) -> bool:
        # CONNECT sets another deadline, which replaces the one before it.
        return not link.closing and link in self._context.links and due_at == link.deadline

    def close_silent(self, attempt: Attempt) -> None:
        """Close connections that were silent for too long, each as a step."""
        context = self._context
        while self._deadlines and self._deadlines[0][0] <= context.now:
            at, look, link = heapq.heappop(self._deadlines)
            if not attempt("deadline", self._look_at_silent, at, look, link):
                if at == link.deadline:
                    link.deadline = context.now + RETRY_S
                heapq.heappush(self._deadlines, (context.now + RETRY_S, look, link))

    def _look_at_silent(self, due_at: float, look: int, link: Link) -> None:
        """Close a connection that was silent for too long."""
        if not self._is_looked_at(due_at, look, link):
            return
        context = self._context
        if link.session is None:
            context.note("info", "no CONNECT in time", link=link.name)
            context.hang_up(link)
            return
        link.deadline = link.heard_at + link.keep_alive_s * KEEP_ALIVE_GRACE
        if link.deadline <= context.now:
            context.close(link, Reason.KEEP_ALIVE_TIMEOUT, "nothing was heard for too long")
            self.left(link, says_will=True)
            context.counters.keep_alive_timeouts += 1
        else:
            self.watch(link)


def _ends_at(session: Session) -> float:
    if session.away_since is None or session.expiry_s == EXPIRY_NEVER_S:
        return math.inf
    return session.away_since + session.expiry_s


def will_publication(will: Will, session: Session, number: int, at: float) -> Publication:
    """A will as its client would have published it."""
    publish = Publish(will.topic, will.payload, will.qos, will.retain, properties=will.properties)
    id, user = f"will-{session.number}-{number}", session.identity.user
    return Publication(number, publish, session.client_id, id, at, user=user)
