"""What subscriptions see of a publication."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
