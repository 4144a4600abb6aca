"""The driver finds engines that are wrong, says how, and counts only what it compared."""

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from rove.lang import Subscription, parse
from rove.lang.tree import Attribute, walk
from rove.match.designs.design import Evolve
from tests.differential.trials import (
    Case,
    Counts,
    Difference,
    Found,
    Judge,
    Live,
    MatcherEngine,
    NumpyEngine,
    Plan,
    Publication,
    State,
    Trial,
    smallest_of,
)

SMALL = Plan(subscriptions=20, publications=12, live=30, changes=30)


class Forgetful(MatcherEngine):
    """Misses a publication that has an attribute `a` with a number below zero."""

    def match(self, publications: Sequence[Publication], at: Sequence[float]) -> Found:
        positions, ids = super().match(publications, at)
        values = [publications[position].get("a") for position in positions.tolist()]
        kept = [not (type(value) in (int, float) and value < 0) for value in values]
        return positions[np.array(kept, bool)], ids[np.array(kept, bool)]


class Deaf(MatcherEngine):
    """Does not hear of changes of state."""

    def set_state(self, id: int, changes: State) -> None:
        pass


class Stuck(MatcherEngine):
    """Keeps what was removed."""

    def remove(self, id: int) -> None:
        pass


class Repeating(MatcherEngine):
    def match(self, publications: Sequence[Publication], at: Sequence[float]) -> Found:
        positions, ids = super().match(publications, at)
        return np.repeat(positions, 2), np.repeat(ids, 2)


class Lazy(MatcherEngine):
    """Answers for the start of time, and was promised to be a second late at most."""

    def moment_of(self, id: int, at: float) -> float:
        return -1000.0

    def staleness_s(self, id: int) -> float:
        return 1.0


def difference(engine: type[MatcherEngine]) -> str:
    def run_many() -> None:
        for seed in range(20):
            Trial(seed, SMALL, {"the accused": engine}).run()

    with pytest.raises(Difference) as caught:
        run_many()
    return str(caught.value)


class TestTrials:
    def test_engines_that_are_right_are_not_complained_about(self) -> None:
        engines = {"one": MatcherEngine, "two": NumpyEngine}
        counts = Trial(1, SMALL, engines).run()
        assert counts.triples > 500
        assert counts.decisions["one"] == counts.decisions["two"] > counts.triples // 2
        assert counts.matches > 0

    def test_one_seed_gives_one_history_with_any_participants(self) -> None:
        alone = Trial(3, SMALL, {"one": MatcherEngine}).run()
        assert Trial(3, SMALL, {"one": MatcherEngine}).run() == alone
        together = Trial(3, SMALL, {"one": MatcherEngine, "two": NumpyEngine}).run()
        assert together.decisions["one"] == alone.decisions["one"]
        assert together.triples == alone.triples

    def test_a_wrong_answer_is_found_and_made_small(self) -> None:
        said = difference(Forgetful)
        assert "the accused, in the trial of seed" in said
        assert "FALSE, but the oracle says True" in said
        assert "alone wrong as well; the smallest:" in said
        assert "last changes:\n" in said

    def test_what_is_wrong_only_after_changes_is_said_to_be(self) -> None:
        assert "alone it is right" in difference(Deaf)

    def test_what_was_removed_and_still_matches_is_found(self) -> None:
        assert "is gone, and matches" in difference(Stuck)

    def test_what_is_said_twice_is_found(self) -> None:
        assert "says something twice" in difference(Repeating)

    def test_answers_that_are_older_than_declared_are_found(self) -> None:
        assert "answers at" in difference(Lazy)


class TestEngines:
    def test_a_matcher_is_judged_at_the_moment_that_its_design_declares(self) -> None:
        engine = MatcherEngine(Evolve("pes", 2.0), Evolve("lees"))
        for id in range(2):
            engine.add(id, parse("x > t"), 0.0, {})
        engine.match([{"x": 1}] * 2, [3.0] * 2)
        assert [engine.moment_of(id, 3.0) for id in range(2)] == [2.0, 3.0]
        assert [engine.staleness_s(id) for id in range(2)] == [2.0, 0.0]
        assert not engine.any_time

    def test_tending_merges_saves_and_loads_without_losing_anything(self) -> None:
        engine, random = MatcherEngine(), Random(1)
        matchers = set()
        for id in range(500):
            engine.add(id, parse(f"x > {id}"), 0.0, {})
            engine.tend(random, 0.0)
            matchers.add(engine.matcher)
        assert len(matchers) > 3
        assert len(engine.match([{"x": 1000}], [0.0])[1]) == 500

    def test_kernels_that_come_late_take_over(self) -> None:
        engine, random = NumpyEngine(kernels_come=True), Random(1)
        engine.add(1, parse("x > 1"), 0.0, {})
        for _ in range(1_000):
            with engine.surroundings():
                engine.tend(random, 0.0)
        with engine.surroundings():
            engine.matcher.merge_all()
            assert all(segment.is_indexed for segment in engine.matcher.index.segments)


def test_the_oracle_is_asked_once() -> None:
    subscriptions = [parse("a > 1"), parse("a > t"), parse("a > me.x")]
    judge = Judge(subscriptions, [{"a": 1}, {"a": 2}], [{}, {"x": 0}])

    def verdicts(one: Live, t: float) -> list[bool]:
        found: list[list[bool]] = judge.verdicts([judge.row(one, t)], [0, 1]).tolist()
        return [line[0] for line in found]

    assert verdicts(Live(0, 0.0, 0), 0.0) == verdicts(Live(0, 5.0, 1), 7.0) == [False, True]
    assert judge.triples == 2
    assert verdicts(Live(1, 0.0, 0), 0.5) == [True, True]
    assert verdicts(Live(1, 0.0, 0), 1.5) == [False, True]
    assert verdicts(Live(2, 0.0, 0), 0.0) == [False, False]
    assert verdicts(Live(2, 0.0, 1), 0.0) == [True, True]
    assert judge.triples == 10


def test_the_smallest_of_a_difference() -> None:
    wide = parse("(a < 5 AND b = 1) OR NOT c = 2")
    case = Case(wide, {"a": -1, "b": 1, "c": 2, "d": 3}, 0.0, 0.0, {"x": 1})
    found = smallest_of(Forgetful, case)
    assert found == Case(parse("a < 5"), {"a": -1}, 0.0, 0.0, {})
    assert smallest_of(MatcherEngine, case) is None


def test_counts_add_up_and_can_be_read() -> None:
    counts = Counts()
    for _ in range(2):
        one = Counts(triples=1_000, matches=5)
        one.decisions["kernels"] = 2_500
        counts.add(one)
    assert str(counts) == "2,000 triples, 5,000 decisions (kernels 5,000), 10 matches"


def test_a_plan_decides_what_is_drawn() -> None:
    trial = Trial(1, Plan(subscriptions=30, names=40), {})
    named = {part for one in trial._subscriptions for part in _names(one)}
    assert any(name.startswith("w") for name in named)


def _names(subscription: Subscription) -> set[str]:
    nodes = walk(subscription.condition)
    return {node.path[0] for node in nodes if isinstance(node, Attribute)}
