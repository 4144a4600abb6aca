"""New interest goes out at once; what can wait does, at a bounded rate."""

import math

from rove.mesh.interest.outbox import Outbox, Pace


def sizes(box: Outbox, seconds: int) -> list[tuple[int, int]]:
    """How many entries are added and removed in each second."""
    found = []
    for second in range(1, seconds + 1):
        changes = box.take(float(second))
        found.append((len(changes.added), len(changes.removed)) if changes else (0, 0))
    return found


def test_urgent_entries_do_not_wait_and_others_come_at_the_rate() -> None:
    box = Outbox(Pace(entries_per_s=5.0))
    for number in range(12):
        box.put("a", f"x = {number}", urgent=False)
        box.put("b", f"x = {number}")
    first = box.take(0.0)
    assert first is not None
    assert sum(entry.topic_filter == "b" for entry in first.added) == 12
    assert sizes(box, 3) == [(5, 0), (2, 0), (0, 0)]
    assert box.next_s() == math.inf


def test_entries_are_withdrawn_together_after_a_while() -> None:
    box = Outbox(Pace(withdraw_after_s=3.0))
    ids = [box.put("a", f"x = {number}") for number in range(3)]
    box.take(0.0)
    for second, id in enumerate(ids):
        box.drop(id, second * 0.5)
    assert len(box) == 0
    assert sizes(box, 4) == [(0, 0), (0, 0), (0, 3), (0, 0)]


def test_an_entry_that_returns_in_time_is_not_sent_again() -> None:
    box = Outbox(Pace(withdraw_after_s=3.0))
    id = box.put("a", "x = 1")
    box.take(0.0)
    box.drop(id, 0.0)
    assert box.put("a", "x = 1") == id
    assert sizes(box, 6) == [(0, 0)] * 6


def test_an_entry_that_was_never_sent_is_forgotten() -> None:
    box = Outbox(Pace())
    box.drop(box.put("a", "x = 1"), 0.0)
    assert box.take(0.0) is None
    assert (len(box), box.size_bytes) == (0, 0)


def test_what_replaces_a_replacement_is_waited_for() -> None:
    box = Outbox(Pace(withdraw_after_s=0.0, entries_per_s=1.0))
    wide = box.put("a", None)
    box.take(0.0)
    before = [box.put("b", f"x = {number}", urgent=False) for number in range(3)]
    narrow = box.put("a", "x = 1", urgent=False)
    box.hold(wide, narrow)
    box.drop(wide, 0.0)
    narrower = box.put("a", "x = 2", urgent=False)
    box.hold(narrow, narrower)
    box.drop(narrow, 0.0)
    gone_at: dict[tuple[str, int], int] = {}
    for second in range(1, 12):
        changes = box.take(float(second))
        if changes is not None:
            gone_at |= {("added", e.id): second for e in changes.added}
            gone_at |= {("removed", id): second for id in changes.removed}
    assert ("added", narrow) not in gone_at
    assert gone_at["added", narrower] <= gone_at["removed", wide]
    assert all(("added", id) in gone_at for id in before)
