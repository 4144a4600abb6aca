"""What the designs share, and all three against the oracle at the moments that they declare."""

import math
import pickle
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import LanguageError, LimitError, Subscription, TextError, matches, normalise, parse
from rove.lang.normal_form import Conjunction, NormalForm, holds
from rove.match.designs import lees
from rove.match.designs.design import (
    ALWAYS,
    Answers,
    Design,
    Evolve,
    Evolving,
    NewIndex,
    OneByOne,
    Versions,
    by_publication,
    checked_seconds,
    in_order_of_time,
    parse_evolve,
    split,
)
from rove.match.designs.lees import Lees
from rove.match.designs.versioned import Clees, Pes
from rove.testing import strategies
from tests.effort import examples

Encounter = tuple[Subscription, dict[str, Any], float, dict[str, Any]]

DESIGNS: dict[str, tuple[Callable[[NewIndex], Design], tuple[float | None, ...]]] = {
    "pes": (Pes, (0.001, 0.3, 0.5, 1.0, 7.0)),
    "lees": (Lees, (None,)),
    "clees": (Clees, (0.001, 0.3, 0.5, 1.0, 7.0)),
}
AREA = "x BETWEEN -3 + t AND 3 + t AND y BETWEEN -2 + t AND 2 + t"
APPLE = {"x": 4, "y": 3}


def conjunctions_of(text: str) -> tuple[Conjunction, ...]:
    return normalise(parse(text)).conjunctions


def one_with(design: Design, text: str, option: float | None, accepted_at: float = 0.0) -> Design:
    design.add(1, conjunctions_of(text), accepted_at, {}, option)
    return design


def ids(design: Design, publication: dict[str, Any], at: float) -> list[int]:
    found: list[int] = design.match([publication], [at]).subscriptions.tolist()
    return found


# -- against the oracle -----------------------------------------------------------------------


class Script:
    """Random changes of a design and of a model beside it, and publications on the bounds."""

    def __init__(self, name: str, encounters: list[Encounter], seed: int) -> None:
        make, self.options = DESIGNS[name]
        self.design = make(OneByOne)
        self.random = Random(seed)
        self.encounters = encounters
        self.live: dict[int, tuple[Subscription, float, dict[str, Any], float | None]] = {}
        self.now = self.random.choice([0.0, 0.0, 0.1, 1e6])

    def change(self, id: int) -> None:
        subscription, _, _, me = self.random.choice(self.encounters)
        what = self.random.random()
        if what < 0.6 or not self.live:
            option = self.random.choice(self.options)
            accepted_at = self.now + self.random.choice([0.0, 0.0, 0.0, -0.7, 1.0])
            try:
                conjunctions = normalise(subscription).conjunctions
            except LimitError:
                return
            self.design.add(id, conjunctions, accepted_at, me, option)
            self.live[id] = (subscription, accepted_at, me, option)
            return
        chosen = self.random.choice(list(self.live))
        if what < 0.8:
            self.design.remove(chosen)
            del self.live[chosen]
        elif what < 0.95:
            self.design.set_state(chosen, me)
            subscription, accepted_at, _, option = self.live[chosen]
            self.live[chosen] = (subscription, accepted_at, me, option)
        else:
            self.design = self.design.from_state(
                pickle.loads(pickle.dumps(self.design.state())), OneByOne
            )

    def publish(self) -> None:
        _, publication, _, _ = self.random.choice(self.encounters)
        self.now += self.random.choice([0.0, 0.0, 0.001, 0.5, 0.5, 1.0, 2.0, 8.0])
        if self.random.random() < 0.2:
            self.design.advance(self.now)
        found = self.design.match([publication], [self.now])
        assert found.publications.tolist() == [0] * len(found.subscriptions)
        assert found.subscriptions.tolist() == self.expected(publication)

    def expected(self, publication: dict[str, Any]) -> list[int]:
        """What the oracle says of the moment that each answer is declared to be for."""
        matching = []
        for id, (subscription, accepted_at, me, option) in sorted(self.live.items()):
            if self.now < accepted_at:
                continue
            moment = self.design.evaluated_at(id)
            if moment is None:
                moment = self.now
            elif Evolving.of(id, normalise(subscription).conjunctions, 0, {}, None).uses_time:
                assert option is not None
                assert moment <= self.now <= moment + option
            if matches(subscription, publication, moment - accepted_at, me):
                matching.append(id)
        return matching


@pytest.mark.parametrize("name", DESIGNS)
@examples(60)
@given(st.lists(strategies.encounters(), min_size=1, max_size=12), st.integers(0, 2**32))
def test_answers_are_those_of_the_oracle_at_the_declared_moment(
    name: str, encounters: list[Encounter], seed: int
) -> None:
    script = Script(name, encounters, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lees, "TOGETHER_MIN", seed % 3)
        for id in range(60):
            script.change(id)
            if id % 3 == 0:
                script.publish()
    assert len(script.design) == len(script.live)


@pytest.mark.parametrize("name", DESIGNS)
@examples(30)
@given(
    st.lists(strategies.encounters(), min_size=1, max_size=8),
    st.lists(strategies.times, min_size=1, max_size=8),
    st.integers(0, 2**32),
)
def test_a_batch_is_the_same_as_its_publications_one_by_one(
    name: str, encounters: list[Encounter], times: list[float], seed: int
) -> None:
    random, (make, options) = Random(seed), DESIGNS[name]
    together, alone = make(OneByOne), make(OneByOne)
    for id, (subscription, _, _, me) in enumerate(encounters):
        try:
            conjunctions = normalise(subscription).conjunctions
        except LimitError:
            continue
        option, accepted_at = random.choice(options), random.choice([0.0, 1.0])
        together.add(id, conjunctions, accepted_at, me, option)
        alone.add(id, conjunctions, accepted_at, me, option)
    publications = [random.choice(encounters)[1] for _ in times]
    found = by_publication(together.match(publications, times), len(times))
    for position in in_order_of_time(times):
        assert found[position] == ids(alone, publications[position], times[position])
    assert together.counters == alone.counters


@pytest.mark.parametrize(
    ("name", "option"), [("pes", 1.0), ("pes", 0.5), ("lees", None), ("clees", 0.5)]
)
class TestThePaper:
    def test_the_area_that_travels_meets_the_apple_on_its_way(
        self, name: str, option: float | None
    ) -> None:
        design = one_with(DESIGNS[name][0](OneByOne), AREA, option)
        heard = [ids(design, APPLE, at) for at in (0.0, 1.0, 2.0, 5.0, 6.0, 8.0)]
        assert heard == [[], [1], [1], [1], [], []]

    def test_the_area_that_stands_misses_the_apple(self, name: str, option: float | None) -> None:
        still = "x >= -3 AND x <= 3 AND y >= -2 AND y <= 2"
        design = one_with(DESIGNS[name][0](OneByOne), still, option)
        assert [ids(design, APPLE, at) for at in (0.0, 1.0, 2.0)] == [[], [], []]
        assert ids(design, {"x": 3, "y": -2}, 3.0) == [1]

    def test_a_range_that_grows(self, name: str, option: float | None) -> None:
        design = one_with(DESIGNS[name][0](OneByOne), "x < 1 + 0.5 * t", option, 100.0)
        heard = [ids(design, {"x": 2}, at) for at in (99.0, 100.0, 102.0, 103.0)]
        assert heard == [[], [], [], [1]]


@pytest.mark.parametrize("name", DESIGNS)
class TestEveryDesign:
    def design(self, name: str) -> Design:
        return DESIGNS[name][0](OneByOne)

    def test_an_id_is_used_once(self, name: str) -> None:
        design = one_with(self.design(name), AREA, 1.0)
        with pytest.raises(LanguageError, match="already a subscription 1"):
            one_with(design, AREA, 1.0)
        assert len(design) == 1

    def test_an_unknown_id_is_an_error(self, name: str) -> None:
        with pytest.raises(KeyError):
            self.design(name).remove(1)
        with pytest.raises(KeyError):
            self.design(name).set_state(1, {})

    def test_nothing_matches_nothing(self, name: str) -> None:
        design = one_with(self.design(name), "FALSE", 1.0)
        found = design.match([{"x": 1}], [5.0])
        assert found.publications.dtype == np.dtype(np.int32)
        assert found.subscriptions.dtype == np.dtype(np.int64)
        assert len(found.subscriptions) == 0
        assert len(design.match([], []).publications) == 0
        design.remove(1)
        assert len(design) == 0

    def test_a_change_of_state_is_felt_at_once(self, name: str) -> None:
        design = self.design(name)
        following = "x BETWEEN me.x - 3 + t AND me.x + 3 + t"
        design.add(1, conjunctions_of(following), 0.0, {"x": 0}, 10.0)
        assert ids(design, {"x": 50}, 0.0) == []
        design.set_state(1, {"x": 48})
        assert ids(design, {"x": 50}, 0.0) == [1]
        design.set_state(1, {})
        assert ids(design, {"x": 50}, 0.0) == []

    def test_alternatives_share_an_id_and_none_borrows_from_another(self, name: str) -> None:
        design = one_with(self.design(name), "(a = 1 AND x > t) OR (b = 1 AND x < -t)", 1.0)
        publications = [
            {"a": 1, "x": 5},
            {"b": 1, "x": 5},
            {"a": 1, "x": -5},
            {"b": 1, "x": -5},
            {"a": 1, "b": 1, "x": 5},
        ]
        found = design.match(publications, [0.0] * 5)
        assert found.publications.tolist() == [0, 3, 4]
        assert found.subscriptions.tolist() == [1, 1, 1]

    def test_a_saved_design_goes_on_as_it_was(self, name: str) -> None:
        design = self.design(name)
        for id in range(20):
            design.add(id, conjunctions_of(f"x < {id} + t AND y = 'a'"), 0.0, {}, 2.0)
        ids(design, {"x": 10, "y": "a"}, 3.0)
        again = design.from_state(pickle.loads(pickle.dumps(design.state())), OneByOne)
        assert again.counters == design.counters
        for at in (3.5, 3.9, 4.0, 6.5):
            publication = {"x": 12.5, "y": "a"}
            assert ids(again, publication, at) == ids(design, publication, at)
            assert [again.evaluated_at(id) for id in range(20)] == [
                design.evaluated_at(id) for id in range(20)
            ]
        assert again.counters == design.counters
        assert again.next_change_at() == design.next_change_at()


# -- options ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("exact", Evolve("exact")),
        ("lees", Evolve("lees")),
        ("pes 1s", Evolve("pes", 1.0)),
        ("clees 500ms", Evolve("clees", 0.5)),
        (" PES  1.5 Min ", Evolve("pes", 90.0)),
        ("pes 300ms", Evolve("pes", 0.3)),
        ("pes .5s", Evolve("pes", 0.5)),
        ("clees 1e3ms", Evolve("clees", 1.0)),
        ("pes 1ms", Evolve("pes", 0.001)),
    ],
)
def test_options_are_read(text: str, wanted: Evolve) -> None:
    assert parse_evolve(text) == wanted


@pytest.mark.parametrize(
    ("text", "what", "blamed", "hint"),
    [
        ("", "there is no design here", "", "pes 1s"),
        ("pess 1s", "no design", "pess", "write exact, pes 1s, lees or clees 500ms"),
        ("pes", "pes needs an interval", "pes", "pes 500ms"),
        ("clees", "clees needs a threshold", "clees", "clees 500ms"),
        ("lees 1s", "lees takes no time", "1s", "write lees"),
        ("exact 1s", "exact takes no time", "1s", "write exact"),
        ("pes soon", "soon is no time", "soon", "ms, s or min"),
        ("pes 1s 2s", "1s 2s is no time", "1s 2s", "ms, s or min"),
        ("pes 5", "5 has no unit", "5", "write 5ms, 5s or 5min"),
        ("pes 5 hours", "no unit hours", "hours", "5min"),
        ("pes 0s", "less than a millisecond", "0s", "1ms"),
        ("pes -1s", "less than a millisecond", "-1s", "1ms"),
        ("clees 0.5ms", "less than a millisecond", "0.5ms", "1ms"),
        ("clees 1e999s", "not finite", "1e999s", "fits a float"),
        ("pes nans", "nans is no time", "nans", "ms, s or min"),
    ],
)
def test_what_is_no_option_is_refused_with_what_would_be(
    text: str, what: str, blamed: str, hint: str
) -> None:
    with pytest.raises(TextError) as caught:
        parse_evolve(text)
    error = caught.value
    assert what in error.what
    assert text[error.start : error.end] == blamed
    assert hint in str(error)


@pytest.mark.parametrize("option", [None, 0.0, -1.0, 0.0009, math.inf, math.nan])
def test_a_design_is_given_a_time_that_it_can_use(option: float | None) -> None:
    with pytest.raises(LanguageError, match="pes needs an interval and was given"):
        checked_seconds("pes", option)
    with pytest.raises(LanguageError, match="clees needs a threshold"):
        Clees(OneByOne).add(1, (), 0.0, {}, option)


# -- the split --------------------------------------------------------------------------------


@examples(150)
@given(strategies.encounters())
def test_both_parts_together_mean_the_whole(encounter: Encounter) -> None:
    subscription, publication, t, me = encounter
    try:
        form = normalise(subscription)
    except LimitError:
        return
    for conjunction in form.conjunctions:
        wanted = holds(NormalForm((conjunction,)), publication, t, me)
        parts = split(conjunction)
        assert wanted == all(
            holds(NormalForm((part,)), publication, t, me) for part in (parts.fixed, parts.evolving)
        )
        plain = parts.at(t, me)
        assert wanted == (plain is not None and holds(NormalForm((plain,)), publication))


def test_the_split_tells_what_changes_from_what_does_not() -> None:
    (conjunction,) = conjunctions_of("a = 1 AND b < c AND x > t AND y > me.y AND z + t > 5")
    parts = split(conjunction)
    (fixed,) = conjunctions_of("a = 1 AND b < c")
    assert parts.fixed == fixed
    assert frozenset(parts.bounds) == conjunctions_of("x > t AND y > me.y")[0].atoms
    assert parts.rest == conjunctions_of("z + t > 5")[0]
    assert parts.attributes == {("x",), ("y",), ("z",)}
    assert split(fixed).evolving == ALWAYS


def test_booleans_have_no_order_when_they_come_from_a_state_either() -> None:
    (conjunction,) = conjunctions_of("a < me.x")
    assert split(conjunction).at(0.0, {"x": True}) is None
    (conjunction,) = conjunctions_of("a != me.x")
    plain = split(conjunction).at(0.0, {"x": True})
    assert plain is not None
    assert holds(NormalForm((plain,)), {"a": False})


@pytest.mark.parametrize(
    "text", ["x > t AND x < 5", "x > t AND x < 10 - t", "x > t AND x > 1 / (t - 7)"]
)
def test_what_cannot_hold_is_no_version(text: str) -> None:
    (conjunction,) = conjunctions_of(text)
    assert split(conjunction).at(1.0, {}) is not None
    assert split(conjunction).at(7.0, {}) is None


# -- batches ----------------------------------------------------------------------------------


def test_versions_of_the_moment_are_told_from_older_ones() -> None:
    versions = Versions()
    versions.made(1.0)
    versions.made(2.0)
    versions.made(2.0)
    assert (versions.count, versions.made_before(2.0), versions.made_before(3.0)) == (3, 1, 3)
    versions.dropped(2.0)
    assert (versions.count, versions.made_before(2.0)) == (2, 1)
    versions.dropped(1.0)
    assert (versions.count, versions.made_before(2.0)) == (1, 0)


def test_pairs_are_sorted_and_come_once() -> None:
    answers = Answers([{"x": 1}, {"x": 2}, {"x": 3}])
    index = OneByOne()
    index.add(7, conjunctions_of("x > 1"))
    answers.give(2, [9, 7])
    run = [1, 2]
    answers.ask(index, run)
    pairs = answers.pairs()
    assert pairs.publications.tolist() == [1, 2, 2]
    assert pairs.subscriptions.tolist() == [7, 7, 9]
    assert run == []


def test_times_of_a_batch_are_put_in_order_and_equal_ones_stay() -> None:
    assert in_order_of_time([3.0, 1.0, 3.0, 0.5]) == [3, 1, 0, 2]
