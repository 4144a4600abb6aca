"""The attributes that subscriptions see, and the ones that SELECT chooses."""

from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.lang import parse, selected
from rove.lang.attributes import attributes_of
from rove.lang.values import admit


def test_payload_user_properties_and_topic() -> None:
    found = attributes_of("air", b'{"x": 1, "place": {"city": "Zagreb"}}', [("unit", "ug")])
    assert found == {"x": 1, "place": {"city": "Zagreb"}, "unit": "ug", "topic": "air"}


def test_the_payload_wins_over_user_properties_and_the_topic_over_both() -> None:
    found = attributes_of("air", b'{"x": 1, "topic": 2}', [("x", "3"), ("topic", "4")])
    assert found == {"x": 1, "topic": "air"}


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"\xff{}",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1e400}',
        b'{"a": "\\ud800"}',
        b'{"a":' * 5_000,
        b'{"a": "\xff"}',
    ],
)
def test_payloads_that_say_nothing(payload: bytes) -> None:
    assert attributes_of("t", payload, ()) == {"topic": "t"}


@given(st.binary(max_size=50) | st.text(alphabet='{}[]":,0123456789eE+-.\\und', max_size=60))
def test_whatever_is_read_the_language_can_hold(said: bytes | str) -> None:
    payload = said if isinstance(said, bytes) else said.encode()
    admit(attributes_of("t", payload, ()))


READING: dict[str, Any] = {
    "x": 1,
    "y": None,
    "n": {"m": 2, "k": {"j": 3, "i": [4]}, "e": {}},
    "odd name": 5,
    "n.m": 6,
}


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        ("x", {"x": 1}),
        ("x, x", {"x": 1}),
        ("y", {"y": None}),
        ("missing", {}),
        ("x, missing", {"x": 1}),
        ("n.m", {"n": {"m": 2}}),
        ("`n.m`", {"n.m": 6}),
        ("`odd name`", {"odd name": 5}),
        ("n.m, n.k.j", {"n": {"m": 2, "k": {"j": 3}}}),
        ("n.k.j, n.k.i", {"n": {"k": {"j": 3, "i": [4]}}}),
        ("n.k", {"n": {"k": {"j": 3, "i": [4]}}}),
        ("n.k.j, n.k", {"n": {"k": {"j": 3, "i": [4]}}}),
        ("n.k.j, n", {"n": READING["n"]}),
        ("n, n.m", {"n": READING["n"]}),
        ("n.missing", {}),
        ("n.missing, n.m", {"n": {"m": 2}}),
        ("n.m, n.missing", {"n": {"m": 2}}),
        ("n.k.missing", {}),
        ("n.e", {"n": {"e": {}}}),
        ("n.e.f", {}),
        ("n.e, n.e.f", {"n": {"e": {}}}),
        ("n.e.f, n.e", {"n": {"e": {}}}),
        ("x.m", {}),
        ("x, x.m", {"x": 1}),
        ("y.m", {}),
    ],
)
def test_what_is_chosen(choice: str, chosen: dict[str, Any]) -> None:
    before = repr(READING)
    assert selected(parse(f"SELECT {choice}"), READING) == chosen
    assert repr(READING) == before


def test_the_order_is_that_of_the_choice() -> None:
    chosen = selected(parse("SELECT n.m, y, x"), READING)
    assert list(chosen) == ["n", "y", "x"]


@pytest.mark.parametrize("text", ["x > 0", "SELECT *", "ORDER BY x LIMIT 1 WITHIN 1 HOUR"])
def test_without_a_choice_everything_is_carried(text: str) -> None:
    assert selected(parse(text), READING) is READING


def test_a_choice_is_no_window_into_the_publication() -> None:
    """What is put together anew can be changed without changing the publication."""
    chosen: Any = selected(parse("SELECT n.m"), READING)
    chosen["n"]["m"] = "changed"
    assert READING["n"]["m"] == 2


def test_objects_may_be_any_mapping() -> None:
    reading = {"n": MappingProxyType({"m": MappingProxyType({"k": 1})})}
    assert selected(parse("SELECT n.m.k"), reading) == {"n": {"m": {"k": 1}}}
    assert selected(parse("SELECT n, n.m.k"), reading) == reading
