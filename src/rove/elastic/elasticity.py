"""When there are to be more matchers, when fewer, and when it is better to leave things alone.

As in CUPUS, a matcher's idle share over its last N messages decides: below one threshold work is
divided, above another it is put together. CUPUS did only that, and was rearranged all the time:
at very high load because more matchers than cores do not help, at very low load because it asked
again and again for a merge that was refused. So here, in addition:

- Before less is made of it, what would be left is predicted from the busy shares measured, and
  has to stay idle by a margin more than what would be divided. That has to hold for a while, not
  for a moment; more is made of it at once, since waiting hurts.
- One decision says how many matchers there should be, so that a load that has multiplied is one
  or two rearrangements and not one for each matcher. Someone who has no idle time at all may be
  given any amount too much: then the number is doubled.
- What was divided to no avail (neither more idle time nor more messages) is not divided further
  until the load has eased, or for half an hour, then an hour and so on.
- After every rearrangement windows begin anew, and there is a pause, longer after a failure and
  after going back on a decision soon; quiet time shortens it again.
- What cannot be is not asked for: nothing is ever wanted beyond the least and the greatest number.

A window holds at least N messages and lasts at least one pause, so that a fast matcher is not
judged by a moment; one that gets few messages is judged by `WINDOW_PAUSES` pauses instead, and
one that says nothing for several pauses is idle. Considered and left out: a controller with a
model of queues, which would know sooner how much too much there is, but has to be told arrival
rates that a broker under back pressure cannot see.

Cost: `seen` 4 µs, `wants` 25 µs for four matchers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from rove.elastic.view import Layout
from rove.errors import RoveError

BROKER: Final = 0
"""The number under which the broker itself is judged."""
WINDOW_PAUSES: Final = 15
"""A window that has lasted so long is judged, however few messages it holds."""
SILENT_PAUSES: Final = 5
"""Who has said nothing for so long was given nothing; for less, it may be busy."""
CALM_PAUSES: Final = 10
"""So long fewer must have sufficed before there are fewer."""
SOON_PAUSES: Final = 30
"""Going the other way within this time is going back on a decision."""
QUIET_PAUSES: Final = 60
"""So long without a rearrangement takes one doubling of the pause back."""
FUTILE_PAUSES: Final = 900
"""So long nothing is divided further after it was to no avail, unless all is well in between;
doubles each time."""
DOUBLINGS_MAX: Final = 5
MARGIN: Final = 0.15
"""By how much more what is put together must stay idle than what would be divided."""
SATURATED_BELOW: Final = 0.05
"""With less idle time than this, nobody knows how much too much there is."""
WORTH: Final = 0.2
"""Of its time the broker must spend matching for it to be worth a process."""
CHUNKS: Final = 50
"""Parts of N messages, or of ten pauses, that a window is kept in."""


class ElasticityError(RoveError):
    """Settings that contradict each other."""


class ElasticitySettings(msgspec.Struct, frozen=True):
    """When to divide and when to put together."""

    layout: Layout = "replicated"
    matchers_min: int = 0
    """0: the broker may match by itself."""
    matchers_max: int = 2
    window_messages: int = 10_000
    split_below: float = 0.2
    """Idle share of a window."""
    merge_above: float = 0.7
    pause_s: float = 2.0
    """The least time between two rearrangements."""

    def __post_init__(self) -> None:
        if not 0 <= self.matchers_min <= self.matchers_max:
            raise ElasticityError(
                f"at least {self.matchers_min} and at most {self.matchers_max} matchers: "
                "the least number must be from 0 to the greatest"
            )
        if not 0 < self.split_below < self.merge_above < 1:
            raise ElasticityError(
                f"split_below is {self.split_below:g} and merge_above {self.merge_above:g}: "
                "both must be between 0 and 1, and the first the smaller"
            )
        if self.window_messages < 1 or not 0 < self.pause_s < math.inf:
            raise ElasticityError(
                f"window_messages is {self.window_messages} and pause_s {self.pause_s:g}: "
                "both must be positive"
            )


class ScalingDecision(msgspec.Struct, frozen=True):
    """A rearrangement that is wanted."""

    kind: Literal["out", "in", "split", "merge"]
    matcher: int
    """The busiest one if there are to be more, the least busy one if fewer."""
    reason: str
    matchers: int
    """How many processes there should be afterwards."""

    @property
    def is_for_more(self) -> bool:
        """Whether there are to be more matchers, not fewer."""
        return self.kind in ("out", "split")


class _Chunk(msgspec.Struct):
    busy_s: float
    other_s: float
    waited_s: float
    messages: int

    def lasted_s(self) -> float:
        return self.busy_s + self.other_s + self.waited_s


class _Window:
    """What a matcher did with its time during its last messages."""

    def __init__(self, settings: ElasticitySettings, began_at: float) -> None:
        self.heard_at = began_at
        self.wanted_messages = settings.window_messages
        self._pause_s = settings.pause_s
        self._longest_s = WINDOW_PAUSES * settings.pause_s
        self._chunks: deque[_Chunk] = deque()
        self._sum = _Chunk(0.0, 0.0, 0.0, 0)

    def add(self, new: _Chunk, now: float) -> None:
        self.heard_at = now
        # Who waited for an hour is not to look idle for an hour after.
        new.waited_s = min(new.waited_s, self._longest_s)
        _add(self._sum, new)
        last = self._chunks[-1] if self._chunks else None
        if last is None or self._is_whole(last):
            self._chunks.append(new)
        else:
            _add(last, new)
        while len(self._chunks) > 1 and self._is_enough(self._sum, without=self._chunks[0]):
            _add(self._sum, self._chunks.popleft(), sign=-1)

    def _is_whole(self, chunk: _Chunk) -> bool:
        return (
            chunk.messages * CHUNKS >= self.wanted_messages
            or chunk.lasted_s() * CHUNKS >= 10 * self._pause_s
        )

    def _is_enough(self, total: _Chunk, without: _Chunk | None = None, more_s: float = 0) -> bool:
        lasted_s, messages = total.lasted_s() + more_s, total.messages
        if without is not None:
            lasted_s -= without.lasted_s()
            messages -= without.messages
        return lasted_s >= self._longest_s or (
            messages >= self.wanted_messages and lasted_s >= self._pause_s
        )

    def silent_s(self, now: float) -> float:
        """For how long it has been idle since it last said something."""
        silent_s = now - self.heard_at
        return silent_s if silent_s >= SILENT_PAUSES * self._pause_s else 0.0

    def is_full(self, now: float) -> bool:
        return self._is_enough(self._sum, more_s=self.silent_s(now))

    def _kept(self, now: float) -> _Chunk:
        """All of it, with the silence since; what silence pushes out of the window left out."""
        silent_s, heard_s = self.silent_s(now), self._sum.lasted_s()
        if silent_s == 0.0:
            return self._sum
        part = _share((self._longest_s - silent_s) / heard_s) if heard_s > 0.0 else 0.0
        return _Chunk(
            self._sum.busy_s * part,
            self._sum.other_s * part,
            self._sum.waited_s * part + silent_s,
            round(self._sum.messages * part),
        )

    def lasted_s(self, now: float) -> float:
        return self._kept(now).lasted_s()

    def messages(self, now: float) -> int:
        return self._kept(now).messages

    def idle_share(self, now: float) -> float:
        kept = self._kept(now)
        return _share(kept.waited_s / kept.lasted_s()) if kept.lasted_s() > 0.0 else 1.0

    def busy_share(self, now: float) -> float:
        """Of matching alone."""
        kept = self._kept(now)
        return _share(kept.busy_s / kept.lasted_s()) if kept.lasted_s() > 0.0 else 0.0

    def other_s(self) -> float:
        """For a message, beside matching."""
        return self._sum.other_s / max(self._sum.messages, 1)


class _Figures(msgspec.Struct, frozen=True):
    """How things stood when there were to be more matchers."""

    idle_share: float
    rate: float


class ScalingPolicy:
    """Hears how busy matchers are, and says when to rearrange them.

    Nothing happens by itself: `wants` is to be asked about once in a pause or more often, also
    while nothing is published. Whatever it says is answered by `done` or `failed`.
    """

    def __init__(self, settings: ElasticitySettings) -> None:
        self.settings = settings
        self.layout: Layout = settings.layout
        """As it is now; call `restart` after a change."""
        self._windows: dict[int, _Window] = {}
        self._matchers: frozenset[int] | None = None
        self._began_at: float | None = None
        self._settles_at: float | None = None
        """Until then what is seen belongs to the rearrangement."""
        self._free_at = -math.inf
        self._changed_at = -math.inf
        self._was_for_more: bool | None = None
        self._doublings = 0
        self._failures = 0
        self._futile_until = -math.inf
        self._futile_times = 0
        self._asked: _Figures | None = None
        self._before: _Figures | None = None
        """Before the last division, until it is known whether it helped."""
        self._other_s = 0.0
        """What a message took the broker beside matching, when it last matched by itself."""
        self._calm_since: float | None = None
        self._needed: deque[tuple[float, int]] = deque()
        """When so many began to suffice, of late."""

    # -- hearing -----------------------------------------------------------------------

    def seen(
        self,
        matcher: int,
        busy_s: float,
        waited_s: float,
        messages: int,
        now: float,
        other_s: float = 0.0,
    ) -> None:
        """A matcher (0: the broker) spent time matching and waiting since it was last seen.

        `other_s` is work that no other matcher could take over: the broker's own.
        """
        if self._settles_at is not None and self._settles_at < now:
            self._settle()
        window = self._windows.get(matcher)
        if window is None:
            window = self._windows[matcher] = _Window(self.settings, now)
        window.add(_Chunk(busy_s, other_s, waited_s, messages), now)

    def forget(self, matcher: int) -> None:
        """A matcher is no more."""
        self._windows.pop(matcher, None)

    def idle_share(self, matcher: int, now: float | None = None) -> float:
        """Of the time of its last messages; 1 if nothing was heard of it.

        With `now`, silence since then counts.
        """
        window = self._windows.get(matcher)
        if window is None:
            return 1.0
        return window.idle_share(window.heard_at if now is None else now)

    def rate(self, matcher: int, now: float) -> float:
        """Messages in a second, of late."""
        window = self._windows.get(matcher)
        if window is None or window.lasted_s(now) <= 0.0:
            return 0.0
        return window.messages(now) / window.lasted_s(now)

    # -- deciding ----------------------------------------------------------------------

    def wants(self, matchers: Sequence[int], now: float) -> ScalingDecision | None:
        """What should be rearranged, if anything; `matchers` are the processes that there are.

        In the hierarchical layout the first of them is the parent.
        """
        numbers = tuple(matcher for matcher in matchers if matcher != BROKER)
        if self._began_at is None:
            self._began_at = now
        if self._matchers is not None and self._matchers != frozenset(numbers):
            self.restart(now)
        self._matchers = frozenset(numbers)
        if self._settles_at is not None and self._settles_at <= now:
            self._settle()
        if now < self._free_at:
            return None
        forced = self._bounded(numbers)
        if forced is not None:
            return forced
        return self._more(numbers, now) or self._fewer(numbers, now)

    def _bounded(self, numbers: tuple[int, ...]) -> ScalingDecision | None:
        least, most, count = self.settings.matchers_min, self.settings.matchers_max, len(numbers)
        if count < least:
            reason = f"{count} of at least {least} matchers"
            return ScalingDecision(
                "split" if count else "out", (*numbers, BROKER)[0], reason, least
            )
        if count > most:
            reason = f"{count} of at most {most} matchers"
            return ScalingDecision("merge" if most else "in", numbers[-1], reason, most)
        return None

    def _more(self, numbers: tuple[int, ...], now: float) -> ScalingDecision | None:
        judged = numbers if numbers else (BROKER,)
        if self.layout == "hierarchical" and len(numbers) > 1:
            # The parent has to see everything, whoever else there is.
            judged = numbers[1:]
        windows = {n: w for n in judged if (w := self._fresh(n, now)) is not None}
        if not windows:
            return None
        busiest = min(windows, key=lambda n: windows[n].idle_share(now))
        window = windows[busiest]
        idle_share = window.idle_share(now)
        if idle_share >= self.settings.split_below:
            if idle_share >= self.settings.split_below + MARGIN:
                self._futile_until, self._futile_times, self._before = -math.inf, 0, None
            return None
        self._calm_since = None
        if len(numbers) >= self.settings.matchers_max:
            return None
        if not numbers and window.busy_share(now) < WORTH:
            return None
        figures = _Figures(idle_share, self._throughput(judged, now))
        if self._is_futile(figures, now):
            return None
        self._asked = figures
        if not numbers:
            self._other_s = window.other_s()
        reason = (
            f"idle {_percent(idle_share, self.settings.split_below)} of {_span(window, now)}, "
            f"less than {100 * self.settings.split_below:g} %"
        )
        target = self._target_for_more(numbers, idle_share, now)
        return ScalingDecision("split" if numbers else "out", busiest, reason, target)

    def _fresh(self, matcher: int, now: float) -> _Window | None:
        """The window of someone who can be judged to have too much."""
        window = self._windows.get(matcher)
        if window is None or not window.is_full(now):
            return None
        return window if now - window.heard_at <= self.settings.pause_s else None

    def _throughput(self, judged: Sequence[int], now: float) -> float:
        rates = [self.rate(matcher, now) for matcher in judged]
        return sum(rates) if self.layout == "replicated" else max(rates)

    def _is_futile(self, figures: _Figures, now: float) -> bool:
        """Whether dividing has not helped of late."""
        before, self._before = self._before, None
        if before is not None and (
            figures.idle_share < before.idle_share + 0.05 and figures.rate < 1.1 * before.rate
        ):
            doubled = 2 ** min(self._futile_times, DOUBLINGS_MAX)
            self._futile_until = now + FUTILE_PAUSES * self.settings.pause_s * doubled
            self._futile_times += 1
        return now < self._futile_until

    def _target_for_more(self, numbers: tuple[int, ...], idle_share: float, now: float) -> int:
        """The least number with which all would be well between the thresholds."""
        settings = self.settings
        most = settings.matchers_max
        loads = [self._windows[n].busy_share(now) for n in numbers if n in self._windows]
        if not numbers:
            loads = [self._windows[BROKER].busy_share(now)]
        enough = 1.0 - (settings.split_below + settings.merge_above) / 2
        first = len(numbers) + 1
        if idle_share < SATURATED_BELOW and max(loads) > enough:
            first = max(2 * len(numbers), 2)
        for count in range(min(first, most), most):
            if max(_divided(loads, count, self.layout)) <= enough:
                return count
        return most

    def _fewer(self, numbers: tuple[int, ...], now: float) -> ScalingDecision | None:
        target = self._target_for_fewer(numbers, now)
        if target is None:
            self._calm_since = None
            return None
        needed = self._needed_of_late(target, now)
        if needed is None:
            return None
        target = needed
        least_busy = max(numbers[-1:] + numbers, key=lambda n: self.idle_share(n, now))
        window = self._windows.get(least_busy) or _Window(self.settings, self._settled_at())
        idle_share = window.idle_share(now)
        left = 1.0 - max(self._loads_of_fewer(numbers, target, now))
        reason = (
            f"idle {_percent(idle_share, self.settings.merge_above)} of {_span(window, now)}, "
            f"more than {100 * self.settings.merge_above:g} %; "
            f"{_remaining(target)} still be idle {_percent(left)}"
        )
        return ScalingDecision("merge" if target else "in", least_busy, reason, target)

    def _needed_of_late(self, target: int, now: float) -> int | None:
        """How many sufficed all the while; None until that has been so for long enough."""
        if self._calm_since is None:
            self._calm_since = now
            self._needed.clear()
        if not self._needed or self._needed[-1][1] != target:
            self._needed.append((now, target))
        calm_s = CALM_PAUSES * self.settings.pause_s * 2 ** self._doublings_left(now)
        while len(self._needed) > 1 and self._needed[1][0] <= now - calm_s:
            self._needed.popleft()
        # While the load still falls, one rearrangement a little later saves two.
        patience_s = calm_s
        if len(self._needed) > 1:
            patience_s = 2 * calm_s + WINDOW_PAUSES * self.settings.pause_s
        if now - self._calm_since < patience_s:
            return None
        return max(count for _, count in self._needed)

    def _target_for_fewer(self, numbers: tuple[int, ...], now: float) -> int | None:
        """The least number that would have time enough; None if there are to be no fewer."""
        settings = self.settings
        if len(numbers) <= settings.matchers_min:
            return None
        if not all(self._is_full(n, now) for n in numbers):
            return None
        idle_shares = [self.idle_share(n, now) for n in numbers]
        judged = max(idle_shares)
        if self.layout == "replicated":
            judged = sum(idle_shares) / len(idle_shares)
        if judged <= settings.merge_above or min(idle_shares) < settings.split_below:
            return None
        # The broker takes over from one matcher only: that is the smaller step.
        least = max(settings.matchers_min, min(1, len(numbers) - 1))
        for count in range(least, len(numbers)):
            left = 1.0 - max(self._loads_of_fewer(numbers, count, now))
            if left >= settings.split_below + MARGIN:
                return count
        return None

    def _loads_of_fewer(self, numbers: tuple[int, ...], count: int, now: float) -> list[float]:
        loads = [1.0 - self.idle_share(n, now) for n in numbers]
        if count == 0:
            return [sum(loads) + self._load_of_broker(numbers, now)]
        if self.layout == "hierarchical":
            rates = [self.rate(n, now) for n in numbers]
            return _gathered_children(loads, rates, count)
        return [sum(loads) / count] * count

    def _load_of_broker(self, numbers: tuple[int, ...], now: float) -> float:
        """While others match; from what it was before if it is not heard of meanwhile."""
        if BROKER in self._windows:
            return 1.0 - self.idle_share(BROKER, now)
        return self._throughput(numbers, now) * self._other_s

    def _is_full(self, matcher: int, now: float) -> bool:
        window = self._windows.get(matcher)
        if window is not None:
            return window.is_full(now)
        return now - self._settled_at() >= WINDOW_PAUSES * self.settings.pause_s

    def _settled_at(self) -> float:
        """Since when someone of whom nothing was heard has been silent."""
        return 0.0 if self._began_at is None else self._began_at

    # -- hysteresis --------------------------------------------------------------------

    def done(self, decision: ScalingDecision, now: float) -> None:
        """What was wanted has been done."""
        settings = self.settings
        doublings = self._doublings_left(now)
        is_back = self._was_for_more is not None and self._was_for_more != decision.is_for_more
        if is_back and now - self._changed_at < SOON_PAUSES * settings.pause_s:
            doublings = min(doublings + 1, DOUBLINGS_MAX)
        self._doublings, self._failures = doublings, 0
        self._was_for_more, self._changed_at = decision.is_for_more, now
        self._before = self._asked if decision.is_for_more else None
        self.restart(now)

    def failed(self, decision: ScalingDecision, now: float) -> None:
        """What was wanted could not be done, and everything is as it was."""
        self._failures = min(self._failures + 1, DOUBLINGS_MAX)
        self.restart(now)

    def restart(self, now: float) -> None:
        """Something was rearranged, by whomever: what was seen before says nothing any more."""
        pause_s = self.settings.pause_s
        self._settles_at = now + pause_s
        self._free_at = now + pause_s * 2 ** max(self._doublings_left(now), self._failures)
        self._matchers, self._asked = None, None
        self._begin_windows(now)

    def _settle(self) -> None:
        if self._settles_at is not None:
            self._begin_windows(self._settles_at)
            self._settles_at = None

    def _begin_windows(self, now: float) -> None:
        self._windows.clear()
        self._began_at, self._calm_since = now, None

    def _doublings_left(self, now: float) -> int:
        if self._doublings == 0:
            return 0
        quiet = (now - self._changed_at) / (QUIET_PAUSES * self.settings.pause_s)
        return max(self._doublings - int(quiet), 0)


def _add(total: _Chunk, part: _Chunk, sign: int = 1) -> None:
    total.busy_s += sign * part.busy_s
    total.other_s += sign * part.other_s
    total.waited_s += sign * part.waited_s
    total.messages += sign * part.messages


def _share(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _divided(loads: Sequence[float], count: int, layout: Layout) -> list[float]:
    """Busy shares of more matchers, if what can be divided is divided evenly."""
    if layout == "hierarchical" and len(loads) > 1:
        # A parent that has children is not relieved by more of them.
        return [sum(loads[1:]) / (count - 1)] * (count - 1)
    return [sum(loads) / count] * count


def _gathered_children(loads: Sequence[float], rates: Sequence[float], count: int) -> list[float]:
    """Busy shares of fewer matchers; the first is the parent. With messages in a second of each.

    What two children become is asked whenever either was, and what goes back to the parent is
    asked always, so together they have more to do than the sum.
    """
    most = rates[0]
    parts = sorted(zip(loads[1:], rates[1:], strict=True))
    while len(parts) > max(count - 1, 1):
        parts = sorted([_together(parts[0], parts[1], most), *parts[2:]])
    if count == 1 and parts:
        return [_together((loads[0], most), parts[0], most)[0]]
    return [loads[0], *(load for load, _ in parts)]


def _together(
    one: tuple[float, float], other: tuple[float, float], most: float
) -> tuple[float, float]:
    rate = min(one[1] + other[1], most)
    return sum(load * rate / own for load, own in (one, other) if own > 0.0), rate


def _percent(share: float, unlike: float = -1.0) -> str:
    """With as many digits as it takes to read unlike what it is compared with."""
    texts = [f"{100 * share:.{digits}f}" for digits in range(6)]
    fitting = (text for text in texts if float(text) != round(100 * unlike, 6))
    return f"{next(fitting, texts[-1])} %"


def _span(window: _Window, now: float) -> str:
    if window.silent_s(now) > 0.0 or window.messages(now) < window.wanted_messages:
        return f"the last {window.lasted_s(now):.0f} s"
    return f"the last {window.messages(now):,} messages"


def _remaining(count: int) -> str:
    if count == 0:
        return "the broker itself would"
    return "one matcher would" if count == 1 else f"{count} matchers would"
