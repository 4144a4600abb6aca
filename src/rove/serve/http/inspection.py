"""The state of the broker for `/clients`, `/queues`, `/policies` and other routes.

Plain structs, made from the broker's present state between two of its turns. Each request goes
through all sessions, about 0.3 µs each, whatever the page: a million sessions block the broker for
a third of a second, so this is for people and an occasional script, not for a loop.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable
from typing import Generic, TypeVar

import msgspec

from rove.broker.sessions.session import Session, Subscription
from rove.broker.views import BrokerView
from rove.mqtt.packets import V5
from rove.policy.view import PoliciesView

Item = TypeVar("Item")


class Page(msgspec.Struct, Generic[Item]):
    """Some of many."""

    items: list[Item]
    next: int | None = None
    """`after` of the next page; None if this was the last."""


class ClientView(msgspec.Struct):
    """A session, and its connection if there is one."""

    number: int
    client: str
    user: str | None
    connected: bool
    address: str | None
    since: float | None
    """Since when it is connected or away; seconds since 1970."""
    version: str
    subscriptions: int
    queue_messages: int
    queue_bytes: int
    inflight: int
    expiry_s: int
    """How long the session outlives its connection."""


class QueueView(msgspec.Struct):
    """The notifications that wait for a session."""

    client: str
    user: str | None
    connected: bool
    queue_messages: int
    queue_bytes: int
    oldest_s: float
    """How long the oldest has waited."""
    inflight: int


class SubscriptionView(msgspec.Struct):
    """One subscription."""

    number: int
    client: str
    user: str | None
    topic: str
    """As in the SUBSCRIBE, with `$share/…`."""
    filter: str
    evolve: str
    qos: int
    identifier: int
    no_local: bool
    retain_as_published: bool
    accepted_at: float
    engine: str
    """Who matches: `broker` or `spark`."""
    me: dict[str, object]
    """The subscriber's present variables, if the expression uses any."""
    policy: str
    """Its own policy; empty if that of the session applies, if any."""


class ChannelView(msgspec.Struct):
    """A channel of the lake."""

    name: str
    topics: list[str]
    keeps: list[str]


def channels(view: BrokerView) -> list[ChannelView]:
    """The configured channels; none without a lake."""
    found = view.settings.channels
    return [ChannelView(one.name, list(one.topics), sorted(one.keep)) for one in found]


def clients(view: BrokerView, after: int, count: int) -> Page[ClientView]:
    """Sessions by number."""
    later = (one for one in view.sessions.values() if one.number > after)
    found = heapq.nsmallest(count + 1, later, key=lambda one: one.number)
    more = found[count - 1].number if len(found) > count else None
    return Page([client_view(one) for one in found[:count]], more)


def client_view(session: Session) -> ClientView:
    """One session."""
    link = session.link
    return ClientView(
        session.number,
        session.client_id,
        session.identity.user,
        link is not None,
        None if link is None else link.name,
        session.away_since if link is None else link.connected_at,
        "5" if session.version == V5 else "3.1.1",
        len(session.subscriptions),
        len(session.queue),
        session.queue_bytes,
        len(session.inflight),
        session.expiry_s,
    )


def queues(view: BrokerView, count: int) -> list[QueueView]:
    """The longest queues, and those with notifications in flight, the longest first."""
    waiting = (one for one in view.sessions.values() if one.queue or one.inflight)
    longest = heapq.nlargest(count, waiting, key=lambda one: (len(one.queue), len(one.inflight)))
    return [queue_view(one, view.now) for one in longest]


def queue_view(session: Session, now: float) -> QueueView:
    """The queue of a session."""
    oldest = now
    if session.inflight:
        oldest = next(iter(session.inflight.values())).publication.at
    elif session.queue:
        oldest = session.queue[0].publication.at
    return QueueView(
        session.client_id,
        session.identity.user,
        session.link is not None,
        len(session.queue),
        session.queue_bytes,
        round(max(0.0, now - oldest), 3),
        len(session.inflight),
    )


def subscriptions(sessions: Iterable[Session], after: int, count: int) -> Page[SubscriptionView]:
    """Subscriptions of these sessions, by number."""
    later = (
        one for session in sessions for one in session.subscriptions.values() if one.number > after
    )
    found = heapq.nsmallest(count + 1, later, key=lambda one: one.number)
    more = found[count - 1].number if len(found) > count else None
    return Page([subscription_view(one) for one in found[:count]], more)


def subscription_view(one: Subscription) -> SubscriptionView:
    """One subscription."""
    text, evolve, engine = "", "", "broker"
    me: dict[str, object] = {}
    interest = one.interest
    if interest is not None:
        text, evolve, engine = interest.text, interest.evolve_text, interest.engine
        me = one.session.me if interest.uses_me else {}
    topic = one.topic_filter if one.group is None else f"$share/{one.group}/{one.topic_filter}"
    return SubscriptionView(
        one.number,
        one.session.client_id,
        one.session.identity.user,
        topic,
        text,
        evolve,
        one.qos,
        one.identifier,
        one.no_local,
        one.retain_as_published,
        one.accepted_at,
        engine,
        me,
        "" if one.slot is None else one.slot.agent.policy.text,
    )


def policies(
    view: PoliciesView, count: int, now: float, clients: Container[str] | None, *, is_short: bool
) -> PoliciesView:
    """Those of some clients only, and no more than so many; what is summed stays as it is."""
    found = view.policies
    if clients is not None:
        found = [one for one in found if one.client_id in clients]
        suspended = sum((one.suspended_until or 0.0) > now for one in found)
        view = msgspec.structs.replace(view, count=len(found), suspended=suspended)
    found = found[:count]
    if is_short:
        found = [msgspec.structs.replace(one, text="") for one in found]
    return msgspec.structs.replace(view, policies=found)
