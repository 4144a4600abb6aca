"""The broker's state on the timeline."""

from collections.abc import Callable

import pytest

from rove.monitor.broker_client import BrokerAnswer
from rove.monitor.watching import WELL, state_of
from tests.monitor.conftest import Running
from tests.serve.conftest import Running as RunningBroker


def test_a_broker_that_goes_away_is_a_note(
    broker: RunningBroker, start_monitor: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rove.monitor.watching.EVERY_S", 0.05)
    monkeypatch.setattr("rove.monitor.broker_client.FRESH_S", 0.0)
    monitor = start_monitor(broker=broker.url(""))
    with monitor.live() as page:
        assert page.message("hello")
        broker.stop()
        assert "does not answer" in page.message("note", kind="broker")["text"]


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (200, b'{"status":"ok"}', WELL),
        (
            503,
            b'{"status":"ill","reasons":["the disk is full","no lake"]}',
            "the broker is ill: the disk is full, no lake",
        ),
        (502, b"oops", "the broker is ill: it answers 502"),
        (503, b"{}", "the broker is ill: it answers 503"),
    ],
)
def test_what_it_says_of_itself(status: int, body: bytes, told: str) -> None:
    assert state_of(BrokerAnswer(status, "application/json", body)) == told
