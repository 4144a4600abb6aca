"""Publications and records: nothing is changed on the way, and nothing goes round in circles."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.bridge.routes import BridgeRoute
from rove.bridge.translation import KafkaRecord, LakeRow, Translator, Untranslatable
from rove.lang import matches, parse
from rove.lang.attributes import attributes_of

ROW = LakeRow(7, 1_794_830_400_123_456, "air/zagreb", "r-1", "bea", b'{"NO2": 55, "place": "Z"}')


def to_kafka(**more: Any) -> Translator:
    route: dict[str, Any] = {"source": "mqtt:air/#", "target": "kafka:air", **more}
    return Translator(BridgeRoute(**route), "b")


def to_broker(target: str = "mqtt:air/{key}", **more: Any) -> Translator:
    return Translator(BridgeRoute(source="kafka:air", target=target, **more), "b")


def test_a_publication_becomes_a_record() -> None:
    row = msgspec.structs.replace(ROW, user=(("unit", "µg"), ("id", "r-1"), ("unit", "2")))
    record = to_kafka().record(row)
    assert record is not None
    assert (record.key, record.value, record.at_ms) == (b"air/zagreb", row.payload, 1794830400123)
    assert list(record.headers) == [
        ("unit", "µg".encode()), ("unit", b"2"), ("rove-topic", b"air/zagreb"),
        ("rove-id", b"r-1"), ("rove-position", b"7"), ("rove-bridge", b"b"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "expected"),
    [("place", b"Z"), ("NO2", b"55"), ("missing", None), ("topic", b"air/zagreb")],
)
def test_the_key_is_an_attribute(key: str, expected: bytes | None) -> None:
    record = to_kafka(key=key).record(ROW)
    assert record is not None
    assert record.key == expected


def test_topic_filter_and_text_leave_things_behind() -> None:
    assert to_kafka().record(msgspec.structs.replace(ROW, topic="water/zagreb")) is None
    assert to_kafka(filter="NO2 > 60").record(ROW) is None
    record = to_kafka(filter="SELECT NO2 WHERE NO2 > 50").record(ROW)
    assert record is not None
    assert record.value == b'{"NO2":55}'


def test_a_record_becomes_a_publication() -> None:
    headers = (("unit", b"g"), ("id", b"x"), ("valid-for", b"9"), ("rove-topic", b"t"), ("n", None))
    found = to_broker().publication(KafkaRecord(b"rab", b"{}", headers, 0, 2, 41))
    assert found is not None
    assert (found.topic, found.payload) == ("air/rab", b"{}")
    assert found.user == (("id", "air/2/41"), ("unit", "g"))
    empty = to_broker("mqtt:{topic}/{partition}").publication(KafkaRecord(None, None, (), 0, 2, 42))
    assert empty is not None
    assert (empty.topic, empty.payload) == ("air/2", b"")
    assert to_broker(filter="NO2 > 1").publication(KafkaRecord(b"k", b'{"NO2": 1}')) is None


@pytest.mark.parametrize("key", [b"\xff", b"a/#", b"+", b"a\x00b"])
def test_a_key_that_is_no_topic_is_told(key: bytes) -> None:
    with pytest.raises(Untranslatable, match=r"the record air/0/3 cannot be published: "):
        to_broker().publication(KafkaRecord(key, b"", (), 0, 0, 3))


def test_topics_of_the_broker_itself_are_not_published_on() -> None:
    with pytest.raises(Untranslatable, match="begin with \\$"):
        to_broker("mqtt:{key}").publication(KafkaRecord(b"$rove/me", b"{}"))


def test_what_a_bridge_brought_it_does_not_bring_back() -> None:
    brought = msgspec.structs.replace(ROW, client_id="b:in:0", id="air/0/3")
    assert to_kafka().record(brought) is None
    assert to_kafka(target="kafka:other").record(brought) is not None
    record = to_kafka().record(ROW)
    assert record is not None
    assert to_broker().publication(record) is None
    other = Translator(BridgeRoute(source="kafka:air", target="mqtt:air"), "another")
    assert other.publication(record) is not None


payloads = st.one_of(
    st.binary(max_size=20),
    st.dictionaries(
        st.sampled_from(["NO2", "place", "topic", "id"]),
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    ).map(msgspec.json.encode),
)


@given(payload=payloads, user=st.lists(st.tuples(st.sampled_from(["NO2", "unit"]), st.text())))
def test_the_filter_is_the_oracles(payload: bytes, user: list[tuple[str, str]]) -> None:
    text = "NO2 > 40 OR place LIKE 'Z%' OR unit = 'x' OR NO2 = 'x'"
    row = msgspec.structs.replace(ROW, payload=payload, user=tuple(user))
    expected = matches(parse(text), attributes_of(row.topic, payload, user))
    assert (to_kafka(filter=text).record(row) is not None) is expected
