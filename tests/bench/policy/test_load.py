"""The load reads what streams by, however it is cut, and sees what ought not to come."""

import pytest

from rove.bench.broker.clients import Tally
from rove.bench.load import Notes
from rove.bench.policy import load as policy_load
from rove.bench.policy.load import Device, Listener, PolicyJob, Subscriber
from rove.bench.policy.workload import TOPIC, message
from rove.mqtt.encoder import encode
from rove.mqtt.packets import Puback, Publish
from rove.testing.broker_processes import BrokerProcessError
from rove.testing.ports import free_port


def listening() -> tuple[Subscriber, Tally, Notes]:
    subscriber, tally, notes = Subscriber(0, Device()), Tally(), Notes()
    Listener(subscriber, tally, notes)
    return subscriber, tally, notes


def notification(number: int) -> bytes:
    return encode(Publish(TOPIC, message(number), 0))


class TestListener:
    @pytest.mark.parametrize("step", [37, 1_000, 65_536, 1_000_000])
    def test_counts_however_the_bytes_are_cut(self, step: int) -> None:
        subscriber, tally, notes = listening()
        data = notification(0) + encode(Puback(5)) + notification(1) + notification(4)
        for begin in range(0, len(data), step):
            subscriber.client.protocol.reader.feed(data[begin : begin + step])
        assert list(notes.numbers) == [0, 1, 4]
        assert (tally.received, subscriber.received) == (3, 3)
        assert notes.bytes == len(data) - len(encode(Puback(5)))

    def test_one_byte_at_a_time(self) -> None:
        subscriber, tally, notes = listening()
        small = encode(Publish(TOPIC, b'{"patient":7,"n":1000000012}', 0))
        for at in range(len(small)):
            assert tally.received == 0
            subscriber.client.protocol.reader.feed(small[at : at + 1])
        assert list(notes.numbers) == [12], "wherever the number stands"

    @pytest.mark.parametrize(
        "data",
        [
            notification(1) + notification(1),
            notification(1) + notification(0),
            encode(Publish(TOPIC, b"{}", 0)),
            b"\xd0\x00",
        ],
        ids=["twice", "out of order", "without a number", "something else"],
    )
    def test_what_was_not_due_is_an_error(self, data: bytes) -> None:
        subscriber, _, _ = listening()
        with pytest.raises(BrokerProcessError, match="behind message"):
            subscriber.client.protocol.reader.feed(data)


def test_a_broker_that_is_not_there_is_told_of() -> None:
    job = PolicyJob(port=free_port(), pid=1, policies={}, devices=[Device()], messages=1)
    with pytest.raises(BrokerProcessError, match="cannot connect"):
        policy_load.run([job])
