"""The load runs in its own process against a real broker, and knows what had to come."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rove.bench.broker import load as broker_load
from rove.bench.broker.clients import X_COUNT, X_MIN
from rove.bench.broker.load import LOAD, Durable, FanOut, Idle, Sift, Spread
from rove.testing.broker_processes import BrokerProcessError, Running, rove
from rove.testing.ports import free_port


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with rove(tmp_path_factory.mktemp("broker")) as running:
        yield running


def fan_out(broker: Running, qos: int) -> FanOut:
    return FanOut(
        port=broker.port,
        pid=broker.pid,
        seconds=0.2,
        qos=qos,
        subscribers=3,
        payload_bytes=256,
        bystanders=4,
    )


@pytest.mark.soak
@pytest.mark.parametrize("qos", [0, 1])
def test_everybody_gets_everything(broker: Running, qos: int) -> None:
    before = broker.metrics()
    outcome = LOAD.run(fan_out(broker, qos))
    assert outcome.expected == 3 * outcome.sent > 0
    assert outcome.delays_ms is None
    after = broker.metrics()
    dropped = "rove_notifications_dropped_slow_total"
    assert outcome.received == outcome.expected - (after[dropped] - before[dropped])
    assert not qos or outcome.received == outcome.expected
    taken = "rove_publications_received_total"
    assert after[taken] - before[taken] == outcome.sent
    made = "rove_subscriptions_made_total"
    assert after[made] - before[made] == 3 + 4


@pytest.mark.soak
def test_a_pace_is_kept_and_delays_are_taken(broker: Running) -> None:
    outcome = LOAD.run(msgspec.structs.replace(fan_out(broker, 1), per_s=100.0))
    assert outcome.received == outcome.expected
    assert 5 <= outcome.sent <= outcome.seconds * 100 + 2
    assert outcome.delays_ms is not None
    half, most, longest = outcome.delays_ms
    assert 0 < half <= most <= longest


@pytest.mark.soak
def test_a_slow_one_changes_nothing_for_the_others(broker: Running) -> None:
    job = msgspec.structs.replace(fan_out(broker, 0), per_s=200.0, has_slow_one=True)
    outcome = LOAD.run(job)
    assert outcome.received == outcome.expected == 3 * outcome.sent


@pytest.mark.parametrize("by_content", [False, True])
def test_sifting_finds_the_same_either_way(broker: Running, by_content: bool) -> None:
    job = Sift(
        port=broker.port,
        pid=broker.pid,
        seconds=0.2,
        subscribers=20,
        share=0.1,
        by_content=by_content,
        under_way=20,
        at_once=5,
        payload_bytes=256,
    )
    outcome = LOAD.run(job)
    assert outcome.received == outcome.expected > 0
    if by_content:
        assert outcome.useful == outcome.received
    else:
        assert outcome.received == 20 * outcome.sent
        assert 0.05 < outcome.useful / outcome.received < 0.15


def test_spread_subscriptions_and_absent_ones_are_kept(broker: Running) -> None:
    spread = Spread(
        port=broker.port,
        pid=broker.pid,
        seconds=0.2,
        qos=1,
        subscriptions=100,
        connections=10,
        matches=5,
        per_s=100,
        payload_bytes=256,
    )
    outcome = LOAD.run(spread)
    assert outcome.received == outcome.expected
    assert 3 < outcome.expected / outcome.sent < 6
    durable = Durable(
        port=broker.port,
        pid=broker.pid,
        seconds=0.2,
        has_absentee=True,
        publishers=2,
        window=3,
        payload_bytes=256,
    )
    before = broker.metrics()["rove_queued_messages"]
    outcome = LOAD.run(durable)
    assert outcome.sent > 6
    # Those who were there before left their sessions, and queues that wait for them.
    assert broker.metrics()["rove_queued_messages"] - before >= outcome.sent


def test_the_idle_come_and_go(broker: Running) -> None:
    before = broker.metrics()["rove_connections_total"]
    job = Idle(port=broker.port, pid=broker.pid, seconds=0, connections=20, rounds=2)
    outcome = LOAD.run(job)
    assert outcome.received == outcome.expected == 40
    assert len(outcome.resident_bytes) == 5
    metrics = broker.metrics()
    assert metrics["rove_connections_total"] - before == 40
    assert metrics["rove_connections_open"] == 0


def test_what_goes_wrong_is_said_in_one_line(broker: Running) -> None:
    job = msgspec.structs.replace(fan_out(broker, 0), port=free_port())
    with pytest.raises(BrokerProcessError, match=r"subscriber-[0-2] cannot connect") as raised:
        LOAD.run(job)
    assert "\n" not in str(raised.value)


@pytest.mark.soak
def test_being_sent_away_ends_the_load(tmp_path: Path) -> None:
    with (
        rove(tmp_path, {"ROVE_LIMITS__RECEIVE_MAX": "2"}) as broker,
        pytest.raises(BrokerProcessError, match="publisher was sent away"),
    ):
        LOAD.run(fan_out(broker, 1))


class TestRanges:
    @pytest.mark.parametrize(("count", "width"), [(1, X_COUNT), (7, 100), (20_000, 10), (5, 0)])
    def test_how_many_hold_an_x(self, count: int, width: int) -> None:
        ranges = broker_load._ranges(count, width)
        meeting = broker_load._meeting(ranges)
        for x in (X_MIN, X_MIN + 1, X_MIN + X_COUNT // 2, X_MIN + X_COUNT - 1):
            assert meeting[x - X_MIN] == sum(x in one for one in ranges)
