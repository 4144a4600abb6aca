"""Notifications: what they say, and reading a payload when it is looked at."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rove.client.errors import PayloadError
from rove.client.notifications import Notification, RecentIds, id_of, reader_into
from rove.mqtt.packets import Properties, Publish


class Reading(msgspec.Struct):
    NO2: float


def notification(payload: bytes, into: Any = Any) -> Notification[Any]:
    properties = Properties(user=(("place", "a"), ("id", "7"), ("place", "b")))
    publish = Publish("air/z", payload, 1, retain=True, properties=properties)
    return Notification(publish, id_of(publish), reader_into(into))


def test_it_says_what_came() -> None:
    one = notification(b'{"NO2":41}')
    assert (one.topic, one.payload, one.id, one.qos) == ("air/z", b'{"NO2":41}', "7", 1)
    assert one.retained
    assert one.user == {"place": "b"}
    assert one.properties.user[0] == ("place", "a")
    assert "air/z" in repr(one)


@pytest.mark.parametrize(
    ("into", "value"),
    [
        (Any, {"NO2": 41}),
        (dict, {"NO2": 41}),
        (dict[str, int], {"NO2": 41}),
        (Reading, Reading(41)),
        (bytes, b'{"NO2":41}'),
    ],
)
def test_its_payload_is_read_as_what_was_asked_for(into: Any, value: object) -> None:
    assert notification(b'{"NO2":41}', into).value == value


@pytest.mark.parametrize(("payload", "into"), [(b"\xff", Any), (b"[1]", dict), (b"{}", Reading)])
def test_a_payload_that_is_something_else_is_an_error_where_it_is_read(
    payload: bytes, into: Any
) -> None:
    one = notification(payload, into)
    with pytest.raises(PayloadError, match=r"air/z.*into=bytes"):
        _ = one.value
    assert one.payload == payload


def test_a_payload_is_read_once() -> None:
    one = notification(b'{"NO2":41}')
    assert one.value is one.value


def test_what_nothing_can_be_read_into_is_refused_at_once() -> None:
    with pytest.raises(TypeError):
        reader_into(lambda: None)


def test_a_publication_may_have_no_id() -> None:
    assert id_of(Publish("t", b"")) is None


def test_what_came_lately_is_known_again() -> None:
    seen = RecentIds(2)
    assert [seen.is_new(id) for id in "abab"] == [True, True, False, False]
    assert seen.is_new("c")
    assert not any(seen.is_new(id) for id in "abc")
    assert seen.is_new("d")
    assert len(seen) == 4
    assert seen.is_new("e")
    assert len(seen) == 3
    assert not seen.is_new("d")
    assert seen.is_new("a")


def test_memory_is_bounded() -> None:
    seen = RecentIds(100)
    for number in range(10_000):
        assert seen.is_new(str(number))
        assert len(seen) <= 200
