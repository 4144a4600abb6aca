"""`client.me`: a mapping whose changes go out together, in order, and are remembered."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from rove.client.errors import PublishRefused
from rove.client.me import Me


class Sent:
    """Stands for the client: notes what is sent, and answers when told to."""

    def __init__(self) -> None:
        self.changes: list[dict[str, Any]] = []
        self.answers: list[asyncio.Future[None]] = []

    def send(self, payload: bytes) -> asyncio.Future[None]:
        self.changes.append(msgspec.json.decode(payload))
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]


async def test_it_is_a_mapping() -> None:
    me = Me(Sent().send)
    me["x"] = 1
    me["y"] = [1, 2]
    assert dict(me) == {"x": 1, "y": [1, 2]}
    assert len(me) == 2
    assert me.pop("x") == 1
    assert "x" not in me
    with pytest.raises(KeyError):
        del me["x"]
    assert repr(me) == "Me({'y': [1, 2]})"


async def test_changes_of_one_turn_go_out_together() -> None:
    sent = Sent()
    me = Me(sent.send)
    me["x"] = 1
    me["y"] = 2
    me["x"] = 3
    del me["y"]
    assert sent.changes == []
    await asyncio.sleep(0)
    assert sent.changes == [{"x": 3, "y": None}]
    await asyncio.sleep(0)
    me["x"] = 4
    await asyncio.sleep(0)
    assert sent.changes[1:] == [{"x": 4}]


async def test_set_goes_out_at_once_with_what_waited_and_waits_for_its_answer() -> None:
    sent = Sent()
    me = Me(sent.send)

    async def change() -> None:
        me["z"] = 1
        await me.set(x=1, z=None)

    setting = asyncio.create_task(change())
    await asyncio.sleep(0)
    assert sent.changes == [{"z": None, "x": 1}]
    assert not setting.done()
    sent.answers[0].set_result(None)
    await setting
    assert dict(me) == {"x": 1}
    assert len(sent.changes) == 1


async def test_a_refused_set_raises_and_a_refused_assignment_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sent = Sent()
    me = Me(sent.send)
    setting = asyncio.create_task(me.set(x=1))
    await asyncio.sleep(0)
    sent.answers[0].set_exception(PublishRefused("too many"))
    with pytest.raises(PublishRefused):
        await setting
    me["x"] = 2
    await asyncio.sleep(0)
    with caplog.at_level(logging.WARNING, "rove.client"):
        sent.answers[1].set_exception(PublishRefused("too many"))
        await asyncio.sleep(0)
    assert "too many" in caplog.text


@pytest.mark.parametrize(("value", "kind"), [(None, ValueError), (object(), TypeError)])
async def test_what_cannot_be_sent_is_refused_where_it_is_written(
    value: object, kind: type[Exception]
) -> None:
    sent = Sent()
    me = Me(sent.send)
    with pytest.raises(kind):
        me["x"] = value
    await asyncio.sleep(0)
    assert sent.changes == []
    assert dict(me) == {}


async def test_everything_can_be_told_again() -> None:
    sent = Sent()
    me = Me(sent.send)
    assert me.snapshot() is None
    me["x"] = 1
    assert me.snapshot() == b'{"x":1}'
    await asyncio.sleep(0)
    assert sent.changes == []
