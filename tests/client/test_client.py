"""The client, against the real broker where that can be, and a scripted one for misfortune."""

from __future__ import annotations

import asyncio
import random
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from rove.client import (
    Client,
    ClientClosed,
    Connection,
    FilterError,
    OutboxFull,
    PayloadError,
    PublishRefused,
    SlowConsumer,
    SubscribeRefused,
    connect,
)
from rove.client.notifications import Notification
from rove.mqtt.packets import Connect, Properties, Puback, Publish, Reason, Subscribe

if TYPE_CHECKING:
    from tests.client.conftest import Scripted, StartBroker


CERTIFICATES = Path(__file__).resolve().parent.parent / "serve" / "certificates"


class Reading(msgspec.Struct):
    NO2: float
    place: str = ""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Come back at once."""
    monkeypatch.setattr("rove.client.connection._RETRY_S_FIRST", 0.01)


async def until_heard(server: Scripted, kind: type, count: int) -> list[Any]:
    while len(server.of(kind)) < count:
        await asyncio.sleep(0.002)
    return server.of(kind)


async def values(subscription: Any, count: int) -> list[Any]:
    return [(await anext(subscription)).value for _ in range(count)]


# -- publishing and subscribing --------------------------------------------------------------------


async def test_a_text_chooses(start_broker: StartBroker) -> None:
    async with (
        start_broker() as broker,
        connect(broker.url) as client,
        client.subscribe("air/#", "NO2 > 40", into=Reading) as readings,
    ):
        for value in (Reading(39), Reading(41, "Zagreb"), {"NO2": 42}, {"SO2": 50}):
            await client.publish("air/z", value)
        await client.publish("water/z", Reading(43))
        await client.publish("air/y", {"NO2": 44, "place": "Split"}, user={"unit": "µg/m³"})
        found: list[Notification[Reading]] = [await anext(readings) for _ in range(3)]
    assert [each.value for each in found] == [
        Reading(41, "Zagreb"),
        Reading(42),
        Reading(44, "Split"),
    ]
    assert (found[2].topic, found[2].user) == ("air/y", {"unit": "µg/m³"})


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_every_qos(start_broker: StartBroker, qos: int) -> None:
    async with (
        start_broker() as broker,
        connect(broker.url) as client,
        client.subscribe("t", qos=qos, into=int) as numbers,
    ):
        for number in range(20):
            published = await client.publish("t", number, qos=qos)
            assert published.has_subscribers
        found = [await anext(numbers) for _ in range(20)]
    assert [each.value for each in found] == list(range(20))
    assert {each.qos for each in found} == {qos}


@pytest.mark.parametrize("scheme", ["mqtt", "mqtts", "ws", "wss"])
async def test_every_kind_of_connection(start_broker: StartBroker, scheme: str) -> None:
    tls = None
    if scheme in ("mqtts", "wss"):
        tls = ssl.create_default_context(cafile=CERTIFICATES / "authority.pem")
    async with (
        start_broker(everywhere=True) as broker,
        connect(broker.url_of(scheme), tls=tls) as client,
        client.subscribe("t", "n >= 0") as numbers,
    ):
        for number in range(300):
            await client.post("t", {"n": number})
        assert await values(numbers, 300) == [{"n": number} for number in range(300)]
        broker.cut()
        await client.publish("t", {"n": 300})
        assert await values(numbers, 1) == [{"n": 300}]


async def test_publications_are_named_and_named_in_order(start_broker: StartBroker) -> None:
    async with start_broker() as broker, connect(broker.url) as client:
        ids = [(await client.publish("t", number)).id for number in range(5)]
        assert ids == sorted(set(ids))
        published = await client.publish("t", 1, id="mine")
        assert published.id == "mine"
        assert not published.has_subscribers


async def test_several_subscriptions_on_one_topic_end_one_by_one(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as broker, connect(broker.url) as client:
        small = await client.subscribe("t", "x < 10")
        large = await client.subscribe("t", "x > 5")
        everything = await client.subscribe("t")
        await client.publish("t", {"x": 7})
        for subscription in (small, large, everything):
            assert (await anext(subscription)).value == {"x": 7}
        await large.close()
        await client.publish("t", {"x": 8})
        assert (await anext(small)).value == {"x": 8}
        assert (await anext(everything)).value == {"x": 8}
        assert [one async for one in large] == []


async def test_the_same_subscription_twice(start_broker: StartBroker) -> None:
    async with start_broker() as broker, connect(broker.url) as client:
        one = await client.subscribe("t", "x > 1", qos=2)
        other = await client.subscribe("t", "x > 1", into=bytes)
        await client.publish("t", {"x": 2})
        assert (await anext(one)).value == {"x": 2}
        assert (await anext(other)).value == b'{"x":2}'
        await one.close()
        await client.publish("t", {"x": 3})
        assert (await anext(other)).value == b'{"x":3}'


async def test_what_is_valid_reaches_later_subscriptions_until_it_is_withdrawn(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as broker, connect(broker.url) as client:
        kept = await client.publish("t", {"x": 1}, valid_for="forever")
        await client.publish("t", {"x": 2}, valid_for=60)
        await client.publish("t", {"x": 3})
        async with client.subscribe("t", "x < 9") as early:
            assert await values(early, 2) == [{"x": 1}, {"x": 2}]
        await client.unpublish(kept.id)
        async with client.subscribe("t", "x < 10") as late:
            assert await values(late, 1) == [{"x": 2}]
        with pytest.raises(PublishRefused, match="unpublishing was refused"):
            await client.unpublish(kept.id)


@pytest.mark.parametrize(("retained", "count"), [("always", 1), ("never", 0)])
async def test_retained_publications(start_broker: StartBroker, retained: Any, count: int) -> None:
    async with start_broker() as broker, connect(broker.url) as client:
        await client.publish("t", 1, retain=True)
        async with client.subscribe("t", retained=retained) as subscription:
            await client.publish("t", 2)
            found = [await anext(subscription) for _ in range(count + 1)]
    assert [(each.value, each.retained) for each in found] == [(1, True), (2, False)][1 - count :]


async def test_no_local(start_broker: StartBroker) -> None:
    async with (
        start_broker() as broker,
        connect(broker.url) as one,
        connect(broker.url) as two,
        one.subscribe("t", no_local=True) as subscription,
    ):
        await one.publish("t", "own")
        await two.publish("t", "other")
        assert await values(subscription, 1) == ["other"]


async def test_a_subscription_that_follows_me(start_broker: StartBroker) -> None:
    async with start_broker() as broker, connect(broker.url) as client:
        await client.me.set(x=0)
        async with client.subscribe("t", "x BETWEEN me.x - 1 AND me.x + 1") as near:
            await client.publish("t", {"x": 5})
            client.me["x"] = 5  # in the same turn as what is published next, and before it
            await client.publish("t", {"x": 5, "again": True})
            assert await values(near, 1) == [{"x": 5, "again": True}]
        assert dict(client.me) == {"x": 5}


async def test_a_listener_and_a_callback_speed_loop_see_the_same(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as broker, connect(broker.url) as client:
        heard: list[int] = []
        subscription = await client.subscribe("t")
        subscription.listen(lambda one: heard.append(one.value))
        for number in range(50):
            await client.post("t", number)
        while len(heard) < 50:
            await asyncio.sleep(0.002)
        assert heard == list(range(50))


async def test_posts_are_answered_for_in_order(start_broker: StartBroker) -> None:
    async with start_broker() as broker, connect(broker.url) as client:
        async with client.subscribe("t", into=int) as numbers:
            receipts = [await client.post("t", number) for number in range(3_000)]
            found = [(await anext(numbers)).value for _ in range(3_000)]
            await asyncio.gather(*receipts)
        assert found == list(range(3_000))
        assert client.waiting == 0


# -- what is refused -------------------------------------------------------------------------------


async def test_a_bad_text_is_refused_at_once_with_a_caret(start_broker: StartBroker) -> None:
    async with start_broker() as broker, connect(broker.url) as client:
        with pytest.raises(FilterError) as caught:
            client.subscribe("t", "NO2 >\n  > 40")
        assert (caught.value.line, caught.value.column) == (2, 3)
        assert "^" in str(caught.value)


async def test_what_only_the_broker_knows_is_refused_by_it(start_broker: StartBroker) -> None:
    async with start_broker() as broker, connect(broker.url) as client:
        with pytest.raises(SubscribeRefused, match="there is no design magic") as caught:
            await client.subscribe("t", "x > t", evolve="magic")
        assert caught.value.reason == Reason.IMPLEMENTATION_SPECIFIC_ERROR
        with pytest.raises(PublishRefused, match=r"\$rove/nothing") as refused:
            await client.publish("$rove/nothing", 1)
        assert refused.value.reason == Reason.TOPIC_NAME_INVALID
        async with client.subscribe("t", "x > t", evolve="lees"):
            pass


async def test_who_finds_what_meets_a_text_can_be_chosen(
    start_broker: StartBroker, scripted: type[Scripted]
) -> None:
    async with scripted() as server, connect(server.url) as client:
        async with client.subscribe("t", "x > 1", engine="spark"):
            (asked,) = server.of(Subscribe)
        assert asked.properties.user == (("filter", "x > 1"), ("engine", "spark"))
    async with start_broker() as broker, connect(broker.url) as client:
        with pytest.raises(SubscribeRefused, match="needs a lake"):
            await client.subscribe("t", "x > 1", engine="spark")


async def test_what_the_broker_answers_besides_yes(start_broker: StartBroker) -> None:
    async with start_broker() as broker, connect(broker.url) as client:
        assert (await client.publish("t", 1)).user == {}
        assert (await client.publish("$rove/deliver", {"feed": "f"})).user == {"sequence": "0"}


@pytest.mark.parametrize(
    ("arguments", "options", "complaint"),
    [
        (("a/#",), {}, "no wildcards"),
        (("t",), {"qos": 3}, "QoS is 3"),
        (("t",), {"valid_for": 0}, "valid_for is 0"),
        (("t",), {"valid_for": "ever"}, "valid_for is 'ever'"),
        (("t",), {"user": {"a": "\0"}}, "user property 'a'"),
        (("t",), {"expiry_s": -1}, "expiry_s is -1"),
        (("t",), {"id": "\ud800"}, "user property 'id'"),
    ],
)
async def test_what_cannot_be_published_is_refused_here(
    scripted: type[Scripted], arguments: tuple[str], options: dict[str, Any], complaint: str
) -> None:
    async with scripted() as server, connect(server.url) as client:
        with pytest.raises(PublishRefused, match=complaint):
            await client.publish(*arguments, 1, **options)
        with pytest.raises(TypeError):
            await client.publish("t", object())
        assert server.of(Publish) == []


@pytest.mark.parametrize(
    ("topic", "options", "complaint"),
    [
        ("a/#/b", {}, "# is the last level"),
        ("t", {"qos": 3}, "qos is 0, 1 or 2"),
        ("t", {"inbox_max": 0}, "inbox_max"),
        ("t", {"retained": "sometimes"}, "retained is 'sometimes'"),
        ("t", {"evolve": "lees"}, "there is no filter"),
        ("t", {"engine": "spark"}, "there is no filter"),
        ("t", {"filter": "x > 1", "engine": "flink"}, "there is no engine 'flink'"),
    ],
)
async def test_what_cannot_be_subscribed_to_is_refused_here(
    scripted: type[Scripted], topic: str, options: dict[str, Any], complaint: str
) -> None:
    async with scripted() as server, connect(server.url) as client:
        with pytest.raises(SubscribeRefused, match=complaint):
            client.subscribe(topic, **options)
        assert server.of(Subscribe) == []


async def test_a_refused_subscription_leaves_nothing_behind(scripted: type[Scripted]) -> None:
    async with scripted() as server, connect(server.url) as client:
        server.subscribe_reason = Reason.NOT_AUTHORIZED
        with pytest.raises(SubscribeRefused, match=r"not authorized \(0x87\): as told"):
            await client.subscribe("t")
        server.subscribe_reason = None
        async with client.subscribe("t") as subscription:
            server.notify("t", b"1")
            assert await values(subscription, 1) == [1]


async def test_a_subscription_refused_when_made_again_says_so_in_its_loop(
    scripted: type[Scripted],
) -> None:
    async with scripted() as server, connect(server.url) as client:
        subscription = await client.subscribe("t")
        server.subscribe_reason = Reason.QUOTA_EXCEEDED
        server.drop()
        with pytest.raises(SubscribeRefused, match="quota exceeded"):
            await anext(subscription)


async def test_a_payload_that_is_something_else_does_not_end_the_loop(
    start_broker: StartBroker,
) -> None:
    async with (
        start_broker() as broker,
        connect(broker.url) as client,
        client.subscribe("t", into=Reading) as readings,
    ):
        await client.publish("t", b"\x00 no JSON")
        await client.publish("t", Reading(1))
        first, second = await anext(readings), await anext(readings)
    with pytest.raises(PayloadError, match="is no Reading"):
        _ = first.value
    assert second.value == Reading(1)


# -- slow subscribers ------------------------------------------------------------------------------


async def test_the_broker_holds_back_what_is_not_taken(start_broker: StartBroker) -> None:
    async with (
        start_broker() as broker,
        connect(broker.url) as publisher,
        connect(broker.url, client_id="slow", receive_max=10) as client,
    ):
        subscription = await client.subscribe("t", into=int)
        for number in range(100):
            await publisher.post("t", number)
        while subscription.waiting < 10:
            await asyncio.sleep(0.002)
        await publisher.publish("t", 100)
        assert subscription.waiting == 10
        session = broker.sessions["slow"]
        assert len(session.inflight) == 10
        assert len(session.queue) == 91
        assert await values(subscription, 101) == list(range(101))
        assert subscription.dropped == 0


@pytest.mark.parametrize(("slow", "kept"), [("drop-oldest", [8, 9]), ("drop-newest", [0, 1])])
async def test_one_that_drops_holds_back_nobody(
    start_broker: StartBroker, slow: Any, kept: list[int]
) -> None:
    async with start_broker() as broker, connect(broker.url, on_slow=slow) as client:
        dropping = await client.subscribe("t", inbox_max=2)
        other = await client.subscribe("t", "TRUE", slow="wait")
        for number in range(10):
            await client.publish("t", number)
        assert await values(other, 10) == list(range(10))
        assert await values(dropping, 2) == kept
        assert dropping.dropped == 8


async def test_one_that_wants_an_error_gets_it_and_is_unsubscribed(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as broker, connect(broker.url, client_id="me") as client:
        subscription = await client.subscribe("t", slow="error", inbox_max=2)
        for number in range(4):
            await client.publish("t", number)
        assert await values(subscription, 2) == [0, 1]
        with pytest.raises(SlowConsumer):
            await anext(subscription)
        while broker.sessions["me"].subscriptions:
            await asyncio.sleep(0.002)


# -- lost connections ------------------------------------------------------------------------------


async def test_nothing_is_lost_doubled_or_reordered_over_cut_connections(
    start_broker: StartBroker,
) -> None:
    chance = random.Random(4)
    states: list[Connection] = []
    async with (
        start_broker() as broker,
        connect(broker.url, retry_s_max=0.01, on_connection=states.append) as publisher,
        connect(broker.url, retry_s_max=0.01, receive_max=100) as subscriber,
    ):
        numbers = await subscriber.subscribe("t", "n >= 0", qos=2)

        async def cut() -> None:
            # By what has come, not by time: on a busy machine nothing would come between two cuts.
            while True:
                enough = numbers.received + chance.randrange(1, 60)
                while numbers.received < enough:
                    await asyncio.sleep(0.001)
                broker.cut()

        async def publish() -> None:
            for number in range(1_000):
                await publisher.post("t", {"n": number}, qos=chance.choice([1, 2]))
                if number % 10 == 0:
                    await asyncio.sleep(0.001)

        cutting, publishing = asyncio.create_task(cut()), asyncio.create_task(publish())
        found = [value["n"] for value in await values(numbers, 1_000)]
        await publishing
        cutting.cancel()
        assert found == list(range(1_000))
        assert len([each for each in states if each.state == "lost"]) > 3
        await publisher.publish("t", {"n": 1_000})
        assert await values(numbers, 1) == [{"n": 1_000}]


async def test_a_restarted_broker_is_found_again_with_everything(
    start_broker: StartBroker,
) -> None:
    states: list[Connection] = []
    async with start_broker() as broker, connect(broker.url, on_connection=states.append) as client:
        numbers = await client.subscribe("t", into=int)
        await client.publish("t", 1)
        await broker.stop()
        waiting = [asyncio.create_task(client.publish("t", number)) for number in (2, 3)]
        await asyncio.sleep(0.05)
        assert not any(each.done() for each in waiting)
        await broker.start()
        assert await values(numbers, 3) == [1, 2, 3]
        await asyncio.gather(*waiting)
        assert states[-1].session_present


async def test_a_program_comes_back_to_what_was_queued(start_broker: StartBroker) -> None:
    async with start_broker() as broker, connect(broker.url) as publisher:
        async with connect(broker.url, client_id="me") as client:
            await client.subscribe("t", "x > 1")
            await client.subscribe("t", "x < -1")
        assert not broker.sessions["me"].link
        await publisher.publish("t", {"x": 5})
        await publisher.publish("t", {"x": -5})
        async with connect(broker.url, client_id="me") as client:
            # In another order, and only after the notifications have come.
            await asyncio.sleep(0.05)
            below = await client.subscribe("t", "x < -1")
            above = await client.subscribe("t", "x > 1")
            assert await values(above, 1) == [{"x": 5}]
            assert await values(below, 1) == [{"x": -5}]
            assert client.unclaimed == 0
            await client.close(forget=True)
        while "me" in broker.sessions:
            await asyncio.sleep(0.002)


async def test_a_forgotten_session_is_made_again_state_first(scripted: type[Scripted]) -> None:
    async with scripted() as server, connect(server.url) as client:
        await client.me.set(x=1, y=2)
        await client.subscribe("t", "x > me.x")
        await client.me.set(y=None)
        heard = len(server.heard)
        server.drop()
        await until_heard(server, Subscribe, 2)
        again = [packet for packet in server.heard[heard:] if not isinstance(packet, Connect)]
        state, subscribe = again[:2]
        assert isinstance(state, Publish)
        assert (state.topic, state.payload) == ("$rove/me", b'{"x":1}')
        assert isinstance(subscribe, Subscribe)


@pytest.mark.parametrize("keeps_session", [True, False])
async def test_what_was_not_acknowledged_is_sent_again_under_the_same_id(
    scripted: type[Scripted], keeps_session: bool
) -> None:
    async with scripted() as server, connect(server.url) as client:
        server.keeps_session = keeps_session
        server.acknowledges = False
        publishing = asyncio.create_task(client.publish("t", 1))
        await until_heard(server, Publish, 1)
        server.acknowledges = True
        server.drop()
        published = await publishing
        first, second = server.of(Publish)
        assert second.dup is keeps_session
        assert first.properties.user == second.properties.user == (("id", published.id),)
        if keeps_session:
            assert second.packet_id == first.packet_id


async def test_what_comes_again_is_not_seen_again(scripted: type[Scripted]) -> None:
    async with scripted() as server, connect(server.url) as client:
        server.keeps_session = True
        subscription = await client.subscribe("t")
        server.notify("t", b"1", id="a")
        server.notify("t", b"2", id="b")
        assert await values(subscription, 1) == [1]
        while server.unacknowledged > 1:
            await asyncio.sleep(0.002)
        server.drop()
        await until_heard(server, Connect, 2)
        await asyncio.sleep(0.02)
        server.notify("t", b"1", id="a")
        server.notify("t", b"3", id="c")
        assert await values(subscription, 2) == [2, 3]
        while server.unacknowledged:
            await asyncio.sleep(0.002)
        assert subscription.duplicates == 1
        assert {each.reason for each in server.of(Puback)} == {Reason.SUCCESS}


# -- the outbox ------------------------------------------------------------------------------------


async def test_a_full_outbox_is_an_error_where_that_was_chosen(
    scripted: type[Scripted],
) -> None:
    async with (
        scripted() as server,
        connect(server.url, outbox_max=3, outbox_full="error") as client,
    ):
        server.acknowledges = False
        receipts = [await client.post("t", number) for number in range(3)]
        with pytest.raises(OutboxFull, match="3 publications"):
            await client.publish("t", 3)
        await until_heard(server, Publish, 3)
        server.acknowledges = True
        server.drop()
        await asyncio.gather(*receipts)
        await client.publish("t", 4)


async def test_otherwise_it_is_waited_for(scripted: type[Scripted]) -> None:
    async with scripted() as server, connect(server.url, outbox_bytes_max=1_000) as client:
        server.acknowledges = False
        first = await client.post("t", b"x" * 999)
        second = asyncio.create_task(client.publish("t", b"y"))
        await until_heard(server, Publish, 1)
        assert client.waiting == 1
        server.acknowledges = True
        server.drop()
        await asyncio.gather(first, second)
        assert server.payloads[-1] == b"y"


async def test_publications_of_qos_0_wait_while_away(scripted: type[Scripted]) -> None:
    async with scripted() as server, connect(server.url) as client:
        await server.stop()
        while client.is_connected:
            await asyncio.sleep(0.002)
        publishing = [
            asyncio.create_task(client.publish("t", number, qos=number % 2)) for number in range(6)
        ]
        await asyncio.sleep(0.01)
        await server.listen()
        await asyncio.gather(*publishing)
        assert server.payloads == [b"%d" % number for number in range(6)]


async def test_a_program_that_only_publishes_is_held_back_by_the_connection(
    start_broker: StartBroker,
) -> None:
    async with (
        start_broker() as broker,
        connect(broker.url) as client,
        client.subscribe("t", qos=0, into=bytes, inbox_max=100_000) as subscription,
    ):
        for _ in range(2_000):
            await client.publish("t", b"x" * 1_000, qos=0)
            assert client._session.output_bytes < 100_000
        assert len(await values(subscription, 100)) == 100


async def test_the_brokers_limits_are_kept(scripted: type[Scripted]) -> None:
    async with scripted() as server:
        server.properties = Properties(receive_max=2, packet_size_max=200)
        server.acknowledges = False
        async with connect(server.url) as client:
            with pytest.raises(PublishRefused, match="packet too large"):
                await client.publish("t", b"x" * 200)
            receipts = [await client.post("t", number) for number in range(4)]
            await until_heard(server, Publish, 2)
            await asyncio.sleep(0.02)
            assert len(server.of(Publish)) == 2
            server.say(Puback(server.of(Publish)[0].packet_id))
            await until_heard(server, Publish, 3)
            assert receipts[0].done()
            await client.close(drain_s=0)
            with pytest.raises(ClientClosed):
                await asyncio.gather(*receipts)
            for receipt in receipts:
                receipt.exception()


# -- the end ---------------------------------------------------------------------------------------


async def test_closing_waits_for_what_was_posted(start_broker: StartBroker) -> None:
    async with (
        start_broker() as broker,
        connect(broker.url) as subscriber,
        subscriber.subscribe("t") as numbers,
    ):
        async with connect(broker.url) as client:
            for number in range(100):
                await client.post("t", number)
        assert await values(numbers, 100) == list(range(100))


async def test_after_closing_nothing_can_be_done_and_loops_end(
    start_broker: StartBroker,
) -> None:
    async with start_broker() as broker:
        client: Client = await connect(broker.url)
        assert "connected" in repr(client)
        subscription = await client.subscribe("t")
        await client.publish("t", 1)
        await client.close()
        await client.close()
        assert [one.value async for one in subscription] == [1]
        assert "closed" in repr(client)
        with pytest.raises(ClientClosed):
            await client.publish("t", 1)
        with pytest.raises(ClientClosed):
            client.subscribe("t")
        with pytest.raises(ClientClosed):
            await client.me.set(y=1)


async def test_a_cancelled_subscribe_subscribes_to_nothing(scripted: type[Scripted]) -> None:
    async with scripted() as server, connect(server.url) as client:
        await server.stop()
        while client.is_connected:
            await asyncio.sleep(0.002)

        async def subscribe() -> None:
            await client.subscribe("t")

        subscribing = asyncio.create_task(subscribe())
        await asyncio.sleep(0.01)
        subscribing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await subscribing
        await server.listen()
        await client.publish("t", 1)
        assert server.of(Subscribe) == []
