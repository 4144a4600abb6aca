"""Batches of messages, and what they are over MQTT."""

import json
import math

import numpy as np
import pytest

from rove.world.engines.messages import (
    COLUMNS,
    FIELDS,
    NO_PLACE,
    MessageKind,
    Messages,
    parse_payload,
    parse_payloads,
    payload,
    payload_bytes,
    payloads,
)
from rove.world.runs.state import Entities, EntityKind, WorldError


def random_messages(seed: int, count: int) -> Messages:
    """Of all kinds, with lengths around the places where a digit is added."""
    rng = np.random.default_rng(seed)
    columns: dict[str, object] = {}
    for name, dtype in COLUMNS.items():
        sizes = 10.0 ** rng.integers(-5, 6 if dtype is np.float64 else 3, count)
        nines = np.where(rng.random(count) < 0.3, 0.99995, rng.random(count))
        values = np.where(rng.random(count) < 0.5, -1, 1) * sizes * nines
        columns[name] = values.astype(dtype)
    whats = rng.integers(0, len(MessageKind), count).astype(np.int8)
    messages = Messages(whats, count, **columns)
    messages.former_x[rng.random(count) < 0.3] = NO_PLACE
    return messages


@pytest.mark.parametrize("seed", range(5))
def test_payloads_are_as_long_as_computed(seed: int) -> None:
    messages = random_messages(seed, 400)
    lengths = [len(payload(messages, line)) for line in range(400)]
    assert payload_bytes(messages).tolist() == lengths


@pytest.mark.parametrize("what", MessageKind)
def test_batches_of_one_kind_too(what: MessageKind) -> None:
    mixed = random_messages(9, 300)
    messages = mixed.take(np.flatnonzero(mixed.what == what))
    lengths = [len(payload(messages, line)) for line in range(len(messages))]
    assert len(lengths) > 20
    assert payload_bytes(messages).tolist() == lengths


def test_nothing_has_no_size() -> None:
    assert payload_bytes(Messages.none()).tolist() == []


def test_a_payload_is_a_json_object_of_what_its_kind_carries() -> None:
    messages = Messages(
        MessageKind.UPDATE, 1, entity=7, version=3, x=12.3456, y=-0.5, vx=0.25, holder=-1, tick=40
    )
    assert payload(messages, 0) == (
        b'{"what":"update","entity":7,"version":3,"x":12.346,"y":-0.500,"vx":0.250,"vy":0.000,'
        b'"holder":-1,"uses":0,"tick":40}'
    )
    for what, fields in FIELDS.items():
        members = json.loads(payload(Messages(what, 1), 0))
        assert tuple(members) == ("what", *fields)


def test_what_was_written_is_read_back_to_the_millimetre() -> None:
    messages = random_messages(3, 200)
    for line in range(200):
        read = parse_payload(payload(messages, line))
        assert payload(read, 0) == payload(messages, line)
        what = MessageKind(int(messages.what[line]))
        assert read.what[0] == what
        for name in FIELDS[what]:
            told, got = getattr(messages, name)[line], getattr(read, name)[0]
            if math.isnan(told):
                assert math.isnan(got)
            else:
                assert got == pytest.approx(told, abs=0.000501)


def test_many_payloads_are_read_at_once() -> None:
    messages = random_messages(4, 100)
    read = parse_payloads(payloads(messages))
    assert payloads(read) == payloads(messages) == [payload(messages, i) for i in range(100)]
    assert read.what.tolist() == messages.what.tolist()
    assert len(parse_payloads([])) == 0
    assert payloads(Messages.none()) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"", "truncated"),
        (b"[1]", r"no message of a world: \[1\]: Expected `object`"),
        (b"\xff\xfe", "no message of a world"),
        (b'{"what":["update"]}', "Expected `str`"),
        (b"{}", "missing required field `what`"),
        (b'{"what":"gossip"}', "Invalid value 'gossip'"),
        (b'{"what":"left","entity":1}', "missing required field `version`"),
        (b'{"what":"request","sender":1,"tile":2,"tick":3,"x":1}', "unknown field `x`"),
        (b'{"what":"request","sender":1,"tile":2.5,"tick":3}', r"Expected `int`.*\.tile"),
        (b'{"what":"request","sender":true,"tile":2,"tick":3}', r"Expected `int`.*\.sender"),
        (b'{"what":"request","sender":2147483648,"tile":2,"tick":3}', r"<= 2147483647.*\.sender"),
        (
            payload(Messages(MessageKind.UPDATE, 1), 0).replace(b'"x":0.000', b'"x":null'),
            r"Expected `float`.*\.x",
        ),
    ],
)
def test_what_is_no_message_is_refused(text: bytes, complaint: str) -> None:
    with pytest.raises(WorldError, match=complaint):
        parse_payload(text)


def test_a_batch_has_all_columns() -> None:
    messages = Messages(MessageKind.REPLICA, 3, entity=np.array([4, 5, 6]), tick=9)
    assert len(messages) == 3
    assert messages.entity.dtype == np.int32
    assert messages.tick.tolist() == [9, 9, 9]
    assert messages.x.tolist() == [0.0, 0.0, 0.0]
    assert messages.what.tolist() == [MessageKind.REPLICA] * 3


def test_columns_are_named_right_and_of_one_length() -> None:
    with pytest.raises(WorldError, match="no colour; they have entity, version"):
        Messages(MessageKind.UPDATE, 1, colour=3)
    with pytest.raises(WorldError, match=r"column of 3 messages has the shape \(2,\)"):
        Messages(MessageKind.UPDATE, 3, x=np.zeros(2))


def test_about_tells_all_of_an_entity() -> None:
    entities = Entities()
    entities.add(EntityKind.ITEM, ["apple", "pear"], np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    entities.vx[1], entities.server[1], entities.tile[1], entities.uses[1] = 1.5, 2, 8, 3
    entities.version[1] = 6
    told = Messages.about(MessageKind.REPLICA, entities, np.array([1], np.int32), 12)
    assert json.loads(payload(told, 0)) == {
        "what": "replica",
        "entity": 1,
        "version": 6,
        "x": 2.0,
        "y": 4.0,
        "vx": 1.5,
        "vy": 0.0,
        "holder": -1,
        "uses": 3,
        "tick": 12,
        "kind": EntityKind.ITEM,
        "tile": 8,
        "sender": 2,
    }
    entities.x[1] = 99.0
    assert told.x.tolist() == [2.0]


def test_batches_are_taken_apart_joined_and_overwritten() -> None:
    first = Messages(MessageKind.UPDATE, 2, entity=np.array([1, 2]))
    second = Messages(MessageKind.LEFT, 1, entity=3)
    joined = Messages.joined([first, second])
    assert joined.entity.tolist() == [1, 2, 3]
    assert joined.what.tolist() == [MessageKind.UPDATE, MessageKind.UPDATE, MessageKind.LEFT]
    assert joined.take(np.array([2, 0])).entity.tolist() == [3, 1]
    joined.put(np.array([1]), second)
    assert joined.entity.tolist() == [1, 3, 3]
    assert Messages.joined([first]) is first
    assert len(Messages.joined([])) == 0
