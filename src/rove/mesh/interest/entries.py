"""What brokers send each other about interest: entries, numbered changes, and the received table.

An entry is a topic filter with a filter expression that any client could subscribe with. Changes
are numbered from one; a receiver that misses a number asks for the whole table. Both sides keep a
digest of the table, which does not depend on the order of changes, so that a difference shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b

import msgspec

from rove.errors import RoveError
from rove.lang import Subscription, matches, parse
from rove.lang.oracle import Publication
from rove.mqtt.topics import fits

_DIGEST_END = 2**64
_ENTRY_OVERHEAD_BYTES = 16
"""What an entry takes beside its text: its id, the lengths, the time of acceptance."""


class SummaryError(RoveError):
    """Changes of interest that do not continue what was received before."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One thing that a broker wants: publications on a topic filter that match an expression."""

    id: int
    topic_filter: str
    expression: str | None = None
    """None wants every publication on the topic filter, whatever its payload."""
    accepted_at_s: float | None = None
    """When `t` was 0, by the clock of the sender; None if the expression does not use `t`."""

    @property
    def size_bytes(self) -> int:
        """About what it takes on a link."""
        return entry_size_bytes(self.topic_filter, self.expression)


def entry_size_bytes(topic_filter: str, expression: str | None) -> int:
    """About what an entry takes on a link."""
    return _ENTRY_OVERHEAD_BYTES + len(topic_filter) + len(expression or "")


class Changes(msgspec.Struct, frozen=True, array_like=True):
    """One step from a table to the next. What is added is added before anything is removed."""

    number: int
    added: tuple[Entry, ...] = ()
    removed: tuple[int, ...] = ()

    @property
    def size_bytes(self) -> int:
        """About what the changes take on a link."""
        return 8 * len(self.removed) + sum(entry.size_bytes for entry in self.added)


class EntryTable:
    """Entries by id, with the number of the last change and a digest; the same on both sides."""

    def __init__(self) -> None:
        self.number = 0
        self.digest = 0
        self.entries: dict[int, Entry] = {}

    def reset(self, number: int, entries: Iterable[Entry]) -> None:
        """Replace the whole table."""
        self.number, self.digest, self.entries = number, 0, {}
        for entry in entries:
            self._add(entry)

    def apply(self, changes: Changes) -> None:
        """Take one step; SummaryError, and no change, if it is not the next or does not fit."""
        if changes.number != self.number + 1:
            raise SummaryError(
                f"changes of interest number {changes.number} came after {self.number}",
                "ask for the whole table",
            )
        added = {entry.id for entry in changes.added}
        if len(added) < len(changes.added) or added & self.entries.keys():
            raise SummaryError("an entry of interest came twice", "ask for the whole table")
        unknown = set(changes.removed) - self.entries.keys() - added
        if unknown or len(set(changes.removed)) < len(changes.removed):
            raise SummaryError("an unknown entry was withdrawn", "ask for the whole table")
        for entry in changes.added:
            self._add(entry)
        for id in changes.removed:
            self.digest = (self.digest - _hash(self.entries.pop(id))) % _DIGEST_END
        self.number = changes.number

    def _add(self, entry: Entry) -> None:
        self.entries[entry.id] = entry
        self.digest = (self.digest + _hash(entry)) % _DIGEST_END

    def matches(self, topic: str, publication: Publication, now_s: float) -> bool:
        """Whether any entry wants a publication: plain and slow, to test the fast ones with.

        `now_s` is by the clock of the sender of the entries.
        """
        return any(
            fits(entry.topic_filter, topic) and entry_matches(entry, publication, now_s)
            for entry in self.entries.values()
        )


def entry_matches(entry: Entry, publication: Publication, now_s: float) -> bool:
    """Whether the expression of an entry matches."""
    if entry.expression is None:
        return True
    t = now_s - (entry.accepted_at_s or 0.0)
    return matches(_parsed(entry.expression), publication, t)


@lru_cache(maxsize=4096)
def _parsed(expression: str) -> Subscription:
    return parse(expression)


def _hash(entry: Entry) -> int:
    return int.from_bytes(blake2b(msgspec.msgpack.encode(entry), digest_size=8).digest())


class ForwardCounts(msgspec.Struct):
    """How many publications other brokers forwarded here, and how many nobody here wanted."""

    forwarded: int = 0
    false: int = 0

    def count(self, matched: int) -> None:
        """Count a forwarded publication that matched so many local subscriptions."""
        self.forwarded += 1
        self.false += matched == 0

    @property
    def false_share(self) -> float:
        """False forwards as a share of all."""
        return self.false / self.forwarded if self.forwarded else 0.0
