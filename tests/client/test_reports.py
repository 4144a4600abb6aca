"""Reports: what a source gives and what was received, at the right moments, never two at once."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from rove.client.client import Published
from rove.client.errors import PublishRefused
from rove.client.reports import Reports


class Sent:
    """Stands for the client: notes what is sent, and answers at once unless told not to."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []
        self.answers: list[asyncio.Future[Published]] = []
        self.answer = Published("")
        self.is_connected = True
        self.answers_at_once = True
        self.reporter = Reports(self.send, lambda: self.is_connected)

    def send(self, payload: bytes) -> asyncio.Future[Published]:
        self.reports.append(msgspec.json.decode(payload))
        self.answers.append(asyncio.get_running_loop().create_future())
        if self.answers_at_once:
            self.answers[-1].set_result(self.answer)
        return self.answers[-1]

    async def until(self, count: int) -> list[dict[str, Any]]:
        while len(self.reports) < count:
            await asyncio.sleep(0.001)
        return self.reports


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_was_received_counts_until_a_report_is_acknowledged() -> None:
    sent = Sent()
    reports = sent.reporter
    assert [reports.came(10) for _ in range(3)] == [True, True, True]
    await reports.start(lambda: {"battery": 0.5}, 100)
    reports.came(10)
    sent.answers_at_once = False
    reports.connected()
    await sent.until(2)
    reports.came(10)  # while the report is on its way
    reports.connected()
    await settled()
    assert len(sent.reports) == 2  # never two at once
    sent.answers[1].set_result(sent.answer)
    await sent.until(3)
    assert [each["received"] for each in sent.reports] == [3, 1, 1]
    assert all(each["battery"] == 0.5 for each in sent.reports)
    reports.stop()


async def test_a_refused_report_counts_for_nothing() -> None:
    sent = Sent()
    sent.answers_at_once = False
    sent.reporter.came(1)
    starting = asyncio.create_task(sent.reporter.start(None, 100))
    await sent.until(1)
    sent.answers[0].set_exception(PublishRefused("too long"))
    with pytest.raises(PublishRefused):
        await starting
    sent.answers_at_once = True
    await sent.reporter.start(None, 100)
    assert sent.reports == [{"received": 1}, {"received": 1}]
    sent.reporter.stop()


async def test_later_refusals_are_logged_and_reporting_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sent = Sent()
    await sent.reporter.start(None, 100)
    sent.answers_at_once = False
    sent.reporter.connected()
    await sent.until(2)
    with caplog.at_level(logging.WARNING, "rove.client"):
        sent.answers[1].set_exception(PublishRefused("no room"))
        sent.reporter.connected()
        await sent.until(3)
    assert "no room" in caplog.text
    sent.reporter.stop()


async def test_reports_come_again_and_again() -> None:
    sent = Sent()
    levels = iter(range(1_000_000))
    await sent.reporter.start(lambda: {"battery": next(levels)}, 0.001)
    assert [each["battery"] for each in (await sent.until(4))[:4]] == [0, 1, 2, 3]
    assert sent.reporter.newest["battery"] >= 3
    sent.reporter.stop()
    await settled()
    count = len(sent.reports)
    await asyncio.sleep(0.01)
    assert len(sent.reports) == count


async def test_nothing_is_queued_while_there_is_no_connection() -> None:
    sent = Sent()
    levels = iter(range(1_000_000))
    sent.is_connected = False
    await sent.reporter.start(lambda: {"battery": next(levels)}, 0.001)
    while sent.reporter.newest.get("battery", 0) < 5:  # it is read all the same, for policies here
        await asyncio.sleep(0.001)
    assert sent.reports == []
    sent.is_connected = True
    sent.reporter.connected()
    assert (await sent.until(1))[0]["battery"] > 4
    sent.reporter.stop()


async def test_a_source_may_have_to_wait() -> None:
    sent = Sent()

    async def source() -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"battery": 0.25}

    await sent.reporter.start(source, 100)
    assert sent.reports == [{"battery": 0.25, "received": 0}]
    sent.reporter.stop()


@pytest.mark.parametrize("given", [ValueError("no such sensor"), 7, {"lock": object()}])
async def test_a_source_that_fails_is_logged_and_the_rest_is_reported(
    given: Any, caplog: pytest.LogCaptureFixture
) -> None:
    sent = Sent()

    def source() -> Any:
        if isinstance(given, Exception):
            raise given
        return given

    with caplog.at_level(logging.WARNING, "rove.client"):
        await sent.reporter.start(source, 100)
    assert "the source of reports failed" in caplog.text
    sent.reporter.connected()
    assert await sent.until(2) == [{"received": 0}] * 2
    assert sent.reporter.restored() is None
    sent.reporter.stop()


async def test_a_broker_that_knows_nothing_is_told_what_was_reported_last() -> None:
    sent = Sent()
    assert sent.reporter.restored() is None
    await sent.reporter.start(lambda: {"battery": 0.5}, 100)
    assert sent.reporter.restored() == b'{"battery":0.5}'
    sent.reporter.stop()


async def test_a_simulated_device_may_lose_what_came() -> None:
    class Device:
        def __call__(self) -> dict[str, Any]:
            return {}

        def received(self, size_bytes: int) -> bool:
            if size_bytes == 0:
                raise ValueError("what is that?")
            return size_bytes < 100

    sent = Sent()
    await sent.reporter.start(Device(), 100)
    assert [sent.reporter.came(size) for size in (10, 1_000, 99)] == [True, False, True]
    assert sent.reporter.came(0)  # what the device makes of it is its own affair
    assert sent.reporter.received == 3
    sent.reporter.stop()


async def test_a_new_source_takes_the_place_of_the_old_one() -> None:
    sent = Sent()
    await sent.reporter.start(lambda: {"a": 1}, 0.001)
    await sent.reporter.start(lambda: {"b": 2}, 0.001)
    count = len(sent.reports)
    assert all("a" not in each for each in (await sent.until(count + 2))[count:])
    sent.reporter.stop()


async def test_never_is_no_interval() -> None:
    with pytest.raises(ValueError, match="every_s is 0"):
        await Sent().reporter.start(None, 0)


async def test_how_often_is_for_the_program_or_else_for_the_broker_to_say() -> None:
    sent = Sent()
    sent.answer = Published("", user={"every": "0.001"})
    await sent.reporter.start(None)
    await sent.until(4)
    sent.answer = Published("", user={"every": "soon"})  # 30 s, then
    while True:
        count = len(sent.reports)
        await asyncio.sleep(0.02)
        if len(sent.reports) == count:
            break
    sent.answer = Published("", user={"every": "0.001"})
    await sent.reporter.start(None, 100)
    count = len(sent.reports)
    await asyncio.sleep(0.02)
    assert len(sent.reports) == count
    sent.reporter.stop()
