"""SUBSCRIBE and UNSUBSCRIBE, and the initial delivery to a new subscription.

Each topic filter of a packet is granted or refused by itself. A refusal never costs the
connection: its reason code is in the acknowledgement, its explanation in the reason string and in
the log.

A new subscription gets the retained publications on its topics (as its retain handling says) and
those that are still valid there, as far as its filter expression matches. Ranked subscriptions and
those that Spark serves get only later publications. If many publications are kept, they are
searched a part at a time, so that other clients do not wait. The acknowledgement then comes at the
end: a subscriber that has it has missed nothing, even if the broker crashes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, repeat
from typing import NamedTuple

from rove.broker.access import filters_overlap
from rove.broker.context import BrokerContext
from rove.broker.notifications.notifier import Notifier
from rove.broker.policies.agents import Agents
from rove.broker.publications.publication import Publication
from rove.broker.publications.retained_store import RetainedStore
from rove.broker.sessions.session import Link, Session, Subscription
from rove.broker.sessions.variables import ME, Variables
from rove.broker.storage.log import SubscriptionLog
from rove.broker.storage.records import encoded
from rove.broker.subscriptions.interest import (
    Interest,
    expression_fault,
    interest_in,
    interest_of,
    key_of,
    session_fault,
    split_expression,
)
from rove.broker.subscriptions.router import Router
from rove.broker.user_properties import SUBSCRIBE_NAMES, UNSUBSCRIBE_NAMES, misspelt, user_property
from rove.lang.costs import NO_COST
from rove.lang.errors import LanguageError
from rove.lang.normal_form import NormalForm, holds, normalise, parts_of
from rove.mqtt.packets import (
    NO_PROPERTIES,
    Filter,
    Properties,
    Reason,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from rove.mqtt.topics import filter_fault, split_shared
from rove.policy.compiler import Policy
from rove.policy.errors import PolicyError

IDENTIFIER_PROPERTY = "subscription"
"""Of an UNSUBSCRIBE: only the subscription with this identifier."""
ACCEPTED_AT = "accepted-at"
BROKER_SUBSCRIBE_NAMES = (*SUBSCRIBE_NAMES, ACCEPTED_AT)
STALE = "$rove/stale"
"""Another broker unsubscribes from this when it has repeated all its subscriptions."""
RETAINED_IF_NEW, RETAINED_NEVER = 1, 2
KEPT_AT_ONCE = 2_000
"""Publications that are searched in one part: some 10 ms."""
PREDICATES_PER_LOOK = 8
"""Predicates of an expression that take as long as finding a publication."""


class _Refused(Exception):
    """Why a topic filter is not granted."""

    def __init__(self, reason: int, text: str) -> None:
        super().__init__(reason, text)
        self.reason = reason
        self.text = text


_Match = tuple[Publication, Subscription, bool]


class _InitialDelivery(NamedTuple):
    """Kept publications still to be delivered to new subscriptions, and the SUBACK after them."""

    link: Link
    acknowledgement: bytes
    matches: Iterator[_Match | None]


@dataclass(eq=False, repr=False)
class SubscribeHandler:
    """Makes and ends subscriptions."""

    _context: BrokerContext
    _router: Router
    _retained: RetainedStore
    _variables: Variables
    _agents: Agents
    _notifier: Notifier
    _log: SubscriptionLog

    def __post_init__(self) -> None:
        self._giving: deque[_InitialDelivery] = deque()

    # -- making --------------------------------------------------------------------------------

    def subscribe(self, session: Session, link: Link, packet: Subscribe) -> None:
        """Grant what can be granted, acknowledge, then deliver what is kept."""
        context = self._context
        reasons: list[int] = []
        texts: list[str] = []
        made_here: list[tuple[Subscription, Filter, bool]] = []
        for asked in packet.filters:
            try:
                made, is_new = self._granted(session, link, asked, packet.properties)
            except _Refused as refused:
                context.counters.subscriptions_refused += 1
                context.note(
                    "warning",
                    "subscription refused",
                    client=session.client_id,
                    filter=asked.topic_filter,
                    reason=refused.text,
                )
                reasons.append(refused.reason)
                texts.append(refused.text)
                continue
            reasons.append(made.qos)
            made_here.append((made, asked, is_new))
        properties = NO_PROPERTIES
        if texts and link.wants_problems:
            properties = link.explained("; ".join(dict.fromkeys(texts)))
        data = link.encoded(Suback(packet.packet_id, tuple(reasons), properties))
        kept = _InitialDelivery(
            link, data or b"", self._first_matches(made_here, context.next_publication)
        )
        if not self._give(kept, is_first=True):
            context.steps.undoes(self._giving.remove, kept)
            self._giving.append(kept)
        for made, _, _ in made_here:
            self._greet(made)

    def _give(self, kept: _InitialDelivery, *, is_first: bool = False) -> bool:
        """Deliver the next part of what is kept; True if that was all."""
        part = list(islice(kept.matches, KEPT_AT_ONCE))
        is_all = len(part) < KEPT_AT_ONCE
        if is_all and is_first:
            self._context.gate.send_after_commit(kept.link, kept.acknowledgement)
        for found in part:
            if found is not None:
                self._notifier.notify_later(*found, why="initial")
        if is_all and not is_first:
            self._context.gate.send_after_commit(kept.link, kept.acknowledgement)
        return is_all

    def _greet(self, made: Subscription) -> None:
        """Send a client its variables if it has subscribed to them."""
        if made.topic_filter == ME:
            self._variables.tell_variables(made.session)

    @property
    def is_giving(self) -> bool:
        """Whether any client waits for the next part of an initial delivery."""
        return bool(self._giving)

    def go_on(self) -> None:
        """Deliver one part to the next client that waits: many take no longer than one."""
        if self._giving:
            kept = self._giving.popleft()
            attempt = self._context.faults.attempt
            attempt("kept publications", self._give_next, kept, link=kept.link)

    def _give_next(self, kept: _InitialDelivery) -> None:
        if not self._give(kept):
            self._giving.append(kept)

    def _granted(
        self, session: Session, link: Link, asked: Filter, properties: Properties
    ) -> tuple[Subscription, bool]:
        """Make the subscription for a topic filter; also returns whether there was none before."""
        context = self._context
        names = BROKER_SUBSCRIBE_NAMES if session.broker else SUBSCRIBE_NAMES
        if properties.user and (wrong := misspelt(properties.user, names)) is not None:
            raise _Refused(Reason.IMPLEMENTATION_SPECIFIC_ERROR, wrong)
        interest = self._interest(link, asked, properties)
        accepted_at = context.now
        if session.broker:
            accepted_at = _accepted_at(properties, link, context.now)
        policy = self._policy(session, properties)
        topic_filter = asked.topic_filter
        if interest is not None and link.is_v311:
            topic_filter = split_expression(topic_filter)[0]
        self._check(session, topic_filter)
        if interest is not None and not interest.is_live:
            self._check_served(topic_filter)
        identifiers = properties.subscription_ids
        identifier = identifiers[0] if identifiers else 0
        old = session.subscriptions.get(key_of(asked.topic_filter, identifier, interest))
        if old is None:
            self._check_room(session)
        self._check_cost(session, interest, old)
        number = context.next_subscription
        made = Subscription(number, session, asked, identifier, interest, accepted_at)
        try:
            # Add the new one first: if it is refused after all, the old one stays.
            self._router.add(made)
        except LanguageError as error:
            raise _Refused(Reason.IMPLEMENTATION_SPECIFIC_ERROR, str(error)) from None
        context.next_subscription += 1
        self._log.made(made, context.now)
        context.steps.saves_item(session.subscriptions, made.key)
        if old is not None:
            self._agents.take_over(old, made, policy)
            self._end(old)
        session.subscriptions[made.key] = made
        if policy is not None and made.slot is None:
            self._agents.set_policy(session, policy, made)
        if session.is_durable:
            context.gate.changes.put("subscriptions", number, encoded(made.row()))
        context.counters.subscriptions_made += 1
        return made, old is None

    def _interest(self, link: Link, asked: Filter, properties: Properties) -> Interest | None:
        try:
            if link.is_v5:
                return interest_of(properties) if properties.user else None
            if self._context.settings.topic_text:
                text = split_expression(asked.topic_filter)[1]
                return None if text is None else interest_in(text)
        except LanguageError as error:
            raise _Refused(Reason.IMPLEMENTATION_SPECIFIC_ERROR, str(error)) from None
        return None

    def _policy(self, session: Session, properties: Properties) -> Policy | None:
        text = user_property(properties, "policy")
        try:
            return None if text is None else self._agents.compiler.compiled(text, session)
        except PolicyError as error:
            raise _Refused(Reason.IMPLEMENTATION_SPECIFIC_ERROR, str(error)) from None

    def _check(self, session: Session, topic_filter: str) -> None:
        context = self._context
        fault = filter_fault(topic_filter)
        if fault is not None:
            raise _Refused(Reason.TOPIC_FILTER_INVALID, fault)
        levels_max = context.limits.topic_levels_max
        if topic_filter.count("/") >= levels_max:
            raise _Refused(Reason.TOPIC_FILTER_INVALID, f"more than {levels_max} levels")
        # An entry of another broker may be wider than what may cross: its topics are checked when
        # they are delivered.
        is_entry = bool(session.broker) and not topic_filter.startswith("$")
        if not is_entry and not context.rules.allowed(session.identity, "subscribe", topic_filter):
            raise _Refused(Reason.NOT_AUTHORIZED, f"subscribing to {topic_filter} is not allowed")

    def _check_served(self, topic_filter: str) -> None:
        """Refuse what Spark could not serve, because it is not in the lake."""
        settings = self._context.settings
        if not settings.keeps_subscriptions:
            what = "engine = spark needs a lake with subscriptions, and this broker keeps none"
        elif split_shared(topic_filter) is not None:
            what = "a shared subscription cannot be served by Spark; leave out engine, or $share"
        elif not any(
            "publications" in channel.keep and filters_overlap(kept, topic_filter)
            for channel in settings.channels
            for kept in channel.topics
        ):
            what = f"engine = spark: no channel of the lake keeps publications on {topic_filter}"
        else:
            return
        raise _Refused(Reason.IMPLEMENTATION_SPECIFIC_ERROR, what)

    def _check_room(self, session: Session) -> None:
        limits = self._context.limits
        if (
            not session.broker
            and len(session.subscriptions) >= limits.subscriptions_per_session_max
        ):
            what = f"more than {limits.subscriptions_per_session_max} subscriptions of one session"
        elif len(self._router) >= limits.subscriptions_max:
            what = f"more than {limits.subscriptions_max} subscriptions"
        else:
            return
        self._context.counters.quota_hits += 1
        raise _Refused(Reason.QUOTA_EXCEEDED, what)

    def _check_cost(
        self, session: Session, interest: Interest | None, old: Subscription | None
    ) -> None:
        if interest is None or not interest.is_live or session.broker:
            return
        limits = self._context.limits
        freed = NO_COST if old is None or old.interest is None else old.interest.cost
        fault = expression_fault(interest.cost, limits) or session_fault(
            interest.cost, freed, session.spent, limits
        )
        if fault is not None:
            self._context.counters.quota_hits += 1
            raise _Refused(Reason.QUOTA_EXCEEDED, fault)

    # -- initial delivery ----------------------------------------------------------------------

    def _first_matches(
        self, made_here: list[tuple[Subscription, Filter, bool]], last: int
    ) -> Iterator[_Match | None]:
        """The kept publications that new subscriptions match; None for each that they do not.

        An expression with many predicates gives more of these, so that a part takes no longer.
        Publications after the number `last` are skipped: they were routed.
        """
        for made, asked, is_new in made_here:
            if not _looks_back(made):
                continue
            form, more = None, 0
            for publication, retained in self._kept(made, asked, is_new):
                if made.session.subscriptions.get(made.key) is not made:
                    break
                if form is None and made.interest is not None:
                    form = normalise(made.interest.parsed)
                    more = sum(map(parts_of, form.conjunctions)) // PREDICATES_PER_LOOK
                if publication.number > last or not _meets(made, publication, form):
                    yield None
                else:
                    yield publication, made, retained
                yield from repeat(None, more)

    def _kept(
        self, made: Subscription, asked: Filter, is_new: bool
    ) -> Iterator[tuple[Publication, bool]]:
        """The kept publications on the topics of a subscription, and whether each is retained."""
        context = self._context
        retained_ones: set[Publication] = set()
        if asked.retain_handling != RETAINED_NEVER and (
            is_new or asked.retain_handling != RETAINED_IF_NEW
        ):
            for publication in self._retained.find_retained(made.topic_filter, context.now):
                retained_ones.add(publication)
                yield publication, True
        for publication in self._retained.find_valid(made.topic_filter, context.now):
            if publication not in retained_ones:
                yield publication, False

    # -- ending --------------------------------------------------------------------------------

    def unsubscribe(self, session: Session, link: Link, packet: Unsubscribe) -> None:
        """End the subscriptions with these topic filters, or those of one identifier."""
        wrong = misspelt(packet.properties.user, UNSUBSCRIBE_NAMES)
        if session.broker and STALE in packet.topic_filters:
            self._end_stale(session, link)
            reasons = [Reason.SUCCESS]
        elif wrong is not None:
            reasons = [Reason.IMPLEMENTATION_SPECIFIC_ERROR] * len(packet.topic_filters)
        else:
            only = user_property(packet.properties, IDENTIFIER_PROPERTY)
            reasons = self._end_asked(session, packet, only)
        properties = NO_PROPERTIES
        if wrong is not None and link.wants_problems:
            properties = link.explained(wrong)
        data = link.encoded(Unsuback(packet.packet_id, tuple(reasons), properties))
        if data is not None:
            self._context.gate.send_after_commit(link, data)

    def _end_asked(self, session: Session, packet: Unsubscribe, only: str | None) -> list[Reason]:
        """A reason for each topic filter."""
        reasons = []
        for topic_filter in packet.topic_filters:
            ending = [
                one
                for key, one in session.subscriptions.items()
                if key[0] == topic_filter and (only is None or str(one.identifier) == only)
            ]
            for one in ending:
                self._context.steps.saves_item(session.subscriptions, one.key)
                del session.subscriptions[one.key]
                self._end(one)
            reasons.append(Reason.SUCCESS if ending else Reason.NO_SUBSCRIPTION_EXISTED)
        return reasons

    def _end_stale(self, session: Session, link: Link) -> None:
        """End the subscriptions of another broker that it has not repeated on this connection."""
        for key, one in list(session.subscriptions.items()):
            if one.number < link.first_subscription:
                self._context.steps.saves_item(session.subscriptions, key)
                del session.subscriptions[key]
                self._end(one)

    def end_all(self, session: Session) -> None:
        """End all subscriptions of a session."""
        for one in session.subscriptions.values():
            self._end(one)
        self._context.steps.saves(session, "subscriptions")
        session.subscriptions = {}

    def _end(self, old: Subscription) -> None:
        self._agents.ended(old)
        self._router.remove(old)
        self._log.ended(old, self._context.now)
        if old.session.is_durable:
            self._context.gate.changes.delete("subscriptions", old.number)


def _accepted_at(properties: Properties, link: Link, now: float) -> float:
    """When another broker accepted a subscription, by this broker's clock."""
    text = user_property(properties, ACCEPTED_AT)
    try:
        return now if text is None else float(text) + link.offset_s
    except ValueError:
        what = f"{ACCEPTED_AT} is {text!r}; it must be seconds since 1970"
        raise _Refused(Reason.IMPLEMENTATION_SPECIFIC_ERROR, what) from None


def _looks_back(subscription: Subscription) -> bool:
    """Whether a new subscription gets kept publications; brokers have copies of them all."""
    if subscription.session.broker:
        return False
    interest = subscription.interest
    return subscription.group is None and (
        interest is None or (interest.is_live and not interest.is_ranked)
    )


def _meets(subscription: Subscription, publication: Publication, form: NormalForm | None) -> bool:
    """Whether a new subscription matches a kept publication."""
    if subscription.no_local and publication.publisher == subscription.session.client_id:
        return False
    return form is None or holds(form, publication.attributes(), 0.0, subscription.session.me)
