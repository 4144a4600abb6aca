"""Nothing that a subscriber wants is missing from the summary, at any moment, in any mode."""

import math
from collections.abc import Callable
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import Subscription, matches, normalise, parse
from rove.lang.errors import LimitError
from rove.mesh.interest import (
    Covering,
    Entry,
    EntryTable,
    Pace,
    Summary,
    envelopes,
    merging,
    outbox,
    regions,
)
from rove.mesh.interest import covering as covering_module
from rove.mqtt.topics import fits
from rove.testing import strategies
from tests.effort import examples, share

MODES: tuple[Covering, ...] = get_args(Covering)
FILTERS = ("a/b", "a/b", "a/b", "a/+", "a/#", "#", "+/b", "a", "$SYS/x", "$SYS/#", "$share/g/a/b")
TOPICS = ("a/b", "a/c", "a", "b", "x/b", "$SYS/x", "$SYS")
NUMBERS: tuple[Any, ...] = (0, -0.0, 1, 2, 2.5, 3, 5, 10, -4, 2**53 + 1, 2**63 - 1, -(2**63), 1e308)
WORDS = ("a", "b", "", "ab", "é")
VALUES: tuple[Any, ...] = (*NUMBERS, *WORDS, "\x07", True, False, None, [1], {"x": 3}, 2**64)


class Scenario:
    """Random subscriptions, states and times, with an oracle and the table of one receiver."""

    def __init__(self, seed: int, mode: Covering, **options: Any) -> None:
        self.random = Random(seed)
        self.summary = Summary(mode, **options)
        self.table = EntryTable()
        self.now_s = 0.0
        self.live: dict[int, tuple[str, Subscription | None, float, str]] = {}
        self.states: dict[str, dict[str, Any]] = {"ann": {}, "bob": {}}
        self.keys = 0

    def number(self) -> str:
        return repr(self.random.choice(NUMBERS))

    def bound(self) -> str:
        kinds: list[Callable[[], str]] = [
            self.number,
            lambda: f"t + {self.number()}",
            lambda: f"{self.random.choice((-2, 0.5, 3))} * t - {self.number()}",
            lambda: f"me.x + {self.number()}",
            lambda: f"me.x - 0.1 * t - {self.number()}",
            lambda: "me.y",
        ]
        weights = [8, 1, 1, 2, 1, 1]
        return self.random.choices(kinds, weights)[0]()

    def predicate(self) -> str:
        name = self.random.choice(("x", "x", "y", "z", "n.m"))
        word = self.random.choice(WORDS)
        kinds = [
            lambda: f"{name} > {self.bound()}",
            lambda: f"{name} <= {self.bound()}",
            lambda: f"{name} BETWEEN {self.bound()} AND {self.bound()}",
            lambda: f"{name} BETWEEN me.x - 3 AND me.x + 3",
            lambda: f"{name} != {self.bound()}",
            lambda: f"{name} IN ({self.number()}, {self.number()})",
            lambda: f"{name} = '{word}'",
            lambda: f"startswith({name}, '{word}')",
            lambda: f"{name} IS NULL",
            lambda: f"{name} = me.y",
            lambda: f"me.x > {self.number()}",
            lambda: f"{name}",
            lambda: f"abs({name}) < {self.number()}",
            lambda: f"NOT {name} < {self.number()}",
        ]
        return self.random.choice(kinds)()

    def expression(self) -> Subscription | None:
        count = self.random.choice((0, 1, 1, 2, 2, 3, 4))
        if count == 0:
            return None
        joins = self.random.choices((" AND ", " OR "), (4, 1), k=count)
        parts = [f"({self.predicate()})" for _ in range(count)]
        text = parts[0] + "".join(j + p for j, p in zip(joins, parts[1:], strict=False))
        if self.random.random() < 0.1:
            text += " ORDER BY x LIMIT 3 WITHIN 10 SECONDS"
        return parse(text)

    def step(self) -> None:
        kind = self.random.choice(("add", "add", "add", "remove", "state", "state", "time"))
        if kind == "add":
            self.add(self.random.choice(FILTERS), self.expression())
        elif kind == "remove" and self.live:
            self.remove(self.random.choice(list(self.live)))
        elif kind == "state":
            self.move(self.random.choice(("ann", "bob")))
        else:
            self.now_s += self.random.choice((0.0, 0.1, 1.0, 4.0, 9.0, 30.0, 1e4))

    def add(self, topic_filter: str, expression: Subscription | None) -> None:
        key = self.keys = self.keys + 1
        if self.live and self.random.random() < 0.1:
            key = self.random.choice(list(self.live))
        subscriber = self.random.choice(("ann", "bob"))
        self.live[key] = (topic_filter, expression, self.now_s, subscriber)
        state = self.states[subscriber]
        self.summary.add(
            key, topic_filter, expression, self.now_s, subscriber=subscriber, state=state
        )

    def remove(self, key: int) -> None:
        del self.live[key]
        self.summary.remove(key)

    def move(self, subscriber: str) -> None:
        state = self.states[subscriber]
        x = state.get("x")
        changes: dict[str, Any] = {"x": self.random.choice(VALUES)}
        if isinstance(x, int | float) and abs(x) < 1e6 and self.random.random() < 0.8:
            changes = {"x": x + self.random.choice((0.1, 0.3, -0.2, 1.0, 40.0))}
        if self.random.random() < 0.3:
            changes["y"] = self.random.choice(VALUES)
        for name, value in changes.items():
            if value is None:
                state.pop(name, None)
            else:
                state[name] = value
        self.summary.set_state(subscriber, changes, self.now_s)

    def deliver(self) -> None:
        changes = self.summary.take(self.now_s)
        if changes is not None:
            self.table.apply(changes)

    def publication(self) -> dict[str, Any]:
        names = [name for name in ("x", "y", "z") if self.random.random() < 0.8]
        values: dict[str, Any] = {name: self.random.choice(VALUES) for name in names}
        x = self.states["ann"].get("x")
        if isinstance(x, int | float) and self.random.random() < 0.5:
            values["x"] = x + self.random.choice((-3, 3, 0, 2.9, -2.9, 3.1))
        values["n"] = {"m": self.random.choice(VALUES)} if self.random.random() < 0.5 else 3
        return values

    def wanted(self, topic: str, publication: dict[str, Any]) -> bool:
        return any(
            fits(topic_filter.removeprefix("$share/g/"), topic)
            and (
                expression is None
                or matches(expression, publication, self.now_s - at, self.states[subscriber])
            )
            for topic_filter, expression, at, subscriber in self.live.values()
        )

    def check(self, receiver_s: float = 0.0) -> None:
        for _ in range(4):
            topic, publication = self.random.choice(TOPICS), self.publication()
            if self.wanted(topic, publication):
                assert self.table.matches(topic, publication, self.now_s + receiver_s), publication


def play(seed: int, mode: Covering, steps: int = 40, **options: Any) -> Scenario:
    """A scenario in which every wanted publication matched an entry after every step."""
    scenario = Scenario(seed, mode, **options)
    for _ in range(steps):
        scenario.step()
        if scenario.random.random() < 0.3:
            scenario.summary.advance(scenario.now_s)
        if scenario.random.random() < 0.8:
            scenario.deliver()
            scenario.check()
    scenario.deliver()
    assert scenario.table.digest == scenario.summary.digest
    assert list(scenario.table.entries.values()) == scenario.summary.entries()
    return scenario


@pytest.mark.parametrize("mode", MODES)
def test_nothing_wanted_is_missing_after_any_step(mode: Covering) -> None:
    slow = Pace(withdraw_after_s=2.0, entries_per_s=1.0)
    for seed in range(share(600)):
        budget_bytes = (100, 300, 1_000)[seed % 3]
        play(seed, mode, budget_bytes=budget_bytes, pace=slow if seed % 2 else Pace())


@pytest.mark.parametrize("mode", MODES)
def test_nothing_wanted_is_missing_with_a_clock_that_is_wrong(mode: Covering) -> None:
    for seed in range(share(200)):
        scenario = Scenario(seed, mode, offset_error_s=0.25)
        for _ in range(30):
            scenario.step()
            scenario.deliver()
            if all(at < scenario.now_s for _, _, at, _ in scenario.live.values()):
                scenario.check(scenario.random.choice((-0.25, -0.1, 0.0, 0.25)))


@pytest.mark.parametrize("mode", MODES)
@given(
    encounters=st.lists(strategies.encounters(), min_size=1, max_size=4), seed=st.integers(0, 999)
)
@examples(300)
def test_whatever_the_language_says_nothing_wanted_is_missing(
    mode: Covering, encounters: list[tuple[Any, Any, float, Any]], seed: int
) -> None:
    random = Random(seed)
    found, table = Summary(mode, budget_bytes=300), EntryTable()
    live: dict[int, tuple[Subscription, Any]] = {}
    for number, (subscription, _, _, me) in enumerate(encounters):
        try:
            normalise(subscription)
        except LimitError:
            continue
        found.add(number, "a", subscription, 0.0, state=me)
        live[number] = subscription, me
    for now_s in (0.0, 0.0, *sorted(t for _, _, t, _ in encounters)):
        if live and random.random() < 0.3:
            key = random.choice(list(live))
            del live[key]
            found.remove(key)
        changes = found.take(now_s)
        if changes is not None:
            table.apply(changes)
        for _, publication, _, _ in encounters:
            wanted = any(matches(one, publication, now_s, me) for one, me in live.values())
            assert not wanted or table.matches("a", publication, now_s)


def test_without_covering_the_entries_are_exact() -> None:
    for seed in range(share(200)):
        scenario = Scenario(seed, "off", pace=Pace(withdraw_after_s=0.0, entries_per_s=1e9))
        for _ in range(30):
            expression = scenario.expression()
            if expression is not None and "Me(" not in repr(expression):
                scenario.add(scenario.random.choice(FILTERS), expression)
            elif scenario.live:
                scenario.remove(scenario.random.choice(list(scenario.live)))
            scenario.now_s += 1.0
            scenario.deliver()
            for _ in range(4):
                topic, publication = scenario.random.choice(TOPICS), scenario.publication()
                wanted = scenario.wanted(topic, publication)
                assert scenario.table.matches(topic, publication, scenario.now_s) == wanted
                assert scenario.summary.wants(topic, publication, scenario.now_s) == wanted


def drop_the_widest(mode: Covering) -> tuple[Summary, list[int]]:
    """Drop one that covers a hundred; the summary, and how much was sent in each second."""
    found = Summary(mode, pace=Pace(withdraw_after_s=1.0, entries_per_s=10.0))
    found.add("widest", "a", parse("TRUE"), 0.0)
    for number in range(100):
        found.add(number, "a", parse(f"x = {number}"), 0.0)
    assert len(found.take(0.0).added) == 1  # type: ignore[union-attr]
    found.remove("widest")
    table = EntryTable()
    table.reset(found.number, found.entries())
    now_s, sent = 0.0, []
    while found.next_s() < math.inf:
        now_s += 1.0
        changes = found.take(now_s)
        if changes is not None:
            table.apply(changes)
            sent.append(len(changes.added) + len(changes.removed))
        for number in range(100):
            assert table.matches("a", {"x": number}, now_s)
    return found, sent


def merge_before_sending() -> None:
    """A new entry that is merged with an old one before it is sent is still sent at once."""
    found, table = Summary("merged", 70, pace=Pace(entries_per_s=0.001)), EntryTable()
    found.add(1, "a", parse("x = 1"), 0.0)
    table.apply(found.take(0.0))  # type: ignore[arg-type]
    found.add(2, "a", parse("x = 2"), 0.0)
    found.add(3, "b", parse("y = 1 AND z = 2"), 0.0)
    table.apply(found.take(0.0))  # type: ignore[arg-type]
    assert table.matches("a", {"x": 2}, 0.0)
    assert len(found.entries()) == 3


def test_merging_delays_nothing_new() -> None:
    merge_before_sending()


# -- the checks above can fail ---------------------------------------------------------


def _narrow(*arguments: Any) -> Any:
    found = regions.expression_of(*arguments)
    return found if found is None else f"({found}) AND x < 1e9"


MUTATIONS: tuple[tuple[Covering, Any, str, Any], ...] = (
    ("lazy", covering_module, "_covers", lambda a, b: True),
    ("active", covering_module, "_covers", lambda a, b: True),
    ("lazy", outbox.Outbox, "hold", lambda *_: None),
    ("off", outbox.Outbox, "_stay", lambda *_: None),
    ("off", envelopes.Envelope, "is_due", lambda *_: False),
    ("off", covering_module, "expression_of", _narrow),
    ("lazy", regions, "includes", lambda *_: True),
    ("merged", merging, "_covers", lambda *_: True),
    ("merged", outbox.Outbox, "hold", lambda *_: None),
    ("merged", outbox.Outbox, "promote", lambda *_: None),
    ("merged", merging, "hull", lambda a, b: a),
    ("merged", outbox.Outbox, "is_urgent", lambda *_: False),
)


@pytest.mark.parametrize(("mode", "owner", "name", "broken"), MUTATIONS)
def test_a_broken_summary_is_noticed(
    mode: Covering, owner: Any, name: str, broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, broken)
    slow = Pace(withdraw_after_s=2.0, entries_per_s=1.0)

    def all_checks() -> None:
        if mode != "off":
            drop_the_widest(mode)
            merge_before_sending()
        for seed in range(300):
            play(seed, mode, budget_bytes=100 + 10 * seed, pace=slow)

    with pytest.raises((AssertionError, KeyError)):
        all_checks()


# -- examples --------------------------------------------------------------------------


def test_lazy_sends_no_subscription_that_an_entry_covers() -> None:
    found = Summary("lazy")
    found.add(1, "a/#", parse("x > 3"), 0.0)
    found.add(2, "a/b", parse("x > 5"), 0.0)
    found.add(3, "a/#", parse("x > 1"), 0.0)
    changes = found.take(0.0)
    assert changes is not None
    assert [entry.expression for entry in changes.added] == ["x > 3", "x > 1"]


def test_active_withdraws_what_a_wider_one_covers_after_that_is_sent() -> None:
    found = Summary("active")
    found.add(1, "a/#", parse("x > 3"), 0.0)
    first = found.take(0.0)
    found.add(2, "a/#", parse("x > 1"), 0.0)
    second, third = found.take(0.1), found.take(10.0)
    assert first is not None
    assert second is not None
    assert third is not None
    assert [entry.expression for entry in second.added] == ["x > 1"]
    assert second.removed == ()
    assert third.removed == (first.added[0].id,)


@pytest.mark.parametrize("mode", ["lazy", "active"])
def test_without_the_widest_its_replacements_come_slowly_and_before_it_goes(mode: Covering) -> None:
    found, sent = drop_the_widest(mode)
    assert max(sent) <= 11
    assert sorted(entry.expression or "" for entry in found.entries()) == sorted(
        f"x = {number}" for number in range(100)
    )


def test_an_evolving_subscription_travels_once() -> None:
    found = Summary("off")
    found.add(1, "a", parse("x BETWEEN t - 3 AND t + 3"), 5.0)
    changes = found.take(5.0)
    assert changes is not None
    (entry,) = changes.added
    assert entry == Entry(1, "a", "x BETWEEN t - 3 AND t + 3", 5.0)
    assert all(found.take(now_s) is None for now_s in (6.0, 60.0, 1e6))


def test_a_follower_sends_nothing_while_it_stays_near() -> None:
    found = Summary("off")
    found.add(1, "a", parse("x BETWEEN me.x - 8 AND me.x + 8"), 0.0, state={"x": 100.0})
    found.take(0.0)
    found.set_state(1, {"x": 100.5}, 1.0)
    assert found.take(1.0) is None
    found.set_state(1, {"x": 200.0}, 2.0)
    changes = found.take(2.0)
    assert changes is not None
    table = EntryTable()
    table.reset(changes.number, found.entries())
    assert table.matches("a", {"x": 208.0}, 2.0)


@pytest.mark.parametrize("value", ["\x07", "\u202e", "a" * 9_000])
def test_a_state_that_no_expression_can_name_makes_the_entry_wider(value: str) -> None:
    found = Summary("off")
    found.add(1, "a", parse("x = me.y"), 0.0, state={"y": value})
    changes = found.take(0.0)
    assert changes is not None
    assert [entry.expression for entry in changes.added] == [None]


@pytest.mark.parametrize("mode", MODES)
def test_what_would_be_too_long_when_it_is_written_again_becomes_wider(mode: Covering) -> None:
    found, table = Summary(mode), EntryTable()
    items = ", ".join(f"{2 * number + 1}e15" for number in range(800))
    found.add(1, "a", parse(f"x IN ({items}) AND y > 3"), 0.0)
    table.apply(found.take(0.0))  # type: ignore[arg-type]
    assert table.matches("a", {"x": 3e15, "y": 4}, 0.0)
    assert not table.matches("a", {"x": 3e15, "y": 3}, 0.0)


def test_a_subscription_that_never_matches_is_not_sent() -> None:
    for mode in MODES:
        found = Summary(mode)
        found.add(1, "a", parse("x > 3 AND x < 2"), 0.0)
        assert found.take(0.0) is None
