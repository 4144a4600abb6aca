"""The router holds all subscriptions, and knows the route of every topic.

Subscriptions without a filter expression are found by their topic filters, in a tree; the answer
for a topic, its *route*, is cached until a subscription changes. Subscriptions with an expression
are in an index (`rove.broker.subscriptions.expression_index`); a route has only the numbers of
their topic filters. So a topic without expressions costs one lookup. Of subscriptions that Spark
serves, only the numbers are kept here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from rove.broker.sessions.session import PolicySlot, Session, Subscription
from rove.broker.steps import Steps
from rove.broker.subscriptions.expression_index import ExpressionIndex
from rove.broker.subscriptions.interest import Interest
from rove.broker.subscriptions.routes import Recipient, TopicRoute
from rove.broker.subscriptions.shared_groups import SharedGroup
from rove.lang.errors import LanguageError
from rove.mqtt.topic_trees import FilterTree
from rove.mqtt.topics import has_wildcards

ROUTES_MAX = 50_000
"""Topics whose routes are cached, at about 300 bytes each and 8 per subscriber."""


class _NumberedFilter(msgspec.Struct):
    """A topic filter of subscriptions with an expression."""

    number: int
    uses: int = 0


class SubscriptionWatch(Protocol):
    """Follows all subscriptions, each change when its step has succeeded."""

    def made(self, one: Subscription) -> None:
        """A subscription was made."""

    def ended(self, one: Subscription) -> None:
        """A subscription has ended."""

    def moved(self, session: Session, changes: Mapping[str, object]) -> None:
        """Variables of a subscriber have changed, which its subscriptions use."""


class Router:
    """All subscriptions of a broker."""

    def __init__(self, steps: Steps | None = None, *, compiled: bool = True) -> None:
        self._steps = steps or Steps()
        self._is_alone = steps is None
        """Without steps of a broker, each change is a step."""
        self.expressions = ExpressionIndex(self._steps, compiled=compiled)
        self._tree: FilterTree[Subscription | SharedGroup] = FilterTree()
        self._groups: dict[tuple[str, str], SharedGroup] = {}
        self._filter_tree: FilterTree[int] = FilterTree()
        self._filters: dict[str, _NumberedFilter] = {}
        self._next_filter = 1
        self._served: dict[int, Subscription] = {}
        """Subscriptions that Spark serves."""
        self.routes: dict[str, TopicRoute] = {}
        """The cached routes, by topic; `route` finds the others."""
        self._size = 0
        self.watch: SubscriptionWatch | None = None

    def __len__(self) -> int:
        return self._size + len(self._served)

    # -- changing ------------------------------------------------------------------------------

    def add(self, new: Subscription) -> None:
        """Add a subscription; LanguageError if the matcher refuses it."""
        if not _is_live(new):
            self._steps.saves_item(self._served, new.number)
            self._served[new.number] = new
            return
        self.expressions.match_first()
        self._steps.saves(self, "_size")
        if new.interest is not None:
            self._add_expression(new, new.interest)
        else:
            self._steps.undoes(self._leave_tree, new)
            self._enter_tree(new)
        self._size += 1
        if self.watch is not None:
            self._steps.afterwards(self.watch.made, new)

    def _add_expression(self, new: Subscription, interest: Interest) -> None:
        """Add a subscription with an expression to the index."""
        new.session.spent.add(interest.cost, self._steps)
        self._number_filter(new)
        try:
            self.expressions.add(new, interest)
        except LanguageError:
            self._drop_filter(new)
            new.session.spent.add(interest.cost, self._steps, -1)
            raise
        except Exception:
            self._drop_filter(new)
            raise
        self._steps.undoes(self._unadd, new, interest)
        if new.group is not None:
            self._enter_group(new)

    def _unadd(self, new: Subscription, interest: Interest) -> None:
        """Undo adding a subscription with an expression."""
        if new.group is not None:
            self._leave_group(new)
        self.expressions.unadd(new, interest)
        self._drop_filter(new)

    def _enter_tree(self, new: Subscription) -> None:
        """Add a subscription without an expression to the tree of topic filters."""
        if new.group is not None:
            group = self._enter_group(new)
            self._tree.put(new.topic_filter, ("$share", new.group), group)
        else:
            self._tree.put(new.topic_filter, new.number, new)
        self._forget_routes(new.topic_filter)

    def _leave_tree(self, old: Subscription) -> None:
        if old.group is not None:
            self._leave_group(old)
        else:
            self._tree.remove(old.topic_filter, old.number)
        self._forget_routes(old.topic_filter)

    def _enter_group(self, new: Subscription) -> SharedGroup:
        assert new.group is not None
        name = (new.group, new.topic_filter)
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = SharedGroup(name)
        group.members[new] = None
        return group

    def remove(self, old: Subscription) -> None:
        """Remove a subscription."""
        steps = self._steps
        if not _is_live(old):
            steps.saves_item(self._served, old.number)
            del self._served[old.number]
            return
        self.expressions.match_first()
        steps.saves(self, "_size")
        self._size -= 1
        if self.watch is not None:
            steps.afterwards(self.watch.ended, old)
        if old.interest is None:
            steps.undoes(self._enter_tree, old)
            self._leave_tree(old)
            return
        if old.group is not None:
            steps.undoes(self._enter_group, old)
            self._leave_group(old)
        old.session.spent.add(old.interest.cost, self._steps, -1)
        # Removing from the index cannot be undone: it is done when the step has succeeded.
        steps.afterwards(self.expressions.remove, old, old.interest, [])
        steps.afterwards(self._drop_filter, old)
        if self._is_alone:
            steps.succeed()

    def _leave_group(self, old: Subscription) -> None:
        assert old.group is not None
        group = self._groups.get((old.group, old.topic_filter))
        if group is None or old not in group.members:
            return
        del group.members[old]
        if all(member.interest is not None for member in group.members):
            self._tree.remove(old.topic_filter, ("$share", old.group))
        if not group.members:
            del self._groups[old.group, old.topic_filter]

    def _number_filter(self, new: Subscription) -> None:
        found = self._filters.get(new.topic_filter)
        if found is None:
            number = new.filter_number or self._next_filter
            self._filter_tree.put(new.topic_filter, None, number)
            found = self._filters[new.topic_filter] = _NumberedFilter(number)
            self._next_filter = max(self._next_filter, number + 1)
            self._forget_routes(new.topic_filter)
        found.uses += 1
        new.filter_number = found.number

    def _drop_filter(self, old: Subscription) -> None:
        found = self._filters[old.topic_filter]
        if found.uses > 1:
            found.uses -= 1
            return
        self._forget_routes(old.topic_filter)
        self._filter_tree.remove(old.topic_filter, None)
        del self._filters[old.topic_filter]

    def _forget_routes(self, topic_filter: str) -> None:
        """Drop the cached routes that a change of a topic filter affects.

        Not needed when another expression of the same filter comes or goes; clients that move do
        that thousands of times.
        """
        if has_wildcards(topic_filter):
            self.routes.clear()
        else:
            self.routes.pop(topic_filter, None)

    def forget_routes(self, changed: Iterable[Subscription]) -> None:
        """Drop the cached routes of subscriptions that are treated differently from now on."""
        for one in changed:
            # The others are not in routes, or are checked each time.
            if one.interest is None and one.group is None:
                self._forget_routes(one.topic_filter)

    def set_state(
        self, session: Session, me: dict[str, object], changes: Mapping[str, object]
    ) -> None:
        """Set a subscriber's variables to `me` after these changes; its subscriptions move."""
        has_moved = self.expressions.set_state(session, me, changes)
        if has_moved and self.watch is not None:
            self._steps.afterwards(self.watch.moved, session, changes)

    # -- finding -------------------------------------------------------------------------------

    def route(self, topic: str) -> TopicRoute:
        """The subscriptions without an expression, and the topic filters of those with one."""
        route = self.routes.get(topic)
        if route is None:
            if len(self.routes) >= ROUTES_MAX:
                self.routes.clear()
            route = self.routes[topic] = self._new_route(topic)
        return route

    def _new_route(self, topic: str) -> TopicRoute:
        by_place: dict[Session | PolicySlot, list[Subscription]] = {}
        groups: list[SharedGroup] = []
        for found in self._tree.find(topic):
            if isinstance(found, SharedGroup):
                groups.append(found)
            else:
                by_place.setdefault(found.slot or found.session, []).append(found)
        targets: list[Recipient] = []
        separate: list[Recipient] = []
        for subscriptions in by_place.values():
            session = subscriptions[0].session
            is_separate = session.subscriber is not None or session.broker
            (separate if is_separate else targets).append(Recipient(subscriptions))
        return TopicRoute(targets, separate, groups, self._filter_tree.find(topic))

    def served(self, number: int) -> Subscription | None:
        """The subscription that Spark serves, of that number."""
        return self._served.get(number)

    def pick(self, candidates: Sequence[Subscription]) -> Subscription:
        """The member of a shared group that gets a publication."""
        first = candidates[0]
        assert first.group is not None
        return self._groups[first.group, first.topic_filter].pick(candidates)


def _is_live(subscription: Subscription) -> bool:
    return subscription.interest is None or subscription.interest.is_live
