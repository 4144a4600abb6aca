"""The matcher against the oracle, while subscriptions come, go, change and are merged."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rove.lang import LanguageError, LimitError, PublicationError, Subscription, matches, parse
from rove.match import matcher as matcher_module
from rove.match.matcher import Matcher, Merge
from rove.testing import strategies


class Model:
    """The same subscriptions, kept in a dict and asked one by one."""

    def __init__(self) -> None:
        self.live: dict[int, tuple[Subscription, dict[str, object]]] = {}

    def match(self, publications: list[dict[str, object]], at: list[float]) -> list[list[int]]:
        return [
            [
                id
                for id, (subscription, me) in sorted(self.live.items())
                if matches(subscription, publication, moment, me)
            ]
            for publication, moment in zip(publications, at, strict=True)
        ]


def as_lists(
    matcher: Matcher, publications: list[dict[str, object]], at: list[float]
) -> list[list[int]]:
    found = matcher.match(publications, at)
    lists: list[list[int]] = [[] for _ in publications]
    for number, id in zip(found.publications.tolist(), found.subscriptions.tolist(), strict=True):
        lists[number].append(id)
    return lists


def change(
    random: Random,
    id: int,
    drawn: list[Subscription],
    states: list[dict[str, object]],
    matcher: Matcher,
    model: Model,
) -> None:
    """One random change of both."""
    subscription, me = random.choice(drawn), random.choice(states)
    what = random.random()
    if what < 0.7 or not model.live:
        try:
            matcher.add(id, subscription, 0.0, me)
        except LimitError:
            return
        model.live[id] = (subscription, dict(me))
        return
    chosen = random.choice(list(model.live))
    if what < 0.85:
        matcher.remove(chosen)
        del model.live[chosen]
    elif what < 0.92:
        matcher.set_state(chosen, me)
        state = model.live[chosen][1]
        state.update(me)
        for name in [name for name, value in state.items() if value is None]:
            del state[name]
    else:
        try:
            matcher.replace(chosen, subscription, 0.0, me)
        except LimitError:
            return
        model.live[chosen] = (subscription, dict(me))


@settings(max_examples=60)
@given(
    st.lists(strategies.subscriptions, min_size=1, max_size=40),
    st.lists(st.tuples(strategies.publications, strategies.times), min_size=1, max_size=5),
    st.lists(strategies.states, min_size=1, max_size=4),
    st.integers(0, 2**32),
)
def test_changes_interleaved_with_merges_lose_and_invent_nothing(
    drawn: list[Subscription],
    stream: list[tuple[dict[str, object], float]],
    states: list[dict[str, object]],
    seed: int,
) -> None:
    random, matcher, model = Random(seed), Matcher(), Model()
    publications, at = [p for p, _ in stream], [t for _, t in stream]
    running: Merge | None = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matcher_module, "FRESH_MAX", 6)
        patch.setattr(matcher_module, "MERGE_WIDTH", 3)
        for id in range(120):
            change(random, id, drawn, states, matcher, model)
            if running is not None and random.random() < 0.3:
                matcher.install(running)
                running = None
            elif running is None and (due := matcher.merge_due()) is not None:
                running = due.run()
            if id % 40 == 39:
                assert as_lists(matcher, publications, at) == model.match(publications, at)
    assert len(matcher) == len(model.live)


class TestChanges:
    def test_t_counts_from_acceptance(self) -> None:
        matcher = Matcher()
        matcher.add(1, parse("x > t"), accepted_at=10.0)
        assert as_lists(matcher, [{"x": 2}], [11.0]) == [[1]]
        assert as_lists(matcher, [{"x": 2}], [12.0]) == [[]]

    def test_a_state_moves_its_subscription(self) -> None:
        matcher = Matcher()
        matcher.add(1, parse("x > me.x"), me={"x": 5})
        assert as_lists(matcher, [{"x": 4}], [0.0]) == [[]]
        matcher.set_state(1, {"x": 3})
        assert as_lists(matcher, [{"x": 4}], [0.0]) == [[1]]
        matcher.set_state(1, {"x": None})
        assert as_lists(matcher, [{"x": 4}], [0.0]) == [[]]

    def test_several_conjunctions_match_once(self) -> None:
        matcher = Matcher()
        for id in range(100):
            matcher.add(id, parse("a = 1 OR b = 1"))
        assert as_lists(matcher, [{"a": 1, "b": 1}], [0.0]) == [list(range(100))]

    def test_an_id_is_used_once(self) -> None:
        matcher = Matcher()
        matcher.add(1, parse("x > 1"))
        with pytest.raises(LanguageError, match="already a subscription 1"):
            matcher.add(1, parse("x > 2"))

    def test_an_unknown_id_cannot_be_removed(self) -> None:
        with pytest.raises(KeyError):
            Matcher().remove(1)

    def test_a_refused_replacement_leaves_the_old_one(self) -> None:
        matcher = Matcher()
        matcher.add(1, parse("x > 1"))
        too_many = " AND ".join(f"(a{i} = 1 OR b{i} = 1)" for i in range(10))
        with pytest.raises(LimitError):
            matcher.replace(1, parse(too_many))
        assert as_lists(matcher, [{"x": 2}], [0.0]) == [[1]]

    def test_a_state_that_nobody_may_see_is_refused(self) -> None:
        matcher = Matcher()
        matcher.add(1, parse("x > me.x"))
        with pytest.raises(PublicationError):
            matcher.set_state(1, {"x": float("nan")})


def test_merging_makes_few_segments_of_many() -> None:
    matcher = Matcher()
    for id in range(64 * 8):
        matcher.add(id, parse(f"x > {id}"))
    due = matcher.merge_due()
    assert due is not None
    matcher.remove(3)
    matcher.install(due.run())
    assert matcher.merge_due() is None
    assert as_lists(matcher, [{"x": 5}], [0.0]) == [[0, 1, 2, 4]]
