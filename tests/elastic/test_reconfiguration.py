"""Matchers become more and fewer and change their layout; what fails leaves all as it was."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import cast

import pytest

from rove.elastic.commands import Failed, Replies
from rove.elastic.reconfiguration import RECOVERY_PAUSE_S, REMOVED_AT_ONCE
from rove.elastic.records import LOG_MAX
from rove.elastic.view import LAYOUTS, Layout
from tests.elastic.conftest import Elastic

RANKED = "ORDER BY x LIMIT 2 WITHIN 3 PUBLICATIONS"


def working(elastic: Elastic) -> None:
    """Publications meet what they should, each once and in order."""
    elastic.heard()
    elastic.publish(1, 7, 3, 9)
    elastic.settle()
    assert elastic.heard() == [7, 9]


class TestKinds:
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_out_split_merge_and_in(self, layout: Layout) -> None:
        elastic = Elastic(layout=layout)
        elastic.subscribe("x > 5", "x > 6")
        for count in (1, 2, 3):
            elastic.split()
            assert len(elastic.matchers.living) == count
            working(elastic)
        for count in (2, 1, 0):
            elastic.merge()
            assert len(elastic.matchers.living) == count
            working(elastic)
        assert elastic.reconfigurer.done == {"out": 1, "split": 2, "merge": 2, "in": 1}
        assert not elastic.coordinator.is_offloaded
        assert not elastic.matchers.files

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_a_layout_follows_another(self, layout: Layout) -> None:
        first = next(one for one in LAYOUTS if one != layout)
        elastic = Elastic(3, first)
        elastic.subscribe("x > 5", "x > 6", "x = 7")
        assert elastic.broker.switch_layout(layout, elastic.world.now) == ""
        elastic.settle()
        assert elastic.coordinator.current.layout == elastic.reconfigurer.layout == layout
        working(elastic)
        assert set(elastic.matchers.files) == elastic.files_in_use()

    def test_a_layout_is_kept_in_mind_while_the_broker_matches(self) -> None:
        elastic = Elastic()
        assert elastic.broker.switch_layout("partitioned", elastic.world.now) == ""
        elastic.settle()
        elastic.split()
        elastic.split()
        assert elastic.coordinator.current.layout == "partitioned"

    def test_a_split_divides_by_cost(self) -> None:
        elastic = Elastic(1, "partitioned")
        elastic.subscribe("x > 0", *(f"x = -{number}" for number in range(9)))
        hot = min(elastic.coordinator.current.cells[0].ids)
        elastic.coordinator.hits[hot] = 9
        elastic.split()
        sizes = sorted(len(cell.ids) for cell in elastic.coordinator.current.cells)
        assert sizes == [1, 9]

    def test_windows_move_with_a_split_and_back(self) -> None:
        elastic = Elastic(1)
        elastic.subscribe(RANKED, RANKED)
        elastic.publish(5, 6, 7)
        elastic.settle()
        elastic.split()
        assert sorted(len(cell.ids) for cell in elastic.coordinator.stateful) == [1, 1]
        assert len({cell.matcher for cell in elastic.coordinator.stateful}) == 2
        elastic.merge()
        elastic.merge()
        # 7 is third in the window of both, until 5 leaves it.
        assert elastic.heard() == [5, 6]
        elastic.publish(8)
        elastic.settle()
        assert elastic.heard() == [7, 7]


class TestForced:
    def test_no_more_than_the_greatest_number(self) -> None:
        elastic = Elastic(2, most=2)
        said = elastic.broker.force_split(elastic.world.now)
        assert said == "there are 2 matchers, and more are not allowed"

    def test_no_fewer_than_the_least(self) -> None:
        elastic = Elastic(least=1, most=2)
        elastic.settle()
        assert elastic.reconfigurer.done == {"out": 1}
        said = elastic.broker.force_merge(elastic.world.now)
        assert said == "there are 1 matchers, and fewer are not allowed"

    def test_one_at_a_time(self) -> None:
        elastic = Elastic()
        now = elastic.world.now
        assert elastic.broker.force_split(now) == ""
        for said in (
            elastic.broker.force_split(now),
            elastic.broker.force_merge(now),
            elastic.broker.switch_layout("partitioned", now),
        ):
            assert said == "a reconfiguration is in progress; try again when it is done"

    def test_the_layout_that_there_is(self) -> None:
        elastic = Elastic()
        said = elastic.broker.switch_layout("replicated", elastic.world.now)
        assert said == "the layout is replicated already"


class TestGivenUp:
    def test_a_matcher_that_does_not_start(self) -> None:
        elastic = Elastic(1)
        elastic.subscribe("x > 5")
        elastic.matchers.fails_to_start = 1
        elastic.split()
        assert elastic.last() == ("split", "matcher 2: it did not start")
        assert elastic.matchers.living == [1]
        working(elastic)

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("who", [1, 2, 3])
    def test_a_death_at_any_step_of_a_split(self, layout: Layout, who: int) -> None:
        """Whoever dies, and whenever: all goes on, and nothing is left behind."""
        for steps in range(1, 12, 2):
            elastic = Elastic(2, layout, seed=steps)
            elastic.subscribe("x > 5", "x > 6", RANKED, RANKED)
            elastic.heard()
            assert elastic.broker.force_split(elastic.world.now) == ""
            for _ in range(steps):
                elastic.step()
            if who in elastic.matchers.living:
                elastic.matchers.kill(who)
            elastic.settle()
            working_ranked(elastic, 2)
            elastic.world.advance(1.0)
            elastic.settle()
            assert set(elastic.matchers.files) == elastic.files_in_use()

    def test_what_was_made_is_ended(self) -> None:
        elastic = Elastic(2, "partitioned")
        elastic.subscribe("x > 5")
        before = elastic.coordinator.current
        cells = set(elastic.coordinator.cells)
        assert elastic.broker.switch_layout("hierarchical", elastic.world.now) == ""
        elastic.until_building()
        made = set(elastic.coordinator.cells) - cells
        assert len(made) == 2
        failed = Replies([Failed(max(made), "no room")], 0.0, 0.0, 0, 0)
        elastic.coordinator.arrived(elastic.coordinator.cells[max(made)].matcher, failed)
        assert elastic.coordinator.current is before
        assert elastic.coordinator.next_layout is None
        assert set(elastic.coordinator.cells) == cells
        assert elastic.reconfigurer.layout == "partitioned"
        assert elastic.reconfigurer.failed == 1
        elastic.settle()
        working(elastic)

    def test_a_file_that_cannot_be_written(self) -> None:
        """There is room for the first of two: that is not left behind."""
        elastic = Elastic()
        elastic.subscribe("x > 5", RANKED)
        elastic.matchers.room = 1
        elastic.split()
        kind, failure = elastic.last()
        assert kind == "out"
        assert "No space left on device" in failure
        assert not elastic.matchers.files
        assert not elastic.matchers.living
        assert not elastic.coordinator.cells
        elastic.matchers.room = 100
        elastic.split()
        assert elastic.last() == ("out", "")
        working_ranked(elastic, 1)


def working_ranked(elastic: Elastic, ranked: int) -> None:
    """The same, where so many want the two least of the last three."""
    elastic.publish(0, 0, 0, 0)
    elastic.settle()
    elastic.heard()
    elastic.publish(-3, -2, 7, 9)
    elastic.settle()
    # Others want 7 and 9 when they come; 7 is among the two when -3 leaves the window.
    assert elastic.heard() == [-3, -2, 7, 9] + [7] * ranked


class TestRecovery:
    def test_the_dead_are_replaced(self) -> None:
        elastic = Elastic(2)
        elastic.subscribe("x > 5")
        elastic.matchers.kill(1)
        elastic.settle()
        assert elastic.matchers.living == [2, 3]
        assert elastic.reconfigurer.done["recovery"] == 1
        assert elastic.reconfigurer.history[-1].reason == "matcher 1: killed by signal 9"
        assert len(elastic.coordinator.current.cells) == 2
        working(elastic)

    def test_the_last_one_too(self) -> None:
        elastic = Elastic(1)
        elastic.subscribe("x > 5")
        elastic.matchers.kill(1)
        elastic.matchers.work()
        assert not elastic.coordinator.cells
        elastic.settle()
        assert elastic.coordinator.is_offloaded
        assert elastic.matchers.living == [2]
        working(elastic)

    def test_pauses_between_tries_grow(self) -> None:
        elastic = Elastic(1)
        elastic.matchers.fails_to_start = 5
        elastic.matchers.kill(1)
        began = elastic.world.now
        tries = []
        while len(elastic.reconfigurer.history) < 7:
            tried = len(elastic.reconfigurer.history)
            elastic.step()
            if len(elastic.reconfigurer.history) > tried:
                tries.append(elastic.world.now - began)
        pauses = [later - earlier for earlier, later in pairwise(tries)]
        for number, pause in enumerate(pauses):
            assert pause == pytest.approx(RECOVERY_PAUSE_S * 2**number, abs=1.1)
            # Nobody waits for less than the pause.
            assert pause > RECOVERY_PAUSE_S * 2**number - 0.1
        assert elastic.last() == ("recovery", "")

    def test_a_recovery_that_is_given_up_is_tried_again(self) -> None:
        elastic = Elastic(2, "partitioned")
        elastic.subscribe("x > 5")
        elastic.matchers.kill(1)
        elastic.until_building()
        made = max(elastic.coordinator.cells)
        failed = Replies([Failed(made, "no room")], 0.0, 0.0, 0, 0)
        elastic.coordinator.arrived(elastic.coordinator.cells[made].matcher, failed)
        assert elastic.last() == ("recovery", f"matcher 3: cell {made} failed: no room")
        elastic.settle()
        elastic.world.advance(2 * RECOVERY_PAUSE_S)
        elastic.settle()
        assert len(elastic.matchers.living) == 2
        assert elastic.last() == ("recovery", "")

    def test_one_that_was_not_missed_is_not_replaced(self) -> None:
        elastic = Elastic(1)
        elastic.matchers.fails_to_start = 1
        elastic.split()
        elastic.world.advance(5.0)
        elastic.settle()
        assert elastic.matchers.living == [1]
        assert not elastic.coordinator.deaths


class TestKept:
    def test_the_first_that_comes_during_a_merge_outlives_it(self) -> None:
        """It may be given to the matcher that is about to be ended."""
        elastic = Elastic(2, "partitioned")
        elastic.subscribe(*(f"x = -{number}" for number in range(200)))
        assert elastic.broker.force_merge(elastic.world.now) == ""
        [staying] = {cell.matcher for cell in elastic.until_building().cells}
        # Whoever has least is given it.
        members = elastic.coordinator.members
        members[staying] = members[staying]._replace(subscriptions=10_000)
        elastic.subscribe(RANKED)
        assert elastic.coordinator.stateful[0].matcher != staying
        elastic.settle()
        assert elastic.last() == ("merge", "")
        assert elastic.coordinator.stateful[0].matcher == staying
        elastic.publish(5)
        elastic.settle()
        assert elastic.heard() == [5]

    def test_cells_do_not_become_more_and_more(self) -> None:
        elastic = Elastic(1)
        elastic.subscribe(*[RANKED] * 16)
        for _ in range(4):
            elastic.split()
            elastic.merge()
        assert len(elastic.coordinator.stateful) == 2
        elastic.split()
        assert sorted(cell.matcher for cell in elastic.coordinator.stateful) == sorted(
            elastic.matchers.living
        )

    def test_nor_when_the_broker_matches_in_between(self) -> None:
        elastic = Elastic()
        for _ in range(4):
            elastic.subscribe(RANKED, RANKED)
            elastic.split()
            elastic.split()
            elastic.merge()
            elastic.merge()
        elastic.split()
        assert len(elastic.coordinator.stateful) == 2
        assert sum(len(cell.ids) for cell in elastic.coordinator.stateful) == 8

    def test_what_others_have_is_removed_after_a_split(self) -> None:
        elastic = Elastic(1)
        elastic.subscribe(*[RANKED] * (2 * REMOVED_AT_ONCE + 10))
        assert elastic.broker.force_split(elastic.world.now) == ""
        while elastic.reconfigurer.is_running:
            elastic.step()
        assert any(cell.extra for cell in elastic.coordinator.stateful)
        elastic.world.advance(1.0)
        elastic.settle()
        assert not any(cell.extra for cell in elastic.coordinator.stateful)
        held = [
            len(elastic.matchers.cells_of(cell.matcher)[cell.number])
            for cell in elastic.coordinator.stateful
        ]
        assert held == [REMOVED_AT_ONCE + 5] * 2

    def test_and_also_if_the_cell_moves_before_that(self) -> None:
        elastic = Elastic(1)
        elastic.subscribe(*[RANKED] * (2 * REMOVED_AT_ONCE + 10))
        assert elastic.broker.force_split(elastic.world.now) == ""
        while elastic.reconfigurer.is_running:
            elastic.step()
        elastic.merge()
        elastic.world.advance(1.0)
        elastic.settle()
        assert not any(cell.extra for cell in elastic.coordinator.stateful)

    def test_a_cell_that_is_saved_twice_before_anybody_looks(self) -> None:
        """What waits for the first file goes on with the second."""
        elastic = Elastic(2)
        elastic.subscribe(RANKED)
        elastic.publish(1)
        elastic.settle()
        cell = elastic.coordinator.stateful[0]
        steps = elastic.reconfigurer._freshly_saved(cell)
        ready = next(steps)
        assert not ready()
        elastic.matchers.work_off(cell.matcher)
        assert ready()
        elastic.coordinator.save(cell)
        elastic.matchers.work_off(cell.matcher)
        assert ready()

    def test_a_copy_is_not_saved_half_made(self) -> None:
        """What it holds is known when it has done everything, not before."""
        elastic = Elastic(1)
        elastic.subscribe("ORDER BY x LIMIT 1 WITHIN 5000 PUBLICATIONS", RANKED)
        cell = elastic.coordinator.stateful[0]
        elastic.publish(*range(20))
        elastic.settle()
        cell.log = cell.log * LOG_MAX
        copy = elastic.reconfigurer._copy(cell, cell.matcher)
        assert not copy.saving
        assert copy.weight == cell.weight
        assert len(copy.log) == len(cell.log)


class TestTakenBack:
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_a_matcher_that_crashes_meanwhile(self, layout: Layout) -> None:
        for seed in range(8):
            elastic = Elastic(3, layout, seed=seed)
            elastic.subscribe("x > 5", "x > 6", RANKED, RANKED, *["x = -1"] * 100)
            elastic.settle()
            elastic.matchers.kill_share = seed / 80
            elastic.broker.take_back(elastic.world.now)
            assert not elastic.coordinator.is_offloaded
            assert not elastic.matchers.files
            elastic.matchers.kill_share = 0.0
            working_ranked(elastic, 2)


class TestSeen:
    def test_the_log_is_told(self) -> None:
        elastic = Elastic(1)
        note = next(one for one in elastic.world.notes if one.event == "matchers rearranged")
        assert note.level == "info"
        assert note.facts["kind"] == "out"
        assert note.facts["reason"] == "it was asked for"
        assert note.facts["matchers"] == 1

    def test_and_why_something_was_given_up(self) -> None:
        elastic = Elastic()
        elastic.matchers.fails_to_start = 1
        elastic.split()
        note = next(one for one in elastic.world.notes if one.event == "matchers left as they were")
        assert note.level == "warning"
        assert note.facts["why"] == "matcher 1: it did not start"

    def test_the_broker_alone(self) -> None:
        elastic = Elastic()
        elastic.subscribe("x > 5")
        elastic.publish(1, 2)
        view = elastic.broker.view.matchers(elastic.world.now)
        assert view is not None
        [one] = view.matchers
        assert (one.number, one.role, one.subscriptions, one.messages) == (0, "broker", 1, 2)
        assert (view.layout, view.matchers_min, view.matchers_max) == ("replicated", 0, 4)
        assert not view.is_reconfiguring

    def test_matchers(self) -> None:
        elastic = Elastic(3, "hierarchical")
        elastic.subscribe("x > 5", "x > 6", RANKED)
        view = elastic.broker.view.matchers(elastic.world.now)
        assert view is not None
        assert [one.number for one in view.matchers] == [1, 2, 3]
        assert sorted(one.role for one in view.matchers) == ["child", "child", "parent"]
        assert sum(one.subscriptions for one in view.matchers) == 3
        assert sum(one.cells for one in view.matchers) == 4
        assert view.done == {"out": 1, "split": 2}
        assert [one.kind for one in view.reconfigurations] == ["out", "split", "split"]

    def test_while_something_is_under_way(self) -> None:
        elastic = Elastic()
        elastic.broker.force_split(elastic.world.now)
        view = elastic.broker.view.matchers(elastic.world.now)
        assert view is not None
        assert view.is_reconfiguring


@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_left_behind_by_a_life(seed: int) -> None:
    chance = Random(seed)
    elastic = Elastic(1, seed=seed)
    elastic.matchers.kill_share = 0.01
    elastic.subscribe("x > 5", RANKED, RANKED)
    elastic.subscribe("x > t", evolve="pes 500ms")
    for _ in range(40):
        now = elastic.world.now
        if (what := chance.randrange(5)) == 0:
            elastic.broker.force_split(now)
        elif what == 1:
            elastic.broker.force_merge(now)
        elif what == 2:
            elastic.broker.switch_layout(chance.choice(LAYOUTS), now)
        elif what == 3:
            elastic.subscribe(chance.choice(("x > 7", "x = -1", RANKED)))
        elif elastic.subscribed > 10:
            elastic.client.unsubscribe("air/a", identifier=chance.randint(5, elastic.subscribed))
        for _ in range(chance.randint(1, 20)):
            elastic.publish(chance.randint(0, 9))
            elastic.step(chance.choice((0.001, 0.1)))
    elastic.matchers.kill_share = 0.0
    elastic.world.advance(60.0)
    elastic.settle()
    assert elastic.reconfigurer.done.total() > 5
    assert elastic.matchers.kills
    left_behind(elastic)


def left_behind(elastic: Elastic) -> None:
    coordinator, router = elastic.coordinator, elastic.broker.router
    in_use = (*coordinator.current.cells, *coordinator.stateful)
    assert set(elastic.matchers.files) == elastic.files_in_use()
    assert set(coordinator.cells) == {cell.number for cell in in_use}
    there = {number for one in elastic.matchers.living for number in elastic.matchers.cells_of(one)}
    assert there == set(coordinator.cells)
    assert coordinator.probed <= coordinator.cells.keys()
    assert coordinator.hits.keys() <= router.expressions._subscriptions.keys()
    assert not coordinator.deaths
    assert not coordinator.awaited
    assert len(coordinator.stateful) <= coordinator.settings.matchers_max
    assert not any(cell.extra for cell in coordinator.stateful)
    assert all(cell.asked == 0 for cell in in_use)
    # But what windows may still deliver is there.
    for cell in coordinator.stateful:
        held = elastic.matchers.cells_of(cell.matcher)[cell.number].live_keys()
        assert all(cell.may_deliver(cast(int, key)) for key in held)
        assert router.expressions._shown.keys() >= set(held)
