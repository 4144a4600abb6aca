"""The table of a receiver: numbers without gaps, digests that agree."""

import pytest

from rove.mesh.interest.entries import Changes, Entry, EntryTable, ForwardCounts, SummaryError

ONE, TWO = Entry(1, "a", "x > 3"), Entry(2, "b/#")


def table_of(*entries: Entry) -> EntryTable:
    table = EntryTable()
    table.reset(4, entries)
    return table


def test_a_digest_does_not_depend_on_the_order_of_changes() -> None:
    step_by_step = EntryTable()
    step_by_step.apply(Changes(1, (TWO,)))
    step_by_step.apply(Changes(2, (ONE,), (2,)))
    step_by_step.apply(Changes(3, (Entry(3, "b/#"),)))
    assert step_by_step.digest == table_of(Entry(3, "b/#"), ONE).digest
    assert step_by_step.digest != table_of(TWO, ONE).digest
    assert step_by_step.digest != table_of(ONE).digest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (Changes(6, (TWO,)), "number 6 came after 4"),
        (Changes(4, (TWO,)), "number 4 came after 4"),
        (Changes(5, (Entry(1, "c"),)), "came twice"),
        (Changes(5, (TWO, TWO)), "came twice"),
        (Changes(5, (), (7,)), "unknown"),
        (Changes(5, (), (1, 1)), "unknown"),
    ],
)
def test_changes_that_do_not_fit_are_refused_and_change_nothing(
    changes: Changes, message: str
) -> None:
    table = table_of(ONE)
    digest = table.digest
    with pytest.raises(SummaryError, match=message):
        table.apply(changes)
    assert (table.number, table.digest, table.entries) == (4, digest, {1: ONE})


def test_an_entry_matches_by_topic_filter_expression_and_time() -> None:
    table = table_of(ONE, TWO, Entry(3, "c", "x > t", 10.0))
    assert table.matches("a", {"x": 4}, 0.0)
    assert not table.matches("a", {"x": 3}, 0.0)
    assert table.matches("b/c", {}, 0.0)
    assert table.matches("c", {"x": 3}, 12.0)
    assert not table.matches("c", {"x": 3}, 13.0)


def test_false_forwards_are_counted() -> None:
    counts = ForwardCounts()
    assert counts.false_share == 0.0
    for matched in (0, 3, 1, 0):
        counts.count(matched)
    assert (counts.forwarded, counts.false, counts.false_share) == (4, 2, 0.5)
