"""The four workloads that matching is measured on, as arrays: a million in a few seconds.

Parsing a million texts takes a minute, so the benchmarks of `rove.match` start from bounds in
arrays; `Boxes.text` says what a row means in the language, for whoever wants to check. One
seed gives one workload: places, subscriptions and publications are drawn from three streams,
so the publications are the same however many subscriptions there are.

- W1, air quality: a box around one of 2,000 Zipf-popular places (1 % ask for none) and a
  threshold, at a quantile from 0.5 to 0.999, on one of three pollutants (20 % on two).
- W2, a world: areas of 200 by 200 that travel, half of them around towns.
- W3, a market: equality on one of 2,000 Zipf-popular symbols (95 %) and two to five more
  ranges or equalities on 19 other attributes.
- W4, nested: each subscription shrinks an earlier one, so that they cover each other in chains.

Of a million subscriptions a publication matches about 1,650 / 600 / 2,000 / 3,650, and of
fewer in proportion. Values are rounded to what an instrument would show, so that publications
often stand exactly on a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Name: TypeAlias = Literal["W1", "W2", "W3", "W4"]


class Boxes(msgspec.Struct, frozen=True, eq=False):
    """Subscriptions that are one box each: `low <= value <= high` for every attribute.

    Where both bounds are infinite the attribute is not asked for and may be missing; where one
    is, the attribute must be there.
    """

    attributes: tuple[str, ...]
    lows: Floats
    """One line per attribute, one column per subscription."""
    highs: Floats
    speeds: Floats | None = None
    """What is added to both bounds for each second since time 0, when all were accepted."""

    def __len__(self) -> int:
        return int(self.lows.shape[1])

    def text(self, row: int) -> str:
        """The subscription of a row in the language."""
        speeds = np.zeros(len(self.attributes)) if self.speeds is None else self.speeds[:, row]
        bounds = (self.lows[:, row], self.highs[:, row], speeds)
        columns = zip(self.attributes, *(bound.tolist() for bound in bounds), strict=True)
        predicates = [_predicate(*column) for column in columns]
        return " AND ".join(filter(None, predicates)) or "TRUE"

    def at_rest(self) -> Boxes:
        """The same boxes where they are at time 0, staying there."""
        return Boxes(self.attributes, self.lows, self.highs)


class Events(msgspec.Struct, frozen=True, eq=False):
    """Publications that are one number per attribute, or NaN where it is missing."""

    attributes: tuple[str, ...]
    values: Floats
    """One line per publication, one column per attribute."""

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def publication(self, number: int) -> dict[str, float]:
        """What the publication of that number has; the missing is left out."""
        values = zip(self.attributes, self.values[number].tolist(), strict=True)
        return {name: value for name, value in values if not math.isnan(value)}

    def with_missing(self, share: float, seed: int = 1) -> Events:
        """The same, each value missing with a probability of `share`."""
        missing = _stream(seed, _MISSING).random(self.values.shape) < share
        return Events(self.attributes, np.where(missing, np.nan, self.values))


def workload(name: Name, subscriptions: int, events: int, seed: int = 1) -> tuple[Boxes, Events]:
    """So many subscriptions and publications of one workload."""
    streams = _Streams(*(_stream(seed, part) for part in range(3)))
    return _WORKLOADS[name](subscriptions, events, streams)


class _Streams(NamedTuple):
    """Random numbers of one seed, apart for each use."""

    places: np.random.Generator
    subscriptions: np.random.Generator
    events: np.random.Generator


_MISSING: Final = 3
"""The stream that comes after these, for what is missing."""


def _stream(seed: int, part: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([seed, part]))


def _predicate(name: str, low: float, high: float, speed: float) -> str | None:
    if low == -math.inf and high == math.inf:
        return None
    if low == high:
        return f"{name} = {_bound(low, speed)}"
    if high == math.inf:
        return f"{name} >= {_bound(low, speed)}"
    if low == -math.inf:
        return f"{name} <= {_bound(high, speed)}"
    return f"{name} BETWEEN {_bound(low, speed)} AND {_bound(high, speed)}"


def _bound(bound: float, speed: float) -> str:
    if speed == 0:
        return repr(bound)
    return f"{bound!r} {'-' if speed < 0 else '+'} {abs(speed)!r} * t"


def _nothing_asked(attributes: int, subscriptions: int) -> tuple[Floats, Floats]:
    """Bounds that let everything pass, to be narrowed."""
    shape = (attributes, subscriptions)
    return np.full(shape, -np.inf), np.full(shape, np.inf)


def _zipf(random: np.random.Generator, kinds: int, count: int) -> npt.NDArray[np.int64]:
    """So many of `kinds` things, of which the n-th is drawn 1/n as often as the first."""
    popularity = np.cumsum(1.0 / np.arange(1, kinds + 1))
    drawn = random.random(count) * popularity[-1]
    found: npt.NDArray[np.int64] = np.searchsorted(popularity, drawn, side="right")
    return found


# -- W1: air quality ----------------------------------------------------------------------

_POLLUTANTS: Final = {"NO2": 25.0, "PM10": 20.0, "O3": 50.0}
"""The median reading of each."""
_SPREAD: Final = 0.6
"""The sigma of the logarithm of a reading."""
_LAT: Final = (45.74, 45.86)
_LONG: Final = (15.86, 16.12)
_LONG_PER_LAT: Final = 1.4
"""Degrees of longitude that are as far as one of latitude, in Zagreb."""
_POPULAR_PLACES: Final = 2_000


def _air_quality(subscriptions: int, events: int, streams: _Streams) -> tuple[Boxes, Events]:
    random = streams.subscriptions
    attributes = ("lat", "long", *_POLLUTANTS)
    where = np.array(
        [
            streams.places.uniform(*_LAT, _POPULAR_PLACES),
            streams.places.uniform(*_LONG, _POPULAR_PLACES),
        ]
    )
    lows, highs = _nothing_asked(len(attributes), subscriptions)
    centre = where[:, _zipf(random, _POPULAR_PLACES, subscriptions)]
    half = random.uniform(0.001, 0.01, subscriptions)
    anywhere = random.random(subscriptions) < 0.01
    for row, scale in ((0, 1.0), (1, _LONG_PER_LAT)):
        lows[row] = np.where(anywhere, -np.inf, np.round(centre[row] - half * scale, 5))
        highs[row] = np.where(anywhere, np.inf, np.round(centre[row] + half * scale, 5))
    first = random.integers(3, size=subscriptions)
    other = (first + random.integers(1, 3, subscriptions)) % 3
    on_two = random.random(subscriptions) < 0.2
    for number, median in enumerate(_POLLUTANTS.values()):
        asked = (first == number) | (on_two & (other == number))
        lows[2 + number] = np.where(asked, _thresholds(random, median, subscriptions), -np.inf)
    return Boxes(attributes, lows, highs), Events(
        attributes, _readings(streams.events, where, events)
    )


def _thresholds(random: np.random.Generator, median: float, count: int) -> Floats:
    """Readings that are exceeded with a probability between 0.5 and 0.001.

    Even on a logarithmic scale: alarms are set at "one in a hundred", not at "49 in a hundred".
    """
    logs = np.linspace(math.log(0.001), math.log(0.5), 500)
    normal = [NormalDist().inv_cdf(1 - math.exp(log)) for log in logs]
    drawn = np.interp(random.uniform(logs[0], logs[-1], count), logs, normal)
    return np.round(median * np.exp(_SPREAD * drawn), 1)


def _readings(random: np.random.Generator, where: Floats, count: int) -> Floats:
    popular = where[:, _zipf(random, _POPULAR_PLACES, count)]
    is_near = random.random(count) < 0.7
    columns = []
    for centre, ends, sigma in ((popular[0], _LAT, 0.004), (popular[1], _LONG, 0.006)):
        near, anywhere = random.normal(centre, sigma), random.uniform(*ends, count)
        columns.append(np.round(np.where(is_near, near, anywhere), 5))
    columns += [
        np.round(random.lognormal(math.log(median), _SPREAD, count), 1)
        for median in _POLLUTANTS.values()
    ]
    return np.stack(columns, axis=1)


# -- W2: a world --------------------------------------------------------------------------

_WORLD: Final = 10_000.0
_TOWNS: Final = 50
_TOWN_SIGMA: Final = 250.0
_HALF_AREA: Final = 100.0
_SPEED_MAX: Final = 10.0


def _world(subscriptions: int, events: int, streams: _Streams) -> tuple[Boxes, Events]:
    random = streams.subscriptions
    towns = streams.places.uniform(0, _WORLD, (2, _TOWNS))
    centre = _positions(random, towns, subscriptions)
    speed = random.uniform(0, _SPEED_MAX, subscriptions)
    heading = random.uniform(0, 2 * math.pi, subscriptions)
    speeds = np.round(speed * np.stack([np.cos(heading), np.sin(heading)]), 2)
    boxes = Boxes(("x", "y"), centre - _HALF_AREA, centre + _HALF_AREA, speeds)
    values = np.ascontiguousarray(_positions(streams.events, towns, events).T)
    return boxes, Events(("x", "y"), values)


def _positions(random: np.random.Generator, towns: Floats, count: int) -> Floats:
    """Half of them anywhere, half around towns; all within the world."""
    town = towns[:, random.integers(_TOWNS, size=count)]
    in_town = random.random(count) < 0.5
    anywhere = random.uniform(0, _WORLD, (2, count))
    found = np.where(in_town, random.normal(town, _TOWN_SIGMA), anywhere)
    return np.round(np.clip(found, 0, _WORLD), 1)


# -- W3: a market -------------------------------------------------------------------------

_SYMBOLS: Final = 2_000
_CODES: Final = {"exchange": 8, "currency": 5, "sector": 11, "side": 2}
"""Attributes that are one of so many codes."""
_AMOUNTS: Final = (
    *("price", "volume", "bid", "ask", "open", "high", "low", "close", "change", "spread"),
    *("volatility", "turnover", "trades", "yield", "beta"),
)


def _market(subscriptions: int, events: int, streams: _Streams) -> tuple[Boxes, Events]:
    random = streams.subscriptions
    attributes = ("symbol", *_CODES, *_AMOUNTS)
    kinds = [*_CODES.values(), *(None for _ in _AMOUNTS)]
    lows, highs = _nothing_asked(len(attributes), subscriptions)
    has_symbol = random.random(subscriptions) < 0.95
    symbol = _zipf(random, _SYMBOLS, subscriptions)
    lows[0], highs[0] = (
        np.where(has_symbol, symbol, lows[0]),
        np.where(has_symbol, symbol, highs[0]),
    )
    wanted = random.integers(2, 6, subscriptions)
    for row, codes in enumerate(kinds, start=1):
        # So many of those that are left are still to be chosen: each set is as likely as another.
        rows = np.flatnonzero(random.random(subscriptions) * (len(attributes) - row) < wanted)
        wanted[rows] -= 1
        lows[row, rows], highs[row, rows] = _range(random, codes, len(rows))
    columns = [_zipf(streams.events, _SYMBOLS, events).astype(np.float64)]
    columns += [_amounts(streams.events.random(events), codes) for codes in kinds]
    return Boxes(attributes, lows, highs), Events(attributes, np.stack(columns, axis=1))


def _range(random: np.random.Generator, codes: int | None, count: int) -> tuple[Floats, Floats]:
    """One code, or a range that holds a tenth to a half of all values."""
    if codes is not None:
        code = _amounts(random.random(count), codes)
        return code, code
    share = random.uniform(0.1, 0.5, count)
    start = random.random(count) * (1 - share)
    return _amounts(start, None), _amounts(start + share, None)


def _amounts(quantiles: Floats, codes: int | None) -> Floats:
    """The values at those quantiles: codes alike, amounts with a long tail."""
    if codes is not None:
        return np.floor(quantiles * codes)
    return np.round(100 * np.sqrt(quantiles / (1 - quantiles)), 2)


# -- W4: nested ---------------------------------------------------------------------------

_DIMENSIONS: Final = ("a", "b", "c", "d", "e", "f")
_LENGTH: Final = 1_000.0
_GENERATIONS: Final = 10
"""Each doubles the number, so one in 1,024 is covered by no other of its family."""


def _nested(subscriptions: int, events: int, streams: _Streams) -> tuple[Boxes, Events]:
    random = streams.subscriptions
    shape = (len(_DIMENSIONS), subscriptions)
    lows, highs = np.empty(shape), np.empty(shape)
    known = -(-subscriptions // 2**_GENERATIONS)
    everything = np.zeros((len(_DIMENSIONS), known)), np.full((len(_DIMENSIONS), known), _LENGTH)
    share = random.uniform(0.4, 0.94, (len(_DIMENSIONS), known))
    lows[:, :known], highs[:, :known] = _shrunk(random, *everything, share)
    while known < subscriptions:
        number = min(known, subscriptions - known)
        parents = random.permutation(known)[:number]
        share = random.uniform(0.5, 1.0, (len(_DIMENSIONS), number))
        share[random.random(share.shape) < 0.5] = 1.0
        new = slice(known, known + number)
        lows[:, new], highs[:, new] = _shrunk(random, lows[:, parents], highs[:, parents], share)
        known += number
    values = np.round(streams.events.uniform(0, _LENGTH, (events, len(_DIMENSIONS))), 2)
    return Boxes(_DIMENSIONS, lows, highs), Events(_DIMENSIONS, values)


def _shrunk(
    random: np.random.Generator, lows: Floats, highs: Floats, share: Floats
) -> tuple[Floats, Floats]:
    """Boxes of `share` of the widths: in each attribute one of the two bounds moves inwards.

    Would both move, hardly anything would be left near the edges, and a few publications in the
    middle would have nearly all the matches.
    """
    removed = (highs - lows) * (1 - share)
    from_below = random.random(lows.shape) < 0.5
    shrunk_lows: Floats = np.where(from_below, lows + removed, lows)
    shrunk_highs: Floats = np.where(from_below, highs, highs - removed)
    return shrunk_lows.round(2), shrunk_highs.round(2)


_Generate: TypeAlias = Callable[[int, int, _Streams], tuple[Boxes, Events]]
_WORKLOADS: Final[dict[str, _Generate]] = {
    "W1": _air_quality,
    "W2": _world,
    "W3": _market,
    "W4": _nested,
}
