"""The engine over a stream beside the oracle: the same lines, in the same order, to the byte."""

import math
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import LanguageError, PublicationError, Subscription, TextError
from rove.lang.printer import to_text
from rove.lang.replay import Replay, ReplayedNotification
from rove.lang.tree import TRUE, Rank, Window
from rove.match import Evolve, engine, replay
from rove.match.replay import EngineReplay
from rove.testing import strategies
from rove.testing.workloads import AirQuality
from tests.effort import examples, is_soak, some


class Step(NamedTuple):
    """Something that happens: a publication, a change of state, or nothing but time."""

    after_s: float
    publication: dict[str, Any] | None = None
    changes: dict[str, Any] | None = None
    of: int = 0
    """Whose state changes."""


class Subscribing(NamedTuple):
    text: str
    accepted_at: float = 0.0
    me: dict[str, Any] | None = None


def encoded(notifications: list[ReplayedNotification]) -> bytes:
    return b"".join(msgspec.json.encode(one) + b"\n" for one in notifications)


def told_by_oracle(subscriptions: list[Subscribing], steps: list[Step]) -> bytes:
    oracle, now, told = Replay(), 0.0, []
    for number, one in enumerate(subscriptions):
        oracle.subscribe(str(number), *one)
    for number, step in enumerate(steps):
        now += step.after_s
        if step.publication is not None:
            told += oracle.publish(f"p{number}", step.publication, now)
        else:
            told += oracle.advance(now)
        if step.changes is not None:
            oracle.set_state(str(step.of), step.changes)
    return encoded(told)


def told_by_engine(
    subscriptions: list[Subscribing], steps: list[Step], batch: int, *, compiled: bool = True
) -> bytes:
    pieces: list[bytes] = []
    now = 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "BATCH_MAX", batch)
        patch.setattr(replay, "_BATCH_FIRST", batch)
        if not compiled:
            patch.setattr(engine, "search_kernel", None)
        following = EngineReplay(compiled=compiled)
        for number, one in enumerate(subscriptions):
            following.subscribe(str(number), *one)
        for number, step in enumerate(steps):
            now += step.after_s
            if step.publication is not None:
                following.publish(f"p{number}", step.publication, now)
                if following.is_full:
                    pieces += following.deliver()
            else:
                pieces += following.advance(now)
            if step.changes is not None:
                pieces += following.deliver()
                following.set_state(str(step.of), step.changes)
        pieces += following.deliver()
    lines = b"".join(pieces)
    assert following.delivered == lines.count(b"\n")
    return lines


# -- drawn --------------------------------------------------------------------------------

short_windows = st.builds(Window, st.integers(1, 3), st.sampled_from(["SECONDS", "PUBLICATIONS"]))
short_ranks = st.builds(
    Rank, strategies.number_values, st.booleans(), st.integers(1, 3), short_windows
)
ranked = st.builds(
    Subscription,
    st.just(TRUE) | strategies.conditions(strategies.static_predicates, 2),
    strategies.selects,
    short_ranks,
)


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[Subscribing], list[Step]]:
    drawn = draw(st.lists(strategies.subscriptions | ranked, min_size=1, max_size=8))
    subscriptions = []
    for subscription in drawn:
        accepted_at, me = draw(st.sampled_from([0.0, 0.0, 2.0])), draw(strategies.states)
        one = Subscribing(to_text(subscription), accepted_at, me)
        try:
            Replay().subscribe("free", *one)
        except LanguageError:  # too large when brought into normal form
            continue
        subscriptions.append(one)
    if not subscriptions:
        subscriptions = [Subscribing("TRUE")]
    after = st.sampled_from([0.0, 0.0, 0.5, 1.0, 1.5, 1e6])
    who = st.integers(0, len(subscriptions) - 1)
    publishing = st.tuples(after, strategies.publications).map(lambda drawn: Step(*drawn))
    changing = st.tuples(after, st.none(), strategies.states, who).map(lambda drawn: Step(*drawn))
    step = publishing | publishing | changing | after.map(Step)
    return subscriptions, draw(st.lists(step, max_size=20))


@examples(150)
@given(streams(), st.sampled_from([1, 3, 100]))
def test_the_engine_says_what_the_oracle_says(
    drawn: tuple[list[Subscribing], list[Step]], batch: int
) -> None:
    assert told_by_engine(*drawn, batch) == told_by_oracle(*drawn)


@examples(50)
@given(streams())
def test_so_it_does_without_kernels(drawn: tuple[list[Subscribing], list[Step]]) -> None:
    assert told_by_engine(*drawn, 100, compiled=False) == told_by_oracle(*drawn)


# -- seeded -------------------------------------------------------------------------------

SELECTS = ("", "", "SELECT NO2 WHERE ", "SELECT lat, long WHERE ")
RANKS = (
    "ORDER BY NO2 DESC LIMIT {k} WITHIN {n} SECONDS",
    "ORDER BY distance(lat, long, {lat}, {long}) LIMIT {k} WITHIN {n} SECONDS",
    "ORDER BY PM10 + t LIMIT {k} WITHIN {n} PUBLICATIONS",
    "ORDER BY abs(O3 - me.o) LIMIT {k} WITHIN {n} PUBLICATIONS",
)
MOVING = (
    "lat BETWEEN {lat} + 0.001 * t AND {lat} + 0.02 + 0.001 * t AND NO2 > 30",
    "long BETWEEN me.long - 0.05 AND me.long + 0.05 AND PM10 > {n}",
    "NO2 < 20 + least(t, {n})",
)


def everything(random: Random) -> Subscribing:
    """A subscription of any kind over air quality."""
    words = {
        "k": random.randint(1, 4),
        "n": random.randint(1, 30),
        "lat": round(random.uniform(45.74, 45.86), 4),
        "long": round(random.uniform(15.86, 16.12), 4),
    }
    (text,) = AirQuality(random.randrange(1000)).texts(1)
    kind = random.random()
    if kind < 0.3:
        text = random.choice(MOVING)
    text = random.choice(SELECTS) + text
    if kind > 0.6:
        condition = random.choice(["", f"{text} "])
        text = condition + random.choice(RANKS)
    me = {"long": words["long"], "o": random.uniform(20, 80)}
    return Subscribing(text.format(**words), random.choice([0.0, 0.0, 20.0]), me)


@pytest.mark.parametrize("step_s", some([0.125, 0.0]))
def test_a_longer_stream_of_every_kind(step_s: float) -> None:
    random = Random(5)
    subscriptions = [everything(random) for _ in range(120)]
    steps = []
    for publication in AirQuality(3).publications(500 if is_soak() else 200):
        after_s = step_s * random.randint(0, 3)
        steps.append(Step(after_s, publication))
        if random.random() < 0.02:
            changes = {"long": random.uniform(15.86, 16.12), "o": None}
            steps.append(Step(0.0, None, changes, random.randrange(120)))
    steps.append(Step(100.0))
    expected = told_by_oracle(subscriptions, steps)
    assert expected.count(b"promoted") > 30
    assert told_by_engine(subscriptions, steps, 256) == expected


# -- one thing at a time ------------------------------------------------------------------


def told(lines: list[bytes]) -> list[str]:
    found = [
        msgspec.json.decode(line, type=ReplayedNotification)
        for line in b"".join(lines).splitlines()
    ]
    return [
        f"{one.at:g} {one.subscription} {one.publication}{' +' if one.promoted else ''}"
        for one in found
    ]


def test_what_moves_up_comes_before_what_arrives() -> None:
    following = EngineReplay()
    following.subscribe("all", "TRUE")
    following.subscribe("best", "ORDER BY x LIMIT 1 WITHIN 10 SECONDS")
    for name, x, at in (("one", 1, 0.0), ("two", 2, 5.0), ("three", 0, 10.0)):
        following.publish(name, {"x": x}, at)
    assert told(following.deliver()) == [
        "0 all one",
        "0 best one",
        "5 all two",
        "10 best two +",
        "10 all three",
        "10 best three",
    ]
    assert following.delivered == 6


def test_a_window_of_the_last_n_slides_with_what_comes_even_at_one_time() -> None:
    following = EngineReplay()
    following.subscribe("last two", "ORDER BY x LIMIT 1 WITHIN 2 PUBLICATIONS")
    following.subscribe("all", "TRUE")
    for name, x in (("one", 1), ("two", 2), ("three", 3), ("four", 4)):
        following.publish(name, {"x": x}, 7.0)
    assert told(following.deliver()) == [
        "7 last two one",
        "7 all one",
        "7 all two",
        "7 last two two +",
        "7 all three",
        "7 last two three +",
        "7 all four",
    ]


def test_windows_that_are_shorter_than_a_step_of_the_clock() -> None:
    subscriptions = [Subscribing("ORDER BY x LIMIT 1 WITHIN 1 SECOND"), Subscribing("TRUE")]
    steps = [Step(after_s, {"x": x}) for after_s, x in ((1e18, 1), (0, 2), (0, 3), (1e18, 0))]
    assert told_by_engine(subscriptions, steps, 10) == told_by_oracle(subscriptions, steps)


def test_without_writing_it_only_counts() -> None:
    following = EngineReplay(writes=False)
    following.subscribe("all", "TRUE")
    following.subscribe("best", "ORDER BY x LIMIT 1 WITHIN 10 SECONDS")
    following.publish("one", {"x": 1}, 0.0)
    following.publish("two", {"x": 2}, 1.0)
    assert following.deliver() == []
    assert following.delivered == 3
    assert following.advance(100.0) == []
    assert following.delivered == 4


def test_batches_shrink_where_much_is_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "_DELIVERED_AIM", 200)
    following = EngineReplay()
    for number in range(50):
        following.subscribe(str(number), "x = 1")
    sizes = {1: 0, 2: 0}
    for value in (2, 1, 2):
        for _ in range(3000):
            following.publish("p", {"x": value}, 0.0)
            if following.is_full:
                following.deliver()
                sizes[value] = following._batch_size
    assert sizes == {1: 4, 2: 4096}


class TestDesigns:
    """The design that a subscription names, or that of all."""

    AREA = "x BETWEEN t - 1 AND t + 1"

    def deliveries(self, following: EngineReplay) -> list[str]:
        for number, at in enumerate((0.0, 0.7, 1.4)):
            following.publish(f"{number}", {"x": 0.4 + at}, at)
        following.publish("last", {"x": 2.5}, 1.5)
        return [line.rpartition(" ")[2] for line in told(following.deliver())]

    def test_exact_unless_told_otherwise(self) -> None:
        following = EngineReplay()
        following.subscribe("area", self.AREA)
        assert self.deliveries(following) == ["0", "1", "2", "last"]

    def test_a_periodic_one_lags_behind(self) -> None:
        for following in (EngineReplay(evolve=Evolve("pes", 100.0)), EngineReplay()):
            own = None if following._evolve.design == "pes" else "pes 100s"
            following.subscribe("area", self.AREA, evolve=own)
            assert self.deliveries(following) == ["0"]

    def test_only_what_can_evolve_takes_the_design_of_all(self) -> None:
        following = EngineReplay(evolve=Evolve("pes", 100.0))
        following.subscribe("fixed", "x > 0")
        following.subscribe("best", "x < t + 1 ORDER BY x LIMIT 1 WITHIN 1 HOUR")
        following.subscribe("own", self.AREA, evolve="lees")
        assert self.deliveries(following) == ["0", "0", "0", "1", "1", "2", "2", "last", "last"]

    def test_a_bad_design_is_refused(self) -> None:
        following = EngineReplay()
        with pytest.raises(TextError, match="no design magic"):
            following.subscribe("area", self.AREA, evolve="magic")
        with pytest.raises(LanguageError, match="ranked subscription cannot evolve by lees"):
            following.subscribe("area", "ORDER BY x LIMIT 1 WITHIN 1 HOUR", evolve="lees")
        following.subscribe("area", self.AREA, evolve="lees")


# -- refusals -----------------------------------------------------------------------------


def refusal_of(attempt: Any) -> str:
    with pytest.raises(LanguageError) as refused:
        attempt()
    return str(refused.value)


MANY = " AND ".join(f"(x{i} = 1 OR y{i} = 1)" for i in range(8))


@pytest.mark.parametrize(
    "one",
    [
        ("taken", "TRUE"),
        ("new", "x >"),
        ("new", MANY),
        ("new", "TRUE", 0.0, {"x": math.nan}),
        ("new", "TRUE", math.inf),
        ("new", "x >", math.nan, {"x": math.nan}),
    ],
)
def test_subscriptions_are_refused_in_the_same_words(one: Any) -> None:
    oracle, following = Replay(), EngineReplay()
    for each in (oracle, following):
        each.subscribe("taken", "TRUE")
    assert refusal_of(lambda: following.subscribe(*one)) == refusal_of(
        lambda: oracle.subscribe(*one)
    )
    following.subscribe("new", "TRUE")
    following.publish("p", {}, 0.0)
    assert told(following.deliver()) == ["0 taken p", "0 new p"]


def test_states_are_refused_in_the_same_words() -> None:
    oracle, following = Replay(), EngineReplay()
    for each in (oracle, following):
        each.subscribe("one", "me.x = 1")
    for change in (("nobody", {"x": 1}), ("one", {"x": math.inf})):
        for name in ("check_state", "set_state"):
            words = [
                refusal_of(lambda e=e, n=name, c=change: getattr(e, n)(*c))
                for e in (oracle, following)
            ]
            assert words[0] == words[1]


def test_a_state_must_not_reach_what_came_before_it() -> None:
    following = EngineReplay()
    following.subscribe("one", "me.x = 1")
    following.publish("p", {}, 0.0)
    with pytest.raises(AssertionError, match="still meet the state"):
        following.set_state("one", {"x": 1})
    assert following.deliver() == []


def test_time_does_not_go_back() -> None:
    oracle, following = Replay(), EngineReplay()
    following.subscribe("all", "TRUE")
    oracle.advance(5.0)
    following.publish("one", {}, 5.0)
    for never in (4.0, math.inf, math.nan):
        words = refusal_of(lambda never=never: oracle.advance(never))
        assert refusal_of(lambda never=never: following.publish("two", {}, never)) == words
        assert refusal_of(lambda never=never: following.advance(never)) == words
    with pytest.raises(PublicationError):
        following.advance(4.9)
    assert told(following.advance(6.0)) == ["5 all one"]
    assert following.now == 6.0
