"""Changes mean what a dictionary would mean, merged or not."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from rove.broker.storage.journal import INTEGER_TABLES, KEY_BYTES, TABLES, TEXT_TABLES, Changes, Key

Rows = dict[tuple[str, Key], bytes]


def test_the_tables_are_told_apart_by_their_keys() -> None:
    assert set(INTEGER_TABLES) | set(TEXT_TABLES) == set(TABLES)
    assert not set(INTEGER_TABLES) & set(TEXT_TABLES)


def test_new_changes_are_none() -> None:
    changes = Changes()
    assert not changes
    assert list(changes.rows()) == []
    assert changes.size_bytes == 0


def test_what_comes_last_counts() -> None:
    changes = Changes()
    changes.put("meta", "a", b"1")
    changes.put("meta", "a", b"2")
    changes.put("queue", 7, b"3")
    changes.delete("queue", 7)
    assert changes
    assert list(changes.rows()) == [("meta", "a", b"2"), ("queue", 7, None)]


def test_a_row_that_never_reached_the_disk_is_forgotten() -> None:
    changes = Changes()
    changes.put("queue", 7, b"3")
    changes.drop_new("queue", 7)
    assert not changes
    assert list(changes.rows()) == []


def test_a_row_that_may_be_on_disk_is_deleted() -> None:
    changes = Changes()
    changes.drop_new("queue", 7)
    assert list(changes.rows()) == [("queue", 7, None)]


def test_a_row_put_over_a_deletion_can_be_taken_back() -> None:
    changes = Changes()
    changes.delete("publications", 7)
    changes.put("publications", 7, b"again")
    assert list(changes.rows()) == [("publications", 7, b"again")]
    changes.drop_new("publications", 7)
    assert list(changes.rows()) == [("publications", 7, None)]


def test_merging_keeps_a_deletion_of_what_only_the_first_has_put() -> None:
    first, later = Changes(), Changes()
    first.put("queue", 7, b"sent once more")
    later.drop_new("queue", 7)
    first.merge(later)
    assert list(first.rows()) == [("queue", 7, None)]
    assert list(later.rows()) == [("queue", 7, None)]


def test_merging_leaves_the_later_changes_alone() -> None:
    first, later = Changes(), Changes()
    later.put("queue", 7, b"1")
    first.merge(later)
    first.put("queue", 8, b"2")
    first.delete("queue", 7)
    assert list(later.rows()) == [("queue", 7, b"1")]


def test_the_size_counts_rows_and_keys() -> None:
    changes = Changes()
    changes.put("queue", 7, bytes(1000))
    changes.delete("meta", "a")
    assert changes.size_bytes == 1000 + 2 * KEY_BYTES


steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "delete", "drop_new", "turn"]),
        st.sampled_from(["queue", "publications"]),
        st.integers(1, 3),
    ),
    max_size=30,
)


def applied(rows: Rows, changes: Changes) -> None:
    for table, key, row in changes.rows():
        if row is None:
            rows.pop((table, key), None)
        else:
            rows[table, key] = row


def turns_of(steps: Iterable[tuple[str, str, int]], model: Rows) -> list[Changes]:
    """Do the steps on a dictionary and on changes; each turn begins new ones."""
    turns = [Changes()]
    puts: dict[tuple[str, Key], int] = {}
    for number, (step, table, key) in enumerate(steps):
        changes, place = turns[-1], (table, key)
        if step == "turn":
            turns.append(Changes())
        elif step == "put":
            model[place] = b"%d" % number
            changes.put(table, key, model[place])
            puts[place] = puts.get(place, 0) + 1
        elif step == "delete":
            model.pop(place, None)
            changes.delete(table, key)
            puts[place] = 0
        elif puts.get(place) == 1:  # only then may `drop_new` be asked
            del model[place]
            changes.drop_new(table, key)
            puts[place] = 0
    return turns


@given(steps, st.sets(st.integers(0, 30)))
def test_changes_mean_what_a_dictionary_would(
    steps: list[tuple[str, str, int]], commits_after: set[int]
) -> None:
    model: Rows = {}
    turns = turns_of(steps, model)
    one_by_one: Rows = {}
    for changes in turns:
        applied(one_by_one, changes)
    assert one_by_one == model
    merged: Rows = {}
    waiting = Changes()
    for number, changes in enumerate(turns):
        waiting.merge(changes)
        if number in commits_after:
            applied(merged, waiting)
            waiting = Changes()
    applied(merged, waiting)
    assert merged == model
