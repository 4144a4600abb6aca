"""Topic names and filters: which are good, and which fits which.

The pairs are those of section 4.7 of the specification, and what lies around their edges.
"""

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.mqtt.topics import (
    TEXT_BYTES_MAX,
    filter_fault,
    fits,
    has_wildcards,
    name_fault,
    shared_fault,
    split_shared,
    text_fault,
)

FITTING = [
    ("sport/tennis/player1/#", "sport/tennis/player1"),
    ("sport/tennis/player1/#", "sport/tennis/player1/ranking"),
    ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon"),
    ("sport/#", "sport"),
    ("sport/#", "sport/"),
    ("#", "sport/tennis"),
    ("#", "/"),
    ("sport/tennis/+", "sport/tennis/player1"),
    ("sport/+", "sport/"),
    ("+/+", "/finance"),
    ("/+", "/finance"),
    ("+", "finance"),
    ("+/tennis/#", "sport/tennis"),
    ("sport/+/player1", "sport/tennis/player1"),
    ("+/#", "a"),
    ("$SYS/#", "$SYS/load"),
    ("$SYS/#", "$SYS"),
    ("$SYS/monitor/+", "$SYS/monitor/clients"),
    ("+/$SYS", "a/$SYS"),
    ("a//b", "a//b"),
    ("a/+/b", "a//b"),
    ("Accounts payable", "Accounts payable"),
    ("ä/+", "ä/ö"),
]
NOT_FITTING = [
    ("sport/tennis/+", "sport/tennis/player1/ranking"),
    ("sport/+", "sport"),
    ("+", "/finance"),
    ("/finance", "finance"),
    ("a", "a/"),
    ("a/", "a"),
    ("a/b", "a/b/c"),
    ("a/b/c", "a/b"),
    ("a/#", "ab"),
    ("a/b/#", "a"),
    ("a/+/#", "a"),
    ("#", "$SYS/load"),
    ("+/monitor/clients", "$SYS/monitor/clients"),
    ("+", "$SYS"),
    ("+/#", "$SYS/load"),
    ("ACCOUNTS", "Accounts"),
]


@pytest.mark.parametrize(("topic_filter", "name"), FITTING)
def test_fits(topic_filter: str, name: str) -> None:
    assert filter_fault(topic_filter) is None
    assert name_fault(name) is None
    assert fits(topic_filter, name)


@pytest.mark.parametrize(("topic_filter", "name"), NOT_FITTING)
def test_does_not_fit(topic_filter: str, name: str) -> None:
    assert filter_fault(topic_filter) is None
    assert name_fault(name) is None
    assert not fits(topic_filter, name)


def as_pattern(topic_filter: str) -> str:
    """The same filter as a regular expression: another way to the same answer."""
    pattern = re.escape(topic_filter).replace(r"\+", "[^/]*")
    pattern = re.sub(r"/\\#$", "(/.*)?", pattern)
    pattern = re.sub(r"^\\#$", ".*", pattern)
    return rf"(?!\$){pattern}" if topic_filter[0] in "+#" else pattern


def test_fits_agrees_with_a_regular_expression_on_all_short_ones() -> None:
    filters = [each for each in map("/".join, levels("", "a", "$b", "+", "#")) if each]
    filters = [each for each in filters if filter_fault(each) is None]
    names = [each for each in map("/".join, levels("", "a", "$b")) if each]
    assert len(filters) * len(names) > 2000
    for topic_filter in filters:
        pattern = re.compile(as_pattern(topic_filter))
        for name in names:
            expected = pattern.fullmatch(name) is not None
            assert fits(topic_filter, name) == expected, (topic_filter, name)


def levels(*words: str) -> list[tuple[str, ...]]:
    return [each for count in (1, 2, 3) for each in product(words, repeat=count)]


@pytest.mark.parametrize(
    "name", ["a", "/", "//", " ", "$SYS/x", "a b", "ﬁ/\ufffe", "\ufeffa", "a$"]
)
def test_a_good_name(name: str) -> None:
    assert name_fault(name) is None
    assert filter_fault(name) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "at least one character"),
        ("a/+", "no wildcards"),
        ("#", "no wildcards"),
        ("a+b", "no wildcards"),
        ("a\0b", "U+0000"),
        ("a\ud800", "surrogate at position 1"),
        ("ä" * 32_768, "65536 bytes"),
    ],
)
def test_a_bad_name_is_explained(name: str, words: str) -> None:
    fault = name_fault(name)
    assert fault is not None
    assert words in fault
    assert "\n" not in fault


def test_a_text_may_be_as_long_as_two_bytes_can_count() -> None:
    assert text_fault("x" * TEXT_BYTES_MAX) is None
    assert name_fault("x" * TEXT_BYTES_MAX) is None
    assert filter_fault("x" * TEXT_BYTES_MAX) is None
    assert text_fault("x" * (TEXT_BYTES_MAX + 1)) is not None
    assert text_fault("") is None


@pytest.mark.parametrize(
    "topic_filter",
    ["#", "+", "a/#", "+/+/#", "/#", "a/+/b", "$share/g/a/#", "$share/g//", "$share/g/+", "$share"],
)
def test_a_good_filter(topic_filter: str) -> None:
    assert filter_fault(topic_filter) is None


@pytest.mark.parametrize(
    ("topic_filter", "words"),
    [
        ("", "at least one character"),
        ("a#", "fills its level"),
        ("sport/tennis#", "fills its level"),
        ("sport+", "fills its level"),
        ("a/+b/c", "fills its level"),
        ("##", "fills its level"),
        ("sport/#/ranking", "last level"),
        ("#/", "last level"),
        ("#/#", "last level"),
        ("a\0", "U+0000"),
        ("\udfff", "surrogate"),
        ("x" * 65_536, "65536 bytes"),
        ("$share/", "names its group"),
        ("$share//a", "names its group"),
        ("$share/g", "needs a filter"),
        ("$share/g/", "needs a filter"),
        ("$share/+/a", "no wildcards"),
        ("$share/g#/a", "no wildcards"),
        ("$share/g/a/#/b", "last level"),
        ("$share/g/a+", "fills its level"),
    ],
)
def test_a_bad_filter_is_explained(topic_filter: str, words: str) -> None:
    fault = filter_fault(topic_filter)
    assert fault is not None
    assert words in fault
    assert len(fault) < 250


def test_shared_filters_come_apart() -> None:
    assert split_shared("$share/consumer1/sport/#") == ("consumer1", "sport/#")
    assert split_shared("$share/g//finance") == ("g", "/finance")
    assert split_shared("$share/g") == ("g", "")
    assert split_shared("$share") is None
    assert split_shared("$shared/g/a") is None
    assert split_shared("a/$share/g/a") is None


def test_only_shared_filters_have_faults_of_sharing() -> None:
    assert shared_fault("a/#/b") is None
    assert shared_fault("$share/g/a/#/b") is None
    assert shared_fault("$share/g/") is not None


def test_wildcards_are_seen() -> None:
    assert has_wildcards("a/+")
    assert has_wildcards("#")
    assert not has_wildcards("a/b$*")


@given(st.text("/$ab", min_size=1, max_size=5), st.text("/$ab", min_size=1, max_size=5))
def test_a_filter_without_wildcards_fits_itself_only(topic_filter: str, name: str) -> None:
    assert fits(topic_filter, name) == (topic_filter == name)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1))
def test_every_name_fits_itself(name: str) -> None:
    assert name_fault(name) is None
    assert fits(name, name)
    assert fits("#", name) == (not name.startswith("$"))
