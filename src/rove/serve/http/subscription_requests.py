"""Subscribing over HTTP: what a request wants, for a stream or for a session that stays.

A session can be prepared without being there: its subscriptions are made and ended as a resource,
what they bring queues, and whoever then connects under its name, by MQTT or by
`/subscribe?session=`, gets it. This module connects in the client's name for as long as that
takes. A client that is connected by MQTT is left alone, for it would be thrown out: it can
subscribe itself.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rove.base.http import HttpError
from rove.base.http_answers import read_json
from rove.broker.access import Identity
from rove.broker.sessions.session import Session, Subscription
from rove.mqtt.packets import Filter, Properties, Publish
from rove.mqtt.topics import text_fault
from rove.serve.http.event_streams import INFLIGHT_MAX, EventStreamClient
from rove.serve.http.in_process import InProcessClient
from rove.serve.http.requests import Query
from rove.serve.shell import Shell

EXPIRY_S_MAX = 0xFFFF_FFFF
SESSION_EXPIRY_S = 24 * 60 * 60
IDENTIFIER_MAX = 268_435_455
RETAINED_IF_NEW = 1


class Wish(msgspec.Struct, frozen=True):
    """What a request to subscribe asks for."""

    topics: list[str]
    filter: str | None = None
    evolve: str | None = None
    engine: str | None = None
    qos: int = 0
    me: str | None = None
    session: str | None = None
    session_expiry_s: int = 0
    """0 is not said: as the session has it, or `SESSION_EXPIRY_S`."""
    identifier: int = 0
    policy: str | None = None

    @property
    def properties(self) -> Properties:
        """As a SUBSCRIBE says it."""
        named = (
            ("filter", self.filter),
            ("evolve", self.evolve),
            ("engine", self.engine),
            ("policy", self.policy),
        )
        user = tuple((name, value) for name, value in named if value is not None)
        ids = (self.identifier,) if self.identifier else ()
        return Properties(user=user, subscription_ids=ids)

    def is_met_by(self, one: Subscription, topic: str) -> bool:
        """Whether a subscription is what is wished for on a topic."""
        text, evolve, engine = "", "", "broker"
        if (interest := one.interest) is not None:
            text, evolve, engine = interest.text, interest.evolve_text, interest.engine
        policy = "" if one.slot is None else one.slot.agent.policy.text
        said = (self.filter or "", self.evolve or "", self.engine or "broker", self.policy or "")
        where = (topic, self.qos, self.identifier)
        is_there = (one.key[0], one.qos, one.identifier) == where
        return is_there and (text, evolve, engine, policy) == said


class SubscriptionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request that adds a subscription to a session."""

    topic: str
    filter: str | None = None
    evolve: str | None = None
    engine: str | None = None
    policy: str | None = None
    qos: int = 1
    identifier: int = 0
    session_expiry_s: int = 0


def wish_of(query: Query) -> Wish:
    """What the parameters of `/subscribe` ask for."""
    session = query.text("session")
    topics = query.texts("topic")
    if not topics and not session:
        raise HttpError(400, "there is no topic", "GET /subscribe?topic=air/%23 (%23 is #)")
    if session == "":
        raise HttpError(400, "session is empty", "give it a name, or leave it out")
    me = query.text("me")
    if me is not None:
        read_json(me.encode(), dict[str, Any])
    return Wish(
        topics,
        query.text("filter"),
        query.text("evolve"),
        query.text("engine"),
        query.integer("qos", 1 if session else 0, 0, 1),
        me,
        session,
        query.integer("session-expiry", 0, 1, EXPIRY_S_MAX),
        policy=query.text("policy"),
    )


def wish_in(session: str, body: SubscriptionBody) -> Wish:
    """What a body asks for."""
    for name in ("topic", "filter", "evolve", "engine", "policy"):
        fault = text_fault(getattr(body, name) or "")
        if fault is not None:
            raise HttpError(400, f"{name} {fault}")
    highest = {"qos": 2, "identifier": IDENTIFIER_MAX, "session_expiry_s": EXPIRY_S_MAX}
    for name, high in highest.items():
        value = getattr(body, name)
        if not 0 <= value <= high:
            raise HttpError(400, f"{name} is {value}", f"it is a number from 0 to {high}")
    return Wish(
        [body.topic],
        body.filter,
        body.evolve,
        body.engine,
        body.qos,
        None,
        session,
        body.session_expiry_s,
        body.identifier,
        body.policy,
    )


async def begin(shell: Shell, subscriber: EventStreamClient, wish: Wish) -> None:
    """Connect for a stream, say what the subscriber is like, subscribe."""
    await subscriber.connect(
        wish.session or "",
        clean_start=wish.session is None,
        expiry_s=_expiry(shell, wish.session, wish.session_expiry_s) if wish.session else 0,
        receive_max=INFLIGHT_MAX,
    )
    if wish.me is not None:
        await subscriber.publish(Publish("$rove/me", wish.me.encode(), 1))
    await _subscribe(shell, subscriber, wish)


async def _subscribe(shell: Shell, client: InProcessClient, wish: Wish) -> None:
    """Make what is missing; what is there goes on, as made again it would begin anew."""
    session = shell.broker.view.sessions.get(client.client_id)
    there = list(session.subscriptions.values()) if session is not None else []
    missing = [
        topic for topic in wish.topics if not any(wish.is_met_by(one, topic) for one in there)
    ]
    if missing:
        filters = tuple(
            Filter(topic, wish.qos, retain_handling=RETAINED_IF_NEW) for topic in missing
        )
        await client.subscribe(filters, wish.properties)


# --- sessions that stay ---------------------------------------------------------------------------


async def add(shell: Shell, identity: Identity, wish: Wish) -> Subscription:
    """Add a subscription to a session, which is made if there is none."""
    assert wish.session is not None
    expiry_s = _expiry(shell, wish.session, wish.session_expiry_s)
    client, is_ours = await _client(shell, identity, wish.session, expiry_s)
    try:
        await _subscribe(shell, client, wish)
        session = shell.broker.view.sessions[client.client_id]
        return next(
            one for one in session.subscriptions.values() if wish.is_met_by(one, wish.topics[0])
        )
    finally:
        if is_ours:
            client.disconnect()


async def remove(shell: Shell, identity: Identity, client_id: str, number: int) -> None:
    """End a subscription of a session."""
    session = _session(shell, client_id)
    one = next((one for one in session.subscriptions.values() if one.number == number), None)
    if one is None:
        raise HttpError(404, f"{client_id} has no subscription {number}", "GET /subscriptions")
    client, is_ours = await _client(shell, identity, client_id, session.expiry_s)
    try:
        only = Properties(user=(("subscription", str(one.identifier)),))
        await client.unsubscribe((one.key[0],), only)
    finally:
        if is_ours:
            client.disconnect()


async def set_policy(
    shell: Shell, identity: Identity, client_id: str, text: bytes, identifier: int
) -> None:
    """Give a session or one of its subscriptions a policy; an empty text takes it away."""
    if not text:
        _session(shell, client_id)
    expiry_s = _expiry(shell, client_id, 0)
    client, is_ours = await _client(shell, identity, client_id, expiry_s)
    try:
        user = (("subscription", str(identifier)),) if identifier else ()
        await client.publish(Publish("$rove/policy", text, 1, properties=Properties(user=user)))
    finally:
        if is_ours:
            client.disconnect()


async def end(shell: Shell, identity: Identity, client_id: str) -> None:
    """End a session and all that is in it; whoever is connected as it is disconnected."""
    _session(shell, client_id)
    client = InProcessClient(shell, "http", identity)
    await client.connect(client_id, clean_start=True)
    client.disconnect()


def _expiry(shell: Shell, client_id: str, wished_s: int) -> int:
    session = shell.broker.view.sessions.get(client_id)
    return wished_s or (session.expiry_s if session is not None else 0) or SESSION_EXPIRY_S


def _session(shell: Shell, client_id: str) -> Session:
    session = shell.broker.view.sessions.get(client_id)
    if session is None:
        raise HttpError(404, f"there is no session {client_id!r}", "GET /clients lists them")
    return session


async def _client(
    shell: Shell, identity: Identity, client_id: str, expiry_s: int
) -> tuple[InProcessClient, bool]:
    """A client that speaks for a session, and whether it is ours to disconnect."""
    session = shell.broker.view.sessions.get(client_id)
    if session is not None and session.link is not None:
        if session.identity.user != identity.user:
            raise HttpError(403, "this client id belongs to another user")
        if isinstance(session.link.peer, EventStreamClient):
            return session.link.peer, False
        raise HttpError(409, f"{client_id} is connected by MQTT", "it can do this itself")
    client = InProcessClient(shell, "http", identity)
    # Of what waits it is sent one notification at most, and acknowledges none.
    await client.connect(client_id, clean_start=False, expiry_s=expiry_s, receive_max=1)
    return client, True
