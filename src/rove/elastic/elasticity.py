"""The scaling policy: when matchers are added or removed, and when not.

As in CUPUS, the idle share of a matcher over its last N messages decides: below one threshold its
work is divided, above another it is merged with that of others. CUPUS did only that and kept
reconfiguring: under very high load because more matchers than cores do not help, under very low
load because it repeated a merge that was refused. So here, in addition:

- Before matchers are removed, the idle share of the rest is predicted from the measured busy
  shares. It must stay above the threshold by a margin, and for a while, not only for a moment.
  Matchers are added at once, since waiting hurts.
- One decision chooses the number of matchers, so that a load that has multiplied needs one or two
  reconfigurations and not one for each matcher. A matcher without any idle time may have any amount
  too much to do; then the number is doubled.
- After a division that did not help (neither more idle time nor more messages), nothing is divided
  further until the load has eased, or for half an hour, then an hour and so on.
- After every reconfiguration windows start anew, and there is a pause, which is longer after a
  failure and after a decision that was reversed soon; quiet time shortens it again.
- Nothing impossible is requested: never fewer than the minimum nor more than the maximum.

A window holds at least N messages and lasts at least one pause, so that a fast matcher is not
judged by a moment. A matcher with few messages is judged by `WINDOW_PAUSES` pauses instead, and one
that sends nothing for several pauses is idle. Considered and left out: a controller with a queueing
model, which would know sooner how large the overload is, but needs arrival rates that a broker
cannot measure while it slows publishers down.

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
"""The number of the broker itself."""
WINDOW_PAUSES: Final = 15
"""After this long a window is judged, however few messages it holds."""
SILENT_PAUSES: Final = 5
"""After this much silence a matcher is idle; after less, it may be busy."""
CALM_PAUSES: Final = 10
"""How long fewer matchers must suffice before some are removed."""
SOON_PAUSES: Final = 30
"""A change in the other direction within this time reverses a decision."""
QUIET_PAUSES: Final = 60
"""This long without a reconfiguration halves the pause again."""
FUTILE_PAUSES: Final = 900
"""How long nothing is divided after a division that did not help, unless the load eases; doubles
each time."""
DOUBLINGS_MAX: Final = 5
MARGIN: Final = 0.15
"""By how much the idle share after a merge must exceed the threshold for a division."""
SATURATED_BELOW: Final = 0.05
"""With less idle time than this, the size of the overload is unknown."""
WORTH: Final = 0.2
"""The share of its time that the broker must spend on matching for a process to be worth it."""
CHUNKS: Final = 50
"""Parts of N messages, or of ten pauses, of which a window consists."""


class ElasticityError(RoveError):
    """Settings that contradict each other."""


class ElasticitySettings(msgspec.Struct, frozen=True):
    """When to divide and when to merge."""

    layout: Layout = "replicated"
    matchers_min: int = 0
    """0: the broker may match by itself."""
    matchers_max: int = 2
    window_messages: int = 10_000
    split_below: float = 0.2
    """Idle share of a window."""
    merge_above: float = 0.7
    pause_s: float = 2.0
    """The minimum time between two reconfigurations."""

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
    """A reconfiguration that should be done."""

    kind: Literal["out", "in", "split", "merge"]
    matcher: int
    """The busiest one when matchers are added, the least busy one when some are removed."""
    reason: str
    matchers: int
    """The number of processes afterwards."""

    @property
    def is_for_more(self) -> bool:
        """Whether matchers are added, not removed."""
        return self.kind in ("out", "split")


class _Chunk(msgspec.Struct):
    busy_s: float
    other_s: float
    waited_s: float
    messages: int

    def lasted_s(self) -> float:
        return self.busy_s + self.other_s + self.waited_s


class _Window:
    """How a matcher used its time during its last messages."""

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
        """How long it has been idle since its last report."""
        silent_s = now - self.heard_at
        return silent_s if silent_s >= SILENT_PAUSES * self._pause_s else 0.0

    def is_full(self, now: float) -> bool:
        return self._is_enough(self._sum, more_s=self.silent_s(now))

    def _kept(self, now: float) -> _Chunk:
        """The sums of the window with the silence since then, without what that pushes out of
        it."""
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
        """The share of its time spent on matching."""
        kept = self._kept(now)
        return _share(kept.busy_s / kept.lasted_s()) if kept.lasted_s() > 0.0 else 0.0

    def other_s(self) -> float:
        """Other work per message."""
        return self._sum.other_s / max(self._sum.messages, 1)


class _Figures(msgspec.Struct, frozen=True):
    """The figures before matchers were added."""

    idle_share: float
    rate: float


class ScalingPolicy:
    """Decides from reports of matchers when to reconfigure them.

    It does nothing by itself: call `wants` about once in a pause or more often, also while nothing
    is published, and `done` or `failed` after each decision.
    """

    def __init__(self, settings: ElasticitySettings) -> None:
        self.settings = settings
        self.layout: Layout = settings.layout
        """The present layout; call `restart` after a change."""
        self._windows: dict[int, _Window] = {}
        self._matchers: frozenset[int] | None = None
        self._began_at: float | None = None
        self._settles_at: float | None = None
        """Reports before this moment belong to the reconfiguration."""
        self._free_at = -math.inf
        self._changed_at = -math.inf
        self._was_for_more: bool | None = None
        self._doublings = 0
        self._failures = 0
        self._futile_until = -math.inf
        self._futile_times = 0
        self._asked: _Figures | None = None
        self._before: _Figures | None = None
        """The figures before the last division, until it is known whether it helped."""
        self._other_s = 0.0
        """The broker's other work per message when it last matched by itself."""
        self._calm_since: float | None = None
        self._needed: deque[tuple[float, int]] = deque()
        """Recent moments since when certain numbers suffice."""

    # -- reports -----------------------------------------------------------------------

    def seen(
        self,
        matcher: int,
        busy_s: float,
        waited_s: float,
        messages: int,
        now: float,
        other_s: float = 0.0,
    ) -> None:
        """A matcher (0: the broker) reports its time for matching and waiting since the last
        report.

        `other_s` is work of the broker that no matcher can take over.
        """
        if self._settles_at is not None and self._settles_at < now:
            self._settle()
        window = self._windows.get(matcher)
        if window is None:
            window = self._windows[matcher] = _Window(self.settings, now)
        window.add(_Chunk(busy_s, other_s, waited_s, messages), now)

    def forget(self, matcher: int) -> None:
        """A matcher has ended."""
        self._windows.pop(matcher, None)

    def idle_share(self, matcher: int, now: float | None = None) -> float:
        """The idle share of a matcher during its last messages; 1 without any report.

        With `now`, silence since the last report counts too.
        """
        window = self._windows.get(matcher)
        if window is None:
            return 1.0
        return window.idle_share(window.heard_at if now is None else now)

    def rate(self, matcher: int, now: float) -> float:
        """Recent messages per second."""
        window = self._windows.get(matcher)
        if window is None or window.lasted_s(now) <= 0.0:
            return 0.0
        return window.messages(now) / window.lasted_s(now)

    # -- deciding ----------------------------------------------------------------------

    def wants(self, matchers: Sequence[int], now: float) -> ScalingDecision | None:
        """The reconfiguration that should be done, if any; `matchers` are the present processes.

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
            # The parent gets every publication, however many children there are.
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
        """The window of a matcher, if it is full enough to show an overload."""
        window = self._windows.get(matcher)
        if window is None or not window.is_full(now):
            return None
        return window if now - window.heard_at <= self.settings.pause_s else None

    def _throughput(self, judged: Sequence[int], now: float) -> float:
        rates = [self.rate(matcher, now) for matcher in judged]
        return sum(rates) if self.layout == "replicated" else max(rates)

    def _is_futile(self, figures: _Figures, now: float) -> bool:
        """Whether recent divisions did not help."""
        before, self._before = self._before, None
        if before is not None and (
            figures.idle_share < before.idle_share + 0.05 and figures.rate < 1.1 * before.rate
        ):
            doubled = 2 ** min(self._futile_times, DOUBLINGS_MAX)
            self._futile_until = now + FUTILE_PAUSES * self.settings.pause_s * doubled
            self._futile_times += 1
        return now < self._futile_until

    def _target_for_more(self, numbers: tuple[int, ...], idle_share: float, now: float) -> int:
        """The smallest number with which all would be between the thresholds."""
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
        """The number that has sufficed for long enough; None if there is none."""
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
        """The smallest number that would suffice; None if none should be removed."""
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
        """The broker's busy share while others match; estimated if it does not report meanwhile."""
        if BROKER in self._windows:
            return 1.0 - self.idle_share(BROKER, now)
        return self._throughput(numbers, now) * self._other_s

    def _is_full(self, matcher: int, now: float) -> bool:
        window = self._windows.get(matcher)
        if window is not None:
            return window.is_full(now)
        return now - self._settled_at() >= WINDOW_PAUSES * self.settings.pause_s

    def _settled_at(self) -> float:
        """Since when a matcher without any report has been silent."""
        return 0.0 if self._began_at is None else self._began_at

    # -- hysteresis --------------------------------------------------------------------

    def done(self, decision: ScalingDecision, now: float) -> None:
        """A decision was carried out."""
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
        """A decision could not be carried out, and nothing has changed."""
        self._failures = min(self._failures + 1, DOUBLINGS_MAX)
        self.restart(now)

    def restart(self, now: float) -> None:
        """There was a reconfiguration, for whatever reason: earlier reports no longer count."""
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
    """Busy shares of more matchers, if divisible work is divided evenly."""
    if layout == "hierarchical" and len(loads) > 1:
        # A parent that has children is not relieved by more of them.
        return [sum(loads[1:]) / (count - 1)] * (count - 1)
    return [sum(loads) / count] * count


def _gathered_children(loads: Sequence[float], rates: Sequence[float], count: int) -> list[float]:
    """Busy shares of fewer matchers, the parent first, from their shares and message rates.

    A child that is merged from two gets the publications of both, and the parent gets all, so
    together they have more work than the sum.
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
    """A percentage with enough digits to differ from the one that it is compared with."""
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
