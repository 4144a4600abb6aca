"""Notifying sessions of a publication: each once, however many of its subscriptions match.

Every notification goes through `notify`, which checks the access rules, calls a policy if there is
one, and has the notification delivered and logged. Only where none of that is needed, one loop
serves many sessions (`Delivery.broadcast`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal

import msgspec

from rove.broker.context import BrokerContext
from rove.broker.notifications.delivery import Delivery
from rove.broker.policies.agents import Agents
from rove.broker.publications.publication import Publication
from rove.broker.sessions.session import Notification, PolicySlot, Session, Subscription, selection
from rove.broker.sessions.variables import Variables
from rove.broker.storage.log import PublicationLog
from rove.broker.subscriptions.router import Router
from rove.broker.subscriptions.routes import NO_ROUTE, RankedHit, Recipient, TopicRoute

UNDECIDED: Final = "$rove/undecided"
_WHY: Final = {"initial": b'{"initial":true}', "promoted": b'{"promoted":true}'}
"""What the log has about notifications that come later than their publication."""


@dataclass(eq=False, repr=False)
class Notifier:
    """Turns matches into notifications."""

    _context: BrokerContext
    _router: Router
    _delivery: Delivery
    _agents: Agents
    _variables: Variables
    _log: PublicationLog

    # -- at once -------------------------------------------------------------------------------

    def notify_all(
        self, publication: Publication, matched: Sequence[Subscription], route: TopicRoute
    ) -> int:
        """Notify all matching sessions, each once; returns how many."""
        context = self._context
        if context.brokers and self._concerns_brokers(publication):
            return self._notify_network(publication, matched, route)
        if matched or route.groups:
            return self._notify_merged(publication, matched, route)
        count = 0
        for target in route.separate:
            count += self._notify_target(publication, target)
        if not (publication.retain or context.is_guarded or self._log.keeps_notifications):
            return count + self._delivery.broadcast(publication, route.targets, context.now)
        for target in route.targets:
            count += self._notify_target(publication, target)
        return count

    def _concerns_brokers(self, publication: Publication) -> bool:
        """Whether a publication came from another broker, or goes to all of them."""
        is_kept = publication.retain or publication.valid_until is not None
        return bool(publication.origin) or is_kept

    def _notify_network(
        self, publication: Publication, matched: Sequence[Subscription], route: TopicRoute
    ) -> int:
        """Notify of a publication to which subscriptions of other brokers do not matter.

        One that came from another broker goes to no third one: its origin has a connection to each.
        If it was chosen for a shared subscription, it goes to one member of that and to nobody
        else. Publications that are kept go to all brokers.
        """
        group = publication.group
        matched = [
            one
            for one in matched
            if not one.session.broker and (not publication.origin or _group_of(one) == group)
        ]
        if publication.origin:
            groups = [one for one in route.groups if one.name == group]
            targets = route if group is None else NO_ROUTE
        else:
            groups, targets = route.groups, route
        local = TopicRoute(
            targets.targets,
            [one for one in targets.separate if not one.session.broker],
            groups,
            route.filters,
        )
        count = self._notify_merged(publication, matched, local)
        if not publication.origin:
            count += self.notify_brokers(publication)
        return count

    def notify_brokers(self, publication: Publication) -> int:
        """Forward a publication to all other brokers; returns to how many it may go."""
        count = 0
        for session in self._context.brokers.values():
            count += self.notify(Notification(session, publication, 2, False, ()))
        return count

    def _notify_target(self, publication: Publication, found: Recipient) -> bool:
        target = found.heard_from(publication.publisher)
        if target is None:
            return False
        retain = publication.retain and target.keeps_retain
        one = Notification(
            target.session, publication, target.qos, retain, target.ids, numbers=target.numbers
        )
        return self.notify(one, target.slot)

    def _notify_merged(
        self, publication: Publication, matched: Sequence[Subscription], route: TopicRoute
    ) -> int:
        """The same if expressions or shared groups match: first collect them by session."""
        by_place: dict[Session | PolicySlot, list[Subscription]] = {}
        shared: dict[tuple[str, str], list[Subscription]] = {}
        # There may be thousands, nearly all with one matching expression: one pass.
        for one in matched:
            if one.group is not None:
                shared.setdefault((one.group, one.topic_filter), []).append(one)
            elif not (one.no_local and publication.publisher == one.session.client_id):
                place = one.slot or one.session
                if place in by_place:
                    by_place[place].append(one)
                else:
                    by_place[place] = [one]
        for group in route.groups:
            is_forwarded = bool(publication.origin)
            without_expression = [
                one
                for one in group.members
                if one.interest is None and not (is_forwarded and one.session.broker)
            ]
            shared.setdefault(group.name, []).extend(without_expression)
        count = 0
        for target in chain(route.separate, route.targets):
            own = by_place.pop(target.slot or target.session, None)
            if own is None:
                count += self._notify_target(publication, target)
            else:
                count += self._notify_met(publication, own, target)
        for subscriptions in by_place.values():
            count += self._notify_met(publication, subscriptions)
        for candidates in shared.values():
            # One member of each group is notified.
            count += self._notify_met(publication, [self._router.pick(candidates)])
        return count

    def _notify_met(
        self,
        publication: Publication,
        subscriptions: list[Subscription],
        target: Recipient | None = None,
    ) -> bool:
        """Notify one session for all of its matching subscriptions."""
        one = self._merged(publication, subscriptions)
        if publication.retain and any(each.retain_as_published for each in subscriptions):
            one.retain = True
        if target is not None:
            target = target.heard_from(publication.publisher)
        if target is not None:
            one.ids += target.ids
            one.numbers += target.numbers
            one.qos = max(one.qos, target.qos)
            one.retain = one.retain or (publication.retain and target.keeps_retain)
            one.select = None
        return self.notify(one, subscriptions[0].slot)

    def _merged(self, publication: Publication, met: list[Subscription]) -> Notification:
        """One notification for several subscriptions of a session."""
        first = met[0]
        if len(met) == 1:
            ids: tuple[int, ...] = (first.identifier,) if first.identifier else ()
            numbers: tuple[int, ...] = (first.number,)
            qos = first.qos
            # The common case: one subscription, and its own selection.
            select = None if first.interest is None else first.interest.parsed.select
        else:
            ids = tuple([one.identifier for one in met if one.identifier])
            # The QoS of the publication is the upper bound anyway.
            qos = max([one.qos for one in met]) if publication.qos else 0
            numbers = tuple([one.number for one in met]) if self._log.keeps_notifications else ()
            select = selection(met)
        return Notification(first.session, publication, qos, False, ids, select, numbers)

    # -- later ---------------------------------------------------------------------------------

    def promote(self, hits: Iterable[RankedHit]) -> None:
        """Notify of publications that were promoted in a window, each as a step."""
        for hit in hits:
            owner = hit.subscription.session
            self._context.faults.attempt(
                "promotion", self._promote, hit, link=owner.link, client=owner.client_id
            )

    def _promote(self, hit: RankedHit) -> None:
        one, publication = hit.subscription, hit.publication
        own = one.no_local and publication.publisher == one.session.client_id
        if not own and not publication.is_over(self._context.now):
            self.notify_later(publication, one, why="promoted")

    def notify_later(
        self,
        publication: Publication,
        one: Subscription,
        retain: bool = False,
        *,
        why: Literal["initial", "promoted"],
    ) -> None:
        """Notify a subscription later: of a kept publication, or of a promoted one."""
        self.notify_behind(publication, [one], _WHY[why], retain=retain)

    def notify_behind(
        self,
        publication: Publication,
        subscriptions: list[Subscription],
        why: bytes,
        *,
        retain: bool = False,
    ) -> None:
        """Notify one session, after what waits for this turn's commit; `why` is for the log."""
        slot = subscriptions[0].slot
        others = [one for one in subscriptions if one.slot is not slot]
        if others:
            # Subscriptions with a policy of their own are notified separately.
            subscriptions = [one for one in subscriptions if one.slot is slot]
            self.notify_behind(publication, others, why, retain=retain)
        one = self._merged(publication, subscriptions)
        one.retain, one.why, one.waits = retain, why, True
        self.notify(one, slot)

    def tell_undecided(self, passed_over: Sequence[Subscription]) -> None:
        """Report to subscribers that a publication could not be matched with their patterns.

        Trying patterns on a long string takes steps, and their number per publication is limited
        (`rove.match.patterns`). A subscription whose pattern exceeds the limit is skipped. That
        must not be silent: it is counted, logged once per batch, and reported to the subscriber.
        """
        context = self._context
        context.counters.matches_undecided += len(passed_over)
        first = passed_over[0]
        context.note(
            "warning",
            "patterns took too many steps",
            subscriptions=len(passed_over),
            client=first.session.client_id,
            filter=first.topic_filter,
        )
        for one in passed_over:
            facts = {
                "subscription": one.identifier,
                "filter": one.topic_filter,
                "reason": "a publication was too long for the patterns that are tried on it",
            }
            self._variables.tell(one.session, UNDECIDED, msgspec.json.encode(facts))

    # -- every notification --------------------------------------------------------------------

    def notify(self, one: Notification, slot: PolicySlot | None = None) -> bool:
        """Notify a session; False if the access rules forbid it.

        `slot` is the policy of the matching subscriptions, if they have one of their own.
        """
        context, session = self._context, one.session
        if context.is_guarded and not context.rules.may_receive(
            session.identity, one.publication.topic
        ):
            return False
        if session.subscriber is not None:
            self._agents.notify(one, slot)
            return True
        self._delivery.deliver(one, context.now)
        if self._log.keeps_notifications and not session.broker:
            self._log.notified(one, one.why, context.now)
        return True


def _group_of(one: Subscription) -> tuple[str, str] | None:
    """The shared subscription that this is a member of."""
    return None if one.group is None else (one.group, one.topic_filter)
