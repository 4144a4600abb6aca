"""A broker with a clock that the caller sets: real sockets, real clients, scripted time.

For demonstrations and for comparing a broker with the language: the caller decides when everything
is published, and the output depends on nothing else. Everything runs in this process; a publication
costs about a millisecond, most of it waiting for its acknowledgement before time moves on.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import rove
from rove.client.client import Client
from rove.client.notifications import Notification as Arrival
from rove.lang.oracle import score_of
from rove.lang.parser import parse
from rove.lang.replay import ReplayedNotification
from rove.serve.server import Server
from rove.serve.settings import Channel, Config, DataSettings, LakeSettings, ListenSettings
from rove.testing.workloads import Reading

TOPIC = "air/zagreb"
CURTAIN = "stage/curtain"
"""What everybody waits for at the end of a scene: all that was sent before it has then come."""
FILE_S = 0.2
"""Real seconds between two files of the lake."""
SILENCE_S = 3600
"""Keep-alive, in the play's time."""


class ScriptedBroker:
    """Some subscribers, one publisher, and the broker between them."""

    def __init__(self, texts: Mapping[str, str], me: Mapping[str, object]) -> None:
        """Subscribers by name with their texts; all of them begin with the same state."""
        self._texts = texts
        self._parsed = {name: parse(text) for name, text in texts.items()}
        self._me = me
        self._now = 0.0
        self._runner = asyncio.Runner()
        self._folder = tempfile.TemporaryDirectory(prefix="rove-stage-")
        self._server: Server
        self._subscribers: dict[str, Client] = {}
        self._publisher: Client
        self._curtains = 0
        self._delivered: list[ReplayedNotification] = []
        self._readings: dict[str, Reading] = {}
        """What was published, by id."""
        self.lake = Path(self._folder.name) / "lake"
        """What is played is kept there, for the pipeline."""

    def __enter__(self) -> Self:
        self._runner.run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._close())
        self._runner.close()
        self._folder.cleanup()

    def play(
        self,
        readings: Sequence[Reading],
        states: Mapping[str, Callable[[float], Mapping[str, object]]],
    ) -> list[ReplayedNotification]:
        """Publish one reading after the other, each at its time; what was delivered meanwhile.

        `states` says what subscribers tell the broker of themselves at a moment.
        """
        self._runner.run(self._play(readings, states))
        delivered, self._delivered = self._delivered, []
        return delivered

    @property
    def position(self) -> int:
        """The last position of the broker's log: the lake gets there by itself, a little later."""
        return self._server.shell.broker.view.position

    # -- behind the scenes ---------------------------------------------------------------------

    async def _open(self) -> None:
        listen = ListenSettings(mqtt_port=0, http_port="off")
        channel = Channel("city", (TOPIC,))
        lake = LakeSettings(channels=(channel,), seconds_per_file=FILE_S)
        config = Config(listen=listen, data=DataSettings(self._folder.name, "none"), lake=lake)
        self._server = Server(config, now=lambda: self._now)
        await self._server.start()
        for name, text in self._texts.items():
            client = self._subscribers[name] = await self._connect()
            await client.me.set(**self._me)
            subscription = await client.subscribe(TOPIC, filter=text)
            subscription.listen(partial(self._arrived, name))
            curtain = await client.subscribe(CURTAIN, into=bytes)
            curtain.listen(self._curtain_fell)
        self._publisher = await self._connect()

    async def _connect(self) -> Client:
        port = self._server.ports["mqtt"]
        return await rove.connect(f"mqtt://127.0.0.1:{port}", keep_alive_s=SILENCE_S)

    async def _play(
        self,
        readings: Sequence[Reading],
        states: Mapping[str, Callable[[float], Mapping[str, object]]],
    ) -> None:
        for reading in readings:
            self._now = reading.at
            for name, state in states.items():
                await self._subscribers[name].me.set(**state(reading.at))
            id = f"{len(self._readings) + 1}"
            self._readings[id] = reading
            # The broker sends the acknowledgement and the notifications in one turn, so these
            # have arrived when that has.
            await self._publisher.publish(TOPIC, reading.attributes, id=id)
        self._curtains = 0
        await self._publisher.publish(CURTAIN, b"")
        while self._curtains < len(self._subscribers):
            await asyncio.sleep(0)

    def _curtain_fell(self, _: Arrival[bytes]) -> None:
        self._curtains += 1

    def _arrived(self, name: str, arrival: Arrival[Any]) -> None:
        assert arrival.id is not None
        reading = self._readings[arrival.id]
        parsed = self._parsed[name]
        score = None
        if parsed.rank is not None:
            score = score_of(parsed, reading.attributes, reading.at)
        moved_up = arrival.id != f"{len(self._readings)}"
        self._delivered.append(
            ReplayedNotification(self._now, name, arrival.id, arrival.value, score, moved_up)
        )

    async def _close(self) -> None:
        for client in (*self._subscribers.values(), self._publisher):
            await client.close()
        await self._server.stop()
