"""Ids of publications: unique, and in order whatever the clock does."""

from rove.client.ids import IdGenerator

MAKER = "0123456789"


def test_ids_are_in_the_order_of_their_making() -> None:
    maker = IdGenerator(MAKER)
    made = [maker.make(now_ms) for now_ms in (5, 5, 6, 6, 3, 1_000_000, 7)]
    assert made == sorted(set(made))
    assert {len(id) for id in made} == {28}


def test_two_makers_never_make_the_same() -> None:
    assert IdGenerator("0" * 10).make(1) != IdGenerator("1" * 10).make(1)


def test_more_than_a_millisecond_can_count_borrow_the_next() -> None:
    maker = IdGenerator(MAKER)
    first = maker.make(1)
    maker._count = (1 << 24) - 1
    second, third = maker.make(1), maker.make(1)
    assert first < second < third
    assert second.startswith("000000000002")
