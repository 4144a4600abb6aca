"""What loads are made of: processes that fail in one line, clocks, and delays by number."""

import asyncio
import os
import time

import pytest

from rove.bench import load
from rove.mqtt.encoder import encode
from rove.mqtt.packets import Publish
from rove.testing.broker_processes import BrokerProcessError


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_cpu_time_is_read_finely() -> None:
    before = load.cpu_times(os.getpid())
    burn(0.02)
    used_s = load.cpu_times(os.getpid())[os.getpid()] - before[os.getpid()]
    assert used_s >= 0.015


def test_a_watch_tells_the_broker_from_what_it_has_started_and_from_the_load() -> None:
    watch = load.Watch(os.getpid())
    burn(0.02)
    broker_s, others_s = watch.cpu_s()
    assert broker_s >= 0.015
    assert others_s >= 0.0
    assert watch.load_cpu_s() >= 0.02


def test_delays_are_of_the_publication_that_each_notification_names() -> None:
    notes = load.Notes()
    for number, came_at in ((2, 10.5), (0, 8.25)):
        notes.add(number, came_at)
    sent_at, delays_ms = notes.delays([8.0, 9.0, 10.0])
    assert sent_at.tolist() == [10.0, 8.0]
    assert delays_ms.tolist() == [500.0, 250.0]
    assert load.percentiles(delays_ms, 0, 100) == (250.0, 500.0)
    notes.clear()
    assert len(notes.delays([])[1]) == 0


@pytest.mark.parametrize("size", [0, 100, 113, 114, 16_371, 16_372, 70_000])
def test_packets_end_where_they_end_and_nobody_knows_before_the_length_has_come(size: int) -> None:
    packet = encode(Publish("topic", bytes(size)))
    assert load.end_of_packet(packet) == len(packet)
    assert load.end_of_packet(b"before" + packet, 6) == 6 + len(packet)
    length_bytes = len(packet) - len(encode(Publish("topic", b""))) - size + 1
    for cut in range(1 + length_bytes):
        assert load.end_of_packet(packet[:cut]) > cut


def test_what_fails_in_a_callback_ends_the_job() -> None:
    async def job() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.Event().wait()

    with pytest.raises(BrokerProcessError, match="division by zero"):
        asyncio.run(load.carried_out(job(), 60))


def test_a_process_that_fails_is_told_in_one_line() -> None:
    with pytest.raises(BrokerProcessError, match=r"No module named 'rove\.bench\.nothing'"):
        load.Load("rove.bench.nothing", {}, dict, lambda job: 60).run({})
