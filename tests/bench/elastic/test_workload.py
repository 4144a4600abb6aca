"""The works of the bench are met as the language says, and cut into packets as MQTT says."""

import json
from itertools import islice

import numpy as np
import pytest

from rove.bench.elastic.workload import TOPIC, Drawn, Name, due_bytes, work_of
from rove.lang import matches, parse
from rove.mqtt.decoder import PacketDecoder
from rove.mqtt.encoder import encode
from rove.mqtt.packets import Properties, Publish


@pytest.mark.parametrize("name", ["gas", "sums"])
def test_what_is_due_is_what_the_oracle_finds(name: Name) -> None:
    work = work_of(name, 400)
    trees = [parse(text) for text in work.texts]
    for session in range(3):
        due = due_bytes(work, 390, session, 3)
        mine = trees[session:390:3]
        for reading, expected in islice(zip(work.readings, due.tolist(), strict=True), 60):
            ids = [n for n, tree in enumerate(mine, start=1) if matches(tree, reading)]
            bare = Publish(TOPIC, b"", 0)
            told = Publish(TOPIC, b"", 0, properties=Properties(subscription_ids=tuple(ids)))
            assert expected == len(encode(told)) - len(encode(bare)), (name, reading)
        assert due.any()


def test_long_identifiers_take_more_bytes() -> None:
    work = work_of("gas", 20_000)
    ids = np.arange(1, 20_001)
    whole = work.met(np.arange(20_000), np.ones(20_000, np.int64))
    due = due_bytes(work, 20_000, 0, 1)
    assert (due <= 4 * whole).all()
    assert (due >= 2 * whole).all()
    assert due.sum() == sum(
        work.met(np.flatnonzero((ids >= low) & (ids < high)), np.full(high - low, size)).sum()
        for low, high, size in ((1, 128, 2), (128, 16_384, 3), (16_384, 20_001, 4))
    )


@pytest.mark.parametrize("qos", [0, 1])
def test_publications_are_numbered_readings(qos: int) -> None:
    work = work_of("gas", 10)
    drawn = Drawn(work, qos, publisher=2)
    packets = list(PacketDecoder(version=5).feed(b"".join(map(drawn.packet, range(50)))))
    for number, packet in enumerate(packets):
        assert isinstance(packet, Publish)
        assert packet.packet_id == (number + 1 if qos else 0)
        content = json.loads(packet.payload)
        named = content.pop("n") - 1_000_000_000
        assert named == drawn.first + number == 200_000_000 + number
        assert content == work.readings[drawn.reading(named)]
    assert len(packets) == 50


def test_few_publications_meet_a_sum_but_the_first() -> None:
    met = work_of("sums", 1_000).met(np.arange(1_000), np.ones(1_000, np.int64))
    assert met.min() == 1
    assert 0.05 < (met > 1).mean() < 0.5
    assert met.mean() < 20
