"""Subscriptions over HTTP: for an event stream, or for a session.

A session can be prepared before its client connects: its subscriptions are made and ended as
resources, notifications queue, and the client gets them once it connects under that name, by MQTT
or by `/subscribe?session=`. This module connects under the client's name for as long as that takes.
If the client is connected by MQTT the request is refused, because it would be disconnected; it can
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


class SubscriptionRequest(msgspec.Struct, frozen=True):
    """A request to subscribe."""

    topics: list[str]
    filter: str | None = None
    evolve: str | None = None
    engine: str | None = None
    qos: int = 0
    me: str | None = None
    session: str | None = None
    session_expiry_s: int = 0
    """0 if not given: that of the session, or `SESSION_EXPIRY_S`."""
    identifier: int = 0
    policy: str | None = None

    @property
    def properties(self) -> Properties:
        """The properties of a SUBSCRIBE."""
        named = (
            ("filter", self.filter),
            ("evolve", self.evolve),
            ("engine", self.engine),
            ("policy", self.policy),
        )
        user = tuple((name, value) for name, value in named if value is not None)
        ids = (self.identifier,) if self.identifier else ()
        return Properties(user=user, subscription_ids=ids)

    def is_made_by(self, one: Subscription, topic: str) -> bool:
        """Whether a subscription is the one that is requested for a topic."""
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


def request_in_query(query: Query) -> SubscriptionRequest:
    """The request in the parameters of `/subscribe`."""
    session = query.text("session")
    topics = query.texts("topic")
    if not topics and not session:
        raise HttpError(400, "there is no topic", "GET /subscribe?topic=air/%23 (%23 is #)")
    if session == "":
        raise HttpError(400, "session is empty", "give it a name, or leave it out")
    me = query.text("me")
    if me is not None:
        read_json(me.encode(), dict[str, Any])
    return SubscriptionRequest(
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


def request_in_body(session: str, body: SubscriptionBody) -> SubscriptionRequest:
    """The request in a body."""
    for name in ("topic", "filter", "evolve", "engine", "policy"):
        fault = text_fault(getattr(body, name) or "")
        if fault is not None:
            raise HttpError(400, f"{name} {fault}")
    highest = {"qos": 2, "identifier": IDENTIFIER_MAX, "session_expiry_s": EXPIRY_S_MAX}
    for name, high in highest.items():
        value = getattr(body, name)
        if not 0 <= value <= high:
            raise HttpError(400, f"{name} is {value}", f"it is a number from 0 to {high}")
    return SubscriptionRequest(
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


async def begin(shell: Shell, subscriber: EventStreamClient, request: SubscriptionRequest) -> None:
    """Connect the client of a stream, set its variables, and subscribe."""
    await subscriber.connect(
        request.session or "",
        clean_start=request.session is None,
        expiry_s=_expiry(shell, request.session, request.session_expiry_s)
        if request.session
        else 0,
        receive_max=INFLIGHT_MAX,
    )
    if request.me is not None:
        await subscriber.publish(Publish("$rove/me", request.me.encode(), 1))
    await _subscribe(shell, subscriber, request)


async def _subscribe(shell: Shell, client: InProcessClient, request: SubscriptionRequest) -> None:
    """Make missing subscriptions; existing ones stay, because making them again restarts them."""
    session = shell.broker.view.sessions.get(client.client_id)
    there = list(session.subscriptions.values()) if session is not None else []
    missing = [
        topic
        for topic in request.topics
        if not any(request.is_made_by(one, topic) for one in there)
    ]
    if missing:
        filters = tuple(
            Filter(topic, request.qos, retain_handling=RETAINED_IF_NEW) for topic in missing
        )
        await client.subscribe(filters, request.properties)


# --- sessions -------------------------------------------------------------------------------------


async def add(shell: Shell, identity: Identity, request: SubscriptionRequest) -> Subscription:
    """Add a subscription to a session, which is made if missing."""
    assert request.session is not None
    expiry_s = _expiry(shell, request.session, request.session_expiry_s)
    client, is_ours = await _client(shell, identity, request.session, expiry_s)
    try:
        await _subscribe(shell, client, request)
        session = shell.broker.view.sessions[client.client_id]
        return next(
            one
            for one in session.subscriptions.values()
            if request.is_made_by(one, request.topics[0])
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
    """Set the policy of a session or one of its subscriptions; an empty text removes it."""
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
    """End a session; its client is disconnected."""
    _session(shell, client_id)
    client = InProcessClient(shell, "http", identity)
    await client.connect(client_id, clean_start=True)
    client.disconnect()


def _expiry(shell: Shell, client_id: str, requested_s: int) -> int:
    session = shell.broker.view.sessions.get(client_id)
    return requested_s or (session.expiry_s if session is not None else 0) or SESSION_EXPIRY_S


def _session(shell: Shell, client_id: str) -> Session:
    session = shell.broker.view.sessions.get(client_id)
    if session is None:
        raise HttpError(404, f"there is no session {client_id!r}", "GET /clients lists them")
    return session


async def _client(
    shell: Shell, identity: Identity, client_id: str, expiry_s: int
) -> tuple[InProcessClient, bool]:
    """A client with the id of a session, and whether the caller has to disconnect it."""
    session = shell.broker.view.sessions.get(client_id)
    if session is not None and session.link is not None:
        if session.identity.user != identity.user:
            raise HttpError(403, "this client id belongs to another user")
        if isinstance(session.link.peer, EventStreamClient):
            return session.link.peer, False
        raise HttpError(409, f"{client_id} is connected by MQTT", "it can do this itself")
    client = InProcessClient(shell, "http", identity)
    # It gets at most one of the waiting notifications, and acknowledges none.
    await client.connect(client_id, clean_start=False, expiry_s=expiry_s, receive_max=1)
    return client, True
