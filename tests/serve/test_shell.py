"""The loop around the broker: one write per connection and turn, commits before promises."""

import asyncio
from collections.abc import Callable
from typing import Any

from rove.broker.access import Identity
from rove.broker.broker import Broker
from rove.broker.context import TurnOutput
from rove.broker.limits import Limits
from rove.broker.sessions.session import Link
from rove.broker.storage.journal import Changes
from rove.mqtt.decoder import PacketDecoder
from rove.mqtt.encoder import encode
from rove.mqtt.packets import (
    Connack,
    Connect,
    Filter,
    Packet,
    Properties,
    Puback,
    Publish,
    Reason,
    Suback,
    Subscribe,
)
from rove.serve.shell import MERGE_RETRY_S, Shell


class SlowDisk:
    """Commits when it is told to."""

    backlog_bytes = 0

    def __init__(self) -> None:
        self.waiting: list[Callable[[BaseException | None], None]] = []
        self.holds = False

    def submit(self, changes: Changes, done: Callable[[BaseException | None], None]) -> None:
        assert changes
        self.waiting.append(done)
        if not self.holds:
            self.commit()

    def commit(self) -> None:
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done(None)


class Ear:
    """A peer that remembers what it was sent, write by write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.unsent_bytes = 0
        self.is_paused = False
        self.ended = ""
        self._reader = PacketDecoder(version=5, from_server=True)

    def send(self, data: bytes) -> None:
        self.writes.append(data)

    def buffered_bytes(self) -> int:
        return self.unsent_bytes

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def packets(self) -> list[Packet]:
        found = self._reader.feed(b"".join(self.writes))
        self.writes.clear()
        return found  # type: ignore[return-value]


class Scene:
    """A shell with a disk, and the time of the test's choosing."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.now = 0.0
        self.disk = SlowDisk()
        broker = Broker(now=0.0, new_name=lambda: "x", limits=limits, compiled=False)
        self.shell = Shell(
            broker, self.disk, self._identify, asyncio.get_running_loop(), lambda: self.now
        )

    async def _identify(self, _link: Link, packet: Connect) -> Identity | None:
        await asyncio.sleep(0)
        return None if packet.user_name == "stranger" else Identity(None, packet.client_id)

    async def connect(self, name: str) -> tuple[Link, Ear]:
        ear = Ear()
        link = self.shell.opened(name, ear)
        packet = Connect(name, properties=Properties(session_expiry_s=600))
        self.shell.received(link, encode(packet))
        await settled()
        ear.packets()
        return link, ear


async def settled() -> None:
    """Let everything happen that is due."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_turn_writes_once_to_each_connection() -> None:
    async def main() -> None:
        scene = Scene()
        link, ear = await scene.connect("one")
        scene.shell.received(link, encode(Subscribe(1, (Filter("a"),))))
        await settled()
        ear.writes.clear()
        for number in range(5):
            scene.shell.received(link, encode(Publish("a", b"%d" % number)))
        await settled()
        assert len(ear.writes) == 1
        assert [p.payload for p in ear.packets() if isinstance(p, Publish)] == [
            b"0", b"1", b"2", b"3", b"4",
        ]  # fmt: skip

    asyncio.run(main())


def test_nothing_is_promised_before_it_is_on_disk() -> None:
    async def main() -> None:
        scene = Scene()
        link, ear = await scene.connect("one")
        scene.disk.holds = True
        scene.shell.received(link, encode(Subscribe(1, (Filter("a", 1),))))
        scene.shell.received(link, encode(Publish("a", b"x", 1, packet_id=7)))
        await settled()
        assert ear.packets() == []
        scene.disk.commit()
        await settled()
        assert [type(packet) for packet in ear.packets()] == [Suback, Publish, Puback]

    asyncio.run(main())


def test_who_may_not_come_in_is_closed() -> None:
    async def main() -> None:
        scene = Scene()
        ear = Ear()
        link = scene.shell.opened("x", ear)
        scene.shell.received(link, encode(Connect("x", user_name="stranger")))
        await settled()
        assert ear.ended == "closed"

    asyncio.run(main())


def test_a_connection_that_takes_nothing_is_given_up() -> None:
    async def main() -> None:
        scene = Scene(Limits(unsent_disconnect_s=5))
        link, ear = await scene.connect("slow")
        ear.unsent_bytes = 1_000_000
        scene.shell.stuck(link)
        for scene.now in (1.0, 4.0, 6.0):
            scene.shell._tick()
            await settled()
        assert ear.ended == "aborted"

    asyncio.run(main())


def test_a_connection_that_takes_a_little_is_not() -> None:
    async def main() -> None:
        scene = Scene(Limits(unsent_disconnect_s=5))
        link, ear = await scene.connect("slow")
        ear.unsent_bytes = 1_000_000
        scene.shell.stuck(link)
        for scene.now in (1.0, 4.0, 8.0, 12.0):
            ear.unsent_bytes -= 1
            scene.shell._tick()
            await settled()
        assert ear.ended == ""

    asyncio.run(main())


def test_publishers_wait_while_everybody_is_behind() -> None:
    async def main() -> None:
        scene = Scene()
        publisher, mouth = await scene.connect("publisher")
        link, ear = await scene.connect("subscriber")
        scene.shell.received(publisher, encode(Publish("a", b"x")))
        ear.unsent_bytes = 1_000_000
        scene.shell.stuck(link)
        await settled()
        assert mouth.is_paused
        assert not ear.is_paused
        ear.unsent_bytes = 0
        scene.shell.unstuck(link)
        await settled()
        assert not mouth.is_paused

    asyncio.run(main())


def test_a_publisher_that_is_too_quick_is_read_from_more_slowly() -> None:
    async def main() -> None:
        scene = Scene(Limits(publish_per_s_max=2))
        publisher, mouth = await scene.connect("publisher")
        for _ in range(10):
            scene.shell.received(publisher, encode(Publish("a", b"x")))
        await settled()
        assert mouth.is_paused
        for scene.now in (2.0, 4.0, 6.0, 8.0):
            scene.shell._tick()
            await settled()
        assert not mouth.is_paused

    asyncio.run(main())


def test_what_comes_too_late_for_a_connection_is_forgotten() -> None:
    async def main() -> None:
        scene = Scene()
        link, ear = await scene.connect("one")
        scene.disk.holds = True
        scene.shell.received(link, encode(Subscribe(1, (Filter("a", 1),))))
        await settled()
        scene.shell.closed(link)
        scene.disk.commit()
        await settled()
        assert ear.packets() == []

    asyncio.run(main())


def test_stopping_sends_disconnect() -> None:
    async def main() -> None:
        scene = Scene()
        _, ear = await scene.connect("one")
        await scene.shell.stop()
        assert ear.ended == "closed"
        assert ear.packets()

    asyncio.run(main())


class Boom(Exception):
    """A fault on purpose."""


class TestFaults:
    def test_a_connection_that_cannot_be_written_to_costs_nobody_else_anything(self) -> None:
        async def main() -> None:
            scene = Scene()
            links = [await scene.connect(name) for name in ("bad", "good")]
            for link, _ in links:
                scene.shell.received(link, encode(Subscribe(1, (Filter("a", 1),))))
            await settled()
            (_, bad), (link, good) = links
            good.packets()

            def send(_data: bytes) -> None:
                raise Boom

            bad.send = send  # type: ignore[method-assign,assignment]
            scene.shell.received(link, encode(Publish("a", b"x", 1, packet_id=7)))
            await settled()
            assert bad.ended == "aborted"
            assert {type(packet) for packet in good.packets()} == {Publish, Puback}
            assert scene.shell.broker.counters.faults == 1

        asyncio.run(main())

    def test_what_the_disk_does_not_take_is_given_to_it_again(self) -> None:
        async def main() -> None:
            scene = Scene()
            link, ear = await scene.connect("one")
            submit = scene.disk.submit

            def fail(*_: object) -> None:
                scene.disk.submit = submit  # type: ignore[method-assign]
                raise Boom

            scene.disk.submit = fail  # type: ignore[method-assign,assignment]
            scene.shell.received(link, encode(Subscribe(1, (Filter("a", 1),))))
            await settled()
            assert ear.packets() == []
            scene.shell.wake()
            await settled()
            assert [type(packet) for packet in ear.packets()] == [Suback]

        asyncio.run(main())

    def test_a_failed_identification_is_answered(self) -> None:
        async def main() -> None:
            scene = Scene()

            async def fail(_link: Link, _packet: Connect) -> Identity | None:
                raise Boom

            scene.shell._authenticate = fail
            ear = Ear()
            link = scene.shell.opened("x", ear)
            scene.shell.received(link, encode(Connect("x")))
            await settled()
            (answer,) = ear.packets()
            assert isinstance(answer, Connack)
            assert (answer.reason, ear.ended) == (Reason.UNSPECIFIED_ERROR, "closed")

        asyncio.run(main())

    def test_a_merge_that_fails_is_told_of_and_not_tried_at_once(self) -> None:
        async def main() -> None:
            scene = Scene()
            link, _ = await scene.connect("one")
            works: list[Any] = []

            class Work:
                abandoned = False

                def run(self) -> None:
                    raise Boom

                def abandon(self) -> None:
                    self.abandoned = True

                def install(self) -> None:
                    raise AssertionError("it was not run")

            def due() -> Any:
                works.append(Work())
                return works[-1]

            scene.shell.broker.merge_due = due  # type: ignore[method-assign]
            for packet_id in range(1, 6):
                scene.shell.received(link, encode(Subscribe(packet_id, (Filter("a"),))))
                await merged(scene.shell)
            assert [one.abandoned for one in works] == [True]
            assert scene.shell.broker.counters.faults == 1
            scene.now += MERGE_RETRY_S + 1
            scene.shell.wake()
            await merged(scene.shell)
            assert len(works) == 2

        asyncio.run(main())

    def test_a_turn_that_fails_is_not_the_last(self) -> None:
        async def main() -> None:
            scene = Scene()
            link, ear = await scene.connect("one")
            end_turn = scene.shell.broker.end_turn

            def fail(_now: float) -> TurnOutput:
                scene.shell.broker.end_turn = end_turn  # type: ignore[method-assign]
                raise Boom

            scene.shell.broker.end_turn = fail  # type: ignore[method-assign,assignment]
            scene.shell.received(link, encode(Subscribe(1, (Filter("a"),))))
            await settled()
            scene.shell.wake()
            await settled()
            assert [type(packet) for packet in ear.packets()] == [Suback]

        asyncio.run(main())


async def merged(shell: Shell) -> None:
    """Let what runs beside end, and its turn."""
    await settled()
    while shell._tasks:
        await asyncio.wait(shell._tasks)
    await settled()
