"""Which functions of the broker one packet passes, counted and printed call by call.

    python -m tests.broker.walks            the figures: calls and files of each walk
    python -m tests.broker.walks policy     one walk, call by call

A walk is one packet in a broker in memory (`rove.testing.mqtt`), from `Broker.received` to the end
of `Broker.end_turn`. The same packet has come often before, so every cache is warm, and there is
one subscriber, so what is done once for each of many is there once. Calls of Python functions of
`src/rove` are counted, as `sys.setprofile` tells of them; what is written in C (msgspec, NumPy,
compiled kernels) is not seen, and the simulation around the broker is left out.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import rove
from rove.mqtt.encoder import encode
from rove.mqtt.packets import Filter, Properties, Publish, Subscribe
from rove.policy.limits import PolicyLimits
from rove.testing.mqtt import SimulatedBroker, SimulatedClient
from rove.testing.policies import SimulatedWorkers

SOURCE = str(Path(rove.__file__).parent) + "/"
APART = SOURCE + "testing/"
TOPIC = "ward/7/pulse"
PAYLOAD = b'{"pulse": 130, "patient": "ann", "ward": 7}'
TEXT = "pulse > 100"
POLICY = """
def arrived(m, me):
    if m.pulse > 120:
        m.note = "high"
        return m
"""
WARM = 50
"""How often a packet has come before the one that counts."""


class Call(NamedTuple):
    """One call on a walk."""

    depth: int
    file: str
    function: str


class Walk(NamedTuple):
    """Everything that was called, in order."""

    calls: list[Call]

    @property
    def files(self) -> Counter[str]:
        """The files that were passed, and how many calls each had."""
        return Counter(call.file for call in self.calls)

    def lines(self) -> list[str]:
        """The walk to be read: a call a line, indented by who called it."""
        return [
            f"{'  ' * one.depth}{one.file.removesuffix('.py')} {one.function}" for one in self.calls
        ]


def walked(go: Callable[[], object]) -> Walk:
    """What of Rove was called by a function."""
    calls: list[Call] = []
    open_frames: list[FrameType] = []

    def seen(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            name = frame.f_code.co_filename
            if name.startswith(SOURCE) and not name.startswith(APART):
                file = name.removeprefix(SOURCE)
                calls.append(Call(len(open_frames), file, frame.f_code.co_qualname))
                open_frames.append(frame)
        elif event == "return" and open_frames and open_frames[-1] is frame:
            open_frames.pop()

    sys.setprofile(seen)
    try:
        go()
    finally:
        sys.setprofile(None)
    return Walk(calls)


class _Scene(NamedTuple):
    """A broker, and a client that is about to send something."""

    world: SimulatedBroker
    sender: SimulatedClient
    data: Callable[[int], bytes]
    """The packet, the n-th time."""


def _walk(scene: _Scene) -> Walk:
    for number in range(WARM):
        scene.sender.send_bytes(scene.data(number))
    world, link, data = scene.world, scene.sender.link, scene.data(WARM)
    assert link is not None

    def go() -> None:
        world.broker.received(link, data, world.now)
        world.broker.end_turn(world.now)

    return walked(go)


def _publication(*, text: str = "", policy: str = "") -> _Scene:
    world = SimulatedBroker(policies=PolicyLimits(), workers=SimulatedWorkers())
    subscriber, publisher = world.connect("subscriber"), world.connect("publisher")
    if policy:
        subscriber.publish("$rove/policy", policy.encode(), 1)
    if text:
        subscriber.subscribe(TOPIC, filter=text)
    else:
        subscriber.subscribe(TOPIC)
    packet = encode(Publish(TOPIC, PAYLOAD), publisher.version)
    return _Scene(world, publisher, lambda _number: packet)


def _subscription() -> _Scene:
    world = SimulatedBroker(policies=PolicyLimits(), workers=SimulatedWorkers())
    subscriber = world.connect("subscriber")

    def packet(number: int) -> bytes:
        # Another bound each time: the same text again would be a change of nothing.
        properties = Properties(user=(("filter", f"pulse > {100 + number}"),))
        filters = (Filter(f"ward/{number}/pulse"),)
        return encode(Subscribe(1 + number, filters, properties), subscriber.version)

    return _Scene(world, subscriber, packet)


WALKS: dict[str, Callable[[], Walk]] = {
    "plain": lambda: _walk(_publication()),
    "text": lambda: _walk(_publication(text=TEXT)),
    "policy": lambda: _walk(_publication(text=TEXT, policy=POLICY)),
    "subscription": lambda: _walk(_subscription()),
}
"""One publication of QoS 0 without a text, with one, with a text and a policy; one SUBSCRIBE."""


def main(names: list[str]) -> None:
    """Print a walk call by call, or the figures of all."""
    for name in names:
        print(*WALKS[name]().lines(), sep="\n")
    for name, walk in WALKS.items():
        found = walk()
        print(f"{name:14}{len(found.calls):5} calls {len(found.files):4} files")


if __name__ == "__main__":
    main(sys.argv[1:])
