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

import heapq
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rove.broker.access import Identity, Rules
from rove.broker.agents import Isolation
from rove.broker.connecting import KEEP_ALIVE_GRACE, Connecting
from rove.broker.counters import Counters
from rove.broker.faults import RETRY_S
from rove.broker.holding import POLICY
from rove.broker.journal import Changes, Key
from rove.broker.limits import Limits
from rove.broker.links import Link
from rove.broker.pressure import Pressure
from rove.broker.publishing import Publishing
from rove.broker.restoring import restore
from rove.broker.state import Output, Settings, State
from rove.broker.subscribing import Subscribing
from rove.broker.variables import view_of
from rove.elastic.coordinator import Coordinator
from rove.elastic.elasticity import Elasticity
from rove.elastic.ports import Matchers
from rove.elastic.rearranging import Rearranging
from rove.elastic.view import Kind, Layout, MatchersView
from rove.match.matcher import Work
from rove.match.saving import SavedError
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
from rove.mqtt.writing import PINGRESP
from rove.policy.jobs import Listener, Workers
from rove.policy.limits import PolicyLimits
from rove.policy.view import PoliciesView

DEADLINES_SPARE = 1_000
"""Deadlines of connections that have gone that are left alone before they are cleared away."""
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
        self.state = State(
            limits or Limits(),
            rules or Rules.without_file(),
            settings or Settings(),
            new_name=new_name,
            compiled=compiled,
            position=position,
            policies=policies,
            workers=workers,
            isolation=isolation,
        )
        self.state.now = now
        self.coordinator: Coordinator | None = None
        if matchers is not None:
            self.coordinator = self.state.interests.attach(matchers, elasticity or Elasticity())
        self._publishing = Publishing(self.state)
        self._subscribing = Subscribing(self.state, self._publishing)
        self._connecting = Connecting(self.state, self._publishing, self._subscribing)
        self._deadlines: list[tuple[float, int, Link]] = []
        """A heap of the moments at which a silent connection is looked at."""
        self._looks = 0
        self._ticked_at = now
        self._pressure = Pressure(self.state, self._leave)
        self._unfinished: dict[Link, float] = {}
        """Connections that are gone and could not be dealt with, and when that is tried again."""
        self.state.faults.end_connection = self._end_faulty
        self._handlers = self._all_handlers()

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
        return self.state.counters

    def restore(
        self,
        tables: Mapping[str, Iterable[tuple[Key, bytes]]],
        index: bytes | memoryview | None = None,
    ) -> None:
        """Take up what was kept before a restart; with an index that was saved, more quickly."""
        if index is not None:
            try:
                self.state.next_subscription = self.state.interests.load(index)
            except SavedError as error:
                self.state.note("warning", "index built anew", reason=str(error))
        for session in restore(self.state, tables):
            self._connecting.restored(session)
        self.state.steps.succeed()

    def begin_log(self, position: int, *, is_new: bool, now: float) -> None:
        """Log from above this position on; a new log is told of all subscriptions there are.

        A number in the log must never mean another subscription later, and those of sessions that
        are not kept are remembered nowhere. So from here on numbers stay below positions.
        """
        state = self._at(now)
        state.position = max(state.position, position, state.next_subscription)
        state.next_subscription = state.position + 1
        sessions = state.sessions.values() if is_new else ()
        untold = [one for session in sessions for one in session.subscriptions.values()]
        seats = state.agents.seats if is_new else ()
        state.diary.started(state.now, untold, seats, state.agents.limits)
        state.steps.succeed()

    # -- what happens --------------------------------------------------------------------------

    def opened(self, name: str, now: float) -> Link:
        """Somebody has connected; `name` is where from."""
        state = self._at(now)
        link = Link(name, state.now, state.limits.packet_bytes_max)
        state.counters.connections += 1
        link.deadline = state.now + state.limits.connect_timeout_s
        state.faults.attempt("connection", self._look_at, link, link=link)
        if len(state.links) >= state.limits.connections_max:
            state.counters.quota_hits += 1
            state.counters.connections_refused += 1
            state.note("warning", "connection refused", link=name, reason="connections_max")
            state.hang_up(link)
        state.links[link] = None
        state.steps.succeed()
        return link

    def received(self, link: Link, data: bytes, now: float) -> None:
        """Bytes have come."""
        state = self._at(now)
        state.counters.bytes_received += len(data)
        link.heard_at = state.now
        try:
            packets = link.reader.feed(data)
        except Exception as error:
            state.faults.happened(error, "input", link)
            return
        if link.authenticating is not None or link.held is not None:
            link.pending += packets
            if link.held is None and len(link.pending) > PENDING_MAX:
                state.faults.attempt("input", state.hang_up, link, link=link)
            return
        self._handle(link, packets)

    def _handle(self, link: Link, packets: list[Packet | Malformed]) -> None:
        """Handle what came, each packet as a step."""
        handlers = self._handlers
        steps = self.state.steps
        for position, packet in enumerate(packets):
            if link.closing:
                break
            if link.authenticating is not None or link.held is not None:
                link.pending += packets[position:]
                return
            handler = handlers.get(type(packet))
            try:
                if link.session is not None and handler is not None:
                    handler(link, packet)
                elif isinstance(packet, Connect):
                    self._let_in(link, self._connecting.connect, packet)
                elif isinstance(packet, Malformed):
                    self._malformed(link, packet)
                if steps.undo:
                    steps.succeed()
            except Exception as error:
                self.state.faults.happened(error, type(packet).__name__.upper(), link)
        if link.closing and link.session is not None:
            # Closed for what it sent: nothing must follow the goodbye.
            self.state.faults.attempt("end of a connection", self._left, link, link=link)

    def _let_in(self, link: Link, connect: Callable[..., None], *known: object) -> None:
        """Go on with a client that introduces itself."""
        self._publishing.flush()
        # A session that is over must not be found, even if no tick came since.
        self._connecting.advance()
        connect(link, *known)
        self._look_at(link)

    def _left(self, link: Link) -> None:
        self._publishing.flush()
        self._connecting.left(link, says_will=True)

    def _end_faulty(self, link: Link, text: str) -> None:
        """End a connection over a fault of ours."""
        if link.session is None and link.reader.version is not None:
            link.version = link.reader.version
            self._connecting.refuse(link, Reason.UNSPECIFIED_ERROR, text)
        else:
            self.state.close(link, Reason.UNSPECIFIED_ERROR, text)
            self._connecting.left(link, says_will=True)

    def identified(self, link: Link, identity: Identity | None, now: float) -> None:
        """It was found out who a client is; None is nobody who may come in."""
        self._at(now)
        packet = link.authenticating
        if packet is None or link.closing or link not in self.state.links:
            return
        if identity is None:
            link.authenticating = None
            what = "the user name or the password is wrong"
            reason = Reason.BAD_USER_NAME_OR_PASSWORD
            self.state.faults.attempt(
                "CONNECT", self._connecting.refuse, link, reason, what, link=link
            )
            return
        admit = self._connecting.admit
        if self.state.faults.attempt(
            "CONNECT", self._let_in, link, admit, packet, identity, link=link
        ):
            pending, link.pending = link.pending, []
            self._handle(link, pending)

    def closed(self, link: Link, now: float) -> None:
        """The connection is gone, whoever ended it."""
        state = self._at(now)
        if link not in state.links:
            return
        del state.links[link]
        link.closing = True
        self._leave(link)
        state.faults.attempt("end of a connection", self._pressure.forget, link)
        state.faults.attempt("end of a connection", state.agents.holding.left, link)

    def _leave(self, link: Link) -> None:
        """Its client has gone; if that cannot be dealt with, it is tried again."""
        client = "" if link.session is None else link.session.client_id
        state = self.state
        if state.faults.attempt("end of a connection", self._left, link, client=client):
            self._unfinished.pop(link, None)
        else:
            self._unfinished[link] = state.now + RETRY_S

    def failed(self, error: Exception, what: str, link: Link | None, now: float) -> None:
        """Something failed outside that this connection was the cause of, or nobody."""
        self._at(now).faults.happened(error, what, link)

    def commit_done(self, number: int, now: float) -> None:
        """The changes of that turn are on disk."""
        gate = self._at(now).gate
        if not self.state.faults.attempt("commit", gate.commit_done, number):
            # Nothing is lost by it, and nobody else would say so again.
            gate.commit_done(number)

    @property
    def has_work(self) -> bool:
        """Whether ending the turn would do anything; most acknowledgements need nothing more."""
        state = self.state
        gate = state.gate
        return bool(
            gate.ready
            or gate.waiting
            or gate.changes.tables
            or self._publishing.has_waiting
            or self._subscribing.is_giving
            or state.variables.has_restored
            or state.agents.has_work
            or state.agents.holding.is_waiting
            or state.authentications
            or state.notes
        )

    def end_turn(self, now: float) -> Output:
        """Everything was handed over: decide, and say what is to be done."""
        state = self._at(now)
        attempt = state.faults.attempt
        pool = state.agents.pool
        if pool is not None and pool.texts:
            handle, is_throttled = self._handle, self._pressure.is_throttled
            attempt("turn of policies", state.agents.holding.go_on, handle, is_throttled)
        try:
            self._publishing.pass_on()
            if state.variables.has_restored:
                state.variables.take_up()
            state.agents.work()
            # What policies have set may have had to wait for matchers, who have answered by it.
            self._publishing.route_answered()
        except Exception as error:
            state.faults.happened(error, "turn")
            attempt("turn of policies", state.agents.work)
            attempt("turn", self._publishing.route_answered)
        if self.coordinator is not None:
            attempt("turn of matchers", self._rearrange_on, self.coordinator)
        if state.steps.troubles or state.steps.warnings:
            state.faults.tell_of_troubles()
        changes: Changes | None = None
        try:
            changes = state.gate.end_turn()
        except Exception as error:
            # Nothing is lost by it, and nothing else would have it tried again.
            state.faults.happened(error, "end of a turn")
            changes = state.gate.end_turn()
        try:
            self._pressure.judge()
        except Exception as error:
            state.faults.happened(error, "turn")
        authentications, state.authentications = state.authentications, []
        notes, state.notes = state.notes, []
        routed, state.routed = state.routed, []
        return Output(
            state.gate.take_ready(), changes, state.gate.submitted, authentications, notes, routed
        )

    def _rearrange_on(self, coordinator: Coordinator) -> None:
        state = self.state
        rearranging = state.interests.rearranging
        if rearranging is not None and rearranging.wants_step(state.now):
            self._publishing.flush()
            rearranging.step(state.now)
            self._tell_of_rearranging(rearranging)
        for trouble in coordinator.troubles:
            state.note("warning", "trouble with a matcher", what=trouble)
        coordinator.troubles.clear()

    def shut_down(self, now: float) -> None:
        """Tell everybody that the broker stops; wills stay unsaid, as sessions go on."""
        state = self._at(now)
        self._publishing.flush()
        for link in list(state.links):
            state.faults.attempt("end of the broker", self._say_goodbye, link, link=link)

    def _say_goodbye(self, link: Link) -> None:
        if link.session is not None:
            link.session.will_at = math.inf
            self.state.close(link, Reason.SERVER_SHUTTING_DOWN, "the broker is shutting down")
            self._connecting.left(link, says_will=False)
        else:
            self.state.hang_up(link)

    # -- packets -------------------------------------------------------------------------------

    def _publish(self, link: Link, packet: Publish) -> None:
        session = link.session
        assert session is not None
        topic = packet.topic or link.aliases.get(packet.properties.topic_alias or 0, "")
        if topic == POLICY and self.state.agents.holding.hold(link, packet):
            return
        if self.state.limits.publish_per_s_max:
            self._pressure.published(session, link)
        # Last: what was collected cannot be undone.
        self._publishing.publish(session, link, packet)

    def _puback(self, link: Link, packet: Puback) -> None:
        assert link.session is not None
        self.state.delivery.acknowledged(link.session, packet.packet_id, 1, self.state.now)

    def _pubrec(self, link: Link, packet: Pubrec) -> None:
        assert link.session is not None
        delivery = self.state.delivery
        if packet.reason >= Reason.UNSPECIFIED_ERROR:
            delivery.acknowledged(link.session, packet.packet_id, 2, self.state.now)
        else:
            delivery.received(link.session, link, packet.packet_id)

    def _pubrel(self, link: Link, packet: Pubrel) -> None:
        assert link.session is not None
        # Its publication may wait in the batch still; acknowledgements keep their order.
        self._publishing.flush()
        self._publishing.released(link.session, link, packet.packet_id)

    def _pubcomp(self, link: Link, packet: Pubcomp) -> None:
        assert link.session is not None
        self.state.delivery.acknowledged(link.session, packet.packet_id, 2, self.state.now)

    def _subscribe(self, link: Link, packet: Subscribe) -> None:
        assert link.session is not None
        if packet.properties.user and self.state.agents.holding.hold(link, packet):
            return
        self._publishing.flush()
        self._subscribing.subscribe(link.session, link, packet)

    def _unsubscribe(self, link: Link, packet: Unsubscribe) -> None:
        assert link.session is not None
        self._publishing.flush()
        self._subscribing.unsubscribe(link.session, link, packet)

    def _pingreq(self, link: Link, _packet: Pingreq) -> None:
        self.state.gate.send(link, PINGRESP)

    def _disconnect(self, link: Link, packet: Disconnect) -> None:
        self._publishing.flush()
        self._connecting.disconnect(link, packet)

    def _auth(self, link: Link, _packet: Auth) -> None:
        what = "there was no extended authentication to go on with"
        self.state.close(link, Reason.PROTOCOL_ERROR, what)

    def _malformed(self, link: Link, packet: Malformed) -> None:
        state = self.state
        state.counters.packets_malformed += 1
        state.note("warning", "malformed packet", link=link.name, reason=packet.text)
        if link.session is not None:
            state.close(link, packet.reason, packet.text)
        elif link.reader.version == V5:
            link.version = V5
            self._connecting.refuse(link, packet.reason, packet.text)
        elif packet.reason == Reason.UNSUPPORTED_PROTOCOL_VERSION:
            # Whatever it speaks, it may know how 3.1.1 says no.
            link.version = 4
            self._connecting.refuse(link, packet.reason, packet.text)
        else:
            # 3.1.1 has no answer to a CONNECT that cannot be read: [MQTT-3.1.4-1].
            state.hang_up(link)

    # -- time ----------------------------------------------------------------------------------

    def tick(self, now: float) -> float:
        """Do what is due; gives the moment of the next tick that is needed."""
        state = self._at(now)
        passed_s = state.now - self._ticked_at
        self._ticked_at = state.now
        attempt = state.faults.attempt
        attempt("tick", self._publishing.flush)
        attempt("tick", self._subscribing.go_on)
        attempt("tick", self._publishing.slide)
        attempt("tick", state.keeper.advance, state.now, attempt)
        attempt("tick", state.delivery.advance, state.now, passed_s, attempt)
        attempt("tick", self._connecting.advance)
        attempt("tick", self._look_at_deadlines)
        attempt("tick", self._pressure.look_at_stuck)
        attempt("tick", self._pressure.release_throttled)
        state.faults.tell_of_troubles()
        for link in list(self._unfinished):
            if self._unfinished[link] <= state.now:
                self._leave(link)
        return self.next_tick_at()

    def next_tick_at(self) -> float:
        """When `tick` has something to do at the latest."""
        try:
            return self._next_tick_at()
        except Exception as error:
            self.state.faults.happened(error, "tick")
            return self.state.now + RETRY_S

    def _next_tick_at(self) -> float:
        state = self.state
        if self._subscribing.is_giving or state.agents.has_later:
            return state.now
        if state.delivery.is_replaying or self._pressure.wants_looking_at:
            return state.now + 0.02
        rearranging = state.interests.rearranging
        return min(
            state.interests.next_change_at(),
            math.inf if rearranging is None else rearranging.next_step_at(state.now),
            state.keeper.next_change_at(),
            self._connecting.next_change_at(),
            self._deadlines[0][0] if self._deadlines else math.inf,
            min(self._unfinished.values()) if self._unfinished else math.inf,
        )

    def _at(self, now: float) -> State:
        """Time never runs back here, whatever clocks do."""
        state = self.state
        if now > state.now:
            state.now = now
        # What was done from outside between two steps, such as a row for the log, has gone well.
        if state.steps.undo:
            state.steps.succeed()
        return state

    def _look_at(self, link: Link) -> None:
        if link.deadline < math.inf and not link.closing:
            self._looks += 1
            if len(self._deadlines) > 2 * len(self.state.links) + DEADLINES_SPARE:
                # Connections that are gone would stay in memory until their time is over.
                self._deadlines = [one for one in self._deadlines if self._is_looked_at(*one)]
                heapq.heapify(self._deadlines)
            heapq.heappush(self._deadlines, (link.deadline, self._looks, link))

    def _is_looked_at(self, due_at: float, _look: int, link: Link) -> bool:
        # Letting a client in sets another deadline: the one before it counts no more.
        return not link.closing and link in self.state.links and due_at == link.deadline

    def _look_at_deadlines(self) -> None:
        state = self.state
        while self._deadlines and self._deadlines[0][0] <= state.now:
            at, look, link = heapq.heappop(self._deadlines)
            if not state.faults.attempt("deadline", self._look_at_silent, at, look, link):
                if at == link.deadline:
                    link.deadline = state.now + RETRY_S
                heapq.heappush(self._deadlines, (state.now + RETRY_S, look, link))

    def _look_at_silent(self, due_at: float, look: int, link: Link) -> None:
        """Close a connection that was silent for too long."""
        if not self._is_looked_at(due_at, look, link):
            return
        state = self.state
        if link.session is None:
            state.note("info", "no CONNECT in time", link=link.name)
            state.hang_up(link)
            return
        link.deadline = link.heard_at + link.keep_alive_s * KEEP_ALIVE_GRACE
        if link.deadline <= state.now:
            state.close(link, Reason.KEEP_ALIVE_TIMEOUT, "nothing was heard for too long")
            self._connecting.left(link, says_will=True)
            state.counters.keep_alive_timeouts += 1
        else:
            self._look_at(link)

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
        """Pause publishers while too much waits inside, and let them go on when it has gone.

        Every turn ends with it; the shell asks again when sending has left somebody stuck, for
        what it reads before the next turn would be dropped.
        """
        self._pressure.judge()

    @property
    def is_throttling(self) -> bool:
        """Whether some publishers are too quick (their links say `is_paused`)."""
        return self._pressure.is_throttling or self.state.agents.holding.is_waiting

    # -- upkeep and changes of mind --------------------------------------------------------------

    def saved_index(self) -> bytes | None:
        """The index as `restore` takes it; None while matchers have it."""
        self._publishing.flush()
        if self.state.interests.is_out:
            return None
        return self.state.interests.saved(self.state.next_subscription)

    def reconfigure(
        self,
        limits: Limits,
        rules: Rules,
        is_guarded: bool,
        policies: PolicyLimits | None = None,
    ) -> None:
        """Go on under other limits and rules; what is there already stays."""
        state = self.state
        if policies is not None and state.agents.limits not in (None, policies):
            state.agents.limits = policies
            state.diary.limits_changed(policies, state.now)
            state.steps.succeed()
        state.limits = state.delivery.limits = state.keeper.limits = limits
        state.rules, state.is_guarded = rules, is_guarded

    def merge_due(self) -> Work | None:
        """Work on the index to be run beside, then given to `install`."""
        return self.state.interests.merge_due()

    def install(self, work: Work) -> bool:
        """Take over finished work; False if that failed, and everything is as it was."""
        return self.state.faults.attempt("merge of the index", self._install, work)

    def _install(self, work: Work) -> None:
        self._publishing.flush()
        work.install()

    # -- policies ------------------------------------------------------------------------------

    @property
    def jobs(self) -> Listener | None:
        """Who hears of what workers do; None if there are none."""
        return self.state.agents.pool

    def policies_view(self, limit: int | None = None, client_id: str | None = None) -> PoliciesView:
        """What there is to see of policies; of all, or of one client's."""
        return self.state.agents.view(limit, client_id)

    def variables_view(self, client_id: str) -> dict[str, dict[str, object]] | None:
        """A subscriber's variables: what it set, and what the system keeps; None if unknown."""
        session = self.state.sessions.get(client_id)
        return None if session is None else view_of(session)

    # -- matchers ------------------------------------------------------------------------------

    def matchers_view(self, now: float) -> MatchersView | None:
        """What there is to see of the matchers; None if there cannot be any."""
        rearranging = self._at(now).interests.rearranging
        return None if rearranging is None else rearranging.view(now)

    def take_back(self, now: float) -> None:
        """Match by itself again, at once; for the end, when the index is saved."""
        rearranging = self._at(now).interests.rearranging
        if rearranging is not None:
            self._publishing.flush()
            rearranging.take_back()

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
        rearranging = self._at(now).interests.rearranging
        if rearranging is None:
            return "this broker matches by itself; see [matchers] in its configuration"
        return rearranging.force(kind, now, layout)

    def _tell_of_rearranging(self, rearranging: Rearranging) -> None:
        untold, rearranging.untold = rearranging.untold, []
        for one in untold:
            if one.failure:
                event = "matchers left as they were"
                self.state.note("warning", event, **one.facts(), why=one.failure)
            else:
                self.state.note("info", "matchers rearranged", **one.facts())
