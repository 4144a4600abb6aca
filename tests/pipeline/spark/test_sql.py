"""Names as Spark SQL writes them."""

from typing import Any

import pytest

from rove.pipeline.spark.sql import quoted


@pytest.mark.parametrize("name", ["x", "a.b", "odd `name`", "ü", "select", "a b"])
def test_any_name_can_be_written(spark: Any, name: str) -> None:
    frame = spark.createDataFrame([(1,)], "x long").toDF(name)
    assert frame.select(quoted(name)).columns == [name]
