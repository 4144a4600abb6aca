"""Who wants what: all subscriptions, and the finding of those that a publication meets.

Subscriptions without a text are found by their topic filters alone, in a tree; what the tree
says of a topic is remembered until a subscription changes. Subscriptions with a text live in the
matcher, all in one: the topic filter becomes one more condition, `$filter = n`, with a number per
distinct filter. A publication is shown to the matcher once for each such filter that its topic
fits (rarely more than two), so a text is never tried on a topic that its subscriber did not ask
for, and a topic that no text is about costs nothing.

Ranked subscriptions have a matcher per topic filter instead: a rank without a condition is the
quickest, so none is added. It also leaves the one for all others without publications in it.

Those that Spark serves are only known here by their numbers: no publication is tried on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from rove.broker.publications import Publication
from rove.broker.sessions import Session
from rove.broker.subscriptions import Interest, Subscription
from rove.broker.targets import Target
from rove.lang.tree import And, Attribute, Comparison, Literal
from rove.lang.tree import Subscription as Text
from rove.match.designs import Counters
from rove.match.matcher import Matcher, Work
from rove.match.ranks import RankedDelivery
from rove.mqtt.topics import has_wildcards
from rove.mqtt.trees import FilterTree

FILTER_ATTRIBUTE = "$filter"
"""No name of the language begins with $, so no text can speak of it."""
HEAD_BYTES = 4096
"""A page, so that what lies behind it can be mapped."""
ROUTES_MAX = 50_000
"""Topics whose subscribers are remembered, at about 300 bytes and 8 per subscriber each."""


class Group:
    """Those who share a subscription: each publication is for one of them."""

    __slots__ = ("_turn", "members", "name")

    def __init__(self, name: tuple[str, str]) -> None:
        self.name = name
        """What its members call it, and the topic filter that they share."""
        self.members: dict[Subscription, None] = {}
        self._turn = 0

    def pick(self, candidates: Sequence[Subscription]) -> Subscription:
        """The next in turn of some members, one that is connected if any is."""
        self._turn += 1
        connected = [one for one in candidates if one.session.link is not None]
        chosen = connected or candidates
        return chosen[self._turn % len(chosen)]


class Route(msgspec.Struct):
    """What is known of a topic."""

    targets: list[Target]
    groups: list[Group]
    filters: list[int]
    """Numbers of the topic filters with texts that fit it."""


class _Filter(msgspec.Struct):
    """A topic filter that subscriptions with a text have."""

    number: int
    uses: int = 0


class Interests:
    """All subscriptions of a broker."""

    def __init__(self, *, compiled: bool = True) -> None:
        self._tree: FilterTree[Subscription | Group] = FilterTree()
        self._groups: dict[tuple[str, str], Group] = {}
        self._filter_tree: FilterTree[int] = FilterTree()
        self._filters: dict[str, _Filter] = {}
        self._next_filter = 1
        self._matcher = Matcher(compiled=compiled)
        self._compiled = compiled
        self._ranked: dict[int, Matcher] = {}
        """By the number of the topic filter."""
        self._saved: set[int] = set()
        """Numbers of those that the matcher knows from before a restart; only while restoring."""
        self._with_text: dict[int, Subscription] = {}
        self._served: dict[int, Subscription] = {}
        """Those for which Spark finds what meets them."""
        self._routes: dict[str, Route] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size + len(self._served)

    # -- changing ------------------------------------------------------------------------------

    def add(self, new: Subscription) -> None:
        """Let a subscription take part from now on; LanguageError if the matcher refuses it."""
        if not _is_live(new):
            self._served[new.number] = new
            return
        if new.interest is not None:
            self._number_filter(new)
            try:
                self._add_text(new, new.interest)
            except Exception:
                self._drop_filter(new)
                raise
            self._with_text[new.number] = new
        if new.group is not None:
            name = (new.group, new.topic_filter)
            group = self._groups.setdefault(name, Group(name))
            group.members[new] = None
            if new.interest is None:
                self._tree.put(new.topic_filter, ("$share", new.group), group)
        elif new.interest is None:
            self._tree.put(new.topic_filter, new.number, new)
        self._size += 1
        if new.interest is None:
            self._forget_routes(new.topic_filter)

    def _add_text(self, new: Subscription, interest: Interest) -> None:
        matcher = self._matcher_of(new)
        if new.number in self._saved:
            if not interest.uses_me:
                return
            # Its state may have changed since; what was saved of it is out of date.
            matcher.remove(new.number)
        matcher.add(
            new.number,
            interest.parsed if interest.is_ranked else _with_filter(new, interest),
            new.accepted_at,
            new.session.me if interest.uses_me else None,
            interest.evolve,
        )

    def remove(self, old: Subscription) -> None:
        """Let it take part no longer."""
        if not _is_live(old):
            del self._served[old.number]
            return
        if old.interest is not None:
            self._matcher_of(old).remove(old.number)
            del self._with_text[old.number]
            self._drop_filter(old)
        if old.group is not None:
            self._leave_group(old)
        elif old.interest is None:
            self._tree.remove(old.topic_filter, old.number)
        self._size -= 1
        if old.interest is None:
            self._forget_routes(old.topic_filter)

    def _leave_group(self, old: Subscription) -> None:
        assert old.group is not None
        group = self._groups[old.group, old.topic_filter]
        del group.members[old]
        if all(member.interest is not None for member in group.members):
            self._tree.remove(old.topic_filter, ("$share", old.group))
        if not group.members:
            del self._groups[old.group, old.topic_filter]

    def _matcher_of(self, subscription: Subscription) -> Matcher:
        assert subscription.interest is not None
        if not subscription.interest.is_ranked:
            return self._matcher
        found = self._ranked.get(subscription.filter_number)
        if found is None:
            found = Matcher(compiled=self._compiled)
            self._ranked[subscription.filter_number] = found
        return found

    def _number_filter(self, new: Subscription) -> None:
        found = self._filters.get(new.topic_filter)
        if found is None:
            number = new.filter_number or self._next_filter
            found = self._filters[new.topic_filter] = _Filter(number)
            self._next_filter = max(self._next_filter, number + 1)
            self._filter_tree.put(new.topic_filter, None, found.number)
            self._forget_routes(new.topic_filter)
        found.uses += 1
        new.filter_number = found.number

    def _drop_filter(self, old: Subscription) -> None:
        found = self._filters[old.topic_filter]
        found.uses -= 1
        if not found.uses:
            del self._filters[old.topic_filter]
            self._filter_tree.remove(old.topic_filter, None)
            self._ranked.pop(found.number, None)
            self._forget_routes(old.topic_filter)

    def _forget_routes(self, topic_filter: str) -> None:
        """Something about a filter has changed, and so have the routes of topics that fit it.

        Texts that share a filter come and go without that; clients that move have thousands.
        """
        if has_wildcards(topic_filter):
            self._routes.clear()
        else:
            self._routes.pop(topic_filter, None)

    @property
    def has_ranked(self) -> bool:
        """Whether there are windows at all."""
        return bool(self._ranked)

    def set_state(self, session: Session, changes: Mapping[str, object]) -> None:
        """The subscriber's `me.` variables have changed: its subscriptions move."""
        for subscription in session.subscriptions.values():
            interest = subscription.interest
            if interest is not None and interest.uses_me and interest.is_live:
                self._matcher_of(subscription).set_state(subscription.number, changes)

    # -- finding -------------------------------------------------------------------------------

    def route(self, topic: str) -> Route:
        """Who wants everything on a topic, and which filters with texts fit it."""
        route = self._routes.get(topic)
        if route is None:
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            route = self._routes[topic] = self._new_route(topic)
        return route

    def _new_route(self, topic: str) -> Route:
        by_session: dict[Session, list[Subscription]] = {}
        groups: list[Group] = []
        for found in self._tree.find(topic):
            if isinstance(found, Group):
                groups.append(found)
            else:
                by_session.setdefault(found.session, []).append(found)
        targets = [Target(subscriptions) for subscriptions in by_session.values()]
        return Route(targets, groups, self._filter_tree.find(topic))

    def match(
        self, publications: Sequence[Publication]
    ) -> tuple[dict[int, list[Subscription]], list[RankedDelivery]]:
        """Subscriptions with a text that publications meet, by position; and ranked deliveries."""
        positions: list[int] = []
        rows: list[Mapping[str, object]] = []
        at: list[float] = []
        for position, publication in enumerate(publications):
            for number in self.route(publication.topic).filters:
                positions.append(position)
                rows.append({**publication.attributes(), FILTER_ATTRIBUTE: number})
                at.append(publication.at)
        if not rows:
            return {}, []
        found: dict[int, list[Subscription]] = {}
        for row, ids in enumerate(self._matched(rows, at)):
            if ids:
                subscriptions = [self._with_text[id] for id in ids]
                found.setdefault(positions[row], []).extend(subscriptions)
        return found, self._ranks(publications) if self._ranked else []

    def _ranks(self, publications: Sequence[Publication]) -> list[RankedDelivery]:
        """What ranked subscriptions are given now; the key of a delivery is its publication."""
        ranked: list[RankedDelivery] = []
        for number, matcher in self._ranked.items():
            here = [one for one in publications if number in self.route(one.topic).filters]
            if here:
                attributes = [one.attributes() for one in here]
                ranked += matcher.match(attributes, [one.at for one in here], here).ranked
        return ranked

    def _matched(self, rows: list[Mapping[str, object]], at: list[float]) -> Iterator[list[int]]:
        if not len(self._matcher):
            return
        if len(rows) == 1:
            yield self._matcher.match_one(rows[0], at[0]).tolist()
            return
        pairs = self._matcher.match(rows, at)
        starts = pairs.starts(len(rows)).tolist()
        ids = pairs.subscriptions.tolist()
        for row in range(len(rows)):
            yield ids[starts[row] : starts[row + 1]]

    def subscription(self, number: int) -> Subscription:
        """One with a text, by its number."""
        return self._with_text[number]

    def served(self, number: int) -> Subscription | None:
        """One that Spark serves, by its number."""
        return self._served.get(number)

    def pick(self, candidates: Sequence[Subscription]) -> Subscription:
        """One of the members of a group that a publication meets."""
        first = candidates[0]
        assert first.group is not None
        return self._groups[first.group, first.topic_filter].pick(candidates)

    # -- time and upkeep -----------------------------------------------------------------------

    def advance(self, now: float) -> list[RankedDelivery]:
        """Let windows slide and designs evolve."""
        self._matcher.advance(now)
        return [one for matcher in self._ranked.values() for one in matcher.advance(now)]

    def next_change_at(self) -> float:
        """When `advance` has something to do at the latest."""
        return min(matcher.next_change_at() for matcher in self._matchers())

    def counters(self) -> Mapping[str, Counters]:
        """What each design for evolving subscriptions has done so far."""
        return self._matcher.counters()

    def merge_due(self) -> Work | None:
        """Work on the index that is to be run beside, then installed (see `Matcher`)."""
        for matcher in self._matchers():
            if (work := matcher.merge_due()) is not None:
                return work
        return None

    # -- saving --------------------------------------------------------------------------------

    def saved(self, next_subscription: int) -> bytes:
        """The index of all that are not ranked, so that a restart need not build it again.

        It begins with the number above all that it knows. Whoever loads it goes on from there, so
        a number in it never means anything else, however old it is.
        """
        head = next_subscription.to_bytes(8, "little").ljust(HEAD_BYTES, b"\0")
        return b"".join((head, *self._matcher.save()))

    def load(self, saved: bytes | memoryview) -> int:
        """Begin with an index that was saved; gives the number to go on from.

        SavedError if it is no index.
        """
        view = memoryview(saved)
        self._matcher = Matcher.load(view[HEAD_BYTES:], compiled=self._compiled)
        self._saved = self._matcher.ids()
        return int.from_bytes(view[:8], "little")

    def end_restoring(self) -> None:
        """Everything that still exists was added: what else the index knows has gone."""
        for number in self._saved - self._with_text.keys():
            self._matcher.remove(number)
        self._saved = set()

    def _matchers(self) -> tuple[Matcher, ...]:
        return self._matcher, *self._ranked.values()


def _is_live(subscription: Subscription) -> bool:
    return subscription.interest is None or subscription.interest.is_live


def _with_filter(subscription: Subscription, interest: Interest) -> Text:
    """The text, for the topics of the subscription's filter only."""
    text = interest.parsed
    here = Comparison("=", Attribute((FILTER_ATTRIBUTE,)), Literal(subscription.filter_number))
    return Text(And((here, text.condition)), text.select, text.rank)
