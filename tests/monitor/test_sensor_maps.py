"""Cells of the pipeline on the map of a world."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rove.monitor.sensor_maps import KEPT_S, SensorMap, has_sensors, heat
from rove.world.feeds.air import METRES_PER_DEGREE, ZAGREB
from rove.world.feeds.audiences import FeedPublication
from rove.world.map.maps import Map


def degrees(x: float, y: float) -> dict[str, float]:
    return {
        "lat": ZAGREB.lat + y / METRES_PER_DEGREE,
        "long": ZAGREB.long + x / ZAGREB.long_metres,
    }


def row(attribute: str, x: float, hour: int, mean: float) -> dict[str, object]:
    corners = [degrees(x, 0), degrees(x + 100, 0), degrees(x + 100, 100), degrees(x, 100)]
    return {
        "attribute": attribute,
        "cell": f"cell{x}",
        "corners": corners,
        "start": datetime(2026, 11, 16, hour, tzinfo=UTC),
        "count": 4,
        "mean": mean,
        "last_at": datetime(2026, 11, 16, hour, 30, tzinfo=UTC),
    }


def write(out: Path, day: str, rows: list[dict[str, object]], cell_m: int = 100) -> None:
    folder = out / "sensors" / f"cell_m={cell_m}" / "interval=1h" / "channel=air" / f"day={day}"
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "sensors.parquet")


def test_the_newest_reading_of_each_cell_on_the_map(tmp_path: Path) -> None:
    assert not has_sensors(tmp_path)
    assert heat(tmp_path, "NO2", 500, 500) is None
    write(tmp_path, "2026-11-15", [row("NO2", 0.0, 1, 99.0)])
    write(
        tmp_path,
        "2026-11-16",
        [
            row("NO2", 0.0, 5, 10.0),
            row("NO2", 0.0, 7, 30.0),
            row("NO2", 200.0, 6, 20.0),
            row("NO2", 5_000.0, 6, 70.0),
            row("CO", 0.0, 6, 0.5),
        ],
    )
    write(tmp_path, "2026-11-16", [row("NO2", 0.0, 5, 77.0)], cell_m=1_000)
    assert has_sensors(tmp_path)
    found = heat(tmp_path, "NO2", 500, 500)
    assert found is not None
    assert (found["cell_m"], found["attributes"], found["unit"]) == (100, ["CO", "NO2"], "µg/m³")
    cells = sorted(found["cells"])
    assert [cell[4:6] for cell in cells] == [[4, 30.0], [4, 20.0]]
    assert cells[1][:4] == pytest.approx([200, 0, 300, 100], abs=0.01)
    assert (found["min"], found["max"]) == (20.0, 30.0)
    other = heat(tmp_path, "PM10", 500, 500)
    assert other is not None
    assert other["attribute"] == "NO2"
    assert heat(tmp_path, "NO2", 0.0, 0.0) is None, "beside the map"


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
