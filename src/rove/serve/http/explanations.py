"""`/explain`: why did a publication not reach a subscription?

Everything between the two is checked, one thing after the other. Each check reports whether the
publication passes: true, false, or null if that can no longer be known. The filter expression is
evaluated by the oracle; the policy is called to see what it would do now, unless that takes longer
than a turn allows.

The publication is one of the most recent (`BrokerView.remembered`), by its id, or is described in
the request. The subscription exists, by its number or all of a client's, or is described. The state
of the subscriber (`me.`, its queue, whether it is connected) is the present one, because no other
is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from rove.base.http import HttpError
from rove.broker.access import Identity
from rove.broker.publications.publication import RecentPublication
from rove.broker.sessions.session import Session, Subscription
from rove.broker.subscriptions.interest import Interest, interest_in
from rove.broker.views import BrokerView
from rove.lang.attributes import attributes_of
from rove.lang.errors import LanguageError
from rove.lang.explanation import Explanation, explain
from rove.mqtt.packets import Filter
from rove.mqtt.topics import filter_fault, fits, name_fault
from rove.policy.jobs import Deferred, Stopped
from rove.policy.messages import Completed, IncomingMessage
from rove.serve.http.inspection import SubscriptionView, subscription_view


class DescribedSubscription(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A subscription that is described instead of named."""

    topic: str
    filter: str | None = None
    me: dict[str, Any] | None = None


class ExplainRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request."""

    publication: str | dict[str, Any]
    """An id, or the members of a publication."""
    topic: str | None = None
    """The topic of a publication that is described."""
    subscription: int | DescribedSubscription | None = None
    client: str | None = None
    """All subscriptions of that client."""
    at: float | None = None
    """When it was published, in seconds since 1970; by default the actual time, or now."""


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """One check between a publication and a subscription."""

    check: str
    passed: bool | None
    why: str
    parts: tuple[Explanation, ...] = ()
    """Of the filter expression: every part, its truth value and why."""


class ExplainedSubscription(msgspec.Struct, frozen=True):
    """The checks of one subscription."""

    subscription: SubscriptionView
    reaches: bool | None
    """False if any check failed, null if none failed but one is not known."""
    checks: list[Check]


class ExplainedPublication(msgspec.Struct, frozen=True):
    """The publication that is checked."""

    topic: str
    attributes: Mapping[str, object] | None
    """None if its payload was too large to be remembered."""
    at: float
    remembered: RecentPublication | None = None
    arrived: IncomingMessage | None = None
    """In the form for policies; None as above."""


class ExplainResponse(msgspec.Struct, frozen=True):
    """The answer."""

    publication: dict[str, Any]
    subscriptions: list[ExplainedSubscription]


def explained(view: BrokerView, request: ExplainRequest, identity: Identity) -> ExplainResponse:
    """Explain, as far as the user's rights allow."""
    is_admin = view.may(identity, "admin")
    case = _publication(view, request, identity, is_admin)
    found = _subscriptions(view, request, identity, is_admin)
    subscriptions = [_explained(view, one, case) for one in found]
    known: dict[str, Any] = {"topic": case.topic, "at": case.at}
    if case.remembered is not None:
        one = case.remembered
        known |= {"id": one.id, "publisher": one.publisher, "notified": one.notified}
    return ExplainResponse(known, subscriptions)


# --- publication and subscription -----------------------------------------------------------------


def _publication(
    view: BrokerView, request: ExplainRequest, identity: Identity, is_admin: bool
) -> ExplainedPublication:
    if isinstance(request.publication, dict):
        if request.topic is None:
            raise HttpError(
                400, "there is no topic", "a publication that is described needs a topic"
            )
        fault = name_fault(request.topic)
        if fault is not None:
            raise HttpError(400, f"topic: {fault}")
        at = view.now if request.at is None else request.at
        arrived = IncomingMessage(request.topic, msgspec.json.encode(request.publication))
        attributes = attributes_of(arrived.topic, arrived.payload, ())
        return ExplainedPublication(request.topic, attributes, at, arrived=arrived)
    found = view.remembered(request.publication)
    if found is None or not (is_admin or view.may_receive(identity, found.topic)):
        count = view.limits.explain_publications_max
        what = f"no publication {request.publication!r} among the last {count}"
        raise HttpError(404, what, "describe it: a JSON object, and its topic")
    at = request.at or found.at
    if not isinstance(found.payload, bytes):
        return ExplainedPublication(found.topic, None, at, found)
    user = found.properties.user
    attributes = attributes_of(found.topic, found.payload, user)
    return ExplainedPublication(
        found.topic, attributes, at, found, IncomingMessage(found.topic, found.payload, user)
    )


def _subscriptions(
    view: BrokerView, request: ExplainRequest, identity: Identity, is_admin: bool
) -> list[Subscription]:
    match request:
        case ExplainRequest(subscription=DescribedSubscription() as described):
            return [_described(view, described, identity)]
        case ExplainRequest(subscription=int(number)):
            found = [one for one in _all(view) if one.number == number]
        case ExplainRequest(client=str(client)):
            session = view.sessions.get(client)
            found = [] if session is None else list(session.subscriptions.values())
        case _:
            hint = "give its number, or the name of a client, or describe one"
            raise HttpError(400, "which subscription?", hint)
    mine = identity.user is not None
    found = [
        one for one in found if is_admin or (mine and one.session.identity.user == identity.user)
    ]
    if not found:
        raise HttpError(404, "there is no such subscription", "GET /subscriptions lists them")
    return found


def _all(view: BrokerView) -> Iterator[Subscription]:
    for session in view.sessions.values():
        yield from session.subscriptions.values()


def _described(
    view: BrokerView, described: DescribedSubscription, identity: Identity
) -> Subscription:
    fault = filter_fault(described.topic)
    if fault is not None:
        raise HttpError(400, f"topic: {fault}")
    interest: Interest | None = None
    try:
        if described.filter is not None:
            interest = interest_in(described.filter)
    except LanguageError as error:
        raise HttpError(400, str(error)) from None
    session = Session("", 0, 5, 0)
    session.identity = identity
    session.me = described.me or {}
    return Subscription(0, session, Filter(described.topic, 2), 0, interest, -math.inf)


# --- the checks -----------------------------------------------------------------------------------


def _explained(
    view: BrokerView, one: Subscription, case: ExplainedPublication
) -> ExplainedSubscription:
    checks = [*_of_topic(view, one, case), *_of_expression(one, case), *_of_engine(one)]
    checks += _of_policy(view, one, case)
    if case.remembered is not None:
        checks += _of_publication(view, case.remembered)
        if one.number:
            checks += _of_delivery(view, one, case.remembered)
    passed = [check.passed for check in checks]
    reaches = False if False in passed else None if None in passed else True
    shown = subscription_view(one)
    shown.accepted_at = max(shown.accepted_at, 0.0)
    return ExplainedSubscription(shown, reaches, checks)


def _of_topic(view: BrokerView, one: Subscription, case: ExplainedPublication) -> Iterator[Check]:
    if fits(one.topic_filter, case.topic):
        yield Check("topic", True, f"{one.topic_filter} fits {case.topic}")
    else:
        yield Check("topic", False, f"{one.topic_filter} does not fit {case.topic}")
    identity = one.session.identity
    if not view.may_receive(identity, case.topic):
        who = identity.user or "the anonymous"
        yield Check("access", False, f"the access rules keep {case.topic} from {who}")
    else:
        yield Check("access", True, "the access rules allow it")
    if one.accepted_at > case.at:
        late_s = one.accepted_at - case.at
        why = f"it was published {late_s:.3f} s before the subscription was accepted"
        yield Check("time", None, f"{why}: only what was retained or valid then reached it")


def _of_expression(one: Subscription, case: ExplainedPublication) -> Iterator[Check]:
    if one.interest is None:
        yield Check("text", True, "it has no filter expression: everything on its topics matches")
        return
    if case.attributes is None:
        yield Check("text", None, "the payload was too large to be remembered")
        return
    t = 0.0 if one.accepted_at == -math.inf else max(0.0, case.at - one.accepted_at)
    matched, parts = explain(one.interest.parsed, case.attributes, t, one.session.me)
    why = "it matches" if matched else "it does not match"
    if one.interest.uses_me:
        why += ", with the variables that the subscriber has now"
    if one.interest.evolve_text not in ("", "exact"):
        why += f"; {one.interest.evolve_text} may have been a little behind"
    passed: bool | None = matched
    if matched and one.interest.is_ranked:
        passed = None
        why = "it may be among the best; only its window could tell"
    yield Check("text", passed, why, tuple(parts))


def _of_engine(one: Subscription) -> Iterator[Check]:
    if one.interest is not None and not one.interest.is_live:
        why = "Spark serves it: it is notified when the pipeline has found it in the lake"
        yield Check(
            "engine", None, f"{why}, seconds later; rove pipeline status shows how far it is"
        )


def _of_policy(view: BrokerView, one: Subscription, case: ExplainedPublication) -> Iterator[Check]:
    """What the policy would do now: its past decisions and their state are not kept."""
    subscriber, limits = one.session.subscriber, view.policy_limits
    slot = one.slot or (None if subscriber is None else subscriber.slot)
    if slot is None or limits is None:
        return
    agent, now = slot.agent, view.now
    whose = "its own policy" if one.slot is not None else "the policy of its session"
    if agent.suspended_until is not None and now < agent.suspended_until:
        left_s = agent.suspended_until - now
        goes_on = limits.suspended == "deliver"
        what = "everything is sent unchanged" if goes_on else "nothing is sent"
        passed = None if case.remembered is not None else goes_on
        yield Check("policy", passed, f"{whose} is suspended for another {left_s:.0f} s: {what}")
        return
    if case.arrived is None:
        yield Check("policy", None, f"{whose} decides; the payload was too large to be remembered")
        return
    result = agent.call(
        case.arrived,
        one.session.me,
        now,
        limits,
        automatic=one.session.automatic,
        results={},
        steps_max=min(limits.inline_steps_max, limits.steps_max),
    )
    sent, why = _meaning(result)
    if case.remembered is not None:
        sent, why = None, f"{why} if it came now; what it did then is not kept here"
    yield Check("policy", sent, f"{whose} {why}")


def _meaning(result: Completed | Stopped | Deferred) -> tuple[bool | None, str]:
    """The meaning of a result: whether anything is sent, and what."""
    if isinstance(result, Deferred):
        return None, "would have a picture made smaller first, and then decide"
    if isinstance(result, Stopped):
        if result.kind == "steps":
            return None, "would take too long to run here"
        at = f"line {result.line}: " if result.line else ""
        return False, f"would be stopped ({result.kind}): {at}{result.text}"
    if result.passes:
        return True, "would send it unchanged"
    if not result.outputs:
        return False, "would send nothing"
    count = len(result.outputs)
    return True, f"would send {'another message' if count == 1 else f'{count} messages'} instead"


def _of_publication(view: BrokerView, found: RecentPublication) -> Iterator[Check]:
    living = found.living()
    if living is not None and living.withdrawn:
        yield Check("withdrawn", False, "its publisher has withdrawn it")
    if found.expires_at <= view.now:
        over_s = view.now - found.expires_at
        why = f"it expired {over_s:.3f} s ago; it was not sent to anybody after that"
        yield Check("expiry", None, why)


def _of_delivery(view: BrokerView, one: Subscription, found: RecentPublication) -> Iterator[Check]:
    session = one.session
    if one.no_local and found.publisher == session.client_id:
        yield Check("no-local", False, "the subscriber wants nothing that it published itself")
    if one.group is not None:
        yield Check("group", None, f"the group {one.group} shares it: one member is notified")
    qos = min(one.qos, found.qos)
    if qos == 0 and session.link is None:
        yield Check("connection", None, "with QoS 0 nothing waits for a subscriber that is away")
    entry = _waiting(session, found)
    if entry is not None:
        yield Check("queue", None, entry)
    limits = view.limits
    if len(session.queue) >= limits.queue_messages_max:
        yield Check("queue", None, f"its queue is full; {limits.queue_overflow} applies")
    link = session.link
    size_max = None if link is None else link.packet_bytes_max
    size = found.payload if isinstance(found.payload, int) else len(found.payload)
    if size_max is not None and size > size_max:
        yield Check("size", False, f"{size} bytes; the client takes {size_max}")


def _waiting(session: Session, found: RecentPublication) -> str | None:
    """Where a publication still waits in a session, for people."""
    living = found.living()
    if living is None:
        return None
    for entry in session.inflight.values():
        if entry.publication is living:
            return "it was sent and is not acknowledged yet"
    for place, entry in enumerate(session.queue, start=1):
        if entry.publication is living:
            return f"it waits in the queue, at place {place} of {len(session.queue)}"
    return None
