"""Which topic filter covers which, compared with the names that fit them."""

from itertools import product

import pytest

from rove.mesh.interest.topic_filters import FilterIndex, filter_covers, widened_filter
from rove.mqtt.topics import filter_fault, fits

LEVELS = ("a", "", "+", "#", "$S")
FILTERS = [
    found
    for count in (1, 2, 3)
    for levels in product(LEVELS, repeat=count)
    if filter_fault(found := "/".join(levels)) is None
]
NAMES = [
    name
    for count in (1, 2, 3, 4)
    for levels in product(("a", "", "b", "$S"), repeat=count)
    if (name := "/".join(levels))
]


def fitting(topic_filter: str) -> set[str]:
    return {name for name in NAMES if fits(topic_filter, name)}


FITTING = {topic_filter: fitting(topic_filter) for topic_filter in FILTERS}


def test_a_filter_that_covers_fits_all_names_that_the_other_fits() -> None:
    missed = 0
    for wide, narrow in product(FILTERS, repeat=2):
        really = FITTING[narrow] <= FITTING[wide]
        assert really or not filter_covers(wide, narrow), (wide, narrow)
        missed += really and not filter_covers(wide, narrow)
    assert missed <= 10  # such as +/# beside #


def test_the_index_finds_what_the_comparison_finds() -> None:
    index = FilterIndex()
    for topic_filter in FILTERS[::2]:
        index.add(topic_filter)
    for topic_filter in FILTERS[::6]:
        index.remove(topic_filter)
    index.remove("not/there")
    kept = set(FILTERS[::2]) - set(FILTERS[::6])
    for topic_filter in FILTERS:
        covering, covered = index.covering(topic_filter), index.covered(topic_filter)
        assert sorted(covering) == sorted(f for f in kept if filter_covers(f, topic_filter))
        assert sorted(covered) == sorted(f for f in kept if filter_covers(topic_filter, f))


def test_widening_covers_and_ends() -> None:
    for topic_filter in FILTERS:
        steps, wide = 0, widened_filter(topic_filter)
        while wide is not None:
            assert FITTING[topic_filter] <= fitting(wide)
            assert wide != topic_filter
            steps, wide = steps + 1, widened_filter(wide)
        assert steps <= 4


@pytest.mark.parametrize(
    ("topic_filter", "wide"),
    [("a/b/c", "a/b/#"), ("a/b/#", "a/#"), ("a", "#"), ("#", None), ("$SYS/x", "$SYS/#"),
     ("$SYS/#", None), ("+/b", "+/#")],
)  # fmt: skip
def test_a_filter_is_widened_by_one_level(topic_filter: str, wide: str | None) -> None:
    assert widened_filter(topic_filter) == wide
