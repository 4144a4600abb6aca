"""The field of pollution, and sensors in it."""

import numpy as np
import pytest

from rove.world.feeds.air import ZAGREB, AirField, AirSensors
from rove.world.feeds.audiences import Audience, FeedPublication
from rove.world.map.maps import Map
from rove.world.runs.state import Entities, EntityKind
from tests.world.traffic.test_roads import grid

WIDE = 500.0


def city() -> Map:
    return Map("small", WIDE, WIDE, roads=grid(4))


def air(seed: int = 1, begins_h: float = 8.0) -> AirField:
    return AirField(city(), np.random.Generator(np.random.PCG64(seed)), begins_h=begins_h)


def line(count: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    return np.linspace(0.0, WIDE, count), np.linspace(100.0, 400.0, count)


def test_the_air_is_smooth_in_space_and_time() -> None:
    field = air()
    x, y = line()
    for values in field.read(x, y, 100.0):
        spread = max(values.max() - values.min(), 1.0)
        assert np.abs(np.diff(values)).max() < 0.02 * spread
    for at in np.arange(0.0, 86_400.0, 150.0):
        now, next_ = (np.array(field.read(x[::40], y[::40], at + more)) for more in (0.0, 1.0))
        steps = np.abs(next_ - now).max(axis=1)
        assert (steps < [1.0, 0.02, 1.0, 0.05, 0.2]).all()


def test_values_are_those_of_a_city() -> None:
    field = air()
    x, y = line()
    for at in np.arange(0.0, 86_400.0, 3600.0):
        read = field.read(x, y, at)
        assert (read.no2 > 5).all()
        assert (read.no2 < 300).all()
        assert (read.co > 0).all()
        assert (read.pm10 > 5).all()
        assert ((read.temperature > -10) & (read.temperature < 45)).all()
        assert ((read.humidity >= 5) & (read.humidity <= 100)).all()


def test_roads_stink_at_rush_hour() -> None:
    field = air(begins_h=0.0)
    crossing, yard = np.array([160.0]), np.array([215.0])  # of a grid with roads at 50, 160, …
    hour = 3600.0
    morning, night = (field.read(crossing, crossing, h * hour).no2[0] for h in (8.0, 3.0))
    behind = field.read(yard, yard, 8.0 * hour).no2[0]
    assert morning > 1.5 * night
    assert morning > 1.2 * behind


def test_nights_are_colder_and_damper() -> None:
    field = air(begins_h=0.0)
    x, y = line()
    day, night = field.read(x, y, 15 * 3600.0), field.read(x, y, 3 * 3600.0)
    assert day.temperature.mean() > night.temperature.mean() + 8.0
    assert day.humidity.mean() < night.humidity.mean()


def test_the_wind_carries_plumes() -> None:
    still = Map("still", WIDE, WIDE)
    field = AirField(still, np.random.Generator(np.random.PCG64(5)))
    x, y = (
        axis.ravel() for axis in np.meshgrid(np.linspace(0, WIDE, 40), np.linspace(0, WIDE, 40))
    )
    before = field.read(x, y, 0.0).pm10
    later = field.read(x + field._wind[0] * 60.0, y + field._wind[1] * 60.0, 60.0).pm10
    assert np.abs(later - field.read(x, y, 60.0).pm10).max() > 1.0
    assert np.abs(later - before).max() < 0.35 * np.abs(field.read(x, y, 60.0).pm10 - before).max()


def sensors(seed: int = 1, count: int = 10) -> tuple[AirSensors, Entities]:
    entities = Entities()
    rng = np.random.Generator(np.random.PCG64(seed))
    numbers = entities.add(
        EntityKind.SENSOR,
        [f"sensor{number}" for number in range(count)],
        rng.uniform(0, WIDE, count),
        rng.uniform(0, WIDE, count),
    )
    return AirSensors(air(), entities, numbers, rng, every_s=2.0), entities


def run(of: AirSensors, seconds: float) -> list[FeedPublication]:
    return [feed for tick in range(1, int(seconds * 10) + 1) for feed in of.feeds(tick * 0.1)]


def test_sensors_publish_what_the_air_is_like_where_they_are() -> None:
    some, entities = sensors()
    feeds = run(some, 20.0)
    assert len(feeds) == 100
    assert list(feeds[0].attributes) == [
        "NO2", "CO", "PM10", "temperature", "humidity", "battery", "x", "y", "lat", "long",
    ]  # fmt: skip
    for feed in feeds:
        number = entities.number(feed.topic.removeprefix("air/"))
        here = feed.attributes
        assert here["x"] == pytest.approx(entities.x[number], abs=0.01)
        truth = air().read(entities.x[[number]], entities.y[[number]], feed.at)
        assert here["NO2"] == pytest.approx(truth.no2[0], rel=0.03)
        assert here["temperature"] == pytest.approx(truth.temperature[0], rel=0.03)


def test_carried_sensors_read_the_air_elsewhere() -> None:
    some, entities = sensors(count=1)
    entities.x[0], entities.y[0] = 160.0, 160.0
    (crossing,) = some.feeds(2.0)
    entities.x[0], entities.y[0] = 215.0, 215.0
    (yard,) = some.feeds(4.0)
    assert (yard.attributes["x"], yard.attributes["y"]) == (215.0, 215.0)
    assert yard.attributes["NO2"] != crossing.attributes["NO2"]


def test_degrees_are_those_of_the_place() -> None:
    lat, long = ZAGREB.degrees(np.array([0.0, 1000.0]), np.array([0.0, 1000.0]))
    assert (lat[0], long[0]) == (45.81, 15.96)
    audience = Audience()
    audience.subscribe("#", f"distance(lat, long, {lat[0]}, {long[0]}) BETWEEN 1413 AND 1415.5")
    feed = FeedPublication("air/a", {"lat": float(lat[1]), "long": float(long[1])}, 0.0)
    assert len(audience.publish([feed], 0.0)) == 1


def test_batteries_run_down_and_are_replaced() -> None:
    some, _ = sensors(count=1)
    some._battery[0] = 5.05
    left = [feed.attributes["battery"] for feed in run(some, 10.0)]
    assert left == [5.0, 5.0, 100.0, 100.0, 100.0]
    some._battery[0] = 50.0
    assert [feed.attributes["battery"] for feed in run(some, 22.0)][-1] == 49.9


def test_one_seed_is_one_air() -> None:
    assert run(sensors(3)[0], 5.0) == run(sensors(3)[0], 5.0)
    assert run(sensors(3)[0], 5.0) != run(sensors(4)[0], 5.0)


def test_a_city_without_roads_has_air_too() -> None:
    field = AirField(Map("empty", 100.0, 80.0), np.random.Generator(np.random.PCG64(1)))
    read = field.read(np.array([0.0, 100.0]), np.array([0.0, 80.0]), 0.0)
    assert np.isfinite(read).all()
    assert field.read(np.empty(0), np.empty(0), 0.0).no2.shape == (0,)
