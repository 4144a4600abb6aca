"""Sources of automatic variables: the battery of this machine, and simulated devices.

A source is any callable that returns a mapping (`rove.client.reports`). `Battery` is the real one,
if Linux reports any. The others are for tests and demonstrations, of users' programs and of ours: a
battery that empties by an energy model, a link whose rate varies, and a device that has both. Their
clock is an argument and their randomness comes from a seed, so their behaviour can be repeated.

A simulated device can replace a real one in a client: each notification is passed to
`SimulatedDevice.received`, and those that its link or its battery would lose are lost. Shaping the
traffic of the machine instead needs rights, and its delays would be those of the machine. A message
costs some microseconds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

POWER_SUPPLIES: Final = Path("/sys/class/power_supply")
Clock = Callable[[], float]
"""A monotonic clock, in seconds."""


# -- the real one --------------------------------------------------------------------------------


class Battery:
    """A source: `battery`, between 0 and 1, and whether it is `charging`; nothing without one.

    Several batteries count as one, by the mean of their levels. `display` is the width of the
    display in pixels, if it is given: there is no portable way to find it out.
    """

    def __init__(self, *, display: int | None = None, folder: Path = POWER_SUPPLIES) -> None:
        self._display = {} if display is None else {"display": display}
        self._folder = folder

    def __call__(self) -> dict[str, Any]:
        levels: list[float] = []
        charging = False
        for supply in sorted(self._folder.glob("*")):
            # A mouse or a headset has a battery too, of scope Device.
            if _read(supply / "type") != "Battery" or _read(supply / "scope") == "Device":
                continue
            capacity = _read(supply / "capacity")
            if capacity.isdecimal():
                levels.append(min(1.0, int(capacity) / 100))
                charging = charging or _read(supply / "status") in ("Charging", "Full")
        if not levels:
            return dict(self._display)
        return {"battery": sum(levels) / len(levels), "charging": charging, **self._display}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):  # it was removed, or has no such value
        return ""


# -- simulated ones ------------------------------------------------------------------------------


class EnergyModel(msgspec.Struct, frozen=True):
    """The power of an idle device, and the energy per received byte and message."""

    idle_w: float
    joules_per_byte: float = 0.0
    joules_per_message: float = 0.0

    def joules(self, size_bytes: int) -> float:
        """The energy to receive a message."""
        return self.joules_per_message + self.joules_per_byte * size_bytes


class SimulatedBattery:
    """A battery that empties by an energy model. Once empty it stays so until it is charged."""

    def __init__(
        self, capacity_j: float, model: EnergyModel, clock: Clock, level: float = 1.0
    ) -> None:
        if not capacity_j > 0 or not 0 <= level <= 1:
            raise ValueError("a battery has a capacity above 0 and a level between 0 and 1")
        self.capacity_j = capacity_j
        self.model = model
        self._clock = clock
        self._charge_w = 0.0
        self._at = clock()
        self._energy_j = capacity_j * level
        self._emptied_at = None if self._energy_j else self._at

    @property
    def energy_j(self) -> float:
        """The energy that is left."""
        self._advance()
        return self._energy_j

    @property
    def level(self) -> float:
        """The share of the capacity that is left, between 0 and 1."""
        return self.energy_j / self.capacity_j

    @property
    def is_empty(self) -> bool:
        return self.energy_j == 0

    @property
    def emptied_at(self) -> float | None:
        """When it became empty, by the clock; None while it is not."""
        self._advance()
        return self._emptied_at

    @property
    def is_charging(self) -> bool:
        return self._charge_w > 0

    def received(self, size_bytes: int) -> bool:
        """Receive a message. False if the battery is empty and it is lost."""
        self._advance()
        if not self._energy_j:
            return False
        self._energy_j = max(0.0, self._energy_j - self.model.joules(size_bytes))
        if not self._energy_j:
            self._emptied_at = self._at
        return True

    def charge(self, power_w: float) -> None:
        """Charge with this power from now on; 0 is unplugged."""
        if power_w < 0:
            raise ValueError(f"a charger gives 0 W or more, not {power_w} W")
        self._advance()
        self._charge_w = power_w

    def _advance(self) -> None:
        """Account for idling and charging until now; both are linear, so it need not be done
        often."""
        now = max(self._at, self._clock())
        since_s, self._at = now - self._at, now
        net_w = self._charge_w - self.model.idle_w
        before_j = self._energy_j
        self._energy_j = min(self.capacity_j, max(0.0, before_j + net_w * since_s))
        if self._energy_j:
            self._emptied_at = None
        elif self._emptied_at is None:
            self._emptied_at = now - since_s + before_j / -net_w


class SimulatedNetwork:
    """A link whose rate varies: a random rate every `step_s`, uniform on a logarithmic scale.

    Messages queue. One that would wait longer than `wait_s_max` is lost, as in the buffer of an
    access point. If `low` equals `high`, the rate is constant.
    """

    def __init__(
        self,
        clock: Clock,
        seed: int = 0,
        *,
        low_bits_per_s: float = 300_000,
        high_bits_per_s: float = 3_000_000,
        step_s: float = 10.0,
        wait_s_max: float = 2.0,
    ) -> None:
        if not 0 < low_bits_per_s <= high_bits_per_s or not step_s > 0:
            raise ValueError("a link's rates are above 0, the low one first; so is its step")
        self.sent = self.received = 0
        self._clock = clock
        self._seed = seed
        self._low, self._ratio = low_bits_per_s, high_bits_per_s / low_bits_per_s
        self._step_s = step_s
        self._wait_s_max = wait_s_max
        self._free_at = -math.inf

    @property
    def bits_per_s(self) -> float:
        """The present rate."""
        return self.bits_per_s_at(self._clock())

    def bits_per_s_at(self, moment: float) -> float:
        return self._rate(math.floor(moment / self._step_s))

    def arrival(self, size_bytes: int) -> float | None:
        """When a message that is sent now arrives; None if it is lost."""
        now = self._clock()
        begins = max(now, self._free_at)
        self.sent += 1
        if begins - now > self._wait_s_max:
            return None
        self.received += 1
        self._free_at = self._end(begins, size_bytes * 8)
        return self._free_at

    def _end(self, moment: float, bits: float) -> float:
        """When a number of bits that begin at a moment have passed."""
        step = math.floor(moment / self._step_s)
        while True:
            rate = self._rate(step)
            passing = rate * ((step + 1) * self._step_s - moment)
            if passing >= bits:
                return moment + bits / rate
            bits -= passing
            step += 1
            moment = step * self._step_s

    def _rate(self, step: int) -> float:
        draw = random.Random(f"{self._seed} {step}").random()
        return self._low * math.pow(self._ratio, draw)


class SimulatedDevice:
    """A source: the state of a battery, a display, and given variables.

    `network` is not reported: the broker computes it from what has arrived. As the source of a
    client it decides which notifications arrive: the program does not get those that the link or
    the empty battery loses.
    """

    def __init__(
        self,
        battery: SimulatedBattery | None = None,
        *,
        network: SimulatedNetwork | None = None,
        display: int | None = None,
        **variables: Any,
    ) -> None:
        self.battery = battery
        self.network = network
        self.display = display
        self.variables = variables
        self.lost = 0
        """Lost messages."""

    def __call__(self) -> dict[str, Any]:
        found = dict(self.variables)
        if self.battery is not None:
            found |= {"battery": self.battery.level, "charging": self.battery.is_charging}
        if self.display is not None:
            found["display"] = self.display
        return found

    def received(self, size_bytes: int) -> bool:
        """A message was sent to it; False if it is lost."""
        came = self.network is None or self.network.arrival(size_bytes) is not None
        if came and self.battery is not None:
            came = self.battery.received(size_bytes)
        self.lost += not came
        return came
