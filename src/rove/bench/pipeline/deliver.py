"""Handing over what the pipeline found: notifications a second, and how long the whole way takes.

**Rate.** A broker as it ships (every commit flushed) with subscribers that are away, a lake that it
has written, and a table in which each publication meets each subscription: how long the deliverer
takes until the broker has acknowledged all of it. With one subscriber every notification brings
its publication along; with many a publication is sent once for all of them.

**Delay.** A program publishes ten times a second and subscribes with `engine="spark"`, while `rove
pipeline run match deliver` runs beside the broker: from `publish` to the notification. The lake is
written every second, its default. What comes while Spark warms up is not counted.

Takes two minutes.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

import rove
from rove.bench.measure import Measure
from rove.errors import RoveError
from rove.lake.files import write_file
from rove.pipeline.jobs.delivery import at_once, deliver
from rove.pipeline.jobs.notifications import SCHEMA, MatchOutput
from rove.pipeline.lake.log import Lake
from rove.testing import broker_processes

SETTINGS: Final = {"ROVE_LAKE__CHANNELS": '[{name = "air", topics = ["air/#"]}]'}
TEXT: Final = "x >= 0"
READING: Final = {"NO2": 41.5, "place": "Zagreb", "sensor": "a-17"}
PAUSE_S: Final = 0.1
PATIENCE_S: Final = 60.0
_COUNTED: Final = 0.3
"""The last share of the publications, whose delays count."""


class DeliverBenchError(RoveError):
    """What was to be measured did not come about."""


def run(
    sizes: Sequence[tuple[int, int]] = ((1, 20_000), (50, 2_000)), seconds: float = 90.0
) -> Iterator[Measure]:
    """Both measurements; sizes are subscribers and publications."""
    for subscribers, publications in sizes:
        with tempfile.TemporaryDirectory(prefix="rove-deliver-") as folder:
            yield from rates(Path(folder), subscribers, publications)
    with tempfile.TemporaryDirectory(prefix="rove-deliver-") as folder:
        yield from delays(Path(folder), seconds)


# --- rate -----------------------------------------------------------------------------------------


def rates(folder: Path, subscribers: int, publications: int) -> Iterator[Measure]:
    """How fast a full table is delivered, and that doing it again delivers nothing."""
    with broker_processes.rove(folder, SETTINGS) as broker:
        url = f"mqtt://{broker_processes.HOST}:{broker.port}"
        asyncio.run(_fill(url, subscribers, publications))
        lake = _lake_with(folder / "data" / "lake", publications)
        everybody_meets_everything(lake, folder / "out")
        cpu_s = broker_processes.cpu_seconds(broker.pid)
        begun = time.perf_counter()
        count = deliver(folder / "out", lake.uri, url, until=at_once)
        took_s = time.perf_counter() - begun
        cpu_s = broker_processes.cpu_seconds(broker.pid) - cpu_s
        again = deliver(folder / "out", lake.uri, url, until=at_once)
    if (count, again) != (subscribers * publications, 0):
        raise DeliverBenchError(f"{count} were delivered, and {again} when it was done again")
    label = f"deliver, {subscribers} x {publications:,}"
    yield Measure(f"{label}: rate", round(count / took_s), "notifications/s")
    yield Measure(f"{label}: broker", round(cpu_s / count * 1e6, 1), "µs CPU each")


async def _fill(url: str, subscribers: int, publications: int) -> None:
    for number in range(subscribers):
        async with rove.connect(url, client_id=f"subscriber{number}") as client:
            await client.subscribe("air/#", TEXT, engine="spark")
    async with rove.connect(url) as client:
        posted = [await client.post("air/zagreb", {"x": x, **READING}) for x in range(publications)]
        for receipt in posted:
            await receipt


def _lake_with(folder: Path, publications: int) -> Lake:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if folder.is_dir():
            lake = Lake(folder)
            files = lake.files("publications", up_to=lake.position())
            if sum(file.rows for file in files) == publications:
                return lake
        time.sleep(PAUSE_S)
    raise DeliverBenchError(f"the lake in {folder} has not got all publications")


def everybody_meets_everything(lake: Lake, out: Path) -> None:
    """Fill a table with every pair of a subscription and a publication, as one batch."""
    numbers = [event.number for event in lake.events() if event.event == "made"]
    tables = [lake.read(file, ["position"]) for file in lake.files("publications")]
    positions = np.sort(pa.concat_tables(tables)["position"].to_numpy())
    count = len(positions) * len(numbers)
    rows = pa.table(
        {
            "subscription": np.tile(np.asarray(numbers, np.int64), len(positions)),
            "position": np.repeat(positions, len(numbers)),
            "id": pa.nulls(count, pa.string()),
            "at": pa.nulls(count, pa.int64()).cast(SCHEMA.field("at").type),
            "score": pa.nulls(count, pa.float64()),
            "promoted": pa.repeat(pa.scalar(False), count),
            "sequence": pa.nulls(count, pa.int64()),
        }
    ).cast(SCHEMA)
    output = MatchOutput(out)
    output.commit(lake.position(), [write_file(output.uri, rows)], [], 0)


# --- delay ----------------------------------------------------------------------------------------


def delays(folder: Path, seconds: float) -> Iterator[Measure]:
    """From publishing to the notification, with the pipeline in between."""
    with broker_processes.rove(folder, SETTINGS) as broker:
        url = f"mqtt://{broker_processes.HOST}:{broker.port}"
        asyncio.run(_fill(url, 0, 1))
        lake = _lake_with(folder / "data" / "lake", 1)
        words = ["match", "deliver", "--lake", lake.uri, "--out", folder / "out"]
        words += ["--engine", "spark", "--set", f"broker={url}"]
        command = [sys.executable, "-m", "rove", "pipeline", "run", *map(str, words)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as pipeline:
            try:
                found = asyncio.run(_delays(url, seconds))
            finally:
                pipeline.terminate()
    counted = np.asarray(found[int(len(found) * (1 - _COUNTED)) :])
    for name, share in (("median", 50), ("95 %", 95)):
        yield Measure(f"engine=spark: {name}", round(float(np.percentile(counted, share)), 2), "s")


async def _delays(url: str, seconds: float) -> list[float]:
    """Of every publication, in the order of publishing."""
    found: dict[int, float] = {}
    async with rove.connect(url) as client:
        subscription = await client.subscribe("air/#", TEXT, engine="spark")
        sent: list[float] = []
        subscription.listen(
            lambda notification: found.update(
                {notification.value["x"]: time.monotonic() - sent[notification.value["x"]]}
            )
        )
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            sent.append(time.monotonic())
            await client.publish("air/zagreb", {"x": len(sent) - 1, **READING})
            await asyncio.sleep(PAUSE_S)
        ends = time.monotonic() + PATIENCE_S
        while len(found) < len(sent) and time.monotonic() < ends:
            await asyncio.sleep(PAUSE_S)
        if len(found) < len(sent) or subscription.received > len(sent):
            raise DeliverBenchError(f"{len(sent)} were published and {len(found)} came")
    return [found[x] for x in sorted(found)]
