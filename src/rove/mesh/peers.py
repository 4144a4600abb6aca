"""What a broker does with the other brokers of its network.

Each is a durable session of the broker, so its queue, its subscriptions and the QoS 2 packets from
it are on disk like a client's. This broker's own interest goes to all of them as subscriptions: the
entries of its summary (`rove.mesh.interest`), and each shared subscription by itself, because the
member that gets a publication is chosen by the broker at which it was published.

    router ──▶ Peers.made, ended, moved ──▶ Summary ──▶ Changes ──▶ SUBSCRIBE, UNSUBSCRIBE

When a connection opens, the whole table is sent, and then the other side ends what was not
repeated: so no publication is missed in between, whatever either side forgot. A change costs what
the summary takes, and a packet for each broker if the summary changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rove.broker.access import Identity
from rove.broker.broker import Broker
from rove.broker.sessions.session import BROKER_PREFIX, Link, Session, Subscription
from rove.broker.subscriptions.subscribe import ACCEPTED_AT, STALE
from rove.mesh.interest.entries import Entry
from rove.mesh.interest.summary import Summary
from rove.mqtt.encoder import encode
from rove.mqtt.packets import V5, Filter, Properties, Subscribe, Unsubscribe

QOS = 2
"""Of all subscriptions between brokers; a publication's own may be less."""
IDENTIFIERS_MAX = 268_435_455
_GROUP_IDS = 1 << 27
"""Identifiers from here on are of shared subscriptions; those below, of entries."""


class Peers:
    """The other brokers, and what this one wants of them."""

    def __init__(self, broker: Broker, summary: Summary) -> None:
        self._broker = broker
        self._summary = summary
        self._links: dict[str, Link] = {}
        self._groups: dict[int, Subscription] = {}
        """The shared subscriptions of this broker's clients, by identifier."""
        self._group_ids: dict[int, int] = {}
        """Their identifiers, by the number of the subscription."""
        self._group_names: dict[int, tuple[str, str]] = {}
        """Of each: share name and topic filter, for the sessions of other brokers."""
        self._next_group = _GROUP_IDS
        self._topic_filters: dict[int, str] = {}
        """Of the entries that the others have, by identifier."""
        self._packet_id = 0
        self.on_change: Callable[[], None] = _nothing
        """Called when there may be something for `advance`."""
        for session in broker.context.sessions.values():
            for one in session.subscriptions.values():
                self.made(one)
        broker.router.watch = self

    # -- subscriptions of clients --------------------------------------------------------------

    def made(self, one: Subscription) -> None:
        """A subscription was made."""
        session = one.session
        if session.broker:
            return
        if one.group is not None:
            self._add_group(one)
            return
        expression = None if one.interest is None else one.interest.parsed
        self._summary.add(
            one.number,
            one.topic_filter,
            expression,
            one.accepted_at,
            subscriber=session.number,
            state=session.me,
        )
        self.on_change()

    def ended(self, one: Subscription) -> None:
        """A subscription has ended."""
        identifier = self._group_ids.pop(one.number, None)
        if identifier is not None:
            del self._groups[identifier]
            del self._group_names[identifier]
            self._send_all(self._unsubscribe(_shared(one), identifier))
        elif not one.session.broker:
            self._summary.remove(one.number)
            self.on_change()

    def moved(self, session: Session, changes: Mapping[str, object]) -> None:
        """Variables of a subscriber have changed."""
        self._summary.set_state(session.number, changes, self._broker.context.now)
        self.on_change()

    def _add_group(self, one: Subscription) -> None:
        identifier = self._next_group
        self._next_group = identifier + 1 if identifier < IDENTIFIERS_MAX else _GROUP_IDS
        self._groups[identifier] = one
        self._group_ids[one.number] = identifier
        assert one.group is not None
        self._group_names[identifier] = one.group, one.topic_filter
        self._send_all(self._subscribe_group(identifier, one))

    # -- looking -------------------------------------------------------------------------------

    @property
    def subscription_count(self) -> int:
        """How many subscriptions the clients of this broker have."""
        return len(self._summary) + len(self._groups)

    @property
    def entry_count(self) -> int:
        """How many subscriptions stand for them at each other broker."""
        return len(self._topic_filters) + len(self._groups)

    @property
    def entry_bytes(self) -> int:
        """The size of the summary."""
        return self._summary.size_bytes

    # -- connections ---------------------------------------------------------------------------

    def opened(
        self, name: str, offset_s: float, now: float, user: str | None = None
    ) -> Link | None:
        """There is a connection to a broker, whose clock is so much ahead of ours.

        The access rules of `user` decide which topics may cross.
        """
        identity = Identity(user, BROKER_PREFIX + name)
        link = self._broker.broker_opened(f"broker {name}", name, identity, -offset_s, now)
        if link is None or link.session is None:
            return None
        self._links[name] = link
        link.session.groups = self._group_names
        self._send_table(link, now)
        return link

    def closed(self, name: str, now: float) -> None:
        """The connection has ended."""
        link = self._links.pop(name, None)
        if link is not None:
            self._broker.closed(link, now)

    def _send_table(self, link: Link, now: float) -> None:
        """Send everything that this broker wants, then have the rest ended."""
        self._take(now)
        for entry in self._summary.entries():
            self._send(link, self._subscribe(entry))
        for identifier, one in self._groups.items():
            self._send(link, self._subscribe_group(identifier, one))
        self._send(link, encode(Unsubscribe(self._next_packet_id(), (STALE,)), V5))

    def advance(self, now: float) -> float:
        """Send what has changed; returns when to do so next."""
        self._take(now)
        return self._summary.next_s()

    def _take(self, now: float) -> None:
        changes = self._summary.take(now)
        if changes is None:
            return
        for entry in changes.added:
            self._topic_filters[entry.id] = entry.topic_filter
            self._send_all(self._subscribe(entry))
        for identifier in changes.removed:
            topic_filter = self._topic_filters.pop(identifier)
            self._send_all(self._unsubscribe(topic_filter, identifier))

    # -- packets -------------------------------------------------------------------------------

    def _subscribe(self, entry: Entry) -> bytes:
        return self._subscribe_to(
            entry.topic_filter, entry.id, entry.expression, entry.accepted_at_s
        )

    def _subscribe_group(self, identifier: int, one: Subscription) -> bytes:
        text = None if one.interest is None else one.interest.text
        return self._subscribe_to(_shared(one), identifier, text, one.accepted_at)

    def _subscribe_to(
        self, topic_filter: str, identifier: int, text: str | None, accepted_at_s: float | None
    ) -> bytes:
        user: tuple[tuple[str, str], ...] = ()
        if text is not None:
            user += (("filter", text),)
        if accepted_at_s is not None:
            user += ((ACCEPTED_AT, repr(accepted_at_s)),)
        properties = Properties(user=user, subscription_ids=(identifier,))
        filters = (Filter(topic_filter, QOS),)
        return encode(Subscribe(self._next_packet_id(), filters, properties), V5)

    def _unsubscribe(self, topic_filter: str, identifier: int) -> bytes:
        properties = Properties(user=(("subscription", str(identifier)),))
        return encode(Unsubscribe(self._next_packet_id(), (topic_filter,), properties), V5)

    def _next_packet_id(self) -> int:
        self._packet_id = self._packet_id % 65_535 + 1
        return self._packet_id

    def _send_all(self, data: bytes) -> None:
        for link in self._links.values():
            self._send(link, data)

    def _send(self, link: Link, data: bytes) -> None:
        self._broker.context.gate.send(link, data)


def _nothing() -> None:
    """The simulation calls `advance` regularly."""


def _shared(one: Subscription) -> str:
    return f"$share/{one.group}/{one.topic_filter}"
