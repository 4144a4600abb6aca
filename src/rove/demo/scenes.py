"""The demonstration: four subscriptions, one of each kind, on a small city.

Sensors ride through the middle of Zagreb and publish what they measure. Four subscribers
listen: one to bad air in a part of town (Boolean), one through a window that travels with a
tram (evolving), one around a pedestrian who tells where she is (following), and one for the
three nearest readings to home within ten seconds (ranked). Everything is seeded and in
virtual time, so it is the same on every machine, and as fast as one wants to watch it.

All of it goes through a broker: `scenes` has it played on a `ScriptedBroker`; `drawn` turns one
scene into what a terminal shows. The pictures in the README are made by the same two functions.
When asked, the pipeline runs beside it, and the scenes tell what Spark has found in the lake so
far."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME
from rich.text import Text

from rove.demo.companions import SparkBeside
from rove.demo.scripted_broker import ScriptedBroker
from rove.lang.replay import ReplayedNotification
from rove.testing.workloads import City, Reading

COLUMNS: Final = 58
ROWS: Final = 17
WIDTH: Final = 118
HEIGHT: Final = ROWS + 2 + 6
_RECENT_MAX: Final = 8
_HOME: Final = (45.8240, 15.9870)
_TRAM_START_LONG: Final = 15.9420
_TRAM_PER_S: Final = 0.0012


class DemoSubscriber(msgspec.Struct, frozen=True):
    """Who listens, how it is drawn, and the text it subscribed with."""

    name: str
    kind: str
    colour: str
    text: str


SUBSCRIBERS: Final = (
    DemoSubscriber(
        "smog",
        "Boolean",
        "red",
        "NO2 > 40 AND lat BETWEEN 45.81 AND 45.82 AND long BETWEEN 15.96 AND 15.98",
    ),
    DemoSubscriber(
        "tram",
        "evolving",
        "blue",
        f"lat BETWEEN 45.804 AND 45.808 AND long BETWEEN {_TRAM_START_LONG} + {_TRAM_PER_S} * t"
        f" AND {_TRAM_START_LONG + 0.008:g} + {_TRAM_PER_S} * t",
    ),
    DemoSubscriber(
        "walk",
        "following",
        "magenta",
        "lat BETWEEN me.lat - 0.002 AND me.lat + 0.002"
        " AND long BETWEEN me.long - 0.004 AND me.long + 0.004",
    ),
    DemoSubscriber(
        "home",
        "ranked",
        "green",
        f"SELECT sensor, NO2 WHERE NO2 > 5 ORDER BY distance(lat, long, {_HOME[0]}, {_HOME[1]})"
        " LIMIT 3 WITHIN 10 SECONDS",
    ),
)


class MapBox(msgspec.Struct, frozen=True):
    """A rectangle on the map."""

    lats: tuple[float, float]
    longs: tuple[float, float]
    colour: str


class Scene(msgspec.Struct, frozen=True):
    """What is to be seen at one moment."""

    at: float
    sensors: dict[str, tuple[float, float, float]]
    """Latitude, longitude and NO2 of each sensor's last publication."""
    boxes: tuple[MapBox, ...]
    walker: tuple[float, float]
    published: int
    received: dict[str, int]
    delivered: tuple[ReplayedNotification, ...]
    """All notifications since the scene before, the oldest first."""
    recent: tuple[ReplayedNotification, ...]
    """The latest notifications, the newest first."""
    found: dict[str, int] | None = None
    """Notifications that Spark has found in the lake, by subscriber; None if it does not run."""
    trouble: str = ""
    """Why it does not."""
    is_installing: bool = False
    """Whether Spark is still being installed."""


def scenes(
    seconds: int, *, with_spark: bool = False, spark_after: Path | None = None
) -> Iterator[Scene]:
    """One scene a second, with everything delivered until then.

    With Spark, more scenes follow in which nothing happens but that Spark catches up, or is
    installed (see `SparkBeside`).
    """
    texts = {subscriber.name: subscriber.text for subscriber in SUBSCRIBERS}
    with ScriptedBroker(texts, _state(0.0)) as stage:
        played = _played(stage, seconds)
        if not with_spark:
            yield from played
            return
        with SparkBeside(stage.lake, texts, spark_after) as spark:
            for scene in played:
                yield _with_found(scene, spark.counts(), spark)
            still = msgspec.structs.replace(scene, delivered=())
            for found in spark.catch_up(stage.position):
                yield _with_found(still, found, spark)


def _with_found(scene: Scene, found: dict[str, int], spark: SparkBeside) -> Scene:
    return msgspec.structs.replace(
        scene,
        found=None if spark.trouble else found,
        trouble=spark.trouble,
        is_installing=spark.is_installing() and not spark.trouble,
    )


def _played(stage: ScriptedBroker, seconds: int) -> Iterator[Scene]:
    sensors: dict[str, tuple[float, float, float]] = {}
    received = dict.fromkeys((subscriber.name for subscriber in SUBSCRIBERS), 0)
    recent: list[ReplayedNotification] = []
    published = 0
    for readings in City().seconds(seconds):
        delivered = stage.play(readings, {"walk": _state})
        for notification in delivered:
            received[notification.subscription] += 1
        for reading in readings:
            sensors[reading.attributes["sensor"]] = _seen(reading)
        published += len(readings)
        recent = [*reversed(delivered), *recent][:_RECENT_MAX]
        at = readings[-1].at
        yield Scene(
            at,
            dict(sensors),
            _boxes(at),
            _walker(at),
            published,
            dict(received),
            tuple(delivered),
            tuple(recent),
        )


def _seen(reading: Reading) -> tuple[float, float, float]:
    return (reading.attributes["lat"], reading.attributes["long"], reading.attributes["NO2"])


def _walker(at: float) -> tuple[float, float]:
    return 45.8165 + 0.007 * math.sin(at / 9), 15.9600 + 0.012 * math.cos(at / 13)


def _state(at: float) -> dict[str, object]:
    lat, long = _walker(at)
    return {"lat": lat, "long": long}


def _boxes(at: float) -> tuple[MapBox, ...]:
    lat, long = _walker(at)
    tram = _TRAM_START_LONG + _TRAM_PER_S * at
    return (
        MapBox((45.81, 45.82), (15.96, 15.98), "red"),
        MapBox((45.804, 45.808), (tram, tram + 0.008), "blue"),
        MapBox((lat - 0.002, lat + 0.002), (long - 0.004, long + 0.004), "magenta"),
    )


# -- drawing ----------------------------------------------------------------------------


def drawn(scene: Scene) -> RenderableType:
    """The scene as a terminal shows it: the map, who listens, what arrived."""
    side = Table.grid(padding=(0, 0))
    side.add_row(_listeners(scene))
    side.add_row(_arrivals(scene))
    whole = Table.grid(padding=(0, 1))
    whole.add_row(Panel(_map(scene), title=f"t = {scene.at:5.1f} s", width=COLUMNS + 4), side)
    return Group(whole, _texts())


def _texts() -> RenderableType:
    lines = [Text.assemble((f"{s.name:5}", f"bold {s.colour}"), f" {s.text}") for s in SUBSCRIBERS]
    for line in lines:
        line.truncate(WIDTH - 4, overflow="ellipsis")
    return Panel(Text("\n").join(lines), title="what they asked for", width=WIDTH - 1)


def _map(scene: Scene) -> Text:
    cells = [[(" ", "")] * COLUMNS for _ in range(ROWS)]

    def put(lat: float, long: float, sign: str, style: str) -> None:
        row = round((City.LAT[1] - lat) / (City.LAT[1] - City.LAT[0]) * (ROWS - 1))
        column = round((long - City.LONG[0]) / (City.LONG[1] - City.LONG[0]) * (COLUMNS - 1))
        if 0 <= row < ROWS and 0 <= column < COLUMNS:
            cells[row][column] = (sign, style)

    for box in scene.boxes:
        _outline(box, put)
    for lat, long, no2 in scene.sensors.values():
        put(lat, long, "●", "bold red" if no2 > 40 else "yellow" if no2 > 25 else "green")
    put(*_HOME, "⌂", "bold green")
    put(*scene.walker, "@", "bold magenta")
    return Text("\n").join(Text.assemble(*row) for row in cells)


def _outline(box: MapBox, put: object) -> None:
    assert callable(put)
    steps = 4 * COLUMNS
    for i in range(steps + 1):
        lat = box.lats[0] + (box.lats[1] - box.lats[0]) * i / steps
        long = box.longs[0] + (box.longs[1] - box.longs[0]) * i / steps
        for edge in box.longs:
            put(lat, edge, "│", box.colour)
        for edge in box.lats:
            put(edge, long, "─", box.colour)
    for lat, long, corner in (
        (box.lats[1], box.longs[0], "╭"),
        (box.lats[1], box.longs[1], "╮"),
        (box.lats[0], box.longs[0], "╰"),
        (box.lats[0], box.longs[1], "╯"),
    ):
        put(lat, long, corner, box.colour)


def _listeners(scene: Scene) -> RenderableType:
    table = Table(box=None, padding=(0, 1), expand=True)
    table.add_column("subscriber", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    table.add_column("received", justify="right", no_wrap=True)
    if scene.found is not None:
        table.add_column("by Spark", justify="right", no_wrap=True)
    for one in SUBSCRIBERS:
        count = f"{scene.received[one.name]:,}"
        row = [Text(one.name, style=f"bold {one.colour}"), Text(one.kind), Text(count)]
        table.add_row(*row, *_by_spark(scene, one.name))
    everyone = "everyone, by topic alone" if scene.found is None else "by topic alone"
    table.add_row(Text(everyone, style="dim"), "", f"{scene.published:,}")
    subtitle = "Spark is being installed, and joins then" if scene.is_installing else None
    return Panel(table, title="who gets what", subtitle=subtitle, width=WIDTH - COLUMNS - 6)


def _by_spark(scene: Scene, name: str) -> list[Text]:
    """What Spark has found, dim as long as it is behind."""
    if scene.found is None:
        return []
    is_even = scene.found[name] == scene.received[name]
    return [Text(f"{scene.found[name]:,}", style="" if is_even else "dim")]


def _arrivals(scene: Scene) -> RenderableType:
    lines = [_arrival(notification) for notification in scene.recent]
    lines += [Text("")] * (_RECENT_MAX - len(lines))
    return Panel(Text("\n").join(lines), title="just delivered", width=WIDTH - COLUMNS - 6)


def _arrival(notification: ReplayedNotification) -> Text:
    one = next(s for s in SUBSCRIBERS if s.name == notification.subscription)
    attributes = notification.attributes
    where = ""
    if notification.score is not None:
        moved_up = ", moved up" if notification.promoted else ""
        where = f"{notification.score:.0f} m from home{moved_up}"
    line = f" {attributes['sensor']} NO2 {attributes['NO2']:4} {where}"
    return Text.assemble((f"{one.name:5}", f"bold {one.colour}"), line)


def summary(scene: Scene) -> RenderableType:
    """What the demonstration showed, for the end of it."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    by_spark = [] if scene.found is None else ["by Spark"]
    for heading in ("subscriber", "kind", "received", *by_spark, "share", "subscription"):
        numeric = heading in ("received", "by Spark", "share")
        table.add_column(heading, justify="right" if numeric else "left", no_wrap=numeric)
    for one in SUBSCRIBERS:
        count = scene.received[one.name]
        row = [Text(one.name), Text(one.kind), Text(f"{count:,}"), *_by_spark(scene, one.name)]
        table.add_row(*row, f"{count / scene.published:.0%}", one.text)
    title = Text(f"{scene.published:,} publications in {scene.at:.0f} s of the city's time\n")
    return Group(title, table, Text(_verdict(scene)))


def _verdict(scene: Scene) -> str:
    """Whether Spark has found the same."""
    if scene.trouble:
        return f"\nSpark did not run beside it: {scene.trouble}"
    if scene.found is None:
        return ""
    total = sum(scene.found.values())
    if scene.found == scene.received:
        return f"\nSpark has found the same {total:,} notifications in the broker's lake."
    return f"\nSpark has found {total:,} notifications in the broker's lake, not the same ones."


def as_svg(scene: Scene, *, dark: bool) -> str:
    """The scene as a picture for the README; nothing in it is loaded from elsewhere."""
    console = Console(width=WIDTH, record=True, file=StringIO(), force_terminal=True)
    console.print(drawn(scene))
    theme = SVG_EXPORT_THEME if dark else DEFAULT_TERMINAL_THEME
    picture = console.export_svg(title="rove demo", theme=theme, unique_id="rove")
    return re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
