"""The worst policies that we know of, fifty at a time, and how long everybody else waits.

`rove bench policy --part hostile` runs a broker with the limits that it ships with, once with
policies within the broker and once in processes of their own. Hostile sessions do what their case
says, each on a topic of its own, from a process of their own; they have no user names, and other
client ids in every case, so that none shares another's offences or is suspended for an earlier
case. Beside them a bystander without a policy and one with a small policy are
sent a message every ten milliseconds. A victim's policy takes some milliseconds of a worker, with
five attackers beside it.

Told is the longest that a bystander waited, and the victim's p99. Where other things run on the
machine, the quiet case shows what they cost, and every note says how late the measuring process
itself was woken: that is the machine's doing, but it counts in the delays.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import itertools
import os
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import msgspec
import numpy as np

from rove.bench.broker.clients import Client, connect_all
from rove.bench.measure import Measure
from rove.client.protocol import Request, subscribe_packet
from rove.live.connections import ignore
from rove.mqtt.encoder import encode
from rove.mqtt.packets import Filter, Publish
from rove.testing.broker_processes import BrokerProcessError

QUIET: Final = "quiet"
WORST_MS_GOAL: Final = 50.0
P99_GOAL: Final = 3.0
_EVERY_S: Final = 0.01
_PUBLISH_S: Final = 1.0
"""How often each hostile session publishes."""
_START_S: Final = 60.0
_LAST_S: Final = 2.0
"""How long the last message is waited for."""
_SMALL: Final = "def arrived(m, me):\n    m.seen = 1\n    return m\n"
_DEMANDING: Final = """\
def arrived(m, me):
    total = 0
    for i in range(15000):
        total = total + i % 7
    m.total = total
    return m
"""


class Hostile(NamedTuple):
    """What a session does to others."""

    text: str
    payload: Callable[[], dict[str, object]]
    resets: bool = False
    """It sets its policy again and again, with another comment each time."""


def _policy(*lines: str) -> str:
    return "def arrived(m, me):\n" + "".join(f"    {line}\n" for line in lines)


def _nothing() -> dict[str, object]:
    return {"x": 1}


def _many() -> dict[str, object]:
    return {"x": [0] * 50_000, "floats": [1.1 * n for n in range(500)]}


def _picture() -> dict[str, object]:
    from PIL import Image

    out = io.BytesIO()
    Image.linear_gradient("L").resize((6_000, 4_000)).save(out, "JPEG", quality=20)
    return {"image": base64.b64encode(out.getvalue()).decode()}


_REVERSED: Final = ("x0 = 1.5", *(f"x{n} = x{n + 1}" for n in range(280)), "x280 = x0", "return m")
_OUTPUTS: Final = ", ".join(["keep(m, 'x')"] * 16)

CASES: Final[dict[str, Hostile]] = {
    "outputs": Hostile(_policy(f"return [{_OUTPUTS}]"), _many),
    "compile": Hostile(_policy(*_REVERSED), _nothing, resets=True),
    "reset": Hostile(_policy("while True:", "    pass"), _nothing, resets=True),
    "picture": Hostile(_policy("return message(i=compress(m.image, bytes_max=2000))"), _picture),
    "texts": Hostile(
        _policy("n = 0", "while n < 20:", "    x = str(m.floats)", "    n += 1", "return m"), _many
    ),
    "busy": Hostile(_policy("n = 0", "while n < 90000:", "    n += 1", "return m"), _nothing),
    "variables": Hostile(_policy("me.x = [now()] * 3000", "return m"), _nothing),
}


class Attack(msgspec.Struct):
    """What a process of hostile sessions is told."""

    port: int
    case: str
    sessions: int


# -- hostile sessions ---------------------------------------------------------------------------


def _names(attack: Attack) -> list[str]:
    """Client ids that no other process of hostile sessions has had."""
    return [f"{attack.case}-{os.getpid()}-{number}" for number in range(attack.sessions)]


async def _attack(attack: Attack) -> None:
    """Go on until somebody ends the process."""
    hostile = CASES[attack.case]
    payload = msgspec.json.encode(hostile.payload())
    clients = [Client(name) for name in _names(attack)]
    await connect_all(clients, attack.port)
    for number, client in enumerate(clients):
        setting = Publish("$rove/policy", hostile.text.encode(), 1)
        await client.request([setting, subscribe_packet((Filter(f"hostile/{number}"),))])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    async with asyncio.TaskGroup() as group:
        for number, client in enumerate(clients):
            client.take_bytes(ignore)
            group.create_task(_publish(client, number, payload, attack.sessions))
            if hostile.resets:
                group.create_task(_reset(client, number, hostile.text))


async def _publish(client: Client, number: int, payload: bytes, sessions: int) -> None:
    await asyncio.sleep(_PUBLISH_S * number / sessions)
    packet = encode(Publish(f"hostile/{number}", payload, 0))
    while True:
        await client.may_write.wait()
        client.send(packet)
        await asyncio.sleep(_PUBLISH_S)


async def _reset(client: Client, number: int, text: str) -> None:
    for again in itertools.count():
        other = f"{text}# {number} {again}"
        packet_id = client.protocol.take_packet_id()
        client.send(encode(Publish("$rove/policy", other.encode(), 1, packet_id=packet_id)))
        await asyncio.sleep(_PUBLISH_S / 10)


@contextmanager
def _attacked(port: int, case: str, sessions: int) -> Iterator[None]:
    """While hostile sessions are at work."""
    if case == QUIET:
        yield
        return
    words = [sys.executable, "-m", "rove.bench.policy.hostile"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(msgspec.json.encode(Attack(port, case, sessions)))
            process.stdin.close()
            if process.stdout.readline() != b"ready\n":
                raise BrokerProcessError(f"the hostile sessions of {case} did not begin")
            yield
        finally:
            process.kill()


# -- who is beside them -------------------------------------------------------------------------


class _Watched(Client):
    """A subscriber of messages that have a number, and when each came."""

    def __init__(self, name: str, policy: str = "") -> None:
        super().__init__(name)
        self.topic = f"watched/{name}"
        self._policy = policy
        self._sent_at = array("d")
        self.delays_ms: list[float] = []

    async def begin(self) -> None:
        """Set the policy, and subscribe."""
        requests: list[Request] = [subscribe_packet((Filter(self.topic),))]
        if self._policy:
            requests.insert(0, Publish("$rove/policy", self._policy.encode(), 1))
        await self.request(requests)

    def publish(self, publisher: Client) -> None:
        """Have the next message published."""
        payload = b'{"n":%d}' % len(self._sent_at)
        self._sent_at.append(time.perf_counter())
        publisher.send(encode(Publish(self.topic, payload, 0)))

    def arrived(self, publish: Publish, now: float) -> None:
        number = msgspec.json.decode(publish.payload)["n"]
        self.delays_ms.append(1e3 * (time.perf_counter() - self._sent_at[number]))

    @property
    def missing(self) -> int:
        """Messages that have not come."""
        return len(self._sent_at) - len(self.delays_ms)


async def _watch(port: int, watched: Sequence[_Watched], seconds: float, every_s: float) -> float:
    """Let messages be sent for so long, and wait for the last; by how many milliseconds one was
    sent too late, at worst."""
    publisher = Client("watched-publisher")
    await connect_all([publisher, *watched], port)
    for one in watched:
        await one.begin()
    begun = time.perf_counter()
    late_s = 0.0
    for number in itertools.count(1):
        for one in watched:
            one.publish(publisher)
        due = begun + number * every_s
        if due > begun + seconds:
            break
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        late_s = max(late_s, time.perf_counter() - due)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LAST_S):
            while any(one.missing for one in watched):
                await asyncio.sleep(0.01)
    for client in (publisher, *watched):
        client.take_bytes(ignore)
        client.close()
    return 1e3 * late_s


def bystanders(port: int, group: str, case: str, sessions: int, seconds: float) -> list[Measure]:
    """How long bystanders waited beside a case."""
    plain, small = _Watched("plain"), _Watched("small", _SMALL)
    with _attacked(port, case, sessions):
        late_ms = asyncio.run(_watch(port, [plain, small], seconds, _EVERY_S))
    found = []
    for name, one in (("plain", plain), ("policy", small)):
        if not one.delays_ms:
            raise BrokerProcessError(f"beside {case} nothing came to the bystander")
        worst_ms = max(one.delays_ms)
        p99_ms = float(np.percentile(one.delays_ms, 99))
        note = f"p99 {p99_ms:.1f} ms, woken up to {late_ms:.1f} ms late"
        if one.missing:
            note += f", {one.missing} did not come"
        worst = Measure(f"{group}.{case}.{name}.worst", worst_ms, "ms", note=note)
        if case != QUIET:
            is_reached = worst_ms <= WORST_MS_GOAL and not one.missing
            worst = msgspec.structs.replace(
                worst, goal=f"<= {WORST_MS_GOAL:g} ms", reached=is_reached
            )
        found.append(worst)
    return found


def victim(port: int, group: str, case: str, attackers: int, seconds: float) -> Iterator[Measure]:
    """The p99 of somebody who needs a worker, without attackers and with them."""
    name = f"{group}.victim"
    quiet_ms = 0.0
    for beside in (QUIET, case):
        one = _Watched("victim", _DEMANDING)
        with _attacked(port, beside, attackers):
            late_ms = asyncio.run(_watch(port, [one], seconds, 5 * _EVERY_S))
        if not one.delays_ms:
            raise BrokerProcessError(f"beside {beside} nothing came to the victim")
        p99_ms = float(np.percentile(one.delays_ms, 99))
        note = (
            f"{len(one.delays_ms):,} came, {one.missing} did not, woken up to {late_ms:.1f} ms late"
        )
        measure = Measure(f"{name}.{beside}.p99", p99_ms, "ms", note=note)
        if beside == QUIET:
            quiet_ms = p99_ms
        else:
            ratio = p99_ms / quiet_ms
            measure = msgspec.structs.replace(
                measure,
                ratio=ratio,
                against=f"{name}.{QUIET}.p99",
                goal=f"<= {P99_GOAL:g} times",
                reached=ratio <= P99_GOAL and not one.missing,
            )
        yield measure


def main() -> int:
    """Be the hostile sessions that standard input tells of."""
    attack = msgspec.json.decode(sys.stdin.buffer.read(), type=Attack)
    asyncio.run(_attack(attack))
    return 0


if __name__ == "__main__":
    sys.exit(main())
