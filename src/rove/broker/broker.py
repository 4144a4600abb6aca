"""The broker: bytes and times in, bytes and changes out.

The shell calls `opened`, `received` and `closed` as things happen, `end_turn` when it has passed on
all input, and `commit_done` when changes are on disk. `end_turn` returns everything that is to be
done outside: what to send on which connections, what to commit, which clients to authenticate, what
to log. There is no other output, and every call brings the time with it. So the same broker runs on
sockets and in a simulation in which a seed decides everything.

A turn costs about as much as its packets: about 5 µs for a publication of QoS 0 that one
subscriber gets, 10 µs for one of QoS 1, plus the matcher's time where expressions are involved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from rove.broker.access import AccessRules, Identity
from rove.broker.context import BrokerContext, BrokerSettings, TurnOutput
from rove.broker.control import PREFIX, Control
from rove.broker.counters import BrokerCounters
from rove.broker.faults import RETRY_S
from rove.broker.limits import Limits
from rove.broker.notifications.delivery import Delivery
from rove.broker.notifications.feeds import Feeds
from rove.broker.notifications.notifier import Notifier
from rove.broker.policies.agents import Agents, Isolation
from rove.broker.policies.decisions import Decisions
from rove.broker.policies.store import PolicyStore
from rove.broker.publications.publication import RecentPublications
from rove.broker.publications.publish import PublishHandler
from rove.broker.publications.retained_store import RetainedStore
from rove.broker.sessions.backpressure import Backpressure
from rove.broker.sessions.lifecycle import SessionLifecycle
from rove.broker.sessions.session import POLICY, Link
from rove.broker.sessions.variables import Variables
from rove.broker.storage.journal import Changes, Key
from rove.broker.storage.log import PublicationLog, SubscriptionLog
from rove.broker.storage.records import LogRow
from rove.broker.storage.restore import restore
from rove.broker.subscriptions.router import Router
from rove.broker.subscriptions.subscribe import SubscribeHandler
from rove.broker.views import BrokerView
from rove.elastic.commands import MatcherProcesses
from rove.elastic.coordinator import Coordinator
from rove.elastic.elasticity import ElasticitySettings
from rove.elastic.reconfiguration import Reconfigurer
from rove.elastic.view import Kind, Layout
from rove.match.matcher import Work
from rove.match.saved import SavedError
from rove.mqtt.decoder import PacketDecoder
from rove.mqtt.encoder import PINGRESP
from rove.mqtt.packets import (
    V5,
    Auth,
    Connect,
    Disconnect,
    Malformed,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from rove.policy.jobs import JobListener, Workers
from rove.policy.limits import PolicyLimits

Result = TypeVar("Result")
TAKES_NO_DRAINING: Final = frozenset((Publish, Puback, Pubrec, Pubcomp, Pingreq))
"""Packets that change nothing for the receivers of earlier publications, commands excepted."""
PENDING_MAX = 1_000
"""Packets that a client may send before it is authenticated."""


class Broker:
    """All decisions of a broker."""

    def __init__(
        self,
        *,
        now: float,
        new_name: Callable[[], str],
        limits: Limits | None = None,
        rules: AccessRules | None = None,
        settings: BrokerSettings | None = None,
        compiled: bool = True,
        position: int = 0,
        matchers: MatcherProcesses | None = None,
        elasticity: ElasticitySettings | None = None,
        policies: PolicyLimits | None = None,
        workers: Workers | None = None,
        isolation: Isolation = "none",
    ) -> None:
        """With `matchers`, processes take over matching when the broker has too much to do.

        With `policies`, subscribers may set policies; with `workers`, processes run those calls
        that would take the broker too long, or with an isolation of `process` all of them.
        """
        self.context = context = BrokerContext(
            limits or Limits(),
            rules or AccessRules.without_file(),
            settings or BrokerSettings(),
            now=now,
            new_name=new_name,
            position=position,
        )
        self.router = Router(context.steps, compiled=compiled)
        self._expressions = self.router.expressions
        self.coordinator: Coordinator | None = None
        if matchers is not None:
            self.coordinator = self._expressions.attach(
                matchers, elasticity or ElasticitySettings()
            )
        self.delivery = Delivery(context.gate, context.limits, context.counters)
        self.retained = RetainedStore(context.gate, self.delivery, context.limits, context.counters)
        self.recent = RecentPublications(context.limits.explain_publications_max)
        self.subscription_log = SubscriptionLog(
            context.log, is_kept=context.settings.keeps_subscriptions
        )
        self.publication_log = PublicationLog(context, self.delivery)
        self.variables = Variables(context, self.router, self.delivery, self.subscription_log)
        self.agents = self._policies(policies, workers, isolation)
        self._serve_clients()
        self.view = BrokerView(
            context, self.router, self.retained, self.recent, self.agents, self._lifecycle
        )
        self._ticked_at = now
        self.backpressure = Backpressure(context, self._leave)
        self._unfinished: dict[Link, float] = {}
        """Closed connections whose handling failed, and when it is retried."""
        context.faults.end_connection = self._end_faulty
        self._handlers = self._all_handlers()

    def _policies(
        self, limits: PolicyLimits | None, workers: Workers | None, isolation: Isolation
    ) -> Agents:
        """The parts that deal with policies."""
        context, router, log = self.context, self.router, self.subscription_log
        clock = None if workers is None else workers.clock
        policies = PolicyStore(context, router, self.variables, log, limits, clock)
        decisions = Decisions(
            context, self.delivery, self.retained, self.variables, policies, self.publication_log
        )
        return Agents(context, self.variables, policies, decisions, log, workers, isolation)

    def _serve_clients(self) -> None:
        """The parts that deal with what clients send."""
        context, router, delivery = self.context, self.router, self.delivery
        retained, variables, agents = self.retained, self.variables, self.agents
        log = self.publication_log
        notifier = Notifier(context, router, delivery, agents, variables, log)
        self.feeds = Feeds(context, router, retained, notifier.notify_behind)
        control = Control(context, retained, variables, agents, self.feeds, notifier)
        self._publish_handler = PublishHandler(
            context, router, retained, notifier, control, self.recent, log
        )
        self._queue = self._publish_handler.queue
        self._subscribe_handler = SubscribeHandler(
            context, router, retained, variables, agents, notifier, self.subscription_log
        )
        self._lifecycle = SessionLifecycle(
            context, delivery, variables, agents, self._publish_handler, self._subscribe_handler
        )

    def _all_handlers(self) -> Mapping[type, Callable[[Link, Any], None]]:
        return {
            Publish: self._publish,
            Puback: self._puback,
            Pubrec: self._pubrec,
            Pubrel: self._pubrel,
            Pubcomp: self._pubcomp,
            Subscribe: self._subscribe,
            Unsubscribe: self._unsubscribe,
            Pingreq: self._pingreq,
            Disconnect: self._disconnect,
            Auth: self._auth,
            Suback: self._answered,
            Unsuback: self._answered,
        }

    @property
    def counters(self) -> BrokerCounters:
        return self.context.counters

    def restore(
        self,
        tables: Mapping[str, Iterable[tuple[Key, bytes]]],
        index: bytes | memoryview | None = None,
    ) -> None:
        """Restore the state from before a restart; faster with a saved index."""
        if index is not None:
            try:
                self.context.next_subscription = self._expressions.load(index)
            except SavedError as error:
                self.context.note("warning", "index built anew", reason=str(error))
        for session in restore(self, tables):
            self._lifecycle.restored(session)
        self.context.steps.succeed()

    def begin_log(self, position: int, *, is_new: bool, now: float) -> None:
        """Log from above this position on; a new log gets all present subscriptions.

        A number in the log must never mean another subscription later, and those of sessions that
        are not durable are stored nowhere. So from here on numbers stay below positions.
        """
        context = self._at(now)
        context.position = max(context.position, position, context.next_subscription)
        context.next_subscription = context.position + 1
        sessions = context.sessions.values() if is_new else ()
        untold = [one for session in sessions for one in session.subscriptions.values()]
        slots = self.agents.policies.slots if is_new else ()
        self.subscription_log.started(context.now, untold, slots, self.agents.policies.limits)
        context.steps.succeed()

    def log(self, row: LogRow) -> None:
        """Log a row of the shell's own to the lake."""
        self.context.log(row)

    # -- events --------------------------------------------------------------------------------

    def opened(self, name: str, now: float) -> Link:
        """A connection was opened; `name` is its peer address."""
        context = self._at(now)
        link = Link(name, context.now, context.limits.packet_bytes_max)
        context.counters.connections += 1
        link.deadline = context.now + context.limits.connect_timeout_s
        context.faults.attempt("connection", self._lifecycle.watch, link, link=link)
        if len(context.links) >= context.limits.connections_max:
            context.counters.quota_hits += 1
            context.counters.connections_refused += 1
            context.note("warning", "connection refused", link=name, reason="connections_max")
            context.hang_up(link)
        context.links[link] = None
        context.steps.succeed()
        return link

    def broker_opened(
        self, link_name: str, name: str, identity: Identity, offset_s: float, now: float
    ) -> Link | None:
        """A connection to another broker was opened, whose clock is `offset_s` behind this one's.

        It needs no CONNECT: whoever opens it has authenticated the other broker. None if it failed.
        """
        context = self._at(now)
        link = Link(link_name, context.now, context.limits.packet_bytes_max)
        link.reader = PacketDecoder(version=V5, both_ways=True)
        link.offset_s = offset_s
        context.links[link] = None
        if self._change("broker", self._lifecycle.admit_broker, link, name, identity, link=link):
            return link
        del context.links[link]
        return None

    def _in_order(self, function: Callable[..., Result], *arguments: object) -> Result:
        """Do something that affects others, after all earlier publications are routed."""
        self._queue.drain()
        return function(*arguments)

    def _change(
        self,
        what: str,
        function: Callable[..., object],
        *arguments: object,
        link: Link | None = None,
        client: str = "",
    ) -> bool:
        """The same as a step (`Faults.attempt`), for everything that is not a packet."""
        attempt = self.context.faults.attempt
        return attempt(what, self._in_order, function, *arguments, link=link, client=client)

    def received(self, link: Link, data: bytes, now: float) -> None:
        """Bytes were received."""
        context = self._at(now)
        context.counters.bytes_received += len(data)
        link.heard_at = context.now
        try:
            packets = link.reader.feed(data)
        except Exception as error:
            context.faults.happened(error, "input", link)
            return
        if link.authenticating is not None or link.held is not None:
            link.pending += packets
            if link.held is None and len(link.pending) > PENDING_MAX:
                context.faults.attempt("input", context.hang_up, link, link=link)
            return
        self._handle(link, packets)

    def _handle(self, link: Link, packets: list[Packet | Malformed]) -> None:
        """Handle packets, each as a step."""
        handlers = self._handlers
        steps = self.context.steps
        for position, packet in enumerate(packets):
            if link.closing:
                break
            if link.authenticating is not None or link.held is not None:
                link.pending += packets[position:]
                return
            kind = type(packet)
            handler = handlers.get(kind)
            try:
                if kind not in TAKES_NO_DRAINING:
                    self._queue.drain()
                if link.session is not None and handler is not None:
                    handler(link, packet)
                elif isinstance(packet, Connect):
                    self._let_in(link, self._lifecycle.connect, packet)
                elif isinstance(packet, Malformed):
                    self._malformed(link, packet)
                if steps.undo:
                    steps.succeed()
            except Exception as error:
                self.context.faults.happened(error, type(packet).__name__.upper(), link)
        if link.closing and link.session is not None:
            # Closed for what it sent: nothing must follow the DISCONNECT.
            self._change("end of a connection", self._left, link, link=link)

    def _let_in(self, link: Link, connect: Callable[..., None], *known: object) -> None:
        """Continue with a client's CONNECT."""
        # A session that is over must not be found, even if no tick came since.
        self._lifecycle.advance()
        connect(link, *known)
        self._lifecycle.watch(link)

    def _left(self, link: Link) -> None:
        self._lifecycle.left(link, says_will=True)

    def _end_faulty(self, link: Link, text: str) -> None:
        """End a connection because of a fault of ours."""
        if link.session is None and link.reader.version is not None:
            link.version = link.reader.version
            self._lifecycle.refuse(link, Reason.UNSPECIFIED_ERROR, text)
        else:
            self.context.close(link, Reason.UNSPECIFIED_ERROR, text)
            self._lifecycle.left(link, says_will=True)

    def identified(self, link: Link, identity: Identity | None, now: float) -> None:
        """A client was authenticated; None if it was not."""
        self._at(now)
        packet = link.authenticating
        if packet is None or link.closing or link not in self.context.links:
            return
        if identity is None:
            link.authenticating = None
            what = "the user name or the password is wrong"
            refuse, reason = self._lifecycle.refuse, Reason.BAD_USER_NAME_OR_PASSWORD
            self.context.faults.attempt("CONNECT", refuse, link, reason, what, link=link)
            return
        admit = self._lifecycle.admit
        if self._change("CONNECT", self._let_in, link, admit, packet, identity, link=link):
            pending, link.pending = link.pending, []
            self._handle(link, pending)

    def closed(self, link: Link, now: float) -> None:
        """The connection is closed, by either side."""
        context = self._at(now)
        if link not in context.links:
            return
        del context.links[link]
        link.closing = True
        self._leave(link)
        context.faults.attempt("end of a connection", self.backpressure.forget, link)
        context.faults.attempt("end of a connection", self.agents.compiler.left, link)

    def _leave(self, link: Link) -> None:
        """Detach a closed connection from its session; retried if that fails."""
        client = "" if link.session is None else link.session.client_id
        if self._change("end of a connection", self._left, link, client=client):
            self._unfinished.pop(link, None)
        else:
            self._unfinished[link] = self.context.now + RETRY_S

    def failed(self, error: Exception, what: str, link: Link | None, now: float) -> None:
        """Something failed in the shell, because of this connection or of none."""
        self._at(now).faults.happened(error, what, link)

    def commit_done(self, number: int, now: float) -> None:
        """The changes of that turn are on disk."""
        gate = self._at(now).gate
        if not self.context.faults.attempt("commit", gate.commit_done, number):
            # Nothing is lost by it, and the shell reports a commit only once.
            gate.commit_done(number)

    @property
    def has_work(self) -> bool:
        """Whether ending the turn would do anything; most acknowledgements need nothing more."""
        context = self.context
        gate = context.gate
        return bool(
            gate.ready
            or gate.waiting
            or gate.changes.tables
            or self._queue.has_work
            or self._subscribe_handler.is_giving
            or self.variables.restored
            or self.agents.has_work
            or self.agents.compiler.is_waiting
            or self._lifecycle.authentications
            or context.faults.notes
        )

    def end_turn(self, now: float) -> TurnOutput:
        """All input was passed on: decide, and return what is to be done."""
        context = self._at(now)
        attempt, gate = context.faults.attempt, context.gate
        pool = self.agents.pool
        if pool is not None and pool.texts:
            handle, is_throttled = self._handle, self.backpressure.is_throttled
            attempt("turn of policies", self.agents.compiler.go_on, handle, is_throttled)
        try:
            self._queue.go_on()
            self._work()
        except Exception as error:
            context.faults.happened(error, "turn")
            attempt("turn of policies", self._work)
        if self.coordinator is not None:
            attempt("turn of matchers", self._reconfigure_on, self.coordinator)
        if context.steps.troubles or context.steps.warnings:
            context.faults.tell_of_troubles()
        changes: Changes | None = None
        try:
            changes = gate.end_turn()
        except Exception as error:
            # Nothing is lost by it, and nothing else would retry it.
            context.faults.happened(error, "end of a turn")
            changes = gate.end_turn()
        backpressure = self.backpressure
        if (
            gate.held_bytes
            or backpressure.backlog_bytes
            or backpressure.stuck_links
            or backpressure.is_paused
            or context.brokers
        ):
            attempt("turn", backpressure.judge)
        lifecycle = self._lifecycle
        authentications, lifecycle.authentications = lifecycle.authentications, []
        upgrades, lifecycle.upgrades = lifecycle.upgrades, []
        notes, context.faults.notes = context.faults.notes, []
        routed, self._queue.routed = self._queue.routed, []
        ready = gate.take_ready()
        return TurnOutput(ready, changes, gate.submitted, authentications, upgrades, notes, routed)

    def _work(self) -> None:
        """Continue with what waited for this turn: after a restart, and for policies."""
        variables, agents = self.variables, self.agents
        if variables.restored:
            variables.take_up()
        if agents.has_turn or (agents.pool is not None and agents.pool.ready):
            agents.work()
            if self._queue.is_waiting:
                # Variables that policies set may have waited for matchers, whose answers are here.
                self._queue.go_on()

    def _reconfigure_on(self, coordinator: Coordinator) -> None:
        context = self.context
        reconfigurer = self._expressions.reconfigurer
        if reconfigurer is not None and reconfigurer.wants_step(context.now):
            self._in_order(reconfigurer.step, context.now)
            self._log_reconfigurations(reconfigurer)
        for trouble in coordinator.troubles:
            context.note("warning", "trouble with a matcher", what=trouble)
        coordinator.troubles.clear()

    def shut_down(self, now: float) -> None:
        """Disconnect all clients; no will is published, because the sessions continue."""
        for link in list(self._at(now).links):
            self._change("end of the broker", self._say_goodbye, link, link=link)

    def _say_goodbye(self, link: Link) -> None:
        if link.session is not None:
            link.session.will_at = math.inf
            self.context.close(link, Reason.SERVER_SHUTTING_DOWN, "the broker is shutting down")
            self._lifecycle.left(link, says_will=False)
        else:
            self.context.hang_up(link)

    # -- packets -------------------------------------------------------------------------------

    def _publish(self, link: Link, packet: Publish) -> None:
        session = link.session
        assert session is not None
        if session.broker:
            self._publish_handler.forwarded(session, link, packet)
            return
        topic = packet.topic or link.aliases.get(packet.properties.topic_alias or 0, "")
        if topic.startswith(PREFIX):
            self._queue.drain()
            if topic == POLICY and self.agents.compiler.hold(link, packet):
                return
        if self.context.limits.publish_per_s_max:
            self.backpressure.published(session, link)
        # Last: what was collected cannot be undone.
        self._publish_handler.publish(session, link, packet)

    def _puback(self, link: Link, packet: Puback) -> None:
        assert link.session is not None
        self.delivery.acknowledged(link.session, packet.packet_id, 1, self.context.now)

    def _pubrec(self, link: Link, packet: Pubrec) -> None:
        assert link.session is not None
        delivery = self.delivery
        if packet.reason >= Reason.UNSPECIFIED_ERROR:
            delivery.acknowledged(link.session, packet.packet_id, 2, self.context.now)
        else:
            delivery.received(link.session, link, packet.packet_id)

    def _pubrel(self, link: Link, packet: Pubrel) -> None:
        assert link.session is not None
        self._publish_handler.released(link.session, link, packet.packet_id)

    def _pubcomp(self, link: Link, packet: Pubcomp) -> None:
        assert link.session is not None
        self.delivery.acknowledged(link.session, packet.packet_id, 2, self.context.now)

    def _subscribe(self, link: Link, packet: Subscribe) -> None:
        assert link.session is not None
        if packet.properties.user and self.agents.compiler.hold(link, packet):
            return
        self._subscribe_handler.subscribe(link.session, link, packet)

    def _unsubscribe(self, link: Link, packet: Unsubscribe) -> None:
        assert link.session is not None
        self._subscribe_handler.unsubscribe(link.session, link, packet)

    def _answered(self, link: Link, packet: Suback | Unsuback) -> None:
        """Another broker has answered a subscription of this one."""
        assert link.session is not None
        if any(reason >= Reason.UNSPECIFIED_ERROR for reason in packet.reasons):
            name, text = link.session.broker, packet.properties.reason_string or ""
            self.context.note("warning", "subscription refused by a broker", broker=name, why=text)

    def _pingreq(self, link: Link, _packet: Pingreq) -> None:
        self.context.gate.send(link, PINGRESP)

    def _disconnect(self, link: Link, packet: Disconnect) -> None:
        self._lifecycle.disconnect(link, packet)

    def _auth(self, link: Link, _packet: Auth) -> None:
        what = "there was no extended authentication to go on with"
        self.context.close(link, Reason.PROTOCOL_ERROR, what)

    def _malformed(self, link: Link, packet: Malformed) -> None:
        context = self.context
        context.counters.packets_malformed += 1
        context.note("warning", "malformed packet", link=link.name, reason=packet.text)
        if link.session is not None:
            context.close(link, packet.reason, packet.text)
        elif link.reader.version == V5:
            link.version = V5
            self._lifecycle.refuse(link, packet.reason, packet.text)
        elif packet.reason == Reason.UNSUPPORTED_PROTOCOL_VERSION:
            # Whatever version it speaks, it may understand a refusal of 3.1.1.
            link.version = 4
            self._lifecycle.refuse(link, packet.reason, packet.text)
        else:
            # 3.1.1 has no answer to a malformed CONNECT: [MQTT-3.1.4-1].
            context.hang_up(link)

    # -- time ----------------------------------------------------------------------------------

    def tick(self, now: float) -> float:
        """Do what is due; returns the time of the next tick that is needed."""
        context = self._at(now)
        passed_s = context.now - self._ticked_at
        self._ticked_at = context.now
        change, attempt = self._change, context.faults.attempt
        change("tick", self._subscribe_handler.go_on)
        change("tick", self.retained.advance, context.now, attempt)
        change("tick", self.delivery.advance, context.now, passed_s, attempt)
        change("tick", self._lifecycle.advance)
        change("tick", self._lifecycle.close_silent, change)
        change("tick", self.backpressure.look_at_stuck)
        change("tick", self.backpressure.release_throttled)
        context.faults.tell_of_troubles()
        for link in list(self._unfinished):
            if self._unfinished[link] <= context.now:
                self._leave(link)
        return self.next_tick_at()

    def next_tick_at(self) -> float:
        """The time by which `tick` has to be called."""
        try:
            return self._next_tick_at()
        except Exception as error:
            self.context.faults.happened(error, "tick")
            return self.context.now + RETRY_S

    def _next_tick_at(self) -> float:
        context = self.context
        if self._subscribe_handler.is_giving or self.agents.has_later:
            return context.now
        if self.delivery.is_replaying or self.backpressure.wants_looking_at:
            return context.now + 0.02
        reconfigurer = self._expressions.reconfigurer
        return min(
            self._expressions.next_change_at(),
            math.inf if reconfigurer is None else reconfigurer.next_step_at(context.now),
            self.retained.next_change_at(),
            self._lifecycle.next_change_at(),
            min(self._unfinished.values()) if self._unfinished else math.inf,
        )

    def _at(self, now: float) -> BrokerContext:
        """Set the time, which never runs back here, whatever the clock does."""
        context = self.context
        if now > context.now:
            context.now = now
        # Calls of the shell between two steps, such as a row for the log, have succeeded.
        if context.steps.undo:
            context.steps.succeed()
        return context

    def stuck(self, link: Link, now: float) -> None:
        """The shell cannot write to this connection for the moment."""
        self._at(now)
        self.backpressure.stuck(link)

    def unstuck(self, link: Link, now: float) -> None:
        """It can be written to again."""
        self._at(now)
        self.backpressure.unstuck(link)

    @property
    def is_throttling(self) -> bool:
        """Whether some clients are paused by themselves (their links say `is_paused`)."""
        return self.backpressure.is_throttling or self.agents.compiler.is_waiting

    # -- maintenance and reconfiguration ---------------------------------------------------------

    def saved_index(self) -> bytes | None:
        """The index as `restore` takes it; None while matchers have it."""
        if self._expressions.is_offloaded:
            return None
        return self._in_order(self._expressions.saved, self.context.next_subscription)

    def reconfigure(
        self,
        limits: Limits,
        rules: AccessRules,
        is_guarded: bool,
        policies: PolicyLimits | None = None,
    ) -> None:
        """Continue with other limits and rules; existing state stays."""
        context = self.context
        if policies is not None and self.agents.policies.limits not in (None, policies):
            self.agents.policies.limits = policies
            self.subscription_log.limits_changed(policies, context.now)
            context.steps.succeed()
        context.limits = self.delivery.limits = self.retained.limits = limits
        context.rules, context.is_guarded = rules, is_guarded

    def merge_due(self) -> Work | None:
        """Work on the index for another thread, to be given to `install` afterwards."""
        return self._expressions.merge_due()

    def install(self, work: Work) -> bool:
        """Install finished work; False if that failed and was undone."""
        return self._change("merge of the index", work.install)

    # -- policies ------------------------------------------------------------------------------

    @property
    def jobs(self) -> JobListener | None:
        """What receives the results of workers; None if there are no workers."""
        return self.agents.pool

    # -- matchers ------------------------------------------------------------------------------

    def take_back(self, now: float) -> None:
        """Match in the broker again, at once; at the end, before the index is saved."""
        self._at(now)
        if self._expressions.reconfigurer is not None:
            self._in_order(self._expressions.reconfigurer.take_back)

    def rearrange_matchers(self, kind: Kind, now: float, layout: Layout | None = None) -> str:
        """Add or remove a matcher, or switch the layout; empty, or why that is not done."""
        self._at(now)
        reconfigurer = self._expressions.reconfigurer
        if reconfigurer is None:
            return "this broker matches by itself; see [matchers] in its configuration"
        return reconfigurer.force(kind, now, layout)

    def _log_reconfigurations(self, reconfigurer: Reconfigurer) -> None:
        untold, reconfigurer.untold = reconfigurer.untold, []
        for one in untold:
            if one.failure:
                event = "matchers left as they were"
                self.context.note("warning", event, **one.facts(), why=one.failure)
            else:
                self.context.note("info", "matchers rearranged", **one.facts())
