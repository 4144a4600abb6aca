"""Topics by level: both trees against the plain judge of filters."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from rove.mqtt.topic_trees import FilterTree, NameTree
from rove.mqtt.topics import filter_fault, fits

LEVELS = st.sampled_from(["a", "b", "", "$x"])
NAMES = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = (
    st.lists(st.sampled_from(["a", "b", "", "$x", "+", "#"]), min_size=1, max_size=4)
    .map("/".join)
    .filter(lambda topic_filter: filter_fault(topic_filter) is None)
)


@given(st.lists(FILTERS, max_size=12), NAMES)
def test_a_name_finds_the_filters_that_fit_it(filters: list[str], name: str) -> None:
    tree: FilterTree[str] = FilterTree()
    for number, topic_filter in enumerate(filters):
        tree.put(topic_filter, number, topic_filter)
    assert sorted(tree.find(name)) == sorted(one for one in filters if fits(one, name))


@given(st.lists(NAMES, max_size=12), FILTERS)
def test_a_filter_finds_the_names_that_it_fits(names: list[str], topic_filter: str) -> None:
    tree: NameTree[str] = NameTree()
    for number, name in enumerate(names):
        tree.put(name, number, name)
    assert sorted(tree.find(topic_filter)) == sorted(
        one for one in names if fits(topic_filter, one)
    )


def test_every_short_filter_and_name() -> None:
    parts = ["a", "", "$x", "+", "#"]
    paths = ["/".join(some) for n in (1, 2, 3) for some in itertools.product(parts, repeat=n)]
    filters = [one for one in paths if filter_fault(one) is None]
    names = [one for one in paths if one and "+" not in one and "#" not in one]
    by_filter: FilterTree[str] = FilterTree()
    by_name: NameTree[str] = NameTree()
    for one in filters:
        by_filter.put(one, None, one)
    for one in names:
        by_name.put(one, None, one)
    for name in names:
        assert set(by_filter.find(name)) == {one for one in filters if fits(one, name)}
    for topic_filter in filters:
        assert set(by_name.find(topic_filter)) == {one for one in names if fits(topic_filter, one)}


@given(st.lists(st.tuples(st.booleans(), FILTERS, st.integers(0, 2)), max_size=30))
def test_what_is_removed_is_gone_and_leaves_nothing(
    changes: list[tuple[bool, str, int]],
) -> None:
    tree: FilterTree[tuple[str, int]] = FilterTree()
    model: dict[tuple[str, int], tuple[str, int]] = {}
    for is_put, topic_filter, key in changes:
        if is_put:
            tree.put(topic_filter, key, (topic_filter, key))
            model[topic_filter, key] = (topic_filter, key)
        else:
            assert tree.remove(topic_filter, key) == model.pop((topic_filter, key), None)
        assert len(tree) == len(model)
        assert set(tree.at(topic_filter)) == {one for one in model if one[0] == topic_filter}
    for topic_filter, key in list(model):
        tree.remove(topic_filter, key)
    assert len(tree) == 0
    assert not tree._root.below


def test_the_same_key_at_the_same_place_takes_its_place() -> None:
    tree: FilterTree[str] = FilterTree()
    tree.put("a/+", 1, "old")
    tree.put("a/+", 1, "new")
    assert tree.find("a/b") == ["new"]
    assert len(tree) == 1


def test_removing_what_is_not_there_is_nothing() -> None:
    tree: FilterTree[str] = FilterTree()
    tree.put("a/b", 1, "one")
    assert tree.remove("a/b/c", 1) is None
    assert tree.remove("a/b", 2) is None
    assert tree.remove("a", 1) is None
    assert tree.find("a/b") == ["one"]
