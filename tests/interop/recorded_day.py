"""A day of a hospital, recorded: subscribers with policies, and what each of them received.

The broker is the real one, in memory and in virtual time; what it logs goes into a real lake, and
clients keep every packet. A seed decides who measures, reports, moves, leaves, comes back, changes
its mind about its policy, and when the broker crashes. With workers, whatever a policy does that is
heavy is decided later, by workers that are slow and sometimes die.

Nothing is lost on the way by intention: those who leave have sessions that are kept and QoS 1, and
the others are always there. So what they received is what was sent to them.
"""

from __future__ import annotations

import base64
import io
import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from PIL import Image

from rove.broker.context import BrokerSettings, LakeStream
from rove.mqtt.packets import Filter, Properties, Publish
from rove.pipeline.lake.log import Lake as ReadLake
from rove.policy.limits import PolicyLimits
from rove.serve.disk.lake import LakeAppender
from rove.testing.mqtt import EXPIRES_NEVER_S, SimulatedBroker, SimulatedClient
from rove.testing.policies import SimulatedWorkers
from tests.interop.recorded import KEPT, move_log

DAY_S = 86_400
MORNING_S = 1_700_006_400.0
SETTINGS = BrokerSettings(
    channels=(
        LakeStream("ward", ("ward/#",), KEPT),
        LakeStream("air", ("air/#", "+/1"), KEPT),  # ward/1 is kept by both
    ),
    keeps_subscriptions=True,
)
LIMITS = PolicyLimits(
    steps_max=9_000, inline_steps_max=300, offences_s=3_600, suspension_s=1_800, waiting_max=3
)
TOPICS = ("ward/1", "ward/2", "ward/3", "air/1", "air/2")
FILTERS = ("ward/#", "ward/+", "ward/1", "#", "+/1", "air/#")
TEXTS = (
    None,
    None,
    "pulse > 70",
    "pulse > me.low",
    "SELECT patient, pulse WHERE pulse > 60",
    "patient = 2 AND pulse > 60 + t / 3600",
    "ward > 0 ORDER BY pulse DESC LIMIT 2 WITHIN 30 MINUTES",
)
ICU = """
LOW = 0.25

def arrived(m, me):
    battery, network = get("battery", 1.0), get("network", 1.0)
    if m.patient not in get("patients", [1, 2, 3]) and 50 <= get("low", 60) <= 120:
        return None
    if battery < LOW:
        if every(300, per=m.patient):
            return message(patient=m.patient, pulse=m.pulse)
        return None
    if m.ecg is None:
        return m
    if network < 0.9:
        m.ecg = compress(m.ecg, quality=20 + 10 * round(4 * network))
    elif get("display", 400) < 100:
        m.ecg = compress(m.ecg, pixels_max=get("display", 64))
    return m
"""
EVERY = """
def arrived(m, me):
    if every(600, per=m.topic):
        m.hour = hour()
        return m
"""
CHANGED = """
def arrived(m, me):
    if m.pulse is not None and changed("pulse", by=5, per=m.patient):
        me.low = clamp(m.pulse - 15, 40, 90)
        return keep(m, "patient", "pulse", "id")
"""
SUMMARY = """
def arrived(m, me):
    if m.pulse is None:
        return m
    return summary(3600, "pulse", per=m.patient)
"""
SEVERAL = """
def arrived(m, me):
    me.seen = get("seen", 0) + 1
    m.seen = me.seen
    if me.seen % 3 == 0:
        return [drop(m, "ecg"), message(seen=me.seen, at=now())]
    return drop(m, "ecg")
"""
LOOPS = """
def arrived(m, me):
    while m.pulse is not None:
        pass
    return m
"""
ERRORS = """
def arrived(m, me):
    me.seen = get("seen", 0) + 1
    if m.pulse > me.most:
        return message(alarm=m.pulse)
    return m
"""
LONG = """
def arrived(m, me):
    total = get("total", 0)
    for i in range(m.patient * 400):
        total = (total + i) % 1000
    me.total = total
    return message(total=total, pulse=m.pulse)
"""
TOO_LONG = """
def arrived(m, me):
    total = 0
    for i in range(m.patient * 4000):
        total = total + i
    return m
"""
TOO_MANY = """
def arrived(m, me):
    found = []
    for i in range(m.pulse - 60):
        found = found + [message(n=i, battery=get("battery"))]
    return found
"""
PASSES = "def arrived(m, me):\n    return m\n"
FIXED = "def arrived(m, me):\n    set(m.fix, 1)\n    return m\n"
POLICIES = (
    ICU, EVERY, CHANGED, SUMMARY, SEVERAL, LOOPS, ERRORS, LONG, TOO_LONG, TOO_MANY, PASSES, FIXED,
)  # fmt: skip


class Received(NamedTuple):
    """A message as it came to a client."""

    topic: str
    payload: bytes | None
    """None in what is expected, where it is not compared."""
    user: tuple[tuple[str, str], ...]


class _Device(SimulatedClient):
    """Takes and acknowledges what it is sent, and keeps it for ever."""

    def __init__(self, world: SimulatedBroker, client_id: str, *, leaves: bool) -> None:
        super().__init__(world, client_id, 5)
        self.leaves = leaves
        """Its session is kept, and it may be away for hours."""
        self.received: list[Received] = []
        self.reported = 0
        self.favourite = POLICIES[int(client_id[1:]) % len(POLICIES)]
        """The policy that it begins with, whenever it has to begin anew."""
        self.wish: tuple[Filter, Properties] | None = None
        """What it subscribed to last."""

    def arrive(self) -> None:
        """Connect, to the session that is there if it is kept."""
        if self.leaves:
            self.connect(clean_start=False, expiry_s=EXPIRES_NEVER_S)
        else:
            self.connect()

    def read(self) -> None:
        """Keep what was published to it, but for what the broker itself has to say."""
        for one in self.take_all():
            if not one.topic.startswith("$rove/"):
                assert not one.dup, "everything is acknowledged at once"
                self.received.append(Received(one.topic, one.payload, one.properties.user))


class RecordedDay:
    """Plays a day, writes it into a lake and knows what everybody received."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        *,
        steps: int,
        subscribers: int = 30,
        workers: SimulatedWorkers | None = None,
        isolated: bool = False,
        limits: PolicyLimits = LIMITS,
    ) -> None:
        self.folder = folder
        self.limits = limits
        self._chance = random.Random(seed)
        self._workers = workers
        self._jobs = 60 if isolated else 5
        self.world = SimulatedBroker(
            settings=SETTINGS,
            policies=limits,
            workers=workers,
            isolation="process" if isolated else "none",
        )
        self._now_us = round(MORNING_S * 1e6)
        self.world.now = MORNING_S
        self._lake = LakeAppender(folder, rows_per_file=2_000)
        self._pictures = [_picture(side) for side in (60, 90, 120, 150)]
        self.published: dict[str, Received] = {}
        """By id."""
        self.crashes = 0
        self._begin(is_new=True)
        self._monitor = self.world.connect("monitor")
        self.devices = [
            _Device(self.world, f"d{number:02}", leaves=number % 3 != 0)
            for number in range(subscribers)
        ]
        for device in self.devices:
            self._set_up(device)
        self._play(steps)

    @property
    def read(self) -> ReadLake:
        return ReadLake(self.folder)

    def _begin(self, *, is_new: bool) -> None:
        self.world.broker.begin_log(self._lake.last_position, is_new=is_new, now=self.world.now)
        self.world.turn()

    def _set_up(self, device: _Device) -> None:
        """Come for the first time, or again after everything was forgotten."""
        device.arrive()
        device.publish("$rove/report", b'{"battery": 1.0, "display": 400}', 1)
        device.publish("$rove/policy", device.favourite.encode(), 1)
        self._subscribe(device)
        device.subscribe("$rove/policy", "$rove/me")
        device.read()

    # -- the play ------------------------------------------------------------------------------

    def _play(self, steps: int) -> None:
        pause_us = round(DAY_S * 1e6 / steps)
        acts = {
            self._measure: 50,
            self._report: 14,
            self._move: 5,
            self._leave: 4,
            self._come_back: 6,
            self._subscribe: 4,
            self._unsubscribe: 2,
            self._set_policy: 5,
            self._crash: 0.4,
            self._flush: 1,
        }
        for step in range(1, steps + 1):
            # Most of it happens in quick succession, so that agents are offended within a minute.
            self._pass_until(round(MORNING_S * 1e6) + pause_us * (step - step % 8))
            (act,) = self._chance.choices(list(acts), list(acts.values()))
            act()
            self._work()
            self._pass_until(self._now_us + self._chance.choice((0, 1, 900, 250_000)))
        for device in self.devices:
            self._come_back(device)
        self._end()

    def _end(self) -> None:
        if self._workers is not None:
            self._workers.holds_jobs = False
            self._workers.kill_share = self._workers.late_share = 0.0
        self._pass_until(self._now_us + 3_600_000_000)
        for _ in range(3):
            self.world.work()
            for device in self.devices:
                device.read()
        self._flush()

    def _pass_until(self, until_us: int) -> None:
        """Time passes in whole microseconds, as a broker's clock does."""
        while self._now_us < until_us:
            due_us = round(min(self.world.broker.next_tick_at(), 1e11) * 1e6)
            self._now_us = min(until_us, max(self._now_us + 1_000, due_us))
            self.world.now = self._now_us / 1e6
            self.world.broker.tick(self.world.now)
            self.world.turn()
        self._read()

    def _read(self) -> None:
        for device in self.devices:
            if not device.is_closed() and device.inbox:
                device.read()

    def _work(self) -> None:
        """Some of the jobs, some of the time: then policies wait, and crowds gather."""
        if self._workers is not None and self._chance.random() < 0.7:
            self.world.work(self._chance.randrange(self._jobs))

    def _device(self) -> _Device:
        return self._chance.choice([one for one in self.devices if not one.is_closed()])

    def _measure(self) -> None:
        packets = [self._measurement() for _ in range(self._chance.choice((1, 1, 2, 8)))]
        if self._chance.random() < 0.5:  # within one turn, at one moment
            self._monitor.send(*packets)
        else:
            for packet in packets:
                self._pass_until(self._now_us + 100)
                self._monitor.send(packet)
        self._monitor.inbox.clear()
        self._read()

    def _measurement(self) -> Publish:
        chance = self._chance
        id = f"p{len(self.published)}"
        patient = chance.randrange(1, 5)
        said: dict[str, Any] = {"patient": patient, "pulse": chance.randrange(45, 110), "ward": 1}
        if chance.random() < 0.1:
            said["ecg"] = chance.choice(self._pictures)
        if chance.random() < 0.1:
            del said["pulse"]
        if chance.random() < 0.3:
            said["fix"] = chance.choice(("seen", "battery", "mood", 3))
        payload = msgspec.json.encode(said) if chance.random() < 0.95 else b"\xff no json"
        user = (("id", id), ("unit", "bpm"))
        topic = chance.choice(TOPICS)
        self.published[id] = Received(topic, payload, user)
        properties = Properties(user=user)
        retain = chance.random() < 0.1
        packet_id = self._monitor.next_packet_id()
        return Publish(topic, payload, 1, retain, False, packet_id, properties)

    def _report(self) -> None:
        device = self._device()
        new = len(device.received) - device.reported
        device.reported += new
        said: dict[str, Any] = {
            "battery": round(self._chance.random(), 2),
            "received": int(new * self._chance.choice((1, 1, 0.5))),
            "display": self._chance.choice((40, 80, 400)),
        }
        if self._chance.random() < 0.5:
            said["mood"] = self._chance.choice((1, None))
        device.publish("$rove/report", json.dumps(said).encode(), 1)
        device.read()

    def _move(self) -> None:
        device = self._device()
        said = {
            "low": self._chance.choice((45, 60, 80, None)),
            "most": self._chance.choice((70, None)),
            "patients": self._chance.sample((1, 2, 3, 4), 2),
        }
        device.publish("$rove/me", json.dumps(said).encode(), 1)
        device.read()

    def _leave(self) -> None:
        device = self._device()
        if device.leaves:
            device.drop()

    def _come_back(self, device: _Device | None = None) -> None:
        device = device or self._chance.choice(self.devices)
        if device.is_closed():
            device.arrive()
            device.read()

    def _subscribe(self, device: _Device | None = None) -> None:
        device = device or self._device()
        text, policy = self._chance.choice(TEXTS), self._chance.choice((None, None, *POLICIES))
        # Of those who get QoS 0, what moves up in a window might be overtaken.
        if text is not None and "ORDER" in text and not device.leaves:
            text = None
        user: list[tuple[str, str]] = [] if text is None else [("filter", text)]
        if policy is not None:
            user.append(("policy", policy))
        properties = Properties(user=tuple(user), subscription_ids=(self._chance.randrange(1, 5),))
        wish = Filter(self._chance.choice(FILTERS), 1 if device.leaves else 0), properties
        # Often the same again: then what the policy remembers goes on.
        if device.wish is None or self._chance.random() < 0.5:
            device.wish = wish
        asked, properties = device.wish
        device.send_subscribe(asked, properties=properties)
        device.read()

    def _unsubscribe(self) -> None:
        device = self._device()
        device.unsubscribe(self._chance.choice(FILTERS))
        device.read()

    def _set_policy(self, device: _Device | None = None) -> None:
        """Of the session or of a subscription; sometimes none, sometimes the same again."""
        device = device or self._device()
        text = self._chance.choice((*POLICIES, *POLICIES, *POLICIES, ""))
        user: tuple[tuple[str, str], ...] = ()
        if self._chance.random() < 0.3:
            user = (("subscription", str(self._chance.randrange(1, 5))),)
        device.publish("$rove/policy", text.encode(), 1, properties=Properties(user=user))
        device.read()

    def _crash(self) -> None:
        self.crashes += 1
        self.world.crash()
        self._begin(is_new=False)
        self._monitor = self.world.connect("monitor")
        for device in self.devices:
            if not device.leaves:
                self._set_up(device)
            elif self._chance.random() < 0.5:
                self._come_back(device)

    def _flush(self) -> None:
        move_log(self.world, self._lake)


def _picture(side: int) -> str:
    """An electrocardiogram, more or less."""
    chance = random.Random(side)
    image = Image.effect_mandelbrot((side, side), (-2, -1.5, 1, 1.5), 20).convert("RGB")
    image.putpixel((chance.randrange(side), 0), (255, 0, 0))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=90)
    return base64.b64encode(out.getvalue()).decode()
