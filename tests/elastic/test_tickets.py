"""Batches on their way: who is asked what, what is owed, and when all is there."""

from __future__ import annotations

from rove.elastic.commands import decoded_rows, encoded_rows
from rove.elastic.tickets import PARTS_MAX, Ticket
from tests.elastic.conftest import row


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
