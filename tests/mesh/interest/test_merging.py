"""Merged summaries keep to their budget, and add few publications that nobody wants."""

import math
from random import Random

import pytest

from rove.lang import matches, parse
from rove.mesh.interest import EntryTable, Pace, Summary
from rove.testing.boxes import Name, workload
from tests.effort import share

AT_ONCE = Pace(withdraw_after_s=0.0, entries_per_s=1e9)


def table_of(found: Summary, now_s: float) -> EntryTable:
    """What a receiver has once everything that can wait was sent."""
    while found.next_s() < math.inf:
        now_s += 1.0
        found.take(now_s)
    table = EntryTable()
    table.reset(found.number, found.entries())
    return table


def filled(name: Name, count: int, budget_bytes: int) -> tuple[Summary, float, float]:
    """A summary of a workload, its entries per subscription, and its share of false forwards."""
    boxes, events = workload(name, count, share(200))
    subscriptions = [parse(boxes.text(row)) for row in range(count)]
    found = Summary("merged", budget_bytes, pace=AT_ONCE)
    for number, subscription in enumerate(subscriptions):
        found.add(number, "w", subscription, 0.0)
    table = table_of(found, 0.0)
    false = forwarded = 0
    for number in range(len(events)):
        publication = events.publication(number)
        wanted = any(matches(one, publication) for one in subscriptions)
        is_forwarded = table.matches("w", publication, 0.0)
        assert is_forwarded or not wanted
        forwarded += is_forwarded
        false += is_forwarded and not wanted
    return found, len(table.entries) / count, false / max(forwarded, 1)


def test_nested_subscriptions_need_few_entries_and_no_false_forwards() -> None:
    found, part, false_share = filled("W4", 600, 64 * 1024)
    assert part <= 0.05
    assert false_share == 0.0
    assert found.size_bytes <= 64 * 1024


def test_the_budget_is_kept_and_more_bytes_make_fewer_false_forwards() -> None:
    shares = []
    for budget_bytes in (1_000, 4_000, 100_000):
        found, _, false_share = filled("W1", 400, budget_bytes)
        assert found.size_bytes <= budget_bytes
        shares.append(false_share)
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 0.0


def test_topic_filters_are_widened_only_if_the_budget_demands_it() -> None:
    for count, widened in ((10, False), (500, True)):
        found = Summary("merged", 5_000, pace=AT_ONCE)
        for number in range(count):
            found.add(number, f"site/{number}", None, 0.0)
            found.add(-1 - number, f"$SYS/{number}", None, 0.0)
        filters = {entry.topic_filter for entry in table_of(found, 0.0).entries.values()}
        assert ("site/#" in filters, "$SYS/#" in filters) == (widened, widened)
        assert "#" not in filters
        assert found.size_bytes <= 5_000


def test_strings_are_united_and_numbers_joined() -> None:
    found = Summary("merged", 90, pace=AT_ONCE)
    for number, symbol in enumerate(("a", "b", "c")):
        found.add(number, "m", parse(f"s = '{symbol}' AND x BETWEEN {number} AND 5"), 0.0)
    (entry,) = table_of(found, 0.0).entries.values()
    assert entry.expression == "s IN ('a', 'b', 'c') AND x BETWEEN 0 AND 5"


def test_an_entry_becomes_narrower_when_its_widest_pieces_have_gone() -> None:
    found = Summary("merged", pace=AT_ONCE)
    found.add("wide", "a", parse("x > 0"), 0.0)
    found.add("narrow", "a", parse("x > 50"), 0.0)
    assert [e.expression for e in table_of(found, 0.0).entries.values()] == ["x > 0"]
    found.remove("wide")
    assert [e.expression for e in table_of(found, 9.0).entries.values()] == ["x > 50"]


@pytest.mark.parametrize("seed", range(3))
def test_the_same_input_gives_the_same_changes(seed: int) -> None:
    runs = []
    for _ in range(2):
        random, found, log = Random(seed), Summary("merged", 600), []
        for step in range(200):
            low, high = sorted(random.choices(range(100), k=2))
            text = f"x BETWEEN {low} AND {high} AND y < {random.randrange(9)}"
            found.add(random.randrange(40), f"t/{random.randrange(3)}", parse(text), step / 10)
            found.remove(random.randrange(40))
            log.append(found.take(step / 10))
        runs.append(log)
    assert runs[0] == runs[1]
