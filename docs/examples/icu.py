"""A ward of intensive care with six doctors, over a broker: what each receives as batteries fall.

    python docs/examples/icu.py                          starts a broker for itself
    python docs/examples/icu.py mqtt://127.0.0.1:1883    uses one that runs

Monitors of eight patients publish the pulse twice a second and an electrocardiogram of 100 KB every
two. Three doctors have the policy of `icu.policy`, three have none; the devices of both are alike:
one with a good battery and network, one whose battery empties within the half minute, one in a bad
spot. All of it is simulated but the broker, and takes 40 s; `docs/policies.md` tells what is seen.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import rove
from rove.client import Client, Notification
from rove.client.devices import EnergyModel, SimulatedBattery, SimulatedDevice, SimulatedNetwork
from rove.testing.broker_processes import rove as broker
from rove.world.feeds.hospital import HospitalWard

POLICY = (Path(__file__).parent / "icu.policy").read_text(encoding="utf-8")
PATIENTS, SECONDS, TOLD_S, REPORT_S = 8, 36.0, 12.0, 2.0
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()[:10]


class Doctor:
    """One doctor with a device: how it is, and what has come."""

    def __init__(self, name: str, joules: float, bits_per_s: float, policy: str | None) -> None:
        # 0.1 W to be on, 1 mJ for a message, and a watt while receiving at 2 Mb/s.
        model = EnergyModel(idle_w=0.1, joules_per_byte=4e-6, joules_per_message=1e-3)
        self.name, self.policy = name, policy
        self.device = SimulatedDevice(
            SimulatedBattery(joules, model, time.monotonic),
            network=SimulatedNetwork(
                time.monotonic, low_bits_per_s=bits_per_s, high_bits_per_s=bits_per_s
            ),
            display=1280,
        )
        self.state: Any = {}
        self.messages = self.size_bytes = self.pictures = self.compressed = 0

    async def begin(self, client: Client, patients: list[int]) -> None:
        """Say who one's patients are, how the device is, and what is to be sent."""
        await client.me.set(patients=patients)
        await client.report(self.device, REPORT_S)
        self.state = await client.variables()
        own = " OR ".join(f"patient = {patient}" for patient in patients)
        text = None if self.policy else f"{own} OR pulse < 50 OR pulse > 120"
        subscription = await client.subscribe("ward/#", text, policy=self.policy)
        subscription.listen(self.take)

    def take(self, notification: Notification[Any]) -> None:
        """Something has got through to the device."""
        self.messages += 1
        self.size_bytes += len(notification.payload)
        picture = notification.value.get("ecg")
        if picture is not None:
            self.pictures += 1
            self.compressed += not picture.startswith(PNG)

    def row(self) -> str:
        """As a line of the table."""
        assert self.device.battery is not None
        share = f"{self.compressed / self.pictures:.0%}" if self.pictures else "–"
        return (
            f"{self.name:<24}{self.device.battery.level:>7.0%}{self.state['network']:>9.0%}"
            f"{self.messages:>10}{self.size_bytes / 1e3:>11,.0f}{self.pictures:>10}{share:>12}"
            f"{self.device.lost:>6}"
        )


DEVICES = {"all well": (200.0, 20e6), "battery empties": (7.0, 20e6), "bad spot": (200.0, 400e3)}
HEAD = "doctor                  battery  network  messages  kilobytes  pictures  compressed  lost"


async def play(url: str) -> list[Doctor]:
    """The ward, for as long as it takes; a table now and then."""
    doctors = [
        Doctor(f"{name}, {'policy' if policy else 'none'}", *device, policy)
        for name, device in DEVICES.items()
        for policy in (POLICY, None)
    ]
    async with asyncio.TaskGroup() as group, rove.connect(url) as monitor:
        over = asyncio.Event()
        ready = [asyncio.Event() for _ in doctors]
        for number, doctor in enumerate(doctors):
            group.create_task(_stay(url, doctor, number // 2, ready[number], over))
        for each in ready:
            await each.wait()
        ward = HospitalWard(
            np.random.default_rng(4), patients=PATIENTS, every_s=0.5, image_every_s=2.0
        )
        began, told_at = time.monotonic(), TOLD_S
        while (at := time.monotonic() - began) < SECONDS:
            for feed in ward.feeds(at):
                await monitor.post(feed.topic, feed.payload)
            await asyncio.sleep(0.1)
            if told_at <= at < SECONDS - 1:
                tell(doctors, told_at)
                told_at += TOLD_S
        tell(doctors, SECONDS)
        over.set()
    return doctors


def tell(doctors: list[Doctor], at: float) -> None:
    """Print how all of them are."""
    lines = "\n".join(doctor.row() for doctor in doctors)
    print(f"after {at:.0f} s\n{HEAD}\n{lines}\n", flush=True)


async def _stay(
    url: str, doctor: Doctor, number: int, ready: asyncio.Event, over: asyncio.Event
) -> None:
    """One doctor's client, from beginning to end."""
    async with rove.connect(url) as client:
        await doctor.begin(client, [2 * number, 2 * number + 1])
        ready.set()
        await over.wait()


def main(url: str | None = None) -> list[Doctor]:
    """Over the broker at a URL, or over one of its own."""
    if url is not None:
        return asyncio.run(play(url))
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder)) as running:
        return asyncio.run(play(f"mqtt://127.0.0.1:{running.port}"))


if __name__ == "__main__":
    main(*sys.argv[1:2])
