"""How many matchers there should be: rules one by one, and a world whose load goes up and down."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from rove.elastic.elasticity import (
    CALM_PAUSES,
    DOUBLINGS_MAX,
    FUTILE_PAUSES,
    QUIET_PAUSES,
    WINDOW_PAUSES,
    ElasticityError,
    ElasticitySettings,
    ScalingDecision,
    ScalingPolicy,
)
from rove.elastic.view import LAYOUTS, Layout

STEP_S = 180
LOADS = {
    "nothing": 0.0,
    "very low": 5.0,
    "low": 100.0,
    "medium": 900.0,
    "high": 2_000.0,
    "overload": 20_000.0,
}
STAIRS = (
    *("very low", "low", "medium", "high", "overload", "high", "medium", "low", "very low"),
    *("overload", "nothing", "overload", "low", "high", "nothing"),
)
FIXED_S, WORK_S, OTHER_S = 0.0001, 0.0009, 0.00005
"""For a message: reading it, comparing it with all subscriptions, the broker's own part."""


class World:
    """A broker whose matchers have so many subscriptions, and the load that comes to it."""

    def __init__(
        self, settings: ElasticitySettings, seed: int, *, cores: int = 64, slow_s: int = 1
    ) -> None:
        self.settings = settings
        self.scaling = ScalingPolicy(settings)
        self.random = random.Random(seed)
        self.cores = cores
        self.slow_s = slow_s
        """How long a deviation of the load lasts."""
        self.noise = 1.0
        self.now = 1_000.0
        self.shares: dict[int, float] = {}
        """The part of the subscriptions that each matcher has; the parent first."""
        self.numbers = 0
        self.decisions: list[tuple[float, ScalingDecision]] = []
        self.handled = 0.0

    def costs(self) -> list[float]:
        """Seconds for each message that comes, by matcher."""
        if self.settings.layout == "replicated":
            return [(FIXED_S + WORK_S) / len(self.shares)] * len(self.shares)
        if self.settings.layout == "partitioned" or len(self.shares) == 1:
            return [FIXED_S + WORK_S * share for share in self.shares.values()]
        parent, *children = self.shares.values()
        return [FIXED_S + WORK_S * parent] + [0.5 * (FIXED_S + WORK_S * c) for c in children]

    def second(self, rate: float) -> None:
        """Let a second pass, and do what the judge wants."""
        if int(self.now) % self.slow_s == 0:
            self.noise = self.random.uniform(0.8, 1.2)
        rate *= self.noise
        costs = self.costs() if self.shares else []
        slowed = max(len(costs) / self.cores, 1.0)
        own = OTHER_S + (0.0 if self.shares else FIXED_S + WORK_S)
        self.handled = min([rate, 1 / own, *(1 / (cost * slowed) for cost in costs)])
        self.now += 1.0
        messages = round(self.handled)
        if messages:
            matching_s = 0.0 if self.shares else self.handled * (FIXED_S + WORK_S)
            other_s = self.handled * OTHER_S
            idle_s = 1 - matching_s - other_s
            self.scaling.seen(0, matching_s, idle_s, messages, self.now, other_s)
        for index, (number, cost) in enumerate(zip(self.shares, costs, strict=True)):
            busy_s = min(self.handled * cost * slowed, 1.0)
            given = messages
            if self.settings.layout == "replicated":
                given = messages // len(costs)
            elif self.settings.layout == "hierarchical" and index > 0:
                given = messages // 2
            if given:
                self.scaling.seen(number, busy_s, 1 - busy_s, given, self.now)
        decision = self.scaling.wants(list(self.shares), self.now)
        if decision is not None:
            self.obey(decision)

    def obey(self, decision: ScalingDecision) -> None:
        self.decisions.append((self.now, decision))
        assert self.settings.matchers_min <= decision.matchers <= self.settings.matchers_max
        assert decision.is_for_more == (decision.matchers > len(self.shares))
        while len(self.shares) < decision.matchers:
            self.numbers += 1
            self.shares[self.numbers] = 0.0
        while len(self.shares) > decision.matchers:
            self.shares.popitem()
        self.divide_evenly()
        self.scaling.done(decision, self.now)

    def divide_evenly(self) -> None:
        count = len(self.shares)
        for index, number in enumerate(self.shares):
            if self.settings.layout == "replicated" or count == 1:
                self.shares[number] = 1.0
            elif self.settings.layout == "partitioned":
                self.shares[number] = 1 / count
            else:
                self.shares[number] = 0.9 / (count - 1) if index else 0.1

    def step(self, rate: float, lasts_s: int = STEP_S) -> list[ScalingDecision]:
        """Let a load last; what was rearranged meanwhile."""
        known = len(self.decisions)
        for _ in range(lasts_s):
            self.second(rate)
        return [decision for _, decision in self.decisions[known:]]


# -- in a world with a load ------------------------------------------------------------


@pytest.mark.parametrize("slow_s", [1, 10])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_step_of_the_load_takes_at_most_two_rearrangements(
    layout: Layout, seed: int, slow_s: int
) -> None:
    world = World(ElasticitySettings(layout=layout, matchers_max=4), seed, slow_s=slow_s)
    for name in STAIRS:
        made = world.step(LOADS[name])
        assert len(made) <= 2, (name, made)
        if name != "overload":
            assert world.handled >= 0.8 * LOADS[name], f"{len(world.shares)} matchers for {name}"
            assert all(world.scaling.idle_share(n) > 0.1 for n in world.shares)
        elif layout == "hierarchical":
            # Beyond what the parent can look at, children do not help.
            assert len(world.shares) >= 2
        else:
            assert len(world.shares) == 4
        if name in ("nothing", "very low", "low"):
            assert not world.shares


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_load_that_stays_leaves_things_as_they_are(layout: Layout) -> None:
    for seed, rate in enumerate((0.1, 5, 550, 650, 700, 750, 800, 1_200, 1_600, 2_400, 20_000)):
        world = World(ElasticitySettings(layout=layout, matchers_max=4), seed, slow_s=3)
        assert len(world.step(rate)) <= 2
        assert world.step(rate, 3 * STEP_S) == [], rate


@pytest.mark.parametrize("rate", [3, 20_000])
def test_the_least_and_the_greatest_number_are_never_left(rate: float) -> None:
    world = World(ElasticitySettings(matchers_min=2, matchers_max=2), 1)
    made = world.step(rate, 3 * STEP_S)
    assert [(d.kind, d.matchers, d.reason) for d in made] == [
        ("out", 2, "0 of at least 2 matchers")
    ]


def test_more_matchers_than_cores_are_given_up_on() -> None:
    world = World(ElasticitySettings(matchers_max=32, pause_s=1.0), 1, cores=2)
    world.step(20_000)
    assert 2 <= len(world.shares) <= 4
    rearranged_at = [at for at, _ in world.decisions]
    world.step(20_000, 16 * STEP_S)
    later = [at for at, _ in world.decisions[len(rearranged_at) :]]
    apart_s = [b - a for a, b in pairwise([rearranged_at[-1], *later])]
    assert len(apart_s) > 1
    assert all(s >= FUTILE_PAUSES * world.settings.pause_s for s in apart_s)
    assert apart_s == sorted(apart_s), "each attempt comes later than the one before"


class Naive(ScalingPolicy):
    """Thresholds alone, as in CUPUS."""

    def wants(self, matchers: Sequence[int], now: float) -> ScalingDecision | None:
        count = len(matchers)
        idle_share = self.idle_share(matchers[0]) if matchers else self.idle_share(0)
        self.restart(now)
        if idle_share < self.settings.split_below and count < self.settings.matchers_max:
            return ScalingDecision("split", 0, "", count + 1)
        if idle_share > self.settings.merge_above and count > self.settings.matchers_min:
            return ScalingDecision("merge", 0, "", count - 1)
        return None


def test_thresholds_alone_would_flap_in_this_world() -> None:
    world = World(ElasticitySettings(matchers_max=4), 1)
    world.scaling = Naive(world.settings)
    assert len(world.step(700)) > 10
    world = World(ElasticitySettings(matchers_max=4), 1)
    assert len(world.step(700)) <= 1


# -- windows ---------------------------------------------------------------------------

SETTINGS = ElasticitySettings(window_messages=1_000, pause_s=2.0, matchers_max=4)


def feed(
    judge: ScalingPolicy,
    matchers: Sequence[int],
    busy: float,
    *,
    since: float,
    seconds: int,
    rate: int,
) -> float:
    """Seconds in which each matcher is busy for such a share; the time afterwards."""
    for second in range(seconds):
        for matcher in matchers:
            judge.seen(matcher, busy, 1 - busy, rate, since + second + 1)
    return since + seconds


def asked_every_second(
    judge: ScalingPolicy, matchers: Sequence[int], since: float, until: float
) -> float:
    """When something was wanted."""
    now = since
    while now < until:
        if judge.wants(matchers, now) is not None:
            return now
        now += 1
    raise AssertionError(f"nothing was wanted until {until}")


def test_the_idle_share_is_that_of_the_last_messages() -> None:
    judge = ScalingPolicy(SETTINGS)
    now = feed(judge, [1], 0.1, since=0, seconds=60, rate=500)
    assert judge.idle_share(1) == pytest.approx(0.9)
    feed(judge, [1], 0.9, since=now, seconds=3, rate=500)
    assert judge.idle_share(1) == pytest.approx(0.1)
    assert judge.rate(1, now + 3) == pytest.approx(500)
    assert judge.idle_share(1, now + 100) == 1.0
    assert judge.rate(1, now + 100) == 0.0


def test_a_matcher_that_was_never_heard_of_is_idle() -> None:
    judge = ScalingPolicy(SETTINGS)
    assert (judge.idle_share(7), judge.rate(7, 0)) == (1.0, 0.0)
    judge.seen(7, 1, 0, 10, 1)
    judge.forget(7)
    assert judge.idle_share(7) == 1.0


def test_a_fast_matcher_is_not_judged_by_a_moment() -> None:
    judge = ScalingPolicy(SETTINGS)
    for tick in range(1, 20):
        judge.seen(1, 0.1, 0, 10_000, tick / 10)
        assert judge.wants([1], tick / 10) is None
    judge.seen(1, 0.1, 0, 10_000, 2.0)
    assert judge.wants([1], 2.0) is not None


def test_a_slow_matcher_is_judged_by_time() -> None:
    judge = ScalingPolicy(SETTINGS)
    longest_s = int(WINDOW_PAUSES * SETTINGS.pause_s)
    now = feed(judge, [1], 1.0, since=0, seconds=longest_s - 1, rate=1)
    assert judge.wants([1], now) is None
    now = feed(judge, [1], 1.0, since=now, seconds=1, rate=1)
    decision = judge.wants([1], now)
    assert decision is not None
    assert decision.reason == "idle 0 % of the last 30 s, less than 20 %"


def test_an_hour_of_silence_does_not_hide_a_load() -> None:
    judge = ScalingPolicy(SETTINGS)
    judge.seen(1, 0.0, 3_600.0, 1, 3_600)
    now = feed(judge, [1], 1.0, since=3_600, seconds=30, rate=10)
    assert judge.wants([1], now) is not None


def test_many_small_samples_take_little_room() -> None:
    judge = ScalingPolicy(SETTINGS)
    for sample in range(20_000):
        judge.seen(1, 0.00001, 0.00001, 1, sample * 0.00002)
    assert len(judge._windows[1]._chunks) <= 1_100
    assert judge.idle_share(1) == pytest.approx(0.5)


def test_nobody_is_divided_who_has_fallen_silent() -> None:
    judge = ScalingPolicy(SETTINGS)
    now = feed(judge, [1], 1.0, since=0, seconds=5, rate=1_000)
    assert judge.wants([1], now + SETTINGS.pause_s + 0.1) is None
    assert judge.wants([1], now + SETTINGS.pause_s) is not None


def test_nothing_heard_at_all_ends_in_the_broker() -> None:
    judge = ScalingPolicy(SETTINGS)
    pauses = WINDOW_PAUSES + CALM_PAUSES
    asked_at = asked_every_second(judge, [3], 0, 1_000)
    assert asked_at == pytest.approx(pauses * SETTINGS.pause_s, abs=2)
    decision = judge.wants([3], asked_at)
    assert decision is not None
    assert (decision.kind, decision.matcher, decision.matchers) == ("in", 3, 0)


# -- more ------------------------------------------------------------------------------


@pytest.mark.parametrize(("busy", "matchers"), [(0.81, 2), (0.94, 2), (0.96, 2), (1.0, 2)])
def test_the_broker_hands_its_matching_out(busy: float, matchers: int) -> None:
    judge = ScalingPolicy(SETTINGS)
    now = feed(judge, [0], busy, since=0, seconds=3, rate=1_000)
    decision = judge.wants([0], now)
    assert decision is not None
    assert (decision.kind, decision.matcher) == ("out", 0)
    assert decision.matchers == matchers


def test_matchers_without_idle_time_are_doubled() -> None:
    judge = ScalingPolicy(SETTINGS)
    now = feed(judge, [1, 2], 1.0, since=0, seconds=3, rate=1_000)
    decision = judge.wants([1, 2], now)
    assert decision == ScalingDecision(
        "split", 1, "idle 0 % of the last 2,000 messages, less than 20 %", 4
    )


@pytest.mark.parametrize(("busy", "said"), [(0.81, "19 %"), (0.803, "19.7 %"), (0.8002, "19.98 %")])
def test_a_reason_reads_right_beside_the_threshold(busy: float, said: str) -> None:
    judge = ScalingPolicy(SETTINGS)
    decision = judge.wants([1], feed(judge, [1], busy, since=0, seconds=2, rate=1_000))
    assert decision is not None
    assert decision.reason == f"idle {said} of the last 2,000 messages, less than 20 %"


def test_only_the_busy_one_is_divided() -> None:
    judge = ScalingPolicy(
        ElasticitySettings(layout="partitioned", matchers_max=4, window_messages=1_000)
    )
    now = 0.0
    for _ in range(3):
        now = feed(judge, [1, 3], 0.3, since=now, seconds=1, rate=1_000)
        feed(judge, [2], 0.88, since=now - 1, seconds=1, rate=1_000)
    decision = judge.wants([1, 2, 3], now)
    assert decision is not None
    assert (decision.kind, decision.matcher, decision.matchers) == ("split", 2, 4)
    assert decision.reason == "idle 12 % of the last 2,000 messages, less than 20 %"


def test_a_broker_busy_with_other_things_keeps_its_matching() -> None:
    judge = ScalingPolicy(SETTINGS)
    for second in range(1, 10):
        judge.seen(0, 0.1, 0.0, 1_000, second, other_s=0.9)
        assert judge.wants([], second) is None
    assert judge.idle_share(0) == 0.0


def test_a_parent_with_children_is_not_divided() -> None:
    judge = ScalingPolicy(
        ElasticitySettings(layout="hierarchical", matchers_max=4, window_messages=1_000)
    )
    now = feed(judge, [1], 1.0, since=0, seconds=3, rate=1_000)
    feed(judge, [2], 0.4, since=0, seconds=3, rate=1_000)
    assert judge.wants([1, 2], now) is None
    now = feed(judge, [2], 0.9, since=now, seconds=3, rate=1_000)
    decision = judge.wants([1, 2], now)
    assert decision is not None
    assert decision.matcher == 2


# -- fewer -----------------------------------------------------------------------------


def fewer(layout: Layout, loads: dict[int, float], matchers_min: int = 0) -> ScalingDecision | None:
    judge = ScalingPolicy(
        ElasticitySettings(
            layout=layout, matchers_min=matchers_min, matchers_max=4, window_messages=1_000
        )
    )
    for second in range(1, 60):
        for matcher, busy in loads.items():
            rate = 200 if layout == "hierarchical" and matcher > 1 else 1_000
            judge.seen(matcher, busy, 1 - busy, rate, second)
        decision = judge.wants([n for n in loads if n], second)
        if decision is not None:
            return decision
    return None


def test_replicas_share_what_is_left() -> None:
    decision = fewer("replicated", {1: 0.2, 2: 0.2, 3: 0.2})
    assert decision is not None
    assert (decision.kind, decision.matchers) == ("merge", 1)
    assert decision.reason.endswith("more than 70 %; one matcher would still be idle 40 %"), (
        decision.reason
    )
    assert fewer("replicated", {1: 0.35, 2: 0.35}) is None, "not above the threshold"


def test_shares_are_divided_anew() -> None:
    decision = fewer("partitioned", {1: 0.6, 2: 0.1, 3: 0.05, 4: 0.6})
    assert decision is not None
    assert (decision.kind, decision.matcher, decision.matchers) == ("merge", 3, 3)
    assert fewer("partitioned", {1: 0.6, 2: 0.1}) is None, "one would be divided again"


def test_nothing_is_put_together_while_someone_has_too_much() -> None:
    assert fewer("partitioned", {1: 0.9, 2: 0.01, 3: 0.01, 4: 0.01}) is None


def test_what_goes_back_to_the_parent_is_asked_always() -> None:
    assert fewer("hierarchical", {1: 0.2, 2: 0.1}) is None, "0.1 for a fifth of the messages"
    decision = fewer("hierarchical", {1: 0.1, 2: 0.05})
    assert decision is not None
    assert decision.reason.endswith("one matcher would still be idle 65 %"), decision.reason


def test_the_broker_takes_over_only_if_it_has_time() -> None:
    decision = fewer("replicated", {0: 0.3, 1: 0.2})
    assert decision is not None
    assert (decision.kind, decision.matchers) == ("in", 0)
    assert decision.reason.endswith("the broker itself would still be idle 50 %")
    assert fewer("replicated", {0: 0.6, 1: 0.2}) is None
    assert fewer("replicated", {0: 0.0, 1: 0.0}, matchers_min=1) is None


def test_a_broker_that_was_busy_otherwise_is_not_given_back_its_matching() -> None:
    judge = ScalingPolicy(SETTINGS)
    decision, now = None, 0.0
    while decision is None:
        now += 1
        judge.seen(0, 0.25, 0.15, 1_000, now, other_s=0.6)
        decision = judge.wants([], now)
    assert (decision.kind, decision.matchers) == ("out", 1)
    judge.done(decision, now)
    for _ in range(100):
        now = feed(judge, [1], 0.25, since=now, seconds=1, rate=1_000)
        assert judge.wants([1], now) is None
    while (decision := judge.wants([1], now)) is None:
        now = feed(judge, [1], 0.05, since=now, seconds=1, rate=200)
    assert decision.kind == "in"
    assert decision.reason.endswith("the broker itself would still be idle 83 %")


# -- hysteresis ------------------------------------------------------------------------


def test_after_a_rearrangement_windows_begin_anew() -> None:
    judge = ScalingPolicy(SETTINGS)
    now = feed(judge, [1], 0.9, since=0, seconds=3, rate=1_000)
    decision = judge.wants([1], now)
    assert decision is not None
    judge.done(decision, now)
    assert judge.idle_share(1) == 1.0
    later = feed(judge, [1, 2], 0.9, since=now, seconds=3, rate=1_000)
    assert judge.wants([1, 2], later) is None, "what was seen during the pause does not count"
    later = feed(judge, [1, 2], 0.9, since=later, seconds=2, rate=1_000)
    assert judge.wants([1, 2], later) is not None


def test_matchers_that_change_by_themselves_begin_anew() -> None:
    judge = ScalingPolicy(SETTINGS)
    now = feed(judge, [1, 2], 0.9, since=0, seconds=3, rate=1_000)
    assert judge.wants([1, 2], now) is not None
    assert judge.wants([1], now) is None, "2 has died: 1 may be busy for that reason"
    now = feed(judge, [1], 0.9, since=now, seconds=4, rate=1_000)
    assert judge.wants([1], now) is not None


def test_a_failure_waits_twice_as_long_each_time() -> None:
    judge = ScalingPolicy(SETTINGS)
    now, waits = 0.0, []
    for _ in range(DOUBLINGS_MAX + 2):
        failed_at = now
        while (decision := judge.wants([1], now)) is None:
            now = feed(judge, [1], 0.9, since=now, seconds=1, rate=1_000)
        waits.append(now - failed_at)
        judge.failed(decision, now)
    assert waits == [2, 4, 8, 16, 32, 64, 64]


def test_going_back_on_a_decision_makes_pauses_longer_and_quiet_time_shorter() -> None:
    judge = ScalingPolicy(SETTINGS)
    more, fewer = ScalingDecision("split", 1, "", 2), ScalingDecision("merge", 1, "", 1)
    now, rate, waits = 0.0, 1_000, []
    for decision in (more, fewer, more, fewer, fewer):
        judge.done(decision, now)
        since, rate = now, 2 * rate
        while judge.wants([1], now) is None:
            now = feed(judge, [1], 0.9, since=now, seconds=1, rate=rate)
        waits.append(now - since)
    assert waits == [4, 4, 8, 16, 16]
    judge.done(more, now + DOUBLINGS_MAX * QUIET_PAUSES * SETTINGS.pause_s)
    now = since = now + DOUBLINGS_MAX * QUIET_PAUSES * SETTINGS.pause_s
    while judge.wants([1], now) is None:
        now = feed(judge, [1], 0.9, since=now, seconds=1, rate=2 * rate)
    assert now - since == 4


def test_a_merge_after_flapping_waits_longer() -> None:
    calm = ScalingPolicy(SETTINGS)
    flapping = ScalingPolicy(SETTINGS)
    more, fewer = ScalingDecision("split", 1, "", 2), ScalingDecision("merge", 1, "", 1)
    for judge, decisions in ((calm, [more]), (flapping, [more, fewer, more])):
        for decision in decisions:
            judge.done(decision, 0.0)
    first_s = asked_every_second(calm, [1], 0, 1_000)
    assert asked_every_second(flapping, [1], 0, 1_000) >= first_s + CALM_PAUSES * SETTINGS.pause_s


def test_more_than_allowed_are_reduced() -> None:
    judge = ScalingPolicy(ElasticitySettings(matchers_max=1))
    assert judge.wants([1, 2], 0) == ScalingDecision("merge", 2, "2 of at most 1 matchers", 1)
    judge = ScalingPolicy(ElasticitySettings(matchers_max=0))
    assert judge.wants([1], 0) == ScalingDecision("in", 1, "1 of at most 0 matchers", 0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"matchers_min": 3, "matchers_max": 2}, "at least 3 and at most 2"),
        ({"matchers_min": -1}, "least number must be from 0"),
        ({"split_below": 0.8}, "the first the smaller"),
        ({"merge_above": 1.0}, "between 0 and 1"),
        ({"window_messages": 0}, "must be positive"),
        ({"pause_s": 0.0}, "must be positive"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float], words: str) -> None:
    with pytest.raises(ElasticityError, match=words):
        ElasticitySettings(**settings)  # type: ignore[arg-type]
