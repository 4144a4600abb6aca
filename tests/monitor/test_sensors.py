"""Readings as means of squares."""

from rove.monitor.sensors import KEPT_S, SensorMap
from rove.world.feeds.audiences import FeedPublication
from rove.world.map.maps import Map

MAP = Map("field", 100.0, 50.0)


def feed(name: str, at: float, **attributes: object) -> FeedPublication:
    return FeedPublication(f"air/{name}", attributes, at)


def test_a_square_has_the_mean_of_who_is_in_it_now() -> None:
    sensors = SensorMap(MAP)
    assert sensors.cell_m == 5.0
    sensors.take(
        [
            feed("a", 1.0, x=1.0, y=1.0, NO2=10.0, place="gate", is_ok=True),
            feed("b", 2.0, x=4.0, y=2.0, NO2=20.0),
            feed("c", 2.0, x=50.0, y=20.0, NO2=5, CO=0.1),
            feed("no place", 2.0, NO2=90.0),
        ]
    )
    view = sensors.view("NO2", 3.0)
    assert view["attributes"] == ["CO", "NO2"]
    assert view["unit"] == "µg/m³"
    assert view["cells"] == [[0, 0, 5, 5, 2, 15.0, 1.0], [50, 20, 55, 25, 1, 5.0, 1.0]]
    assert (view["min"], view["max"]) == (5.0, 15.0)
    # Who moves is somewhere else with the next reading.
    sensors.take([feed("a", 4.0, x=51.0, y=21.0, NO2=15.0)])
    assert sensors.view("NO2", 4.0)["cells"] == [
        [0, 0, 5, 5, 1, 20.0, 2.0],
        [50, 20, 55, 25, 2, 10.0, 0.0],
    ]


def test_what_is_old_is_forgotten_and_another_attribute_is_taken() -> None:
    sensors = SensorMap(MAP)
    sensors.take([feed("a", 0.0, x=1.0, y=1.0, speed=3.0), feed("b", 0.0, x=1, y=1, NO2=3.0)])
    assert sensors.view("", 1.0)["attribute"] == "NO2"
    assert sensors.view("speed", 1.0)["attribute"] == "speed"
    view = sensors.view("NO2", KEPT_S + 1.0)
    assert (view["attribute"], view["cells"], view["min"]) == ("", [], None)
