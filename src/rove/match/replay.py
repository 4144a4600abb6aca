"""Subscriptions over a whole stream, as in `rove.lang.replay`, but through the matcher.

The notifications are equal to those of the oracle, byte by byte and in the same order: for each
publication first those that moved up before it, in order of time, then its receivers, in the order
of their subscriptions. Publications wait until there are enough for a batch, or until a state
changes, since a batch is matched with one state. Only the publications in windows are kept, and a
batch is so short that its notifications fit into memory.

Notifications are JSON lines. The name of a subscriber is encoded when it subscribes, and a
publication when it is first delivered; so the lines of a publication are one `join` of existing
bytes. With SELECT or a rank each line is written separately, which costs more.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final, TypeAlias, cast

import msgspec
import numpy as np

from rove.lang.attributes import selected
from rove.lang.errors import LanguageError, PublicationError
from rove.lang.normal_form import accepted_form
from rove.lang.oracle import Publication
from rove.lang.parser import parse
from rove.lang.tree import TRUE, Attribute, Me, Subscription, Time, parts
from rove.lang.values import admit
from rove.match.designs.design import Evolve, parse_evolve
from rove.match.matcher import EXACT, Matcher
from rove.match.results import RankedDelivery

BATCH_MAX: Final = 4_096
"""Publications of a batch; more would gain nothing."""
_BATCH_FIRST: Final = 64
_BATCH_GROWTH: Final = 4
"""A batch is at most so many times as long as the one before, for it may be wanted by more."""
_DELIVERED_AIM: Final = 200_000
"""Notifications that a batch should not exceed by much: some 30 MB of lines."""
_ID_BITS: Final = 32

Deliveries: TypeAlias = "Mapping[int, Sequence[RankedDelivery]]"
"""What ranks deliver, by position in the batch."""


class EngineReplay:
    """Subscriptions that live through a stream; time only moves forward.

    `evolve` is the design for evolving subscriptions that name none themselves. With `compiled`
    the kernels are waited for; without, they are used once `warm_up` was called.
    Without `writes` notifications are counted but not written.
    """

    def __init__(
        self, *, evolve: Evolve = EXACT, compiled: bool = True, writes: bool = True
    ) -> None:
        self.now = -math.inf
        self.delivered = 0
        """Notifications so far."""
        self._evolve = evolve
        self._plain = Matcher(compiled=compiled)
        self._ranked = Matcher(compiled=compiled)
        self._ids: dict[str, int] = {}
        self._counting: set[int] = set()
        """Subscriptions with a window of so many publications."""
        self._span_s_min = math.inf
        self._scribe = _Scribe() if writes else None
        self._waiting: list[_Taken] = []
        self._batch_size = _BATCH_FIRST
        self._is_compact = True
        """False if there are new subscriptions since the indexes were compacted."""

    # -- subscribers -------------------------------------------------------------------------

    def subscribe(
        self,
        name: str,
        text: str,
        accepted_at: float = 0.0,
        me: Mapping[str, object] | None = None,
        evolve: str | None = None,
    ) -> None:
        """Add a subscription; an invalid expression or a name in use is refused."""
        if name in self._ids:
            raise LanguageError(f"there is already a subscription {name!r}")
        if not math.isfinite(accepted_at):
            raise LanguageError("a subscription must be accepted at a finite time")
        admit(me or {})
        subscription = parse(text)
        accepted_form(subscription)  # the same texts are refused here as by a broker
        design = self._design(subscription) if evolve is None else parse_evolve(evolve)
        id = len(self._ids)
        matcher = self._plain if subscription.rank is None else self._ranked
        matcher.add(id, subscription, accepted_at, me, design)
        self._ids[name] = id
        self._is_compact = False
        if subscription.rank is not None:
            self._span_s_min = min(self._span_s_min, subscription.rank.window.seconds)
            if subscription.rank.window.publications is not None:
                self._counting.add(id)
        if self._scribe is not None:
            self._scribe.add(name, subscription)

    def _design(self, subscription: Subscription) -> Evolve:
        """The design for all, where there is something to evolve; ranks know only one way."""
        if self._evolve == EXACT or subscription.rank is not None:
            return EXACT
        evolves = any(type(part) in (Time, Me) for part in parts(subscription))
        return self._evolve if evolves else EXACT

    def check_state(self, name: str, changes: Mapping[str, object]) -> None:
        """Refuse what `set_state` would refuse, and change nothing."""
        if name not in self._ids:
            raise LanguageError(f"there is no subscription {name!r}")
        admit(changes)

    def set_state(self, name: str, changes: Mapping[str, object]) -> None:
        """Set variables of one subscriber, after `deliver` or `advance`; None removes one."""
        assert not self._waiting, "what waits must still meet the state as it was"
        self.check_state(name, changes)
        id = self._ids[name]
        (self._plain if id in self._plain else self._ranked).set_state(id, changes)

    # -- publications ------------------------------------------------------------------------

    def publish(self, name: str, publication: Publication, at: float) -> None:
        """Let a publication wait for the next `deliver`.

        It holds what `rove.lang.values.admit` admits, as everything does that was read from JSON.
        """
        self._move(at)
        self._waiting.append(_Taken(name, publication, at, len(self._waiting)))

    @property
    def is_full(self) -> bool:
        """True if enough publications wait for a batch."""
        return len(self._waiting) >= self._batch_size

    def deliver(self) -> list[bytes]:
        """Everything that is delivered up to and because of what waits: pieces of whole lines."""
        taken, self._waiting = self._waiting, []
        if not taken:
            return []
        self._merge()
        before_count = self.delivered
        starts, ids = self._matched(taken)
        moved_up, arriving = self._ranks(taken) if len(self._ranked) else ({}, {})
        self.delivered += len(ids) + _size(moved_up) + _size(arriving)
        self._choose_batch_size(len(taken), self.delivered - before_count)
        if self._scribe is None:
            return []
        return self._scribe.written(taken, starts, ids, moved_up, arriving)

    def advance(self, at: float) -> list[bytes]:
        """Deliver what waits, then let time pass, so that windows slide."""
        self._move(at)
        pieces = self.deliver()
        self._plain.advance(at)
        moved_up = self._ranked.advance(at)
        self.delivered += len(moved_up)
        return pieces if self._scribe is None else pieces + self._scribe.ranked(moved_up)

    def _move(self, at: float) -> None:
        if not math.isfinite(at) or at < self.now:
            raise PublicationError(
                f"time cannot go from {self.now:g} s to {at:g} s", "sort publications by time"
            )
        self.now = at

    def _merge(self) -> None:
        """Segments that are many, old or from before there were kernels become better ones."""
        for matcher in (self._plain, self._ranked):
            if not self._is_compact:
                matcher.compact()
            while (due := matcher.merge_due()) is not None:
                matcher.install(due.run())
        self._is_compact = True

    def _choose_batch_size(self, publications: int, delivered: int) -> None:
        aim = _DELIVERED_AIM * publications // max(1, delivered)
        self._batch_size = max(1, min(aim, _BATCH_GROWTH * publications, BATCH_MAX))

    def _matched(self, taken: Sequence[_Taken]) -> tuple[Sequence[int], Sequence[int]]:
        """Subscriptions without a rank, in order, and where those of each publication start."""
        if not len(self._plain):
            return [0] * (len(taken) + 1), []
        found = self._plain.match([one.publication for one in taken], [one.at for one in taken])
        pairs = (found.publications.astype(np.int64) << _ID_BITS) | found.subscriptions
        pairs.sort()
        return found.starts(len(taken)).tolist(), (pairs & ((1 << _ID_BITS) - 1)).tolist()

    def _ranks(self, taken: Sequence[_Taken]) -> tuple[Deliveries, Deliveries]:
        """What moved up before each publication, and what was delivered as it came."""
        moved_up: dict[int, list[RankedDelivery]] = defaultdict(list)
        arriving: dict[int, list[RankedDelivery]] = defaultdict(list)
        at = [one.at for one in taken]
        for first, end in self._runs(at):
            run = taken[first:end]
            publications = [one.publication for one in run]
            for one in self._ranked.match(publications, at[first:end], run).ranked:
                if not one.promoted:
                    arriving[_key(one).position].append(one)
                    continue
                position = bisect_left(at, one.at, first, end)
                # A window of the last n slides when something comes, the others in between.
                slides = arriving if one.subscription in self._counting else moved_up
                slides[position].append(one)
        return moved_up, arriving

    def _runs(self, at: Sequence[float]) -> Iterator[tuple[int, int]]:
        """Parts of a batch in which the time of a delivery identifies its publication."""
        cuts = [0]
        # A window so short, or a time so large, that members leave at the time they come.
        if any(time + self._span_s_min == time for time in (at[0], at[-1])):
            cuts += range(1, len(at))
        elif self._counting:
            cuts += [i for i in range(1, len(at)) if at[i] == at[i - 1]]
        return zip(cuts, [*cuts[1:], len(at)], strict=True)


class _Taken(msgspec.Struct, eq=False):
    """A publication of the stream, and the key that windows know it by."""

    name: str
    publication: Publication
    at: float
    position: int
    """In its batch."""
    encoded: dict[int, bytes] = {}
    """The end of its lines, for each SELECT that was needed so far."""


def _key(delivery: RankedDelivery) -> _Taken:
    return cast(_Taken, delivery.key)


def _size(deliveries: Deliveries) -> int:
    return sum(map(len, deliveries.values()))


class _Scribe:
    """Writes notifications as `msgspec` encodes a `Notification`, out of pieces encoded before."""

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder().encode
        self._names: list[bytes] = []
        self._choice_of: list[int] = []
        """By subscription: which SELECT it has, 0 for none."""
        self._choices: dict[tuple[Attribute, ...] | None, int] = {None: 0}
        self._choosers: list[Subscription] = [Subscription(TRUE)]
        """A subscription for each SELECT."""

    def add(self, name: str, subscription: Subscription) -> None:
        """The next subscription."""
        choice = self._choices.setdefault(subscription.select, len(self._choosers))
        if choice == len(self._choosers):
            self._choosers.append(subscription)
        self._choice_of.append(choice)
        self._names.append(self._encode(name))

    def written(
        self,
        taken: Sequence[_Taken],
        starts: Sequence[int],
        ids: Sequence[int],
        moved_up: Deliveries,
        arriving: Deliveries,
    ) -> list[bytes]:
        """The lines of a batch; the subscriptions of one publication stand from its start on."""
        pieces: list[bytes] = []
        selects = len(self._choosers) > 1
        for position, one in enumerate(taken):
            if position in moved_up:
                pieces += self.ranked(moved_up[position])
            here = ids[starts[position] : starts[position + 1]]
            if position in arriving or (selects and any(self._choice_of[id] for id in here)):
                pieces += self._mixed(one, here, arriving.get(position, ()))
            elif here:
                pieces.append(self._alike(one, here))
        return pieces

    def _alike(self, one: _Taken, ids: Sequence[int]) -> bytes:
        """The lines of subscriptions that get all of one publication."""
        head = b'{"at":%b,"subscription":' % self._encode(one.at)
        tail = self._tail(one, 0) + b"}\n"
        names = self._names
        return head + (tail + head).join([names[id] for id in ids]) + tail

    def _mixed(
        self, one: _Taken, ids: Sequence[int], arriving: Sequence[RankedDelivery]
    ) -> list[bytes]:
        """The lines of one publication where they are not alike."""
        lines = [(id, self._line(id, one, one.at)) for id in ids]
        ranked = [delivery.subscription for delivery in arriving]
        lines += zip(ranked, self.ranked(arriving), strict=True)
        return [line for _, line in sorted(lines, key=itemgetter(0))]

    def ranked(self, deliveries: Sequence[RankedDelivery]) -> list[bytes]:
        """The line of each delivery."""
        return [
            self._line(
                one.subscription,
                _key(one),
                one.at,
                b',"score":%b%b'
                % (self._encode(one.score), b',"promoted":true' if one.promoted else b""),
            )
            for one in deliveries
        ]

    def _line(self, id: int, one: _Taken, at: float, more: bytes = b"") -> bytes:
        return b'{"at":%b,"subscription":%b%b%b}\n' % (
            self._encode(at),
            self._names[id],
            self._tail(one, self._choice_of[id]),
            more,
        )

    def _tail(self, one: _Taken, choice: int) -> bytes:
        """What follows the name of the subscription: the publication, or what is chosen of it."""
        found = one.encoded.get(choice)
        if found is None:
            chosen = selected(self._choosers[choice], one.publication)
            found = b',"publication":%b,"attributes":%b' % (
                self._encode(one.name),
                self._encode(chosen),
            )
            one.encoded[choice] = found
        return found
