"""Rows become publications, each at least once, and a broker that refuses them is told of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from rove.broker.limits import Limits
from rove.client import AddressError, sync
from rove.pipeline.lake.data_source import register
from rove.pipeline.spark.broker_sink import (
    PublishingError,
    RowPublication,
    SinkOptions,
    publications,
)
from rove.serve.settings import Config, DataSettings, ListenSettings
from tests.effort import PATIENCE_S
from tests.serve.conftest import Running

WHERE = "mqtt://127.0.0.1:1883"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Running]:
    running = Running(
        Config(
            listen=ListenSettings(mqtt_port=0, http_port=0),
            data=DataSettings(folder=str(tmp_path / "data")),
            limits=Limits(packet_bytes_max=10_000),
        )
    )
    yield running
    running.stop()


def address(broker: Running) -> str:
    return f"mqtt://127.0.0.1:{broker.ports['mqtt']}"


def test_a_row_is_a_publication() -> None:
    settings = SinkOptions.read({"path": WHERE, "topic": "air"}, ["NO2"])
    batch = pa.RecordBatch.from_pylist(
        [{"NO2": 1.5, "n": None, "id": 7}, {"NO2": None, "id": None}]
    )
    assert list(publications(batch, settings)) == [
        RowPublication("air", b'{"NO2":1.5}', "7"),
        RowPublication("air", b"{}", None),
    ]
    batch = pa.RecordBatch.from_pylist([{"topic": "road", "payload": "hé"}])
    assert list(publications(batch, settings)) == [RowPublication("road", "hé".encode(), None)]
    batch = pa.RecordBatch.from_pylist([{"payload": b"\x00"}, {"payload": None}])
    assert [one.payload for one in publications(batch, settings)] == [b"\x00", b""]
    lacking = SinkOptions.read({"path": WHERE}, ["topic"])
    with pytest.raises(PublishingError, match="a row has no topic"):
        list(publications(pa.RecordBatch.from_pylist([{"topic": None, "x": 1}]), lacking))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "give the address of the broker"),
        ({"path": WHERE}, "give a topic"),
        ({"path": WHERE, "topic": "a", "qos": "0"}, "qos 0 has no acknowledgement"),
        ({"path": WHERE, "topic": "a", "qos": "x"}, "an option is wrong"),
        ({"path": WHERE, "topic": "a", "retian": "1"}, "an option is wrong: .*retian"),
    ],
)
def test_what_is_said_wrong_is_refused(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(PublishingError, match=complaint):
        SinkOptions.read(options, ["x"])
    with pytest.raises(AddressError):
        SinkOptions.read({"path": "http://x", "topic": "a"}, [])


def test_a_table_and_a_stream_go_to_the_broker(spark: Any, broker: Running, tmp_path: Path) -> None:
    register(spark)
    rows = [(f"air/{n % 3}", n, 10.0 * n, f"r-{n}") for n in range(200)]
    df = spark.createDataFrame(rows, "topic string, n long, NO2 double, id string").repartition(2)
    with sync.connect(address(broker)) as client:
        high = client.subscribe("air/#", "NO2 >= 1000")
        df.write.format("rove").mode("append").save(address(broker))
        found = [high.get(PATIENCE_S) for _ in range(100)]
        assert {(one.topic, one.value["n"], one.id) for one in found} == {
            (topic, n, id) for topic, n, no2, id in rows if no2 >= 1000
        }
        df.write.parquet(str(tmp_path / "table"))
        query = (
            spark.readStream.schema(df.schema)
            .parquet(str(tmp_path / "table"))
            .where("n < 105")
            .drop("id")  # the client would know them, and tell of each once
            .writeStream.format("rove")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(address(broker))
        )
        assert query.awaitTermination(PATIENCE_S)
        found = [high.get(PATIENCE_S) for _ in range(5)]
        assert {one.value["n"] for one in found} == set(range(100, 105))
        with pytest.raises(TimeoutError):
            high.get(0.1)


def test_a_broker_that_does_not_take_them_is_named(spark: Any, broker: Running) -> None:
    register(spark)
    large = spark.createDataFrame([("air", "-" * 20_000)], "topic string, payload string")
    with pytest.raises(PySparkException, match="does not accept the rows"):
        large.write.format("rove").mode("append").save(address(broker))
    with pytest.raises(PySparkException, match="publications cannot be overwritten"):
        large.write.format("rove").mode("overwrite").save(address(broker))
    broker.stop()
    with pytest.raises(PySparkException, match="does not accept the rows"):
        large.write.format("rove").mode("append").save(address(broker))
