"""What `rove bench elastic` subscribes to and publishes, and what is due to whom because of it.

Two works. `gas` is CUPUS's (`rove.testing.workloads.GasReadings`), which an index serves well: time
goes into telling subscribers of thousands of hits. `sums` is one that an index cannot serve:
every subscription compares a sum of two attributes, so every publication is tried against each, a
microsecond or two a time, and hardly any is met. There the matching is what takes the time. Its
first subscription is met by all, so that every publication has a delay.

A session is told of a publication once, with the identifiers of all its subscriptions that were
met. How many bytes these take is worked out here by NumPy, from the values alone and without
the matcher, and compared with each notification: one hit too few or too many is seen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rove.mqtt.encoder import publish_parts
from rove.mqtt.packets import Publish
from rove.testing.workloads import AirQuality, GasInterest, GasReadings

TOPIC: Final = "air/zurich"
FILTER: Final = "air/#"
Name: TypeAlias = Literal["gas", "sums"]
Bytes: TypeAlias = NDArray[np.int64]

_DRAWN: Final = 100_003
"""So many publications are drawn; then they come again."""
FIRST_NUMBER: Final = 1_000_000_000
"""Numbers have ten digits, so that they stand in one place."""
NUMBER_DIGITS: Final = 10
PUBLISHER_NUMBERS: Final = 100_000_000
"""So many numbers are each publisher's own."""
NUMBER_AT: Final = len('{"n":')
_SUMS_READINGS: Final = 4_000
_SUMS_LIMIT: Final = (190.0, 380.0)
"""What a sum has to exceed: nine of ten publications meet nobody, of a thousand."""


class Work(Protocol):
    """Subscriptions, publications, and who is due what."""

    @property
    def texts(self) -> Sequence[str]: ...

    @property
    def readings(self) -> Sequence[Mapping[str, Any]]: ...

    def met(self, positions: NDArray[np.int64], weights: Bytes) -> Bytes:
        """For each reading the weights, added up, of the subscriptions there that it meets."""
        ...


def work_of(name: Name, subscriptions: int, seed: int = 6) -> Work:
    """One of the works, with so many subscriptions."""
    return _Gas(subscriptions, seed) if name == "gas" else _Sums(subscriptions, seed)


class _Gas:
    def __init__(self, subscriptions: int, seed: int) -> None:
        workload = GasReadings(seed)
        self.readings = workload.readings
        self._interests = workload.interests(subscriptions)
        self.texts = [interest.text for interest in self._interests]
        self._values = {
            name: np.array([reading.get(name, np.nan) for reading in self.readings])
            for name in (*GasReadings.GASES, "timestamp")
        }

    def met(self, positions: NDArray[np.int64], weights: Bytes) -> Bytes:
        groups: dict[tuple[str, str], list[tuple[GasInterest, int]]] = {}
        for position, weight in zip(positions.tolist(), weights.tolist(), strict=True):
            one = self._interests[position]
            kind = one.operator if one.until is None else "window"
            groups.setdefault((one.attribute, kind), []).append((one, weight))
        total = np.zeros(len(self.readings), np.int64)
        for (attribute, kind), group in groups.items():
            values = self._values[attribute]
            has_value = ~np.isnan(values)
            total[has_value] += _weighed(kind, group, values[has_value])
        return total


def _weighed(
    kind: str, group: Sequence[tuple[GasInterest, int]], values: NDArray[np.float64]
) -> Bytes:
    """For each value, the weights of those in the group that it meets."""
    bounds = np.array([one.value for one, _ in group], np.float64)
    order = np.argsort(bounds, kind="stable")
    bounds = bounds[order]
    weights = np.array([weight for _, weight in group], np.int64)[order]
    up_to = np.concatenate(([0], np.cumsum(weights)))
    below = up_to[np.searchsorted(bounds, values, "left")]
    not_above = up_to[np.searchsorted(bounds, values, "right")]
    if kind == "window":
        ends = np.array([one.until for one, _ in group], np.float64)[order]
        last = np.searchsorted(bounds, values, "right") - 1
        return np.where((last >= 0) & (values < ends[last]), weights[last], 0)
    whole = up_to[-1]
    found: dict[str, Bytes] = {
        "=": not_above - below,
        "!=": whole - (not_above - below),
        "<": whole - not_above,
        "<=": whole - below,
        ">": below,
        ">=": not_above,
    }
    return found[kind]


class _Sums:
    def __init__(self, subscriptions: int, seed: int) -> None:
        draw = Random(seed)
        self.readings = AirQuality(seed).publications(_SUMS_READINGS)
        self._factors = [round(draw.uniform(0.5, 1.5), 3) for _ in range(subscriptions)]
        self._limits = [round(draw.uniform(*_SUMS_LIMIT), 1) for _ in range(subscriptions)]
        self._limits[0] = 0.0
        self.texts = [
            f"NO2 + {factor} * O3 > {limit}"
            for factor, limit in zip(self._factors, self._limits, strict=True)
        ]

    def met(self, positions: NDArray[np.int64], weights: Bytes) -> Bytes:
        no2, o3 = (np.array([one[name] for one in self.readings]) for name in ("NO2", "O3"))
        total = np.zeros(len(self.readings), np.int64)
        for position, weight in zip(positions.tolist(), weights.tolist(), strict=True):
            is_met = no2 + self._factors[position] * o3 > self._limits[position]
            total[is_met] += weight
        return total


# --- what is due ------------------------------------------------------------------------------


def due_bytes(work: Work, subscriptions: int, session: int, sessions: int) -> Bytes:
    """For each reading, the bytes of the identifiers that one of the sessions is sent with it.

    Of the first so many subscriptions each session has every so many-th, numbered from 1.
    """
    positions = np.arange(session, subscriptions, sessions)
    identifiers = np.arange(1, len(positions) + 1)
    weights = 2 + (identifiers > 0x7F) + (identifiers > 0x3FFF) + (identifiers > 0x1F_FFFF)
    return work.met(positions, weights.astype(np.int64))


# --- publications -----------------------------------------------------------------------------


class Drawn:
    """Publications: readings that are drawn again and again, each with its number in front."""

    def __init__(self, work: Work, qos: int, publisher: int = 0, seed: int = 4) -> None:
        self.qos = qos
        self.first = publisher * PUBLISHER_NUMBERS
        self._reading_of = Random(seed).choices(range(len(work.readings)), k=_DRAWN)
        self._parts = [_cut(reading, qos) for reading in work.readings]

    def reading(self, number: int) -> int:
        """Which reading the publication is that bears a number, whoever sent it."""
        return self._reading_of[number % _DRAWN]

    def packet(self, number: int) -> bytes:
        """The publication of that number, the first being 0, as it is sent."""
        packet_id = (number % 65_535 + 1).to_bytes(2, "big") if self.qos else b""
        number += self.first
        head, before, after = self._parts[self.reading(number)]
        return b"".join((head, packet_id, before, b"%d" % (FIRST_NUMBER + number), after))


def _cut(reading: Mapping[str, Any], qos: int) -> tuple[bytes, bytes, bytes]:
    """A PUBLISH without its packet identifier and its number."""
    payload = json.dumps({"n": FIRST_NUMBER, **reading}, separators=(",", ":")).encode()
    head, tail = publish_parts(Publish(TOPIC, payload, qos))
    at = len(tail) - len(payload) + NUMBER_AT
    return head, tail[:at], tail[at + NUMBER_DIGITS :]
