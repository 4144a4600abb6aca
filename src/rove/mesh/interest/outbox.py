"""Decides when entries of interest are sent and withdrawn.

New interest is sent at once, since nobody must miss a publication. Everything else can wait, and
does, so that control traffic has no peaks:

- an entry that only replaces a wider one is sent at a bounded rate;
- an entry that is no longer needed stays for some seconds, because subscribers often return, and
  then leaves together with others, at the same bounded rate;
- it stays longer if it still covers what its replacements, which have not been sent, will want.

The bounded rate is that of recent new interest, so both together are at most twice the steady
rate; `Pace.entries_per_s` is the least it may be. Each operation takes a few microseconds.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TypeAlias

import msgspec

from rove.mesh.interest.entries import Changes, Entry, EntryTable

_Content: TypeAlias = tuple[str, str | None, float | None]
_AVERAGED_S = 10.0
"""Over how long the rate of new interest is averaged."""


class Pace(msgspec.Struct, frozen=True):
    """How fast changes may be sent that can wait."""

    withdraw_after_s: float = 3.0
    """How long an entry stays that nobody needs any more."""
    entries_per_s: float = 100.0
    """So many changes per second that can wait are sent even if little else is."""


class _Sending(msgspec.Struct, eq=False):
    entry: Entry
    uses: int = 1
    """How many subscriptions or nodes need this entry; without any it is about to leave."""
    sent: bool = False
    urgent: bool = False
    leaves_at_s: float = math.inf
    waits_for: set[int] = msgspec.field(default_factory=set)
    """The replacements that must be sent before this entry may leave."""
    holds: set[int] = msgspec.field(default_factory=set)
    """The entries that may not leave before this one is sent."""


class Outbox:
    """The table of entries that all other brokers have, and what is to be sent next."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.table = EntryTable()
        self.size_bytes = 0
        """Of the entries that are needed, sent or not."""
        self._now_s = -math.inf
        self._next_id = 1
        self._sending: dict[int, _Sending] = {}
        self._by_content: dict[_Content, int] = {}
        self._urgent: list[int] = []
        self._paced: deque[int] = deque()
        self._leaving: dict[int, None] = {}
        """Entries that nobody needs, in the order in which they were dropped."""
        self._tokens = pace.entries_per_s
        self._urgent_per_s = 0.0

    def __len__(self) -> int:
        """How many entries are needed."""
        return len(self._sending) - len(self._leaving)

    # -- changing ----------------------------------------------------------------------

    def put(
        self,
        topic_filter: str,
        expression: str | None,
        accepted_at_s: float | None = None,
        *,
        urgent: bool = True,
    ) -> int:
        """Need an entry; its id. One that is there already, or about to leave, is used again."""
        content = (topic_filter, expression, accepted_at_s)
        id = self._by_content.get(content)
        if id is not None:
            self._use_again(id, urgent)
            return id
        id = self._next_id
        self._next_id += 1
        one = _Sending(Entry(id, *content), urgent=urgent)
        self._sending[id] = one
        self._by_content[content] = id
        self.size_bytes += one.entry.size_bytes
        if urgent:
            self._urgent.append(id)
        else:
            self._paced.append(id)
        return id

    def _use_again(self, id: int, urgent: bool) -> None:
        one = self._sending[id]
        one.uses += 1
        if one.uses == 1:
            self._stay(id, one)
        if urgent:
            self.promote(id)

    def _stay(self, id: int, one: _Sending) -> None:
        # It goes on waiting for its replacements: what they cover relies on it until they are sent.
        del self._leaving[id]
        one.leaves_at_s = math.inf
        self.size_bytes += one.entry.size_bytes

    def is_urgent(self, id: int) -> bool:
        """Whether an entry has not been sent although something relies on it."""
        one = self._sending[id]
        return one.urgent and not one.sent

    def promote(self, id: int) -> None:
        """Send an entry with the next changes, because something relies on it from now on."""
        one = self._sending[id]
        if not (one.sent or one.urgent):
            one.urgent = True
            self._urgent.append(id)

    def hold(self, id: int, replacement: int) -> None:
        """Do not withdraw an entry before a replacement has been sent."""
        if id != replacement and self._is_waiting(replacement):
            self._sending[id].waits_for.add(replacement)
            self._sending[replacement].holds.add(id)

    def drop(self, id: int, now_s: float) -> None:
        """Need an entry no longer; it leaves some seconds later, if nothing holds it."""
        one = self._sending[id]
        one.uses -= 1
        if one.uses:
            return
        self.size_bytes -= one.entry.size_bytes
        if one.sent:
            one.leaves_at_s = now_s + self.pace.withdraw_after_s
            self._leaving[id] = None
            return
        # What waited for this entry now waits for what replaces it.
        for holder in one.holds:
            for replacement in one.waits_for:
                self.hold(holder, replacement)
        self._forget(id, one)

    def _forget(self, id: int, one: _Sending) -> None:
        del self._sending[id]
        entry = one.entry
        del self._by_content[entry.topic_filter, entry.expression, entry.accepted_at_s]
        self._release(id, one)
        for other in one.waits_for:
            self._sending[other].holds.discard(id)

    def _release(self, id: int, one: _Sending) -> None:
        for other in one.holds:
            self._sending[other].waits_for.discard(id)
        one.holds.clear()

    # -- sending -----------------------------------------------------------------------

    def next_s(self) -> float:
        """When there will be something to send, if nothing changes until then."""
        if self._urgent:
            return self._now_s
        next_s = math.inf
        if self._paced:
            next_s = self._now_s + max(0.0, 1.0 - self._tokens) / self._rate()
        for id in self._leaving:
            one = self._sending[id]
            if not one.waits_for:
                return min(next_s, max(one.leaves_at_s, self._now_s + 1.0 / self._rate()))
        return next_s

    def take(self, now_s: float) -> Changes | None:
        """What is to be sent now to every other broker; None if nothing is."""
        self._refill(now_s)
        urgent = [id for id in self._urgent if self._is_waiting(id)]
        self._urgent.clear()
        self._urgent_per_s += len(urgent) / _AVERAGED_S
        added = [self._sent(id) for id in urgent]
        removed = self._leavers(now_s)
        while self._paced and self._tokens >= 1.0:
            id = self._paced.popleft()
            if self._is_waiting(id):
                self._tokens -= 1.0
                added.append(self._sent(id))
        if not (added or removed):
            return None
        changes = Changes(self.table.number + 1, tuple(added), tuple(removed))
        self.table.apply(changes)
        return changes

    def _rate(self) -> float:
        return max(self.pace.entries_per_s, self._urgent_per_s)

    def _refill(self, now_s: float) -> None:
        passed_s = now_s - self._now_s
        self._now_s = max(self._now_s, now_s)
        if 0 < passed_s < math.inf:
            self._tokens = min(self._rate(), self._tokens + passed_s * self._rate())
            self._urgent_per_s *= math.exp(-passed_s / _AVERAGED_S)

    def _is_waiting(self, id: int) -> bool:
        one = self._sending.get(id)
        return one is not None and not one.sent

    def _sent(self, id: int) -> Entry:
        one = self._sending[id]
        one.sent = True
        self._release(id, one)
        return one.entry

    def _leavers(self, now_s: float) -> list[int]:
        """The entries to withdraw now: as soon as one is due, also those due shortly after."""
        if not self._leaving:
            return []
        first = self._sending[next(iter(self._leaving))]
        due_s = now_s + self.pace.withdraw_after_s / 2 if first.leaves_at_s <= now_s else now_s
        # The other half of the rate is for new entries: neither may hold up the other for long.
        least_tokens = self._tokens / 2 if self._paced else 0.0
        found: list[int] = []
        for id in self._leaving:
            one = self._sending[id]
            if one.leaves_at_s > due_s or self._tokens < 1.0 + least_tokens:
                break
            if not one.waits_for:
                self._tokens -= 1.0
                found.append(id)
        for id in found:
            del self._leaving[id]
            self._forget(id, self._sending[id])
        return found
