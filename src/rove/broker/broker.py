"""The broker: bytes and moments in, bytes and changes out.

The shell calls `opened`, `received` and `closed` as things happen, `end_turn` when it has handed
over what there was, and `commit_done` when changes are on disk. `end_turn` gives back everything
that is to be done outside: what to send and to whom, what to commit, whom to identify, what to
log. Nothing else ever leaves, and time comes in with every call: the same broker runs on sockets
and in a simulation in which a seed decides everything.

A turn costs about as much as its packets: about 5 µs for a publication of QoS 0 that one
subscriber gets, 10 µs for one of QoS 1, plus the matcher's time where texts are involved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from rove.broker.access import Identity, Rules
from rove.broker.context import BrokerContext, Output, Settings
from rove.broker.control import PREFIX, Control
from rove.broker.counters import Counters
from rove.broker.faults import RETRY_S
from rove.broker.limits import Limits
from rove.broker.notifications.delivery import Delivery
from rove.broker.notifications.feeds import Feeds
from rove.broker.notifications.notifying import Notifying
from rove.broker.policies.agents import Agents, Isolation
from rove.broker.policies.decisions import Decisions
from rove.broker.policies.store import PolicyStore
from rove.broker.publications.publishing import Publishing
from rove.broker.publications.recent import Recent
from rove.broker.publications.retained_store import RetainedStore
from rove.broker.sessions.connecting import Connecting
from rove.broker.sessions.pressure import Pressure
from rove.broker.sessions.session import POLICY, Link
from rove.broker.sessions.variables import Variables
from rove.broker.storage.journal import Changes, Key
from rove.broker.storage.publication_log import PublicationLog
from rove.broker.storage.records import LogRow
from rove.broker.storage.restoring import restore
from rove.broker.storage.subscription_log import SubscriptionLog
from rove.broker.subscriptions.router import Router
from rove.broker.subscriptions.subscribing import Subscribing
from rove.broker.views import BrokerView
from rove.elastic.coordinator import Coordinator
from rove.elastic.elasticity import Elasticity
from rove.elastic.ports import Matchers
from rove.elastic.rearranging import Rearranging
from rove.elastic.view import Kind, Layout
from rove.match.matcher import Work
from rove.match.saving import SavedError
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
    Subscribe,
    Unsubscribe,
)
from rove.policy.jobs import Listener, Workers
from rove.policy.limits import PolicyLimits

Result = TypeVar("Result")
TAKES_NO_DRAINING: Final = frozenset((Publish, Puback, Pubrec, Pubcomp, Pingreq))
"""Packets that change nothing for those who are notified of what came before; but for commands."""
PENDING_MAX = 1_000
"""Packets that a client may send before it is known who it is."""


class Broker:
    """All decisions of a broker."""

    def __init__(
        self,
        *,
        now: float,
        new_name: Callable[[], str],
        limits: Limits | None = None,
        rules: Rules | None = None,
        settings: Settings | None = None,
        compiled: bool = True,
        position: int = 0,
        matchers: Matchers | None = None,
        elasticity: Elasticity | None = None,
        policies: PolicyLimits | None = None,
        workers: Workers | None = None,
        isolation: Isolation = "none",
    ) -> None:
        """With `matchers`, others match when the broker has too much to do, as they are told.

        With `policies`, subscribers may leave policies; with `workers`, others do for these what
        would take the broker too long, or with an isolation of `process` all that they do.
        """
        self.context = context = BrokerContext(
            limits or Limits(),
            rules or Rules.without_file(),
            settings or Settings(),
            now=now,
            new_name=new_name,
            position=position,
        )
        self.router = Router(context.steps, compiled=compiled)
        self.coordinator: Coordinator | None = None
        if matchers is not None:
            self.coordinator = self.router.attach(matchers, elasticity or Elasticity())
        self.delivery = Delivery(context.gate, context.limits, context.counters)
        self.retained = RetainedStore(context.gate, self.delivery, context.limits, context.counters)
        self.recent = Recent(context.limits.explain_publications_max)
        self.subscription_log = SubscriptionLog(
            context.log, is_kept=context.settings.keeps_subscriptions
        )
        self.publication_log = PublicationLog(context, self.delivery)
        self.variables = Variables(context, self.router, self.delivery, self.subscription_log)
        self.agents = self._policies(policies, workers, isolation)
        self._serve_clients()
        self.view = BrokerView(
            context, self.router, self.retained, self.recent, self.agents, self._connecting
        )
        self._ticked_at = now
        self._pressure = Pressure(context, self._leave)
        self._unfinished: dict[Link, float] = {}
        """Connections that are gone and could not be dealt with, and when that is tried again."""
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
        notifying = Notifying(context, router, delivery, agents, variables, log)
        self.feeds = Feeds(context, router, retained, notifying.notify_behind)
        control = Control(context, retained, variables, agents, self.feeds)
        self._publishing = Publishing(
            context, router, retained, notifying, control, self.recent, log
        )
        self._queue = self._publishing.queue
        self._subscribing = Subscribing(
            context, router, retained, variables, agents, notifying, self.subscription_log
        )
        self._connecting = Connecting(
            context, delivery, variables, agents, self._publishing, self._subscribing
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
        }

    @property
    def counters(self) -> Counters:
        return self.context.counters

    def restore(
        self,
        tables: Mapping[str, Iterable[tuple[Key, bytes]]],
        index: bytes | memoryview | None = None,
    ) -> None:
        """Take up what was kept before a restart; with an index that was saved, more quickly."""
        if index is not None:
            try:
                self.context.next_subscription = self.router.load(index)
            except SavedError as error:
                self.context.note("warning", "index built anew", reason=str(error))
        for session in restore(self, tables):
            self._connecting.restored(session)
        self.context.steps.succeed()

    def begin_log(self, position: int, *, is_new: bool, now: float) -> None:
        """Log from above this position on; a new log is told of all subscriptions there are.

        A number in the log must never mean another subscription later, and those of sessions that
        are not kept are remembered nowhere. So from here on numbers stay below positions.
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
        """Put a line of the shell's own on its way to the lake."""
        self.context.log(row)

    # -- what happens --------------------------------------------------------------------------

    def opened(self, name: str, now: float) -> Link:
        """Somebody has connected; `name` is where from."""
        context = self._at(now)
        link = Link(name, context.now, context.limits.packet_bytes_max)
        context.counters.connections += 1
        link.deadline = context.now + context.limits.connect_timeout_s
        context.faults.attempt("connection", self._connecting.watch, link, link=link)
        if len(context.links) >= context.limits.connections_max:
            context.counters.quota_hits += 1
            context.counters.connections_refused += 1
            context.note("warning", "connection refused", link=name, reason="connections_max")
            context.hang_up(link)
        context.links[link] = None
        context.steps.succeed()
        return link

    def _in_order(self, function: Callable[..., Result], *arguments: object) -> Result:
        """Do something that others are to notice: behind all publications that came before it."""
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
        """The same as a step (`Faults.attempt`): whatever is no packet comes this way."""
        attempt = self.context.faults.attempt
        return attempt(what, self._in_order, function, *arguments, link=link, client=client)

    def received(self, link: Link, data: bytes, now: float) -> None:
        """Bytes have come."""
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
        """Handle what came, each packet as a step."""
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
                    self._let_in(link, self._connecting.connect, packet)
                elif isinstance(packet, Malformed):
                    self._malformed(link, packet)
                if steps.undo:
                    steps.succeed()
            except Exception as error:
                self.context.faults.happened(error, type(packet).__name__.upper(), link)
        if link.closing and link.session is not None:
            # Closed for what it sent: nothing must follow the goodbye.
            self._change("end of a connection", self._left, link, link=link)

    def _let_in(self, link: Link, connect: Callable[..., None], *known: object) -> None:
        """Go on with a client that introduces itself."""
        # A session that is over must not be found, even if no tick came since.
        self._connecting.advance()
        connect(link, *known)
        self._connecting.watch(link)

    def _left(self, link: Link) -> None:
        self._connecting.left(link, says_will=True)

    def _end_faulty(self, link: Link, text: str) -> None:
        """End a connection over a fault of ours."""
        if link.session is None and link.reader.version is not None:
            link.version = link.reader.version
            self._connecting.refuse(link, Reason.UNSPECIFIED_ERROR, text)
        else:
            self.context.close(link, Reason.UNSPECIFIED_ERROR, text)
            self._connecting.left(link, says_will=True)

    def identified(self, link: Link, identity: Identity | None, now: float) -> None:
        """It was found out who a client is; None is nobody who may come in."""
        self._at(now)
        packet = link.authenticating
        if packet is None or link.closing or link not in self.context.links:
            return
        if identity is None:
            link.authenticating = None
            what = "the user name or the password is wrong"
            refuse, reason = self._connecting.refuse, Reason.BAD_USER_NAME_OR_PASSWORD
            self.context.faults.attempt("CONNECT", refuse, link, reason, what, link=link)
            return
        admit = self._connecting.admit
        if self._change("CONNECT", self._let_in, link, admit, packet, identity, link=link):
            pending, link.pending = link.pending, []
            self._handle(link, pending)

    def closed(self, link: Link, now: float) -> None:
        """The connection is gone, whoever ended it."""
        context = self._at(now)
        if link not in context.links:
            return
        del context.links[link]
        link.closing = True
        self._leave(link)
        context.faults.attempt("end of a connection", self._pressure.forget, link)
        context.faults.attempt("end of a connection", self.agents.compiler.left, link)

    def _leave(self, link: Link) -> None:
        """Its client has gone; if that cannot be dealt with, it is tried again."""
        client = "" if link.session is None else link.session.client_id
        if self._change("end of a connection", self._left, link, client=client):
            self._unfinished.pop(link, None)
        else:
            self._unfinished[link] = self.context.now + RETRY_S

    def failed(self, error: Exception, what: str, link: Link | None, now: float) -> None:
        """Something failed outside that this connection was the cause of, or nobody."""
        self._at(now).faults.happened(error, what, link)

    def commit_done(self, number: int, now: float) -> None:
        """The changes of that turn are on disk."""
        gate = self._at(now).gate
        if not self.context.faults.attempt("commit", gate.commit_done, number):
            # Nothing is lost by it, and nobody else would say so again.
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
            or self._subscribing.is_giving
            or self.variables.restored
            or self.agents.has_work
            or self.agents.compiler.is_waiting
            or self._connecting.authentications
            or context.faults.notes
        )

    def end_turn(self, now: float) -> Output:
        """Everything was handed over: decide, and say what is to be done."""
        context = self._at(now)
        attempt, gate = context.faults.attempt, context.gate
        pool = self.agents.pool
        if pool is not None and pool.texts:
            handle, is_throttled = self._handle, self._pressure.is_throttled
            attempt("turn of policies", self.agents.compiler.go_on, handle, is_throttled)
        try:
            self._queue.go_on()
            self._work()
        except Exception as error:
            context.faults.happened(error, "turn")
            attempt("turn of policies", self._work)
        if self.coordinator is not None:
            attempt("turn of matchers", self._rearrange_on, self.coordinator)
        if context.steps.troubles or context.steps.warnings:
            context.faults.tell_of_troubles()
        changes: Changes | None = None
        try:
            changes = gate.end_turn()
        except Exception as error:
            # Nothing is lost by it, and nothing else would have it tried again.
            context.faults.happened(error, "end of a turn")
            changes = gate.end_turn()
        pressure = self._pressure
        if gate.held_bytes or pressure.backlog_bytes or pressure.stuck_links or pressure.is_paused:
            attempt("turn", pressure.judge)
        connecting = self._connecting
        authentications, connecting.authentications = connecting.authentications, []
        notes, context.faults.notes = context.faults.notes, []
        routed, self._queue.routed = self._queue.routed, []
        ready = gate.take_ready()
        return Output(ready, changes, gate.submitted, authentications, notes, routed)

    def _work(self) -> None:
        """Go on with what waited for this turn: after a restart, and for policies."""
        variables, agents = self.variables, self.agents
        if variables.restored:
            variables.take_up()
        if agents.has_turn or (agents.pool is not None and agents.pool.ready):
            agents.work()
            if self._queue.is_waiting:
                # What policies set may have had to wait for matchers, who have answered by it.
                self._queue.go_on()

    def _rearrange_on(self, coordinator: Coordinator) -> None:
        context = self.context
        rearranging = self.router.rearranging
        if rearranging is not None and rearranging.wants_step(context.now):
            self._in_order(rearranging.step, context.now)
            self._tell_of_rearranging(rearranging)
        for trouble in coordinator.troubles:
            context.note("warning", "trouble with a matcher", what=trouble)
        coordinator.troubles.clear()

    def shut_down(self, now: float) -> None:
        """Tell everybody that the broker stops; wills stay unsaid, as sessions go on."""
        for link in list(self._at(now).links):
            self._change("end of the broker", self._say_goodbye, link, link=link)

    def _say_goodbye(self, link: Link) -> None:
        if link.session is not None:
            link.session.will_at = math.inf
            self.context.close(link, Reason.SERVER_SHUTTING_DOWN, "the broker is shutting down")
            self._connecting.left(link, says_will=False)
        else:
            self.context.hang_up(link)

    # -- packets -------------------------------------------------------------------------------

    def _publish(self, link: Link, packet: Publish) -> None:
        session = link.session
        assert session is not None
        topic = packet.topic or link.aliases.get(packet.properties.topic_alias or 0, "")
        if topic.startswith(PREFIX):
            self._queue.drain()
            if topic == POLICY and self.agents.compiler.hold(link, packet):
                return
        if self.context.limits.publish_per_s_max:
            self._pressure.published(session, link)
        # Last: what was collected cannot be undone.
        self._publishing.publish(session, link, packet)

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
        self._publishing.released(link.session, link, packet.packet_id)

    def _pubcomp(self, link: Link, packet: Pubcomp) -> None:
        assert link.session is not None
        self.delivery.acknowledged(link.session, packet.packet_id, 2, self.context.now)

    def _subscribe(self, link: Link, packet: Subscribe) -> None:
        assert link.session is not None
        if packet.properties.user and self.agents.compiler.hold(link, packet):
            return
        self._subscribing.subscribe(link.session, link, packet)

    def _unsubscribe(self, link: Link, packet: Unsubscribe) -> None:
        assert link.session is not None
        self._subscribing.unsubscribe(link.session, link, packet)

    def _pingreq(self, link: Link, _packet: Pingreq) -> None:
        self.context.gate.send(link, PINGRESP)

    def _disconnect(self, link: Link, packet: Disconnect) -> None:
        self._connecting.disconnect(link, packet)

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
            self._connecting.refuse(link, packet.reason, packet.text)
        elif packet.reason == Reason.UNSUPPORTED_PROTOCOL_VERSION:
            # Whatever it speaks, it may know how 3.1.1 says no.
            link.version = 4
            self._connecting.refuse(link, packet.reason, packet.text)
        else:
            # 3.1.1 has no answer to a CONNECT that cannot be read: [MQTT-3.1.4-1].
            context.hang_up(link)

    # -- time ----------------------------------------------------------------------------------

    def tick(self, now: float) -> float:
        """Do what is due; gives the moment of the next tick that is needed."""
        context = self._at(now)
        passed_s = context.now - self._ticked_at
        self._ticked_at = context.now
        change, attempt = self._change, context.faults.attempt
        change("tick", self._subscribing.go_on)
        change("tick", self.retained.advance, context.now, attempt)
        change("tick", self.delivery.advance, context.now, passed_s, attempt)
        change("tick", self._connecting.advance)
        change("tick", self._connecting.close_silent, change)
        change("tick", self._pressure.look_at_stuck)
        change("tick", self._pressure.release_throttled)
        context.faults.tell_of_troubles()
        for link in list(self._unfinished):
            if self._unfinished[link] <= context.now:
                self._leave(link)
        return self.next_tick_at()

    def next_tick_at(self) -> float:
        """When `tick` has something to do at the latest."""
        try:
            return self._next_tick_at()
        except Exception as error:
            self.context.faults.happened(error, "tick")
            return self.context.now + RETRY_S

    def _next_tick_at(self) -> float:
        context = self.context
        if self._subscribing.is_giving or self.agents.has_later:
            return context.now
        if self.delivery.is_replaying or self._pressure.wants_looking_at:
            return context.now + 0.02
        rearranging = self.router.rearranging
        return min(
            self.router.next_change_at(),
            math.inf if rearranging is None else rearranging.next_step_at(context.now),
            self.retained.next_change_at(),
            self._connecting.next_change_at(),
            min(self._unfinished.values()) if self._unfinished else math.inf,
        )

    def _at(self, now: float) -> BrokerContext:
        """Time never runs back here, whatever clocks do."""
        context = self.context
        if now > context.now:
            context.now = now
        # What was done from outside between two steps, such as a row for the log, has gone well.
        if context.steps.undo:
            context.steps.succeed()
        return context

    # -- pressure ------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """Publishers are not read from until what is inside has gone down."""
        return self._pressure.is_paused

    @property
    def backlog_bytes(self) -> int:
        """What the shell has been given to commit and has not; the shell keeps it true."""
        return self._pressure.backlog_bytes

    @backlog_bytes.setter
    def backlog_bytes(self, size_bytes: int) -> None:
        self._pressure.backlog_bytes = size_bytes

    @property
    def stuck_links(self) -> Iterable[Link]:
        """Those whose `buffered_bytes` the shell is to look at before every tick."""
        return self._pressure.stuck_links

    def stuck(self, link: Link, now: float) -> None:
        """The connection does not take what it is sent for the moment (the shell says so)."""
        self._at(now)
        self._pressure.stuck(link)

    def unstuck(self, link: Link, now: float) -> None:
        """It takes again."""
        self._at(now)
        self._pressure.unstuck(link)

    def is_given_up(self, link: Link) -> bool:
        """Whether it is to be closed without waiting for what it was sent."""
        return self._pressure.is_given_up(link)

    def judge_pressure(self) -> None:
        """Pause publishers while too much waits inside; the shell asks again when sending has left
        somebody stuck, for what it reads before the next turn would be dropped."""
        self._pressure.judge()

    @property
    def is_throttling(self) -> bool:
        """Whether some publishers are too quick (their links say `is_paused`)."""
        return self._pressure.is_throttling or self.agents.compiler.is_waiting

    # -- upkeep and changes of mind --------------------------------------------------------------

    def saved_index(self) -> bytes | None:
        """The index as `restore` takes it; None while matchers have it."""
        if self.router.is_offloaded:
            return None
        return self._in_order(self.router.saved, self.context.next_subscription)

    def reconfigure(
        self,
        limits: Limits,
        rules: Rules,
        is_guarded: bool,
        policies: PolicyLimits | None = None,
    ) -> None:
        """Go on under other limits and rules; what is there already stays."""
        context = self.context
        if policies is not None and self.agents.policies.limits not in (None, policies):
            self.agents.policies.limits = policies
            self.subscription_log.limits_changed(policies, context.now)
            context.steps.succeed()
        context.limits = self.delivery.limits = self.retained.limits = limits
        context.rules, context.is_guarded = rules, is_guarded

    def merge_due(self) -> Work | None:
        """Work on the index to be run beside, then given to `install`."""
        return self.router.merge_due()

    def install(self, work: Work) -> bool:
        """Take over finished work; False if that failed, and everything is as it was."""
        return self._change("merge of the index", work.install)

    # -- policies ------------------------------------------------------------------------------

    @property
    def jobs(self) -> Listener | None:
        """Who hears of what workers do; None if there are none."""
        return self.agents.pool

    # -- matchers ------------------------------------------------------------------------------

    def take_back(self, now: float) -> None:
        """Match by itself again, at once; for the end, when the index is saved."""
        self._at(now)
        if self.router.rearranging is not None:
            self._in_order(self.router.rearranging.take_back)

    def switch_layout(self, layout: Layout, now: float) -> str:
        """Have matchers arranged in another way; empty, or why that is not done."""
        return self._rearrange("layout", now, layout)

    def force_split(self, now: float) -> str:
        """Have one matcher more; empty, or why that is not done."""
        return self._rearrange("split", now)

    def force_merge(self, now: float) -> str:
        """Have one matcher fewer; empty, or why that is not done."""
        return self._rearrange("merge", now)

    def _rearrange(self, kind: Kind, now: float, layout: Layout | None = None) -> str:
        self._at(now)
        rearranging = self.router.rearranging
        if rearranging is None:
            return "this broker matches by itself; see [matchers] in its configuration"
        return rearranging.force(kind, now, layout)

    def _tell_of_rearranging(self, rearranging: Rearranging) -> None:
        untold, rearranging.untold = rearranging.untold, []
        for one in untold:
            if one.failure:
                event = "matchers left as they were"
                self.context.note("warning", event, **one.facts(), why=one.failure)
            else:
                self.context.note("info", "matchers rearranged", **one.facts())
