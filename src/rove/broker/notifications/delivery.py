"""Delivering notifications to clients: in-flight windows, acknowledgements, queues and drops.

A notification of QoS 0 is sent if its client is connected and reads fast enough; otherwise it is
dropped and counted. One of QoS 1 or 2 becomes an entry of its session's queue, is sent as soon as
the client's window has room, and stays until it is acknowledged. Queues are bounded by count, bytes
and age; on overflow notifications are dropped as the limits say (`queue_overflow`), and counted.

A client that comes back to a queue gets what was in flight at once, as the specification demands,
and the rest at `replay_messages_per_s`, new notifications after the old.

A delivery of QoS 0 costs about half a microsecond, of QoS 1 about three.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from rove.broker.counters import BrokerCounters
from rove.broker.faults import Attempt
from rove.broker.gate import Gate
from rove.broker.limits import Limits
from rove.broker.publications.publication import Publication
from rove.broker.sessions.session import PACKET_ID_MAX, Entry, Link, Notification, Session
from rove.broker.storage.records import encoded
from rove.broker.subscriptions.routes import Recipient
from rove.mqtt.packets import Pubrel, Reason

DUP = 0x08
REPLAY_BURST_S = 0.1
"""How many seconds' worth of that rate may be sent at once."""


class Delivery:
    """Sends, queues and drops notifications."""

    def __init__(self, gate: Gate, limits: Limits, counters: BrokerCounters) -> None:
        self.limits = limits
        self._gate = gate
        self._steps = gate.steps
        self._undo = gate.steps.undo
        self._counters = counters
        self._replaying: dict[Session, None] = {}

    # -- publications on disk ------------------------------------------------------------------

    def keep(self, publication: Publication) -> None:
        """One more row of the journal refers to it."""
        if publication.kept == 0:
            self._gate.changes.put("publications", publication.number, encoded(publication.row()))
        self._undo.append((setattr, publication, "kept", publication.kept))
        publication.kept += 1

    def keep_again(self, publication: Publication) -> None:
        """Its row has changed."""
        self._gate.changes.put("publications", publication.number, encoded(publication.row()))

    def release(self, publication: Publication) -> None:
        """One row fewer."""
        self._undo.append((setattr, publication, "kept", publication.kept))
        publication.kept -= 1
        if publication.kept == 0:
            changes = self._gate.changes
            # The row of a withdrawn one was put twice.
            drop = changes.delete if publication.withdrawn else changes.drop_new
            drop("publications", publication.number)

    # -- sending -------------------------------------------------------------------------------

    def deliver(self, one: Notification, now: float) -> None:
        """Notify one session; with `waits`, after what waits for the commit."""
        publication, session = one.publication, one.session
        qos = one.qos if one.qos < publication.qos else publication.qos
        if qos == 0:
            self._send_unassured(one, now)
            return
        if session.broker:
            # A connection between brokers may break at any time: QoS 1 would repeat it.
            qos = 2
        link = session.link
        if (
            link is not None
            and not session.queue
            and len(session.inflight) < link.inflight_max
            and publication.expires_at > now
        ):
            # The common case: the client is connected and its window has room.
            entry = Entry(session.next_entry, publication, qos, one.retain, one.ids, one.select)
            session.next_entry += 1
            if session.is_durable:
                self.keep(publication)
            self._send_entry(session, link, entry, now)
            return
        if not self._has_room(session, publication, now):
            return
        entry = Entry(session.next_entry, publication, qos, one.retain, one.ids, one.select)
        if one.waits:
            entry.queued_at = now
        session.next_entry += 1
        size_bytes = publication.size_bytes
        self._undo.append((_unqueue, session, size_bytes))
        session.queue.append(entry)
        session.queue_bytes += size_bytes
        if session.is_durable:
            self.keep(publication)
        self.pump(session, now)
        if session.queue and session.queue[-1] is entry:
            self._counters.notifications_queued += 1
            self._keep_entry(session, entry)

    def broadcast(self, publication: Publication, targets: Sequence[Recipient], now: float) -> int:
        """Notify many sessions of a publication that is not retained; returns how many.

        Does what `deliver` does, several times as fast in the simple cases. The loops make as few
        calls as possible: a broker with many subscribers spends its time in them.
        """
        if publication.qos:
            return self._broadcast_assured(publication, targets, now)
        unsent_bytes_max = self.limits.unsent_bytes_max
        ready, committed = self._gate.ready, self._gate.committed
        version = 0
        ids: tuple[int, ...] = ()
        data = b""
        sent: list[Link] = []
        others: list[Recipient] = []
        self._undo.append((_unsend, sent, ready, len(ready)))
        for each in targets:
            target = each if each.hears_itself else each.heard_from(publication.publisher)
            if target is None:
                continue
            link = target.session.link
            if (
                link is None
                or link.buffered_bytes > unsent_bytes_max
                or link.needs_care
                or link.waits_for > committed
            ):
                others.append(target)
                continue
            if link.form != version or target.ids != ids:
                version, ids = link.form, target.ids
                data, _ = publication.parts(version, 0, False, ids, now)
            if not link.out:
                ready.append(link)
            link.out.append(data)
            sent.append(link)
        self._counters.notifications_sent += len(sent)
        for target in others:
            one = Notification(target.session, publication, 0, False, target.ids)
            self._send_unassured(one, now)
        return len(sent) + len(others)

    def _broadcast_assured(
        self, publication: Publication, targets: Sequence[Recipient], now: float
    ) -> int:
        granted = (1, 2) if publication.qos == 1 else (1,)
        waiting = self._gate.waiting
        version = 0
        ids: tuple[int, ...] = ()
        head = tail = b""
        entry: Entry | None = None
        sent: list[Session] = []
        others: list[Recipient] = []
        self._undo.append((_unsend_assured, sent, waiting))
        for each in targets:
            target = each if each.hears_itself else each.heard_from(publication.publisher)
            if target is None:
                continue
            session = target.session
            link = session.link
            inflight = session.inflight
            if (
                link is None
                or target.qos not in granted
                or session.is_durable
                or session.queue
                or len(inflight) >= link.inflight_max
                or link.needs_care
            ):
                others.append(target)
                continue
            if link.form != version or target.ids != ids:
                version, ids = link.form, target.ids
                head, tail = publication.parts(version, 1, False, ids, now)
                # Sessions that are not durable can share it: nothing is written into it.
                entry = Entry(0, publication, 1, False, ids)
            assert entry is not None
            packet_id = session.next_packet_id
            if packet_id in inflight:
                packet_id = session.take_packet_id()
            else:
                session.next_packet_id = packet_id % PACKET_ID_MAX + 1
            inflight[packet_id] = entry
            waiting.append((link, head + packet_id.to_bytes(2, "big") + tail))
            sent.append(session)
        self._counters.notifications_sent += len(sent)
        for target in others:
            one = Notification(target.session, publication, target.qos, False, target.ids)
            self.deliver(one, now)
        return len(sent) + len(others)

    def _send_unassured(self, one: Notification, now: float) -> None:
        publication, waits = one.publication, one.waits
        link = one.session.link
        if link is None:
            self._counters.notifications_dropped_away += 1
            return
        if link.buffered_bytes > self.limits.unsent_bytes_max:
            self._counters.notifications_dropped_slow += 1
            return
        is_held = waits or link.waits_for > self._gate.committed
        aliases, written = link.sent_aliases, None
        if aliases is not None:
            written = aliases.written(publication.topic, waits=False)
        data, _ = publication.parts(link.form, 0, one.retain, one.ids, now, one.select, written)
        if link.packet_bytes_max is not None and len(data) > link.packet_bytes_max:
            self._counters.notifications_dropped_size += 1
            return
        if aliases is not None and written is not None:
            self._undo.append(aliases.before(publication.topic))
            aliases.told(publication.topic, written, waits=is_held)
        if waits:
            self._gate.send_in_order(link, data)
        elif is_held:
            self._gate.send(link, data)
        else:
            self._gate.send_at_once(link, data)
        self._counters.notifications_sent += 1

    def pump(self, session: Session, now: float) -> None:
        """Send entries of the queue while the client's window has room."""
        link = session.link
        if link is None:
            return
        if session.resends:
            self._resend(session, link, now)
        queue = session.queue
        while queue and len(session.inflight) < link.inflight_max:
            if session.replaying:
                if session.allowance < 1:
                    return
                session.allowance -= 1
            entry = self._popped(session)
            if self._is_stale(session, entry, now):
                self._counters.notifications_dropped_expired += 1
                self._forget(session, entry)
            else:
                self._send_entry(session, link, entry, now)
        if session.replaying and not queue:
            self._end_replaying(session)

    def _popped(self, session: Session) -> Entry:
        """Remove and return the first entry of the queue."""
        entry = session.queue[0]
        size_bytes = entry.publication.size_bytes
        self._undo.append((_queue_again, session, entry, size_bytes))
        session.queue.popleft()
        session.queue_bytes -= size_bytes
        return entry

    def _end_replaying(self, session: Session) -> None:
        if session.replaying:
            self._steps.saves(session, "replaying")
            self._steps.saves_item(self._replaying, session)
            session.replaying = False
            self._replaying.pop(session, None)

    def _send_entry(self, session: Session, link: Link, entry: Entry, now: float) -> None:
        aliases, written = link.sent_aliases, None
        if aliases is not None:
            written = aliases.written(entry.publication.topic, waits=True)
        head, tail = entry.publication.parts(
            link.form, entry.qos, entry.retain, entry.ids, now, entry.select, written
        )
        size = len(head) + len(tail) + 2
        if link.packet_bytes_max is not None and size > link.packet_bytes_max:
            self._counters.notifications_dropped_size += 1
            self._forget(session, entry)
            return
        if aliases is not None and written is not None:
            self._undo.append(aliases.before(entry.publication.topic))
            aliases.told(entry.publication.topic, written, waits=True)
        packet_id = session.take_packet_id()
        self._undo.append((_unsend_entry, session, entry))
        entry.packet_id = packet_id
        session.inflight[packet_id] = entry
        self._keep_entry(session, entry)
        self._gate.send_after_commit(link, head + packet_id.to_bytes(2, "big") + tail)
        self._counters.notifications_sent += 1

    # -- acknowledgements ----------------------------------------------------------------------

    def acknowledged(self, session: Session, packet_id: int, qos: int, now: float) -> bool:
        """PUBACK or PUBCOMP has come, or a PUBREC with an error; False if nothing waited for it.

        Sending what the window has room for now is another step: the acknowledgement stays if that
        fails.
        """
        entry = session.inflight.get(packet_id)
        if entry is None or entry.qos != qos:
            return False
        self._forget(session, entry)
        del session.inflight[packet_id]
        if session.resends and entry in session.resends:
            # Acknowledged before it was sent again: there is nothing to send.
            session.resends.remove(entry)
        self._steps.succeed()
        if session.queue or session.resends:
            self.pump(session, now)
        return True

    def received(self, session: Session, link: Link, packet_id: int) -> None:
        """PUBREC has come: the client has it; answer with PUBREL."""
        entry = session.inflight.get(packet_id)
        if entry is None or entry.qos != 2:
            answer = link.encoded(Pubrel(packet_id, Reason.PACKET_ID_NOT_FOUND))
        else:
            if not entry.released:
                self._steps.saves(entry, "released")
                entry.released = True
                self._keep_entry(session, entry)
            answer = link.encoded(Pubrel(packet_id))
        if answer is not None:
            self._gate.send_after_commit(link, answer)

    def _keep_entry(self, session: Session, entry: Entry) -> None:
        if session.is_durable:
            self._undo.append((setattr, entry, "times_kept", entry.times_kept))
            entry.times_kept += 1
            self._gate.changes.put("queue", session.key_of(entry), encoded(entry.row()))

    def _forget(self, session: Session, entry: Entry) -> None:
        if not session.is_durable:
            return
        # A row that was put once and never committed needs no deletion.
        forget = self._gate.changes.drop_new if entry.times_kept == 1 else self._gate.changes.delete
        forget("queue", session.key_of(entry))
        self.release(entry.publication)

    # -- sessions that come and go -------------------------------------------------------------

    def resume(self, session: Session, link: Link, now: float) -> None:
        """The client is back: resend what was in flight, then the queue at a limited rate."""
        self._undo.append((session.resends.clear,))
        for packet_id, entry in session.inflight.items():
            if not entry.released:
                session.resends.append(entry)
            elif (data := link.encoded(Pubrel(packet_id))) is not None:
                self._gate.send_after_commit(link, data)
        if session.queue and self.limits.replay_messages_per_s and not session.broker:
            self._undo.append((self._end_replaying, session))
            session.replaying = True
            session.allowance = self.limits.replay_messages_per_s * REPLAY_BURST_S
            self._replaying[session] = None
        self.pump(session, now)

    def _resend(self, session: Session, link: Link, now: float) -> None:
        """Resend what was in flight, as far as the window of the new connection allows."""
        resends, inflight = session.resends, session.inflight
        while resends and len(inflight) - len(resends) < link.inflight_max:
            entry = resends[0]
            head, tail = entry.publication.parts(
                link.form, entry.qos, entry.retain, entry.ids, now, entry.select
            )
            again = bytes((head[0] | DUP,)) + head[1:]
            data = again + entry.packet_id.to_bytes(2, "big") + tail
            if link.packet_bytes_max is not None and len(data) > link.packet_bytes_max:
                self._counters.notifications_dropped_size += 1
                self._forget(session, entry)
                self._undo.append((_inflight_again, session, dict(inflight)))
                del inflight[entry.packet_id]
            else:
                self._gate.send_after_commit(link, data)
            self._undo.append((resends.appendleft, entry))
            resends.popleft()

    def left(self, session: Session) -> None:
        """The client has disconnected: what is in flight stays so until it comes back."""
        self._steps.saves(session, "resends")
        session.resends = deque()
        self._end_replaying(session)

    def discard(self, session: Session) -> None:
        """The session ends: drop its queue and what is in flight."""
        self.left(session)
        for entry in (*session.inflight.values(), *session.queue):
            self._forget(session, entry)
        self._steps.saves(session, "inflight", "queue", "queue_bytes")
        session.inflight, session.queue, session.queue_bytes = {}, deque(), 0

    def advance(self, now: float, passed_s: float, attempt: Attempt) -> None:
        """Send returning clients the next part of their queues."""
        pace = self.limits.replay_messages_per_s
        for session in list(self._replaying):
            burst = max(1.0, pace * REPLAY_BURST_S)
            session.allowance = min(session.allowance + pace * passed_s, burst)
            attempt("replay", self.pump, session, now, link=session.link)

    @property
    def is_replaying(self) -> bool:
        return bool(self._replaying)

    # -- bounds --------------------------------------------------------------------------------

    def _has_room(self, session: Session, publication: Publication, now: float) -> bool:
        """Whether it may be queued, after dropping the oldest entries if necessary."""
        if session.broker:
            # A broker must not lose what it has acknowledged to a publisher.
            return True
        limits = self.limits
        size = publication.size_bytes
        if session.link is None:
            self.drop_over(session, now)
        while session.queue and (
            len(session.queue) >= limits.queue_messages_max
            or session.queue_bytes + size > limits.queue_bytes_max
        ):
            self._counters.notifications_dropped_overflow += 1
            if limits.queue_overflow == "drop-newest":
                return False
            self.drop_oldest(session)
        return True

    def drop_oldest(self, session: Session) -> None:
        """Drop the oldest notification of a queue."""
        self._forget(session, self._popped(session))

    def drop_over(self, session: Session, now: float) -> None:
        """Drop what is too old, has expired or was withdrawn, from the front of the queue only.

        Entries behind a valid one are checked when they come to the front.
        """
        while session.queue and self._is_stale(session, session.queue[0], now):
            self._counters.notifications_dropped_expired += 1
            self.drop_oldest(session)

    def _is_stale(self, session: Session, entry: Entry, now: float) -> bool:
        """Whether an entry is expired, withdrawn or older than the limit."""
        if session.broker:
            return entry.publication.is_over(now)
        publication = entry.publication
        since = publication.at if entry.queued_at is None else entry.queued_at
        return publication.is_over(now) or now - since >= self.limits.queue_age_s_max


# -- undoing --------------------------------------------------------------------------------------


def _unqueue(session: Session, size_bytes: int) -> None:
    session.queue.pop()
    session.queue_bytes -= size_bytes


def _queue_again(session: Session, entry: Entry, size_bytes: int) -> None:
    session.queue.appendleft(entry)
    session.queue_bytes += size_bytes


def _unsend_entry(session: Session, entry: Entry) -> None:
    session.inflight.pop(entry.packet_id, None)
    entry.packet_id = 0


def _inflight_again(session: Session, inflight: dict[int, Entry]) -> None:
    session.inflight = inflight


def _unsend(sent: Sequence[Link], ready: list[Link], ready_before: int) -> None:
    for link in sent:
        link.out.pop()
    del ready[ready_before:]


def _unsend_assured(sent: Sequence[Session], waiting: list[tuple[Link, bytes]]) -> None:
    for session in sent:
        session.inflight.popitem()
        waiting.pop()
