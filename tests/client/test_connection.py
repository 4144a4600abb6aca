"""Staying connected: coming back, giving up where that is right, keeping alive."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from rove.client import (
    Client,
    Connection,
    ConnectionFailed,
    ConnectionRefused,
    SessionTakenOver,
    Will,
    connect,
)
from rove.mqtt.packets import (
    Connect,
    Disconnect,
    Pingreq,
    Properties,
    Publish,
    Reason,
    Subscribe,
)

if TYPE_CHECKING:
    from tests.client.conftest import Scripted


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Come back at once."""
    monkeypatch.setattr("rove.client.connection._RETRY_S_FIRST", 0.01)


class Told(list[Connection]):
    """What `on_connection` was told."""

    @property
    def states(self) -> list[str]:
        return [each.state for each in self]

    async def until(self, state: str, count: int = 1) -> Connection:
        while self.states.count(state) < count:
            await asyncio.sleep(0.002)
        return [each for each in self if each.state == state][-1]


async def until_heard(server: Scripted, kind: type, count: int = 1) -> list[Any]:
    while len(server.of(kind)) < count:
        await asyncio.sleep(0.002)
    return server.of(kind)


async def test_a_lost_connection_is_made_again(scripted: type[Scripted]) -> None:
    told = Told()
    async with scripted() as server, connect(server.url, on_connection=told.append) as client:
        server.drop()
        lost = await told.until("lost")
        assert isinstance(lost.error, ConnectionFailed)
        assert lost.retry_in_s is not None
        assert lost.retry_in_s <= 0.01
        await told.until("connected", 2)
        assert client.is_connected
    assert told.states == ["connected", "lost", "connected", "closed"]


async def test_delays_grow_and_end(scripted: type[Scripted]) -> None:
    told = Told()
    async with (
        scripted() as server,
        connect(server.url, on_connection=told.append, retry_s_max=0.02) as client,
    ):
        await server.stop()
        await told.until("lost", 6)
        assert all((each.retry_in_s or 0) <= 0.02 for each in told if each.state == "lost")
        assert not client.is_connected
        await server.listen()
        await told.until("connected", 2)


async def test_a_broker_that_refuses_for_now_is_asked_again(scripted: type[Scripted]) -> None:
    told = Told()
    async with scripted() as server, connect(server.url, on_connection=told.append):
        server.refusals = [Reason.SERVER_BUSY, Reason.SERVER_UNAVAILABLE]
        server.drop()
        await told.until("connected", 2)
        assert len(server.of(Connect)) == 4


@pytest.mark.parametrize(
    ("reason", "is_final"),
    [
        (Reason.SESSION_TAKEN_OVER, True),
        (Reason.NOT_AUTHORIZED, True),
        (Reason.SERVER_MOVED, True),
        (Reason.SERVER_SHUTTING_DOWN, False),
        (Reason.ADMINISTRATIVE_ACTION, False),
    ],
)
async def test_some_ends_are_final(
    scripted: type[Scripted], reason: Reason, is_final: bool
) -> None:
    told = Told()
    async with scripted() as server:
        client = await connect(server.url, on_connection=told.append)
        server.say(Disconnect(reason, Properties(reason_string="told")))
        if is_final:
            closed = await told.until("closed")
            assert "told" in str(closed.error)
            with pytest.raises(type(closed.error) if closed.error else ZeroDivisionError):
                await client.publish("t", 1)
        else:
            await told.until("connected", 2)
        await client.close()
        assert len(server.of(Connect)) == (1 if is_final else 2)


async def test_a_takeover_is_raised_where_the_program_waits(scripted: type[Scripted]) -> None:
    async with scripted() as server:
        client = await connect(server.url, client_id="me")
        subscription = await client.subscribe("t")
        server.acknowledges = False
        waiting = [
            asyncio.ensure_future(each)
            for each in (anext(subscription), client.publish("t", 1), client.me.set(x=1))
        ]
        await until_heard(server, Publish, 2)
        server.say(Disconnect(Reason.SESSION_TAKEN_OVER))
        for each in waiting:
            with pytest.raises(SessionTakenOver, match="same client id"):
                await each
        with pytest.raises(SessionTakenOver):
            client.subscribe("t")
        assert client.is_closed


async def test_a_refusal_that_stays_ends_coming_back(scripted: type[Scripted]) -> None:
    told = Told()
    async with scripted() as server:
        client = await connect(server.url, on_connection=told.append)
        server.refusals = [Reason.BAD_USER_NAME_OR_PASSWORD]
        server.drop()
        await told.until("closed")
        with pytest.raises(ConnectionRefused, match="bad user name or password"):
            await client.publish("t", 1)


async def test_the_first_connection_is_tried_once(scripted: type[Scripted], free_port: int) -> None:
    with pytest.raises(ConnectionFailed, match="cannot be reached"):
        await connect(f"mqtt://127.0.0.1:{free_port}")
    async with scripted() as server:
        server.refusals = [Reason.SERVER_BUSY]
        with pytest.raises(ConnectionRefused, match=r"server busy \(0x89\): not now") as caught:
            await connect(server.url)
        assert caught.value.reason == Reason.SERVER_BUSY
        assert len(server.of(Connect)) == 1


async def test_a_broker_that_says_nothing_is_given_up(scripted: type[Scripted]) -> None:
    async with scripted() as server:
        server.is_deaf = True
        with pytest.raises(ConnectionFailed, match="did not answer"):
            await connect(server.url, timeout_s=0.05)
        while not server.accepted:
            await asyncio.sleep(0.002)


async def test_the_line_is_kept_alive(scripted: type[Scripted]) -> None:
    told = Told()
    async with (
        scripted() as server,
        connect(server.url, keep_alive_s=1, timeout_s=0.5, on_connection=told.append),
    ):
        await until_heard(server, Pingreq)
        assert told.states == ["connected"]
        server.answers_pings = False
        lost = await told.until("lost")
        assert "PINGREQ" in str(lost.error)


async def test_a_listener_that_fails_is_reported_and_stops_nothing(
    scripted: type[Scripted],
) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: reported.append(what))

    def listener(_: Connection) -> None:
        raise ZeroDivisionError

    async with scripted() as server, connect(server.url, on_connection=listener):
        pass
    assert [what["message"] for what in reported] == ["on_connection failed"] * 2


async def test_closing_while_away_ends_the_trying(scripted: type[Scripted]) -> None:
    told = Told()
    async with scripted() as server:
        client = await connect(server.url, on_connection=told.append, retry_s_max=5)
        await server.stop()
        await told.until("lost")
        await client.close()
        await server.listen()
        assert told.states[-1] == "closed"
        assert len(asyncio.all_tasks()) == 1


async def test_what_one_turn_says_is_one_write(scripted: type[Scripted]) -> None:
    async with scripted() as server, connect(server.url) as client:
        writes: list[int] = []
        transport = client._connection._transport
        assert transport is not None
        write = transport.write

        def counted(data: bytes) -> None:
            writes.append(len(data))
            write(data)

        transport.write = counted  # type: ignore[method-assign]
        await asyncio.gather(*(client.publish("t", number) for number in range(20)))
        assert len(writes) == 1


async def test_a_will_and_a_name_are_told(scripted: type[Scripted]) -> None:
    async with scripted() as server:
        will = Will("gone", {"who": "me"}, delay_s=3)
        await (await connect(server.url, client_id="me", will=will)).close()
        (said,) = server.of(Connect)
        assert said.client_id == "me"
        assert said.will.payload == b'{"who":"me"}'
        assert said.will.properties.will_delay_s == 3


@pytest.mark.parametrize(
    ("client_id", "forget", "expiry"),
    [(None, None, 0), ("me", None, None), ("me", True, 0), (None, False, None)],
)
async def test_closing_says_whether_the_session_stays(
    scripted: type[Scripted], client_id: str | None, forget: bool | None, expiry: int | None
) -> None:
    async with scripted() as server:
        client: Client = await connect(server.url, client_id=client_id)
        await client.close(forget=forget)
        (goodbye,) = await until_heard(server, Disconnect)
        assert goodbye.properties.session_expiry_s == expiry


async def test_subscriptions_are_made_again_after_a_loss(scripted: type[Scripted]) -> None:
    async with scripted() as server, connect(server.url) as client:
        subscription = await client.subscribe("t", "x > 1")
        server.drop()
        first, second = await until_heard(server, Subscribe, 2)
        assert first.properties == second.properties
        await asyncio.sleep(0.01)
        server.notify("t", b"1")
        assert (await anext(subscription)).value == 1
