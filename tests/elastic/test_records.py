"""What is remembered of a cell: enough to make it again, and no more than that."""

from __future__ import annotations

from rove.elastic.commands import Add, AnyCommand, Match, Remove, decoded_rows, encoded_rows
from rove.elastic.records import LOG_MAX, PARTS_MAX, CellRecord, Ticket
from tests.elastic.conftest import row


def record(*, is_stateful: bool = True) -> CellRecord:
    return CellRecord(1, 2, is_stateful)


def adding(id: int) -> Add:
    return Add(1, id, "x > 1", 1, 0.0)


class TestLog:
    def test_commands_in_their_order(self) -> None:
        cell = record()
        commands: list[AnyCommand] = [adding(1), adding(2), Remove(1, [1])]
        for command in commands:
            cell.keep(command)
        assert cell.log == commands

    def test_it_may_have_so_many(self) -> None:
        cell = record()
        for id in range(LOG_MAX):
            cell.keep(adding(id))
        assert cell.weight == LOG_MAX
        assert not cell.wants_saving

    def test_it_is_long_then(self) -> None:
        cell = record()
        for id in range(LOG_MAX + 1):
            cell.keep(adding(id))
        assert cell.wants_saving

    def test_publications_are_counted_one_by_one(self) -> None:
        cell = record()
        cell.keep(Match(1, 1, 1, encoded_rows([])), LOG_MAX)
        assert cell.wants_saving

    def test_longer_for_a_large_cell(self) -> None:
        cell = record(is_stateful=False)
        cell.ids = set(range(20 * LOG_MAX))
        for id in range(2 * LOG_MAX):
            cell.keep(adding(id))
        assert not cell.wants_saving


class TestSaving:
    def test_what_is_in_the_file_leaves_the_log(self) -> None:
        cell = record()
        cell.keep(adding(1))
        cell.begin_saving("a")
        cell.keep(adding(2))
        assert cell.saved("a") == ""
        assert (cell.snapshot, cell.saving) == ("a", "")
        assert cell.log == [adding(2)]
        assert cell.weight == 1

    def test_publications_still_weigh_more_than_commands(self) -> None:
        cell = record()
        cell.begin_saving("a")
        cell.keep(Match(1, 1, 1, encoded_rows([])), 50)
        cell.saved("a")
        assert cell.weight > 50

    def test_the_file_before_is_given_back(self) -> None:
        cell = record()
        for path, old in (("a", ""), ("b", "a"), ("c", "b")):
            cell.begin_saving(path)
            assert cell.saved(path) == old

    def test_nobody_saves_twice_at_once(self) -> None:
        cell = record()
        cell.keep(adding(1), 2 * LOG_MAX)
        cell.begin_saving("a")
        assert not cell.wants_saving

    def test_a_file_that_could_not_be_written(self) -> None:
        cell = record()
        cell.keep(adding(1), 2 * LOG_MAX)
        cell.begin_saving("a")
        cell.not_saved()
        assert (cell.saving, cell.snapshot) == ("", "")
        assert cell.log == [adding(1)]
        wants = [cell.wants_saving]
        cell.keep(adding(2), 2 * LOG_MAX)
        assert [*wants, cell.wants_saving] == [False, True], "not at every command"

    def test_a_good_file_makes_up_for_failures(self) -> None:
        cell = record()
        cell.failures = 2
        cell.begin_saving("a")
        cell.saved("a")
        assert cell.failures == 0


class TestHeld:
    def test_whatever_it_was_shown_and_nothing_else(self) -> None:
        cell = record()
        cell.show([2, 5])
        assert [one for one in range(1, 8) if cell.may_deliver(one)] == [2, 5]
        assert cell.shown == 5

    def test_until_it_is_known_what_it_holds(self) -> None:
        cell = record()
        cell.show([1, 2, 3])
        cell.begin_saving("a")
        cell.show([4])
        cell.saved("a")
        assert all(cell.may_deliver(one) for one in (1, 2, 3, 4)), "answers may be on their way"
        cell.learn(frozenset({2}), cell.saving_upto)
        assert [one for one in range(1, 6) if cell.may_deliver(one)] == [2, 4]

    def test_twice_before_it_is_known(self) -> None:
        cell = record()
        cell.show([1, 2])
        cell.begin_saving("a")
        first = cell.saving_upto
        cell.saved("a")
        cell.show([3])
        cell.begin_saving("b")
        second = cell.saving_upto
        cell.saved("b")
        cell.show([4])
        cell.learn(frozenset({1, 2}), first)
        assert [one for one in range(1, 6) if cell.may_deliver(one)] == [1, 2, 3, 4]
        cell.learn(frozenset({3}), second)
        assert [one for one in range(1, 6) if cell.may_deliver(one)] == [3, 4]


def test_windows_may_slide_when_it_is_time_or_nobody_knows() -> None:
    cell = record()
    assert not cell.may_slide(1e9)
    cell.next_change_at = 5.0
    assert [cell.may_slide(now) for now in (4.9, 5.0, 5.1)] == [False, True, True]
    cell.asked = 1
    assert cell.may_slide(0.0)


def ticket(number: int = 5, advance_to: float | None = None) -> Ticket:
    return Ticket(number, [row(one, x=one) for one in range(10, 15)], advance_to)


def test_a_part_carries_its_rows() -> None:
    one = ticket()
    command = one.part(3, [0, 2, 4], slides=False)
    assert (command.cell, command.ticket) == (3, 5)
    assert [each.number for each in decoded_rows(command.rows)] == [10, 12, 14]
    assert one.waiting[command.part].positions == [0, 2, 4]


def test_rows_that_were_written_already_are_not_written_again() -> None:
    raw = encoded_rows([])
    assert ticket().part(3, [0], raw, slides=False).rows is raw


def test_windows_slide_only_where_there_are_any() -> None:
    one = ticket(advance_to=7.5)
    assert one.part(1, [0], slides=True).advance_to == 7.5
    assert one.part(1, [0], slides=False).advance_to is None


def test_numbers_of_parts_tell_the_ticket() -> None:
    numbers = [
        each.part(1, [0], slides=False).part
        for each in (ticket(1), ticket(2), ticket(PARTS_MAX))
        for _ in range(3)
    ]
    assert len(set(numbers)) == 9
    one = ticket(2)
    assert [one.part(1, [0], slides=False).part // PARTS_MAX for _ in range(3)] == [2, 2, 2]


def test_what_a_cell_owes() -> None:
    one = ticket()
    first, other = one.part(1, [0], slides=False), one.part(2, [1], slides=False)
    second = one.part(1, [2], slides=False)
    assert one.owed(1) == [first, second]
    assert one.owed(2) == [other]
    assert one.owed(3) == []
    del one.waiting[first.part]
    assert one.owed(1) == [second]


def test_done_when_every_part_is() -> None:
    one = ticket()
    parts = [one.part(cell, [0], slides=False).part for cell in (1, 2)]
    done = []
    for part in parts:
        done.append(one.is_done)
        del one.waiting[part]
    assert [*done, one.is_done] == [False, False, True]
    assert ticket().is_done
