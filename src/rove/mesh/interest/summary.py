"""The summary of what the subscribers of one broker want, for all other brokers.

    subscriptions ──▶ interests (without `me.`, without rank) ──▶ table ──▶ outbox ──▶ Changes
                          envelopes.py                   covering.py, merging.py   outbox.py

Every publication that matches a local subscription matches some entry of the summary, at every
moment at which its changes have been taken and applied. What matches an entry and no subscription
is a false forward: it costs its way, and is dropped where it arrives, since exact matching happens
at the subscriber's broker.

The kinds of subscriptions:

- Boolean: as it is.
- evolving: once, with its time of acceptance. `offset_error_s` widens it by what clocks may differ.
- following (`me.`): an envelope, renewed when it is about to be left.
- ranked: its condition; the window is where the subscriber is.

A shared subscription counts as its topic filter. One that can never match is not sent.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from heapq import heappop, heappush
from typing import Literal, TypeAlias

import msgspec

from rove.lang import Subscription, normalise
from rove.lang.normal_form import Conjunction, NormalForm, holds
from rove.lang.oracle import NO_STATE, Publication, State
from rove.lang.tree import Me, Time
from rove.lang.values import change_state
from rove.mesh.interest.covering import CoveringTable, Interest, PlainTable
from rove.mesh.interest.entries import Changes, Entry
from rove.mesh.interest.envelopes import Envelope
from rove.mesh.interest.merging import MergedTable
from rove.mesh.interest.outbox import Outbox, Pace
from rove.mesh.interest.regions import ALL, mentions, region_of
from rove.mesh.interest.time_error import with_time_error
from rove.mqtt.topics import fits, split_shared

Covering: TypeAlias = Literal["off", "lazy", "active", "merged"]
DEFAULT_BUDGET_BYTES = 64 * 1024
WORK_MAX = 50
"""How many subscriptions are placed anew in one call of `advance`; each takes 50 to 300 µs."""
WORK_PER_S = 2_000
"""How many are in one second: a tenth of one processor."""
_WORK_EVERY_S = 0.02
DEFAULT_PACE = Pace()


class _Local(msgspec.Struct, eq=False):
    """A subscription of this broker."""

    topic_filter: str
    form: NormalForm
    subscription: Subscription | None
    accepted_at_s: float
    subscriber: Hashable
    envelope: Envelope | None = None
    wanted: Interest | None = None


class Summary:
    """The subscriptions of a broker and the entries that stand for them."""

    def __init__(
        self,
        covering: Covering = "merged",
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
        *,
        offset_error_s: float = 0.0,
        pace: Pace = DEFAULT_PACE,
    ) -> None:
        self.covering = covering
        self._outbox = Outbox(pace)
        self._offset_error_s = offset_error_s
        self._table = _table(covering, budget_bytes, self._outbox)
        self._now_s = -math.inf
        self._locals: dict[Hashable, _Local] = {}
        self._followers: dict[Hashable, dict[Hashable, _Local]] = {}
        """By subscriber: the subscriptions that use its variables."""
        self._states: dict[Hashable, dict[str, object]] = {}
        self._renewals: list[tuple[float, int, Hashable]] = []
        """When envelopes end that cover a stretch of time; a heap with outdated items."""
        self._renewal = 0
        self._work = float(WORK_MAX)
        self._worked_at_s = -math.inf

    def __len__(self) -> int:
        return len(self._locals)

    @property
    def size_bytes(self) -> int:
        """Of all entries that are needed."""
        return self._outbox.size_bytes

    @property
    def number(self) -> int:
        """The number of the last changes taken."""
        return self._outbox.table.number

    @property
    def digest(self) -> int:
        """Of `entries()`, equal to that of an `EntryTable` which holds them."""
        return self._outbox.table.digest

    def entries(self) -> list[Entry]:
        """The whole table as of `number`: for a new neighbour, or after a gap."""
        return list(self._outbox.table.entries.values())

    # -- changing ----------------------------------------------------------------------

    def add(
        self,
        key: Hashable,
        topic_filter: str,
        expression: Subscription | None,
        accepted_at_s: float,
        *,
        subscriber: Hashable = None,
        state: Mapping[str, object] = NO_STATE,
    ) -> None:
        """Add a subscription, in place of the one with this key if there is one.

        `subscriber` names whose variables `me.` refers to, and `state` are those variables if
        they are not known from `set_state`; without a subscriber they belong to `key` alone.
        """
        old = self._locals.get(key)
        shared = split_shared(topic_filter)
        form = NormalForm((ALL,)) if expression is None else normalise(expression)
        local = _Local(
            topic_filter if shared is None else shared[1],
            form,
            expression,
            accepted_at_s,
            key if subscriber is None else subscriber,
        )
        self._now_s = max(self._now_s, accepted_at_s)
        if mentions(form.conjunctions, Me):
            self._states.setdefault(local.subscriber, {}).update(state)
            self._followers.setdefault(local.subscriber, {})[key] = local
            local.envelope = Envelope(form.conjunctions, accepted_at_s)
        self._want(key, local)
        if old is not None:
            self._forget(key, old, local)
        self._locals[key] = local

    def remove(self, key: Hashable) -> None:
        """Remove a subscription; one that is not there is no error."""
        old = self._locals.pop(key, None)
        if old is not None:
            self._forget(key, old, None)

    def set_state(self, subscriber: Hashable, changes: Mapping[str, object], now_s: float) -> None:
        """Change variables of a subscriber; None removes one, as everywhere in Rove."""
        self._now_s = max(self._now_s, now_s)
        followers = self._followers.get(subscriber)
        if followers is None:
            return
        state = self._states[subscriber]
        change_state(state, changes)
        for key, local in followers.items():
            if local.envelope is not None and local.envelope.is_due(state, self._now_s):
                self._want(key, local)

    def _forget(self, key: Hashable, old: _Local, new: _Local | None) -> None:
        if old.wanted is not None:
            self._table.remove(old.wanted, self._now_s)
        followers = self._followers.get(old.subscriber)
        if followers is not None and followers.get(key) is old:
            del followers[key]
            if not followers:
                del self._followers[old.subscriber], self._states[old.subscriber]

    def _want(self, key: Hashable, local: _Local) -> None:
        """Put what a subscription wants now into the table, in place of what it wanted before."""
        before, local.wanted = local.wanted, self._interest(local)
        self._table.add(local.wanted, self._now_s)
        if before is not None:
            self._table.remove(before, self._now_s)
        if local.envelope is not None and local.envelope.until_s < math.inf:
            self._renewal += 1
            heappush(self._renewals, (local.envelope.until_s, self._renewal, key))

    def _interest(self, local: _Local) -> Interest:
        found = local.form.conjunctions
        is_whole = local.envelope is None
        if local.envelope is not None:
            found = local.envelope.renew(self._states[local.subscriber], self._now_s)
        if self._offset_error_s and mentions(found, Time):
            found, is_whole = with_time_error(found, self._offset_error_s), False
        return _interest(local, found, is_whole=is_whole)

    # -- time --------------------------------------------------------------------------

    def advance(self, now_s: float) -> None:
        """Renew envelopes that are about to end, and do a bounded part of what can wait."""
        self._now_s = max(self._now_s, now_s)
        while self._renewals and self._renewals[0][0] <= self._now_s:
            _, _, key = heappop(self._renewals)
            local = self._locals.get(key)
            envelope = None if local is None else local.envelope
            if local is not None and envelope is not None and envelope.until_s <= self._now_s:
                self._want(key, local)
        if self._table.is_behind:
            passed_s = min(self._now_s - self._worked_at_s, WORK_MAX / WORK_PER_S)
            self._worked_at_s = self._now_s
            self._work = min(self._work + passed_s * WORK_PER_S, WORK_MAX)
            self._table.advance(self._now_s, int(self._work))
            self._work -= int(self._work)

    def next_s(self) -> float:
        """When to call `advance` and `take` next, if nothing changes until then."""
        renewal_s = self._renewals[0][0] if self._renewals else math.inf
        work_s = self._now_s + _WORK_EVERY_S if self._table.is_behind else math.inf
        return min(renewal_s, work_s, self._outbox.next_s())

    def take(self, now_s: float) -> Changes | None:
        """The next changes to send to every other broker; None if there are none now."""
        self.advance(now_s)
        return self._outbox.take(self._now_s)

    # -- asking ------------------------------------------------------------------------

    def wants(self, topic: str, publication: Publication, now_s: float) -> bool:
        """Whether any local subscription matches: plain and slow, to judge forwards by."""
        return any(
            fits(local.topic_filter, topic)
            and holds(local.form, publication, now_s - local.accepted_at_s, self._state(local))
            for local in self._locals.values()
        )

    def _state(self, local: _Local) -> State:
        return self._states.get(local.subscriber, NO_STATE)


_Table: TypeAlias = PlainTable | CoveringTable | MergedTable


def _table(covering: Covering, budget_bytes: int, outbox: Outbox) -> _Table:
    if covering == "off":
        return PlainTable(outbox)
    if covering == "merged":
        return MergedTable(outbox, budget_bytes)
    return CoveringTable(outbox, active=covering == "active")


def _interest(local: _Local, found: tuple[Conjunction, ...], *, is_whole: bool) -> Interest:
    region = region_of(found)
    at = local.accepted_at_s if region.uses_time else None
    if local.subscription is None:
        return Interest(local.topic_filter, region, at, wants_all=True)
    condition = Subscription(local.subscription.condition) if is_whole else None
    return Interest(local.topic_filter, region, at, condition)
