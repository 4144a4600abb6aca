"""Tickets through matchers that are late, wrong, or dead, and what is remembered of them."""

from __future__ import annotations

import pytest

from rove.elastic.commands import Failed, Match, Replies
from rove.elastic.coordinator import FAILURES_MAX, HITS_EVERY
from rove.elastic.records import LOG_MAX
from rove.elastic.view import LAYOUTS, Layout
from rove.match.cell import Cell
from rove.match.patterns import automaton
from tests.elastic.conftest import Bench, Elastic, row

RANKED = "ORDER BY x LIMIT 1 WITHIN 2 PUBLICATIONS"


def told(bench: Bench, cell: int, text: str = "it broke") -> None:
    """A matcher says that a cell has failed."""
    matcher = bench.coordinator.cells[cell].matcher
    bench.coordinator.arrived(matcher, Replies([Failed(cell, text)], 0.0, 0.0, 0, 0))


class TestAnswers:
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_subscriptions_that_a_publication_meets(self, layout: Layout) -> None:
        bench = Bench(layout, 3)
        bench.add(1, "x > 5")
        bench.add(2, "x > 3")
        bench.add(3, "x > 3", filter=2)
        bench.publish(row(1, x=4), row(2, x=6), row(3, x=6, filters=(1, 2)), row(4, x=0))
        bench.work_off()
        assert bench.found() == [{1: [2], 2: [1, 2], 3: [1, 2, 3]}]

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_subscriptions_that_were_passed_over(
        self, layout: Layout, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(automaton, "PATTERN_STEPS_MAX", -64 * 2)
        bench = Bench(layout, 2)
        bench.add(1, "s LIKE '%x%y%' AND n = 1")
        bench.add(2, "s LIKE '%x%y%' AND n = 2")
        bench.add(3, "s LIKE '%x%y%' ORDER BY n LIMIT 1 WITHIN 2 PUBLICATIONS")
        bench.publish(row(1, s="xy", n=2))
        bench.work_off()
        [result] = bench.coordinator.results()
        assert result.found == {}
        assert result.undecided == {2, 3}

    def test_they_come_back_in_the_order_of_the_questions(self) -> None:
        bench = Bench("replicated")
        bench.add(1, "x > 5")
        bench.publish(row(1, x=6))
        bench.publish(row(2, x=7))
        assert [cell.asked for cell in bench.coordinator.current.cells] == [1, 1]
        [part] = bench.coordinator._tickets[0].waiting.values()
        first = bench.coordinator.cells[part.command.cell].matcher
        [second] = set(bench.matchers.living) - {first}
        bench.matchers.work_off(second)
        assert bench.found() == []
        assert bench.coordinator.waiting == 2
        bench.matchers.work_off(first)
        assert bench.found() == [{1: [1]}, {2: [1]}]

    def test_an_answer_that_comes_twice_is_used_once(self) -> None:
        bench = Bench(matchers=1)
        bench.add(1, "x > 5")
        bench.publish(row(1, x=6))
        [part] = bench.coordinator._tickets[0].waiting.values()
        bench.matchers.send(1, [part.command])
        bench.publish(row(2, x=7))
        bench.work_off()
        assert bench.found() == [{1: [1]}, {2: [1]}]
        assert bench.coordinator.duplicates == 1

    def test_a_batch_for_nobody_is_back_at_once(self) -> None:
        bench = Bench()
        bench.publish(row(1, x=6))
        assert bench.found() == [{}]

    def test_a_change_waits_for_publications_on_their_way(self) -> None:
        bench = Bench()
        bench.add(1, "x > 5")
        bench.publish(row(1, x=6))
        bench.add(2, "x > 5")
        assert bench.coordinator.waiting == 0
        assert bench.found() == [{1: [1]}]
        bench.publish(row(2, x=6))
        bench.remove(1)
        assert bench.found() == [{2: [1, 2]}]

    def test_changes_of_state_reach_the_cells_with_the_subscription(self) -> None:
        bench = Bench("replicated")
        bench.add(1, "x > me.x")
        bench.coordinator.change(1, {"x": 8})
        for number in range(1, 3):
            bench.publish(row(number, x=7))
        bench.publish(row(3, x=9))
        bench.work_off()
        assert bench.found() == [{}, {}, {3: [1]}]

    def test_one_that_was_removed_meets_nothing(self) -> None:
        bench = Bench("hierarchical", 3)
        bench.add(1, "x > 3")
        bench.add(2, "x > 5")
        bench.remove(1)
        bench.publish(row(1, x=6))
        bench.work_off()
        assert bench.found() == [{1: [2]}]

    def test_hits_are_counted_now_and_then(self) -> None:
        bench = Bench()
        bench.add(1, "x > 5")
        for number in range(HITS_EVERY):
            bench.publish(row(number, x=6))
        bench.work_off()
        assert bench.coordinator.hits == {1: 1}
        bench.remove(1)
        assert not bench.coordinator.hits


class TestWindows:
    def test_only_what_a_window_looks_at_is_shown_to_it(self) -> None:
        bench = Bench()
        bench.add(1, RANKED, filter=2)
        bench.publish(row(1, x=6), row(2, x=7, filters=(2,)))
        bench.work_off()
        assert bench.ranked() == [(1, 2)]
        [cell] = bench.coordinator.stateful
        assert [cell.may_deliver(number) for number in (1, 2)] == [False, True]

    def test_they_slide_when_there_is_something_to_do(self) -> None:
        bench = Bench()
        bench.add(1, "ORDER BY x LIMIT 1 WITHIN 10 SECONDS")
        bench.publish(row(1, x=5), row(2, x=6))
        bench.work_off()
        assert bench.ranked() == [(1, 1)]
        due = bench.coordinator.next_change_at()
        bench.publish(advance_to=due - 1)
        assert bench.found() == [{}], "nobody was asked"
        bench.publish(advance_to=due)
        bench.work_off()
        assert bench.ranked() == [(1, 2)]

    def test_what_windows_hold_is_known_when_they_are_saved(self) -> None:
        bench = Bench()
        bench.add(1, RANKED)
        for number in range(1, LOG_MAX // 2 + 2):
            bench.publish(row(number, x=-number))
            bench.work_off()
        assert bench.coordinator.take_may_forget()
        assert not bench.coordinator.take_may_forget()
        last = LOG_MAX // 2 + 1
        held = [one for one in range(1, last + 1) if bench.coordinator.may_deliver(one)]
        # Of two publications, and what a list lets go with the next ones.
        assert 1 <= len(held) <= 4
        assert last in held

    def test_but_not_before_all_answers_of_before_are_out(self) -> None:
        """An answer that waits for those of others may speak of what is no longer held."""
        bench = Bench()
        bench.add(1, RANKED)
        bench.add(2, "x > 0")
        [cell] = bench.coordinator.stateful
        [other] = [one for one in bench.coordinator.current.cells if one.ids]
        if other.matcher == cell.matcher:
            # Each in a matcher of its own, so that one can be late.
            bench.remove(2)
            bench.coordinator.current.cells.remove(other)
            bench.add(2, "x > 0")
            [other] = [one for one in bench.coordinator.current.cells if one.ids]
        for number in range(1, 5):
            bench.publish(row(number, x=number))
        bench.coordinator.save(cell)
        bench.matchers.work_off(cell.matcher)
        assert cell.snapshot
        assert not bench.coordinator.take_may_forget()
        assert bench.coordinator.may_deliver(1)
        bench.matchers.work_off(other.matcher)
        assert bench.coordinator.take_may_forget()
        assert not bench.coordinator.may_deliver(1)


class TestSaving:
    def test_a_long_log_is_cut(self) -> None:
        bench = Bench(matchers=1)
        for id in range(1, LOG_MAX + 2):
            bench.add(id, "x > 5")
        [cell] = bench.coordinator.current.cells
        assert cell.saving
        assert len(cell.log) == LOG_MAX + 1
        bench.add(LOG_MAX + 2, "x > 5")
        bench.work_off()
        assert [one.id for one in cell.log] == [LOG_MAX + 2]  # type: ignore[union-attr]
        assert bench.files_in_use() == set(bench.matchers.files) == {cell.snapshot}

    def test_the_file_before_is_forgotten(self) -> None:
        bench = Bench(matchers=1)
        [cell] = bench.coordinator.current.cells
        for _ in range(3):
            bench.coordinator.save(cell)
            bench.work_off()
        assert set(bench.matchers.files) == {cell.snapshot}

    def test_unless_another_cell_is_made_from_it(self) -> None:
        bench = Bench(matchers=1)
        [cell] = bench.coordinator.current.cells
        first = bench.coordinator.save(cell)
        bench.work_off()
        other = bench.coordinator.new_cell(1, is_stateful=False, snapshot=first)
        bench.coordinator.save(cell)
        bench.work_off()
        assert set(bench.matchers.files) == {first, cell.snapshot}
        bench.coordinator.close(other)
        assert set(bench.matchers.files) == {cell.snapshot}

    def test_a_file_that_is_finished_after_the_end_of_its_cell(self) -> None:
        bench = Bench(matchers=1)
        [cell] = bench.coordinator.current.cells
        bench.coordinator.save(cell)
        bench.coordinator.close(cell)
        bench.work_off()
        assert not bench.matchers.files

    def test_a_file_that_its_writer_did_not_tell_of(self) -> None:
        bench = Bench("partitioned")
        bench.add(1, "x > 5")
        [cell] = [one for one in bench.coordinator.current.cells if one.ids]
        path = bench.coordinator.save(cell)
        bench.matchers.files[path] = b"half of it"
        bench.matchers.kill(cell.matcher)
        bench.work_off()
        assert not bench.matchers.files
        assert not cell.saving

    def test_a_full_disk_costs_nobody_anything(self) -> None:
        bench = Bench("partitioned")
        bench.add(1, RANKED)
        bench.publish(row(1, x=1), row(2, x=2))
        [cell] = bench.coordinator.stateful
        bench.matchers.room = 0
        for _ in range(2 * FAILURES_MAX):
            bench.coordinator.save(cell)
            bench.work_off()
        assert (cell.saving, cell.snapshot, cell.failures) == ("", "", 0)
        bench.matchers.kill(cell.matcher)
        bench.work_off()
        bench.coordinator.results()
        bench.publish(row(3, x=3))
        bench.work_off()
        assert bench.ranked() == [(1, 2)]

    def test_what_was_asked_of_a_cell_is_forgotten_with_it(self) -> None:
        bench = Bench(matchers=1)
        cell = bench.coordinator.new_cell(1, is_stateful=False)
        bench.coordinator.probe(cell)
        assert cell.number not in bench.coordinator.probed
        bench.work_off()
        assert cell.number in bench.coordinator.probed
        bench.coordinator.close(cell)
        assert not bench.coordinator.probed


class TestDeaths:
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("who", [1, 2, 3])
    def test_one_of_several(self, layout: Layout, who: int) -> None:
        bench = Bench(layout, 3)
        for id in range(1, 7):
            bench.add(id, f"x > {id}")
        for number in range(1, 5):
            bench.publish(row(number, x=number))
        bench.matchers.kill(who)
        bench.work_off()
        assert bench.found() == [
            {number: list(range(1, number))} if number > 1 else {} for number in range(1, 5)
        ]
        assert bench.coordinator.is_offloaded
        assert all(cell.matcher != who for cell in bench.coordinator.cells.values())
        assert all(cell.asked == 0 for cell in bench.coordinator.cells.values())
        assert bench.coordinator.deaths == [(who, "killed by signal 9")]

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_all_of_them(self, layout: Layout) -> None:
        bench = Bench(layout, 3)
        for id in range(1, 7):
            bench.add(id, f"x > {id}")
        bench.add(7, RANKED)
        for number in range(1, 5):
            bench.publish(row(number, x=number))
        for matcher in (1, 2, 3):
            bench.matchers.kill(matcher)
        bench.work_off()
        results = bench.coordinator.results()
        assert [{one: sorted(ids) for one, ids in each.found.items()} for each in results] == [
            {number: list(range(1, number))} if number > 1 else {} for number in range(1, 5)
        ]
        ranked = [(one.subscription, one.number) for each in results for one in each.ranked]
        assert ranked == [(7, 1), (7, 2), (7, 3)]
        assert not bench.coordinator.is_offloaded
        assert not bench.coordinator.cells
        assert not bench.matchers.files
        assert sorted(id for cell in bench.taken_back for id in cell.ids()) == list(range(1, 8))

    def test_windows_are_made_again_as_they_were(self) -> None:
        bench = Bench()
        bench.add(1, RANKED)
        [cell] = bench.coordinator.stateful
        bench.publish(row(1, x=1), row(2, x=2))
        bench.coordinator.save(cell)
        bench.work_off()
        bench.publish(row(3, x=3))
        bench.matchers.work_off(cell.matcher)
        assert bench.ranked() == [(1, 1), (1, 2)]
        bench.publish(row(4, x=4))
        bench.matchers.kill(cell.matcher)
        bench.work_off()
        # 2 was told of already; the answer that told it again is not used.
        assert bench.ranked() == [(1, 3)]
        assert bench.coordinator.duplicates == 1

    def test_during_saving(self) -> None:
        bench = Bench("partitioned")
        bench.add(1, "x > 5")
        [cell] = [one for one in bench.coordinator.current.cells if one.ids]
        first = bench.coordinator.save(cell)
        bench.work_off()
        bench.add(2, "x > 6")
        bench.coordinator.save(cell)
        bench.matchers.kill(cell.matcher)
        bench.work_off()
        assert cell.snapshot == first
        assert bench.files_in_use() == set(bench.matchers.files)
        bench.publish(row(1, x=9))
        bench.work_off()
        assert bench.found() == [{1: [1, 2]}]

    def test_of_one_that_never_came(self) -> None:
        bench = Bench()
        bench.matchers.fails_to_start = 1
        bench.coordinator.awaited.add(bench.matchers.start())
        bench.work_off()
        assert not bench.coordinator.awaited
        assert bench.coordinator.deaths == [(3, "it did not start")]
        assert len(bench.coordinator.current.cells) == 2


class TestFailures:
    def test_a_cell_that_fails_is_made_again(self) -> None:
        bench = Bench("partitioned")
        bench.add(1, "x > 5")
        bench.add(2, RANKED)
        bench.publish(row(1, x=1), row(2, x=2))
        bench.work_off()
        bench.coordinator.results()
        for number in list(bench.coordinator.cells):
            cell = bench.coordinator.cells[number]
            del bench.matchers.cells_of(cell.matcher)[number]
            told(bench, number)
        bench.publish(row(3, x=7))
        bench.work_off()
        [result] = bench.coordinator.results()
        assert result.found == {3: [1]}
        assert [(one.subscription, one.number) for one in result.ranked] == [(2, 2)]

    def test_what_was_on_its_way_does_not_count_as_failures(self) -> None:
        """Else three commands in a row would cost a window its past."""
        bench = Bench(matchers=1)
        bench.add(1, RANKED)
        bench.publish(row(1, x=1), row(2, x=2))
        bench.work_off()
        bench.coordinator.results()
        [cell] = bench.coordinator.stateful
        del bench.matchers.cells_of(1)[cell.number]
        for number in (3, 4, 5):
            bench.publish(row(number, x=number))
        bench.work_off()
        assert cell.failures == 1
        assert bench.ranked() == [(1, 2), (1, 3), (1, 4)]

    def test_a_file_that_is_spoilt(self) -> None:
        """Of a window its past is lost, but not its future."""
        bench = Bench(matchers=1)
        bench.add(1, RANKED)
        bench.publish(row(1, x=1))
        [cell] = bench.coordinator.stateful
        path = bench.coordinator.save(cell)
        bench.work_off()
        bench.coordinator.results()
        bench.matchers.files[path] = b"spoilt"
        told(bench, cell.number)
        bench.publish(row(2, x=5))
        bench.work_off()
        assert bench.ranked() == [(1, 2)]
        assert cell.failures == FAILURES_MAX
        assert not bench.matchers.files
        bench.coordinator.save(cell)
        bench.work_off()
        assert cell.failures == 0
        assert bench.files_in_use() == set(bench.matchers.files)

    def test_a_file_that_is_spoilt_when_the_broker_takes_over(self) -> None:
        bench = Bench(matchers=1)
        bench.add(1, RANKED)
        bench.add(2, "x > 5")
        for cell in bench.coordinator.cells.values():
            bench.coordinator.save(cell)
        bench.work_off()
        for path in bench.matchers.files:
            bench.matchers.files[path] = b"spoilt"
        bench.publish(row(1, x=6))
        bench.matchers.kill(1)
        bench.work_off()
        [result] = bench.coordinator.results()
        assert result.found == {1: [2]}
        assert [one.number for one in result.ranked] == [1]
        assert sorted(id for cell in bench.taken_back for id in cell.ids()) == [1, 2]
        assert not bench.matchers.files

    @pytest.mark.parametrize("is_last", [False, True])
    def test_a_publication_that_no_cell_survives(
        self, is_last: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is given up, by name, and whatever came with it or comes after it goes on."""
        bench = Bench("partitioned", 1)
        bench.add(1, "x > 5")
        bench.add(2, RANKED)
        match = Cell.match

        def fragile(cell: Cell, shown):  # type: ignore[no-untyped-def]
            if any(one.key == 13 for one in shown):
                raise RuntimeError("the thirteenth")
            return match(cell, shown)

        monkeypatch.setattr(Cell, "match", fragile)
        bench.publish(row(11, x=11))
        bench.publish(*(row(number, x=number) for number in (12, 13, 14)))
        if is_last:
            bench.matchers.kill(1)
        for _ in range(1000):
            if bench.matchers.is_quiet:
                break
            bench.matchers.work()
        assert bench.matchers.is_quiet
        assert bench.coordinator.waiting == 0
        _, result = bench.coordinator.results()
        assert result.found == {12: [1], 14: [1]}
        assert [(number, "the thirteenth" in why) for number, why in result.failed.items()] == [
            (13, True)
        ]
        assert [one.number for one in result.ranked if not one.promoted] == [12]
        assert "windows of 1 subscriptions begin anew" in "".join(bench.coordinator.troubles)
        assert bench.coordinator.is_offloaded != is_last
        if not is_last:
            bench.publish(row(15, x=15))
            bench.work_off()
            assert bench.found() == [{15: [1]}]


class TestBrokerTakesOver:
    """Between two turns of a broker, the last matcher dies with questions unanswered."""

    def test_the_order_of_publications(self) -> None:
        elastic = Elastic(1)
        elastic.subscribe("x > 0")
        elastic.publish(1)
        assert elastic.coordinator.waiting
        elastic.matchers.kill(1)
        elastic.matchers.work()
        assert not elastic.coordinator.is_offloaded
        elastic.publish(-2, 3)
        elastic.settle()
        assert elastic.heard() == [1, 3]

    def test_what_windows_gave_and_forgot(self) -> None:
        elastic = Elastic(1)
        elastic.subscribe(RANKED)
        elastic.publish(5, 4, 3, 2)
        assert elastic.coordinator.waiting
        elastic.matchers.kill(1)
        elastic.matchers.work()
        elastic.publish(1)
        elastic.settle()
        assert elastic.heard() == [5, 4, 3, 2, 1]


class TestRemembered:
    def test_publications_for_windows_only(self) -> None:
        """A window that sees little does not keep everything that others see."""
        elastic = Elastic(2)
        elastic.subscribe(RANKED, topic="quiet")
        elastic.subscribe("x > 1e9", topic="loud")
        elastic.publish(1, topic="quiet")
        elastic.publish(*range(50), topic="loud")
        elastic.settle()
        remembered = elastic.broker.router.expressions._shown
        assert [one.topic for one in remembered.values()] == ["quiet"]

    def test_what_one_window_sees_is_not_kept_for_another(self) -> None:
        elastic = Elastic(1)
        elastic.subscribe(RANKED, topic="quiet")
        elastic.subscribe(RANKED, topic="loud")
        elastic.split()
        assert len(elastic.coordinator.stateful) == 2
        elastic.publish(1, topic="quiet")
        for _ in range(2):
            elastic.publish(*range(LOG_MAX // 2 + 10), topic="loud")
            elastic.settle()
        remembered = elastic.broker.router.expressions._shown
        assert len(remembered) < LOG_MAX


def test_asking_again_is_a_match_like_any_other() -> None:
    bench = Bench(matchers=1)
    bench.add(1, "x > 5")
    bench.publish(row(1, x=6))
    [cell] = bench.coordinator.current.cells
    making = bench.coordinator._making(cell)
    assert [type(one).__name__ for one in making] == ["Open", "Add", "Match"]
    assert isinstance(making[-1], Match)
    assert making[-1].part in bench.coordinator._tickets[0].waiting
